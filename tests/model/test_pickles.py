"""What goes to another process and comes back is the same."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import nadi


@pytest.mark.parametrize("name", ["host_1", "device_1"])
def test_traces(demo_folder: Path, name: str) -> None:
    (file,) = demo_folder.glob(f"{name}*")
    trace = nadi.read(file)
    pickle.loads(pickle.dumps(trace)).assert_equals(trace)


def test_columns_that_were_asked_for_are_not_sent_twice(demo_folder: Path) -> None:
    (file,) = demo_folder.glob("device_1*")
    trace = nadi.read(file)
    size = len(pickle.dumps(trace))
    assert trace.column("start") is trace.column("start")
    assert trace.codes("kind").size == trace.nodes.height
    assert len(pickle.dumps(trace)) == size
    assert (
        pickle.loads(pickle.dumps(trace)).column("start").tolist() == trace.column("start").tolist()
    )


def test_runs(demo_run: nadi.bottlenecks.Run) -> None:
    again = pickle.loads(pickle.dumps(demo_run))
    for mine, others in zip(demo_run.job.traces, again.job.traces, strict=True):
        mine.assert_equals(others)
    assert again.path.length == demo_run.path.length
    assert nadi.graph.replay_graph(again.graph).time.tolist() == demo_run.replay.time.tolist()
    assert nadi.what_if(again.graph, "scale . 0.5").window_ns < again.measured_ns
