"""Decimal microseconds to nanoseconds, by the decimal module."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

__all__ = ["nanoseconds"]


def nanoseconds(microseconds: str) -> int:
    """Round half away from zero, which decimal calls half up."""
    with localcontext(prec=len(microseconds) + 10):
        exact = Decimal(microseconds) * 1000
        return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))
