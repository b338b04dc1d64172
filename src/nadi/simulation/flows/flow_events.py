"""What an event loop does with flows: start them, ask when the next one ends, take it out.

Starts and ends of one instant come first; then :func:`settle`, once, gives all flows the rates
that hold until the next instant.

Whose rates change when flows start and end, and to what.

Rates are the only ones for which, of each link and each rate ``m`` of its flows, the share at
``m`` (what flows slower than ``m`` leave, divided among the others, rounded down) is at least
``m``, and more than ``m`` if a flow of the link is faster; and each flow has a link, its neck,
whose share at its rate is its rate. So it is enough to look at links that changed: if all of them
and their flows keep to this, nothing else has to change.

How much a flow moves in a time, and how long it takes: exact, without floating point results.

A rate times a time does not fit in 64 bits. What a flow has left is therefore two numbers:
1/1024 bytes, and parts of these that are 10^12 to one, so that a unit of a rate moves one such
part per ps.

When flows end: a binary heap in which each flow knows its place.

Rates are max-min fair, by progressive filling of suspects beside flows that keep their rates: all
suspects get faster until a link is full; its suspects keep that rate, and the others go on.
A share is rounded down to a whole unit, and all links that are full at one rate are full together,
so that the rates do not depend on the order of links and flows.
"""

import numpy as np

from nadi.kernels.jit import called, inner
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
    Reach,
)


@inner
def first_end(flows: Flows) -> int:
    """Return when the first flow ends; NEVER if none does."""
    return flows.ends[0, 0] if flows.counts[COUNT.ends] > 0 else NEVER


@inner
def _rise(flows: Flows, at: int, end: int, flow: int) -> None:
    """Put a flow at a place that is free, or above."""
    ends, rows = flows.ends, flows.flows
    while at > 0:
        parent = (at - 1) >> 1
        if ends[parent, 0] < end or (ends[parent, 0] == end and ends[parent, 1] < flow):
            break
        ends[at, 0], ends[at, 1] = ends[parent, 0], ends[parent, 1]
        rows[ends[at, 1], FLOW.place] = at + 1
        at = parent
    ends[at, 0], ends[at, 1] = end, flow
    rows[flow, FLOW.place] = at + 1


@inner
def _sink(flows: Flows, at: int, end: int, flow: int) -> None:
    """Put a flow at a place that is free, or below."""
    ends, rows, size = flows.ends, flows.flows, flows.counts[COUNT.ends]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            ends[other, 0] < ends[child, 0]
            or (ends[other, 0] == ends[child, 0] and ends[other, 1] < ends[child, 1])
        ):
            child = other
        if end < ends[child, 0] or (end == ends[child, 0] and flow < ends[child, 1]):
            break
        ends[at, 0], ends[at, 1] = ends[child, 0], ends[child, 1]
        rows[ends[at, 1], FLOW.place] = at + 1
        at = child
    ends[at, 0], ends[at, 1] = end, flow
    rows[flow, FLOW.place] = at + 1


@called
def put_end(flows: Flows, flow: int, end: int) -> None:
    """Say when a flow ends, whether that was known before or not."""
    rows, counts = flows.flows, flows.counts
    place, before = rows[flow, FLOW.place] - 1, rows[flow, FLOW.end]
    rows[flow, FLOW.end] = end
    if place < 0:
        counts[COUNT.ends] += 1
        _rise(flows, counts[COUNT.ends] - 1, end, flow)
    elif end < before:
        _rise(flows, place, end, flow)
    else:
        _sink(flows, place, end, flow)


@called
def remove_end(flows: Flows, flow: int) -> None:
    """Forget when a flow ends."""
    rows, counts, ends = flows.flows, flows.counts, flows.ends
    place = rows[flow, FLOW.place] - 1
    if place < 0:
        return
    rows[flow, FLOW.place] = 0
    counts[COUNT.ends] -= 1
    last = counts[COUNT.ends]
    if place == last:
        return
    end, moves = ends[last, 0], ends[last, 1]
    if end < rows[flow, FLOW.end] or (end == rows[flow, FLOW.end] and moves < flow):
        _rise(flows, place, end, moves)
    else:
        _sink(flows, place, end, moves)


_PARTS = 1_000_000_000_000  # parts of 1/1024 byte
_HALF = 1_000_000


@inner
def moved_bytes(rate: int, time: int) -> tuple[int, int]:
    """Return what a rate moves in a time: 1/1024 bytes, and parts; exact if that fits."""
    rate_high, rate_low = rate // _HALF, rate % _HALF
    time_high, time_low = time // _HALF, time % _HALF
    one, other = rate_high * time_low, rate_low * time_high
    whole = rate_high * time_high + one // _HALF + other // _HALF
    parts = (one % _HALF + other % _HALF) * _HALF + rate_low * time_low
    return whole + parts // _PARTS, parts % _PARTS


@inner
def time_to_move(whole: int, parts: int, rate: int) -> int:
    """Return how long a rate needs, rounded up; NEVER if that is more than half of all times."""
    if whole == 0 and parts == 0:
        return 0
    if rate == 0:
        return NEVER
    about = (np.float64(whole) * 1e12 + np.float64(parts)) / np.float64(rate)
    if about > 4.6e18:
        return NEVER
    time = np.int64(about)
    while True:  # a few units too many or too few
        done, done_parts = moved_bytes(rate, time)
        short, short_parts = whole - done, parts - done_parts
        # at most 2^11 units of time are missing, each of them less than 2^63 parts
        missing = np.float64(short) * 1e12 + np.float64(short_parts)
        step = np.int64(missing / np.float64(rate))
        if step == 0:
            break
        time += step
    # less than a unit of time is missing or too much, up to rounding: look at both neighbors
    while _is_enough(whole, parts, rate, time - 1):
        time -= 1
    while not _is_enough(whole, parts, rate, time):
        time += 1
    return time


@inner
def _is_enough(whole: int, parts: int, rate: int, time: int) -> bool:
    done, done_parts = moved_bytes(rate, time)
    return done > whole or (done == whole and done_parts >= parts)


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
            done, parts = moved_bytes(rate, now - rows[flow, FLOW.since])
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

    - ``route``: Row of ``routes``.
    - ``size``: Bytes, less than 2^53. A flow of none, or without links and cap, ends at once.
    - ``key``: What :func:`take_ended` gives back; not negative.
    - ``cap``: Its highest rate, in 1/1024 bytes/s; 0 if only links limit it.
    - Returns: Its row; -1 if there is no room, which ``COUNT.problem`` then says.
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
