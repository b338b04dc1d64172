"""The constants of RCCL's cost model, for nodes of MI300X and of MI350X or MI355X.

From ROCm/rccl, ``src/graph/tuning.cc``: its tuning models 5 (gfx942) and 6 (gfx950). The copy at
hand names no version; gfx950 came with 2.24.
Latencies are in us. Triples are the protocols LL, LL128 and Simple; corrections begin at 64 B and
double, and the last one holds for all that is larger.
"""

from __future__ import annotations

from typing import NamedTuple

Triple = tuple[float, float, float]
Corrections = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


class RcclTuning(NamedTuple):
    """One tuning model."""

    base: Triple  # latency of any algorithm before its steps
    # within, between: latency of a step over xGMI, and between nodes, by algorithm
    within: dict[str, Triple]
    between: dict[str, Triple]
    # of the channels' bandwidth by algorithm: on one or two nodes, and on more
    shares: dict[str, tuple[Triple, Triple]]
    # tree, ring: by which factor an algorithm's bandwidth differs per protocol and size
    tree: Corrections
    ring: Corrections
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
