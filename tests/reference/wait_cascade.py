"""Slow models of the wait-for graph: a queue of waits, and knots by what each actor reaches."""

from __future__ import annotations

from collections import deque

__all__ = ["cascaded_waits", "plain_knots"]

Segment = tuple[int, int, int]  # start, end, the actor waited for or -1


def cascaded_waits(segments: dict[int, list[Segment]]) -> dict[tuple[int, int], int]:
    """Add up waits, each passed on to what the awaited actor waits for meanwhile."""
    weight: dict[tuple[int, int], int] = {}
    ahead = deque(
        (actor, start, end, target, frozenset([actor]))
        for actor, each in segments.items()
        for start, end, target in each
        if target >= 0
    )
    while ahead:
        actor, start, end, target, path = ahead.popleft()
        weight[actor, target] = weight.get((actor, target), 0) + end - start
        if target in path:
            continue
        for since, until, further in segments.get(target, []):
            low, high = max(start, since), min(end, until)
            if low < high and further >= 0:
                ahead.append((target, low, high, further, path | {target}))
    return weight


def plain_knots(edges: dict[tuple[int, int], int], length: int) -> set[tuple[int, ...]]:
    """Find knots by what each actor reaches; small edges of a knot are removed one by one."""
    large = {pair: w for pair, w in edges.items() if 100 * w >= length and pair[0] != pair[1]}

    def reach(start: int, among: dict[tuple[int, int], int]) -> set[int]:
        seen, ahead = {start}, [start]
        while ahead:
            here = ahead.pop()
            for a, b in among:
                if a == here and b not in seen:
                    seen.add(b)
                    ahead.append(b)
        return seen

    def closed(actors: set[int], among: dict[tuple[int, int], int]) -> set[frozenset[int]]:
        reached = {actor: reach(actor, among) for actor in actors}
        return {frozenset(r) for r in reached.values() if all(reached[b] == r for b in r)}

    def small(knot: frozenset[int], among: dict[tuple[int, int], int]) -> set[tuple[int, ...]]:
        inside = {p: w for p, w in among.items() if p[0] in knot and p[1] in knot}
        while inside:
            weight, pair = min((w, p) for p, w in inside.items())
            if 5 * weight > length:
                break
            del inside[pair]
            parts = closed(set(knot), inside)
            if parts != {knot}:
                return {one for part in parts for one in small(part, inside)}
        return {tuple(sorted(knot))}

    actors = {actor for pair in large for actor in pair}
    return {one for knot in closed(actors, large) for one in small(knot, large)}
