"""Which ranks form the groups of a job that was scaled: axes of ranks, and copies along them."""

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups

_SPELLINGS = {
    "tp": r"tp|tensor|tensormodelparallel\w*|tensorparallel\w*|mp",
    "dp": r"dp|data|dataparallel\w*|ddp|fsdp|hsdpreplicate",
    "pp": r"pp|pipe|pipeline|pipelinemodelparallel\w*|pipelineparallel\w*",
    "cp": r"cp|context|contextparallel\w*",
    "ep": r"ep|expert|expertmodelparallel\w*|expertparallel\w*",
    "edp": r"edp|expertdataparallel\w*",
}


class RoleNames(NamedTuple):
    """What the roles of a job are called that stand for an axis; "" for none."""

    # tp, dp, pp, cp, ep, edp: tensor, data, pipeline, context and expert parallel groups, and those
    # in which gradients of experts are summed
    tp: str = ""
    dp: str = ""
    pp: str = ""
    cp: str = ""
    ep: str = ""
    edp: str = ""


class Replicas(NamedTuple):
    """The ranks of a job of which there are more copies."""

    groups: RankGroups  # the groups of all roles
    old: Ints  # int64, shape (ranks,): of which rank of the smaller job each is a copy


def named_roles(groups: RankGroups) -> RoleNames:
    """Return the roles that stand for an axis, by how they are called.

    A job in which one group has all ranks, and no role is called otherwise, is data parallel.
    """
    found: dict[str, str] = {}
    for role in groups.members:
        plain = re.sub(r"[^a-z0-9]", "", role.lower())
        for axis, pattern in _SPELLINGS.items():
            if re.fullmatch(pattern, plain):
                found.setdefault(axis, role)
    if not found:
        whole = [role for role, ranks in groups.members.items() if _has_all(ranks, groups)]
        found = {"dp": whole[0]} if len(whole) == 1 else {}
    return RoleNames(**found)


def _has_all(ranks: Ints, groups: RankGroups) -> bool:
    return ranks.shape == (1, groups.world_size)


def outer_end(groups: RankGroups, role: str) -> int:
    """Return how many neighboring ranks hold whole groups of a role.

    - Raises UsageError if the ranks of the job do not consist of such blocks.
    """
    members = groups.members[role]
    world = groups.world_size
    for end in _divisors(world):
        if (members // end == members[:, :1] // end).all():
            return end
    raise AssertionError("a group is in the whole job")


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def copied_groups(
    groups: RankGroups, end: int, times: int, growing: Collection[str], within: str
) -> Replicas:
    """Put copies of blocks of ranks one after the other.

    - ``end``: Ranks of a block.
    - ``times``: Copies of each.
    - ``growing``: Roles whose groups have the members of all copies; other groups are copied.
    - ``within``: Role of a further group for each copy: all ranks of the job as it was, in order.
    """
    old = np.arange(groups.world_size)
    low, high = old % end, old // end
    new = np.stack([low + end * (k + times * high) for k in range(times)])  # copies x ranks
    members: dict[str, Ints] = {}
    for role, listed in groups.members.items():
        of_copies = new[:, listed]  # copies, groups, members
        if role in growing:
            members[role] = np.sort(np.concatenate(list(of_copies), axis=1), axis=1)
        else:
            members[role] = of_copies.reshape(-1, listed.shape[1])
        members[role] = members[role][np.lexsort(members[role].T[::-1])]
    if within:
        members[within] = new
    source = np.empty(new.size, dtype=np.int64)
    source[new] = old
    return Replicas(RankGroups(members, new.size), source)


def resized_axis(
    groups: RankGroups, stride: int, before: int, after: int, ends: Collection[str] = ()
) -> Replicas:
    """Give an axis of ranks another size.

    Groups along the axis get all of its ranks, and those within one place are copied to each.

    - ``stride``, ``before``, ``after``: Distance of neighbors on the axis, and its number of ranks,
      now and then.
    - ``ends``: Roles whose groups have the first and the last place only.
    - Raises UsageError if groups of a role have some places of the axis, but not all.
    """
    world = groups.world_size // before * after

    def moved(ranks: Ints, place: int) -> Ints:
        return ranks % stride + stride * (place + after * (ranks // (stride * before)))

    members: dict[str, Ints] = {}
    for role, listed in groups.members.items():
        place = listed // stride % before
        size = listed.shape[1]
        if (place == place[:, :1]).all():
            here = np.unique(np.stack([moved(ranks, 0) for ranks in listed]), axis=0)
            found = [moved_by + here for moved_by in stride * np.arange(after)]
            members[role] = np.concatenate(found)
            continue
        first = [ranks[at == 0] for ranks, at in zip(listed, place, strict=True)]
        places = [0, after - 1] if role in ends else list(range(after))
        if any(one.size * (2 if role in ends else before) != size for one in first):
            raise UsageError(
                f"groups of role {role!r}", "they lie across some places of an axis that changes, "
                "but not all", "leave this axis as it is",
            )  # fmt: skip
        members[role] = np.stack([
            np.sort(np.concatenate([moved(one, at) for at in places])) for one in first
        ])  # fmt: skip
    rank = np.arange(world)
    place = rank // stride % after % before
    old = rank % stride + stride * (place + before * (rank // (stride * after)))
    members = {role: one[np.lexsort(one.T[::-1])] for role, one in members.items()}
    return Replicas(RankGroups(members, world), old)
