"""Which nodes of a trace run on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Trace


def host_nodes(traces: Sequence[Trace], is_cpu: Bools, first: Ints) -> Bools:
    """Return which nodes run on the host; in an .et, only those that state it.

    Parameters
    ----------
    is_cpu
        bool, shape (nodes of all traces,): the column ``is_cpu``.
    first
        int64, shape (traces + 1,): the first node of each trace, and their number.
    """
    is_cpu = is_cpu.copy()
    for rank, trace in enumerate(traces):
        own = is_cpu[first[rank] : first[rank + 1]]
        sources = trace.provenance.sources
        if sources and sources[0].format.startswith("Chakra") and own.any():
            stated = np.zeros(own.size, dtype=np.bool_)
            stated[trace.given_attributes.nodes_with("is_cpu_op")] = True
            own &= stated
    return is_cpu


def on_host(trace: Trace) -> Bools:
    """Return which nodes of a trace run on the host, as a simulation sees it.

    bool, shape (nodes,).
    """
    size = trace.nodes.height
    return host_nodes(
        [trace], trace.nodes["is_cpu"].to_numpy(), np.array([0, size], dtype=np.int64)
    )
