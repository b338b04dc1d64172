"""The longest paths of a window, against all paths of small graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import nadi
from nadi.graph.event_graph import EventGraph, make_edges
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from tests.amounts import examples
from tests.conftest import PairWriter
from tests.whatif.programs import three_kernels

NUM_OPS = 4


@pytest.fixture(scope="module")
def four_operations(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    """Four operations that nothing connects; only their edges are of interest."""
    pair = PairWriter(tmp_path_factory.mktemp("pair"))
    for k in range(NUM_OPS):
        pair.op(f"op{k}", 0, 1, tid=k + 1)
    return nadi.build_graph(nadi.load_job(*pair.write()))


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Edges between the vertices of operations, and delays; of each its start comes first."""
    place = draw(st.permutations(range(2 * NUM_OPS)))
    vertex = st.integers(0, 2 * NUM_OPS - 1)
    found = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 5)), max_size=16))
    edges = [(a, b, w) if place[a] < place[b] else (b, a, w) for a, b, w in found if a != b]
    assume(edges)
    return edges, draw(st.lists(st.integers(0, 3), min_size=8, max_size=8))


def replayed(graph: EventGraph, edges: list[tuple[int, int, int]], delay: list[int]) -> Replay:
    src, dst, weight = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    edges_of = make_edges(src, dst, weight, nadi.graph.EdgeKind.HOST_OP, src // 2)
    return nadi.graph.replay_graph(replace(graph, delay=np.array(delay)).with_edges(edges_of))


def all_paths(edges: list[tuple[int, int, int]], delay: list[int]) -> dict[tuple[int, ...], int]:
    """Give the length of every path from a vertex that nothing enters."""
    entered = {b for _, b, _ in edges}
    found: dict[tuple[int, ...], int] = {}
    ahead = [((v,), delay[v]) for v in range(len(delay)) if v not in entered]
    while ahead:
        path, length = ahead.pop()
        found[path] = max(length, found.get(path, 0))
        ahead += [((*path, b), length + w + delay[b]) for a, b, w in edges if a == path[-1]]
    return found


@settings(max_examples=examples(150))
@given(dags(), st.sets(st.integers(0, NUM_OPS - 1), min_size=1))
def test_paths_are_the_longest_through_what_none_before_has(
    four_operations: EventGraph, dag: tuple[list[tuple[int, int, int]], list[int]], last: set[int]
) -> None:
    edges, delay = dag
    replay = replayed(four_operations, edges, delay)
    graph = replay.graph
    # a window from before everything, so that nothing is cut off
    ends = np.array(sorted(2 * op + 1 for op in last))
    start = int(np.argmin(replay.time))
    window = Window("all", -1, np.array([start]), ends)
    begin, end = window.start(replay.time), window.end(replay.time)
    paths = {p: n for p, n in all_paths(edges, delay).items() if p[-1] in ends.tolist()}
    found = nadi.graph.near_critical_paths(replay, window, count=10)
    assert found[0].slack == 0
    assert found[0].path.length == end - begin
    covered = set(found[0].path.vertices.tolist())
    for one in found[1:]:
        longest = {
            op: max((n for p, n in paths.items() if 2 * op + 1 in p), default=-1)
            for op in range(NUM_OPS)
            if 2 * op + 1 not in covered and replay.time[2 * op + 1] > begin
        }
        best = max(longest.values())
        assert end - one.slack == best == longest[one.through]
        ties = [op for op, length in longest.items() if length == best]
        assert one.through == min(ties, key=lambda op: (replay.time[2 * op + 1], op))
        vertices = one.path.vertices.tolist()
        assert 2 * one.through + 1 in vertices
        assert vertices[-1] in ends
        assert one.path.length == max(best - begin, 0)
        assert sum(one.path.by_kind().values()) == one.path.length
        covered |= set(vertices)
    left = [
        op for op in range(NUM_OPS)
        if 2 * op + 1 not in covered and replay.time[2 * op + 1] > begin
        and any(2 * op + 1 in p for p in paths)
    ]  # fmt: skip
    assert len(found) == 10 or not left
    assert graph.num_ops == NUM_OPS


def test_known_paths(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    replay, window = nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, [])
    first, second = nadi.graph.near_critical_paths(replay, window)[:2]
    assert first.through == -1
    assert first.path.by_kind()["kernel"] == 83_000
    # the operator ends 10 us before the last kernel; the first to have that slack is a call
    assert graph.time[2 * second.through + 1] == 24_000
    assert (second.slack, second.path.length) == (10_000, 100_000)
    assert second.path.by_operation()["name"].to_list() == ["step", "cudaLaunchKernel"]
    assert [p.slack for p in nadi.graph.near_critical_paths(replay, window, 1)] == [0]


def test_room_by_kind(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    found = nadi.graph.slack_histogram(
        nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, [])
    )
    assert found.rows() == [
        ("host", 0, 1, 4_000),  # the first call
        ("host", 10_000, 3, 108_000),  # the operator, and what its end waits for
        ("device", 0, 3, 83_000),
    ]


def test_what_nothing_waits_for_has_no_bound(pair: PairWriter) -> None:
    pair.op("ProfilerStep#1", 0, 100, cat="user_annotation")
    pair.op("beside", 10, 20, tid=2)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    (step,) = nadi.graph.find_steps(graph)
    only = Window("step", 1, step.first, step.first + 1)
    rows = nadi.graph.slack_histogram(nadi.graph.replay_graph(graph), only).rows()
    assert rows == [("host", 0, 1, 100_000), ("host", None, 1, 20_000)]
    assert len(nadi.graph.near_critical_paths(nadi.graph.replay_graph(graph), only)) == 1


def test_paths_of_a_recording(demo_run: nadi.bottlenecks.Run) -> None:
    found = nadi.graph.near_critical_paths(demo_run.replay, demo_run.window, 6)
    assert found[0].path.segments.equals(demo_run.path.segments)
    slacks = [one.slack for one in found]
    assert slacks == sorted(slacks)
    for one in found:
        assert one.path.length == demo_run.measured_ns - one.slack
        starts, ends = one.path.segments["start"], one.path.segments["end"]
        assert starts[1:].to_list() == ends[:-1].to_list()
    assert len({one.path.vertices.tobytes() for one in found}) == len(found)


BOUNDS = [0, *(1_000 * 10**k for k in range(6))]


@pytest.mark.parametrize("slack", [*BOUNDS[1:], *(bound + 1 for bound in BOUNDS)])
def test_a_row_holds_operations_up_to_its_slack(pair: PairWriter, slack: int) -> None:
    pair.op("longest", 0, 200_000)
    pair.op("beside", 0, 200_000 - slack / 1000, tid=2)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    rows = nadi.graph.slack_histogram(
        nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, [])
    ).rows()
    above = next((bound for bound in BOUNDS if slack <= bound), None)
    assert rows == [
        ("host", 0, 1, 200_000_000), ("host", above, 1, 200_000_000 - slack),
    ]  # fmt: skip


def test_kernels_that_communicate_are_communication(pair: PairWriter) -> None:
    for number, name in enumerate(("gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")):
        pair.event(name, 0, 10, "kernel", pid=0, tid=number, stream=number + 20, device=0)
    pair.op("op", 0, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    rows = nadi.graph.slack_histogram(
        nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, [])
    ).rows()
    assert rows == [(kind, 0, 1, 10_000) for kind in ("host", "device", "communication")]


def test_only_what_ends_in_the_window_is_counted(pair: PairWriter) -> None:
    """Its end is in it, and its begin is not."""
    pair.op("ProfilerStep#1", 100, 100, cat="user_annotation")
    for number, (start, end) in enumerate([(0, 100), (0, 100.001), (150, 200), (150, 200.001)]):
        pair.op(f"op {number}", start, end - start, tid=2 + number)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    (step,) = nadi.graph.find_steps(graph)
    only = Window("step", 1, step.first, step.first + 1)
    rows = nadi.graph.slack_histogram(nadi.graph.replay_graph(graph), only)
    assert rows["operations"].sum() == 3
    assert rows["time"].sum() == 100_000 + 100_001 + 50_000


def test_as_many_paths_as_were_asked_for(pair: PairWriter) -> None:
    for number in range(6):
        pair.op(f"op {number}", 0, 100 - number, tid=number + 1)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    window = nadi.graph.choose_window(graph, [])
    for count in range(8):
        found = nadi.graph.near_critical_paths(nadi.graph.replay_graph(graph), window, count)
        assert [one.slack for one in found] == [1_000 * k for k in range(min(count, 6))]
    names = graph.op_names.to_list()
    assert [names[one.through] for one in found[1:]] == [f"op {k}" for k in range(1, 6)]
    assert found[0].through == -1
