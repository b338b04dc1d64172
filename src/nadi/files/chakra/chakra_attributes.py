"""A trace in the attributes that Chakra's tools read: ``is_cpu_op``, ``comm_type``, ``comm_size``.

A large trace has four million attributes. The attributes that a file stated are not copied, and
columns stay columns until they are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import polars as pl

from nadi.files.chakra.attribute_message_kernels import ROLES
from nadi.files.chakra.et_decode import COLLECTIVES
from nadi.trace.arrays import Ints
from nadi.trace.attributes import CODES, AttributeBuilder, Attributes, Part, combined
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CATEGORIES, COMM_TYPES
from nadi.trace.trace import Trace

# columns of nodes that become numbers under Chakra's or PyTorch's name for them
_NUMBERS = (
    ("stream", "stream", "int64"),
    ("comm_bytes", "comm_size", "int64"),
    ("src", "comm_src", "int32"),
    ("dst", "comm_dst", "int32"),
    ("tag", "comm_tag", "int32"),
    ("is_async", "is_async", "int64"),
    ("flops", "num_ops", "int64"),
    ("bytes", "tensor_size", "uint64"),
    ("rf_id", "rf_id", "int64"),
    ("sequence", "sequence", "int64"),
    ("external_id", "external_id", "int64"),
    ("correlation", "correlation", "int64"),
    ("thread", "thread", "int64"),
    ("device", "device", "int64"),
    ("start", "start_ns", "int64"),
    ("duration", "duration_ns", "int64"),
    ("exclusive", "exclusive_ns", "int64"),
    ("layer", "layer", "int64"),
    ("micro_batch", "micro_batch", "int64"),
)
_TEXTS = (("phase", "phase"), ("tier", "memory_tier"))
NAMES_OF_COLUMNS = frozenset(
    [name for _, name, _ in _NUMBERS]
    + ["is_cpu_op", "comm_type", "pg_name", "category", "rank", "world_size"]
    + [name for _, name in _TEXTS]
    + ["process_groups", "version"]
)
"""Attributes that restate columns of a trace, its rank or its groups."""


@dataclass(frozen=True)
class ColumnOfAttributes:
    """Attributes of one name and type; every node has at most one."""

    # name, type: name and type of the attributes; the type is an integer type, or ``string``
    name: str
    type: str
    value: Ints  # int64, shape (nodes,): a number, or a position in ``texts``; negative for none
    texts: tuple[str, ...] = ()  # the texts of a column of type ``string``

    def attributes(self) -> Attributes:
        """Return the column as :class:`Attributes`."""
        rows = np.flatnonzero(self.value >= 0)
        encoded = [text.encode(errors="replace") for text in self.texts]
        sizes = np.array([len(text) for text in encoded], dtype=np.int64)
        value, length = self.value[rows], np.zeros(rows.size, dtype=np.int32)
        if self.type == "string":
            value, length = (np.cumsum(sizes) - sizes)[value], sizes[value].astype(np.int32)
        return Attributes(
            node=rows.astype(np.int32),
            name=np.zeros(rows.size, dtype=np.int32),
            type=np.full(rows.size, CODES[self.type], dtype=np.uint8),
            value=value,
            length=length,
            names=(self.name,),
            buffers=(np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(),),
        )


@dataclass(frozen=True)
class ChakraFields:
    """A trace in Chakra's attributes: in a node, ``given`` comes first and ``columns`` last."""

    given: Part  # the attributes of the file, or of the host trace of a pair
    more: Attributes  # the attributes of other files, and those of the whole trace
    columns: tuple[ColumnOfAttributes, ...]  # the columns of the nodes, as attributes


def with_chakra_attributes(trace: Trace, log: IssueLog) -> Trace:
    """Return a trace whose columns are also Chakra's attributes."""
    found = chakra_fields(trace, log)
    columns = (Part(column.attributes()) for column in found.columns)
    return replace(trace, given_attributes=combined([found.given, Part(found.more), *columns]))


def chakra_fields(trace: Trace, log: IssueLog, *, version: str = "") -> ChakraFields:
    """Describe a trace's attributes and columns as Chakra's attributes.

    A ``version`` becomes an attribute of the trace.
    """
    parts = [part._replace(attributes=_with_strings(part.attributes))
             for part in _without_repeated(trace, log)]  # fmt: skip
    height = trace.nodes.height
    columns = [_numbers(trace, *entry) for entry in _NUMBERS]
    is_cpu = trace.nodes["is_cpu"].to_numpy().astype(np.int64)
    columns.append(ColumnOfAttributes("is_cpu_op", "bool", is_cpu))
    columns.append(_comm_types(trace))
    names = tuple(trace.groups["name"].to_list())
    columns.append(ColumnOfAttributes("pg_name", "string", trace.column("group"), names))
    columns += [_texts(trace, *entry) for entry in _TEXTS]
    columns = [_without(column, parts, height) for column in columns]
    category = trace.codes("category").astype(np.int64)
    columns.append(ColumnOfAttributes("category", "string", category, CATEGORIES))
    rounded = sum(np.maximum(trace.column(c), 0) % 1000 for c in ("start", "duration"))
    log.add(
        "chakra.rounded", "info", int(np.count_nonzero(rounded)),
        "operations have times that are not whole microseconds: they are rounded; the attributes "
        "start_ns and duration_ns hold the exact times",
    )  # fmt: skip
    kinds = trace.deps.filter(~pl.col("kind").is_in(["data", "ctrl"])).height
    log.add(
        "chakra.dependency-kind", "info", kinds,
        "dependencies become data or control dependencies; their original kind is not written",
    )  # fmt: skip
    more = combined([*parts[1:], Part(_of_trace(trace, parts, version))])
    return ChakraFields(parts[0], more, tuple(columns))


def _without_repeated(trace: Trace, log: IssueLog) -> list[Part]:
    """Leave out raw events, and raw args of nodes that PyTorch's host trace describes."""
    parts = trace.attribute_parts
    of_host = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last is of the trace itself
    for part in parts:
        of_host[_rows_named(part, "op_schema")[1]] = True
    num_events = num_args = 0
    left = []
    for part in parts:
        events, node = _rows_named(part, "event")
        args, of_node = _rows_named(part, "args")
        events, args = events[node < 0], args[of_host[of_node]]
        num_events, num_args = num_events + events.size, num_args + args.size
        if events.size + args.size:
            everything = np.ones(len(part.attributes), dtype=np.bool_)
            kept = everything if part.is_kept is None else part.is_kept.copy()
            kept[events] = kept[args] = False
            part = part._replace(is_kept=kept)
        left.append(part)
    log.add(
        "chakra.event", "info", num_events,
        "events that are not operations, such as counters, are not written to a Chakra trace",
    )  # fmt: skip
    log.add(
        "chakra.args", "info", num_args,
        "operations have raw args of the device trace that are left out, because the host trace "
        "describes these operations",
    )  # fmt: skip
    return left


def _rows_named(part: Part, name: str) -> tuple[Ints, Ints]:
    """Return the rows of attributes with a name, and their nodes in the trace."""
    rows = part.attributes.rows_named(name)
    node = part.attributes.node[rows].astype(np.int64)
    if part.new_row is None:
        return rows, node
    placed = np.where(node < 0, -1, part.new_row[node])
    is_there = (node < 0) | (placed >= 0)
    return rows[is_there], placed[is_there]


def _with_strings(attributes: Attributes) -> Attributes:
    """Return raw JSON, and operands without a field in Chakra, as attributes of type string."""
    types = attributes.type.copy()
    is_role = np.array([name in ROLES for name in attributes.names], dtype=np.bool_)
    operands = np.flatnonzero(types == CODES["operand"])
    types[operands[~is_role[attributes.name[operands]]]] = CODES["string"]
    types[types == CODES["json"]] = CODES["string"]
    return replace(attributes, type=types)


def _without(
    column: ColumnOfAttributes, parts: Sequence[Part], height: int
) -> ColumnOfAttributes:  # fmt: skip
    """Leave out the nodes that already have an attribute of this name."""
    has = np.zeros(height + 1, dtype=np.bool_)  # the last stands for the trace itself
    for part in parts:
        has[_rows_named(part, column.name)[1]] = True
    if not has[:-1].any():
        return column
    return replace(column, value=np.where(has[:-1], -1, column.value))


def _numbers(trace: Trace, column: str, name: str, type_name: str) -> ColumnOfAttributes:
    value = trace.column(column)
    if type_name == "int32" and value.max(initial=0) >= 2**31:
        type_name = "int64"
    return ColumnOfAttributes(name, type_name, value)


def _comm_types(trace: Trace) -> ColumnOfAttributes:
    of_code = [COLLECTIVES.index(name) if name in COLLECTIVES else -1
               for name in COMM_TYPES]  # fmt: skip
    number = np.array(of_code, dtype=np.int64)[trace.codes("comm_type")]
    is_collective = (trace.nodes["kind"] == "COMM_COLL").to_numpy()
    return ColumnOfAttributes("comm_type", "int64", np.where(is_collective, number, -1))


def _texts(trace: Trace, column: str, name: str) -> ColumnOfAttributes:
    words = trace.nodes[column]
    known = words.unique(maintain_order=True).cast(pl.String).to_list()
    number = words.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64)
    if "" in known:
        number[number == known.index("")] = -1
    return ColumnOfAttributes(name, "string", number, tuple(known))


def _of_trace(trace: Trace, parts: Sequence[Part], version: str) -> Attributes:
    """Return the attributes of the whole trace."""
    builder = AttributeBuilder()
    if version:
        builder.add(-1, "version", "operand", version)
    stated = {}
    for part in parts:
        rows = part.attributes.rows_of(-1)
        codes, first = np.unique(part.attributes.name[rows.start : rows.stop], return_index=True)
        for code, row in zip(codes.tolist(), first.tolist(), strict=True):
            stated[part.attributes.names[code]] = part.attributes, rows.start + row
    for name in ("rank", "world_size"):
        if getattr(trace, name) >= 0 and name not in stated:
            builder.add(-1, name, "int64", getattr(trace, name))
    if trace.process >= 0:
        attributes, row = stated.get("pid", (Attributes.empty(), -1))
        if row < 0 or attributes.python_value(row) != trace.process:
            # the host trace may be of another run of the program, with a pid of its own
            name = "process" if row >= 0 else "pid"
            builder.add(-1, name, "uint64", trace.process)
    if trace.groups.height and "process_groups" not in stated:
        groups = [
            {"pg_name": name, "pg_desc": about, "backend_config": backend, "ranks": ranks}
            for name, about, ranks, backend in trace.groups.iter_rows()
        ]
        builder.add(-1, "process_groups", "string", msgspec.json.encode(groups).decode())
    return builder.build()
