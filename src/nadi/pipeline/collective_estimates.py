"""The times of collectives alone, of many sizes: measured, by NCCL's model, or simulated."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.formats.nccl_log import NcclLog
from nadi.formats.nccl_tests import MeasuredCollective
from nadi.model.arrays import Ints
from nadi.model.nccl_tests_sizes import nccl_tests_factors
from nadi.simulator.collectives.bandwidth_bounds import least_time
from nadi.simulator.collectives.collective_algorithms import timed_recipe
from nadi.simulator.communication_times import collective_time
from nadi.simulator.known_times import has_model, measured_for, model_of, node_of_rank
from nadi.simulator.machine.system import COLLECTIVES, System
from nadi.simulator.nccl.measured_times import measured_times
from nadi.simulator.nccl.nccl_estimates import (
    NcclEstimate,
    nccl_estimates,
    nccl_size,
    one_estimate,
)
from nadi.simulator.nccl.nccl_settings import with_logged_graphs
from nadi.simulator.rules.chosen_rules import rules_of

__all__ = ["CollectiveEstimate", "estimate_collectives", "least_collective_time", "with_tables"]


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
        One of ``system.COLLECTIVES``.
    sizes
        Bytes as nccl-tests counts them: of an all-gather those that are gathered.

    Raises
    ------
    UsageError
        If it is no collective, or the system has one rank.
    """
    if collective not in COLLECTIVES:
        raise UsageError(
            f"{collective!r}", "is not a collective",
            f"one of {', '.join(COLLECTIVES)}",
        )  # fmt: skip
    members = np.arange(system.network.num_ranks, dtype=np.int64)
    if members.size < 2:
        raise UsageError(Parameter("ranks", 1), "a collective needs two", "give more")
    counted = np.array(sizes, dtype=np.int64)
    nodes = int(np.unique(node_of_rank(system, members)).size)
    chosen: list[NcclEstimate | None] = [None] * counted.size
    if system.nccl is not None and has_model(system, collective, members):
        chosen = [*nccl_estimates(system.nccl, collective, counted, members)]
    timed = _timed(system, collective, counted, members, chosen)
    factor = nccl_tests_factors(collective, members.size)[1]
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
            bound_ns=_bound(system, collective, size, members, choice),
        )
        for size, choice, (time, source) in zip(counted.tolist(), chosen, timed, strict=True)
    ]


def _timed(
    system: System, collective: str, sizes: Ints, members: Ints,
    chosen: Sequence[NcclEstimate | None],
) -> list[tuple[int, str]]:  # fmt: skip
    """Return the time of each size in ns, and where it comes from."""
    table = measured_for(system, collective, members)
    if table is not None:
        found = measured_times(table, sizes, model_of(system, collective, members))
        scaled = "" if table in system.measured else ", scaled to these ranks"
        names = [f"measured, {regime}{scaled}" for regime in found.regimes]
        return list(zip(map(round, found.times.tolist()), names, strict=True))
    timed = []
    for size, choice in zip(sizes.tolist(), chosen, strict=True):
        if choice is not None and system.nccl is not None:
            library = "RCCL" if system.nccl.gpu else "NCCL"
            timed.append((round(choice.time * 1000), f"{library} {system.nccl.version}"))
        else:
            given = max(size // members.size, 1) if collective in _GATHERED else size
            timed.append((collective_time(system, collective, given), "simulated"))
    return timed


def _stated(system: System, collective: str) -> str:
    """Return the algorithms that a system states, where they are simulated."""
    return ", ".join(dict.fromkeys(system.collectives.algorithms(collective)))


_GATHERED = ("all_gather", "gather")


def _bound(
    system: System, collective: str, size: int, members: Ints, choice: NcclEstimate | None
) -> int:
    """Return the least time of a collective, ns; -1 if it is not known."""
    given = size / members.size if collective in _GATHERED else size
    return round(_least_time(system, collective, given, members, choice))


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

    Parameters
    ----------
    given
        Bytes that each member gives; of a broadcast, the root.
    ranks
        Its members; by default all ranks.

    Returns
    -------
    float
        -1 where it is not known: of types, sizes and ranks that the system does not have.
    """
    members = np.array(ranks or range(system.network.num_ranks), dtype=np.int64)
    known = members.min() >= 0 and members.max() < system.network.num_ranks and members.size > 1
    if collective not in COLLECTIVES or collective == "barrier" or given < 0 or not known:
        return -1.0
    choice = None
    if system.nccl is not None and has_model(system, collective, members):
        counted = max(nccl_size(collective, given, members.size), 1)
        choice = one_estimate(system.nccl, collective, counted, members)
    try:
        return _least_time(system, collective, given, members, choice)
    except UsageError:  # no algorithm for it
        return -1.0
