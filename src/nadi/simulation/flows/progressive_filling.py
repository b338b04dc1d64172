"""Max-min fair rates by progressive filling, of suspects beside flows that keep their rates.

All suspects get faster together until a link is full: its suspects keep that rate, and the others
go on. A share is rounded down to a whole unit, and all links that are full at one rate are full
together, so that the rates do not depend on the order of links and flows.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.flows.flow_state import COUNT, EDGE, FLOW, HOP, SHARE, Flows


@inner
def touch(flows: Flows, link: int) -> None:
    """Have a link looked at in this round."""
    links, counts = flows.links, flows.counts
    if links[link, EDGE.stamp] != counts[COUNT.round]:
        links[link, EDGE.stamp] = counts[COUNT.round]
        links[link, EDGE.own] = 0
        links[link, EDGE.taken] = 0
        links[link, EDGE.first] = -1
        flows.touched[counts[COUNT.touched]] = link
        counts[COUNT.touched] += 1


@called
def suspect(flows: Flows, flow: int) -> None:
    """Have the rate of a flow worked out in this round."""
    shares, hops, links, counts = flows.shares, flows.hops, flows.links, flows.counts
    if shares[flow, SHARE.stamp] == counts[COUNT.round]:
        return
    shares[flow, SHARE.stamp] = counts[COUNT.round]
    flows.suspects[counts[COUNT.suspects]] = flow
    counts[COUNT.suspects] += 1
    rate, first = shares[flow, SHARE.rate], flows.flows[flow, FLOW.first]
    for hop in range(first, first + flows.flows[flow, FLOW.hops]):
        link, weight = hops[hop, HOP.link], hops[hop, HOP.weight]
        touch(flows, link)
        links[link, EDGE.own] += weight
        links[link, EDGE.taken] += weight * rate
        hops[hop, HOP.beside] = links[link, EDGE.first]
        links[link, EDGE.first] = hop


@inner
def _put_level(flows: Flows, at: int, level: int, link: int) -> None:
    levels = flows.levels
    while at > 0:
        parent = (at - 1) >> 1
        if levels[parent, 0] <= level:
            break
        levels[at, 0], levels[at, 1] = levels[parent, 0], levels[parent, 1]
        at = parent
    levels[at, 0], levels[at, 1] = level, link


@inner
def _sink_first(flows: Flows, size: int, level: int, link: int) -> None:
    """Put a link in the place of the first one, or below."""
    levels, at = flows.levels, 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and levels[child + 1, 0] < levels[child, 0]:
            child += 1
        if levels[child, 0] >= level:
            break
        levels[at, 0], levels[at, 1] = levels[child, 0], levels[child, 1]
        at = child
    levels[at, 0], levels[at, 1] = level, link


@inner
def _begin(flows: Flows) -> int:
    """Make a heap of the rates at which links would be full; gives its size."""
    links, shares, counts = flows.links, flows.shares, flows.counts
    for i in range(counts[COUNT.suspects]):
        shares[flows.suspects[i], SHARE.fresh] = -1
    size = 0
    for i in range(counts[COUNT.touched]):
        link = flows.touched[i]
        left = links[link, EDGE.capacity] - links[link, EDGE.load] + links[link, EDGE.taken]
        own = links[link, EDGE.own]
        links[link, EDGE.left], links[link, EDGE.open] = left, own
        links[link, EDGE.fresh] = -1
        if own > 0:
            _put_level(flows, size, left // own, link)
            size += 1
    return size


@inner
def _freeze(flows: Flows, link: int, level: int) -> None:
    """Give all suspects of a link their rate that have none."""
    links, shares, hops = flows.links, flows.shares, flows.hops
    links[link, EDGE.fresh] = level
    hop = links[link, EDGE.first]
    while hop >= 0:
        flow = hops[hop, HOP.flow]
        if shares[flow, SHARE.fresh] < 0:
            shares[flow, SHARE.fresh] = level
            shares[flow, SHARE.neck] = link
            first = flows.flows[flow, FLOW.first]
            for one in range(first, first + flows.flows[flow, FLOW.hops]):
                other, weight = hops[one, HOP.link], hops[one, HOP.weight]
                links[other, EDGE.left] -= weight * level
                links[other, EDGE.open] -= weight
        hop = hops[hop, HOP.beside]


@called
def fill(flows: Flows) -> None:
    """Work out the rates of all suspects, as if all others kept theirs."""
    links, levels, tied = flows.links, flows.levels, flows.tied
    size = _begin(flows)
    while size > 0:
        level, num_tied = levels[0, 0], 0
        while size > 0 and levels[0, 0] == level:
            link = levels[0, 1]
            still = links[link, EDGE.open]
            # a share only grows as others get less than it
            share = links[link, EDGE.left] // still if still > 0 else level
            if share > level:
                _sink_first(flows, size, share, link)
                continue
            size -= 1
            if size > 0:
                _sink_first(flows, size, levels[size, 0], levels[size, 1])
            if still > 0:
                tied[num_tied] = link
                num_tied += 1
        for i in range(num_tied):
            _freeze(flows, tied[i], level)
