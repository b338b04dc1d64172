"""Which ranks of a job remain when it is scaled down: a part of each axis of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.folded.folded_trace import FoldedTrace
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups

__all__ = ["KeptRanks", "kept_ranks"]

_TOLD = 6
_MESSAGES = ["COMM_SEND", "COMM_RECV"]


class _Axis(NamedTuple):
    """Ranks that differ in one role only: its name, the place of each rank, and the distance."""

    role: str
    place: Ints
    size: int
    stride: int


class KeptRanks(NamedTuple):
    """The ranks that remain, and how.

    Attributes
    ----------
    ranks
        int64, shape (kept ranks,): ascending.
    axes
        Roles along which ranks are numbered, the first one fastest.
    before, after
        Ranks along each axis, before and now.
    groups
        The groups of each role among the kept ranks, with their new numbers.
    """

    ranks: Ints
    axes: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: RankGroups


def kept_ranks(job: FoldedJob, size: int) -> KeptRanks:
    """Choose so many ranks that each class has one and each group has several.

    Raises
    ------
    UsageError
        If groups have no roles, or there are no such ranks; the message names numbers that fit.
    """
    groups = job.rank_groups
    if groups is None:
        raise UsageError(
            "job", "its ranks have no process groups by role, of which some could be left out",
            "scale down a job whose groups of each kind have one size and share no rank",
        )  # fmt: skip
    if size >= groups.world_size:
        raise UsageError(
            f"{size} ranks", f"the job has {groups.world_size} ranks", "give fewer than these",
        )  # fmt: skip
    axes = _axes(groups)
    choices = [_sizes(axis, job) for axis in axes]
    found: dict[int, list[tuple[int, ...]]] = {}
    for sizes in product(*choices):
        number = int(np.prod(sizes, dtype=np.int64))
        if number < groups.world_size:
            found.setdefault(number, []).append(sizes)
    for sizes in sorted(found.get(size, ()), key=lambda one: _unevenness(one, axes)):
        kept = _kept(groups, axes, sizes)
        if kept is not None and set(job.of[kept.ranks].tolist()) == set(job.of.tolist()):
            return kept
    fits = ", ".join(map(str, sorted(found)[:_TOLD]))
    parts = " x ".join(
        f"{min(one)} of {axis.role}" for one, axis in zip(choices, axes, strict=True)
    )
    raise UsageError(
        f"{size} ranks", f"the job needs at least {parts or groups.world_size}, or does not divide "
        "into so many",
        f"numbers that may fit: {fits}" if fits
        else "none fits: ranks of a group differ or exchange messages, so all remain",
    )  # fmt: skip


def _axes(groups: RankGroups) -> list[_Axis]:
    """Return roles that tell all ranks apart, from neighboring ranks on."""
    every = np.arange(groups.world_size)
    found: list[_Axis] = []
    distinct = np.zeros_like(every)
    by_size = sorted(groups.members.items(), key=lambda item: item[1].shape[1])
    for role, members in by_size:
        size = members.shape[1]
        if size == 1 or members.size != groups.world_size:
            continue
        place = groups.place[role][1]
        both = np.unique(distinct * size + place, return_inverse=True)[1].reshape(-1)
        if both.max() + 1 < (distinct.max() + 1) * size:
            continue  # it is not independent of those before
        distinct = both
        found.append(_Axis(role, place, size, int(np.diff(np.sort(members[0])).min())))
    if distinct.max() + 1 < groups.world_size:
        raise UsageError(
            "job", f"its groups ({', '.join(groups.members)}) are not those of axes of its ranks, "
            "as groups of experts are not",
            "scale down a job with groups along each axis of its ranks",
        )  # fmt: skip
    return sorted(found, key=lambda axis: axis.stride)


def _sizes(axis: _Axis, job: FoldedJob) -> Sequence[int]:
    """Return how many ranks may remain along an axis: all, where ranks differ or send messages."""
    order = np.lexsort((axis.place, job.of))
    in_class = np.unique(np.stack([job.of, axis.place])[:, order], axis=1)
    each = np.bincount(in_class[0])
    sends = any(_has_messages(fold, axis.role) for fold in job.folds)
    if sends or (each < axis.size).any():
        return [axis.size]
    return [size for size in range(2, axis.size + 1) if axis.size % size == 0]


def _has_messages(fold: FoldedTrace, role: str) -> bool:
    roles = fold.groups["name"].to_list()
    if role not in roles:
        return False
    kinds = fold.nodes.filter(pl.col("group") == roles.index(role))["kind"]
    return bool(kinds.is_in(_MESSAGES).any())


def _unevenness(sizes: tuple[int, ...], axes: Sequence[_Axis]) -> float:
    shares = [size / axis.size for size, axis in zip(sizes, axes, strict=True)]
    return float(np.std(np.log(shares)))


def _kept(groups: RankGroups, axes: Sequence[_Axis], sizes: tuple[int, ...]) -> KeptRanks | None:
    """Keep the first ranks along each axis; None if groups would have different sizes, or one."""
    stays = np.ones(groups.world_size, dtype=np.bool_)
    for axis, size in zip(axes, sizes, strict=True):
        stays &= axis.place < size
    ranks = np.flatnonzero(stays)
    number = np.full(groups.world_size, -1, dtype=np.int64)
    number[ranks] = np.arange(ranks.size)
    members: dict[str, Ints] = {}
    for role, of_role in groups.members.items():
        listed = [number[one][number[one] >= 0] for one in of_role]
        listed = [one for one in listed if one.size]
        lengths = {one.size for one in listed}
        if len(lengths) != 1 or (lengths == {1} and of_role.shape[1] > 1):
            return None
        members[role] = np.stack(listed)
    return KeptRanks(
        ranks, tuple(axis.role for axis in axes), tuple(axis.size for axis in axes), sizes,
        RankGroups(members, ranks.size),
    )  # fmt: skip
