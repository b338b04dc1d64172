"""Options that are lists: names, and numbers with or without units."""

from __future__ import annotations

from collections.abc import Callable

from nadi.errors import Parameter, UsageError

__all__ = ["amounts", "names_in"]


def names_in(text: str) -> list[str]:
    """Read a list of names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def amounts(name: str, text: str, parse: Callable[[str], float]) -> tuple[float, ...]:
    """Read a list of numbers, with or without units."""
    found = []
    for one in names_in(text):
        try:
            found.append(float(one) if one.replace(".", "", 1).isdecimal() else parse(one))
        except ValueError as error:
            raise UsageError(
                Parameter(name, one), str(error), "give numbers with commas between them"
            ) from None
    return tuple(found)
