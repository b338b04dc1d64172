"""What an instance does: the time of its steps, blocks in tiers, transfers, and who waits."""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.serving.block_kernels import content_of, find, mixed, put_last, register, take, take_out
from nadi.serving.engine_columns import (
    BATCH,
    BLOCK,
    CACHE,
    CHANNEL,
    FAR,
    FLIGHT,
    INSTANCE,
    REQUEST,
    SETTING,
    TIER,
    Engines,
)

_READ, _WRITE = 0, 1


@inner
def _cache_of(engines: Engines, tier: int, instance: int) -> int:
    """Return the cache of a tier that an instance uses."""
    row = engines.tiers[tier]
    return int(row[TIER.cache] + instance // row[TIER.sharing])


@inner
def role_of(engines: Engines, i: int) -> int:
    """Return 0 for an instance that only reads prompts, else 1."""
    return 0 if i < engines.settings[SETTING.prefills] else 1


@inner
def lead_of(engines: Engines, i: int) -> int:
    """Return the first of the groups that step with a group."""
    return int(engines.instances[i, INSTANCE.lead])


@inner
def _channel_of(engines: Engines, link: int, i: int) -> int:
    """Return the channel of an instance's link."""
    return int(link * engines.settings[SETTING.instances] + i)


@called
def _over_link(engines: Engines, tier: int, i: int, way: int, blocks: int, now: int) -> int:
    """Have blocks pass an instance's link behind what passes already; return when they have."""
    link = engines.tiers[tier, TIER.link]
    row = engines.channels[_channel_of(engines, link, i)]
    took = int(np.rint(engines.pace[role_of(engines, i), tier, 0] * blocks))
    begin = max(row[CHANNEL.free + way], now)
    row[CHANNEL.moved + way] += blocks
    row[CHANNEL.busy] += took
    lead, others = lead_of(engines, i), 0
    for k in range(lead, lead + engines.instances[lead, INSTANCE.groups]):
        channel = engines.channels[_channel_of(engines, link, k)]
        others = max(others, max(channel[CHANNEL.free], channel[CHANNEL.free + 1]))
    row[CHANNEL.free + way] = _beside_steps(engines, lead, link, begin, took, others)
    return int(row[CHANNEL.free + way])


@called
def _beside_steps(engines: Engines, i: int, link: int, begin: int, took: int, others: int) -> int:
    """Have blocks share a link with collectives of steps under way; return when they have passed.

    Collectives go in small parts over all of a step. While both are there, each has half of the
    link, so that both take longer by what collectives keep of it. A step that blocks of the other
    way, or of other groups, slow until ``others`` is not slowed twice.

    - ``i``: The first group of the instance.
    """
    here, depth = engines.instances[i], engines.flights.shape[1]
    first_end = engines.flights[i, here[INSTANCE.oldest], FLIGHT.end]
    free_at, at, left, longer = here[INSTANCE.free_at], begin, took, 0
    for k in range(here[INSTANCE.flights]):
        place = (here[INSTANCE.oldest] + k) % depth
        row, share = engines.flights[i, place], engines.kept[i, place, link]
        row[FLIGHT.start] += longer
        row[FLIGHT.end] += longer
        alone = min(left, max(0, row[FLIGHT.start] - at))
        at, left = at + alone, left - alone
        both = min(left, max(0, row[FLIGHT.end] - at))
        slowed = int(np.rint(share * max(0, at + both - max(at, others))))
        at, left = at + both + int(np.rint(share * both)), left - both
        row[FLIGHT.end] += slowed
        longer += slowed
        here[INSTANCE.busy] += slowed
        here[INSTANCE.beside] += slowed
        here[INSTANCE.bound + row[FLIGHT.reason]] += slowed
    if longer:
        here[INSTANCE.free_at] += longer
        if engines.wake[i] == first_end:
            engines.wake[i] = engines.flights[i, here[INSTANCE.oldest], FLIGHT.end]
        elif engines.wake[i] == free_at:
            engines.wake[i] = here[INSTANCE.free_at]
    return int(at + left)


@inner
def _most_tokens(engines: Engines, lead: int) -> int:
    """Return the tokens of the group that has most in the step."""
    most = 0
    for i in range(lead, lead + engines.instances[lead, INSTANCE.groups]):
        most = max(most, engines.settings[SETTING.budget] - engines.batch[i, BATCH.left])
    return int(most)


@inner
def _mean_tokens(engines: Engines, lead: int) -> int:
    """Return the tokens of a group in the mean, rounded up: experts have those of all groups."""
    groups, left = engines.instances[lead, INSTANCE.groups], 0
    for i in range(lead, lead + groups):
        left += engines.batch[i, BATCH.left]
    return int(engines.settings[SETTING.budget] - left // groups)


@called
def _delay_loads(
    engines: Engines, i: int, j: int, link: int, share: float, begin: int, took: int
) -> None:
    """Have loads of an instance ``j`` come later, whose link at ``i`` a step of ``i`` shares."""
    for k in range(engines.instances[j, INSTANCE.loading]):
        row = engines.requests[engines.loading[j, k]]
        if row[REQUEST.link] == link and (i == j or row[REQUEST.source] == i):
            rest = min(max(0, row[REQUEST.passed] - begin), took)
            row[REQUEST.passed] += int(np.rint(share * rest))
            row[REQUEST.ready] = max(row[REQUEST.ready], row[REQUEST.passed])


@called
def _slowed_by_blocks(
    engines: Engines, i: int, link: int, share: float, start: int, behind: int, took: int
) -> int:
    """Have a step keep a group's link; return for how long blocks share it."""
    settings = engines.settings
    row, most = engines.channels[_channel_of(engines, link, i)], 0
    for way in range(2):
        free = row[CHANNEL.free + way]
        most = max(most, int(np.rint(share * min(max(0, free - start), took))))
        row[CHANNEL.free + way] += int(np.rint(share * min(max(0, free - behind), took)))
    if most:
        _delay_loads(engines, i, i, link, share, behind, took)
        if link == engines.tiers[settings[SETTING.tiers], TIER.link]:
            for j in range(settings[SETTING.prefills], settings[SETTING.instances]):
                if j != i and role_of(engines, i) == 0:
                    _delay_loads(engines, i, j, link, share, behind, took)
    return int(most)


@called
def slowed_by_blocks(engines: Engines, lead: int, place: int, start: int, took: int) -> int:
    """Have a step that begins share links with blocks under way; return how much longer it takes.

    - ``place``: Of the step among those under way; those before it are there already.
    """
    here, longer = engines.instances[lead], 0
    tokens = _most_tokens(engines, lead)
    behind, end = start, lead + here[INSTANCE.groups]
    if here[INSTANCE.flights] > 0:
        newest = (place + engines.flights.shape[1] - 1) % engines.flights.shape[1]
        behind = max(start, engines.flights[lead, newest, FLIGHT.end])
    for link in range(engines.settings[SETTING.links]):
        share = min(1.0, engines.wires[role_of(engines, lead), link, tokens] / took)
        engines.kept[lead, place, link] = share
        most = 0
        for i in range(lead, end):
            most = max(most, _slowed_by_blocks(engines, i, link, share, start, behind, took))
        longer += most
    return int(longer)


@called
def _pass(engines: Engines, tier: int, instance: int, way: int, blocks: int, now: int) -> int:
    """Move blocks between an instance and a tier; return when they have arrived.

    The link and the memory pass them at the same time, each behind what it passes already.
    """
    tiers = engines.tiers[tier]
    row = engines.channels[tiers[TIER.memory] + instance // tiers[TIER.sharing]]
    queue = CHANNEL.free + (way if tiers[TIER.duplex] else 0)
    took = np.int64(np.rint(engines.pace[role_of(engines, instance), tier, 1 + way] * blocks))
    row[queue] = max(row[queue], now) + took
    row[CHANNEL.moved + way] += blocks
    row[CHANNEL.busy] += took
    over_link = _over_link(engines, tier, instance, way, blocks, now)
    return int(max(over_link, row[queue]) + tiers[TIER.latency])


@inner
def _tier_of(engines: Engines, instance: int, content: int) -> int:
    """Return the first tier that holds a content, or -1."""
    for tier in range(engines.settings[SETTING.tiers]):
        if find(engines, _cache_of(engines, tier, instance), content) >= 0:
            return tier
    return -1


@called
def tier_hits(engines: Engines, instance: int, request: int, found: int) -> int:
    """Return how many blocks of a request after the first ``found`` ones are in tiers."""
    row, hits = engines.requests[request], 0
    most = (row[REQUEST.known] - 1) // engines.settings[SETTING.block]
    while found + hits < most:
        if _tier_of(engines, instance, content_of(engines, request, found + hits)) < 0:
            break
        hits += 1
    return hits


@called
def load_blocks(
    engines: Engines, instance: int, request: int, found: int, loads: int, now: int
) -> int:
    """Load a request's blocks; return when all have come.

    Those of a request that was sent on come from the instance that read its prompt, over a link of
    both.
    """
    num_tiers, row, ready = engines.settings[SETTING.tiers], engines.requests[request], now
    if row[REQUEST.moved]:
        ready = _over_link(engines, num_tiers, row[REQUEST.source], _WRITE, loads, now)
        ready = max(ready, _over_link(engines, num_tiers, instance, _READ, loads, now))
        row[REQUEST.link], row[REQUEST.passed] = engines.tiers[num_tiers, TIER.link], ready
        return int(ready)
    row[REQUEST.source] = -1
    for tier in range(num_tiers):
        here = 0
        cache = _cache_of(engines, tier, instance)
        for k in range(found, found + loads):
            content = content_of(engines, request, k)
            block = find(engines, cache, content)
            if block >= 0 and _tier_of(engines, instance, content) == tier:
                here += 1
                take_out(engines, cache, block)
                put_last(engines, cache, block)
        if here:
            came = _pass(engines, tier, instance, _READ, here, now)
            if came >= ready:
                link = engines.tiers[tier, TIER.link]
                channel = engines.channels[_channel_of(engines, link, instance)]
                passed = channel[CHANNEL.free + _READ] + engines.tiers[tier, TIER.latency]
                row[REQUEST.link], row[REQUEST.passed] = link, passed
            ready = max(ready, came)
    return int(ready)


@called
def store_block(engines: Engines, instance: int, content: int, now: int) -> None:
    """Write a full block to the first tier; what that gives away goes to the next one."""
    for tier in range(engines.settings[SETTING.tiers]):
        cache = _cache_of(engines, tier, instance)
        block = find(engines, cache, content)
        if block >= 0:
            take_out(engines, cache, block)
            put_last(engines, cache, block)
            return
        head = engines.caches[cache, CACHE.head]
        old = engines.blocks[head, BLOCK.content]
        block = take(engines, cache)
        register(engines, cache, block, content)
        put_last(engines, cache, block)
        _pass(engines, tier, instance, _WRITE, 1, now)
        engines.settings[SETTING.stored] += 1
        if old == 0:
            return
        content = old


@inner
def _place_on(axis: np.ndarray, value: float) -> int:
    """Return the point at or before a value, so that one follows it."""
    low, high = 0, axis.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@called
def _attention(
    engines: Engines, role: int, chunk: float, before: float, decodes: float, context: float
) -> float:
    """Look up attention between the points of the grid: linear along each axis, also beyond."""
    axes, grid = engines.axes, engines.attention[role]
    a = _place_on(axes[0, : grid.shape[0]], chunk)
    b = _place_on(axes[1, : grid.shape[1]], before)
    c = _place_on(axes[2, : grid.shape[2]], decodes)
    d = _place_on(axes[3, : grid.shape[3]], context)
    along_a = (chunk - axes[0, a]) / (axes[0, a + 1] - axes[0, a])
    along_b = (before - axes[1, b]) / (axes[1, b + 1] - axes[1, b])
    along_c = (decodes - axes[2, c]) / (axes[2, c + 1] - axes[2, c])
    along_d = (context - axes[3, d]) / (axes[3, d + 1] - axes[3, d])
    total = 0.0
    for i in range(2):
        of_a = along_a if i else 1.0 - along_a
        for j in range(2):
            of_b = of_a * (along_b if j else 1.0 - along_b)
            if of_b == 0.0:
                continue
            for k in range(2):
                of_c = of_b * (along_c if k else 1.0 - along_c)
                if of_c == 0.0:
                    continue
                near = grid[a + i, b + j, c + k, d]
                far = grid[a + i, b + j, c + k, d + 1]
                total += of_c * (near + along_d * (far - near))
    return total


@called
def _crowded(engines: Engines, role: int, chunk: float, before: float) -> float:
    """Look up attention of a chunk beside many others: linear along both axes, also beyond."""
    axes, grid = engines.axes, engines.crowded[role]
    a = _place_on(axes[0, : grid.shape[0]], chunk)
    b = _place_on(axes[1, : grid.shape[1]], before)
    along_a = (chunk - axes[0, a]) / (axes[0, a + 1] - axes[0, a])
    along_b = (before - axes[1, b]) / (axes[1, b + 1] - axes[1, b])
    near = grid[a, b] + along_b * (grid[a, b + 1] - grid[a, b])
    far = grid[a + 1, b] + along_b * (grid[a + 1, b + 1] - grid[a + 1, b])
    return float(near + along_a * (far - near))


@called
def _attend(engines: Engines, i: int, role: int) -> None:
    """Write the time of attention of a group's part of the step.

    One kernel has all chunks: it takes as long as the longest of them, and as all of them share
    the device. The last one goes along with what generates.
    """
    batch = engines.batch[i]
    decodes, num_chunks = batch[BATCH.decodes], batch[BATCH.chunks]
    context = batch[BATCH.context] / decodes if decodes else 0.0
    longest, shared = 0.0, 0.0
    for k in range(num_chunks):
        chunk, before = float(engines.chunks[i, k, 0]), float(engines.chunks[i, k, 1])
        longest = max(longest, _attention(engines, role, chunk, before, 0.0, 0.0))
        shared += _crowded(engines, role, chunk, before)
    engines.spent[i, 0], engines.spent[i, 1] = max(longest, shared), 0.0
    if decodes:
        if num_chunks:
            last = num_chunks - 1
            chunk, before = float(engines.chunks[i, last, 0]), float(engines.chunks[i, last, 1])
            beside = _attention(engines, role, chunk, before, float(decodes), context)
            beside -= _attention(engines, role, chunk, before, 0.0, 0.0)
        else:
            beside = _attention(engines, role, 0.0, 0.0, float(decodes), context)
        engines.spent[i, 1] = beside


@inner
def _alone_ns(engines: Engines, i: int, role: int) -> float:
    """Return the time of a group's part of the step, without the experts that all share."""
    tokens = engines.settings[SETTING.budget] - engines.batch[i, BATCH.left]
    dense = engines.dense[role, tokens]
    heads = engines.heads[role, engines.batch[i, BATCH.rows]]
    return float(dense[0] - dense[3] + heads + engines.spent[i, 0] + engines.spent[i, 1])


@called
def slowest_of(engines: Engines, lead: int) -> int:
    """Return the group whose part of the step takes longest."""
    role, found = role_of(engines, lead), lead
    for i in range(lead + 1, lead + engines.instances[lead, INSTANCE.groups]):
        if _alone_ns(engines, i, role) > _alone_ns(engines, found, role):
            found = i
    return found


@called
def step_ns(engines: Engines, lead: int, role: int) -> int:
    """Give the time of the step that was made, and count what it goes to.

    It is that of the slowest group, and of experts, which have the tokens of all groups.
    """
    row, has_chunks = engines.instances[lead], False
    for i in range(lead, lead + row[INSTANCE.groups]):
        _attend(engines, i, role)
        has_chunks |= engines.batch[i, BATCH.chunks] > 0
    slowest = slowest_of(engines, lead)
    tokens = engines.settings[SETTING.budget] - engines.batch[slowest, BATCH.left]
    dense, experts = engines.dense[role, tokens], engines.dense[role, _mean_tokens(engines, lead)]
    on_device = _alone_ns(engines, slowest, role) + experts[3]
    host = float(engines.settings[SETTING.host])
    if has_chunks:
        host += engines.settings[SETTING.launch]
    waits = max(0.0, host - on_device) if engines.settings[SETTING.hidden] else host
    row[INSTANCE.dense] += np.int64(dense[0] - dense[3] + experts[3])
    row[INSTANCE.memory] += np.int64(dense[1] - dense[4] + experts[4])
    row[INSTANCE.network] += np.int64(dense[2])
    row[INSTANCE.heads] += np.int64(engines.heads[role, engines.batch[slowest, BATCH.rows]])
    row[INSTANCE.prefill] += np.int64(engines.spent[slowest, 0])
    row[INSTANCE.decode] += np.int64(engines.spent[slowest, 1])
    row[INSTANCE.host] += np.int64(waits)
    return int(max(1.0, np.rint(on_device + waits)))


@inner
def _is_before(engines: Engines, a: int, b: int) -> bool:
    heap = engines.heap
    if heap[a, 0] != heap[b, 0]:
        return bool(heap[a, 0] < heap[b, 0])
    return bool(heap[a, 1] < heap[b, 1])


@inner
def _swap(engines: Engines, a: int, b: int) -> None:
    for k in range(2):
        engines.heap[a, k], engines.heap[b, k] = engines.heap[b, k], engines.heap[a, k]


@called
def _put(engines: Engines, time: int, request: int) -> None:
    """Have a request arrive at a time."""
    at = engines.settings[SETTING.heap]
    engines.settings[SETTING.heap] = at + 1
    engines.heap[at, 0], engines.heap[at, 1] = time, request
    while at > 0 and _is_before(engines, at, (at - 1) >> 1):
        _swap(engines, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@called
def _take(engines: Engines) -> int:
    """Take the first request out of the heap."""
    left = engines.settings[SETTING.heap] - 1
    engines.settings[SETTING.heap] = left
    _swap(engines, 0, left)
    at = 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        if child + 1 < left and _is_before(engines, child + 1, child):
            child += 1
        if not _is_before(engines, child, at):
            break
        _swap(engines, child, at)
        at = child
    return int(engines.heap[left, 1])


@inner
def _next_of_file(engines: Engines) -> int:
    """Return when the next request comes that follows no other."""
    place = engines.settings[SETTING.next_arrival]
    if place == engines.arrivals.size:
        return FAR
    return int(engines.requests[engines.arrivals[place], REQUEST.arrival])


@inner
def next_arrival(engines: Engines) -> int:
    """Return when the next request comes, or FAR."""
    time = _next_of_file(engines)
    return min(time, engines.heap[0, 0]) if engines.settings[SETTING.heap] else time


@called
def _least_loaded(engines: Engines, first: int, end: int, step: int) -> int:
    """Return the first of so many neighbors whose requests are the fewest, in all of them."""
    best, least = first, FAR
    for i in range(first, end, step):
        load = 0
        for k in range(i, i + step):
            load += engines.instances[k, INSTANCE.load]
        if load < least:
            best, least = i, load
    return best


@called
def _chosen(engines: Engines, request: int, first: int, end: int) -> int:
    """Return which of the instances ``first:end`` takes a request, and which of its groups."""
    settings, routing = engines.settings, engines.settings[SETTING.routing]
    groups = engines.instances[first, INSTANCE.groups]
    if routing == 1:
        lead = _least_loaded(engines, first, end, groups)
        return _least_loaded(engines, lead, lead + groups, 1)
    if routing == 2:
        # the last bit is always set: with it, an even number of instances would leave half idle
        turn = mixed(engines.requests[request, REQUEST.stream], 0) >> 1
    else:
        column = SETTING.turn if first == 0 else SETTING.turn_decode
        turn = settings[column]
        settings[column] += 1
    many = (end - first) // groups
    return int(first + turn % many * groups + turn // many % groups)


@called
def arrive(engines: Engines) -> None:
    """Have the next request come to an instance, which sees it when it is looked at."""
    settings = engines.settings
    time = next_arrival(engines)
    if time == _next_of_file(engines):
        request = engines.arrivals[settings[SETTING.next_arrival]]
        settings[SETTING.next_arrival] += 1
    else:
        request = _take(engines)
    row = engines.requests[request]
    prefills, num_instances = settings[SETTING.prefills], settings[SETTING.instances]
    first, end = 0, num_instances
    if prefills:
        first, end = (prefills, num_instances) if row[REQUEST.moved] else (0, prefills)
    i = _chosen(engines, request, first, end)
    here, lead = engines.instances[i], lead_of(engines, i)
    here[INSTANCE.in_system] += here[INSTANCE.load] * (time - here[INSTANCE.seen])
    here[INSTANCE.seen] = time
    here[INSTANCE.load] += 1
    if engines.instances[lead, INSTANCE.sleeps]:
        engines.wake[lead] = min(engines.wake[lead], time)
    if not row[REQUEST.moved]:
        row[REQUEST.queued] = max(time, engines.wake[lead])
    row[REQUEST.instance] = i
    row[REQUEST.state] = 0
    row[REQUEST.next] = -1
    if here[INSTANCE.tail] >= 0:
        engines.requests[here[INSTANCE.tail], REQUEST.next] = request
    else:
        here[INSTANCE.head] = request
    here[INSTANCE.tail] = request
    here[INSTANCE.waiting] += 1


@inner
def release_followers(engines: Engines, request: int, time: int) -> None:
    """Have the request come that follows one that is done."""
    follower = engines.requests[request, REQUEST.follower]
    if follower >= 0:
        row = engines.requests[follower]
        row[REQUEST.arrival] = time + row[REQUEST.pause]
        _put(engines, row[REQUEST.arrival], follower)


@inner
def send_on(engines: Engines, request: int, time: int) -> None:
    """Send a request whose prompt was read to those that generate."""
    row = engines.requests[request]
    row[REQUEST.moved], row[REQUEST.source] = 1, row[REQUEST.instance]
    engines.instances[row[REQUEST.instance], INSTANCE.lost_tokens] += row[REQUEST.computed]
    row[REQUEST.computed] = row[REQUEST.flight] = 0
    _put(engines, time, request)
