"""Numbers, texts and tensors that a user gives to the builder, checked."""

import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from nadi.errors import UsageError
from nadi.trace.operations import DTYPES, MAX_BYTES
from nadi.units import parse_bytes, parse_ns, printable

_OWN = str(Path(__file__).parent)


class UserLine(NamedTuple):
    """A line of a program."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}"


def user_line() -> UserLine:
    """Return the line that called into this package, from however deep inside."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno)


def refusal(what: str, remedy: str, line: UserLine | None = None) -> UsageError:
    """Return the error about a line of the user's code; by default the one that runs now."""
    return UsageError(str(line or user_line()), what, remedy)


_LARGEST_WORK = 2**63 - 1
_SHOWN = 60
_OF_BYTES = "unsigned char"  # the type of elements of a tensor of which only the size is known
_TYPES = {dtype.torch: (dtype.cpp[0], dtype.itemsize) for dtype in DTYPES}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a rank, which nodes take as input or give as output.

    Attributes
    ----------
    number
        Its number in its rank, from 1; also that of its storage.
    shape
        Its size in each dimension.
    dtype
        Type of its elements, as an execution trace names it.
    itemsize
        Size of an element, in bytes.
    device
        Its device, such as ``cuda:0``.
    """

    number: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    device: str

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size, in bytes."""
        return self.elements * self.itemsize

    def value(self) -> list[int | str]:
        """Return it as an execution trace lists it among a node's values."""
        return [self.number, self.number, 0, self.elements, self.itemsize, self.device]


def new_tensor(
    number: int, shape: int | Sequence[int], dtype: str, of_bytes: int | str | None, device: str
) -> Tensor:
    """Make a tensor of a shape and type, or one of bytes."""
    if of_bytes is not None:
        if shape != ():
            raise refusal("a tensor has a shape or a number of bytes, not both", "state one")
        return Tensor(number, (size(of_bytes, "bytes"),), _OF_BYTES, 1, device)
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype
    if name not in _TYPES:
        raise refusal(f"unknown dtype {_shown(dtype)}", f"one of {', '.join(_TYPES)}")
    cpp, itemsize = _TYPES[name]
    lengths = [shape] if not isinstance(shape, Iterable) else list(shape)
    checked = tuple(whole(length, "a length of the shape") for length in lengths)
    if prod(checked) * itemsize > MAX_BYTES:
        raise refusal(f"a tensor of shape {checked} exceeds 2^62 bytes", "correct its shape")
    return Tensor(number, checked, cpp, itemsize, device)


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """Sum the bytes of tensors."""
    return sum(tensor.bytes for tensor in tensors)


def checked_name(name: object, what: str) -> str:
    """Return a name, which is a text that is not empty and can be written as UTF-8."""
    if not isinstance(name, str) or not name or not _is_text(name):
        raise refusal(f"{what} is {_shown(name)}; it must be a text", f'write {what}="..."')
    return name


def size(value: object, what: str, least: int = 0) -> int:
    """Return a number of bytes, given as one or as a text such as ``1 GiB``."""
    return _quantity(value, what, parse_bytes, MAX_BYTES, least)


def nanoseconds(value: object, what: str) -> int:
    """Return a time, given in ns or as a text such as ``1.5 ms``."""
    return _quantity(value, what, parse_ns, MAX_BYTES, 0)


def number(value: object, what: str) -> int:
    """Return a number of operations, which may be a whole float such as ``2e12``."""
    return whole(value, what, _LARGEST_WORK)


def whole(value: object, what: str, largest: int = MAX_BYTES, least: int = 0) -> int:
    """Return an integer within a range; a float must be whole, and a bool is none."""
    found = _integer(value)
    if found is None or not least <= found <= largest:
        limit = f"of {least} or more" if found is None or found < least else f"up to {largest}"
        raise refusal(
            f"{what} is {_shown(value)}; it must be a whole number {limit}", "correct the number"
        )
    return found


def _quantity(
    value: object, what: str, parse: Callable[[str], int], largest: int, least: int
) -> int:
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError as error:
            raise refusal(f"{what}: {error}", "correct the text, or give a number") from None
    return whole(value, what, largest, least)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):  # numpy's float64 is one
        return int(value) if value.is_integer() else None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    return printable(repr(value), _SHOWN)
