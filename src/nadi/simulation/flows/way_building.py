"""Ways of many pairs at once: which links each takes, one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.trace.arrays import Ints


class Ends(NamedTuple):
    """Pairs of ends of fabrics; int64, shape (pairs,).

    ``pair`` is the number of the way, ``domain`` which of equal fabrics it is in, ``a`` and ``b``
    the ends there, and ``choice`` a number that says which of equal ways is taken; it is negative
    where others were tried before.
    """

    pair: Ints
    domain: Ints
    a: Ints
    b: Ints
    choice: Ints

    def where(self, chosen: np.ndarray) -> Ends:
        """Return some of them."""
        return Ends(*(column[chosen] for column in self))


class Ways:
    """Accumulates links of ways; of each way in order."""

    def __init__(self, num_pairs: int) -> None:
        self._num_pairs = num_pairs
        self._pairs: list[Ints] = []
        self._links: list[Ints] = []

    def add(self, pair: Ints, link: Ints) -> None:
        """Append a link to each of some ways, or several to a way that is named as often."""
        self._pairs.append(pair)
        self._links.append(link)

    def finish(self) -> tuple[Ints, Ints]:
        """Return the first position of each way (pairs + 1,), and the links at the positions."""
        nothing = np.zeros(0, dtype=np.int64)
        pair = np.concatenate([nothing, *self._pairs])
        link = np.concatenate([nothing, *self._links])
        order = np.argsort(pair, kind="stable")
        count = np.bincount(pair, minlength=self._num_pairs)
        return np.append(0, np.cumsum(count)), link[order]


class Line(NamedTuple):
    """Places in which ends differ in one dimension: ``stride`` apart, ``size`` of them.

    ``reverse`` is a bool for each way: it goes the longer way round.
    """

    size: int
    stride: int
    joined: bool
    reverse: np.ndarray


def add_steps(ways: Ways, pair: Ints, first: Ints, at: Ints, to: Ints, line: Line) -> None:
    """Append the steps along a line, of which each end has a link forward and one backward.

    Parameters
    ----------
    first
        The link forward of end 0, for each pair; each further end has two links.
    at, to
        The ends between which a way leads; only their places in the line are looked at.
    """
    size, stride = line.size, line.stride
    a, b = at // stride % size, to // stride % size
    forward = (b - a) % size
    backward = b < a
    if line.joined:
        backward = (forward > size - forward) ^ line.reverse
    which, step = expand_ranges(np.zeros_like(forward), np.where(backward, (a - b) % size, forward))
    place = (a[which] + np.where(backward[which], -step, step)) % size
    end = at[which] + (place - a[which]) * stride
    ways.add(pair[which], first[which] + 2 * end + backward[which])


def hashed(*numbers: Ints | int) -> Ints:
    """Mix numbers to one that looks random, and is the same on every machine; not negative."""
    mixed = np.zeros(1, dtype=np.uint64)
    for one in numbers:
        mixed = mixed ^ np.asarray(one, dtype=np.int64).astype(np.uint64)
        # a round of splitmix64
        mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(1)).astype(np.int64)
