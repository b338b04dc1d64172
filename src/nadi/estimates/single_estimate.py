"""The estimate of one execution, as values that a person can read."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.memory import TensorBytes
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.calculon.step_costs import StepCosts, StepSeconds
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.evaluation import evaluate_parts
from nadi.estimates.execution import Execution, columns_of, moved_tensors
from nadi.estimates.feasibility import REASONS, capacity_reasons, reason_text, shape_reasons
from nadi.estimates.generated_step import step_statistics
from nadi.estimates.layer_programs import step_flops
from nadi.estimates.price_bounds import PriceBounds, price_bounds
from nadi.trace.arrays import Floats
from nadi.trace.work import flops_utilization


class _Limit(NamedTuple):
    """What takes time, and what would lift it."""

    name: str
    seconds: float
    lifted_by: str


@dataclass(frozen=True)
class Estimate:
    """What a step of one execution takes.

    Attributes
    ----------
    model, machine, execution
        What was estimated.
    times
        Seconds by part of the step; they add up to it.
    tier1, tier2
        Bytes of each kind of tensor in each memory tier, on one processor.
    limits
        What takes the step's time, most first.
    rules
        By which it was estimated.
    lacks
        What it lacks to be possible, as text; empty if it is.
    reason
        The name of the rule that it breaks; empty if it breaks none.
    statistics
        Calculon's 96 statistics by name, in seconds and bytes.
    bounds
        How sure it is, where kernels or collectives were measured (:func:`read_calibration`).
    """

    model: ModelDescription
    machine: MachineDescription
    execution: Execution
    times: dict[str, float]
    tier1: dict[str, float]
    tier2: dict[str, float]
    limits: tuple[_Limit, ...]
    lacks: str
    reason: str
    statistics: dict[str, float]
    rules: EstimateRules = DEFAULT
    bounds: PriceBounds | None = None

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.statistics["total_time"]

    @property
    def rate(self) -> float:
        """Sequences a second."""
        return self.statistics["sample_rate"]

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization; Calculon's rules, of layers alone, have none."""
        if self.rules.blocks_of_calculon:
            return None
        peak = self.machine.matrix_peak(columns_of([self.execution]).datatype)
        flops = step_flops(self.model.language_model, self.execution)
        return flops_utilization(flops, self.seconds, self.execution.num_procs, _first(peak))

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all processors."""
        return self.rate * (1 if self.execution.decoding else self.model.seq_size)

    @property
    def capacities(self) -> tuple[float, float]:
        """Bytes of each memory tier that a processor can use: its share of what it shares."""
        procs = np.array(self.execution.num_procs)
        return self.machine.mem1.capacity, float(self.machine.mem2.share(procs))

    @property
    def price_per_hour(self) -> float:
        """Of all processors, and of the second tier if something lives there; 0 if unknown."""
        return hourly_price(self.machine, self.execution)

    @property
    def price_per_step(self) -> float:
        """Of a step; 0 if the machine states no price."""
        return self.price_per_hour / 3600 * self.seconds

    @property
    def price_per_million_tokens(self) -> float:
        """Of a million tokens, from the time of a step; 0 if the machine states no price."""
        return self.price_per_hour / 3600 / self.tokens_per_second * 1e6


def hourly_price(machine: MachineDescription, execution: Execution) -> float:
    """Give the price of an hour of an execution's processors, and of what it uses of the tier."""
    tier, alone = machine.mem2, machine.price_per_hour
    if alone and moved_tensors(execution):
        alone += tier.price_per_hour / min(tier.shared_by, execution.num_procs)
    return alone * execution.num_procs


def estimate(
    model: ModelDescription, machine: MachineDescription, execution: Execution,
    rules: EstimateRules = DEFAULT,
) -> Estimate:  # fmt: skip
    """Estimate a step of training or inference.

    Parameters
    ----------
    rules
        What to do where programs differ: Nadi's own, or ``CALCULON``.

    Raises
    ------
    UsageError
        If the execution breaks a rule other than a capacity: the degrees do not fit the model,
        the batch, the processors, or the network. What is too large for its memory tier is
        estimated, and ``Estimate.lacks`` says so.
    """
    columns = columns_of([execution])
    reasons = shape_reasons(model, machine, columns, rules)
    if reasons[0]:
        raise UsageError(
            f"execution, {REASONS[reasons[0]].name}",
            reason_text(int(reasons[0]), machine, model, execution, (0, 0)),
            "change the degrees of parallelism, the batch, or the machine",
        )
    ((part, costs),) = evaluate_parts(model, machine, columns, rules)
    reason = int(capacity_reasons(machine, costs.memory, reasons, part)[0])
    needs = (_first(costs.memory.tier1_bytes), _first(costs.memory.tier2_bytes))
    statistics = {
        name: float(values[0]) for name, values in step_statistics(machine, part, costs).items()
    }
    return Estimate(
        model, machine, execution,
        {name: _first(value) for name, value in zip(StepSeconds._fields, costs.times, strict=True)},
        _bytes(costs.memory.tier1), _bytes(costs.memory.tier2),
        _limits(execution, costs, machine.matrix_peak(columns.datatype)),
        reason_text(reason, machine, model, execution, needs), REASONS[reason].name, statistics,
        rules, price_bounds(model, machine, execution, rules),
    )  # fmt: skip


def _first(values: Floats) -> float:
    return float(np.asarray(values).reshape(-1)[0])


def _bytes(tensors: TensorBytes) -> dict[str, float]:
    return {name: _first(value) for name, value in zip(TensorBytes._fields, tensors, strict=True)}


def _limits(execution: Execution, costs: StepCosts, peak: Floats) -> tuple[_Limit, ...]:
    """Sort what takes the step's time; layers by what the most of their time is."""
    times, block = costs.times, costs.block
    layers = _first(times.forward + times.backward + times.computed_again)
    stages = (block.forward, block.activation, block.weight)
    accessing = sum(_first(stage.memory_time) for stage in stages)
    if execution.decoding:
        shares = _first(block.forward.flops / peak), accessing
        work = _limit_of_decoding(*shares, _first(block.forward.time))
    elif sum(_first(stage.flops_time) for stage in stages) >= accessing:
        work = ("computing", "a faster engine, or larger operations that use it better")
    else:
        work = ("memory bandwidth", "more bandwidth of the first tier, or fused layers")
    e = execution
    found = [
        _Limit(work[0], layers, work[1]),
        _Limit("optimizer", _first(times.optimizer), "sharding it over replicas"),
        _Limit("tensor parallelism",
              _first(times.tensor_parallel + times.exchanged_again),
              f"more bandwidth of network tier {e.tensor_par_net}, overlap, or a lower degree"),
        _Limit("pipeline transfers", _first(times.pipeline_parallel),
              f"more bandwidth of network tier {e.pipeline_par_net}, or less interleaving"),
        _Limit("pipeline bubble", _first(times.bubble),
              "more micro-batches, more interleaving, or fewer stages"),
        _Limit("data parallelism", _first(times.data_parallel),
              f"more bandwidth of network tier {e.data_par_net}, overlap, or fewer replicas"),
        _Limit("offloading", _first(
            times.forward_offload + times.backward_offload + times.update_offload
        ),
              "more bandwidth of the second tier, or offloading less"),
    ]  # fmt: skip
    return tuple(sorted((one for one in found if one.seconds > 0), key=lambda one: -one.seconds))


def _limit_of_decoding(computing: float, accessing: float, took: float) -> tuple[str, str]:
    """Say what bounds a layer whose products take as long as they read their operands.

    - ``computing``, ``accessing``: Seconds at the peak of the engine, and at the bandwidth of the
      memory.
    - ``took``: Seconds in all.
    """
    if max(computing, accessing) < took / 2:
        return "small operations", "larger batches, fused layers, or fewer ranks of a layer"
    if computing >= accessing:
        return "computing", "a faster engine, or types of fewer bytes"
    return (
        "reading weights, keys and values",
        "more bandwidth of the first tier, larger batches, or types of fewer bytes",
    )
