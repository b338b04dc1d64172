"""The tables of a trace, each declared once.

A declaration says what a row is and gives every column its name, type, unit,
meaning and missing value. The checks on a table and the page
``docs/data-model.md`` come from here; nothing else says what a column is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from nadi.wire import VALUE_TYPES

__all__ = [
    "ATTRIBUTE_TYPES",
    "ATTRS",
    "CATEGORIES",
    "CLOCKS",
    "COLLECTIVE_TIMES",
    "COMM_TYPES",
    "DEPS",
    "DEP_KINDS",
    "DEVICE_EVENTS",
    "DEVICE_WORK",
    "GIVEN_DEPS",
    "GROUPS",
    "ISSUES",
    "LABELS",
    "LINKS",
    "LIVE_MEMORY",
    "MATCHES",
    "NODES",
    "NODE_KINDS",
    "OPERANDS",
    "RANK_TIMES",
    "SCHEDULE",
    "SEVERITIES",
    "TABLES",
    "TENSORS",
    "TENSOR_DEPS",
    "THREAD_WORK",
    "UNBOUNDED",
    "UNREADABLE",
    "Column",
    "Table",
    "data_model_page",
]

NODE_KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
CATEGORIES = (
    "metadata",
    "annotation",
    "python",
    "operator",
    "runtime",
    "driver",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "device_annotation",
)
LABELS = ("annotation", "python")  # spans around operations, which do no work of their own
THREAD_WORK = ("annotation", "python", "operator", "runtime", "driver")
DEVICE_WORK = ("kernel", "memcpy", "memset")
COMM_TYPES = (
    "none",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "barrier",
    "send",
    "recv",
    "other",
)
DEP_KINDS = (
    "call",
    "order",
    "launch",
    "stream",
    "event",
    "sync",
    "thread",
    "comm",
    "raw",
    "war",
    "waw",
    "data",
    "ctrl",
)
TENSOR_DEPS = ("raw", "war", "waw")  # by what is read and written, whatever the order of issue
GIVEN_DEPS = ("data", "ctrl")  # stated by a file, whatever the times and the order of rows
# Chakra's types of values, and what else is kept of a file: raw JSON; texts of operands; a
# dependency on a node that is not there or that stands twice; a comment on the attribute
# before it; protobuf fields that this version does not know
ATTRIBUTE_TYPES = (
    *VALUE_TYPES,
    "none",
    "json",
    "operand",
    "dependency",
    "doc_string",
    "unknown",
)
UNBOUNDED = 2**62  # a shift of clocks without an upper bound; the negative of it without a lower
UNREADABLE = "unreadable"  # the type of an operand that stands for a text as a whole
SEVERITIES = ("info", "warning", "error")


_FEW = 4096  # rows up to which preparing an expression takes longer than the column


@dataclass(frozen=True)
class Column:
    """One column: its name, type, meaning, unit, and what stands for a missing value."""

    name: str
    dtype: pl.DataType | type[pl.DataType]
    meaning: str
    unit: str = ""
    missing: Any = None  # None: every row has a value
    references: str = ""


@dataclass(frozen=True)
class Table:
    """One table: what a row is, its columns, and the rules that rows keep, by code."""

    name: str
    row: str
    columns: tuple[Column, ...]
    rules: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def dtypes(self) -> dict[str, pl.DataType | type[pl.DataType]]:
        """The polars schema of the table."""
        return {column.name: column.dtype for column in self.columns}

    def build(self, length: int, values: Mapping[str, Any]) -> pl.DataFrame:
        """Make a frame of this table; a column not given holds its missing value.

        Parameters
        ----------
        length
            Number of rows.
        values
            Per column an array, list or polars series of that length, or one value.

        Raises
        ------
        ValueError
            If a column is unknown, has another length, or is required and not given.
        """
        unknown = set(values) - set(self.dtypes)
        if unknown:
            raise ValueError(f"table {self.name} has no column {sorted(unknown)[0]!r}")
        series = []
        constants = {}
        for column in self.columns:
            value = values.get(column.name, column.missing)
            if value is None:
                raise ValueError(f"column {column.name!r} must be given")
            if not isinstance(value, (str, int, bool)):
                series.append(_series(column, length, value))
            elif length <= _FEW:
                series.append(self._constant(column, value).head(length))
            else:
                constants[column.name] = pl.lit(value).cast(column.dtype)
        if not length:
            return self.empty()
        if not constants:
            return pl.DataFrame(series)
        rows = pl.DataFrame(series or {"": pl.repeat(0, length, eager=True)})
        # polars keeps a constant as one value: most columns of most traces cost nothing
        return rows.with_columns(**constants).select(list(self.dtypes))

    def _constant(self, column: Column, value: Any) -> pl.Series:
        """Give a column of one value, that those of small tables are cut from."""
        key = column.name, value
        if key not in self._constants:
            repeated = pl.repeat(value, _FEW).cast(column.dtype)
            self._constants[key] = pl.select(repeated.alias(column.name)).to_series()
        return self._constants[key]

    @cached_property
    def _constants(self) -> dict[tuple[str, Any], pl.Series]:
        return {}

    def empty(self) -> pl.DataFrame:
        """Make a frame of this table without rows."""
        return pl.DataFrame(schema=self.dtypes)

    def check(self, frame: pl.DataFrame) -> None:
        """Raise ValueError unless ``frame`` has exactly the declared columns and no nulls."""
        if frame.columns != list(self.dtypes) or frame.dtypes != self._instances:
            raise ValueError(f"table {self.name}: expected {self.dtypes}, got {dict(frame.schema)}")
        for series in frame.get_columns():
            if nulls := series.null_count():
                raise ValueError(f"table {self.name}: {nulls} nulls in column {series.name!r}")

    @cached_property
    def _instances(self) -> list[pl.DataType]:
        return [_instance(dtype) for dtype in self.dtypes.values()]


def _instance(dtype: pl.DataType | type[pl.DataType]) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype


def _series(column: Column, length: int, value: Any) -> pl.Series:
    if isinstance(value, pl.Series):
        series = value.alias(column.name)
        if series.dtype != column.dtype:
            series = series.cast(column.dtype)
    elif isinstance(column.dtype, pl.Categorical):
        series = pl.Series(column.name, value, dtype=pl.String).cast(column.dtype)
    else:
        series = pl.Series(column.name, value, dtype=column.dtype)
    if len(series) != length:
        raise ValueError(f"column {column.name!r}: {len(series)} values for {length} rows")
    return series


_INT = pl.Int64
_NAME = pl.Categorical()

NODES = Table(
    "nodes",
    "one operation of one rank: host operator, annotation, runtime call, or work on a device",
    (
        Column("id", _INT, "id as in the execution trace; device-only nodes continue after it"),
        Column("name", _NAME, "name as recorded"),
        Column("kind", pl.Enum(NODE_KINDS), "Chakra's NodeType"),
        Column("category", pl.Enum(CATEGORIES), "what recorded it"),
        Column("parent", _INT, "enclosing operation; for device work the one that launched it",
               missing=-1, references="nodes row"),
        Column("start", _INT, "start since the epoch", "ns", missing=-1),
        Column("duration", _INT, "time from start to end", "ns", missing=-1),
        Column("exclusive", _INT, "duration less the time of operations nested in it on its thread",
               "ns", missing=-1),
        Column("thread", _INT, "thread id of host work", missing=-1),
        Column("device", _INT, "device number of device work", missing=-1),
        Column("stream", _INT, "stream number of device work", missing=-1),
        Column("is_cpu", pl.Boolean, "whether it ran on the host", missing=True),
        Column("event", _INT, "position in traceEvents of the device file", missing=-1),
        Column("rf_id", _INT, "record function id, common to both files", missing=-1),
        Column("external_id", _INT, "Kineto's External id", missing=-1),
        Column("correlation", _INT, "links a runtime call to the device work it launched",
               missing=-1),
        Column("sequence", _INT, "autograd's sequence number", missing=-1),
        Column("bytes", _INT, "bytes that a copy or set moves", "bytes", missing=-1),
        Column("comm_type", pl.Enum(COMM_TYPES), "which communication, where it is one",
               missing="none"),
        Column("comm_bytes", _INT, "bytes of the tensors given to the communication", "bytes",
               missing=-1),
        Column("group", _INT, "process group of the communication", missing=-1,
               references="groups row"),
        Column("src", _INT, "rank that sends, where it is stated", missing=-1),
        Column("dst", _INT, "rank that receives, where it is stated", missing=-1),
        Column("tag", _INT, "tag of a send or receive", missing=-1),
        Column("is_async", _INT, "whether the call for it returned before it was done, 1 or 0, "
               "where it is stated", missing=-1),
        Column("flops", _INT, "floating point operations, where they are stated", missing=-1),
    ),
    {
        "nodes.id": "an id stands once in a trace",
        "nodes.order": "rows without a time come first, the others in order of start, longest "
        "first, then category, then event; a file without events keeps its own order",
        "nodes.duration": "where the start is known a duration is 0 or more, and the end is below "
        "2^63 ns",
        "nodes.exclusive": "exclusive time lies between 0 and the duration",
        "nodes.parent": "a parent is an earlier row",
        "nodes.group": "a group is a row of the groups table",
        "nodes.cycle": "no node waits for itself by way of data and ctrl dependencies",
    },
)  # fmt: skip

DEPS = Table(
    "deps",
    "one dependency between two operations of one rank",
    (
        Column("src", _INT, "the operation waited for", references="nodes row"),
        Column("dst", _INT, "the operation that waits", references="nodes row"),
        Column("kind", pl.Enum(DEP_KINDS),
               "call: starts inside src; order: starts after src on its thread; launch: runs what "
               "src launched; stream: follows src on its stream; event: cannot start before src, "
               "on another stream, has ended; sync: cannot end before src ends; thread: cannot "
               "start before src, on another thread, has ended; comm: is asked for after src in "
               "its process group; raw: reads what src wrote; war: overwrites what src read; waw: "
               "overwrites what src wrote; data, ctrl: as a Chakra file gives them"),
        Column("inferred", pl.Boolean, "found from times, not stated by the recording",
               missing=False),
    ),
    {
        "deps.rows": "src and dst are rows of the nodes table",
        "deps.order": "src starts no later than dst, but for sync, comm, data and ctrl",
        "deps.twice": "no dependency is given twice",
    },
)  # fmt: skip

GROUPS = Table(
    "groups",
    "one process group that the rank belongs to",
    (
        Column("name", pl.String, "name as recorded"),
        Column("description", pl.String, "its description, such as default_pg", missing=""),
        Column("ranks", pl.List(_INT), "global ranks of its members, ascending; empty if they are "
               "not stated"),
        Column("backend", pl.String, "communication library, such as cuda:nccl", missing=""),
    ),
    {
        "groups.name": "a name stands once in a trace",
        "groups.ranks": "ranks ascend",
    },
)  # fmt: skip

ATTRS = Table(
    "attrs",
    "one thing that a file said of a node, or of the trace, that has no column",
    (
        Column("node", _INT, "the node; -1 for the trace itself", missing=-1,
               references="nodes row"),
        Column("name", _NAME, "its name in the file"),
        Column("type", pl.Enum(ATTRIBUTE_TYPES), "its type: Chakra's, raw JSON, an operand's "
               "text, a dependency on a node that is not there, a comment, unknown fields"),
        Column("value", pl.String, "its value: numbers in decimal, lists as JSON, bytes in "
               "base64"),
    ),
    {
        "attrs.node": "node is a row of the nodes table, or -1",
        "attrs.order": "rows are in order of node",
    },
)  # fmt: skip

TENSORS = Table(
    "tensors",
    "one tensor as operations used it; the same tensor in another shape is another row",
    (
        Column("tensor_id", _INT, "its id in the execution trace"),
        Column("storage_id", _INT, "id of the memory that it lies in, which tensors may share"),
        Column("offset", _INT, "where it begins in that memory", "elements"),
        Column("elements", _INT, "number of its elements"),
        Column("itemsize", _INT, "size of an element", "bytes"),
        Column("device", _NAME, "where it is, such as cuda:0", missing=""),
        Column("dtype", _NAME, "type of its elements as recorded, such as float or long int",
               missing=""),
        Column("shape", pl.List(_INT), "its size in each dimension; empty too if not recorded"),
        Column("strides", pl.List(_INT), "distance of neighbours in each dimension; empty if not "
               "recorded, as in schemas before 1.1.1", "elements"),
    ),
    {
        "tensors.elements": "elements is the product of the shape, where there is one",
        "tensors.strides": "there are as many strides as dimensions, or none",
    },
)  # fmt: skip

OPERANDS = Table(
    "operands",
    "one tensor, one scalar or one empty list that a node was given or gave; lists in lists are "
    "told apart by type and item only, their nesting stays with the attributes",
    (
        Column("node", _INT, "the operation", references="nodes row"),
        Column("is_output", pl.Boolean, "given by the operation, not to it"),
        Column("position", _INT, "place in the list of inputs or of outputs, from 0; -1 for a "
               "text that could not be read, which is kept as a whole in value"),
        Column("item", _INT, "place in the list that stands there, lists in it counted through; "
               "where position is -1, which text: 0 values, 1 shapes, 2 types, 3 strides",
               missing=-1),
        Column("type", _NAME, "its own type, such as Tensor(float), Int, or GenericList[] for an "
               "empty list", missing=""),
        Column("tensor", _INT, "the tensor", missing=-1, references="tensors row"),
        Column("value", pl.String, "a scalar, as text: numbers as recorded, true, false and null "
               "as in JSON, strings without quotes and escapes; [] for an empty list",
               missing=""),
    ),
    {
        "operands.node": "node is a row of the nodes table",
        "operands.tensor": "tensor is a row of the tensors table, or -1",
        "operands.order": "rows are in order of node, inputs before outputs, position and item",
        "operands.text": "the recorded texts of a node's operands can be read",
    },
)  # fmt: skip

ISSUES = Table(
    "issues",
    "one kind of problem met while reading and linking",
    (
        Column("code", pl.String, "stable name of the problem"),
        Column("severity", pl.Enum(SEVERITIES), "info: nothing that matters was lost"),
        Column("count", _INT, "how often it was met"),
        Column("detail", pl.String, "what was met", missing=""),
        Column("remedy", pl.String, "what to do about it", missing=""),
    ),
)

MATCHES = Table(
    "matches",
    "one rank's part in one collective of a job, or in one transfer from rank to rank",
    (
        Column(
            "collective",
            _INT,
            "number of the collective in the job, or of the transfer: a "
            "send (COMM_SEND) and its receive (COMM_RECV)",
        ),
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the rank's operation", references="nodes row of that rank"),
    ),
    {
        "matches.rank": "a rank takes part in a collective at most once",
        "matches.node": "a match names a row of its rank's nodes",
    },
)

CLOCKS = Table(
    "clocks",
    "how the clock of one rank lies to that of another, by what they did together",
    (
        Column("rank", _INT, "global rank"),
        Column(
            "reference",
            _INT,
            "the rank that it is compared with: the lowest of those that it "
            "communicates with, be it by way of others",
        ),
        Column("shift", _INT, "time that was added to the rank's own", "ns", missing=0),
        Column(
            "low",
            _INT,
            "least shift against the reference with which no communication ends "
            "before it can; -2^62 without such a bound",
            "ns",
            missing=-UNBOUNDED,
        ),
        Column(
            "high", _INT, "largest such shift; 2^62 without such a bound", "ns", missing=UNBOUNDED
        ),
    ),
    {
        "clocks.rank": "a rank of the job stands once, and so does its reference",
        "clocks.shift": "shift less that of the reference lies between low and high",
    },
)

SCHEDULE = Table(
    "schedule",
    "when one operation ran, or would run, and what it waited for",
    (
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the operation", references="nodes row of that rank"),
        Column("start", _INT, "start since the job's first event", "ns"),
        Column("end", _INT, "end since the job's first event", "ns"),
        Column("resource", pl.Categorical(), "thread or stream that it ran on"),
        Column("bound_by", pl.String, "kind of the dependency that set its start", missing=""),
        Column("bound_rank", _INT, "rank of the operation waited for", missing=-1),
        Column("bound_node", _INT, "the operation waited for", missing=-1,
               references="nodes row of bound_rank"),
    ),
)  # fmt: skip

DEVICE_EVENTS = Table(
    "device_events",
    "one event of the device file, with what the host trace says of the operation behind it",
    (
        Column("event", _INT, "position in traceEvents"),
        Column("name", _NAME, "name as recorded"),
        Column("category", pl.Enum(CATEGORIES), "what recorded it"),
        Column("start", _INT, "start since the epoch", "ns"),
        Column("duration", _INT, "time from start to end", "ns"),
        Column("thread", _INT, "thread id of host work", missing=-1),
        Column("stream", _INT, "stream number of device work", missing=-1),
        Column("correlation", _INT, "links a runtime call to the device work it launched",
               missing=-1),
        Column("external_id", _INT, "Kineto's External id", missing=-1),
        Column("node", _INT, "the event's own node", references="nodes row"),
        Column("et_node", _INT, "id in the host trace of the operation that the event is, or that "
               "launched it", missing=-1),
        Column("et_node_name", _NAME, "its name", missing=""),
        Column("op_schema", pl.String, "its signature", missing=""),
        Column("input_shapes", pl.String, "shapes of its inputs, as recorded: JSON", missing=""),
        Column("input_types", pl.String, "types of its inputs, as recorded: JSON", missing=""),
        Column("output_shapes", pl.String, "shapes of its outputs, as recorded: JSON", missing=""),
        Column("output_types", pl.String, "types of its outputs, as recorded: JSON", missing=""),
    ),
)  # fmt: skip

LINKS = Table(
    "links",
    "one link of a simulated network, one way",
    (
        Column("dimension", _INT, "dimension of the network"),
        Column("kind", pl.Categorical(), "ring or mesh: to a neighbour; direct: of a dimension "
               "that is fully connected; to switch, from switch"),
        Column("src", _INT, "rank that it leads from; of a link from a switch that of none",
               missing=-1),
        Column("dst", _INT, "rank that it leads to; of a link to a switch that of none",
               missing=-1),
        Column("bytes", _INT, "what it carried", "bytes"),
        Column("busy", _INT, "time in which it sent these bytes, one after the other", "ns"),
        Column("utilisation", pl.Float64, "that time by the time of the job; above 1 only without "
               "congestion, where collectives share a link without being slower"),
        Column("peak_queue", _INT, "how many messages waited for it at most, with congestion",
               missing=-1),
    ),
)  # fmt: skip

RANK_TIMES = Table(
    "rank_times",
    "one rank of a simulated job, and what it did until it had finished",
    (
        Column("rank", _INT, "global rank"),
        Column("finish", _INT, "when it had finished", "ns"),
        Column("computing", _INT, "computation was under way", "ns"),
        Column("transferring", _INT, "no computation was, and bytes of sends, receives or "
               "collectives were: communication past its waiting", "ns"),
        Column("accessing", _INT, "none of these was, and remote memory served the rank", "ns"),
        Column("hosting", _INT, "none of these was, and the host worked", "ns"),
        Column("other", _INT, "none of these was, and a node of another kind was under way", "ns"),
        Column("awaiting_members", _INT, "nothing was under way but waiting: it was in a "
               "collective whose last member had not entered", "ns"),
        Column("awaiting_sender", _INT, "nothing but waiting, not of the former kind: a receive "
               "whose send had not been issued", "ns"),
        Column("awaiting_receiver", _INT, "nothing but waiting, not of the former kinds: with "
               "rendezvous, a send whose receive had not been issued", "ns"),
        Column("awaiting_memory", _INT, "nothing but waiting, not of the former kinds: remote "
               "memory served others", "ns"),
        Column("idle", _INT, "no node was under way", "ns"),
        Column("host", _INT, "the host worked, whatever else was under way", "ns"),
        Column("communicating", _INT, "communication was under way, waiting or not", "ns"),
        Column("exposed", _INT, "communication was under way, waiting or not, and no "
               "computation", "ns"),
        Column("overlapped", _INT, "both were under way", "ns"),
        Column("blocked", _INT, "some node was ready and its slot was not free, whatever was "
               "under way", "ns"),
    ),
)  # fmt: skip

COLLECTIVE_TIMES = Table(
    "collective_times",
    "one collective of a simulated job",
    (
        Column("type", _NAME, "what it does, as comm_type of the nodes"),
        Column("algorithm", _NAME, "that of each of its phases, in order, the same ones once",
               missing=""),
        Column("group", _NAME, "its process group; empty for all ranks", missing=""),
        Column("number", _INT, "which of its group's collectives it is, from 0"),
        Column("members", _INT, "number of ranks that take part"),
        Column("bytes", _INT, "bytes that each member gives", "bytes"),
        Column("first_entry", _INT, "when the first member entered it", "ns"),
        Column("last_entry", _INT, "when the last member did", "ns"),
        Column("last_rank", _INT, "the member that entered last; of several the lowest rank"),
        Column("end", _INT, "when the last member had done its part", "ns"),
        Column("time", _INT, "from the last entry to the end", "ns"),
        Column("waiting", _INT, "from its own entry to the last one, or to its own end if that "
               "comes first, summed over members", "ns"),
        Column("bandwidth", pl.Float64, "algorithm bandwidth: bytes of the larger of a member's "
               "input and output, by time", "GB/s", missing=-1.0),
        Column("bus_bandwidth", pl.Float64, "the same times the part of it that has to pass a "
               "member's links, as nccl-tests define it", "GB/s", missing=-1.0),
        Column("bound", pl.Float64, "least time that the links allow for the bytes of its phases, "
               "without any latency", "ns", missing=-1.0),
        Column("fraction", pl.Float64, "bound by time", missing=-1.0),
    ),
)  # fmt: skip

LIVE_MEMORY = Table(
    "live_memory",
    "what the live tensors of a simulated rank take on one device at most",
    (
        Column("rank", _INT, "global rank"),
        Column("device", _NAME, "where they are, such as cuda:0", missing=""),
        Column("peak", _INT, "largest sum of the sizes of live storages", "bytes"),
        Column("at", _INT, "when it is first reached", "ns"),
        Column("storages", _INT, "number of storages that nodes of the rank use"),
    ),
)  # fmt: skip

TABLES: Sequence[Table] = (
    NODES, DEPS, GROUPS, ATTRS, TENSORS, OPERANDS, ISSUES, MATCHES, CLOCKS, SCHEDULE, DEVICE_EVENTS,
    LINKS,
    RANK_TIMES, COLLECTIVE_TIMES, LIVE_MEMORY,
)  # fmt: skip


def data_model_page() -> str:
    """Write the page ``docs/data-model.md``."""
    lines = [
        "# Data model",
        "",
        "Generated from `src/nadi/schema.py` by `make docs`; edit there.",
        "",
        "Time is int64 nanoseconds and size is int64 bytes. A missing number is -1; no column",
        "holds nulls. Ranges are half-open. A reference is a row number, counted from 0.",
        "",
        "A **Trace** is one rank: the tables nodes, deps, groups, attrs and issues, and its",
        "provenance. Its tables tensors and operands are read from the attributes of type operand",
        "when they are first asked for; device_events is what `trace.device_frame()` gives.",
        "A **Job** is several ranks: their traces, matches, which says which operations of",
        "different ranks are the same communication, and clocks, how their times lie to one",
        "another. A **schedule** says when each operation ran; a measured run and a replayed one",
        "are the same table.",
        "",
        "`nadi validate` and `nadi.validate_trace` check the rules, and report each by its code.",
    ]
    for table in TABLES:
        lines += ["", f"## {table.name}", "", f"A row is {table.row}.", ""]
        lines += ["| column | type | unit | missing | meaning |", "|---|---|---|---|---|"]
        for column in table.columns:
            meaning = column.meaning
            if column.references:
                meaning += f" ({column.references})"
            missing = "" if column.missing is None else f"`{column.missing!r}`"
            lines.append(
                f"| {column.name} | {_type_name(column)} | {column.unit} | {missing} | {meaning} |"
            )
        if table.rules:
            lines += ["", "| rule | what must hold |", "|---|---|"]
            lines += [f"| `{code}` | {rule} |" for code, rule in table.rules.items()]
    return "\n".join(lines) + "\n"


def _type_name(column: Column) -> str:
    dtype = _instance(column.dtype)
    if isinstance(dtype, pl.Enum):
        return "one of " + ", ".join(dtype.categories.to_list())
    if isinstance(dtype, pl.List):
        return "list of int64"
    return {pl.String: "text", pl.Categorical: "text", pl.Boolean: "bool"}.get(
        type(dtype), str(dtype).lower()
    )
