"""The event graph through networkx and back."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import CycleError, EventGraph
from tests.conftest import PairWriter


@pytest.fixture
def graph(pair: PairWriter) -> EventGraph:
    pair.op("aten::mm", 0, 20)
    pair.event("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", 20, 100, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.op("aten::item", 30, 100)
    pair.event("cudaDeviceSynchronize", 40, 85, "cuda_runtime", correlation=2)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def vertex(digraph: nx.DiGraph, name: str, moment: str) -> int:
    (found,) = [
        node
        for node, said in digraph.nodes(data=True)
        if (said.get("name"), said.get("moment")) == (name, moment)
    ]
    return found


def test_there_and_back_is_the_same_graph(graph: EventGraph) -> None:
    again = nadi.from_networkx(nadi.to_networkx(graph))
    for name in ("time", "delay", "in_ptr", "in_src", "weight", "edge_op", "edge_kind"):
        assert getattr(again, name).tolist() == getattr(graph, name).tolist(), name
    assert nadi.graph.replay_graph(again).time.tolist() == graph.time.tolist()


def test_a_real_recording_there_and_back(demo_folder: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(demo_folder))
    digraph = nadi.to_networkx(graph)
    assert nx.is_directed_acyclic_graph(digraph)
    again = nadi.from_networkx(digraph)
    assert (nadi.graph.replay_graph(again).time == graph.time).all()
    assert again.num_edges == digraph.number_of_edges() <= graph.num_edges


def test_nodes_and_edges_say_what_they_are(graph: EventGraph) -> None:
    digraph = nadi.to_networkx(graph)
    start, end = vertex(digraph, "gemm", "start"), vertex(digraph, "gemm", "end")
    assert digraph.nodes[start]["time"] == 20_000
    assert (digraph.edges[start, end]["weight"], digraph.edges[start, end]["kind"]) == (
        100_000,
        "kernel",
    )


def test_weights_edges_and_nodes_may_be_edited(graph: EventGraph) -> None:
    digraph = nadi.to_networkx(graph)
    start, end = vertex(digraph, "gemm", "start"), vertex(digraph, "gemm", "end")
    digraph.edges[start, end]["weight"] = 50_000
    assert nadi.graph.replay_graph(nadi.from_networkx(digraph)).time.max() == 80_000

    # a new moment 200 us after the launch, for which the kernel has to wait
    call = vertex(digraph, "cudaLaunchKernel", "end")
    digraph.add_edge(call, "arrives", weight=200_000)
    digraph.add_edge("arrives", start)
    changed = nadi.graph.replay_graph(nadi.from_networkx(digraph))
    assert changed.time[start] == 215_000 + graph.delay[start]
    assert changed.time.max() > 265_000


def test_what_came_at_a_time_of_its_own_still_comes_no_sooner(pair: PairWriter) -> None:
    pair.op("first", 0, 10)
    pair.op("other", 50, 10, tid=2)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    for weight, start in ((0, 50_000), (70_000, 80_000)):
        digraph = nadi.to_networkx(graph)
        end, other = vertex(digraph, "first", "end"), vertex(digraph, "other", "start")
        digraph.add_edge(end, other, weight=weight)
        assert nadi.graph.replay_graph(nadi.from_networkx(digraph)).time[other] == start


def test_operations_may_be_taken_out(graph: EventGraph) -> None:
    digraph = nadi.to_networkx(graph)
    start, end = vertex(digraph, "gemm", "start"), vertex(digraph, "gemm", "end")
    digraph.remove_nodes_from([start, end])
    changed = nadi.from_networkx(digraph)
    assert changed.num_ops == graph.num_ops - 1
    assert "gemm" not in changed.op_names.to_list()
    assert nadi.graph.replay_graph(changed).time.max() == 45_000
    schedule = nadi.graph.replay_graph(changed).schedule().table
    assert schedule.height == changed.num_ops

    digraph = nadi.to_networkx(graph)
    digraph.remove_node(start)
    with pytest.raises(nadi.errors.UsageError, match="only one of the two nodes of gemm"):
        nadi.from_networkx(digraph)


def test_what_lay_in_an_operation_that_is_gone_lies_in_the_next_around(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    middle = pair.op("middle", 10, 50, parent=outer)
    pair.op("inner", 20, 10, parent=middle)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    digraph = nadi.to_networkx(graph)
    gone = [vertex(digraph, "middle", moment) for moment in ("start", "end")]
    before, after = vertex(digraph, "outer", "start"), vertex(digraph, "inner", "start")
    digraph.add_edge(before, after, weight=20_000)
    digraph.add_edge(
        vertex(digraph, "inner", "end"), vertex(digraph, "outer", "end"), weight=70_000
    )
    digraph.remove_nodes_from(gone)
    changed = nadi.from_networkx(digraph)
    names = changed.op_names.to_list()
    assert [names[p] if p >= 0 else "" for p in changed.op_parent] == ["", "outer"]
    assert nadi.graph.replay_graph(changed).time.tolist() == [0, 100_000, 20_000, 30_000]


def test_a_cycle_is_named_with_its_operations(graph: EventGraph) -> None:
    digraph = nadi.to_networkx(graph)
    digraph.add_edge(vertex(digraph, "gemm", "end"), "between")
    digraph.add_edge("between", vertex(digraph, "aten::mm", "start"))
    with pytest.raises(CycleError) as raised:
        nadi.from_networkx(digraph)
    for part in ("start of aten::mm (rank 0, row", "end of gemm", "between"):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [({"weight": 1.5}, "has weight 1.5"), ({"kind": "magic"}, "has kind 'magic'")],
)
def test_edges_that_make_no_sense(graph: EventGraph, said: dict, message: str) -> None:
    digraph = nadi.to_networkx(graph)
    digraph.add_edge("a", "b", **said)
    with pytest.raises(nadi.errors.UsageError, match=message):
        nadi.from_networkx(digraph)


def test_a_graph_of_somebody_else_is_refused() -> None:
    with pytest.raises(nadi.errors.UsageError, match="was not made by to_networkx"):
        nadi.from_networkx(nx.DiGraph([(1, 2)]))


def test_longest_paths_agree_with_networkx(graph: EventGraph) -> None:
    digraph = nadi.to_networkx(graph)
    assert nx.dag_longest_path_length(digraph) + int(graph.delay.max()) >= graph.time.max()
    numpy_weight = nadi.to_networkx(graph)
    for *_, said in numpy_weight.edges(data=True):
        said["weight"] = np.int64(said["weight"])
    assert (nadi.graph.replay_graph(nadi.from_networkx(numpy_weight)).time == graph.time).all()
