"""Durations on the course of their steps, one by one; see nadi.sharing.synthesis.step_course."""

from __future__ import annotations

__all__ = ["slow_on_course"]


def slow_on_course(
    duration: list[int], token: list[int], usual: list[float], part: list[int], wanted: list[float]
) -> list[int]:
    """Move long durations to the parts with the most left to take, then scale each part."""
    places = range(len(duration))
    moving = [usual[at] > 0 and duration[at] > 0 for at in places]
    found = list(duration)
    if len(wanted) > 1:
        least = sum(wanted) / len(wanted) / 8
        long = [at for at in places if moving[at] and duration[at] > least]
        left = [
            mine - sum(duration[at] for at in places
                       if part[at] == one and moving[at] and at not in long)
            for one, mine in enumerate(wanted)
        ]  # fmt: skip
        goes_to: dict[int, int] = {}
        for at in sorted(long, key=lambda at: (-duration[at], at)):
            free = [one for one in places if token[one] == token[at] and one not in goes_to]
            best = max(free, key=lambda one: (left[part[one]], -one))
            goes_to[best] = at
            left[part[best]] -= duration[at]
        for own in set(token):
            mine = [at for at in places if token[at] == own]
            gone = [at for at in mine if at in goes_to and at not in long]
            empty = [at for at in mine if at in long and at not in goes_to]
            for at, other in zip(empty, gone, strict=True):
                found[at] = duration[other]
        for best, at in goes_to.items():
            found[best] = duration[at]
    for one, mine in enumerate(wanted):
        own = [at for at in places if part[at] == one and usual[at] > 0 and found[at] > 0]
        total = sum(found[at] for at in own)
        for at in own:
            found[at] = round(found[at] * (mine / total))
    return found
