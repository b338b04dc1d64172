"""Exposed communication: time in which a rank communicates and does not compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.analyze.host_computation import host_computation
from nadi.errors import checked
from nadi.kernels.intervals import union_length
from nadi.model.arrays import Bools, Ints
from nadi.model.schema import COMMUNICATION_KINDS, DEVICE_WORK
from nadi.model.trace import Job, Trace

__all__ = ["RankCommunication", "communication_by_rank"]

_Intervals = tuple[Ints, Ints]


@dataclass(frozen=True)
class RankCommunication:
    """Communication time of a rank in ns, and the part of it that no computation overlaps."""

    rank: int
    communication: int
    exposed: int


@checked
def communication_by_rank(job: Job, start: int, end: int) -> list[RankCommunication]:
    """Compute the communication time of each rank in ``[start, end)``, ns since the job's origin.

    On a rank with a device, computation is any of its kernels that do not communicate
    (copies and sets do not compute); on a rank without, the self time of operators on any
    thread, except for those that ask for communication or wait for it. O(nodes log nodes).
    """
    low, high = start + job.origin, end + job.origin
    return [_measure(trace, low, high) for trace in job.traces]


def _measure(trace: Trace, low: int, high: int) -> RankCommunication:
    is_comm = trace.nodes["kind"].is_in(COMMUNICATION_KINDS).to_numpy()
    comm = _cut(*_times(trace, np.flatnonzero(is_comm)), low, high)
    compute = _cut(*_computation(trace, is_comm), low, high)
    busy = union_length(*comm)
    either = union_length(np.append(comm[0], compute[0]), np.append(comm[1], compute[1]))
    return RankCommunication(trace.rank, busy, either - union_length(*compute))


def _computation(trace: Trace, is_comm: Bools) -> _Intervals:
    if trace.category_mask(*DEVICE_WORK).any():
        return _times(trace, np.flatnonzero(trace.category_mask("kernel") & ~is_comm))
    start = trace.column("start")
    time = np.column_stack((start, start + trace.column("duration"))).ravel()
    begin, end = host_computation(trace)
    return time[begin], time[end]


def _times(trace: Trace, rows: Ints) -> _Intervals:
    start = trace.column("start")[rows]
    return start, start + trace.column("duration")[rows]


def _cut(start: Ints, end: Ints, low: int, high: int) -> _Intervals:
    start, end = np.maximum(start, low), np.minimum(end, high)
    inside = end > start
    return start[inside], end[inside]
