"""Balanced ranks: each takes the mean of what the ranks take without waits for each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.windows import choose_window, find_steps
from tests.conftest import PairWriter
from tests.whatif.programs import ranks_that_meet, three_kernels


def ends_of_ranks(graph: nadi.EventGraph, window: nadi.graph.Window, time: np.ndarray) -> list[int]:
    rank = graph.op_trace[window.last // 2]
    return [int(time[window.last[rank == r]].max()) for r in range(len(graph.job.traces))]


def test_each_rank_takes_the_mean(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 30])
    window = choose_window(graph, find_steps(graph))
    alone = nadi.what_if(graph, "cut arrival kind=communication", window=window)
    begin = window.start(graph.time)
    mean = int(np.mean(ends_of_ranks(graph, window, alone.replay.time))) - begin
    answer = nadi.what_if(graph, "balanced ranks", window=window)
    assert answer.step_ns == mean == nadi.whatif.balanced_ns(graph, window)
    assert ends_of_ranks(graph, window, answer.replay.time) == [begin + mean] * 3
    limits = {limit.name: limit.step_ns for limit in nadi.whatif.ideal_limits(graph, window)}
    assert limits["balanced ranks"] == mean


def test_the_window_is_what_is_balanced(demo_folder: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(demo_folder))
    for window in find_steps(graph):
        answer = nadi.what_if(graph, "balanced ranks", window=window)
        ends = ends_of_ranks(graph, window, answer.replay.time)
        assert ends == [window.start(graph.time) + answer.step_ns] * 4
        early = graph.time < window.start(graph.time)
        assert (answer.replay.time[: early.size][early] == graph.time[early]).all()


def test_a_rank_alone_waits_for_nobody(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert nadi.whatif.balanced_ns(graph, choose_window(graph, find_steps(graph))) is None
    with pytest.raises(nadi.errors.UsageError, match="no rank waits for another one"):
        nadi.what_if(graph, "balanced ranks")
