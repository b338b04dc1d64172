"""Groups that are a part of a ring or a line share its links, in estimates as in simulations."""

from __future__ import annotations

import pytest

import nadi
from nadi.estimates import describe_step, estimate


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
