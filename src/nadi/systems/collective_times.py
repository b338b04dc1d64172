"""Collectives whose time is known without their messages: measured, or by NCCL's model."""

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.errors import UsageError
from nadi.systems.nccl.measured import (
    MeasuredCollective,
    Model,
    measured_times,
    nearest_table,
    scaled_table,
    table_for,
)
from nadi.systems.nccl.nccl_estimates import models_collectives, nccl_estimates
from nadi.systems.nccl.nccl_settings import NcclSettings
from nadi.systems.system import System
from nadi.trace.arrays import Ints

_LONGEST = 2.0**62  # ns
_FARTHEST = 4  # times as many ranks: a table of others is scaled up to here


class KnownTimes(NamedTuple):
    """Times of collectives of one group alone, from when the last member enters."""

    ns: Ints  # int64, shape (sizes,), at least 1
    # of each: ``measured`` and the regime, or ``NCCL`` or ``RCCL`` and a version
    source: list[str]
    algorithm: list[str]  # of each, with the protocol; ``measured`` of measured ones


def known_times(
    system: System, comm_type: str, sizes: Ints, members: Ints
) -> KnownTimes | None:  # fmt: skip
    """Look up how long collectives take; None where they have to be simulated.

    A measured table of the same collective comes first, of other ranks scaled to these; NCCL's
    model comes second, corrected as the system's file says. Where messages share links, no time
    is known before they are followed.

    - ``sizes``: int64, shape (sizes,): bytes as nccl-tests counts them (``nccl_tests_factors``).
    - ``members``: int64, shape (members,): its ranks.
    """
    if members.size < 2 or not ((system.nccl or system.measured) and nothing_contends(system)):
        return None
    comm_type, sizes = as_known(comm_type, np.maximum(sizes, 1))
    table = _measured_for(system, comm_type, members)
    settings = nccl_of(system, comm_type, members)
    if table is not None:
        model = _model(settings, comm_type, members) if settings else None
        times, regimes = measured_times(table, sizes, model)
        scaled = "" if table in system.measured else ", scaled to these ranks"
        source = [f"measured, {regime}{scaled}" for regime in regimes]
        algorithm = ["measured"] * sizes.size
    elif settings is not None:
        found = nccl_estimates(settings, comm_type, sizes, members)
        times = np.array([one.time for one in found]) * 1000
        source = [f"{'RCCL' if settings.gpu else 'NCCL'} {settings.version}"] * sizes.size
        algorithm = [f"{one.algorithm} {one.protocol}" for one in found]
    else:
        return None
    times = np.rint(times)
    if not (times < _LONGEST).all():  # not a number, neither
        raise UsageError(
            system.name, f"{comm_type} takes longer than a time can be by its figures",
            "correct those of its network and of [nccl]",
        )  # fmt: skip
    return KnownTimes(np.maximum(times, 1).astype(np.int64), source, algorithm)


def as_known(comm_type: str, sizes: Ints) -> tuple[str, Ints]:
    """Give what is looked up: of a barrier, an all-reduce of a byte."""
    return ("all_reduce", np.ones_like(sizes)) if comm_type == "barrier" else (comm_type, sizes)


def nccl_of(system: System, comm_type: str, members: Ints) -> NcclSettings | None:
    """Return the system's section nccl if it says how long a collective of these ranks takes."""
    settings = system.nccl
    if settings is None or not nothing_contends(system):
        return None
    return settings if models_collectives(settings, comm_type, members) else None


def _measured_for(
    system: System, comm_type: str, members: Ints
) -> MeasuredCollective | None:  # fmt: skip
    """Return the measured table of a collective; None if none fits.

    One of as many ranks and nodes is taken as it is. Otherwise that with the nearest number of
    ranks, up to four times as many or as few, is scaled by NCCL's model, where there is one.
    """
    nodes = int(np.unique(node_of_rank(system, members)).size)
    table = table_for(system.measured, comm_type, members.size, nodes)
    settings = nccl_of(system, comm_type, members)
    if table is not None or settings is None:
        return table
    table = nearest_table(system.measured, comm_type, members.size, nodes)
    if table is None or not 1 / _FARTHEST <= table.ranks / members.size <= _FARTHEST:
        return None
    if table.ranks // table.nodes > settings.ranks_per_node or table.ranks < table.nodes:
        return None
    return _scaled(table, msgspec.json.encode(settings), members.tobytes(), nodes)


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


def _model(settings: NcclSettings, comm_type: str, members: Ints) -> Model:
    return lambda sizes: (
        np.array([one.time for one in nccl_estimates(settings, comm_type, sizes, members)]) * 1000
    )


def node_of_rank(system: System, ranks: Ints) -> Ints:
    """Return the node of each rank: those that differ in the first dimension share one."""
    dimensions = system.network.dimensions
    of_file = system.nccl.ranks_per_node if system.nccl else dimensions[0].size
    found: Ints = ranks // of_file
    return found


def nothing_contends(system: System) -> bool:
    """Return whether no message waits for a link, bus or receiver that another one uses."""
    return not (system.network.congestion or system.network.rendezvous or system.bus)
