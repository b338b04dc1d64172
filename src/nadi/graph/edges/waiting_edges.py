"""Edges within one rank: launches, streams, events, waiting calls, hand-overs."""

from __future__ import annotations

import numpy as np

from nadi.graph.edges.edge_list import Limits, make_limits
from nadi.graph.edges.loader_edges import loader_edges
from nadi.graph.edges.rank_vertices import RankOps
from nadi.graph.event_graph import EdgeKind, Edges, make_edges
from nadi.graph.overheads import LAUNCH_CLASSES, MEASURED_WAITS, WAIT_CLASSES, Overheads, TraceDeps
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK

__all__ = ["device_edges", "waiting_edges"]

_GLOO, _HAND_OVER = (WAIT_CLASSES.index(name) for name in ("gloo", "hand-over"))
_BY_CALL = [LAUNCH_CLASSES.index(name) for name in ("device", "staged copy", "idle device")]


def waiting_edges(
    rank: RankOps, deps: TraceDeps, overheads: Overheads
) -> tuple[list[Edges], list[Limits]]:
    """Return the edges of all dependencies of a rank, except for program order on threads.

    ``deps`` are the dependencies of the rank's trace.

    Returns
    -------
    list of Edges, list of Limits
        O(deps log deps).
    """
    launches, launched = _launch_edges(rank, deps, overheads)
    syncs, returned = _sync_edges(rank, deps, overheads)
    hand_overs, taken_over = _hand_over_edges(rank, deps, overheads)
    events = _event_edges(rank, deps, overheads)
    loads, loaded = loader_edges(rank)
    edges = [launches, _stream_edges(rank, deps, overheads), events, syncs, hand_overs, loads]
    return edges, [launched, returned, taken_over, loaded]


def device_edges(rank: RankOps, waits_for_others: Ints) -> Edges:
    """Return the edges from start to end of device work, except for collectives between ranks."""
    row = np.flatnonzero(rank.trace.category_mask(*DEVICE_WORK))
    op = rank.op_of_row[row]
    others = ~np.isin(op, waits_for_others)
    row, op = row[others], op[others]
    is_comm = (rank.trace.nodes["comm_type"].gather(row) != "none").to_numpy()
    kind = np.where(is_comm, EdgeKind.COMMUNICATION, EdgeKind.KERNEL)
    duration = rank.trace.nodes["duration"].gather(row).to_numpy()
    return make_edges(2 * op, 2 * op + 1, duration, kind, op)


def _launch_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> tuple[Edges, Limits]:
    """Make device work depend on the end of its launch, or on the start if it starts sooner.

    Work that starts within its call, on an idle stream, starts when the call has progressed far
    enough: all of this time is the call's own.
    """
    src, dst = deps.of("launch")
    caller, call_start, call_end = rank.times(src)
    op, start, _ = rank.times(dst)
    kind = deps.launch_class
    on_thread = deps.is_host(dst)
    # work of other threads is issued at the start of a call, not at its end
    from_end = (start >= call_end) & ~on_thread
    by_call = np.isin(kind, _BY_CALL) & (deps.ready[dst] <= deps.start[src])
    after_start = np.where(by_call, start - call_start, overheads.launch_after_start[kind])
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


def _sync_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> tuple[Edges, Limits]:
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


def _hand_over_edges(rank: RankOps, deps: TraceDeps, overheads: Overheads) -> tuple[Edges, Limits]:
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
