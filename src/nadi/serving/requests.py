"""Requests: read from files, or drawn."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import read_file
from nadi.trace.arrays import Ints

_MOST_TOKENS = 1 << 24  # of a request
LATEST = 4e18
"""When a request may come at the latest, in ns: of seconds since 1970, in 2096."""
_REMEDY = 'a line is such as {"input_toks": 512, "output_toks": 128, "arrival_time_ns": 0}'


class Requests(NamedTuple):
    """Requests of a server; int64, shape (requests,) if nothing else is said.

    Attributes
    ----------
    arrival
        ns from the beginning; of one that follows another, from its end. Those that follow none
        are in any order.
    prompt, output
        Tokens, 1 or more.
    stream
        What it says: blocks at one place of equal streams are equal.
    group, shared
        What its first ``shared`` tokens say, which it has in common with others of its group.
    follows
        The request whose end it waits for, or -1.
    told, content
        Tokens whose content is known, 0 if it is not; and the content of blocks of these, of all
        requests one after the other.
    """

    arrival: Ints
    prompt: Ints
    output: Ints
    stream: Ints
    group: Ints
    shared: Ints
    follows: Ints
    told: Ints
    content: Ints

    @classmethod
    def of(
        cls, arrival: Ints, prompt: Ints, output: Ints, *, told: Ints | None = None,
        content: Ints | None = None,
    ) -> Requests:  # fmt: skip
        """Make requests that have nothing in common but what is told of their content."""
        num = arrival.size
        zero = np.zeros(num, dtype=np.int64)
        return cls(
            arrival, prompt, output, np.arange(1, num + 1), zero, zero.copy(), zero - 1,
            zero.copy() if told is None else told,
            np.zeros(0, dtype=np.int64) if content is None else content,
        )  # fmt: skip


class _Line(msgspec.Struct):
    """A line of a file of requests."""

    input_toks: int
    output_toks: int
    arrival_time_ns: float | None = None
    arrival_time: float | None = None  # seconds
    input_tok_ids: list[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]] = []


def read_requests(path: str | Path, block: int = 16) -> Requests:
    """Read a file of requests: a line of JSON each, also compressed by gzip.

    Parameters
    ----------
    path
        Its lines have ``input_toks``, ``output_toks``, ``arrival_time_ns`` (or ``arrival_time``
        in seconds), and optionally ``input_tok_ids``: which blocks of prompts are equal then
        follows from the tokens.
    block
        Tokens of a block of keys and values.

    Raises
    ------
    FormatError
        If a line is not such a request; the message names it.
    """
    decoder = msgspec.json.Decoder(_Line)
    arrivals, sizes, told, content = [], [], [], []
    text = read_file(Path(path)).content.tobytes()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise FormatError(f"{path}, line {number}", str(error), _REMEDY) from None
        except (ValueError, RecursionError):
            raise FormatError(f"{path}, line {number}", "is no JSON", _REMEDY) from None
        arrivals.append(_arrival_ns(one, f"{path}, line {number}"))
        sizes.append((one.input_toks, one.output_toks))
        ids = one.input_tok_ids[: one.input_toks]
        told.append(len(ids) // block)
        content += block_contents(ids, block)
    if not sizes:
        raise FormatError(str(path), "has no requests", _REMEDY)
    arrival, size = np.array(arrivals, dtype=np.int64), np.array(sizes, dtype=np.int64)
    return Requests.of(
        arrival - arrival.min(), size[:, 0].copy(), size[:, 1].copy(),
        told=np.array(told, dtype=np.int64), content=np.array(content, dtype=np.int64),
    )  # fmt: skip


def _arrival_ns(line: _Line, where: str) -> int:
    for name, tokens in (("input_toks", line.input_toks), ("output_toks", line.output_toks)):
        if not 1 <= tokens <= _MOST_TOKENS:
            raise FormatError(where, f"{name} is {tokens}, not 1 to {_MOST_TOKENS}", "correct it")
    if line.arrival_time_ns is None and line.arrival_time is None:
        raise FormatError(where, "has no arrival_time_ns", _REMEDY)
    seconds = line.arrival_time
    if line.arrival_time_ns is not None:
        seconds = line.arrival_time_ns / 1e9
    if seconds is None or not abs(seconds) <= LATEST / 1e9:
        raise FormatError(where, f"arrives at {seconds} s", "give seconds since a beginning")
    return int(line.arrival_time_ns if line.arrival_time_ns is not None else seconds * 1e9)


def block_contents(ids: list[int], block: int) -> list[int]:
    """Give each full block of tokens a number that says what it holds, with all before it."""
    found, parent = [], b""
    for begin in range(0, len(ids) - block + 1, block):
        tokens = np.array(ids[begin : begin + block], dtype=np.int64).tobytes()
        parent = hashlib.blake2b(parent + tokens, digest_size=8).digest()
        found.append(int.from_bytes(parent, "little") >> 1 | 1)
    return found
