"""The axes along which ranks of a job communicate: groups of one size that share no rank.

At level ``private`` what an axis is used for is not published, as it names a model's family: which
types of collectives there are, groups of a few ranks of an axis (experts, tied embeddings) and in
which direction messages go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.trace.arrays import Floats
from nadi.trace.groups import RankGroups
from nadi.trace.trace import Job, Trace

__all__ = ["Axes", "axes_of"]

_Members = tuple[int, ...]


class Axes(NamedTuple):
    """Along which axes ranks communicate, and how much.

    Attributes
    ----------
    groups
        The groups of each axis, as roles of a job.
    sent
        float64, shape (axes,): bytes that a rank sends along each, the mean over its ranks.
    """

    groups: RankGroups
    sent: Floats


def axes_of(job: Job) -> Axes:
    """Return the axes of a job's communication.

    Ranks that send messages to each other, in one or several steps, are a group. A group whose
    ranks are all in another one counts as that one.

    Returns
    -------
    Axes
        O(nodes + groups^2).
    """
    volume: dict[_Members, float] = {}
    pairs: dict[_Members, float] = {}
    for rank in range(len(job.traces)):
        for members, is_message, sent in _uses(job, rank):
            into = pairs if is_message else volume
            into[members] = into.get(members, 0.0) + sent
    chains = _connected(pairs)
    for members, sent in pairs.items():
        chain = next(one for one in chains if members[0] in one)
        volume[chain] = volume.get(chain, 0.0) + sent
    largest = _maximal(volume)
    total = dict.fromkeys(largest, 0.0)
    for members, sent in volume.items():
        total[next(one for one in largest if set(members) <= set(one))] += sent
    axes = _disjoint(largest)
    groups = {f"group{number}": np.array(axis) for number, axis in enumerate(axes)}
    means = [sum(total[one] for one in axis) / sum(len(one) for one in axis) for axis in axes]
    return Axes(RankGroups(groups, len(job.traces)), np.array(means))


def _uses(job: Job, rank: int) -> Iterator[tuple[_Members, bool, float]]:
    """Yield each group in which a rank communicates, or peer, and the bytes that it sends."""
    trace = job.own_trace(rank)
    used = trace.nodes.filter(pl.col("kind").is_in(["COMM_COLL", "COMM_SEND"])).group_by(
        "kind", "comm_type", "group", "dst", maintain_order=True
    ).agg(pl.col("comm_bytes").clip(0).sum())  # fmt: skip
    for kind, comm_type, group, dst, size in used.iter_rows():
        if kind == "COMM_SEND":
            yield tuple(sorted({rank, dst})), True, float(size)
            continue
        members = _members(trace, group, len(job.traces))
        whole, bus = nccl_tests_factors(comm_type, len(members))
        if len(members) > 1:
            yield members, False, float(size * whole * (bus or 1.0))


def _members(trace: Trace, group: int, num_ranks: int) -> _Members:
    ranks = trace.groups["ranks"][group].to_list() if group >= 0 else []
    return tuple(sorted(ranks)) or tuple(range(num_ranks))


def _connected(pairs: dict[_Members, float]) -> list[_Members]:
    """Return the sets of ranks that messages connect."""
    found: list[set[int]] = []
    for pair in pairs:
        near = [one for one in found if not one.isdisjoint(pair)]
        found = [one for one in found if one.isdisjoint(pair)]
        found.append(set(pair).union(*near))
    return [tuple(sorted(one)) for one in found]


def _maximal(groups: dict[_Members, float]) -> list[_Members]:
    """Return the groups that are in no other, the largest first."""
    found: list[_Members] = []
    sets: list[set[int]] = []
    for one in sorted(groups, key=lambda group: (-len(group), group)):
        if not any(set(one) <= other for other in sets):
            found.append(one)
            sets.append(set(one))
    return found


def _disjoint(groups: Sequence[_Members]) -> list[list[_Members]]:
    """Put groups of one size that share no rank together."""
    axes: list[list[_Members]] = []
    taken: list[set[int]] = []
    for group in groups:
        for axis, ranks in zip(axes, taken, strict=True):
            if len(axis[0]) == len(group) and ranks.isdisjoint(group):
                axis.append(group)
                ranks.update(group)
                break
        else:
            axes.append([group])
            taken.append(set(group))
    return axes
