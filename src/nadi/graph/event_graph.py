"""The event graph: the starts and ends of all operations of a job, and their dependencies.

A vertex is the start (``2 * op``) or end (``2 * op + 1``) of an operation, or the moment when the
straggler has entered a collective (numbered after those). An edge states that its destination
cannot occur sooner than its source plus a weight in ns. Time that no edge explains is kept as an
explicit delay of the vertex, so that replaying the unchanged graph reproduces every measured time
to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import NadiError
from nadi.graph.incoming_edge_kernels import count_incoming, place_incoming
from nadi.kernels.paths import refuse_too_large, topological_order, unexplained_times
from nadi.kernels.sequences import expand_ranges
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32, Numbers
from nadi.trace.rows import nearest
from nadi.trace.schema import DEP_KINDS, DEVICE_WORK, NODES
from nadi.trace.trace import Job, Trace

_Operations = tuple[Job, Ints, Ints]
_MAX_NAMES = 6
_BATCH = 1 << 18  # edges
_COMMUNICATES = (
    r"^c10d::|^_?c10d_functional(_autograd)?::wait_tensor$|^record_param_comms$|^gloo:|^nccl"
)
_OF_OPERATIONS = (  # what no change of edges changes
    "_all_names", "_columns", "_first_ops", "communicates", "inferred_pairs", "op_names",
    "recorded_launchers",
)  # fmt: skip
# numbers of vertices, edges and operations, which are most of a graph's memory
_NUMBERED = ("in_ptr", "in_src", "edge_op", "order")
_MAY_BE_INFERRED = ("launch", "event", "sync", "thread")  # kinds of dependencies


class EdgeKind(IntEnum):
    """The kind of time or dependency that an edge represents."""

    HOST_OP = 0  # self time of a host operation on its thread
    HOST_GAP = 1  # time of a thread without an operation
    LAUNCH = 2  # from a launch call to the device work that it launches
    STREAM = 3  # from one device operation to the next on its stream
    KERNEL = 4  # a kernel, copy or memory set runs
    COMMUNICATION = 5  # a collective or message transfers data
    ARRIVAL = 6  # a rank enters a collective
    SYNC = 7  # a call returns after the device work that it waits for
    THREAD = 8  # a thread continues after work of another thread
    ADDED = 9  # a dependency that the user added
    TENSOR = 10  # an operation needs the data or the memory of another one
    GIVEN = 11  # a dependency in the trace itself, such as a Chakra trace
    MEMORY = 12  # a memory tier, or remote memory, is read or written


class Edges(NamedTuple):
    """Edges between vertices; all fields are int64, shape (edges,).

    ``weight`` is in ns. ``kind`` is an EdgeKind. ``op`` is the operation that the time belongs to,
    or -1. A graph gives its own edges as it keeps them: ``src``, ``dst`` and ``op`` as int32, and
    ``kind`` as uint8.
    """

    src: Ints
    dst: Ints
    weight: Ints
    kind: Ints
    op: Ints


def make_edges(
    src: Ints, dst: Ints, weight: Ints | int, kind: EdgeKind | Ints, op: Ints | int
) -> Edges:
    """Make edges; a scalar weight, kind or operation applies to all of them."""
    src = np.asarray(src, dtype=np.int64)
    same = [
        np.broadcast_to(np.asarray(one, dtype=np.int64), src.shape) for one in (weight, kind, op)
    ]
    return Edges(src, np.asarray(dst, dtype=np.int64), *same)


NO_EDGES = make_edges(
    np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0, EdgeKind.ADDED, -1
)
"""No edge at all."""


def join_edges(parts: Sequence[Edges]) -> Edges:
    """Concatenate edges, in order."""
    return Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class CycleError(NadiError):
    """Dependencies form a cycle: operations would all wait for each other.

    Attributes
    ----------
    moments
        The moments on the cycle, each waiting for the one before it, such as ``start of aten::mm
        (rank 0, row 12)``.
    vertices
        The same as vertices.
    """

    def __init__(self, moments: list[str], vertices: list[int]) -> None:
        self.moments = moments
        self.vertices = vertices
        shown = " -> ".join(moments[:_MAX_NAMES]) + " -> ..." * (len(moments) > _MAX_NAMES)
        what = f"dependencies form a cycle: {shown}"
        super().__init__("", what, "remove one of these dependencies")

    def __reduce__(self) -> tuple[type[NadiError], tuple[object, ...]]:
        """Support pickling, so that the error passes between processes."""
        return type(self), (self.moments, self.vertices)


@dataclass(frozen=True, eq=False)
class EventGraph:
    """A job as a directed acyclic graph of moments.

    Attributes
    ----------
    job
        The traces that the graph is made of.
    op_trace, op_row
        int64, shape (ops,): position of the trace in ``job.traces``, and node row there.
    op_parent
        int64, shape (ops,): the operation that encloses it on its thread, or -1.
    op_stream
        int64, shape (ops,): the stream that it runs on, or -1. A what-if change may have moved it
        from the recorded stream.
    time
        int64 ns, shape (vertices,): the measured time since ``job.origin``.
    delay
        int64 ns, shape (vertices,), never negative: measured time that no edge explains; without
        an incoming edge, the measured time itself.
    in_ptr
        int32, shape (vertices + 1,): the edges ``in_ptr[v]:in_ptr[v + 1]`` enter v.
    in_src, edge_op
        int32, shape (edges,): source vertex; the operation that the time belongs to, or -1.
    weight
        int64 ns, shape (edges,).
    edge_kind
        uint8, shape (edges,): an :class:`EdgeKind`.
    order
        int32, shape (vertices,): a topological order.

    Raises
    ------
    NadiError
        If it has 2^31 vertices or edges, or more.
    """

    job: Job
    op_trace: Ints
    op_row: Ints
    op_parent: Ints
    op_stream: Ints
    time: Ints
    delay: Ints
    in_ptr: Ints32
    in_src: Ints32
    weight: Ints
    edge_op: Ints32
    edge_kind: Bytes
    order: Ints32

    def __post_init__(self) -> None:
        refuse_too_large(self.num_vertices, self.num_edges)
        for name in _NUMBERED:
            vars(self)[name] = np.asarray(getattr(self, name), dtype=np.int32)

    def __repr__(self) -> str:
        return f"<EventGraph vertices={self.num_vertices} edges={self.num_edges}>"

    @property
    def num_ops(self) -> int:
        """Number of operations."""
        return self.op_row.size

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.time.size

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.in_src.size

    @cached_property
    def op_names(self) -> pl.Series:
        """Name of each operation; text, shape (ops,)."""
        return self.names()

    def names(self, ops: Numbers | None = None, nameless: Bools | None = None) -> pl.Series:
        """Return the names of all operations, or of some; text.

        Parameters
        ----------
        ops
            Operations; all by default.
        nameless
            bool, of the shape of ``ops``: operations that get an empty name.
        """
        which, texts = self.name_codes(ops, nameless)
        return pl.Series("name", texts, dtype=pl.String).gather(which)

    def name_codes(
        self, ops: Numbers | None = None, nameless: Bools | None = None
    ) -> tuple[npt.NDArray[np.uint32], list[str]]:
        """Return names as positions in a list, uint32, and the list of different ones, "" first.

        Parameters
        ----------
        ops, nameless
            As for :meth:`names`.
        """
        if ops is None and nameless is None:
            return self._all_names
        if "_all_names" in vars(self):
            which, known = self._all_names
            which = which.copy() if ops is None else which[ops]
        else:
            which, known = self._name_codes(ops)
        if nameless is not None:
            which[nameless] = 0
        return which, known

    def _name_codes(self, ops: Numbers | None) -> tuple[npt.NDArray[np.uint32], list[str]]:
        which = np.empty(self.num_ops if ops is None else ops.size, dtype=np.uint32)
        number = {"": 0}
        numbers: dict[int, Ints] = {}  # ranks share their names
        for trace, mine, rows in self._by_trace(ops):
            codes, texts = trace.name_codes
            codes = codes[rows]
            number_of = numbers.setdefault(id(texts), np.full(len(texts), -1, dtype=np.int64))
            new = (np.bincount(codes, minlength=number_of.size) > 0) & (number_of < 0)
            for code in np.flatnonzero(new).tolist():
                number_of[code] = number.setdefault(texts[code], len(number))
            which[mine] = number_of[codes]
        return which, list(number)

    @cached_property
    def _all_names(self) -> tuple[npt.NDArray[np.uint32], list[str]]:
        return self._name_codes(None)

    def named(self, pattern: str) -> Bools:
        """Return which operations have a name that contains a regular expression (Rust's syntax).

        bool, shape (ops,). Each distinct name is searched once.
        """
        which, texts = self._all_names
        found: Bools = pl.Series(texts, dtype=pl.String).str.contains(pattern).to_numpy()[which]
        return found

    @cached_property
    def communicates(self) -> Bools:
        """Which operations communicate, ask for it or wait for it, or run within one that does.

        Ranges that begin within one and outlast it, as those of asynchronous work, are not within
        it. On ranks with a device ATen's operators in it are not either: they launch copies.

        bool, shape (ops,). O(ops * depth).
        """
        found = (self.gather("comm_type") != "none").to_numpy() | self.named(_COMMUNICATES)
        if not found.any():
            return found
        on_device = self.gather("category").is_in(DEVICE_WORK).to_numpy()
        has_device = np.bincount(self.op_trace[on_device], minlength=len(self.job.traces)) > 0
        launches = self.named("^aten::") & has_device[self.op_trace]
        end = self.time[1 : 2 * self.num_ops : 2]
        around = np.where(end > end[self.op_parent], -1, self.op_parent)
        nearest_of = nearest(np.arange(self.num_ops), around, found | launches)
        within: Bools = (nearest_of >= 0) & found[nearest_of]
        return within

    @cached_property
    def recorded_launchers(self) -> Ints:
        """The call that launched each operation in the recording, whatever changes moved since.

        int64, shape (ops,), -1 where none is known.
        """
        found = np.full(self.num_ops, -1, dtype=np.int64)
        for call, work in self._pairs_of("launch"):
            found[work[work >= 0]] = call[work >= 0]
        return found

    @cached_property
    def inferred_pairs(self) -> tuple[Ints, Ints]:
        """The operations of dependencies that the recording does not state: two of int64."""
        pairs = [(np.empty(0, dtype=np.int64),) * 2]
        for src, dst in self._pairs_of(*_MAY_BE_INFERRED, inferred=True):
            here = (src >= 0) & (dst >= 0)
            pairs.append((src[here], dst[here]))
        src, dst = map(np.concatenate, zip(*pairs, strict=True))
        return src, dst

    def _pairs_of(self, *kinds: str, inferred: bool = False) -> Iterator[tuple[Ints, Ints]]:
        """Yield the operations of some dependencies of each trace, -1 without one."""
        wanted = np.isin(np.arange(len(DEP_KINDS)), [DEP_KINDS.index(kind) for kind in kinds])
        for number, trace in enumerate(self.job.traces):
            deps, op_of_row = trace.deps, self.ops_of_rows(number)
            chosen = wanted[deps["kind"].to_physical().to_numpy()]
            if inferred:
                chosen &= deps["inferred"].to_numpy()
            src, dst = (deps[end].to_numpy()[chosen] for end in ("src", "dst"))
            yield op_of_row[src], op_of_row[dst]

    def numbers(self, column: str, ops: Numbers | None = None) -> Ints:
        """Return an integer column of the nodes for all operations, or for some; int64."""
        found = np.empty(self.num_ops if ops is None else ops.size, dtype=np.int64)
        for trace, mine, rows in self._by_trace(ops):
            found[mine] = trace.column(column)[rows]
        return found

    def ops_of_rows(self, number: int) -> Ints:
        """Return the operation of each node of a trace; int64, shape (nodes,), -1 without one.

        Parameters
        ----------
        number
            Position of the trace in ``job.traces``.
        """
        mine = self.ops_of_trace(number)
        found = np.full(self.job.traces[number].nodes.height, -1, dtype=np.int64)
        found[self.op_row[mine]] = np.arange(mine.start, mine.stop)
        return found

    def ops_of_trace(self, number: int) -> slice:
        """Return which operations are of a trace, by its position in ``job.traces``."""
        return slice(self._first_ops[number], self._first_ops[number + 1])

    @cached_property
    def _first_ops(self) -> list[int]:
        """The first operation of each trace, and their number."""
        traces = np.arange(len(self.job.traces) + 1)
        return np.searchsorted(self.op_trace, traces).tolist()  # type: ignore[no-any-return]

    def _by_trace(self, ops: Numbers | None) -> Iterator[tuple[Trace, Any, Ints]]:
        """Yield each trace with the positions of its operations in ``ops``, and their node rows."""
        traces = self.job.traces
        if ops is None or len(traces) == 1:
            row = self.op_row if ops is None else self.op_row[ops]
            for number, trace in enumerate(traces):
                here = self.ops_of_trace(number) if ops is None else slice(0, row.size)
                if here.start < here.stop:
                    yield trace, here, row[here]
            return
        trace_of = self.op_trace[ops]
        order = np.argsort(trace_of, kind="stable")
        present, first = np.unique(trace_of[order], return_index=True)
        parts = np.split(order, first)[1:]
        for number, mine in zip(present.tolist(), parts, strict=True):
            yield traces[number], mine, self.op_row[ops[mine]]

    def gather(self, column: str, ops: Numbers | None = None) -> pl.Series:
        """Return a column of the nodes for all operations, shape (ops,), or for some.

        Names are what :meth:`names` returns.
        """
        if column in self._columns:
            known = self._columns[column]
            return known if ops is None else known[ops]
        none = NODES.empty()[column]
        is_word = isinstance(none.dtype, pl.Enum)
        # numpy takes rows of a small trace in a tenth of the time
        found = np.empty(
            self.num_ops if ops is None else ops.size,
            dtype=np.uint8 if is_word else none.to_numpy().dtype,
        )
        for trace, mine, rows in self._by_trace(ops):
            found[mine] = (trace.codes if is_word else trace.column)(column)[rows]
        values = NODES.coded(column, found) if is_word else pl.Series(column, found)
        if ops is None and found.itemsize == 1:  # which nearly every analysis asks for
            self._columns[column] = values
        return values

    @cached_property
    def _columns(self) -> dict[str, pl.Series]:
        return {}

    def with_weights(self, weight: Ints) -> EventGraph:
        """Return the same graph with other weights; the measured times stay."""
        return self._with(weight=weight)

    def _with(self, **changes: Any) -> EventGraph:
        """Return a graph of the same operations, which keeps what is known of them."""
        made = replace(self, **changes)
        known = vars(self)
        kept = _OF_OPERATIONS if "in_ptr" in changes else (*_OF_OPERATIONS, "destinations")
        vars(made).update((name, known[name]) for name in kept if name in known)
        return made

    @cached_property
    def destinations(self) -> Ints32:
        """The vertex that each edge enters; int32, shape (edges,)."""
        return np.repeat(np.arange(self.num_vertices, dtype=np.int32), np.diff(self.in_ptr))

    def incoming(self, vertices: Numbers) -> tuple[Ints, Ints]:
        """Return the edges into vertices: the position of the vertex of each, and the edge."""
        first = self.in_ptr[vertices]
        return expand_ranges(first, self.in_ptr[vertices + 1] - first)

    @property
    def edges(self) -> Edges:
        """All edges, in the order in which they are kept."""
        narrow: Any = self.in_src, self.destinations, self.edge_kind, self.edge_op
        src, dst, kind, op = narrow
        return Edges(src, dst, self.weight, kind, op)

    def without_edges(self, edges: Ints) -> EventGraph:
        """Return the graph as measured without some edges: what they explained becomes delay.

        Parameters
        ----------
        edges
            int64: positions of edges.
        """
        kept = np.ones(self.num_edges, dtype=np.bool_)
        kept[edges] = False
        # those that are left are in the same order, and so are vertices
        made = self._with(
            in_ptr=_counted(kept)[self.in_ptr], in_src=self.in_src[kept],
            weight=self.weight[kept], edge_op=self.edge_op[kept], edge_kind=self.edge_kind[kept],
        )  # fmt: skip
        delay = np.empty(made.num_vertices, dtype=np.int64)
        unexplained_times(made.in_ptr, made.in_src, made.weight, made.time, delay)
        return made._with(delay=delay)

    def with_edges(self, edges: Edges | Sequence[Edges], num_new_vertices: int = 0) -> EventGraph:
        """Return a graph of the same operations with other edges. O(vertices + edges).

        Measured times and delays stay. New vertices are numbered after all others and have no
        delay.

        Parameters
        ----------
        edges
            In any order, in one or more parts; no part is copied.
        num_new_vertices
            How many vertices are new.

        Raises
        ------
        CycleError
            If operations would wait for each other.
        """
        operations = (self.job, self.op_trace, self.op_row)
        parts = [edges] if isinstance(edges, Edges) else edges
        found = _sorted(parts, self.num_vertices + num_new_vertices, operations)
        made = self._with(**found._asdict())
        return made._with_vertices(num_new_vertices) if num_new_vertices else made

    def _with_vertices(self, number: int) -> EventGraph:
        """Return the graph with times and delays of 0 for so many more vertices."""
        none = np.zeros(number, dtype=np.int64)
        return self._with(time=np.append(self.time, none), delay=np.append(self.delay, none))

    def edited(
        self, kept: Bools, more: Edges, weight: Ints | None = None, num_new_vertices: int = 0
    ) -> EventGraph:
        """Return a graph of the same operations without some edges, and with others after these.

        As :meth:`with_edges` of both, but nothing is sorted again, and no edge is copied twice. So
        it takes a third of the time and of the memory where most edges stay.

        Parameters
        ----------
        kept
            bool, shape (edges,): which edges stay.
        more
            Other edges: each is the last into its vertex.
        weight
            int64 ns, shape (edges,): those of the graph's own edges; by default they stay.
        num_new_vertices
            As of :meth:`with_edges`.

        Raises
        ------
        CycleError
            If operations would wait for each other.
        """
        own = self.weight if weight is None else weight
        is_whole = bool(kept.all())
        if is_whole and not more.dst.size and not num_new_vertices:
            return self.with_weights(own)
        num_vertices = self.num_vertices + num_new_vertices
        refuse_too_large(num_vertices, self.num_edges + more.dst.size)
        by_vertex = np.argsort(more.dst, kind="stable")
        entering = np.bincount(more.dst, minlength=num_vertices)
        in_ptr = self.in_ptr if is_whole else _counted(kept)[self.in_ptr]
        in_ptr = np.append(in_ptr, np.repeat(in_ptr[-1:], num_new_vertices))
        at = in_ptr[more.dst[by_vertex] + 1]
        in_ptr[1:] += np.cumsum(entering)
        in_src, weights, op, kind = (
            _edited(old, None if is_whole else kept, at, new[by_vertex])
            for old, new in zip(
                (self.in_src, own, self.edge_op, self.edge_kind),
                (more.src, more.weight, more.op, more.kind), strict=True,
            )
        )  # fmt: skip
        order = self.order
        if num_new_vertices:
            order = np.append(np.arange(self.num_vertices, num_vertices, dtype=np.int32), order)
        if more.dst.size:
            place = np.empty(num_vertices, dtype=np.int32)
            place[order] = np.arange(num_vertices, dtype=np.int32)
            if (place[more.src] >= place[more.dst]).any():
                order = _topological(in_ptr, in_src, (self.job, self.op_trace, self.op_row))
        made = self._with(
            in_ptr=in_ptr, in_src=in_src, weight=weights, edge_op=op, edge_kind=kind, order=order
        )
        return made._with_vertices(num_new_vertices) if num_new_vertices else made

    def rewired(
        self,
        kept: Bools,
        more: Edges,
        since: int = 0,
        *,
        weight: Ints | None = None,
        delay: Ints | None = None,
    ) -> EventGraph:
        """Return a graph of the same operations with the edges of a what-if change.

        A delay counts from the latest incoming edge, or from the job's origin if there is none. A
        vertex that loses all its edges therefore occurs its delay after ``since``, or after what
        it waited for if that was sooner. A vertex that gains its first edge occurs no sooner than
        before: a new vertex represents its former time. O(vertices + edges).

        Parameters
        ----------
        kept, more, weight
            As of :meth:`edited`.
        since
            ns since the job's origin: when work without dependencies may start.
        delay
            int64 ns, shape (vertices,): other delays; by default they stay.

        Raises
        ------
        CycleError
            If operations would wait for each other.
        """
        own = self.delay if delay is None else delay
        had = np.diff(self.in_ptr) > 0
        gains = np.zeros(self.num_vertices, dtype=np.bool_)
        gains[more.dst] = True
        held = np.flatnonzero(gains & ~had)
        moments = self.num_vertices + np.arange(held.size)
        first = make_edges(moments, held, 0, EdgeKind.ADDED, -1)
        made = self.edited(kept, join_edges([more, first]), weight, held.size)
        free = np.flatnonzero(had & (np.diff(made.in_ptr)[: self.num_vertices] == 0))
        delay = np.append(own, own[held])
        delay[free] += np.minimum(self.time[free] - own[free], since)
        delay[held] = 0
        if held.size:
            made.time[moments] = self.time[held]  # its own, as it has more of them
        return made._with(delay=delay)

    def of_operations(self, kept: Bools, vertices: Ints) -> EventGraph:
        """Return the graph of some of the operations, without edges.

        Parameters
        ----------
        kept
            bool, shape (ops,).
        vertices
            int64, ascending: their vertices, and the other vertices to keep.
        """
        new = np.cumsum(kept) - 1
        parent = nearest(self.op_parent, self.op_parent, kept)
        none = np.empty(0, dtype=np.int32)
        return replace(
            self,
            op_trace=self.op_trace[kept],
            op_row=self.op_row[kept],
            op_parent=np.where(parent >= 0, new[parent], -1)[kept],
            op_stream=self.op_stream[kept],
            time=self.time[vertices],
            delay=self.delay[vertices],
            in_ptr=np.zeros(vertices.size + 1, dtype=np.int32),
            in_src=none,
            weight=none.astype(np.int64),
            edge_op=none,
            edge_kind=none.astype(np.uint8),
            order=np.arange(vertices.size, dtype=np.int32),
        )

    @classmethod
    def build(
        cls,
        job: Job,
        op_trace: Ints,
        op_row: Ints,
        op_parent: Ints,
        time: Ints,
        edges: Edges | Sequence[Edges],
    ) -> EventGraph:
        """Build the graph of a job as measured: time that edges do not explain becomes delay.

        Parameters
        ----------
        op_trace, op_row, op_parent, time
            As the attributes of the graph. Streams are the recorded ones.
        edges
            In any order, in one or more parts; no part is copied.

        Raises
        ------
        CycleError
            If operations would wait for each other.
        """
        parts = [edges] if isinstance(edges, Edges) else edges
        found = _sorted(parts, time.size, (job, op_trace, op_row))
        delay = np.empty(time.size, dtype=np.int64)
        unexplained_times(found.in_ptr, found.in_src, found.weight, time, delay)
        stream = np.empty(op_row.size, dtype=np.int64)
        first = np.searchsorted(op_trace, np.arange(len(job.traces) + 1))
        for trace, low, high in zip(job.traces, first[:-1], first[1:], strict=True):
            stream[low:high] = trace.column("stream")[op_row[low:high]]
        return cls(
            job, op_trace, op_row, op_parent, stream, time=time, delay=delay, **found._asdict()
        )


class _Sorted(NamedTuple):
    """Edges sorted by destination, and vertices in topological order, as the graph's attributes."""

    in_ptr: Ints32
    in_src: Ints32
    weight: Ints
    edge_op: Ints32
    edge_kind: Bytes
    order: Ints32


def _sorted(parts: Sequence[Edges], num_vertices: int, operations: _Operations) -> _Sorted:
    """Sort edges stably by destination, and vertices topologically."""
    num_edges = sum(part.src.size for part in parts)
    refuse_too_large(num_vertices, num_edges)
    first = np.zeros(num_vertices + 2, dtype=np.int32)
    for part in _batches(parts):
        count_incoming(part.dst, first)
    np.cumsum(first, dtype=np.int32, out=first)
    in_src, op = (np.empty(num_edges, dtype=np.int32) for _ in range(2))
    weight, kind = np.empty(num_edges, dtype=np.int64), np.empty(num_edges, dtype=np.uint8)
    for part in _batches(parts):
        place_incoming(
            part.dst, part.src, part.weight, part.kind, part.op, first, (in_src, weight, kind, op)
        )
    in_ptr = first[:-1]
    return _Sorted(in_ptr, in_src, weight, op, kind, _topological(in_ptr, in_src, operations))


def _topological(in_ptr: Ints32, in_src: Ints32, operations: _Operations) -> Ints32:
    """Sort vertices topologically."""
    order = np.empty(in_ptr.size - 1, dtype=np.int32)
    on_cycle = topological_order(in_ptr, in_src, order)
    if on_cycle >= 0:
        cycle = _cycle(in_ptr, in_src, on_cycle)
        raise CycleError([_moment(*operations, vertex) for vertex in cycle], cycle)
    return order


def _counted(kept: Bools) -> Ints32:
    """Return how many of a graph's edges before each, and of all, are kept; int32."""
    counts = np.zeros(kept.size + 1, dtype=np.int32)
    np.cumsum(kept, dtype=np.int32, out=counts[1:])
    return counts


def _edited(old: Any, kept: Bools | None, at: Numbers, new: Any) -> Any:
    """Return the kept values of a column, all if None, with others put before some of them."""
    left = old if kept is None else old[kept]
    return np.insert(left, at, new) if at.size else left


def _batches(parts: Sequence[Edges]) -> Iterator[Edges]:
    """Yield edges in order, small parts joined: to call a kernel takes as long as 10,000 edges."""
    batch: list[Edges] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += part.src.size
        if size >= _BATCH:
            yield _plain(*batch)
            batch, size = [], 0
    if batch:
        yield _plain(*batch)


def _plain(*parts: Edges) -> Edges:
    """Return edges as kernels need them, contiguous and of fixed types; copied if necessary."""
    edges = parts[0] if len(parts) == 1 else Edges(*map(np.concatenate, zip(*parts, strict=True)))
    src, dst, weight, op = (
        np.require(column, np.int64, ["C", "W"])
        for column in (edges.src, edges.dst, edges.weight, edges.op)
    )
    return Edges(src, dst, weight, np.require(edges.kind, np.uint8, ["C", "W"]), op)


def _moment(job: Job, op_trace: Ints, op_row: Ints, vertex: int) -> str:
    op = vertex // 2
    if op >= op_row.size:
        return "all ranks have entered a collective"
    trace, row = job.traces[int(op_trace[op])], int(op_row[op])
    side = "end" if vertex % 2 else "start"
    return f"{side} of {trace.nodes['name'][row]} (rank {trace.rank}, row {row})"


def _cycle(in_ptr: Ints32, in_src: Ints32, vertex: int) -> list[int]:
    """Find a shortest cycle through a vertex, against the direction of its edges."""
    came_from = {vertex: -1}
    ahead = [vertex]
    for v in ahead:
        for u in in_src[in_ptr[v] : in_ptr[v + 1]].tolist():
            if u == vertex:
                cycle = [v]
                while came_from[cycle[-1]] >= 0:
                    cycle.append(came_from[cycle[-1]])
                return cycle
            if u not in came_from:
                came_from[u] = v
                ahead.append(u)
    raise AssertionError(f"vertex {vertex} lies on no cycle")
