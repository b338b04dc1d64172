"""Names with numbers in them, such as ``layers.3.mlp.up``: what stays, and the numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints

_NUMBER = re.compile(r"(?<!\d)(0|[1-9]\d{0,16})(?!\d)")  # as it is written again


class NumberedNames(NamedTuple):
    """The names of rows."""

    pattern: Ints  # int64, shape (rows,): which of ``patterns``
    patterns: list[tuple[str, ...]]  # each different pattern: the texts between its numbers
    # first, number: int64, shapes (rows + 1,) and (numbers,): the numbers in the name of each row
    first: Ints
    number: Ints


def numbered_names(names: pl.Series) -> NumberedNames:
    """Take names apart; each different one once."""
    different = names.unique(maintain_order=True)
    texts = different.cast(pl.String).to_list()
    place = {text: k for k, text in enumerate(texts)}
    codes = names.cast(pl.String).replace_strict(place, return_dtype=pl.Int64).to_numpy()
    known: dict[tuple[str, ...], int] = {}
    parts = [_NUMBER.split(text) for text in texts]
    pattern = [known.setdefault(tuple(one[::2]), len(known)) for one in parts]
    numbers = [[int(digits) for digits in one[1::2]] for one in parts]
    sizes = np.array([len(one) for one in numbers], dtype=np.int64)
    begin = np.cumsum(sizes) - sizes
    flat = np.array([value for one in numbers for value in one], dtype=np.int64)
    first = np.append(0, np.cumsum(sizes[codes]))
    within = np.arange(first[-1]) - np.repeat(first[:-1] - begin[codes], sizes[codes])
    return NumberedNames(np.array(pattern, dtype=np.int64)[codes], list(known), first, flat[within])


def names_of(parts: NumberedNames) -> pl.Series:
    """Return the names of rows; the inverse of :func:`numbered_names`."""
    sizes = np.diff(parts.first)
    most = int(sizes.max(initial=0))
    padded = np.full((sizes.size, most), -1, dtype=np.int64)
    row = np.repeat(np.arange(sizes.size), sizes)
    padded[row, np.arange(parts.number.size) - parts.first[row]] = parts.number
    columns = {"pattern": parts.pattern, **{f"n{k}": padded[:, k] for k in range(most)}}
    frame = pl.DataFrame(columns)
    known = frame.unique(maintain_order=True)
    names = [_name(parts.patterns[pattern], numbers) for pattern, *numbers in known.iter_rows()]
    known = known.with_columns(name=pl.Series(names, dtype=pl.String))
    found = frame.join(known, on=frame.columns, how="left", maintain_order="left")
    return found["name"]


def _name(pattern: tuple[str, ...], numbers: list[int]) -> str:
    between = [str(number) for number in numbers[: len(pattern) - 1]]
    return "".join(text + number for text, number in zip(pattern, [*between, ""], strict=True))
