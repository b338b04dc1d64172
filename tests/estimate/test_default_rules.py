"""Nadi's own rules: laws, collectives and memories against slow ones, and generated jobs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, reject, settings, strategies as st

import nadi
from nadi.estimates import (
    CALCULON,
    DEFAULT,
    columns_of,
    describe_step,
    estimate,
    evaluate,
    execution_of_plan,
    machine_of_system,
    search,
    search_space,
)
from nadi.estimates.rings import RankGroup, collective_seconds, message_seconds
from nadi.estimates.single.checks import check_estimate
from nadi.estimates.stated_files import read_machine, read_model
from nadi.memory import ByRules, parse_rules, plain_step
from nadi.memory.placement.command import simulate_offloaded
from nadi.models import llm_statistics
from nadi.simulation import collective_time
from nadi.simulation.alone.collective import message_time
from nadi.systems import second_tier, shipped_systems
from nadi.systems.memory_tiers import LoadedLatency, latency_ns, peak_rate, reached_rate
from tests.amounts import examples
from tests.estimate.described import execution, executions, machine, machines, model, with_faster


@st.composite
def own_executions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an execution that the default rules have."""
    told = draw(executions())
    if told["tensor_par_comm_type"] == "p2p_rs_ag":
        told["tensor_par_comm_type"] = "ar"
    return told | {"flash_attention": draw(st.booleans())}


_FASTER = ["matrix", "vector", "mem1", "mem2", "network 0", "network 1"]


@pytest.mark.parametrize("what", _FASTER)
@settings(max_examples=examples(25))
@given(system=machines(), told=own_executions(), factor=st.floats(1, 100))
def test_a_faster_part_never_slows_a_step(
    what: str, system: dict[str, Any], told: dict[str, Any], factor: float
) -> None:
    faster = with_faster(system, what, factor)
    before = estimate(model(), machine(system), execution(told)).seconds
    after = estimate(model(), machine(faster), execution(told)).seconds
    assert after <= before * (1 + 1e-9)


@settings(max_examples=examples(25))
@given(system=machines(), told=own_executions())
def test_what_leaves_one_tier_is_whole_in_the_other_and_parts_add_up(
    system: dict[str, Any], told: dict[str, Any]
) -> None:
    # of several stages, which one needs most of the first tier depends on what is offloaded
    told |= {"num_procs": told["num_procs"] // told["pipeline_par"], "pipeline_par": 1,
             "pipeline_interleaving": 1}  # fmt: skip
    moves = ("weight_offload", "activations_offload", "optimizer_offload")
    whole = estimate(model(), machine(system), execution(told | dict.fromkeys(moves, False)))
    found = estimate(model(), machine(system), execution(told))
    assert sum(found.times.values()) == pytest.approx(found.seconds)
    assert sum(whole.tier2.values()) == 0
    for name in whole.tier1:
        # both tiers together have at least all of it, and the second one no more
        assert found.tier2[name] <= whole.tier1[name] * (1 + 1e-9), name
        assert found.tier1[name] + found.tier2[name] >= whole.tier1[name] * (1 - 1e-9), name
    if not any(told[name] for name in moves):
        assert found.tier1 == whole.tier1


@settings(max_examples=examples(10))
@given(system=machines(), told=st.lists(own_executions(), min_size=2, max_size=12))
def test_many_at_once_are_as_each_alone(system: dict[str, Any], told: list[dict[str, Any]]) -> None:
    each = [execution(one) for one in told]
    together = evaluate(model(), machine(system), columns_of(each), DEFAULT)
    alone = [evaluate(model(), machine(system), columns_of([one]), DEFAULT) for one in each]
    for column, name in zip(together, together._fields, strict=True):
        single = np.array([getattr(one, name)[0] for one in alone])
        np.testing.assert_allclose(column, single, rtol=1e-6, atol=1e-12)


SMALL = {"sequence": 512, "global_batch": 8}
PLANS: list[tuple[str, dict[str, Any]]] = [
    ("llama3-8b", {"tp": 8, "recompute": "full"}),
    ("llama3-8b", {"tp": 2, "pp": 4, "attention": "unfused", "recompute": "selective"}),
    ("llama3-8b", {"dp": 8, "zero": 0}),
    ("llama3-8b", {"tp": 8, "dp": 2}),
    ("llama3-8b", {"tp": 4, "sequence_parallel": False, "inference": "prefill"}),
    ("llama3-8b", {"pp": 4, "inference": "prefill"}),
    ("llama3-8b", {"tp": 2, "pp": 2, "dp": 2, "inference": "decode", "micro_batch": 4}),
    ("llama3-70b", {"tp": 4, "pp": 4, "inference": "decode", "global_batch": 2}),
    ("deepseek-v3", {"dp": 8, "ep": 8, "inference": "decode"}),
    ("gpt3-125m", {"pp": 4, "schedule": "interleaved", "chunks": 3}),
    ("mixtral-8x7b", {"tp": 8, "ep": 8}),
    # tokens on the way to experts wait for gradients on the same links, 11 % of this step
    ("qwen3-30b-a3b", {"dp": 8, "ep": 8}),
    ("megatron-22b", {"tp": 8, "attention": "unfused"}),
    ("llama3-8b", {"dp": 4, "cp": 2, "zero": 2}),
    ("llama3-8b", {"cp": 2, "dp": 4, "zero": 3}),
    ("llama3-8b", {"tp": 2, "dp": 4, "zero": 3, "recompute": "full"}),
    ("llama3-8b", {"pp": 4, "dp": 2, "zero": 3, "schedule": "interleaved", "chunks": 4}),
    ("mixtral-8x7b", {"dp": 8, "ep": 4, "zero": 3}),
    ("mixtral-8x7b", {"tp": 2, "dp": 4, "ep": 2, "expert_tp": 2}),
    ("mixtral-8x7b", {"tp": 2, "dp": 4, "ep": 4, "expert_tp": 2, "zero": 3}),
    ("qwen3-30b-a3b", {"tp": 4, "dp": 2, "ep": 1, "expert_tp": 1}),
    ("gpt3-125m", {"pp": 4, "schedule": "interleaved", "chunks": 2}),  # of 1 and of 2 layers
]


@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_an_estimate_is_what_a_simulated_job_takes(name: str, plan: dict[str, Any]) -> None:
    step = describe_step(name, "dgx-h100", SMALL | plan)
    found = check_estimate(step, "dgx-h100", estimate(*step[:3]))
    assert found.estimated == pytest.approx(found.simulated, rel=0.02)
    assert sum(part.simulated for part in found.parts) == pytest.approx(found.simulated)


TILED = [
    ("llama3-8b", "dgx-h100", {"tp": 4, "overlap": "ring"}),
    ("llama3-8b", "dgx-h100", {"tp": 2, "pp": 2, "overlap": "pipe", "recompute": "full"}),
    ("llama3-8b", "tpu-v5e", {"tp": 8, "overlap": "pipe"}),
    ("llama3-8b", "tpu-v5e", {"tp": 8, "overlap": "ring", "sequence_parallel": False}),
    ("mixtral-8x7b", "mi300x-node", {"tp": 4, "dp": 2, "overlap": "ring"}),
    ("llama3-8b", "l40s-server", {"tp": 8, "overlap": "ring", "inference": "prefill"}),
    ("llama3-8b", "gh200", {"tp": 4, "overlap": "pipe", "inference": "decode", "micro_batch": 8}),
]


@pytest.mark.parametrize(("name", "system", "plan"), TILED)
def test_a_plan_whose_products_are_cut_takes_what_its_job_takes(
    name: str, system: str, plan: dict[str, Any]
) -> None:
    """On fast links products last longer than communication, on PCIe and tori the other way."""
    step = describe_step(name, system, SMALL | plan)
    found = check_estimate(step, system, estimate(*step[:3]))
    assert found.estimated == pytest.approx(found.simulated, rel=0.01)
    whole = describe_step(name, system, SMALL | plan | {"overlap": "none"})
    assert abs(estimate(*whole[:3]).seconds / found.estimated - 1) > 0.01


@pytest.mark.parametrize("chunks", [1, 3])
def test_messages_of_stages_share_links_with_tensor_parallel_ranks(chunks: int) -> None:
    """On PCIe a message and the collective beside it take twice as long."""
    schedule = {"schedule": "interleaved", "chunks": 3} if chunks > 1 else {}
    plan = {"tp": 2, "pp": 4, "sequence": 2048, "global_batch": 8, "ends_as_layers": True}
    step = describe_step("gpt3-6.7b", "l40s-server", plan | schedule)
    found = check_estimate(step, "l40s-server", estimate(*step[:3]))
    assert found.estimated == pytest.approx(found.simulated, rel=0.01)


@pytest.mark.parametrize("size", [64, 1 << 16, 1 << 21, 1 << 23])
@pytest.mark.parametrize("comm_type", ["all_reduce", "reduce_scatter", "all_gather"])
def test_rings_on_lines_take_what_is_simulated(comm_type: str, size: int) -> None:
    """The last member's messages to the first go back over all others; 2 x 4 is of two lines."""
    system = nadi.load_system("tpu-v5e", 8)
    for members, stride in ((8, 1), (4, 2)):
        own = RankGroup(*np.array([[members], [stride], [0]]))
        ranks = tuple(range(0, members * stride, stride))
        expected = collective_time(system, comm_type, size, group=ranks) / 1e9
        described = machine_of_system(system)
        found = collective_seconds(described, comm_type, np.array([float(size)]), own)[0]
        assert found == pytest.approx(expected, rel=0.02)


# of these tiers dram and nvme either read or write; what they read passes PCIe beside what they
# write
@pytest.mark.parametrize("offload", [
    "optimizer", "activations", "weights", "optimizer=cxl", "weights=cxl", "activations=nvme",
])  # fmt: skip
def test_an_estimate_of_offloading_is_what_the_placed_job_takes(offload: str) -> None:
    plan = SMALL | {"dp": 2, "tp": 2}
    step = describe_step("llama3-8b", "dgx-h100-cxl", plan, offload=[offload])
    found = check_estimate(step, "dgx-h100-cxl", estimate(*step[:3]), placed=simulate_offloaded)
    assert found.estimated == pytest.approx(found.simulated, rel=0.03)
    assert sum(part.simulated for part in found.parts) == pytest.approx(found.simulated)
    assert found.parts[-1].name == "offloading"
    assert found.measured is None


def test_decoding_says_the_rate_of_full_stages_and_fits_its_cache() -> None:
    plan = {"tp": 8, "pp": 2, "inference": "decode", "micro_batch": 16, "global_batch": 32}
    found = estimate(*describe_step("llama3-405b", "dgx-h100", plan)[:3])
    assert found.tokens_per_second == pytest.approx(712, abs=0.5)  # docs/generate-llm.md
    assert found.limits[0].name == "reading weights, keys and values"
    memory = llm_statistics("llama3-405b", **plan).memory.row(0, named=True)
    assert found.tier1["keys_and_values"] == memory["kv_cache"]
    assert found.tier1["weights"] == pytest.approx(memory["weights"], rel=1e-3)
    assert found.tier1["weight_gradients"] == found.tier1["activation_gradients"] == 0


@settings(max_examples=examples(12))
@given(st.sampled_from(sorted(shipped_systems())), st.data())
def test_decoding_takes_what_is_simulated_on_each_system(system: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["llama3-8b", "gpt3-6.7b", "mixtral-8x7b"]))
    tp, pp, each, turns = (data.draw(st.sampled_from(few)) for few in (
        (1, 2), (1, 2), (1, 3, 32), (1, 2, 3)
    ))  # fmt: skip
    plan = {"tp": tp, "pp": pp, "inference": "decode", "sequence": 2048, "micro_batch": each,
            "global_batch": each * turns}  # fmt: skip
    try:
        nadi.load_system(system, tp * pp)
    except nadi.NadiError:
        reject()
    step = describe_step(name, system, plan)
    found = check_estimate(step, system, estimate(*step[:3]))
    assert found.estimated == pytest.approx(found.simulated, rel=0.03)


def test_search_finds_plans_of_decoding() -> None:
    described = read_model("llama3-8b", 2048)
    given = {"training": [False], "decoding": [True], "datatype": ["bfloat16"]}
    space = search_space(described, read_machine("dgx-h100", 8), 8, 64, given)
    best = search(space, top=1).best[0]
    assert best.execution.decoding
    assert best.execution.tensor_par_comm_type == "ar"
    again = estimate(space.model, space.machine, best.execution)
    assert again.seconds == pytest.approx(best.seconds)


GROUPS = [(8, 1), (2, 1), (4, 8), (16, 2), (2, 8), (32, 1)]  # members, and how far apart


@pytest.mark.parametrize("system_name", ["dgx-h100", "mi300x-node"])
@pytest.mark.parametrize("comm_type", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
@pytest.mark.parametrize(("members", "stride"), GROUPS)
def test_collectives_take_what_is_simulated(
    system_name: str, comm_type: str, members: int, stride: int
) -> None:
    shipped = nadi.load_system(system_name, 32)
    rings = msgspec.structs.replace(shipped, nccl=None)
    own = RankGroup(*np.array([[members], [stride], [0]]))
    for system, size in itertools.product((shipped, rings), (64, 1 << 20, 50_000_000)):
        described = machine_of_system(system)
        ranks = tuple(range(0, members * stride, stride))
        expected = collective_time(system, comm_type, size, group=ranks) / 1e9
        found = collective_seconds(described, comm_type, np.array([float(size)]), own)[0]
        assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_the_slowest_of_several_dimensions_hides_the_others(seed: int) -> None:
    """All-reduces come back to it from later dimensions while it gathers other chunks."""
    chance = random.Random(seed)
    shipped = nadi.load_system("tpu-v4", 8)
    dimensions = tuple(
        msgspec.structs.replace(one, bandwidth=chance.choice((10.0, 30.0, 100.0, 400.0)))
        for one in shipped.network.dimensions
    )
    network = msgspec.structs.replace(shipped.network, dimensions=dimensions)
    system = msgspec.structs.replace(shipped, network=network)
    own = RankGroup(*np.array([[8], [1], [0]]))
    for comm_type, size in itertools.product(
        ("all_reduce", "reduce_scatter", "all_gather"), (64, 1 << 20, 50_000_000)
    ):
        expected = collective_time(system, comm_type, size) / 1e9
        described = machine_of_system(system)
        found = collective_seconds(described, comm_type, np.array([float(size)]), own)[0]
        assert found == pytest.approx(expected, rel=0.01)


def test_messages_take_what_is_simulated() -> None:
    system = nadi.load_system("dgx-h100", 32)
    for stride in (1, 8):
        own = RankGroup(*np.array([[2], [stride], [0]]))
        found = message_seconds(machine_of_system(system), np.array([1e7]), own)[0]
        expected = message_time(system, 10_000_000, 0, stride) / 1e9
        assert found == pytest.approx(expected, rel=0.01)


CURVE = LoadedLatency(idle_ns=250.0, read_gbps=60.0, write_gbps=30.0, outstanding=512)


def slow_latency(curve: LoadedLatency, load: float, peak: float) -> float:
    """Write CXLMemSim's formula down once more, for one load."""
    line = 64 / peak * 1e9
    penalty = line * load * curve.slope
    if load > curve.knee:
        own = min(load, curve.saturation)
        share = (own - curve.knee) / (curve.saturation - curve.knee)
        penalty += line * own / (1 - own) * share**2
    if load > curve.saturation:
        penalty += curve.idle_ns * (load - curve.saturation) / (1 - curve.saturation)
    return curve.idle_ns + min(penalty, max(curve.most_ns, 10 * curve.idle_ns))


def test_latency_under_load_is_the_formula_and_grows() -> None:
    loads = np.linspace(0, 1, 101)
    found = latency_ns(CURVE, loads, np.full(101, 6e10))
    assert found == pytest.approx([slow_latency(CURVE, load, 6e10) for load in loads])
    assert (np.diff(found) >= 0).all()
    assert peak_rate(CURVE, np.array([0.0, 0.5, 1.0])) == pytest.approx([30e9, 40e9, 60e9])


@settings(max_examples=examples(40))
@given(st.floats(50, 1000), st.floats(1, 4096), st.floats(0, 1))
def test_what_is_reached_is_under_way(idle: float, outstanding: float, reads: float) -> None:
    curve = LoadedLatency(idle_ns=idle, read_gbps=60, write_gbps=60, outstanding=outstanding)
    rate = reached_rate(curve, np.array([reads]))[0]
    assert rate <= 60e9 * (1 + 1e-9)
    latency = slow_latency(curve, rate / 60e9, 60e9)
    assert rate * latency / 1e9 <= outstanding * 64 * (1 + 1e-6)
    more = LoadedLatency(idle_ns=idle, read_gbps=60, write_gbps=60, outstanding=2 * outstanding)
    assert reached_rate(more, np.array([reads]))[0] >= rate * (1 - 1e-9)


def test_a_shared_tier_is_slower_and_smaller() -> None:
    told = machine().mem2
    own, shared = np.array([8]), type(told)(told.GiB, told.GBps, told.MB_efficiency, 0.0, 8)
    size = np.array([1e9])
    assert shared.moving_time(size, size, own) == pytest.approx(
        8 * told.moving_time(size, size, own)
    )
    assert shared.share(own) == pytest.approx(told.capacity / 8)
    assert shared.share(np.array([2])) == pytest.approx(told.capacity / 2)


REFUSED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("llama3-8b", "dgx-h100", {"tp": 3}, "tp", "one of 1, 2, 4, 8"),
    ("llama3-8b", "dgx-h100", {"tp": 8, "dp": 5}, "global_batch", "5 or 10 would fit"),
    ("llama3-8b", "dgx-h100", {"pp": 2, "schedule": "gpipe"}, "schedule", "1f1b or interleaved"),
    (
        "llama3-8b",
        "dgx-h100",
        {"tp": 2, "dp": 6, "global_batch": 12},
        "system dgx-h100",
        "nadi systems NAME",
    ),
    ("llama3-8b", "dgx-h100", {"tpp": 2}, "tpp", "known are tp"),
    ("llama3-8bb", "dgx-h100", {}, "language model 'llama3-8bb'", "did you mean llama3-8b"),
]


@pytest.mark.parametrize(("name", "system", "plan", "where", "remedy"), REFUSED)
def test_what_does_not_fit_is_refused_with_what_would(
    name: str, system: str, plan: dict[str, Any], where: str, remedy: str
) -> None:
    with pytest.raises(nadi.NadiError) as caught:
        describe_step(name, system, {"global_batch": 8} | plan)
    assert caught.value.where == where
    assert remedy in caught.value.remedy


def test_offloading_needs_a_second_tier() -> None:
    with pytest.raises(nadi.NadiError) as caught:
        describe_step("llama3-8b", "dgx-h100", {"tp": 8}, offload=["weights"])
    assert caught.value.where == "dgx-h100: $.memory.remote.capacity"
    with pytest.raises(nadi.NadiError, match="known: weights, activations, optimizer"):
        describe_step("llama3-8b", "dgx-h100", {"tp": 8}, offload=["wheights"])


def test_rules_of_calculon_refuse_what_it_does_not_have() -> None:
    for name, attention, reason in (
        ("llama3-8b", "unfused", "calculon-layers"),
        ("gpt3-125m", "flash", "calculon-kernels"),
    ):
        step = describe_step(name, "dgx-h100", {"attention": attention})
        with pytest.raises(nadi.NadiError) as caught:
            estimate(*step[:3], CALCULON)
        assert caught.value.where == f"execution, {reason}"


@pytest.mark.parametrize("offload", ["weights", "optimizer"])
@pytest.mark.parametrize("system", ["tpu-v4", "dgx-h100"])
def test_estimates_and_simulations_of_a_placed_step_agree(system: str, offload: str) -> None:
    plan = {"tp": 2, "dp": 2, "sequence": 2048, "global_batch": 8}
    step = describe_step("gpt3-6.7b", system, plan)
    plain = plain_step(nadi.llm_job("gpt3-6.7b", **plan), nadi.load_system(system, 4))
    there = msgspec.structs.replace(plain.system, tiers=(second_tier(64.0, 1 << 50),))
    staging = plain.staging(there)
    where = plain.chosen(ByRules(parse_rules(f"{offload}=cxl")), there, staging)
    simulated = plain.placed(where, there, staging).ns / 1e9
    with_tier = machine_of_system(there)
    assert step.plan is not None
    how = execution_of_plan(step.plan, with_tier, offload=[offload])
    assert estimate(step.model, with_tier, how).seconds == pytest.approx(simulated, rel=0.03)
    assert simulated >= plain.ns / 1e9
