"""Cascaded redistribution of waiting time over what the awaited actor waits for itself."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, inner, kernel


@inner
def _first_ending_after(end: np.ndarray, left: int, right: int, moment: int) -> int:
    """Return the first of the segments ``left:right`` that ends after a moment, or ``right``."""
    while left < right:
        middle = (left + right) // 2
        if end[middle] > moment:
            right = middle
        else:
            left = middle + 1
    return left


class WaitColumns(NamedTuple):
    """Segments of actors, in order of actor, then time; int64."""

    first: np.ndarray  # shape (actors + 1,): the segments of actor a are ``first[a]:first[a + 1]``
    # start, end: ns, shape (segments,), ascending and without overlap within an actor
    start: np.ndarray
    end: np.ndarray
    target: np.ndarray  # shape (segments,): the actor waited for, or -1 if the segment is no wait
    pair: np.ndarray  # shape (segments,): number of the pair (actor, target) of each wait


@kernel
def redistribute(waits: WaitColumns, weight: np.ndarray) -> int:
    """Add up how long each actor waits for each other one, directly and through others.

    While A waits for B, and B for C, time counts for A -> B and again for B -> C. An actor is not
    visited twice on one chain.

    - ``waits``: The segments.
    - ``weight``: int64 ns, shape (pairs,): added to.
    - Returns: How many waits were followed, nested ones too. O(waits * depth of chains).
    """
    waits = borrowed(waits)
    first, start, end = waits.first, waits.start, waits.end
    target, pair = waits.target, waits.pair
    num_actors = first.size - 1
    on_path = np.zeros(num_actors, dtype=np.bool_)
    # a frame: the actor that is looked at, its next segment, and the time that counts
    frames = np.empty((4, num_actors + 1), dtype=np.int64)
    actor, place, low, high = frames[0], frames[1], frames[2], frames[3]
    num_followed = 0
    for origin in range(num_actors):
        on_path[origin] = True
        for s in range(first[origin], first[origin + 1]):
            if target[s] < 0:
                continue
            num_followed += 1
            weight[pair[s]] += end[s] - start[s]
            depth = -1 if on_path[target[s]] else 0
            actor[0], low[0], high[0], place[0] = target[s], start[s], end[s], -1
            while depth >= 0:
                a = actor[depth]
                if place[depth] < 0:
                    on_path[a] = True
                    place[depth] = _first_ending_after(end, first[a], first[a + 1], low[depth])
                t = place[depth]
                if t >= first[a + 1] or start[t] >= high[depth]:
                    on_path[a] = False
                    depth -= 1
                    continue
                place[depth] += 1
                since, until = max(start[t], low[depth]), min(end[t], high[depth])
                if target[t] < 0 or since >= until:
                    continue
                num_followed += 1
                weight[pair[t]] += until - since
                if not on_path[target[t]]:
                    depth += 1
                    actor[depth], place[depth] = target[t], -1
                    low[depth], high[depth] = since, until
        on_path[origin] = False
    return num_followed
