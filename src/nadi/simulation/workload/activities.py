"""Convert an event graph to activities: pieces of work that start when others have ended.

The event graph has times on the edges between moments. Simulators have times on nodes: a node
starts when all its dependencies have ended, and lasts for its duration. This module converts one
to the other and preserves the measured times: an activity lasts from the last end among its
dependencies to its own end. Latencies and unexplained delays are thus part of the activity that
they delay.

Cut the threads of a job into a chain of pieces of work.

In an event graph operations are nested. A simulator has no nesting: a node runs from its start to
its end, and has only self time. So a thread becomes a chain of pieces, each of which is self time
of one operation.
"""

from dataclasses import dataclass, replace

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEVICE_WORK, LABELS


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Starts and ends of operations of all ranks, thread by thread in order of time.

    The interval of a boundary is the time on its thread since the boundary before it.
    """

    vertex: Ints  # int64, shape (boundaries,): the vertex of the event graph
    thread: Ints  # int64, shape (boundaries,): number of the thread, counted over all ranks
    owner: Ints  # int64, shape (boundaries,): the operation that ran in the interval, or -1
    # time, before: int64 ns, shape (boundaries,): the time of the boundary, and of the one before
    # it on the thread; for the first boundary, its own time
    time: Ints
    before: Ints
    is_first: Bools  # bool, shape (boundaries,): whether it is the first of its thread
    at: Ints  # int64, shape (vertices,): the boundary of each vertex, or -1


def find_boundaries(graph: EventGraph) -> Boundaries:
    """Return the boundaries of all threads of a job. O(operations log operations)."""
    vertices, threads, owners = [], [], []
    num_threads = first_op = 0
    for number, trace in enumerate(graph.job.traces):
        nesting = nest(trace, waiting_threads(trace))
        rows = graph.op_row[graph.op_trace == number]
        op = first_op + np.searchsorted(rows, nesting.rows)
        vertices.append(2 * op[nesting.boundary // 2] + nesting.boundary % 2)
        size = 2 * np.diff(nesting.thread_ptr)
        threads.append(num_threads + np.repeat(np.arange(size.size), size))
        owners.append(np.where(nesting.owner >= 0, op[nesting.owner], -1))
        num_threads += size.size
        first_op += rows.size
    vertex, thread = np.concatenate(vertices), np.concatenate(threads)
    time = graph.time[vertex]
    is_first = np.diff(thread, prepend=-1) != 0
    at = np.full(graph.num_vertices, -1, dtype=np.int64)
    at[vertex] = np.arange(vertex.size)
    before = np.where(is_first, time, np.roll(time, 1))
    return Boundaries(vertex, thread, np.concatenate(owners), time, before, is_first, at)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of threads, in order of thread and time."""

    op: Ints  # int64, shape (pieces,): the operation whose self time it is; -1 for idle time
    is_comm: Bools  # bool, shape (pieces,): whether it is a complete communication operation
    first: Ints  # int64, shape (pieces,): the boundary that ends its first interval
    # int64, shape (boundaries,): the piece that the boundary's interval belongs to
    of_boundary: Ints
    # int64, shape (boundaries,): the last piece that has started by a boundary on its thread. If
    # something outside the thread waits for the boundary, that piece ends there.
    last_at: Ints


def cut_threads(
    graph: EventGraph, boundaries: Boundaries, waits: Bools, waited_for: Bools, comm_ops: Ints
) -> Pieces:
    """Cut threads at boundaries with dependencies from or to something outside of the thread.

    Between two such boundaries the order of a thread's work has no effect outside of it. There an
    operation becomes one piece with all of its self time, placed where the operation first ran.
    Time of annotations and idle time stay in place.

    - ``waits``, ``waited_for``: bool, shape (boundaries,): whether the boundary depends on
      something outside its thread; whether something outside its thread depends on it.
    - ``comm_ops``: int64: communication on threads, none nested in another. Each becomes one piece
      with all operations nested in it, and with the idle time of its thread before it, which is
      wait time.
    """
    size = boundaries.vertex.size
    inside, comm_of = _communication(boundaries, comm_ops)
    alone = waits & (comm_of < 0)
    cut = boundaries.is_first | alone
    cut[1:] |= alone[:-1] | (waited_for[:-1] & ~inside[:-1])
    cut[1:] |= comm_of[1:] != comm_of[:-1]
    interval = np.cumsum(cut)
    owner = boundaries.owner
    is_label = graph.gather("category").is_in(LABELS).to_numpy()
    in_place = (owner < 0) | is_label[owner]
    part = np.where(in_place, graph.num_ops + np.arange(size), owner)
    part = np.where(comm_of >= 0, comm_of, part)
    _, first, piece = np.unique(
        interval * (graph.num_ops + size) + part, return_index=True, return_inverse=True
    )
    by_time = np.argsort(first)
    number = np.empty(first.size, dtype=np.int64)
    number[by_time] = np.arange(first.size)
    first = first[by_time]
    of_boundary = number[piece]
    op = np.where(comm_of >= 0, comm_of, owner)[first]
    return Pieces(op, comm_of[first] >= 0, first, of_boundary, np.maximum.accumulate(of_boundary))


def _communication(boundaries: Boundaries, comm_ops: Ints) -> tuple[Bools, Ints]:
    """Return whether each boundary is inside communication, and whose interval it ends."""
    size = boundaries.vertex.size
    inside = np.zeros(size, dtype=np.bool_)
    comm_of = np.full(size, -1, dtype=np.int64)
    for op in comm_ops.tolist():
        start, end = boundaries.at[2 * op], boundaries.at[2 * op + 1]
        inside[start:end] = True
        idle = boundaries.owner[start] < 0 and comm_of[start] < 0
        comm_of[start + (not idle) : end + 1] = op
    return inside, comm_of


_Pairs = tuple[Ints, Ints]
_MICRO, _HALF_MICRO = 1000, 500  # ns
_NEVER = 2**62
_COLUMNS = (
    "trace", "op", "on_thread", "is_comm", "start", "end", "resource",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Activities:
    """Pieces of work of all ranks: those of threads in order of time, then those of devices."""

    trace: Ints  # int64, shape (activities,): position of the rank's trace in the job
    # int64, shape (activities,): the operation of the event graph that the time belongs to; -1 for
    # idle time of a thread, -2 for the time before a rank begins, -3 for the time in which a thread
    # is woken for communication
    op: Ints
    # on_thread, is_comm: bool, shape (activities,): whether it runs on a thread and not on a
    # device; whether it is a complete communication operation, on a thread or a device
    on_thread: Bools
    is_comm: Bools
    # start, end: int64 ns since the job's origin, shape (activities,): as measured
    start: Ints
    end: Ints
    # int64 ns, shape (activities,): from the last end among its dependencies to its end
    duration: Ints
    # int64, shape (activities,): number of the thread or stream, counted over all ranks
    resource: Ints
    # src, dst: int64, shape (dependencies,): the awaited and the waiting activity, both of one
    # rank. All pairs are distinct.
    src: Ints
    dst: Ints
    # first_of_op, last_of_op: int64, shape (operations,): the first and the last activity of each
    # operation of the event graph, with the operations nested in it
    first_of_op: Ints
    last_of_op: Ints


def find_activities(graph: EventGraph, comm_ops: Ints, log: IssueLog) -> Activities:
    """Convert an event graph to activities. O(edges log edges).

    - ``comm_ops``: int64: communication operations of threads and devices; none is nested in
      another.
    - ``log``: Records folded times and dropped dependencies.
    """
    boundaries = find_boundaries(graph)
    src, dst = _waits(graph, boundaries)
    waited_for, waits = np.zeros((2, boundaries.vertex.size + 1), dtype=np.bool_)
    waited_for[boundaries.at[src]] = True  # other vertices go to the last entry
    waits[boundaries.at[dst]] = True
    on_thread = comm_ops[boundaries.at[2 * comm_ops] >= 0]
    pieces = cut_threads(graph, boundaries, waits[:-1], waited_for[:-1], on_thread)
    found = _unconnected(graph, boundaries, pieces, comm_ops)
    pairs = _between_activities(graph, boundaries, pieces, found, (src, dst), log)
    pairs = _joined(pairs, _along_threads(found))
    found = _with_durations(graph, found, pairs)
    return _rooted(found, log)


def _waits(graph: EventGraph, boundaries: Boundaries) -> _Pairs:
    """Return the edges within ranks, except those along threads and through device work."""
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.in_ptr))
    src, at = graph.in_src, boundaries.at
    of_ops = (src < 2 * graph.num_ops) & (dst < 2 * graph.num_ops)
    src, dst = src[of_ops], dst[of_ops]
    is_first = np.append(boundaries.is_first, True)  # other vertices go to the last entry
    along_thread = (at[dst] >= 0) & (at[src] == at[dst] - 1) & ~is_first[at[dst]]
    through_work = (at[dst] < 0) & (src // 2 == dst // 2)
    one_rank = graph.op_trace[src // 2] == graph.op_trace[dst // 2]
    kept = ~along_thread & ~through_work & one_rank
    return src[kept], dst[kept]


def _unconnected(
    graph: EventGraph, boundaries: Boundaries, pieces: Pieces, comm_ops: Ints
) -> Activities:
    """List the pieces of threads, then the work of devices, without dependencies."""
    work = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    num_pieces = pieces.op.size
    thread = boundaries.thread[pieces.first]
    # the intervals of a piece are joined: what lies between them follows the piece
    length = np.zeros(num_pieces, dtype=np.int64)
    np.add.at(length, pieces.of_boundary, boundaries.time - boundaries.before)
    begin = boundaries.before[boundaries.is_first]
    passed = np.cumsum(length)
    before_thread = (passed - length)[np.searchsorted(thread, np.arange(begin.size))]
    end = passed + (begin - before_thread)[thread]
    stream = graph.op_trace[work] * 2**48 + _stream_keys(graph)[work]
    none = np.zeros(0, dtype=np.int64)
    unknown = np.zeros(num_pieces + work.size, dtype=np.int64)
    first_of_op, last_of_op = _extents(graph, boundaries, pieces)
    first_of_op[work] = last_of_op[work] = num_pieces + np.arange(work.size)
    return Activities(
        trace=graph.op_trace[np.concatenate([boundaries.vertex[pieces.first] // 2, work])],
        op=np.concatenate([pieces.op, work]),
        on_thread=np.arange(unknown.size) < num_pieces,
        is_comm=np.concatenate([pieces.is_comm, np.isin(work, comm_ops)]),
        start=np.concatenate([end - length, graph.time[2 * work]]),
        end=np.concatenate([end, graph.time[2 * work + 1]]),
        duration=unknown,
        resource=np.concatenate([thread, begin.size + np.unique(stream, return_inverse=True)[1]]),
        src=none,
        dst=none,
        first_of_op=first_of_op,
        last_of_op=last_of_op,
    )


def _extents(graph: EventGraph, boundaries: Boundaries, pieces: Pieces) -> _Pairs:
    """Return the first and the last piece of each operation of a thread; -1 for others."""
    extents = np.full((2, graph.num_ops), -1, dtype=np.int64)
    begin, end = boundaries.at[: 2 * graph.num_ops].reshape(-1, 2).T
    op = np.flatnonzero(begin >= 0)
    # the first self time of an operation ends at the boundary after its start
    extents[0, op] = pieces.of_boundary[begin[op] + 1]
    extents[1, op] = pieces.last_at[end[op]]
    return extents[0], extents[1]


def _stream_keys(graph: EventGraph) -> Ints:
    device = graph.gather("device").to_numpy()
    return np.asarray(np.maximum(device, 0) * 2**32 + np.maximum(graph.op_stream, 0), np.int64)


def _between_activities(
    graph: EventGraph,
    boundaries: Boundaries,
    pieces: Pieces,
    found: Activities,
    waits: _Pairs,
    log: IssueLog,
) -> _Pairs:
    """Convert edges between vertices to pairs of activities."""
    activity_of_work = np.full(graph.num_ops, -1, dtype=np.int64)
    activity_of_work[found.op[~found.on_thread]] = np.flatnonzero(~found.on_thread)
    at_src, at_dst = boundaries.at[waits[0]], boundaries.at[waits[1]]
    src = np.where(at_src >= 0, pieces.last_at[at_src], activity_of_work[waits[0] // 2])
    dst = np.where(at_dst >= 0, pieces.of_boundary[at_dst], activity_of_work[waits[1] // 2])
    # a wait inside a communication operation is part of it
    inside = (at_dst >= 0) & found.is_comm[dst] & (at_dst > boundaries.at[2 * found.op[dst]])
    src, dst = src[~inside], dst[~inside]
    in_time = (found.end[src] <= found.end[dst]) & (src != dst)
    log.add(
        "export.overlap", "info", int((~in_time).sum()),
        "dependencies refer to the start of an operation or to the inside of a communication "
        "operation: dropped, as a simulator's node can only depend on the end of another node",
    )  # fmt: skip
    return src[in_time], dst[in_time]


def _along_threads(found: Activities) -> _Pairs:
    """Make each piece depend on the one before on its thread."""
    piece = np.flatnonzero(found.on_thread)
    same = found.resource[piece[1:]] == found.resource[piece[:-1]]
    return piece[:-1][same], piece[1:][same]


def _joined(one: _Pairs, other: _Pairs) -> _Pairs:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _rooted(found: Activities, log: IssueLog) -> Activities:
    """Make activities without dependencies start at their measured time, not with their rank.

    Each depends on the work of a thread that ended last before it. Without such work it depends on
    an activity that lasts until its rank begins, if other ranks begin sooner.
    """
    waits = np.zeros(found.op.size, dtype=np.bool_)
    waits[found.dst] = True
    new: list[_Pairs] = [(found.src, found.dst)]
    late: list[tuple[int, int]] = []  # position of the trace, and when it begins
    first = int(found.start.min(initial=_NEVER))  # a thread that only waits may begin sooner
    num_anchored = 0
    for trace in range(int(found.trace.max(initial=-1)) + 1):
        own = found.trace == trace
        roots = np.flatnonzero(own & ~waits)
        piece = np.flatnonzero(own & found.on_thread)
        piece = piece[np.argsort(found.end[piece], kind="stable")]
        before = np.searchsorted(found.end[piece], found.start[roots], side="right") - 1
        # a piece of no duration ends where it starts, and so might precede itself
        anchor = piece[before] if piece.size else before
        is_anchored = (before >= 0) & (found.start[anchor] < found.start[roots])
        new.append((anchor[is_anchored], roots[is_anchored]))
        num_anchored += int(is_anchored.sum())
        begin = int(found.start[own].min(initial=_NEVER))
        if first < begin < _NEVER:
            late_roots = roots[~is_anchored]
            new.append((np.full(late_roots.size, found.op.size + len(late)), late_roots))
            late.append((trace, begin))
    log.add(
        "export.no-cause", "info", num_anchored,
        "threads and device operations start without a dependency in the trace: each now depends "
        "on the last host operation that ended before it",
    )  # fmt: skip
    src, dst = (np.concatenate(part) for part in zip(*new, strict=True))
    return _with_late_starts(replace(found, src=src, dst=dst), first, late)


def _with_late_starts(found: Activities, first: int, late: list[tuple[int, int]]) -> Activities:
    size = len(late)
    trace = np.array([trace for trace, _ in late], dtype=np.int64)
    begin = np.array([begin for _, begin in late], dtype=np.int64)
    zero = np.zeros(size, dtype=np.int64)
    resource = int(found.resource.max(initial=-1)) + 1 + np.arange(size)
    return replace(
        found,
        trace=np.concatenate([found.trace, trace]),
        op=np.concatenate([found.op, zero - 2]),
        on_thread=np.concatenate([found.on_thread, zero == 0]),
        is_comm=np.concatenate([found.is_comm, zero > 0]),
        start=np.concatenate([found.start, zero + first]),
        end=np.concatenate([found.end, begin]),
        duration=np.concatenate([found.duration, begin - first]),
        resource=np.concatenate([found.resource, resource]),
    )


def _with_durations(graph: EventGraph, found: Activities, pairs: _Pairs) -> Activities:
    """Set each duration to the time from the end of the last dependency to the activity's end."""
    waits = np.zeros(found.op.size, dtype=np.bool_)
    waits[pairs[1]] = True
    ready = np.where(waits, 0, found.start)
    np.maximum.at(ready, pairs[1], found.end[pairs[0]])
    begins_with_op = found.is_comm | ~found.on_thread
    own_start = graph.time[2 * np.maximum(found.op, 0)]
    return replace(
        found,
        start=np.where(begins_with_op, own_start, ready),
        duration=found.end - ready,
        src=pairs[0],
        dst=pairs[1],
    )


def with_hand_overs(activities: Activities) -> Activities:
    """Make communication of threads start as late after its dependencies as measured.

    The time until then, in which the thread wakes up, becomes an activity of its own, as no
    network makes it shorter. Communication of devices is unchanged; launches take no thread's
    time.
    """
    ready = activities.end - activities.duration
    late = np.maximum(activities.start - ready, 0)
    chosen = np.flatnonzero(activities.is_comm & activities.on_thread & (late > 0))
    size = activities.op.size
    new = np.full(size, -1, dtype=np.int64)
    new[chosen] = size + np.arange(chosen.size)
    duration = activities.duration.copy()
    duration[chosen] -= late[chosen]
    dst = np.where(new[activities.dst] >= 0, new[activities.dst], activities.dst)
    yes = np.ones(chosen.size, dtype=np.bool_)
    return replace(
        activities,
        trace=np.concatenate([activities.trace, activities.trace[chosen]]),
        op=np.concatenate([activities.op, np.full(chosen.size, -3)]),
        on_thread=np.concatenate([activities.on_thread, yes]),
        is_comm=np.concatenate([activities.is_comm, ~yes]),
        start=np.concatenate([activities.start, ready[chosen]]),
        end=np.concatenate([activities.end, activities.start[chosen]]),
        duration=np.concatenate([duration, late[chosen]]),
        resource=np.concatenate([activities.resource, activities.resource[chosen]]),
        src=np.concatenate([activities.src, new[chosen]]),
        dst=np.concatenate([dst, chosen]),
    )


def in_turns(activities: Activities, src: Ints, dst: Ints) -> Activities:
    """Make communication of a rank start when other communication of that rank has ended.

    If both overlapped, the duration of the second is reduced by the overlap.

    - ``src``, ``dst``: int64, shape (turns,): pairs of communication activities.
    """
    duration = activities.duration.copy()
    since = activities.end[dst] - activities.end[src]
    duration[dst] = np.minimum(duration[dst], np.maximum(since, 0))
    pairs = _joined((activities.src, activities.dst), (src, dst))
    return replace(activities, duration=duration, src=pairs[0], dst=pairs[1])


def in_microseconds(activities: Activities, log: IssueLog) -> tuple[Activities, Ints]:
    """Round durations to microseconds, and drop pieces of threads that round to 0.

    Their time is not lost: the remainder of rounding is carried along the thread or stream, so
    that the sum over any interval of it is at most 1 us off. What waited for a dropped piece waits
    for the piece before it.

    - Returns Activities: Durations in us. All pairs of dependencies are distinct.
    - and kept: int64, shape (new activities,): their numbers in ``activities``.
    """
    size = activities.op.size
    order = np.lexsort((np.arange(size), activities.resource))
    passed = np.cumsum(activities.duration[order])
    duration = np.empty(size, dtype=np.int64)
    duration[order] = np.diff((passed + _HALF_MICRO) // _MICRO, prepend=0)
    src, dst = activities.src, activities.dst
    follows_own, waits = np.zeros((2, size), dtype=np.bool_)
    follows_own[_along_threads(activities)[1]] = True
    along = (src == dst - 1) & follows_own[dst]
    waits[dst[~along]] = True
    is_kept = ~activities.on_thread | activities.is_comm | (duration > 0) | waits | ~follows_own
    log.add(
        "export.folded", "info", int((~is_kept).sum()),
        "pieces of host operations round to 0 us: their time is added to the next piece of the "
        "thread",
    )  # fmt: skip
    last_kept = np.maximum.accumulate(np.where(is_kept, np.arange(size), 0))
    number = np.cumsum(is_kept) - 1
    among = is_kept[dst]
    pair = np.sort(number[dst[among]] * size + number[last_kept[src[among]]])
    pair = pair[np.diff(pair, prepend=-1) > 0]
    columns = {name: getattr(activities, name)[is_kept] for name in _COLUMNS}
    columns |= {"duration": duration[is_kept], "src": pair % size, "dst": pair // size}
    for name in ("first_of_op", "last_of_op"):
        one = getattr(activities, name)
        columns[name] = np.where(one >= 0, number[last_kept[one]], -1)
    return Activities(**columns), np.flatnonzero(is_kept)
