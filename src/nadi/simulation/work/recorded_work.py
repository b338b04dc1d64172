"""Recorded jobs as nodes for the simulator, one or several beside each other.

Ranks that stand for others do the same at the same time. Each load and store has a memory tier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from nadi.errors import InputError, UsageError
from nadi.files.astra_sim_text import is_text_workload
from nadi.simulation.work.program import Program
from nadi.systems.library import recorded_devices
from nadi.systems.memory_tiers import OWN_TIERS
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.schema import DEPS, GIVEN_DEPS, GROUPS, ISSUES, NODE_KINDS, NODES
from nadi.trace.trace import Job, Provenance, Trace

if TYPE_CHECKING:
    from nadi.simulation.workload.simulator_nodes import PlayedRank


def nodes_of_job(
    job: Job | Sequence[Trace], played: Collection[str], *, at_once: bool
) -> tuple[tuple[Trace, ...], tuple[PlayedRank, ...]]:
    """Return traces that can be simulated; recordings are converted. O(nodes log nodes).

    Nodes of a Chakra trace are taken as they are. A recording becomes what ``nadi link --for
    astra-sim`` writes; with ``at_once``, with times in ns and with communication that goes on at
    once, as devices do it.
    Its collectives of the types ``played`` stay what they are.
    Issues of the conversion are among the issues of the first trace.

    - Returns tuple of Trace: Of each rank.
    - and tuple of PlayedRank: For a recording, the operations that the nodes of each rank come
      from; else empty.
    - Raises InputError, NadiError as :func:`nadi.simulation.write_for_astra_sim`.
    """
    traces = job.traces if isinstance(job, Job) else tuple(job)
    # ranks may share a trace, many thousands of them
    if not any(map(_is_recorded, set(traces))):
        return traces, ()
    from nadi.recordings.join_ranks import link_job
    from nadi.simulation.workload.astra_sim_files import played_traces

    linked = job if isinstance(job, Job) else link_job(traces)
    log = IssueLog()
    ranks_played, _ = played_traces(
        linked,
        log,
        at_once=at_once,
        played=played,
    )
    ranks = tuple(ranks_played)
    first, *others = (rank.trace for rank in ranks)
    devices = recorded_devices(linked)
    on = f" on {devices}" if devices else ""
    log.add(
        "simulate.recorded-times", "info",
        sum(int((rank.trace.nodes["kind"] == "COMP").sum()) for rank in ranks),
        f"computations keep the times recorded{on}, whatever the system; only"
        " communication takes its time on it",
        "nadi run --system estimates the kernels of another device",
    )  # fmt: skip
    issues = summed_issues([*(trace.issues for trace in linked.traces), linked.issues, log.table()])
    return (replace(first, issues=issues), *others), ranks


def _is_recorded(trace: Trace) -> bool:
    """Return whether a trace is a recording rather than a Chakra trace or a text workload."""
    sources = trace.provenance.sources
    if is_text_workload(trace) or (sources and sources[0].format.startswith("Chakra")):
        return False
    # handmade traces are recognized by their dependencies only
    kinds = set(trace.deps["kind"].unique().to_list())
    return not kinds <= set(GIVEN_DEPS) if not sources else not kinds & set(GIVEN_DEPS)


@dataclass(frozen=True, eq=False)
class Representatives:
    """The ranks that are simulated, and who each of them stands for."""

    rank: Ints  # int64, shape (representatives,): the rank that each of them is
    of: Ints  # int64, shape (ranks,): the number of the representative of each rank
    # for the name of each process group of representatives, the groups of all ranks that do the
    # same at the same time: int64, shape (groups, members); the first dimension is 1 or more
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


NO_TIER, OWN_MEMORY = -1, -2
STORE = NODE_KINDS.index("MEM_STORE")
_ACCESSES = (NODE_KINDS.index("MEM_LOAD"), STORE)


def tiers_of_nodes(program: Program, system: System) -> Ints:
    """Return the tier that each node reads or writes.

    Of those that name none it is remote memory, if the system has it, else the first tier.

    - Returns: int64, shape (nodes,): a position in ``system.tiers``; ``OWN_MEMORY`` for that of the
      device itself, ``NO_TIER`` for remote memory and for nodes that are no accesses. O(nodes).
    - Raises InputError if a node names a tier that the system does not have.
    """
    found = np.full(program.num_nodes, NO_TIER, dtype=np.int64)
    chosen = np.flatnonzero(np.isin(program.kind, _ACCESSES))
    if not chosen.size:
        return found
    named, names = program.tier
    remote = system.remote_memory is not None
    number = {tier.name: i for i, tier in enumerate(system.tiers)}
    number |= dict.fromkeys(OWN_TIERS, OWN_MEMORY)
    of_name = np.full(len(names) + 1, NO_TIER, dtype=np.int64)  # the last is of those without
    of_name[-1] = NO_TIER if remote or not system.tiers else 0
    for code, name in enumerate(names):
        if name not in number:
            first = int(chosen[np.argmax(named[chosen] == code)])
            known = ", ".join(number) if system.tiers else "none but the device's own (hbm)"
            raise InputError(
                program.describe(first),
                f"it uses the memory tier {name!r}, but the system has {known}",
                "describe it in memory.tiers of the system's file (docs/memory-tiers.md)",
            )
        of_name[code] = number[name]
    found[chosen] = of_name[named[chosen]]
    return found


def engines_of(system: System) -> tuple[str, ...]:
    """Return what loads and stores of each tier are called: ``2 * tier + is_store``."""
    return tuple(f"{tier.name} {what}" for tier in system.tiers for what in ("load", "store"))


def ranks_are_apart(system: System) -> bool:
    """Return whether no rank's accesses of tiers take links that another rank takes, too."""
    return all(tier.shared_by == 1 for tier in system.tiers) and all(
        path.shared_by == 1 and not path.dimensions for path in system.memory_paths
    )


def paths_slow_messages(system: System) -> bool:
    """Return whether paths of memory carry less than the dimensions of the network over them.

    Of a system with fabrics all messages are followed over its links, and paths are among them.
    """
    for path in system.memory_paths:
        limits = [rate for rate in (path.read_bandwidth, path.write_bandwidth) if rate]
        for d in path.dimensions if limits and not system.network.fabrics else ():
            dimension = system.network.dimensions[d]
            links = {"switch": 1, "fully-connected": dimension.size - 1}.get(dimension.topology, 2)
            if min(limits) < path.shared_by * links * dimension.bandwidth:
                return True
    return False


_EVERYBODY = ("", "0")  # names of the group of all ranks
_TOLD = 4


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """Where a job ran, and how long it takes if the others are not there.

    Attributes
    ----------
    name
        What it is called; its process groups are called such as ``name/dp[0]``.
    ranks
        int64, shape (ranks of the job,): the rank of the machine that each of them is.
    alone
        Its time with all other ranks of the machine idle, ns.
    """

    name: str
    ranks: Ints
    alone: int


def beside_each_other(
    sizes: Mapping[str, int], places: Mapping[str, Sequence[int]]
) -> dict[str, Ints]:
    """Choose the ranks of the machine on which each job runs.

    - ``sizes``: How many ranks each job has, by its name.
    - ``places``: The ranks of jobs for which they are given; other jobs take the lowest that are
      free, in their order.
    - Raises UsageError if a job has another number of ranks, or two jobs the same rank.
    """
    owner: dict[int, str] = {}
    for name, ranks in places.items():
        if len(ranks) != sizes[name]:
            raise UsageError(
                f"job {name}", f"it has {sizes[name]} ranks, and is to run on {len(ranks)}",
                "name one rank of the machine for each rank of the job",
            )  # fmt: skip
        for rank in ranks:
            if rank < 0 or owner.setdefault(rank, name) != name or len(set(ranks)) < len(ranks):
                raise UsageError(
                    f"job {name}", f"rank {rank} is no rank of its own",
                    "give each rank of the machine to one rank of one job",
                )  # fmt: skip
    found, free = {}, 0
    for name, size in sizes.items():
        own = [int(rank) for rank in places.get(name, ())]
        while len(own) < size:
            if free not in owner:
                owner[free] = name
                own.append(free)
            free += 1
        found[name] = np.array(own, dtype=np.int64)
    return found


def idle_trace() -> Trace:
    """Return the trace of a rank that does nothing."""
    given = {"id": [0], "name": ["idle"], "kind": ["INVALID"], "category": ["kernel"]}
    return Trace(
        nodes=NODES.build(1, {**given, "is_cpu": [False]}),
        deps=DEPS.empty(),
        groups=GROUPS.empty(),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
    )


def placed_traces(
    traces: Sequence[Trace], name: str, ranks: Ints, groups: Mapping[str, Sequence[int]]
) -> list[Trace]:
    """Return the traces of a job as those of ranks of a machine.

    Ranks and the members of process groups are those of the machine, names of groups begin with
    that of the job, and what all ranks of the job do is done by a group of these. O(nodes).

    - ``groups``: Members of groups that traces do not state, or others than they state, by name.
    - Raises UsageError if a trace names a rank that the job does not have.
    """
    found: dict[int, Trace] = {}
    for trace in traces:
        if id(trace) not in found:
            found[id(trace)] = _placed(trace, name, ranks, groups)
    return [found[id(trace)] for trace in traces]


def _placed(
    trace: Trace, job: str, ranks: Ints, groups: Mapping[str, Sequence[int]]
) -> Trace:  # fmt: skip
    columns = {}
    for column in ("src", "dst"):
        ends = trace.nodes[column].to_numpy()
        _check(job, ends, ranks.size)
        columns[column] = pl.Series(column, np.where(ends >= 0, ranks[np.maximum(ends, 0)], -1))
    everybody = np.sort(ranks).tolist()
    names, members = [], []
    for name, own in trace.groups.select("name", "ranks").iter_rows():
        stated = np.array(groups.get(name) or own, dtype=np.int64)
        _check(job, stated, ranks.size)
        is_all = name in _EVERYBODY
        names.append(f"{job}/all" if is_all else f"{job}/{name}")
        # a group of all ranks works in their order, as on a machine of the job's size
        are_all = is_all or np.unique(stated).size == stated.size == ranks.size
        members.append(everybody if are_all else ranks[stated].tolist())
    table = trace.groups.with_columns(
        name=pl.Series(names, dtype=pl.String), ranks=pl.Series(members, dtype=pl.List(pl.Int64))
    )
    number = trace.nodes["group"].to_numpy()
    if (number < 0).any():
        number = np.where(number < 0, table.height, number)
        own_group = {"name": [f"{job}/all"], "ranks": [everybody]}
        table = pl.concat([table, GROUPS.build(1, own_group)])
    columns["group"] = pl.Series("group", number)
    return replace(trace, nodes=trace.nodes.with_columns(**columns), groups=table, rank=-1)


def _check(job: str, ranks: Ints, size: int) -> None:
    beyond = np.unique(ranks[ranks >= size])
    if beyond.size:
        told = ", ".join(map(str, beyond[:_TOLD].tolist()))
        raise UsageError(
            f"job {job}", f"it has ranks 0 to {size - 1}, but its traces name {told}",
            "give the traces of all its ranks, and the process groups of this job",
        )  # fmt: skip
