"""Analyses of recordings, slowly: every unit of time, every event, every pair looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

__all__ = ["Call", "Work", "idle_of", "innermost", "lengths_of", "states_of"]


class Work(NamedTuple):
    """Device work: its type, stream and times, and when it was launched (None: not recorded)."""

    type: str
    stream: int
    start: int
    end: int
    launched: int | None


class Call(NamedTuple):
    """A call on a thread."""

    start: int
    end: int


def states_of(work: list[Work]) -> Counter[frozenset[str]]:
    """Count the units of time from the first begin to the last end by the types that run."""
    first, last = min(one.start for one in work), max(one.end for one in work)
    return Counter(
        frozenset(one.type for one in work if one.start <= time < one.end)
        for time in range(first, last)
    )


def idle_of(work: list[Work], gap: int) -> dict[tuple[int, str], int]:
    """Sum the idle time of each stream by cause."""
    found: dict[tuple[int, str], int] = defaultdict(int)
    for stream in {one.stream for one in work}:
        mine = sorted((one for one in work if one.stream == stream), key=lambda one: one.start)
        for number, one in enumerate(mine[1:], 1):
            end = max(before.end for before in mine[:number])
            if one.start <= end:
                continue
            late = one.launched is not None and one.launched > end
            cause = "host wait" if late else "kernel wait" if one.start - end < gap else "other"
            found[stream, cause] += one.start - end
    return dict(found)


def lengths_of(work: list[Work], stream: int) -> list[tuple[int, int]]:
    """Give time and length of a stream's queue after each change."""
    mine = [one for one in work if one.stream == stream and one.launched is not None]
    changes = [(one.launched, 0) for one in mine] + [(one.start, 1) for one in mine]
    length, found = 0, []
    for time, is_start in sorted(changes):
        length += -1 if is_start else 1
        found.append((time, length))
    return found


def innermost(calls: list[Call], at: int) -> int:
    """Give the shortest other call around a call, or -1."""
    own = calls[at]
    around = [
        (one.end - one.start, number) for number, one in enumerate(calls)
        if number != at and one.start <= own.start and one.end >= own.end
    ]  # fmt: skip
    return min(around)[1] if around else -1
