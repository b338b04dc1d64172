"""Whose rates change when flows start and end, and to what.

Rates are the only ones for which, of each link and each rate ``m`` of its flows, the share at
``m`` (what flows slower than ``m`` leave, divided among the others, rounded down) is at least
``m``, and more than ``m`` if a flow of the link is faster; and each flow has a link, its neck,
whose share at its rate is its rate. So it is enough to look at links that changed: if all of them
and their flows keep to this, nothing else has to change.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.flows.flow_ends import put_end
from nadi.simulation.flows.flow_progress import moved, time_to_move
from nadi.simulation.flows.flow_state import COUNT, EDGE, FLOW, HOP, NEVER, SHARE, Flows, Reach
from nadi.simulation.flows.progressive_filling import fill, suspect

__all__ = ["change_rates"]

_FEW = 64  # flows that are worked out at once rather than step by step
_PART = 20  # or more suspects than one in so many


@inner
def _is_suspect(flows: Flows, flow: int) -> bool:
    return flows.shares[flow, SHARE.stamp] == flows.counts[COUNT.round]


@called
def _suspect_all_on(flows: Flows, link: int) -> None:
    hops = flows.hops
    hop = flows.links[link, EDGE.head]
    while hop >= 0:
        suspect(flows, hops[hop, HOP.flow])
        hop = hops[hop, HOP.next]


@called
def _suspect_component(flows: Flows) -> None:
    """Suspect all that share links with suspects, directly or not."""
    links, counts = flows.links, flows.counts
    i = 0
    while i < counts[COUNT.touched]:
        link = flows.touched[i]
        if links[link, EDGE.own] < links[link, EDGE.weight]:
            _suspect_all_on(flows, link)
        i += 1


@called
def _suspect_everybody(flows: Flows) -> None:
    for flow in range(flows.flows.shape[0]):
        if flows.flows[flow, FLOW.hops] > 0:
            suspect(flows, flow)


@inner
def _suspect_held(flows: Flows) -> None:
    """Suspect flows whose neck is a link that changed: nearly all of them will change."""
    links, shares, hops = flows.links, flows.shares, flows.hops
    for i in range(flows.counts[COUNT.touched]):
        link = flows.touched[i]
        if links[link, EDGE.level] >= 0 and links[link, EDGE.own] < links[link, EDGE.weight]:
            hop = links[link, EDGE.head]
            while hop >= 0:
                flow = hops[hop, HOP.flow]
                if shares[flow, SHARE.neck] == link:
                    suspect(flows, flow)
                hop = hops[hop, HOP.next]


@inner
def _rate_of(flows: Flows, flow: int) -> int:
    shares = flows.shares
    return shares[flow, SHARE.fresh if _is_suspect(flows, flow) else SHARE.rate]


@called
def _top(flows: Flows, link: int, below: int) -> tuple[int, int]:
    """Return the highest rate on a link that is less than one, and the weights of its flows."""
    hops = flows.hops
    top, weight = -1, 0
    hop = flows.links[link, EDGE.head]
    while hop >= 0:
        rate = _rate_of(flows, hops[hop, HOP.flow])
        if top < rate < below:
            top, weight = rate, 0
        if rate == top:
            weight += hops[hop, HOP.weight]
        hop = hops[hop, HOP.next]
    return top, weight


@called
def _suspect_from(flows: Flows, link: int, rate: int) -> None:
    """Suspect all flows of a link that are at least as fast as a rate."""
    hops = flows.hops
    hop = flows.links[link, EDGE.head]
    while hop >= 0:
        flow = hops[hop, HOP.flow]
        if not _is_suspect(flows, flow) and flows.shares[flow, SHARE.rate] >= rate:
            suspect(flows, flow)
        hop = hops[hop, HOP.next]


@called
def _suspect_nearly_tied(flows: Flows, link: int, top: int, weight: int) -> None:
    """Suspect flows that are a few units faster than one that is as fast as the share there.

    Shares are rounded down. So a link may be full at a rate, for all of its flows, although what
    is left over would give the last of them a unit more.
    """
    links = flows.links
    most, left = links[link, EDGE.weight], links[link, EDGE.left]
    while left < most:
        rate, weight_of_it = _top(flows, link, top)
        if rate < 0:
            break
        left += weight * (top - rate)
        weight += weight_of_it
        top = rate
        if left < weight:
            _suspect_from(flows, link, rate)
            break


@called
def _check(flows: Flows, link: int) -> None:
    """Suspect flows of a link that cannot keep their rate."""
    links, shares, hops, counts = flows.links, flows.shares, flows.hops, flows.counts
    before = counts[COUNT.suspects]
    top, weight = _top(flows, link, NEVER)
    is_neck = links[link, EDGE.left] < weight
    level = links[link, EDGE.fresh]
    hop = links[link, EDGE.head]
    while hop >= 0:
        flow = hops[hop, HOP.flow]
        if not _is_suspect(flows, flow):
            rate = shares[flow, SHARE.rate]
            held = shares[flow, SHARE.neck] == link
            if (level >= 0 and rate > level) or (held and not (is_neck and rate == top)):
                suspect(flows, flow)
        hop = hops[hop, HOP.next]
    if counts[COUNT.suspects] == before:
        _suspect_nearly_tied(flows, link, top, weight)
        links[link, EDGE.fresh] = top if is_neck else -1


@called
def _check_all(flows: Flows) -> bool:
    """Look at all links that changed; tells whether all flows can keep their rates."""
    links, counts = flows.links, flows.counts
    before = counts[COUNT.suspects]
    for i in range(counts[COUNT.touched]):
        link = flows.touched[i]
        weight = links[link, EDGE.weight]
        if links[link, EDGE.own] == weight:
            continue
        was_full = links[link, EDGE.level] >= 0 or links[link, EDGE.fresh] >= 0
        if was_full or links[link, EDGE.left] < weight:
            _check(flows, link)
    return counts[COUNT.suspects] == before


@called
def _take_over(flows: Flows) -> None:
    """Let flows go on with their new rates."""
    rows, shares, links, counts = flows.flows, flows.shares, flows.links, flows.counts
    now = counts[COUNT.now]
    for i in range(counts[COUNT.touched]):
        link = flows.touched[i]
        links[link, EDGE.load] = links[link, EDGE.capacity] - links[link, EDGE.left]
        if links[link, EDGE.level] < 0 <= links[link, EDGE.fresh]:
            links[link, EDGE.since] = now
        elif links[link, EDGE.fresh] < 0 <= links[link, EDGE.level]:
            links[link, EDGE.full] += now - links[link, EDGE.since]
        links[link, EDGE.level] = links[link, EDGE.fresh]
    for i in range(counts[COUNT.suspects]):
        flow = flows.suspects[i]
        rate, fresh = shares[flow, SHARE.rate], shares[flow, SHARE.fresh]
        if rate == fresh:
            continue
        if rate > 0:
            done, parts = moved(rate, now - rows[flow, FLOW.since])
            rows[flow, FLOW.left] -= done
            rows[flow, FLOW.rest] -= parts
            if rows[flow, FLOW.rest] < 0:
                rows[flow, FLOW.rest] += 1_000_000_000_000
                rows[flow, FLOW.left] -= 1
        rows[flow, FLOW.since] = now
        shares[flow, SHARE.rate] = fresh
        time = time_to_move(rows[flow, FLOW.left], rows[flow, FLOW.rest], fresh)
        put_end(flows, flow, now + time if time < NEVER - now else NEVER)


@called
def change_rates(flows: Flows) -> None:
    """Give flows that started a rate, and change those of others, at the present instant."""
    counts = flows.counts
    for i in range(counts[COUNT.started]):
        suspect(flows, flows.started[i])
    if counts[COUNT.reach] == Reach.ALL:
        _suspect_everybody(flows)
    elif counts[COUNT.reach] == Reach.COMPONENT:
        _suspect_component(flows)
    else:
        _suspect_held(flows)
    fill(flows)
    counts[COUNT.solved] += counts[COUNT.suspects]
    while not _check_all(flows):
        if counts[COUNT.suspects] > max(_FEW, counts[COUNT.active] // _PART):
            _suspect_everybody(flows)
        fill(flows)
        counts[COUNT.solved] += counts[COUNT.suspects]
    _take_over(flows)
    counts[COUNT.started] = counts[COUNT.touched] = counts[COUNT.suspects] = 0
    counts[COUNT.round] += 1
