"""The evaluation core: one execution and a million go the same way.

What a block costs depends on few fields, so it is worked out once for each of their distinct
values; executions then take it by index, in parts whose columns fit the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nadi.estimates.calculon.block_costs import block_costs, optimizer_costs
from nadi.estimates.calculon.machine_description import MachineDescription, MemoryColumns
from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.calculon.step_costs import StepCosts, step_costs
from nadi.estimates.described_columns import rows_of
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Executions
from nadi.estimates.feasibility import REASONS, capacity_reasons, shape_reasons
from nadi.estimates.generated_blocks import generated_costs
from nadi.estimates.generated_step import generated_pipelines, generated_step
from nadi.estimates.shared_tiers import Pipelines, are_followed
from nadi.estimates.step_ends import step_ends
from nadi.trace.arrays import Bools, Floats, Ints

_AT_ONCE = 16384
_NARROWED = 2 * _AT_ONCE  # executions, of more of which those are taken apart that are followed
_FOLLOWED_FIRST = 4  # and twice as many each time, as more are followed than need be


class Evaluated(NamedTuple):
    """What a search keeps of executions: shape (executions,)."""

    reason: Ints  # code of the rule that it breaks, 0 if it can be
    seconds: Floats  # of a step
    tier1_bytes: Floats
    tier2_bytes: Floats
    tier2_bandwidth: Floats  # bytes a second that hide all offloading
    # whether a step takes at least so many seconds, as the moves of its stages were not followed,
    # and whether these moves were counted, at least
    is_least: Bools
    is_counted: Bools

    def lacks(self) -> list[str]:
        """Give the name of the rule that each breaks, empty if it breaks none."""
        return [REASONS[code].name for code in self.reason]


def nothing_evaluated(num: int) -> Evaluated:
    """Give what is known of so many executions before they are evaluated."""
    none = np.zeros(num)
    return Evaluated(
        none.astype(np.int64), none + np.inf, none, none.copy(), none.copy(), none > 0, none > 0
    )


class Best(NamedTuple):
    """Which executions are looked for."""

    allowed: Bools  # shape (executions,)
    keep: int  # how many of the fastest
    seconds: float  # of a sequence, at most: that of the slowest that is kept so far


def evaluate(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules, *, follows: bool = True,
) -> Evaluated:  # fmt: skip
    """Give the time, the memory and the feasibility of executions.

    The model and the machine may have columns of shape (executions,) in place of numbers
    (``described_columns``). Those that break a rule have a time of infinity, apart from those
    that only lack memory. Without ``follows``, moves of stages to a tier are left to
    :meth:`Evaluation.follow_best`.
    O(executions), and O(distinct blocks) for the layers.
    """
    evaluation = Evaluation(model, machine, executions, rules)
    return evaluation.with_tiers((machine.mem2,), follows=follows)[0]


class Evaluation:
    """Executions on a machine, of which all is worked out once that no second tier changes."""

    def __init__(
        self, model: ModelDescription, machine: MachineDescription, executions: Executions,
        rules: EstimateRules,
    ) -> None:  # fmt: skip
        """Find those that can be, and what their blocks cost."""
        self.executions = executions
        reason = shape_reasons(model, machine, executions, rules)
        self.reason = np.array(np.broadcast_to(reason, executions.num_executions))
        self.rows = np.flatnonzero(self.reason == 0)
        if not all(column.size for column in executions):
            self.rows = self.rows[:0]
        if self.rows.size:
            self.priced = _Priced.of(
                rows_of(model, self.rows), rows_of(machine, self.rows), executions.part(self.rows),
                rules,
            )  # fmt: skip

    def part(self, rows: Ints) -> Evaluation:
        """Give some of them."""
        found = copy(self)
        found.executions, found.reason = self.executions.part(rows), self.reason[rows]
        found.rows = np.flatnonzero(found.reason == 0)
        if found.rows.size:
            found.priced = self.priced.part(self._place[rows[found.rows]])
        return found

    @property
    def _place(self) -> Ints:
        """Number each of those that can be, as they are priced."""
        place = np.full(self.reason.size, -1)
        place[self.rows] = np.arange(self.rows.size)
        return place

    def with_tiers(
        self, tiers: Sequence[MemoryColumns], *, follows: bool = False
    ) -> list[Evaluated]:
        """Evaluate executions with each of several second memory tiers, as :func:`evaluate` does.

        Tiers differ from the machine's in their bandwidth alone.
        """
        reason, rows = self.reason, self.rows
        found = [
            nothing_evaluated(reason.size)._replace(reason=reason.copy()) for _ in tiers
        ]  # fmt: skip
        machines = [rows_of(tier, rows) for tier in tiers]
        for part, priced in self.priced.parts() if rows.size else ():
            here = rows[part]
            for one, with_tier in zip(found, machines, strict=True):
                there, costs = priced.step(rows_of(with_tier, part), follows=follows)
                if not (follows or priced.rules.blocks_of_calculon):
                    one.is_least[here] = are_followed(priced.executions)
                one.reason[here] = capacity_reasons(
                    there, costs.memory, reason[here], priced.executions
                )
                one.seconds[here] = costs.times.total
                one.tier1_bytes[here] = costs.memory.tier1_bytes
                one.tier2_bytes[here] = costs.memory.tier2_bytes
                one.tier2_bandwidth[here] = costs.offload.bandwidth
        return found

    def follow_best(self, tier: MemoryColumns, found: Evaluated, best: Best) -> None:
        """Follow the moves of executions, until no other one can be among the best.

        Of those that can be, moves are counted first, which tells more of how long they take; then
        they are followed, beginning with those that can be the fastest. ``found`` is what
        :meth:`with_tiers` gives for the tier, and has their seconds afterwards.
        """
        num, place = self.reason.size, self._place
        each = 1.0 / np.broadcast_to(self.executions.batch_size, num)
        priced, followed = None, _FOLLOWED_FIRST
        while True:
            seconds = found.seconds * each
            known = seconds[best.allowed & ~found.is_least]
            most = best.seconds
            if known.size >= best.keep:
                most = min(most, float(np.partition(known, best.keep - 1)[best.keep - 1]))
            rows = np.flatnonzero(best.allowed & found.is_least & (seconds <= most))
            if not rows.size:
                return
            if priced is None and num <= _NARROWED:
                priced = self.priced
            elif priced is None:
                priced = self.priced.part(place[rows])
                place[rows] = np.arange(rows.size)
            fewer = rows[~found.is_counted[rows]]
            is_counted = not fewer.size
            if is_counted:
                order = np.argsort(seconds[rows], kind="stable")
                fewer, followed = rows[order[:followed]], 2 * followed
            costs = priced.counted(place[fewer]).step(tier, follows=is_counted)[1]
            found.seconds[fewer] = costs.times.total
            found.is_least[fewer] = not is_counted
            found.is_counted[fewer] = True


def evaluate_parts(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Iterator[tuple[Executions, StepCosts]]:  # fmt: skip
    """Give all costs of executions that can be but for their memory, some thousands at a time."""
    if not all(column.size for column in executions):
        return
    priced = _Priced.of(model, machine, executions, rules)
    for rows, part in priced.parts():
        yield part.executions, part.step(rows_of(machine.mem2, rows), follows=True)[1]


class _Priced:
    """Executions, and what their blocks cost: the costs of ways, and the way of each execution."""

    def __init__(
        self, described: tuple[ModelDescription, MachineDescription], executions: Executions,
        rules: EstimateRules, blocks: tuple[Ints, Any], others: tuple[Ints, Any],
    ) -> None:  # fmt: skip
        self.model, self.machine = described
        self.executions, self.rules, self.blocks, self.others = executions, rules, blocks, others
        self._costs: tuple[Any, Any] | None = None
        # those whose moves are followed, whatever bandwidth the second tier has
        self.pipelines: Pipelines | None = None

    @classmethod
    def of(
        cls, model: ModelDescription, machine: MachineDescription, executions: Executions,
        rules: EstimateRules,
    ) -> _Priced:  # fmt: skip
        """Work out what blocks cost."""
        if rules.blocks_of_calculon:
            return cls(
                (model, machine), executions, rules,
                block_costs(model, machine, executions, rules),
                optimizer_costs(model, machine, executions),
            )  # fmt: skip
        return cls(
            (model, machine), executions, rules, generated_costs(model, machine, executions),
            step_ends(model, machine, executions),
        )  # fmt: skip

    def part(self, rows: slice | Ints) -> _Priced:
        """Give some of them."""
        found = copy(self)
        found.model, found.machine = rows_of(self.model, rows), rows_of(self.machine, rows)
        found.executions = self.executions.part(rows)
        found.blocks, found.others = _ways(self.blocks, rows), _ways(self.others, rows)
        found._costs = None
        if self.pipelines is not None:
            found.pipelines = None if isinstance(rows, slice) else self.pipelines.part(rows)
        return found

    def parts(self) -> Iterator[tuple[slice, _Priced]]:
        """Give all of them, as many at a time as fit the cache."""
        num = self.executions.num_executions
        for begin in range(0, num, _AT_ONCE):
            rows = slice(begin, begin + _AT_ONCE)
            yield rows, self if num <= _AT_ONCE else self.part(rows)

    def counted(self, rows: Ints) -> _Priced:
        """Give some of them, of which it is known what moves if stages move some."""
        if self.pipelines is None:
            self.pipelines = generated_pipelines(
                self.model, self.machine, self.executions, *self.costs
            )
        return self.part(rows)

    @property
    def costs(self) -> tuple[Any, Any]:
        """What blocks and the ends of a step cost, of each execution."""
        if self._costs is None:
            first, second = (_take(costs, way) for way, costs in (self.blocks, self.others))
            self._costs = first, second
        return self._costs

    def step(self, tier: MemoryColumns, *, follows: bool) -> tuple[MachineDescription, StepCosts]:
        """Put a step together with a second tier, on a machine that has it, which is given, too."""
        there = msgspec.structs.replace(self.machine, mem2=tier)
        if self.rules.blocks_of_calculon:
            return there, step_costs(self.model, there, self.executions, *self.costs, self.rules)
        return there, generated_step(
            self.model, there, self.executions, *self.costs, pipelines=self.pipelines,
            follows=follows,
        )  # fmt: skip


def _ways(costs: tuple[Ints, Any], rows: slice | Ints) -> tuple[Ints, Any]:
    way, of_ways = costs
    return way if way.size == 1 else way[rows], of_ways


def _take(value: Any, rows: Ints) -> Any:
    """Give the costs of some ways."""
    if isinstance(value, np.ndarray):
        return value if value.size == 1 else value[rows]
    parts = [_take(one, rows) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
