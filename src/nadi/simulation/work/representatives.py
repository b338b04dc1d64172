"""Ranks that stand for others, which do the same at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nadi.trace.arrays import Ints

__all__ = ["Representatives", "everybody"]


@dataclass(frozen=True, eq=False)
class Representatives:
    """The ranks that are simulated, and who each of them stands for.

    Attributes
    ----------
    rank
        int64, shape (representatives,): the rank that each of them is.
    of
        int64, shape (ranks,): the number of the representative of each rank.
    copies
        For the name of each process group of representatives, the groups of all ranks that do
        the same at the same time: int64, shape (groups, members); the first dimension is 1 or more.
    """

    rank: Ints
    of: Ints
    copies: Mapping[str, Ints] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the job."""
        return self.of.size

    @property
    def are_fewer(self) -> bool:
        """Whether any rank stands for another one."""
        return self.rank.size < self.of.size


def everybody(num_ranks: int) -> Representatives:
    """Let each rank stand for itself."""
    ranks = np.arange(num_ranks)
    return Representatives(ranks, ranks)
