"""How sure an estimate is: steps with the least and the most that prices of kernels can be."""

from typing import NamedTuple

import msgspec
import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.evaluation import evaluate
from nadi.estimates.execution import Execution, Executions, columns_of
from nadi.estimates.layer_programs import layer_shares, sizes_of, structures_of, variants_of
from nadi.systems.prices.price_list import SOURCES
from nadi.trace.arrays import Floats
from nadi.units import format_counted


class PriceBounds(NamedTuple):
    """Seconds of a step between what kernels take, and where their prices come from.

    Attributes
    ----------
    low, high
        If all kernels take the least, and the most, of their intervals.
    sources
        Shares of the time of a layer's kernels, by the names of ``SOURCES``.
    collectives
        The measured ones, such as ``all_reduce of 8 ranks``; those of other ranks are scaled.
    """

    low: float
    high: float
    sources: dict[str, float]
    collectives: tuple[str, ...]


def is_calibrated(machine: MachineDescription) -> bool:
    """Tell whether kernels or collectives of a machine were measured."""
    return machine.prices is not None or bool(machine.system and machine.system.measured)


def step_bounds(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Give the seconds of steps if all kernels take the least, and the most, of their intervals.

    Of measured kernels nine in ten are within them; collectives have none.
    """
    low = msgspec.structs.replace(machine, prices_at="low")
    high = msgspec.structs.replace(machine, prices_at="high")
    return (
        evaluate(model, low, executions, rules).seconds,
        evaluate(model, high, executions, rules).seconds,
    )


def price_bounds(
    model: ModelDescription, machine: MachineDescription, execution: Execution,
    rules: EstimateRules,
) -> PriceBounds | None:  # fmt: skip
    """Give the bounds of one step; None for a machine of which nothing was measured."""
    if not is_calibrated(machine):
        return None
    executions = columns_of([execution])
    low, high = step_bounds(model, machine, executions, rules)
    language, (variant,) = model.language_model, variants_of(executions)
    seconds = np.zeros(len(SOURCES))
    kinds = zip(
        sizes_of(language, variant).parts, structures_of(language, variant),
        layer_shares(language).values(), strict=False,
    )  # fmt: skip
    for part, programs, share in kinds:  # the embedding and the head follow them
        listed = machine.kernel_prices(part.amounts.operations)
        slots = np.concatenate([program.slots for program in programs])
        slots = slots[part.amounts.op_class[slots] > 0]  # others are collectives
        np.add.at(seconds, listed.source[slots], share * np.maximum(listed.duration[slots], 0))
    shares = dict(zip(SOURCES, (seconds / seconds.sum()).tolist(), strict=True))
    known = {name: share for name, share in shares.items() if share}
    tables = machine.system.measured if machine.system else ()
    collectives = (f"{one.collective} of {format_counted(one.ranks, 'rank')}" for one in tables)
    return PriceBounds(float(low[0]), float(high[0]), known, tuple(dict.fromkeys(collectives)))
