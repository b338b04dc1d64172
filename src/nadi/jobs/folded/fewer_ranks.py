"""Links on which few ranks communicate as long as many did.

Which ranks of a job remain when it is scaled down: a part of each axis of its groups.

A job scaled down to few ranks, and a system on which they take the time of all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.files.files import check_target, locate, write_pieces
from nadi.files.whole_folders import whole_folder
from nadi.models.job_files import check_place, write_job
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.folded.folded_trace import FoldedTrace
from nadi.simulation.alone.collective import collective_time, message_time
from nadi.simulation.engine_driver import simulate_job
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.groups import RankGroups
from nadi.trace.schema import MATCHES
from nadi.trace.trace import Job, Trace

_TOLD = 6
_MESSAGES = ["COMM_SEND", "COMM_RECV"]


class _Axis(NamedTuple):
    """Ranks that differ in one role only: its name, the place of each rank, and the distance."""

    role: str
    place: Ints
    size: int
    stride: int


class KeptRanks(NamedTuple):
    """The ranks that remain, and how."""

    ranks: Ints  # int64, shape (kept ranks,): ascending
    axes: tuple[str, ...]  # roles along which ranks are numbered, the first one fastest
    # before, after: ranks along each axis, before and now
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: RankGroups  # the groups of each role among the kept ranks, with their new numbers


def kept_ranks(job: FoldedJob, size: int) -> KeptRanks:
    """Choose so many ranks that each class has one and each group has several.

    - Raises UsageError if groups have no roles, or there are no such ranks; the message names
      numbers that fit.
    """
    groups = job.rank_groups
    if groups is None:
        raise UsageError(
            "job", "its ranks have no process groups by role, of which some could be left out",
            "scale down a job whose groups of each kind have one size and share no rank",
        )  # fmt: skip
    if size >= groups.world_size:
        raise UsageError(
            f"{size} ranks", f"the job has {groups.world_size} ranks", "give fewer than these",
        )  # fmt: skip
    axes = _axes(groups)
    choices = [_sizes(axis, job) for axis in axes]
    found: dict[int, list[tuple[int, ...]]] = {}
    for sizes in product(*choices):
        number = int(np.prod(sizes, dtype=np.int64))
        if number < groups.world_size:
            found.setdefault(number, []).append(sizes)
    for sizes in sorted(found.get(size, ()), key=lambda one: _unevenness(one, axes)):
        kept = _kept(groups, axes, sizes)
        if kept is not None and set(job.of[kept.ranks].tolist()) == set(job.of.tolist()):
            return kept
    fits = ", ".join(map(str, sorted(found)[:_TOLD]))
    parts = " x ".join(
        f"{min(one)} of {axis.role}" for one, axis in zip(choices, axes, strict=True)
    )
    raise UsageError(
        f"{size} ranks", f"the job needs at least {parts or groups.world_size}, or does not divide "
        "into so many",
        f"numbers that may fit: {fits}" if fits
        else "none fits: ranks of a group differ or exchange messages, so all remain",
    )  # fmt: skip


def _axes(groups: RankGroups) -> list[_Axis]:
    """Return roles that tell all ranks apart, from neighboring ranks on."""
    every = np.arange(groups.world_size)
    found: list[_Axis] = []
    distinct = np.zeros_like(every)
    by_size = sorted(groups.members.items(), key=lambda item: item[1].shape[1])
    for role, members in by_size:
        size = members.shape[1]
        if size == 1 or members.size != groups.world_size:
            continue
        place = groups.place[role][1]
        both = np.unique(distinct * size + place, return_inverse=True)[1].reshape(-1)
        if both.max() + 1 < (distinct.max() + 1) * size:
            continue  # it is not independent of those before
        distinct = both
        found.append(_Axis(role, place, size, int(np.diff(np.sort(members[0])).min())))
    if distinct.max() + 1 < groups.world_size:
        raise UsageError(
            "job", f"its groups ({', '.join(groups.members)}) are not those of axes of its ranks, "
            "as groups of experts are not",
            "scale down a job with groups along each axis of its ranks",
        )  # fmt: skip
    return sorted(found, key=lambda axis: axis.stride)


def _sizes(axis: _Axis, job: FoldedJob) -> Sequence[int]:
    """Return how many ranks may remain along an axis: all, where ranks differ or send messages."""
    order = np.lexsort((axis.place, job.of))
    in_class = np.unique(np.stack([job.of, axis.place])[:, order], axis=1)
    each = np.bincount(in_class[0])
    sends = any(_has_messages(fold, axis.role) for fold in job.folds)
    if sends or (each < axis.size).any():
        return [axis.size]
    return [size for size in range(2, axis.size + 1) if axis.size % size == 0]


def _has_messages(fold: FoldedTrace, role: str) -> bool:
    roles = fold.groups["name"].to_list()
    if role not in roles:
        return False
    kinds = fold.nodes.filter(pl.col("group") == roles.index(role))["kind"]
    return bool(kinds.is_in(_MESSAGES).any())


def _unevenness(sizes: tuple[int, ...], axes: Sequence[_Axis]) -> float:
    shares = [size / axis.size for size, axis in zip(sizes, axes, strict=True)]
    return float(np.std(np.log(shares)))


def _kept(groups: RankGroups, axes: Sequence[_Axis], sizes: tuple[int, ...]) -> KeptRanks | None:
    """Keep the first ranks along each axis; None if groups would have different sizes, or one."""
    stays = np.ones(groups.world_size, dtype=np.bool_)
    for axis, size in zip(axes, sizes, strict=True):
        stays &= axis.place < size
    ranks = np.flatnonzero(stays)
    number = np.full(groups.world_size, -1, dtype=np.int64)
    number[ranks] = np.arange(ranks.size)
    members: dict[str, Ints] = {}
    for role, of_role in groups.members.items():
        listed = [number[one][number[one] >= 0] for one in of_role]
        listed = [one for one in listed if one.size]
        lengths = {one.size for one in listed}
        if len(lengths) != 1 or (lengths == {1} and of_role.shape[1] > 1):
            return None
        members[role] = np.stack(listed)
    return KeptRanks(
        ranks, tuple(axis.role for axis in axes), tuple(axis.size for axis in axes), sizes,
        RankGroups(members, ranks.size),
    )  # fmt: skip


_FAST, _FAR = 1e12, 1e6  # bytes per ns of links that cost nothing; ns, to measure what a hop counts
_LEAST = 1e-9


class PreservedLink(NamedTuple):
    """The links of an axis of a job scaled down."""

    axis: str  # the role of the groups along it
    # before, after: ranks along it
    before: int
    after: int
    # bandwidth, latency: GB/s and ns
    bandwidth: float
    latency: float
    # differences of its communications' times from those in the whole job, each as often as it
    # happens, as a share of these times
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


SYSTEM_FILE = "system.toml"
NETWORK_FILE = "network.yml"
CONFIG_FILE = "system.json"


class ScaledDown(NamedTuple):
    """A job scaled down.

    Attributes
    ----------
    job, system
        The small job, with times of all operations, and the system for it.
    ranks
        Which rank of the whole job each of its ranks was.
    links
        What its dimensions preserve.
    step_ns, whole_step_ns
        The simulated step of the small job on its system, and of the whole job.
    """

    job: Job
    system: System
    ranks: list[int]
    links: tuple[PreservedLink, ...]
    step_ns: int
    whole_step_ns: int


def scale_down(job: FoldedJob, system: System, size: int) -> ScaledDown:
    """Scale a folded job down to so many ranks, with links on which they take the time of all.

    Each class of ranks has one that stays, and each process group two or more. A dimension of the
    small system is an axis of the groups; bytes of all-gathers grow so that as much is gathered.

    Parameters
    ----------
    system
        What the whole job runs on, which prices operations without a time.
    size
        Number of ranks.

    Raises
    ------
    UsageError
        If no such ranks do; the message names numbers that fit.
    """
    if system.compat or system.slots != "device":
        raise UsageError(
            "system", "times of ASTRA-sim's rules are not preserved", "describe the system in a "
            "file of Nadi's own",
        )  # fmt: skip
    kept = kept_ranks(job, size)
    priced, _ = price_job(job, system)
    assert isinstance(priced, FoldedJob)
    small, links = small_system(priced, system, kept)
    made = _small_job(priced, kept)
    return ScaledDown(
        made, small, kept.ranks.tolist(), links, simulate_job(made, small).makespan,
        simulate_job(priced, system).makespan,
    )  # fmt: skip


def _small_job(job: FoldedJob, kept: KeptRanks) -> Job:
    assert job.rank_groups is not None
    done: dict[int, Trace] = {}
    traces = []
    for rank in kept.ranks.tolist():
        trace = job.traces[rank]
        if id(trace) not in done:
            done[id(trace)] = _small_trace(trace, job.rank_groups, kept)
        traces.append(done[id(trace)])
    return Job(tuple(traces), MATCHES.empty(), job.issues, rank_groups=kept.groups)


def _small_trace(trace: Trace, groups: RankGroups, kept: KeptRanks) -> Trace:
    """Return a trace whose gathering members give more, as there are fewer of them."""
    nodes = trace.nodes
    size = nodes["comm_bytes"].to_numpy().copy()
    kinds, group = nodes["comm_type"].cast(pl.String).to_numpy(), trace.column("group")
    for row, role in enumerate(trace.groups["name"].to_list()):
        before, after = groups.members[role].shape[1], kept.groups.members[role].shape[1]
        for comm_type in ("all_gather", "gather"):
            chosen = np.flatnonzero((group == row) & (kinds == comm_type) & (size > 0))
            size[chosen] = [gathered_bytes(comm_type, int(one), before, after)
                            for one in size[chosen]]  # fmt: skip
    return replace(
        trace, nodes=nodes.with_columns(comm_bytes=pl.Series(size)), world_size=kept.ranks.size
    )


def write_scaled(small: ScaledDown, folder: Path | str, *, overwrite: bool = False) -> None:
    """Write the traces of a job scaled down, its system, and the same for ASTRA-sim.

    ``trace.N.et``, ``comm_group.json``, ``system.toml``; ``network.yml`` and ``system.json``.

    Raises
    ------
    InputError
        If a file exists already and ``overwrite`` is not given, or cannot be written.
    """
    place = locate(folder)
    files = {
        SYSTEM_FILE: _system_text(small), NETWORK_FILE: _network_text(small.system),
        CONFIG_FILE: _config_text(small.system),
    }  # fmt: skip
    for name in files:
        check_target(place / name, (), overwrite=overwrite)
    beyond = check_place(place, "trace", len(small.job.traces), overwrite=overwrite)
    with whole_folder(place, overwrite=overwrite, instead_of=beyond) as inside:
        write_job(small.job, inside)
        for name, text in files.items():
            write_pieces(inside / name, [text.encode()])


def _system_text(small: ScaledDown) -> str:
    """Return the system as a file of Nadi's own."""
    system = small.system
    lines = [
        f"# {len(small.ranks)} ranks in place of {_product(small)}: links are such that",
        "# communication takes the times of the whole job; operations have their times.",
        "[compute]",
        'time = "recorded"',
        "",
    ]
    for link, dimension in zip(small.links, system.network.dimensions, strict=True):
        lines += [
            f"# {link.axis}: {link.before} ranks before",
            "[[network.dimensions]]",
            'topology = "switch"',
            f"size = {dimension.size}",
            f'bandwidth = "{dimension.bandwidth * 1e9:.0f} B/s"',
            f'latency = "{dimension.latency:.3f} ns"',
            "",
        ]
    lines += ["[collectives]", 'all_reduce = "ring"', 'reduce_scatter = "ring"',
              'all_gather = "ring"', 'all_to_all = "direct"', 'endpoint_delay = "0 ns"',
              "", "[scheduling]", 'slots = "device"', ""]  # fmt: skip
    return "\n".join(lines)


def _product(small: ScaledDown) -> int:
    return int(np.prod([link.before for link in small.links], dtype=np.int64))


def _network_text(system: System) -> str:
    """Return the network for ASTRA-sim, which counts GB as GiB."""
    dimensions = system.network.dimensions
    rates = [f"{one.bandwidth * 1e9 / (1 << 30):.6f}" for one in dimensions]
    return "\n".join([
        f"topology: [{', '.join('Switch' for _ in dimensions)}]",
        f"npus_count: [{', '.join(str(one.size) for one in dimensions)}]",
        f"bandwidth: [{', '.join(rates)}]",
        f"latency: [{', '.join(f'{one.latency:.0f}' for one in dimensions)}]", "",
    ])  # fmt: skip


def _config_text(system: System) -> str:
    ways = {
        f"{name}-implementation": [algorithm] * len(system.network.dimensions)
        for name, algorithm in (
            ("all-reduce", "ring"), ("reduce-scatter", "ring"), ("all-gather", "ring"),
            ("all-to-all", "direct"),
        )
    }  # fmt: skip
    said = {
        "scheduling-policy": "FIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1, **ways, "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
