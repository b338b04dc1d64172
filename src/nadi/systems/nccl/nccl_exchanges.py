"""An all-to-all within a node: NCCL's grouped sends and receives, of which its model has none.

Each rank sends a part to each other rank and copies its own, in one kernel: small parts by the LL
protocol, others by Simple, which either the rank's links or the copies by its blocks of threads
bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.systems.nccl.nccl_communicator import NcclCommunicator
from nadi.trace.arrays import Floats, Ints


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

    Parameters
    ----------
    sizes
        int64 bytes, shape (sizes,), that each rank gives, its own part among them.
    """
    known = _BY_ARCHITECTURE[communicator.architecture]
    ranks, ring = communicator.ranks, communicator.graphs["Ring"]
    links = known.linked * ring.channels * ring.bandwidth_intra * 1000  # bytes a us
    short = known.short + sizes / ranks / known.short_rate
    moved = np.maximum(sizes / known.copied, sizes * (ranks - 1) / ranks / links)
    long = known.long + moved + known.ramp * sizes / (sizes + known.ramp_size)
    protocols = np.where(short < long, "LL", "Simple").tolist()
    return np.minimum(short, long), protocols
