"""What tiers of memory change for the step of a job: a placement, what others cost, and a sweep.

Files of a placed job: where tensors live, and the plan of a generated job.

Steps of generated jobs with some tensors in a lower tier, beside what an estimate says.

Steps of a placed job over bandwidths and capacities, in processes.

A placement depends on capacities, and not on bandwidths: each is made once. What fits into a memory
fits into a larger one, so the step of a capacity is the fastest of all that need no more.
"""

import csv
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError, Parameter, UsageError, checked, parameters_of_file
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.described_systems import machine_of_system, model_of_language_model
from nadi.estimates.plan_execution import OFFLOADED, execution_of_plan
from nadi.estimates.single_estimate import estimate
from nadi.estimates.stated_files import read_plan_fields
from nadi.files.files import read_settings
from nadi.files.settings_text import decode_json
from nadi.forks import refuse_in_fork
from nadi.memory.placement.placed_steps import (
    MovedRole,
    PlacedStep,
    PlainStep,
    TierBreakEven,
    break_even,
    moved_alone,
    plain_step,
    with_bandwidth,
    with_latency,
    with_room,
    with_sharing,
)
from nadi.memory.placement_choice import ByRoom, ByRules, Placer, TierRoom, parse_rules, rooms_of
from nadi.memory.placement_solver import BySolver
from nadi.memory.staged_moves import Staging
from nadi.memory.table_lookups import RowCache
from nadi.memory.tier_accounts import tiered_job
from nadi.models.llm.generated_jobs import checked_plan, llm_job
from nadi.models.llm.language_model import load_language_model
from nadi.progress import tell
from nadi.recordings.jobs import given_job, read_job
from nadi.recordings.step_marks import num_steps_of
from nadi.results.terminal.workers import worker_processes
from nadi.simulation.engine_driver import simulate_job, simulate_with_memories
from nadi.systems.library import read_system_file
from nadi.systems.memory_tiers import MemoryTier, at_bandwidth, second_tier
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Job, Trace
from nadi.units import format_bytes, lowered

_Custom: TypeAlias = dict[str, Sequence[Trace]]  # traces of collectives
_Task: TypeAlias = tuple[list[Job | Sequence[Trace]], list[System], _Custom]
_Figures: TypeAlias = tuple[float | None, float]
_FEW = 12  # points that are not worth processes


class TierGrid(NamedTuple):
    """What is varied.

    Attributes
    ----------
    bandwidths
        Of the second tier, in bytes per ns, of all its ranks together.
    memories, capacities
        Bytes of the first tier, and of the second one; 0 for what the system has, or any.
    sharings
        How many neighboring ranks have the second tier together; 0 for what the system has.
    latencies
        Of the second tier without load, in ns; None for what the system has.
    """

    bandwidths: tuple[float, ...]
    memories: tuple[int, ...] = (0,)
    capacities: tuple[int, ...] = (0,)
    sharings: tuple[int, ...] = (0,)
    latencies: tuple[float | None, ...] = (None,)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(axis) for axis in self)


def sweep_tiers(
    plain: PlainStep, placers: Sequence[Placer], system: System, grid: TierGrid,
    staging: tuple[int, int] = (0, 0), *, in_place: bool = False, executor: Executor | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Simulate placements for each point of a grid: the one with the shortest step counts.

    Ranks that have a tier together have equal shares of it: what they do at the same time is
    simulated once.

    Parameters
    ----------
    placers
        What chooses placements; more of them take longer.
    system
        With a lower tier.
    staging
        Bytes of buffers, and operations that a load may begin before its use; 0 for what usually
        is.
    in_place
        Whether computations access tensors where they live.
    executor
        Where points are simulated; by default processes, or this one for few points.

    Returns
    -------
    polars.DataFrame
        ``memory``, ``capacity``, ``shared_by`` (0 for what the system has), ``latency`` (ns),
        ``bandwidth`` (bytes per ns), ``fits``, ``ns`` (null where nothing fits) and ``ratio`` to
        the step without tiers.
    """
    refuse_in_fork()
    wanted: dict[bytes, _Wanted] = {}
    places: list[list[bytes]] = []  # of each memory, capacity and sharing, what fits
    figures = [_figures(with_sharing(system, sharing), grid) for sharing in grid.sharings]
    for memory, capacity, number in product(
        grid.memories, grid.capacities, range(len(grid.sharings))
    ):
        there = with_sharing(with_room(system, memory, capacity), grid.sharings[number])
        own = plain.staging(there, *staging, in_place=in_place)
        places.append([])
        for placer in placers:
            tier = plain.chosen(placer, there, own)
            if not _fits(plain, tier, rooms_of(there, own.buffers)):
                continue
            key = own.buffers.to_bytes(8, "little") + b"".join(one.tobytes() for one in tier)
            known = wanted.setdefault(key, _Wanted(tier, there, own, {}))
            known.figures.update(dict.fromkeys(figures[number]))
            places[-1].append(key)
    found = _simulated(plain, wanted, executor, grid.size)
    rooms = len(grid.memories), len(grid.capacities), len(grid.sharings)
    ns = np.full((*rooms, len(grid.latencies) * len(grid.bandwidths)), np.inf)
    for number, fitting in enumerate(places):
        at = np.unravel_index(number, rooms)
        for key in fitting:
            ns[at] = np.minimum(ns[at], [found[key][one] for one in figures[at[2]]])
    return _table(plain, grid, system.tiers[0].latency, ns)


class _Wanted(NamedTuple):
    """A placement, and for which latencies and bandwidths of a rank it is simulated."""

    tier: tuple[Ints, ...]
    system: System
    staging: Staging
    figures: dict[_Figures, None]


def _simulated(
    plain: PlainStep, wanted: Mapping[bytes, _Wanted], executor: Executor | None, points: int
) -> dict[bytes, dict[_Figures, int]]:
    """Return how long steps are with each placement, by latency and bandwidth."""
    found: dict[bytes, dict[_Figures, int]] = {}
    tell(0, len(wanted))
    tasks = (_task(plain, one) for one in wanted.values())
    with _mapping(executor, len(wanted), points) as mapped:
        for (key, one), times in zip(wanted.items(), mapped(_times, tasks), strict=True):
            found[key] = dict(zip(one.figures, times, strict=True))
            tell(len(found), len(wanted))
    return found


def _figures(system: System, grid: TierGrid) -> list[_Figures]:
    """Return all latencies, each with a rank's share of each bandwidth."""
    sharing = system.tiers[0].shared_by or system.network.num_ranks
    return [(latency, rate / sharing) for latency in grid.latencies for rate in grid.bandwidths]


def _table(plain: PlainStep, grid: TierGrid, latency: float, ns: Floats) -> pl.DataFrame:
    """Return the points; what needs less fits, too: 0 is as much as there is, or any."""
    for axis, sizes in ((0, grid.memories), (1, grid.capacities)):
        order = np.argsort([size or math.inf for size in sizes], kind="stable")
        best = np.minimum.accumulate(np.take(ns, order, axis=axis), axis=axis)
        ns = np.take(best, np.argsort(order), axis=axis)
    rows = []
    for point, time in zip(product(*grid[1:], grid.bandwidths), ns.ravel().tolist(), strict=True):
        memory, capacity, sharing, stated, bandwidth = point
        is_there = math.isfinite(time)
        rows.append({
            "memory": memory or plain.system.memory_capacity, "capacity": capacity,
            "shared_by": sharing, "latency": latency if stated is None else stated,
            "bandwidth": bandwidth, "fits": is_there,
            "ns": int(time) if is_there else None,
            "ratio": time / max(plain.ns, 1) if is_there else None,
        })  # fmt: skip
    return pl.DataFrame(rows, schema={
        "memory": pl.Int64, "capacity": pl.Int64, "shared_by": pl.Int64, "latency": pl.Float64,
        "bandwidth": pl.Float64, "fits": pl.Boolean, "ns": pl.Int64, "ratio": pl.Float64,
    })  # fmt: skip


def _fits(plain: PlainStep, tiers: Sequence[Ints], rooms: Sequence[TierRoom]) -> bool:
    """Return whether what lives in each tier has room there, at the times without tiers."""
    for tensors, tier in zip(plain.tensors.traces, tiers, strict=True):
        begin, end = tensors.column("begin"), tensors.column("end")
        for number, room in enumerate(rooms):
            mine = np.flatnonzero((tier == number) & (end > begin))
            if math.isinf(room.capacity) or not mine.size:
                continue
            size = plain.tensors.share_of_rank(tensors, room.shared_by)
            time = np.concatenate([begin[mine], end[mine]])
            change = np.concatenate([size[mine], -size[mine]])
            live = np.cumsum(change[np.lexsort((change, time))])
            if live.max() > room.capacity:
                return False
    return True


def _task(plain: PlainStep, wanted: _Wanted) -> _Task:
    """Return the jobs of a placement and the systems, with a rank's share of the tier."""
    systems = [
        with_bandwidth(
            wanted.system if latency is None else with_latency(wanted.system, latency), rate
        )
        for latency, rate in wanted.figures
    ]
    jobs = systems if wanted.staging.in_place else systems[:1]
    return (
        [
            _plain_data(tiered_job(plain.job, plain.tensors, wanted.tier, wanted.staging, one).job)
            for one in jobs
        ],
        systems,
        dict(plain.custom),
    )


def _plain_data(job: Job | Sequence[Trace]) -> Job | Sequence[Trace]:
    """Return a job without operands, which can go to another process."""
    traces = job.traces if isinstance(job, Job) else tuple(job)
    made: dict[int, Trace] = {}
    for trace in traces:
        if id(trace) not in made:
            made[id(trace)] = replace(trace, given_attributes=trace.attributes_without_operands)
    bare = tuple(made[id(trace)] for trace in traces)
    return replace(job, traces=bare) if isinstance(job, Job) else bare


def _times(task: _Task) -> list[int]:
    """Simulate a job on each of some systems, or one for each."""
    jobs, systems, custom = task
    if len(jobs) == 1:
        return [done.makespan for done in simulate_with_memories(jobs[0], systems, custom)]
    return [simulate_job(job, one, custom).makespan for job, one in zip(jobs, systems, strict=True)]


@contextmanager
def _mapping(executor: Executor | None, num: int, points: int) -> Iterator[Any]:
    """Give what applies a function to values, each where there is room."""
    workers = min(os.cpu_count() or 1, num)
    if executor is not None:
        yield executor.map
    elif workers < 2 or points <= _FEW:
        yield map
    else:
        with worker_processes(workers) as pool:
            yield pool.map


_ANY = 1e6  # GiB: the simulation has room as well


class EstimatedRole(NamedTuple):
    """How long a step is with tensors of a role in a lower tier, over that without.

    Attributes
    ----------
    role
        Whose tensors live there.
    simulated, estimated
        Ratios of the same step.
    """

    role: str
    simulated: float
    estimated: float


class PlacementEstimates(NamedTuple):
    """What estimates say beside simulations.

    Attributes
    ----------
    roles
        One for each part that an estimate can offload.
    missing
        Why there are none; empty if there are.
    """

    roles: tuple[EstimatedRole, ...] = ()
    missing: str = ""


def estimates_beside(
    plain: PlainStep, alone: Sequence[MovedRole], fields: Mapping[str, Any], system: System,
    staging: Staging,
) -> PlacementEstimates:  # fmt: skip
    """Estimate the step of a generated job with each part offloaded that estimates can offload.

    - ``alone``: Each role moved alone: those that the job has.
    - ``fields``: Of its plan, with ``model``.
    - ``system``: With lower tiers.
    """
    if staging.in_place:
        return PlacementEstimates(missing="an estimate has no access in place")
    known = {one.role: one.ns for one in alone}
    try:
        machine = _with_second_tier(system)
        how = {name: value for name, value in fields.items() if name != "model"}
        model, plan = checked_plan(fields["model"], how)
        described = model_of_language_model(model, plan.sequence or model.sequence)

        def seconds(*offload: str) -> float:
            execution = execution_of_plan(
                plan, machine, has_experts=model.moe is not None, offload=offload
            )
            return estimate(described, machine, execution).seconds

        without = seconds()
        found = []
        for part in (one for one in OFFLOADED if one in known):
            ratios = (known[part] / max(plain.ns, 1), seconds(part) / without)
            found.append(EstimatedRole(part, *ratios))
    except UsageError as error:
        return PlacementEstimates(missing=str(error))
    return PlacementEstimates(tuple(found))


def _with_second_tier(system: System) -> MachineDescription:
    """Describe the system for an estimate, with the first of its lower tiers."""
    machine = machine_of_system(msgspec.structs.replace(system, remote_memory=None))
    tier = msgspec.structs.replace(machine.mem2, GiB=_ANY)
    return msgspec.structs.replace(machine, mem2=tier)


PLAN_SUFFIXES = (".toml", ".yaml", ".yml")
_COLUMNS = ("tensor", "tier")


def read_placement(path: Path | str) -> dict[str, str]:
    """Read where tensors live: from a role or a tensor (``0:17``) to the name of a tier.

    A CSV file has the columns ``tensor`` and ``tier``, and others are not read; a JSON file has an
    object.

    - Raises InputError if it cannot be read, or has another form.
    """
    path = Path(path)
    content = read_settings(path)
    remedy = 'write {"optimizer": "cxl"}, or a CSV file with the columns tensor and tier'
    if path.suffix == ".json":
        return decode_json(content, dict[str, str], str(path), remedy)
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode())))
    except (ValueError, csv.Error) as error:
        raise FormatError(str(path), lowered(str(error)), remedy) from None
    if not rows or not set(_COLUMNS) <= set(rows[0]):
        raise FormatError(
            str(path), "it has no columns tensor and tier, or no rows",
            "write a row such as optimizer,cxl below tensor,tier",
        )  # fmt: skip
    return {row["tensor"] or "": row["tier"] or "" for row in rows}


def read_job_or_plan(
    path: str, progress: Callable[[str], None] = lambda _: None
) -> Job | list[Trace] | dict[str, Any]:
    """Read a job to simulate, or the fields of a plan: a table with ``model`` and how it is run.

    - Raises InputError as :func:`nadi.recordings.read_job`, or if a plan does not say of which
      model.
    - Raises UsageError if there is no such model, or a plan does not fit it.
    """
    if Path(path).suffix not in PLAN_SUFFIXES:
        return read_job(path, progress)
    fields = read_plan_fields(path)
    if not fields or not isinstance(fields.get("model"), str):
        raise FormatError(path, "it states no model", 'such as model = "llama3-8b"')
    model = load_language_model(fields["model"])
    with parameters_of_file(path):
        checked_plan(model, {name: one for name, one in fields.items() if name != "model"})
    return fields


_FILES = (".csv", ".json")
_SOLVER = "solver"
_SURE = 5e-4  # a gap that is none
_GBPS = 64.0  # of a tier that nobody described


class PlacementQuestion(NamedTuple):
    """What is studied of a job.

    Attributes
    ----------
    place
        Rules, a file of them, or ``solver``; empty for what moves least, as the first tier has no
        room.
    bandwidths
        Of the first lower tier that rules name, in bytes per ns, for all of its ranks and whatever
        is before it: the first of them is what is simulated in full. Empty for what the system has.
    capacities, memories
        Bytes of the lower tier, and of the first one; empty for what the system has, or any.
    sharings
        How many neighboring ranks have the lower tier together; empty for what the system has.
    latencies
        Of the lower tier without load, in ns; empty for what the system has.
    tier
        Instead of those of the system; None for these, or one of 64 bytes per ns.
    buffers, distance
        Bytes of buffers in the first tier, and operations before a use that a load may begin; 0 for
        what usually is.
    in_place
        Whether computations access tensors where they live, rather than copies in buffers.
    cache
        Of rows of embedding tables, in the first tier; None for none.
    """

    place: str = ""
    bandwidths: tuple[float, ...] = ()
    capacities: tuple[int, ...] = ()
    memories: tuple[int, ...] = ()
    sharings: tuple[int, ...] = ()
    latencies: tuple[float, ...] = ()
    tier: MemoryTier | None = None
    buffers: int = 0
    distance: int = 0
    in_place: bool = False
    cache: RowCache | None = None


@dataclass(frozen=True, eq=False)
class PlacementStudy:
    """What tiers change for a step.

    Attributes
    ----------
    plain
        Without tiers, as if all fitted into the first one.
    chosen
        With the placement that was asked for.
    how
        How it was chosen.
    alone
        Each role moved alone; the first one moves nothing.
    pays
        From which bandwidth the placement costs next to nothing; None if it moves nothing.
    points
        As :func:`nadi.memory.placement.study.sweep_tiers` gives them.
    cache
        That was asked for.
    estimates
        What :func:`nadi.estimates.estimate` says beside, of a generated job; None of others.
    num_steps
        How many steps the job consists of; 0 if that is not known.
    """

    plain: PlainStep
    chosen: PlacedStep
    how: str
    alone: tuple[MovedRole, ...]
    pays: TierBreakEven | None
    points: pl.DataFrame
    estimates: PlacementEstimates | None
    cache: RowCache | None = None
    num_steps: int = 0


@checked
def study_placement(
    job: Job | Sequence[Trace] | str | Path, system: System | str | Path,
    asked: PlacementQuestion | None = None, *, progress: Callable[[str], None] = lambda _: None,
) -> PlacementStudy:  # fmt: skip
    """Simulate a job whose tensors live in several tiers, and what else could be done.

    Parameters
    ----------
    job
        Traces, paths that :func:`nadi.recordings.read_job` accepts, or the file of a plan: the
        fields of
        :class:`nadi.models.ParallelPlan`, and ``model``.
    system
        With or without lower tiers, or a name or a file of one.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If the job cannot be read, or its traces have no operands.
    UsageError
        If the job does not fit the system, or a placement names what there is not.
    """
    question = asked or PlacementQuestion()
    job, plan = _read(job, progress)
    ranks = len(job.traces) if isinstance(job, Job) else len(job)
    if not isinstance(system, System):
        system = read_system_file(str(system)).fit(ranks)
    machine = _with_tiers(system, question)
    progress("simulating without tiers")
    plain = plain_step(job, machine, question.cache)
    if question.cache is not None:
        _check_cache(plain, question.cache, machine)
        left = tuple(one - question.cache.capacity for one in question.memories)
        machine = with_room(machine, machine.memory_capacity - question.cache.capacity)
        question = question._replace(memories=left)
    wanted = question.buffers, question.distance
    staging = plain.staging(machine, *wanted, in_place=question.in_place)
    progress("simulating with tiers")
    choices = _choices(plain, question.place, machine, staging)
    steps = {how: plain.placed(tier, machine, staging) for how, (_, tier) in choices.items()}
    how = min(steps, key=lambda one: (bool(steps[one].excess), steps[one].ns))
    chosen = steps[how]
    progress("moving each role alone")
    alone = moved_alone(plain, machine, staging)
    progress("varying the bandwidth")
    equal = [one for one in steps.values() if bool(one.excess) == bool(chosen.excess)]
    pays = break_even(plain, equal, machine, staging) if chosen.is_placed else None
    rates = question.bandwidths or (machine.tiers[0].read_bandwidth,)
    grid = TierGrid(
        rates, question.memories or (0,), question.capacities or (0,), question.sharings or (0,),
        question.latencies or (None,),
    )  # fmt: skip
    placers = [placer for placer, _ in choices.values()]
    points = sweep_tiers(plain, placers, machine, grid, wanted, in_place=question.in_place)
    beside = estimates_beside(plain, alone, plan, machine, staging) if plan else None
    return PlacementStudy(plain, chosen, how, alone, pays, points, beside, question.cache,
                          num_steps_of(job))  # fmt: skip


def _read(
    job: Job | Sequence[Trace] | str | Path, progress: Callable[[str], None]
) -> tuple[Job | Sequence[Trace], Mapping[str, Any]]:
    """Return a job, and the fields of its plan if it was generated by one."""
    if not isinstance(job, (str, Path)):
        return given_job(job), {}
    progress(f"reading {job}")
    found = read_job_or_plan(str(job), progress)
    if not isinstance(found, dict):
        return given_job(found), {}
    plan = dict(found)
    return given_job(llm_job(found.pop("model"), **found)), plan


def _with_tiers(system: System, question: PlacementQuestion) -> System:
    """Return the system with the tier that is simulated in full."""
    if question.tier is not None or not system.tiers:
        tier = question.tier or second_tier(_GBPS)
        system = msgspec.structs.replace(system, tiers=(tier,), memory_paths=())
    system = _used_first(system, question.place)
    if question.bandwidths:
        first, *others = system.tiers
        there = at_bandwidth(first, question.bandwidths[0])
        system = msgspec.structs.replace(system, tiers=(there, *others))
    if question.latencies:
        system = with_latency(system, question.latencies[0])
    if not math.isfinite(system.tiers[0].read_bandwidth) or not system.tiers[0].read_bandwidth:
        raise UsageError(
            f"tier {system.tiers[0].name!r}", "it has no bandwidth",
            ["give one: ", Parameter("bandwidth", "64")],
        )  # fmt: skip
    memory, capacity, sharing = (
        listed[0] if listed else 0
        for listed in (question.memories, question.capacities, question.sharings)
    )
    for ranks in question.sharings:  # what cannot be is told at once
        with_sharing(system, ranks)
    return with_sharing(with_room(system, memory, capacity), sharing)


def _check_cache(plain: PlainStep, cache: RowCache, system: System) -> None:
    """Raise UsageError if a cache holds rows of nothing, or leaves no room beside it."""
    where = Parameter("table_cache")
    if not any(one.looked_up for one in plain.tensors.traces):
        raise UsageError(where, "no operator of the job looks up rows of a table", "leave it out")
    if 0 < system.memory_capacity <= cache.capacity:
        raise UsageError(
            where, f"the first tier has {format_bytes(system.memory_capacity)}",
            "give less, so that other tensors have room beside the cache",
        )  # fmt: skip


def _used_first(system: System, place: str) -> System:
    """Return the system whose first lower tier is the first one that rules name: it is varied."""
    placers = _placers(place).values() if place != _SOLVER else ()
    rules = [rule for one in placers if isinstance(one, ByRules) for rule in one.rules]
    known = {tier.name: tier for tier in system.tiers}
    used = next((known[rule.tier] for rule in rules if rule.tier in known), system.tiers[0])
    others = (tier for tier in system.tiers if tier is not used)
    return msgspec.structs.replace(system, tiers=(used, *others))


def _choices(
    plain: PlainStep, place: str, system: System, staging: Staging
) -> dict[str, tuple[Placer, tuple[Ints, ...]]]:
    """Return what chooses the placement, and what it chooses, by how it does."""
    if place != _SOLVER:
        return {
            how: (placer, plain.chosen(placer, system, staging))
            for how, placer in _placers(place).items()
        }
    solver = BySolver(distance=staging.distance, buffers=staging.buffers)
    solved = solver.solve(plain.tensors, rooms_of(system, staging.buffers))
    gap = max(one.gap for one in solved)
    how = "the least of its model" if gap < _SURE else f"at most {100 * gap:.1f} % above the least"
    return {f"by solver, {how}": (solver, tuple(one.tier for one in solved))}


def _placers(place: str) -> dict[str, Placer]:
    """Return what chooses the placement, by how it does."""
    if not place:
        return {
            "tensors that move most for their size and lifetime stay in the first tier": ByRoom(),
            "tensors that move most for their size stay in the first tier": ByRoom(by_time=False),
        }
    if Path(place).suffix in _FILES:
        return {f"by {place}": ByRules.of_names(read_placement(place), place)}
    return {place: ByRules(parse_rules(place))}
