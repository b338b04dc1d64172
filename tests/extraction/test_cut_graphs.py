"""Graphs cut in two: against a slow oracle, and part and rest together give the whole."""

from __future__ import annotations

import numpy as np
import pytest

import nadi
from nadi.graph import EventGraph, replay_graph
from nadi.sharing import Cut, cut_graph
from tests.amounts import examples
from tests.analyze.random_replays import operations, random_replay
from tests.reference import borders

SEEDS = range(examples(150))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    return operations(tmp_path_factory.mktemp("two_ranks"))


def random_cut(two_ranks: EventGraph, seed: int) -> tuple[EventGraph, np.ndarray, Cut]:
    graph = random_replay(two_ranks, seed).graph
    chosen = np.random.default_rng(seed).random(graph.num_ops) < 0.5
    return graph, chosen, cut_graph(graph, chosen)


def exchange(graph: EventGraph, cut: Cut, time: np.ndarray) -> np.ndarray:
    """Let both halves hand each other their times until these stay the same."""
    time = time.copy()
    for _ in range(graph.num_vertices + 2):
        before = time.copy()
        for half in (cut.part, cut.rest):
            time[half.own] = half.replay(time).time[: half.own.size]
        if np.array_equal(time, before):
            return time
    raise AssertionError("the halves do not agree")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_is_that_of_the_oracle(two_ranks: EventGraph, seed: int) -> None:
    graph, chosen, cut = random_cut(two_ranks, seed)
    edges = list(zip(graph.in_src.tolist(), graph.destinations.tolist(), graph.weight.tolist(),
                     strict=True))  # fmt: skip
    part = borders.inside(edges, graph.num_ops, graph.num_vertices, chosen.tolist())
    rest = set(range(graph.num_vertices)) - part
    assert sorted(part) == cut.part.own.tolist()
    assert sorted(rest) == cut.rest.own.tolist()
    assert cut.border.tolist() == borders.border(edges, part)
    given = np.random.default_rng(seed).integers(0, 50, graph.num_vertices)
    for half, own in ((cut.part, part), (cut.rest, rest)):
        wanted = borders.solve(edges, graph.delay.tolist(), own, given.tolist())
        assert half.replay(given).time[: half.own.size].tolist() == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_part_and_rest_give_the_whole(two_ranks: EventGraph, seed: int) -> None:
    graph, chosen, cut = random_cut(two_ranks, seed)
    for half in (cut.part, cut.rest):
        assert half.replay(graph.time).time[: half.own.size].tolist() == (
            graph.time[half.own].tolist()
        )
    weight = np.random.default_rng(seed).integers(0, 9, graph.num_edges)
    changed = graph.with_weights(weight)
    wanted = replay_graph(changed).time
    assert exchange(changed, cut_graph(changed, chosen), graph.time).tolist() == wanted.tolist()


def test_a_part_of_everything_waits_for_nothing(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    cut = cut_graph(graph, np.ones(graph.num_ops, dtype=np.bool_))
    assert cut.border.size == cut.part.num_given == cut.rest.own.size == 0
    assert cut.part.graph.weight.tolist() == graph.weight.tolist()
    assert cut.part.replay(graph.time).time.tolist() == graph.time.tolist()


def test_operations_of_a_half_keep_their_names_and_parents(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    chosen = np.arange(graph.num_ops) % 3 > 0
    part = cut_graph(graph, chosen).part.graph
    assert part.op_names.to_list() == graph.op_names.filter(chosen.tolist()).to_list()
    parents = part.op_parent[part.op_parent >= 0]
    assert (part.time[2 * parents] <= part.time[2 * np.flatnonzero(part.op_parent >= 0)]).all()
