"""When transfers between ranks end that share the links of a system."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nadi.errors import Parameter, UsageError
from nadi.simulation.flows.flow_state import LARGEST_SIZE
from nadi.simulation.flows.flow_times import Transfers, flow_times
from nadi.simulation.flows.network_graph import network_graph
from nadi.systems.system import System
from nadi.trace.arrays import Ints

__all__ = ["transfer_times"]

_LATEST = 2**52  # ns: 52 days


def transfer_times(
    system: System,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    size: npt.ArrayLike,
    start: npt.ArrayLike = 0,
    flow: npt.ArrayLike = 0,
) -> Ints:
    """Compute when transfers arrive that share links fairly; ns.

    Bytes move over all links of a transfer's route at once, each as fast as the links' bandwidth
    allows that is shared by max-min fairness: nobody can be faster without making somebody slower
    who is no faster. The last byte arrives the route's latency after it was sent.

    Parameters
    ----------
    src, dst
        Ranks, shape (transfers,), or one for all.
    size
        Bytes.
    start
        When each begins, ns.
    flow
        A number that tells transfers between the same two ranks apart, where a hash chooses
        between equal ways.

    Returns
    -------
    int64, shape (transfers,)
        When each arrives, to the nearest ns; -1 if it never does.

    Raises
    ------
    UsageError
        If a rank is not one of the system, a size or start is out of range, or no way leads from
        one rank to the other.
    """
    given = [np.asarray(one) for one in (src, dst, size, start, flow)]
    ranks_from, ranks_to, num_bytes, begin, number = (
        np.ascontiguousarray(one.astype(np.int64)) for one in np.broadcast_arrays(*given)
    )
    last = system.network.num_ranks - 1
    _check("src", ranks_from, last)
    _check("dst", ranks_to, last)
    _check("size", num_bytes, LARGEST_SIZE)
    _check("start", begin, _LATEST)
    graph = network_graph(system)
    routes = graph.routes(ranks_from, ranks_to, number)
    nothing = np.zeros_like(begin)
    transfers = Transfers(
        route=np.arange(begin.size),
        size=num_bytes,
        start=begin * 1000,
        after=nothing - 1,
        cap=nothing,
    )
    end = flow_times(graph.capacity, routes, transfers)
    return np.where(end < 0, -1, (end + routes.latency + 500) // 1000)


def _check(name: str, values: Ints, most: int) -> None:
    wrong = values[(values < 0) | (values > most)]
    if wrong.size:
        raise UsageError(Parameter(name, int(wrong[0])), "it is out of range", f"give 0 to {most}")
