"""How long parts of a step take on more ranks than were recorded.

Ranks wait for each other where they meet, so that between two meetings the latest one counts: the
more ranks, the later it is. A rank that was not recorded is as slow in all as one that was. What it
takes in one part is besides that a matter of chance, as large as that of parts of about the same
length on ranks that do nearly the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Floats, Ints, numbered_texts
from nadi.trace.trace import Trace

_MEETINGS = ["COMM_COLL", "COMM_SEND", "COMM_RECV"]
_APART = 0.05
"""Share of operations in which ranks that do nearly the same may differ."""
_NEIGHBORS = 8
"""Parts on either side, by their length, whose chances count for a part."""
_LONGER = 2.0
"""Times the length of a part that such a neighbor has at most."""
_LIKELY = 0.95


def communicating(nodes: pl.DataFrame) -> Bools:
    """Return which nodes of a trace meet other ranks; bool, shape (nodes,)."""
    return nodes["kind"].is_in(_MEETINGS).to_numpy()


def counts_of_names(traces: Sequence[Trace]) -> list[Ints]:
    """Return of each rank how often it has an operation of each name; int64, shape (names,)."""
    names, _ = numbered_texts(pl.concat([one.nodes["name"].cast(pl.String) for one in traces]))
    cuts = np.cumsum([trace.nodes.height for trace in traces])[:-1]
    size = int(names.max(initial=0)) + 1
    return [np.bincount(own, minlength=size) for own in np.split(names, cuts)]


def parts_between(meets: Bools, most: int) -> Ints:
    """Return the part of each operation of a rank: how many meetings come before it.

    - ``meets``: bool, shape (operations,): whether it communicates.
    - ``most``: Parts; of more meetings, several neighbors are one part.
    - Returns: int64, shape (operations,), ascending.
    """
    passed: Ints = np.cumsum(meets) - meets
    number = int(passed[-1]) + 1 if passed.size else 1
    return passed * most // number if number > most else passed


def nearly_alike(counts: Sequence[Ints], meetings: Sequence[int]) -> Ints:
    """Return a class for each rank: the same for ranks that do nearly the same.

    They meet equally often, and not more than 5 % of the operations of one would have to be others
    for those of the other. A rank belongs to the first class whose lowest rank it is like.

    - ``counts``: Of each rank, int64, shape (names,): how often it has an operation of a name.
    - ``meetings``: Of each rank.
    - Returns: int64, shape (ranks,): the lowest rank of its class. O(ranks * classes * names).
    """
    found = np.zeros(len(counts), dtype=np.int64)
    lowest: list[int] = []
    for rank, own in enumerate(counts):
        for first in lowest:
            other = counts[first]
            apart = np.abs(own - other).sum() / max(own.sum() + other.sum(), 1)
            if meetings[rank] == meetings[first] and apart <= _APART:
                found[rank] = first
                break
        else:
            lowest.append(rank)
            found[rank] = rank
    return found


class RankSpread(NamedTuple):
    """What parts take on ranks that were not recorded.

    Attributes
    ----------
    usual
        float64 ns, shape (ranks, parts): what a rank that is as slow as a recorded one takes
        without chance.
    chance
        float64, shape (parts, draws), ascending: equally likely factors.
    """

    usual: Floats
    chance: Floats

    def drawn(self, like: Ints, random: np.random.Generator) -> Floats:
        """Draw what parts take on ranks that are as slow as recorded ones; ns.

        - ``like``: int64, shape (new ranks,): recorded ranks.
        - Returns: float64, shape (new ranks, parts).
        """
        parts, draws = self.chance.shape
        place = random.integers(draws, size=(like.size, parts))
        return self.usual[like] * self.chance[np.arange(parts), place]

    def latest(self, taken: Floats, rank: int, more: int) -> tuple[Floats, Floats]:
        """Return when the last of a recorded rank and others that are as slow ends each part; ns.

        - ``taken``: float64 ns, shape (parts,): what the recorded rank takes.
        - ``more``: Ranks beside it.
        - Returns: float64, shape (parts,) each: the expected latest, and one that is later with a
          chance of 5 % at most.
        """
        if not more:
            return taken, taken
        draws = self.chance.shape[1]
        passed = (np.arange(draws + 1) / draws) ** more  # chance that the latest is none of these
        last = np.maximum(self.usual[rank][:, None] * self.chance, taken[:, None])
        likely = int(np.searchsorted(passed[1:], _LIKELY))
        return last @ np.diff(passed), last[:, min(likely, draws - 1)]


def spread_of_ranks(taken: Floats) -> RankSpread:
    """Learn how parts differ between ranks that do nearly the same.

    What a rank takes is the mean of the part, times how slow the rank is in all, times chance. Of
    few ranks the mean is nearer to each than it is to others, which is corrected. Of one rank
    nothing is known, and others take what it takes.

    - ``taken``: float64 ns, shape (ranks, parts): of ranks as of :func:`nearly_alike`.
    - O(ranks * parts * log(ranks)).
    """
    ranks, parts = taken.shape
    mean = taken.mean(axis=0)
    if ranks < 2 or not mean.any():
        return RankSpread(taken, np.ones((parts, 1)))
    usual = (taken.sum(axis=1) / mean.sum())[:, None] * mean
    known = np.divide(taken, usual, out=np.ones_like(taken), where=usual > 0)
    chance = np.maximum(1 + (known - 1) * np.sqrt(ranks / (ranks - 1)), 0)
    order = np.argsort(mean, kind="stable")
    width = min(2 * _NEIGHBORS + 1, parts)
    first = np.clip(np.arange(parts) - _NEIGHBORS, 0, parts - width)
    near = order[first[:, None] + np.arange(width)]
    own, other = mean[order][:, None], mean[near]
    far = np.maximum(own, other) > _LONGER * np.minimum(own, other)
    near = np.where(far, order[:, None], near)  # a part of another length says nothing
    pool = np.empty((parts, width * ranks))
    pool[order] = chance.T[near].reshape(parts, -1)
    return RankSpread(usual, np.sort(pool, axis=1))
