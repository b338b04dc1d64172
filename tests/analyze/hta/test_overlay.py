"""A critical path marked in the trace that it was found in."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.analyses.hta.recorded_fields import added_base_time
from nadi.cli import main
from tests.analyze.hta.recording import Recording
from tests.conftest import PairWriter


@pytest.fixture
def record(tmp_path: Path) -> Recording:
    record = Recording(tmp_path)
    record.mark("step", 0, 100)
    record.op("mm", 0.5, 10)
    record.launch("gemm", (2, 2), (6, 30.25), 1)
    record.op("not on the path", 20, 5, tid=2)
    record.event("Trace", "PyTorch Profiler (0)", 0, 100, pid="Spans", tid="PyTorch Profiler")
    record.events.append({"ph": "M", "name": "process_name", "pid": 100, "ts": 0, "args": {}})
    return record


def overlay(record: Recording, **shown: bool) -> list[dict[str, Any]]:
    trace = record.read()
    path = nadi.analyses.hta_critical_path(trace)
    target = record.folder / "overlay.json.gz"
    nadi.write(nadi.analyses.hta_overlay(trace, path, **shown), target, to="kineto")
    with gzip.open(target) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def marked(events: list[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in events if event.get("args", {}).get("critical") == 1
            and event["ph"] == "X"]  # fmt: skip


def arrows(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [event for event in events if event.get("cat") == "critical_path"]
    assert [event["ph"] for event in found] == ["s", "f"] * (len(found) // 2)
    return [
        (begin["ts"], end["ts"], begin["args"]["type"][14:], begin["args"]["critical"])
        for begin, end in zip(found[::2], found[1::2], strict=True)
        if begin["id"] == end["id"] and begin["args"] == end["args"] and end["bp"] == "e"
    ]


def test_the_path_is_marked(record: Recording) -> None:
    events = overlay(record)
    assert len(events) == len(record.events) + 2
    assert marked(events) == ["mm", "cudaLaunchKernel", "gemm"]
    # of the path's three edges one leads from place to place, at the times as recorded
    assert arrows(events) == [(2.0, 6.0, "kernel_launch_delay", True)]
    unchanged = [event for event in events if event["name"] == "not on the path"]
    assert unchanged[0].get("args", {}) == {}


def test_the_first_events_keep_their_arguments_on_the_path(record: Recording) -> None:
    record.events = [event for event in record.events if event["name"] != "step"]
    record.events[0]["args"] = {"shape": [3]}
    args = [event["args"] for event in overlay(record)[:2]]
    assert args == [{"shape": [3], "critical": 1}, {"correlation": 1, "critical": 1}]


def test_only_the_path(record: Recording) -> None:
    names = [event["name"] for event in overlay(record, only_critical=True)]
    assert names[:4] == ["step", "mm", "cudaLaunchKernel", "gemm"]
    assert "not on the path" not in names
    assert "PyTorch Profiler (0)" not in names
    assert "process_name" in names


def test_all_edges(record: Recording) -> None:
    events = overlay(record, all_edges=True)
    # the end of work on a device is 1 us early, so that viewers find the work there
    assert (6.0, 35.25, "operator", True) in arrows(events)
    assert (4.0, 10.5, "operator", False) in arrows(events)
    assert len(arrows(events)) == nadi.analyses.hta_critical_path(record.read()).edges.height


@pytest.mark.parametrize("only_critical", [False, True])
def test_parents_stay_parents(pair: PairWriter, *, only_critical: bool) -> None:
    outer = pair.op("outer", 0, 40)
    pair.op("aside", 30, 5, parent=outer)
    pair.op("inner", 2, 10, parent=outer)
    pair.event("cudaLaunchKernel", 4, 2, "cuda_runtime", correlation=1)
    pair.event("gemm", 20, 50, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    trace = nadi.link_pair(*map(nadi.read, pair.write()))
    path = nadi.analyses.hta_critical_path(trace)
    marked = nadi.analyses.hta_overlay(trace, path, only_critical=only_critical)

    def parents(trace: nadi.Trace) -> dict[str, str | int]:
        names, parent = trace.nodes["name"].cast(str).to_list(), trace.column("parent").tolist()
        return {name: names[at] if at >= 0 else at for name, at in zip(names, parent, strict=True)}

    kept, before = parents(marked), parents(trace)
    assert ("aside" in kept) != only_critical
    assert kept == {name: before[name] if before[name] in kept else -1 for name in kept}


def test_what_is_left_out_has_no_edges(record: Recording) -> None:
    with pytest.raises(nadi.errors.UsageError, match="cannot be combined with only_critical"):
        overlay(record, only_critical=True, all_edges=True)


def test_an_overlay_can_be_read_again(record: Recording) -> None:
    overlay(record)
    trace, again = record.read(), nadi.read(record.folder / "overlay.json.gz")
    assert again.nodes.drop("event").equals(trace.nodes.drop("event"))
    path = nadi.analyses.hta_critical_path(again)
    assert path.edges.equals(nadi.analyses.hta_critical_path(trace).edges)


def test_from_the_command_line(record: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    record.read()
    device, target = (str(record.folder / name) for name in ("device.json", "marked.json.gz"))
    assert main(["critical-path", device, "--rules", "hta", "--overlay", target]) == 0
    assert f"wrote {target}" in capfd.readouterr().out
    with gzip.open(target) as file:
        assert marked(json.load(file)["traceEvents"]) == ["mm", "cudaLaunchKernel", "gemm"]
    assert main(["critical-path", device, "--rules", "hta", "--only-critical"]) == 2
    assert "add --overlay FILE" in capfd.readouterr().err


@pytest.mark.parametrize("stream", [0, 7])
@pytest.mark.parametrize(("takes", "ends"), [(30.25, 35.5), (1.0, 6.25), (0.75, 6.25)])
def test_arrows_end_within_the_work_on_every_stream(
    tmp_path: Path, stream: int, takes: float, ends: float
) -> None:
    record = Recording(tmp_path)
    record.launch("gemm", (2.5, 2), (6.25, takes), 1, stream=stream)
    found = {arrow[:3] for arrow in arrows(overlay(record, all_edges=True))}
    expected = {(2.5, 6.25, "kernel_launch_delay"), (6.25, ends, "operator")}
    assert found == expected | {(2.5, 4.5, "operator")}


@pytest.mark.parametrize("args", ["{}", "{ }", "{\n}", '{"a":1}', '{ "a":1 }'])
def test_arguments_are_marked_however_they_are_written(record: Recording, args: str) -> None:
    path = record.folder / "device.json"
    record.read()
    text = path.read_text()
    assert text.count('"args": {}') == 5
    path.write_text(text.replace('"args": {}', f'"args": {args}'))
    trace = nadi.read(path)
    found = nadi.analyses.hta_overlay(trace, nadi.analyses.hta_critical_path(trace))
    nadi.write(found, record.folder / "marked.json", to="kineto")
    events = json.loads((record.folder / "marked.json").read_text())["traceEvents"]
    (mm,) = [event for event in events if event["name"] == "mm"]
    assert mm["args"] == json.loads(args) | {"critical": 1}


@pytest.mark.parametrize(("base", "added"), [(0, 0), (2**62 - 1, 2**62 - 1), (2**62, 0), (-1, 0)])
def test_only_a_base_time_that_the_reader_adds_is_taken_off(
    record: Recording, base: int, added: int
) -> None:
    path = record.folder / "device.json"
    record.read()
    events = json.loads(path.read_text())["traceEvents"]
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": events}))
    trace = nadi.read(path)
    assert added_base_time(trace.attributes) == added
    assert trace.column("start").min() == added
