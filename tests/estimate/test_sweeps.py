"""Sweeps: axes as they are written, and points that are single estimates."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.estimate import (
    CALCULON,
    Described,
    columns_of,
    described_at,
    evaluate,
    parse_axes,
    sweep_estimates,
)
from nadi.estimate.estimate_rules import DEFAULT
from nadi.load import read_machine, read_model
from nadi.pipeline import sweep_search
from tests.amounts import examples
from tests.estimate.described import execution, executions, machine, machines, model, read

EXAMPLE = Described(model(read("model")), machine(), execution())
AXES = [
    "mem2.GBps=16:64:x2", "mem1.GiB=1GiB,80", "matrix.float16.tflops=50 TFLOP/s,1000",
    "vector.float16.tflops=7,70", "networks.1.bandwidth=1:21:10", "networks.0.latency=1us,0.01",
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
    found = sweep_estimates(*described, axes, CALCULON)
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
    rate = sweep_estimates(*described, axes, CALCULON).rate.reshape(5, -1)
    assert (np.diff(rate, axis=0) >= -1e-12 * rate[1:]).all()
    assert (np.diff(rate, axis=1) >= -1e-12 * rate[:, 1:]).all()


NAMED = [
    (["mem2.GBps=4:64:x4", "mem2.GiB=1,500"], "optimizer_offload", True),
    (["mem1.GBps=2 TB/s,3350", "hidden=768,1024"], "tensor_par", 1),
    (["nested.dimensions.0.GBps=100,450", "sequence=1024,2048"], "tensor_par", 2),
    (["microbatch_size=1,2,4", "mem1.GiB=1GiB,2,80"], "batch_size", 16),
]


@pytest.mark.parametrize(("texts", "field", "value"), NAMED, ids=[str(one[0]) for one in NAMED])
def test_sweeps_of_names_are_single_estimates(texts: list[str], field: str, value: Any) -> None:
    told = {
        "num_procs": 2, "tensor_par": 2, "pipeline_par": 1, "data_par": 1, "tensor_par_net": 0,
        "pipeline_par_net": 0, "data_par_net": 0, "batch_size": 16, "microbatch_size": 2,
        "datatype": "bfloat16", "fused_activation": False, "pipeline_interleaving": 1,
        "optimizer_sharding": False, "tensor_par_comm_type": "rs_ag", "data_par_overlap": False,
        "flash_attention": True, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "activation_recompute": "none", "seq_par_ag_redo": False,
        field: value,
    }  # fmt: skip
    told["num_procs"] = told["tensor_par"]
    described = Described(read_model("gpt3-125m"), read_machine("dgx-h100"), execution(**told))
    axes = parse_axes(texts, described)
    found = sweep_estimates(*described, axes)
    assert found.is_possible.any()
    for point in range(found.rate.size):
        one = described_at(described, axes, point)
        alone = evaluate(one.model, one.machine, columns_of([one.execution]), DEFAULT)
        for name, single, column in zip(alone._fields, alone, found.found, strict=True):
            assert column[point] == pytest.approx(single[0], rel=1e-9), (point, name)
    assert len(set(found.found.seconds.tolist())) > 1
    with pytest.raises(nadi.errors.UsageError, match="nothing has a field matrix"):
        parse_axes(["matrix.bfloat16.tflops=3"], described)


def test_values_are_lists_ranges_and_quantities() -> None:
    def values(text: str) -> tuple[Any, ...]:
        return parse_axes([text], EXAMPLE, CALCULON)[0].values

    assert values("mem2.GBps=32,64GB/s,0.1 TB/s") == (32, 64, 100)
    assert values("mem2.GiB=0,1TiB") == (0, 1024)
    assert values("machine.mem1.GBps=1:2:0.25") == (1, 1.25, 1.5, 1.75, 2)
    assert values("batch_size=64:500:x2") == (64, 128, 256)
    assert values("networks.0.latency=10us") == (1e-5,)
    assert values("matrix.bfloat16.tflops=1 PFLOP/s,5:6:1") == (1000, 5, 6)
    assert values("data_par_overlap=true,False") == (True, False)
    assert parse_axes(["mem2.GiB=1"], EXAMPLE)[0].title == "mem2.GiB (GiB)"


REFUSED = [
    (["mem2.GBs=3"], "mem2 has no GBs; known: GiB, GBps, MB_efficiency"),
    (["mem3.GBps=3"], "nothing has a field mem3; known: model: hidden"),
    (["networks.2.size=3"], "networks has no 2; numbers from 0 to 1"),
    (["networks.0=3"], "is not a single value; known: bandwidth"),
    (["hidden.x=3"], "hidden has no x; it is a single value"),
    (["tensor_par_overlap=some"], "known: none, ring, pipe"),
    (["mem2.GBps=1,0"], "expected `float` > 0.0"),
    (["hidden=1.5"], "not a whole number"),
    (["mem2.GiB=3 GB/s"], "give numbers in GiB"),
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
    frame = sweep_estimates(*EXAMPLE, axes, CALCULON).frame()
    assert frame.height == 1_000_000
    assert frame.row(999, named=True)["mem2.GBps"] == 1
    assert frame["rate"].max() == frame["rate"][-1]


def test_the_fastest_of_each_point_is_that_of_a_search() -> None:
    given_values = {
        "datatype": ["bfloat16"], "tensor_par": [8], "microbatch_size": [1], "fused_activation":
        [True], "tensor_par_overlap": ["none"], "tensor_par_comm_type": ["rs_ag"],
    }  # fmt: skip
    axes = ["mem2.GBps=32,128", "pipeline_par=1,2"]
    found = sweep_search(*EXAMPLE[:2], 16, 32, axes, given_values, rules=CALCULON)
    frame = found.frame()
    assert frame["pipeline_par"].to_list() == [1, 2, 1, 2]
    for point, result in enumerate(found.results):
        here = described_at(EXAMPLE, found.axes, point)
        space = nadi.estimate.search_space(
            here.model, here.machine, 16, 32,
            given_values | {"pipeline_par": [here.execution.pipeline_par]},
            rules=CALCULON,
        )  # fmt: skip
        alone = nadi.pipeline.search(space, top=1)
        assert alone.best == result.best
        assert frame["feasible"][point] == alone.num_feasible
    with pytest.raises(nadi.errors.UsageError, match="also has values to search"):
        sweep_search(*EXAMPLE[:2], 16, 32, ["tensor_par=1,2"], given_values)
