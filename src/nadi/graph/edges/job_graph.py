"""Build the event graph of a job: threads, launches, streams, waits and collectives as edges.

Edges within one rank: launches, streams, events, waiting calls, hand-overs.

A trainer that waits for the worker processes of a DataLoader waits until a batch is there.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from nadi.errors import NadiError, check_kind, checked
from nadi.forks import refuse_in_fork
from nadi.graph.edges.collective_edges import meet
from nadi.graph.edges.rank_vertices import (
    RankOps,
    RankPart,
    WaitLimits,
    join_limits,
    make_limits,
    rank_ops,
    thread_edges,
)
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.graph.overheads import (
    LAUNCH_CLASSES,
    MEASURED_WAITS,
    WAIT_CLASSES,
    Overheads,
    TraceDeps,
    overheads_of,
)
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Job, Trace

_NEXT = r"^enumerate\((?s:.)*_MultiProcessingDataLoaderIter\.__next__"
_LEAST_NS = 1_000_000  # to take a batch that is there takes less,
_LEAST_SHARE = 0.1  # and, of a large one, less than this of the time between two
_FEWEST = 3  # waits, one after the other


def loader_edges(rank: RankOps) -> tuple[Edges, WaitLimits]:
    """Make the end of each wait for a batch depend on the end of the wait before it.

    Worker processes go on while the trainer works. If it waits for a batch again and again, they
    are what is slow: the time from one batch to the next is theirs, and a trainer that does less
    waits longer. Where the trainer did not wait for the batch before, nothing is known: the workers
    may have been idle; and to take a large batch takes a little, which is no wait.

    - Returns Edges, Limits: Of the loader's calls. O(boundaries of threads).
    """
    call, boundary = _waits(rank)
    chain = rank.chain
    thread = np.searchsorted(2 * chain.thread_ptr, boundary, side="right")
    follows = (thread[1:] == thread[:-1]) & (
        _number(rank, call[1:]) == _number(rank, call[:-1]) + 1
    )
    end = rank.time_of(chain.vertex[boundary])
    follows &= chain.gap[boundary[1:]] >= _LEAST_SHARE * np.diff(end)
    # of waits in a row, all but the first
    run = np.cumsum(np.append(1, ~follows))
    long = np.bincount(run, minlength=run.max(initial=0) + 1)[run] >= _FEWEST
    later = np.flatnonzero(np.append(False, follows) & long)
    vertex, before = chain.vertex[boundary[later]], chain.vertex[boundary[later - 1]]
    between = rank.time_of(vertex) - rank.time_of(before)
    op = call[later] + rank.first_op
    return make_edges(before, vertex, between, EdgeKind.HOST_GAP, op), make_limits(vertex, 0)


def _is_call(rank: RankOps) -> Bools:
    """Return which operations are calls that take a batch from worker processes."""
    return rank.trace.name_mask(_NEXT)[rank.rows]


def _number(rank: RankOps, call: Ints) -> Ints:
    """Return how many calls of loaders begin before each, on any thread."""
    starts = np.sort(rank.start[_is_call(rank)])
    return np.searchsorted(starts, rank.start[call])


def _waits(rank: RankOps) -> tuple[Ints, Ints]:
    """Return calls that wait, in order of thread and time, and the boundary of each wait's end."""
    is_call = _is_call(rank)
    chain = rank.chain
    if not is_call.any():  # most recordings
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    idle = np.flatnonzero((chain.kind == EdgeKind.HOST_GAP) & (chain.gap >= _LEAST_NS))
    idle = idle[chain.owner[idle] >= 0]
    parent = np.maximum(rank.parent - rank.first_op, -1)
    around = nearest(chain.owner[idle] - rank.first_op, parent, is_call)
    idle, around = idle[around >= 0], around[around >= 0]
    # the longest of each call
    order = np.lexsort((-chain.gap[idle], around))
    _, first = np.unique(around[order], return_index=True)
    chosen = np.sort(order[first])
    return around[chosen], idle[chosen]


_GLOO, _HAND_OVER = (WAIT_CLASSES.index(name) for name in ("gloo", "hand-over"))
_BY_CALL = [LAUNCH_CLASSES.index(name) for name in ("device", "staged copy", "idle device")]


def waiting_edges(
    rank: RankOps, deps: TraceDeps, overheads: Overheads
) -> tuple[list[Edges], list[WaitLimits]]:
    """Return the edges of all dependencies of a rank, except for program order on threads.

    ``deps`` are the dependencies of the rank's trace.

    - Returns list of Edges, list of Limits: O(deps log deps).
    """
    launches, launched = _launch_edges(rank, deps, overheads)
    syncs, returned = _sync_edges(rank, deps, overheads)
    hand_overs, taken_over = _hand_over_edges(rank, deps, overheads)
    events = _event_edges(rank, deps, overheads)
    loads, loaded = loader_edges(rank)
    edges = [launches, _stream_edges(rank, deps, overheads), events, syncs, hand_overs, loads]
    return edges, [launched, returned, taken_over, loaded]


def device_edges(rank: RankOps, deps: TraceDeps) -> Edges:
    """Return the edges from start to end of device work.

    A kernel may begin before the one before it on its stream has ended, and wait for that end while
    it runs (programmatic dependent launch): its own time is the rest, from either moment.
    """
    row = np.flatnonzero(rank.trace.category_mask(*DEVICE_WORK))
    op = rank.op_of_row[row]
    is_comm = rank.trace.comm_mask()[row]
    kind = np.where(is_comm, EdgeKind.COMMUNICATION, EdgeKind.KERNEL)
    duration = rank.trace.column("duration")[row]
    before, early, own = _begun_early(rank, deps)
    if not early.size:
        return make_edges(2 * op, 2 * op + 1, duration, kind, op)
    rest = np.full(rank.rows.size, -1, dtype=np.int64)
    rest[early - rank.first_op] = own
    rest = rest[op - rank.first_op]
    duration = np.where(rest >= 0, rest, duration)
    return Edges(*map(np.concatenate, zip(
        make_edges(2 * op, 2 * op + 1, duration, kind, op),
        make_edges(2 * before + 1, 2 * early + 1, own, EdgeKind.KERNEL, early), strict=True,
    )))  # fmt: skip


def _begun_early(rank: RankOps, deps: TraceDeps) -> tuple[Ints, Ints, Ints]:
    """Return kernels before, kernels that begin before their end, and the time after it; ns."""
    trace = rank.trace
    src, dst = deps.of("stream")
    computes = trace.category_mask("kernel") & ~trace.comm_mask()
    before, begun, end_before = rank.times(src)
    op, start, end = rank.times(dst)
    early = (begun < start) & (start < end_before) & (end_before < end)
    early &= computes[src] & computes[dst]
    return before[early], op[early], (end - end_before)[early]


def ends_after(graph: EventGraph) -> Bools:
    """Return which edges end a kernel some time after the end of the one that it waits for.

    bool, shape (edges,): beside the edge from the kernel's own start, of the same time.
    """
    own_end = graph.destinations == 2 * graph.edge_op + 1
    from_end = (graph.in_src % 2 == 1) & (graph.in_src < 2 * graph.num_ops)
    found: Bools = (graph.edge_kind == EdgeKind.KERNEL) & own_end & from_end
    return found


def starts_in_call(graph: EventGraph) -> Bools:
    """Return which edges lead from the start of a call to device work that starts within it.

    bool, shape (edges,). The call has to progress as far, so their time is its own, in part.
    """
    found = np.zeros(graph.num_edges, dtype=np.bool_)
    found[launches_in_call(graph)] = True
    return found


def launches_in_call(graph: EventGraph) -> Ints:
    """Return the positions of the edges of :func:`starts_in_call`; int64, ascending."""
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    edges = edges[graph.in_src[edges] % 2 == 0]
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    into = np.minimum(graph.destinations[edges] // 2, graph.num_ops - 1)
    found: Ints = edges[on_device[into]]
    return found


def _launch_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> tuple[Edges, WaitLimits]:
    """Make device work depend on the end of its launch, or on the start if it starts sooner.

    Work that starts within its call, on an idle stream, starts when the call has progressed far
    enough: all of this time is the call's own. So it is where the stream became idle during the
    call, if the work starts nearer to the end of the call than to the end of what it queued behind,
    and later than a launch explains.
    """
    src, dst = deps.of("launch")
    caller, call_start, call_end = rank.times(src)
    op, start, _ = rank.times(dst)
    kind = deps.launch_class
    on_thread = deps.is_host(dst)
    # work of other threads is issued at the start of a call, not at its end
    from_end = (start >= call_end) & ~on_thread
    typical = overheads.launch_after_start[kind]
    idle = deps.start[dst] - deps.ready[dst]
    by_call = (idle >= start - call_start) | (idle > np.maximum(call_end - start, typical))
    after_start = np.where(by_call & np.isin(kind, _BY_CALL), start - call_start, typical)
    weight = np.where(
        from_end,
        np.minimum(start - call_end, overheads.launch_after_end[kind]),
        np.minimum(start - call_start, after_start),
    )
    possible = start >= call_start
    source = np.where(from_end, 2 * caller + 1, 2 * caller)[possible]
    edges = make_edges(source, 2 * op[possible], weight[possible], EdgeKind.LAUNCH, op[possible])
    return edges, make_limits(2 * op[possible & on_thread], 0)


def _stream_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> Edges:
    """Make device work depend on the end of the work before it, or on its start if they overlap."""
    src, dst = deps.of("stream")
    before, _, end_before = rank.times(src)
    op, start, _ = rank.times(dst)
    gap = start - end_before
    typical = overheads.turnaround[deps.turnaround_class]
    weight = np.where(gap >= 0, np.minimum(gap, typical), 0)
    source = np.where(gap >= 0, 2 * before + 1, 2 * before)
    return make_edges(source, 2 * op, weight, EdgeKind.STREAM, op)


def _event_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> Edges:
    """Make device work depend on the end of work on another stream.

    If that work has not ended, it left room before: the time until then is its own.
    """
    src, dst = deps.of("event")
    work, begun, work_end = rank.times(src)
    op, start, _ = rank.times(dst)
    runs = work_end > start
    weight = np.where(runs, start - begun, np.minimum(start - work_end, overheads.crossing))
    return make_edges(
        np.where(runs, 2 * work, 2 * work + 1), 2 * op, weight,
        np.where(runs, EdgeKind.KERNEL, EdgeKind.SYNC), np.where(runs, work, op),
    )  # fmt: skip


def _sync_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> tuple[Edges, WaitLimits]:
    """Make the end of a call depend on the end of the work that it waits for."""
    waits = deps.waits
    work, work_start, work_end = rank.times(waits.work)
    call, _, call_end = rank.times(waits.call)
    vertex = 2 * call + 1
    moment = np.where(waits.from_start, work_start, work_end)
    last = moment + (waits.last - waits.moment)
    typical = overheads.wait_return[waits.kind]
    waited = last > call_end - rank.chain.gap[rank.at(vertex)]
    # work may have ended just before the call started, before the host was notified
    told_later = ~np.isin(waits.kind, (*MEASURED_WAITS, _GLOO)) & (call_end - last <= typical)
    # a call returns some time after the last work that it waits for: this time counts once
    weight = np.minimum(call_end - last, typical)
    source = np.where(waits.from_start, 2 * work, 2 * work + 1)
    # up to where it tells the host, the time from its start is the work's own
    tells = waits.from_start & (waits.kind == _HAND_OVER)
    kind = np.where(tells, EdgeKind.KERNEL, EdgeKind.SYNC)
    edges = make_edges(source, vertex, weight, kind, np.where(tells, work, call))
    limited = waited | told_later
    return edges, make_limits(vertex[limited], overheads.wait_call[waits.kind[limited]])


def _hand_over_edges(
    rank: RankOps, deps: TraceDeps, overheads: Overheads
) -> tuple[Edges, WaitLimits]:
    """Make the start of an operation depend on the end of work on another thread.

    If it waits, its thread is idle meanwhile, and continues some time after the last of all work
    that it waits for. After gloo's work this time is at most the usual one. Work that goes on after
    it has told the host takes until then: that time is its own.
    """
    src, dst, waited, last, of_gloo, tells = deps.hand_overs
    work, begun, _ = rank.times(src)
    op, start, _ = rank.times(dst)
    weight = np.where(waited, deps.start[dst] - last, 0)
    usual = overheads.wait_return[_GLOO]
    weight = np.where(of_gloo & waited, np.minimum(weight, usual), weight)
    weight = np.where(tells, start - begun, weight)
    edges = make_edges(
        np.where(tells, 2 * work, 2 * work + 1), 2 * op, weight,
        np.where(tells, EdgeKind.KERNEL, EdgeKind.THREAD), np.where(tells, work, op),
    )  # fmt: skip
    return edges, make_limits(2 * op[waited], 0)


@checked
def build_graph(job: Job, overheads: Sequence[Overheads] | None = None) -> EventGraph:
    """Build the graph of a job. O(nodes log nodes + deps).

    Parameters
    ----------
    overheads
        The typical overheads of each rank, in the order of ``job.traces``; by default estimated
        from each rank's own trace.

    Returns
    -------
    EventGraph
        Operations are in order of trace, then row.
    """
    check_kind("job", job, Job, "read one with nadi.load_job")
    refuse_in_fork()
    traces = enumerate(job.traces)
    parts = (rank_part(trace, None if overheads is None else overheads[n]) for n, trace in traces)
    return graph_of_parts(job, parts)


def rank_part(trace: Trace, overheads: Overheads | None = None) -> RankPart:
    """Return what a linked rank alone determines of its job's graph. O(nodes log nodes + deps)."""
    deps = TraceDeps(trace)
    typical = overheads_of(deps) if overheads is None else overheads
    rank = rank_ops(trace, 0, 0)
    waits, limits = waiting_edges(rank, deps, typical)
    return RankPart(rank.rows, rank.parent, rank.chain, waits, limits, device_edges(rank, deps))


def graph_of_parts(job: Job, parts: Iterable[RankPart]) -> EventGraph:
    """Build the graph of a job of the part of each rank; parts are used up."""
    operations, time, edges = _vertices_and_edges(job, parts)
    if any(min(part.src.min(initial=0), part.dst.min(initial=0)) < 0 for part in edges):
        what = "a dependency refers to an unknown operation"
        raise NadiError("", what, "please report this recording")
    return EventGraph.build(job, *operations, time, edges)


def _vertices_and_edges(
    job: Job, parts: Iterable[RankPart]
) -> tuple[tuple[Ints, Ints, Ints], Ints, list[Edges]]:
    """Return the operations (trace, row and parent of each), the times of vertices, and all edges.

    The intermediate tables of threads take more memory than the graph; they are freed on return.
    """
    ranks: list[RankOps] = []
    own: list[tuple[list[Edges], Edges]] = []
    limits: list[WaitLimits] = []
    num_ops = 0
    for trace, part in zip(job.traces, parts, strict=True):
        rank, waits, of_waits, device = part.placed(trace, num_ops, job.origin)
        num_ops += rank.rows.size
        ranks.append(rank)
        own.append((waits, device))
        limits += of_waits
    num_vertices = 2 * num_ops
    known = join_limits(limits)
    meetings = meet(job, ranks, num_vertices, known.vertex)
    alone = np.ones(num_ops, dtype=np.bool_)
    alone[meetings.waiting] = False
    edges = [meetings.edges]
    for waits, device in own:
        kept = alone[device.op]
        edges += [*waits, device if kept.all() else Edges(*(column[kept] for column in device))]
    joined = join_limits([known, meetings.limits])
    for rank in ranks:
        edges += thread_edges(rank, joined)
    time = np.empty(num_vertices + meetings.entered.size, dtype=np.int64)
    time[num_vertices:] = meetings.entered
    for rank in ranks:
        times = time[2 * rank.first_op : 2 * (rank.first_op + rank.rows.size)]
        times[0::2], times[1::2] = rank.start, rank.end
    return _operations(ranks), time, edges


def _operations(ranks: Sequence[RankOps]) -> tuple[Ints, Ints, Ints]:
    """Concatenate the operations of ranks: trace, row and parent of each."""
    op_trace = np.repeat(np.arange(len(ranks)), [rank.rows.size for rank in ranks])
    return op_trace, _one([rank.rows for rank in ranks]), _one([rank.parent for rank in ranks])


def _one(parts: Sequence[Ints]) -> Ints:
    """Concatenate arrays; a single array is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *parts])
