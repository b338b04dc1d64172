"""The ranks of a job of another size: which learned rank each is like, and its process groups.

Ranks are added along one axis: ranks of one program that stand evenly apart and form process
groups, which are data parallel; without such groups all ranks together. A group with all ranks
along the axis grows with it. Others are copied, as are messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nadi.errors import Parameter, UsageError
from nadi.sharing.synthesis.learned_model import Template
from nadi.sharing.synthesis.tokens import WORLD, form_of

__all__ = ["RankLayout", "layout_of"]


class _Axis(NamedTuple):
    """Ranks along which a job grows: ``size`` of them, ``stride`` apart."""

    stride: int
    size: int


class RankLayout(NamedTuple):
    """The ranks of a new job.

    Attributes
    ----------
    template
        The job that it is like.
    axis
        Along which ranks are added.
    size
        Ranks along the axis of the new job.
    """

    template: Template
    axis: _Axis
    size: int

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the new job."""
        return self.template.num_ranks // self.axis.size * self.size

    def learned_rank(self, rank: int) -> int:
        """Return the rank of the template that does what a new rank does."""
        high, place, low = self._parts(rank, self.size)
        return self._rank(high, place % self.axis.size, low, self.axis.size)

    def new_rank(self, learned: int, beside: int) -> int:
        """Return the new rank of a learned one in the copy of another; -1 if it is left out."""
        copy = self._parts(beside, self.size)[1] // self.axis.size
        high, place, low = self._parts(learned, self.axis.size)
        place += copy * self.axis.size
        return self._rank(high, place, low, self.size) if place < self.size else -1

    def group(self, ranks: Sequence[int], beside: int) -> tuple[int, ...]:
        """Return the new ranks of a learned group that has the learned rank of ``beside``."""
        lines = {self._parts(one, self.axis.size)[::2] for one in ranks}
        if len(lines) * self.axis.size == len(ranks):  # all along the axis
            every = range(self.size)
            grown = [self._rank(high, at, low, self.size) for high, low in lines for at in every]
            return tuple(sorted(grown))
        found = (self.new_rank(one, beside) for one in ranks)
        return tuple(sorted(one for one in found if one >= 0))

    def groups_of(self, rank: int) -> dict[tuple[tuple[int, ...], int], tuple[int, ...]]:
        """Return the members of a rank's groups by form and place among those of that form."""
        world = self.template.num_ranks
        found: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {
            (WORLD, 0): tuple(range(self.num_ranks))
        }
        count: dict[tuple[int, ...], int] = {}
        for ranks in self.template.groups[self.learned_rank(rank)]:
            form = form_of(ranks, world)
            if form != WORLD:
                found[form, count.get(form, 0)] = self.group(ranks, rank)
                count[form] = count.get(form, 0) + 1
        return found

    def _parts(self, rank: int, size: int) -> tuple[int, int, int]:
        rest, low = divmod(rank, self.axis.stride)
        return *divmod(rest, size), low

    def _rank(self, high: int, place: int, low: int, size: int) -> int:
        return (high * size + place) * self.axis.stride + low


def layout_of(template: Template, num_ranks: int) -> RankLayout:
    """Return the layout of a job with another number of ranks; 0 for as many as learned.

    Raises
    ------
    UsageError
        If ranks cannot be added one by one, and the number is not a multiple of how many are
        added at once.
    """
    axis = _axis(template)
    if not num_ranks:
        return RankLayout(template, axis, axis.size)
    at_once = template.num_ranks // axis.size
    if num_ranks % at_once:
        raise UsageError(
            Parameter("ranks", num_ranks), f"the learned job grows by {at_once} ranks at once",
            f"give a multiple of {at_once}",
        )  # fmt: skip
    return RankLayout(template, axis, num_ranks // at_once)


def _axis(template: Template) -> _Axis:
    """Return data parallel ranks, those furthest apart; without such groups all ranks."""
    world = template.num_ranks
    best = _Axis(1, world)
    forms = {ranks for own in template.groups for ranks in own}
    for axis in {_Axis(one[1] - one[0], len(one)) for one in forms if 1 < len(one) < world}:
        lines = {
            tuple(range(first, first + axis.stride * axis.size, axis.stride))
            for high in range(0, world, axis.stride * axis.size)
            for first in range(high, high + axis.stride)
        }
        if world % (axis.stride * axis.size) or not lines <= forms:
            continue
        alike = all(len({template.role[rank] for rank in line}) == 1 for line in lines)
        if alike and (best.size == world or axis.stride > best.stride):
            best = axis
    return best
