"""Serving engines at work: who is in which step, and when each step ends.

The rules are those of vLLM's scheduler (V1). A step gives each running request, in the order of
admission, the tokens that are known of it and not computed, as far as its budget lasts. Then
requests that wait are admitted in order, until one has no room. A running request that finds no
block puts out the last one, whose tokens are computed again later. The next step is made when the
one before it begins, so that what ends in a step is free for the next step but one.

Groups of an instance (data parallel attention) have requests, blocks and a budget of their own, and
step together, as they share the experts: a group without tokens waits for the others.
"""

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.serving.block_kernels import content_of, find, let_go, register, take, take_out
from nadi.serving.engine_columns import (
    BATCH,
    BLOCK,
    CACHE,
    FAR,
    FLIGHT,
    INSTANCE,
    REQUEST,
    SETTING,
    Engines,
)
from nadi.serving.instance_kernels import (
    arrive,
    lead_of,
    load_blocks,
    next_arrival,
    release_followers,
    role_of,
    send_on,
    slowed_by_blocks,
    slowest_of,
    step_ns,
    store_block,
    tier_hits,
)

_WAITING, _RUNNING, _LOADING, _PUT_OUT = range(4)
_NONE, _BUDGET, _SEQUENCES, _BLOCKS, _LOADS, _FEW = range(6)


@inner
def _wanted(engines: Engines, i: int, request: int) -> int:
    """Return how many tokens a request generates at an instance."""
    return 1 if role_of(engines, i) == 0 else int(engines.requests[request, REQUEST.output])


@inner
def _add_event(engines: Engines, i: int, event: int) -> None:
    """Note what a request does at the end of the step that is being made."""
    row = engines.instances[lead_of(engines, i)]
    place = (row[INSTANCE.oldest] + row[INSTANCE.flights]) % engines.flights.shape[1]
    engines.events[i, place, engines.batch[i, BATCH.events]] = event
    engines.batch[i, BATCH.events] += 1


@inner
def _guessed(engines: Engines, request: int, drafts: int) -> int:
    """Return how many guesses of a step are right: those before the first that is wrong."""
    settings, row = engines.settings, engines.requests[request]
    right = 0
    while right < drafts:
        x = np.uint64(settings[SETTING.seed]) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(request) * np.uint64(0xD1B54A32D192ED03)
        x += np.uint64(row[REQUEST.generated] + right)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        if np.int64(x >> np.uint64(11)) >= settings[SETTING.accepted]:
            break
        right += 1
    return right


@called
def _compute(engines: Engines, i: int, request: int, tokens: int, now: int) -> None:
    """Put a request's tokens into the step that is being made."""
    row, batch = engines.requests[request], engines.batch[i]
    batch[BATCH.left] -= tokens
    engines.instances[i, INSTANCE.tokens] += tokens
    row[REQUEST.flight] = engines.instances[lead_of(engines, i), INSTANCE.launched] + 1
    generates = row[REQUEST.known] - row[REQUEST.computed] == 1 and row[REQUEST.generated] > 0
    if generates:
        batch[BATCH.decodes] += 1
        batch[BATCH.context] += row[REQUEST.computed]
    else:
        engines.chunks[i, batch[BATCH.chunks], 0] = tokens
        engines.chunks[i, batch[BATCH.chunks], 1] = row[REQUEST.computed]
        batch[BATCH.chunks] += 1
    before = row[REQUEST.computed]
    gained = 0
    if generates:
        left = _wanted(engines, i, request) - row[REQUEST.generated]
        gained = min(left, 1 + _guessed(engines, request, tokens - 1))
        row[REQUEST.computed] += gained
        engines.instances[i, INSTANCE.lost_tokens] += tokens - gained
    else:
        row[REQUEST.computed] += tokens
        gained = 1 if row[REQUEST.computed] == row[REQUEST.known] else 0
    if engines.settings[SETTING.reuses]:
        _keep_content(engines, i, request, before, now)
    if gained:
        batch[BATCH.rows] += tokens if generates else 1
        if row[REQUEST.generated] == 0:
            _add_event(engines, i, 2 * request)
        row[REQUEST.generated] += gained
        row[REQUEST.known] += gained
        if row[REQUEST.generated] == _wanted(engines, i, request):
            _add_event(engines, i, 2 * request + 1)


@inner
def _keep_content(engines: Engines, i: int, request: int, before: int, now: int) -> None:
    """Have blocks found by their content that are full since a request had ``before`` tokens."""
    row, block = engines.requests[request], engines.settings[SETTING.block]
    for k in range(before // block, row[REQUEST.computed] // block):
        here = engines.tables[i, row[REQUEST.slot], k]
        if engines.blocks[here, BLOCK.content] == 0:
            content = content_of(engines, request, k)
            register(engines, i, here, content)
            if engines.settings[SETTING.tiers]:
                store_block(engines, i, content, now)


@called
def _give_up(engines: Engines, i: int, request: int) -> None:
    """Free a request's blocks, the last one first, and its row of ``tables``."""
    row, here = engines.requests[request], engines.instances[i]
    for k in range(row[REQUEST.blocks] - 1, -1, -1):
        let_go(engines, i, engines.tables[i, row[REQUEST.slot], k])
    row[REQUEST.blocks] = 0
    engines.slots[i, here[INSTANCE.slots]] = row[REQUEST.slot]
    here[INSTANCE.slots] += 1


@called
def _put_out_last(engines: Engines, i: int) -> int:
    """Put out the request that was admitted last: it waits before all others. Return it."""
    here = engines.instances[i]
    here[INSTANCE.running] -= 1
    request = engines.running[i, here[INSTANCE.running]]
    row = engines.requests[request]
    _give_up(engines, i, request)
    here[INSTANCE.put_out] += 1
    row[REQUEST.put_out] += 1
    if row[REQUEST.generated] == _wanted(engines, i, request):
        row[REQUEST.state] = _PUT_OUT  # its last token is under way
        return int(request)
    here[INSTANCE.lost_tokens] += row[REQUEST.computed]
    row[REQUEST.computed] = 0
    row[REQUEST.state] = _WAITING
    row[REQUEST.next] = here[INSTANCE.head]
    here[INSTANCE.head] = request
    if here[INSTANCE.tail] < 0:
        here[INSTANCE.tail] = request
    here[INSTANCE.waiting] += 1
    return int(request)


@called
def _continue_running(engines: Engines, i: int, now: int) -> bool:
    """Put running requests into the step; tell whether one was put out."""
    settings, here, batch = engines.settings, engines.instances[i], engines.batch[i]
    block, put_out, k = settings[SETTING.block], False, 0
    lead = engines.instances[lead_of(engines, i)]
    while k < here[INSTANCE.running] and batch[BATCH.left] > 0:
        request = engines.running[i, k]
        row = engines.requests[request]
        is_under_way = lead[INSTANCE.stages] > 1 and row[REQUEST.flight] > lead[INSTANCE.landed]
        if row[REQUEST.generated] == _wanted(engines, i, request) or is_under_way:
            k += 1
            continue
        tokens = row[REQUEST.known] - row[REQUEST.computed]
        if tokens == 1 and row[REQUEST.generated] > 0:
            # guesses beyond the last token are not made
            beyond = _wanted(engines, i, request) - row[REQUEST.generated] - 1
            tokens += min(settings[SETTING.drafts], beyond)
        tokens = min(tokens, batch[BATCH.left])
        need = (row[REQUEST.computed] + tokens + block - 1) // block - row[REQUEST.blocks]
        is_out = False
        while need > engines.caches[i, CACHE.free] and not is_out:
            put_out = True
            is_out = _put_out_last(engines, i) == request
        if is_out:
            break
        _extend(engines, i, request, need)
        _compute(engines, i, request, tokens, now)
        k += 1
    return put_out


@inner
def _extend(engines: Engines, i: int, request: int, need: int) -> None:
    """Give a request further blocks."""
    row = engines.requests[request]
    for _ in range(need):
        block = take(engines, i)
        engines.blocks[block, BLOCK.users] = 1
        engines.tables[i, row[REQUEST.slot], row[REQUEST.blocks]] = block
        row[REQUEST.blocks] += 1


@called
def _hits(engines: Engines, i: int, request: int, slot: int) -> int:
    """Write the blocks that hold the beginning of a request to a row of tables; return how many."""
    row, found = engines.requests[request], 0
    most = (row[REQUEST.known] - 1) // engines.settings[SETTING.block]
    while found < most:
        block = find(engines, i, content_of(engines, request, found))
        if block < 0:
            break
        engines.tables[i, slot, found] = block
        found += 1
    return found


@called
def _admit(engines: Engines, i: int, request: int, now: int) -> bool:
    """Admit a request that waits; tell whether it had room."""
    settings, here, row = engines.settings, engines.instances[i], engines.requests[request]
    block, known = settings[SETTING.block], row[REQUEST.known]
    slot = engines.slots[i, here[INSTANCE.slots] - 1]
    found = _hits(engines, i, request, slot) if settings[SETTING.reuses] else 0
    unused = 0
    for k in range(found):
        unused += engines.blocks[engines.tables[i, slot, k], BLOCK.users] == 0
    loads = 0
    if row[REQUEST.moved]:
        loads = (known - 1 + block - 1) // block - found
    elif settings[SETTING.tiers]:
        loads = tier_hits(engines, i, request, found)
    tokens = min(known - found * block, engines.batch[i, BATCH.left])
    whole = (known + block - 1) // block
    least = whole
    if not settings[SETTING.reserves] and not loads:
        least = (found * block + tokens + block - 1) // block
    if least - found + unused > engines.caches[i, CACHE.free]:
        return False
    here[INSTANCE.slots] -= 1
    row[REQUEST.slot], row[REQUEST.blocks] = slot, found
    for k in range(found):
        hit = engines.tables[i, slot, k]
        if engines.blocks[hit, BLOCK.users] == 0:
            take_out(engines, i, hit)
        engines.blocks[hit, BLOCK.users] += 1
    row[REQUEST.computed] = found * block
    row[REQUEST.hits] += found * block
    here[INSTANCE.hit_tokens] += found * block
    if loads:
        _begin_load(engines, i, request, found, loads, now)
        return True
    need = (row[REQUEST.computed] + tokens + block - 1) // block - found
    _extend(engines, i, request, need)
    _run(engines, i, request, now)
    _compute(engines, i, request, tokens, now)
    return True


@inner
def _run(engines: Engines, i: int, request: int, now: int) -> None:
    here, row = engines.instances[i], engines.requests[request]
    if engines.settings[SETTING.prefills] > 0 and row[REQUEST.generated] == 1:
        row[REQUEST.first] = now  # who generates sends all tokens to the client, the first one, too
    engines.running[i, here[INSTANCE.running]] = request
    here[INSTANCE.running] += 1
    row[REQUEST.state] = _RUNNING


@called
def _begin_load(engines: Engines, i: int, request: int, found: int, loads: int, now: int) -> None:
    """Have blocks loaded, while the request, with all the blocks of its prompt, is in no step."""
    here, row, block = (
        engines.instances[i],
        engines.requests[request],
        engines.settings[SETTING.block],
    )
    _extend(engines, i, request, (row[REQUEST.known] + block - 1) // block - found)
    row[REQUEST.ready] = load_blocks(engines, i, request, found, loads, now)
    reached = min((found + loads) * block, row[REQUEST.known] - 1)
    here[INSTANCE.loaded_tokens] += reached - row[REQUEST.computed]
    row[REQUEST.hits] += reached - row[REQUEST.computed]
    before = row[REQUEST.computed]
    row[REQUEST.computed] = reached
    row[REQUEST.moved] = 0
    if engines.settings[SETTING.reuses]:
        for k in range(before // block, reached // block):
            loaded = engines.tables[i, row[REQUEST.slot], k]
            register(engines, i, loaded, content_of(engines, request, k))
    row[REQUEST.state] = _LOADING
    engines.loading[i, here[INSTANCE.loading]] = request
    here[INSTANCE.loading] += 1


@called
def _admit_loaded(engines: Engines, i: int, now: int) -> None:
    """Put requests into the step whose keys and values have come."""
    settings, here, batch = engines.settings, engines.instances[i], engines.batch[i]
    kept = 0
    for k in range(here[INSTANCE.loading]):
        request = engines.loading[i, k]
        row = engines.requests[request]
        has_room = batch[BATCH.left] > 0 and here[INSTANCE.running] < settings[SETTING.sequences]
        if row[REQUEST.ready] > now or not has_room:
            engines.loading[i, kept] = request
            kept += 1
            continue
        _run(engines, i, request, now)
        tokens = min(row[REQUEST.known] - row[REQUEST.computed], batch[BATCH.left])
        _compute(engines, i, request, tokens, now)
    here[INSTANCE.loading] = kept


@called
def _admit_waiting(engines: Engines, i: int, now: int) -> int:
    """Admit requests in order until one has no room; return why no more were."""
    settings, here, batch = engines.settings, engines.instances[i], engines.batch[i]
    while here[INSTANCE.waiting] > 0:
        if batch[BATCH.left] <= 0:
            return _BUDGET
        most = settings[SETTING.sequences]
        if here[INSTANCE.running] >= most or here[INSTANCE.loading] >= most:
            return _SEQUENCES
        request = here[INSTANCE.head]
        if not _admit(engines, i, request, now):
            return _BLOCKS
        here[INSTANCE.head] = engines.requests[request, REQUEST.next]
        if here[INSTANCE.head] < 0:
            here[INSTANCE.tail] = -1
        here[INSTANCE.waiting] -= 1
    return _LOADS if here[INSTANCE.loading] else _NONE


@called
def _lacks_prompts(engines: Engines, i: int) -> bool:
    """Tell whether a group's next step lacks tokens until a step with prompts is worth it."""
    settings, here = engines.settings, engines.instances[i]
    if here[INSTANCE.waiting] == 0 or here[INSTANCE.running] >= settings[SETTING.sequences]:
        return True
    tokens = settings[SETTING.budget] - engines.batch[i, BATCH.left]
    request = here[INSTANCE.head]
    while request >= 0 and tokens < settings[SETTING.wait_tokens]:
        tokens += engines.requests[request, REQUEST.known]
        request = engines.requests[request, REQUEST.next]
    return bool(tokens < settings[SETTING.wait_tokens])


@called
def _waits_for_more(engines: Engines, lead: int) -> bool:
    """Tell whether prompts wait until steps of all groups are worth it; count such steps.

    TensorRT-LLM counts steps without prompts, too, where there are several groups.
    """
    here, lacks = engines.instances[lead], False
    for i in range(lead, lead + here[INSTANCE.groups]):
        # without requests that generate, no step would be made
        if engines.batch[i, BATCH.decodes] == 0:
            return False
        lacks |= _lacks_prompts(engines, i)
    none = here[INSTANCE.waiting] == 0
    if here[INSTANCE.groups] == 1 and (
        none or here[INSTANCE.running] >= engines.settings[SETTING.sequences]
    ):
        return False
    here[INSTANCE.waited] += 1
    if lacks and here[INSTANCE.waited] <= engines.settings[SETTING.wait_steps]:
        return True
    here[INSTANCE.waited] = 0
    return False


@called
def _end_requests(engines: Engines, i: int, place: int, end: int) -> None:
    """Give a group's requests the tokens of a step that ends; some are done."""
    here, ended = engines.instances[i], False
    for k in range(engines.flights[i, place, FLIGHT.events]):
        event = engines.events[i, place, k]
        request = event >> 1
        row = engines.requests[request]
        if event & 1 == 0:
            row[REQUEST.first] = end
            continue
        if row[REQUEST.state] == _RUNNING:
            _give_up(engines, i, request)
            ended = True
        here[INSTANCE.in_system] += here[INSTANCE.load] * (end - here[INSTANCE.seen])
        here[INSTANCE.seen] = end
        here[INSTANCE.load] -= 1
        if row[REQUEST.generated] < row[REQUEST.output]:
            row[REQUEST.state] = _PUT_OUT
            send_on(engines, request, end)
            continue
        row[REQUEST.last] = end
        row[REQUEST.state] = _PUT_OUT
        engines.settings[SETTING.done] += 1
        release_followers(engines, request, end)
    if ended:
        kept = 0
        for k in range(here[INSTANCE.running]):
            request = engines.running[i, k]
            if engines.requests[request, REQUEST.state] == _RUNNING:
                engines.running[i, kept] = request
                kept += 1
        here[INSTANCE.running] = kept


@called
def _land(engines: Engines, lead: int) -> None:
    """End the oldest step under way."""
    here = engines.instances[lead]
    place = here[INSTANCE.oldest]
    end = engines.flights[lead, place, FLIGHT.end]
    for i in range(lead, lead + here[INSTANCE.groups]):
        _end_requests(engines, i, place, end)
    here[INSTANCE.oldest] = (place + 1) % engines.flights.shape[1]
    here[INSTANCE.flights] -= 1
    here[INSTANCE.landed] += 1


@called
def _launch(engines: Engines, lead: int, now: int) -> None:
    """Begin the step that was made, behind the one before it."""
    settings, here = engines.settings, engines.instances[lead]
    took = step_ns(engines, lead, role_of(engines, lead))
    start = max(now, here[INSTANCE.free_at])
    place = (here[INSTANCE.oldest] + here[INSTANCE.flights]) % engines.flights.shape[1]
    if settings[SETTING.tiers] > 0 or settings[SETTING.prefills] > 0:  # blocks use links at times
        longer = slowed_by_blocks(engines, lead, place, start, took)
        here[INSTANCE.beside] += longer
        took += longer
    reason = engines.batch[slowest_of(engines, lead), BATCH.reason]
    here[INSTANCE.free_at] = start + max(1, took // here[INSTANCE.stages])
    row = engines.flights[lead, place]
    row[FLIGHT.start], row[FLIGHT.end], row[FLIGHT.reason] = start, start + took, reason
    here[INSTANCE.flights] += 1
    here[INSTANCE.launched] += 1
    here[INSTANCE.steps] += 1
    here[INSTANCE.busy] += took
    here[INSTANCE.bound + reason] += took
    for i in range(lead, lead + here[INSTANCE.groups]):
        engines.flights[i, place, FLIGHT.events] = engines.batch[i, BATCH.events]
        used = engines.caches[i, CACHE.size] - engines.caches[i, CACHE.free]
        most = engines.instances[i, INSTANCE.most_blocks]
        engines.instances[i, INSTANCE.most_blocks] = max(most, used)


@called
def _make(engines: Engines, lead: int, now: int) -> None:
    """Put requests into the next step, in each group."""
    settings, end = engines.settings, lead + engines.instances[lead, INSTANCE.groups]
    for i in range(lead, end):
        engines.batch[i, BATCH.reason] = _BLOCKS if _continue_running(engines, i, now) else _NONE
        if engines.batch[i, BATCH.reason] == _NONE:
            _admit_loaded(engines, i, now)
    waits, why = settings[SETTING.wait_steps] > 0 and _waits_for_more(engines, lead), _NONE
    for i in range(lead, end):
        if engines.instances[i, INSTANCE.waiting] > 0:
            why = _FEW
    for i in range(lead, end):
        if engines.batch[i, BATCH.reason] == _NONE:
            engines.batch[i, BATCH.reason] = why if waits else _admit_waiting(engines, i, now)


@called
def _look(engines: Engines, lead: int) -> None:
    """End steps of an instance, make the next one, and say when to look again."""
    budget, here = engines.settings[SETTING.budget], engines.instances[lead]
    end, now = lead + here[INSTANCE.groups], engines.wake[lead]
    while here[INSTANCE.flights] > 0:
        if engines.flights[lead, here[INSTANCE.oldest], FLIGHT.end] > now:
            break
        _land(engines, lead)
    for i in range(lead, end):
        engines.batch[i, :] = 0
        engines.batch[i, BATCH.left] = budget
    if here[INSTANCE.flights] < here[INSTANCE.depth]:
        _make(engines, lead, now)
    is_made = False
    for i in range(lead, end):
        is_made |= engines.batch[i, BATCH.left] < budget
    if is_made:
        _launch(engines, lead, now)
    here[INSTANCE.sleeps] = here[INSTANCE.flights] == 0
    then = FAR
    if here[INSTANCE.flights] > 0:
        then = engines.flights[lead, here[INSTANCE.oldest], FLIGHT.end]
        if is_made and here[INSTANCE.flights] < here[INSTANCE.depth]:
            then = min(then, now if here[INSTANCE.stages] == 1 else here[INSTANCE.free_at])
    else:
        for i in range(lead, end):
            for k in range(engines.instances[i, INSTANCE.loading]):
                then = min(then, engines.requests[engines.loading[i, k], REQUEST.ready])
    engines.wake[lead] = then


@kernel
def serve_requests(engines: Engines) -> int:
    """Serve all requests.

    - ``engines``: As set up; changed. Requests get their times, instances their sums.
    - Returns: How many requests are left, because none of them can go on: 0 if all are done.
      O(steps * (running requests + instances) + blocks).
    """
    engines = borrowed(engines)
    wake, num_requests = engines.wake, engines.requests.shape[0]
    while engines.settings[SETTING.done] < num_requests:
        i = 0
        for k in range(1, wake.size):
            if wake[k] < wake[i]:
                i = k
        if next_arrival(engines) <= wake[i]:
            if next_arrival(engines) == FAR:
                break
            arrive(engines)
            continue
        _look(engines, i)
    return int(num_requests - engines.settings[SETTING.done])
