"""Activities: the measured times come out of them again, and rounding loses nothing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.simulation.workload.activities import (
    Activities,
    find_activities,
    in_microseconds,
    in_turns,
)
from nadi.simulation.workload.simulator_communication import communication_ops
from nadi.trace.issues import IssueLog
from tests.amounts import examples
from tests.reference.machine import Machine, play
from tests.reference.programs import Description, descriptions, of_all_ranks, program_of
from tests.reference.recorder import record

STATEMENTS = (
    "open", "annotate", "close", "launch", "launch_graph", "memset", "copy", "fetch",
    "synchronize",
)  # fmt: skip
FOLDERS = ("cpu_mlp", "cpu_ddp4", "gpu_resnet_pair", "gpu_dlrm8")
DEVICES = ("ns_resolution", "cuda_event_sync_multi_stream", "triton", "cpu_only")


def traces_of(shared: Path, name: str) -> Path:
    alone = shared / "gpu_hta" / f"{name}.json.gz"
    return alone if alone.exists() else shared / name


def activities_of(graph: EventGraph) -> Activities:
    return find_activities(graph, communication_ops(graph), IssueLog())


def check_times(found: Activities) -> None:
    """Begin each activity when the last that it depends on has ended: it ends as measured."""
    ready = np.full(found.op.size, -1)
    np.maximum.at(ready, found.dst, found.end[found.src])
    waits = ready >= 0
    assert (found.duration >= 0).all()
    # what begins for no reason that is known begins up to one operation late
    exact = ready + found.duration == found.end
    begun_later = found.start + found.duration == found.end
    assert (exact | begun_later)[waits].all()
    assert (found.start[found.src] <= found.start[found.dst]).all()
    assert (found.trace[found.src] == found.trace[found.dst]).all()


def check_own_times(graph: EventGraph, found: Activities) -> None:
    """Compare with exclusive times those of operations in which no wait ends."""
    own = np.zeros(graph.num_ops, dtype=np.int64)
    of_threads = found.on_thread & (found.op >= 0) & ~found.is_comm
    np.add.at(own, found.op[of_threads], found.duration[of_threads])
    first = 0
    for number, trace in enumerate(graph.job.traces):
        rows = graph.op_row[graph.op_trace == number]
        nesting = nest(trace)
        op = first + np.searchsorted(rows, nesting.rows)
        inside_comm = np.isin(op, communication_ops(graph))
        for _ in range(64):  # levels of nesting
            inside_comm |= (nesting.parent >= 0) & inside_comm[nesting.parent]
        assert (own[op[inside_comm]] == 0).all()
        # a wait is no time of the operation in which it is spent
        assert (own[op] <= nesting.exclusive).all()
        waits = trace.deps.filter(trace.deps["kind"].is_in(["sync", "thread", "launch"]))
        if waits.is_empty() and not inside_comm.any():
            assert (own[op] == nesting.exclusive).all()
        first += rows.size


def check_rounding(found: Activities) -> None:
    rounded, kept = in_microseconds(found, IssueLog())
    micros = np.zeros(found.op.size, dtype=np.int64)
    micros[kept] = rounded.duration
    for resource in np.unique(found.resource):
        own = np.flatnonzero(found.resource == resource)
        error = np.cumsum(1000 * micros[own] - found.duration[own])
        # any stretch is the difference of two of these
        assert error.max(initial=0) - error.min(initial=0) <= 1000
    assert rounded.op.size == kept.size
    pairs = rounded.dst * kept.size + rounded.src
    assert np.unique(pairs).size == pairs.size
    assert (rounded.src != rounded.dst).all()
    # what is left out has no place in us, and is work of threads
    gone = np.setdiff1d(np.arange(found.op.size), kept)
    assert found.on_thread[gone].all()
    assert not found.is_comm[gone].any()


def check_extents(graph: EventGraph, found: Activities) -> None:
    """What an operation begins and ends with is its own, or communication around or in it."""
    first, last = found.first_of_op, found.last_of_op
    assert (first >= 0).all()
    assert (found.trace[first] == graph.op_trace).all()
    assert (found.resource[first] == found.resource[last]).all()
    assert (found.start[first] <= found.end[last]).all()
    own = found.op[first] == np.arange(graph.num_ops)
    assert (own | found.is_comm[first]).all()
    # what is nested in an operation lies within what it begins and ends with
    (inner,) = np.nonzero(found.on_thread[first] & (graph.op_parent >= 0))
    outer = graph.op_parent[inner]
    same = found.resource[first[inner]] == found.resource[first[outer]]
    inner, outer = inner[same], outer[same]
    assert (first[outer] <= first[inner]).all()
    assert (last[inner] <= last[outer]).all()
    rounded, kept = in_microseconds(found, IssueLog())
    assert (kept[rounded.first_of_op] <= first).all()
    assert (kept[rounded.last_of_op] <= last).all()
    assert (kept[rounded.first_of_op] == first)[np.isin(first, kept)].all()


@pytest.mark.parametrize("name", [*FOLDERS, *DEVICES])
def test_recordings(name: str, shared_traces: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(traces_of(shared_traces, name)))
    found = activities_of(graph)
    check_times(found)
    check_own_times(graph, found)
    check_rounding(found)
    check_extents(graph, found)


def test_the_demo(demo_run: nadi.bottlenecks.Run) -> None:
    found = activities_of(demo_run.graph)
    check_times(found)
    check_own_times(demo_run.graph, found)
    check_rounding(found)
    check_extents(demo_run.graph, found)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(descriptions(STATEMENTS, together=("all_reduce",), num_ranks=2))
def test_random_programs(description: Description) -> None:
    program = program_of(of_all_ranks(description))
    with tempfile.TemporaryDirectory() as folder:
        record(program, play(program, Machine()), Path(folder))
        graph = nadi.build_graph(nadi.load_job(folder))
    found = activities_of(graph)
    check_times(found)
    check_own_times(graph, found)
    check_rounding(found)
    check_extents(graph, found)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5_000)), min_size=1, max_size=40))
def test_rounding_carries_on(pieces: list[tuple[int, int]]) -> None:
    resource, duration = np.array(sorted(pieces, key=lambda one: one[0])).T
    size = resource.size
    zero, nothing = np.zeros(size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    follows = np.flatnonzero(np.diff(resource) == 0)
    check_rounding(
        Activities(
            trace=zero, op=np.arange(size), on_thread=zero == 0, is_comm=zero > 0, start=zero,
            end=zero, duration=duration, resource=resource, src=np.append(follows, nothing),
            dst=follows + 1, first_of_op=np.arange(size), last_of_op=np.arange(size),
        )
    )  # fmt: skip


def test_turns_are_not_counted_twice() -> None:
    """Two transfers side by side, from 0 to 10 and from 5 to 12."""
    two = np.zeros(2, dtype=np.int64)
    found = Activities(
        trace=two, op=np.arange(2), on_thread=two > 0, is_comm=two == 0, start=np.array([0, 5]),
        end=np.array([10, 12]), duration=np.array([10, 7]), resource=np.arange(2),
        src=two[:0], dst=two[:0], first_of_op=np.arange(2), last_of_op=np.arange(2),
    )  # fmt: skip
    turned = in_turns(found, np.array([0]), np.array([1]))
    assert turned.duration.tolist() == [10, 2]
    assert (turned.src.tolist(), turned.dst.tolist()) == ([0], [1])


def test_a_thread_that_only_waits_is_no_work(tmp_path: Path) -> None:
    """Its Python frames last as long as the recording: the graph leaves them out, and so do we."""
    events: list[dict[str, object]] = []

    def add(name: str, category: str, thread: int, start: int, length: int) -> None:
        events.append({"ph": "X", "name": name, "cat": category, "ts": start, "dur": length,
                       "pid": 1, "tid": thread})  # fmt: skip

    add("threading.py(973): _bootstrap", "python_function", 0, 0, 100)
    add("queue.py(154): get", "python_function", 0, 1, 98)
    add("train.py(3): step", "python_function", 7, 0, 100)
    for start in range(10, 90, 20):
        add("aten::mm", "cpu_op", 7, start, 10)
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    job = nadi.load_job(path)
    assert nadi.simulate(job, nadi.load_system("pcie-workstation", 1)).makespan == 100_000
    files = nadi.simulation.write_for_astra_sim(job, tmp_path / "simulation")
    trace = nadi.read(files.traces[0])
    assert trace.column("duration").sum() == 100_000
