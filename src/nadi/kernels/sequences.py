"""Half-open intervals: their union, its length, and the positions in ranges.

Group rows by a key, for the compressed arrays of graphs and attributes.

Binary min-heaps of integers, each in an array from ``base`` on.

Substring search in many spans of bytes.

The nearest ancestor of a kind of each row of a tree.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nadi.kernels.jit import inner, kernel


class Union(NamedTuple):
    """The time covered by at least one of some intervals."""

    # start, end: int64, shape (stretches,): stretches that do not touch, ascending
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]  # int64, shape (stretches,): the time covered before each

    def until(self, time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the time covered before each moment; int64. O(moments log stretches)."""
        if not self.start.size:
            return np.zeros_like(time)
        at = np.maximum(np.searchsorted(self.start, time, side="right") - 1, 0)
        length = self.end[at] - self.start[at]
        return self.before[at] + np.clip(time - self.start[at], 0, length)


def union_of(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Union:
    """Return the union of intervals ``[start, end)``, in any order, with any overlap.

    - ``start``, ``end``: int64, shape (intervals,); ``end >= start``. O(n log n).
    """
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    is_first = np.append(True, start[1:] > reach[:-1])[: start.size]
    first = np.flatnonzero(is_first)
    begin, stop = start[first], reach[np.append(first[1:], start.size)[: first.size] - 1]
    return Union(begin, stop, np.cumsum(stop - begin) - (stop - begin))


def union_length(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """Return the time covered by at least one of the intervals ``[start, end)``.

    - ``start``, ``end``: int64, shape (intervals,); ``end >= start``; any order, any overlap.
    - Returns: Same unit as the input. O(n log n).
    """
    found = union_of(start, end)
    return int((found.end - found.start).sum())


def union_lengths(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    lane: npt.NDArray[np.int64],
    num_lanes: int,
) -> npt.NDArray[np.int64]:
    """Return the time that intervals cover in each of several lanes, as :func:`union_length`.

    - ``start``, ``end``, ``lane``: int64, shape (intervals,); lanes count from 0.
    - Returns int64, shape (num_lanes,): O(n log n).
    """
    lanes = np.arange(num_lanes + 1)
    first = np.full(lanes.size, start.min() if start.size else 0)
    start, end, begin_of_lane = on_one_axis((start, lane), (end, lane), (first, lanes))
    return np.diff(union_of(start, end).until(begin_of_lane))


def on_one_axis(
    *times: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> list[npt.NDArray[np.int64]]:
    """Put lanes one after the other on one axis, so that one pass serves all of them.

    - ``times``: Times, and the lane of each, from 0; int64, shape (n,) each.
    - Returns: The times on that axis: all of a lane come before those of the next.
    """
    first = min((int(time.min()) for time, _ in times if time.size), default=0)
    length = max((int(time.max()) for time, _ in times if time.size), default=0) - first + 1
    return [time - first + length * lane for time, lane in times]


def expand_ranges(
    first: npt.NDArray[np.integer[Any]], count: npt.NDArray[np.integer[Any]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """List the positions ``first, first + 1, ...`` of ranges, one range after the other.

    - ``first``, ``count``: int, shape (ranges,); ``count >= 0``.
    - Returns which, at: int64, shape (sum of count,): the range, and the position. O(ranges + sum
      of count).
    """
    which = np.repeat(np.arange(first.size), count)
    at = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count) + first[which]
    return which, at


@kernel
def group_rows(keys: np.ndarray, first: np.ndarray, order: np.ndarray) -> None:
    """Sort rows by a small integer key, equal keys in the order given. O(rows + keys).

    - ``keys``: int64, shape (rows,): each from 0 to ``len(first) - 2``.
    - ``first``: int64, shape (keys + 1,), filled: where each key's rows begin in ``order``.
    - ``order``: int64, shape (rows,), filled: the rows, sorted.
    """
    first[:] = 0
    for row in range(keys.size):
        first[keys[row] + 1] += 1
    for key in range(first.size - 1):
        first[key + 1] += first[key]
    at = first[:-1].copy()
    for row in range(keys.size):
        order[at[keys[row]]] = row
        at[keys[row]] += 1


@inner
def put_in(heap: np.ndarray, base: int, size: int, item: int) -> None:
    """Push an item onto a heap of ``size`` items."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[base + parent] <= item:
            break
        heap[base + at] = heap[base + parent]
        at = parent
    heap[base + at] = item


@inner
def take_first(heap: np.ndarray, base: int, left: int) -> int:
    """Remove the first item of a heap that keeps ``left`` items; the last one replaces it."""
    first, item = heap[base], heap[base + left]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        if child + 1 < left and heap[base + child + 1] < heap[base + child]:
            child += 1
        if heap[base + child] >= item:
            break
        heap[base + at] = heap[base + child]
        at = child
    heap[base + at] = item
    return first


@kernel
def spans_holding(
    content: np.ndarray, at: np.ndarray, length: np.ndarray, text: np.ndarray, holds: np.ndarray
) -> None:
    """Return which spans contain a text.

    - ``content``: uint8: the bytes that the spans lie in.
    - ``at``, ``length``: int64, shape (spans,): where each begins and how long it is.
    - ``text``: uint8, shape (1 or more,).
    - ``holds``: bool, shape (spans,), filled. O(bytes of the spans), where few begin like the text.
    """
    size = text.size
    first = text[0]
    for s in range(at.size):
        holds[s] = False
        for k in range(at[s], at[s] + length[s] - size + 1):
            if content[k] == first:
                n = 1
                while n < size and content[k + n] == text[n]:
                    n += 1
                if n == size:
                    holds[s] = True
                    break


@kernel
def climb(rows: np.ndarray, parent: np.ndarray, is_wanted: np.ndarray) -> None:
    """Replace each row by the nearest wanted one: itself, or one of its ancestors; -1 without one.

    - ``rows``: int64, shape (rows,): rows of the table, or -1.
    - ``parent``, ``is_wanted``: int64 and bool, shape (rows of the table,). O(rows * depth).
    """
    for i in range(rows.size):
        row = rows[i]
        while row >= 0:
            if row >= parent.size:
                raise IndexError("a row encloses another one, and is not in the table")
            if is_wanted[row]:
                break
            row = parent[row]
        rows[i] = row
