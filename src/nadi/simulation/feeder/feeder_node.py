"""The node class of the feeder.

The nodes that a feeder holds between two reads, and the dependencies among them.

A batch of ready nodes as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.files.node_ids import NodeRows
from nadi.kernels.sequences import group_rows
from nadi.simulation.feeder.et_stream import NodeStream
from nadi.simulation.feeder.node_table import NUMBERS, NodeTable
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import CODES
from nadi.trace.protobuf_values import TYPE_CODES, check_scalar, pack_number, write_varint

if TYPE_CHECKING:
    from nadi.trace.attributes import Attributes


class Feeder(Protocol):
    """The methods of the feeder that its nodes use."""

    def added_children(self, node_id: int) -> list[Any]:
        """Return the added children of a node."""

    def add_dependency(self, parent_id: int, child_id: int) -> None:
        """Make a node depend on another one."""


class Held:
    """A table of nodes with their children. It is immutable: a read makes a new one.

    Attributes
    ----------
    table
        The nodes.
    child_first, child
        int64: the rows that depend on each row, ascending, as in
        :class:`nadi.simulation.feeder.feeder_kernels.Waiting`.
    parent
        int64, shape (children,): the row that each of ``child`` depends on.
    views
        Columns of numbers by the names of a node's attributes; items are Python integers.
    """

    def __init__(self, table: NodeTable, feeder: Feeder | None = None) -> None:
        self.table = table
        # a weak reference, so that an unused feeder is freed at once, with all that it holds
        self._feeder = None if feeder is None else ref(feeder)
        self.rows = NodeRows(table.ids)
        parent = self.rows.find(table.waits)
        child = np.repeat(np.arange(len(table)), table.waits_per_node())
        if (parent < 0).any():  # they have ended
            child, parent = child[parent >= 0], parent[parent >= 0]
        self.child_first = np.empty(len(table) + 1, dtype=np.int64)
        order = np.empty(parent.size, dtype=np.int64)
        group_rows(parent, self.child_first, order)
        self.child: Ints = child[order]
        self.parent: Ints = parent[order]
        self.ids = table.ids.data
        self.views = _Views(table)

    @property
    def feeder(self) -> Feeder | None:
        """The feeder that holds them; None for a node that is not in a feeder."""
        return None if self._feeder is None else self._feeder()

    @cached_property
    def _first_id(self) -> int:
        """The first id if all ids are consecutive, else -1."""
        ids = self.table.ids
        is_plain = ids.size and self.rows.is_ascending and ids[-1] - ids[0] == ids.size - 1
        return int(ids[0]) if is_plain else -1

    def row_of(self, node_id: int) -> int:
        """Return the row of an id, or -1 if no such node is held."""
        if (first := self._first_id) >= 0:
            row = node_id - first
            return row if 0 <= row < len(self.ids) else -1
        if not 0 <= node_id < 1 << 62:
            return -1
        return int(self.rows.find(np.array([node_id]))[0])

    def children(self, row: int) -> list[int]:
        """Return the rows that depend on a row."""
        rows: list[int] = self.child[self.child_first[row] : self.child_first[row + 1]].tolist()
        return rows


class _Views(dict[str, Sequence[int]]):
    """Columns of a table as memory views for fast access to single items, made on first use."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def __missing__(self, name: str) -> Sequence[int]:
        own = {"kind": self._table.kind, "runtime": self._table.runtime}
        if name in own or name in self._table.numbers:
            column = own[name] if name in own else self._table.numbers[name]
        else:  # no node has this attribute, so there is no column
            column = np.broadcast_to(np.int64(-1), len(self._table))
        view: Sequence[int] = column.data
        self[name] = view
        return view


_NO_METADATA = b"\0"
_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
_NOT_ATTRIBUTES = frozenset((CODES["operand"], CODES["doc_string"], CODES["unknown"]))
# the attribute type of Python values; bool is a subclass of int, so it comes first
_WRITTEN_AS = ((bool, "bool", _VARINT), (int, "int64", _VARINT), (float, "double", _FIXED64))


class NodeType(IntEnum):
    """Chakra's types of nodes, by their numbers."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


_TYPES = tuple(NodeType)


class ETFeederNode:
    """A node of an execution trace.

    Feeders create nodes; create one yourself only for :meth:`nadi.ETFeeder.add_node`. Numbers that
    the node does not have are -1, texts are empty.

    Parameters
    ----------
    id, name, type, runtime
        As the attributes of the node.
    data_deps, ctrl_deps
        Ids of the nodes that it waits for.
    attributes
        Further attributes, such as ``comm_size=1024``: numbers, True or False, and texts.

    Attributes
    ----------
    id
        Its number in the trace.

    Raises
    ------
    UsageError
        If a value has another type.
    """

    __slots__ = ("_attributes", "_held", "_row", "id")

    id: int
    _held: Held
    _row: int
    _attributes: Attributes

    def __init__(
        self,
        id: int,  # noqa: A002 - what Chakra calls it
        name: str = "",
        type: NodeType | int = NodeType.COMP,  # noqa: A002
        runtime: int = 0,
        *,
        data_deps: Iterable[int] = (),
        ctrl_deps: Iterable[int] = (),
        **attributes: float | str,
    ) -> None:
        where = f"node {id} ({name})"
        try:
            message = b"".join(
                (
                    _number_field(1, id), _bytes_field(2, name.encode()), _number_field(3, type),
                    *(_number_field(4, other) for other in ctrl_deps),
                    *(_number_field(5, other) for other in data_deps),
                    _number_field(7, runtime),
                    *(_bytes_field(10, _attribute(*item)) for item in attributes.items()),
                )
            )  # fmt: skip
        except (ValueError, TypeError) as error:
            raise UsageError(where, str(error), "give numbers and texts") from None
        content = _NO_METADATA + write_varint(len(message)) + message
        table = NodeStream(where, iter([content]), with_control=False).read()
        assert table is not None, "one message was given"
        self._held, self._row, self.id = Held(table), 0, int(id)

    def __repr__(self) -> str:
        return f"<ETFeederNode {self.id} {self.type.name} {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self._held.table.text("name", self._row)

    @property
    def type(self) -> NodeType:
        """Chakra's type."""
        return _TYPES[self._held.views["kind"][self._row]]

    @property
    def runtime(self) -> int:
        """The measured duration, in us."""
        return self._held.views["runtime"][self._row]

    @property
    def is_cpu_op(self) -> bool:
        """Whether it runs on the host; True if the node does not record it."""
        return self._held.views["is_cpu_op"][self._row] != 0

    @property
    def num_ops(self) -> int:
        """Number of floating-point operations."""
        return self._held.views["num_ops"][self._row]

    @property
    def tensor_loc(self) -> int:
        """Chakra's number of the memory of its tensor."""
        return self._held.views["tensor_loc"][self._row]

    @property
    def tensor_size(self) -> int:
        """Number of bytes that it reads or writes."""
        return self._held.views["tensor_size"][self._row]

    @property
    def comm_type(self) -> int:
        """Chakra's number of the collective."""
        return self._held.views["comm_type"][self._row]

    @property
    def comm_priority(self) -> int:
        """Priority of the communication."""
        return self._held.views["comm_priority"][self._row]

    @property
    def comm_size(self) -> int:
        """Number of bytes that are communicated."""
        return self._held.views["comm_size"][self._row]

    @property
    def comm_src(self) -> int:
        """Rank that sends."""
        return self._held.views["comm_src"][self._row]

    @property
    def comm_dst(self) -> int:
        """Rank that receives."""
        return self._held.views["comm_dst"][self._row]

    @property
    def comm_tag(self) -> int:
        """Tag that distinguishes messages between the same ranks."""
        return self._held.views["comm_tag"][self._row]

    @property
    def pg_name(self) -> str:
        """Process group."""
        return self._held.table.text("pg_name", self._row)

    def get_children(self) -> list[ETFeederNode]:
        """Return the nodes read so far that depend on this one, in the file's order."""
        children = [node_of(self._held, row) for row in self._held.children(self._row)]
        if (feeder := self._held.feeder) is not None:
            children += feeder.added_children(self.id)
        return children

    def add_child(self, child: ETFeederNode) -> None:
        """Make another node of the same feeder depend on this one.

        Raises
        ------
        UsageError
            If this node has ended, or the other one has started or depends on it already.
        """
        if (feeder := self._held.feeder) is None:
            raise UsageError(
                f"node {self.id} ({self.name})",
                "does not belong to a feeder",
                "add it with add_node(), or give data_deps to its children",
            )  # fmt: skip
        feeder.add_dependency(self.id, child.id)

    def has_other_attr(self, name: str) -> bool:
        """Return whether the node has an attribute of this name."""
        return self._find(name) is not None

    def get_other_attr(self, name: str) -> Any:
        """Return an attribute: number, bool, str, bytes or list.

        Raises
        ------
        UsageError
            If the node has no such attribute.
        """
        if (row := self._find(name)) is None:
            raise UsageError(
                f"node {self.id} ({self.name})", f"has no attribute {name!r}",
                "check with has_other_attr() first",
            )  # fmt: skip
        return self._all().python_value(row)

    def get_inputs_values(self) -> str:
        """Return the values of the inputs, as the text in the trace."""
        return self._operand("inputs.values")

    def get_inputs_shapes(self) -> str:
        """Return the shapes of the inputs."""
        return self._operand("inputs.shapes")

    def get_inputs_types(self) -> str:
        """Return the types of the inputs."""
        return self._operand("inputs.types")

    def get_outputs_values(self) -> str:
        """Return the values of the outputs."""
        return self._operand("outputs.values")

    def get_outputs_shapes(self) -> str:
        """Return the shapes of the outputs."""
        return self._operand("outputs.shapes")

    def get_outputs_types(self) -> str:
        """Return the types of the outputs."""
        return self._operand("outputs.types")

    def message(self) -> bytes:
        """Return the node's message in the file, with its length before it."""
        return self._held.table.message(self._row)

    def _all(self) -> Attributes:
        """Read the attributes without a column, once."""
        try:
            return self._attributes
        except AttributeError:
            self._attributes = self._held.table.attributes(self._row)
            return self._attributes

    def _find(self, name: str) -> int | None:
        attributes = self._all()
        if name in attributes.names:
            number = attributes.names.index(name)
            for row in attributes.rows_of(0):
                if attributes.name[row] == number and attributes.type[row] not in _NOT_ATTRIBUTES:
                    return row
        return None

    def _operand(self, role: str) -> str:
        attributes = self._all()
        if role in attributes.names:
            number = attributes.names.index(role)
            for row in attributes.rows_of(0):
                if attributes.name[row] == number and attributes.type[row] == CODES["operand"]:
                    return attributes.span(row).decode()
        return ""


def node_of(held: Held, row: int) -> ETFeederNode:
    """Return the node of a row."""
    node = ETFeederNode.__new__(ETFeederNode)
    node.id = held.ids[row]
    node._held, node._row = held, row
    return node


def _number_field(field: int, value: int) -> bytes:
    number = check_scalar("uint64", int(value))
    return write_varint(field << 3 | _VARINT) + write_varint(number)


def _bytes_field(field: int, content: bytes) -> bytes:
    return write_varint(field << 3 | _DELIMITED) + write_varint(len(content)) + content


def _attribute(name: str, value: float | str) -> bytes:
    begin = _bytes_field(1, name.encode())
    if isinstance(value, str):
        return begin + _bytes_field(TYPE_CODES["string"], value.encode())
    for python_type, type_name, wire in _WRITTEN_AS:
        if isinstance(value, python_type):
            checked = check_scalar(type_name, value)
            tag = write_varint(TYPE_CODES[type_name] << 3 | wire)
            return begin + tag + pack_number(type_name, checked)
    raise ValueError(f"{name} is {value!r}, which is neither a number nor a text")


class NodeBatch:
    """Nodes that a feeder handed out together, in order."""

    def __init__(self, held: Held, rows: Ints, ids: Ints | None = None) -> None:
        self._held = held
        self._rows = rows
        self._ids = ids

    def __len__(self) -> int:
        return self._rows.size

    @property
    def id(self) -> Ints:
        """Id of each node; int64, shape (nodes,)."""
        if self._ids is None:
            self._ids = self._held.table.ids[self._rows]
        return self._ids

    def __getitem__(self, place: int) -> ETFeederNode:
        """Return one of the nodes."""
        return node_of(self._held, int(self._rows[place]))

    def __repr__(self) -> str:
        return f"<NodeBatch of {len(self)}>"

    @property
    def type(self) -> Ints:
        """Chakra's number of each node's type; int64, shape (nodes,)."""
        return self._held.table.kind[self._rows]

    @property
    def runtime(self) -> Ints:
        """Measured duration of each node; int64, shape (nodes,), us."""
        return self._held.table.runtime[self._rows]

    @property
    def is_cpu_op(self) -> Bools:
        """Whether each node runs on the host; bool, shape (nodes,)."""
        return np.asarray(self.number("is_cpu_op") != 0)

    @property
    def name(self) -> list[str]:
        """Name of each node."""
        return self._text("name")

    @property
    def pg_name(self) -> list[str]:
        """Process group of each node; empty if it has none."""
        return self._text("pg_name")

    def number(self, name: str) -> Ints:
        """Return a numeric attribute of each node, such as ``comm_size``.

        Returns
        -------
        ndarray
            int64, shape (nodes,); -1 for nodes without it.

        Raises
        ------
        UsageError
            If no column has this name.
        """
        if name not in NUMBERS:
            raise UsageError(
                Parameter("name", name), "is not a column",
                f"give one of {', '.join(NUMBERS)}; read others with get_other_attr()",
            )  # fmt: skip
        return self._held.table.number(name)[self._rows]

    def rows_in(self, held: Held) -> Ints:
        """Return the current rows of the nodes; -1 for nodes that are no longer held."""
        return self._rows if held is self._held else held.rows.find(self.id)

    def _text(self, name: str) -> list[str]:
        column = self._held.table.texts[name]
        return [column.texts[code] for code in column.code[self._rows].tolist()]
