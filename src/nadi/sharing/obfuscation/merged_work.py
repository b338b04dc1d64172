"""Level ``structure``: computation becomes blocks between cuts, communication is merged at cuts.

The order that it keeps is that of a job whose communication takes no time. Every new dependency
points forward in the order of cuts, which is one order for all ranks, so that the new job cannot
deadlock. The original schedule obeys all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.simulation.accounts.collective_accounts import meetings_of, messages_of_nodes
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEPS, ISSUES, NODE_KINDS, NODES
from nadi.trace.trace import Job, Provenance, Trace
from nadi.version import __version__

_FASTEST = 1e9  # bytes per ns
_HOST, _DEVICE = 0, 1  # lanes of work that states neither thread nor stream
_COMPUTES = NODE_KINDS.index("COMP")
_COLLECTIVE = NODE_KINDS.index("COMM_COLL")


class RankWork(NamedTuple):
    """The nodes of a rank in order of id, when communication takes no time."""

    trace: Trace  # of the rank, or that it shares
    row: Ints  # int64, shape (nodes,): their rows in it
    # computes, collective: bool, shape (nodes,): which compute, and which are collectives; others
    # are messages
    computes: Bools
    collective: Bools
    lane: Ints  # int64, shape (nodes,): what they run on, one after the other, counted from 0
    # start, end: int64 ns, shape (nodes,): of communication, ``end`` is when all of its members are
    # there
    start: Ints
    end: Ints
    # int64, shape (nodes,): the same number for all members of a communication; -1 for others
    meeting: Ints
    # src, dst: int64, shape (dependencies,): positions of nodes, with the order of lanes
    src: Ints
    dst: Ints


def free_schedule(job: Job) -> Simulation:
    """Simulate a job on a system whose communication takes no time.

    - Raises NadiError if it cannot be simulated.
    """
    collectives = Collectives(endpoint_delay=0, group_endpoint_delay=0)
    dimension = Dimension("switch", len(job.traces), _FASTEST)
    return simulate_job(job, System(Network((dimension,)), collectives=collectives))


def works_of(job: Job, done: Simulation) -> list[RankWork]:
    """Return the work of each rank; ranks that share a trace and are alike share one, too.

    O(nodes log nodes).
    """
    program = done.program
    meeting = np.full(program.num_nodes, -1, dtype=np.int64)
    node, number = meetings_of(done)
    messages = messages_of_nodes(done)
    meeting[node] = number
    first = int(number.max(initial=-1)) + 1
    meeting[messages.send] = first + np.arange(messages.send.size)
    meeting[messages.receive] = first + np.arange(messages.send.size)
    there = np.zeros(first, dtype=np.int64)
    np.maximum.at(there, number, done.end[node])
    end = done.end.copy()
    end[node] = there[number]
    found: dict[tuple[int, int], RankWork] = {}
    for rank, like in enumerate(done.like.tolist()):
        trace = job.traces[rank]
        if (id(trace), like) not in found:
            found[id(trace), like] = _work(trace, done, like, meeting, end)
    return [found[id(job.traces[rank]), like] for rank, like in enumerate(done.like.tolist())]


def _work(trace: Trace, done: Simulation, like: int, meeting: Ints, end: Ints) -> RankWork:
    program = done.program
    first, last = int(program.first[like]), int(program.first[like + 1])
    own = slice(first, last)
    ends = program.first_child[first : last + 1]
    kind = program.kind[own]
    lane = np.full(last - first, -1, dtype=np.int64)
    if program.lane is not None:
        lane = program.lane[own].copy()
    without = lane < 0
    lane[~without] += _DEVICE + 1
    lane[without] = np.where(program.is_cpu[own][without], _HOST, _DEVICE)
    return RankWork(
        trace=trace,
        row=program.row[own],
        computes=kind == _COMPUTES,
        collective=kind == _COLLECTIVE,
        lane=np.unique(lane, return_inverse=True)[1],
        start=done.start[own],
        end=end[own],
        meeting=meeting[own],
        src=np.repeat(np.arange(last - first), np.diff(ends)),
        dst=program.children[ends[0] : ends[-1]] - first,
    )


_BLOCK = "block"
_MOST_SPLIT = 3
_STEPS = 4  # at a place: a block, collectives without and with slack, and messages
_COLUMNS = {
    "kind": "COMP", "comm_type": "none", "group": -1, "src": -1, "dst": -1, "tag": -1,
    "is_async": -1,
}  # fmt: skip
"""What communication keeps, and what blocks have instead."""


class Cuts(NamedTuple):
    """Where the work of a rank is cut: interval i lies between cut i and cut i + 1."""

    # first, last: int64, shape (nodes,): the intervals in which a computation begins and ends
    first: Ints
    last: Ints
    at: Ints  # int64, shape (nodes,): the cut at which a communication stands
    busy: Ints  # int64 ns, shape (lanes, intervals): computing time


def time_cuts(work: RankWork, grid: Ints) -> Cuts:
    """Cut at given times, and where messages are sent or received.

    - ``grid``: int64 ns, ascending: from 0 to the end of the last rank; collectives move to the
      next.
    - Returns: O(nodes log nodes).
    """
    message = ~work.computes & ~work.collective
    cuts = np.unique(np.concatenate([grid, work.end[message]]))
    first = np.maximum(np.searchsorted(cuts, work.start, side="right") - 1, 0)
    first = np.minimum(first, cuts.size - 2)
    last = np.maximum(np.searchsorted(cuts, work.end, side="left") - 1, first)
    last = np.minimum(last, cuts.size - 2)
    later = grid[np.minimum(np.searchsorted(grid, work.end), grid.size - 1)]
    at = np.searchsorted(cuts, np.where(work.collective, later, work.end))
    busy = np.zeros((int(work.lane.max(initial=0)) + 1, cuts.size - 1), dtype=np.int64)
    rows = np.flatnonzero(work.computes)
    lengths = (last - first + 1)[rows]
    node = np.repeat(rows, lengths)
    begins = np.cumsum(lengths) - lengths
    interval = first[node] + np.arange(node.size) - np.repeat(begins, lengths)
    part = np.minimum(work.end[node], cuts[interval + 1]) - np.maximum(
        work.start[node], cuts[interval]
    )
    np.add.at(busy, (work.lane[node], interval), np.maximum(part, 0))
    return Cuts(first, last, at, busy)


def slack_of(work: RankWork, grid: Ints) -> Ints:
    """Return how long a rank computes before it needs the result of a collective.

    int64 ns, shape (nodes,): 0 for what is needed at once, and for what is needed only in a later
    interval of the grid, where a dependency says so. O(dependencies).
    """
    src, dst = work.src, work.dst
    needs = work.collective[src] & work.computes[dst]
    needed = np.full(work.row.size, np.iinfo(np.int64).max)
    np.minimum.at(needed, src[needs], work.start[dst[needs]])
    until = grid[np.minimum(np.searchsorted(grid, work.end), grid.size - 1)]
    return np.where(needed <= until, needed - work.end, 0)


class Splits(NamedTuple):
    """Into how many parts of which sizes merged collectives are split."""

    # of a communication and a part, by their numbers: from -1 to 1
    secret: Callable[[int, int], float]
    spread: float  # the largest part is at most exp(2 spread) times the smallest; 0 for equal ones

    def parts(self, meeting: int, count: int) -> list[float]:
        """Return how large the parts are, if there were so many: up to three times as many."""
        if not self.spread:
            return [1.0] * count
        more = 1 + int((self.secret(meeting, -1) + 1) / 2 * _MOST_SPLIT)
        return [math.exp(self.spread * self.secret(meeting, part)) for part in range(count * more)]


EVEN = Splits(lambda meeting, part: 0.0, 0.0)
"""Parts of equal size, and no more than there have to be."""


def merge_work(
    work: RankWork, cuts: Cuts, sizes: Ints, beside: WorkBeside, base: float, splits: Splits = EVEN
) -> Trace:
    """Return the trace of a rank with blocks per lane and interval, and merged collectives.

    Collectives of one group, type and class of slack at one cut become a few. Those without slack
    come after the first block of the interval, and others go on beside a block of their own.

    - ``sizes``: int64 bytes, shape (nodes,): of communication; those of what is merged are added.
    - ``beside``: What each rank computes beside collectives.
    - ``base``: The number of collectives of each group and type becomes a power of it; with
      infinity each merged one is one.
    - ``splits``: Into what parts these are split.
    - Returns: O(nodes log nodes).
    """
    blocks, (merged, comm_of) = _blocks(work, cuts, beside), _merged(work, cuts, beside)
    chosen = np.flatnonzero(comm_of >= 0)
    size = np.zeros(merged.size, dtype=np.int64)
    np.add.at(size, comm_of[chosen], np.maximum(sizes[chosen], 0))
    step = _step_of(work, cuts, beside)[merged]
    count = _counts(work, merged, np.bincount(comm_of[chosen], minlength=merged.size), step, base)
    first = np.full(merged.size, np.iinfo(np.int64).max)
    np.minimum.at(first, comm_of[chosen], work.meeting[chosen])  # the same for all members
    size, count = _split(size, count, first, work.collective[merged], splits)
    begin = np.cumsum(count) - count
    part = np.arange(int(count.sum())) - np.repeat(begin, count)
    lead = blocks.lane.size + begin  # of each, the first and the last in a chain
    first_of, last_of = (
        np.where(comm_of >= 0, ends[np.maximum(comm_of, 0)], -1) if merged.size else comm_of
        for ends in (lead, lead + count - 1)
    )
    merged, step = np.repeat(merged, count), np.repeat(step, count)
    order = np.lexsort((
        np.concatenate([blocks.lane, np.arange(merged.size)]),
        np.concatenate([_STEPS * blocks.place, step]),
    ))  # fmt: skip
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    src, dst = _dependencies(work, cuts, blocks, (first_of, last_of), beside)
    in_lane = np.lexsort((blocks.place, blocks.lane))
    chain = np.flatnonzero(np.diff(blocks.lane[in_lane]) == 0)
    later = blocks.lane.size + np.flatnonzero(part > 0)
    src = place[np.concatenate([src, in_lane[chain], later - 1])]
    dst = place[np.concatenate([dst, in_lane[chain + 1], later])]
    return Trace(
        nodes=_nodes(work, blocks, (merged, size), order), deps=_deps(src, dst, order.size),
        groups=work.trace.groups, issues=ISSUES.empty(), provenance=Provenance(__version__, ()),
        rank=work.trace.rank, world_size=work.trace.world_size,
    )  # fmt: skip


def _split(
    size: Ints, count: Ints, first: Ints, is_collective: Bools, splits: Splits
) -> tuple[Ints, Ints]:
    """Return the sizes of all parts, and how many parts each merged communication has."""
    sizes: list[Ints] = []
    counts = count.copy()
    for number in range(size.size):
        own = splits.parts(int(first[number]), int(count[number])) if is_collective[number] else [1]
        ends = np.cumsum([0.0, *own])
        sizes.append(np.diff(np.rint(size[number] * (ends / ends[-1])).astype(np.int64)))
        counts[number] = len(own)
    return np.concatenate(sizes) if sizes else size, counts


def _deps(src: Ints, dst: Ints, size: int) -> pl.DataFrame:
    """Return dependencies, each once; others lie within one cut, where ids give the order."""
    kept = src < dst
    pairs = np.unique(src[kept] * size + dst[kept])
    columns = {"src": pairs // size, "dst": pairs % size, "kind": "data"}
    return DEPS.build(pairs.size, columns)


def _counts(work: RankWork, merged: Ints, number: Ints, step: Ints, base: float) -> Ints:
    """Return how many collectives each merged one becomes; int64, shape (merged,)."""
    count = np.ones(merged.size, dtype=np.int64)
    nodes = work.trace.nodes[work.row[merged]]
    group = nodes["group"].to_numpy()
    kind = nodes["comm_type"].to_physical().to_numpy().astype(np.int64)
    if base == np.inf:
        return count
    rows = np.flatnonzero(work.collective[merged])
    rows = rows[np.lexsort((step[rows], kind[rows], group[rows]))]
    other = (np.diff(group[rows], prepend=-2) != 0) | (np.diff(kind[rows], prepend=-2) != 0)
    for own in np.split(rows, np.flatnonzero(other)[1:]) if rows.size else ():
        total = int(number[own].sum())
        wanted = base ** round(math.log(total, base))
        passed = np.rint(np.cumsum(number[own]) * (wanted / total)).astype(np.int64)
        count[own] = np.maximum(np.diff(passed, prepend=0), 1)
    return count


class WorkBeside(NamedTuple):
    """What is computed beside collectives, by class: similar slack is of one class."""

    # int64 ns, shape (nodes,): as ``slack_of``, the same on all members of a collective
    slack: Ints
    of: Ints  # int64, shape (nodes,): the class of each collective, 0 without slack
    classes: int  # number of classes, with that without slack


class _Blocks(NamedTuple):
    """Blocks of computation: of each lane and interval one, and one per class beside it."""

    # lane, place, time: int64, shape (blocks,): lane, interval * classes + class, and ns
    lane: Ints
    place: Ints
    time: Ints
    # int64, shape (lanes, intervals * classes): the number of the block there; -1 for none
    at: Ints


def _blocks(work: RankWork, cuts: Cuts, beside: WorkBeside) -> _Blocks:
    lanes, intervals = cuts.busy.shape
    touched = cuts.busy > 0
    rows = np.flatnonzero(work.computes)
    for ends in (cuts.first, cuts.last):
        touched[work.lane[rows], ends[rows]] = True
    time = np.zeros((lanes, intervals, beside.classes), dtype=np.int64)
    src, dst = work.src, work.dst
    waits = work.collective[src] & work.computes[dst] & (beside.of[src] > 0) & (cuts.at[src] > 0)
    pairs = np.unique(np.stack([src[waits], work.lane[dst[waits]]]), axis=1)
    comm, lane = pairs
    np.add.at(time, (lane, cuts.at[comm] - 1, beside.of[comm]), beside.slack[comm])
    taken = time.sum(axis=2)
    share = np.minimum(cuts.busy / np.maximum(taken, 1), 1.0)
    time = (time * share[:, :, None]).astype(np.int64)
    time[:, :, 0] = cuts.busy - time.sum(axis=2)
    exists = time > 0
    exists[:, :, 0] |= touched
    lane, place = np.nonzero(exists.reshape(lanes, -1))
    at = np.full((lanes, intervals * beside.classes), -1, dtype=np.int64)
    at[lane, place] = np.arange(lane.size)
    return _Blocks(lane, place, time.reshape(lanes, -1)[lane, place], at)


def _step_of(work: RankWork, cuts: Cuts, beside: WorkBeside) -> Ints:
    """Return where each communication stands: a number in the order of all ranks."""
    classes = beside.classes
    after = np.where(work.collective, np.maximum(beside.of - 1, 0), classes - 1)
    kind = np.where(work.collective, np.where(beside.of > 0, 2, 1), 3)
    return np.asarray(_STEPS * ((cuts.at - 1) * classes + after) + kind)


def _merged(work: RankWork, cuts: Cuts, beside: WorkBeside) -> tuple[Ints, Ints]:
    """Return a node of each merged communication, and the number of each communication; else -1.

    At one cut, collectives come by class and then as their last one came, which is the same order
    for all members of a group, and then messages in their order.
    """
    rows = np.flatnonzero(~work.computes)
    nodes = work.trace.nodes[work.row[rows]]
    group = nodes["group"].to_numpy()
    kind = nodes["comm_type"].to_physical().to_numpy().astype(np.int64)
    is_message = ~work.collective[rows]
    keys = np.stack([
        _step_of(work, cuts, beside)[rows], np.where(is_message, 0, group),
        np.where(is_message, 0, kind), np.where(is_message, np.arange(rows.size), 0),
    ])  # fmt: skip
    _, first, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    comm_of = np.full(work.row.size, -1, dtype=np.int64)
    last = np.full(first.size, -1, dtype=np.int64)
    np.maximum.at(last, number.ravel(), rows)
    order = np.lexsort((last, keys[0][first]))
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    comm_of[rows] = place[number.ravel()]
    return rows[first[order]], comm_of


def _dependencies(
    work: RankWork, cuts: Cuts, blocks: _Blocks, comm_of: tuple[Ints, Ints], beside: WorkBeside
) -> tuple[Ints, Ints]:
    """Return the new dependencies: between lanes, and between blocks and communication."""
    src, dst, classes = work.src, work.dst, beside.classes
    lanes, places = blocks.at.shape
    number = np.arange(places)
    # the block of a lane at or before each place, and that at or after it; -1 if there is none
    before = np.maximum.accumulate(np.where(blocks.at >= 0, number, -1), axis=1)
    after = np.where(blocks.at >= 0, number, places)[:, ::-1]
    after = np.minimum.accumulate(after, axis=1)[:, ::-1]
    after = np.concatenate([after, np.full((lanes, 1), places)], axis=1)
    from_work, to_work = work.computes[src], work.computes[dst]
    lane, other = work.lane[src], work.lane[dst]
    last = np.where(from_work, (cuts.last[src] + 1) * classes - 1, 0)
    # a collective waits for what is before it, and the blocks of later classes wait for it
    stands = (cuts.at - 1) * classes + np.where(work.collective, beside.of, classes)
    limit = np.where(work.collective, np.maximum(stands - (beside.of > 0), 0), stands)
    of_src = before[lane, np.where(to_work, last, np.clip(np.minimum(last, limit[dst]), 0, None))]
    soonest = np.where(from_work, last + 1, stands[src] + 1)
    soonest = np.where(from_work | work.collective[src], soonest, cuts.at[src] * classes)
    soonest = np.maximum(soonest, np.where(to_work, cuts.first[dst] * classes, 0))
    of_dst = after[other, np.clip(soonest, 0, places)]
    there = (of_src >= 0) | ~from_work
    there &= (of_dst < places) | ~to_work
    there &= ~(from_work & ~to_work & (cuts.at[dst] <= cuts.last[src]))
    there &= ~(from_work & to_work & (lane == other))
    new_src = np.where(from_work, blocks.at[lane, np.maximum(of_src, 0)], comm_of[1][src])
    new_dst = np.where(to_work, blocks.at[other, np.minimum(of_dst, places - 1)], comm_of[0][dst])
    there &= new_src != new_dst
    return new_src[there], new_dst[there]


def _nodes(
    work: RankWork, blocks: _Blocks, communication: tuple[Ints, Ints], order: Ints
) -> pl.DataFrame:
    """Return the new nodes: blocks with their lanes and times, and merged communication."""
    lane, (merged, size) = blocks.lane, communication
    given = work.trace.nodes
    rows = np.flatnonzero(work.computes)
    of_lane = np.zeros(int(work.lane.max(initial=0)) + 1, dtype=np.int64)
    of_lane[work.lane] = work.row  # a lane may only communicate
    of_lane[work.lane[rows]] = work.row[rows]
    row = np.concatenate([of_lane[lane], work.row[merged]])[order]
    is_block = (np.arange(order.size) < lane.size)[order]
    nothing = np.full(order.size, -1, dtype=np.int64)
    comm_bytes = np.concatenate([nothing[: lane.size], size])[order]
    duration = np.concatenate([blocks.time, np.full(merged.size, -1, dtype=np.int64)])[order]
    columns: dict[str, object] = {}
    for name, of_block in _COLUMNS.items():
        column = given[name].gather(row)
        columns[name] = pl.select(
            pl.when(pl.Series(is_block)).then(pl.lit(of_block, column.dtype)).otherwise(column)
        ).to_series()
    for name in ("thread", "stream", "device"):
        columns[name] = given[name].gather(row)
    on_host = given["is_cpu"].gather(row)
    names = pl.select(
        pl.when(pl.Series(is_block)).then(pl.lit(_BLOCK)).otherwise(
            given["comm_type"].gather(row).cast(pl.String)
        )
    ).to_series()  # fmt: skip
    return NODES.build(order.size, columns | {
        "id": np.arange(order.size), "name": names, "duration": duration, "is_cpu": on_host,
        "category": pl.select(
            pl.when(on_host).then(pl.lit("operator")).otherwise(pl.lit("kernel"))
        ).to_series(),
        "comm_bytes": comm_bytes,
    })  # fmt: skip
