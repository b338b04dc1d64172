"""Nodes as columns: the nodes of a piece of a file, or all nodes that a feeder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nadi.files.chakra.et_decode import message_attributes
from nadi.trace.arrays import Bytes, Ints, Ints32
from nadi.trace.attribute_kernels import place_spans
from nadi.trace.attributes import Attributes
from nadi.trace.protobuf_values import write_varint

# attributes with a column of their own: whole numbers, -1 for nodes without one; and texts
NUMBERS = (
    "is_cpu_op", "num_ops", "tensor_loc", "tensor_size", "comm_type", "comm_priority", "comm_size",
    "comm_src", "comm_dst", "comm_tag",
)  # fmt: skip
TEXTS = ("pg_name",)
NO_METADATA = np.zeros(1, dtype=np.uint8)  # an empty metadata message, to precede nodes without one
_MOST_ATTRIBUTES = 4  # attributes that an empty message has by default


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of texts, which stores each distinct text once."""

    code: Ints32  # int32, shape (nodes,): position in ``texts``
    texts: Sequence[str]  # the texts; some may be unused

    def at(self, rows: Ints) -> TextColumn:
        """Return some rows, with only the texts in them."""
        code = self.code[rows]
        used = np.flatnonzero(np.bincount(code, minlength=len(self.texts)))
        new = np.zeros(len(self.texts), dtype=np.int32)
        new[used] = np.arange(used.size)
        return TextColumn(new[code], [self.texts[k] for k in used.tolist()])


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Nodes in the order of their file, with their dependencies and the bytes of their messages."""

    ids: Ints  # int64, shape (nodes,)
    kind: Ints  # int64, shape (nodes,): Chakra's number of the type
    runtime: Ints  # int64, shape (nodes,), us
    numbers: dict[str, Ints]  # int64, shape (nodes,), for each of ``NUMBERS`` that any node has
    texts: dict[str, TextColumn]  # ``name`` and each of ``TEXTS``
    wait_end: Ints  # int64, shape (nodes,): where each node's ids end in ``waits``
    waits: Ints  # int64: ids of the dependencies of all nodes
    # buffer, begin, length: int64, shape (nodes,): the buffer of a node's message, its offset
    # there, and its length
    buffer: Ints
    begin: Ints
    length: Ints
    buffers: tuple[Bytes, ...]  # uint8 each

    def __len__(self) -> int:
        return self.ids.size

    def number(self, name: str) -> Ints:
        """Return one of :data:`NUMBERS` for every node; -1 for nodes without it."""
        if name in self.numbers:
            return self.numbers[name]
        return np.full(len(self), -1, dtype=np.int64)

    def text(self, name: str, row: int) -> str:
        """Return a node's name, or one of :data:`TEXTS`; empty if it has none."""
        column = self.texts[name]
        return str(column.texts[column.code[row]])

    def described(self, row: int) -> str:
        """Return a node's id and name, for errors."""
        return f"node {self.ids[row]} ({self.text('name', row) or 'no name'})"

    def message(self, row: int) -> bytes:
        """Return the message of a node, with its length before it."""
        begin, length = int(self.begin[row]), int(self.length[row])
        content = self.buffers[self.buffer[row]][begin : begin + length]
        return bytes(write_varint(length) + content.tobytes())

    def attributes(self, row: int) -> Attributes:
        """Read all attributes in the message of a node. O(bytes of the message)."""
        content = np.frombuffer(bytearray(b"\0" + self.message(row)), dtype=np.uint8)
        return message_attributes(content, 1, content.size + _MOST_ATTRIBUTES)

    def waits_per_node(self) -> Ints:
        """Return the number of dependencies of each node, including those that have ended."""
        return np.diff(self.wait_end, prepend=0)

    def cut(self, first: int, end: int) -> NodeTable:
        """Return the rows from ``first`` to before ``end``, without copying."""
        rows = slice(first, end)
        before = int(self.wait_end[first - 1]) if first else 0
        last = int(self.wait_end[end - 1]) if end else 0
        return replace(
            self,
            ids=self.ids[rows],
            kind=self.kind[rows],
            runtime=self.runtime[rows],
            numbers={name: column[rows] for name, column in self.numbers.items()},
            texts={name: replace(t, code=t.code[rows]) for name, t in self.texts.items()},
            wait_end=self.wait_end[rows] - before,
            waits=self.waits[before:last],
            buffer=self.buffer[rows],
            begin=self.begin[rows],
            length=self.length[rows],
        )

    def at(self, rows: Ints) -> NodeTable:
        """Return a copy of some rows, ascending; keeps at most twice their messages' bytes."""
        count = self.waits_per_node()[rows]
        wait_end = np.cumsum(count)
        waits = self.waits[ranges(self.wait_end[rows] - count, count)]
        buffer, begin, buffers = self._bytes_of(rows)
        return NodeTable(
            ids=self.ids[rows],
            kind=self.kind[rows],
            runtime=self.runtime[rows],
            numbers={name: column[rows] for name, column in self.numbers.items()},
            texts={name: texts.at(rows) for name, texts in self.texts.items()},
            wait_end=wait_end,
            waits=waits,
            buffer=buffer,
            begin=begin,
            length=self.length[rows],
            buffers=buffers,
        )

    def _bytes_of(self, rows: Ints) -> tuple[Ints, Ints, tuple[Bytes, ...]]:
        """Return the places of messages of some rows, copied out of mostly unused buffers."""
        buffer, begin, length = self.buffer[rows], self.begin[rows].copy(), self.length[rows]
        used = np.bincount(buffer, weights=length, minlength=len(self.buffers))
        number = np.full(len(self.buffers), -1, dtype=np.int64)
        buffers: list[Bytes] = []
        for place in np.flatnonzero(used).tolist():
            number[place] = len(buffers)
            content = self.buffers[place]
            if 2 * used[place] < content.size:
                mine = np.flatnonzero(buffer == place)
                to = np.cumsum(length[mine]) - length[mine]
                kept = np.empty(int(used[place]), dtype=np.uint8)
                place_spans(content, begin[mine], length[mine], to, kept)
                begin[mine] = to
                content = kept
            buffers.append(content)
        if len(self.buffers):
            # empty messages may have been in a buffer that was dropped
            buffer = np.maximum(number[buffer], 0)
        return buffer, begin, tuple(buffers) or self.buffers[:1]


def empty_table() -> NodeTable:
    """Return a table without nodes."""
    none = np.zeros(0, dtype=np.int64)
    texts = {name: TextColumn(none.astype(np.int32), ()) for name in ("name", *TEXTS)}
    return NodeTable(none, none, none, {}, texts, none, none, none, none, none, ())


def joined_tables(tables: Sequence[NodeTable]) -> NodeTable:
    """Concatenate tables. O(nodes), without copying their bytes."""
    tables = [table for table in tables if len(table)] or list(tables[:1])
    if len(tables) == 1:
        return tables[0]
    names = [name for name in NUMBERS if any(name in table.numbers for table in tables)]
    num_waits = np.cumsum([0, *(table.waits.size for table in tables)])
    num_buffers = np.cumsum([0, *(len(table.buffers) for table in tables)])
    return NodeTable(
        ids=np.concatenate([table.ids for table in tables]),
        kind=np.concatenate([table.kind for table in tables]),
        runtime=np.concatenate([table.runtime for table in tables]),
        numbers={name: np.concatenate([t.number(name) for t in tables]) for name in names},
        texts={name: _joined_texts([t.texts[name] for t in tables]) for name in tables[0].texts},
        wait_end=np.concatenate(
            [t.wait_end + b for t, b in zip(tables, num_waits[:-1], strict=True)]
        ),
        waits=np.concatenate([table.waits for table in tables]),
        buffer=np.concatenate(
            [t.buffer + b for t, b in zip(tables, num_buffers[:-1], strict=True)]
        ),
        begin=np.concatenate([table.begin for table in tables]),
        length=np.concatenate([table.length for table in tables]),
        buffers=tuple(buffer for table in tables for buffer in table.buffers),
    )


def _joined_texts(columns: Sequence[TextColumn]) -> TextColumn:
    number: dict[str, int] = {}
    codes = []
    for column in columns:
        new = np.array([number.setdefault(t, len(number)) for t in column.texts], dtype=np.int32)
        is_same = bool((new == np.arange(new.size)).all())
        codes.append(column.code if is_same else new[column.code])
    return TextColumn(np.concatenate(codes), list(number))


def ranges(first: Ints, count: Ints) -> Ints:
    """Concatenate the ranges of ``count`` numbers from each ``first`` on."""
    end = np.cumsum(count)
    places = np.arange(end[-1] if end.size else 0)
    return np.asarray(places + np.repeat(first - (end - count), count))
