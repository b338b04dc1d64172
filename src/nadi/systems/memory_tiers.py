"""Memory beyond that of a device, as values: tiers, and the paths over which ranks reach them.

Bandwidths are bytes per ns and latencies ns, as floats. Of a path, a port and a link, reads and
writes have bandwidths of their own, at once: what is read goes towards the rank, and what is
written leaves it.

Latency of a memory under load, and the bandwidth that so many accesses under way reach.

The curve is that of CXLMemSim (src/cxlendpoint.cpp at 71c5979), which was calibrated with Intel's
Memory Latency Checker. Its penalties are times of 64 bytes at the peak.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from nadi.trace.arrays import Floats, Ints

_LINE = 64.0  # bytes of an access
_PURE = 0.05  # a share of reads or writes below which there are none
_MOST_TIMES = 10.0  # of the idle latency, the largest penalty
_RATIOS = np.linspace(0.0, 1.0, 41)
_BISECTIONS = 60
_Rate = Annotated[float, Meta(gt=0)]
_Share = Annotated[float, Meta(gt=0, lt=1)]


class LoadedLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How latency grows with load.

    Attributes
    ----------
    idle_ns
        Latency of an access without load.
    read_gbps, write_gbps
        Peak bandwidth of reads alone and of writes alone, in 10^9 bytes a second.
    slope
        Penalty of full load, without queues.
    knee, saturation
        Loads, as shares of the peak, from which queues form, and from which no more is served.
    most_ns
        The largest penalty, if ten times the idle latency is less.
    outstanding
        Accesses of 64 bytes that are under way at once.
    """

    idle_ns: _Rate
    read_gbps: _Rate
    write_gbps: _Rate
    slope: _NotNegative = 1.0
    knee: _Share = 0.6
    saturation: _Share = 0.95
    most_ns: _NotNegative = 0.0
    outstanding: _Rate = 1024.0

    def __post_init__(self) -> None:
        if self.knee >= self.saturation:
            raise ValueError(f"knee is {self.knee:g}, and must be below saturation")


def peak_rate(curve: LoadedLatency, reads: Floats) -> Floats:
    """Give the peak in bytes a second for shares of reads: linear through both pure and half."""
    read, write = curve.read_gbps, curve.write_gbps
    mixed = 2 / (1 / read + 1 / write)
    found = np.interp(reads, [0.0, 0.5, 1.0], [write, mixed, read])
    found = np.where(reads >= 1 - _PURE, read, np.where(reads <= _PURE, write, found))
    rate: Floats = found * 1e9
    return rate


def latency_ns(curve: LoadedLatency, load: Floats, peak: Floats) -> Floats:
    """Give the latency at loads, shares of a peak in bytes a second."""
    line = _LINE / peak * 1e9
    penalty = line * load * curve.slope
    queued = np.minimum(load, curve.saturation)
    over = np.maximum(queued - curve.knee, 0.0) / (curve.saturation - curve.knee)
    penalty = penalty + line * queued / (1 - queued) * over**2
    beyond = np.maximum(load - curve.saturation, 0.0) / (1 - curve.saturation)
    penalty = penalty + curve.idle_ns * beyond
    most = max(curve.most_ns, _MOST_TIMES * curve.idle_ns)
    latency: Floats = curve.idle_ns + np.minimum(penalty, most)
    return latency


def reached_rate(curve: LoadedLatency, reads: Floats) -> Floats:
    """Give the bytes a second that the accesses under way reach, for shares of reads.

    As many bytes are under way as bandwidth times latency, and latency grows with bandwidth:
    of both the load at which they agree, or the peak.
    """
    found: Floats = np.interp(reads, _RATIOS, _reached(curve))
    return found


@lru_cache(maxsize=1024)
def _reached(curve: LoadedLatency) -> Floats:
    """Give the rate for each of ``_RATIOS``."""
    peak = peak_rate(curve, _RATIOS)
    under_way = curve.outstanding * _LINE
    low, high = np.zeros(peak.size), np.ones(peak.size)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = middle * peak * latency_ns(curve, middle, peak) / 1e9 <= under_way
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return high * peak


TierKind = Literal["dram", "cxl", "cxl-pool", "c2c", "nvme"]
OWN_TIERS = ("hbm", "device")  # names of the memory of a rank's device, tier 1

_NotNegative = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1, le=1 << 31)]
_CountOrAll = Annotated[int, Meta(ge=0, le=1 << 31)]
_Bytes = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class MemoryPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link between a rank and everything that is not beside it, such as PCIe.

    Attributes
    ----------
    name
        By which tiers name it.
    read_bandwidth, write_bandwidth
        Towards the rank, and away from it; 0 for no limit.
    shared_by
        How many neighboring ranks have one such link together.
    dimensions
        The dimensions of the network whose messages take it, too, by position; of a system with
        fabrics their positions.
    """

    name: str
    read_bandwidth: _NotNegative = 0.0
    write_bandwidth: _NotNegative = 0.0
    shared_by: _Count = 1
    dimensions: tuple[int, ...] = ()


class MemoryTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A memory of a system: of one rank, of neighboring ranks together, or of all.

    Capacity and bandwidths are those of one such memory, over all of its devices.

    Attributes
    ----------
    name
        By which nodes (column ``tier``) and placements name it.
    kind
        What it is; ``hbm`` is the memory of the device itself.
    capacity
        Bytes; 0 if unknown.
    read_bandwidth, write_bandwidth
        Of reads alone, and of writes alone; 0 for no limit.
    duplex
        Whether reads and writes have their bandwidths at once, as over a link. Else they share
        the device: half of each reaches the harmonic mean of both.
    latency
        Of an access without load.
    loaded
        How the latency of one of its devices grows with load, and how many accesses a rank has
        under way, which limits the rate that it reaches.
    shared_by
        How many neighboring ranks have one such memory together: 1, or those of a node; 0: all.
    devices
        Over how many devices its data is interleaved.
    ports
        Of a switch before it, which its ranks share in equal parts; 0 if there is none.
    port_read_bandwidth, port_write_bandwidth
        Of a port; 0 for no limit.
    path
        The name of the path over which it is reached; empty if nothing else takes that way.
    price_per_hour
        Of one such memory, in the currency of the system; 0 if unknown.
    """

    name: str
    kind: TierKind | Literal["hbm"]
    capacity: _Bytes = 0
    read_bandwidth: _NotNegative = 0.0
    write_bandwidth: _NotNegative = 0.0
    duplex: bool = False
    latency: _NotNegative = 0.0
    loaded: LoadedLatency | None = None
    shared_by: _CountOrAll = 1
    devices: _Count = 1
    ports: _CountOrAll = 0
    port_read_bandwidth: _NotNegative = 0.0
    port_write_bandwidth: _NotNegative = 0.0
    path: str = ""
    price_per_hour: _NotNegative = 0.0


def second_tier(
    bandwidth: float, capacity: int = 0, latency: float = 250.0, outstanding: float = 4096.0,
    shared_by: int = 1,
) -> MemoryTier:  # fmt: skip
    """Return memory behind CXL, as nobody said more of it: full duplex.

    Parameters
    ----------
    bandwidth
        Bytes per ns of reads, and of writes at once.
    capacity
        Bytes; 0 if it does not matter.
    latency
        ns, without load; with 0 it does not grow with load either.
    outstanding
        Accesses of 64 bytes that a rank has under way.
    shared_by
        Ranks that have one together, with its bandwidth and its capacity.
    """
    loaded = LoadedLatency(
        idle_ns=latency or 1.0, read_gbps=bandwidth, write_gbps=bandwidth, outstanding=outstanding
    )
    return MemoryTier(
        name="cxl", kind="cxl" if shared_by == 1 else "cxl-pool", capacity=capacity,
        read_bandwidth=bandwidth, write_bandwidth=bandwidth, duplex=True, latency=latency,
        loaded=loaded if latency else None, shared_by=shared_by,
    )  # fmt: skip


def remote_tier(
    kind: Literal["none", "per-rank", "pool", "per-node"], latency: int = 0, bandwidth: int = 0,
    ranks_per_node: int = 1, capacity: int = 0, loaded: LoadedLatency | None = None,
) -> MemoryTier | None:  # fmt: skip
    """Return remote memory as ASTRA-sim and ``memory.remote`` of a system file state it.

    It is a memory of each rank, or a pool, of a node or of all, that serves one access after the
    other; whole ns, and whole bytes per ns, 0 for no limit.
    """
    if kind == "none":
        return None
    return MemoryTier(
        name="remote", kind="cxl" if kind == "per-rank" else "cxl-pool", capacity=capacity,
        read_bandwidth=bandwidth, write_bandwidth=bandwidth, duplex=True, latency=latency,
        loaded=loaded, shared_by={"per-node": ranks_per_node, "pool": 0}.get(kind, 1),
    )  # fmt: skip


def at_bandwidth(tier: MemoryTier, rate: float) -> MemoryTier:
    """Return a tier of so many bytes per ns in each way, with nothing before it that is slower."""
    loaded = tier.loaded and msgspec.structs.replace(
        tier.loaded, read_gbps=rate, write_gbps=rate
    )  # fmt: skip
    return msgspec.structs.replace(
        tier, read_bandwidth=rate, write_bandwidth=rate, loaded=loaded, devices=1, ports=0, path=""
    )


def at_latency(tier: MemoryTier, latency: float) -> MemoryTier:
    """Return a tier with another latency without load, in ns."""
    loaded = tier.loaded and msgspec.structs.replace(tier.loaded, idle_ns=latency or 1.0)
    return msgspec.structs.replace(tier, latency=latency, loaded=loaded if latency else None)


def access_ns(
    tier: MemoryTier, num_bytes: int, path: MemoryPath | None = None, *, store: bool = False
) -> int:
    """Return how long a rank takes to read (or store) bytes, if nothing else uses the tier; ns.

    The first byte takes the latency that the tier has under this load; the others follow at the
    rate that the rank reaches alone.
    """
    rate = rate_alone(tier, path, store=store)
    latency = loaded_latency_ns(tier, rate, reads=0.0 if store else 1.0)
    return round(latency) + (int(num_bytes / rate) if rate else 0)


def rate_alone(tier: MemoryTier, path: MemoryPath | None = None, *, store: bool = False) -> float:
    """Return the bytes per ns that a rank reads (or stores) alone; 0 if nothing limits it.

    It is the least of the tier's bandwidth, its port's, its path's, and what the accesses under
    way reach by the curve.
    """
    limits = [tier.write_bandwidth if store else tier.read_bandwidth]
    if tier.ports:
        limits.append(tier.port_write_bandwidth if store else tier.port_read_bandwidth)
    if path:
        limits.append(path.write_bandwidth if store else path.read_bandwidth)
    if tier.loaded:
        share = msgspec.structs.replace(
            tier.loaded, outstanding=tier.loaded.outstanding / tier.devices
        )
        reached = reached_rate(share, np.array([0.0 if store else 1.0]))
        limits.append(float(reached[0]) / 1e9 * tier.devices)
    return min((limit for limit in limits if limit), default=0.0)


def loaded_latency_ns(tier: MemoryTier, rate: float, *, reads: float = 1.0) -> float:
    """Return the latency of an access to a tier that carries a load.

    Parameters
    ----------
    tier
        Its ``latency`` without a curve (``loaded``).
    rate
        Bytes per ns that it carries, over all of its devices.
    reads
        The share of reads in them, 0 to 1.

    Returns
    -------
    float
        ns, by the curve of CXLMemSim (:mod:`nadi.systems.memory_tiers`), on each of
        its devices.
    """
    if tier.loaded is None:
        return tier.latency
    peak = peak_rate(tier.loaded, np.array([reads]))
    load = np.array([rate * 1e9 / tier.devices]) / peak
    return float(latency_ns(tier.loaded, load, peak)[0])


UPDATE_SCHEDULE = (
    "the optimizer's state is updated in parts when all gradients are final, because their norm "
    "clips them; while a part is updated, the next one is loaded and the previous one is stored, "
    "and all loads and stores end within the step"
)
_PARTS = 64
_LEAST = 4 << 20  # bytes of a part
_Sizes = TypeVar("_Sizes", Floats, Ints)


# operations before a use that a load may begin; between uses no further apart, a tensor stays
DISTANCE = 32


def usual_buffers(capacity: Floats | float) -> Floats:
    """Return the bytes of the first tier in which tensors of others pass, of a capacity.

    0 is an unknown capacity.
    """
    return np.where(np.asarray(capacity) > 0, np.asarray(capacity) / 16, 1 << 30)


def update_parts(size: _Sizes) -> _Sizes:
    """Return in how many parts states of so many bytes are updated."""
    return np.clip(size // _LEAST, 1, _PARTS)


def streamed_seconds(
    size: Floats, load: Floats, work: Floats, store: Floats, both: Floats | None = None
) -> Floats:
    """Give the seconds of an update with all of its moves.

    The first part has to be loaded before, and the last one is stored after all others.

    - ``size``: Bytes of the states.
    - ``load``, ``work``, ``store``: Seconds of loading all, of the update alone, and of storing
      all.
    - ``both``: Seconds of loading and storing all; by default they do not slow each other.
    """
    longest = np.maximum(load, store) if both is None else both
    share = 1.0 / update_parts(np.asarray(size, dtype=np.float64))
    found: Floats = share * (load + work + store) + (1.0 - share) * np.maximum(longest, work)
    return found
