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
_VERSION = re.compile(r"\bNCCL version (\d+\.\d+\.\d+)")
_RANKS = re.compile(r"\bnRanks (\d+) nNodes (\d+)\b")
_GRAPH = re.compile(
    r"Pattern (\d+), crossNic \d+, nChannels (\d+), bw ([\d.]+)/([\d.]+), "
    r"type (\w+)/(\w+), sameChannels (\d)"
)
# by pattern: 1 to 3 are trees, and the second one that a rank prints is that of CollNet's chains
_KEYS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}
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
        If no line describes the graph of a ring.
    """
    version, ranks, nodes = "", 0, 0
    of_ranks: dict[tuple[str, str], LoggedGraph] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        if not version and (found := _VERSION.search(line)):
            version = found[1]
        info = _INFO.match(line)
        if info is None:
            continue
        if not ranks and (found := _RANKS.search(info[2])):
            ranks, nodes = int(found[1]), int(found[2])
        found = _GRAPH.search(info[2])
        key = _KEYS.get(int(found[1])) if found else None
        if found and key:
            if key == "tree" and (info[1], key) in of_ranks:
                key = "collnet_chain"
            of_ranks.setdefault((info[1], key), _graph(found, name))
    graphs: dict[str, LoggedGraph] = {}
    for (_, key), graph in of_ranks.items():
        graphs[key] = _least(graphs[key], graph) if key in graphs else graph
    if "ring" not in graphs:
        raise FormatError(
            name, "no line describes a ring (Pattern 4, crossNic ...)",
            "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING and give what it prints",
        )  # fmt: skip
    return NcclLog(version, ranks, nodes, graphs)


def _graph(found: re.Match[str], name: str) -> LoggedGraph:
    for path_type in (found[5], found[6]):
        if path_type not in _FAR:
            raise FormatError(
                name, f"{path_type} is not a type of path", f"known are {', '.join(_FAR)}"
            )
    return LoggedGraph(
        int(found[1]), int(found[2]), float(found[3]), float(found[4]), found[5], found[6],
        found[7] == "1",
    )  # fmt: skip


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
