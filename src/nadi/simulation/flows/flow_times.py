"""When flows end that start at given times, or as soon as others have ended.

When transfers between ranks end that share the links of a system.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nadi.errors import Parameter, UsageError
from nadi.kernels.jit import apart, called, kernel, lent
from nadi.simulation.flows.flow_events import advance, next_end, settle, start_flow, take_ended
from nadi.simulation.flows.flow_state import (
    COUNT,
    LARGEST_SIZE,
    NEVER,
    Flows,
    Reach,
    Routes,
    new_flows,
)
from nadi.simulation.flows.network_graph import network_graph
from nadi.systems.system import System
from nadi.trace.arrays import Ints

_ROOM = 1 << 18  # flows at once, at first


class Transfers(NamedTuple):
    """Flows that are to be made.

    Attributes
    ----------
    route, size
        int64, shape (flows,): the row in :class:`Routes`, and bytes.
    start
        int64, shape (flows,): ps; of a flow after another one it is ignored.
    after
        int64, shape (flows,): the flow at whose end it starts; -1: none.
    cap
        int64, shape (flows,): its highest rate, by :func:`rate_units`; 0: none.
    """

    route: Ints
    size: Ints
    start: Ints
    after: Ints
    cap: Ints


class _Plan(NamedTuple):
    """Flows in the order in which they start, and those that follow others.

    ``child`` is the first that starts at a flow's end, and ``sibling`` the next of those.
    """

    order: np.ndarray
    start: np.ndarray
    route: np.ndarray
    size: np.ndarray
    cap: np.ndarray
    child: np.ndarray
    sibling: np.ndarray
    end: np.ndarray


@called
def _start(flows: Flows, plan: _Plan, flow: int) -> None:
    start_flow(flows, plan.route[flow], plan.size[flow], flow, plan.cap[flow])


@called
def _run(flows: Flows, plan: _Plan) -> int:
    apart()
    order, start, counts = plan.order, plan.start, flows.counts
    at = 0
    while counts[COUNT.problem] == 0:
        settle(flows)
        time = next_end(flows)
        if at < order.shape[0]:
            time = min(time, start[order[at]])
        if time == NEVER:
            break
        advance(flows, time)
        ended = take_ended(flows)
        while ended >= 0:
            plan.end[ended] = time
            follows = plan.child[ended]
            while follows >= 0:
                _start(flows, plan, follows)
                follows = plan.sibling[follows]
            ended = take_ended(flows)
        while at < order.shape[0] and start[order[at]] == time:
            _start(flows, plan, order[at])
            at += 1
    return counts[COUNT.problem]


@kernel
def _run_plan(flows: Flows, plan: _Plan) -> int:
    """Let flows run to their ends; 0, or 1 if there was no room for them."""
    return _run(lent(flows), lent(plan))


def flow_times(capacity: Ints, routes: Routes, transfers: Transfers) -> Ints:
    """Return when each flow ends, in ps; -1 of one that never does.

    Parameters
    ----------
    capacity
        int64, shape (links,): of each link, by :func:`rate_units`.
    routes
        The ways that flows may take.
    transfers
        The flows.

    Raises
    ------
    UsageError
        If a size is negative or exceeds 2^53 - 1 bytes.
    """
    return run_flows(capacity, routes, transfers)[0]


def run_flows(
    capacity: Ints, routes: Routes, transfers: Transfers, reach: int = Reach.PRUNED
) -> tuple[Ints, Flows]:
    """Let flows run to their ends, as :func:`flow_times`; return the arrays afterwards, too.

    ``reach`` says how rates are worked out, not what they are.
    """
    size = transfers.size
    if size.size and not 0 <= size.min() <= size.max() <= LARGEST_SIZE:
        wrong = int(size.min() if size.min() < 0 else size.max())
        raise UsageError(
            "flows", f"a size is {wrong} bytes", "a flow has 0 to 2^53 - 1 bytes: split it"
        )
    # those after others mostly take the rows of these
    room = min(int((transfers.after < 0).sum()), _ROOM)
    # of each flow's links and its cap, in blocks
    hops = np.diff(routes.first)[transfers.route] + 1
    blocks = np.sort(2 ** np.ceil(np.log2(hops)).astype(np.int64))[::-1]
    while True:
        hop_room = int(blocks[:room].sum())
        flows = new_flows(capacity, routes, room, hop_room, reach)
        plan = _plan_of(transfers)
        if not _run_plan(flows, plan):
            return plan.end, flows
        room = min(size.size, room * 4)


def _plan_of(transfers: Transfers) -> _Plan:
    num_flows, after = transfers.size.size, transfers.after
    first = np.flatnonzero(after < 0)
    order = first[np.argsort(transfers.start[first], kind="stable")]
    child, sibling = np.full(num_flows, -1), np.full(num_flows, -1)
    later = np.flatnonzero(after >= 0)
    later = later[np.argsort(after[later], kind="stable")]
    of = after[later]
    heads = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if later.size else later
    child[of[heads]] = later[heads]
    is_next = np.flatnonzero(of[1:] == of[:-1])
    sibling[later[is_next]] = later[is_next + 1]
    return _Plan(
        order=order,
        start=np.ascontiguousarray(transfers.start),
        route=np.ascontiguousarray(transfers.route),
        size=np.ascontiguousarray(transfers.size),
        cap=np.ascontiguousarray(transfers.cap),
        child=child,
        sibling=sibling,
        end=np.full(num_flows, -1),
    )


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
