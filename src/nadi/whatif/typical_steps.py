"""A job whose steps are all typical: each operation takes the median of its times over steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
import polars as pl

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.windows import MARK, Window, operations_of_step
from nadi.trace.arrays import Ints, text_codes
from nadi.trace.trace import Trace

__all__ = ["FEWEST_STEPS", "with_typical_steps", "without_recording_costs"]

FEWEST_STEPS = 3
"""A median of fewer values is their mean."""

_SAME = ("trace", "thread", "kind", "vertex", "source")


def with_typical_steps(graph: EventGraph, steps: Sequence[Window]) -> EventGraph:
    """Return the graph with the typical time of each operation, gap and overhead.

    What a thread waits for the processor, or a machine is slow for, is in the time of whatever ran
    then. It is seldom the same in most steps, so that the median over steps does not contain it.
    Times are compared over the steps by the names at both ends and by their order. Those that do
    not occur as often in each step stay as recorded.

    Parameters
    ----------
    steps
        Those of one window.

    Returns
    -------
    EventGraph
        The graph itself with fewer than three steps. O(edges log edges).
    """
    if len(steps) < FEWEST_STEPS:
        return graph
    step_of = np.append(_steps_of(graph, steps), -1)  # the last is none
    vertex, source = graph.destinations, graph.in_src
    into, out_of = (np.minimum(ends // 2, graph.num_ops) for ends in (vertex, source))
    marks = graph.op_names.str.replace(rf"^{MARK}#\d+$", MARK)  # each step has another number
    name = np.append(text_codes(marks), -1)
    thread = np.append(graph.numbers("thread"), -1)
    trace = np.append(graph.op_trace, -1)
    times = pl.DataFrame({
        "edge": np.arange(graph.num_edges), "step": step_of[into], "at": graph.time[vertex],
        "trace": trace[into], "thread": thread[into], "kind": graph.edge_kind,
        "vertex": 2 * name[into] + vertex % 2,
        "source": 2 * name[out_of] + source % 2,
        "weight": graph.weight,
    }).filter(pl.col("step") >= 0)  # fmt: skip
    times = times.sort("at", "edge").with_columns(
        pl.int_range(pl.len()).over(*_SAME, "step").alias("place")
    )
    alike = times.with_columns(pl.len().over(*_SAME, "place").alias("count")).filter(
        (pl.col("count") == len(steps)).all().over(*_SAME)
    )
    typical = alike.select("edge", pl.col("weight").median().over(*_SAME, "place"))
    weight = graph.weight.copy()
    weight[typical["edge"].to_numpy()] = np.rint(typical["weight"].to_numpy()).astype(np.int64)
    return graph.with_weights(weight)


def without_recording_costs(graph: EventGraph, steps: Sequence[Window]) -> EventGraph:
    """Return the graph as if each operator of a rank cost the recorder the same time.

    That is what the steps of the rank take longer than those without a recorder, which its
    recording states, divided by its operators. The recorder works before an operator begins and
    after it has ended, so the time is taken from what lies between operators, as far as it goes.

    Returns
    -------
    EventGraph
        The graph itself if no rank states what recording costs. O(edges).
    """
    op, kind = graph.num_ops, graph.edge_kind
    ends = np.stack([graph.destinations, graph.in_src])
    into, out_of = np.minimum(ends // 2, op)
    between = np.isin(kind, (EdgeKind.HOST_OP, EdgeKind.HOST_GAP)) & (into != out_of)
    trace = np.append(graph.op_trace, -1)
    in_step = np.append(_steps_of(graph, steps) >= 0, False)
    costs = np.zeros(graph.num_edges)
    for number, one in enumerate(graph.job.traces):
        longer = _longer(one)
        mine = between & (trace[into] == number)
        begun = mine & in_step[into] & (ends[0] % 2 == 0)
        if longer > 0 and begun.any():
            sides = (ends[0] % 2 == 0).astype(np.int64) + (ends[1] % 2 == 1)
            costs[mine] = (longer * len(steps) / (2 * begun.sum()) * sides)[mine]
    if not costs.any():
        return graph
    return graph.with_weights(
        graph.weight - np.minimum(np.rint(costs).astype(np.int64), graph.weight)
    )


def _longer(trace: Trace) -> float:
    """Return how much longer the recorded steps took than those without a recorder; ns."""
    lengths = trace.step_lengths
    if lengths is None or not lengths.timed_ns or not lengths.unrecorded_ns:
        return 0.0
    return median(lengths.timed_ns) - median(lengths.unrecorded_ns)


def _steps_of(graph: EventGraph, steps: Sequence[Window]) -> Ints:
    """Return the number of the step that each operation belongs to, or -1."""
    step_of = np.full(graph.num_ops, -1, dtype=np.int64)
    for number, step in enumerate(steps):
        step_of[operations_of_step(graph, list(steps), step)] = number
    return step_of
