"""How large storages are in a job of another width or number of ranks than was learned.

Each follows a power, from two learned jobs: the one that is like it, and one that differs in width
or in the number of ranks only. They belong together by what makes them, or uses them first.
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
        other = _other(templates, template, name, wish)
        power = 1 if name == "hidden" else 0
        if other is None:
            found = [dict(_scaled(one, wish / own, power)) for one in found]
            continue
        part = math.log(wish / own) / math.log(getattr(other, name) / own)
        found = [
            dict(_between(now, one, two, part, (wish / own, power)))
            for now, one, two in zip(
                found, template.memory.made, other.memory.made, strict=True
            )
        ]  # fmt: skip
    return found


def _other(
    templates: Sequence[Template], template: Template, name: str, wish: int
) -> Template | None:
    """Return the job nearest to a wish that differs in it, and has the same roles otherwise."""
    fixed = "num_ranks" if name == "hidden" else "hidden"
    like = [
        one for one in templates
        if getattr(one, name) not in (0, getattr(template, name))
        and getattr(one, fixed) == getattr(template, fixed)
        and len(one.roles) == len(template.roles) and one.memory.device
    ]  # fmt: skip

    def away(one: Template) -> tuple[float, bool]:
        far = abs(math.log(getattr(one, name) / wish))
        return far, one.num_layers != template.num_layers

    return min(like, key=away, default=None)


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
        theirs = other.get(key, ())
        changed = []
        for turn, storages in enumerate(every):
            low = one[key][turn]
            high = theirs[turn * len(theirs) // len(every)] if theirs else ()
            if len(high) == len(low):
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
