"""Steps that programs mark under other profilers are steps of Nadi."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.bottlenecks.steps.run_report import summarize
from nadi.graph.windows import find_steps
from tests.formats.foreign_files import (
    nsight_export,
    nsight_tables,
    rocprof_object,
    xplane,
    xplane_with_steps,
)

_PERIOD = 50_000  # ns


def _steps(path: Path) -> list[tuple[int, int]]:
    """Give the number and the start of each step."""
    graph = nadi.build_graph(nadi.load_job(path))
    base = int(graph.time.min())
    return [(one.number, one.start(graph.time) - base) for one in find_steps(graph)]


def _repeated(*texts: str) -> dict[str, list[dict[str, Any]]]:
    """Give the tables of an export whose work is repeated, with a range of each text around it."""
    made = nsight_tables()
    once = {name: rows for name, rows in made.items() if name.startswith(("NVTX", "CUPTI"))}
    for name, rows in once.items():
        made[name] = [
            {**row, **{key: row[key] + k * _PERIOD for key in ("start", "end") if key in row},
             **{key: row[key] + 100 * k for key in ("correlationId",) if key in row},
             **({"text": text} if row.get("text") == "step" else {})}
            for k, text in enumerate(texts) for row in rows
        ]  # fmt: skip
    return made


@pytest.mark.parametrize("form", ["step {}", "train_step_{}", "Iteration {}", "iter #{}"])
def test_numbered_ranges_of_nvtx_are_steps(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(nsight_export(_repeated(*(form.format(n) for n in (5, 6, 7)))))
    assert _steps(path) == [(5, 0), (6, _PERIOD), (7, 2 * _PERIOD)]
    trace = nadi.read(path)
    marks = trace.nodes.filter(trace.nodes["name"].cast(str).str.starts_with("ProfilerStep#"))
    assert marks["category"].to_list() == ["annotation"] * 3


def test_ranges_that_repeat_a_number_are_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(nsight_export(_repeated("step 0", "step 1", "step 0", "step 1")))
    names = nadi.read(path).nodes["name"].cast(str).to_list()
    assert "step 0" in names
    assert not any(name.startswith("ProfilerStep#") for name in names)


def test_steps_are_the_kind_of_range_that_encloses_others(tmp_path: Path) -> None:
    tables = _repeated("iteration 0", "iteration 1")
    first = tables["NVTX_EVENTS"][0]
    tables["NVTX_EVENTS"] += [
        {**first, "start": first["start"] + 100 * k, "end": first["start"] + 100 * k + 50,
         "text": f"step {k}"} for k in range(1, 5)
    ]  # fmt: skip
    path = tmp_path / "a.sqlite"
    path.write_bytes(nsight_export(tables))
    assert [number for number, _ in _steps(path)] == [0, 1]
    assert "step 4" in nadi.read(path).nodes["name"].cast(str).to_list()


def test_messages_of_roctx_name_ranges_and_steps(tmp_path: Path) -> None:
    made = rocprof_object()
    tool = made["rocprofiler-sdk-tool"][0]
    strings, records = tool["strings"], tool["buffer_records"]
    strings["buffer_records"].append({"kind": "MARKER", "operations": ["roctxThreadRangeA"]})
    said = ["step 3", "forward", "step 4"]
    strings["marker_api"] = [{"key": k, "value": text} for k, text in enumerate(said, 900)]
    records["marker_api"] = [
        {**records["hip_api"][0], "kind": 4, "operation": 0, "start_timestamp": 900 * (k + 1),
         "end_timestamp": 900 * (k + 2), "correlation_id": {"internal": 900 + k}}
        for k in range(4)
    ]  # fmt: skip
    path = tmp_path / "a_results.json"
    path.write_text(json.dumps(made))
    assert [number for number, _ in _steps(path)] == [3, 4]
    names = nadi.read(path).nodes.filter(nadi.read(path).nodes["category"] == "annotation")["name"]
    assert sorted(names.cast(str).to_list()) == [
        "ProfilerStep#3", "ProfilerStep#4", "forward", "roctxThreadRangeA"
    ]  # fmt: skip


@pytest.mark.parametrize(("on_host", "numbers"), [(True, [40, 41, 42]), (False, [7, 8, 9])])
def test_steps_of_jax_are_the_programs_else_those_of_a_tpu(
    tmp_path: Path, on_host: bool, numbers: list[int]
) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(xplane_with_steps(on_host))
    assert _steps(path) == [(number, 10_000 * k) for k, number in enumerate(numbers)]
    kinds = nadi.read(path).nodes["category"].cast(str).value_counts()
    assert dict(kinds.rows()) == {"annotation": 3, "kernel": 3} | (
        {"device_annotation": 3} if on_host else {}
    )


def test_a_recording_without_steps_says_how_its_tool_marks_them(tmp_path: Path) -> None:
    for name, content, words in (
        ("a.sqlite", nsight_export(), "torch.cuda.nvtx.range"),
        ("a_results.json", json.dumps(rocprof_object()).encode(), "roctxRangePush"),
        ("a.xplane.pb", xplane(), "jax.profiler.StepTraceAnnotation"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert words in summarize(nadi.run(path))["to_have_steps"]
