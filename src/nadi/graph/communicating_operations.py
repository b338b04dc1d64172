"""Which time of a graph counts as communication."""

import numpy as np

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK

_ITS_TIME = (
    EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.KERNEL,
    EdgeKind.COMMUNICATION, EdgeKind.SYNC,
)  # fmt: skip


def time_of_communication(graph: EventGraph, edge: Ints) -> tuple[Bools, Bools]:
    """Return which edges are time of communication, and of which the delay after them is, too.

    Communication takes all time from its call until its transfer ends: what the host does in the
    call and its backend in the collective (gloo copies data), and what passes until the transfer
    begins. On a thread that begins when its backend gets to it; a delay on a device has a cause
    that is not known.

    - ``edge``: int64: positions of edges.
    - Returns two of bool, shape of ``edge``. O(edges + ops * depth).
    """
    op, kind = graph.edge_op[edge], graph.edge_kind[edge]
    is_time: Bools = (op >= 0) & np.isin(kind, _ITS_TIME)
    is_time &= graph.communicates[np.maximum(op, 0)]
    begins = np.flatnonzero(is_time & (kind == EdgeKind.LAUNCH))
    on_thread = ~graph.gather("category", op[begins]).is_in(DEVICE_WORK).to_numpy()
    with_delay = np.zeros(edge.size, dtype=np.bool_)
    with_delay[begins[on_thread]] = True
    return is_time, with_delay
