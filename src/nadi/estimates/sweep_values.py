"""The values of a sweep as they are written: lists, ranges, and quantities with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nadi.errors import Parameter, UsageError
from nadi.units import parse_bytes, parse_ns, parse_operations, parse_rate

__all__ = ["MOST_POINTS", "NUMBERS", "UNITS_OF_CALCULON", "UNITS_OF_FILES", "Unit", "Value",
           "read_values"]  # fmt: skip

MOST_POINTS = 1_000_000
Value = float | int | str | bool
_TRUTH = {"true": True, "false": False}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BARE = re.compile(_NUMBER)
_WITH_UNIT = re.compile(rf"x?({_NUMBER})\s*([A-Za-z][A-Za-z/]*)")
_FACTOR = re.compile(rf"x({_NUMBER})")


class Unit(NamedTuple):
    """What numbers of a field are in.

    Attributes
    ----------
    name
        Such as ``GB/s``.
    parse
        Reads a number with a unit of its own.
    """

    name: str
    parse: Callable[[str], float]


_RATE = Unit("GB/s", lambda text: parse_rate(text) / 1e9)
_SIZE = Unit("GiB", lambda text: parse_bytes(text) / 2**30)
_FLOPS = Unit("TFLOP/s", lambda text: parse_operations(text) / 1e12)
_TIME = Unit("ns", parse_ns)
UNITS_OF_CALCULON = {
    "GBps": _RATE, "bandwidth": _RATE, "GiB": _SIZE, "tflops": _FLOPS,
    "latency": Unit("s", lambda text: parse_ns(text) / 1e9),
}  # fmt: skip
"""By the names of fields in Calculon's files."""
UNITS_OF_FILES = {
    "bandwidth": _RATE, "read": _RATE, "write": _RATE, "capacity": _SIZE, "peak": _FLOPS,
    "least_chunk": Unit("B", parse_bytes),
    **dict.fromkeys(
        ("latency", "most", "overhead", "pause", "reduction", "start", "endpoint_delay",
         "group_endpoint_delay"),
        _TIME,
    ),
}  # fmt: skip
"""By the keys of Nadi's system files."""
NUMBERS = (int, float)


def read_values(
    name: str, text: str, like: object, field: str, units: Mapping[str, Unit]
) -> tuple[Value, ...]:
    """Read the values of an axis.

    Parameters
    ----------
    name
        Of the axis, for errors.
    like
        A value of the field's type; of a field with a unit, a float.
    field
        Its last key, which says what unit it has.

    Raises
    ------
    UsageError
        If one is no such value, or a range that cannot be.
    """
    pieces = [one.strip() for one in text.split(",")]
    if isinstance(like, bool):
        return tuple(dict.fromkeys(_TRUTH.get(one.lower(), one) for one in pieces))
    if isinstance(like, str):
        return tuple(dict.fromkeys(pieces))
    reader = _Numbers(name, units.get(field), isinstance(like, int))
    reader.check_units(text)
    found: list[Value] = []
    for piece in pieces:
        found += reader.range(piece)
    return tuple(dict.fromkeys(found))


class _Numbers(NamedTuple):
    """Reads the numbers of a field."""

    name: str
    unit: Unit | None
    is_whole: bool

    def check_units(self, text: str) -> None:
        """Refuse a number without a unit beside one with another unit than the field's.

        Of ``512,1TiB`` one reads 512 GiB, and another 512 TiB.
        """
        found = [one.strip() for piece in text.split(",") for one in piece.split(":")]
        others = {unit[2] for one in found if (unit := _WITH_UNIT.fullmatch(one)) and self.unit} - {
            self.unit.name if self.unit else ""
        }
        bare = [one for one in found if _BARE.fullmatch(one) and float(one) != 0]
        if others and bare:
            raise UsageError(
                Parameter("sweep", f"{self.name}={text}"),
                f"{bare[0]} has no unit, and another value is in {min(others)}",
                f"write a unit with each, such as {bare[0]}{min(others)}",
            )

    def range(self, piece: str) -> list[float]:
        """Read a number, or a range of them."""
        parts = [one.strip() for one in piece.split(":")]
        if len(parts) == 1:
            return [self.number(piece)]
        try:
            first, last = (self.number(one) for one in parts[:2])
            factor = _FACTOR.match(parts[2]) if len(parts) == 3 else None
            step = float(factor[1]) if factor else self.number(parts[2])
            if not (first <= last and (step > 1 and first > 0 if factor else step > 0)):
                raise ValueError
            count = math.log(last / first) / math.log(step) if factor else (last - first) / step
            if len(parts) > 3 or not count <= MOST_POINTS:
                raise ValueError
        except (ValueError, IndexError):
            raise UsageError(
                Parameter("sweep", self.name),
                f"{piece} is not a range of at most {MOST_POINTS:,} values",
                "write FROM:TO:STEP, or FROM:TO:xFACTOR",
            ) from None
        steps = range(int(count + 1e-9) + 1)
        if factor:
            found = [first * step**k for k in steps]
            return [round(one) for one in found] if self.is_whole else found
        return [first + k * step for k in steps]

    def number(self, text: str) -> float:
        """Read a number; without a unit it is in the field's."""
        try:
            return int(text) if self.is_whole else float(text)
        except ValueError:
            pass
        try:
            if self.unit is None:
                raise ValueError(f"{text} is not a {'whole number' if self.is_whole else 'number'}")
            return self.unit.parse(text)
        except ValueError as error:
            told = f" in {self.unit.name}" if self.unit else ""
            raise UsageError(
                Parameter("sweep", self.name), str(error), f"give numbers{told}"
            ) from None
