"""How large storages are in a job of another width or number of ranks than was learned.

Each follows a power, from two learned jobs that differ in width or in the number of ranks only.
They belong together by what makes them, or uses them first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nadi.synthesis.learned_model import Template
from nadi.synthesis.storage_lives import Made

__all__ = ["made_at"]

_MadeBy = Mapping[int, tuple[Made, ...]]
_OF_WEIGHTS = 2
"""Power of the width if only one was learned: of what is there before; 1 for what is made."""


def made_at(
    templates: Sequence[Template], template: Template, width: int, num_ranks: int
) -> list[_MadeBy]:
    """Return what each role of a job makes at a width and a number of ranks. O(storages).

    Parameters
    ----------
    templates
        All that were learned.
    template
        The one that the job is like.
    """
    found: list[_MadeBy] = list(template.memory.made)
    for name, wish in (("hidden", width), ("num_ranks", num_ranks)):
        own = getattr(template, name)
        if not own or not wish or own == wish:
            continue
        pair = _pair(templates, template, name, wish)
        power = 1 if name == "hidden" else 0
        if pair is None:
            found = [dict(_scaled(one, wish / own, power)) for one in found]
            continue
        part = math.log(wish / own) / math.log(getattr(pair[1], name) / own)
        found = [
            dict(_between(now, one, two, part, (wish / own, power)))
            for now, one, two in zip(found, *(one.memory.made for one in pair), strict=True)
        ]  # fmt: skip
    return found


def _pair(
    templates: Sequence[Template], template: Template, name: str, wish: int
) -> tuple[Template, Template] | None:
    """Return two jobs with the same roles that differ in what is wished.

    The first has it as the template, and is that if possible; the second is nearest to the wish.
    """
    fixed = "num_ranks" if name == "hidden" else "hidden"
    own = getattr(template, name)
    like = [
        one for one in templates
        if len(one.roles) == len(template.roles) and one.memory.device and getattr(one, name)
    ]  # fmt: skip
    pairs = [
        (one, other) for one in like for other in like
        if getattr(one, name) == own != getattr(other, name)
        and getattr(one, fixed) == getattr(other, fixed)
    ]  # fmt: skip

    def away(pair: tuple[Template, Template]) -> tuple[float, bool, int]:
        far = abs(math.log(getattr(pair[1], name) / wish))
        layers = sum(one.num_layers != template.num_layers for one in pair)
        return far, pair[0] is not template, layers

    return min(pairs, key=away, default=None)


def _scaled(made: _MadeBy, ratio: float, power: int) -> Iterator[tuple[int, tuple[Made, ...]]]:
    for key, every in made.items():
        changed = tuple(
            tuple((_plain(amount, lasts, ratio, power), lasts) for amount, lasts in storages)
            for storages in every
        )
        yield key, changed


def _between(
    made: _MadeBy, one: _MadeBy, other: _MadeBy, part: float, plain: tuple[float, int]
) -> Iterator[tuple[int, tuple[Made, ...]]]:
    """Give what is made, changed as between two jobs, so many times of the way."""
    for key, every in made.items():
        ours, theirs = one.get(key, ()), other.get(key, ())
        changed = []
        for turn, storages in enumerate(every):
            low, high = (
                many[turn * len(many) // len(every)] if many else () for many in (ours, theirs)
            )
            if len(high) == len(low) == len(storages):
                sizes = [
                    round(amount * (b / a) ** part) if a > 0 and b > 0 else amount
                    for (amount, _), (a, _), (b, _) in zip(storages, low, high, strict=True)
                ]
            else:
                sizes = [_plain(amount, lasts, *plain) for amount, lasts in storages]
            changed.append(
                tuple((size, lasts) for size, (_, lasts) in zip(sizes, storages, strict=True))
            )
        yield key, tuple(changed)


def _plain(amount: int, lasts: int, ratio: float, power: int) -> int:
    """Return an amount of a width only that was learned; that of a number of ranks stays."""
    return round(amount * ratio ** (power * (_OF_WEIGHTS if lasts < 0 else 1)))
