"""How long a step of inference takes once the stages of its pipeline are full."""

from __future__ import annotations

import numpy as np

from nadi.errors import checked
from nadi.simulation.simulation import Simulation
from nadi.trace.schema import NODE_KINDS

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
