"""Ranks that do nearly the same as one program, and between what times of one rank the job lies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.folded.folded_trace import NodeTimes, own_times, with_own_times
from nadi.recordings.folded.repeats import RankClasses
from nadi.recordings.rank_spread import communicating, counts_of_names, nearly_alike, parts_between
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Trace

_MESSAGES = ["COMM_SEND", "COMM_RECV"]


class _Parts(NamedTuple):
    """What a rank takes between two meetings, on the host and on devices."""

    part: Ints  # int64, shape (nodes,): even for the host, odd for devices; -1 for meetings
    sums: Floats  # float64 ns, shape (2 * parts,)


def with_one_program(traces: Sequence[Trace]) -> tuple[Trace, ...] | None:
    """Return traces in which ranks that do nearly the same have the operations of the lowest one.

    They take part in the same collectives in one order, and send no messages. Between two meetings
    the operations take together what those of the rank took, on the host and on devices.

    - Returns None if there are no such ranks. O(nodes).
    """
    found = list(traces)
    alike = nearly_alike(
        counts_of_names(traces), [int(communicating(trace.nodes).sum()) for trace in traces]
    )
    meetings = [_meetings(trace) for trace in traces]
    for rank, lowest in enumerate(alike.tolist()):
        listed = meetings[lowest]
        if rank != lowest and listed is not None and listed.equals(meetings[rank]):
            found[rank] = _as_program(traces[rank], traces[lowest])
    is_other = any(one is not other for one, other in zip(found, traces, strict=True))
    return tuple(found) if is_other else None


def _meetings(trace: Trace) -> pl.DataFrame | None:
    """Return the collectives of a rank in their order; None if it sends messages or has none."""
    nodes = trace.nodes.select("kind", "comm_type", "group").filter(
        pl.Series(communicating(trace.nodes))
    )
    return None if nodes["kind"].is_in(_MESSAGES).any() or not nodes.height else nodes


def _as_program(trace: Trace, lowest: Trace) -> Trace:
    """Return a rank with the operations of another one that take as long as its own."""
    if trace is lowest or trace.groups.height != lowest.groups.height:
        return trace
    own, other = _parts(trace), _parts(lowest)
    factor = np.divide(own.sums, other.sums, out=np.ones_like(own.sums), where=other.sums > 0)
    taken = own_times(lowest.nodes).copy()
    moves = (other.part >= 0) & (taken > 0)
    taken[moves] = np.rint(taken[moves] * factor[other.part[moves]])
    taken[communicating(lowest.nodes)] = own_times(trace.nodes)[communicating(trace.nodes)]
    return replace(
        lowest, nodes=with_own_times(lowest.nodes, taken), groups=trace.groups, rank=trace.rank,
        process=trace.process, issues=trace.issues,
    )  # fmt: skip


def _parts(trace: Trace) -> _Parts:
    meets = communicating(trace.nodes)
    part = 2 * parts_between(meets, meets.size) + ~trace.nodes["is_cpu"].to_numpy()
    taken = np.where(meets, 0, np.maximum(own_times(trace.nodes), 0)).astype(np.float64)
    sums: Floats = np.zeros(2 * (int(meets.sum()) + 1))
    np.add.at(sums, part, taken)
    return _Parts(np.where(meets, -1, part), sums)


def within_bounds(classes: RankClasses, times: Mapping[int, NodeTimes]) -> dict[int, NodeTimes]:
    """Let least and largest times be those between which a job of all ranks is likely to be.

    At least, all ranks are as the slowest one of a single class, or else as the mean of each. With
    a fixed order of operations the step is a longest path: no shorter than that of one rank, and,
    as a maximum of sums, no shorter than that of mean times. At most, all ranks take between two
    meetings what the latest does there. That is no proof, as work of several streams overlaps in
    it.

    - ``times``: Of classes whose ranks took different times. O(ranks * nodes).
    """
    return {number: _bounded(classes, number, one) for number, one in times.items()}


def _bounded(classes: RankClasses, number: int, times: NodeTimes) -> NodeTimes:
    ranks = np.flatnonzero(classes.of == number).tolist()
    first = classes.traces[ranks[0]]
    meets = communicating(first.nodes)
    part = parts_between(meets, meets.size)
    mean = np.zeros(meets.size)
    most = np.zeros(int(part[-1]) + 1)
    slowest, longest = times.typical, -1
    for rank in ranks:
        own = np.maximum(own_times(classes.traces[rank].nodes), 0)
        mean += own / len(ranks)
        np.maximum(most, np.bincount(part, np.where(meets, 0, own), most.size), out=most)
        if own[~meets].sum() > longest:
            slowest, longest = own, int(own[~meets].sum())
    usual = np.bincount(part, np.where(meets, 0.0, mean), most.size)
    factor = np.divide(most, usual, out=np.ones_like(usual), where=usual > 0)
    varies = (times.low != times.high) & (times.low >= 0)
    low = slowest if classes.first.size == 1 else np.floor(mean)
    high = np.where(meets, times.high, np.ceil(mean * factor[part]))
    return NodeTimes(
        times.typical, np.where(varies, low, times.low).astype(np.int64),
        np.where(varies, high, times.high).astype(np.int64),
    )  # fmt: skip
