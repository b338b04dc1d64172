"""What launched device work in the recording, whatever changes of the graph have moved since."""

from __future__ import annotations

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Ints

__all__ = ["recorded_launchers"]


def recorded_launchers(graph: EventGraph) -> Ints:
    """Return the call that launched each operation in the recording.

    int64, shape (ops,), -1 where none is known. Changes of the graph do not change it.
    """
    launched_by = np.full(graph.num_ops, -1, dtype=np.int64)
    for number, trace in enumerate(graph.job.traces):
        op_of_row = graph.ops_of_rows(number)
        launches = trace.deps.filter(trace.deps["kind"] == "launch")
        call = op_of_row[launches["src"].to_numpy()]
        work = op_of_row[launches["dst"].to_numpy()]
        launched_by[work[work >= 0]] = call[work >= 0]
    return launched_by
