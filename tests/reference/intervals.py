"""Length of a union of half-open intervals."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["union_length"]


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """Mark every unit of time that lies in an interval, and count the marks."""
    covered: set[int] = set()
    for start, end in intervals:
        covered.update(range(start, end))
    return len(covered)
