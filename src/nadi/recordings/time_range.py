"""Ranges of time as users write them."""

from __future__ import annotations

from nadi.errors import Parameter, UsageError
from nadi.units import parse_ns


def time_range(window: str) -> tuple[int, int]:
    """Read a time range such as ``120ms:180ms``: its two times in ns.

    - Raises UsageError if it is none.
    """
    begin, colon, end = str(window).partition(":")
    try:
        if not colon:
            raise ValueError("two times are needed")
        return parse_ns(begin), parse_ns(end)
    except ValueError as error:
        raise UsageError(
            Parameter("window", window), str(error),
            "give two times since the first event, such as 120ms:180ms",
        ) from None  # fmt: skip
