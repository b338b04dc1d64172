"""How large storages are in a job of another width, depth or number of ranks than was learned.

Each follows a power of the width and of the number of ranks, and grows evenly with the depth: from
two learned jobs that differ in that only. Storages of both belong together by what makes them, or
uses them first. So those of each layer stay, and one with the weights of all layers grows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nadi.sharing.synthesis.learned_model import Template
from nadi.sharing.synthesis.storage_lives import Made

_NAMES = ("hidden", "num_ranks", "num_layers")

_MadeBy = Mapping[int, tuple[Made, ...]]
_OF_WEIGHTS = 2
"""Power of the width, if only one was learned, of what is there before; of what is made, 1."""


def made_at(
    templates: Sequence[Template], template: Template, wishes: Sequence[int]
) -> list[_MadeBy]:
    """Return what each role of a job makes at a width, depth and number of ranks. O(storages).

    - ``templates``: All that were learned.
    - ``template``: The one that the job is like.
    - ``wishes``: Width, number of ranks and number of layers; 0 for as learned.
    """
    found: list[_MadeBy] = list(template.memory.made)
    for name, wish in zip(_NAMES, wishes, strict=True):
        own = getattr(template, name)
        if not own or not wish or own == wish:
            continue
        pair = _pair(templates, template, name, wish)
        power = 1 if name == "hidden" else 0
        if pair is None:
            found = [dict(_scaled(one, wish / own, power)) for one in found]
            continue
        other = getattr(pair[1], name)
        way = _Way(math.log(wish / own) / math.log(other / own), (wish - own) / (other - own),
                   name == "num_layers")  # fmt: skip
        found = [
            dict(_between(now, (one, two), way, (wish / own, power)))
            for now, one, two in zip(found, *(one.memory.made for one in pair), strict=True)
        ]  # fmt: skip
    return found


def _pair(
    templates: Sequence[Template], template: Template, name: str, wish: int
) -> tuple[Template, Template] | None:
    """Return two jobs with the same roles that differ in what is wished.

    The first has it as the template, and is that if possible; the second is nearest to the wish.
    """
    own = getattr(template, name)
    others = [one for one in _NAMES if one != name]
    like = [
        one for one in templates
        if len(one.roles) == len(template.roles) and one.memory.device and getattr(one, name)
    ]  # fmt: skip
    pairs = [
        (one, other) for one in like for other in like
        if getattr(one, name) == own != getattr(other, name)
        and all(getattr(one, name) == getattr(other, name) for name in others)
    ]  # fmt: skip

    def away(pair: tuple[Template, Template]) -> tuple[float, bool]:
        return abs(math.log(getattr(pair[1], name) / wish)), pair[0] is not template

    return min(pairs, key=away, default=None)


def _scaled(made: _MadeBy, ratio: float, power: int) -> Iterator[tuple[int, tuple[Made, ...]]]:
    for key, every in made.items():
        changed = tuple(
            tuple((_plain(amount, lasts, ratio, power), lasts) for amount, lasts in storages)
            for storages in every
        )
        yield key, changed


class _Way(NamedTuple):
    """How far it is to a wish, as a part of the way between two jobs."""

    by_power: float
    evenly: float
    is_even: bool

    def gone(self, low: int, high: int) -> float:
        """Return by how much an amount grows that is low in one job, and high in the other."""
        if self.is_even:
            return max(1 + (high / low - 1) * self.evenly, 0.0)
        return float((high / low) ** self.by_power)


def _between(
    made: _MadeBy, pair: tuple[_MadeBy, _MadeBy], way: _Way, plain: tuple[float, int]
) -> Iterator[tuple[int, tuple[Made, ...]]]:
    """Give what is made, changed as between two jobs."""
    for key, every in made.items():
        ours, theirs = (one.get(key, ()) for one in pair)
        changed = []
        for turn, storages in enumerate(every):
            low, high = (
                many[turn * len(many) // len(every)] if many else () for many in (ours, theirs)
            )
            if len(high) == len(low) == len(storages):
                sizes = [
                    round(amount * way.gone(a, b)) if a > 0 and b > 0 else amount
                    for (amount, _), (a, _), (b, _) in zip(storages, low, high, strict=True)
                ]
            else:
                sizes = [_plain(amount, lasts, *plain) for amount, lasts in storages]
            changed.append(
                tuple((size, lasts) for size, (_, lasts) in zip(sizes, storages, strict=True))
            )
        yield key, tuple(changed)


def _plain(amount: int, lasts: int, ratio: float, power: int) -> int:
    """Return an amount of which no pair is known: only with the width it grows."""
    return round(amount * ratio ** (power * (_OF_WEIGHTS if lasts < 0 else 1)))
