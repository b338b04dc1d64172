"""Work spread evenly over ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from tests.analyze.test_verdict import run_of
from tests.conftest import PairWriter
from tests.whatif.programs import ranks_that_meet, three_kernels


def host_times(graph: EventGraph) -> list[int]:
    """Sum the time of operators by rank; ns."""
    own = np.flatnonzero((graph.edge_op >= 0) & (graph.edge_kind == EdgeKind.HOST_OP))
    own = own[(graph.gather("category") == "operator").to_numpy()[graph.edge_op[own]]]
    sums = np.zeros(len(graph.job.ranks), dtype=np.int64)
    np.add.at(sums, graph.op_trace[graph.edge_op[own]], graph.weight[own])
    return sums.tolist()


@pytest.mark.parametrize("change", ["balance work", "balance work rank=0,1,2"])
def test_each_rank_gets_the_mean_and_the_sum_stays(tmp_path: Path, change: str) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 30])
    made = nadi.whatif.apply_change(graph, nadi.whatif.parse_change(change))
    assert host_times(graph) == [10_000, 50_000, 30_000]
    assert host_times(made) == [30_000] * 3
    assert nadi.what_if(graph, change).gain_ns == 20_000


def test_ranks_that_are_left_out_keep_their_work(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 30])
    made = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("balance work rank=0,1"))
    assert host_times(made) == [30_000] * 3
    made = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("balance work rank=0,2"))
    assert host_times(made) == [20_000, 50_000, 20_000]


def test_a_rank_without_any_takes_its_share_over(tmp_path: Path) -> None:
    """Of 60 us of svd on one of two ranks, the other does 30 in the time of its own work."""
    run = run_of(tmp_path, [[("mm", 100.0)], [("mm", 100.0), *[("svd", 10.0)] * 6]])
    change = nadi.whatif.parse_change("balance svd")
    before, after = host_times(run.graph), host_times(nadi.whatif.apply_change(run.graph, change))
    assert before == [100_000, 160_000]
    # a part of the share lies between operations and in calls
    assert after[1] == 130_000
    assert 100_000 < after[0] <= 130_000
    assert 25_000 < nadi.what_if(run.graph, change).gain_ns <= 30_000


def test_a_single_rank_has_nobody_to_give_work_to(pair: PairWriter) -> None:
    with pytest.raises(nadi.errors.UsageError, match="two ranks or more"):
        nadi.what_if(three_kernels(pair), "balance .")


def test_communication_cannot_be_spread(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50])
    with pytest.raises(nadi.errors.UsageError, match="other than communication"):
        nadi.what_if(graph, "balance kind=communication")
