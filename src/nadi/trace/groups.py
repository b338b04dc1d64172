"""Process groups by role, for ranks that share a trace: which ranks are *my* tensor parallel group.

A job of 4,096 ranks has few programs, one for each pipeline stage, and many groups. So its traces
name a role, such as ``tp``, and :class:`RankGroups` states which ranks form the groups of a role.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.trace.arrays import Ints
from nadi.trace.schema import GROUPS

MOST_RANKS = 2**17  # of a group that states its size alone: few bytes cannot ask for gigabytes
_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
_AS_WRITTEN = {"name": "pg_name", "description": "pg_desc", "backend": "backend_config"}


class Group(msgspec.Struct, frozen=True, rename=_AS_WRITTEN):
    """A process group; its keys in JSON are PyTorch's.

    Attributes
    ----------
    name, description, backend
        As in the groups table.
    ranks
        Its members; none for all ranks, or for the first ones of a size that is stated.
    pg_size, group_size
        Number of members, as profiles and as execution traces state it; 0 if they do not.
    """

    name: str = ""
    ranks: tuple[_Rank, ...] = ()
    description: str = ""
    backend: str = ""
    pg_size: _Size = 0
    group_size: _Size = 0


def group_columns(groups: Sequence[Group], world_size: int = 0) -> dict[str, list[Any]]:
    """Return the columns of a groups table, with members in ascending order.

    Those that state no members have the first ``world_size`` ranks, unless they state a size.
    """
    world_size = min(world_size, MOST_RANKS)
    return {
        "name": [group.name for group in groups],
        "description": [group.description for group in groups],
        "ranks": [
            sorted(one.ranks) or list(range(one.pg_size or one.group_size or world_size))
            for one in groups
        ],
        "backend": [group.backend for group in groups],
    }


@dataclass(frozen=True, eq=False)
class RankGroups:
    """The process groups of each role.

    In the traces of a job that has them, the groups table names roles and states no ranks, and
    ``src`` and ``dst`` of a node with a group are positions in it.

    Raises
    ------
    UsageError
        If a rank is in two groups of a role, or is not a rank of the job.
    """

    # for each role, int64 of shape (groups, ranks of a group): the ranks of its groups, which all
    # have the same size and share no rank. A rank may be in none.
    members: Mapping[str, Ints]
    world_size: int  # number of ranks of the job

    def __post_init__(self) -> None:
        for role, ranks in self.members.items():
            flat = ranks.reshape(-1)
            beyond = flat.size and (flat.min() < 0 or flat.max() >= self.world_size)
            if beyond or np.unique(flat).size < flat.size:
                raise UsageError(
                    f"groups of role {role!r}", "a rank is in two of them, or is not a rank of "
                    f"the job, which has {self.world_size}", "give each rank one place",
                )  # fmt: skip

    @cached_property
    def place(self) -> Mapping[str, tuple[Ints, Ints]]:
        """For each role, the group of each rank and its position in it; int64, shape (ranks,).

        -1 for ranks that are in none.
        """
        found = {}
        for role, ranks in self.members.items():
            group = np.full(self.world_size, -1, dtype=np.int64)
            position = np.full(self.world_size, -1, dtype=np.int64)
            group[ranks] = np.arange(ranks.shape[0])[:, None]
            position[ranks] = np.arange(ranks.shape[1])
            found[role] = group, position
        return found

    @cached_property
    def first_number(self) -> Mapping[str, int]:
        """The number of the first group of each role, where groups are counted from 1."""
        counts = [ranks.shape[0] for ranks in self.members.values()]
        first = 1 + np.cumsum([0, *counts])
        return dict(zip(self.members, first.tolist(), strict=False))

    def ranks_of(self, role: str, rank: int) -> Ints:
        """Return the ranks of the group of a role that a rank is in; int64, shape (ranks,).

        - Raises UsageError if there is no such role, or the rank is in none of its groups.
        """
        group = self.place[role][0][rank] if role in self.members else -1
        if group < 0:
            raise UsageError(
                f"rank {rank}", f"its trace uses a group of role {role!r}, but it is in none",
                "state its group in RankGroups",
            )  # fmt: skip
        return np.asarray(self.members[role][group])

    def own_tables(
        self, nodes: pl.DataFrame, groups: pl.DataFrame, rank: int, *, numbered: bool = False
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a rank's own nodes and groups, from those of the trace that it shares.

        - ``nodes``, ``groups``: Tables whose groups are roles.
        - ``rank``: Whose.
        - ``numbered``: Whether groups are called by number, as ASTRA-sim needs it, and not
          ``tp[3]``.
        - Raises UsageError if the rank is in no group of a role.
        """
        roles = groups["name"].to_list()
        members = [self.ranks_of(role, rank) for role in roles]
        number = [int(self.place[role][0][rank]) for role in roles]
        own = GROUPS.build(len(roles), {
            "name": [
                str(self.first_number[role] + group) if numbered else name_of_group(role, group)
                for role, group in zip(roles, number, strict=True)
            ],
            "description": roles,
            "ranks": [np.sort(ranks).tolist() for ranks in members],
            "backend": groups["backend"].to_list(),
        })  # fmt: skip
        of_node = nodes["group"].to_numpy()
        columns = {}
        for name in ("src", "dst"):
            ends = nodes[name].to_numpy().copy()
            for row, ranks in enumerate(members):
                chosen = np.flatnonzero((of_node == row) & (ends >= 0))
                ends[chosen] = ranks[ends[chosen]]
            columns[name] = pl.Series(name, ends)
        return nodes.with_columns(**columns), own


def name_of_group(role: str, number: int) -> str:
    """Return what one of the groups of a role is called, such as ``tp[3]``."""
    return f"{role}[{number}]" if role else ""


def groups_along(sizes: Mapping[str, int], axes: Sequence[str]) -> Ints:
    """Return the groups of ranks that differ along some axes only.

    Ranks are numbered along the axes of ``sizes``, the first one fastest.

    - ``sizes``: Ranks along each axis, such as ``{"tp": 8, "dp": 32, "pp": 16}``.
    - ``axes``: Along which the members of a group differ.
    - Returns: Shape (groups, ranks of a group); members are in order of rank.
    """
    names = list(sizes)
    ranks = np.arange(int(np.prod(list(sizes.values()), dtype=np.int64)))
    grid = ranks.reshape([sizes[name] for name in reversed(names)])
    within = [len(names) - 1 - names.index(axis) for axis in axes]
    across = [axis for axis in range(len(names)) if axis not in within]
    moved = grid.transpose(across + sorted(within))
    size = int(np.prod([sizes[axis] for axis in axes], dtype=np.int64))
    return np.ascontiguousarray(moved.reshape(-1, size))
