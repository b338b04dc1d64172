"""What holds of every change, on a real recording and on random jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from tests.amounts import examples
from tests.graph.test_graph_laws import (
    EARLY,
    EVERY_KIND,
    QUEUED,
    check_causality,
    check_critical_path,
    edges_of,
    jobs,
    load,
    windows_of,
)
from tests.reference import paths

SHORTER = (
    "scale . 0.5", "scale kind=device 0", "scale gloo:|nccl 0.25", "set kind=kernel 0ns",
    "remove kind=kernel", "remove kind=communication", "remove aten::mm", "remove kind=runtime",
    "remove ProfilerStep#1", "remove rank=0", "no-overhead", "no-gaps", "cut stream .",
    "remove wait", "scale wait 0.5", "cut sync .", "cut thread .", "cut arrival .",
    "cut launch .", "fuse .",
)  # fmt: skip
SAME = ("scale . 1", "scale kind=host 1", "move kind=device stream=7 to 7")
OTHERS = (
    "cuda-graph aten::mm", "cuda-graph aten::add", "move gemm to 99", "move stream=13 to 7",
    "move stream=7 rank=0 to 13", "scale . 3", "set . 5us", "network 1MB/s 1us", "balanced ranks",
    "balance .", "balance aten::mm rank=0,1",
    "add ProfilerStep#1 -> gemm", "add kind=communication -> relu",
)  # fmt: skip


def changed(graph: EventGraph, text: str, since: int = 0) -> EventGraph | None:
    """Make a change, or give None where it says that there is nothing to change."""
    try:
        return nadi.whatif.apply_change(graph, nadi.whatif.parse_change(text), since)
    except nadi.errors.UsageError:
        return None


def state(graph: EventGraph) -> list[object]:
    arrays = (
        graph.time, graph.delay, graph.in_ptr, graph.in_src, graph.weight, graph.edge_op,
        graph.edge_kind, graph.order, graph.op_stream,
    )  # fmt: skip
    return [array.tobytes() for array in arrays]


def check_sound(graph: EventGraph) -> None:
    """Let the three laws of a graph hold, but for the identity, which a change is to break."""
    replay = nadi.graph.replay_graph(graph)
    check_causality(replay)
    assert paths.is_topological(graph.order.tolist(), edges_of(graph), graph.num_vertices)
    assert graph.weight.min(initial=0) >= 0
    assert graph.delay.min(initial=0) >= 0
    start, end = replay.time[: 2 * graph.num_ops].reshape(-1, 2).T
    assert (start <= end).all()


def check_changes(graph: EventGraph, windows: list[nadi.graph.Window]) -> None:
    before = state(graph)
    for text in (*SHORTER, *SAME, *OTHERS):
        for since in {window.start(graph.time) for window in windows}:
            made = changed(graph, text, since)
            if made is None:
                continue
            check_sound(made)
            time = nadi.graph.replay_graph(made).time
            if text in SHORTER:
                assert (time[: graph.num_vertices] <= graph.time).all(), text
            if text in SAME:
                assert time.tolist() == graph.time.tolist(), text
            # nothing that starts before the moment given has changed
            early = np.flatnonzero(graph.time[: 2 * graph.num_ops : 2] < since)
            assert (time[2 * early] == graph.time[2 * early]).all(), text
    assert state(graph) == before


def check_together(graph: EventGraph, texts: tuple[str, ...]) -> None:
    """Let changes asked for together be the same as one after the other."""
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    since = window.start(graph.time)
    made, asked = graph, []
    for text in texts:
        more = changed(made, text, since)
        if more is not None:
            made, asked = more, [*asked, text]
            check_sound(made)
    together = nadi.what_if(graph, *asked)
    assert together.replay.time.tolist() == nadi.graph.replay_graph(made).time.tolist()
    assert together.window_ns == window.length(nadi.graph.replay_graph(made).time)
    check_critical_path(together.replay, window)


SEQUENCES = (
    ("move gemm to 99", "fuse .", "scale stream=99 0.5", "remove relu", "move stream=99 to 7"),
    ("cuda-graph aten::mm", "remove gemm", "no-overhead", "add ProfilerStep#1 -> gemm", "no-gaps"),
    ("cut launch .", "add ProfilerStep#1 -> gemm", "cut arrival .", "remove kind=communication"),
    ("remove rank=0", "remove .", "set . 3us", "scale . 0.5", "cut stream ."),
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(jobs)
@example(EVERY_KIND)
@example(QUEUED)
@example(EARLY)
def test_changes_of_random_jobs(description: object) -> None:
    graph = nadi.build_graph(load(description))
    check_changes(graph, windows_of(graph))
    for texts in SEQUENCES:
        check_together(graph, texts)


def test_changes_of_a_recording(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    for text in ("remove gloo:", "remove gloo: rank=1", "cut arrival gloo", "cut thread .",
                 "no-gaps", "set aten::mm 1us", "scale . 0.5"):  # fmt: skip
        made = changed(graph, text, demo_run.window.start(graph.time))
        assert made is not None
        time = nadi.graph.replay_graph(made).time
        assert (time[: graph.num_vertices] <= graph.time).all()
        assert demo_run.window.length(time) <= demo_run.measured_ns
        check_critical_path(nadi.graph.replay_graph(made), demo_run.window)


def test_shorter_is_never_longer_after_other_changes(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    first = nadi.what_if(graph, "cut thread .", "remove gloo: rank=2")
    both = nadi.what_if(graph, "cut thread .", "remove gloo: rank=2", "scale aten:: 0.5")
    assert both.window_ns <= first.window_ns <= demo_run.measured_ns


@pytest.mark.parametrize(
    "texts",
    [
        ("move sgemm to 99", "fuse kind=kernel", "remove nccl"),
        ("cuda-graph DistributedDataParallel.forward", "no-overhead", "set cudnn 1us"),
        ("remove cuda(Device|Stream)Synchronize", "cut sync kind=host", "network 1GB/s 5us"),
    ],
)
def test_changes_of_a_recording_with_a_device(shared_traces, texts: tuple[str, ...]) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / "gpu_resnet_pair"))
    made = graph
    since = nadi.graph.find_steps(graph)[1].start(graph.time)
    for text in texts:
        made = nadi.whatif.apply_change(made, nadi.whatif.parse_change(text), since)
        replay = nadi.graph.replay_graph(made)
        early = np.flatnonzero(graph.time[: 2 * graph.num_ops] < since)
        assert (replay.time[early] == graph.time[early]).all()
        start, end = replay.time[: 2 * graph.num_ops].reshape(-1, 2).T
        assert (start <= end).all()
    for window in nadi.graph.find_steps(graph):
        check_critical_path(replay, window)


def test_data_is_waited_for_on_other_streams(shared_traces) -> None:
    """Work that was moved still waits for the work whose data it uses, and no other does."""
    graph = nadi.build_graph(nadi.load_job(shared_traces / "gpu_resnet_pair"))
    moved = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("move sgemm to 99"))
    events = np.flatnonzero(graph.edge_kind == EdgeKind.SYNC).size
    after = moved.edges
    new = np.flatnonzero(after.kind == EdgeKind.SYNC)
    stream = moved.op_stream
    crossing = new[stream[after.src[new] // 2] != stream[after.dst[new] // 2]]
    crossing = crossing[after.dst[crossing] % 2 == 0]
    assert new.size > events
    assert crossing.size > 50
    assert (stream[after.dst[crossing] // 2] == 99).any()
    assert (stream[after.src[crossing] // 2] == 99).any()
