"""The protocol of changes: a change returns a modified copy of an event graph.

Changes that add or cut dependencies.

Edge operations that several changes share.

Communication on another network.

Changes that remove operations.

Changes of durations and overheads; dependencies stay the same.

Changes of waits in which a thread runs no operation.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl

from nadi.errors import UsageError, checked
from nadi.forks import refuse_in_fork
from nadi.graph.edges.collective_edges import returns_early
from nadi.graph.edges.job_graph import ends_after, launches_in_call, starts_in_call
from nadi.graph.event_graph import (
    NO_EDGES,
    CycleError,
    EdgeKind,
    Edges,
    EventGraph,
    make_edges,
)
from nadi.graph.replay import replay_graph
from nadi.graph.unexplained import ThreadWaits, thread_waits
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.schema import DEVICE_WORK
from nadi.units import exact_ns, exact_rate, format_count, plain_number
from nadi.whatif.selection import (
    Selection,
    covered,
    launchers,
    outermost,
    select,
    select_with_calls,
    selected_modules,
    within,
)


@dataclass(frozen=True)
class ScaleWait:
    """Multiply the time by a factor in which threads sleep, or wait for what is not recorded.

    Such waits are found by :func:`nadi.graph.thread_waits`. The selection's name and conditions
    are those of the operation that the thread begins next; the condition ``in=`` is what the
    thread waits in.
    """

    selection: Selection
    factor: float

    def __str__(self) -> str:
        chosen = "" if self.selection == Selection() else f" {self.selection}"
        if self.factor == 0:
            return f"remove wait{chosen}"
        return f"scale wait{chosen} {plain_number(self.factor)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no wait is selected, and none was removed before.
        """
        waits = selected_waits(graph, self.selection)
        if not waits.edge.size and _is_as_measured(graph):
            count = format_count(thread_waits(graph).edge.size)
            raise UsageError(
                str(self), f"selects none of the {count} waits",
                "in= names what a thread waits in, all else the operation that follows",
            )  # fmt: skip
        waits = waits.chosen(graph.time[waits.vertex] - waits.time_ns >= since)
        if float(waits.time_ns.sum()) * self.factor >= _LONGEST_NS:
            raise UsageError(str(self), "the step would exceed a century", "give a smaller factor")
        weight, delay = graph.weight.copy(), graph.delay.copy()
        is_edge = waits.edge >= 0
        for times, at in ((weight, waits.edge[is_edge]), (delay, waits.vertex[~is_edge])):
            times[at] = np.rint(times[at] * self.factor)
        return replace(graph, weight=weight, delay=delay)


_OVERHEADS = (EdgeKind.LAUNCH, EdgeKind.STREAM)


@dataclass(frozen=True)
class Scale:
    """Multiply the time of operations by a factor.

    A host operation includes everything that its thread does from its start to its end, a module
    what its thread does in its calls, and a call the time until work starts that it launches before
    it ends; a collective means its transfer. Overheads and delays stay.
    """

    selection: Selection
    factor: float

    def __str__(self) -> str:
        return f"scale {self.selection} {plain_number(self.factor)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        edges = _later(
            graph, _time_of(graph, covered(graph, select_with_calls(graph, self.selection))), since
        )
        weight = graph.weight.copy()
        if float(weight[edges].sum()) * self.factor >= _LONGEST_NS:
            raise UsageError(str(self), "the step would exceed a century", "give a smaller factor")
        weight[edges] = np.rint(weight[edges] * self.factor).astype(np.int64)
        return graph.with_weights(weight)


@dataclass(frozen=True)
class SetTime:
    """Set the time of each operation; a host operation includes its nested operations.

    An operation nested in another selected one takes its share of that one's time.
    """

    selection: Selection
    time_ns: int

    def __str__(self) -> str:
        return f"set {self.selection} {exact_ns(self.time_ns)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        chosen = select(graph, self.selection)
        if not 0 <= self.time_ns * int(chosen.sum()) < _LONGEST_NS:
            raise UsageError(
                str(self), "is negative, or the total exceeds a century", "give a shorter time"
            )
        top = outermost(graph, chosen)
        owner = _owners(graph)
        edges = np.flatnonzero((owner >= 0) & (top[owner] >= 0))
        # another thread, which continues before the end, does so as much sooner or later, and so
        # does work that starts within its call; a kernel has its time both from its start and from
        # the end that it waits for
        early = (returns_early(graph) | ends_after(graph) | starts_in_call(graph))[edges]
        earlier, edges = edges[early], edges[~early]
        of = top[owner[edges]]
        shares = _shares(graph.weight[edges], of, self.time_ns, graph.num_ops)
        # an operation of length 0 has one edge that can take the time: the one into its end
        own = np.bincount(of, weights=graph.weight[edges], minlength=graph.num_ops)
        before = np.maximum(own[top[owner[earlier]]], 1)
        # of a call that waits for the work, less may be its own than the time until the work starts
        share = np.minimum(graph.weight[earlier] / before, 1)
        sooner = np.rint(share * self.time_ns).astype(np.int64)
        edges, shares = np.append(edges, earlier), np.append(shares, sooner)
        of = top[owner[edges]]
        instant = (own[of] == 0) & (graph.destinations[edges] == 2 * of + 1)
        shares[instant] = self.time_ns
        later = later_edges(graph, since)[edges]
        weight = graph.weight.copy()
        weight[edges[later]] = shares[later]
        return graph.with_weights(weight)


@dataclass(frozen=True)
class NoOverhead:
    """Remove launch overhead: latency, gaps between kernels, and the time of the launching call."""

    selection: Selection

    def __str__(self) -> str:
        return f"no-overhead {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        chosen = select(graph, self.selection)
        calls = np.zeros(graph.num_ops, dtype=np.bool_)
        call = launchers(graph)[chosen]
        if not (call >= 0).any():
            raise UsageError(
                str(self),
                "none of these operations was launched by a runtime call",
                "choose device work",
            )
        calls[call[call >= 0]] = True
        calling = np.flatnonzero(of_ops(graph.edges, calls))
        calling = calling[graph.edge_kind[calling] == EdgeKind.HOST_OP]
        overhead = np.flatnonzero(np.isin(graph.edge_kind, _OVERHEADS))
        into = graph.destinations[overhead] // 2
        overhead = overhead[np.append(chosen, False)[np.minimum(into, graph.num_ops)]]
        return _without_time(graph, np.append(overhead, calling), since)


@dataclass(frozen=True)
class NoGaps:
    """Remove the time between operations of a thread: Python and unrecorded work."""

    def __str__(self) -> str:
        return "no-gaps"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        return _without_time(graph, np.flatnonzero(graph.edge_kind == EdgeKind.HOST_GAP), since)


_WORK = (
    EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.COMMUNICATION, EdgeKind.MEMORY
)  # fmt: skip


def is_work(graph: EventGraph) -> Bools:
    """Return which edges are time of an operation, not overhead between two."""
    return np.isin(graph.edge_kind, _WORK)


def _owners(graph: EventGraph) -> Ints:
    """Return the operation whose time each edge is, -1 for overhead; int64, shape (edges,)."""
    of_call = starts_in_call(graph)
    return np.where(of_call, graph.in_src // 2, np.where(is_work(graph), graph.edge_op, -1))


def _time_of(graph: EventGraph, chosen: Bools) -> Ints:
    """Return the positions of the edges that are time of chosen operations; int64.

    Those that :func:`_owners` gives to them, of all edges found in one pass.
    """
    work = np.flatnonzero(of_ops(graph.edges, chosen))
    work = work[np.isin(graph.edge_kind[work], _WORK)]
    of_call = launches_in_call(graph)
    return np.append(work, of_call[chosen[graph.in_src[of_call] // 2]])


def _later(graph: EventGraph, edges: Ints, since: int) -> Ints:
    """Return those of some edges that begin at or after a moment."""
    return edges[graph.time[graph.in_src[edges]] >= since]


def _without_time(graph: EventGraph, edges: Ints, since: int) -> EventGraph:
    """Return the graph in which some edges take no time, as far as they begin after a moment."""
    weight = graph.weight.copy()
    weight[_later(graph, edges, since)] = 0
    return graph.with_weights(weight)


def later_edges(graph: EventGraph, since: int) -> Bools:
    """Return which edges begin at or after a moment; bool, shape (edges,)."""
    return graph.time[graph.in_src] >= since


def _shares(weight: Ints, of: Ints, total: int, num_ops: int) -> Ints:
    """Divide ``total`` ns among the edges of each operation in proportion to their weights."""
    order = np.argsort(of, kind="stable")
    of_sorted = of[order]
    reached = np.cumsum(weight[order])
    before = np.zeros(num_ops, dtype=np.int64)
    first = np.flatnonzero(np.append(True, np.diff(of_sorted) != 0)[: of_sorted.size])
    before[of_sorted[first]] = reached[first] - weight[order][first]
    whole = np.zeros(num_ops, dtype=np.int64)
    np.maximum.at(whole, of_sorted, reached - before[of_sorted])
    part = (reached - before[of_sorted]) / np.maximum(whole[of_sorted], 1)
    due = np.rint(part * total).astype(np.int64)
    due[1:] -= np.where(np.diff(of_sorted) == 0, due[:-1], 0)
    shares = np.empty_like(due)
    shares[order] = due
    return shares


def is_on_device(graph: EventGraph) -> Bools:
    """Return which operations run on a device; bool, shape (ops,)."""
    return graph.gather("category").is_in(DEVICE_WORK).to_numpy()


def of_ops(edges: Edges, chosen: Bools) -> Bools:
    """Return which edges are time of chosen operations; bool, shape (edges,)."""
    return np.append(chosen, False)[edges.op]


def into_ops(edges: Edges, chosen: Bools) -> Bools:
    """Return which edges enter a start or end of chosen operations; bool, shape (edges,)."""
    into = np.minimum(edges.dst // 2, chosen.size)  # meetings of ranks come after all operations
    return np.append(chosen, False)[into]


def calls_without_work(graph: EventGraph, gone: Bools, since: int) -> Bools:
    """Return which calls from ``since`` on launch nothing once operations are removed.

    bool, shape (ops,).
    """
    call = launchers(graph)
    launched, left = np.zeros((2, graph.num_ops), dtype=np.bool_)
    launched[call[call >= 0]] = True
    left[call[(call >= 0) & ~gone]] = True
    found: Bools = launched & ~left & (graph.time[0 : 2 * graph.num_ops : 2] >= since)
    return found


def waits_of_calls(edges: Edges, calls: Bools) -> Bools:
    """Return which edges are waits of calls for work; bool, shape (edges,)."""
    found: Bools = (edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1) & into_ops(edges, calls)
    return found


_BREAK_CYCLE = "select other operations, reverse the arrow, or cut a dependency first"


class Change(Protocol):
    """Any object with an ``apply`` method; its text names it in results."""

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        ...


@checked
def apply_change(graph: EventGraph, change: Change, since: int = 0) -> EventGraph:
    """Return the graph with a change applied; the given graph is not modified.

    Parameters
    ----------
    since
        Measured time in ns since the job's origin before which nothing changes. With the
        start of a window, the change applies to that window alone: its start stays
        fixed, so less work never makes it longer.

    Raises
    ------
    UsageError
        If no operation matches (the message names similar ones), or if the change creates a
        dependency cycle (the message names its operations).
    """
    refuse_in_fork()
    try:
        return change.apply(graph, since)
    except CycleError as error:
        raise UsageError(f"change '{change}'", error.what, _BREAK_CYCLE) from None
    except UsageError as error:
        what = error.what if error.where == str(change) else f"{error.where} {error.what}"
        raise UsageError(f"change '{change}'", what, error.remedy) from None


CUTTABLE = (EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.SYNC, EdgeKind.THREAD, EdgeKind.ARRIVAL)


@dataclass(frozen=True)
class AddDependency:
    """Make operations wait for the end of others.

    If both sides have equally many operations, they are paired in order of time; a single
    operation on the left is waited for by all on the right.
    """

    source: Selection
    target: Selection

    def __str__(self) -> str:
        return f"add {self.source} -> {self.target}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; operations that start before ``since`` get no dependencies.

        Raises
        ------
        UsageError
            If both numbers differ.
        CycleError
            If operations would wait for each other.
        """
        sources, targets = (
            np.flatnonzero(select(graph, selection)) for selection in (self.source, self.target)
        )
        start = graph.time[0 : 2 * graph.num_ops : 2]
        sources = sources[np.argsort(start[sources], kind="stable")]
        targets = targets[np.argsort(start[targets], kind="stable")]
        if sources.size not in (1, targets.size):
            raise UsageError(
                str(self),
                f"{format_count(sources.size)} operations on the left and "
                f"{format_count(targets.size)} on the right do not pair up",
                "select equally many on both sides, or a single one on the left",
            )
        sources = np.broadcast_to(sources, targets.shape)
        later = start[targets] >= since
        new = make_edges(
            2 * sources[later] + 1, 2 * targets[later], 0, EdgeKind.ADDED, targets[later]
        )
        return graph.rewired(np.ones(graph.num_edges, dtype=np.bool_), new, since)


@dataclass(frozen=True)
class CutDependencies:
    """Remove the dependencies of a kind that delay the selected operations.

    Operations without any remaining dependency start with the window, after their delay if
    they have one. Without arrival edges, a rank does not wait for others in a collective: its
    transfer takes as long as before, from its own start.
    """

    kind: EdgeKind
    selection: Selection

    def __str__(self) -> str:
        return f"cut {self.kind.name.lower()} {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no operation chosen has such a dependency.
        """
        chosen = select(graph, self.selection)
        edges = graph.edges
        entering = into_ops(edges, chosen)
        from_meeting = of_ops(edges, chosen) & (edges.src >= 2 * graph.num_ops)
        arrivals = self.kind == EdgeKind.ARRIVAL
        held = from_meeting if arrivals else entering & (edges.kind == self.kind)
        if not held.any():
            kinds = [kind for kind in CUTTABLE if kind in edges.kind[entering]]
            kinds += [EdgeKind.ARRIVAL] * bool(from_meeting.any())
            there = ", ".join(kind.name.lower() for kind in kinds)
            raise UsageError(
                str(self), f"no {self.kind.name.lower()} dependency delays these operations",
                f"theirs are: {there}" if there else "choose others",
            )  # fmt: skip
        held &= graph.time[edges.dst] >= since
        if arrivals:
            return graph.with_edges(edges._replace(src=np.where(held, 2 * edges.op, edges.src)))
        return graph.rewired(~held, NO_EDGES, since)


_LONGEST_NS = 2**62


@dataclass(frozen=True)
class OnNetwork:
    """Recompute communication times: latency plus the bytes that a rank sends over a bandwidth.

    Bytes that a rank sends in a ring of n ranks: all_reduce 2 (n - 1) / n of its data,
    reduce_scatter, all_to_all, gather and scatter (n - 1) / n, all_gather n - 1 times its
    shard, all others once.

    Attributes
    ----------
    bandwidth
        Bytes per second that a rank can send, at least 1.
    latency_ns
        Of every operation.
    """

    bandwidth: float
    latency_ns: int = 0

    def __str__(self) -> str:
        latency = f" {exact_ns(self.latency_ns)}" if self.latency_ns else ""
        return f"network {exact_rate(self.bandwidth)}{latency}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no communication has a known size.
        """
        if not self.bandwidth >= 1:
            raise UsageError(str(self), "is below 1 B/s", "give a higher bandwidth")
        sent = _bytes_to_send(graph)
        transfers = _transfers(graph)
        transfers = transfers[sent[graph.edge_op[transfers]] >= 0]
        if not transfers.size:
            raise UsageError(
                str(self), "no communication in the trace has a known size",
                "record with record_shapes=True, or use scale with a factor",
            )  # fmt: skip
        transfers = transfers[later_edges(graph, since)[transfers]]
        time = self.latency_ns + np.rint(sent[graph.edge_op[transfers]] / self.bandwidth * 1e9)
        if not time.sum() < _LONGEST_NS:
            raise UsageError(str(self), "would exceed a century", "give a higher bandwidth")
        weight = graph.weight.copy()
        weight[transfers] = time.astype(np.int64)
        return graph.with_weights(weight)


def _transfers(graph: EventGraph) -> Ints:
    """Find the edges that are the transfer of each communication.

    That is the way from the meeting of the ranks. Where a rank does not wait for others, or
    they are not here, it is the longest stretch of its own time; of equal ones the first.

    - Returns int64, ascending: One edge of each operation, and one to each thread that continues
      before its end.
    """
    early = returns_early(graph)
    edges = np.flatnonzero((graph.edge_kind == EdgeKind.COMMUNICATION) & ~early)
    op = graph.edge_op[edges]
    met = graph.in_src[edges] >= 2 * graph.num_ops
    order = np.lexsort((edges, -graph.weight[edges], ~met, op))
    first = np.append(True, np.diff(op[order]) != 0)[: order.size]
    return np.sort(np.append(edges[order[first]], np.flatnonzero(early)))


def _bytes_to_send(graph: EventGraph) -> Ints:
    """Return the bytes that pass the busiest rank of a communication; -1 where unknown."""
    sizes = [
        pl.Series([len(ranks) for ranks in trace.groups["ranks"].to_list()], dtype=pl.Int64)
        for trace in graph.job.traces
    ]
    group = graph.gather("group").to_numpy()
    members = np.full(graph.num_ops, graph.job.world_size, dtype=np.int64)
    for t, size in enumerate(sizes):
        mine = graph.ops_of_trace(t)
        members[mine] = np.append(size.to_numpy(), graph.job.world_size)[group[mine]]
    members = np.maximum(members, 1)
    comm_type = graph.gather("comm_type").cast(pl.String)
    given = graph.gather("comm_bytes").to_numpy().astype(np.float64)
    factor = np.select(
        [(comm_type == name).to_numpy() for name in COLLECTIVES],
        [one.moved(members) for one in COLLECTIVES.values()],
        1.0,
    )
    # a single known rank that communicates has partners that are not recorded here
    known = (comm_type != "none").to_numpy() & (given >= 0) & ((group >= 0) | (members > 1))
    return np.where(known, np.rint(given * factor), -1).astype(np.int64)


@dataclass(frozen=True)
class Remove:
    """Remove operations: they take no time, are not launched, and wait for nothing.

    Removing a host operation also removes its nested operations and launched work; removing
    the last work of a call also removes the call. Operations that waited for a removed one
    wait for its predecessor on the thread or stream; ranks no longer wait for it in collectives.
    Time of threads between operations stays, but not between two removed parts of modules.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"remove {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        gone = _with_launched(graph, select(graph, self.selection))
        gone &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        calls = gone | calls_without_work(graph, gone, since)
        edges = graph.edges
        meets, alone = _meetings(graph, gone)
        into = into_ops(edges, gone)
        left_out = meets | waits_of_calls(edges, calls) | (into & (edges.kind == EdgeKind.LAUNCH))
        takes_none = of_ops(edges, calls) | (into & (edges.kind == EdgeKind.STREAM))
        if selected_modules(graph, self.selection):
            takes_none |= into & _gaps_after(edges, gone)
        delay = graph.delay.copy()
        entered = np.append(np.diff(graph.in_ptr)[: 2 * graph.num_ops] > 0, False)
        vertices = np.flatnonzero(np.repeat(gone, 2))
        delay[vertices[entered[vertices]]] = 0
        weight = np.where(takes_none, 0, edges.weight)
        return graph.rewired(~left_out, alone, since, weight=weight, delay=delay)


def _gaps_after(edges: Edges, gone: Bools) -> Bools:
    """Return which edges are time of threads after a removed operation; bool, shape (edges,)."""
    first = np.minimum(edges.src // 2, gone.size)
    found: Bools = np.append(gone, False)[first] & (edges.kind == EdgeKind.HOST_GAP)
    return found


def _with_launched(graph: EventGraph, chosen: Bools) -> Bools:
    """Add nested operations and launched work to the chosen operations, repeatedly."""
    call = graph.recorded_launchers
    while True:
        wider = covered(graph, chosen)
        wider = wider | ((call >= 0) & wider[call])
        if (wider == chosen).all():
            return chosen
        chosen = wider


def _meetings(graph: EventGraph, gone: Bools) -> tuple[Bools, Edges]:
    """Return which edges are waits between ranks in removed operations, and what comes instead.

    - Returns bool, shape (edges,), and Edges: Those from start to end of what only waited for
      others, which has no other.
    """
    edges = graph.edges
    hub = 2 * graph.num_ops
    meets = of_ops(edges, gone) & ((edges.src >= hub) | (edges.dst >= hub))
    op = np.unique(edges.op[meets & (edges.src >= hub)])
    return meets, make_edges(2 * op, 2 * op + 1, 0, EdgeKind.COMMUNICATION, op)


def selected_waits(graph: EventGraph, selection: Selection) -> ThreadWaits:
    """Find the waits of a selection.

    - Raises UsageError if the names or conditions fit no operation.
    """
    waits = thread_waits(graph)
    found = np.ones(waits.edge.size, dtype=np.bool_)
    others = replace(selection, inside="")
    if others != Selection():
        found &= np.append(select(graph, others), False)[waits.next_op]
    if selection.inside:
        found &= np.append(within(graph, selection), False)[waits.around]
    return waits.chosen(found)


def _is_as_measured(graph: EventGraph) -> bool:
    """Return whether no earlier change has been made, which may have removed all waits."""
    return bool((replay_graph(graph).time == graph.time).all())
