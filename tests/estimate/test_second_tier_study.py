"""Studies of a second tier: against single estimates, and the laws of their curves."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.estimates import CALCULON, MachineDescription, SearchSpace, estimate, search, search_space
from nadi.estimates.calculon.machine_description import columns_of_tier
from nadi.estimates.calculon.rules import DEFAULT
from nadi.memory import TierQuestion, TierStudy, study_second_tier, study_second_tiers
from nadi.systems import second_tier
from tests.amounts import examples
from tests.estimate.described import machine, machines, model, read

FEW: dict[str, Any] = {
    "tensor_par": [2], "microbatch_size": [1, 4], "tensor_par_comm_type": ["rs_ag"],
    "pipeline_interleaving": [1], "seq_par_ag_redo": [False], "tensor_par_overlap": ["none"],
    "fused_activation": [True], "optimizer_sharding": [True], "data_par_overlap": [False],
    "datatype": ["float16"], "pipeline_par": [1, 2],
}  # fmt: skip


def small_space(told: MachineDescription, tier1: float) -> SearchSpace:
    tiers = {
        "mem1": msgspec.structs.replace(told.mem1, GiB=tier1),
        "mem2": msgspec.structs.replace(told.mem2, GiB=1.0),
    }
    described = msgspec.structs.replace(told, **tiers)
    return search_space(model(), described, 8, 16, FEW, rules=CALCULON)


@settings(max_examples=examples(16))
@given(
    system=machines(), tier1=st.sampled_from([0.1, 0.3, 1.0, 10.0]),
    latency=st.sampled_from([0.0, 1e-3]), shared=st.sampled_from([1, 4]),
)  # fmt: skip
def test_more_bandwidth_or_capacity_is_never_slower(
    system: dict[str, Any], tier1: float, latency: float, shared: int
) -> None:
    space = small_space(machine(system), tier1)
    kind = second_tier(1.0, latency=latency * 1e9, shared_by=shared)
    found = study_second_tier(space, [8, 64], [0.01, 0.1, 1000], kind)
    rates = np.array([[one.rate if one else 0.0 for one in row] for row in found.best])
    least = found.without.rate if found.without else 0.0
    assert (np.diff(rates, axis=0) >= 0).all()
    assert (np.diff(rates, axis=1) >= 0).all()
    assert (rates >= least).all()
    curve = found.break_even
    assert (np.diff(curve.rates) >= 0).all()
    assert curve.rates[-1] <= curve.limit * (1 + 1e-12)
    check_break_even(found, least)


def check_break_even(found: TierStudy, least: float) -> None:
    """The break-even is where the curve says, and the curve has the points of the study."""
    curve = found.break_even
    for bandwidth, one in zip(found.bandwidths, found.best[-1], strict=True):
        at = np.flatnonzero(np.isclose(curve.bandwidths, bandwidth))
        assert curve.rates[at] == pytest.approx(one.rate if one else 0.0, rel=1e-9)
    pays = curve.rates > least * 1.01
    assert (curve.pays_from is None) == (not pays.any())
    if curve.pays_from is not None:
        assert curve.pays_from == curve.bandwidths[pays][0]
        if curve.enough_from is not None:
            assert curve.enough_from >= curve.pays_from
            at_enough = curve.rates[curve.bandwidths == curve.enough_from]
            assert at_enough - least >= 0.95 * (curve.limit - least)


@pytest.mark.parametrize("rules", [CALCULON, DEFAULT], ids=["calculon", "default"])
def test_each_point_is_the_fastest_of_a_search(rules: Any) -> None:
    told = machine()
    few = FEW | {"datatype": ["bfloat16"], "fused_activation": [rules is CALCULON]}
    described = msgspec.structs.replace(
        told, mem1=msgspec.structs.replace(told.mem1, GiB=8.0 if rules is CALCULON else 12.0),
        mem2=msgspec.structs.replace(told.mem2, GiB=1.0),
    )  # fmt: skip
    sizes = model(read("model") | {"num_blocks": 6, "hidden": 6144, "attn_heads": 48})
    kind = second_tier(1.0, latency=1e3, shared_by=2)
    space = search_space(sizes, described, 8, 16, few, rules=rules)
    found = study_second_tier(space, [8, 128], [30, 500], kind)
    assert any(one and one.moved for row in found.best for one in row)
    for size, row in zip(found.capacities, found.best, strict=True):
        for bandwidth, one in zip(found.bandwidths, row, strict=True):
            tier = msgspec.structs.replace(columns_of_tier(described, kind, bandwidth), GiB=size)
            here = msgspec.structs.replace(described, mem2=tier)
            alone = search(search_space(sizes, here, 8, 16, few, rules=rules), top=1).best
            assert (one is None) == (not alone)
            if one is not None:
                assert one.rate == pytest.approx(alone[0].rate)
                again = estimate(sizes, here, one.execution, rules)
                assert again.rate == pytest.approx(one.rate)
                assert again.lacks == ""


def test_without_offloading_the_rate_is_that_without_a_tier() -> None:
    space = small_space(machine(), 80)
    found = study_second_tier(
        search_space(
            model(), space.machine, 8, 16,
            FEW | {"datatype": ["bfloat16"], "weight_offload": [False],
                   "activations_offload": [False], "optimizer_offload": [False]},
            rules=CALCULON,
        ),
        [32], [1],
    )  # fmt: skip
    assert found.without is not None
    assert found.best[0][0] == found.without
    assert found.break_even.pays_from is None
    assert found.break_even.enough_from is None


@pytest.mark.parametrize(("bandwidths", "capacities"), [([], [1]), ([0], [1]), ([1], [])])
def test_a_study_needs_bandwidths_and_capacities(
    bandwidths: list[float], capacities: list[float]
) -> None:
    with pytest.raises(nadi.errors.UsageError, match="at least one of each"):
        study_second_tier(small_space(machine(), 80), bandwidths, capacities)


def test_studies_of_several_are_those_of_each() -> None:
    asked = TierQuestion((64.0,), (100.0,), ranks=8, global_batch=8)
    (found,) = study_second_tiers(["gpt3-125m"], ["h100"], asked)
    assert (found.model, found.system) == ("gpt3-125m", "h100")
    assert (found.ranks, found.global_batch) == (8, 8)
    assert found.study.without is not None
    assert math.isfinite(found.study.break_even.limit)
    with pytest.raises(nadi.errors.UsageError, match="gpt3-125m on 64 h100"):
        study_second_tiers(["gpt3-125m"], ["h100"], asked._replace(ranks=64, global_batch=1))


def test_the_price_that_pays_makes_a_token_cost_the_same() -> None:
    """By hand: what the tier gains may be paid for it."""
    rates = {"rank_hour": 3.0}
    asked = TierQuestion((256, 512), (4096,), ranks=4, global_batch=64)
    (job,) = study_second_tiers(["gpt3-13b"], ["dgx-h100"], asked)
    study, most = job.study, job.study.best[-1][-1]
    assert study.without is not None
    assert most is not None
    assert study.price_that_pays is not None
    tier = study.price_that_pays * rates["rank_hour"]
    without = 4 * rates["rank_hour"] / study.without.rate
    assert 4 * (rates["rank_hour"] + tier) / most.rate == pytest.approx(without)
