"""NCCL's own log: the graphs that its topology search found.

It is what a program prints to standard output with ``NCCL_DEBUG=INFO`` and
``NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING``, of one rank or of several.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nadi.errors import FormatError

__all__ = ["LoggedGraph", "NcclLog", "parse_nccl_log"]

_INFO = re.compile(r"^(.*?)\bNCCL INFO (.*)$")
_VERSION = re.compile(r"\bNCCL version ([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})")
_RANKS = re.compile(r"\bnRanks ([0-9]{1,9}) nNodes ([0-9]{1,9})\b")
_BEGIN = re.compile(r"Pattern \d+, crossNic")
_GRAPH = re.compile(
    r"Pattern ([0-9]{1,3}), crossNic [0-9]+, nChannels ([0-9]{1,3}), "
    r"bw ([0-9]{1,6}(?:\.[0-9]+)?)/([0-9]{1,6}(?:\.[0-9]+)?), "
    r"type (\w+)/(\w+), sameChannels ([0-9])"
)
# by pattern: 1 to 3 are trees, and the second one that a rank prints is that of CollNet's chains
_KEYS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}
_REMEDY = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING and give what it prints"
_FAR = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")


class LoggedGraph(NamedTuple):
    """A graph as the log has it; bandwidths in GB/s of a channel."""

    pattern: int
    channels: int
    bandwidth_intra: float
    bandwidth_inter: float
    type_intra: str
    type_inter: str
    same_channels: bool


class NcclLog(NamedTuple):
    """What the log of a communicator says.

    Attributes
    ----------
    version
        Of NCCL; empty if it is not in the log.
    ranks, nodes
        Of the communicator; 0 if they are not in the log.
    graphs
        By name: ring, tree, nvls, and where switches reduce collnet_direct and collnet_chain.
    """

    version: str
    ranks: int
    nodes: int
    graphs: dict[str, LoggedGraph]


def parse_nccl_log(content: bytes, name: str) -> NcclLog:
    """Read a log; of several ranks the least of each figure counts, as NCCL takes it. O(lines).

    Only the first communicator of each process is read.

    Raises
    ------
    FormatError
        If no line describes the graph of a ring, or one describes a graph in other words.
    """
    version, ranks, nodes = "", 0, 0
    of_ranks: dict[tuple[str, str], LoggedGraph] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if not version and (found := _VERSION.search(line)):
            version = found[1]
        info = _INFO.match(line)
        if info is None:
            continue
        if not ranks and (found := _RANKS.search(info[2])):
            ranks, nodes = int(found[1]), int(found[2])
        if not _BEGIN.search(info[2]):
            continue
        graph = _graph(info[2], f"{name}, line {number}")
        key = _KEYS.get(graph.pattern)
        if key:
            if key == "tree" and (info[1], key) in of_ranks:
                key = "collnet_chain"
            of_ranks.setdefault((info[1], key), graph)
    graphs: dict[str, LoggedGraph] = {}
    for (_, key), graph in of_ranks.items():
        graphs[key] = _least(graphs[key], graph) if key in graphs else graph
    graphs = {key: graph for key, graph in graphs.items() if _is_found(graph)}
    if "ring" not in graphs:
        what = "no line describes a ring (Pattern 4, crossNic ...) with channels and bandwidths"
        raise FormatError(name, what, _REMEDY)
    return NcclLog(version, ranks, nodes, graphs)


def _graph(text: str, where: str) -> LoggedGraph:
    found = _GRAPH.search(text)
    if found is None:
        raise FormatError(where, "it describes a graph in words that are not known", _REMEDY)
    for path_type in (found[5], found[6]):
        if path_type not in _FAR:
            raise FormatError(
                where, f"{path_type[:40]} is not a type of path", f"known are {', '.join(_FAR)}"
            )
    return LoggedGraph(
        int(found[1]), int(found[2]), float(found[3]), float(found[4]), found[5], found[6],
        found[7] == "1",
    )  # fmt: skip


def _is_found(graph: LoggedGraph) -> bool:
    """Return whether it is one that can be used: NCCL prints the others with zeros."""
    return graph.channels > 0 and min(graph.bandwidth_intra, graph.bandwidth_inter) > 0


def _least(one: LoggedGraph, other: LoggedGraph) -> LoggedGraph:
    return LoggedGraph(
        max(one.pattern, other.pattern),
        min(one.channels, other.channels),
        min(one.bandwidth_intra, other.bandwidth_intra),
        min(one.bandwidth_inter, other.bandwidth_inter),
        max(one.type_intra, other.type_intra, key=_FAR.index),
        max(one.type_inter, other.type_inter, key=_FAR.index),
        one.same_channels and other.same_channels,
    )
