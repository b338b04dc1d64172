"""How long communication of a simulated rank goes on beside other communication of it."""

from __future__ import annotations

import numpy as np

from nadi.errors import checked
from nadi.simulation.accounts.times import ends_of_waits
from nadi.simulation.simulation import Simulation
from nadi.trace.arrays import Ints
from nadi.trace.schema import NODE_KINDS

__all__ = ["contended_times"]

_KINDS = [NODE_KINDS.index(name) for name in ("COMM_SEND", "COMM_RECV", "COMM_COLL")]


@checked
def contended_times(simulation: Simulation) -> Ints:
    """Return for how long each rank's communications overlap each other, from first to last.

    Of communications that overlap, directly or through others, it is the time from the begin of
    the first to the end of the last: one of them can wait for others at most that long if they
    come in another order. Waits for members and senders do not count.

    Returns
    -------
    int64
        ns, shape (ranks of the program,). O(nodes log nodes).
    """
    program = simulation.program
    until, _ = ends_of_waits(simulation)
    chosen = np.flatnonzero(np.isin(program.kind, _KINDS) & (simulation.end > until))
    rank = program.rank[chosen]
    order = np.lexsort((until[chosen], rank))
    rank, begin, end = rank[order], until[chosen][order], simulation.end[chosen][order]
    found = np.zeros(program.num_ranks, dtype=np.int64)
    if not rank.size:
        return found
    # ends in ranks before are no ends here
    stride = int(end.max()) + 1
    latest = np.maximum.accumulate(rank * stride + end)
    fresh = np.append(True, rank[1:] * stride + begin[1:] >= latest[:-1])
    first = np.flatnonzero(fresh)
    size = np.diff(np.append(first, rank.size))
    length = latest[np.append(first[1:], rank.size) - 1] - rank[first] * stride - begin[first]
    several = size > 1
    np.add.at(found, rank[first][several], length[several])
    return found
