"""How kernels are compiled with a version of numba whose inner parts nobody has looked at.

All of it is numba's public interface. It takes longer to compile and to load than
:mod:`nadi.kernels.numba_internals`, and gives the same results.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import overload

import nadi.kernels.numba_columns  # noqa: F401  numba hears of columns

_Function = TypeVar("_Function", bound=Callable[..., Any])

_numba: Any = numba
_overload: Any = overload
_njit: Callable[[_Function], _Function] = _numba.njit


def compile_helper(function: Callable[..., Any], *, is_small: bool) -> Any:
    """Give a dispatcher for what only kernels call; if it is small, as part of each caller."""
    return _numba.njit(function, forceinline=is_small)


def leave_out(helper: Any, part: str, stand_in: Callable[..., Any]) -> Any:
    """Give a function for a helper, which is its stand-in where a part is left out.

    That is where the class of the first argument, a named tuple, says so in ``leaves_out``.
    """
    if not hasattr(helper, "py_func"):
        return helper  # nothing is compiled: NUMBA_DISABLE_JIT

    def chosen(*arguments: Any) -> Any:
        return helper(*arguments)

    def choose(*arguments: Any) -> Callable[..., Any]:
        left_out = getattr(arguments[0].instance_class, "leaves_out", ())
        return stand_in if part in left_out else helper.py_func

    _overload(chosen, strict=False)(choose)
    return chosen


def compile_kernel(
    function: Callable[..., Any], arguments: tuple[Any, ...], folder: Path | None
) -> Callable[..., Any]:
    """Give a kernel compiled for arguments of some types, and kept in a folder if there is one."""
    types = tuple(_numba.typeof(argument) for argument in arguments)
    before = _numba.config.CACHE_DIR
    # the setting is that of the whole process: it is ours only meanwhile
    _numba.config.CACHE_DIR = str(folder or "")
    try:
        kept = _numba.njit(function, cache=folder is not None, nogil=True)
    finally:
        _numba.config.CACHE_DIR = before
    if kept is function:
        return function  # nothing is compiled: NUMBA_DISABLE_JIT
    try:
        kept.compile(types)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "numba":
            raise  # the caller's mistake: arguments of a wrong type
        # what is kept may be damaged, or the disk full: do without it
        kept = _numba.njit(function, nogil=True)
    compiled: Callable[..., Any] = kept
    return compiled


@_njit
def borrowed(given: Any) -> Any:
    """Give an array, or a tuple of them."""
    return given


@_njit
def lent(content: Any) -> Any:
    """Give a named tuple, which numba hands over array by array."""
    return content


@_njit
def apart() -> None:
    """Do nothing."""


@_njit
def prefetch(table: np.ndarray, row: int, column: int) -> None:
    """Do nothing."""


@_njit
def special_lanes(text: np.ndarray, at: int) -> int:
    """Tell which of 16 bytes end the plain part of a string, as bits."""
    found = 0
    for i in range(16):
        byte = text[at + i]
        if byte == 34 or byte == 92 or byte < 32 or byte >= 128:
            found |= 1 << i
    return found


@_njit
def count_trailing_zeros(number: int) -> int:
    """Count the zero bits below the lowest one; the number is not 0."""
    count = 0
    while not number >> count & 1:
        count += 1
    return count


@_njit
def load_eight_bytes(text: np.ndarray, at: int) -> int:
    """Load 8 bytes as one number, the first the lowest."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(text[at + i]) << np.uint64(8 * i)
    return word
