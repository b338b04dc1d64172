"""Tables as they are declared; those of traces, which describe one rank each, and of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import UsageError
from nadi.forks import refuse_in_fork
from nadi.trace.categories import (
    ATTRIBUTE_TYPES,
    CATEGORIES,
    COMM_TYPES,
    DEP_KINDS,
    NODE_KINDS,
    SEVERITIES,
    UNBOUNDED,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_FEW = 4096  # rows up to which preparing an expression takes longer than the column


@dataclass(frozen=True)
class Column:
    """One column: its name, type, meaning, unit, and the value of a missing entry."""

    name: str
    dtype: pl.DataType | type[pl.DataType]
    meaning: str
    unit: str = ""
    missing: Any = None  # None: every row has a value
    references: str = ""

    @property
    def instance(self) -> pl.DataType:
        """The type as an instance, as data frames show it."""
        return self.dtype() if isinstance(self.dtype, type) else self.dtype


@dataclass(frozen=True)
class Table:
    """One table: what a row describes, its columns, and the rules that rows obey, by code."""

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

        - ``length``: Number of rows.
        - ``values``: Per column an array, list or polars series of that length, or one value; an
          array of integers for a column of words has their positions, as :meth:`coded` takes them.
        - Raises ValueError if a column is unknown, has another length, or is required and not
          given.
        - Raises UsageError: In a fork of a process in which Nadi has worked.
        """
        refuse_in_fork()
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
                series.append(self._series(column, length, value))
            elif length <= _FEW:
                series.append(self._constant(column, value).head(length))
            else:
                constants[column.name] = pl.lit(value).cast(column.dtype)
        if not length:
            return self.empty()
        if not constants:
            # looks at nothing but the columns: ``pl.DataFrame`` takes six times as long
            return self._known(series[0].to_frame().hstack(series[1:]), series)
        rows = pl.DataFrame(series or {"": pl.repeat(0, length, eager=True)})
        # polars keeps a constant as one value: most columns of most traces cost nothing
        return rows.with_columns(**constants).select(list(self.dtypes))

    def _constant(self, column: Column, value: Any) -> pl.Series:
        """Return a column of one value, which the columns of small tables are slices of."""
        key = column.name, value
        if key not in self._constants:
            repeated = pl.repeat(value, _FEW).cast(column.dtype)
            self._constants[key] = pl.select(repeated.alias(column.name)).to_series()
        return self._constants[key]

    @cached_property
    def _constants(self) -> dict[tuple[str, Any], pl.Series]:
        return {}

    def changed(self, frame: pl.DataFrame, **values: Any) -> pl.DataFrame:
        """Return a frame of this table with other columns, as :meth:`build` takes them.

        ``with_columns`` hands each column to a thread, which takes longer than a small column.
        """
        made, series = frame.clone(), []
        for place, column in enumerate(self.columns):
            if column.name in values:
                series.append(self._series(column, frame.height, values[column.name]))
                made.replace_column(place, series[-1])
        return self._known(made, series) if self._checked.get(id(frame)) is frame else made

    def coded(self, name: str, codes: npt.NDArray[Any], words: tuple[str, ...] = ()) -> pl.Series:
        """Return a column of words by their positions in ``words``.

        By default positions are those in the words that the column's type lists.
        """
        key = name, words
        if key not in self._words:
            dtype = self.dtypes[name]
            listed = words or dtype.categories  # type: ignore[union-attr]
            self._words[key] = pl.Series(name, listed, dtype=dtype)
        return self._words[key][pl.Series(codes.astype(np.uint32, copy=False))]

    @cached_property
    def _words(self) -> dict[tuple[str, tuple[str, ...]], pl.Series]:
        return {}

    def compact(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the same frame, whose columns of missing values alone take no memory."""
        return self.build(frame.height, {one.name: one for one in self._present(frame)})

    def _present(self, frame: pl.DataFrame) -> Iterator[pl.Series]:
        """Yield the columns that have other values than the missing one."""
        for column, values in zip(self.columns, frame.get_columns(), strict=True):
            none = column.missing
            if (
                none is None
                or (values.len() and not (none == values.item(0) == values.item(-1)))
                or not (values == none).all()
            ):
                yield values

    def packed(self, frame: pl.DataFrame) -> dict[str, Any]:
        """Return the columns that have values, which :meth:`build` takes in another process.

        Numbers and words are arrays: a frame goes with all columns, and takes three times as long.
        """
        return {
            one.name: one if one.dtype == pl.String else one.to_physical().to_numpy()
            for one in self._present(frame)
        }

    def empty(self) -> pl.DataFrame:
        """Make a frame of this table without rows."""
        return self._empty.clone()

    @cached_property
    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.dtypes)

    def check(self, frame: pl.DataFrame) -> None:
        """Raise ValueError unless ``frame`` has exactly the declared columns and no nulls.

        A frame is checked once: traces that differ in one table share the others.
        """
        if self._checked.get(id(frame)) is frame:
            return
        if frame.columns != list(self.dtypes) or frame.dtypes != self._instances:
            raise ValueError(f"table {self.name}: expected {self.dtypes}, got {dict(frame.schema)}")
        for series in frame.get_columns():
            if nulls := series.null_count():
                raise ValueError(f"table {self.name}: {nulls} nulls in column {series.name!r}")
        self._checked[id(frame)] = frame

    def _known(self, frame: pl.DataFrame, new: Sequence[pl.Series]) -> pl.DataFrame:
        """Return a frame whose columns have their types: checked, if the new ones lack nulls."""
        if not any(series.null_count() for series in new):
            self._checked[id(frame)] = frame
        return frame

    def _series(self, column: Column, length: int, value: Any) -> pl.Series:
        if isinstance(value, pl.Series):
            series = value.alias(column.name)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "iu" and _is_word(column):
            series = self.coded(column.name, value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "ib":  # a type takes longer
            series = pl.Series(column.name, value)
        else:
            series = pl.Series(column.name, value, dtype=column.dtype)
        if series.dtype != column.dtype:
            series = series.cast(column.dtype)
        if len(series) != length:
            raise ValueError(f"column {column.name!r}: {len(series)} values for {length} rows")
        return series

    @cached_property
    def _checked(self) -> WeakValueDictionary[int, pl.DataFrame]:
        return WeakValueDictionary()

    @cached_property
    def _instances(self) -> list[pl.DataType]:
        return [column.instance for column in self.columns]


def _is_word(column: Column) -> bool:
    return isinstance(column.dtype, pl.Enum)


_INT = pl.Int64
_NAME = pl.String

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
        Column("exclusive", _INT, "self time: duration without that of operations nested in it",
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
        Column("bytes", _INT, "bytes that a copy or memory set writes", "bytes", missing=-1),
        Column("comm_type", pl.Enum(COMM_TYPES), "type of the communication, if the node is one",
               missing="none"),
        Column("comm_bytes", _INT, "bytes of the tensors given to the communication", "bytes",
               missing=-1),
        Column("group", _INT, "process group of the communication", missing=-1,
               references="groups row"),
        Column("src", _INT, "rank that sends, if stated", missing=-1),
        Column("dst", _INT, "rank that receives, if stated", missing=-1),
        Column("tag", _INT, "tag of a send or receive", missing=-1),
        Column("is_async", _INT, "1 if the call returned before the communication was complete, "
               "else 0, if stated", missing=-1),
        Column("comms_id", _INT, "the same number on all ranks of a communication, if stated: the "
               "lower 63 bits of PyTorch's Comms Id", missing=-1),
        Column("flops", _INT, "floating point operations, if stated", missing=-1),
        Column("layer", _INT, "layer of the model, if stated", missing=-1),
        Column("micro_batch", _INT, "micro-batch of the step, if stated", missing=-1),
        Column("phase", _NAME, "phase of the step, if stated, such as forward, backward, recompute "
               "or optimizer", missing=""),
        Column("tier", _NAME, "memory tier that a load reads or a store writes, if stated: its "
               "name in the system", missing=""),
    ),
    {
        "nodes.id": "each id occurs once in a trace",
        "nodes.order": "rows without a time come first; the others are sorted by start, longest "
        "first, then by category and event; a file without events keeps its own order",
        "nodes.duration": "if the start is known, the duration is 0 or more, and the end is below "
        "2^63 ns",
        "nodes.exclusive": "exclusive time is between 0 and the duration",
        "nodes.parent": "a parent is an earlier row",
        "nodes.group": "a group is a row of the groups table",
        "nodes.cycle": "data and ctrl dependencies have no cycle",
    },
)  # fmt: skip

DEPS = Table(
    "deps",
    "one dependency between two operations of one rank",
    (
        Column("src", _INT, "the operation that dst waits for", references="nodes row"),
        Column("dst", _INT, "the operation that waits", references="nodes row"),
        Column("kind", pl.Enum(DEP_KINDS),
               "call: starts inside src; order: starts after src on its thread; launch: runs what "
               "src launched; stream: follows src on its stream; event: cannot start before src, "
               "on another stream, has ended; sync: cannot end before src ends; thread: cannot "
               "start before src, on another thread, has ended; comm: is issued after src in "
               "its process group; raw: reads what src wrote; war: overwrites what src read; waw: "
               "overwrites what src wrote; data, ctrl: as stated in a Chakra file"),
        Column("inferred", pl.Boolean, "derived from times, not stated by the recording",
               missing=False),
    ),
    {
        "deps.rows": "src and dst are rows of the nodes table",
        "deps.order": "src starts no later than dst, except for sync, comm, data and ctrl",
        "deps.twice": "no dependency occurs twice",
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
        "groups.name": "each name occurs once in a trace",
        "groups.ranks": "ranks are in ascending order",
    },
)  # fmt: skip

ATTRS = Table(
    "attrs",
    "one value that a file states for a node, or for the trace, and that has no column",
    (
        Column("node", _INT, "the node; -1 for the trace itself", missing=-1,
               references="nodes row"),
        Column("name", _NAME, "its name in the file"),
        Column("type", pl.Enum(ATTRIBUTE_TYPES), "its type: one of Chakra's, raw JSON, the text "
               "of operands, a dependency on a missing node, a comment, or unknown fields"),
        Column("value", pl.String, "its value: numbers in decimal, lists as JSON, bytes in "
               "base64"),
    ),
    {
        "attrs.node": "node is a row of the nodes table, or -1",
        "attrs.order": "rows are sorted by node",
    },
)  # fmt: skip

TENSORS = Table(
    "tensors",
    "one tensor as operations use it; the same tensor with another shape has its own row",
    (
        Column("tensor_id", _INT, "its id in the execution trace"),
        Column("storage_id", _INT, "id of its storage, which tensors can share"),
        Column("offset", _INT, "offset of its first element in the storage", "elements"),
        Column("elements", _INT, "number of its elements"),
        Column("itemsize", _INT, "size of an element", "bytes"),
        Column("device", _NAME, "its device, such as cuda:0", missing=""),
        Column("dtype", _NAME, "type of its elements as recorded, such as float or long int",
               missing=""),
        Column("shape", pl.List(_INT), "its size in each dimension; also empty if not recorded"),
        Column("strides", pl.List(_INT), "distance between neighbors in each dimension; empty if "
               "not recorded, as in schemas before 1.1.1", "elements"),
    ),
    {
        "tensors.elements": "elements is the product of the shape, if there is a shape",
        "tensors.strides": "there are as many strides as dimensions, or none",
    },
)  # fmt: skip

OPERANDS = Table(
    "operands",
    "one tensor, scalar or empty list among the inputs or outputs of a node; nested lists are "
    "flattened, and only the attributes keep the nesting",
    (
        Column("node", _INT, "the operation", references="nodes row"),
        Column("is_output", pl.Boolean, "whether it is an output of the operation"),
        Column("position", _INT, "position in the list of inputs or of outputs, from 0; -1 for "
               "a text that cannot be parsed, which value then holds whole"),
        Column("item", _INT, "position in the flattened list at that position; if position is "
               "-1, which text: 0 values, 1 shapes, 2 types, 3 strides",
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
        "operands.order": "rows are sorted by node, inputs before outputs, position and item",
        "operands.text": "the recorded texts of a node's operands can be parsed",
    },
)  # fmt: skip

ISSUES = Table(
    "issues",
    "one kind of problem met while reading and linking",
    (
        Column("code", pl.String, "stable identifier of the problem"),
        Column("severity", pl.Enum(SEVERITIES), "info: no loss of information that matters"),
        Column("count", _INT, "number of occurrences"),
        Column("detail", pl.String, "what happened", missing=""),
        Column("remedy", pl.String, "what to do about it", missing=""),
    ),
)

MATCHES = Table(
    "matches",
    "one rank's operation in one collective of a job, or in one point-to-point message",
    (
        Column(
            "collective",
            _INT,
            "number of the collective in the job, or of the message: a "
            "send (COMM_SEND) and its receive (COMM_RECV)",
        ),
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the rank's operation", references="nodes row of that rank"),
    ),
    {
        "matches.rank": "a rank takes part in a collective at most once",
        "matches.node": "a match refers to a row of its rank's nodes",
    },
)

CLOCKS = Table(
    "clocks",
    "the clock skew of one rank against another, as bounded by their communications",
    (
        Column("rank", _INT, "global rank"),
        Column(
            "reference",
            _INT,
            "the rank that it is compared with: the lowest that it "
            "communicates with, directly or through other ranks",
        ),
        Column("shift", _INT, "time that was added to the rank's timestamps", "ns", missing=0),
        Column(
            "low",
            _INT,
            "least shift against the reference that is consistent with all "
            "communications; -2^62 if unbounded",
            "ns",
            missing=-UNBOUNDED,
        ),
        Column("high", _INT, "largest such shift; 2^62 if unbounded", "ns", missing=UNBOUNDED),
    ),
    {
        "clocks.rank": "rank and reference are ranks of the job, and each rank occurs once",
        "clocks.shift": "shift minus that of the reference is between low and high",
    },
)

DEVICE_EVENTS = Table(
    "device_events",
    "one event of the device file, with its operation in the host trace",
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
        Column("et_node", _INT, "id in the host trace of the operation itself, or of the one that "
               "launched the event", missing=-1),
        Column("et_node_name", _NAME, "its name", missing=""),
        Column("op_schema", pl.String, "its signature", missing=""),
        Column("input_shapes", pl.String, "shapes of its inputs, as recorded: JSON", missing=""),
        Column("input_types", pl.String, "types of its inputs, as recorded: JSON", missing=""),
        Column("output_shapes", pl.String, "shapes of its outputs, as recorded: JSON", missing=""),
        Column("output_types", pl.String, "types of its outputs, as recorded: JSON", missing=""),
    ),
)  # fmt: skip


def to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Return a table for pandas; kinds and categories are texts there.

    - Raises UsageError if pandas or pyarrow is not installed.
    """
    try:
        return _with_texts(table).to_pandas()
    except ModuleNotFoundError as error:
        raise _missing("to_pandas()", "pandas pyarrow", error) from None


def to_arrow(table: pl.DataFrame) -> pa.Table:
    """Return a table as Arrow's; kinds and categories are texts there.

    - Raises UsageError if pyarrow is not installed.
    """
    try:
        return _with_texts(table).to_arrow()
    except ModuleNotFoundError as error:
        raise _missing("to_arrow()", "pyarrow", error) from None


def _missing(asked: str, packages: str, error: ModuleNotFoundError) -> UsageError:
    return UsageError(asked, f"needs a package that is not installed: {error.name or packages}",
                      f"pip install {packages}")  # fmt: skip


def _with_texts(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.selectors.by_dtype(pl.Enum).cast(pl.String))
