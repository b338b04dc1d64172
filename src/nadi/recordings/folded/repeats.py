"""Process groups by role, of ranks that state their own groups: which group of one is like whose.

Two ranks have the same work if their operations are equal but for times, for whom they exchange
messages with and for which ranks form their groups. A group that one of them uses where the other
uses another is of the same role, and so is a group that both are in. What follows is as
:class:`nadi.trace.groups.RankGroups` has it, if groups of a role have one size and share no
rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.recordings.folded.work_digests import WorkDigests
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.schema import GROUPS
from nadi.trace.trace import Trace

__all__ = ["RankClasses", "classes_of_ranks"]

_Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class RankClasses:
    """Ranks that do the same.

    Attributes
    ----------
    traces
        Of each rank, its own times and the groups of its class: roles, if there are any.
    of
        int64, shape (ranks,): the class of each rank, from 0 in order of the lowest ranks.
    groups
        Which ranks form the groups of roles; None if traces state their groups.
    """

    traces: tuple[Trace, ...]
    of: Ints
    groups: RankGroups | None

    @property
    def first(self) -> Ints:
        """The lowest rank of each class; int64, shape (classes,)."""
        return np.unique(self.of, return_index=True)[1]


@checked
def classes_of_ranks(
    traces: Sequence[Trace], groups: RankGroups | None, *, numbered: bool
) -> RankClasses:
    """Find which ranks do the same.

    Parameters
    ----------
    traces
        Of each rank.
    groups
        If traces name roles.
    numbered
        Whether traces are of ranks 0, 1, 2 and so on; else groups cannot be roles.

    Returns
    -------
    RankClasses
        Each rank in a class of its own where their groups have no roles. O(nodes).
    """
    digests = WorkDigests()
    if groups is None and numbered and len(traces) > 1:
        found = _with_roles(traces, digests)
        if found is not None:
            traces, groups = found
    shares = groups is not None or len(set(traces)) < len(traces)
    known = {trace: digests.whole(trace) for trace in dict.fromkeys(traces)} if shares else {}
    keys = [known[trace] if shares else k for k, trace in enumerate(traces)]
    number: dict[object, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    return RankClasses(tuple(traces), of, groups)


def _with_roles(
    traces: Sequence[Trace], digests: WorkDigests
) -> tuple[list[Trace], RankGroups] | None:
    """Return traces that name roles; None if their groups have none."""
    traces = [_without_others(trace, rank) for rank, trace in enumerate(traces)]
    own = [_groups_of(trace) for trace in traces]
    if any(listed is None for listed in own):
        return None
    stated = [listed or [] for listed in own]
    works = [digests.work(trace) for trace in traces]
    slots = [(work, len(groups)) for work, groups in zip(works, stated, strict=True)]
    role_of = _roles(slots, stated)
    members: dict[int, dict[_Group, None]] = {}
    for (work, _), groups in zip(slots, stated, strict=True):
        for row, group in enumerate(groups):
            members.setdefault(role_of[work, row], {})[group] = None
    if not all(map(_can_be_a_role, members.values())):
        return None
    names = _names(members, traces, slots, role_of)
    of_name: dict[str, dict[_Group, None]] = {}
    for role, listed in members.items():
        of_name.setdefault(names[role], {}).update(listed)
    roles = RankGroups(
        {
            name: np.array(sorted(ranks for _, ranks in listed), dtype=np.int64)
            for name, listed in of_name.items()
        },
        len(traces),
    )
    named: list[Trace] = []
    for rank, (trace, (work, size)) in enumerate(zip(traces, slots, strict=True)):
        own_names = [names[role_of[work, row]] for row in range(size)]
        found = _by_role(trace, rank, own_names, roles)
        if found is None or len(set(own_names)) < size:
            return None
        named.append(found)
    return named, roles


def _can_be_a_role(groups: Iterable[_Group]) -> bool:
    """Return whether groups have one size and share no rank."""
    ranks = [ranks for _, ranks in groups]
    flat = [rank for of_group in ranks for rank in of_group]
    return len(set(map(len, ranks))) == 1 and len(set(flat)) == len(flat)


def _without_others(trace: Trace, rank: int) -> Trace:
    """Return a trace without groups that the rank is not in, if it does not use them."""
    used = np.zeros(trace.groups.height + 1, dtype=np.bool_)
    used[trace.column("group")] = True
    stays = trace.groups["ranks"].list.contains(rank).to_numpy() | used[:-1]
    if stays.all():
        return trace
    new_row = np.append(np.where(stays, np.cumsum(stays) - 1, -1), -1)
    nodes = trace.nodes.with_columns(group=pl.Series(new_row[trace.column("group")]))
    return replace(trace, nodes=nodes, groups=trace.groups.filter(pl.Series(stays)))


def _groups_of(trace: Trace) -> list[_Group] | None:
    """Return name and ranks of each group; None if ranks are not stated."""
    found = [
        (name, tuple(ranks)) for name, ranks in trace.groups.select("name", "ranks").iter_rows()
    ]
    return None if any(not ranks for _, ranks in found) else found


def _roles(
    slots: Sequence[tuple[bytes, int]], stated: Sequence[Sequence[_Group]]
) -> dict[tuple[bytes, int], int]:
    """Return the role of each group of each kind of work: those joined by common groups."""
    above: dict[object, object] = {}

    def top(one: object) -> object:
        while above.setdefault(one, one) != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    for (work, _), groups in zip(slots, stated, strict=True):
        for row, group in enumerate(groups):
            above[top((work, row))] = top(group)
    number: dict[object, int] = {}
    return {
        (work, row): number.setdefault(top((work, row)), len(number))
        for work, size in dict.fromkeys(slots)
        for row in range(size)
    }


def _names(
    members: Mapping[int, Mapping[_Group, None]], traces: Sequence[Trace],
    slots: Sequence[tuple[bytes, int]], role_of: Mapping[tuple[bytes, int], int],
) -> dict[int, str]:  # fmt: skip
    """Name each role by how its groups are described; those of one name are one role if they fit.

    Ranks of different work, such as stages of a pipeline, have roles of the same name.
    """
    said: dict[int, set[str]] = {role: set() for role in members}
    for trace, (work, size) in zip(traces, slots, strict=True):
        descriptions = trace.groups["description"].to_list()
        for row in range(size):
            said[role_of[work, row]].add(descriptions[row])
    words = {role: next(iter(one)) if len(one) == 1 else "" for role, one in said.items()}
    fits = {
        word: _can_be_a_role([g for role in members if words[role] == word for g in members[role]])
        for word in set(words.values())
    }
    return {
        role: word if word and fits[word] else f"{word or 'group'}-{role}"
        for role, word in words.items()
    }


def _by_role(trace: Trace, rank: int, names: Sequence[str], roles: RankGroups) -> Trace | None:
    """Return a trace that names roles; None if a message goes beyond its group."""
    of_node, columns = trace.column("group"), {}
    for name in ("src", "dst"):
        ends = trace.column(name).copy()
        for row, role in enumerate(names):
            chosen = np.flatnonzero((of_node == row) & (ends >= 0))
            if not chosen.size:
                continue
            peers = ends[chosen]
            if peers.max() >= roles.world_size:
                return None
            group, position = (column[peers] for column in roles.place[role])
            if (group != roles.place[role][0][rank]).any():
                return None
            ends[chosen] = position
        columns[name] = pl.Series(name, ends)
    groups = GROUPS.build(len(names), {
        "name": list(names), "ranks": [[] for _ in names], "backend": trace.groups["backend"],
    })  # fmt: skip
    return replace(
        trace, nodes=trace.nodes.with_columns(**columns), groups=groups, rank=-1,
        world_size=roles.world_size, process=-1,
    )  # fmt: skip
