"""What a server runs on: times of its steps, room for keys and values, links and tiers."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.estimates.inference_steps import inference_bytes, inference_parts, wire_seconds
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.serving.engines import CacheTier, InstanceKind
from nadi.serving.recorded_steps import (
    RecordedStep,
    priced_steps,
    read_recorded_steps,
    times_as_recorded,
)
from nadi.serving.server_setup import ServerSetup
from nadi.serving.step_times import GRAPH_SIZES, StepTimes, holds_profile, profiled_times
from nadi.systems.memory_tiers import MemoryTier, at_bandwidth, rate_alone, second_tier
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.units import format_bytes, parse_bytes, parse_rate


class InstanceBasis(NamedTuple):
    """What instances of a kind come to on a system.

    Attributes
    ----------
    times
        Of steps.
    blocks
        Of keys and values of an instance, or of each of its groups of ranks, without the one that
        vLLM never uses.
    block_bytes
        Bytes of a block on all ranks that have a part of it.
    weights
        Bytes of weights on a rank.
    recorded
        Steps of the recording that ``times`` agree with, if there is one.
    """

    times: StepTimes
    blocks: int
    block_bytes: int
    weights: int
    recorded: tuple[RecordedStep, ...] = ()


class InstanceLink(NamedTuple):
    """A link of each rank over which keys and values come and go.

    Attributes
    ----------
    name
        Of a memory path, of a dimension of the network, or of a tier.
    rate
        Bytes per ns; 0 for no limit.
    dimensions
        Of the network, whose collectives pass it, too.
    """

    name: str
    rate: float
    dimensions: tuple[int, ...] = ()


class ServerBasis(NamedTuple):
    """What a setup comes to on a system.

    Attributes
    ----------
    instance, reading
        Instances, and those that only read prompts, which are the same if all are alike.
    kinds
        The same as engines take them: those that only read prompts, and others.
    links
        Of each rank.
    moved_link
        Which of them leads to other instances.
    price
        Of an hour of all devices and tiers, 0 if unknown.
    """

    instance: InstanceBasis
    reading: InstanceBasis
    kinds: tuple[InstanceKind, InstanceKind]
    links: tuple[InstanceLink, ...]
    moved_link: int
    price: float

    @property
    def tiers(self) -> tuple[CacheTier, ...]:
        """Behind the devices' memory."""
        return self.kinds[1].tiers


def server_basis(model: LanguageModel, system: System, setup: ServerSetup) -> ServerBasis:
    """Price steps and count room.

    Raises
    ------
    UsageError
        If the model does not fit, or the system lacks what a price needs.
    """
    tiers = [_stated(text, system, setup) for text in setup.tiers]
    links = [_link_of(tier, system) for tier in tiers]
    moved = _moving_link(system, setup, links)
    links = list(dict.fromkeys([*links, moved]))
    instance = _instance(model, system, setup, links)
    reads, reading = setup.of_prefill, instance
    if reads.degrees != setup.degrees:
        try:
            reading = _instance(model, system, reads, links)
        except UsageError as error:
            who = Parameter("prefill_replicas", setup.prefill_replicas)
            raise UsageError([who, f": {error.where}"], error.what, error.remedy) from None
    kinds = tuple(
        InstanceKind(
            basis.blocks, kind.pp,
            # an instance that generates gets all parts of a block, whoever sends them
            instance.block_bytes / kind.holders / moved.rate if moved.rate else 0.0,
            tuple(
                _cache_tier(tier, system, kind, basis.block_bytes)._replace(
                    link=links.index(_link_of(tier, system))
                ) for tier in tiers
            ),
            kind.attention_dp,
        ) for kind, basis in ((reads, reading), (setup, instance))
    )  # fmt: skip
    price = system.price_per_hour * setup.devices + _price_of_tiers(tiers, setup.devices)
    return ServerBasis(
        instance, reading, (kinds[0], kinds[1]), tuple(links), links.index(moved), price
    )


def _instance(
    model: LanguageModel, system: System, setup: ServerSetup, links: Sequence[InstanceLink]
) -> InstanceBasis:
    plan = ParallelPlan(
        tp=setup.tp, pp=setup.pp, ep=setup.ep, dp=setup.attention_dp, dtype=setup.dtype
    )
    weights, token = inference_bytes(model, plan, setup.kv_dtype, setup.weight_bits)
    blocks = setup.blocks or _room(system, setup, weights, token)
    recorded: tuple[RecordedStep, ...] = ()
    if setup.measured and holds_profile(setup.measured):
        times = profiled_times(setup.measured, model.layers)
        times = times._replace(graphs=setup.graphs)
    else:
        times = priced_times(model, system, plan, setup, links)
        if setup.measured:
            recorded = priced_steps(
                model, system, plan, read_recorded_steps(setup.measured),
                setup.input + setup.output // 2, graphs=setup.graphs, kv_dtype=setup.kv_dtype,
                weight_bits=setup.weight_bits,
            )  # fmt: skip
            times = times_as_recorded(times, recorded)
    # every rank has the keys and values of its own heads, and of its own requests
    return InstanceBasis(times, blocks, token * setup.block * setup.holders, weights, recorded)


def _link_of(tier: MemoryTier, system: System) -> InstanceLink:
    """Return the link that leads to a tier: its path, which others can take, or one of its own."""
    path = system.path_of(tier)
    if path is None:
        return InstanceLink(tier.name, 0.0)
    rates = [one for one in (path.read_bandwidth, path.write_bandwidth) if one]
    return InstanceLink(path.name, min(rates, default=0.0), path.dimensions)


def _moving_link(system: System, setup: ServerSetup, links: Sequence[InstanceLink]) -> InstanceLink:
    """Return the link between instances: of the inmost dimension of the network that has them all.

    If that is behind a path to memory, it is the path's link, which carries both.
    """
    if setup.link:
        return InstanceLink("between instances", setup.link / 1e9)
    dimensions = system.network.dimensions
    sizes = np.cumprod([one.size for one in dimensions])
    place = min(int(np.searchsorted(sizes, setup.devices)), len(dimensions) - 1)
    rate = dimensions[place].bandwidth
    path = next((one for one in links if place in one.dimensions and one.rate), None)
    if path is not None and path.rate <= rate:
        return path
    return InstanceLink(f"dimension{place + 1}", rate, (place,))


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
    return room


def priced_times(
    model: LanguageModel, system: System, plan: ParallelPlan, setup: ServerSetup,
    links: Sequence[InstanceLink] = (),
) -> StepTimes:  # fmt: skip
    """Price steps as an estimate of inference does, at points between which they are looked up."""
    most = max(setup.budget, setup.sequences)
    # sizes of graphs are priced as they are: kernels take more tiles, all at once, beyond them
    captured = [size for size in GRAPH_SIZES if size < most] or [1]
    tokens = np.append(captured, _points(max(most, 2), 1.2, first=captured[-1] + 1))
    longest = model.max_positions or model.sequence or 1 << 20
    chunks = _points(setup.budget, 2.0)
    before = np.append(0, _points(max(longest, 2), 2.0, first=128))
    decodes = _points(setup.sequences, 2.0), np.append(1, _points(max(longest, 2), 2.0, first=64))
    parts = inference_parts(
        model, system, plan, tokens, (chunks, before), decodes, setup.kv_dtype, setup.weight_bits
    )
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
        _wires(model, system, plan, tokens, links), parts.bound * 1e9, parts.experts * 1e9,
    )  # fmt: skip


def _wires(
    model: LanguageModel, system: System, plan: ParallelPlan, tokens: Ints,
    links: Sequence[InstanceLink],
) -> Floats | None:  # fmt: skip
    """Give the ns for which collectives of steps keep links; None if they pass none of them."""
    if not any(link.dimensions and link.rate for link in links):
        return None
    seconds = wire_seconds(model, system, plan, tokens)
    found = np.zeros((len(links), tokens.size))
    for row, link in zip(found, links, strict=True):
        for place in link.dimensions:
            if place < len(seconds) and link.rate:
                bandwidth = system.network.dimensions[place].bandwidth
                row += seconds[place] * 1e9 * bandwidth / link.rate
    return found


def _points(most: int, factor: float, first: int = 1) -> Ints:
    """Give whole numbers from the first on, each by a factor larger, and the last: two or more."""
    found = [first]
    while found[-1] < most:
        found.append(max(found[-1] + 1, min(most, round(found[-1] * factor))))
    return np.array(found if len(found) > 1 else [first, first + 1])


def _cache_tier(
    tier: MemoryTier, system: System, setup: ServerSetup, block_bytes: int
) -> CacheTier:
    """Give a tier as the ranks of a group use it."""
    ranks, groups = setup.holders, setup.all_groups
    # a group's ranks move their parts of a block at once; the memory moves all of them
    sharing = min(groups, max(1, tier.shared_by // ranks if tier.shared_by else groups))
    parts = max(1, ranks // tier.shared_by) if tier.shared_by else 1
    alone, store = tier.read_bandwidth * parts, tier.write_bandwidth * parts
    return CacheTier(
        tier.name, int(tier.capacity * parts // block_bytes), sharing,
        block_bytes / setup.holders / rate_alone(tier, system.path_of(tier)), block_bytes / alone,
        round(tier.latency), tier.duplex, block_bytes / (store or alone),
    )  # fmt: skip


def _stated(text: str, system: System, setup: ServerSetup) -> MemoryTier:
    """Read a tier: the system's, or a stated one."""
    name, _, stated = text.partition("=")
    known = next((tier for tier in system.tiers if tier.name == name), None)
    if known is None and not stated:
        names = ", ".join(tier.name for tier in system.tiers) or "none"
        raise UsageError(
            Parameter("tiers", text), f"{system.name} has no such tier: {names}",
            "name one of them, or state one: pool=1TB@64GB/s",
        )  # fmt: skip
    amounts, _, sharing = stated.partition(":")
    capacity, _, rate = amounts.partition("@")
    try:
        size = parse_bytes(capacity) if capacity else 0
        speed = parse_rate(rate) / 1e9 if rate else 0.0
        if sharing and not sharing.isdecimal():
            raise ValueError(f"{sharing!r} is no number of instances")
        many = int(sharing or 0)
    except ValueError as error:
        raise UsageError(
            Parameter("tiers", text), str(error), "write NAME=CAPACITY@BANDWIDTH:INSTANCES"
        ) from None
    if sharing and not 1 <= many <= setup.instances:
        raise UsageError(
            Parameter("tiers", text), f"of {setup.instances} instances {many} have one in common",
            "give at most as many as there are",
        )  # fmt: skip
    found = known or second_tier(speed or 64.0, size, shared_by=0)
    changes: dict[str, object] = {"name": name}
    if size:
        changes["capacity"] = size
    if speed:
        found = msgspec.structs.replace(at_bandwidth(found, speed), path=found.path)
    if many:
        changes["shared_by"] = many * setup.ranks
    found = msgspec.structs.replace(found, **changes)
    if not found.capacity or not found.read_bandwidth:
        raise UsageError(
            Parameter("tiers", text), "its capacity and its bandwidth are needed",
            f"state both, such as {name}=1TB@64GB/s",
        )  # fmt: skip
    return found


def _price_of_tiers(tiers: Sequence[MemoryTier], devices: int) -> float:
    return sum(
        tier.price_per_hour * (-(-devices // tier.shared_by) if tier.shared_by else 1)
        for tier in tiers
    )
