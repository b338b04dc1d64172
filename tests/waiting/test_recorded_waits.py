"""Waits of recordings: segments are whole, causes are named, gains are those of the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.bottlenecks import SegmentKind, find_waits
from nadi.bottlenecks.waiting.recorded_timelines import recorded_segments
from nadi.cli import main
from nadi.files.switches import SWITCH, WAKEUP, SwitchEvents
from nadi.graph.windows import choose_window, find_steps


def event(name: str, start: float, length: float, thread: int = 1, **more: Any) -> dict[str, Any]:
    base = {"ph": "X", "pid": 1, "tid": thread, "cat": "cpu_op", "ts": start, "dur": length}
    return base | {"name": name} | more


def label(name: str, start: float, length: float, thread: int = 1) -> dict[str, Any]:
    return event(name, start, length, thread, cat="user_annotation")


def recorded(folder: Path, *events: dict[str, Any]) -> Path:
    file = folder / "device.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return file


def test_segments_of_an_actor_follow_each_other(demo_folder: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(demo_folder))
    found = recorded_segments(nadi.graph.replay_graph(graph))
    s = found.segments
    order = np.lexsort((s.start, s.actor))
    same = s.actor[order][1:] == s.actor[order][:-1]
    assert np.all(s.start[order][1:][same] == s.end[order][:-1][same])
    assert np.all((s.target >= 0) == (s.kind == SegmentKind.WAIT))
    assert not np.any(s.target == s.actor)


def test_the_demo(demo_folder: Path) -> None:
    found = nadi.bottlenecks.waits(demo_folder)
    assert all(one.gain_ns >= 0 for one in found.bottlenecks)
    assert found.bottlenecks[0].name == "transfers of group 0 (default_pg)"
    assert found.bottlenecks[0].in_knot
    gains = found.frame()["gain_ns"].to_list()
    assert gains == sorted(gains, reverse=True)
    assert found.graph.frame()["weight_ns"].min() >= 0


LOCKED = [
    label("ProfilerStep#1", 0, 1000),
    event("aten::add", 10, 100),
    label("nadi::wait train.py:7", 120, 400),
    label("nadi::woken by 2", 521, 1),
    event("aten::mul", 530, 200),
    event("aten::relu", 5, 500, 2),
    event("aten::relu", 900, 600, 2),
]


def test_a_lock_is_named_and_its_wait_is_the_gain(tmp_path: Path) -> None:
    found = nadi.bottlenecks.waits(recorded(tmp_path, *LOCKED))
    first = found.bottlenecks[0]
    assert (first.name, first.kind, first.gain_ns) == ("rank 0 lock train.py:7", "lock", 400_000)
    assert first.waiters == ("rank 0 thread 1",)
    waits = found.graph.frame()
    assert waits.filter(waiter="rank 0 thread 1", waits_for="rank 0 thread 2").height == 1
    assert found.measured_ns == 1_000_000  # thread 2 works on beside the step


def test_a_data_loader_is_named(tmp_path: Path) -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    step, wait = label("ProfilerStep#1", 0, 1000), label(name, 10, 600)
    found = nadi.bottlenecks.waits(recorded(tmp_path, step, wait, event("aten::add", 700, 50)))
    first = found.bottlenecks[0]
    assert (first.name, first.gain_ns) == ("rank 0 data loader", 600_000)


def test_a_stream_waits_for_the_host(tmp_path: Path) -> None:
    launch = {"cat": "cuda_runtime"}
    kernel = {"cat": "kernel", "pid": 0}
    events = [label("ProfilerStep#1", 0, 2000)]
    for number, start in enumerate((100, 700, 1300)):
        ids = {"args": {"correlation": number + 1, "stream": 7, "device": 0}}
        events += [
            event("aten::mm", start - 90, 110),
            event("cudaLaunchKernel", start, 10, **launch, args={"correlation": number + 1}),
            event("gemm", start + 15, 100, 7, **kernel, **ids),
        ]
    found = nadi.bottlenecks.waits(recorded(tmp_path, *events))
    pairs = found.graph.frame().filter(waiter="rank 0 stream 7")
    waits = dict(pairs.select("waits_for", "direct_ns").iter_rows())
    assert 900_000 < waits["rank 0 thread 1"] < 1_200_000


def test_switches_say_what_a_thread_waited_for(tmp_path: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(recorded(
        tmp_path, label("ProfilerStep#1", 0, 1000), event("aten::load", 100, 500),
    )))  # fmt: skip
    rows = [(SWITCH, 0, 0, 1, 0, 1), (SWITCH, 200_000, 1, 0, 0, 0), (WAKEUP, 500_000, 0, 1, -5, 0),
            (SWITCH, 510_000, 0, 1, 0, 1), (SWITCH, 2_000_000, 1, 0, 0, 1)]  # fmt: skip
    kind, time, before, after, cause, stays = np.array(rows).T.copy()
    events = SwitchEvents(kind, time + graph.job.origin, before, after, cause, stays == 1)
    window = choose_window(graph, find_steps(graph))
    found = find_waits(graph, window, events)
    first = found.bottlenecks[0]
    assert (first.name, first.kind, first.gain_ns) == ("disk", "interrupt", 300_000)
    later = SwitchEvents(kind, time + graph.job.origin + 10**10, before, after, cause, stays == 1)
    with pytest.raises(nadi.errors.InputError, match="their clocks differ"):
        find_waits(graph, window, later)
    with pytest.raises(nadi.errors.InputError, match="no thread of the recording"):
        find_waits(graph, window, SwitchEvents(kind, time, before, after + 99, cause, stays == 1))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(recorded(tmp_path, *LOCKED))
    assert main(["waits", path]) == 0
    assert "rank 0 lock train.py:7" in capsys.readouterr().out
    assert main(["waits", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bottlenecks"][0]["gain_ns"] == 400_000
    (tmp_path / "s.txt").write_text("x 1 [000] 1.0: sched_waking: comm=a pid=2 prio=1")
    assert main(["waits", str(tmp_path / "s.txt"), "--step", "3"]) == 2
    assert main(["waits", str(tmp_path / "s.txt")]) == 0
    assert "cannot be replayed" in capsys.readouterr().out
