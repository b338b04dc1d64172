"""RCCL's cost model and its choice: that of NCCL with constants of its own.

``src/graph/tuning.cc`` and ``src/rccl_wrap.cc`` of ROCm/rccl. Between nodes the protocol follows
from the size, whatever the model says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.systems.nccl.nccl_cost_table import (
    COLLECTIVES,
    PATH_TYPES,
    PROTOCOLS,
    CostTable,
    NcclChoice,
    NcclCommunicator,
    NcclCost,
    ring_steps,
)
from nadi.systems.nccl.nccl_settings import Corrections
from nadi.trace.arrays import Floats, Ints

_SMALLEST_CORRECTED = 6  # log2 of 64 bytes
_ROOTED = ("broadcast", "reduce")
_ROOTED_SHARE = 1.65  # of LL's bandwidth on one node
_PER_RANK = ("all_gather", "reduce_scatter", "broadcast", "reduce")  # sizes are of all ranks
_MORE_NODES = 3.8  # times the range of an all-reduce with LL128 on more than two nodes


def rccl_costs(
    communicator: NcclCommunicator, tuning: RcclTuning
) -> CostTable:  # fmt: skip
    """Compute RCCL's table: costs by (collective, algorithm, protocol), in its order."""
    table: CostTable = {}
    for collective in COLLECTIVES:
        for algorithm in ("Tree", "Ring"):
            if algorithm not in communicator.graphs:
                continue
            if algorithm == "Tree" and collective != "all_reduce":
                continue
            for protocol in PROTOCOLS:
                key = (collective, algorithm, protocol)
                if communicator.nodes == 1 and key[1:] == ("Tree", "Simple"):
                    continue
                table[key] = NcclCost(
                    _latency(key, communicator, tuning), _bandwidth(key, communicator, tuning)
                )
    return table


def rccl_choices(
    sizes: Ints, collective: str, table: CostTable,
    communicator: NcclCommunicator, tuning: RcclTuning,
) -> list[NcclChoice]:  # fmt: skip
    """Choose as RCCL does: the least time, and between nodes the protocol by the size.

    - ``sizes``: int64 bytes, shape (sizes,), as RCCL counts them: of a gather or scatter those of
      all ranks.
    - ``table``: As ``rccl_costs`` computes it; entries that are left out are not chosen.
    """
    entries = [key for key in table if key[0] == collective]
    times = {key: _times(sizes, key, table[key], communicator, tuning) for key in entries}
    choices = []
    for row, size in enumerate(sizes.tolist()):
        best = min(entries, key=lambda key: times[key][row])
        protocol = _protocol_by_size(collective, size, communicator, tuning)
        stated = (collective, best[1], protocol)
        best = stated if protocol and stated in times else best
        choices.append(NcclChoice(best[1], best[2], float(times[best][row])))
    return choices


def rccl_corrected(
    sizes: Ints, collective: str, communicator: NcclCommunicator, tuning: RcclTuning,
    corrections: Corrections,
) -> list[float]:  # fmt: skip
    """Give the times of collectives, us: of the fastest algorithm and protocol.

    RCCL steers its choice by bandwidths that it lowers to a tenth; here they are not lowered.
    """
    even = ((1.0,), (1.0,), (1.0,))
    plain = tuning._replace(
        within=_scaled(tuning.within, corrections.steps),
        between=_scaled(tuning.between, corrections.hops), tree=even, ring=even,
    )  # fmt: skip
    table = rccl_costs(communicator, plain)
    costs = [cost for key, cost in table.items() if key[0] == collective and cost.bandwidth > 0]
    return [
        min(
            corrections.with_bytes(size, cost.latency, size / (1000 * cost.bandwidth))
            for cost in costs
        )
        for size in sizes.tolist()
    ]


def _scaled(
    latencies: dict[str, tuple[float, float, float]], factors: dict[str, float]
) -> dict[str, tuple[float, float, float]]:
    ll, ll128, simple = (factors.get(protocol, 1.0) for protocol in PROTOCOLS)
    return {name: (one[0] * ll, one[1] * ll128, one[2] * simple)
            for name, one in latencies.items()}  # fmt: skip


def _protocol_by_size(
    collective: str, size: int, communicator: NcclCommunicator, tuning: RcclTuning
) -> str:
    """Return the protocol that a size takes between nodes; empty where the model chooses."""
    ranges = tuning.ranges.get(collective)
    if ranges is None or communicator.nodes < 2:
        return ""
    per_rank = size // communicator.ranks if collective in _PER_RANK else size
    least, most, least_128, most_128 = ranges
    far = collective == "all_reduce" and communicator.nodes > 2
    if _has_ll128(communicator) and least_128 < per_rank <= most_128 * (_MORE_NODES if far else 1):
        return "LL128"
    return "LL" if least < per_rank <= most else "Simple"


def _has_ll128(communicator: NcclCommunicator) -> bool:
    graph = communicator.graphs["Ring"]
    far = PATH_TYPES.index(graph.type_inter) > PATH_TYPES.index("PXB")
    return graph.type_intra in ("LOC", "NVL") and not far


def _times(
    sizes: Ints, key: tuple[str, str, str], cost: NcclCost, communicator: NcclCommunicator,
    tuning: RcclTuning,
) -> Floats:  # fmt: skip
    """Compute the times of an entry, us; infinite where RCCL does not use it."""
    _, algorithm, protocol = key
    if cost.bandwidth <= 0:
        return np.full(sizes.shape, np.inf)
    bandwidth = np.full(sizes.shape, cost.bandwidth)
    if algorithm == "Tree" or communicator.nodes > 1:
        rows = tuning.tree if algorithm == "Tree" else tuning.ring
        factors = np.array(rows[PROTOCOLS.index(protocol)])
        power = np.frexp(sizes.astype(np.float64))[1] - 1 - _SMALLEST_CORRECTED
        bandwidth *= factors[np.clip(power, 0, factors.size - 1)]
    times: Floats = cost.latency + sizes / (1000 * bandwidth)
    return times


def _bandwidth(
    key: tuple[str, str, str], communicator: NcclCommunicator, tuning: RcclTuning
) -> float:  # fmt: skip
    collective, algorithm, protocol = key
    if protocol == "LL128" and not _has_ll128(communicator):
        return 0.0
    graph = communicator.graphs[algorithm]
    near = communicator.nodes <= 2
    total = graph.channels * (graph.bandwidth_intra if near else graph.bandwidth_inter)
    total *= tuning.shares[algorithm][0 if near else 1][PROTOCOLS.index(protocol)]
    if key[1:] == ("Ring", "LL") and collective in _ROOTED and communicator.nodes == 1:
        total *= _ROOTED_SHARE
    if algorithm == "Tree":
        return total / 2
    return total * communicator.ranks / ring_steps(collective, communicator.ranks)


def _latency(
    key: tuple[str, str, str], communicator: NcclCommunicator, tuning: RcclTuning
) -> float:  # fmt: skip
    collective, algorithm, protocol = key
    which, several = PROTOCOLS.index(protocol), communicator.nodes > 1
    graph = communicator.graphs[algorithm]
    base, within = tuning.base[which], tuning.within[algorithm][which]
    alone = communicator.ranks_per_node == 1
    between = tuning.between["Tree" if alone else algorithm][which]
    between += graph.latency_inter * (2 if protocol == "Simple" else 1)
    others = communicator.ranks // communicator.nodes - 1
    if algorithm == "Tree":
        return base + 2 * (others * within + (communicator.nodes.bit_length() - 1) * between)
    steps = ring_steps(collective, communicator.ranks)
    if collective in _ROOTED:
        of = "Tree" if protocol == "Simple" and not graph.same_channels else "Ring"
        step = (tuning.between if several else tuning.within)[of][which]
        return base + (step if graph.same_channels else steps * step)
    crossings = 0
    if several:
        is_amd = (communicator.cpu, communicator.cpu_vendor) == ("x86", "amd")
        within = max(within, (2.0 if is_amd else 1.0) * (3 if protocol == "Simple" else 1))
        crossings = (2 if collective == "all_reduce" else 1) * (communicator.nodes - 1)
    return base + (steps - crossings) * within + crossings * between


_Triple = tuple[float, float, float]
_Factors = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


class RcclTuning(NamedTuple):
    """One tuning model."""

    base: _Triple  # latency of any algorithm before its steps
    # within, between: latency of a step over xGMI, and between nodes, by algorithm
    within: dict[str, _Triple]
    between: dict[str, _Triple]
    # of the channels' bandwidth by algorithm: on one or two nodes, and on more
    shares: dict[str, tuple[_Triple, _Triple]]
    # tree, ring: by which factor an algorithm's bandwidth differs per protocol and size
    tree: _Factors
    ring: _Factors
    # by collective: of bytes a rank, above the first number and up to the second, LL is taken
    # between nodes, and LL128 above the third and up to the fourth
    ranges: dict[str, tuple[int, int, int, int]]


_TREE_LL = (
    *[.1] * 6, 1., 1., 1., 1., 1., .6, 1., .9, 1., 1., *[.1] * 11,
)  # fmt: skip
_RING_LL = (*[.1] * 11, 1., .2, 1., .4, .4, .1, .2, .2, *[.1] * 8)  # fmt: skip

_GFX942 = RcclTuning(
    base=(12.0, 12.0, 17.0),
    within={"Tree": (0.9, 0.9, 2.3), "Ring": (0.8, 0.8, 2.1)},
    between={"Tree": (10.5, 10.5, 25.0), "Ring": (9.5, 9.5, 320.0)},
    shares={
        "Tree": ((0.06, 0.06, 0.11), (0.06, 0.06, 0.59)),
        "Ring": ((0.08, 0.08, 1.0), (0.08, 0.08, 1.0)),
    },
    tree=(_TREE_LL, _TREE_LL, (*[.1] * 15, .7, 1., 1., 1., 1., 1., .7, .7, .5, .6, .6, .6)),
    ring=(_RING_LL, _RING_LL, (*[.1] * 22, 1., .8, 1., 1., 1.)),
    ranges={
        "reduce_scatter": (0, 655360, 131072, 3211264),
        "all_gather": (0, 98304, 98304, 5046272),
        "all_reduce": (0, 1048576, 1048576, 9437184),
    },
)  # fmt: skip
_GFX950 = _GFX942._replace(
    tree=(
        _TREE_LL, (*_TREE_LL[:16], 1., 1., 1., 2., *[.1] * 7),
        (*[.1] * 15, .7, 1., .1, .1, .1, .9, .9, .7, .8, .6, .6, .6),
    ),
    ring=(
        _RING_LL, (*_RING_LL[:18], *[.1] * 9), (*[.1] * 22, 1., .8, .8, 1., 1.),
    ),
    ranges={
        "reduce_scatter": (0, 131071, 131071, 4194304),
        "all_gather": (0, 7, 7, 8388608),
        "all_reduce": (0, 131071, 131071, 17660227),
        "reduce": (0, 16383, 16383, 16777216),
        "broadcast": (0, 2048, 2048, 16777216),
    },
)  # fmt: skip

RCCL_TUNINGS = {"gfx942": _GFX942, "gfx950": _GFX950}
