"""Nadi's own descriptions as an estimate needs them: systems and language models."""

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.estimates.calculon.machine_description import (
    Engine,
    MachineDescription,
    MemoryColumns,
    NestedNetwork,
    NetworkDimension,
    NetworkOps,
    NetworkTier,
)
from nadi.estimates.estimated_model import LONGEST_SEQUENCE, ModelDescription
from nadi.estimates.execution import ELEMENT_BYTES
from nadi.models.llm.language_model import LanguageModel
from nadi.systems.device import Device
from nadi.systems.memory_tiers import MemoryTier, rate_alone
from nadi.systems.prices.learned_prices import LearnedPrices
from nadi.systems.prices.price_list import gemm_ns, memory_ns, roofline_ns
from nadi.systems.system import System

_RING = NetworkOps((1.0, None), (1.0, -1.0), (1.0, -1.0), (2.0, -1.0))
_GFLOPS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.0)  # where efficiencies are sampled
_MEGABYTES = (1000.0, 100.0, 10.0, 1.0, 0.0)
_SMALLEST = 0.3  # of an operation below the last size
_HALF, _FULL = ("float16", "bfloat16"), ("float32",)
_NO_LIMIT = 1e9  # GB/s
_EIGHT = "float8_e4m3fn"


def model_of_language_model(model: LanguageModel, sequence: int = 0) -> ModelDescription:
    """Describe a language model for an estimate.

    Parameters
    ----------
    sequence
        Tokens of a sequence; by default the model's.

    Raises
    ------
    UsageError
        If neither states the length of a sequence, or it is none.
    """
    tokens = checked_length(sequence) or model.sequence
    if not tokens:
        raise UsageError([Parameter("seq")], "the model states no sequence length", "give one")
    return ModelDescription(
        hidden=model.hidden,
        feedforward=model.ffn or (model.moe.expert_ffn if model.moe else 1),
        seq_size=tokens,
        attn_heads=model.heads,
        attn_size=model.value_head_dim,
        num_blocks=model.layers,
        name=model.name,
        language=msgspec.structs.replace(
            model, sequence=tokens, max_positions=max(model.max_positions, tokens)
        )
        if model.position != "learned"
        else msgspec.structs.replace(model, sequence=tokens),
    )


def checked_length(sequence: int) -> int:
    """Give the tokens of a sequence again; UsageError if no sequence has so many."""
    if not 0 <= sequence <= LONGEST_SEQUENCE:
        what = f"it is not 1 to {LONGEST_SEQUENCE}"
        raise UsageError(Parameter("seq", sequence), what, "give another length")
    return sequence


def machine_of_system(
    system: System, tier: str = "", prices: LearnedPrices | None = None
) -> MachineDescription:
    """Describe a system for an estimate.

    The network is both: dimensions, for the default rules, and a tier per dimension, for
    Calculon's. Efficiencies of engines are the device's curves at some sizes of square
    products and of memory accesses; the default rules use the curves themselves.

    Parameters
    ----------
    tier
        The name of the second tier; by default remote memory, else the first lower tier.
    prices
        Of recorded kernels, which come before the device's curves.

    Raises
    ------
    UsageError
        If it states no peak, no bandwidth or no capacity of memory, has rules of
        another program, or no such tier.
    """
    compute = system.compute
    stated = {
        "$.compute.peak": (compute.peak, '"989 TFLOP/s"'),
        "$.memory.bandwidth": (compute.memory_bandwidth, '"3.35 TB/s"'),
        "$.memory.capacity": (system.memory_capacity, '"80 GB"'),
    }
    for path, (value, example) in stated.items():
        if not value:
            what = "it is missing, and an estimate needs it"
            raise UsageError(f"{system.name}: {path}", what, f"state it, such as {example}")
    device = compute.device
    if device is None:
        raise UsageError(
            f"{system.name}: $.compat", "its rules price no computations", "leave it out",
        )  # fmt: skip
    return MachineDescription(
        matrix=_engines(device, is_matrix=True),
        vector=_engines(device, is_matrix=False),
        mem1=MemoryColumns(
            system.memory_capacity / 2**30, compute.memory_bandwidth / 1e9, _memory_steps(device)
        ),
        mem2=_second_tier(system, tier),
        processing_mode="roofline",
        networks=_tiers(system),
        name=system.name,
        nested=_nested(system),
        system=system if system.nccl or system.measured else None,
        device=device,
        prices=prices,
        price_per_hour=system.price_per_hour,
        currency=system.currency,
    )  # fmt: skip


def _second_tier(system: System, name: str) -> MemoryColumns:
    """Give the tier of a name, else remote memory, of one rank or of several, or the first tier."""
    remote = system.remote_memory
    known = {tier.name: tier for tier in system.tiers}
    if name and name not in known:
        raise UsageError(
            f"{system.name}: memory.tiers", f"there is no tier {name!r}",
            f"use one of {', '.join(known)}" if known else "state it, as docs/memory-tiers.md says",
        )  # fmt: skip
    if name or (remote is None and system.tiers):
        return _columns(system, known.get(name, system.tiers[0]))
    if remote is None or not remote.capacity:
        # of one that a sweep adds: as remote memory, which a file would state
        return MemoryColumns(0.0, 1.0, ((0.0, 1.0),), duplex=True)
    # a sweep over its bandwidth is one over both ways
    return msgspec.structs.replace(_columns(system, remote), GBps_written=0.0, name="")


def _columns(system: System, tier: MemoryTier) -> MemoryColumns:
    """Give a tier with what its ports and path allow."""
    sharing = min(tier.shared_by or system.network.num_ranks, system.network.num_ranks)
    path = system.path_of(tier)
    links = sharing / path.shared_by if path else 0.0
    links = max(links, 1.0)
    rates = []
    for device, port, way in (
        (tier.read_bandwidth, tier.port_read_bandwidth, path.read_bandwidth if path else 0.0),
        (tier.write_bandwidth, tier.port_write_bandwidth, path.write_bandwidth if path else 0.0),
    ):
        limits = (device, sharing * port if tier.ports else 0.0, links * way)
        rates.append(min((limit for limit in limits if limit), default=_NO_LIMIT))
    own = (tier.read_bandwidth, tier.write_bandwidth)
    is_limited = not tier.duplex and all(own) and tuple(rates) != own
    loaded = tier.loaded and msgspec.structs.replace(
        tier.loaded, read_gbps=tier.devices * tier.loaded.read_gbps,
        write_gbps=tier.devices * tier.loaded.write_gbps,
    )  # fmt: skip
    return MemoryColumns(
        tier.capacity / 2**30,
        rates[0],
        ((0.0, 1.0),),
        tier.latency / 1e9,
        sharing,
        loaded,
        tier.duplex,
        rates[1],
        tier.name,
        tier.price_per_hour,
        (rate_alone(tier, path), rate_alone(tier, path, store=True)) if sharing > 1 else (0.0, 0.0),
        own if is_limited else (0.0, 0.0),
    )


def _nested(system: System) -> NestedNetwork:
    dimensions = []
    names = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
    for place, (own, algorithm) in enumerate(
        zip(system.network.dimensions, system.collectives.all_reduce, strict=False)
    ):
        links = 2 if own.topology == "switch" else 1
        # a line, of which a torus' dimension may be cut, goes round one way alone
        ways = 2 if algorithm == "biring" and own.size > 2 and own.topology != "mesh" else 1
        delay = system.collectives.endpoint_delay
        direct = [
            name for name in names if own.topology == "fully-connected"
            and system.collectives.algorithms(name)[place] == "direct"
        ]  # fmt: skip
        latency = (links * own.latency + delay) / 1e9
        passed = ways if own.topology in ("ring", "mesh") else 0
        rate = own.bandwidth * ways
        dimensions.append(NetworkDimension(
            own.size, rate, latency, tuple(direct), passed, own.topology == "mesh"
        ))  # fmt: skip
    collectives = system.collectives
    return NestedNetwork(
        tuple(dimensions), collectives.start_time / 1e9, collectives.chunks,
        float(collectives.least_chunk),
    )  # fmt: skip


def _tiers(system: System) -> tuple[NetworkTier, ...]:
    found, size = [], 1
    for own in system.network.dimensions:
        size *= own.size
        links = 2 if own.topology == "switch" else 1
        seconds = (system.collectives.start_time + links * own.latency) / 1e9
        found.append(NetworkTier(own.bandwidth, 1.0, size, seconds, _RING, False))
    return tuple(found)


def _engines(device: Device, *, is_matrix: bool) -> dict[str, Engine]:
    found = {}
    for name in (*_HALF, *_FULL, "float8"):
        known = any(one.startswith(name) for one in device.peak)
        if known or name in _HALF:
            peak = device.peak_of(_EIGHT if name == "float8" else name)
            size = ELEMENT_BYTES[3 if name in _FULL else 0 if name == "float8" else 1]
            found[name] = Engine(peak / 1e12, _compute_steps(device, peak, float(size), is_matrix))
    return found


def _compute_steps(
    device: Device, peak: float, element: float, is_matrix: bool
) -> tuple[tuple[float, float], ...]:
    """Sample the share of the peak that square products reach; of other work, all of it.

    What is not a product is bound by memory, whose efficiency says what it reaches.
    """
    if not is_matrix:
        return ((0.0, 1.0),)
    flops = np.array([size or _SMALLEST for size in _GFLOPS]) * 1e9
    side = np.cbrt(flops / 2)
    moved, peaks = 3 * element * side**2, np.full(flops.size, peak)
    if device.gemm is not None:
        shape = np.stack([np.ones_like(side), side, side, side], axis=1)
        took = gemm_ns(device.gemm, device, shape, moved, peaks)
    else:
        took = roofline_ns(device.roofline, device, flops, moved, peaks)
    shares = np.clip(flops / (took / 1e9) / peak, 1e-6, 1.0)
    return tuple(zip(_GFLOPS, shares.tolist(), strict=True))


def _memory_steps(device: Device) -> tuple[tuple[float, float], ...]:
    curve = device.memory.get("", device.memory.get("elementwise"))
    if curve is None:
        return ((0.0, 1.0),)
    size = np.array([one or _SMALLEST for one in _MEGABYTES]) * 1e6
    none = np.zeros(size.size)
    took = memory_ns(curve, device, none, size, np.ones(size.size))
    shares = np.clip(size / (took / 1e9) / device.bandwidth, 1e-6, 1.0)
    return tuple(zip(_MEGABYTES, shares.tolist(), strict=True))
