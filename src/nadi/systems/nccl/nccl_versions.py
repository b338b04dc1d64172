"""The constants of NCCL's cost model, and what differs between its versions.

Latencies are in us, bandwidths in GB/s (10^9 bytes), as in NCCL's ``src/graph/tuning.cc``. Rows
of architectures are Volta, Ampere, Hopper and Blackwell; their columns one node, two nodes and
more. Triples are the protocols LL, LL128 and Simple.
"""

from dataclasses import dataclass, replace
from typing import Literal

from nadi.errors import UsageError

Triple = tuple[float, float, float]
Rows = tuple[Triple, Triple, Triple, Triple]
_ZERO: Triple = (0.0, 0.0, 0.0)

# versions whose tables were compared with what their own code computes
COMPARED = ("2.18.6", "2.21.5", "2.27.7", "2.30.7")


@dataclass(frozen=True)
class NcclRules:
    """One version's model.

    Attributes
    ----------
    base
        Latency of an algorithm before its steps.
    nvlink, pci, network
        Latency of one step over such a path, per algorithm.
    ll_most
        The most that protocol LL reaches, all channels together.
    ring_ll128_most, tree_ll128_most, tree_most, nvls_tree_most
        The most that a channel reaches; 0 for the last one is no limit.
    ring_ll
        The share of a ring's bandwidth that LL leaves: a half, or by collective.
    ring_ll128_alone
        The share that LL128 leaves where each node has one GPU.
    alone_uses_tree_row
        Whether a step between nodes with one GPU each takes the tree's latency.
    all_reduce_between
        Steps of a ring's all-reduce between nodes: 2(nodes - 1), or 2 nodes.
    collnet_step
        Latency of another GPU of the node in CollNetDirect.
    nvls
        How the bandwidth of NVLS and NVLSTree is found; see ``nccl_cost_table``.
    nvls_efficiency
        Per architecture, of the third way.
    nvls_gathers, collnet_gathers
        Whether these have all-gather and reduce-scatter.
    nvls_tree_is_linear
        Whether its latency grows with nodes, not with their logarithm.
    pat
        The share of bandwidth that PAT reaches; 0 if the version has no PAT.
    corrects_smallest
        Whether less than 64 B are corrected as 64 B are; else they are not corrected.
    nvls_tree_corrected
        Whether the tree's correction also holds for NVLSTree on Blackwell with x86.
    correction
        By which factor a tree's bandwidth differs at 64 B, 128 B, ..., per protocol.
    """

    base: dict[str, Triple]
    nvlink: dict[str, Triple]
    pci: dict[str, Triple]
    network: dict[str, Triple]
    ll_most: Rows
    ring_ll128_most: Rows
    tree_ll128_most: Rows
    tree_most: Rows
    nvls_tree_most: Rows
    ring_ll: Literal["half", "by-collective"] = "half"
    ring_ll128_alone: float = 0.92
    alone_uses_tree_row: bool = True
    all_reduce_between: Literal["nodes-1", "nodes"] = "nodes-1"
    collnet_step: float = 0.4
    nvls: Literal["intra", "least", "efficiency"] = "efficiency"
    nvls_efficiency: tuple[float, float, float, float] = (0.0, 0.0, 0.85, 0.74)
    nvls_gathers: bool = True
    nvls_gathers_by_ranks: bool = True
    collnet_gathers: bool = True
    nvls_tree_is_linear: bool = False
    pat: float = 0.75
    corrects_smallest: bool = False
    nvls_tree_corrected: bool = True
    correction: tuple[tuple[float, ...], ...] = ()


def _same(triple: Triple) -> Rows:
    return (triple, triple, triple, triple)


_CORRECTION = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
    (*[.9] * 7, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9),
)  # fmt: skip

_V2_30 = NcclRules(
    base={
        "Tree": (6.8, 14.0, 8.4), "Ring": (6.6, 14.0, 8.4), "CollNetDirect": _ZERO,
        "CollNetChain": _ZERO, "NVLS": _ZERO, "NVLSTree": _ZERO, "PAT": (8.0, 8.0, 8.0),
    },
    nvlink={
        "Tree": (0.6, 1.25, 4.0), "Ring": (0.6, 1.9, 3.4), "CollNetDirect": (0.0, 0.0, 3.7),
        "CollNetChain": (0.0, 0.0, 2.8), "NVLS": (0.0, 0.0, 25.0), "NVLSTree": (0.0, 0.0, 25.0),
        "PAT": (0.0, 0.0, 4.0),
    },
    pci={
        "Tree": (1.0, 1.9, 4.0), "Ring": (1.0, 2.5, 5.7), "CollNetDirect": (0.0, 0.0, 3.7),
        "CollNetChain": (0.0, 0.0, 2.8), "NVLS": _ZERO, "NVLSTree": _ZERO, "PAT": (0.0, 0.0, 4.0),
    },
    network={
        "Tree": (5.0, 8.5, 14.0), "Ring": (2.7, 4.0, 14.0), "CollNetDirect": (0.0, 0.0, 31.0),
        "CollNetChain": (0.0, 0.0, 30.0), "NVLS": (0.0, 0.0, 18.0),
        "NVLSTree": (0.0, 0.0, 20.9), "PAT": (0.0, 0.0, 14.0),
    },
    ll_most=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128_most=(
        (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0),
    ),
    tree_ll128_most=(
        (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0),
    ),
    tree_most=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree_most=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    correction=_CORRECTION,
)  # fmt: skip

# 2.29: the largest NVLSTree of Blackwell was slower
_V2_29 = replace(
    _V2_30, nvls_tree_most=(*_V2_30.nvls_tree_most[:3], (0.0, 96.0, 43.8)),
)  # fmt: skip
# 2.28: all constants in one table that a plugin may change
_V2_28 = replace(
    _V2_29,
    ring_ll128_most=(*_V2_30.ring_ll128_most[:3], (73.4, 34.6, 73.4)),
    correction=tuple(row[:23] for row in _CORRECTION),
    nvls_tree_corrected=False,
)
# 2.27: NVLS is the smaller of both bandwidths; Blackwell is twice Hopper
_V2_27 = replace(
    _V2_28,
    network={**_V2_30.network, "NVLSTree": (0.0, 0.0, 14.0)},
    ring_ll128_most=(*_V2_30.ring_ll128_most[:3], (73.4, 73.4, 73.4)),
    tree_ll128_most=(*_V2_30.tree_ll128_most[:3], (73.4, 73.4, 58.0)),
    tree_most=(*_V2_30.tree_most[:3], (77.4, 82.8, 72.0)),
    nvls_tree_most=_same(_ZERO),
    nvls="least",
)
_V2_25 = replace(_V2_27, nvls_gathers_by_ranks=False)
# 2.24: no rows of Blackwell, which is taken for Hopper
_V2_24 = replace(
    _V2_25,
    ll_most=(*_V2_30.ll_most[:3], _V2_30.ll_most[2]),
    ring_ll128_most=(*_V2_30.ring_ll128_most[:3], _V2_30.ring_ll128_most[2]),
    tree_ll128_most=(*_V2_30.tree_ll128_most[:3], _V2_30.tree_ll128_most[2]),
    tree_most=(*_V2_30.tree_most[:3], _V2_30.tree_most[2]),
)
_V2_23 = replace(_V2_24, pat=0.85)
# 2.21, 2.22: trees with protocol Simple take long, no PAT
_V2_21 = replace(
    _V2_23,
    base={**_V2_30.base, "Tree": (6.8, 14.0, 0.0)},
    nvlink={**_V2_27.nvlink, "Tree": (0.6, 1.25, 28.0)},
    pci={**_V2_27.pci, "Tree": (1.0, 1.9, 28.0)},
    network={**_V2_27.network, "Tree": (5.0, 8.5, 28.0)},
    ring_ll128_alone=0.7,
    alone_uses_tree_row=False,
    all_reduce_between="nodes",
    pat=0.0,
    corrects_smallest=True,
)
# 2.19, 2.20: LL by collective, Hopper's LL as Ampere's
_V2_20 = replace(
    _V2_21,
    nvlink={**_V2_21.nvlink, "NVLS": (0.0, 0.0, 23.0), "NVLSTree": (0.0, 0.0, 23.0)},
    ll_most=(*_V2_30.ll_most[:2], _V2_30.ll_most[1], _V2_30.ll_most[1]),
    ring_ll="by-collective",
)
_V2_19 = replace(_V2_20, collnet_gathers=False)
_V2_18 = replace(
    _V2_19,
    base={
        **_V2_21.base, "CollNetDirect": (6.8, 14.0, 0.0), "CollNetChain": (6.8, 14.0, 0.0),
        "NVLS": (23.0, 23.0, 23.0), "NVLSTree": (23.0, 23.0, 23.0),
    },
    nvlink={
        **_V2_21.nvlink, "Tree": (0.6, 1.25, 4.0), "CollNetDirect": (0.0, 0.0, 8.0),
        "CollNetChain": (0.0, 0.0, 4.75), "NVLS": _ZERO, "NVLSTree": _ZERO,
    },
    pci={
        **_V2_21.pci, "Tree": (1.0, 1.9, 6.0), "CollNetDirect": (0.0, 0.0, 8.0),
        "CollNetChain": (0.0, 0.0, 8.0),
    },
    network={
        **_V2_21.network, "Tree": (5.0, 8.5, 14.0), "CollNetDirect": (0.0, 0.0, 10.7),
        "CollNetChain": (0.0, 0.0, 14.0), "NVLSTree": (0.0, 0.0, 19.0),
    },
    collnet_step=0.5,
    nvls="intra",
    nvls_gathers=False,
    nvls_tree_is_linear=True,
)  # fmt: skip

VERSIONS: dict[str, NcclRules] = {
    "2.18": _V2_18, "2.19": _V2_19, "2.20": _V2_20, "2.21": _V2_21, "2.22": _V2_21,
    "2.23": _V2_23, "2.24": _V2_24, "2.25": _V2_25, "2.26": _V2_25, "2.27": _V2_27,
    "2.28": _V2_28, "2.29": _V2_29, "2.30": _V2_30,
}  # fmt: skip


def nccl_rules(version: str) -> NcclRules:
    """Give the model of a version such as 2.27.7; its last number does not matter.

    Raises
    ------
    UsageError
        If the model of this version is not known.
    """
    rules = VERSIONS.get(".".join(version.split(".")[:2]))
    if rules is None:
        raise UsageError(
            f"NCCL {version}", "its cost model is not known", f"known are {', '.join(VERSIONS)}"
        )
    return rules
