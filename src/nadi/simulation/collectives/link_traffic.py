"""Bytes on each link of a network, from messages and from rings.

Links are numbered as in :mod:`nadi.simulation.engine.network_links`, and messages go the same
ways: lower dimensions first, in a ring the shorter way.
"""

from __future__ import annotations

import numpy as np

from nadi.systems.system import Dimension, System
from nadi.trace.arrays import Ints

__all__ = ["Traffic", "links_per_rank"]


def links_per_rank(dimension: Dimension) -> int:
    """Return the link numbers per rank in a dimension, used or not."""
    return dimension.size if dimension.topology == "fully-connected" else 2


class Traffic:
    """Accumulates bytes per link.

    Attributes
    ----------
    bytes
        int64, shape (numbers of links,).
    """

    def __init__(self, system: System) -> None:
        network = system.network
        self.dimensions = network.dimensions
        self.num_ranks = network.num_ranks
        per_rank = [links_per_rank(dimension) for dimension in self.dimensions]
        self.first = np.append(0, np.cumsum(per_rank)) * self.num_ranks
        self.strides = [1]
        for dimension in self.dimensions[:-1]:
            self.strides.append(self.strides[-1] * dimension.size)
        self.bytes = np.zeros(self.first[-1], dtype=np.int64)

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank; int64, shape (messages,). O(messages + links)."""
        at = src.copy()
        for d, dimension in enumerate(self.dimensions):
            n, stride = dimension.size, self.strides[d]
            a, b = at // stride % n, dst // stride % n
            moves = np.flatnonzero(a != b)
            if moves.size:
                a, b, now = a[moves], b[moves], at[moves]
                line = now % stride + now // (stride * n) * stride
                loads = _loads(dimension, line, a, b, num_bytes[moves], self.num_ranks // n)
                self._add(d, loads)
                at[moves] += (b - a) * stride

    def add_lines(
        self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1
    ) -> None:  # fmt: skip
        """Add the same messages in every line of ranks that differ in one dimension only.

        ``src`` and ``dst`` are places in the line. With ``inner`` only in those lines that have
        this number in the dimensions below. O(messages + links of the dimension).
        """
        dimension = self.dimensions[d]
        loads = _loads(dimension, np.zeros_like(src), src, dst, num_bytes, 1)
        num_lines = self.num_ranks // dimension.size
        loads = np.broadcast_to(loads, (num_lines, *loads.shape[1:]))
        if inner >= 0:
            there = np.arange(num_lines) % self.strides[d] == inner
            loads = loads * there[:, None, None]
        self._add(d, loads)

    def most_of_dimensions(self) -> list[int]:
        """Return the bytes on the busiest link of each dimension."""
        ends = zip(self.first[:-1], self.first[1:], strict=True)
        return [int(self.bytes[first:last].max()) for first, last in ends]

    def _add(self, d: int, loads: Ints) -> None:
        """Add the loads of lines, shape (lines, places, links of a place)."""
        n, stride = self.dimensions[d].size, self.strides[d]
        own = self.bytes[self.first[d] : self.first[d + 1]]
        # ranks are outer lines, places, inner lines
        by_rank = loads.reshape(-1, stride, n, loads.shape[2]).swapaxes(1, 2)
        own += by_rank.reshape(-1)


def _loads(
    dimension: Dimension, line: Ints, a: Ints, b: Ints, num_bytes: Ints, num_lines: int
) -> Ints:
    """Return the bytes on each link of lines, from places ``a`` to ``b`` that differ.

    Returns
    -------
    int64, shape (lines, places, links of a place)
        In the order of the numbers of links.
    """
    n, ports = dimension.size, links_per_rank(dimension)
    flat = np.zeros(num_lines * n * ports, dtype=np.int64)
    loads = flat.reshape(num_lines, n, ports)
    if dimension.topology == "fully-connected":
        np.add.at(flat, (line * n + a) * ports + b, num_bytes)
    elif dimension.topology == "switch":
        np.add.at(flat, (line * n + a) * ports, num_bytes)
        np.add.at(flat, (line * n + b) * ports + 1, num_bytes)
    else:
        backward = b < a
        if dimension.topology == "ring":
            forward = (b - a) % n
            backward = forward > n - forward
        on = ~backward
        loads[:, :, 0] = _passed(line[on], a[on], b[on], num_bytes[on], num_lines, n)
        # backward from a place to the one before it is the link of the place
        back = _passed(line[backward], b[backward], a[backward], num_bytes[backward], num_lines, n)
        loads[:, :, 1] = np.roll(back, 1, axis=1)
    return loads


def _passed(line: Ints, low: Ints, high: Ints, num_bytes: Ints, num_lines: int, n: int) -> Ints:
    """Add bytes to the positions in ``[low, high)``, with wrap-around if ``high < low``.

    By what is more at each place than at the one before it: O(messages + places), however long
    the ways are.
    """
    steps = np.zeros(num_lines * n, dtype=np.int64)
    np.add.at(steps, line * n + low, num_bytes)
    np.subtract.at(steps, line * n + high, num_bytes)
    round_the_end = high < low
    np.add.at(steps, line[round_the_end] * n, num_bytes[round_the_end])
    loads: Ints = np.cumsum(steps.reshape(num_lines, n), axis=1)
    return loads
