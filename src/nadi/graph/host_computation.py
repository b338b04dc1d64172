"""When the threads of a rank without a device compute."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import COMMUNICATION_KINDS
from nadi.trace.trace import Trace

__all__ = ["host_computation"]


def host_computation(trace: Trace, communicates: Bools) -> tuple[Ints, Ints]:
    """Find the intervals in which an operator is the innermost on its thread.

    What communicates does not compute, nor does an operator in which its thread waits for
    communication of another thread.

    Parameters
    ----------
    communicates
        bool, shape (nodes,): communication, what asks for it or waits for it, and all in these.

    Returns
    -------
    begin, end
        int64, shape (intervals,): borders, ``2 * row`` for the start of a node and ``2 * row + 1``
        for its end. O(nodes log nodes).
    """
    nesting = nest(trace, left_out=~trace.category_mask("operator"))
    border = 2 * nesting.rows[nesting.boundary // 2] + nesting.boundary % 2
    at = np.flatnonzero(nesting.owner >= 0)
    own = ~communicates[nesting.rows[nesting.owner[at]]]
    at = at[own & ~np.isin(border[at], _ends_of_waits(trace))]
    return border[at - 1], border[at]


def _ends_of_waits(trace: Trace) -> Ints:
    """Return the borders at which a thread has waited for communication of another thread."""
    waits = trace.deps.filter(pl.col("inferred") & pl.col("kind").is_in(["sync", "thread"]))
    awaited, row = waits["src"].to_numpy(), waits["dst"].to_numpy()
    on_host = (trace.nodes["is_cpu"] & trace.nodes["kind"].is_in(COMMUNICATION_KINDS)).to_numpy()
    at_end = (waits["kind"] == "sync").to_numpy()
    found: Ints = (2 * row + at_end)[on_host[awaited]]
    return found
