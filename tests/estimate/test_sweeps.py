"""Sweeps: axes as they are written, and points that are single estimates."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.estimates import (
    CALCULON,
    Described,
    columns_of,
    describe_search,
    describe_step,
    describe_sweep,
    described_at,
    evaluate,
    parse_axes,
    sweep_estimates,
    sweep_search,
)
from nadi.estimates.calculon.rules import DEFAULT
from nadi.systems import load_system, shipped_text
from nadi.units import parse_rate
from tests.amounts import examples
from tests.estimate.described import execution, executions, machine, machines, model, read

EXAMPLE = Described(model(read("model")), machine(), execution())
AXES = [
    "mem2.GBps=16:64:x2", "mem1.GiB=1GiB,80", "matrix.float16.tflops=50 TFLOP/s,1000",
    "vector.float16.tflops=7,70", "networks.1.bandwidth=1:21:10", "networks.0.latency=1us,10ms",
    "networks.1.efficiency=0.2,0.9", "networks.0.size=4,4096", "hidden=768,1536",
    "feedforward=768,3072", "seq_size=512,2048", "num_blocks=12,24", "attn_heads=8,16",
    "microbatch_size=1,2,4", "batch_size=24,48,50", "tensor_par_overlap=none,pipe",
    "activation_recompute=full,attn_only", "datatype=float8,float32", "weight_offload=true,false",
    "processing_mode=roofline,no_overlap", "networks.0.must_be_filled=false,true",
    "mem2.MB_efficiency.0.1=0.3,0.7", "networks.0.ops.all_gather.0=1,2",
]  # fmt: skip


@settings(max_examples=examples(60))
@given(
    system=machines(), told=executions(datatype="float16"),
    texts=st.lists(st.sampled_from(AXES), min_size=1, max_size=2, unique_by=lambda one: one[:7]),
)  # fmt: skip
def test_each_point_of_a_sweep_is_an_estimate_of_its_own(
    system: dict[str, Any], told: dict[str, Any], texts: list[str]
) -> None:
    described = Described(model(), machine(system), execution(told))
    axes = parse_axes(texts, described, CALCULON)
    found = sweep_estimates(described, axes, CALCULON)
    for point in range(found.rate.size):
        one = described_at(described, axes, point)
        alone = evaluate(one.model, one.machine, columns_of([one.execution]), CALCULON)
        for name, value, column in zip(alone._fields, alone, found.found, strict=True):
            assert column[point] == pytest.approx(value[0], rel=1e-9), (point, name)
        possible = found.found.reason[point] == 0
        rate = one.execution.batch_size / found.found.seconds[point] if possible else 0
        assert found.rate[point] == pytest.approx(rate)


@settings(max_examples=examples(30))
@given(system=machines(), told=executions())
def test_more_of_the_second_tier_is_never_slower(
    system: dict[str, Any], told: dict[str, Any]
) -> None:
    limited = copy.deepcopy(system)
    limited["mem2"]["GiB"] = 1
    described = Described(model(), machine(limited), execution(told))
    axes = parse_axes(["mem2.GiB=0,0.001,0.1,10,1000", "mem2.GBps=1:1e4:x3"], described, CALCULON)
    rate = sweep_estimates(described, axes, CALCULON).rate.reshape(5, -1)
    assert (np.diff(rate, axis=0) >= -1e-12 * rate[1:]).all()
    assert (np.diff(rate, axis=1) >= -1e-12 * rate[:, 1:]).all()


PLAN = {"tp": 2, "dp": 2, "micro_batch": 1, "global_batch": 16}
NAMED = [
    (["memory.tier2.bandwidth=4:64:x4GB/s", "memory.tier2.capacity=1,500"], ["optimizer"]),
    (["memory.tier2.latency=100ns,1ms", "memory.remote.capacity=1TiB"], ["optimizer"]),
    (["memory.bandwidth=2 TB/s,3350GB/s", "hidden=768,1536"], []),
    (["network.dimensions.0.bandwidth=100,450", "sequence=1024,2048"], []),
    (["micro_batch=1,2,4", "memory.capacity=1GiB,2,80"], []),
    (["tp=1,2,4", "compute.peak=500,1000TFLOP/s"], []),
    (["overlap=none,ring", "system.collectives.chunks=1,4"], []),
    (["recompute=none,full", "zero=0,1"], []),
]


@pytest.mark.parametrize(("texts", "offload"), NAMED, ids=[str(one[0]) for one in NAMED])
def test_sweeps_of_names_are_single_estimates(texts: list[str], offload: list[str]) -> None:
    described = describe_sweep("gpt3-125m", "dgx-h100", PLAN, offload=offload)
    axes = parse_axes(texts, described)
    found = sweep_estimates(described, axes)
    assert found.is_possible.any()
    for point in range(found.rate.size):
        one = described_at(described, axes, point)
        alone = evaluate(one.model, one.machine, columns_of([one.execution]), DEFAULT)
        for name, single, column in zip(alone._fields, alone, found.found, strict=True):
            assert column[point] == pytest.approx(single[0], rel=1e-9), (point, name)
    assert len(set(found.found.seconds.tolist())) > 1


def test_a_key_of_a_file_is_what_the_file_could_say(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = shipped_text("dgx-h100")
    path.write_text(text.replace("3.35 TB/s", "2 TB/s").replace("80 GB", "40 GiB"))
    axes = ["memory.bandwidth=2TB/s", "memory.capacity=40"]
    described = describe_sweep("gpt3-125m", "dgx-h100", PLAN)
    swept = sweep_estimates(described, parse_axes(axes, described))
    own = describe_step("gpt3-125m", path, PLAN)
    alone = evaluate(own.model, own.machine, columns_of([own.execution]), DEFAULT)
    assert swept.found.seconds[0] == alone.seconds[0]
    assert described_at(described, swept.axes, 0).machine.mem1 == own.machine.mem1


def test_the_second_tier_is_the_first_of_the_tiers_of_a_file() -> None:
    described = describe_sweep("gpt3-125m", "dgx-h100-cxl", PLAN, offload=["optimizer"])
    second = described.machine.mem2
    assert (second.GBps, second.shared_by) == (51 * 4, 4)  # PCIe of the four ranks, not DRAM
    assert second.GiB == 2e12 / 2**30
    axes = [f"memory.{where}.bandwidth=1:64:x8GB/s" for where in ("tier2", "tiers.0")]
    found = [sweep_estimates(described, parse_axes([axis], described)) for axis in axes]
    assert found[0].found.seconds.tolist() == found[1].found.seconds.tolist()
    assert (np.diff(found[0].found.seconds) < 0).any()
    slow = described_at(described, found[0].axes, 0)
    assert slow.machine.mem2.GBps == 1
    with pytest.raises(nadi.errors.NadiError, match=re.escape("memory.tier2 has no bandwith")):
        parse_axes(["memory.tier2.bandwith=1"], described)


REFUSED_KEYS = [
    (
        "memory.tier2.bandwith=1",
        "memory.tier2 has no bandwith; did you mean memory.tier2.bandwidth",
    ),
    ("mem2.GBps=1", "nothing has a field mem2; did you mean memory.tier2.bandwidth; known: model"),
    ("tensor_par=1", "did you mean tp;"),
    ("networks.0.bandwidth=1", "did you mean network.dimensions.0.bandwidth;"),
    ("network.dimensions.2.size=1", "network.dimensions has no 2;"),
    ("memory=1", "is not a single value; known: bandwidth, capacity"),
    ("memory.tier2.capacity=3ns", "'3ns' is not a size such as 80 GB or 80 GiB"),
    ("memory.tier2.bandwidth=0.5", "is below 1 GB/s"),
    ("compute.device=h1000", "compute.device=h1000': device 'h1000'"),
    ("tp=5", "tp=5': tp: 5 does not divide the model's heads, 12"),
    ("overlap=some", "use one of none, ring, pipe"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED_KEYS, ids=[one[0] for one in REFUSED_KEYS])
def test_a_key_that_no_file_can_have_is_refused(text: str, words: str) -> None:
    described = describe_sweep("gpt3-125m", "dgx-h100", PLAN)
    with pytest.raises(nadi.errors.NadiError, match=re.escape(words)) as found:
        parse_axes([text], described)
    assert "nested" not in str(found.value)


def test_searches_take_keys_of_systems() -> None:
    described = describe_search("gpt3-125m", "dgx-h100", 8, 16)
    axes = ["memory.tier2.capacity=1,100GiB", "num_procs=4,16"]
    found = sweep_search(described, axes, {"tensor_par": [1], "microbatch_size": [1]})
    for point, result in enumerate(found.results):
        here = described_at(described, found.axes, point)
        ranks = here.execution.num_procs
        assert ranks == [4, 16][point % 2]
        there = describe_search("gpt3-125m", "dgx-h100", ranks, 16)
        assert here.machine.nested == there.machine.nested
        assert here.machine.mem2.GiB == [1, 100][point // 2]
        assert result.best
    alike = parse_axes(["memory.tier2.bandwidth=32,64GB/s"], EXAMPLE)[0]
    assert alike.path == ("mem2", "GBps")


def test_values_are_lists_ranges_and_quantities() -> None:
    def values(text: str) -> tuple[Any, ...]:
        return parse_axes([text], EXAMPLE, CALCULON)[0].values

    assert values("mem2.GBps=32GB/s,0.1TB/s") == (32, 100)
    assert values("mem2.GBps=32GB/s,64,96 GB/s") == (32, 64, 96)
    assert values("mem2.GBps=32:128:x2GB/s") == (32, 64, 128)
    assert values("mem2.GBps=1TB/s:2TB/s:500 GB/s") == (1000, 1500, 2000)
    assert values("mem2.GiB=0GiB,1TiB") == (0, 1024)
    assert values("machine.mem1.GBps=1:2:0.25") == (1, 1.25, 1.5, 1.75, 2)
    assert values("batch_size=64:500:x2") == (64, 128, 256)
    assert values("networks.0.latency=10us") == (1e-5,)
    assert values("matrix.bfloat16.tflops=1 PFLOP/s") == (1000,)
    assert values("data_par_overlap=true,False") == (True, False)
    assert parse_axes(["mem2.GiB=1"], EXAMPLE)[0].title == "mem2.GiB (GiB)"


REFUSED = [
    (["mem2.GBs=3"], "mem2 has no GBs; did you mean GBps; known: GiB, GBps, MB_efficiency"),
    (["mem3.GBps=3"], "nothing has a field mem3; known: model: hidden"),
    (["tp=3"], "nothing has a field tp; did you mean tensor_par; known: model: hidden"),
    (["hiden=3"], "nothing has a field hiden; did you mean hidden;"),
    (["networks.2.size=3"], "networks has no 2; numbers from 0 to 1"),
    (["networks.0=3"], "is not a single value; known: bandwidth"),
    (["hidden.x=3"], "hidden has no x; it is a single value"),
    (["tensor_par_overlap=some"], "known: none, ring, pipe"),
    (["mem2.GBps=1,0"], "expected `float` >= 1e-12"),
    (["hidden=1.5"], "not a whole number"),
    (["mem2.GiB=3 GB/s"], "give numbers in GiB"),
    (["mem2.GiB=512,1TiB"], "512 has no unit, and another value is in TiB; write a unit with each"),
    (["mem2.GBps=1:4:x2TB/s"], "1 has no unit, and another value is in TB/s"),
    (["hidden=3:1:1"], "not a range"),
    (["hidden=1:3:x1"], "not a range"),
    (["hidden=1:2:1:1"], "not a range"),
    (["hidden"], "is not FIELD=VALUE"),
    (["mem1.MB_efficiency.0.0=2"], "must fall, and end with 0"),
    (["hidden=1:1001:1", "mem2.GBps=1:1000:1"], "has 1,001,000 points"),
    (["hidden=1", "model.hidden=2"], "is given twice"),
    (["hidden=1", "mem2.GBps=2", "seq_size=4"], "3 axes"),
]


@pytest.mark.parametrize(("texts", "words"), REFUSED, ids=[str(texts[0]) for texts, _ in REFUSED])
def test_an_axis_that_cannot_be_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(nadi.errors.UsageError, match=re.escape(words)):
        parse_axes(texts, EXAMPLE, CALCULON)


def test_a_million_points_are_columns_of_one_table() -> None:
    axes = parse_axes(["mem2.GBps=1:1000:1", "mem2.GiB=1:1000:1"], EXAMPLE, CALCULON)
    frame = sweep_estimates(EXAMPLE, axes, CALCULON).frame()
    assert frame.height == 1_000_000
    assert frame.row(999, named=True)["mem2.GBps"] == 1
    assert frame["rate"].max() == frame["rate"][-1]


def test_the_fastest_of_each_point_is_that_of_a_search() -> None:
    given_values = {
        "datatype": ["bfloat16"], "tensor_par": [8], "microbatch_size": [1], "fused_activation":
        [True], "tensor_par_overlap": ["none"], "tensor_par_comm_type": ["rs_ag"],
    }  # fmt: skip
    axes = ["mem2.GBps=32,128", "pipeline_par=1,2"]
    jobs = EXAMPLE._replace(execution=execution(num_procs=16, batch_size=32))
    found = sweep_search(jobs, axes, given_values, rules=CALCULON)
    frame = found.frame()
    assert frame["pipeline_par"].to_list() == [1, 2, 1, 2]
    for point, result in enumerate(found.results):
        here = described_at(EXAMPLE, found.axes, point)
        space = nadi.estimates.search_space(
            here.model, here.machine, 16, 32,
            given_values | {"pipeline_par": [here.execution.pipeline_par]},
            rules=CALCULON,
        )  # fmt: skip
        alone = nadi.estimates.search(space, top=1)
        assert alone.best == result.best
        assert frame["feasible"][point] == alone.num_feasible
    with pytest.raises(nadi.errors.UsageError, match="also has values to search"):
        sweep_search(jobs, ["tensor_par=1,2"], given_values)


@pytest.mark.parametrize(("number", "level", "keys"), [
    (0, "node", ("bandwidth_intra", "bandwidth_inter")), (1, "nodes", ("bandwidth_inter",)),
])  # fmt: skip
def test_graphs_of_nccl_take_the_bandwidth_of_a_dimension(
    tmp_path: Path, number: int, level: str, keys: tuple[str, ...]
) -> None:
    plan = {"tp": (8, 16)[number], "dp": (2, 1)[number], "global_batch": 16}
    described = describe_sweep("gpt3-1.3b", "dgx-h100", plan)
    system = load_system("dgx-h100", 16)
    rates = [system.network.dimensions[number].bandwidth * times for times in (0.25, 1.0)]
    text = f"network.dimensions.{number}.bandwidth={rates[0]},{rates[1]}"
    quarter, same = sweep_estimates(described, parse_axes([text], described)).found.seconds
    told = tomllib.loads(shipped_text("dgx-h100"))
    told["network"]["dimensions"][number]["bandwidth"] = f"{rates[0]} GB/s"
    for graph in told["nccl"][level].values():
        for key in keys:
            if isinstance(graph, dict) and key in graph:
                graph[key] = f"{parse_rate(graph[key]) / 4} B/s"
    path = tmp_path / "own.json"
    path.write_text(json.dumps(told))
    own = describe_step("gpt3-1.3b", path, plan)
    alone = evaluate(own.model, own.machine, columns_of([own.execution]), DEFAULT)
    assert quarter == pytest.approx(alone.seconds[0], rel=1e-9)
    assert quarter > 1.05 * same
