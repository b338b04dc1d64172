"""Times of operators against PyTorch's ``key_averages()``, and against sums over call trees."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi import analyses as analyze
from nadi.cli import main
from nadi.errors import UsageError
from nadi.trace import schema
from nadi.trace.trace import Provenance, Trace
from tests.conftest import PairWriter

FOLDER = Path(__file__).parent / "key_averages"
"""A program recorded with PyTorch 2.13, and what its profiler answered (microseconds)."""


@pytest.mark.parametrize("by", ["name", "shape"])
def test_it_is_what_pytorch_answers(by: str) -> None:
    said = json.loads(gzip.decompress((FOLDER / "answers.json.gz").read_bytes()))[by]
    expected: Counter[tuple[str, str, str]] = Counter()
    found: Counter[tuple[str, str, str]] = Counter()
    for name, shape, *values in said:
        for column, value in zip(("count", "self_host_ns", "host_ns"), values, strict=True):
            expected[name, _stated(shape), column] += round(value * (1 + 999 * (column != "count")))
    trace = nadi.read(FOLDER / "device.json.gz")
    for row in analyze.operator_times(trace, by=by).iter_rows(named=True):
        for column in ("count", "self_host_ns", "host_ns"):
            found[row["name"], _stated(row.get("shape", "")), column] += row[column]
    assert found == expected


def _stated(shape: str) -> str:
    text = shape.replace(" ", "")
    return "" if set(text) <= set("[],") else text


Call = tuple[str, int, list["Call"]]
_calls = st.recursive(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.just([])),
    lambda inner: st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.lists(inner, max_size=3)),
    max_leaves=12,
)


@given(st.lists(_calls, min_size=1, max_size=3))
def test_sums_of_call_trees(calls: list[Call]) -> None:
    names, starts, durations, parents = [], [], [], []
    expected: Counter[tuple[str, str]] = Counter()

    def put(call: Call, begin: int, parent: int) -> int:
        """Write a call as an event: a name, its self time in it, then its calls."""
        name, own, inner = call
        row, at = len(names), begin + own + 1
        names.append(name)
        starts.append(begin)
        durations.append(0)
        parents.append(parent)
        for one in inner:
            at = put(one, at, row) + 1
        durations[row] = at - begin
        return at

    def count(call: Call, around: str, alone: bool) -> int:
        """Sum the old-fashioned way; gives what the call lasts."""
        name, own, inner = call
        is_repeat = name == around and alone
        parts = [count(one, name, len(inner) == 1) for one in inner]
        whole = own + 1 + sum(parts) + len(inner)
        if is_repeat:  # its caller stands for it, and its time alone is its caller's
            expected[name, "self_host_ns"] += whole - sum(parts)
        else:
            expected[name, "count"] += 1
            expected[name, "host_ns"] += whole
            expected[name, "self_host_ns"] += whole - sum(parts)
        return whole

    at = 10
    for call in calls:
        at = put(call, at, -1) + 1
        count(call, "", False)
    events = _events(names, starts, durations, parents)
    found = Counter({
        (row["name"], column): row[column]
        for row in analyze.operator_times(events).iter_rows(named=True)
        for column in ("count", "self_host_ns", "host_ns")
    })  # fmt: skip
    assert found == expected
    by_stack = analyze.operator_times(events, by="stack")
    assert by_stack["self_host_ns"].sum() == sum(
        duration for duration, parent in zip(durations, parents, strict=True) if parent < 0
    )


def _events(
    names: list[str], starts: list[int], durations: list[int], parents: list[int]
) -> analyze.RankEvents:
    nodes = schema.NODES.build(len(names), {
        "id": np.arange(len(names)), "name": names, "parent": np.array(parents),
        "start": np.array(starts), "duration": np.array(durations), "thread": 1,
        "category": "operator", "kind": "COMP",
    })  # fmt: skip
    trace = Trace(nodes, schema.DEPS.empty(), schema.GROUPS.empty(), schema.ISSUES.empty(),
                  Provenance("", ()))  # fmt: skip
    return analyze.events_of(trace)


def test_device_work_counts_for_what_launches_it(pair: PairWriter, tmp_path: Path) -> None:
    pair.event("ProfilerStep#3", 0, 100, "user_annotation")
    pair.event("forward.py(3): forward", 1, 95, "python_function")
    pair.event("aten::linear", 5, 60, **{"Input Dims": [[2, 3], []]})
    pair.event("aten::addmm", 10, 40)
    pair.event("cudaLaunchKernel", 20, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", 30, 50, "kernel", correlation=1, device=0, stream=7, tid=7, pid=0)
    pair.write()
    out = tmp_path / "operators.json"
    command = ["analyze", "operators", str(tmp_path / "device.json"), "-o", str(out)]
    assert main(command) == 0
    rows = {row["name"]: row for row in json.loads(out.read_text())}
    assert list(rows) == ["aten::addmm", "forward.py(3): forward", "aten::linear",
                          "ProfilerStep*", "cudaLaunchKernel"]  # fmt: skip
    times = {name: (row["self_host_ns"], row["self_device_ns"], row["device_ns"], row["kernels"])
             for name, row in rows.items()}  # fmt: skip
    assert times["aten::addmm"] == (35_000, 50_000, 50_000, 1)
    assert times["aten::linear"] == (20_000, 0, 50_000, 1)
    assert times["ProfilerStep*"] == (5_000, 0, 50_000, 1)
    assert times["cudaLaunchKernel"] == (5_000, 0, 0, 0)
    assert main([*command, "--overwrite", "--set", "by=shape"]) == 0
    shapes = {row["name"]: row["shape"] for row in json.loads(out.read_text())}
    assert shapes["aten::linear"] == "[[2,3],[]]"
    assert main([*command, "--overwrite", "--set", "by=stack"]) == 0
    stacks = {row["name"]: row["stack"] for row in json.loads(out.read_text())}
    assert stacks["aten::addmm"] == "forward.py(3): forward"
    assert stacks["ProfilerStep*"] == ""


@pytest.mark.parametrize("given", [{"by": "module"}, {"by": "stack", "frames": 0}])
def test_unknown_parameters_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="by is one of name, shape, stack"):
        analyze.operator_times(nadi.read(FOLDER / "device.json.gz"), **given)


def test_sleeping_threads_take_no_share_and_what_outlives_a_frame_counts_in_the_next(
    pair: PairWriter,
) -> None:
    """A range begins within ``enter()``, which returns soon, and lasts nearly as ``train()``."""
    frame = {"cat": "python_function"}
    pair.event("train.py(1): train", 0, 1_000, **frame)  # type: ignore[arg-type]
    pair.event("ranges.py(9): enter", 10, 20, **frame)  # type: ignore[arg-type]
    pair.event("forward", 20, 900, "user_annotation")
    pair.op("aten::mm", 100, 500)
    pair.event("threading.py(359): wait", 0, 1_000, tid=9, **frame)  # type: ignore[arg-type]
    table = analyze.operator_times(nadi.load_job(pair.write()[1]))
    assert table.select("name", "self_host_ns", "percent").rows() == [
        ("aten::mm", 500_000, 50), ("forward", 400_000, 40), ("train.py(1): train", 90_000, 9),
        ("ranges.py(9): enter", 10_000, 1), ("threading.py(359): wait", 1_000_000, 0),
    ]  # fmt: skip
