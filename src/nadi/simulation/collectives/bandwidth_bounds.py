"""Lower bounds of collective times: bytes divided by bandwidth, without latency."""

from collections import Counter
from itertools import pairwise

import numpy as np

from nadi.simulation.collectives.phases import IN_SWITCH, Phase, Recipe
from nadi.simulation.collectives.step_tables import COMM, ROOTED
from nadi.simulation.engine.codes import Comm
from nadi.systems.system import Dimension, System
from nadi.trace.arrays import Ints

UNKNOWN = -1.0
IN_NETWORK = "CollNet"  # how names of algorithms begin that reduce in switches between nodes


def least_time(system: System, recipe: Recipe, size: float, ranks: Ints) -> float:
    """Compute a lower bound of the time of a collective: all bytes move at once.

    In each dimension the bytes that have to pass its links, whatever the algorithm, are divided
    by what all of them carry; phases in one dimension come one after the other, and dimensions
    work beside each other. So the most loaded dimension says how long it takes. A phase among
    all members, whatever dimensions lie between them, is bounded in each dimension by what
    those on one side of a cut have to tell the others.

    - ``system``: The machine; as it is, and not as ASTRA-sim lets messages share links.
    - ``recipe``: The phases of the collective.
    - ``size``: Bytes that each member gives.
    - ``ranks``: int64, shape (members,): used where a phase is among all members.
    - Returns: In ns; ``UNKNOWN`` if there is a phase of a kind that nothing is known of. O(members
      log members).
    """
    dimensions = system.network.dimensions
    busy = [0.0] * len(dimensions)
    now = float(size)
    for phase in recipe.phases:
        if phase.comm not in COMM.values():
            return UNKNOWN
        if phase.name.startswith(IN_SWITCH):
            # switches of the first dimension reduce: a rank sends and receives everything once
            busy[0] += now / dimensions[0].bandwidth
            shares = _sent_once(system, ranks) if phase.name == IN_SWITCH else [1.0] * len(busy)
            for d, time in enumerate(_times_between(system, phase, now, ranks)[1:], 1):
                busy[d] += time * shares[d]
        elif phase.name.startswith(IN_NETWORK):
            times = _times_between(system, phase, now, ranks)
            for d, (time, share) in enumerate(zip(times, _sent_once(system, ranks), strict=True)):
                busy[d] += time * share
        elif phase.dim >= 0:
            busy[phase.dim] += _time_in(dimensions[phase.dim], phase, now)
        else:
            for d, time in enumerate(_times_between(system, phase, now, ranks)):
                busy[d] += time
        if phase.comm in (Comm.REDUCE_SCATTER, Comm.SCATTER):
            now /= phase.size
        elif phase.comm in (Comm.ALL_GATHER, Comm.GATHER):
            now *= phase.size
    return max(busy)


def least_message_time(system: System, size: float, src: int, dst: int) -> float:
    """Compute a lower bound of the time of a message between two ranks, in ns.

    It takes one link in each dimension in which they differ, and the slowest sets its time.
    """
    slowest, stride = 0.0, 1
    for dimension in system.network.dimensions:
        if src // stride % dimension.size != dst // stride % dimension.size:
            slowest = max(slowest, size / dimension.bandwidth)
        stride *= dimension.size
    return slowest


def _time_in(dimension: Dimension, phase: Phase, size: float) -> float:
    """Compute the least time of a phase among ranks that differ in one dimension only."""
    n = phase.size
    if phase.comm in ROOTED:
        return _past_one(phase.comm, size, 1, n) / (_links(dimension, n) * dimension.bandwidth)
    moved = _crossing(phase.comm, size, np.ones(n, dtype=np.int64))
    if phase.comm == Comm.ALL_TO_ALL:
        moved *= _hops(dimension, n) if n == dimension.size else 1
    return moved / (n * _lanes(dimension, n) * dimension.bandwidth)


def _times_between(system: System, phase: Phase, size: float, ranks: Ints) -> list[float]:
    """Compute the least time of a phase among ranks from the bytes that pass each dimension."""
    times, stride = [], 1
    for dimension in system.network.dimensions:
        place = ranks // stride % dimension.size
        members = _counts(place)
        k = members.size
        if k < 2:
            times.append(0.0)
        elif phase.comm in ROOTED:
            # the part of the root has fewer links the fewer members it has
            moved = _past_one(phase.comm, size, int(members.max()), ranks.size)
            beside = max(int(members.max()), _num_different(ranks % stride))
            times.append(moved / (beside * _links(dimension, k) * dimension.bandwidth))
        else:
            # a message changes its lower coordinates first, and so may leave from a rank that
            # is no member
            lower, upper = _num_different(ranks % stride), _num_different(ranks // stride)
            senders = max(ranks.size, lower * upper)
            moved = _crossing(phase.comm, size, members)
            if phase.comm == Comm.ALL_TO_ALL and (members == members[0]).all():
                moved *= _hops(dimension, k) if k == dimension.size else 1.0
            times.append(moved / (senders * _lanes(dimension, k) * dimension.bandwidth))
        stride *= dimension.size
    return times


def _sent_once(system: System, ranks: Ints) -> list[float]:
    """Return which share of an all-reduce's bytes passes each dimension if its switches reduce.

    Each of k parts then sends everything once, in place of 2 (k - 1) / k times; the first dimension
    lies within a node, where GPUs reduce.
    """
    shares, stride = [1.0], 1
    for inner, dimension in pairwise(system.network.dimensions):
        stride *= inner.size
        k = _num_different(ranks // stride % dimension.size)
        shares.append(k / (2 * (k - 1)) if k > 1 else 1.0)
    return shares


def _counts(places: Ints) -> Ints:
    """Count each position; plain Python is faster than numpy for small groups."""
    if places.size > _FEW:
        return np.asarray(np.unique(places, return_counts=True)[1])
    return np.array(list(Counter(places.tolist()).values()), dtype=np.int64)


def _num_different(places: Ints) -> int:
    return len(set(places.tolist())) if places.size <= _FEW else np.unique(places).size


_FEW = 64


def _crossing(comm: int, size: float, members: Ints) -> float:
    """Return the bytes that must cross between parts of the members, over all parts.

    A part needs what the others have only once, and tells them its own sum, not each summand.
    """
    k, n = members.size, int(members.sum())
    if comm == Comm.ALL_REDUCE:
        return 2 * (k - 1) * size
    if comm == Comm.REDUCE_SCATTER:
        return (k - 1) * size
    if comm == Comm.ALL_GATHER:
        return (k - 1) * n * size
    return float((members * (n - members)).sum()) * size / n


def _past_one(comm: int, size: float, part: int, n: int) -> float:
    """Return the bytes that a part of the members, possibly with the root, sends or receives."""
    if comm == Comm.GATHER:
        return (n - part) * size
    return (n - part) / n * size if comm == Comm.SCATTER else size


def _links(dimension: Dimension, k: int) -> float:
    """Return the most links that a rank has in a dimension to ``k`` ranks."""
    return 2 if dimension.topology == "mesh" and k > 2 else _lanes(dimension, k)


def _lanes(dimension: Dimension, k: int) -> float:
    """Return how many links a rank has in a dimension to ``k`` ranks, itself among them."""
    if dimension.topology == "switch":
        return 1
    if dimension.topology == "fully-connected":
        return k - 1
    if dimension.topology == "mesh" and k == dimension.size:
        return 2 * (k - 1) / k  # those at its ends have one
    return 2 if dimension.size > 2 else 1


def _hops(dimension: Dimension, n: int) -> float:
    """Return the average number of links between two ranks of a dimension."""
    if dimension.topology == "ring":
        return (n * n // 4) / (n - 1)
    return (n + 1) / 3 if dimension.topology == "mesh" else 1
