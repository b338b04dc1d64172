"""Estimates against a slow model in plain Python, and laws that they keep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from nadi.estimates import CALCULON, EstimateRules, columns_of, evaluate
from nadi.estimates.single_estimate import estimate as estimate_by_rules
from tests.amounts import examples
from tests.estimate.described import (
    MODEL,
    estimate,
    execution,
    executions,
    machine,
    machines,
    model,
    read,
    with_faster,
)
from tests.reference.one_estimate import step_of


@settings(max_examples=examples(300))
@given(system=machines(), told=executions())
def test_all_statistics_are_those_of_the_slow_model(
    system: dict[str, Any], told: dict[str, Any]
) -> None:
    found = estimate(model(), machine(system), execution(told))
    expected = step_of(MODEL, system, told)
    assert found.lacks == ""
    assert len(found.statistics) == 96
    for name, value in found.statistics.items():
        wanted = expected[name]
        if name.endswith("_bw_req") and abs(value) > 1e15:
            continue  # a difference of nearly equal times divides it
        if math.isnan(wanted):
            assert math.isnan(value), name
        else:
            scale = 1e-9 * max(abs(wanted), _scale(name, expected))
            assert value == pytest.approx(wanted, rel=1e-6, abs=scale), name


def _scale(name: str, expected: dict[str, Any]) -> float:
    """Give the size of what a difference is made of: rounding is a share of that."""
    return expected["total_time"] if "time" in name else 0.0


@settings(max_examples=examples(40))
@given(system=machines(), told=st.lists(executions(), min_size=2, max_size=30))
def test_many_at_once_are_as_each_alone(system: dict[str, Any], told: list[dict[str, Any]]) -> None:
    each = [execution(one) for one in told]
    together = evaluate(model(), machine(system), columns_of(each), CALCULON)
    alone = [evaluate(model(), machine(system), columns_of([one]), CALCULON) for one in each]
    for column, name in zip(together, together._fields, strict=True):
        single = np.array([getattr(one, name)[0] for one in alone])
        np.testing.assert_allclose(column, single, rtol=1e-6, atol=1e-12)


# of the interleaved overlap of data parallelism, transfers that meet are counted whole: one more
# can meet a chunk that is faster, and that is not a law but what Calculon does
@st.composite
def comparable(draw: st.DrawFn) -> dict[str, Any]:
    told = draw(executions())
    return told | {
        "data_par_overlap": told["data_par_overlap"] and told["pipeline_interleaving"] == 1
    }


_FASTER = ["matrix", "vector", "mem1", "mem2", "network 0", "network 1"]


@pytest.mark.parametrize("what", _FASTER)
@settings(max_examples=examples(60))
@given(system=machines(), told=comparable(), factor=st.floats(1, 100))
def test_a_faster_part_never_slows_a_step(
    what: str, system: dict[str, Any], told: dict[str, Any], factor: float
) -> None:
    # what a ring exposes is compared with computing alone, also where memory takes longer
    beside = told["tensor_par_overlap"] != "none" and told["tensor_par"] > 1
    assume(not (what == "matrix" and beside and system["processing_mode"] == "roofline"))
    faster = with_faster(system, what, factor)
    before = estimate(model(), machine(system), execution(told))
    after = estimate(model(), machine(faster), execution(told))
    # Calculon takes computing of the optimizer, once for each block and once more, as time for
    # reductions, also where the optimizer's memory accesses take longer and it ends no earlier
    lost = 0.0
    if what == "vector" and told["data_par_overlap"] and not told["optimizer_sharding"]:
        blocks = -(-MODEL["num_blocks"] // told["pipeline_par"])
        name = "block_optim_flops_time"
        lost = (blocks + 1) * (before.statistics[name] - after.statistics[name])
    assert after.seconds <= before.seconds * (1 + 1e-9) + lost


@settings(max_examples=examples(100))
@given(system=machines(), told=executions())
def test_what_leaves_one_tier_is_whole_in_the_other(
    system: dict[str, Any], told: dict[str, Any]
) -> None:
    stays = told | dict.fromkeys(
        ("weight_offload", "activations_offload", "optimizer_offload"), False
    )
    whole = estimate(model(), machine(system), execution(stays))
    found = estimate(model(), machine(system), execution(told))
    assert sum(whole.tier2.values()) == 0
    kinds = {
        "weights": told["weight_offload"], "checkpoints": told["activations_offload"],
        "optimizer": told["optimizer_offload"],
    }  # fmt: skip
    if told["activation_recompute"] != "full":
        kinds["activations"] = told["activations_offload"]
    for name, moves in kinds.items():
        assert found.tier2[name] == (whole.tier1[name] if moves else 0), name
        if not moves:
            assert found.tier1[name] == whole.tier1[name], name
    assert found.statistics["proc_mem_tier1_cap_req"] == pytest.approx(sum(found.tier1.values()))
    assert found.statistics["proc_mem_tier2_cap_req"] == pytest.approx(sum(found.tier2.values()))


@settings(max_examples=examples(60))
@given(system=machines(), told=executions())
def test_parts_of_a_step_add_up_to_it(system: dict[str, Any], told: dict[str, Any]) -> None:
    found = estimate(model(), machine(system), execution(told))
    assert sum(found.times.values()) == pytest.approx(found.seconds)
    assert found.rate == pytest.approx(told["batch_size"] / found.seconds)


def test_layers_of_a_block_take_what_a_hand_computes() -> None:
    """One block on one processor: 4 attention and 8 MLP weights of hidden squared."""
    told = {
        "num_procs": 1, "tensor_par": 1, "pipeline_par": 1, "data_par": 1, "batch_size": 1,
        "tensor_par_comm_type": "ar", "tensor_par_overlap": "none", "optimizer_sharding": False,
        "data_par_overlap": False, "pipeline_interleaving": 1, "activations_offload": False,
    }  # fmt: skip
    found = estimate(model(), machine(), execution(**told)).statistics
    hidden, sequence = MODEL["hidden"], MODEL["seq_size"]
    weights = 12 * hidden**2 + 4 * hidden  # and two norms
    assert found["block_weight_space"] == 2 * weights
    products = 2 * sequence * 12 * hidden**2 + 2 * 2 * sequence**2 * hidden
    scores = MODEL["attn_heads"] * sequence**2
    rest = 6 * scores + (2 * 9 + 2 + 2) * sequence * hidden + 8 * sequence * 4 * hidden
    assert found["block_fw_flops"] == products + rest
    assert found["block_optimizer_space"] == 12 * weights


@pytest.mark.parametrize("field", EstimateRules._fields)
def test_each_odd_rule_makes_a_difference(field: str) -> None:
    """Each can be turned off, and nothing else has its effect."""
    told = {
        "recomputed_sums_are_cumulative": {"activation_recompute": "attn_only"},
        "exposed_time_is_of_base_block": {"tensor_par_comm_type": "p2p_rs_ag",
                                          "tensor_par_overlap": "pipe"},
        "lone_stage_has_latency": {"pipeline_par": 1, "num_procs": 16, "weight_offload": True,
                                   "pipeline_interleaving": 1},
        "checkpoints_are_whole": {"activation_recompute": "full"},
        "blocks_of_calculon": {},
        "compute_slows_once": {"data_par_overlap": True, "data_par": 8, "num_procs": 256},
    }[field]  # fmt: skip
    system = read("machine")
    for network in system["networks"]:
        network["bandwidth"] /= 20
    described = (model(read("model")), machine(system), execution(**told))
    odd = estimate(*described).statistics
    mended = estimate_by_rules(*described, CALCULON._replace(**{field: False})).statistics
    assert any(not math.isclose(odd[name], mended[name]) for name in odd)
