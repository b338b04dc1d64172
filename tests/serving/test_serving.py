"""Servers: laws, one answer with estimates, files, setups, sweeps and searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import FormatError, UsageError
from nadi.estimates import describe_step, estimate, search_space
from nadi.estimates.inference_steps import launched_operations, tile_rows, wire_seconds
from nadi.memory import study_second_tier
from nadi.serving import (
    SERVER_SEARCH,
    SERVER_SWEEP,
    SERVING,
    CacheTier,
    EngineRules,
    Requests,
    measures,
    profiled_times,
    read_requests,
    search_servers,
    serve_on_engines,
    setup_of,
    sweep_servers,
    tier_worth,
)
from nadi.serving.served import drawn_requests
from nadi.serving.step_times import StepTimes
from nadi.serving.sweep_results import sweep_charts
from nadi.systems import second_tier
from tests.amounts import examples

SMALL: dict[str, Any] = {"number": 40, "input": 200, "output": 10}


MODELS = ("llama3-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt3-6.7b")
SYSTEMS = ("dgx-h100", "dgx-a100", "mi300x-node", "gb200-nvl72", "l40s-server")


@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(
    st.sampled_from(MODELS), st.sampled_from(SYSTEMS), st.sampled_from((1, 2, 4)),
    st.integers(1, 16), st.integers(2, 256),
)  # fmt: skip
def test_a_step_takes_what_estimates_studies_and_simulations_say(
    model: str, system: str, tp: int, requests: int, blocks: int
) -> None:
    """Requests whose only two steps are prefill and decode of all of them."""
    before = 16 * blocks
    served = nadi.serve(
        model, system, tp=tp, concurrency=requests, number=requests, input=before, output=2,
        budget=requests * before, sequences=requests, graphs=False,
        blocks=requests * (blocks + 2), prefix_caching=False,
    )  # fmt: skip
    values = measures(served.runs[0])
    for phase, took in (("prefill", values["ttft"].max()), ("decode", values["tpot"].max())):
        plan = {"tp": tp, "inference": phase, "micro_batch": requests, "global_batch": requests,
                "sequence": before, "sequence_parallel": False, "expert_tp": tp}  # fmt: skip
        step = describe_step(model, system, plan)
        estimated = estimate(step.model, step.machine, step.execution).seconds
        assert took / 1e9 == pytest.approx(estimated, rel=0.03), phase
        if tp <= 2:
            job = nadi.llm_job(model, **plan)
            simulated = nadi.simulate(job, nadi.load_system(system, tp)).makespan
            assert took == pytest.approx(simulated, rel=0.03), phase
        studied = _studied(step)
        assert took / 1e9 == pytest.approx(studied, rel=0.03), phase


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3"])
def test_a_step_of_groups_takes_what_estimates_say(model: str) -> None:
    """Each of four groups reads a prompt, and generates, beside the others' equal ones."""
    served = nadi.serve(
        model, "gb200-nvl72", attention_dp=4, ep=4, concurrency=8, number=8, input=256, output=2,
        budget=512, sequences=2, graphs=False, blocks=64, prefix_caching=False,
    )  # fmt: skip
    values = measures(served.runs[0])
    for phase, took in (("prefill", values["ttft"].max()), ("decode", values["tpot"].max())):
        plan = {"dp": 4, "ep": 4, "inference": phase, "micro_batch": 2, "global_batch": 8,
                "sequence": 256, "sequence_parallel": False}  # fmt: skip
        step = describe_step(model, "gb200-nvl72", plan)
        estimated = estimate(step.model, step.machine, step.execution).seconds
        assert took / 1e9 == pytest.approx(estimated, rel=0.03), phase
    lone = nadi.serve(
        model, "gb200-nvl72", attention_dp=4, ep=4, concurrency=1, number=1, input=256, output=2,
        budget=512, sequences=2, graphs=False, blocks=64, prefix_caching=False,
    )  # fmt: skip
    # the other groups have nothing to do, and the experts a quarter of the tokens
    assert 0.05 < measures(lone.runs[0])["ttft"][0] / values["ttft"].max() < 1.0


def _studied(step: Any) -> float:
    """Give what ``nadi memory plan`` says of the plan alone, on devices with room for it."""
    roomy = msgspec.structs.replace(step.machine.mem1, GiB=1 << 20)
    machine = msgspec.structs.replace(step.machine, mem1=roomy)
    values = msgspec.to_builtins(step.execution)
    sizes = values.pop("num_procs"), values.pop("batch_size")
    for name in ("context_par", "gradient_sharding", "weight_sharding"):
        values.pop(name)
    space = {name: [value] for name, value in values.items()}
    chosen = search_space(step.model, machine, *sizes, space)
    best = study_second_tier(chosen, [64.0], [1 << 30], second_tier(64.0, 1 << 50)).best[0][0]
    assert best is not None
    return best.seconds


def _flat(per_token: float) -> StepTimes:
    two = np.array([1.0, 1001.0])
    grid = np.zeros((2, 2, 2, 2))
    grid[:, :, 1, 1] = 3000.0
    return StepTimes(
        two, 900.0 + per_token * two, two, np.ones(2), (np.array([0.0, 64.0]),) * 4, grid,
        graphs=False,
    )  # fmt: skip


def _rate(rules: EngineRules, seed: int, per_token: float = 5.0) -> float:
    setup = setup_of({"rate": 1e6, "number": 60, "input": 40, "output": 20, "spread": 0.5,
                      "turns": 3, "prefix": 16})  # fmt: skip
    run = serve_on_engines(drawn_requests(setup, seed), rules, [_flat(per_token)] * 2)
    return float(run.output.sum()) / float(run.last.max() - run.arrival.min())


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(45, 90), st.integers(1, 4), st.floats(1.0, 40.0))
def test_more_never_lowers_the_mean_rate(blocks: int, instances: int, link: float) -> None:
    """Mean over 20 seeds: single runs may be slower with more, as schedules are greedy."""
    tier = CacheTier("pool", 200, instances, link * 100, link * 100)
    rules = EngineRules(
        64, 8, 4, 4 * blocks, instances=instances, tiers=(tier,), routing="session"
    )  # what a session said is where it was

    def mean(rules: EngineRules, per_token: float = 5.0) -> float:
        return float(np.mean([_rate(rules, seed, per_token) for seed in range(20)]))

    plain = mean(rules) * 0.995
    fast = tier._replace(link_ns=tier.link_ns / 4, memory_ns=tier.memory_ns / 4)
    assert mean(rules._replace(blocks=8 * blocks)) >= plain
    assert mean(rules._replace(instances=2 * instances)) >= plain
    assert mean(rules._replace(groups=2)) >= plain
    assert mean(rules._replace(tiers=(fast,))) >= plain
    assert mean(rules, 2.0) >= plain


def test_what_a_server_reads_says_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    good = {"input_toks": 5, "output_toks": 2, "arrival_time": 1.5}
    for text, what in (
        ("", "has no requests"), ("{", "line 1"), (json.dumps(good | {"output_toks": 0}), "not 1"),
        ('{"input_toks": 5, "output_toks": 2}', "arrival_time_ns"),
        (json.dumps(good | {"input_tok_ids": [2**63]}), "out of range|<= "),
        (json.dumps(good | {"arrival_time": 4.1e9}), "arrives at"),
        ('{"further": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}", "no JSON"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(FormatError, match=what):
            read_requests(file)
    same = {**good, "input_toks": 40, "input_tok_ids": [7] * 40}
    file.write_text("\n".join(json.dumps(same | {"arrival_time": at}) for at in (3, 2, 90)))
    found = nadi.serve("llama3-8b", "hgx-h200", requests=str(file))
    assert found.runs[0].hits.tolist()[2] == 32
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\na,1,2\n")
    with pytest.raises(FormatError, match="fewer than two sizes"):
        profiled_times(tmp_path, 2)
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\na,1,2\na,2,2\n")
    (tmp_path / "per_sequence.csv").write_text("layer,sequences,time_us\na,1,2\na,2,2\n")
    head = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
    scattered = "".join(f"{k},{k},{k},{k},{k}\n" for k in range(1, 3000))
    for rows, what in (
        (scattered, "81,000,000,000,000 cells"), ("1,2,3,4,-5\n", "negative"),
        ("1,2,3,4,inf\n", "infinite"), ("1,2,3,4,\n", "missing"), ("nan,2,3,4,5\n", "missing"),
    ):  # fmt: skip
        (tmp_path / "attention.csv").write_text(head + rows)
        with pytest.raises(FormatError, match=what):
            profiled_times(tmp_path, 2)


@pytest.mark.parametrize(
    ("setup", "what"),
    [({}, "one of them"), ({"rate": 1, "concurrency": 2}, "one of them"), ({"rat": 1}, "no such"),
     ({"rate": 1e-9}, "comes after"), ({"rate": 1e-300}, "comes after"),
     ({"rate": 1, "think": 1e9}, "comes after"),
     ({"rate": 1, "tiers": ("dram",)}, "no such tier"), ({"rate": 1, "drafts": 2}, "chance"),
     ({"rate": 1, "input": 2, "prefix": 3}, "prompts have 2"), ({"rate": -1}, "rate"),
     ({"rate": 1, "model": "llama3-405b"}, "leave no room"),
     ({"rate": 1, "blocks": 3}, "has room for 48"), ({"rate": 1, "link": 5e9}, "only read"),
     ({"rate": 1, "tiers": ("a=1GB@1GB/s:x",)}, "no number"),
     ({"rate": 1, "prefill_replicas": 1, "prefill_ep": 2}, "prefill_replicas=1: ep"),
     ({"rate": 1, "prefill_replicas": 1, "prefill_tp": 2, "measured": "a"}, "of one kind"),
     ({"rate": 1, "wait_steps": 2}, "wait_share, too"),
     ({"rate": 1, "wait_share": 0.5}, "for some"),
     ({"rate": 1, "wait_steps": 2, "wait_share": 0.5, "prefill_replicas": 1}, "others generate")],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(setup: dict[str, Any], what: str) -> None:
    given_setup = dict(setup)
    model = given_setup.pop("model", "llama3-8b")
    with pytest.raises(UsageError, match=what):
        nadi.serve(model, "hgx-h200", **given_setup)


def test_speculation_tiers_and_instances_change_what_they_should() -> None:
    def serve(**more: Any) -> dict[str, Any]:
        return SERVING.data(nadi.serve("llama3-8b", "dgx-h100-cxl", **(SMALL | more)))

    plain = serve(concurrency=4, output=40)
    drafted = serve(concurrency=4, output=40, drafts=3, acceptance=0.8)
    assert drafted["output_tokens_per_second"] > 1.5 * plain["output_tokens_per_second"]
    sessions = {"concurrency": 6, "turns": 5, "blocks": 120}
    alone, pooled = serve(**sessions), serve(**sessions, tiers=("pool=1TB@64GB/s",))
    assert pooled["loaded_tokens"] > 0 == alone["loaded_tokens"]
    assert pooled["computed_tokens"] < alone["computed_tokens"]
    apart = serve(rate=20, replicas=1, prefill_replicas=1)
    assert apart["devices"] == 2
    assert apart["loaded_tokens"] == 40 * 200


def test_narrow_weights_are_read_sooner_and_leave_room() -> None:
    """Of a step of one request, weights are nearly all: 17/32 of a byte instead of two."""
    wide, narrow, eight = (
        nadi.serve("llama3-70b", "hgx-h200", concurrency=1, number=2, input=16, output=20, tp=2,
                   weight_bits=bits) for bits in (0, 4, 8)
    )  # fmt: skip
    layers = wide.basis.instance.weights - narrow.basis.instance.weights
    assert layers / 1e9 == pytest.approx(68.4 / 2 * (2 - 17 / 32), rel=0.01)
    per_token = [measures(one.runs[0])["tpot"][0] for one in (wide, eight, narrow)]
    assert per_token[0] > 1.4 * per_token[1] > 1.4 * 1.1 * per_token[2]
    assert narrow.basis.instance.blocks > eight.basis.instance.blocks > wide.basis.instance.blocks
    # what reading takes at the device's bandwidth; products also compute, which goes on beside it
    saved = 68.4e9 / 2 * (2 - 17 / 32) / 4.8e12 * 1e9
    assert 0.6 * saved < per_token[0] - per_token[2] < saved


def test_experts_of_four_bits_are_unpacked_while_they_compute() -> None:
    """Generated tokens come sooner, and long prompts take what 0.245 of the peak computes."""
    setup: dict[str, Any] = {"concurrency": 1, "number": 1, "input": 8000, "output": 9,
                             "budget": 8192}  # fmt: skip
    wide, eight, narrow = (
        nadi.serve("qwen3-30b-a3b", "hgx-h200", weight_bits=bits, **setup) for bits in (0, 8, 4)
    )
    ttft = [measures(one.runs[0])["ttft"][0] for one in (wide, eight, narrow)]
    tpot = [measures(one.runs[0])["tpot"][0] for one in (wide, eight, narrow)]
    assert tpot[0] > tpot[1] > tpot[2]
    peak = nadi.load_system("hgx-h200").compute.peak_of("bfloat16")
    experts = 48 * 8000 * 8 * 3 * 2048 * 768 * 2 / (0.245 * peak) * 1e9
    assert ttft[1] <= ttft[0] < ttft[2]
    assert experts < ttft[2] < ttft[1] + experts


@pytest.mark.parametrize("instances", [2, 3, 4])
def test_sessions_are_on_all_instances(instances: int) -> None:
    setup = setup_of({"concurrency": 60, "number": 120, "input": 40, "output": 20, "turns": 2})
    rules = EngineRules(64, 8, 4, 400, instances=instances, routing="session")
    run = serve_on_engines(drawn_requests(setup, 0), rules, [_flat(5.0)] * 2)
    assert run.instances["steps"].min() > 0.3 * run.instances["steps"].max()


def test_tiers_pay_below_the_price_of_the_devices_that_they_save(tmp_path: Path) -> None:
    shipped = (Path(nadi.__file__).parent / "data/systems/dgx-h100-cxl.toml").read_text()
    of_tiers = shipped.replace("shared_by = 8", "shared_by = 8\nhour = 3.0")
    (tmp_path / "priced.toml").write_text(f"{of_tiers}\n[cost]\nrank_hour = 2.0\n")
    found = search_servers(
        "llama3-8b", tmp_path / "priced.toml", 6, rate=4, turns=8, think=30, input=3000,
        output=100, number=400, tiers=("cxl",), routing="session", ttft_ms=600, tpot_ms=60,
    )  # fmt: skip
    even = tier_worth(found)
    assert found.best is not None
    assert found.without_tiers is not None
    assert even is not None
    assert even.devices == found.without_tiers.devices - found.best.devices > 0
    assert even.price == 2.0 * even.devices
    assert even.stated == pytest.approx(3.0)
    assert even.pays == (even.stated < even.price)
    assert even.capacity == pytest.approx(2.048e12, rel=0.001)
    data = SERVER_SEARCH.data(found)["break_even"]
    assert data["price_per_tb_hour"] == pytest.approx(even.price / 2.048, rel=0.001)


def test_sweeps_of_tiers_state_units() -> None:
    swept = sweep_servers("llama3-8b", "hgx-h200", ["bandwidth=4,64GB/s", "capacity=10GiB"],
                          tiers=("pool=1GB@5GB/s",), concurrency=2, **SMALL)  # fmt: skip
    data = SERVER_SWEEP.data(swept)
    assert "bandwidth 64.00 GB/s, capacity 10.00 GiB" in SERVER_SWEEP.markdown(data)
    assert [one.x.label for one in sweep_charts(data)] == ["bandwidth in GB/s"] * 3


def test_servers_beside_each_other() -> None:
    swept = sweep_servers("llama3-8b", "hgx-h200", ["concurrency=1,4", "tp=1,2,3"], **SMALL,
                          concurrency=2)  # fmt: skip
    assert [bool(one.why) for one in swept.points] == [False, False, True] * 2
    rates = [SERVING.data(one.found)["output_tokens_per_second"]
             for one in swept.points if one.found]  # fmt: skip
    assert rates[0] < rates[1] < rates[3]
    found = search_servers("llama3-8b", "hgx-h200", 4, rate=2000, tpot_ms=12, **SMALL)
    assert found.best is not None
    smaller = [one for one in found.points if one.devices < found.best.devices]
    assert found.best.within >= 0.99 > max(one.within for one in smaller)
    with pytest.raises(UsageError, match="without a limit"):
        search_servers("llama3-8b", "hgx-h200", 4, rate=1)


def test_the_time_of_a_request_ends_with_its_last_token() -> None:
    found = nadi.serve("llama3-8b", "hgx-h200", rate=5, spread=0.4, seeds=2, **SMALL)
    for run in found.runs:
        values = measures(run)
        gaps = np.where(run.output > 1, values["tpot"] * (run.output - 1), 0.0)
        assert np.allclose(values["ttft"] + gaps, values["e2e"])
    assert msgspec.structs.asdict(found.setup)["seeds"] == 2


def test_instances_that_read_prompts_have_degrees_of_their_own() -> None:
    """Each kind takes what a server of that kind alone takes, and blocks go at the slower end."""
    setup: dict[str, Any] = {**SMALL, "input": 2000, "concurrency": 1, "number": 1}
    alone = {tp: measures(nadi.serve("llama3-70b", "hgx-h200", tp=tp, **setup).runs[0])
             for tp in (2, 4)}  # fmt: skip
    found = nadi.serve(
        "llama3-70b", "hgx-h200", tp=4, prefill_replicas=1, prefill_tp=2, link=5e9, **setup
    )
    assert found.setup.devices == 6
    apart = measures(found.runs[0])
    # 2,000 tokens of 320 KiB in whole blocks, from two ranks that send 5 GB/s each, come before the
    # first token of the instance that generates
    moved = 2000 / 16 * found.basis.instance.block_bytes / 10e9 * 1e9
    assert apart["ttft"] == pytest.approx(alone[2]["ttft"] + moved, rel=1e-6)
    others = alone[4]["tpot"] * 9
    assert apart["e2e"] - apart["ttft"] == pytest.approx(others, rel=0.01)
    assert found.basis.reading.weights > 1.9 * found.basis.instance.weights
    names = [row["name"] for row in SERVING.data(found)["memories"]]
    assert names == ["device, decode", "device, prefill"]
    with pytest.raises(UsageError, match="no instances only read prompts"):
        nadi.serve("llama3-70b", "hgx-h200", tp=4, prefill_tp=2, **setup)


def test_links_are_shared_where_the_system_says_so() -> None:
    """Pipelines over two nodes use the path to host memory; those within a node do not."""

    def beside(tp: int, pp: int, **more: Any) -> tuple[Any, int]:
        found = nadi.serve(
            "llama3-70b", "dgx-h100-cxl", tp=tp, pp=pp, concurrency=8, turns=4, number=32,
            input=1000, output=20, blocks=300, **more,
        )  # fmt: skip
        return found, int(found.runs[0].instances["beside"].sum())

    across, slowed = beside(8, 2, tiers=("dram",))
    (path,) = [one for one in across.basis.links if one.name == "pcie"]
    assert path.rate == 51.0
    assert path.dimensions == (1,)
    assert across.system.network.num_ranks == 16
    assert slowed > 0
    assert beside(4, 1, tiers=("dram",))[1] == 0  # NVLink has nothing to do with it
    assert beside(8, 2, tiers=("pool=1TB@51GB/s",))[1] == 0  # nobody says how that is reached
    apart, slowed = beside(4, 1, prefill_replicas=1)
    assert apart.basis.links[apart.basis.moved_link].name == "dimension1"
    assert slowed > 0
    assert beside(4, 1, prefill_replicas=1, link=450e9)[1] == 0


def test_collectives_keep_links_for_their_bytes() -> None:
    """Ring all-reduces of two in each of 80 layers and one of the embedding, by hand."""
    model, system = nadi.models.load_language_model("llama3-70b"), nadi.load_system("hgx-h200", 16)
    tokens = np.array([32, 2048])
    for tp, within in ((8, 8), (16, 8)):
        whole = (2 * 80 + 1) * tokens * 8192 * 2
        found = wire_seconds(model, system, nadi.models.ParallelPlan(tp=tp), tokens)
        assert found[0] == pytest.approx(whole * 2 * (within - 1) / within / 450e9)
        between = whole / within * 2 * (1 - within / tp) / 50e9
        assert found[1] == pytest.approx(between)
    stages = wire_seconds(model, system, nadi.models.ParallelPlan(tp=8, pp=2), tokens)
    assert stages[1] == pytest.approx(tokens * 8192 * 2 / 50e9)


def test_instances_share_tiers_as_stated() -> None:
    setup: dict[str, Any] = {**SMALL, "rate": 50, "turns": 4, "replicas": 4}
    swept = sweep_servers(
        "llama3-8b", "hgx-h200", ["sharing=1,2,4,5"], tiers=("pool=1GB@5GB/s",), **setup
    )
    tiers = [one.found.basis.tiers[0] for one in swept.points if one.found]
    assert [one.memories(4) for one in tiers] == [4, 2, 1]
    assert len({one.blocks for one in tiers}) == 1
    loaded = [int(one.found.runs[0].instances["loaded_tokens"].sum())
              for one in swept.points if one.found]  # fmt: skip
    assert loaded[0] < loaded[1] < loaded[2]  # turns are elsewhere, and found where all share
    assert "4 instances 5" in swept.points[3].why
    with pytest.raises(UsageError, match="has its tiers alone"):
        sweep_servers("llama3-8b", "hgx-h200", ["sharing=1,2"], tiers=("pool=1GB@5GB/s",),
                      **(setup | {"replicas": 1}))  # fmt: skip
    with pytest.raises(UsageError, match="no tier"):
        sweep_servers("llama3-8b", "hgx-h200", ["sharing=1,2"], **setup)
    node = nadi.serve("llama3-8b", "dgx-h100-cxl", tiers=("cxl",), **(setup | {"replicas": 9}))
    assert node.basis.tiers[0].memories(9) == 2  # a pool for each eight ranks


def test_a_search_finds_instances_of_two_kinds() -> None:
    """Prompts are read by four ranks in time, and two that generate are not disturbed by them."""
    found = search_servers(
        "llama3-70b", "hgx-h200", 6, rate=1, number=60, input=6000, output=200, ttft_ms=1500,
        tpot_ms=22,
    )  # fmt: skip
    assert found.best is not None
    assert found.best.values == {"tp": 2, "replicas": 1, "prefill_replicas": 1, "prefill_tp": 4}
    assert found.best.devices == 6 == max(one.devices for one in found.points)


@pytest.mark.parametrize(("name", "own"), [("deepseek-v3", 3), ("qwen3-30b-a3b", 0)])
def test_ranks_add_up_what_experts_of_a_token_gave_together(name: str, own: int) -> None:
    """Two all-reduces of the tokens in each layer, however many experts a token has."""
    model, system = nadi.models.load_language_model(name), nadi.load_system("hgx-h200")
    tokens = np.array([64, 1000])
    found = wire_seconds(model, system, nadi.models.ParallelPlan(tp=4), tokens)
    whole = (2 * model.layers + 1) * tokens * model.hidden * 2
    assert found[0] == pytest.approx(whole * 2 * 3 / 4 / 450e9)
    assert model.layer_kinds.count(model.layer_kinds[0]) == (own or model.layers)


def test_the_host_launches_the_operations_of_prompts() -> None:
    """Prompts that the device reads sooner take the host's time, and generated tokens do not."""
    setup: dict[str, Any] = {"concurrency": 1, "number": 1, "input": 1000, "output": 9, "tp": 8}
    plain, launched, longer = (
        measures(nadi.serve("llama3-70b", "hgx-h200", **(setup | more)).runs[0])
        for more in ({}, {"launch_us": 200.0}, {"launch_us": 200.0, "input": 40_000})
    )
    # of a layer: 2 norms, 4 products, rotation, attention, activation, and 2 sums
    host = 80 * 11 * 200e3
    assert plain["ttft"] < launched["ttft"] == host
    assert launched["tpot"] == plain["tpot"]
    alone = measures(nadi.serve("llama3-70b", "hgx-h200", **(setup | {"input": 40_000})).runs[0])
    # 20 chunks, of which the device takes longer for the last ones alone
    assert max(alone["ttft"], 20 * host) <= longer["ttft"] < alone["ttft"] + 20 * host


@pytest.mark.parametrize(
    ("name", "dense", "experts"), [("llama3-70b", 80 * 11, 0), ("deepseek-v3", 3 * 16, 58 * 22)]
)
def test_layers_with_experts_launch_more_operations(name: str, dense: int, experts: int) -> None:
    """Of 61 layers of DeepSeek V3 the first 3 have no experts."""
    assert launched_operations(nadi.models.load_language_model(name)) == dense + experts


def test_grouped_products_compute_whole_tiles() -> None:
    """What is drawn of tokens for experts fills as many tiles in the mean, within 4 %."""
    random = np.random.default_rng(1)
    for rows in (1, 7, 14, 29, 43, 50, 60, 70, 100, 400, 2000):
        tile = next((one for one in (8, 16, 32, 48) if rows < 0.9 * one), 64)
        drawn = random.poisson(rows, 20_000)
        whole = (-(-np.maximum(drawn, 1) // tile) * tile).mean()
        assert tile_rows(np.array([rows])) == pytest.approx(whole, rel=0.04)
        assert rows < tile_rows(np.array([rows]))


@pytest.mark.parametrize(("wait", "share", "late"), [(0, 0.0, 0), (20, 0.9, 20), (20, 0.4, 0)])
def test_prompts_wait_for_more_of_them(wait: int, share: float, late: int) -> None:
    """A prompt of half the budget comes while another request generates, in steps of 1 ms."""
    rules = EngineRules(
        100, 8, 4, 400, overlaps=False, wait_steps=wait, wait_tokens=round(100 * share)
    )
    arrival = np.array([0, 10_500_000])
    requests = Requests.of(arrival, np.array([50, 50]), np.array([60, 4]))
    one = _flat(0.0)
    times = one._replace(dense=np.full(2, 1e6), attention=one.attention * 0, heads=np.zeros(2))
    run = serve_on_engines(requests, rules, [times] * 2)
    assert (run.first - run.arrival).tolist() == [1_000_000, 1_500_000 + late * 1_000_000]
    assert run.bound["prompts"] == late * 1_000_000
    both = Requests.of(arrival[[0, 1, 1]], np.full(3, 50), np.array([60, 4, 4]))
    run = serve_on_engines(both, rules, [times] * 2)  # two of them fill the step
    assert (run.first - run.arrival)[1:].max() <= 2_500_000


@settings(max_examples=examples(6), deadline=None, derandomize=True)
@given(st.sampled_from(MODELS), st.sampled_from(SYSTEMS), st.sampled_from((1, 2, 8)))
def test_what_bounds_steps_adds_up(model: str, system: str, tp: int) -> None:
    """Few tokens wait for weights, many compute, and one device has no collectives."""
    setup: dict[str, Any] = {"tp": tp, "concurrency": 1, "number": 1, "blocks": 999}
    few, many = (
        nadi.serve(model, system, input=tokens, output=output, budget=8192, **setup)
        for tokens, output in ((8, 60), (8000, 1))
    )
    parts = []
    for found in few, many:
        sums = {name: int(one.sum()) for name, one in found.runs[0].instances.items()}
        of_kernels = sums["dense"] - sums["network"]
        parts.append(sums["memory"] / of_kernels)
        assert (sums["network"] > 0) == (tp > 1)
        assert 0 <= sums["memory"] <= of_kernels + found.runs[0].instances["steps"].sum()
        data = SERVING.data(found)
        # each part of each step is a whole number of ns
        rounded = 10 * data["steps"]
        assert sum(row["time_ns"] for row in data["spent"]) == pytest.approx(
            data["busy_ns"], abs=rounded
        )
    assert parts[0] > 0.9
    # products of narrow experts move more than they compute, also with many tokens
    assert parts[1] < (1.0 if nadi.models.load_language_model(model).moe else 0.6)


@pytest.mark.parametrize(("setup", "chips"), [
    ({"tp": 4}, 4), ({"tp": 2}, 4), ({"tp": 8}, 8), ({"tp": 4, "replicas": 5}, 32),
    ({"tp": 4, "replicas": 1025}, 4),
])  # fmt: skip
def test_slices_are_the_smallest_with_room(setup: dict[str, int], chips: int) -> None:
    found = nadi.serve("gpt3-6.7b", "tpu-v4", number=4, rate=1, input=64, output=2, **setup)
    assert found.system.network.num_ranks == chips


def test_a_prefill_on_a_slice_is_as_estimated() -> None:
    served = nadi.serve(
        "gpt3-6.7b", "tpu-v4", tp=4, concurrency=4, number=4, input=2048, output=2, budget=8192,
        sequences=4, graphs=False, blocks=520,
    )  # fmt: skip
    plan = {"tp": 4, "sequence": 2048, "global_batch": 4, "micro_batch": 4, "inference": "prefill",
            "sequence_parallel": False}  # fmt: skip
    step = describe_step("gpt3-6.7b", "tpu-v4", plan)
    estimated = estimate(step.model, step.machine, step.execution).seconds
    assert measures(served.runs[0])["ttft"].max() == pytest.approx(1e9 * estimated, rel=0.01)
