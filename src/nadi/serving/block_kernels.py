"""Blocks of keys and values: found by content, given away in the order of their last use.

A memory keeps a list of the blocks that nobody uses. Such a block holds its content until it is
given away, and is found by it meanwhile, as in vLLM's prefix cache.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.serving.engine_columns import BLOCK, CACHE, REQUEST, Engines


@inner
def mixed(stream: int, number: int) -> int:
    """Give the content of a block of a stream: 63 bits that are never 0 (splitmix64)."""
    x = np.uint64(stream) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return int(np.int64(x >> np.uint64(1)) | 1)


@inner
def content_of(engines: Engines, request: int, number: int) -> int:
    """Give the content of a request's block: of its tokens, its group, or its stream."""
    row = engines.requests[request]
    if number < row[REQUEST.told]:
        return int(engines.content[row[REQUEST.content] + number])
    if number < row[REQUEST.shared]:
        return mixed(row[REQUEST.group], number)
    return mixed(row[REQUEST.stream], number)


@inner
def find(engines: Engines, cache: int, content: int) -> int:
    """Return the block that holds a content, or -1."""
    base, mask = engines.caches[cache, CACHE.place], engines.caches[cache, CACHE.mask]
    at = content >> 1 & mask
    while True:
        block = engines.places[base + at] - 1
        if block < 0 or engines.blocks[block, BLOCK.content] == content:
            return int(block)
        at = (at + 1) & mask


@called
def register(engines: Engines, cache: int, block: int, content: int) -> bool:
    """Give a block its content; tell whether it is the only one that holds it."""
    engines.blocks[block, BLOCK.content] = content
    base, mask = engines.caches[cache, CACHE.place], engines.caches[cache, CACHE.mask]
    at = content >> 1 & mask
    while True:
        other = engines.places[base + at] - 1
        if other < 0:
            engines.places[base + at] = block + 1
            return True
        if engines.blocks[other, BLOCK.content] == content:
            return False
        at = (at + 1) & mask


@called
def _forget(engines: Engines, cache: int, block: int) -> None:
    """Have a block found no more, and close the gap that this leaves."""
    content = engines.blocks[block, BLOCK.content]
    engines.blocks[block, BLOCK.content] = 0
    base, mask = engines.caches[cache, CACHE.place], engines.caches[cache, CACHE.mask]
    places = engines.places
    at = content >> 1 & mask
    while places[base + at] - 1 != block:
        if places[base + at] == 0:
            return  # another block with this content is found
        at = (at + 1) & mask
    gap, at = at, (at + 1) & mask
    while places[base + at] != 0:
        wanted = engines.blocks[places[base + at] - 1, BLOCK.content] >> 1 & mask
        if (at - wanted) & mask >= (at - gap) & mask:
            places[base + gap] = places[base + at]
            gap = at
        at = (at + 1) & mask
    places[base + gap] = 0


@inner
def take_out(engines: Engines, cache: int, block: int) -> None:
    """Take a block that nobody uses out of the order."""
    row = engines.blocks[block]
    before, after = row[BLOCK.before], row[BLOCK.after]
    if before >= 0:
        engines.blocks[before, BLOCK.after] = after
    else:
        engines.caches[cache, CACHE.head] = after
    if after >= 0:
        engines.blocks[after, BLOCK.before] = before
    else:
        engines.caches[cache, CACHE.tail] = before
    engines.caches[cache, CACHE.free] -= 1


@inner
def put_last(engines: Engines, cache: int, block: int) -> None:
    """Have a block that nobody uses given away last."""
    tail = engines.caches[cache, CACHE.tail]
    engines.blocks[block, BLOCK.before] = tail
    engines.blocks[block, BLOCK.after] = -1
    if tail >= 0:
        engines.blocks[tail, BLOCK.after] = block
    else:
        engines.caches[cache, CACHE.head] = block
    engines.caches[cache, CACHE.tail] = block
    engines.caches[cache, CACHE.free] += 1


@called
def take(engines: Engines, cache: int) -> int:
    """Give away the first block of the order, without its content."""
    block = engines.caches[cache, CACHE.head]
    take_out(engines, cache, block)
    if engines.blocks[block, BLOCK.content] != 0:
        _forget(engines, cache, block)
    return int(block)


@inner
def let_go(engines: Engines, cache: int, block: int) -> None:
    """Have one user less; the last one puts it at the end of the order."""
    engines.blocks[block, BLOCK.users] -= 1
    if engines.blocks[block, BLOCK.users] == 0:
        put_last(engines, cache, block)
