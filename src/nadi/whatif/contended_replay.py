"""Kernels of a changed job are as fast as the communication that runs beside them then allows."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nadi.graph.contention import PUBLISHED, beside_communication, learn_contention
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import replay_graph, replayed_as, times_with
from nadi.trace.arrays import Floats, Ints
from nadi.trace.rows import number_rows

_UNKNOWN: WeakKeyDictionary[EventGraph, tuple[int, int, int]] = WeakKeyDictionary()
MOST_ROUNDS = 8
"""Replays or simulations of one change, each with the overlap of the one before."""
_MOST_STEPS = 64  # towards the end of a kernel: each brings it closer by 1 - 1 / ratio


class SlowedKernels(NamedTuple):
    """The kernels whose time depends on communication beside them."""

    # float64, shape (kernels,): the part of time beside communication that is lost, 1 - 1 / ratio
    slowed: Floats
    # device, talking, device_of_talking: int64: a number of the device of each kernel; all
    # communication on devices as operations whose start and end are vertices ``2 * op`` and ``2 *
    # op + 1``, and their devices
    device: Ints
    talking: Ints
    device_of_talking: Ints

    def beside(self, time: Ints, start: Ints, end: Ints) -> Ints:
        """Return for how long communication runs in each interval, one for each kernel; ns."""
        ends = time[2 * self.talking], time[2 * self.talking + 1]
        return beside_communication((*ends, self.device_of_talking), (start, end, self.device))

    def lengths(self, time: Ints, begin: Ints, work: Floats, length: Ints) -> Ints:
        """Return how long kernels take that begin at given times; ns.

        - ``time``: int64 ns, shape (vertices,): when communication runs.
        - ``begin``, ``work``, ``length``: When each kernel begins, its time without communication,
          and a first guess.
        """
        for _ in range(_MOST_STEPS):
            lost = self.slowed * self.beside(time, begin, begin + length)
            longer = np.rint(work + lost).astype(np.int64)
            if (longer == length).all():
                break
            length = longer
        return length


class _Edges(NamedTuple):
    """The edges that are the time of kernels up to their ends: int64, the kernel and the edge."""

    op: Ints
    edge: Ints
    kernels: SlowedKernels


_EDGES: WeakKeyDictionary[EventGraph, dict[tuple[int, float], _Edges | None]] = WeakKeyDictionary()


def contended(
    before: EventGraph, after: EventGraph, since: int = 0, unknown: float = PUBLISHED[0]
) -> EventGraph:
    """Return a changed graph whose kernels are slowed by the communication beside them then.

    A kernel does its work at full speed while no communication runs on its device, and by its
    learned ratio slower while any does (:func:`nadi.graph.contention.learn_contention`). So what
    loses communication gets shorter, and what gets some takes longer, in proportion to the
    overlap. The replay says what overlaps, and is repeated until that stays the same, eight times
    at most.

    - ``before``: The job as measured, whose times contain the overlap of its replay.
    - ``after``: The same job after changes.
    - ``since``: ns since the origin of the job: kernels that began before stay.
    - ``unknown``: The ratio of kernels whose ratio is not known.
    - Returns: ``after`` itself where nothing overlaps otherwise than before. O(vertices + edges)
      for each replay; O(traces) if the recording tells of no ratio.
    """
    if after is before:
        return after
    # changes of times alone share their arrays of edges with the graph before
    edges = _edges(before if after.in_ptr is before.in_ptr else after, since, unknown)
    if edges is None:
        return after
    kernels = edges.kernels
    # what a kernel does without communication, as measured, and after the change in proportion
    time = replay_graph(before).time
    measured = _weights(before, edges)
    end = time[2 * edges.op + 1]
    work = measured - kernels.slowed * kernels.beside(time, end - measured, end)
    changed = lasts = after.weight[edges.edge]
    work = np.where(measured > 0, work * (changed / np.maximum(measured, 1)), changed)
    weight = after.weight
    for _ in range(MOST_ROUNDS):
        # a graph for each round would keep its weights and times until all rounds are done
        time = times_with(after, weight)
        length = kernels.lengths(time, time[2 * edges.op + 1] - lasts, work, lasts)
        if (length == lasts).all():
            found = after if weight is after.weight else after.with_weights(weight)
            return replayed_as(found, time)
        if weight is after.weight:
            weight = weight.copy()
        weight[edges.edge] = lasts = length
    return after.with_weights(weight)


def _edges(graph: EventGraph, since: int, unknown: float) -> _Edges | None:
    """Return what communication slows; None if no ratio is known, or no kernel is left.

    It is kept with the graph.
    """
    kept = _EDGES.setdefault(graph, {})
    if (since, unknown) not in kept:
        kept[since, unknown] = _found_edges(graph, since, unknown)
    return kept[since, unknown]


def _found_edges(graph: EventGraph, since: int, unknown: float) -> _Edges | None:
    known = learn_contention(graph.job)
    if not known.kernels.height or (unknown == PUBLISHED[0] and not known.is_known):
        return None
    ratio = np.ones(graph.num_ops)
    for number, (trace, runs) in enumerate(zip(graph.job.traces, known.runs, strict=True)):
        mine = graph.ops_of_trace(number)
        ratio[mine] = runs.of_nodes(trace.nodes.height)[0][graph.op_row[mine]]
    ratio[np.isnan(ratio)] = unknown
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.KERNEL)
    op = graph.edge_op[edges]
    own = (graph.destinations[edges] == 2 * op + 1) & (ratio[op] > 1)
    own &= graph.time[2 * op] >= since
    edges, op = edges[own], op[own]
    if not op.size:
        return None
    category = (graph.gather("category") == "kernel").to_numpy()
    talking = np.flatnonzero(category & (graph.gather("comm_type") != "none").to_numpy())
    device = graph.numbers("device")
    both = np.append(op, talking)
    of_both, _ = number_rows([graph.op_trace[both], device[both]])
    split = op.size
    kernels = SlowedKernels(1 - 1 / ratio[op], of_both[:split], talking, of_both[split:])
    return _Edges(op, edges, kernels)


def _weights(graph: EventGraph, edges: _Edges) -> Ints:
    """Return the measured time of kernels in a graph whose edges may stand elsewhere."""
    every = np.flatnonzero(graph.edge_kind == EdgeKind.KERNEL)
    op = graph.edge_op[every]
    own = graph.destinations[every] == 2 * op + 1
    found = np.zeros(graph.num_ops, dtype=np.int64)
    found[op[own]] = graph.weight[every[own]]
    return found[edges.op]


def unknown_beside_ns(graph: EventGraph, since: int, end: int) -> int:
    """Return the time beside communication of kernels whose ratio is unknown; ns.

    - ``since``, ``end``: ns since the origin of the job: of kernels that begin between.
    """
    if graph not in _UNKNOWN or _UNKNOWN[graph][:2] != (since, end):
        _UNKNOWN[graph] = since, end, _unknown_beside_ns(graph, since, end)
    return _UNKNOWN[graph][2]


def _unknown_beside_ns(graph: EventGraph, since: int, end: int) -> int:
    edges = _edges(graph, since, PUBLISHED[2])
    if edges is None:
        return 0
    known = learn_contention(graph.job)
    unknown = 0
    for op in np.unique(edges.op[graph.time[2 * edges.op] < end]).tolist():
        runs = known.runs[graph.op_trace[op]]
        at = np.searchsorted(runs.rows, graph.op_row[op])
        if np.isnan(runs.ratio[at]):
            unknown += int(runs.beside[at])
    return unknown
