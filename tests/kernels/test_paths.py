from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from nadi.graph.incoming_edge_kernels import count_incoming, place_incoming
from nadi.kernels import paths
from nadi.kernels.sequences import group_rows
from tests.amounts import examples
from tests.reference import paths as oracle
from tests.reference.paths import is_topological, latest_times, lies_on_cycle, way_back

SETTINGS = settings(max_examples=examples(150))

Edge = tuple[int, int, int]


@st.composite
def acyclic_graphs(draw) -> tuple[int, list[Edge]]:
    """Graphs whose edges point forward in an order that vertex numbers do not show."""
    num_vertices = draw(st.integers(1, 9))
    place = draw(st.permutations(range(num_vertices)))
    vertex = st.integers(0, num_vertices - 1)
    found = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 3)), max_size=20))
    edges = [
        (a, b, weight) if place[a] < place[b] else (b, a, weight)
        for a, b, weight in found
        if a != b
    ]
    return num_vertices, edges


@st.composite
def graphs(draw) -> tuple[int, list[Edge]]:
    """Graphs with cycles as often as not."""
    num_vertices = draw(st.integers(1, 8))
    vertex = st.integers(0, num_vertices - 1)
    return num_vertices, draw(st.lists(st.tuples(vertex, vertex, st.just(0)), max_size=12))


def grouped(num_vertices: int, edges: list[Edge]) -> tuple[np.ndarray, list[Edge]]:
    destination = np.array([edge[1] for edge in edges], dtype=np.int64)
    in_ptr = np.zeros(num_vertices + 1, dtype=np.int64)
    order = np.empty(len(edges), dtype=np.int64)
    group_rows(destination, in_ptr, order)
    return in_ptr.astype(np.int32), [edges[i] for i in order]


def sources(edges: list[Edge]) -> np.ndarray:
    return np.array([edge[0] for edge in edges], dtype=np.int32)


def ordered(num_vertices: int, edges: list[Edge]) -> tuple[int, np.ndarray]:
    in_ptr, edges = grouped(num_vertices, edges)
    order = np.empty(num_vertices, dtype=np.int32)
    return int(paths.topological_order(in_ptr, sources(edges), order)), order


def replayed(edges: list[Edge], delay: list[int]) -> tuple[list[Edge], np.ndarray, np.ndarray]:
    """Give the edges by destination, the times, and the binding edges."""
    in_ptr, edges = grouped(len(delay), edges)
    status, order = ordered(len(delay), edges)
    assert status == -1
    time, bound_by = (np.full(len(delay), -9, dtype=kind) for kind in (np.int64, np.int32))
    weight = np.array([edge[2] for edge in edges], dtype=np.int64)
    paths.replay_times(
        order, in_ptr, sources(edges), weight, np.array(delay, dtype=np.int64), time, bound_by
    )
    return edges, time, bound_by


@SETTINGS
@given(graphs())
def test_edges_are_grouped_by_destination_in_the_order_given(graph):
    num_vertices, edges = graph
    numbered = [(source, destination, i) for i, (source, destination, _) in enumerate(edges)]
    in_ptr, found = grouped(num_vertices, numbered)
    assert found == [edge for v in range(num_vertices) for edge in numbered if edge[1] == v]
    counts = [sum(destination == v for _, destination, _ in edges) for v in range(num_vertices)]
    assert np.diff(in_ptr).tolist() == counts
    assert in_ptr[0] == 0


@SETTINGS
@given(graphs())
def test_order_is_topological_or_a_vertex_of_a_cycle_is_named(graph):
    num_vertices, edges = graph
    status, order = ordered(num_vertices, edges)
    if any(lies_on_cycle(vertex, edges) for vertex in range(num_vertices)):
        assert lies_on_cycle(status, edges)
    else:
        assert status == -1
        assert is_topological(order.tolist(), edges, num_vertices)


def test_the_vertex_named_lies_on_the_cycle_and_not_before_it():
    edges = [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 2, 0), (3, 4, 0)]
    status, _ = ordered(5, edges)
    assert status in (2, 3)


def test_an_edge_to_itself_is_a_cycle():
    assert ordered(3, [(0, 1, 0), (1, 1, 5)])[0] == 1


def test_a_long_chain_needs_no_recursion():
    num_vertices = 50_000
    # the last vertex comes first, so that the way back from vertex 0 is the whole chain
    edges = [(v + 1, v, 1) for v in range(num_vertices - 1)]
    _, time, bound_by = replayed(edges, [0] * num_vertices)
    assert time[0] == num_vertices - 1
    path = np.empty(num_vertices, dtype=np.int64)
    in_src = sources(grouped(num_vertices, edges)[1])
    assert paths.trace_back(bound_by, in_src, 0, path) == num_vertices
    assert path.tolist() == list(range(num_vertices))


@SETTINGS
@given(acyclic_graphs(), st.data())
def test_times_and_binding_edges_equal_the_oracle(graph, data):
    num_vertices, edges = graph
    delay = data.draw(
        st.lists(st.integers(0, 3), min_size=num_vertices, max_size=num_vertices), label="delay"
    )
    edges, time, bound_by = replayed(edges, delay)
    expected_time, expected_bound_by = latest_times(edges, delay)
    assert time.tolist() == expected_time
    assert bound_by.tolist() == expected_bound_by


@SETTINGS
@given(acyclic_graphs())
def test_path_back_equals_the_oracle(graph):
    num_vertices, edges = graph
    edges, _, bound_by = replayed(edges, [0] * num_vertices)
    for last in range(num_vertices):
        path = np.full(num_vertices, -9, dtype=np.int64)
        size = paths.trace_back(bound_by, sources(edges), last, path)
        assert path[:size].tolist() == way_back(edges, bound_by.tolist(), last)


@pytest.mark.parametrize("times", [(3, 5), (-5, -3)])
def test_the_latest_asked_time_counts_even_below_zero(times):
    low, high = times
    _, time, bound_by = replayed([(0, 2, 1), (1, 2, 1)], [low, high, 10])
    assert time.tolist() == [low, high, high + 11]
    assert bound_by.tolist() == [-1, -1, 1]


def test_of_equal_edges_the_first_binds():
    _, time, bound_by = replayed([(1, 2, 2), (0, 2, 3), (1, 2, 2)], [4, 5, 0])
    assert time.tolist() == [4, 5, 7]
    assert bound_by.tolist() == [-1, -1, 0]


@SETTINGS
@given(acyclic_graphs(), st.data())
def test_a_vertex_may_come_as_late_as_its_latest_time_and_no_later(graph, data):
    num_vertices, edges = graph
    delay = data.draw(
        st.lists(st.integers(0, 3), min_size=num_vertices, max_size=num_vertices), label="delay"
    )
    edges, time, _ = replayed(edges, delay)
    in_ptr, _ = grouped(num_vertices, edges)
    _, order = ordered(num_vertices, edges)
    weight = np.array([edge[2] for edge in edges], dtype=np.int64)
    latest = np.full(num_vertices, time.max(), dtype=np.int64)
    next_edge = np.full(num_vertices, -9, dtype=np.int64)
    paths.latest_times(
        order, in_ptr, sources(edges), weight, np.array(delay, dtype=np.int64), latest, next_edge
    )
    for vertex in range(num_vertices):
        slack = int(latest[vertex] - time[vertex])
        for more, later in ((slack, 0), (slack + 1, 1)):
            longer = [d + more * (v == vertex) for v, d in enumerate(delay)]
            assert replayed(edges, longer)[1].max() == time.max() + later
        edge = next_edge[vertex]
        if edge < 0:
            assert latest[vertex] == time.max()
        else:
            source, destination, length = edges[edge]
            assert source == vertex
            assert latest[vertex] == latest[destination] - delay[destination] - length


@SETTINGS
@given(st.integers(1, 5), st.lists(st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=6)))
def test_edges_in_parts_go_where_they_go_put_together(num_vertices, parts):
    columns = [
        np.array(part, dtype=np.int64).reshape(-1, 4).T.copy() % [[num_vertices], [10], [10], [10]]
        for part in parts
    ]
    first = np.zeros(num_vertices + 2, dtype=np.int64)
    for part in columns:
        count_incoming(part[0], first)
    np.cumsum(first, out=first)
    size = int(first[-1])
    found = tuple(np.full(size, 77, dtype) for dtype in (np.int64, np.int64, np.uint8, np.int64))
    for dst, src, weight, kind in columns:
        place_incoming(dst, src, weight, kind.astype(np.uint8), src + 1, first, found)
    edges = [edge for part in columns for edge in part.T.tolist()]
    expected = [edge[1:] for v in range(num_vertices) for edge in edges if edge[0] == v]
    assert [list(edge) for edge in zip(*(column.tolist() for column in found), strict=True)] == [
        [src, weight, kind, src + 1] for src, weight, kind in expected
    ]
    counts = [sum(edge[0] == v for edge in edges) for v in range(num_vertices)]
    assert np.diff(first[:-1]).tolist() == counts
    assert first[0] == 0


@SETTINGS
@given(acyclic_graphs(), st.data())
def test_what_edges_leave_unexplained_gives_the_times_back(graph, data):
    num_vertices, edges = graph
    time = np.array(
        data.draw(st.lists(st.integers(-9, 9), min_size=num_vertices, max_size=num_vertices))
    )
    in_ptr, edges = grouped(num_vertices, edges)
    weight = np.array([edge[2] for edge in edges], dtype=np.int64)
    delay = np.full(num_vertices, 77)
    paths.unexplained_times(in_ptr, sources(edges), weight, time, delay)
    entered = [[edge for edge in edges if edge[1] == v] for v in range(num_vertices)]
    assert delay.tolist() == [
        time[v] - max((time[a] + w for a, _, w in entered[v]), default=0)
        for v in range(num_vertices)
    ]


KINDS = ("work", "wait", "delay")
NUM_OPS = 3
# of each vertex on a path: itself (the last ones belong to no operation), its delay, and the
# edge into it: weight, kind, operation or -1
steps_of_paths = st.lists(
    st.tuples(
        st.integers(0, 2 * NUM_OPS + 1), st.integers(0, 2),
        st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(-1, NUM_OPS - 1)),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@SETTINGS
@given(steps_of_paths, st.integers(0, 4), st.integers(-2, 6))
@example([(0, 0, (0, 0, -1)), (0, 0, (2, 0, -1)), (0, 0, (3, 0, -1))], 0, 0)
def test_stretches_of_a_path_equal_the_oracle(steps, first_delay, begin):
    steps[-1] = (0, *steps[-1][1:])  # a path ends with an operation
    reached, known = [], []
    for number, (_, delay, (weight, _, _)) in enumerate(steps):
        reached.append(reached[-1] + weight + delay if number else first_delay)
        known.append(number > 0)
    vertices = []
    num_ops = NUM_OPS + len(steps)
    by_vertex = np.zeros(2 * num_ops + len(steps), dtype=np.int64)
    for number, (vertex, delay, _) in enumerate(steps):
        # every second vertex of an operation of its own, or one that belongs to none
        own = 2 * num_ops + number if vertex >= 2 * NUM_OPS else 2 * number + vertex % 2
        vertices.append(own)
        by_vertex[own] = delay
    size = len(steps)
    edge = np.array([number if known[number] else -1 for number in range(size)])
    weight, kind, op = (np.array([step[2][k] for step in steps], dtype=np.int64) for k in range(3))
    dtypes = (np.int64, np.int64, np.int8, np.int32, np.int32)
    found = paths.Stretches(*(np.full(2 * size, 77, dtype) for dtype in dtypes))
    first = paths.stretches_of_path(
        np.array(vertices), edge, np.array(reached), begin, num_ops,
        paths.EdgeTimes(by_vertex, weight, op, kind.astype(np.uint8)),
        np.arange(3, dtype=np.int8), found,
    )  # fmt: skip
    expected = oracle.stretches(
        [
            (v // 2 if v < 2 * num_ops else None, delay,
             (w, KINDS[k], o if o >= 0 else None) if there else None, at)
            for v, (_, delay, (w, k, o)), there, at in zip(
                vertices, steps, known, reached, strict=True)
        ],
        begin,
    )  # fmt: skip
    assert [
        (start, end, KINDS[code], o if o >= 0 else None, place if place >= 0 else None)
        for start, end, code, o, place in zip(
            *(column[first:].tolist() for column in found), strict=True
        )
    ] == expected
