"""How long NCCL thinks that a collective takes, and what it chooses (``src/enqueue.cc``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.systems.nccl.nccl_communicator import PROTOCOLS, NcclCommunicator
from nadi.systems.nccl.nccl_cost_table import NcclCost
from nadi.systems.nccl.nccl_versions import NcclRules
from nadi.trace.arrays import Floats, Ints

_SMALLEST_CORRECTED = 6  # log2 of 64 bytes


class NcclChoice(NamedTuple):
    """What NCCL takes for one collective."""

    algorithm: str
    protocol: str
    time: float  # us, as NCCL's model has it


def nccl_times(
    sizes: Ints, entry: tuple[str, str, str], cost: NcclCost, communicator: NcclCommunicator,
    rules: NcclRules,
) -> Floats:  # fmt: skip
    """Compute the times of one entry of the table for sizes.

    Parameters
    ----------
    sizes
        int64 bytes, shape (sizes,): what NCCL counts. That is all bytes that an all-gather
        gathers or a reduce-scatter scatters, and otherwise the bytes of one rank.
    entry
        Collective, algorithm and protocol.

    Returns
    -------
    us, shape (sizes,); infinite where NCCL does not use the entry.
    """
    collective, algorithm, protocol = entry
    if cost.bandwidth <= 0:
        return np.full(sizes.shape, np.inf)
    bandwidth = np.full(sizes.shape, cost.bandwidth)
    latency = np.full(sizes.shape, cost.latency)
    if _is_corrected(collective, algorithm, communicator, rules):
        factors = np.array(rules.correction[PROTOCOLS.index(protocol)])
        power = np.frexp(sizes.astype(np.float64))[1] - 1 - _SMALLEST_CORRECTED
        if rules.corrects_smallest:
            power = np.maximum(power, 0)
        last = factors.size if algorithm == "NVLSTree" else min(factors.size, 23)
        inside = (power >= 0) & (power < last)
        bandwidth[inside] *= factors[power[inside]]
    ring = algorithm == "Ring" and protocol == "Simple" and collective == "all_reduce"
    if ring and communicator.nodes > 1:
        large = sizes // (communicator.channels * communicator.ranks) >= 64
        latency[large] *= 1.4 if communicator.architecture else 1.9
    times: Floats = latency + sizes / (1000 * bandwidth)
    return times


def nccl_choices(
    sizes: Ints, collective: str, table: dict[tuple[str, str, str], NcclCost],
    communicator: NcclCommunicator, rules: NcclRules,
) -> list[NcclChoice]:  # fmt: skip
    """Choose as NCCL does: the least time, and of equal ones the first.

    Parameters
    ----------
    sizes
        As for ``nccl_times``.
    table
        As ``nccl_costs`` computes it; entries that are left out are not chosen.
    """
    entries = [key for key in table if key[0] == collective]
    times = np.array([nccl_times(sizes, key, table[key], communicator, rules) for key in entries])
    first = np.argmin(times, axis=0)
    return [
        NcclChoice(entries[row][1], entries[row][2], float(times[row, column]))
        for column, row in enumerate(first)
    ]


def channels_used(
    size: int, choice: tuple[str, str], communicator: NcclCommunicator
) -> tuple[int, int]:
    """Give the channels of a collective, and the threads of each, as NCCL reduces them."""
    algorithm, protocol = choice
    graph = communicator.graphs[algorithm]
    if algorithm in ("NVLS", "NVLSTree"):
        return _nvls_channels(communicator), 640
    channels, threads = communicator.channels, 512
    if protocol == "LL128" or algorithm.startswith("CollNet"):
        threads = 640
    elif protocol == "Simple" and algorithm == "Ring":
        threads = 256 if graph.bandwidth_intra * graph.channels <= 12 else 512
    least = {"LL": 8, "LL128": 8, "Simple": 64}[protocol]
    if algorithm == "Ring" and protocol == "LL":
        least *= communicator.ranks
    if algorithm.startswith("CollNet"):
        least = 512
    while size < channels * threads * least and channels > 1:
        channels -= 1
    while size < channels * threads * least and threads % 128 == 0:
        threads //= 2
    if protocol == "Simple":
        threads = 640 if algorithm in ("Tree", "PAT") else threads + 32
    return channels, threads


def _nvls_channels(communicator: NcclCommunicator) -> int:
    if communicator.capability < 100:
        return 16
    return 24 if communicator.nodes == 1 else 32


def _is_corrected(
    collective: str, algorithm: str, communicator: NcclCommunicator, rules: NcclRules
) -> bool:  # fmt: skip
    if collective != "all_reduce":
        return False
    if algorithm == "NVLSTree":
        x86 = communicator.cpu == "x86"
        return rules.nvls_tree_corrected and x86 and communicator.capability >= 100
    return algorithm == "Tree"
