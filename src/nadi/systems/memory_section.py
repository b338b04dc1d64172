"""The section ``memory`` of a system file: with units as written, and as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from nadi.systems.fabrics import FilePlace
from nadi.systems.memory_tiers import (
    OWN_TIERS,
    LoadedLatency,
    MemoryPath,
    MemoryTier,
    TierKind,
    remote_tier,
)
from nadi.units import lowered, parse_bytes, parse_ns, parse_rate

_Value = TypeVar("_Value")
_MOST = 1 << 31  # of anything that is counted
_MOST_PORTS = 4096  # of a switch: each is a link
MOST_LATENCY = 3_600_000_000_000  # an hour, in ns
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_UNLIMITED = "unlimited"


class _Lane(NamedTuple):
    """What a lane of a link carries: bits per ns with its coding, and shares of data in them."""

    bits: float
    reads: float
    writes: float


# PCIe: a packet of 256 bytes has 24 more (framing 4, header 16, check sum 4), or in flits of 256
# bytes, of which 236 are packets, 16. CXL: a flit has slots of 16 bytes: four in 68 bytes,
# fifteen in 256; a line of 64 bytes takes four of them, a header for each that is written, and
# one header for two that are read. The best that the layouts in the specifications of PCIe 6.0
# and CXL 3.0 allow: measured devices reach less.
_CODED = 128 / 130
_GENERATIONS = {
    "PCIe 3.0": _Lane(8 * _CODED, 256 / 280, 256 / 280),
    "PCIe 4.0": _Lane(16 * _CODED, 256 / 280, 256 / 280),
    "PCIe 5.0": _Lane(32 * _CODED, 256 / 280, 256 / 280),
    "PCIe 6.0": _Lane(64, 236 / 256 * 256 / 272, 236 / 256 * 256 / 272),
    "CXL 1.1": _Lane(32 * _CODED, 64 / 68 * 8 / 9, 64 / 68 * 4 / 5),
    "CXL 2.0": _Lane(32 * _CODED, 64 / 68 * 8 / 9, 64 / 68 * 4 / 5),
    "CXL 3.0": _Lane(64, 240 / 256 * 8 / 9, 240 / 256 * 4 / 5),
}
_Generation = Literal[
    "", "PCIe 3.0", "PCIe 4.0", "PCIe 5.0", "PCIe 6.0", "CXL 1.1", "CXL 2.0", "CXL 3.0"
]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the section; unknown keys are errors."""


class _Link(_Part, frozen=True, kw_only=True):
    """Bandwidths: of both directions, of each, or of the lanes of a generation."""

    bandwidth: str = ""
    read: str = ""
    write: str = ""
    generation: _Generation = ""
    lanes: int = 0


class PortPart(_Link, frozen=True, kw_only=True):
    """The ports of a switch before a memory; its bandwidths are those of one."""

    ports: int


class PathPart(_Link, frozen=True, kw_only=True):
    """A link between a rank and its tiers."""

    name: str
    shared_by: int = 1
    network: tuple[str, ...] = ()


class CurvePart(_Part, frozen=True, kw_only=True):
    """How the latency of a tier's device grows with load."""

    slope: float = 1.0
    knee: float = 0.6
    saturation: float = 0.95
    most: str = "0 ns"
    outstanding: int = 1024


class TierPart(_Link, frozen=True, kw_only=True):
    """A memory tier; bandwidths and capacity are those of one device."""

    name: str
    kind: TierKind
    capacity: str = ""
    latency: str = "0 ns"
    duplex: bool | None = None
    shared_by: int | Literal["all"] | None = None
    devices: int = 1
    path: str = ""
    hour: float = 0.0
    switch: PortPart | None = None
    loaded: CurvePart | None = None


class LoadedPart(CurvePart, frozen=True, kw_only=True):
    """Latency of remote memory under load."""

    latency: str
    read: str
    write: str


class RemotePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Remote memory: a second tier."""

    kind: Literal["none", "per-rank", "pool", "per-node"]
    bandwidth: str = ""
    latency: str = "0 ns"
    ranks_per_node: int = 1
    capacity: str = ""
    loaded: LoadedPart | None = None


class MemoryPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of a rank."""

    bandwidth: str = ""
    capacity: str = ""
    efficiency: float = 0.0
    remote: RemotePart | None = None
    paths: tuple[PathPart, ...] = ()
    tiers: tuple[TierPart, ...] = ()


def memory_paths(
    parts: Sequence[PathPart], networks: dict[str, int], known: Sequence[str], name: str
) -> tuple[MemoryPath, ...]:
    """Return the paths of a system file, checked.

    - ``parts``: As written.
    - ``networks``: The positions of fabrics or dimensions in a system of one size, by name.
    - ``known``: The names of all that the file has.
    - ``name``: Of the file.
    - Raises FormatError if a value is invalid; the message names its path.
    """
    found: list[MemoryPath] = []
    for i, part in enumerate(parts):
        where = _Where(name, f"$.memory.paths[{i}]")
        where.check_name(part.name, [path.name for path in found])
        for k, network in enumerate(part.network):
            if network not in known:
                where.refuse(f"network[{k}]", f"{network!r} is not a network of the file",
                             f"known: {', '.join(known)}")  # fmt: skip
        read, write = _bandwidths(part, where)
        found.append(
            MemoryPath(
                name=part.name,
                read_bandwidth=read,
                write_bandwidth=write,
                shared_by=where.count("shared_by", part.shared_by),
                dimensions=tuple(
                    sorted({networks[one] for one in part.network if one in networks})
                ),
            )
        )
    return tuple(found)


def memory_tiers(
    parts: Sequence[TierPart], paths: Sequence[MemoryPath], name: str
) -> tuple[MemoryTier, ...]:
    """Return the tiers of a system file, checked.

    - Raises FormatError if a value is invalid; the message names its path.
    """
    found: list[MemoryTier] = []
    for i, part in enumerate(parts):
        where = _Where(name, f"$.memory.tiers[{i}]")
        where.check_name(part.name, [tier.name for tier in found])
        if part.path and part.path not in [path.name for path in paths]:
            where.refuse("path", f"{part.path!r} is not a path of the file",
                         f"known: {', '.join(path.name for path in paths) or 'none'}; describe "
                         "it in memory.paths")  # fmt: skip
        found.append(_tier(part, where))
    return tuple(found)


def remote_memory(part: RemotePart | None, name: str) -> MemoryTier | None:
    """Return the remote memory of a system file, checked.

    - Raises FormatError if a value is invalid; the message names its path.
    """
    if part is None:
        return None
    where = _Where(name, "$.memory.remote")
    rate = where.read("bandwidth", part.bandwidth, parse_rate) / 1e9 if part.bandwidth else 0.0
    if rate and rate < 1:
        where.refuse("bandwidth", f"{part.bandwidth!r} is below 1 GB/s", "write at least 1 GB/s")
    return remote_tier(
        part.kind,
        int(where.latency("latency", part.latency)),
        round(rate),
        where.count("ranks_per_node", part.ranks_per_node),
        where.read("capacity", part.capacity, parse_bytes) if part.capacity else 0,
        _loaded(part.loaded, where),
    )


def _loaded(part: LoadedPart | None, where: _Where) -> LoadedLatency | None:
    """Return how the latency of remote memory grows with load."""
    if part is None:
        return None
    read = where.read("loaded.read", part.read, parse_rate) / 1e9
    write = where.read("loaded.write", part.write, parse_rate) / 1e9
    latency = where.latency("loaded.latency", part.latency)
    return _curve(part, where, read, write, latency)


def _tier(part: TierPart, where: _Where) -> MemoryTier:
    read, write = _bandwidths(part, where)
    devices = where.count("devices", part.devices)
    latency = where.latency("latency", part.latency)
    loaded = None
    if part.loaded:
        if not (read and write and latency):
            where.refuse("loaded", "a curve begins at a latency and ends at a bandwidth",
                         "state latency and bandwidth, or leave out loaded")  # fmt: skip
        loaded = _curve(part.loaded, where, read, write, latency)
    by_lanes = bool(part.generation) and not (part.bandwidth or part.read)
    duplex = by_lanes and loaded is None if part.duplex is None else part.duplex
    if duplex and loaded:
        where.refuse("duplex", "the curve says what reads and writes together reach",
                     "leave out duplex or loaded")  # fmt: skip
    if not 0 <= part.hour < float("inf"):
        where.refuse(
            "hour", f"{part.hour:g} is no price", "state that of an hour of one such memory"
        )
    shared_by = part.shared_by
    if shared_by is None:
        shared_by = "all" if part.kind == "cxl-pool" else 1
    ports, port_read, port_write = 0, 0.0, 0.0
    if part.switch:
        of_switch = _Where(where.name, f"{where.path}.switch")
        ports = of_switch.count("ports", part.switch.ports)
        if ports > _MOST_PORTS:
            of_switch.refuse(
                "ports", f"{ports:,} are over {_MOST_PORTS:,}", "give those of one switch"
            )
        port_read, port_write = _bandwidths(part.switch, of_switch)
    return MemoryTier(
        name=part.name,
        kind=part.kind,
        capacity=devices * where.read("capacity", part.capacity, parse_bytes)
        if part.capacity
        else 0,
        read_bandwidth=devices * read,
        write_bandwidth=devices * write,
        duplex=duplex,
        latency=latency,
        loaded=loaded,
        shared_by=0 if shared_by == "all" else where.count("shared_by", shared_by),
        devices=devices,
        ports=ports,
        port_read_bandwidth=port_read,
        port_write_bandwidth=port_write,
        path=part.path,
        price_per_hour=part.hour,
    )


def _bandwidths(part: _Link, where: _Where) -> tuple[float, float]:
    """Return the bandwidths of reads and writes in bytes per ns; 0 for no limit."""
    if part.lanes and not part.generation:
        where.refuse("lanes", "they have no bandwidth without a generation",
                     f"state generation, such as {list(_GENERATIONS)[-2]!r}")  # fmt: skip
    if bool(part.read) != bool(part.write) or (part.bandwidth and part.read):
        where.refuse("bandwidth", "both directions need one",
                     "state bandwidth, or both read and write")  # fmt: skip
    if part.bandwidth or part.read:
        texts = ("bandwidth", "bandwidth") if part.bandwidth else ("read", "write")
        read, write = (where.rate(key, getattr(part, key)) for key in texts)
        return read, write
    if not part.generation:
        where.refuse("bandwidth", "it has none",
                     'state bandwidth, read and write, or generation and lanes; "unlimited" for '
                     "no limit")  # fmt: skip
    lane = _GENERATIONS[part.generation]
    lanes = where.count("lanes", part.lanes)
    return lanes * lane.bits / 8 * lane.reads, lanes * lane.bits / 8 * lane.writes


def _curve(
    part: CurvePart, where: _Where, read: float, write: float, latency: float
) -> LoadedLatency:
    """Return a curve with its peaks and idle latency."""
    values = {
        "idle_ns": latency, "read_gbps": read, "write_gbps": write, "slope": part.slope,
        "knee": part.knee, "saturation": part.saturation,
        "most_ns": where.latency("loaded.most", part.most),
        "outstanding": part.outstanding,
    }  # fmt: skip
    try:
        return msgspec.convert(values, LoadedLatency)
    except msgspec.ValidationError as error:
        where.refuse("loaded", lowered(str(error)), "give another value (docs/systems.md)")


class _Where(FilePlace):
    """A part of the section."""

    def rate(self, key: str, text: str) -> float:
        """Read a bandwidth in bytes per ns; 0 for one without limit."""
        return 0.0 if text == _UNLIMITED else self.read(key, text, parse_rate) / 1e9

    def latency(self, key: str, text: str) -> float:
        """Read a latency in ns. Load multiplies it, so it must stay far below the largest time."""
        latency = self.read(key, text, parse_ns)
        if latency > MOST_LATENCY:
            self.refuse(key, f"{text!r} is longer than an hour", "give the latency of an access")
        return float(latency)

    def check_name(self, text: str, others: Sequence[str]) -> None:
        if not _NAME.fullmatch(text):
            self.refuse("name", f"{text!r} is not a name", "write letters, digits, - and _")
        if text in OWN_TIERS:
            self.refuse("name", f"{text} is the device's own memory",
                        "describe it by memory.bandwidth and memory.capacity")  # fmt: skip
        if text in others:
            self.refuse("name", f"{text!r} occurs twice", "give each a name of its own")
