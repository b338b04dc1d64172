"""The sections of a system file: their keys, and what each may be."""

from __future__ import annotations

from typing import Literal

import msgspec

from nadi.systems.fabric_files import FabricPart, LinkPart, RoutePart

__all__ = [
    "Algorithms",
    "BusPart",
    "CollectivesPart",
    "ComputePart",
    "CostPart",
    "DimensionPart",
    "NetworkPart",
    "SchedulingPart",
    "SystemPart",
]

Algorithms = str | tuple[str, ...]


class SystemPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of a file; unknown keys are errors."""


class DimensionPart(SystemPart, frozen=True):
    """A dimension of the network."""

    topology: Literal["ring", "fully-connected", "switch", "mesh", "torus"]
    bandwidth: str
    latency: str = "0 ns"
    size: int | Literal["any"] = "any"


class NetworkPart(SystemPart, frozen=True):
    """The network: dimensions, and what physical links they run on."""

    dimensions: tuple[DimensionPart, ...]
    shapes: tuple[str, ...] = ()
    congestion: bool = False
    rendezvous: bool = False
    fabrics: tuple[FabricPart, ...] = ()
    links: dict[str, LinkPart] = {}
    routes: tuple[RoutePart, ...] = ()


class ComputePart(SystemPart, frozen=True):
    """The device of a rank."""

    peak: str = ""
    time: Literal["recorded", "roofline"] = "recorded"
    devices: tuple[str, ...] = ()
    device: str = ""
    efficiency: float = 0.0


class BusPart(SystemPart, frozen=True):
    """A memory bus that a rank's packets share."""

    latency: str = "0 ns"
    overhead: str = "0 ns"
    pause: str = "0 ns"
    bandwidth: str = ""
    reduction: str = "1 ns"


class CollectivesPart(SystemPart, frozen=True):
    """How collectives run."""

    all_reduce: Algorithms = "ring"
    reduce_scatter: Algorithms = "ring"
    all_gather: Algorithms = "ring"
    all_to_all: Algorithms = "direct"
    broadcast: Algorithms = "ring"
    reduce: Algorithms = "ring"
    gather: Algorithms = "direct"
    scatter: Algorithms = "direct"
    barrier: Algorithms = ()
    bandwidth_aware: bool = True
    chunks: int = 1
    least_chunk: str = "1 B"
    endpoint_delay: str = "10 ns"
    group_endpoint_delay: str = ""
    injection_scale: int = 1
    start: str = "0 ns"
    custom: dict[str, str] = {}


class SchedulingPart(SystemPart, frozen=True):
    """What runs at once, and in which order."""

    active_chunks: int = 1
    queues: int = 1
    policy: Literal["fifo", "lifo", "explicit"] = "fifo"
    slots: Literal["device", "astra-sim"] | None = None
    replay_only: bool = False


class CostPart(SystemPart, frozen=True):
    """What a rank costs."""

    rank_hour: float = 0.0
    currency: str = "USD"
