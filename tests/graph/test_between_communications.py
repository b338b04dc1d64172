"""Ranks meet in communications alone: the longest paths between these set all of their times."""

from __future__ import annotations

import numpy as np
import pytest

import nadi
from nadi.graph.replay import replay_graph
from tests.conftest import NOT_HERE, SHARED
from tests.reference.between_communications import ROOT, without_insides

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason=NOT_HERE)
_MOST = 10  # vertices, or edges, for each communication of a rank


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_dlrm8"])
def test_times_follow_from_paths_between_communications(name: str) -> None:
    graph = nadi.build_graph(nadi.load_job(TRACES / name))
    hub = 2 * graph.num_ops
    rank = np.append(np.repeat(graph.op_trace, 2), np.full(graph.num_vertices - hub, -1))
    apart = rank[graph.in_src] != rank[graph.destinations]
    assert (np.minimum(rank[graph.in_src], rank[graph.destinations])[apart] == -1).all()
    left = without_insides(graph)
    time = replay_graph(graph).time
    assert left.times() == {ROOT: 0} | {vertex: time[vertex] for vertex in left.vertices}
    meetings = int((graph.destinations >= hub).sum())
    assert len(left.vertices) <= _MOST * meetings
    assert sum(map(len, left.into.values())) <= _MOST * meetings


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_dlrm8"])
def test_faster_communication_has_the_same_times_without_insides(name: str) -> None:
    graph = nadi.build_graph(nadi.load_job(TRACES / name))
    hub = 2 * graph.num_ops
    transfers = graph.in_src >= hub
    changed = graph.with_weights(np.where(transfers, graph.weight // 3, graph.weight))
    left = without_insides(graph)
    for vertex, source, before, after in zip(
        graph.destinations[transfers].tolist(), graph.in_src[transfers].tolist(),
        graph.weight[transfers].tolist(), changed.weight[transfers].tolist(), strict=True,
    ):  # fmt: skip
        left.into[vertex][source] += after - before
    time = replay_graph(changed).time
    assert left.times() == {ROOT: 0} | {vertex: time[vertex] for vertex in left.vertices}
