"""The section ``nccl`` of a system file: with units as written, and as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn, TypeVar

import msgspec

from nadi.errors import FormatError, UsageError
from nadi.systems.nccl.nccl_communicator import ChannelGraph
from nadi.systems.nccl.nccl_corrections import Corrections
from nadi.systems.nccl.nccl_settings import ALGORITHMS_OF_GRAPH, NcclLevel, NcclSettings
from nadi.systems.nccl.nccl_versions import nccl_rules
from nadi.units import parse_bytes, parse_ns, parse_rate

_Value = TypeVar("_Value")
_PathType = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET"]
_Algorithm = Literal[
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"
]  # fmt: skip
_Protocol = Literal["LL", "LL128", "Simple"]
_MOST_TIMES = 100.0
# where none is stated
_PATTERNS = {"ring": 4, "tree": 1, "nvls": 5, "collnet_direct": 6, "collnet_chain": 3}
_MOST_CHANNELS = 64


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the section; unknown keys are errors."""


class _Graph(_Part, frozen=True):
    channels: int
    bandwidth_intra: str
    bandwidth_inter: str = ""
    type_intra: _PathType = "NVL"
    type_inter: _PathType = "PIX"
    latency_inter: str = "0 ns"
    same_channels: bool = True
    pattern: int = 0


class _Level(_Part, frozen=True):
    ring: _Graph
    tree: _Graph | None = None
    nvls: _Graph | None = None
    collnet_direct: _Graph | None = None
    collnet_chain: _Graph | None = None
    launch: str = "0 ns"
    ramp: str = "0 ns"
    ramp_size: str = "1 MB"
    ring_ramp: str = "0 ns"
    efficiency: float = 1.0
    steps: dict[_Protocol, float] = {}
    hops: dict[_Protocol, float] = {}


class NcclSection(_Part, frozen=True):
    """NCCL's version and graphs, within a node and over nodes; ``docs/collectives.md``."""

    version: str
    capability: int = 0
    node: _Level | None = None
    nodes: _Level | None = None
    gpu: Literal["", "gfx942", "gfx950"] = ""
    cpu: Literal["x86", "arm", "power"] = "x86"
    cpu_vendor: Literal["intel", "amd", "zhaoxin"] = "intel"
    algorithms: tuple[_Algorithm, ...] = ()
    protocols: tuple[_Protocol, ...] = ()
    source: str = ""


def nccl_settings(section: NcclSection, ranks_per_node: int, name: str) -> NcclSettings:
    """Convert a section to values; FormatError names the path of what is invalid in it."""
    if section.node is None and (section.nodes is None or not section.gpu):
        _refuse(name, "$.nccl.node", "it is missing", "describe collectives within a node")
    if not section.gpu:
        _check_nccl(section, name)
    return NcclSettings(
        version=section.version,
        capability=section.capability,
        ranks_per_node=ranks_per_node,
        node=_level(section.node, f"{name}: $.nccl.node") if section.node else None,
        nodes=_level(section.nodes, f"{name}: $.nccl.nodes") if section.nodes else None,
        cpu=section.cpu,
        cpu_vendor=section.cpu_vendor,
        algorithms=section.algorithms,
        protocols=section.protocols,
        gpu=section.gpu,
    )


def _check_nccl(section: NcclSection, name: str) -> None:
    """Check what NCCL's model needs, and RCCL's does not."""
    try:
        nccl_rules(section.version)
    except UsageError as error:
        _refuse(name, "$.nccl.version", error.what, error.remedy)
    if section.capability < 70:
        what = f"{section.capability} is not a compute capability from 70 on"
        _refuse(name, "$.nccl.capability", what, "write 90 for 9.0")


def _level(given: _Level, where: str) -> NcclLevel:
    graphs: dict[str, ChannelGraph] = {}
    for key, algorithms in ALGORITHMS_OF_GRAPH.items():
        stated = getattr(given, key)
        if stated is not None:
            graph = _graph(stated, f"{where}.{key}", _PATTERNS[key])
            graphs |= dict.fromkeys(algorithms, graph)
    if "Tree" in graphs:  # NCCL uses as many channels for both
        least = min(graphs["Ring"].channels, graphs["Tree"].channels)
        for name in ("Ring", "Tree", "PAT"):
            graphs[name] = msgspec.structs.replace(graphs[name], channels=least)
    if not 0 < given.efficiency <= 2:
        _refuse(where, "efficiency", f"{given.efficiency} is not above 0 and up to 2", "correct it")
    for key in ("steps", "hops"):
        for protocol, times in getattr(given, key).items():
            if not 0 < times <= _MOST_TIMES:
                what = f"{times} is not above 0 and up to {_MOST_TIMES:g}"
                _refuse(where, f"{key}.{protocol}", what, "say how many times NCCL's latency it is")
    corrections = Corrections(
        _read(f"{where}.launch", given.launch, parse_ns) / 1000,
        _read(f"{where}.ramp", given.ramp, parse_ns) / 1000,
        max(_read(f"{where}.ramp_size", given.ramp_size, parse_bytes), 1),
        given.efficiency,
        {str(protocol): times for protocol, times in given.steps.items()},
        {str(protocol): times for protocol, times in given.hops.items()},
        _read(f"{where}.ring_ramp", given.ring_ramp, parse_ns) / 1000,
    )
    return NcclLevel(graphs, corrections)


def _graph(given: _Graph, where: str, pattern: int) -> ChannelGraph:
    if not 1 <= given.channels <= _MOST_CHANNELS:
        _refuse(where, "channels", f"{given.channels} is not 1 to {_MOST_CHANNELS}", "correct it")
    within = _read(f"{where}.bandwidth_intra", given.bandwidth_intra, parse_rate) / 1e9
    between = within
    if given.bandwidth_inter:
        between = _read(f"{where}.bandwidth_inter", given.bandwidth_inter, parse_rate) / 1e9
    latency = _read(f"{where}.latency_inter", given.latency_inter, parse_ns) / 1000
    return ChannelGraph(
        given.channels, within, between, given.type_intra, given.type_inter, latency,
        given.same_channels, given.pattern or pattern,
    )  # fmt: skip


def _read(where: str, text: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise FormatError(where, str(error), "write the number with its unit") from None


def _refuse(where: str, key: str, what: str, remedy: str) -> NoReturn:
    raise FormatError(f"{where}: {key}" if key.startswith("$") else f"{where}.{key}", what, remedy)
