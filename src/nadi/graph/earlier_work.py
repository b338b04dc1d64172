"""Device work that began before the recording: it is not in it, and holds up what is."""

from __future__ import annotations

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.kernels.sequences import union_length
from nadi.trace.schema import DEVICE_WORK

__all__ = ["end_of_earlier_work"]

_LEAST = 0.1  # of the time that is analysed: less does not change what bounds it
_SHORTEST_NS = 200_000  # an idle device may take nearly that long to start


def end_of_earlier_work(graph: EventGraph, begin: int, end: int) -> int:
    """Find the moment when devices had ended what they did before the recording began.

    A stream is busy with such work until its first recorded work starts, if that could have
    started long before: a tenth of the time that is analysed, and 200 us; and if its device seems
    to do nothing meanwhile.

    Parameters
    ----------
    begin, end
        The time that is analysed, ns since the job's origin.

    Returns
    -------
    int
        The vertex where the last such stream starts its first recorded work; -1 without one.
        O(ops).
    """
    work = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    start, device = graph.time[2 * work], graph.numbers("device", work)
    order = np.lexsort((start, graph.op_stream[work], device, graph.op_trace[work]))
    work, device = work[order], device[order]
    places = np.stack([graph.op_trace[work], device, graph.op_stream[work]])
    first = np.append(True, (np.diff(places) != 0).any(axis=0))[: work.size]
    vertex = 2 * work[first]
    since, until = graph.time[vertex] - graph.delay[vertex], graph.time[vertex]
    late = until - since >= max(_LEAST * (end - begin), _SHORTEST_NS)
    late &= (since >= begin) & (until < end)
    late &= np.diff(graph.in_ptr)[vertex] > 0
    found = -1
    for v in vertex[late][np.argsort(until[late])].tolist():
        same = (graph.op_trace[work] == graph.op_trace[v // 2]) & (device == device[work == v // 2])
        times = (graph.time[2 * work[same] + side] for side in (0, 1))
        low, high = graph.time[v] - graph.delay[v], graph.time[v]
        if union_length(*(np.clip(t, low, high) for t in times)) <= _LEAST * graph.delay[v]:
            found = v
    return found
