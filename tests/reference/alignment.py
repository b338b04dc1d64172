"""The longest common subsequence of two sequences, by its table."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["common_length"]


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the most pairs of equal elements that are in order in both; O(n m)."""
    above = [0] * (len(right) + 1)
    for a in left:
        row = [0]
        for j, b in enumerate(right):
            row.append(above[j] + 1 if a == b else max(above[j + 1], row[j]))
        above = row
    return above[-1]
