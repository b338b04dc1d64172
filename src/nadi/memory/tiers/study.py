"""What a second memory tier changes: the fastest execution by its bandwidth and capacity.

All executions of a space are evaluated once for each bandwidth, without a limit of capacity; then
each capacity takes the fastest of those that fit. So a larger capacity is never slower.

Studies of a second memory tier for several models and systems, in processes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.estimates.calculon.machine_description import MemoryColumns, columns_of_tier
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.evaluation import Best, Evaluated, Evaluation
from nadi.estimates.execution import (
    Execution,
    Executions,
    columns_of,
    execution_at,
    moved_tensors,
)
from nadi.estimates.plan_execution import by_execution_names
from nadi.estimates.price_bounds import is_calibrated, step_bounds
from nadi.estimates.search_layouts import SearchSpace, search_space
from nadi.estimates.stated_files import read_machine, read_model
from nadi.forks import refuse_in_fork
from nadi.progress import tell
from nadi.results.terminal.workers import worker_processes
from nadi.systems.memory_tiers import MemoryTier, second_tier
from nadi.trace.arrays import Bools, Floats

if TYPE_CHECKING:
    from nadi.estimates.calibration import Calibration

_AT_ONCE = 1 << 17
_STEPS = 8  # of the curve, in each doubling of the bandwidth
_NEAR = 1e-9  # of rates that are the same but for rounding
_PAYS, _ENOUGH = 1.01, 0.95  # of the rate without the tier; of the gain at any bandwidth
_BELOW, _ABOVE = 32.0, 2.0  # how far the curve goes beyond the bandwidths of the study


class StudiedExecution(NamedTuple):
    """The fastest execution of a point."""

    rate: float  # sequences a second
    seconds: float
    tier1_bytes: float
    tier2_bytes: float
    execution: Execution

    @property
    def moved(self) -> tuple[str, ...]:
        """What lives in the second tier."""
        return moved_tensors(self.execution)


_NONE: StudiedExecution | None = None


class BreakEven(NamedTuple):
    """Bandwidths in 10^9 bytes a second, on a curve with 8 points in each doubling.

    Attributes
    ----------
    pays_from
        The smallest with a rate 1 % above that without the tier, or where something is possible at
        all; None if there is none.
    enough_from
        The smallest with 95 % of the gain at any bandwidth; None if the tier never pays.
    bandwidths, rates
        The curve: float64, shape (points,); sequences a second, at the largest capacity.
    limit
        The rate at any bandwidth.
    """

    pays_from: float | None
    enough_from: float | None
    bandwidths: Floats
    rates: Floats
    limit: float


class TierStudy(NamedTuple):
    """The fastest executions of a space.

    Attributes
    ----------
    bandwidths, capacities
        Of a tier, in 10^9 bytes a second and in 2^30 bytes.
    num_executions
        How many were tried at each point.
    without
        Without a second tier; None if nothing is possible.
    best
        By capacity, then bandwidth; None where nothing is possible. Of equally fast executions
        those that offload nothing come first.
    break_even
        At the largest capacity.
    tier
        What it is otherwise.
    price_per_hour, currency
        Of a processor; 0 if unknown.
    bounds
        Rates without a tier and with the largest, fastest one, each if all kernels take the least
        and the most of their intervals: where some were measured (:func:`read_calibration`).
    """

    bandwidths: tuple[float, ...]
    capacities: tuple[float, ...]
    num_executions: int
    without: StudiedExecution | None
    best: tuple[tuple[StudiedExecution | None, ...], ...]
    break_even: BreakEven
    tier: MemoryTier
    price_per_hour: float = 0.0
    currency: str = ""
    bounds: tuple[tuple[float, float], tuple[float, float]] | None = None

    @property
    def price_that_pays(self) -> float | None:
        """A processor's share of the fastest, largest tier, in prices of a processor.

        At this price a token costs as much as without the tier; None if either is not possible.
        """
        most = self.best[-1][-1]
        if most is None or self.without is None:
            return None
        return most.rate / self.without.rate - 1


def study_second_tier(
    space: SearchSpace, bandwidths: Sequence[float], capacities: Sequence[float],
    tier: MemoryTier | None = None,
) -> TierStudy:  # fmt: skip
    """Find the fastest executions with a second tier, and from which bandwidth it pays.

    O(executions x bandwidths).

    Parameters
    ----------
    space
        Executions on a machine with a second tier, of whatever size.
    bandwidths, capacities
        Of a tier, in 10^9 bytes a second above 0, and in 2^30 bytes.
    tier
        What the tier is otherwise; None for full duplex memory behind CXL.

    Raises
    ------
    UsageError
        If there is no bandwidth or no capacity.
    """
    if not bandwidths or not capacities or min(bandwidths) <= 0 or min(capacities) < 0:
        raise UsageError(
            [Parameter("bandwidths"), ", ", Parameter("capacities")],
            "at least one of each is needed, of bandwidths above 0", "such as 128 and 1024",
        )  # fmt: skip
    listed, sizes = (tuple(sorted(set(map(float, one)))) for one in (bandwidths, capacities))
    tried = _Tried(space, tier or second_tier(1.0), (listed[0] / _BELOW, *listed, math.inf), sizes)
    points = [[_NONE] * len(tried.bandwidths) for _ in sizes]
    without = _NONE
    fastest: list[tuple[Executions, Floats]] = []  # rates at any bandwidth and the largest capacity
    for part in tried.parts():
        looked_at = tried.sought(tried.evaluation(part), tried.bandwidths)
        stays = ~_moves(part)
        without = _faster(without, tried.best(looked_at[0], 0.0, stays, without))
        for k, at in enumerate(looked_at):
            for i, size in enumerate(sizes):
                points[i][k] = _faster(points[i][k], tried.best(at, size, ~stays, points[i][k]))
        fastest.append((part, np.where(stays, 0.0, tried.rates(looked_at[-1], sizes[-1]))))
    slowest, *_, limit = (_faster(without, one) for one in points[-1])
    least = (without.rate if without else 0.0, slowest.rate if slowest else 0.0)
    curve = _break_even(tried, fastest, least, limit.rate if limit else 0.0)
    kept = tuple(tuple(_faster(without, one) for one in row[1:-1]) for row in points)
    return TierStudy(
        listed,
        sizes,
        space.size,
        without,
        kept,
        curve,
        tried.tier,
        space.machine.price_per_hour,
        space.machine.currency,
        _bounds(tried, without, kept[-1][-1]),
    )


def _bounds(
    tried: _Tried, without: StudiedExecution | None, most: StudiedExecution | None
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Give the rates of both between the ends of their kernels' prices, if some were measured."""
    space = tried.space
    if without is None or most is None or not is_calibrated(space.machine):
        return None
    tier = columns_of_tier(space.machine, tried.tier, tried.bandwidths[-2])
    machine = msgspec.structs.replace(space.machine, mem2=tier)
    executions = columns_of([without.execution, most.execution])
    first, second = (
        (float(low), float(high))
        for low, high in zip(
            *(without.execution.batch_size / seconds
              for seconds in step_bounds(space.model, machine, executions, space.rules)),
            strict=True,
        )
    )  # fmt: skip
    return first, second


def _faster(
    one: StudiedExecution | None, other: StudiedExecution | None
) -> StudiedExecution | None:
    if one is None or other is None:
        return one or other
    return other if other.rate > one.rate * (1 + 1e-12) else one


def _moves(part: Executions) -> Bools:
    moved = part.weight_offload + part.activations_offload + part.optimizer_offload
    return np.broadcast_to(moved > 0, part.num_executions)


class _Sought(NamedTuple):
    """Executions with a tier, and what is known of them."""

    evaluation: Evaluation
    tier: MemoryColumns
    found: Evaluated

    @property
    def part(self) -> Executions:
        """All of them."""
        return self.evaluation.executions


class _Tried(NamedTuple):
    """What a study evaluates."""

    space: SearchSpace
    tier: MemoryTier
    bandwidths: tuple[float, ...]
    sizes: tuple[float, ...]

    def parts(self) -> Iterator[Executions]:
        """Give all executions, some at a time, of which each has at least one whole column."""
        for begin in range(0, self.space.size, _AT_ONCE):
            for part in self.space.executions(begin, min(begin + _AT_ONCE, self.space.size)):
                whole = np.broadcast_to(part.tensor_par, part.num_executions)
                yield part._replace(tensor_par=whole)

    def evaluation(self, part: Executions) -> Evaluation:
        """Work out what no bandwidth changes."""
        machine = self.space.machine
        tier = columns_of_tier(machine, self.tier, self.bandwidths[0])
        with_tier = msgspec.structs.replace(machine, mem2=tier)
        return Evaluation(self.space.model, with_tier, part, self.space.rules)

    def sought(self, evaluation: Evaluation, bandwidths: Sequence[float]) -> list[_Sought]:
        """Evaluate executions with a tier of each bandwidth and any size."""
        tiers = [columns_of_tier(self.space.machine, self.tier, one) for one in bandwidths]
        found = evaluation.with_tiers(tiers)
        return list(map(_Sought, [evaluation] * len(tiers), tiers, found))

    def rates(self, at: _Sought, size: float) -> Floats:
        """Give the rates with tiers of a capacity in 2^30 bytes; 0 if not possible."""
        share = size * 2**30 / np.minimum(at.part.num_procs, self.tier.shared_by)
        fits = (at.found.reason == 0) & (at.found.tier2_bytes <= share)
        rates: Floats = np.where(fits, at.part.batch_size / at.found.seconds, 0.0)
        return rates

    def best(
        self, at: _Sought, size: float, allowed: Bools, so_far: StudiedExecution | None
    ) -> StudiedExecution | None:
        """Give the fastest of those that are allowed and fit; None if none is faster so far."""
        rate = self.best_rates(at, size, allowed, so_far.rate if so_far else 0.0)
        row = int(rate.argmax())
        return _at(at.part, at.found, rate, row) if rate[row] > 0 else None

    def best_rates(self, at: _Sought, size: float, allowed: Bools, least: float) -> Floats:
        """Give rates as :meth:`rates` does, of which the largest is exact if it is above least."""
        fits = allowed & (self.rates(at, size) > 0)
        at.evaluation.follow_best(
            at.tier, at.found, Best(fits, 1, 1.0 / least if least else math.inf)
        )
        exact = fits & ~at.found.is_least
        return np.where(exact, self.rates(at, size), 0.0)


def _break_even(
    tried: _Tried, fastest: Sequence[tuple[Executions, Floats]], least: tuple[float, float],
    most: float,
) -> BreakEven:  # fmt: skip
    """Find from which bandwidths the tier pays, and from which more of it does not.

    - ``fastest``: Executions, and the rates that none of them exceeds at any bandwidth.
    - ``least``, ``most``: The rates without the tier and at the smallest bandwidth; at any
      bandwidth.
    """
    ends = math.log2(tried.bandwidths[0]), math.log2(tried.bandwidths[-2] * _ABOVE)
    steps = np.arange(round(ends[0] * _STEPS), round(ends[1] * _STEPS) + 1)
    bandwidths = 2.0 ** (steps / _STEPS)
    rates = _curve(tried, fastest, bandwidths, least[1])
    pays = bandwidths[rates > least[0] * _PAYS]
    if not pays.size:
        return BreakEven(None, None, bandwidths, rates, most)
    wanted = max(least[0] * _PAYS, least[0] + _ENOUGH * (most - least[0]))
    enough = bandwidths[rates >= wanted]
    return BreakEven(
        float(pays[0]), float(enough[0]) if enough.size else None, bandwidths, rates, most
    )


def _curve(
    tried: _Tried, fastest: Sequence[tuple[Executions, Floats]], bandwidths: Floats, least: float
) -> Floats:
    """Give the fastest rate at each bandwidth, at the largest capacity.

    What is slower at any bandwidth than the fastest at a smaller one is left out.
    """
    chosen = [(part, rate, rate > least * (1 + 1e-12)) for part, rate in fastest]
    candidates = [part.part(rows) for part, _, rows in chosen if rows.any()]
    rates = np.full(bandwidths.size, least)
    if not candidates:
        return rates
    every = near = tried.evaluation(_joined(candidates))
    all_limits = limits = np.concatenate([rate[rows] for _, rate, rows in chosen])

    def best(of: Evaluation, bandwidth: float, above: float) -> float:
        (at,) = tried.sought(of, [bandwidth])
        allowed = np.ones(of.reason.size, dtype=np.bool_)
        return float(tried.best_rates(at, tried.sizes[-1], allowed, above).max())

    so_far = least
    for k, bandwidth in enumerate(bandwidths.tolist()):
        before = so_far * (1 - _NEAR)
        can = limits >= before
        if 2 * np.count_nonzero(can) < limits.size:
            near, limits = near.part(np.flatnonzero(can)), limits[can]
        found = best(near, bandwidth, before)
        if found < before and so_far > least:  # some are slower with a faster tier
            near, limits = every, all_limits
            found = best(near, bandwidth, least)
        so_far = rates[k] = max(least, found)
    return rates


def _joined(parts: Sequence[Executions]) -> Executions:
    whole = [[np.broadcast_to(column, part.num_executions) for column in part] for part in parts]
    return Executions(*(np.concatenate(columns) for columns in zip(*whole, strict=True)))


def _at(part: Executions, found: Evaluated, rate: Floats, row: int) -> StudiedExecution:
    return StudiedExecution(
        float(rate[row]), float(found.seconds[row]), float(found.tier1_bytes[row]),
        float(found.tier2_bytes[row]), execution_at(part, row),
    )  # fmt: skip


STUDIED_MODELS = {
    "13b": ("gpt3-13b", 4), "22b": ("megatron-22b", 8), "175b": ("gpt3-175b", 64),
    "530b": ("megatron-530b", 128), "1t": ("megatron-1t", 128),
}  # fmt: skip
"""Short names of models, and on how many ranks they are studied by default."""
STUDIED_SYSTEMS = {"a100": "dgx-a100", "h100": "dgx-h100", "h200": "hgx-h200"}
_RANKS = 64  # of a model without a short name
_ALWAYS: dict[str, Any] = {
    "tensor_par_comm_type": ["rs_ag"], "seq_par_ag_redo": [False], "optimizer_sharding": [True],
}  # fmt: skip
_SPACE = _ALWAYS | {"data_par_overlap": [True]}
# that of the study in verification/calculon.py, with more interleavings
_SPACE_OF_CALCULON = _ALWAYS | {
    "data_par_overlap": [False], "tensor_par_overlap": ["none"], "tensor_par": [1, 2, 4, 8],
    "microbatch_size": [1, 2, 4, 8],
}  # fmt: skip


class TierQuestion(NamedTuple):
    """What is studied of each model and system.

    Attributes
    ----------
    bandwidths, capacities
        Of a tier, in 10^9 bytes a second and in 2^30 bytes.
    tier
        What the tier is otherwise; None for full duplex memory behind CXL.
    ranks
        How many; 0 for the number that ``STUDIED_MODELS`` has.
    global_batch
        Sequences of a step.
    calibration
        What was measured on the systems (:func:`nadi.estimates.read_calibration`).
    given
        Values of fields to try, as for :func:`nadi.estimates.search_space`.
    """

    bandwidths: tuple[float, ...] = (32.0, 64.0, 128.0, 256.0, 512.0)
    capacities: tuple[float, ...] = (64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
    tier: MemoryTier | None = None
    ranks: int = 0
    global_batch: int = 512
    calibration: Calibration | None = None
    given: Mapping[str, Iterable[Any]] | None = None


class StudiedJob(NamedTuple):
    """A study of a model on a system, by the names that were given."""

    model: str
    system: str
    ranks: int
    global_batch: int
    study: TierStudy


def study_second_tiers(
    models: Sequence[str] = (), systems: Sequence[str] = (),
    question: TierQuestion | None = None, *, rules: EstimateRules = DEFAULT,
    executor: Executor | None = None,
) -> tuple[StudiedJob, ...]:  # fmt: skip
    """Study what a second memory tier changes for models on systems.

    The space of executions: all degrees of tensor, pipeline and data parallelism, micro-batches,
    interleavings, recomputations, overlaps of tensor parallelism, and all kinds of tensors that can
    be offloaded; with sequence parallelism, a sharded optimizer and overlapped reductions wherever
    there is something to split. By Calculon's rules, nothing overlaps, and at most 8 ranks
    share a tensor and 8 sequences a micro-batch.

    Parameters
    ----------
    models, systems
        Names or files, or short names; by default all of ``STUDIED_MODELS`` and of
        ``STUDIED_SYSTEMS``.
    executor
        Where they are worked out; by default processes, or this one if there is one study.

    Raises
    ------
    InputError
        If a model or a system cannot be read.
    UsageError
        If there is no such name, or no execution fits the ranks and the batch.
    """
    refuse_in_fork()
    asked = question or TierQuestion()
    pairs = [
        (model, system, asked, rules)
        for model in models or STUDIED_MODELS
        for system in systems or STUDIED_SYSTEMS
    ]
    found = []
    tell(0, len(pairs))
    with _mapping(executor, len(pairs)) as mapped:
        for one in mapped(_study, pairs):
            found.append(one)
            tell(len(found), len(pairs))
    return tuple(found)


@contextmanager
def _mapping(executor: Executor | None, num: int) -> Iterator[Any]:
    """Give what applies a function to values, each where there is room."""
    workers = min(os.cpu_count() or 1, num)
    if executor is not None:
        yield executor.map
    elif workers < 2:
        yield map
    else:
        with worker_processes(workers) as pool:
            yield pool.map


def _study(asked: tuple[str, str, TierQuestion, EstimateRules]) -> StudiedJob:
    model, system, question, rules = asked
    name, usual = STUDIED_MODELS.get(model.lower(), (model, _RANKS))
    ranks = question.ranks or usual
    described = read_model(name)
    machine = read_machine(
        STUDIED_SYSTEMS.get(system.lower(), system), ranks, calibration=question.calibration
    )
    if not machine.mem2.GiB:  # there is one, of which the study says how large it is
        machine = msgspec.structs.replace(
            machine, mem2=msgspec.structs.replace(machine.mem2, GiB=1.0)
        )
    fields = _SPACE_OF_CALCULON if rules.blocks_of_calculon else _SPACE
    given = by_execution_names(question.given or {})
    others = {"optimizer_sharding"} if "zero" in given else set()  # which says all of it
    chosen = {name: one for name, one in fields.items() if name not in others} | given
    try:
        space = search_space(described, machine, ranks, question.global_batch, chosen, rules=rules)
    except UsageError as error:
        raise UsageError(f"{model} on {ranks} {system}: {error.where}", error.what,
                         error.remedy) from None  # fmt: skip
    study = study_second_tier(space, question.bandwidths, question.capacities, question.tier)
    return StudiedJob(model, system, ranks, question.global_batch, study)
