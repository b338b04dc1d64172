"""Read a window of nodes, and beyond it until all dependencies are resolved.

Find nodes that depend on each other in a cycle.
"""

from __future__ import annotations

import numpy as np

from nadi.errors import FormatError
from nadi.files.node_ids import NodeRows
from nadi.kernels.sequences import group_rows
from nadi.simulation.feeder.et_stream import NodeStream
from nadi.simulation.feeder.node_table import NodeTable, joined_tables
from nadi.trace.arrays import Ints
from nadi.trace.validate import cycle_row

_NEVER = np.int64(2**62)


class SeenIds:
    """All ids that were read, stored as ranges: 16 bytes for each gap between ids."""

    def __init__(self) -> None:
        self._first = np.zeros(0, dtype=np.int64)
        self._end = np.zeros(0, dtype=np.int64)

    def has(self, ids: Ints) -> np.ndarray:
        """Return which ids were read; bool, of the same shape. O(ids * log(gaps))."""
        if not self._first.size:
            return np.zeros(ids.shape, dtype=np.bool_)
        place = np.searchsorted(self._first, ids, side="right") - 1
        return (place >= 0) & (ids < self._end[place])

    def add(self, ids: Ints) -> None:
        """Add distinct ids that were not read before. O(ids + gaps)."""
        if (ids[1:] < ids[:-1]).any():
            ids = np.sort(ids)
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        first = ids[np.append(0, breaks)] if ids.size else ids
        end = ids[np.append(breaks, ids.size) - 1] + 1 if ids.size else ids
        is_after = not self._first.size or not first.size or first[0] > self._first[-1]
        first, end = np.append(self._first, first), np.append(self._end, end)
        if not is_after:
            order = np.argsort(first)
            first, end = first[order], end[order]
        is_gap = first[1:] != end[:-1]
        self._first = first[np.append(True, is_gap)[: first.size]]
        self._end = end[np.append(is_gap, True)[: end.size]]


class WindowReader:
    """Reads windows of nodes from a stream, and checks ids and dependencies."""

    def __init__(self, stream: NodeStream) -> None:
        self._stream = stream
        self._seen = SeenIds()
        self._is_ended = False
        self._ahead = self._next_pieces([], 1)

    @property
    def name(self) -> str:
        """The file's name in errors."""
        return self._stream.name

    @property
    def is_complete(self) -> bool:
        """Whether all nodes have been read."""
        return self._is_ended and (self._ahead is None or not len(self._ahead))

    def put_first(self, tables: list[NodeTable]) -> None:
        """Insert nodes to be read before those of the file."""
        ahead = [self._ahead] if self._ahead is not None else []
        self._ahead = joined_tables([*tables, *ahead])

    def read(self, count: int) -> NodeTable:
        """Read ``count`` nodes, and more until all of their dependencies have been read too.

        Raises
        ------
        FormatError
            If a node depends on a missing node, an id is not unique, or the file is damaged.
            O(nodes * log(nodes)).
        """
        examined = count
        while True:
            ahead = self._ahead
            if (ahead is None or len(ahead) < examined) and not self._is_ended:
                ahead = self._ahead = self._next_pieces([] if ahead is None else [ahead], examined)
            assert ahead is not None, "only asked when something is left"
            part = ahead.cut(0, min(examined, len(ahead)))
            met_at = self._met_at(part)
            # a window may end after a row if it contains all dependencies of the rows up to there
            is_end = np.maximum.accumulate(met_at) <= np.arange(len(part))
            ends = np.flatnonzero(is_end[count - 1 :])
            if ends.size:
                return self._take(ahead, count + int(ends[0]))
            if self._is_ended and len(part) == len(ahead):
                self._check_there(part)
                return self._take(ahead, len(part))
            examined *= 2

    def _next_pieces(self, tables: list[NodeTable], needed: int) -> NodeTable | None:
        """Read until there are enough nodes, or the file ends."""
        size = sum(len(table) for table in tables)
        while size < needed and not self._is_ended:
            piece = self._stream.read()
            if piece is None:
                self._is_ended = True
            else:
                tables.append(piece)
                size += len(piece)
        return joined_tables(tables) if tables else None

    def _met_at(self, part: NodeTable) -> Ints:
        """Return for each row the last row that it depends on; its own if none comes later."""
        node = np.repeat(np.arange(len(part)), part.waits_per_node())
        rows = NodeRows(part.ids)
        at = rows.find(part.waits)
        unknown = np.flatnonzero(at < 0)
        at[unknown[~self._seen.has(part.waits[unknown])]] = _NEVER
        met_at = np.arange(len(part))
        later = np.flatnonzero(at > node)
        np.maximum.at(met_at, node[later], at[later])
        return met_at

    def _check_there(self, part: NodeTable) -> None:
        node = np.repeat(np.arange(len(part)), part.waits_per_node())
        is_missing = (NodeRows(part.ids).find(part.waits) < 0) & ~self._seen.has(part.waits)
        if (missing := np.flatnonzero(is_missing)).size:
            where = part.described(int(node[missing[0]]))
            raise FormatError(
                self.name,
                f"{where} depends on node {part.waits[missing[0]]}, which is not in the trace",
                "give the complete file: this one is truncated or part of a larger one",
            )

    def _take(self, ahead: NodeTable, count: int) -> NodeTable:
        taken = ahead.cut(0, count)
        rest = ahead.cut(count, len(ahead))
        # a small rest of many pieces is copied, so that the memory of the pieces is freed
        self._ahead = rest.at(np.arange(len(rest))) if len(rest) < count else rest
        self._check_new(taken)
        self._seen.add(taken.ids)
        return taken

    def _check_new(self, taken: NodeTable) -> None:
        again = np.flatnonzero(self._seen.has(taken.ids))
        if not again.size:
            repeated = NodeRows(taken.ids).repeated
            again = np.flatnonzero(taken.ids == repeated)[1:]
        if again.size:
            raise FormatError(
                self.name,
                f"{taken.described(int(again[0]))} has the id of another node, but ids must be "
                f"unique",
                "correct the program that wrote it, or the way in which files were merged",
            )


def cycle_among(num_nodes: int, parent: Ints, child: Ints) -> list[int]:
    """Return the nodes of a cycle, each of which the one before depends on; empty if there is none.

    O(nodes + dependencies), in plain Python only if there is a cycle.
    """
    first = cycle_row(num_nodes, parent, child)
    if first < 0:
        return []
    begin = np.empty(num_nodes + 1, dtype=np.int64)
    order = np.empty(child.size, dtype=np.int64)
    group_rows(child, begin, order)
    parents = parent[order]
    # the shortest path from the node back to itself, along its dependencies
    came_from: dict[int, int] = {}
    reached = [first]
    for node in reached:
        for other in parents[begin[node] : begin[node + 1]].tolist():
            if other == first:
                return _way_back(came_from, first, node)
            if other not in came_from:
                came_from[other] = node
                reached.append(other)
    raise AssertionError("cycle_row returned a node that is not on a cycle")


def _way_back(came_from: dict[int, int], first: int, last: int) -> list[int]:
    way = [last]
    while way[-1] != first:
        way.append(came_from[way[-1]])
    return way[::-1]
