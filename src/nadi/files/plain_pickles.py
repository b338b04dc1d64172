"""Read pickles of plain values: dictionaries, lists, tuples, texts, numbers. Nothing else is made.

PyTorch writes memory snapshots and NCCL's flight recorder as pickles. A pickle can call any
function, and make Python take all memory by a list of any stated length. So all instructions are
looked at first, and Python's own reader gets a pickle only if each makes a plain value.
"""

import io
import pickle
from typing import Any

import numpy as np

from nadi.errors import FormatError
from nadi.files.pickle_kernels import find_odd

_NEWEST = 5
# the bytes that follow each instruction of a plain value; of what states its length, those of it
_ARGUMENTS = {
    b"\x80": 1, b"\x95": 8, b"}": 0, b"]": 0, b")": 0, b"(": 0, b"N": 0, b"\x88": 0, b"\x89": 0,
    b"\x94": 0, b"q": 1, b"r": 4, b"h": 1, b"j": 4, b"s": 0, b"u": 0, b"a": 0, b"e": 0, b"t": 0,
    b"\x85": 0, b"\x86": 0, b"\x87": 0, b"K": 1, b"M": 2, b"J": 4, b"G": 8,
}  # fmt: skip
_LENGTHS = {
    b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"C": 1, b"B": 4, b"\x8e": 8,
    b"\x8a": 1, b"\x8b": 4,
}  # fmt: skip
_REFUSED = -1
_BROKEN = (
    pickle.UnpicklingError, EOFError, IndexError, KeyError, TypeError, ValueError, AttributeError,
    OverflowError,
)  # fmt: skip


def _table(sizes: dict[bytes, int], otherwise: int) -> np.ndarray:
    table = np.full(256, otherwise, dtype=np.int64)
    for code, size in sizes.items():
        table[ord(code)] = size
    return table


_ARGUMENT_BYTES = _table(_ARGUMENTS | dict.fromkeys(_LENGTHS, 0), _REFUSED)
_LENGTH_BYTES = _table(_LENGTHS, 0)


class _Reader(pickle.Unpickler):
    """Python's reader, without classes: no pickle that was looked at names any."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def is_pickle(head: bytes) -> bool:
    """Return whether a file begins as a pickle of protocol 2 or newer does."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= _NEWEST


def read_plain(content: bytes, name: str) -> Any:
    """Read a pickle; ``name`` is the file's, for errors.

    - Returns: dict, list, tuple, str, bytes, int, float, bool, None. O(bytes).
    - Raises FormatError if the pickle is cut off or broken, or has anything but plain values; the
      error says at which byte. No object is made and nothing is called.
    """
    text = np.frombuffer(content, dtype=np.uint8)
    at, is_refused = divmod(find_odd(text, _ARGUMENT_BYTES, _LENGTH_BYTES), 2)
    if is_refused:
        what = f"the instruction {content[at : at + 1]!r} is none of a plain value"
        if content[at : at + 1] in (b"\x8a", b"\x8b"):
            what = "a number is longer than any counter, time or address"
        raise FormatError(
            f"{name}, byte {at}", what,
            "only plain values are read from a pickle, because others could run any program",
        )  # fmt: skip
    if at < len(content):
        raise _broken(name, at)
    try:
        return _Reader(io.BytesIO(content), encoding="utf-8", errors="replace").load()
    except _BROKEN:
        raise _broken(name, at) from None


def _broken(name: str, at: int) -> FormatError:
    return FormatError(
        f"{name}, byte {at}", "the pickle is broken or was cut off", "write it again"
    )
