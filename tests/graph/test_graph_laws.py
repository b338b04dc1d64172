"""The laws of the event graph, on small jobs made at random and on a real recording.

The random jobs are written as the files that PyTorch would write and read back, so that
the laws hold for reading, linking and building together. Times are small numbers of one
unit: ties, operations of no duration and equal intervals are the rule, not the exception.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import nadi
from nadi.graph.critical_paths import PATH_KINDS
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.kernels.sequences import union_length
from nadi.trace.schema import DEVICE_WORK, THREAD_WORK
from tests.amounts import examples
from tests.reference import intervals, nesting, paths

SETTINGS = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])

EPOCH_NS = 1_700_000_000_000_000_001  # a float of microseconds could not tell it from ...000
MAIN, WORKER, GLOO = 1, 2, 7  # threads
HOST_NAMES = ("aten::mm", "aten::add", "ProfilerStep#1", "autograd::engine::evaluate")
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@dataclass(frozen=True)
class Action:
    """One thing that a rank does: which, on which thread and stream, and how long."""

    what: str
    thread: int
    stream: int
    lengths: tuple[int, int, int]


@dataclass
class RankWriter:
    """The files of one rank, made action by action."""

    rank: int
    world_size: int
    unit: int
    events: list[dict] = field(default_factory=list)
    host_nodes: list[dict] = field(default_factory=list)
    clock: dict[int, int] = field(default_factory=lambda: {MAIN: 0, WORKER: 1})
    stacks: dict[int, list[dict]] = field(default_factory=lambda: {MAIN: [], WORKER: []})
    stream_end: Counter[int] = field(default_factory=Counter)

    def event(self, category: str, name: str, start: int, duration: int, **more: object) -> dict:
        made = {
            "ph": "X", "cat": category, "name": name, "pid": 100 + self.rank, "tid": MAIN,
            "ts": start * self.unit / 1000, "dur": duration * self.unit / 1000, "args": {},
        } | more  # fmt: skip
        self.events.append(made)
        return made

    def operator(self, name: str, start: int, duration: int, thread: int) -> dict:
        """Write an operation that stands in both files."""
        number = len(self.host_nodes) + 1
        self.host_nodes.append({
            "id": number, "name": name, "ctrl_deps": 0,
            "attrs": [{"name": "rf_id", "type": "uint64", "value": number}],
        })  # fmt: skip
        is_annotation = name.startswith(("Profiler", "gloo:"))
        return self.event(
            "user_annotation" if is_annotation else "cpu_op", name, start, duration,
            tid=thread, args={"Record function id": number},
        )  # fmt: skip

    def act(self, action: Action) -> None:
        getattr(self, action.what)(action.thread, action.stream, *action.lengths)

    def open(self, thread: int, stream: int, wait: int, name: int, _: int) -> None:
        self.clock[thread] += wait
        self.stacks[thread].append(self.operator(HOST_NAMES[name], self.clock[thread], 0, thread))

    def close(self, thread: int, stream: int, wait: int, _: int, then: int) -> None:
        self.clock[thread] += wait
        if self.stacks[thread]:
            opened = self.stacks[thread].pop()
            opened["dur"] = self.clock[thread] * self.unit / 1000 - opened["ts"]
        self.clock[thread] += then

    def overlap(self, thread: int, stream: int, back: int, name: int, on: int) -> None:
        """Write an operation that may begin inside another one and end after it."""
        start = max(self.clock[thread] - back, 0)
        self.operator(HOST_NAMES[name], start, back + on, thread)

    def call(self, name: str, thread: int, duration: int) -> dict:
        start = self.clock[thread]
        self.clock[thread] += duration
        correlation = len(self.events) + 1
        return self.event(
            "cuda_runtime", name, start, duration, tid=thread, args={"correlation": correlation}
        )

    def work(
        self, category: str, name: str, launch: dict, stream: int, start: int, duration: int
    ) -> dict:
        self.stream_end[stream] = max(self.stream_end[stream], start + duration)
        args = {**launch["args"], "device": 0, "stream": stream}
        return self.event(category, name, start, duration, tid=stream, args=args)

    def launch(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = self.clock[thread] + latency
        launch = self.call("cudaLaunchKernel", thread, call)
        self.work("kernel", "gemm", launch, stream, max(start, self.stream_end[stream]), duration)

    def queue(self, thread: int, stream: int, call: int, gap: int, duration: int) -> None:
        """Launch work that begins some time after the work before it on its stream."""
        launch = self.call("cudaLaunchKernel", thread, call)
        start = max(self.clock[thread], self.stream_end[stream] + gap)
        self.work("kernel", "gemm", launch, stream, start, duration)

    def launch_at_once(self, thread: int, stream: int, call: int, early: int, dur: int) -> None:
        """Launch work that waits neither for its stream nor for the end of the call."""
        start = max(self.clock[thread] + call - early, 0)
        launch = self.call("cudaLaunchKernel", thread, call)
        self.work("kernel", "relu", launch, stream, start, dur)

    def copy(self, thread: int, stream: int, latency: int, duration: int, after: int) -> None:
        """Copy to pageable memory: the call returns after the copy."""
        start = max(self.clock[thread] + latency, self.stream_end[stream])
        launch = self.call("cudaMemcpyAsync", thread, start + duration + after - self.clock[thread])
        name = "Memcpy DtoH (Device -> Pageable)"
        self.work("gpu_memcpy", name, launch, stream, start, duration)

    def call_and_instant_copy(self, thread: int, stream: int, call: int, _: int, __: int) -> None:
        launch = self.call("cudaMemcpyAsync", thread, call)
        name = "Memcpy DtoH (Device -> Pageable)"
        self.work("gpu_memcpy", name, launch, stream, self.clock[thread], 0)

    def synchronize(self, thread: int, stream: int, wait: int, after: int, whole: int) -> None:
        end = max([self.clock[thread] + wait, *self.stream_end.values()]) + after
        name = "cudaDeviceSynchronize" if whole % 2 else "cudaStreamSynchronize"
        call = self.call(name, thread, end - self.clock[thread])
        if not whole % 2:
            self.event("cuda_sync", "Stream Sync", 0, 0,
                       args={**call["args"], "stream": stream, "device": 0})  # fmt: skip

    def nccl(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = max(self.clock[thread] + latency, self.stream_end[stream])
        launch = self.call("cudaLaunchKernelExC", thread, call)
        made = self.work("kernel", ALL_REDUCE, launch, stream, start, duration)
        made["args"]["Process Group Name"] = "0"

    def gloo(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = self.clock[thread]
        self.operator("c10d::allreduce_", start, call, thread)
        self.clock[thread] += call
        self.operator("gloo:all_reduce", start + latency, duration, GLOO)

    def write(self, folder: Path) -> None:
        if not self.host_nodes:
            self.open(MAIN, 0, 0, 0, 0)
        for thread, stack in self.stacks.items():
            while stack:
                self.close(thread, 0, 1, 0, 0)
        device = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": EPOCH_NS,
            "distributedInfo": {
                "rank": self.rank, "world_size": self.world_size,
                "pg_config": [{"pg_name": "0", "ranks": list(range(self.world_size))}],
            },
            "traceEvents": self.events,
        }  # fmt: skip
        host = {"schema": "1.1.1-chakra.0.0.4", "pid": 100 + self.rank, "nodes": self.host_nodes}
        (folder / f"device_{self.rank}.json").write_text(json.dumps(device))
        (folder / f"host_{self.rank}.json").write_text(json.dumps(host))


WHAT = (
    "open", "open", "close", "overlap", "launch", "queue", "launch_at_once", "copy", "synchronize",
    "nccl", "gloo",
)  # fmt: skip
lengths = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


actions = st.builds(
    Action, st.sampled_from(WHAT), st.sampled_from([MAIN, MAIN, WORKER]),
    st.sampled_from([7, 13]), lengths,
)  # fmt: skip
# a unit in ns, so that waits are too short to be seen or long enough, and what each rank does
jobs = st.tuples(
    st.sampled_from([1, 1_000, 20_000]),
    st.lists(st.lists(actions, min_size=3, max_size=20), min_size=1, max_size=3),
)
Description = tuple[int, list[list[Action]]]


def load(description: Description) -> nadi.Job:
    unit, ranks = description
    with tempfile.TemporaryDirectory() as folder:
        for rank, todo in enumerate(ranks):
            writer = RankWriter(rank, len(ranks), unit)
            for action in todo:
                writer.act(action)
            writer.write(Path(folder))
        return nadi.load_job(folder)


def main(what: str, *lengths: int, stream: int = 7) -> Action:
    return Action(what, MAIN, stream, lengths)


def worker(what: str, *lengths: int) -> Action:
    return Action(what, WORKER, 7, lengths)


# a hand-over to the other thread, kernels one after the other, a wait for them, a collective
EVERY_KIND: Description = (
    20_000,
    [
        [
            main("open", 0, 0, 0), main("close", 1, 0, 0),
            worker("open", 2, 1, 0), worker("close", 2, 0, 0),
            main("open", 6, 0, 0), main("launch", 1, 2, 3), main("launch", 1, 2, 3),
            main("synchronize", 1, 1, 1), main("nccl", 1, late, 2), main("close", 1, 0, 0),
        ]
        for late in (1, 2)
    ],
)  # fmt: skip

# work queued in good time, which waits less and more than usual for the work before it
QUEUED: Description = (
    1_000,
    [[main("open", 0, 0, 0), *(main("queue", 1, gap, 20) for gap in (1, 1, 3)),
      main("close", 0, 0, 0)]],
)  # fmt: skip
# work that begins before its own launch, where clocks disagree
EARLY: Description = (1, [[main("open", 3, 0, 0), main("launch_at_once", 0, 2, 1)]])


def edges_of(graph: EventGraph) -> list[tuple[int, int, int]]:
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.in_ptr))
    return list(
        zip(graph.in_src.tolist(), destination.tolist(), graph.weight.tolist(), strict=True)
    )


def windows_of(graph: EventGraph) -> list[Window]:
    """Give the whole trace, all steps, and each step."""
    steps = nadi.graph.find_steps(graph)
    whole = nadi.graph.choose_window(graph, [])
    return [whole, nadi.graph.choose_window(graph, steps), *steps]


def check_identity(graph: EventGraph) -> None:
    assert nadi.graph.replay_graph(graph).time.tolist() == graph.time.tolist()
    assert graph.weight.min(initial=0) >= 0
    assert graph.delay.min(initial=0) >= 0
    # the measured times are those of the trace, since the first of any rank
    start = graph.gather("start").to_numpy() - graph.job.origin
    end = start + graph.gather("duration").to_numpy()
    assert graph.time[: 2 * graph.num_ops].tolist() == np.stack([start, end], 1).ravel().tolist()


def check_causality(replay: Replay) -> None:
    """Look at each vertex by itself; with the identity this fixes every time."""
    graph = replay.graph
    time, delay, bound_by = replay.time.tolist(), graph.delay.tolist(), replay.bound_by.tolist()
    asked: list[list[tuple[int, int]]] = [[] for _ in time]
    for edge, (source, destination, weight) in enumerate(edges_of(graph)):
        asked[destination].append((time[source] + weight, edge))
    for vertex, entering in enumerate(asked):
        latest = max((moment for moment, _ in entering), default=0)
        assert time[vertex] == latest + delay[vertex]
        first = [edge for moment, edge in entering if moment == latest][:1]
        assert [bound_by[vertex]] == (first or [-1])


def check_causality_by_oracle(replay: Replay) -> None:
    graph = replay.graph
    edges = edges_of(graph)
    assert paths.is_topological(graph.order.tolist(), edges, graph.num_vertices)
    time, bound_by = paths.latest_times(edges, graph.delay.tolist())
    assert replay.time.tolist() == time
    assert replay.bound_by.tolist() == bound_by


def check_shorter_edges(graph: EventGraph, edges: Iterable[int]) -> None:
    for edge in edges:
        for shorter in {0, int(graph.weight[edge]) // 2}:
            weight = graph.weight.copy()
            weight[edge] = shorter
            assert (nadi.graph.replay_graph(graph.with_weights(weight)).time <= graph.time).all()


def check_scaling(graph: EventGraph, names: Iterable[str]) -> None:
    windows = windows_of(graph)
    for name in names:
        named = nadi.whatif.Selection(name=f"^{re.escape(name)}$")
        previous = graph.time
        for factor in (1, 0.75, 0.5, 0):
            changed = nadi.whatif.apply_change(graph, nadi.whatif.Scale(named, factor))
            time = nadi.graph.replay_graph(changed).time
            assert (time <= previous).all()
            assert windows[0].length(time) <= windows[0].length(previous)
            for window in windows:
                assert window.end(time) <= window.end(previous)
            if factor == 1:
                assert changed.weight.tolist() == graph.weight.tolist()
                assert time.tolist() == graph.time.tolist()
            previous = time


def check_critical_path(replay: Replay, window: Window) -> None:
    path = nadi.critical_path(replay, window)
    begin, end = window.start(replay.time), window.end(replay.time)
    starts, ends = path.segments["start"].to_list(), path.segments["end"].to_list()
    # each segment begins where the one before it ended, and all of them are of some length
    assert [begin, *ends] == [*starts, end]
    assert all(a < b for a, b in zip(starts, ends, strict=True))
    assert path.length == end - begin == window.length(replay.time)
    assert list(path.by_kind()) == [kind for kind in PATH_KINDS if kind not in ("memory", "delay")]
    assert sum(path.by_kind().values()) == path.length
    assert path.by_operation()["time"].sum() == path.length
    graph = replay.graph
    for source, vertex in zip(path.vertices[:-1], path.vertices[1:], strict=True):
        assert graph.in_src[replay.bound_by[vertex]] == source
        assert graph.in_ptr[vertex] <= replay.bound_by[vertex] < graph.in_ptr[vertex + 1]
    # the first vertex is where the path comes from, unless nothing comes before it
    first, *others = replay.time[path.vertices].tolist()
    assert first <= begin or replay.bound_by[path.vertices[0]] < 0
    assert all(time > begin for time in others)
    assert [first, *others][-1] == end
    for rank, node, name, number in path.segments.select("rank", "node", "name", "id").iter_rows():
        assert rank in graph.job.ranks
        if node < 0:
            assert (name, number) == ("", -1)
        else:
            nodes = graph.job.traces[graph.job.ranks.index(rank)].nodes
            assert (nodes["name"][node], nodes["id"][node]) == (name, number)


def threads_of(trace: nadi.Trace) -> Iterable[np.ndarray]:
    """Give the rows of the work of each thread."""
    works = trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)
    thread = trace.column("thread")
    for one in np.unique(thread[works]):
        yield np.flatnonzero(works & (thread == one))


def check_conservation(trace: nadi.Trace, covered) -> None:
    """Let the time owned by operations be the time covered by them, thread by thread."""
    start, duration = trace.column("start"), trace.column("duration")
    exclusive = trace.column("exclusive")
    for rows in threads_of(trace):
        begin, end = start[rows], (start + duration)[rows]
        span = int(end.max() - begin.min())
        uncovered = span - covered(begin, end)
        assert int(exclusive[rows].sum()) + uncovered == span
        assert (exclusive[rows] >= 0).all()
        assert (exclusive[rows] <= duration[rows]).all()
    on_device = trace.category_mask(*DEVICE_WORK)
    assert exclusive[on_device].tolist() == duration[on_device].tolist()


def check_nested_time(graph: EventGraph) -> None:
    """Let an operation own what those directly in it leave, where none overlap partially."""
    duration = graph.gather("duration").to_list()
    exclusive = graph.gather("exclusive").to_list()
    left = list(duration)
    for op, parent in enumerate(graph.op_parent.tolist()):
        if parent >= 0:
            left[parent] -= duration[op]
    for number, trace in enumerate(graph.job.traces):
        op_of_row = {
            row: op for op, row in enumerate(graph.op_row.tolist()) if graph.op_trace[op] == number
        }
        start, end = trace.column("start"), trace.column("start") + trace.column("duration")
        for rows in threads_of(trace):
            operations = list(zip(start[rows].tolist(), end[rows].tolist(), strict=True))
            if not nesting.has_partial_overlap(operations):
                ops = [op_of_row[row] for row in rows.tolist()]
                assert [exclusive[op] for op in ops] == [left[op] for op in ops]


@SETTINGS
@given(jobs, st.integers(0, 2**32))
@example(EVERY_KIND, 0)
@example(QUEUED, 0)
@example(EARLY, 0)
def test_laws_on_random_jobs(description, seed):
    unit, _ = description
    job = load(description)
    graph = nadi.build_graph(job)
    check_identity(graph)
    replay = nadi.graph.replay_graph(graph)
    check_causality(replay)
    check_causality_by_oracle(replay)
    check_shorter_edges(graph, range(graph.num_edges))
    check_scaling(graph, graph.op_names.unique().to_list())

    # other weights than the measured ones, longer ones too, and other ties
    generator = np.random.default_rng(seed)
    other = nadi.graph.replay_graph(
        graph.with_weights(generator.integers(0, 4, graph.num_edges) * unit)
    )
    check_causality_by_oracle(other)
    for window in windows_of(graph):
        check_critical_path(replay, window)
        check_critical_path(other, window)

    def covered(start: np.ndarray, end: np.ndarray) -> int:
        times = np.stack([start, end], axis=1) - job.origin
        assert (times % unit == 0).all()
        return unit * intervals.union_length((times // unit).tolist())

    for trace in job.traces:
        check_conservation(trace, covered)
    check_nested_time(graph)


@pytest.fixture(scope="module")
def demo() -> EventGraph:
    return nadi.build_graph(nadi.load_job(Path(nadi.__file__).parent / "data" / "demo"))


def test_the_demo_is_four_ranks_with_two_steps(demo):
    assert demo.job.ranks == (0, 1, 2, 3)
    assert [window.name for window in nadi.graph.find_steps(demo)] == ["step 1", "step 2"]
    counts = demo.job.matches.group_by("rank").len().sort("rank")["len"].to_list()
    assert counts == [22, 22, 20, 20]  # ranks 0 and 1 send and receive too
    assert demo.num_ops > 10_000


def test_identity_on_the_demo(demo):
    check_identity(demo)


def test_causality_on_the_demo(demo):
    assert paths.is_topological(demo.order.tolist(), edges_of(demo), demo.num_vertices)
    check_causality(nadi.graph.replay_graph(demo))


def test_causality_on_the_demo_with_other_weights(demo):
    weight = demo.weight * np.random.default_rng(0).integers(0, 4, demo.num_edges)
    check_causality(nadi.graph.replay_graph(demo.with_weights(weight)))


def test_shorter_edges_on_the_demo(demo):
    longest = np.argsort(-demo.weight)[:20].tolist()
    check_shorter_edges(demo, longest + random.Random(0).sample(range(demo.num_edges), 20))


def test_scaling_on_the_demo(demo):
    names = demo.op_names.value_counts(sort=True)["name"].to_list()
    check_scaling(demo, [*names[:5], "gloo:all_reduce", "ProfilerStep#1"])


def test_halving_all_work_of_the_demo_shortens_its_steps(demo):
    changed = nadi.graph.replay_graph(
        nadi.whatif.apply_change(demo, nadi.whatif.parse_change("scale . 0.5"))
    ).time
    for window in windows_of(demo):
        assert 0.4 * window.length(demo.time) < window.length(changed)
        assert window.length(changed) < 0.7 * window.length(demo.time)


def test_critical_paths_on_the_demo(demo):
    for window in windows_of(demo):
        check_critical_path(nadi.graph.replay_graph(demo), window)


def test_conservation_on_the_demo(demo):
    for trace in demo.job.traces:
        check_conservation(trace, union_length)


def test_the_example_has_every_kind_of_edge():
    graph = nadi.build_graph(load(EVERY_KIND))
    assert {EdgeKind(kind) for kind in graph.edge_kind} == set(EdgeKind) - {
        EdgeKind.ADDED,
        EdgeKind.TENSOR,
        EdgeKind.GIVEN,
        EdgeKind.MEMORY,
    }


def test_known_path_through_a_launch_and_a_wait():
    actions = [
        main("open", 0, 0, 0),  # aten::mm from 0
        main("open", 2, 1, 0),  # aten::add from 2
        main("launch", 2, 4, 3),  # call from 2 to 4, kernel from 6 to 9
        main("close", 1, 0, 0),  # aten::add to 5
        main("synchronize", 0, 3, 1),  # from 5 to 12
        main("close", 2, 0, 0),  # aten::mm to 14
    ]
    graph = nadi.build_graph(load((1, [actions])))
    window = nadi.graph.choose_window(graph, [])
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    assert path.segments.select("name", "kind", "start", "end").rows() == [
        ("aten::mm", "host op", 0, 2),
        ("cudaLaunchKernel", "host op", 2, 4),
        ("gemm", "launch", 4, 6),
        ("gemm", "kernel", 6, 9),
        ("cudaDeviceSynchronize", "host op", 9, 12),
        ("aten::mm", "host op", 12, 14),
    ]
    assert path.by_kind() == {
        "host op": 9, "host gap": 0, "launch": 2, "kernel": 3, "communication": 0, "unexplained": 0,
    }  # fmt: skip
    without_kernel = nadi.graph.replay_graph(
        nadi.whatif.apply_change(graph, nadi.whatif.parse_change("scale gemm 0"))
    )
    assert window.length(without_kernel.time) == 11


def test_known_path_past_a_wait_for_what_is_done():
    actions = [
        main("open", 0, 0, 0),  # aten::mm from 0
        main("launch", 1, 1, 1),  # call from 0 to 1, kernel from 1 to 2
        main("close", 4, 0, 0),  # aten::mm to 5
        main("synchronize", 2, 0, 1),  # from 5 to 7
    ]
    graph = nadi.build_graph(load((1, [actions])))
    path = nadi.critical_path(nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, []))
    assert path.segments.select("name", "kind", "start", "end").rows() == [
        ("cudaLaunchKernel", "host op", 0, 1),
        ("aten::mm", "host op", 1, 5),
        ("cudaDeviceSynchronize", "host op", 5, 7),
    ]


def test_known_path_along_a_stream():
    graph = nadi.build_graph(load(QUEUED))
    path = nadi.critical_path(nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, []))
    # the gaps are 1 and 3 us, so 2 us are usual, and what is more is a delay
    assert path.segments.select("name", "kind", "start", "end").rows() == [
        ("cudaLaunchKernel", "host op", 0, 1_000),
        ("gemm", "kernel", 1_000, 21_000),
        ("gemm", "launch", 21_000, 22_000),
        ("gemm", "kernel", 22_000, 42_000),
        ("gemm", "launch", 42_000, 44_000),
        ("gemm", "unexplained", 44_000, 45_000),
        ("gemm", "kernel", 45_000, 65_000),
    ]


def test_known_path_through_the_rank_that_came_last():
    def rank(first: int, duration: int) -> list[Action]:
        # the call follows at once, the collective one after the call
        return [
            main("open", 0, 0, 0), main("close", first, 0, 0), main("nccl", 2, 3, duration),
        ]  # fmt: skip

    # rank 0 enters at 4 and waits until 14, rank 1 enters at 12 and leaves at 13
    graph = nadi.build_graph(load((1, [rank(1, 10), rank(9, 1)])))
    path = nadi.critical_path(nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, []))
    assert path.segments.select("rank", "name", "kind", "start", "end").rows() == [
        (1, "aten::mm", "host op", 0, 9),
        (1, "cudaLaunchKernelExC", "host op", 9, 11),
        (1, ALL_REDUCE, "unexplained", 11, 12),
        (0, ALL_REDUCE, "communication", 12, 14),
    ]


def test_a_copy_of_no_duration_makes_no_cycle():
    actions = [main("open", 0, 0, 0), main("call_and_instant_copy", 3, 0, 0)]
    graph = nadi.build_graph(load((1, [actions])))
    check_identity(graph)


def test_less_work_before_a_step_may_begin_it_sooner_and_so_make_it_longer():
    """Monotony holds for moments; the length of a step lies between two of them."""
    actions = [
        main("launch", 1, 1, 40),  # keeps the device busy until 41
        main("open", 0, 0, 0), main("close", 10, 0, 0),  # aten::mm from 1 to 11
        main("open", 0, 2, 0), main("launch", 2, 2, 5), main("close", 0, 0, 0),  # the step
    ]  # fmt: skip
    graph = nadi.build_graph(load((1, [actions])))
    (window,) = nadi.graph.find_steps(graph)
    changed = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("scale aten::mm 0"))
    after = nadi.graph.replay_graph(changed).time
    assert (after <= graph.time).all()
    assert window.end(after) == window.end(graph.time)
    assert window.start(after) < window.start(graph.time)
    # a question about the step alone changes nothing before it
    alone = nadi.whatif.apply_change(
        graph, nadi.whatif.parse_change("scale aten::mm 0"), since=window.start(graph.time)
    )
    assert window.length(nadi.graph.replay_graph(alone).time) <= window.length(graph.time)
