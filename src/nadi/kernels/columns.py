"""Named numbers: the columns of kernels' arrays, and the codes in them.

``class LINK(Columns, of="links")`` with ``bytes = column("what it has sent", "bytes")`` in it
declares the column ``links[link, LINK.bytes]``. ``LINK.bytes`` is a plain integer, in Python and
in compiled code: numba treats such a class like a module, as a namespace of constants.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast


class Declared(NamedTuple):
    """A declared column or code."""

    meaning: str
    unit: str = ""
    span: int = 1  # how many columns beside each other have this name
    shares: Any = None  # the declaration of which this is a second name
    number: int = -1


def column(meaning: str, unit: str = "", *, span: int = 1) -> int:
    """Declare the next column of an array, or a span of columns, named by the first of them."""
    return cast("int", Declared(meaning, unit, span))


def same_as(shares: int, meaning: str, unit: str = "") -> int:
    """Declare a second name of an earlier column, for rows that do not use the first."""
    return cast("int", Declared(meaning, unit, 0, shares))


def code(meaning: str) -> int:
    """Declare the next code."""
    return cast("int", Declared(meaning))


class Numbered(type):
    """The type of classes whose names are numbers, in the order of their declaration.

    :mod:`nadi.kernels.numba_columns` tells numba of it.
    """

    declared: dict[str, Declared]
    of: str
    _width: int

    def __new__(
        cls, name: str, bases: tuple[type, ...], space: dict[str, Any], of: str = "", first: int = 0
    ) -> Numbered:
        """Give each name that the class declares its number."""
        declared: dict[str, Declared] = {}
        numbers: dict[int, int] = {}  # by identity: two may mean the same
        following = first
        for key, one in space.items():
            if isinstance(one, Declared):
                at = following if one.shares is None else numbers[id(one.shares)]
                numbers[id(one)] = at
                declared[key] = one._replace(number=at)
                following += one.span
        constants = {key: one.number for key, one in declared.items()}
        made = super().__new__(cls, name, bases, space | constants)
        made.declared, made.of, made._width = declared, of, following
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, space)

    def __len__(cls) -> int:
        """Return the number of columns."""
        return cls._width


class Columns(metaclass=Numbered):
    """The columns of the array ``of`` a kernel, from 0."""


class Codes(metaclass=Numbered):
    """The codes of a column, numbered from ``first``."""
