"""Groups that form a grid in the network, so that each dimension is a phase."""

from __future__ import annotations

from math import prod

import numpy as np

from nadi.systems.system import Network
from nadi.trace.arrays import Ints

__all__ = ["grid_of", "grid_of_all", "in_order_of_grid", "places_in"]


def places_in(network: Network, ranks: Ints) -> list[Ints]:
    """Return the position of each rank in each dimension; int64, shape (ranks,) for each."""
    found, rest = [], ranks
    for dimension in network.dimensions:
        found.append(rest % dimension.size)
        rest = rest // dimension.size
    return found


def grid_of_all(network: Network) -> tuple[int, ...]:
    """Return the size of each dimension."""
    return tuple(dimension.size for dimension in network.dimensions)


def grid_of(network: Network, members: Ints) -> tuple[int, ...]:
    """Return the grid size of a group in each dimension, or none if it is not a full grid.

    Parameters
    ----------
    network
        Of all ranks.
    members
        int64, shape (members,): different ranks.

    Returns
    -------
    tuple of int
        Their product is the number of members; empty if some combination of places has none.
    """
    sizes = tuple(len(set(places.tolist())) for places in places_in(network, members))
    return sizes if prod(sizes) == members.size else ()


def in_order_of_grid(network: Network, members: Ints) -> Ints:
    """Sort the members of a multi-dimensional grid by position.

    Where they differ in one dimension only they are a ring in the order that was given.
    """
    sizes = grid_of(network, members)
    return np.sort(members) if sum(size > 1 for size in sizes) > 1 else members
