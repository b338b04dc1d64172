"""What a server runs on: times of its steps, room for keys and values, links and tiers."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.estimates.inference_steps import inference_bytes, inference_parts
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.serving.engines import CacheTier
from nadi.serving.recorded_steps import (
    RecordedStep,
    priced_steps,
    read_recorded_steps,
    times_as_recorded,
)
from nadi.serving.server_setup import ServerSetup
from nadi.serving.step_times import GRAPH_SIZES, StepTimes, holds_profile, profiled_times
from nadi.systems.memory_tiers import MemoryTier, second_tier
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.units import format_bytes, parse_bytes, parse_rate


class ServerBasis(NamedTuple):
    """What a setup comes to on a system.

    Attributes
    ----------
    times
        Of steps.
    blocks
        Of keys and values of an instance, without the one that vLLM never uses.
    block_bytes
        Bytes of a block on all ranks of an instance.
    weights
        Bytes of weights on a rank.
    moved_ns
        Time of a block from one instance to another.
    tiers
        Behind the devices' memory.
    price
        Of an hour of all devices and tiers, 0 if unknown.
    recorded
        Steps of the recording that ``times`` agree with, if there is one.
    """

    times: StepTimes
    blocks: int
    block_bytes: int
    weights: int
    moved_ns: float
    tiers: tuple[CacheTier, ...]
    price: float
    recorded: tuple[RecordedStep, ...] = ()


def server_basis(model: LanguageModel, system: System, setup: ServerSetup) -> ServerBasis:
    """Price steps and count room.

    Raises
    ------
    UsageError
        If the model does not fit, or the system lacks what a price needs.
    """
    plan = ParallelPlan(
        tp=setup.tp, pp=setup.pp, ep=setup.ep, dp=setup.attention_dp, dtype=setup.dtype
    )
    weights, token = inference_bytes(model, plan, setup.kv_dtype, setup.weight_bits)
    # every rank has the keys and values of its own heads, and of its own requests
    block_bytes = token * setup.block
    blocks = setup.blocks or _room(system, setup, weights, token)
    recorded: tuple[RecordedStep, ...] = ()
    if setup.measured and holds_profile(setup.measured):
        times = profiled_times(setup.measured, model.layers)
        times = times._replace(graphs=setup.graphs)
    else:
        times = priced_times(model, system, plan, setup)
        if setup.measured:
            recorded = priced_steps(
                model, system, plan, read_recorded_steps(setup.measured),
                setup.input + setup.output // 2, graphs=setup.graphs, kv_dtype=setup.kv_dtype,
                weight_bits=setup.weight_bits,
            )  # fmt: skip
            times = times_as_recorded(times, recorded)
    tiers = tuple(_tier(text, system, setup, block_bytes) for text in setup.tiers)
    rate = setup.link / 1e9 or system.network.dimensions[0].bandwidth
    price = system.price_per_hour * setup.ranks * setup.instances + _price_of_tiers(system, setup)
    return ServerBasis(
        times, blocks, block_bytes * setup.ranks, weights, block_bytes / rate, tiers, price,
        recorded,
    )  # fmt: skip


def _room(system: System, setup: ServerSetup, weights: int, token: int) -> int:
    """Return the blocks that a device has room for: what weights and others leave."""
    if not system.memory_capacity:
        raise UsageError(
            f"{system.name}: $.memory.capacity", "it is missing, and room follows from it",
            ["state it, or give ", Parameter("blocks")],
        )  # fmt: skip
    usable = round(system.memory_capacity * setup.memory_share) - round(setup.reserved)
    # the block that stands for none is never used
    room = (usable - weights) // (token * setup.block) - 1
    if room < 1:
        need, has = format_bytes(weights), format_bytes(max(usable, 0))
        raise UsageError(
            Parameter("tp", setup.tp),
            f"weights of {need} on a device leave no room in the {has} that are used of it",
            "spread them over more devices",
        )  # fmt: skip
    return room * setup.attention_dp


def priced_times(
    model: LanguageModel, system: System, plan: ParallelPlan, setup: ServerSetup
) -> StepTimes:
    """Price steps as an estimate of inference does, at points between which they are looked up."""
    most = max(setup.budget, setup.sequences)
    # sizes of graphs are priced as they are: kernels take more tiles, all at once, beyond them
    captured = [size for size in GRAPH_SIZES if size < most] or [1]
    tokens = np.append(captured, _points(max(most, 2), 1.2, first=captured[-1] + 1))
    longest = model.max_positions or model.sequence or 1 << 20
    chunks = _points(setup.budget, 2.0)
    before = np.append(0, _points(max(longest, 2), 2.0, first=128))
    decodes = _points(setup.sequences, 2.0), np.append(1, _points(max(longest, 2), 2.0, first=64))
    # each group of ranks with requests of its own has its part of them
    share = setup.attention_dp
    parts = inference_parts(
        model, system, plan, -(-tokens // share), (-(-chunks // share), before),
        (-(-decodes[0] // share), decodes[1]), setup.kv_dtype, setup.weight_bits,
    )  # fmt: skip
    grid = np.zeros((chunks.size + 1, before.size, decodes[0].size + 1, decodes[1].size + 1))
    grid[1:] += parts.chunks[:, :, None, None] * 1e9
    grid[:, :, 1:, 1:] += parts.decodes * 1e9
    grid[:, :, 1:, 0] = grid[:, :, 1:, 1]
    grid[:, :, 0, :] = grid[:, :, 0, :1]
    crowded = np.zeros((chunks.size + 1, before.size))
    crowded[1:] = parts.crowded * 1e9
    axes = tuple(
        np.append(0.0, one) if one is not before else one.astype(float)
        for one in (chunks, before, *decodes)
    )
    return StepTimes(
        tokens.astype(float), parts.dense * 1e9, tokens.astype(float), parts.heads * 1e9,
        axes, grid, setup.graphs, crowded,  # type: ignore[arg-type]
    )  # fmt: skip


def _points(most: int, factor: float, first: int = 1) -> Ints:
    """Give whole numbers from the first on, each by a factor larger, and the last: two or more."""
    found = [first]
    while found[-1] < most:
        found.append(max(found[-1] + 1, min(most, round(found[-1] * factor))))
    return np.array(found if len(found) > 1 else [first, first + 1])


def _tier(text: str, system: System, setup: ServerSetup, block_bytes: int) -> CacheTier:
    """Read a tier, the system's or a stated one, as the ranks of instances use it."""
    found = _stated(text, system)
    ranks = setup.ranks
    capacity = found.capacity
    if not capacity or not found.read_bandwidth:
        raise UsageError(
            Parameter("tiers", text), "its capacity and its bandwidth are needed",
            f"state both, such as {found.name}=1TB@64GB/s",
        )  # fmt: skip
    path = system.path_of(found)
    link = found.read_bandwidth
    if path is not None and path.read_bandwidth:
        link = min(link, path.read_bandwidth)
    # an instance's ranks move their parts of a block at once; the memory moves all of them
    by_all = found.shared_by == 0 or found.shared_by > ranks
    parts = 1 if by_all else max(1, ranks // found.shared_by)
    whole = block_bytes * ranks
    return CacheTier(
        found.name, int(capacity * parts // whole), by_all, block_bytes / link,
        whole / (found.read_bandwidth * parts), round(found.latency), found.duplex,
    )  # fmt: skip


def _stated(text: str, system: System) -> MemoryTier:
    name, _, stated = text.partition("=")
    known = next((tier for tier in system.tiers if tier.name == name), None)
    if known is None and not stated:
        names = ", ".join(tier.name for tier in system.tiers) or "none"
        raise UsageError(
            Parameter("tiers", text), f"{system.name} has no such tier: {names}",
            "name one of them, or state one: pool=1TB@64GB/s",
        )  # fmt: skip
    capacity, _, rate = stated.partition("@")
    try:
        size = parse_bytes(capacity) if capacity else 0
        speed = parse_rate(rate) / 1e9 if rate else 0.0
    except ValueError as error:
        raise UsageError(
            Parameter("tiers", text), str(error), "write NAME=CAPACITY@BANDWIDTH"
        ) from None
    found = known or second_tier(speed or 64.0, size, shared_by=0)
    changes: dict[str, object] = {"name": name}
    if size:
        changes["capacity"] = size
    if speed:
        changes |= {"read_bandwidth": speed, "write_bandwidth": speed}
    return msgspec.structs.replace(found, **changes)


def _price_of_tiers(system: System, setup: ServerSetup) -> float:
    devices = setup.ranks * setup.instances
    found = 0.0
    for text in setup.tiers:
        tier = _stated(text, system)
        found += tier.price_per_hour * (-(-devices // tier.shared_by) if tier.shared_by else 1)
    return found
