"""Steps of jobs whose tensors live in several tiers of memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import polars as pl

from nadi.errors import Parameter, UsageError, checked
from nadi.memory.placed_tensors import JobTensors, tensors_of_job
from nadi.memory.placement_choice import ByRules, PlacementRule, Placer, TierRoom, rooms_of
from nadi.memory.staged_moves import Staging
from nadi.memory.table_lookups import RowCache
from nadi.memory.tier_accounts import TierAccounts, TieredJob, accounts_of, tiered_job
from nadi.recordings.jobs import read_ranks
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.systems.memory_tiers import DISTANCE, at_bandwidth, at_latency, usual_buffers
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.schema import TENSOR_ROLES
from nadi.trace.trace import Job, Trace

_PAYS = 1.01  # of the step without tiers
_STEPS, _DOUBLINGS = 8, 12  # of bandwidths that are tried: from 1 GB/s, so many in each doubling


def with_room(system: System, memory: int = 0, capacity: int = 0) -> System:
    """Return a system with other capacities of the first tier and of the first lower one.

    0 keeps what it has.
    """
    first, *others = system.tiers
    lower = msgspec.structs.replace(first, capacity=capacity or first.capacity)
    return msgspec.structs.replace(
        system, tiers=(lower, *others), memory_capacity=memory or system.memory_capacity
    )


def with_sharing(system: System, ranks: int) -> System:
    """Return a system whose first lower tier so many neighboring ranks have together.

    0 keeps what it has.

    - Raises UsageError if the system has fewer ranks.
    """
    if not ranks:
        return system
    if ranks > system.network.num_ranks:
        raise UsageError(
            Parameter("shared_by", ranks), f"the job has {system.network.num_ranks} ranks",
            "let at most all of them share a tier",
        )  # fmt: skip
    first, *others = system.tiers
    kind = first.kind
    if kind in ("cxl", "cxl-pool"):
        kind = "cxl" if ranks == 1 else "cxl-pool"
    lower = msgspec.structs.replace(first, shared_by=ranks, kind=kind)
    return msgspec.structs.replace(system, tiers=(lower, *others))


def with_latency(system: System, latency: float) -> System:
    """Return a system whose first lower tier has another latency without load, in ns."""
    first, *others = system.tiers
    return msgspec.structs.replace(system, tiers=(at_latency(first, latency), *others))


def with_bandwidth(system: System, rate: float) -> System:
    """Return a system whose first lower tier gives each rank so many bytes per ns, in each way."""
    first, *others = system.tiers
    share = first.capacity // (first.shared_by or system.network.num_ranks)
    alone = msgspec.structs.replace(first, capacity=share, shared_by=1)
    return msgspec.structs.replace(system, tiers=(at_bandwidth(alone, rate), *others))


@dataclass(frozen=True, eq=False)
class PlacedStep:
    """A simulated step with tiers.

    Attributes
    ----------
    placed, simulation, system
        The job with its moves, its simulation, and on what.
    rooms
        What the tiers have for a rank.
    low, high
        ns between which the length of the step is, if tensors are accessed in place.
    """

    placed: TieredJob
    simulation: Simulation
    system: System
    rooms: tuple[TierRoom, ...]
    low: int = 0
    high: int = 0

    @property
    def ns(self) -> int:
        """Makespan of the job: one step, or as many as were recorded."""
        return self.simulation.makespan

    @cached_property
    def accounts(self) -> TierAccounts:
        """What it does with its tiers."""
        return accounts_of(self.placed, self.simulation, self.rooms)

    @property
    def excess(self) -> int:
        """Bytes that have no room in some tier, of the rank with the most."""
        return max(use.excess for use in self.accounts.tiers)

    @property
    def is_placed(self) -> bool:
        """Whether anything lives in a lower tier."""
        return any(tier.any() for tier in self.placed.tier)

    @property
    def moved(self) -> tuple[str, ...]:
        """Roles of what lives in lower tiers, the most bytes first."""
        total = dict.fromkeys(TENSOR_ROLES, 0)
        for tensors, tier in zip(self.placed.tensors.traces, self.placed.tier, strict=True):
            below = tensors.table.filter(pl.Series(tier > 0))
            for role, size in below.group_by("role").agg(pl.col("bytes").sum()).iter_rows():
                total[role] += size
        return tuple(sorted((role for role in total if total[role]), key=lambda role: -total[role]))


@dataclass(frozen=True, eq=False)
class PlainStep:
    """A job that was simulated without tiers, and what can be placed of it.

    Attributes
    ----------
    job
        As it is simulated: with prices, and of recordings what is replayed.
    tensors
        Of it, and its simulation.
    system
        Without lower tiers.
    custom
        The traces of each rank by ``system.collectives.custom_traces``.
    """

    job: Job | Sequence[Trace]
    tensors: JobTensors
    system: System
    custom: Mapping[str, Sequence[Trace]] = field(default_factory=dict)

    @property
    def ns(self) -> int:
        """Makespan of the job, as of :class:`PlacedStep`."""
        return self.tensors.simulation.makespan

    def staging(
        self, system: System, buffers: int = 0, distance: int = 0, *, in_place: bool = False
    ) -> Staging:  # fmt: skip
        """Return how tensors come to the first tier; 0 for what usually is."""
        usual = int(usual_buffers(system.memory_capacity))
        return Staging(buffers or usual, distance or DISTANCE, in_place)

    def chosen(self, placer: Placer, system: System, staging: Staging) -> tuple[Ints, ...]:
        """Choose where tensors live: their tiers, for each different trace."""
        return placer(self.tensors, rooms_of(system, staging.buffers))

    def placed(self, tier: Sequence[Ints], system: System, staging: Staging) -> PlacedStep:
        """Simulate the job with tensors in tiers on a system."""
        placed = tiered_job(self.job, self.tensors, tier, staging, system)
        return self.again(placed, system)

    def again(self, placed: TieredJob, system: System) -> PlacedStep:
        """Simulate a placed job on a system; work in place keeps its times."""
        done = simulate_job(placed.job, system, self.custom)
        step = PlacedStep(placed, done, system, rooms_of(system))
        if not placed.slowed:
            return step
        low, high = (
            simulate_job(placed.at(which).job, system, self.custom).makespan
            for which in ("low", "high")
        )
        return replace(step, low=low, high=high)


@checked
def plain_step(
    job: Job | Sequence[Trace], system: System, cache: RowCache | None = None
) -> PlainStep:
    """Simulate a job without tiers, and read its tensors; ``cache`` holds rows of its tables.

    Raises
    ------
    InputError
        If its traces have no operands; and as :func:`nadi.simulate`.
    """
    own = msgspec.structs.replace(system, tiers=(), memory_paths=())
    custom = {prefix: read_ranks(prefix) for prefix in own.collectives.custom_traces}
    priced, _ = price_job(job, own)
    # kernels of steps with tiers take what communication beside them makes of them without tiers
    simulation = simulate_job(priced, own, custom)
    simulated = priced if isinstance(priced, Job) and priced.rank_groups else simulation.traces
    return PlainStep(simulated, tensors_of_job(simulation, cache), own, custom)


class MovedRole(NamedTuple):
    """What it costs to move the tensors of one role alone.

    Attributes
    ----------
    role
        The role; empty for none.
    ns
        Length of the step.
    moved
        Bytes that the rank that moves most moves.
    freed
        Bytes by which the peak of the first tier is less, on the rank with the most.
    step
        The step.
    """

    role: str
    ns: int
    moved: int
    freed: int
    step: PlacedStep


def moved_alone(plain: PlainStep, system: System, staging: Staging) -> tuple[MovedRole, ...]:
    """Move the tensors of each role alone to the first of the lower tiers."""
    lower = system.tiers[0].name
    found = []
    peak = None
    for role in ("", *TENSOR_ROLES):
        rules = ByRules([PlacementRule(role, "bytes", "", 0, lower)] if role else [])
        tier = plain.chosen(rules, system, staging)
        if role and not any(of_lives.any() for of_lives in tier):
            continue
        step = plain.placed(tier, system, staging)
        moved = max(int(moves.bytes.sum()) for moves in step.placed.moves)
        used = step.accounts.tiers[0].peak
        peak = used if peak is None else peak
        found.append(MovedRole(role, step.ns, moved, peak - used, step))
    return tuple(found)


class TierBreakEven(NamedTuple):
    """From which bandwidth a placement costs next to nothing.

    Attributes
    ----------
    pays_from
        The least bandwidth with which the step is at most 1 % longer than without tiers, in bytes
        per ns of a rank; infinite if there is none up to 4,096.
    below
        Half of it, or 4,096.
    ratio
        By how much the step is longer there.
    bound_by
        The role of what operations wait for most there; empty if none does.
    """

    pays_from: float
    below: float
    ratio: float
    bound_by: str


def break_even(
    plain: PlainStep, steps: Sequence[PlacedStep], system: System, staging: Staging
) -> TierBreakEven:  # fmt: skip
    """Find from which bandwidth the best of some placements costs at most 1 %.

    Each rank has its share of a tier that several have together. O(log bandwidths) simulations of
    each placement.
    """
    most = _STEPS * _DOUBLINGS

    def tried(number: float) -> PlacedStep:
        there = with_bandwidth(system, 2 ** (number / _STEPS))
        if staging.in_place:
            again = [plain.placed(step.placed.tier, there, staging) for step in steps]
        else:
            again = [plain.again(step.placed, there) for step in steps]
        return min(again, key=lambda one: one.ns)

    low, high = 0, most + 1  # the last is beyond all
    while low < high:
        middle = (low + high) // 2
        if middle <= most and tried(middle).ns > _PAYS * plain.ns:
            low = middle + 1
        else:
            high = middle
    below = max(low - _STEPS, 0) if low <= most else most
    there = tried(below)
    waits = there.accounts.waits.group_by("role").agg(pl.col("ns").sum()).sort("ns")
    return TierBreakEven(
        2 ** (low / _STEPS) if low <= most else math.inf, 2 ** (below / _STEPS),
        there.ns / max(plain.ns, 1), waits["role"][-1] if waits.height else "",
    )  # fmt: skip
