"""What operations are called and what else nodes say of them, and graphs from edges in parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.kernels import paths
from tests.amounts import examples
from tests.conftest import PairWriter


def node_of(graph: EventGraph, op: int, column: str) -> object:
    return graph.job.traces[graph.op_trace[op]].nodes[column][int(graph.op_row[op])]


@settings(max_examples=examples(40))
@given(st.data())
def test_columns_are_those_of_the_operations_in_any_order(
    demo_run: nadi.bottlenecks.Run, data: st.DataObject
) -> None:
    graph = demo_run.graph
    ops = np.array(
        data.draw(st.lists(st.integers(0, graph.num_ops - 1), max_size=20)), dtype=np.int32
    )
    assert graph.numbers("thread", ops).tolist() == [node_of(graph, o, "thread") for o in ops]
    assert graph.gather("name", ops).to_list() == [node_of(graph, o, "name") for o in ops]
    nameless = ops % 2 == 1
    names = ["" if o % 2 else node_of(graph, o, "name") for o in ops]
    assert graph.names(ops, nameless).to_list() == names


def test_columns_of_all_operations_stand_in_their_order(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    every = range(graph.num_ops)
    assert len(graph.job.traces) > 1
    assert graph.op_names.to_list() == [node_of(graph, op, "name") for op in every]
    assert graph.numbers("id").tolist() == [node_of(graph, op, "id") for op in every]
    assert graph.gather("id").to_list() == graph.numbers("id").tolist()


def test_of_one_rank_too(pair: PairWriter) -> None:
    for k in range(3):
        pair.op(f"op{k}", 10 * k, 5)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    ops = np.array([2, 0, 2])
    assert graph.names(ops).to_list() == ["op2", "op0", "op2"]
    assert graph.names(ops, np.array([False, True, False])).to_list() == ["op2", "", "op2"]
    assert graph.numbers("start", ops).tolist() == [
        graph.time[2 * op] + graph.job.origin for op in ops
    ]
    assert graph.names(ops[:0]).to_list() == graph.numbers("id", ops[:0]).tolist() == []


def test_vertices_and_edges_are_numbered_with_32_bits(
    demo_run: nadi.bottlenecks.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_run.graph
    narrow = {"in_ptr", "in_src", "edge_op", "order", "destinations"}
    assert {getattr(graph, name).dtype for name in narrow} == {np.dtype(np.int32)}
    every = np.ones(graph.num_edges, dtype=np.bool_)
    one = make_edges(np.array([0]), np.array([graph.num_vertices - 1]), 0, EdgeKind.ADDED, -1)
    monkeypatch.setattr(paths, "_MOST_NUMBERS", graph.num_edges)
    assert graph.with_edges(graph.edges).num_edges == graph.num_edges
    for make in (
        lambda: graph.edited(every, one),
        lambda: graph.with_edges([graph.edges, one]),
        lambda: graph.with_edges(graph.edges, graph.num_edges),
        lambda: paths.edges_by_vertex(one.src, one.dst, graph.num_edges + 1),
    ):
        with pytest.raises(nadi.NadiError, match=f"can have up to {graph.num_edges:,} of each"):
            make()


@pytest.mark.parametrize("num_parts", [1, 3, 7])
def test_edges_may_come_in_parts(demo_run: nadi.bottlenecks.Run, num_parts: int) -> None:
    graph = demo_run.graph
    columns = [np.array_split(column, num_parts) for column in graph.edges]
    parts = [Edges(*part) for part in zip(*columns, strict=True)]
    again = EventGraph.build(
        graph.job, graph.op_trace, graph.op_row, graph.op_parent, graph.time, parts
    )
    for name in ("delay", "in_ptr", "in_src", "weight", "edge_op", "edge_kind", "op_stream"):
        mine, others = getattr(again, name), getattr(graph, name)
        assert mine.tolist() == others.tolist()
        assert mine.dtype == others.dtype
    assert (nadi.graph.replay_graph(again).time == graph.time).all()
