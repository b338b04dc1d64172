"""Operations of one thread: their boundaries in order, and who owns the time between.

Operations are (start, end) pairs in order of start, longest first, as in a trace. Times
are small: the oracle looks at every unit of time.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["boundaries", "exclusive_times", "has_partial_overlap", "owners", "parents"]

Operations = Sequence[tuple[int, int]]


def boundaries(operations: Operations) -> list[int]:
    """Order the starts (2 * op) and ends (2 * op + 1).

    What has run ends, the inner before the outer; then what will run begins, the outer
    before the inner. Operations of no duration come last: they lie in what has just begun
    and not in what has just ended, and the first recorded of them encloses the next.
    """
    ordered = []
    for time in sorted({time for operation in operations for time in operation}):
        ending = [i for i, (start, end) in enumerate(operations) if start < end == time]
        beginning = [i for i, (start, end) in enumerate(operations) if time == start < end]
        instant = [i for i, (start, end) in enumerate(operations) if time == start == end]
        ordered += [2 * i + 1 for i in reversed(ending)]
        ordered += [2 * i for i in beginning]
        ordered += [2 * i for i in instant]
        ordered += [2 * i + 1 for i in reversed(instant)]
    return ordered


def parents(operations: Operations) -> list[int]:
    """Find for each operation the last one begun before it that is still open."""
    found = []
    for i, (start, end) in enumerate(operations):
        enclosing = [
            j
            for j in range(i)
            if operations[j][1] > start or operations[j] == (start, end)  # both of no duration
        ]
        found.append(enclosing[-1] if enclosing else -1)
    return found


def owners(operations: Operations) -> list[int]:
    """Find the operation that is open and began last before each boundary, or -1."""
    ordered = boundaries(operations)
    found = []
    for at in range(len(ordered)):
        before = ordered[:at]
        still_open = [b // 2 for b in before if b % 2 == 0 and b + 1 not in before]
        found.append(still_open[-1] if still_open else -1)
    return found


def exclusive_times(operations: Operations) -> list[int]:
    """Give each unit of time to the operation that covers it and began last."""
    exclusive = [0] * len(operations)
    for time in range(max((end for _, end in operations), default=0)):
        covering = [i for i, (start, end) in enumerate(operations) if start <= time < end]
        if covering:
            exclusive[covering[-1]] += 1
    return exclusive


def has_partial_overlap(operations: Operations) -> bool:
    """Tell whether an operation begins inside another one and ends after it."""
    return any(a < c < b < d for a, b in operations for c, d in operations)
