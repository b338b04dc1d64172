"""Process groups that a program makes, and which groups other ranks have in their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nadi.trace.groups import Group


@dataclass
class GroupFamily:
    """Groups that were made at one place of a program: what one rank uses, others have, too.

    Attributes
    ----------
    place
        What identifies it: the description of the groups, or the line that made them.
    groups
        Members of each, without repetitions.
    known
        The same, to look up.
    """

    place: str
    groups: list[tuple[int, ...]] = field(default_factory=list)
    known: set[tuple[int, ...]] = field(default_factory=set, repr=False)


class GroupLog:
    """The process groups of a job, as one rank sees them being made.

    Attributes
    ----------
    rank, world_size
        Of the rank.
    families
        By place, in the order in which they were made.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.families: dict[str, GroupFamily] = {}
        self.named: dict[str, Group] = {}
        self.world = Group("0", tuple(range(world_size)), "default_pg")

    def made(self, ranks: Iterable[int], place: str) -> None:
        """Note that a group is made, whether or not this rank is in it."""
        family = self.families.setdefault(place, GroupFamily(place))
        if tuple(ranks) not in family.known:
            family.known.add(tuple(ranks))
            family.groups.append(tuple(ranks))

    def named_as(self, name: str, ranks: Sequence[int], description: str) -> None:
        """Note the name that a group of this rank got."""
        self.named[name] = Group(name, tuple(ranks), description)

    def of(self, given: Any) -> Group:
        """Return the group of a ProcessGroup, of its boxed form or of its name."""
        name = given if isinstance(given, str) else self._name_of(given)
        if name not in self.named:
            return self.world
        return self.named[name]

    def family_of(self, group: Group) -> GroupFamily | None:
        """Return the family of a group; None for the group of all ranks."""
        if len(group.ranks) == self.world_size:
            return None
        return next((one for one in self.families.values() if group.ranks in one.groups), None)

    @staticmethod
    def _name_of(given: Any) -> str:
        if not hasattr(given, "group_name"):
            import importlib

            given = importlib.import_module("torch._C._distributed_c10d").ProcessGroup.unbox(given)
        return str(given.group_name)
