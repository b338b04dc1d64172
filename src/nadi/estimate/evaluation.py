"""The evaluation core: one execution and a million go the same way.

What a block costs depends on few fields, so it is worked out once for each of their distinct
values; executions then take it by index, in parts whose columns fit the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nadi.estimate.block_costs import BlockCosts, OptimizerCosts, block_costs, optimizer_costs
from nadi.estimate.described_columns import rows_of
from nadi.estimate.estimate_rules import EstimateRules
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import Executions
from nadi.estimate.feasibility import REASONS, capacity_reasons, shape_reasons
from nadi.estimate.generated_blocks import GeneratedCosts, generated_costs
from nadi.estimate.generated_step import generated_step
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.step_costs import StepCosts, step_costs
from nadi.estimate.step_ends import StepEnds, step_ends
from nadi.model.arrays import Floats, Ints

__all__ = ["Evaluated", "evaluate", "evaluate_parts"]

_AT_ONCE = 16384
_Costs = TypeVar("_Costs", BlockCosts, OptimizerCosts, GeneratedCosts, StepEnds)


class Evaluated(NamedTuple):
    """What a search keeps of executions: shape (executions,)."""

    reason: Ints  # code of the rule that it breaks, 0 if it can be
    seconds: Floats  # of a step
    tier1_bytes: Floats
    tier2_bytes: Floats
    tier2_bandwidth: Floats  # bytes a second that hide all offloading

    def lacks(self) -> list[str]:
        """Give the name of the rule that each breaks, empty if it breaks none."""
        return [REASONS[code].name for code in self.reason]


def evaluate(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Evaluated:  # fmt: skip
    """Give the time, the memory and the feasibility of executions.

    The model and the machine may have columns of shape (executions,) in place of numbers
    (``described_columns``). Those that break a rule have a time of infinity, apart from those
    that only lack memory.
    O(executions), and O(distinct blocks) for the layers.
    """
    num = executions.num_executions
    reason = np.array(np.broadcast_to(shape_reasons(model, machine, executions, rules), num))
    found = Evaluated(reason, np.full(num, np.inf), *np.zeros((3, num)))
    rows = np.flatnonzero(reason == 0)
    done = 0
    possible = rows_of(model, rows), rows_of(machine, rows)
    for part, costs in evaluate_parts(*possible, executions.part(rows), rules):
        here = rows[done : done + part.num_executions]
        done += part.num_executions
        found.reason[here] = capacity_reasons(
            rows_of(machine, here), costs.memory, reason[here], part
        )
        found.seconds[here] = costs.times.total
        found.tier1_bytes[here] = costs.memory.tier1_bytes
        found.tier2_bytes[here] = costs.memory.tier2_bytes
        found.tier2_bandwidth[here] = costs.offload.bandwidth
    return found


def evaluate_parts(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Iterator[tuple[Executions, StepCosts]]:  # fmt: skip
    """Give all costs of executions that can be but for their memory, some thousands at a time."""
    num = executions.num_executions
    if not all(column.size for column in executions):
        return
    if not rules.blocks_of_calculon:
        yield from _generated_parts(model, machine, executions)
        return
    block_of, blocks = block_costs(model, machine, executions, rules)
    optimizer_of, optimizers = optimizer_costs(model, machine, executions)
    for begin in range(0, num, _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        part = executions.part(rows)
        yield part, step_costs(
            rows_of(model, rows), rows_of(machine, rows), part,
            _taken(blocks, block_of, rows), _taken(optimizers, optimizer_of, rows), rules,
        )  # fmt: skip


def _generated_parts(
    model: ModelDescription, machine: MachineDescription, executions: Executions
) -> Iterator[tuple[Executions, StepCosts]]:
    costs_of, costs = generated_costs(model, machine, executions)
    ends_of, ends = step_ends(model, machine, executions)
    for begin in range(0, executions.num_executions, _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        part = executions.part(rows)
        yield (
            part,
            generated_step(
                model,
                rows_of(machine, rows),
                part,
                _taken(costs, costs_of, rows),
                _taken(ends, ends_of, rows),
            ),
        )


def _taken(costs: _Costs, way: Ints, rows: slice) -> _Costs:
    """Give the costs of a way per execution."""
    return _take(costs, way if way.size == 1 else way[rows])  # type: ignore[no-any-return]


def _take(value: Any, rows: Ints) -> Any:
    if isinstance(value, np.ndarray):
        return value if value.size == 1 else value[rows]
    parts = [_take(one, rows) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
