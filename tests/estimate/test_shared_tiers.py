"""Stages of a pipeline with a memory tier: estimates, simulations and searches agree."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import nadi
from nadi.estimates import (
    DEFAULT,
    describe_step,
    estimate,
    evaluate,
    execution_of_plan,
    machine_of_system,
    read_machine,
    read_model,
    search_space,
    shared_tiers,
)
from nadi.estimates.calculon.machine_description import columns_of_tier
from nadi.estimates.evaluation import Best, Evaluation
from nadi.estimates.search_results import SearchTask, search_part
from nadi.estimates.shared_tier_kernels import PIPELINE, follow_pipelines
from nadi.estimates.shared_tiers import are_followed
from nadi.memory import ByRules, parse_rules, plain_step
from nadi.memory.placement.placed_steps import PlacedStep
from nadi.systems import System, second_tier


def placed(
    model: str, system: str, plan: dict[str, Any], roles: tuple[str, ...], tier: tuple[float, int]
) -> tuple[PlacedStep, System]:
    """Simulate a plan with a tier of so many GB/s, which so many ranks share."""
    job = nadi.llm_job(model, **plan)
    plain = plain_step(job, nadi.load_system(system, len(job.traces)))
    shared = second_tier(tier[0], 1 << 50, shared_by=tier[1])
    there = msgspec.structs.replace(plain.system, tiers=(shared,), memory_capacity=1 << 40)
    staging = plain.staging(there)
    rules = ByRules(parse_rules(",".join(f"{role}=cxl" for role in roles)))
    return plain.placed(plain.chosen(rules, there, staging), there, staging), there


@pytest.mark.parametrize(("model", "system", "plan", "roles", "tier"), [
    ("gpt3-6.7b", "dgx-h100", {"tp": 4, "pp": 2, "global_batch": 1, "recompute": "full"},
     ("activations", "weights"), (64.0, 8)),
    ("qwen3-8b", "dgx-h100", {"tp": 2, "pp": 4, "micro_batch": 2, "global_batch": 4},
     ("weights",), (256.0, 4)),
    ("gpt3-6.7b", "hgx-h200", {"pp": 4, "micro_batch": 2, "global_batch": 8},
     ("activations", "optimizer"), (128.0, 4)),
    ("llama3-8b", "hgx-h200", {"pp": 8, "global_batch": 16}, ("activations",), (128.0, 8)),
    ("llama3-8b", "mi300x-node", {"tp": 4, "pp": 4, "dp": 2, "global_batch": 4, "zero": 1},
     ("activations", "optimizer"), (512.0, 32)),
    ("llama2-13b", "mi300x-node", {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8,
     "recompute": "selective", "zero": 0, "chunks": 2, "schedule": "interleaved"},
     ("activations",), (128.0, 8)),
    # which layers' weights stay between two passes is a matter of one operation
    ("gpt3-6.7b", "mi300x-node", {"pp": 8, "global_batch": 8, "recompute": "selective",
     "chunks": 2, "schedule": "interleaved"}, ("weights",), (128.0, 16)),
    ("llama3-8b", "mi300x-node", {"pp": 4, "dp": 2, "global_batch": 16, "recompute": "selective",
     "zero": 1}, ("weights",), (32.0, 32)),
    # a backward that computes its layers again stores and loads what it needs at its end
    ("qwen3-8b", "dgx-h100", {"tp": 2, "pp": 2, "dp": 2, "global_batch": 4, "recompute": "full"},
     ("activations",), (32.0, 32)),
    ("qwen3-8b", "dgx-h100", {"tp": 2, "global_batch": 4, "recompute": "full"},
     ("activations",), (4.0, 1)),
    ("qwen3-30b-a3b", "dgx-h100", {"dp": 4, "ep": 4, "global_batch": 8, "recompute": "full"},
     ("activations",), (4.0, 1)),
    # rows of the embedding's table are loaded before anything is computed
    ("llama3-8b", "dgx-b200", {"tp": 4, "inference": "prefill", "micro_batch": 4,
     "global_batch": 4, "sequence": 2048, "sequence_parallel": False}, ("weights",), (64.0, 1)),
    # weights of experts that one replica has are gathered from nobody
    ("mixtral-8x7b", "dgx-h100", {"dp": 4, "ep": 4, "global_batch": 8, "zero": 1},
     ("weights",), (4.0, 1)),
    # which comes soon after its begin and long after, as long as its products of experts take
    ("mixtral-8x7b", "dgx-b300", {"pp": 2, "dp": 4, "ep": 4, "global_batch": 20, "sequence": 1024,
     "zero": 0, "recompute": "full"}, ("activations",), (16.0, 4)),
    # weights that take long to move leave memory-bound products their bandwidth
    ("mixtral-8x7b", "tpu-v4", {"pp": 8, "global_batch": 16, "sequence": 1024,
     "chunks": 2, "schedule": "interleaved"}, ("weights",), (256.0, 1)),
    # passes of chunks wait for the moves of their own stage, whether others share its tier or not
    ("qwen3-8b", "hgx-h200", {"tp": 2, "pp": 4, "global_batch": 8, "zero": 1, "chunks": 2,
     "schedule": "interleaved"}, ("activations", "weights"), (64.0, 1)),
    # experts stay by their own uses, which are near each other, in chunks of two layers
    ("mixtral-8x7b", "hgx-h200", {"pp": 8, "global_batch": 16, "chunks": 2,
     "schedule": "interleaved"}, ("weights",), (32.0, 1)),
    # and most of what a layer keeps is kept at its end
    ("mixtral-8x7b", "hgx-h200", {"pp": 8, "global_batch": 16}, ("activations",), (32.0, 1)),
])  # fmt: skip
def test_an_estimate_follows_what_stages_move(
    model: str, system: str, plan: dict[str, Any], roles: tuple[str, ...], tier: tuple[float, int]
) -> None:
    plan = {"sequence": 1024} | plan
    step, there = placed(model, system, plan, roles, tier)
    described = describe_step(model, system, plan)
    machine = machine_of_system(there)
    assert described.plan is not None
    how = execution_of_plan(described.plan, machine, offload=list(roles))
    found = estimate(described.model, machine, how).seconds
    assert found == pytest.approx(step.ns / 1e9, rel=0.03)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_a_search_is_that_of_all_plans_followed(seed: int) -> None:
    chance = random.Random(seed)
    name, capacity = chance.choice([("gpt3-13b", 24.0), ("llama3-8b", 16.0)])
    model, machine = read_model(name), read_machine("dgx-h100", 8)
    pool = second_tier(chance.choice((1.0, 8.0, 32.0)), shared_by=chance.choice((1, 4, 8)))
    tier = columns_of_tier(machine, pool, 400.0)
    small = msgspec.structs.replace(machine.mem1, GiB=capacity)
    machine = msgspec.structs.replace(machine, mem1=small, mem2=tier)
    moved = chance.choice(("activations_offload", "weight_offload"))
    stages = chance.choice([(2, 4), (4, 8)])
    given = {moved: (True,), "pipeline_par": stages, "microbatch_size": (1, 2)}
    space = search_space(model, machine, 8, chance.choice((16, 64)), given)
    found, _ = search_part(SearchTask(space, DEFAULT, 5), 0, space.size)
    every, _ = search_part(SearchTask(space, DEFAULT, 5), 0, space.size, with_rows=True)
    assert [(one.number, one.seconds) for one in found.best] == [
        (one.number, one.seconds) for one in every.best
    ]
    followed = 0
    for part in space.executions(0, space.size):
        evaluation = Evaluation(model, machine, part, DEFAULT)
        (least,) = evaluation.with_tiers((tier,))
        exact = evaluate(model, machine, part, DEFAULT)
        shared = are_followed(part) & np.isfinite(exact.seconds)
        assert (least.seconds[shared] <= exact.seconds[shared] * (1 + 1e-9)).all()
        evaluation.follow_best(tier, least, Best(least.reason == 0, 1, np.inf))
        counted = shared & least.is_counted
        assert (least.seconds[counted] <= exact.seconds[counted] * (1 + 1e-9)).all()
        assert np.isfinite(exact.seconds[shared]).all()
        followed += int(shared.sum())
    assert followed > 100


@pytest.mark.parametrize("seed", range(8))
def test_moves_that_nobody_shares_end_as_if_they_were_followed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    model, machine = read_model("gpt3-13b"), read_machine("dgx-h100", 8)
    bandwidth, capacity = chance.choice((4.0, 16.0, 64.0)), chance.choice((2.0, 80.0))
    machine = msgspec.structs.replace(
        machine, mem2=columns_of_tier(machine, second_tier(1.0), bandwidth),
        mem1=msgspec.structs.replace(machine.mem1, GiB=capacity),
    )  # fmt: skip
    given = {
        "pipeline_par": (2, 4), "microbatch_size": (1,), "weight_offload": (True, False),
        "activations_offload": (True, False), "tensor_par": (1, 2),
        "activation_recompute": (chance.choice(("none", "full")),),
    }  # fmt: skip
    ends = []

    def both(schedule: Any, work: Any, rows: Any, seconds: Any, duplex: int, found: Any) -> None:
        shared, others = rows.copy(), found.copy()
        shared[:, PIPELINE.sharing] = 1.25  # each stage is alone, but its rate could change
        follow_pipelines(schedule, work, shared, seconds, duplex, others)
        follow_pipelines(schedule, work, rows, seconds, duplex, found)
        ends.append((found, others))

    monkeypatch.setattr(shared_tiers, "follow_pipelines", both)
    for part in search_space(model, machine, 8, 32, given).executions(0, 1000):
        evaluate(model, machine, part, DEFAULT)
    timed, followed = (np.concatenate(one) for one in zip(*ends, strict=True))
    assert np.isfinite(followed).all()
    assert len(timed) > 20
    assert timed == pytest.approx(followed, rel=1e-7)


def test_what_a_message_brings_stays_until_its_first_use() -> None:
    plan = {"pp": 8, "micro_batch": 2, "global_batch": 32, "sequence": 2048}
    step, _ = placed("llama2-13b", "hgx-h200", plan, ("activations",), (32.0, 4))
    for trace in step.simulation.traces:
        moved = dict(trace.nodes.group_by("kind").agg(pl.col("bytes").sum()).iter_rows())
        assert moved["MEM_LOAD"] == moved["MEM_STORE"]  # no message is loaded before its use
