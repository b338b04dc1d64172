"""Blocks in memory tiers, and transfers that wait for each other on links and memories."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.serving.block_kernels import content_of, find, put_last, register, take, take_out
from nadi.serving.engine_columns import (
    BLOCK,
    CACHE,
    CHANNEL,
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
    return int(row[TIER.cache] + (0 if row[TIER.shared] else instance))


@called
def _over(engines: Engines, channel: int, way: int, blocks: int, duplex: bool, now: int) -> int:
    """Have blocks pass a channel behind what passes already; return when they have."""
    row = engines.channels[channel]
    queue = CHANNEL.free + (way if duplex else 0)
    took = np.int64(np.rint(engines.pace[channel] * blocks))
    row[queue] = max(row[queue], now) + took
    row[CHANNEL.moved + way] += blocks
    row[CHANNEL.busy] += took
    return int(row[queue])


@called
def _pass(engines: Engines, tier: int, instance: int, way: int, blocks: int, now: int) -> int:
    """Move blocks between an instance and a tier; return when they have arrived.

    The link and the memory pass them at the same time, each behind what it passes already.
    """
    row = engines.tiers[tier]
    duplex = row[TIER.duplex] == 1
    memory = row[TIER.memory] + (0 if row[TIER.shared] else instance)
    over_link = _over(engines, row[TIER.link] + instance, way, blocks, duplex, now)
    in_memory = _over(engines, memory, way, blocks, duplex, now)
    return int(max(over_link, in_memory) + row[TIER.latency])


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

    Those of a request that was sent on come from the instance that read its prompt, over the
    links behind the last tier's.
    """
    settings = engines.settings
    num_tiers = settings[SETTING.tiers]
    if engines.requests[request, REQUEST.moved]:
        return _pass(engines, num_tiers, instance, _READ, loads, now)
    ready = now
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
            ready = max(ready, _pass(engines, tier, instance, _READ, here, now))
    return ready


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
