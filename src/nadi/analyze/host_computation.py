"""When the threads of a rank without a device compute."""

from __future__ import annotations

import numpy as np

from nadi.link.dependencies.launch_correlation import communication_calls
from nadi.link.dependencies.operator_nesting import nest
from nadi.model.arrays import Ints
from nadi.model.schema import COMMUNICATION_KINDS
from nadi.model.trace import Trace

__all__ = ["host_computation"]


def host_computation(trace: Trace) -> tuple[Ints, Ints]:
    """Find the intervals in which an operator is the innermost on its thread.

    Operators that ask for communication or wait for it do not compute, nor does anything nested in
    communication.

    Returns
    -------
    begin, end
        int64, shape (intervals,): borders, ``2 * row`` for the start of a node and ``2 * row + 1``
        for its end. O(nodes log nodes).
    """
    inside = trace.nodes["kind"].is_in(COMMUNICATION_KINDS).to_numpy() | communication_calls(trace)
    parent = trace.column("parent")
    nested = parent >= 0
    while ((wider := inside | (nested & inside[parent])) != inside).any():
        inside = wider
    nesting = nest(trace, left_out=~trace.category_mask("operator"))
    border = 2 * nesting.rows[nesting.boundary // 2] + nesting.boundary % 2
    at = np.flatnonzero(nesting.owner >= 0)
    at = at[~inside[nesting.rows[nesting.owner[at]]]]
    return border[at - 1], border[at]
