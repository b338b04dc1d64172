"""A job whose steps are all typical: each operation takes the median of its times over steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window, operations_of_step
from nadi.model.arrays import text_codes

__all__ = ["FEWEST_STEPS", "with_typical_steps"]

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
    step_of = np.full(graph.num_ops + 1, -1, dtype=np.int32)  # the last is none
    for number, step in enumerate(steps):
        step_of[:-1][operations_of_step(graph, list(steps), step)] = number
    vertex, source = graph.destinations, graph.in_src
    into, out_of = (np.minimum(ends // 2, graph.num_ops) for ends in (vertex, source))
    name = np.append(text_codes(graph.op_names), -1)
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
