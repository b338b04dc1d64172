"""The time of a collective alone: measured, by NCCL's model, or simulated; and of a message."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.simulation.collectives.bandwidth_bounds import least_message_time, least_time
from nadi.simulation.collectives.collective_algorithms import timed_recipe
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.rules import rules_of
from nadi.systems.collective_times import as_known, known_times, nccl_of, node_of_rank
from nadi.systems.nccl.measured import MeasuredCollective, NcclLog, nccl_tests_factors
from nadi.systems.nccl.nccl_estimates import NcclEstimate, nccl_estimates
from nadi.systems.nccl.nccl_settings import with_logged_graphs
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace

_SEND = "send"


class CollectiveEstimate(msgspec.Struct, frozen=True):
    """A collective alone on a system, from when its last member enters it.

    Attributes
    ----------
    collective, size, ranks, nodes
        What it is: its type, bytes as nccl-tests counts them, and who takes part.
    time_ns
        How long it takes.
    source
        ``measured``, ``NCCL`` or ``RCCL`` and a version, or ``simulated``; of a measured one also
        the regime.
    algorithm, protocol, channels
        What NCCL chooses; what the system states if it is simulated, with 0 channels.
    modeled_ns
        What NCCL's own model says; -1 if it has none.
    bandwidth, bus_bandwidth
        GB/s (10^9 bytes): size / time, and times the factor of nccl-tests; -1 without one.
    bound_ns
        The least time of these bytes on the busiest link; -1 if it is not known.
    """

    collective: str
    size: int
    ranks: int
    nodes: int
    time_ns: int
    source: str
    algorithm: str
    protocol: str
    channels: int
    modeled_ns: int
    bandwidth: float
    bus_bandwidth: float
    bound_ns: int


class ComparedCollective(msgspec.Struct, frozen=True):
    """A collective as it was measured, beside what a system says of it."""

    # collective, size, ranks, nodes, name: what was measured, and the file's name
    collective: str
    size: int
    ranks: int
    nodes: int
    name: str
    # measured_ns, estimated_ns: the two times; the second by the source of ``CollectiveEstimate``
    measured_ns: float
    estimated_ns: int
    # bandwidth, bus_bandwidth: measured, in GB/s
    bandwidth: float
    bus_bandwidth: float
    source: str  # of the estimate


def compare_collectives(
    systems: Callable[[int], System], measured: Sequence[MeasuredCollective]
) -> list[ComparedCollective]:
    """Compare measured times with those of a system without them.

    - ``systems``: Gives the system for a number of ranks.
    """
    found = []
    for table in measured:
        estimates = estimate_collectives(systems(table.ranks), table.collective, table.sizes)
        factor = nccl_tests_factors(table.collective, table.ranks)[1]
        for size, time, one in zip(table.sizes, table.times, estimates, strict=True):
            found.append(ComparedCollective(
                table.collective, size, table.ranks, table.nodes, table.name, time, one.time_ns,
                size / time, factor * size / time, one.source,
            ))  # fmt: skip
    return found


def with_tables(
    system: System, measured: tuple[MeasuredCollective, ...] = (), log: NcclLog | None = None
) -> System:
    """Return a system whose collectives take measured times, or have the graphs of a log.

    Raises
    ------
    UsageError
        If there is a log, and the system has no section nccl.
    """
    if log is not None:
        if system.nccl is None:
            raise UsageError(
                Parameter("nccl_log"), f"system {system.name} has no section nccl to correct",
                "choose one that has (nadi systems NAME), or add it",
            )  # fmt: skip
        system = msgspec.structs.replace(system, nccl=with_logged_graphs(system.nccl, log))
    return msgspec.structs.replace(system, measured=measured) if measured else system


def estimate_collectives(
    system: System, collective: str, sizes: Sequence[int]
) -> list[CollectiveEstimate]:
    """Estimate a collective of all ranks of a system, for several sizes.

    A measured table comes first, of other ranks scaled to these, then NCCL's model, corrected as
    the system's file says; what neither has is simulated.

    Parameters
    ----------
    collective
        One of ``collectives.COLLECTIVES``, or ``send``: a message from the first rank to the last.
    sizes
        Bytes as nccl-tests counts them: of an all-gather those that are gathered.

    Raises
    ------
    UsageError
        If it is no collective, or the system has one rank.
    """
    if collective not in (*COLLECTIVES, _SEND):
        raise UsageError(
            f"{collective!r}", "is not a collective",
            f"one of {', '.join(COLLECTIVES)}, or {_SEND}",
        )  # fmt: skip
    members = np.arange(system.network.num_ranks, dtype=np.int64)
    if members.size < 2:
        raise UsageError(Parameter("ranks", 1), "a collective needs two", "give more")
    if collective == _SEND:
        return [_message(system, size, members[[0, -1]]) for size in sizes]
    counted = np.array(sizes, dtype=np.int64)
    nodes = int(np.unique(node_of_rank(system, members)).size)
    chosen = _chosen(system, collective, counted, members)
    whole, factor = nccl_tests_factors(collective, members.size)
    known = known_times(system, collective, counted, members)
    if known is None:
        given = np.maximum(counted // whole, 1).tolist()
        times = [collective_time(system, collective, size) for size in given]
        sources = ["simulated"] * counted.size
    else:
        times, sources = known.ns.tolist(), known.source
    return [
        CollectiveEstimate(
            collective=collective,
            size=size,
            ranks=members.size,
            nodes=nodes,
            time_ns=time,
            source=source,
            algorithm=choice.algorithm if choice else _stated(system, collective),
            protocol=choice.protocol if choice else "",
            channels=choice.channels if choice else 0,
            modeled_ns=round(choice.modeled * 1000) if choice else -1,
            bandwidth=size / max(time, 1),
            bus_bandwidth=size / max(time, 1) * factor if factor else -1.0,
            bound_ns=round(_least_time(system, collective, size / whole, members, choice)),
        )
        for size, choice, time, source in zip(counted.tolist(), chosen, times, sources, strict=True)
    ]


def _message(system: System, size: int, ends: Ints) -> CollectiveEstimate:
    """Estimate a message as a job has it; NCCL's model has none of a send."""
    src, dst = ends.tolist()
    time = message_time(system, size, src, dst)
    rate = size / max(time, 1)  # what nccl-tests calls the bus bandwidth of a send, too
    least = round(least_message_time(system, size, src, dst))
    nodes = int(np.unique(node_of_rank(system, ends)).size)
    return CollectiveEstimate(
        _SEND, size, ends.size, nodes, time, "simulated", "", "", 0, -1, rate, rate, least
    )


def _chosen(
    system: System, collective: str, sizes: Ints, members: Ints
) -> Sequence[NcclEstimate | None]:
    """Return what NCCL chooses for each size, as nccl-tests counts it; None without a model."""
    collective, sizes = as_known(collective, sizes)
    settings = nccl_of(system, collective, members)
    if settings is None:
        return [None] * sizes.size
    return nccl_estimates(settings, collective, sizes, members)


def _stated(system: System, collective: str) -> str:
    """Return the algorithms that a system states, where they are simulated."""
    return ", ".join(dict.fromkeys(system.collectives.algorithms(collective)))


def _least_time(
    system: System, collective: str, given: float, members: Ints, choice: NcclEstimate | None
) -> float:
    if choice is not None:
        recipe = timed_recipe(system.network, collective, members, choice.algorithm)
    else:
        everyone = members.size == system.network.num_ranks
        recipe = rules_of(system).recipe_of(system, collective, None if everyone else members)
    return least_time(system, recipe, given, members)


def least_collective_time(
    system: System, collective: str, given: int, ranks: Sequence[int] = ()
) -> float:
    """Return the least time in which the links of a system carry a collective's bytes, ns.

    As :func:`estimate_collectives` has it, for any group.

    - ``given``: Bytes that each member gives; of a broadcast, the root.
    - ``ranks``: Its members; by default all ranks.
    - Returns: -1 where it is not known: of types, sizes and ranks that the system does not have.
    """
    members = np.array(ranks or range(system.network.num_ranks), dtype=np.int64)
    known = members.min() >= 0 and members.max() < system.network.num_ranks and members.size > 1
    if collective not in COLLECTIVES or collective == "barrier" or given < 0 or not known:
        return -1.0
    counted = max(given * nccl_tests_factors(collective, members.size)[0], 1)
    (choice,) = _chosen(system, collective, np.array([counted], dtype=np.int64), members)
    try:
        return _least_time(system, collective, given, members, choice)
    except UsageError:  # no algorithm for it
        return -1.0


def stand_in(system: System, comm_type: str) -> str:
    """Return the collective type that is simulated instead; empty if it is the type itself."""
    return rules_of(system).stand_in(comm_type)


def collective_time(
    system: System, comm_type: str, size: int, group: tuple[int, ...] = (), root: int = -1
) -> int:  # fmt: skip
    """Compute the time of a collective alone, after all ranks have entered it; ns.

    Parameters
    ----------
    comm_type
        One of ``collectives.COLLECTIVES``; see ``stand_in``.
    size
        Bytes that each rank gives; of a broadcast and a scatter, the root.
    group
        Its members in their order; by default all ranks.
    root
        The rank that a broadcast or scatter begins at, or a reduce or gather ends at; by default
        the first member.

    Raises
    ------
    UsageError
        If the type is not a collective, a member is not a rank of the system, or the root is not a
        member.
    """
    everybody = range(system.network.num_ranks)
    if not set(group) <= set(everybody):
        raise UsageError(
            Parameter("group", list(group)), f"the system has ranks 0 to {everybody[-1]}",
            "fit the system to the number of ranks of the job",
        )  # fmt: skip
    members = len(group) or len(everybody)
    if comm_type not in COLLECTIVES:
        raise UsageError(
            Parameter("comm_type", comm_type),
            "is not a collective",
            f"one of {', '.join(COLLECTIVES)}",
        )
    comm_type, size = rules_of(system).in_place_of(comm_type, size, members)
    if root >= 0 and root not in (group or everybody):
        raise UsageError(
            Parameter("root", root), "the root is not in the group", "choose a rank of the group"
        )
    if members == 1:
        return 0
    if sorted(group) == list(everybody):
        group = ()
    return _simulated(msgspec.json.encode(system), comm_type, max(size, 1), group, root)


def message_time(system: System, size: int, src: int, dst: int) -> int:
    """Compute the time of a message between two ranks, alone; ns.

    Raises
    ------
    UsageError
        If one of them is not a rank of the system.
    """
    num_ranks = system.network.num_ranks
    if src == dst or not (0 <= src < num_ranks and 0 <= dst < num_ranks):
        raise UsageError(
            f"message from rank {src} to {dst}", f"the system has ranks 0 to {num_ranks - 1}"
        )
    return _simulated(msgspec.json.encode(system), "message", max(size, 0), (src, dst))


@lru_cache(maxsize=1 << 16)
def _simulated(
    encoded: bytes, what: str, size: int, group: tuple[int, ...], root: int = -1
) -> int:  # fmt: skip
    """Simulate a job of one communication; the system is JSON so that it can be a cache key."""
    system = msgspec.json.decode(encoded, type=System)
    # computation and recorded times are no part of it
    system = msgspec.structs.replace(
        system, groups={}, compute=msgspec.structs.replace(system.compute, replay_only=False)
    )
    num_ranks = system.network.num_ranks
    if what == "message":
        src, dst = group
        column: dict[str, list[Any]] = {
            "comm_bytes": [size],
            "src": [src],
            "dst": [dst],
            "tag": [0],
        }
        given = {
            src: _trace({"kind": ["COMM_SEND"], "comm_type": ["send"], **column}),
            dst: _trace({"kind": ["COMM_RECV"], "comm_type": ["recv"], **column}),
        }
    else:
        column = {"kind": ["COMM_COLL"], "comm_type": [what], "comm_bytes": [size]}
        column |= {"group": [0 if group else -1], "src": [root], "dst": [root]}
        given = dict.fromkeys(group or range(num_ranks), _trace(column, group))
    idle = _trace({"kind": ["INVALID"]})
    return simulate_job([given.get(rank, idle) for rank in range(num_ranks)], system).makespan


def _trace(columns: dict[str, list[Any]], group: tuple[int, ...] = ()) -> Trace:
    """Create the trace of one node."""
    given = {"id": [0], "name": ["one"], "category": ["kernel"], "is_cpu": [False], **columns}
    groups = GROUPS.build(1, {"name": ["members"], "ranks": [list(group)]})
    return Trace(
        nodes=NODES.build(1, given),
        deps=DEPS.empty(),
        groups=groups if group else GROUPS.empty(),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
    )
