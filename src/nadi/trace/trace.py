"""Trace, one rank, Job, several, and Schedule: plain values made of tables, immutable once built.

The origin of a trace: files with their hashes, and the version of Nadi that read them.

The events of a device file, each with its operation in the host trace.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.trace.arrays import Bools, Bytes, Ints, counted_texts, text_codes
from nadi.trace.attributes import Attributes, LazyAttributes, Part
from nadi.trace.groups import RankGroups
from nadi.trace.notebook_html import notebook_html
from nadi.trace.operands import (
    AttributesWithOperands,
    OperandColumns,
    OperandTables,
    operand_tables,
)
from nadi.trace.rows import nearest
from nadi.trace.schema import (
    CATEGORIES,
    CLOCKS,
    COMM_TYPES,
    DEPS,
    DEVICE_EVENTS,
    DEVICE_WORK,
    GROUPS,
    ISSUES,
    MATCHES,
    NODE_KINDS,
    NODES,
    PART,
    SCHEDULE,
)
from nadi.trace.tables.trace_tables import to_arrow, to_pandas
from nadi.units import format_count

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


# attributes of host nodes, and the columns that they fill
_TEXTS = {
    "op_schema": "op_schema",
    "inputs.shapes": "input_shapes",
    "inputs.types": "input_types",
    "outputs.shapes": "output_shapes",
    "outputs.types": "output_types",
}
_AS_THEY_ARE = (
    "event", "name", "category", "start", "duration", "thread", "stream", "correlation",
    "external_id",
)  # fmt: skip


def device_frame(nodes: pl.DataFrame, attributes: Attributes) -> pl.DataFrame:
    """Correlate the events of a device file with the nodes of the host trace.

    - ``nodes``, ``attributes``: Those of a trace linked from both files.
    - Returns: ``schema.DEVICE_EVENTS``, in the order of the file. An operator or annotation has its
      own host node; device work has the innermost operation around the call that launched it; other
      events have none. O(events + bytes of the texts).
    """
    event = nodes["event"].to_numpy()
    rows = np.flatnonzero(event >= 0)
    rows = rows[np.argsort(event[rows], kind="stable")]
    of = _operations(nodes, attributes)[rows]
    known = of >= 0
    host_rows, place = np.unique(of[known], return_inverse=True)
    columns: dict[str, pl.Series | Ints] = {name: nodes[name][rows] for name in _AS_THEY_ARE}
    columns["node"] = rows
    columns["et_node"] = np.where(known, nodes["id"].to_numpy()[of], -1)
    names = nodes["name"].cast(pl.String).gather(host_rows)
    columns["et_node_name"] = _spread(names, place, known)
    for name, column in _TEXTS.items():
        columns[column] = _spread(_texts(attributes, name, host_rows), place, known)
    return DEVICE_EVENTS.build(rows.size, columns)


def _operations(nodes: pl.DataFrame, attributes: Attributes) -> Ints:
    """Return the row of each node's operation in the host trace, or -1."""
    is_host = np.zeros(nodes.height, dtype=np.bool_)
    # the host trace says this of every node, and no other file says it
    is_host[attributes.node[attributes.rows_named("op_schema")]] = True
    found = np.where(is_host, np.arange(nodes.height), -1)
    parent = nodes["parent"].to_numpy()
    work = np.flatnonzero(nodes["category"].is_in(DEVICE_WORK).to_numpy())
    found[work] = nearest(parent[work], parent, is_host)
    return found


def _texts(attributes: Attributes, name: str, nodes: Ints) -> pl.Series:
    """Return an attribute of some nodes, in ascending order, as text; empty if absent."""
    texts = np.full(nodes.size, "", dtype=np.object_)
    rows = attributes.rows_named(name)
    owner = attributes.node[rows].astype(np.int64)
    at = np.minimum(np.searchsorted(nodes, owner), max(nodes.size - 1, 0))
    wanted = nodes[at] == owner if nodes.size else np.zeros(rows.size, dtype=np.bool_)
    for place, row in zip(at[wanted].tolist(), rows[wanted].tolist(), strict=True):
        texts[place] = attributes.span(row).decode()
    return pl.Series(texts.tolist(), dtype=pl.String)


def _spread(texts: pl.Series, place: Ints, known: Bools) -> pl.Series:
    """Return texts in the rows of known events, and empty texts in the others."""
    at = np.full(known.size, texts.len(), dtype=np.int64)
    at[known] = place
    return pl.concat([texts, pl.Series([""], dtype=pl.String)]).gather(at)


@dataclass(frozen=True)
class Source:
    """One input file: its path, format with version, size and BLAKE2b-128 hash as stored."""

    path: str
    format: str
    size: int
    hash: str

    @classmethod
    def of(cls, path: str, format_name: str, stored: Bytes) -> Source:
        """Describe a file by its bytes, uint8; the hash is computed on first access.

        Hashing takes as long as reading, and is rarely needed.
        """
        source = cls.__new__(cls)
        vars(source).update(path=path, format=format_name, size=stored.size, _stored=stored)
        return source

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> str:
            stored = vars(self).get("_stored")
            if name != "hash" or stored is None:
                raise AttributeError(name, name=name, obj=self)
            digest = hashlib.blake2b(stored.data, digest_size=16).hexdigest()
            vars(self).update(hash=digest, _stored=None)
            return digest


@dataclass(frozen=True)
class Provenance:
    """The files from which a trace was made, and the version of Nadi that made it."""

    nadi_version: str
    sources: tuple[Source, ...]


_TOLD = 16  # ranks that a job names
_VIEWS = ("_codes", "_numbers")
_WORDS = ("kind", "category", "comm_type")


@dataclass(frozen=True, eq=False)
class Trace:
    """One rank: its operations and their dependencies.

    Attributes
    ----------
    nodes, deps, groups, issues
        Tables as declared in :mod:`nadi.trace.schema`.
    rank, world_size
        Global rank and number of ranks of the job; -1 if the files do not state them.
    process
        Process id on its host; -1 if the file does not state it.
    provenance
        The files from which it was made.
    given_attributes
        Values in the files that have no column; read them as ``attributes``.
    step_lengths
        Of the steps that were recorded and of others, if the recorder wrote them.
    """

    nodes: pl.DataFrame
    deps: pl.DataFrame
    groups: pl.DataFrame
    issues: pl.DataFrame
    provenance: Provenance
    rank: int = -1
    world_size: int = -1
    process: int = -1
    given_attributes: Attributes | LazyAttributes = field(default_factory=Attributes.empty)
    step_lengths: StepLengths | None = None

    def __post_init__(self) -> None:
        tables = ((NODES, self.nodes), (DEPS, self.deps), (GROUPS, self.groups))
        for table, frame in (*tables, (ISSUES, self.issues)):
            table.check(frame)

    @classmethod
    def of_checked(cls, **values: Any) -> Trace:
        """Make a trace from parts of checked tables; every attribute is required.

        Checking the tables of a small trace takes longer than reading it.
        """
        trace = cls.__new__(cls)
        vars(trace).update(values)
        return trace

    def __repr__(self) -> str:
        return f"<Trace rank={self.rank} nodes={self.nodes.height} deps={self.deps.height}>"

    def _repr_html_(self) -> str:
        counts = counted_texts(self.nodes["category"]).items()
        facts = {
            "rank": f"{self.rank} of {self.world_size}" if self.rank >= 0 else "not stated",
            "operations": format_count(self.nodes.height),
            "dependencies": format_count(self.deps.height),
            "issues": format_count(self.issues.height),
            "files": ", ".join(source.path for source in self.provenance.sources),
        }
        return notebook_html("trace", facts, [(kind, n, format_count(n)) for kind, n in counts])

    @property
    def attributes(self) -> Attributes:
        """Values in the files that have no column."""
        given = self.given_attributes
        return given.value if isinstance(given, LazyAttributes) else given

    @property
    def attribute_parts(self) -> tuple[Part, ...]:
        """The parts of the attributes before they are joined, for a single pass over them."""
        given = self.given_attributes
        return given.parts if isinstance(given, LazyAttributes) else (Part(given),)

    @property
    def is_part(self) -> bool:
        """Whether it was cut out of another trace, whose corrections of clocks it has."""
        return PART in self.given_attributes.names

    @cached_property
    def attrs(self) -> pl.DataFrame:
        """The attributes as a table (``schema.ATTRS``), for inspection. O(attributes), slow."""
        return self.attributes.table()

    @cached_property
    def operands(self) -> pl.DataFrame:
        """Inputs and outputs of the nodes (``schema.OPERANDS``); read on first access."""
        return self._operand_tables.operands

    @cached_property
    def tensors(self) -> pl.DataFrame:
        """The tensors among the operands (``schema.TENSORS``); read on first access."""
        return self._operand_tables.tensors

    @cached_property
    def _operand_tables(self) -> OperandTables:
        made = self.operand_columns
        return operand_tables(self.attributes) if made is None else made.tables()

    @property
    def operand_columns(self) -> OperandColumns | None:
        """The operands of a trace that was made with columns of them; None if attributes do."""
        given = self.given_attributes
        return given.operands if isinstance(given, AttributesWithOperands) else None

    @property
    def attributes_without_operands(self) -> Attributes:
        """The attributes, but for operands that are columns: no texts are made of these."""
        given = self.given_attributes
        if isinstance(given, AttributesWithOperands):
            return given.without_operands
        return self.attributes

    def device_frame(self) -> pl.DataFrame:
        """Return each event of the device file with its operation in the host trace.

        ``schema.DEVICE_EVENTS``: the id, name and signature of the operation, and the shapes
        and types of its inputs and outputs. O(nodes).
        """
        return device_frame(self.nodes, self.attributes)

    def column(self, name: str) -> Ints:
        """Return an integer column of ``nodes`` as int64, shape (nodes,)."""
        found = self._numbers.get(name)
        if found is None:
            found = self.nodes.get_column(name).to_numpy()
            if not found.flags.writeable:  # the column's own memory, and no copy
                self._numbers[name] = found
        return found

    @cached_property
    def _numbers(self) -> dict[str, Ints]:
        """Columns that were asked for: polars takes longer to give one than a small trace needs."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Go to another process without what is a view of a table."""
        return {name: value for name, value in vars(self).items() if name not in _VIEWS}

    def category_mask(self, *categories: str) -> Bools:
        """Return a mask of the nodes in any of ``categories``; bool, shape (nodes,)."""
        # by their numbers in the column: polars takes five times as long for a small trace
        mask: Bools = _among_categories(categories).take(self.codes("category"))
        return mask

    def comm_mask(self) -> Bools:
        """Return a mask of the nodes that are communication; bool, shape (nodes,)."""
        mask: Bools = self.codes("comm_type") != COMM_TYPES.index("none")
        return mask

    def codes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a column of words by their numbers in its type, shape (nodes,).

        - ``name``: ``kind``, ``category`` or ``comm_type``.
        """
        return self._codes[name]

    @cached_property
    def _codes(self) -> dict[str, npt.NDArray[np.uint8]]:
        """The numbers of words, no copies: polars takes as long for one column as for all."""
        words = self.nodes.select(pl.col(_WORDS).to_physical())
        return {column.name: column.to_numpy() for column in words.get_columns()}

    def name_mask(self, pattern: str) -> Bools:
        """Return a mask of the nodes whose name contains a regular expression (Rust's syntax).

        bool, shape (nodes,). Each distinct name is searched once.
        """
        which, texts = self.name_codes
        mask: Bools = _fitting(texts, pattern).take(which)
        return mask

    @cached_property
    def name_codes(self) -> tuple[npt.NDArray[np.uint32], tuple[str, ...]]:
        """Names as positions in a tuple, uint32, shape (nodes,), and the distinct names."""
        names = self.nodes["name"]
        codes = text_codes(names)
        row = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
        row[codes] = np.arange(codes.size)
        number = (np.cumsum(row >= 0) - 1).astype(np.uint32)
        texts = tuple(names[row[row >= 0]].cast(pl.String).to_list())
        return number[codes], _shared_names(texts)[0]

    def with_names(self, which: npt.NDArray[np.integer], texts: Sequence[str]) -> Trace:
        """Return this trace, told its ``name_codes`` by who knows them; nothing is told twice.

        - ``which``: int, shape (nodes,): positions of the names of nodes in ``texts``.
        - ``texts``: All names, and no others that ranks of the job might lack, in any order.
        """
        known = sorted(set(texts))  # so that ranks with the same names share them
        number = dict(zip(known, range(len(known)), strict=True))
        place = np.array([number[text] for text in texts], dtype=np.uint32)
        vars(self)["name_codes"] = place[which], _shared_names(tuple(known))[0]
        return self

    def changed(
        self, codes: Mapping[str, npt.NDArray[np.integer]] | None = None, **values: Any
    ) -> Trace:
        """Return the trace with other values; its nodes keep their names.

        - ``codes``: Of other nodes, what :meth:`codes` gives of the columns of words that differ;
          None if that is not known.
        """
        made, known = replace(self, **values), vars(self)
        if "name_codes" in known:
            vars(made)["name_codes"] = known["name_codes"]
        if "_codes" in known and ("nodes" not in values or codes is not None):
            made.with_codes(known["_codes"] | dict(codes or {}))
        return made

    def with_codes(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> Trace:
        """Return this trace, told by who knows it what :meth:`codes` gives of each such column.

        - ``codes``: Of these columns at least; others are ignored.
        """
        vars(self)["_codes"] = {name: codes[name].astype(np.uint8, copy=False) for name in _WORDS}
        return self

    def compact(self) -> Trace:
        """Return the same trace in less memory: what ranks have in common, all share."""
        which, texts = self.name_codes
        names = _shared_names(texts)[1][pl.Series(which)]
        nodes = NODES.compact(NODES.changed(self.nodes, name=names))
        made = replace(self, nodes=nodes).with_codes(self._codes)
        vars(made)["name_codes"] = which, texts
        return made

    def packed(self) -> PackedTrace:
        """Return the trace as it goes to another process."""
        columns = NODES.packed(self.nodes)
        del columns["name"]
        rest = replace(self, nodes=NODES.empty())
        return PackedTrace(rest, self.nodes.height, columns, self.name_codes)

    def assert_equals(self, other: Trace) -> None:
        """Raise AssertionError with the first table, row and column that differ."""
        for table in ("nodes", "deps", "groups", "issues", "attrs"):
            _assert_frames_equal(table, getattr(self, table), getattr(other, table))
        for attribute in ("rank", "world_size", "process"):
            mine, theirs = getattr(self, attribute), getattr(other, attribute)
            if mine != theirs:
                raise AssertionError(f"{attribute}: {mine} != {theirs}")


class PackedTrace(NamedTuple):
    """A trace on its way to another process, which takes a third of the time of one as it is."""

    rest: Trace  # without nodes
    num_nodes: int
    columns: dict[str, Any]  # of the nodes, but for names
    name_codes: tuple[npt.NDArray[np.uint32], tuple[str, ...]]

    def trace(self) -> Trace:
        """Return the trace, compact."""
        which, texts = self.name_codes
        texts, names = _shared_names(texts)
        columns = {**self.columns, "name": names[pl.Series(which)]}
        nodes = NODES.build(self.num_nodes, columns)
        made = replace(self.rest, nodes=nodes)
        vars(made)["name_codes"] = which, texts
        return made


def names_of_both(one: Trace, other: Trace) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return the names of two traces as positions among the names of both, int64, and these."""
    (first, texts), (second, others) = one.name_codes, other.name_codes
    number = dict(zip(texts, range(len(texts)), strict=True))
    place = np.array([number.setdefault(text, len(number)) for text in others], dtype=np.int64)
    return first.astype(np.int64), place[second], tuple(number)


@cache
def _among_categories(categories: tuple[str, ...]) -> Bools:
    """Return which of all categories are among some."""
    wanted = np.zeros(len(CATEGORIES), dtype=np.bool_)
    wanted[[CATEGORIES.index(category) for category in categories]] = True
    return wanted


@lru_cache(4096)
def _fitting(texts: tuple[str, ...], pattern: str) -> Bools:
    """Return which texts contain a regular expression; ranks of a job have the same names."""
    return pl.Series(texts, dtype=pl.String).str.contains(pattern).to_numpy()


@lru_cache(256)
def _shared_names(texts: tuple[str, ...]) -> tuple[tuple[str, ...], pl.Series]:
    """Return equal texts that are made once, and as a column."""
    return texts, pl.Series("name", texts, dtype=pl.String)


def _assert_frames_equal(table: str, mine: pl.DataFrame, theirs: pl.DataFrame) -> None:
    if mine.height != theirs.height:
        raise AssertionError(f"{table}: {mine.height} rows != {theirs.height} rows")
    for name in mine.columns:
        differs = mine[name].to_list(), theirs[name].to_list()
        for row, (a, b) in enumerate(zip(*differs, strict=True)):
            if a != b:
                raise AssertionError(f"{table}, row {row}, column {name}: {a!r} != {b!r}")


@dataclass(frozen=True, eq=False)
class Job:
    """The ranks of one job.

    Attributes
    ----------
    traces
        One per rank, in ascending order of rank. Ranks that do the same can share one, whose
        rank is -1: if all ranks are present, their ranks are their positions.
    matches
        The operations of different ranks that are one communication (``schema.MATCHES``).
    issues
        Problems between ranks; those of one rank are in its trace.
    clocks
        The clock skew between ranks (``schema.CLOCKS``); the times in the traces already
        contain the shifts.
    rank_groups
        Of traces that are shared by ranks in different process groups, which ranks form them;
        None if each trace states its groups itself.
    """

    traces: tuple[Trace, ...]
    matches: pl.DataFrame
    issues: pl.DataFrame
    clocks: pl.DataFrame = field(default_factory=CLOCKS.empty)
    rank_groups: RankGroups | None = None

    def __post_init__(self) -> None:
        MATCHES.check(self.matches)
        CLOCKS.check(self.clocks)
        ISSUES.check(self.issues)

    def __repr__(self) -> str:
        told = str(self.ranks) if len(self.traces) <= _TOLD else str(len(self.traces))
        return f"<Job ranks={told} nodes={self.num_nodes}>"

    def _repr_html_(self) -> str:
        facts = {
            "ranks": f"{format_count(len(self.traces))} of {format_count(self.world_size)}",
            "operations": format_count(self.num_nodes),
            "collectives matched": format_count(self.num_collectives),
            "transfers matched": format_count(self.num_transfers),
        }
        heights = [trace.nodes.height for trace in self.traces]
        bars = [
            (f"rank {rank}", height, f"{format_count(height)} operations")
            for rank, height in zip(self.ranks, heights, strict=True)
        ]
        return notebook_html("job", facts, bars)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The global ranks whose traces are present."""
        size = len(self.traces)
        return tuple(
            place if trace.rank < 0 and trace.world_size == size else trace.rank
            for place, trace in enumerate(self.traces)
        )

    @property
    def world_size(self) -> int:
        """Number of ranks of the job, whether or not their traces are present."""
        return max([len(self.traces), *(trace.world_size for trace in self.traces)])

    def own_trace(self, place: int, *, numbered: bool = False) -> Trace:
        """Return the trace at a place in ``traces``, with groups and ranks of its own.

        The trace itself, if ``rank_groups`` is None; else as
        :meth:`nadi.trace.groups.RankGroups.own_tables` makes it. O(nodes).
        """
        trace = self.traces[place]
        if self.rank_groups is None:
            return trace
        nodes, groups = self.rank_groups.own_tables(
            trace.nodes, trace.groups, place, numbered=numbered
        )
        return replace(trace, nodes=nodes, groups=groups, rank=place, world_size=len(self.traces))

    @property
    def num_nodes(self) -> int:
        """Number of nodes over all ranks."""
        return sum(trace.nodes.height for trace in self.traces)

    @cached_property
    def num_transfers(self) -> int:
        """Number of sends that were matched with their receives."""
        send = NODE_KINDS.index("COMM_SEND")
        rank, node = (self.matches[name].to_numpy() for name in ("rank", "node"))
        order = np.argsort(rank, kind="stable")
        ranks = [trace.rank for trace in self.traces]
        ends = (np.searchsorted(rank, ranks, side, order) for side in ("left", "right"))
        found = 0
        for trace, first, last in zip(self.traces, *ends, strict=True):
            kinds = trace.codes("kind")
            found += int((kinds[node[order[first:last]]] == send).sum())
        return found

    @property
    def num_collectives(self) -> int:
        """Number of collectives that were matched across ranks."""
        return self.matches["collective"].n_unique() - self.num_transfers

    @cached_property
    def origin(self) -> int:
        """Start of the first timed operation of any rank, in ns since the epoch."""
        starts = [start[start >= 0] for start in (t.column("start") for t in self.traces)]
        return min((int(start.min()) for start in starts if start.size), default=0)


def host_nodes(traces: Sequence[Trace], is_cpu: Bools, first: Ints) -> Bools:
    """Return which nodes run on the host; in an .et, only those that state it.

    - ``is_cpu``: bool, shape (nodes of all traces,): the column ``is_cpu``.
    - ``first``: int64, shape (traces + 1,): the first node of each trace, and their number.
    """
    is_cpu = is_cpu.copy()
    for rank, trace in enumerate(traces):
        own = is_cpu[first[rank] : first[rank + 1]]
        sources = trace.provenance.sources
        if sources and sources[0].format.startswith("Chakra") and own.any():
            stated = np.zeros(own.size, dtype=np.bool_)
            stated[trace.given_attributes.nodes_with("is_cpu_op")] = True
            own &= stated
    return is_cpu


def on_host(trace: Trace) -> Bools:
    """Return which nodes of a trace run on the host, as a simulation sees it.

    bool, shape (nodes,).
    """
    size = trace.nodes.height
    return host_nodes(
        [trace], trace.nodes["is_cpu"].to_numpy(), np.array([0, size], dtype=np.int64)
    )


@dataclass(frozen=True)
class StepLengths:
    """Lengths of steps of one process, as its recorder wrote them."""

    # timed_ns, observed_ns, unrecorded_ns: of the steps whose times are recorded, of those in which
    # the execution trace observer ran, and of those without a recorder
    timed_ns: tuple[int, ...] = ()
    observed_ns: tuple[int, ...] = ()
    unrecorded_ns: tuple[int, ...] = ()
    # whether the host trace is of other steps than the device trace, which followed
    host_is_later: bool = False
    # for how much of each timed step its thread was ready while others ran, and of each step
    # without a recorder; empty if unknown
    ready_ns: tuple[int, ...] = ()
    unrecorded_ready_ns: tuple[int, ...] = ()

    @property
    def longer_ns(self) -> float:
        """By how much longer the timed steps took than those without a recorder; 0 if unknown."""
        timed, unrecorded = self._medians()
        return timed - unrecorded if unrecorded else 0.0

    @property
    def cost(self) -> float | None:
        """By how much longer the timed steps took, as a share; None if unknown."""
        return self.longer_ns / unrecorded if (unrecorded := self._medians()[1]) else None

    def _medians(self) -> tuple[float, float]:
        """Return the median of the timed steps and of those without a recorder; 0 if unknown.

        Where the recorder knows for how long others had the processors in both, that is taken out:
        otherwise the cost would be that of a busy machine.
        """
        lengths = self.timed_ns, self.unrecorded_ns
        ready = self.ready_ns, self.unrecorded_ready_ns
        if not all(lengths):
            return 0.0, 0.0
        if tuple(map(len, lengths)) == tuple(map(len, ready)):
            alone = [
                [max(took - waited, 0) for took, waited in zip(*both, strict=True)]
                for both in zip(lengths, ready, strict=True)
            ]
            if (unrecorded := statistics.median(alone[1])) > 0:
                return statistics.median(alone[0]), unrecorded
        return statistics.median(self.timed_ns), statistics.median(self.unrecorded_ns)

    @property
    def contention(self) -> float:
        """The share of the timed steps in which their thread was ready and did not run.

        At most all of them: a wait that began before a step may be counted in it.
        """
        return min(sum(self.ready_ns) / max(sum(self.timed_ns), 1), 1.0)


def contentions(traces: Iterable[Trace]) -> list[float]:
    """Return ``StepLengths.contention`` of each rank; 0 where its recorder says nothing."""
    lengths = [trace.step_lengths for trace in traces]
    return [one.contention if one is not None else 0.0 for one in lengths]


@dataclass(frozen=True, eq=False)
class Schedule:
    """When each operation of a job ran (``schema.SCHEDULE``)."""

    table: pl.DataFrame

    def __post_init__(self) -> None:
        SCHEDULE.check(self.table)

    def __repr__(self) -> str:
        return f"<Schedule operations={self.table.height} makespan={self.makespan} ns>"

    @property
    def makespan(self) -> int:
        """Time from the first start to the last end, in ns; 0 without operations."""
        if self.table.is_empty():
            return 0
        ends: int = self.table["end"].max()  # type: ignore[assignment]
        starts: int = self.table["start"].min()  # type: ignore[assignment]
        return ends - starts

    def to_pandas(self) -> pd.DataFrame:
        """Return the table for pandas.

        Raises
        ------
        UsageError
            If pandas or pyarrow is not installed.
        """
        return to_pandas(self.table)

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's.

        Raises
        ------
        UsageError
            If pyarrow is not installed.
        """
        return to_arrow(self.table)
