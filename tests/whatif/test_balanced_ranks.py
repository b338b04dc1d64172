"""Balanced ranks: of each stretch between collectives, the ranks do as much each."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from nadi.graph import EdgeKind
from nadi.graph.windows import choose_window, find_steps
from tests.conftest import PairWriter
from tests.whatif.programs import ranks_that_meet, three_kernels


def balanced(graph: nadi.EventGraph) -> nadi.whatif.WhatIf:
    return nadi.what_if(graph, "balanced ranks")


def test_each_rank_does_the_mean(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 30])
    window = choose_window(graph, find_steps(graph))
    answer = balanced(graph)
    assert answer.gain_ns == pytest.approx(20_000, abs=1_000)
    assert answer.window_ns == nadi.whatif.balanced_ranks(graph, window).window_ns
    assert answer.window_ns == nadi.what_if(graph, "balance .").window_ns
    limits = {limit.name: limit.window_ns for limit in nadi.whatif.ideal_limits(graph, window)}
    assert limits["balanced ranks"] == answer.window_ns


def gloo_ranks(folder: Path, ranks: list[list[tuple[str, float, float]]]) -> nadi.EventGraph:
    """Let ranks on threads of their own do operations, from and until moments in us.

    Sends, receives and all_reduces are asked for and waited for in one call.
    """
    for rank, ops in enumerate(ranks):
        writer = PairWriter(folder)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": len(ranks),
            "pg_config": [{"pg_name": "0", "ranks": list(range(len(ranks)))}],
        }  # fmt: skip
        for name, start, end in ops:
            if name in ("send", "recv", "all_reduce"):
                peer = {"Src Rank" if name == "recv" else "Dst Rank": 1 - rank}
                writer.op(f"gloo:{name}", start, end - start, cat="user_annotation", **{
                    "Process Group Name": "0", "Collective name": name.replace("_", ""),
                    **(peer if name != "all_reduce" else {}),
                })  # fmt: skip
            else:
                writer.op(name, start, end - start)
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    return nadi.build_graph(nadi.load_job(folder))


def test_work_goes_to_no_other_side_of_a_collective(tmp_path: Path) -> None:
    """Each rank does twice as much as the other, in turns: the sums alone are balanced."""
    graph = gloo_ranks(tmp_path, [
        [("mm", 0, 100), ("all_reduce", 100, 210), ("add", 210, 410), ("all_reduce", 410, 420)],
        [("mm", 0, 200), ("all_reduce", 200, 210), ("add", 210, 310), ("all_reduce", 310, 420)],
    ])  # fmt: skip
    assert (graph.edge_kind == EdgeKind.ARRIVAL).sum() == 4
    assert balanced(graph).gain_ns == pytest.approx(100_000, abs=2_000)


def test_a_receive_still_waits_for_what_its_sender_does_first(tmp_path: Path) -> None:
    """Of 100 and 300 us in a row each rank does 200: no rank can begin sooner than before."""
    graph = gloo_ranks(tmp_path, [
        [("forward", 0, 100), ("send", 100, 110)],
        [("recv", 0, 110), ("forward", 110, 410)],
    ])  # fmt: skip
    assert (graph.edge_kind == EdgeKind.ARRIVAL).sum() == 2
    assert abs(balanced(graph).gain_ns) <= 2_000


@pytest.mark.parametrize(("lengths", "heaviest"), [([100, 100, 100], 1), ([100], -1)])
def test_the_heavier_of_ranks_that_work_in_turn_is_named(
    tmp_path: Path, lengths: list[int], heaviest: int
) -> None:
    ends = np.cumsum([110, *lengths]).tolist()
    gloo_ranks(tmp_path, [
        [("forward", 0, 100), ("send", 100, 110), ("recv", 110, ends[-1] + 10)],
        [("recv", 0, 110), *(("forward", *two) for two in itertools.pairwise(ends)),
         ("send", ends[-1], ends[-1] + 10)],
    ])  # fmt: skip
    run = nadi.run(tmp_path)
    first, *others = verdict_in_words(run)
    assert run.verdict.bound_by == "host"
    assert run.verdict.heaviest == heaviest
    assert ("The host bounds the whole trace, mostly on rank 1:" in first) is (heaviest == 1)
    more = "Rank 1 has more work than the others: it runs 3.0 times as many operators (3 against 1)"
    assert any(one.startswith(more) for one in others) is (heaviest == 1)


def test_a_rank_that_begins_late_has_no_work_to_give_away(tmp_path: Path) -> None:
    graph = gloo_ranks(tmp_path, [
        [("mm", 0, 100), ("all_reduce", 100, 410)],
        [("mm", 300, 400), ("all_reduce", 400, 410)],
    ])  # fmt: skip
    assert balanced(graph).gain_ns == 0


def test_nothing_before_the_window_changes(demo_folder: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(demo_folder))
    for window in find_steps(graph):
        answer = nadi.what_if(graph, "balanced ranks", window=window)
        early = graph.time < window.start(graph.time)
        assert (answer.replay.time[: early.size][early] == graph.time[early]).all()
        assert np.array_equal(answer.replay.graph.in_src, graph.in_src)


def test_a_rank_alone_waits_for_nobody(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert nadi.whatif.balanced_ranks(graph, choose_window(graph, find_steps(graph))) is None
    with pytest.raises(nadi.errors.UsageError, match="over two ranks or more"):
        nadi.what_if(graph, "balanced ranks")
