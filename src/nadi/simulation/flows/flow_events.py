"""What an event loop does with flows: start them, ask when the next one ends, take it out.

Starts and ends of one instant come first; then :func:`settle`, once, gives all flows the rates
that hold until the next instant.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.flows.changed_rates import change_rates
from nadi.simulation.flows.flow_ends import first_end, put_end, remove_end
from nadi.simulation.flows.flow_state import (
    COUNT,
    EDGE,
    FLOW,
    HOP,
    NEVER,
    RATE_UNITS,
    ROUTE,
    SHARE,
    Flows,
)
from nadi.simulation.flows.progressive_filling import touch

__all__ = ["advance", "next_end", "settle", "start_flow", "take_ended"]


@inner
def _block_size(num_hops: int) -> int:
    """Return the size of the block that holds so many rows, as a power of two."""
    size = 0
    while (1 << size) < num_hops:
        size += 1
    return size


@inner
def _new_hops(flows: Flows, num_hops: int) -> int:
    """Return the first of so many free rows of ``hops``; -1 if there are none."""
    counts, size = flows.counts, _block_size(num_hops)
    free = counts[COUNT.free_hops + size]
    if free >= 0:
        counts[COUNT.free_hops + size] = flows.hops[free, HOP.next]
        return free
    free = counts[COUNT.used_hops]
    if free + (1 << size) > flows.hops.shape[0]:
        return -1
    counts[COUNT.used_hops] += 1 << size
    return free


@inner
def _put_on_link(flows: Flows, flow: int, hop: int, link: int, weight: int) -> None:
    hops, links = flows.hops, flows.links
    hops[hop, HOP.link], hops[hop, HOP.weight], hops[hop, HOP.flow] = link, weight, flow
    behind = links[link, EDGE.head]
    hops[hop, HOP.next], hops[hop, HOP.before] = behind, -1
    if behind >= 0:
        hops[behind, HOP.before] = hop
    links[link, EDGE.head] = hop
    links[link, EDGE.weight] += weight


@called
def _put_on_links(flows: Flows, flow: int, route: int, cap: int) -> bool:
    """Put a flow on the links of a route; tells whether there was room."""
    ways, rows = flows.route_links, flows.flows
    first = flows.routes[route, ROUTE.first]
    num_links = flows.routes[route, ROUTE.last] - first
    num_hops = num_links + (1 if cap > 0 else 0)
    rows[flow, FLOW.hops] = num_hops
    if num_hops == 0:
        return True
    hop = _new_hops(flows, num_hops)
    rows[flow, FLOW.first] = hop
    if hop < 0:
        return False
    for k in range(num_links):
        _put_on_link(flows, flow, hop + k, ways[first + k, 0], ways[first + k, 1])
    if cap > 0:
        own = flows.counts[COUNT.links] + flow
        flows.links[own, EDGE.capacity] = cap
        _put_on_link(flows, flow, hop + num_links, own, 1)
    return True


@called
def start_flow(flows: Flows, route: int, size: int, key: int, cap: int) -> int:
    """Start a flow at the present instant.

    Parameters
    ----------
    route
        Row of ``routes``.
    size
        Bytes, less than 2^53. A flow of none, or without links and cap, ends at once.
    key
        What :func:`take_ended` gives back; not negative.
    cap
        Its highest rate, in 1/1024 bytes/s; 0 if only links limit it.

    Returns
    -------
    int
        Its row; -1 if there is no room, which ``COUNT.problem`` then says.
    """
    rows, counts = flows.flows, flows.counts
    new, now = counts[COUNT.free], counts[COUNT.now]
    if new < 0 or (size > 0 and not _put_on_links(flows, new, route, cap)):
        counts[COUNT.problem] = 1
        return -1
    counts[COUNT.free] = rows[new, FLOW.next]
    counts[COUNT.active] += 1
    counts[COUNT.events] += 1
    rows[new, FLOW.left], rows[new, FLOW.rest] = size * RATE_UNITS, 0
    rows[new, FLOW.since], rows[new, FLOW.end], rows[new, FLOW.key] = now, NEVER, key
    flows.shares[new, SHARE.rate], flows.shares[new, SHARE.neck] = 0, -1
    if rows[new, FLOW.hops] == 0:
        put_end(flows, new, now)
    else:
        flows.started[counts[COUNT.started]] = new
        counts[COUNT.started] += 1
    return new


@inner
def settle(flows: Flows) -> None:
    """Give all flows the rates that follow from the starts and ends of the present instant."""
    if flows.counts[COUNT.started] > 0 or flows.counts[COUNT.touched] > 0:
        change_rates(flows)


@inner
def next_end(flows: Flows) -> int:
    """Return when the next flow ends, in ps; NEVER if none does. The rates are settled."""
    return first_end(flows)


@inner
def advance(flows: Flows, time: int) -> None:
    """Make a time the present instant; it is not behind the next end."""
    flows.counts[COUNT.now] = time


@called
def _take_off_links(flows: Flows, flow: int) -> None:
    hops, links, counts = flows.hops, flows.links, flows.counts
    first, rate = flows.flows[flow, FLOW.first], flows.shares[flow, SHARE.rate]
    num_hops = flows.flows[flow, FLOW.hops]
    for hop in range(first, first + num_hops):
        link, weight = hops[hop, HOP.link], hops[hop, HOP.weight]
        before, behind = hops[hop, HOP.before], hops[hop, HOP.next]
        if before >= 0:
            hops[before, HOP.next] = behind
        else:
            links[link, EDGE.head] = behind
        if behind >= 0:
            hops[behind, HOP.before] = before
        links[link, EDGE.weight] -= weight
        links[link, EDGE.load] -= weight * rate
        touch(flows, link)
    if num_hops > 0:
        size = _block_size(num_hops)
        hops[first, HOP.next] = counts[COUNT.free_hops + size]
        counts[COUNT.free_hops + size] = first


@called
def take_ended(flows: Flows) -> int:
    """Take out a flow that ends at the present instant; gives its key, -1 if there is none.

    The rates are settled.
    """
    rows, counts = flows.flows, flows.counts
    if counts[COUNT.ends] == 0 or flows.ends[0, 0] > counts[COUNT.now]:
        return -1
    flow = flows.ends[0, 1]
    remove_end(flows, flow)
    _take_off_links(flows, flow)
    rows[flow, FLOW.hops] = 0
    rows[flow, FLOW.next] = counts[COUNT.free]
    counts[COUNT.free] = flow
    counts[COUNT.active] -= 1
    counts[COUNT.events] += 1
    return rows[flow, FLOW.key]
