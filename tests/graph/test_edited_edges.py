"""A graph without some edges and with others is what sorting all of them anew makes of them."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from nadi.graph.event_graph import CycleError, EdgeKind, Edges, EventGraph
from tests.analyze.random_replays import operations, random_replay

_COLUMNS = ("in_ptr", "in_src", "weight", "edge_op", "edge_kind", "time", "delay")


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    return operations(tmp_path_factory.mktemp("ranks"))


def _more(rng: Random, num_vertices: int, num_new: int) -> Edges:
    """Draw edges, several into some vertices; of new vertices most are sources."""
    rows = []
    for number in range(rng.choice((0, 1, 3, 8))):
        src = rng.randrange(num_vertices + num_new)
        dst = rng.randrange(num_vertices + (num_new if rng.random() < 0.2 else 0))
        if rng.random() < 0.5 and rows:
            dst = rows[-1][1]
        rows.append((src, dst, number, int(EdgeKind.ADDED), -1))
    return Edges(*np.array(rows, dtype=np.int64).reshape(-1, 5).T)


def _or_cycle(make: Callable[[], EventGraph]) -> EventGraph | list[int]:
    try:
        return make()
    except CycleError as error:
        return error.vertices


@pytest.mark.parametrize("seed", range(60))
def test_edges_are_those_of_a_graph_that_is_sorted_anew(two_ranks: EventGraph, seed: int) -> None:
    rng = Random(seed)
    graph = random_replay(two_ranks, seed).graph
    share = rng.choice((0.0, 0.5, 0.9, 1.0))
    kept = np.array([rng.random() < share for _ in range(graph.num_edges)], dtype=np.bool_)
    weight = np.array([rng.randrange(9) for _ in range(graph.num_edges)], dtype=np.int64)
    num_new = rng.choice((0, 0, 2))
    more = _more(rng, graph.num_vertices, num_new)
    own = Edges(*(column[kept] for column in graph.edges._replace(weight=weight)))
    expected = _or_cycle(lambda: graph.with_edges([own, more], num_new))
    made = _or_cycle(lambda: graph.edited(kept, more, weight, num_new))
    if not isinstance(made, EventGraph) or not isinstance(expected, EventGraph):
        assert made == expected
        return
    for name in _COLUMNS:
        found, wanted = getattr(made, name), getattr(expected, name)
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found, wanted, name)
    place = np.empty(made.num_vertices, dtype=np.int64)
    place[made.order] = np.arange(made.num_vertices)
    assert (place[made.in_src] < place[made.destinations]).all()


def test_a_graph_with_all_of_its_edges_shares_them(two_ranks: EventGraph) -> None:
    graph = random_replay(two_ranks, 1).graph
    none = Edges(*np.empty((5, 0), dtype=np.int64))
    made = graph.edited(np.ones(graph.num_edges, dtype=np.bool_), none)
    assert made.in_ptr is graph.in_ptr
    assert made.in_src is graph.in_src


def test_the_given_graph_is_not_modified(two_ranks: EventGraph) -> None:
    graph = random_replay(two_ranks, 2).graph
    before = [getattr(graph, name).copy() for name in (*_COLUMNS, "order")]
    last = int(graph.order[-1])
    more = Edges(*np.array([(int(graph.order[0]), last, 1, int(EdgeKind.ADDED), -1)]).T)
    graph.edited(np.ones(graph.num_edges, dtype=np.bool_), more)
    for name, column in zip((*_COLUMNS, "order"), before, strict=True):
        np.testing.assert_array_equal(getattr(graph, name), column, name)
