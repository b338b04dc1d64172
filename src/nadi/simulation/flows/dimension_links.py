"""The links of a network's dimensions, where no physical network is stated.

They are numbered, and data takes them, as in :mod:`nadi.simulation.engine.network_links`: lower
dimensions first, in a ring the shorter way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.systems.system import Dimension
from nadi.trace.arrays import Floats, Ints


class DimensionLinks:
    """Links of dimensions, each joining ranks that differ in it only."""

    def __init__(self, dimensions: Sequence[Dimension], num_ranks: int) -> None:
        self._dimensions, self._num_ranks = dimensions, num_ranks
        self._per_rank = [d.size if d.topology == "fully-connected" else 2 for d in dimensions]
        self._first = np.append(0, np.cumsum(self._per_rank)) * num_ranks

    def bandwidths(self) -> Floats:
        """Return what each link carries, bytes per ns."""
        each = np.array([d.bandwidth for d in self._dimensions], dtype=np.float64)
        return np.repeat(each, np.diff(self._first))

    def latencies(self) -> Floats:
        """Return the latency of each link, ns."""
        each = np.array([d.latency for d in self._dimensions], dtype=np.float64)
        return np.repeat(each, np.diff(self._first))

    def names(self) -> list[str]:
        """Return the name of each link."""
        found: list[str] = []
        stride = 1
        for d, dimension in enumerate(self._dimensions):
            found += self._names_in(f"dimension{d}", dimension, stride)
            stride *= dimension.size
        return found

    def _names_in(self, name: str, dimension: Dimension, stride: int) -> list[str]:
        size, topology = dimension.size, dimension.topology
        ports = range(size) if topology == "fully-connected" else (1, -1)
        found = []
        for rank in range(self._num_ranks):
            at = rank // stride % size
            for port in ports:
                to = port if topology == "fully-connected" else at + port
                other = rank + (to % size - at) * stride
                if size == 1 or to == at or (topology == "mesh" and not 0 <= to < size):
                    found.append("")
                elif topology == "switch":
                    found.append(f"{name}.rank{rank}.{'up' if port == 1 else 'down'}")
                else:
                    twice = ".second" if size == 2 and not 0 <= to < size else ""
                    found.append(f"{name}.rank{rank}.to.rank{other}{twice}")
        return found

    def ends(self, dimension: int, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the pairs that take a dimension, and the ranks that they leave and reach there.

        int64, shape (some of the pairs,) each.
        """
        stride, at = 1, src
        for d, one in enumerate(self._dimensions):
            to = at + (dst // stride % one.size - at // stride % one.size) * stride
            if d == dimension:
                goes = np.flatnonzero(at != to)
                return goes, at[goes], to[goes]
            at, stride = to, stride * one.size
        raise IndexError(dimension)

    def add_ways(self, ways: Ways, src: Ints, dst: Ints, flow: Ints, attempt: int) -> None:
        """Append the ways of pairs of ranks; further attempts go the other way round rings."""
        at, stride = src.copy(), 1
        pair = np.arange(src.size)
        for d, dimension in enumerate(self._dimensions):
            size, first = dimension.size, self._first[d]
            to = at + (dst // stride % size - at // stride % size) * stride
            goes = np.flatnonzero(at != to)
            if dimension.topology == "switch":
                ways.add(pair[goes], first + 2 * at[goes])
                ways.add(pair[goes], first + 2 * to[goes] + 1)
            elif dimension.topology == "fully-connected":
                place = to // stride % size
                ways.add(pair[goes], first + at[goes] * size + place[goes])
            else:
                reverse = np.full(goes.size, attempt >> d & 1 == 1)
                line = Line(size, stride, dimension.topology == "ring", reverse)
                begin = np.full(goes.size, first)
                add_steps(ways, pair[goes], begin, at[goes], to[goes], line)
            at, stride = to, stride * size


def owned_by(
    dimensions: Sequence[Dimension], num_ranks: int, link: Ints, home: Ints
) -> Ints:  # fmt: skip
    """Return the links of the ranks that stand for the ranks whose links are given.

    ``home``, int64, shape (ranks,), says who stands for each rank.
    """
    found, stride, begin = link.copy(), 1, 0
    for dimension in dimensions:
        n = dimension.size
        per_rank = n if dimension.topology == "fully-connected" else 2
        end = begin + num_ranks * per_rank
        there = np.flatnonzero((link >= begin) & (link < end))
        rank, port = np.divmod(link[there] - begin, per_rank)
        to = home[rank]
        if dimension.topology == "fully-connected":
            port = (port - rank // stride % n + to // stride % n) % n
        found[there] = begin + to * per_rank + port
        begin, stride = end, stride * n
    return found


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

    - ``first``: The link forward of end 0, for each pair; each further end has two links.
    - ``at``, ``to``: The ends between which a way leads; only their places in the line are looked
      at.
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
