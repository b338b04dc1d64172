"""Time of each rank of a simulated job: computation, communication and waits.

How long communication of a simulated rank goes on beside other communication of it.

Times of several jobs on one machine, together and alone.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.simulation.accounts.collective_accounts import meetings_of, messages_of_nodes
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import JOB_TIMES, NODE_KINDS, RANK_TIMES

PARTITION = (
    "computing", "transferring", "accessing", "hosting", "other", "awaiting_members",
    "awaiting_sender", "awaiting_receiver", "awaiting_memory", "idle",
)  # fmt: skip
"""Columns of ``schema.RANK_TIMES`` that sum to the finish; the first that applies counts."""

TIME_LABELS = dict(zip(
    PARTITION, ("compute", "transfer", "memory access", "host alone", "other nodes",
                "waiting for stragglers", "waiting for senders", "waiting for receivers",
                "waiting for memory", "idle"), strict=True,
))  # fmt: skip
"""What text and charts call these columns."""

WAITING = PARTITION[5:9]
"""Columns that are waits only."""

# codes of spans, in the order of PARTITION; a rank may be blocked whatever else it does
(
    _COMPUTING, _TRANSFERRING, _ACCESSING, _HOSTING, _OTHER, _MEMBERS, _SENDER, _RECEIVER, _MEMORY,
    _IDLE, _BLOCKED,
) = range(11)  # fmt: skip
_COMMUNICATING = (_TRANSFERRING, _MEMBERS, _SENDER, _RECEIVER)
_LARGEST_KEY = 2**62


class _Spans(NamedTuple):
    """Half-open time spans: rank, start, end and activity."""

    rank: Ints
    begin: Ints
    end: Ints
    code: Ints


@checked
def rank_times(simulation: Simulation) -> pl.DataFrame:
    """Compute the time of each rank by activity until it finishes.

    Returns
    -------
    polars.DataFrame
        ``schema.RANK_TIMES``, a row per rank. O(nodes log nodes).
    """
    num_ranks = simulation.program.num_ranks
    spans = _spans(simulation)
    sums = _measure(spans, num_ranks)
    like = simulation.like
    columns = {name: column[like] for name, column in sums.items()}
    ranks = np.arange(like.size)
    return RANK_TIMES.build(like.size, {"rank": ranks, "finish": simulation.cycles, **columns})


@checked
def compute_times(simulation: Simulation) -> Ints:
    """Return the compute time of each rank's device, in ns; int64, shape (ranks,).

    With ASTRA-sim's slots it is the sum of computation times. Otherwise concurrent computation
    counts once, as in ``rank_times``.
    """
    if simulation.system.slots == "device":
        return rank_times(simulation)["computing"].to_numpy()
    program = simulation.program
    return _times_of(simulation, (program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu)


@checked
def exposed_times(simulation: Simulation) -> Ints:
    """Return ASTRA-sim's exposed communication: all time except computation, in ns.

    ``rank_times`` has another column for communication that no computation overlaps. By
    ASTRA-sim's rules, replayed device work is computation. int64, shape (ranks,).
    """
    if simulation.system.slots == "device":
        return simulation.cycles - compute_times(simulation)
    rules = rules_of(simulation.system)
    return simulation.cycles - _times_of(
        simulation, rules.is_computing(simulation.program, simulation.system)
    )


def _times_of(simulation: Simulation, chosen: Bools) -> Ints:
    """Add up the times of chosen nodes, for each rank."""
    busy = np.where(chosen, simulation.end - simulation.start, 0)
    return np.add.reduceat(busy, simulation.program.first[:-1])[simulation.like]


def _spans(simulation: Simulation) -> _Spans:
    """Divide every node into a wait and a work span; add one span for each whole rank."""
    program, start, end = simulation.program, simulation.start, simulation.end
    until, waits_for = ends_of_waits(simulation)
    work = np.full(program.num_nodes, _OTHER)
    work[program.kind == NODE_KINDS.index("COMP")] = _COMPUTING
    work[program.is_cpu] = _HOSTING
    work[_kind_is(simulation, "MEM_LOAD", "MEM_STORE")] = _ACCESSING
    work[_kind_is(simulation, "COMM_SEND", "COMM_RECV", "COMM_COLL")] = _TRANSFERRING
    ready = _ready(simulation)
    whole = np.arange(program.num_ranks)
    finish = np.zeros(program.num_ranks, dtype=np.int64)
    finish[simulation.like] = simulation.cycles
    begun = np.minimum(until + _before_recorded_work(simulation), end)
    parts = [
        _Spans(program.rank, start, until, waits_for),
        _Spans(program.rank, begun, end, work),
        _Spans(program.rank, ready, start, np.full(program.num_nodes, _BLOCKED)),
    ]
    kept = [_Spans(*(column[part.end > part.begin] for column in part)) for part in parts]
    # also those that finish at once, so that every rank has a span
    kept.append(_Spans(whole, np.zeros_like(finish), finish, np.full(whole.size, _IDLE)))
    return _Spans(*(np.concatenate(columns) for columns in zip(*kept, strict=True)))


def _before_recorded_work(simulation: Simulation) -> Ints:
    """Return for how long a device does nothing in each node that computes; int64 ns.

    Dependencies of a node have no weight, so that one of a recorded kernel lasts from the end of
    what the kernel waits for, and includes its launch.
    """
    program = simulation.program
    idle = np.zeros(program.num_nodes, dtype=np.int64)
    if not simulation.recorded:
        return idle
    is_device = (program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu
    for number, rank in enumerate(np.unique(simulation.like, return_index=True)[1].tolist()):
        played = simulation.recorded[rank]
        mine = np.flatnonzero(is_device & (program.rank == number))
        row = program.row[mine]
        whole = played.trace.column("duration")[row]
        own = played.recorded.column("duration")[played.node[row]]
        idle[mine] = np.maximum(whole - own, 0)
    return idle


def _kind_is(simulation: Simulation, *names: str) -> Bools:
    return np.isin(simulation.program.kind, [NODE_KINDS.index(name) for name in names])


def ends_of_waits(simulation: Simulation) -> tuple[Ints, Ints]:
    """Return when the wait of each node ends, and its cause; the start if it does not wait."""
    start, end, trail = simulation.start, simulation.end, simulation.trail
    until = start.copy()
    waits_for = np.full(start.size, _MEMBERS)
    node, number = meetings_of(simulation)
    last = np.zeros(int(number.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, number, start[node])
    until[node] = last[number]
    messages = messages_of_nodes(simulation)
    until[messages.receive] = start[messages.send]
    waits_for[messages.receive] = _SENDER
    if simulation.system.network.rendezvous:
        until[messages.send] = start[messages.receive]
        waits_for[messages.send] = _RECEIVER
    kinds = (NodeKind.ACCESS, NodeKind.TRANSFER)
    accesses = np.flatnonzero(np.isin(trail.kind[: start.size], kinds))
    until[accesses] = end[accesses] - trail.time[accesses]
    waits_for[accesses] = _MEMORY
    return np.clip(until, start, end), waits_for


def _ready(simulation: Simulation) -> Ints:
    """Return when the last dependency of each node ended; 0 without dependencies."""
    program = simulation.program
    ready = np.zeros(program.num_nodes, dtype=np.int64)
    parent = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    np.maximum.at(ready, program.children, simulation.end[parent])
    return ready


def _measure(spans: _Spans, num_ranks: int) -> dict[str, Ints]:
    """Sum the time of each column of ``RANK_TIMES`` per rank; O(spans log spans)."""
    rank = np.concatenate([spans.rank, spans.rank])
    time = np.concatenate([spans.begin, spans.end])
    # at equal times any order works: the interval between has length 0
    last = int(time.max()) + 1
    is_short = last <= _LARGEST_KEY // num_ranks
    order = np.argsort(rank * last + time) if is_short else np.lexsort((time, rank))
    rank, time = rank[order], time[order]
    length = np.append(np.diff(time), 0)
    first = np.searchsorted(rank, np.arange(num_ranks))
    length[first[1:] - 1] = 0  # between ranks
    step = np.where(order < spans.code.size, 1, -1)
    code = np.concatenate([spans.code, spans.code])[order]

    def is_under_way(number: int) -> Bools:
        return np.asarray(np.cumsum(np.where(code == number, step, 0)) > 0)

    def add_up(chosen: Bools) -> Ints:
        return np.asarray(np.add.reduceat(np.where(chosen, length, 0), first))

    sums: dict[str, Ints] = {}
    rest, communicating = np.ones(time.size, dtype=np.bool_), np.zeros(time.size, dtype=np.bool_)
    for number, name in enumerate(PARTITION):
        active = is_under_way(number)
        sums[name] = add_up(active & rest)
        rest &= ~active
        if number == _HOSTING:
            sums["host"] = add_up(active)
        elif number == _COMPUTING:
            computing = active
        if number in _COMMUNICATING:
            communicating |= active
    sums["communicating"] = add_up(communicating)
    sums["exposed"] = add_up(communicating & ~computing)
    sums["overlapped"] = sums["communicating"] - sums["exposed"]
    sums["blocked"] = add_up(is_under_way(_BLOCKED))
    return sums


_KINDS = [NODE_KINDS.index(name) for name in ("COMM_SEND", "COMM_RECV", "COMM_COLL")]


@checked
def contended_times(simulation: Simulation) -> Ints:
    """Return for how long each rank's communications overlap each other, from first to last.

    Of communications that overlap, directly or through others, it is the time from the begin of
    the first to the end of the last: one of them can wait for others at most that long if they
    come in another order. Waits for members and senders do not count.

    Returns
    -------
    int64
        ns, shape (ranks of the program,). O(nodes log nodes).
    """
    program = simulation.program
    until, _ = ends_of_waits(simulation)
    chosen = np.flatnonzero(np.isin(program.kind, _KINDS) & (simulation.end > until))
    rank = program.rank[chosen]
    order = np.lexsort((until[chosen], rank))
    rank, begin, end = rank[order], until[chosen][order], simulation.end[chosen][order]
    found = np.zeros(program.num_ranks, dtype=np.int64)
    if not rank.size:
        return found
    # ends in ranks before are no ends here
    stride = int(end.max()) + 1
    latest = np.maximum.accumulate(rank * stride + end)
    fresh = np.append(True, rank[1:] * stride + begin[1:] >= latest[:-1])
    first = np.flatnonzero(fresh)
    size = np.diff(np.append(first, rank.size))
    length = latest[np.append(first[1:], rank.size) - 1] - rank[first] * stride - begin[first]
    several = size > 1
    np.add.at(found, rank[first][several], length[several])
    return found


@checked
def job_times(simulation: Simulation) -> pl.DataFrame:
    """Compare when jobs of :func:`nadi.simulate_together` finish, together and alone.

    Returns
    -------
    polars.DataFrame
        ``schema.JOB_TIMES`` in their order. O(ranks).
    """
    jobs = simulation.jobs
    finish = [int(simulation.cycles[job.ranks].max()) for job in jobs]
    alone = [job.alone for job in jobs]
    columns = {
        "job": [job.name for job in jobs],
        "ranks": [job.ranks.tolist() for job in jobs],
        "finish": finish,
        "alone": alone,
        "slowdown": [
            there / before if before else 1.0 for there, before in zip(finish, alone, strict=True)
        ],
    }
    return JOB_TIMES.build(len(jobs), columns)


_MESSAGES = [NODE_KINDS.index(kind) for kind in ("COMM_SEND", "COMM_RECV")]


@checked
def steady_step(simulation: Simulation, *, feeds_back: bool = False) -> int:
    """Return the period of steps of inference that follow each other without a pause.

    A step fills the pipeline and empties it, but the next one fills it meanwhile. So the period is
    that of the busiest stage: the time between two successive micro-batches that leave it, for all
    of them. O(nodes).

    Parameters
    ----------
    simulation
        A step of forward passes alone, whose nodes state their micro-batches.
    feeds_back
        Whether a micro-batch enters the first stage with what it gave at the last one, as in
        decoding: it passes all stages once in a period, so that this is no shorter.

    Returns
    -------
    int
        In ns; the makespan if no node states a micro-batch.
    """
    program = simulation.program
    longest, latency = 0.0, 0
    _, representatives = np.unique(simulation.like, return_index=True)
    for number, rank in enumerate(representatives.tolist()):
        own = slice(program.first[number], program.first[number + 1])
        of_node = simulation.traces[rank].column("micro_batch")[program.row[own]]
        # messages go beside the work of a stage
        works = (of_node >= 0) & ~np.isin(program.kind[own], _MESSAGES)
        if not works.any():
            return simulation.makespan
        of_node, start = of_node[works], simulation.start[own][works]
        ends = np.zeros(int(of_node.max()) + 1, dtype=np.int64)
        np.maximum.at(ends, of_node, simulation.end[own][works])
        more = ends.size - 1
        period = (ends[-1] - ends[0]) * (1 + 1 / more) if more else ends[0] - start.min()
        longest = max(longest, float(period))
        latency = max(latency, int(ends[0]))
    return max(round(longest), latency if feeds_back else 0)
