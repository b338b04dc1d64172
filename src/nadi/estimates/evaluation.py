"""The evaluation core: one execution and a million go the same way.

What a block costs depends on few fields, so it is worked out once for each of their distinct
values; executions then take it by index, in parts whose columns fit the cache.
"""

from collections.abc import Callable, Iterator, Sequence
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
from nadi.estimates.generated_step import generated_step
from nadi.estimates.shared_tiers import are_followed
from nadi.estimates.step_ends import step_ends
from nadi.trace.arrays import Bools, Floats, Ints

_AT_ONCE = 16384
_Step = Callable[[MachineDescription, bool], StepCosts]
_FOLLOWED_AT_ONCE = 64


class Evaluated(NamedTuple):
    """What a search keeps of executions: shape (executions,)."""

    reason: Ints  # code of the rule that it breaks, 0 if it can be
    seconds: Floats  # of a step
    tier1_bytes: Floats
    tier2_bytes: Floats
    tier2_bandwidth: Floats  # bytes a second that hide all offloading
    # whether a step takes at least so many seconds, as the moves of its stages were not followed
    is_least: Bools

    def lacks(self) -> list[str]:
        """Give the name of the rule that each breaks, empty if it breaks none."""
        return [REASONS[code].name for code in self.reason]


def nothing_evaluated(num: int) -> Evaluated:
    """Give what is known of so many executions before they are evaluated."""
    none = np.zeros(num)
    return Evaluated(none.astype(np.int64), none + np.inf, none, none.copy(), none.copy(), none > 0)


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
    :func:`follow_best`.
    O(executions), and O(distinct blocks) for the layers.
    """
    return evaluate_tiers(model, machine, (machine.mem2,), executions, rules, follows=follows)[0]


def follow_best(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules, found: Evaluated, best: Best,
) -> None:  # fmt: skip
    """Follow the moves of evaluated executions, until no other one can be among the best.

    Those are followed first that can be the fastest. ``found`` has their seconds afterwards.
    """
    each = 1.0 / np.broadcast_to(executions.batch_size, executions.num_executions)
    while True:
        seconds = found.seconds * each
        known = seconds[best.allowed & ~found.is_least]
        most = best.seconds
        if known.size >= best.keep:
            most = min(most, float(np.partition(known, best.keep - 1)[best.keep - 1]))
        rows = np.flatnonzero(best.allowed & found.is_least & (seconds <= most))
        if not rows.size:
            return
        rows = rows[np.argsort(seconds[rows], kind="stable")[:_FOLLOWED_AT_ONCE]]
        part = executions.part(rows)
        found.seconds[rows] = evaluate(model, machine, part, rules).seconds
        found.is_least[rows] = False


def evaluate_tiers(
    model: ModelDescription, machine: MachineDescription, tiers: Sequence[MemoryColumns],
    executions: Executions, rules: EstimateRules, *, follows: bool = True,
) -> list[Evaluated]:  # fmt: skip
    """Evaluate executions with each of several second memory tiers, as :func:`evaluate` does.

    What blocks cost is worked out once.
    """
    num = executions.num_executions
    reason = np.array(np.broadcast_to(shape_reasons(model, machine, executions, rules), num))
    found = [nothing_evaluated(num)._replace(reason=reason.copy()) for _ in tiers]
    rows = np.flatnonzero(reason == 0)
    if not rows.size or not all(column.size for column in executions):
        return found
    machines = [
        rows_of(msgspec.structs.replace(machine, mem2=tier) if tier is not machine.mem2
                else machine, rows)
        for tier in tiers
    ]  # fmt: skip
    possible = rows_of(model, rows), machines[0], executions.part(rows)
    for part, executions_of_part, step in _priced(*possible, rules):
        here = rows[part]
        for one, with_tier in zip(found, machines, strict=True):
            there = rows_of(with_tier, part)
            costs = step(there, follows)
            if not (follows or rules.blocks_of_calculon):
                one.is_least[here] = are_followed(executions_of_part)
            one.reason[here] = capacity_reasons(
                there, costs.memory, reason[here], executions_of_part
            )
            one.seconds[here] = costs.times.total
            one.tier1_bytes[here] = costs.memory.tier1_bytes
            one.tier2_bytes[here] = costs.memory.tier2_bytes
            one.tier2_bandwidth[here] = costs.offload.bandwidth
    return found


def evaluate_parts(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Iterator[tuple[Executions, StepCosts]]:  # fmt: skip
    """Give all costs of executions that can be but for their memory, some thousands at a time."""
    if not all(column.size for column in executions):
        return
    for part, executions_of_part, step in _priced(model, machine, executions, rules):
        yield executions_of_part, step(rows_of(machine, part), True)


def _priced(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Iterator[tuple[slice, Executions, _Step]]:  # fmt: skip
    """Work out what blocks cost; give for each part what puts a step together on a machine.

    The machine may have another second tier than that for which blocks were worked out.
    """
    blocks: tuple[Ints, Any]
    others: tuple[Ints, Any]
    if rules.blocks_of_calculon:
        blocks = block_costs(model, machine, executions, rules)
        others = optimizer_costs(model, machine, executions)
    else:
        blocks = generated_costs(model, machine, executions)
        others = step_ends(model, machine, executions)
    for begin in range(0, executions.num_executions, _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        part, sizes = executions.part(rows), rows_of(model, rows)
        first, second = (
            _take(costs, way if way.size == 1 else way[rows]) for way, costs in (blocks, others)
        )

        def step(
            there: MachineDescription, follows: bool, part: Executions = part,
            sizes: ModelDescription = sizes, costs: tuple[Any, Any] = (first, second),
        ) -> StepCosts:  # fmt: skip
            if rules.blocks_of_calculon:
                return step_costs(sizes, there, part, *costs, rules)
            return generated_step(sizes, there, part, *costs, follows=follows)

        yield rows, part, step


def _take(value: Any, rows: Ints) -> Any:
    """Give the costs of some ways."""
    if isinstance(value, np.ndarray):
        return value if value.size == 1 else value[rows]
    parts = [_take(one, rows) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
