"""Collectives whose time is known without their messages: measured, or by NCCL's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nadi.model.arrays import Floats, Ints
from nadi.simulator.machine.system import System
from nadi.simulator.nccl.measured_times import measured_times, table_for
from nadi.simulator.nccl.nccl_communicator import COLLECTIVES
from nadi.simulator.nccl.nccl_estimates import nccl_estimates, nccl_size, one_estimate

__all__ = ["KnownTime", "known_time", "model_of", "node_of_rank"]


class KnownTime(NamedTuple):
    """The time of a collective alone, from when the last member enters it."""

    time: int  # ns
    algorithm: str


def known_time(system: System, comm_type: str, size: int, members: Ints) -> KnownTime | None:
    """Look up how long a collective takes; None where it has to be simulated.

    A measured table of the same collective, ranks and nodes comes first, NCCL's model second.

    Parameters
    ----------
    size
        Bytes that each member gives; of a broadcast, the root.
    members
        int64, shape (members,): its ranks.
    """
    if members.size < 2 or not (system.nccl or system.measured):
        return None
    if comm_type == "barrier":
        comm_type, size = "all_reduce", 1
    counted = max(nccl_size(comm_type, size, members.size), 1)
    nodes = np.unique(node_of_rank(system, members)).size
    table = table_for(system.measured, comm_type, members.size, nodes)
    if table is not None:
        wanted = np.array([counted], dtype=np.int64)
        time = measured_times(table, wanted, model_of(system, comm_type, members)).times[0]
        return KnownTime(max(round(float(time)), 1), "measured")
    if system.nccl is None or comm_type not in COLLECTIVES:
        return None
    estimate = one_estimate(system.nccl, comm_type, counted, members)
    algorithm = f"{estimate.algorithm} {estimate.protocol}"
    return KnownTime(max(round(estimate.time * 1000), 1), algorithm)


def model_of(
    system: System, comm_type: str, members: Ints
) -> Callable[[Ints], Floats] | None:  # fmt: skip
    """Return what gives NCCL's corrected times of sizes, us; None where NCCL has no model."""
    settings = system.nccl
    if settings is None or comm_type not in COLLECTIVES:
        return None
    return lambda sizes: np.array(
        [one.time for one in nccl_estimates(settings, comm_type, sizes, members)]
    )


def node_of_rank(system: System, ranks: Ints) -> Ints:
    """Return the node of each rank: those that differ in the first dimension share one."""
    dimensions = system.network.dimensions
    of_file = system.nccl.ranks_per_node if system.nccl else dimensions[0].size
    found: Ints = ranks // of_file
    return found
