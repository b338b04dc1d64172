"""The links that messages take, one after the other.

Links are numbered as in :mod:`nadi.simulator.engine.network_links`, and messages go the same
ways: lower dimensions first, in a ring the shorter way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.model.arrays import Ints
from nadi.simulator.collectives.link_traffic import links_per_rank
from nadi.simulator.machine.system import Dimension, Network

__all__ = ["Hops", "first_links", "hops_of", "owned_by"]


class Hops(NamedTuple):
    """Messages on links; int64, shape (hops,) each: which message, and which link."""

    message: Ints
    link: Ints


def first_links(network: Network) -> Ints:
    """Return the first link of each dimension, and the number of links."""
    per_rank = [links_per_rank(dimension) for dimension in network.dimensions]
    return np.append(0, np.cumsum(per_rank)) * network.num_ranks


def hops_of(network: Network, src: Ints, dst: Ints) -> Hops:
    """Find the links of messages; int64, shape (messages,). O(hops).

    Links are in no order.
    """
    at, stride, found = src.copy(), 1, []
    for first, dimension in zip(first_links(network).tolist(), network.dimensions, strict=False):
        n = dimension.size
        a, b = at // stride % n, dst // stride % n
        moves = np.flatnonzero(a != b)
        if moves.size:
            a, b, own = a[moves], b[moves], at[moves]
            number, rank, port = _hops_in(dimension, own - a * stride, stride, a, b)
            link = first + rank * links_per_rank(dimension) + port
            found.append(Hops(moves[number], link))
            at[moves] += (b - a) * stride
        stride *= n
    if not found:
        return Hops(src[:0], src[:0])
    return Hops(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _hops_in(
    dimension: Dimension, base: Ints, stride: int, a: Ints, b: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the message, the rank whose link it is, and which of that rank's links."""
    n, number = dimension.size, np.arange(a.size)
    here, there = base + a * stride, base + b * stride
    if dimension.topology == "fully-connected":
        return number, here, b
    if dimension.topology == "switch":
        ports = np.repeat([0, 1], a.size)
        return np.tile(number, 2), np.concatenate([here, there]), ports
    backward, length = b < a, np.abs(b - a)
    if dimension.topology == "ring":
        forward = (b - a) % n
        backward = forward > n - forward
        length = np.minimum(forward, n - forward)
    number = np.repeat(number, length)
    step = np.arange(number.size) - np.repeat(np.cumsum(length) - length, length)
    back = backward[number]
    place = (a[number] + np.where(back, -step, step)) % n
    return number, base[number] + place * stride, back.astype(np.int64)


def owned_by(network: Network, link: Ints, home: Ints) -> Ints:
    """Return the links that stand for others: those of the ranks that stand for their ranks.

    Parameters
    ----------
    link
        int64, shape (links,).
    home
        int64, shape (ranks,): who stands for each rank.
    """
    found, stride = link.copy(), 1
    ends = first_links(network)
    for d, dimension in enumerate(network.dimensions):
        there = np.flatnonzero((link >= ends[d]) & (link < ends[d + 1]))
        per_rank, n = links_per_rank(dimension), dimension.size
        rank, port = np.divmod(link[there] - ends[d], per_rank)
        to = home[rank]
        if dimension.topology == "fully-connected":
            port = (port - rank // stride % n + to // stride % n) % n
        found[there] = ends[d] + to * per_rank + port
        stride *= n
    return found
