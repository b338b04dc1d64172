"""The main job on the recordings beside the checkout, as ``nadi run`` has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi

PAIRS = ("cpu_mlp", "cpu_transformer4", "gpu_resnet_pair", "gpu_simple_add_pair")


@pytest.fixture(scope="module", params=PAIRS)
def run(request: pytest.FixtureRequest, shared_traces: Path) -> nadi.bottlenecks.Run:
    return nadi.run(shared_traces / request.param)


def test_every_vertex_replays_to_its_recorded_time(run: nadi.bottlenecks.Run) -> None:
    graph = run.graph
    (trace,) = run.job.traces
    start = trace.column("start")[graph.op_row] - run.job.origin
    end = start + trace.column("duration")[graph.op_row]
    time = nadi.graph.replay_graph(graph).time
    assert (time[0 : 2 * graph.num_ops : 2] == start).all()
    assert (time[1 : 2 * graph.num_ops : 2] == end).all()


def test_the_path_has_no_gaps_and_the_length_of_the_window(run: nadi.bottlenecks.Run) -> None:
    segments = run.path.segments
    assert (segments["start"][1:] == segments["end"][:-1]).all()
    assert run.path.length == run.measured_ns == sum(run.path.by_kind().values())


def test_nothing_of_the_device_trace_is_lost(run: nadi.bottlenecks.Run) -> None:
    (trace,) = run.job.traces
    events = trace.column("event")
    timed = events[trace.column("start") >= 0]
    assert np.unique(timed).size == timed.size
    work = trace.category_mask("operator", "annotation", "kernel", "memcpy", "memset")
    assert np.isin(np.flatnonzero(work), run.graph.op_row).all()


def test_device_work_follows_on_its_stream_and_belongs_to_an_operator(
    shared_traces: Path,
) -> None:
    (trace,) = nadi.load_job(shared_traces / "gpu_resnet_pair").traces
    on_device = np.flatnonzero(trace.category_mask("kernel", "memcpy", "memset"))
    after = trace.deps.filter(pl.col("kind") == "stream")["dst"].to_numpy()
    num_streams = np.unique(trace.column("stream")[on_device]).size
    assert on_device.size - after.size == num_streams
    launched = trace.deps.filter(pl.col("kind") == "launch")["dst"].to_numpy()
    assert np.setdiff1d(on_device, launched).size == 0
    # the recording states the launching operation in External id as well
    external, parent = trace.column("external_id"), trace.column("parent")
    kernels = np.flatnonzero(trace.category_mask("kernel", "memcpy"))
    assert kernels.size == 3660
    assert (external[kernels] == external[parent[kernels]]).all()


def test_a_job_of_which_a_rank_is_absent_says_so(shared_traces: Path) -> None:
    run = nadi.run(shared_traces / "gpu_resnet_pair")
    summary = nadi.bottlenecks.summarize(run)
    assert (summary["ranks"], summary["world_size"]) == (1, 2)
    assert run.job.matches.is_empty()


@pytest.mark.parametrize("name", ["alexnet", "cuda_event_sync", "triton", "cpu_only"])
def test_a_device_trace_alone_replays_exactly(name: str, shared_traces: Path) -> None:
    run = nadi.run(shared_traces / "gpu_hta" / f"{name}.json.gz")
    assert (run.replay.time == run.graph.time).all()
    assert run.path.length == run.measured_ns > 0
    (trace,) = run.job.traces
    assert "link.no-host" in trace.issues["code"].to_list()
    assert nadi.trace.validate_job(run.job).is_empty()
    assert nadi.trace.validate_trace(trace).is_empty()


@pytest.mark.parametrize("rank", range(8))
def test_pairs_without_common_ids_are_aligned_by_names(rank: int, shared_traces: Path) -> None:
    host, device = (
        nadi.read(shared_traces / "gpu_dlrm8" / f"{kind}_{rank}.json.gz")
        for kind in ("host", "device")
    )
    trace = nadi.link_pair(host, device)
    issues = {row["code"]: row for row in trace.issues.to_dicts()}
    assert issues["link.matched"]["count"] == 1672
    assert issues["link.matched"]["detail"].endswith("on each thread: all operations")
    assert issues["link.device-only"]["count"] == 1  # the profiler's own ProfilerStep#10
    # parents, which names do not tell, are those that times tell
    timed = np.flatnonzero(trace.category_mask("operator", "annotation"))
    timed = timed[trace.column("start")[timed] >= 0]
    parent, start = trace.column("parent")[timed], trace.column("start")
    end = start + trace.column("duration")
    inner, outer = timed[parent >= 0], parent[parent >= 0]
    inner, outer = inner[start[outer] >= 0], outer[start[outer] >= 0]
    assert inner.size > 1_000
    assert ((start[outer] <= start[inner]) & (end[inner] <= end[outer])).all()


def test_a_job_aligned_by_names_replays_exactly(shared_traces: Path) -> None:
    run = nadi.run(shared_traces / "gpu_dlrm8")
    assert run.job.ranks == tuple(range(8))
    assert (run.replay.time == run.graph.time).all()
    matched = [i for i in nadi.bottlenecks.summarize(run)["issues"] if i["code"] == "link.matched"]
    assert [issue["count"] for issue in matched] == [8 * 1672]
