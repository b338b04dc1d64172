"""Lanes on which slices lie in each other or apart."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["lanes"]

Slice = tuple[int, int]


def lanes(slices: Sequence[Slice]) -> list[int]:
    """Give the lane of each slice of a track; slices in order of start, longest first.

    A slice lies on that of the last begun slice around it, if none that began later is
    still open there; else on the first lane on which nothing is open.
    """
    found: list[int] = []
    for i, (start, end) in enumerate(slices):
        still_open = [j for j in range(i) if slices[j][1] > start]
        innermost = {found[j]: j for j in still_open}  # the last begun of each lane
        around = [j for j in innermost.values() if slices[j][1] >= end]
        free = next(lane for lane in range(i + 1) if lane not in innermost)
        found.append(found[max(around)] if around else free)
    return found
