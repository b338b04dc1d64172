"""NCCL on a system: its version and graphs, as a file states them, and what its model leaves out.

That is a launch, longer steps, few channels, a ramp. NCCL's model chooses; its latencies were
measured on earlier machines, and it lets all channels carry the smallest collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NoReturn, TypeVar

import msgspec
import numpy as np

from nadi.errors import FormatError, UsageError
from nadi.systems.nccl.measured import NcclLog
from nadi.systems.nccl.nccl_cost_table import (
    PROTOCOLS,
    ChannelGraph,
    CostTable,
    NcclChoice,
    NcclCommunicator,
    channels_used,
    ring_steps,
)
from nadi.systems.nccl.nccl_versions import NcclRules, Triple, nccl_rules
from nadi.trace.arrays import Floats, Ints
from nadi.units import parse_bytes, parse_ns, parse_rate

# the share of a channel's bandwidth that a protocol leaves: LL writes a flag beside each 4 bytes,
# LL128 8 bytes of flags beside 120
_SHARES = {"LL": 0.5, "LL128": 120 / 128, "Simple": 1.0}
# bytes that a channel moves at once: those of all its threads (src/enqueue.cc)
_LINE = {"LL": 512 * 8, "LL128": 640 * 8, "Simple": 512 * 64}
# of a ring within a node: the part of a step that its first and last one together take more, and
# the share of the ramp that one without steps has, of one with as many as 8 GPUs all-reduce in.
# Fitted to kernels on 2, 4 and 8 A100 (NCCL 2.27.3); those of H100 and Blackwell were left out
_ENDS, _FIRST, _STEPS = 0.42, 0.4, 14


class Corrections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a collective takes beyond NCCL's model, in three regimes."""

    launch: float = 0.0  # time that every collective takes more, us: latency
    # ramp, ramp_size: most that filling the pipeline takes more, us, and at how many bytes it is
    # half of that: the transition
    ramp: float = 0.0
    ramp_size: float = 1.0
    efficiency: float = 1.0  # share of the modeled bandwidth that is reached
    # steps, hops: how many times NCCL's latency a step takes within a node and between nodes, by
    # protocol; 1 where none is stated: latency
    steps: dict[str, float] = {}
    hops: dict[str, float] = {}
    ring_ramp: float = 0.0  # as ``ramp``, of a ring within a node; 0 for the same

    def with_bytes(self, size: int, latency: float, of_bytes: float) -> float:
        """Give the time of a collective, us, from its latency and what the model has for bytes."""
        filling = self.ramp * size / (size + self.ramp_size)
        return self.launch + latency + max(of_bytes, 0.0) / self.efficiency + filling

    def of_ring(self, steps: int) -> Corrections:
        """Give the corrections of a ring within a node, by its steps.

        Each channel's block of threads does one step after the other, so that its ramp grows with
        their number. It also begins with a step that only sends and ends with one that only
        receives, beside its steps that do both.
        """
        ramp = self.ring_ramp or self.ramp
        share = min(_FIRST + (1 - _FIRST) * steps / _STEPS, 1.0)
        efficiency = self.efficiency / (1 + _ENDS / steps)
        return msgspec.structs.replace(self, ramp=ramp * share, efficiency=efficiency)


def corrected_times(
    sizes: Ints, collective: str, choices: Sequence[NcclChoice], communicator: NcclCommunicator,
    corrections: Corrections, tables: tuple[CostTable, CostTable],
) -> Floats:  # fmt: skip
    """Give the times of collectives, us, from what NCCL chose and thinks of them.

    - ``sizes``: int64 bytes, shape (sizes,), as NCCL counts them.
    - ``choices``: One for each size, of NCCL's own table.
    - ``tables``: NCCL's own, and that of :func:`measured_rules`.
    """
    table, longer = tables
    times = np.empty(sizes.size)
    for row, (size, choice) in enumerate(zip(sizes.tolist(), choices, strict=True)):
        key = (collective, choice.algorithm, choice.protocol)
        of_bytes = choice.time - table[key].latency
        chosen = corrections
        rooted = collective in ("broadcast", "reduce")  # no rank's part goes round
        if choice.algorithm == "Ring" and communicator.nodes == 1 and not rooted:
            chosen = corrections.of_ring(ring_steps(collective, communicator.ranks))
        few = _few_channels(size, key, communicator, of_bytes / chosen.efficiency)
        times[row] = chosen.with_bytes(size, longer[key].latency + few, of_bytes)
    return times


def measured_rules(rules: NcclRules, corrections: Corrections) -> NcclRules:
    """Return the rules of a version with steps as long as measured."""
    if not corrections.steps and not corrections.hops:
        return rules
    return replace(
        rules,
        nvlink=_scaled(rules.nvlink, corrections.steps),
        pci=_scaled(rules.pci, corrections.steps),
        network=_scaled(rules.network, corrections.hops),
    )


def _scaled(latencies: dict[str, Triple], factors: dict[str, float]) -> dict[str, Triple]:
    by_protocol = [factors.get(protocol, 1.0) for protocol in PROTOCOLS]
    return {
        algorithm: (triple[0] * by_protocol[0], triple[1] * by_protocol[1],
                    triple[2] * by_protocol[2])
        for algorithm, triple in latencies.items()
    }  # fmt: skip


def _few_channels(
    size: int, key: tuple[str, str, str], communicator: NcclCommunicator, of_bytes: float
) -> float:  # fmt: skip
    """Give what a collective takes longer as only some channels carry it, us.

    A ring's step moves a rank's part of each channel, and a channel is no faster than its link. A
    tree hands on whole lines: the first one passes all of its steps before the pipeline is full.
    """
    collective, algorithm, protocol = key
    if algorithm not in ("Ring", "Tree"):
        return 0.0
    graph = communicator.graphs[algorithm]
    per_channel = size / channels_used(size, (algorithm, protocol), communicator)[0]
    within = graph.bandwidth_intra * _SHARES[protocol] * 1000  # bytes a us
    between = min(graph.bandwidth_inter, graph.bandwidth_intra) * _SHARES[protocol] * 1000
    line = min(per_channel, _LINE[protocol])
    several = communicator.nodes > 1
    if algorithm == "Tree":
        others = communicator.ranks // communicator.nodes - 1
        doublings = communicator.nodes.bit_length() - 1
        return 2 * line * (others / within + doublings / between)
    steps, slowest = ring_steps(collective, communicator.ranks), between if several else within
    if collective in ("broadcast", "reduce"):
        return steps * line / slowest
    return max(steps * per_channel / communicator.ranks / slowest - of_bytes, 0.0)


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
        algorithm: graph
        for key, graph in log.graphs.items()
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


_Value = TypeVar("_Value")
_PathType = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET"]
_Algorithm = Literal[
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"
]  # fmt: skip
_Protocol = Literal["LL", "LL128", "Simple"]
_MOST_TIMES = 100.0
# where none is stated
_PATTERNS = {"ring": 4, "tree": 1, "nvls": 5, "collnet_direct": 6, "collnet_chain": 3}


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
