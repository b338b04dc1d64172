"""Groups that are a part of a ring or a line share its links, in estimates as in simulations."""

from __future__ import annotations

import msgspec
import pytest

import nadi
from nadi.estimates import describe_step, estimate, execution_of_plan, machine_of_system
from nadi.memory import ByRules, parse_rules, plain_step
from nadi.systems import second_tier


@pytest.mark.parametrize("system", ["tpu-v4", "tpu-v5e"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_an_estimate_of_a_torus_is_its_simulation(system: str, tp: int) -> None:
    plan = {"tp": tp, "dp": 64 // tp, "global_batch": 64 // tp, "sequence": 512}
    job = nadi.llm_job("gpt3-1.3b", **plan)
    simulated = nadi.simulate(job, nadi.load_system(system, len(job.traces))).makespan / 1e9
    step = describe_step("gpt3-1.3b", system, plan)
    assert estimate(step.model, step.machine, step.execution).seconds == pytest.approx(
        simulated, rel=0.1
    )


@pytest.mark.parametrize("plan", [
    {"tp": 2, "dp": 2, "cp": 2}, {"dp": 4, "cp": 2}, {"tp": 2, "cp": 4},
])  # fmt: skip
def test_keys_and_values_are_gathered_between_parts_of_weights(plan: dict[str, int]) -> None:
    """Of weights, parts come to their links one after the other, and others go in between."""
    plan |= {"global_batch": 2 * plan.get("dp", 1), "sequence": 2048, "zero": 3}
    simulated = nadi.simulate(nadi.llm_job("gpt3-6.7b", **plan), nadi.load_system("tpu-v4", 8))
    step = describe_step("gpt3-6.7b", "tpu-v4", plan)
    found = estimate(step.model, step.machine, step.execution).seconds
    assert found == pytest.approx(simulated.makespan / 1e9, rel=0.005)


@pytest.mark.parametrize(("plan", "sharing"), [
    ({"tp": 2, "pp": 2}, 2), ({"tp": 2, "pp": 2, "dp": 2}, 4), ({"tp": 2, "pp": 2, "dp": 2}, 8),
])  # fmt: skip
def test_ranks_of_a_stage_use_a_tier_that_they_share_at_once(
    plan: dict[str, int], sharing: int
) -> None:
    """Stages may use one in turns; the ranks of each have their part of it."""
    plan |= {"global_batch": 4 * plan.get("dp", 1), "sequence": 2048}
    job = nadi.llm_job("llama3-8b", **plan)
    system = nadi.load_system("dgx-h100", len(job.traces))
    plain = plain_step(job, system)
    tier = second_tier(16.0 * sharing, 1 << 50, shared_by=sharing)
    there = msgspec.structs.replace(plain.system, tiers=(tier,), memory_capacity=1 << 40)
    staging = plain.staging(there)
    where = plain.chosen(ByRules(parse_rules("activations=cxl")), there, staging)
    simulated = plain.placed(where, there, staging).ns / 1e9
    step = describe_step("llama3-8b", "dgx-h100", plan)
    machine = machine_of_system(there)
    assert step.plan is not None
    how = execution_of_plan(step.plan, machine, offload=["activations"])
    assert estimate(step.model, machine, how).seconds == pytest.approx(simulated, rel=0.03)
