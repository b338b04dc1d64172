"""Links on which few ranks communicate as long as many did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nadi.jobs.folded.kept_ranks import KeptRanks
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.simulation.communication_times import collective_time, message_time
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.arrays import Floats

__all__ = ["PreservedLink", "gathered_bytes", "small_system"]

_FAST, _FAR = 1e12, 1e6  # bytes per ns of links that cost nothing; ns, to measure what a hop counts
_LEAST = 1e-9


class PreservedLink(NamedTuple):
    """The links of an axis of a job scaled down.

    Attributes
    ----------
    axis
        The role of the groups along it.
    before, after
        Ranks along it.
    bandwidth, latency
        GB/s and ns.
    error
        Differences of its communications' times from those in the whole job, each as often as it
        happens, as a share of these times.
    """

    axis: str
    before: int
    after: int
    bandwidth: float
    latency: float
    error: float


class _Exchange(NamedTuple):
    """Communication that happens so ``often``: in the whole job, and in the small one."""

    axis: int
    comm_type: str
    size: int
    small_size: int
    members: tuple[int, ...]
    small_members: tuple[int, ...]
    often: int
    time: int


def gathered_bytes(comm_type: str, size: int, before: int, after: int) -> int:
    """Return the bytes that each of fewer members gives, so that as many are gathered in all."""
    return size * before // after if comm_type in ("all_gather", "gather") else size


def small_system(
    job: FoldedJob, system: System, kept: KeptRanks
) -> tuple[System, tuple[PreservedLink, ...]]:
    """Return a system for the kept ranks, a dimension for each axis, and what it preserves.

    Bandwidth and latency of a dimension are those that come closest to the times of its
    communication in the whole job, each counted as often as it happens.
    """
    exchanges = list(_exchanges(job, system, kept))
    default = system.network.dimensions[-1]
    rates = []
    for axis in range(len(kept.axes)):
        own = [one for one in exchanges if one.axis == axis]
        fitted = _fitted(own, system, kept, axis) if own else None
        rates.append(fitted or (default.bandwidth, default.latency))
    made = _system(system, kept, rates)
    links = []
    for axis, (bandwidth, latency) in enumerate(rates):
        own = [one for one in exchanges if one.axis == axis]
        whole = sum(one.often * one.time for one in own)
        missed = sum(one.often * abs(_time(made, one) - one.time) for one in own)
        links.append(PreservedLink(
            kept.axes[axis], kept.before[axis], kept.after[axis], bandwidth, latency,
            missed / whole if whole else 0.0,
        ))  # fmt: skip
    return made, tuple(links)


def _system(system: System, kept: KeptRanks, rates: list[tuple[float, float]]) -> System:
    """Return a plain system: rings, nothing in parts, no delays but of links; times are stated."""
    dimensions = tuple(
        Dimension("switch", size, bandwidth, latency)
        for size, (bandwidth, latency) in zip(kept.after, rates, strict=True)
    )
    return System(
        Network(dimensions), memory_capacity=system.memory_capacity,
        collectives=_plain_algorithms(len(rates)),
        name=f"{system.name} as {kept.ranks.size} ranks",
    )  # fmt: skip


def _plain_algorithms(dims: int) -> Collectives:
    ring, direct = ("ring",) * dims, ("direct",) * dims
    return Collectives(
        all_reduce=ring, reduce_scatter=ring, all_gather=ring, all_to_all=direct, broadcast=ring,
        reduce=ring, gather=direct, scatter=direct, endpoint_delay=0, group_endpoint_delay=0,
    )  # fmt: skip


def _exchanges(job: FoldedJob, system: System, kept: KeptRanks) -> Iterator[_Exchange]:
    """Yield each different communication of kept ranks, of a group of each role."""
    groups = job.rank_groups
    assert groups is not None
    for number in range(len(job.folds)):
        new = int(np.flatnonzero(job.of[kept.ranks] == number)[0])
        rank = int(kept.ranks[new])
        trace = job.traces[rank]
        sent = trace.nodes.filter(trace.nodes["comm_type"] != "none")
        different = sent.group_by(
            "kind", "comm_type", "group", "comm_bytes", "dst", maintain_order=True
        ).len()
        names = trace.groups["name"].to_list()
        for kind, comm_type, row, size, dst, count in different.iter_rows():
            if kind == "COMM_RECV" or row < 0 or size <= 0:
                continue
            role = names[row]
            members = tuple(sorted(groups.members[role][groups.place[role][0][rank]].tolist()))
            small = tuple(sorted(kept.groups.ranks_of(role, new).tolist()))
            if kind == "COMM_SEND":
                peer = int(groups.ranks_of(role, rank)[dst])
                other = int(kept.groups.ranks_of(role, new)[dst])
                yield _Exchange(
                    _axis_of(kept, (new, other)), "message", size, size, (rank, peer),
                    (new, other), count, message_time(system, size, rank, peer),
                )  # fmt: skip
            elif len(members) > 1:
                time = collective_time(system, comm_type, size, members)
                fewer = gathered_bytes(comm_type, size, len(members), len(small))
                yield _Exchange(
                    _axis_of(kept, small), comm_type, size, fewer, members, small, count,
                    max(time, 1),
                )  # fmt: skip


def _axis_of(kept: KeptRanks, members: tuple[int, ...]) -> int:
    """Return the outermost axis along which members differ."""
    places = np.array(members)
    outermost = 0
    for axis, size in enumerate(kept.after):
        if np.unique(places % size).size > 1:
            outermost = axis
        places = places // size
    return outermost


def _time(system: System, one: _Exchange) -> int:
    if one.comm_type == "message":
        return message_time(system, one.small_size, *one.small_members)
    return collective_time(system, one.comm_type, one.small_size, one.small_members)


def _fitted(
    own: list[_Exchange], system: System, kept: KeptRanks, axis: int
) -> tuple[float, float]:
    """Return bandwidth and latency that make errors least, each weighted by its time in all."""
    per_byte, per_hop = (
        np.array([_time(probe, one) for one in own], dtype=np.float64)
        for probe in (_probe(system, kept, axis, 1.0, 0.0), _probe(system, kept, axis, _FAST, _FAR))
    )
    per_hop = per_hop / _FAR
    time = np.array([one.time for one in own], dtype=np.float64)
    weight = np.sqrt([one.often * one.time for one in own]) / time
    columns = np.stack([per_byte, per_hop], axis=1) * weight[:, None]
    inverse, latency = _not_negative(columns, time * weight)
    # as files state them: whole bytes per second, and ns
    return round(1e9 / max(inverse, _LEAST)) / 1e9, float(round(latency))


def _probe(system: System, kept: KeptRanks, axis: int, bandwidth: float, latency: float) -> System:
    rates = [(_FAST, 0.0)] * len(kept.axes)
    rates[axis] = bandwidth, latency
    return _system(system, kept, rates)


def _not_negative(columns: Floats, wanted: Floats) -> tuple[float, float]:
    """Solve least squares in two unknowns, neither below 0."""
    both = np.linalg.lstsq(columns, wanted, rcond=None)[0]
    if (both >= 0).all() and np.linalg.matrix_rank(columns) == 2:
        return float(both[0]), float(both[1])
    alone = []
    for k in range(2):
        column = columns[:, k]
        value = float(column @ wanted / (column @ column)) if column.any() else 0.0
        miss = float(np.sum((wanted - value * column) ** 2))
        alone.append((miss, k, value))
    _, k, value = min(alone)
    return (value, 0.0) if k == 0 else (0.0, value)
