"""The time of a collective by NCCL: what it chooses, how long its model says, and corrected."""

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.systems.nccl.nccl_cost_table import (
    COLLECTIVES,
    EXCHANGE,
    CostTable,
    NcclCommunicator,
    channels_used,
    nccl_choices,
    nccl_costs,
)
from nadi.systems.nccl.nccl_settings import (
    Corrections,
    NcclSettings,
    communicator_of,
    corrected_times,
    level_of,
    measured_rules,
)
from nadi.systems.nccl.nccl_versions import NcclRules, nccl_rules
from nadi.systems.nccl.rccl import RCCL_TUNINGS, rccl_choices, rccl_corrected, rccl_costs
from nadi.trace.arrays import Floats, Ints


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

    - ``comm_type``: One that NCCL's model has, ``nccl_communicator.COLLECTIVES``, or its
      ``EXCHANGE``.
    - ``sizes``: int64, shape (sizes,): bytes as NCCL and nccl-tests count them.
    - ``members``: int64, shape (members,): ranks, at least two, of which ``models_collectives``
      holds.
    - Raises UsageError if the model of the version is not known.
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
    choices = nccl_choices(sizes, comm_type, model.allowed, model.communicator, model.rules)
    times = corrected_times(
        sizes, comm_type, choices, model.communicator, model.corrections, model.tables
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


def _allowed(table: CostTable, settings: NcclSettings) -> CostTable:
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
    """NCCL's model of a group."""

    communicator: NcclCommunicator
    corrections: Corrections
    rules: NcclRules
    tables: tuple[CostTable, CostTable]  # NCCL's own, and with steps as long as measured
    allowed: CostTable  # of the first, what the settings allow


@lru_cache(maxsize=1 << 10)
def _model_of(encoded: bytes, members: bytes) -> _Model:
    """Make the model of a group, and remember it: a job has few groups that differ."""
    settings = msgspec.json.decode(encoded, type=NcclSettings)
    communicator, corrections = communicator_of(settings, np.frombuffer(members, dtype=np.int64))
    rules = nccl_rules(settings.version)
    own = nccl_costs(communicator, rules)
    measured = nccl_costs(communicator, measured_rules(rules, corrections))
    return _Model(communicator, corrections, rules, (own, measured), _allowed(own, settings))


class _Exchange(NamedTuple):
    """What bounds an all-to-all on GPUs of one architecture."""

    # short, short_rate: by LL: the time of an empty one, us, and bytes a us of the part for one
    # rank
    short: float
    short_rate: float
    long: float  # by Simple: the time of an empty one, us
    copied: float  # bytes a us that a rank's blocks move, its own part among them
    linked: float  # share of the bandwidth of the ring's channels that parts for other ranks reach
    # ramp, ramp_size: as those of ``Corrections``
    ramp: float
    ramp_size: float


# fitted to kernels on 2, 4 and 8 GPUs by NCCL 2.27.3: A100, H100 and B200. Other versions on H100
# and B200, and B300 and GB200, were left out of it
_AMPERE = _Exchange(12.3, 5_060.0, 13.5, 337_000.0, 0.817, 32.0, 4.5e6)
_HOPPER = _Exchange(6.8, 5_700.0, 13.2, 600_000.0, 0.917, 47.0, 72e6)
_BLACKWELL = _Exchange(9.9, 6_400.0, 15.9, 700_000.0, 0.8125, 27.0, 57e6)
_BY_ARCHITECTURE = (_AMPERE, _AMPERE, _HOPPER, _BLACKWELL)  # Volta has no measurement of its own


def exchange_times(sizes: Ints, communicator: NcclCommunicator) -> tuple[Floats, list[str]]:
    """Give the times of all-to-alls among GPUs of one node, us, and the protocol of each.

    - ``sizes``: int64 bytes, shape (sizes,), that each rank gives, its own part among them.
    """
    known = _BY_ARCHITECTURE[communicator.architecture]
    ranks, ring = communicator.ranks, communicator.graphs["Ring"]
    links = known.linked * ring.channels * ring.bandwidth_intra * 1000  # bytes a us
    short = known.short + sizes / ranks / known.short_rate
    moved = np.maximum(sizes / known.copied, sizes * (ranks - 1) / ranks / links)
    long = known.long + moved + known.ramp * sizes / (sizes + known.ramp_size)
    protocols = np.where(short < long, "LL", "Simple").tolist()
    return np.minimum(short, long), protocols
