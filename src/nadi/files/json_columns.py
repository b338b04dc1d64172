"""Columns of JSON texts: every distinct value is formatted once, then texts are joined."""

import math
from collections.abc import Callable

import msgspec
import numpy as np
import polars as pl

from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Ints
from nadi.trace.attributes import SPAN_CODES, Attributes


def json_text(text: str) -> str:
    """Format a string as JSON."""
    return msgspec.json.encode(text).decode()


def texts_as_json(texts: pl.Series) -> pl.Series:
    """Format a column of strings as JSON."""
    plain = texts.cast(pl.String)
    unique = plain.unique()
    written = [json_text(text) for text in unique.to_list()]
    return plain.replace_strict(unique, written, return_dtype=pl.String)


def float_text(value: float, *, single: bool = False) -> str:
    """Format a number as the shortest JSON that reads back as the same number.

    - ``value``: NaN and infinities become strings, as protobuf writes them.
    - ``single``: Whether it is a 32-bit float.
    """
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return str(np.float32(value)) if single else repr(value)


def written_once(attributes: Attributes, rows: Ints, write: Callable[[int], str]) -> pl.Series:
    """Format the values of ``rows``, which have one type; each distinct value once."""
    values = attributes.value[rows]
    if rows.size and int(attributes.type[rows[0]]) in SPAN_CODES:
        codes, firsts = intern_spans(
            attributes.bytes(), values, attributes.length[rows].astype(np.int64)
        )
    else:
        _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
        codes = inverse.astype(np.int32)
    written = [write(row) for row in rows[firsts].tolist()]
    return pl.Series(written, dtype=pl.String).gather(codes)


def spread(size: int, rows: Ints, texts: pl.Series) -> pl.Series:
    """Put texts into their rows of a column of ``size``, and empty texts into the others."""
    where = np.full(size, len(texts), dtype=np.int64)
    where[rows] = np.arange(len(texts))
    return pl.concat([texts, pl.Series([""])]).gather(where)


def joined(
    size: int, rows: Ints, texts: pl.Series, begin: str = "", between: str = ",", end: str = ""
) -> pl.Series:
    """Join the texts of each row: begin, the texts with something between them, end.

    - ``size``: Length of the result; rows without any text are empty.
    - ``rows``: int64, shape (texts,).
    - ``texts``: Texts to join; nulls are skipped.
    """
    grouped = (
        pl.DataFrame({"row": rows, "text": texts})
        .group_by("row", maintain_order=True)
        .agg(pl.col("text").drop_nulls().str.join(between))
    )
    whole = pl.Series([begin]) + grouped["text"] + pl.Series([end])
    return spread(size, grouped["row"].to_numpy(), whole)
