"""The program of a rank while it is written: nodes with their lines, and what they wait for.

From a written program to a Trace, like one that was read from an .et.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from nadi.models.given_values import Tensor, UserLine, checked_name, refusal, user_line
from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.groups import Group as Group
from nadi.trace.protobuf_values import RANGES, SCALAR_TYPES, VALUE_TYPES, check_scalar
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.version import __version__

MESSAGES = ("COMM_SEND", "COMM_RECV")
WORLD = ""  # the name of the group of all ranks
# what the columns of nodes are written as
_OF_COLUMNS = {
    "is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst",
    "comm_tag", "pg_name", "stream", "thread", "tid", "device", "category", "duration_ns",
    "start_ns", "exclusive_ns", "rf_id", "external_id", "correlation", "sequence",
    "seq_id", "is_async", "memory_tier",
}  # fmt: skip
_TYPE_OF = {bool: "bool", int: "int64", float: "double", str: "string", bytes: "bytes"}


class Place(NamedTuple):
    """Where a node runs: on a thread of the host, on a stream of the device, or on neither."""

    # thread, stream: its number; -1 for none
    thread: int = -1
    stream: int = -1


class Operation(NamedTuple):
    """A node: its columns of ``schema.NODES``, but for the group, which is a name."""

    name: str
    kind: str
    category: str
    thread: int = -1
    stream: int = -1
    is_cpu: bool = False
    duration: int = -1
    flops: int = -1
    bytes: int = -1
    comm_type: str = "none"
    comm_bytes: int = -1
    group: str = WORLD
    src: int = -1
    dst: int = -1
    tag: int = -1
    tier: str = ""


class Attribute(NamedTuple):
    """A value of a node that has no column."""

    name: str
    type: str
    value: Any
    comment: str


@dataclass(frozen=True, eq=False)
class BuiltNode:
    """A node of a job being built; later nodes of its rank can wait for it."""

    program: RankProgram = field(repr=False)
    row: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.program.operations[self.row].name

    def attribute(self, name: str, value: Any, type: str = "", comment: str = "") -> BuiltNode:  # noqa: A002
        """Give the node a value that Chakra's nodes may have besides their fields.

        Parameters
        ----------
        name
            For example ``comm_priority``.
        value
            A number, bool, text, bytes, or a list of these.
        type
            One of Chakra's types, such as ``uint32`` or ``float_list``; by default that of the
            value: int64, double, bool, string, bytes, or a list of it.
        comment
            Chakra's ``doc_string`` of the value.

        Returns
        -------
        BuiltNode
            The node itself.

        Raises
        ------
        UsageError
            If the type is unknown or cannot hold the value, or if a parameter of the call that
            made the node states it.
        """
        self.program.refuse_if_finished()
        given = self.program.attributes.setdefault(self.row, [])
        if name in _OF_COLUMNS or any(one.name == name for one in given):
            raise refusal(
                f"the node has an attribute {name!r} already", "state it once: as a parameter of "
                "the call that makes the node, if that has it",
            )  # fmt: skip
        type_name = type or _type_of(value)
        if type_name not in VALUE_TYPES:
            raise refusal(
                f"attribute {name!r}: {type_name or repr(value)} is no type of Chakra's",
                f"one of {', '.join(SCALAR_TYPES)}, or a list of one, such as int64_list",
            )
        is_list = type_name.endswith("_list")
        item = type_name.removesuffix("_list")
        try:
            values = [check_scalar(item, one) for one in (value if is_list else [value])]
        except (ValueError, TypeError) as error:
            limits = f" from {RANGES[item][0]} to {RANGES[item][1] - 1}" if item in RANGES else ""
            raise refusal(f"attribute {name!r}: {error}", f"give {item}{limits}") from None
        held = tuple(values) if is_list else values[0]
        given.append(Attribute(checked_name(name, "name"), type_name, held, comment))
        return self


After = BuiltNode | Iterable[BuiltNode]


class RankProgram:
    """The nodes of one rank, or of several ranks that do the same.

    Attributes
    ----------
    ranks
        The ranks, ascending.
    operations, lines, waits
        Each node, the line that made it, and the rows of the nodes that it waits for.
    operands
        The tensors that a node takes and gives.
    attributes
        Values of nodes without a column.
    prefix
        What the names of nodes begin with.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self.operations: list[Operation] = []
        self.lines: list[UserLine] = []
        self.waits: list[tuple[int, ...]] = []
        self.operands: dict[int, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = {}
        self.attributes: dict[int, list[Attribute]] = {}
        self.prefix = ""
        self.is_finished = False
        self._tensors: set[int] = set()  # by identity
        self._kept: list[Tensor] = []
        self._last: dict[Place, int] = {}
        self._last_message: dict[tuple[str, int, int], int] = {}
        self._messages: Counter[tuple[str, int]] = Counter()
        self._writer: dict[int, int] = {}  # of each tensor, by its number
        self._readers: dict[int, list[int]] = {}

    def refuse_if_finished(self) -> None:
        """Raise UsageError after the job was finished."""
        if self.is_finished:
            raise refusal(
                "the job is finished: its with block has ended", "add nodes within the with block"
            )

    def add(
        self, operation: Operation, after: After, inputs: Iterable[Tensor],
        outputs: Iterable[Tensor],
    ) -> BuiltNode:  # fmt: skip
        """Append a node, after the one before it at its place."""
        row = len(self.operations)
        place = Place(operation.thread, operation.stream)
        waits = self._rows(after)
        if place != Place():
            if place in self._last:
                waits.insert(0, self._last[place])
            self._last[place] = row
        if operation.kind in MESSAGES:  # those of one tag match in the order of the program
            peer = operation.dst if operation.kind == "COMM_SEND" else operation.src
            key = operation.kind, peer, operation.tag
            waits += [self._last_message[key]] if key in self._last_message else []
            self._last_message[key] = row
        taken, given = tuple(inputs), tuple(outputs)
        if taken or given:
            waits += self._data(row, taken, given)
            self.operands[row] = taken, given
        self.operations.append(operation._replace(name=self.prefix + operation.name))
        self.lines.append(user_line())
        self.waits.append(tuple(dict.fromkeys(waits)))
        return BuiltNode(self, row)

    def own(self, tensor: Tensor) -> Tensor:
        """Remember a tensor as one of this program."""
        self._tensors.add(id(tensor))
        self._kept.append(tensor)  # so that no other gets its identity
        return tensor

    def content(self) -> tuple[object, ...]:
        """Return what is equal for programs that do the same."""
        attributes = ((row, tuple(given)) for row, given in self.attributes.items())
        return (
            tuple(self.operations), tuple(self.waits), tuple(self.operands.items()),
            tuple(attributes),
        )  # fmt: skip

    @property
    def num_tensors(self) -> int:
        """Number of its tensors."""
        return len(self._kept)

    def checked(self, tensors: object, what: str) -> tuple[Tensor, ...]:
        """Return tensors, which must be of this program; one alone is a tuple of one."""
        found = (tensors,) if isinstance(tensors, Tensor) else tensors
        if not isinstance(found, Iterable):
            raise refusal(f"{what} is {found!r}; it must be tensors", "make them: rank.tensor()")
        of_program = tuple(found)
        for one in of_program:
            if id(one) not in self._tensors:
                raise refusal(
                    f"{what} has {one!r}, which is not a tensor of this rank",
                    "make it with rank.tensor() of the same rank",
                )
        return of_program

    def no_tag(self, direction: str, peer: int) -> int:
        """Count the messages to or from a rank without a tag: -1, -2, ..., until they get one."""
        self._messages[direction, peer] += 1
        return -self._messages[direction, peer]

    @property
    def tags(self) -> set[int]:
        """The tags that messages state."""
        return {one.tag for one in self.operations if one.kind in MESSAGES and one.tag >= 0}

    def give_tags(self, taken: Sequence[int]) -> None:
        """Give tags to messages without one: the k-th integer that is not taken to the k-th.

        ``taken`` is ascending.
        """
        if not self._messages:
            return
        free = list(range(max(self._messages.values()) + len(taken)))
        for tag in reversed(taken):
            if tag < len(free):
                del free[tag]
        self.operations = [
            one._replace(tag=free[-one.tag - 1]) if one.kind in MESSAGES and one.tag < 0 else one
            for one in self.operations
        ]

    def _rows(self, after: After) -> list[int]:
        """Return the rows of nodes to wait for."""
        given = [after] if isinstance(after, BuiltNode) else after
        rows = []
        if not isinstance(given, Iterable):
            raise refusal(
                f"after is {given!r}; it must be a node, or several",
                "give what rank.compute() and the other calls return",
            )
        for one in given:
            if not isinstance(one, BuiltNode):
                raise refusal(
                    f"after has {one!r}, which is not a node",
                    "give what rank.compute() and the other calls return",
                )
            if one.program is not self:
                raise refusal(
                    f"a node cannot wait for {one.name!r} of another rank "
                    f"({one.program.lines[one.row]})",
                    "let that rank send, and this one receive; or use a collective",
                )
            rows.append(one.row)
        return rows

    def _data(self, row: int, taken: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> list[int]:
        """Return who wrote what a node reads, and who used what it overwrites."""
        waits = [self._writer[one.number] for one in taken if one.number in self._writer]
        for one in given:
            waits += [self._writer[one.number]] if one.number in self._writer else []
            waits += self._readers.pop(one.number, ())
        for one in taken:
            self._readers.setdefault(one.number, []).append(row)
        for one in given:
            self._writer[one.number] = row
            self._readers.pop(one.number, None)
        return waits


def _type_of(value: object) -> str:
    """Return the type of a value without a stated one; empty if there is none."""
    if isinstance(value, (list, tuple)):
        items = {_type_of(one) for one in value}
        one = items.pop() if len(items) == 1 else ""
        return f"{one}_list" if one in SCALAR_TYPES else ""
    return _TYPE_OF.get(type(value), "")


_COLUMNS = (
    "name", "kind", "category", "thread", "stream", "is_cpu", "duration", "flops", "bytes",
    "comm_type", "comm_bytes", "src", "dst", "tag", "tier",
)  # fmt: skip


def trace_of(
    program: RankProgram, groups: Mapping[str, Group], rank: int, world_size: int
) -> Trace:
    """Make the trace of a program; rank is -1 if several ranks share it. O(nodes)."""
    operations = program.operations
    used = dict.fromkeys(one.group for one in operations if one.group != WORLD)
    number = {WORLD: -1} | {name: row for row, name in enumerate(used)}
    nodes = NODES.build(len(operations), {
        "id": range(len(operations)),
        **{name: [getattr(one, name) for one in operations] for name in _COLUMNS},
        "group": [number[one.group] for one in operations],
    })  # fmt: skip
    edges = [(src, dst) for dst, waits in enumerate(program.waits) for src in waits]
    deps = DEPS.build(len(edges), {
        "src": [src for src, _ in edges], "dst": [dst for _, dst in edges], "kind": "data",
    })  # fmt: skip
    return Trace(
        nodes=nodes,
        deps=deps,
        groups=GROUPS.build(len(used), {
            "name": list(used), "ranks": [list(groups[name].ranks) for name in used],
        }),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        rank=rank,
        world_size=world_size,
        given_attributes=_attributes(program),
    )  # fmt: skip


def _attributes(program: RankProgram) -> Attributes:
    """Return the values without a column: stated ones, and operands as recordings write them."""
    builder = AttributeBuilder()
    for row, operands in program.operands.items():
        for side, tensors in zip(("inputs", "outputs"), operands, strict=True):
            for what, text in _texts(tensors).items() if tensors else ():
                builder.add(row, f"{side}.{what}", "operand", text)
    for row, attributes in program.attributes.items():
        for one in attributes:
            builder.add(row, one.name, one.type, one.value)
            if one.comment:
                builder.add(row, one.name, "doc_string", one.comment)
    return builder.build()


def _texts(tensors: tuple[Tensor, ...]) -> dict[str, str]:
    columns = {
        "values": [tensor.value() for tensor in tensors],
        "shapes": [list(tensor.shape) for tensor in tensors],
        "types": [f"Tensor({tensor.dtype})" for tensor in tensors],
    }
    return {name: msgspec.json.encode(values).decode() for name, values in columns.items()}
