"""Collectives whose time is known without their messages: measured, or by NCCL's model."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.formats.nccl_tests import MeasuredCollective
from nadi.model.arrays import Floats, Ints
from nadi.simulator.machine.system import System
from nadi.simulator.nccl.measured_times import (
    Model,
    measured_times,
    nearest_table,
    scaled_table,
    table_for,
)
from nadi.simulator.nccl.nccl_communicator import COLLECTIVES
from nadi.simulator.nccl.nccl_estimates import (
    models_collectives,
    nccl_corrected_times,
    nccl_size,
    one_estimate,
)
from nadi.simulator.nccl.nccl_settings import NcclSettings

__all__ = [
    "KnownTime", "has_model", "known_time", "known_times", "measured_for", "model_of",
    "node_of_rank",
]  # fmt: skip

_FARTHEST = 4  # times as many ranks: a table of others is scaled up to here


class KnownTime(NamedTuple):
    """The time of a collective alone, from when the last member enters it."""

    time: int  # ns
    algorithm: str


def known_time(system: System, comm_type: str, size: int, members: Ints) -> KnownTime | None:
    """Look up how long a collective takes; None where it has to be simulated.

    A measured table of the same collective comes first, of other ranks scaled to these; NCCL's
    model comes second.

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
    table = measured_for(system, comm_type, members)
    if table is not None:
        wanted = np.array([counted], dtype=np.int64)
        time = measured_times(table, wanted, model_of(system, comm_type, members)).times[0]
        return KnownTime(max(round(float(time)), 1), "measured")
    if system.nccl is None or not has_model(system, comm_type, members):
        return None
    estimate = one_estimate(system.nccl, comm_type, counted, members)
    algorithm = f"{estimate.algorithm} {estimate.protocol}"
    return KnownTime(max(round(estimate.time * 1000), 1), algorithm)


def has_model(system: System, comm_type: str, members: Ints) -> bool:
    """Tell whether the system's section nccl describes a collective of these ranks."""
    modeled = system.nccl is not None and comm_type in COLLECTIVES
    return modeled and system.nccl is not None and models_collectives(system.nccl, members)


def known_times(system: System, comm_type: str, sizes: Ints, members: Ints) -> Floats | None:
    """Look up how long collectives of one group take, ns; None where they have to be simulated.

    Parameters
    ----------
    sizes
        int64, shape (sizes,): as for :func:`known_time`, which gives the same times one by one.
    """
    counted = np.maximum(nccl_size(comm_type, sizes, members.size), 1)
    table = measured_for(system, comm_type, members)
    model = model_of(system, comm_type, members)
    if table is not None:
        times = measured_times(table, counted, model).times
    elif model is not None:
        times = model(counted)
    else:
        return None
    return np.maximum(np.rint(times), 1.0)


def measured_for(
    system: System, comm_type: str, members: Ints
) -> MeasuredCollective | None:  # fmt: skip
    """Return the measured table of a collective; None if none fits.

    One of as many ranks and nodes is taken as it is. Otherwise that with the nearest number of
    ranks, up to four times as many or as few, is scaled by NCCL's model, where there is one.
    """
    nodes = int(np.unique(node_of_rank(system, members)).size)
    table = table_for(system.measured, comm_type, members.size, nodes)
    if table is not None or system.nccl is None or not has_model(system, comm_type, members):
        return table
    table = nearest_table(system.measured, comm_type, members.size, nodes)
    if table is None or not 1 / _FARTHEST <= table.ranks / members.size <= _FARTHEST:
        return None
    if table.ranks // table.nodes > system.nccl.ranks_per_node or table.ranks < table.nodes:
        return None
    return _scaled(table, msgspec.json.encode(system.nccl), members.tobytes(), nodes)


@lru_cache(maxsize=256)
def _scaled(
    table: MeasuredCollective, encoded: bytes, members: bytes, nodes: int
) -> MeasuredCollective:
    settings = msgspec.json.decode(encoded, type=NcclSettings)
    ranks = np.frombuffer(members, dtype=np.int64)
    on_node = np.arange(table.ranks // table.nodes, dtype=np.int64)
    starts = np.arange(table.nodes, dtype=np.int64) * settings.ranks_per_node
    own = (starts[:, None] + on_node).ravel()
    collective = table.collective
    return scaled_table(
        table, ranks.size, nodes, _model(settings, collective, own),
        _model(settings, collective, ranks),
    )  # fmt: skip


def model_of(system: System, comm_type: str, members: Ints) -> Model | None:
    """Return what gives NCCL's corrected times of sizes, ns; None where NCCL has no model."""
    if system.nccl is None or not has_model(system, comm_type, members):
        return None
    return _model(system.nccl, comm_type, members)


def _model(settings: NcclSettings, comm_type: str, members: Ints) -> Model:
    return lambda sizes: nccl_corrected_times(settings, comm_type, sizes, members) * 1000


def node_of_rank(system: System, ranks: Ints) -> Ints:
    """Return the node of each rank: those that differ in the first dimension share one."""
    dimensions = system.network.dimensions
    of_file = system.nccl.ranks_per_node if system.nccl else dimensions[0].size
    found: Ints = ranks // of_file
    return found
