"""Read the nodes of an .et in pieces, with only one piece of the file in memory.

A trace in memory is encoded piece by piece, and other formats are read whole.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from nadi.errors import FormatError
from nadi.files.chakra.attribute_message_kernels import CUT, PROBLEMS
from nadi.files.chakra.et_decode import message_attributes
from nadi.files.chakra.et_decode_kernels import find_messages
from nadi.files.chakra.et_encode import encode
from nadi.files.chakra.et_nodes import DecodedNodes, NodeReader, WantedAttributes
from nadi.files.files import locate, read_pieces
from nadi.files.node_ids import NodeRows
from nadi.files.trace_files import read, sniff
from nadi.kernels.sequences import group_rows
from nadi.simulation.feeder.node_table import (
    NO_METADATA,
    NUMBERS,
    TEXTS,
    NodeTable,
    TextColumn,
    joined_tables,
    ranges,
)
from nadi.trace.arrays import Bytes, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import SCALAR_TYPES
from nadi.trace.schema import ATTRIBUTE_TYPES
from nadi.trace.trace import Trace
from nadi.trace.validate import cycle_row

# of a file at a time: about the bytes of a window, so that it need not be put together
_LEAST_PIECE, _LARGEST_PIECE = 1 << 22, 1 << 26
_BYTES_PER_NODE = 64


def open_pieces(
    source: Path | str | Trace, window: int
) -> tuple[str, Iterator[bytes | memoryview | Bytes]]:
    """Open a file or address in any format that Nadi reads, plain or gzip; or a trace.

    Return its name in error messages, and the bytes of an .et: the metadata, and the nodes.

    Only an .et is read piece by piece; a piece has about the bytes of one window of nodes. A trace
    in memory is encoded piece by piece.

    - Raises InputError if the file does not exist, or its format is unknown.
    """
    if isinstance(source, Trace):
        files = source.provenance.sources
        return files[0].path if files else "the trace", encode(source, IssueLog())
    path = locate(source)
    found = sniff(path)
    if found is not None and found.name == "chakra":
        piece = min(max(window * _BYTES_PER_NODE, _LEAST_PIECE), _LARGEST_PIECE)
        return str(path), read_pieces(path, piece)
    # of another format, or of none: then this says so
    return str(path), encode(read(path), IssueLog())


_FEW = 1 << 10  # nodes
_LARGEST_MESSAGE = 1 << 31  # the limit of protobuf
_WANTED = WantedAttributes(numbers=NUMBERS, texts=TEXTS)
_NUMBER_TYPES = [
    code for code, name in enumerate(ATTRIBUTE_TYPES)
    if name in SCALAR_TYPES and name not in ("string", "bytes")
]  # fmt: skip
_REMEDY = "correct the program that wrote it"


class NodeStream:
    """Reads the nodes of an .et in their order.

    Parameters
    ----------
    name
        The file's name in errors.
    pieces
        The bytes of the metadata and the nodes, from :mod:`nadi.simulation.feeder.et_stream`.
    with_control
        Whether nodes wait for their control dependencies too.
    """

    def __init__(
        self, name: str, pieces: Iterator[bytes | memoryview | Bytes], *, with_control: bool
    ) -> None:
        self.name = name
        self._pieces = pieces
        self._with_control = with_control
        self._rest: Bytes = np.zeros(0, dtype=np.uint8)
        self._base = 0  # bytes of the file before the rest
        self._is_begun = False
        self._bytes_per_node = 32  # as long as no node has been read: room not used costs nothing
        self._last = "the metadata"

    def read(self) -> NodeTable | None:
        """Return the nodes of the next piece, or None at the end.

        Raises
        ------
        FormatError
            If messages are damaged or truncated, or a node depends on itself or twice on another.
        InputError
            If reading the file fails.
        """
        while (content := self._next_content()) is not None:
            at = 1 if self._is_begun else 0
            reader = NodeReader(content, at, content.size, _WANTED, self._bytes_per_node)
            reader.read(content.size)
            if reader.problem and (reader.problem != CUT or self._is_too_long(content, reader.at)):
                raise self._broken(reader.problem, self._base + reader.at - at, reader)
            first, end = at, reader.at
            self._rest = content[end:] if reader.problem else self._rest[:0]
            self._base += end - at
            if not self._is_begun and end > 0:
                self._is_begun = True
                first = _end_of_message(content)
            if num_nodes := reader.count("nodes"):
                # a little less than before, so that the first buffers of the next piece suffice
                self._bytes_per_node = max((end - first) * 15 // (16 * num_nodes), 1)
                return self._table(content, first, end, reader)
            # the message is longer than the piece: buffers for few nodes suffice
            self._bytes_per_node = max(self._bytes_per_node, content.size // _FEW)
        if self._rest.size:
            raise self._broken(CUT, self._base, None)
        if not self._is_begun:
            raise FormatError(self.name, "the file is empty", "write or copy it again")
        return None

    def _next_content(self) -> Bytes | None:
        """Return the rest of the last piece joined with the next pieces, at least twice as long."""
        pieces = [self._rest]
        if self._is_begun:
            pieces.insert(0, NO_METADATA)
        size = 0
        while size <= self._rest.size and (piece := next(self._pieces, None)) is not None:
            pieces.append(np.frombuffer(piece, dtype=np.uint8))
            size += len(piece)
        if not size:
            return None
        pieces = [piece for piece in pieces if piece.size]
        if len(pieces) == 1 and pieces[0].flags.writeable:  # as kernels want it
            return pieces[0]
        return np.concatenate(pieces)

    @staticmethod
    def _is_too_long(content: Bytes, at: int) -> bool:
        """Return whether the length of a message exceeds the limit of protobuf."""
        length = shift = 0
        for byte in content[at : at + 10].tolist():
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return bool(length >= _LARGEST_MESSAGE)
        return shift >= 70

    def _broken(self, problem: int, at: int, reader: NodeReader | None) -> FormatError:
        last = self._last
        if reader is not None and (count := reader.count("nodes")):
            last = f"node {reader.row('numbers', 0)[count - 1]}"
            last += f" ({reader.texts([reader.row('codes', 1)[count - 1]])[0]})"
        return FormatError(
            self.name, f"byte {at:,}, after {last}: {PROBLEMS[problem]}",
            "the file is damaged or cut off: write or copy it again",
        )  # fmt: skip

    def _table(self, content: Bytes, first: int, end: int, reader: NodeReader) -> NodeTable:
        decoded = DecodedNodes([reader], _WANTED)
        ids = decoded.column("id")
        begin, length = np.empty_like(ids), np.empty_like(ids)
        find_messages(content, first, begin, length)
        table = NodeTable(
            ids=ids,
            kind=decoded.kind().astype(np.int64),
            runtime=decoded.column("duration"),
            numbers=decoded.numbers(),
            texts={
                "name": TextColumn(*decoded.names()),
                **{name: TextColumn(*decoded.text(name)) for name in TEXTS},
            },
            wait_end=np.zeros(ids.size, dtype=np.int64),
            waits=np.zeros(0, dtype=np.int64),
            buffer=np.zeros(ids.size, dtype=np.int64),
            begin=begin,
            length=length,
            buffers=(content,),
        )
        if reader.count("misfit"):
            self._add_misfits(table, content[first:end], reader.count("attributes"))
        self._last = table.described(ids.size - 1)
        return self._with_waits(table, decoded)

    def _add_misfits(self, table: NodeTable, messages: Bytes, at_most: int) -> None:
        """Fill in numbers that are negative, or not written as whole numbers."""
        content = np.concatenate([NO_METADATA, messages])
        # the empty metadata message adds one attribute, the version
        attributes = message_attributes(content, len(table), at_most + 1)
        for name in NUMBERS:
            rows = attributes.rows_named(name)
            for row in rows[np.isin(attributes.type[rows], _NUMBER_TYPES)].tolist():
                node = int(attributes.node[row])
                column = table.numbers.setdefault(name, np.full(len(table), -1, dtype=np.int64))
                column[node] = self._whole(attributes, row, table, node)

    def _whole(self, attributes: Attributes, row: int, table: NodeTable, node: int) -> int:
        value = attributes.python_value(row)
        try:
            whole = int(value)
        except (ValueError, OverflowError):
            whole = 1 << 63
        if not -(1 << 63) <= whole < 1 << 63:
            name = attributes.names[attributes.name[row]]
            raise FormatError(
                self.name, f"{table.described(node)} has {name} {value}, which is too large",
                _REMEDY,
            )  # fmt: skip
        return whole

    def _with_waits(self, table: NodeTable, decoded: DecodedNodes) -> NodeTable:
        """Add the dependencies of each node: data and, if requested, control."""
        count, waits = decoded.dependencies("data")
        wait_end = np.cumsum(count)
        self._check_waits(table, count, wait_end, waits)
        if self._with_control:
            rows = np.arange(len(table))
            node = np.repeat(rows, count)
            of_control, ids = decoded.dependencies("ctrl")
            children = np.repeat(rows, of_control)
            self._check_twice(table, np.cumsum(of_control), ids)
            is_other = ids != table.ids[children]  # the root node names itself
            node = np.concatenate([node, children[is_other]])
            waits = np.concatenate([waits, ids[is_other]])
            order = np.lexsort((waits, node))
            node, waits = node[order], waits[order]
            is_new = np.append(True, (node[1:] != node[:-1]) | (waits[1:] != waits[:-1]))
            node, waits = node[is_new[: node.size]], waits[is_new[: node.size]]
            wait_end = np.cumsum(np.bincount(node, minlength=len(table)))
        return replace(table, wait_end=wait_end, waits=waits)

    def _check_waits(self, table: NodeTable, count: Ints, wait_end: Ints, waits: Ints) -> None:
        self._check_twice(table, wait_end, waits)
        if (own := np.flatnonzero(waits == np.repeat(table.ids, count))).size:
            node = int(np.searchsorted(wait_end, own[0], side="right"))
            raise FormatError(self.name, f"{table.described(node)} depends on itself", _REMEDY)

    def _check_twice(self, table: NodeTable, wait_end: Ints, waits: Ints) -> None:
        # dependencies of a node are consecutive; ascending ids have no duplicates
        is_first = np.zeros(waits.size + 1, dtype=np.bool_)
        is_first[wait_end] = True
        falls = np.flatnonzero((waits[1:] <= waits[:-1]) & ~is_first[1:-1])
        if not falls.size:
            return
        doubtful = np.unique(np.searchsorted(wait_end, falls, side="right"))
        first = np.append(0, wait_end)[doubtful]
        count = wait_end[doubtful] - first
        entries, node = ranges(first, count), np.repeat(doubtful, count)
        order = np.lexsort((waits[entries], node))
        entries, node = entries[order], node[order]
        is_same = (node[1:] == node[:-1]) & (waits[entries[1:]] == waits[entries[:-1]])
        if (twice := np.flatnonzero(is_same)).size:
            told = table.described(int(node[twice[0]]))
            number = waits[entries[twice[0]]]
            raise FormatError(self.name, f"{told} depends on node {number} twice", _REMEDY)


def _end_of_message(content: Bytes) -> int:
    """Return the end of the first message."""
    begin, length = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    find_messages(content, 0, begin, length)
    return int(begin[0] + length[0])


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
