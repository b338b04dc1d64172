"""NCCL on a system: its version, its graphs, and what its model leaves out."""

from __future__ import annotations

import msgspec
import numpy as np

from nadi.systems.nccl.measured import NcclLog
from nadi.systems.nccl.nccl_communicator import ChannelGraph, NcclCommunicator
from nadi.systems.nccl.nccl_corrections import Corrections
from nadi.trace.arrays import Ints

ALGORITHMS_OF_GRAPH = {
    "ring": ("Ring",),
    "tree": ("Tree", "PAT"),
    "nvls": ("NVLS", "NVLSTree"),
    "collnet_direct": ("CollNetDirect",),
    "collnet_chain": ("CollNetChain",),
}

_MOST_CHANNELS = 64
_FAST_CHANNEL = 45.0  # GB/s
_FEW_CHANNELS = 16


class NcclLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Collectives within a node, or over several: their graphs, by algorithm, and corrections."""

    graphs: dict[str, ChannelGraph]
    corrections: Corrections = Corrections()


class NcclSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NCCL on a system, for any group of its ranks."""

    version: str  # such as 2.27.7
    capability: int  # compute capability of the GPUs, 90 for 9.0
    ranks_per_node: int  # GPUs of a node, or of a domain of NVLink
    # node, nodes: within a node, and over several; graphs of ``nodes`` are those of whole nodes.
    # Without ``node`` nothing is known of collectives within one, without ``nodes`` those over
    # several are as within one.
    node: NcclLevel | None
    nodes: NcclLevel | None = None
    gpu: str = ""  # for RCCL the architecture of the GPUs, such as gfx942; empty for NCCL
    # cpu, cpu_vendor: as for ``NcclCommunicator``
    cpu: str = "x86"
    cpu_vendor: str = "intel"
    # algorithms, protocols: those that may be chosen, as NCCL_ALGO and NCCL_PROTO say it; empty for
    # all
    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()


def with_logged_graphs(settings: NcclSettings, log: NcclLog) -> NcclSettings:
    """Replace the version and graphs of a system by those of a log.

    They are taken for those within a node, or over several, as the logged communicator was. What
    corrects the model stays.
    """
    level = settings.nodes if log.nodes > 1 and settings.nodes else settings.node
    level = level or NcclLevel({})
    graphs = {
        algorithm: ChannelGraph(
            channels=found.channels,
            bandwidth_intra=found.bandwidth_intra,
            bandwidth_inter=found.bandwidth_inter,
            type_intra=found.type_intra,
            type_inter=found.type_inter,
            same_channels=found.same_channels,
            pattern=found.pattern,
        )
        for key, found in log.graphs.items()
        for algorithm in ALGORITHMS_OF_GRAPH[key]
    }
    level = msgspec.structs.replace(level, graphs=graphs)
    version = log.version or settings.version
    where = "nodes" if log.nodes > 1 else "node"
    return msgspec.structs.replace(settings, version=version, **{where: level})


def level_of(settings: NcclSettings, nodes: int) -> NcclLevel | None:
    """Return what is known of collectives over so many nodes; None if nothing is."""
    return settings.node if nodes == 1 or settings.nodes is None else settings.nodes


def communicator_of(settings: NcclSettings, members: Ints) -> tuple[NcclCommunicator, Corrections]:
    """Give the communicator of some ranks of a system, and what its times are corrected by.

    A group with some of the GPUs of each node has as large a part of a node's channels to other
    nodes: each GPU has adapters of its own.

    - ``members``: int64, shape (members,): ranks, at least two.
    """
    _, on_node = np.unique(members // settings.ranks_per_node, return_counts=True)
    nodes, ranks = on_node.size, members.size
    level = level_of(settings, int(nodes))
    assert level is not None  # see models_collectives
    graphs = level.graphs
    if nodes > 1:
        share = ranks / (nodes * settings.ranks_per_node)
        graphs = {
            name: msgspec.structs.replace(graph, channels=max(round(graph.channels * share), 1))
            for name, graph in graphs.items()
        }
    ring = graphs["Ring"]
    channels = 2 * ring.channels
    fast = settings.capability >= 90 and ring.bandwidth_intra > _FAST_CHANNEL
    if fast and nodes > 1 and channels < _FEW_CHANNELS:
        channels *= 2
    communicator = NcclCommunicator(
        ranks, nodes, settings.capability, graphs, min(channels, _MOST_CHANNELS),
        cpu=settings.cpu, cpu_vendor=settings.cpu_vendor,
        collnet=nodes > 1 and any(name.startswith("CollNet") for name in graphs),
    )  # fmt: skip
    return communicator, level.corrections
