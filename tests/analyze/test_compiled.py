"""Kernels of torch.compile, and its regions as modules: a recording of the CPU, and made ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi import analyses as analyze
from tests.link.test_graph_replays import event, write

_FOLDER = Path(__file__).parent / "compiled"
CPU = _FOLDER / "cpu.json.gz"
"""Three steps of two layers, compiled by PyTorch 2.15 with names of C++ kernels."""
CPU_2_13 = _FOLDER / "cpu_2_13.json.gz"
"""The same of two layers with residuals, by PyTorch 2.13."""


@pytest.mark.parametrize(
    ("file", "fused"),
    [
        (CPU, {
            "add_mul_native_layer_norm_relu",
            "add_mul_native_layer_norm_native_layer_norm_backward_relu_sum_threshold_backward",
        }),
        (CPU_2_13, {"add_mul_native_layer_norm_relu"}),
    ],
)  # fmt: skip
def test_kernels_of_a_recorded_program_are_summed_by_region_and_name(
    file: Path, fused: set[str]
) -> None:
    count, time = Counter[str](), Counter[str]()
    for one in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
        if "cpp_fused" in one["name"]:
            count[one["name"]] += 1
            time[one["name"]] += round(1000 * one["dur"])
    table = analyze.compiled_kernels(nadi.read(file))
    sums = table.group_by("kernel").agg(pl.sum("count", "sum_ns"))
    assert dict(zip(sums["kernel"], sums["count"], strict=True)) == count
    assert dict(zip(sums["kernel"], sums["sum_ns"], strict=True)) == time
    assert table["percent"].sum() == pytest.approx(100)
    of_region = table.filter(table["region"] == "Torch-Compiled Region: 0/0")
    assert set(of_region["fused"]) == fused
    assert set(table["region"].str.slice(0, 16)) == {"Torch-Compiled R", "CompiledFxGraph "}


@pytest.mark.parametrize("file", [CPU, CPU_2_13])
def test_regions_are_modules_with_their_backward(file: Path) -> None:
    modules = {row["module"]: row for row in nadi.run(file, by="module").modules.table.to_dicts()}
    assert list(modules) == ["Torch-Compiled Region: 0/0", "(outside of modules)"]
    region = modules["Torch-Compiled Region: 0/0"]
    assert region["calls"] == 3
    time = Counter[str]()
    for one in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
        time[one["name"]] += round(1000 * one.get("dur", 0))
    assert region["forward_host"] == time["Torch-Compiled Region: 0/0"]
    # autograd runs it with the sequence number of the region's operator, and sums its gradients
    nodes = "autograd::engine::evaluate_function: "
    of_autograd = sum(ns for name, ns in time.items() if name.startswith(nodes)
                      and "SumBackward" not in name)  # of what follows the region  # fmt: skip
    assert region["backward_host"] == of_autograd


def compiled(names: list[str], kernels: list[str], around: str) -> list[dict[str, Any]]:
    """Return calls of compiled kernels in a range; without a name the call has no operator."""
    events, now = [event("user_annotation", around, 0, 1000)] if around else [], 10.0
    for number, (name, kernel) in enumerate(zip(names, kernels, strict=True)):
        file = f"/tmp/inductor/{number // 2}/c{number // 2}.py"
        if name:
            events.append(event("cpu_op", name, now, 20, kernel_file=file))
        events += [
            event("cuda_driver", "cuLaunchKernel", now + 5, 5, correlation=number + 1),
            event("kernel", kernel, now + 30, 2.0 + number, correlation=number + 1, device=0,
                  stream=7),
        ]  # fmt: skip
        now += 50
    return events


def test_device_time_is_that_of_what_an_operator_launches(tmp_path: Path) -> None:
    names = ["triton_poi_fused_add_relu_0", "triton_poi_fused_add_relu_0", "triton_red_fused_3",
             "triton_per_fused__softmax_12", "", "aten::mm"]  # fmt: skip
    kernels = ["triton_"] * 4 + ["triton_tem_fused_mm_exp2_1", "gemm"]
    key = "fxkb6phs"
    around = f"## Call CompiledFxGraph {key} ##"
    file = write(tmp_path / "step.json", compiled(names, kernels, around))
    found = analyze.analyze("compiled", file)
    assert set(found["region"]) == {f"CompiledFxGraph {key}"}
    columns = found.select("kernel", "form", "fused", "file", "count", "sum_ns")
    assert sorted(columns.rows()) == [
        ("triton_per_fused__softmax_12", "persistent reduction", "_softmax", "c1.py", 1, 5000),
        ("triton_poi_fused_add_relu_0", "pointwise", "add_relu", "c0.py", 2, 5000),
        ("triton_red_fused_3", "reduction", "", "c1.py", 1, 4000),
        ("triton_tem_fused_mm_exp2_1", "template", "mm_exp2", "", 1, 6000),
    ]
    assert found["percent"].sum() == pytest.approx(100 * 20 / 27)
    modules = nadi.run(file, by="module").modules.table
    assert modules["module"].to_list() == [f"CompiledFxGraph {key}", "(outside of modules)"]
    assert modules["forward_device"][0] == 27_000


def test_a_recording_without_such_kernels_says_what_to_do(tmp_path: Path) -> None:
    file = write(tmp_path / "step.json", compiled(["aten::mm"], ["gemm"], ""))
    with pytest.raises(nadi.errors.InputError, match=r"torch\.compile"):
        analyze.analyze("compiled", file)
