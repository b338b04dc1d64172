"""The time of a collective by NCCL: what it chooses, how long its model says, and corrected."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.systems.nccl.nccl_choice import channels_used, nccl_choices
from nadi.systems.nccl.nccl_communicator import COLLECTIVES, EXCHANGE, NcclCommunicator
from nadi.systems.nccl.nccl_corrections import Corrections, corrected_times
from nadi.systems.nccl.nccl_cost_table import NcclCost, nccl_costs
from nadi.systems.nccl.nccl_exchanges import exchange_times
from nadi.systems.nccl.nccl_settings import NcclSettings, communicator_of, level_of
from nadi.systems.nccl.nccl_versions import NcclRules, nccl_rules
from nadi.systems.nccl.rccl import rccl_choices, rccl_corrected, rccl_costs
from nadi.systems.nccl.rccl_tables import RCCL_TUNINGS
from nadi.trace.arrays import Ints


class NcclEstimate(NamedTuple):
    """What NCCL does with a collective; times in us."""

    algorithm: str
    protocol: str
    channels: int
    modeled: float
    time: float


def nccl_estimates(
    settings: NcclSettings, comm_type: str, sizes: Ints, members: Ints
) -> list[NcclEstimate]:
    """Estimate collectives of one type and group.

    Parameters
    ----------
    comm_type
        One that NCCL's model has, ``nccl_communicator.COLLECTIVES``, or its ``EXCHANGE``.
    sizes
        int64, shape (sizes,): bytes as NCCL and nccl-tests count them.
    members
        int64, shape (members,): ranks, at least two, of which ``models_collectives`` holds.

    Raises
    ------
    UsageError
        If the model of the version is not known.
    """
    if sizes.size == 1:  # remembered: a job has few that differ
        return list(
            _remembered(msgspec.json.encode(settings), comm_type, int(sizes[0]), members.tobytes())
        )
    return _estimates(settings, comm_type, sizes, members)


@lru_cache(maxsize=1 << 14)
def _remembered(
    encoded: bytes, comm_type: str, size: int, members: bytes
) -> tuple[NcclEstimate, ...]:
    settings = msgspec.json.decode(encoded, type=NcclSettings)
    ranks = np.frombuffer(members, dtype=np.int64)
    return tuple(_estimates(settings, comm_type, np.array([size], dtype=np.int64), ranks))


def _estimates(
    settings: NcclSettings, comm_type: str, sizes: Ints, members: Ints
) -> list[NcclEstimate]:
    """Choose as NCCL does, and correct the times."""
    if settings.gpu:
        return _of_rccl(settings, comm_type, sizes, members)
    if comm_type == EXCHANGE:
        communicator, _ = communicator_of(settings, members)
        known = zip(*exchange_times(sizes, communicator), strict=True)
        return [
            NcclEstimate("direct", protocol, communicator.channels, float(time), float(time))
            for time, protocol in known
        ]
    model = _model_of(msgspec.json.encode(settings), members.tobytes())
    choices = nccl_choices(sizes, comm_type, model.table, model.communicator, model.rules)
    times = corrected_times(
        sizes, comm_type, choices, model.communicator, model.corrections, model.rules
    )
    return [
        NcclEstimate(
            choice.algorithm, choice.protocol,
            channels_used(size, (choice.algorithm, choice.protocol), model.communicator)[0],
            choice.time, time,
        )
        for choice, size, time in zip(choices, sizes.tolist(), times.tolist(), strict=True)
    ]  # fmt: skip


def _of_rccl(
    settings: NcclSettings, comm_type: str, sizes: Ints, members: Ints
) -> list[NcclEstimate]:
    """Estimate by RCCL's model; its channels are those of the graph."""
    communicator, corrections = communicator_of(settings, members)
    tuning = RCCL_TUNINGS[settings.gpu]
    table = rccl_costs(communicator, tuning)
    choices = rccl_choices(sizes, comm_type, _allowed(table, settings), communicator, tuning)
    times = rccl_corrected(sizes, comm_type, communicator, tuning, corrections)
    return [
        NcclEstimate(*choice[:2], communicator.graphs[choice.algorithm].channels, choice.time, time)
        for choice, time in zip(choices, times, strict=True)
    ]


def models_collectives(settings: NcclSettings, comm_type: str, members: Ints) -> bool:
    """Tell whether the settings describe collectives of this type and these ranks."""
    nodes = np.unique(members // settings.ranks_per_node).size
    if comm_type == EXCHANGE and (nodes > 1 or settings.gpu):
        return False  # nothing is known of those between nodes, or of RCCL's
    return comm_type in (*COLLECTIVES, EXCHANGE) and level_of(settings, nodes) is not None


def _allowed(
    table: dict[tuple[str, str, str], NcclCost], settings: NcclSettings
) -> dict[tuple[str, str, str], NcclCost]:
    """Leave what the settings allow; of a collective that they leave nothing, all of it."""
    left = {
        key: cost
        for key, cost in table.items()
        if (not settings.algorithms or key[1] in settings.algorithms)
        and (not settings.protocols or key[2] in settings.protocols)
    }
    usable = {key[0] for key, cost in left.items() if cost.bandwidth > 0}
    return {key: cost for key, cost in table.items() if key in left or key[0] not in usable}


class _Model(NamedTuple):
    """NCCL's model of a group; the table has what the settings allow."""

    communicator: NcclCommunicator
    corrections: Corrections
    rules: NcclRules
    table: dict[tuple[str, str, str], NcclCost]


@lru_cache(maxsize=1 << 10)
def _model_of(encoded: bytes, members: bytes) -> _Model:
    """Make the model of a group, and remember it: a job has few groups that differ."""
    settings = msgspec.json.decode(encoded, type=NcclSettings)
    communicator, corrections = communicator_of(settings, np.frombuffer(members, dtype=np.int64))
    rules = nccl_rules(settings.version)
    return _Model(
        communicator, corrections, rules, _allowed(nccl_costs(communicator, rules), settings)
    )
