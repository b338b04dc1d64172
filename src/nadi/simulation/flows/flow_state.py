"""The arrays of flows: what is on its way over which links, and how fast.

A flow moves bytes over all links of its route at once. Times are int64 ps, rates int64 in 1/1024
bytes per second, so that every rate and every time is exact (:mod:`.flow_progress`).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from nadi.kernels.columns import Codes, Columns, code, column
from nadi.trace.arrays import Ints

NEVER = 2**63 - 1  # a time
RATE_UNITS = 1024  # parts of a byte per second in which rates are counted, and of a byte
LARGEST_SIZE = 2**53 - 1  # bytes of a flow
UNBOUND = float(2**52)  # units of a transfer that its route does not limit
NUM_BLOCK_SIZES = 32  # of rows of hops
_FASTEST = 2**62  # of a link


class FLOW(Columns, of="flows"):
    """Of a flow that is on its way."""

    left = column("what it had yet to move at ``since``", "1/1024 bytes")
    rest = column("what it had beyond that, in 10^-12 of it")
    since = column("when its rate changed", "ps")
    end = column("when it ends, if its rate stays", "ps")
    key = column("whose it is: a number of who started it")
    place = column("its place in ``ends``, and 1 more; 0 if it is not there")
    first = column("its first row of ``hops``")
    hops = column("how many links it takes; 0 of one that moves nothing")
    next = column("the free row behind this one, of one that is free")


class SHARE(Columns, of="shares"):
    """Of a flow: its part of its links."""

    rate = column("how fast it is", "1/1024 bytes/s")
    fresh = column("how fast it will be; -1 as long as that is not known", "1/1024 bytes/s")
    stamp = column("the last round in which it was suspected to change")
    neck = column("the link that keeps it from being faster")


class HOP(Columns, of="hops"):
    """Of a link on a flow's way; those of a flow stand beside each other. int32."""

    link = column("which link")
    flow = column("whose way it is")
    weight = column("how much of the flow's rate it takes")
    next = column("the row of the next flow on the link; of a free block the next free one")
    before = column("the row of the flow before it on the link")
    beside = column("the row of the next suspect on the link")


class EDGE(Columns, of="links"):
    """Of a link in one direction, or of a flow's cap.

    Those from ``own`` on hold within a round.
    """

    capacity = column("what it can carry", "1/1024 bytes/s")
    load = column("the rates of its flows, times their weights", "1/1024 bytes/s")
    weight = column("the weights of its flows")
    head = column("its first flow's row of ``hops``")
    level = column("the rate of the flows that it keeps from being faster; -1: none")
    stamp = column("the last round in which it was looked at")
    full = column("for how long it kept flows from being faster, till ``since``", "ps")
    since = column("when that began, if it does", "ps")
    own = column("the weights of its suspects")
    taken = column("the rates of its suspects before, times their weights")
    first = column("its first suspect's row of ``hops``")
    left = column("what suspects that have their rates leave", "1/1024 bytes/s")
    open = column("the weights of suspects that have no rate yet")
    fresh = column("the rate that it sets for its suspects; -1: none")


class ROUTE(Columns, of="routes"):
    """Of a route."""

    first = column("its first row of ``route_links``")
    last = column("behind its last row of ``route_links``")
    latency = column("from the first byte's leaving to its arrival", "ps")


class COUNT(Columns, of="counts"):
    """Numbers of all flows together."""

    now = column("the present instant", "ps")
    active = column("flows that are on their way")
    ends = column("flows in ``ends``")
    free = column("the first free row; -1 if there is none")
    problem = column("flag: there were more flows than rows")
    round = column("counts instants at which rates changed")
    started = column("flows that have no rate yet")
    touched = column("links in ``touched``")
    suspects = column("flows in ``suspects``")
    links = column("links of the network; behind them one for each flow's cap")
    used_hops = column("rows of ``hops`` that were ever used")
    free_hops = column(
        "the first free block of 1, 2, 4, ... rows of ``hops``; -1: none", span=NUM_BLOCK_SIZES
    )
    reach = column("Reach")
    solved = column("rates that were worked out so far")
    events = column("starts and ends so far")


class Reach(Codes):
    """Whose rates are worked out when flows start and end. All give the same rates."""

    PRUNED = code("of those whose rates may change, found step by step")
    COMPONENT = code("of all that share links with them, directly or not")
    ALL = code("of all flows")


class Flows(NamedTuple):
    """Arrays of flows; int64, (rows, columns) unless stated otherwise.

    ``hops`` and ``route_links`` (link, weight) are int32. ``counts`` has no rows. ``ends`` is a
    heap of (end, flow). ``levels`` is a heap of (rate, link). Lists: ``started`` and ``suspects``
    of flows, ``touched`` and ``tied`` of links.
    """

    flows: np.ndarray
    shares: np.ndarray
    hops: np.ndarray
    links: np.ndarray
    routes: np.ndarray
    route_links: np.ndarray
    ends: np.ndarray
    levels: np.ndarray
    started: np.ndarray
    suspects: np.ndarray
    touched: np.ndarray
    tied: np.ndarray
    counts: np.ndarray


class Routes(NamedTuple):
    """Links in the order in which flows take them, one route after the other.

    Attributes
    ----------
    first
        int64, shape (routes + 1,): a route's first position in ``link``, up to the next one's.
    link, weight
        int32, shape (positions,): which link, and how much of a flow's rate it takes.
    latency
        int64, shape (routes,): ps.
    """

    first: Ints
    link: np.ndarray
    weight: np.ndarray
    latency: Ints


def rate_units(bytes_per_second: float) -> int:
    """Return a bandwidth as an integer, as capacities of links are."""
    return min(round(bytes_per_second * RATE_UNITS), _FASTEST)


def new_flows(
    capacity: Ints, routes: Routes, room: int, hop_room: int = 0, reach: int = Reach.PRUNED
) -> Flows:
    """Make the arrays for flows over a network, with no flow yet.

    - ``capacity``: int64, shape (links,): of each link, by :func:`rate_units`.
    - ``routes``: The ways that flows may take.
    - ``room``: The most flows that can be on their way at once.
    - ``hop_room``: The most links that all of these can take, where each flow's are rounded up to a
      power of two, after one is added for a cap. By default that of ``room`` longest routes.
    - ``reach``: ``Reach``.
    - Returns: O(links + routes + room times the longest route) memory.
    """
    longest = int(np.diff(routes.first).max(initial=0)) + 1
    hop_room = hop_room or room << (longest - 1).bit_length()
    links = np.zeros((capacity.size + room, len(EDGE)), dtype=np.int64)
    links[: capacity.size, EDGE.capacity] = capacity
    links[:, EDGE.head] = links[:, EDGE.level] = -1
    flows = np.zeros((room, len(FLOW)), dtype=np.int64)
    flows[:, FLOW.next] = np.append(np.arange(1, room), -1)[:room]
    counts = np.zeros(len(COUNT), dtype=np.int64)
    counts[COUNT.free] = 0 if room else -1
    counts[COUNT.round] = 1
    counts[COUNT.links] = capacity.size
    counts[COUNT.free_hops : COUNT.free_hops + NUM_BLOCK_SIZES] = -1
    counts[COUNT.reach] = reach
    return Flows(
        flows=flows,
        shares=np.zeros((room, len(SHARE)), dtype=np.int64),
        hops=np.zeros((hop_room, len(HOP)), dtype=np.int32),
        links=links,
        routes=np.stack([routes.first[:-1], routes.first[1:], routes.latency], axis=1),
        route_links=np.stack([routes.link, routes.weight], axis=1).astype(np.int32),
        ends=np.zeros((room, 2), dtype=np.int64),
        levels=np.zeros((links.shape[0], 2), dtype=np.int64),
        started=np.zeros(room, dtype=np.int64),
        suspects=np.zeros(room, dtype=np.int64),
        touched=np.zeros(links.shape[0], dtype=np.int64),
        tied=np.zeros(links.shape[0], dtype=np.int64),
        counts=counts,
    )


@cache
def no_flows() -> Flows:
    """Return the arrays of a network that has no flows, which nothing changes."""
    nothing = np.zeros(0, dtype=np.int64)
    return new_flows(nothing, Routes(np.zeros(1, dtype=np.int64), nothing, nothing, nothing), 0)
