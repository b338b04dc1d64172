"""More replicas of a job: groups that sum gradients grow, and all else is copied.

Which ranks form the groups of a job that was scaled: axes of ranks, and copies along them.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import (
    Origin,
    RankClass,
    is_sharded,
    resized,
    row_sizes,
    typical_columns,
    with_more_members,
    with_smaller_shards,
)
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.recordings.rank_spread import (
    communicating,
    counts_of_names,
    nearly_alike,
    parts_between,
    spread_of_ranks,
)
from nadi.systems.device import Device
from nadi.trace.arrays import Floats, Ints
from nadi.trace.groups import RankGroups
from nadi.trace.schema import GROUPS

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


WITHIN = "replica"
"""Role of all ranks of the job as it was, in which they send messages that name a rank."""
_COUNTED = 16
"""Equal ranks that count each for the mean of those that are nearly alike."""


class Classes(NamedTuple):
    """A job while it is scaled."""

    listed: tuple[RankClass, ...]  # what the ranks of each class do
    of: Ints  # int64, shape (ranks,): the class of each rank
    groups: RankGroups  # which ranks form the groups of roles


def replicas_of(groups: RankGroups, names: RoleNames) -> int:
    """Return how many replicas a job has: data parallel ranks, but not context parallel ones."""
    if not names.dp:
        return 1
    shared = groups.members[names.cp].shape[1] if names.cp else 1
    size = int(groups.members[names.dp].shape[1])
    return size // shared if size % shared == 0 else size


def with_replicas(job: Classes, names: RoleNames, wanted: int, device: Device | None) -> Classes:
    """Return a job with so many replicas.

    - Raises UsageError if it has no data parallel groups, or they do not divide the number.
    """
    before = replicas_of(job.groups, names)
    if wanted == before:
        return job
    if not names.dp:
        known = ", ".join(job.groups.members) or "none"
        raise UsageError(
            Parameter("dp"),
            f"no process groups of the job are data parallel (it has: {known}), so nothing "
            "says how gradients are summed", "scale a job that has 2 replicas, or name the groups "
            "dp",
        )  # fmt: skip
    if wanted % before:
        raise UsageError(
            Parameter("dp"),
            f"{wanted} is no multiple of the {before} replicas of the job", "one of "
            f"{', '.join(str(before << k) for k in range(1, 5))}, ...",
        )  # fmt: skip
    if names.ep and not names.edp:
        raise UsageError(
            Parameter("dp"),
            f"each expert is on one rank of all {before} replicas, so nothing says how its "
            "gradients are summed", "scale a job in which experts have 2 copies",
        )  # fmt: skip
    times = wanted // before
    growing = [role for role, ranks in job.groups.members.items()
               if role in (names.dp, names.edp)
               or (ranks.shape == (1, job.of.size)
                   and role not in (names.tp, names.pp, names.cp))]  # fmt: skip
    listed = latest_of_copies(job, times)
    apart = any(map(has_lone_messages, listed))
    copies = copied_groups(
        job.groups, _block(job.groups, names), times, growing, WITHIN if apart else ""
    )
    listed = [grown(one, growing, before, wanted, device) for one in listed]
    if apart:
        listed = [within_replica(one) for one in listed]
    return Classes(tuple(listed), job.of[copies.old], copies.groups)


def latest_of_copies(job: Classes, times: int) -> list[RankClass]:
    """Return what ranks do, where each part takes what the latest of so many copies takes.

    Others that are nearly alike say by how much copies differ
    (:func:`nadi.recordings.rank_spread.spread_of_ranks`). Least times stay those of the originals,
    and largest ones are those of which the latest is later with a chance of 5 %.
    """
    traces = [one.trace for one in job.listed]
    meets = [communicating(trace.nodes) for trace in traces]
    alike = nearly_alike(counts_of_names(traces), [int(own.sum()) for own in meets])
    ranks = np.bincount(job.of, minlength=len(traces))
    found = list(job.listed)
    for one in np.unique(alike).tolist():
        own = np.flatnonzero(alike == one)
        parts = [parts_between(meets[number], meets[number].size) for number in own]
        taken: Floats = np.zeros((own.size, int(meets[one].sum()) + 1))
        for place, number in enumerate(own.tolist()):
            np.add.at(taken[place], parts[place], _computing(found[number]))
        if (taken == taken[0]).all():
            continue
        rows = np.repeat(np.arange(own.size), np.minimum(ranks[own], _COUNTED))
        spread = spread_of_ranks(taken[rows])
        for place, number in enumerate(own.tolist()):
            more = int(ranks[number]) * (times - 1)
            latest = spread.latest(taken[place], int(np.argmax(rows == place)), more)
            found[number] = _later(found[number], parts[place], taken[place], latest)
    return found


def _computing(one: RankClass) -> Ints:
    """Return the typical times of computations; ns, 0 for others."""
    return np.where(communicating(one.trace.nodes), 0, np.maximum(one.times.typical, 0))


def _later(one: RankClass, part: Ints, taken: Floats, latest: tuple[Floats, Floats]) -> RankClass:
    """Return a class whose parts take longer, typically and at most."""
    columns = typical_columns(one.times)
    typical, high = (
        np.rint(column * np.divide(wanted, taken, out=np.ones_like(taken), where=taken > 0)[part])
        for column, wanted in zip(columns[::2], latest, strict=True)
    )
    moves = ~communicating(one.trace.nodes) & (one.times.typical > 0)
    times = NodeTimes(
        np.where(moves, typical, one.times.typical).astype(np.int64), one.times.low,
        np.where(moves, np.maximum(high, typical), one.times.high).astype(np.int64),
    )  # fmt: skip
    nodes = with_own_times(one.trace.nodes, times.typical)
    return one._replace(trace=replace(one.trace, nodes=nodes), times=times)


def _block(groups: RankGroups, names: RoleNames) -> int:
    """Return how many neighboring ranks are copied together: what lies within a replica's axis."""
    if groups.members[names.dp].shape[1] > 1:
        return outer_end(groups, names.dp)
    inner = [role for role in (names.tp, names.cp) if role]
    return max([1, *(outer_end(groups, role) for role in inner)])


def grown(
    one: RankClass, growing: list[str], before: int, after: int, device: Device | None
) -> RankClass:
    """Return what ranks do whose groups sum gradients of more members, and share weights.

    - ``growing``: Roles of these groups, which have ``after / before`` times as many members.
    """
    if not is_sharded(one.trace, growing):
        return one
    sizes = row_sizes(one.trace)
    origin = with_more_members(one.trace, sizes, growing, before, after)
    of_optimizer = with_smaller_shards(sizes, before, after)
    if not of_optimizer.any():  # nothing says which operations update shards
        origin[origin > 0] = Origin.GUESSED
    return resized(one, sizes, np.maximum(origin, of_optimizer), device)


def has_lone_messages(one: RankClass) -> bool:
    """Return whether messages name a rank of the job, and no group."""
    return bool(_lone_messages(one.trace.nodes).any())


def _lone_messages(nodes: pl.DataFrame) -> Ints:
    """Return which rows are messages that name a rank, and no group."""
    columns = nodes.select((pl.col("group") < 0) & ((pl.col("src") >= 0) | (pl.col("dst") >= 0)))
    return columns.to_series().to_numpy()


def within_replica(one: RankClass) -> RankClass:
    """Let messages name a position in their replica, where they name a rank."""
    trace = one.trace
    number = trace.groups.height
    group = np.where(_lone_messages(trace.nodes), number, trace.column("group"))
    more = GROUPS.build(1, {"name": [WITHIN], "ranks": [[]], "backend": [""]})
    groups = pl.concat([trace.groups, more])
    nodes = trace.nodes.with_columns(group=pl.Series(group))
    return one._replace(trace=replace(trace, nodes=nodes, groups=groups))


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
