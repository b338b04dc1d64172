"""Threads that continue while gloo's work is still recorded, and what becomes of it in changes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import nadi
from nadi.graph import EdgeKind
from nadi.graph.edges.collective_edges import returns_early
from tests.amounts import examples
from tests.conftest import PairWriter

MS = 1_000.0  # us
SHORTEST = 30.0


def rank_of(
    folder: Path, rank: int, entry: float, *, done: float, told: float, back: float, caller: int = 1
) -> Path:
    """Write work until ``entry``, an all-reduce until ``done``, and work from ``back`` on.

    The thread continues at ``back``, gloo's range lasts until ``told``; times in us.
    """
    folder.mkdir(parents=True)
    pair = PairWriter(folder)
    pair.device_keys["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 2}
    pair.event("aten::mm", 0, entry - 20)
    pair.event("c10d::allreduce_", entry - 20, 10, tid=caller, **{"Record function id": 1})
    pair.event("aten::add", entry - 10, 5)
    pair.event("gloo:all_reduce", entry, max(told, done) - entry, "user_annotation", tid=5,
               **{"Record function id": 2, "In msg nelems": 4096, "dtype": "Float"})  # fmt: skip
    pair.event("aten::copy_", back, 100)
    return pair.write(str(rank))[1]


def job(folder: Path, **of_first: float) -> nadi.Job:
    """Rank 1 enters at 4 ms, and rank 0 at 1 ms; both continue 100 us later, 50 us too early."""
    usual = {"done": 4_150.0, "told": 4_150.0, "back": 4_100.0}
    return nadi.load_job(
        rank_of(folder / "0", 0, 1_000, **{**usual, **of_first}),  # type: ignore[arg-type]
        rank_of(folder / "1", 1, 4_000, **usual),
    )


def continues(graph: nadi.EventGraph) -> list[tuple[int, str]]:
    """Give rank and operation of each thread that continues early."""
    edges = np.flatnonzero(returns_early(graph))
    ops = graph.destinations[edges] // 2
    return list(zip(graph.op_trace[ops].tolist(), graph.names(ops).to_list(), strict=True))


def test_a_thread_that_continues_before_the_range_ends_waited(tmp_path: Path) -> None:
    graph = nadi.build_graph(job(tmp_path))
    assert continues(graph) == [(0, "aten::copy_"), (1, "aten::copy_")]
    assert (nadi.graph.replay_graph(graph).time == graph.time).all()
    # without rank 1's 4 ms of work, the step takes rank 0's 1 ms, and the transfer
    gain = nadi.what_if(graph, "scale aten::mm rank=1 0").gain_ns
    assert gain == pytest.approx(2_980_000, abs=50_000)


@pytest.mark.parametrize(("changed", "waited"), [
    ({"back": 4_150.0}, True),  # both end at once: found in the rank alone
    ({"back": 4_160.0}, True),
    ({"back": 4_000.0}, False),  # it continues before all have entered
    ({"back": 3_900.0, "told": 4_150.0}, False),
    ({"back": 4_001.0}, True),
])  # fmt: skip
def test_it_waited_if_all_had_entered(
    tmp_path: Path, changed: dict[str, float], waited: bool
) -> None:
    graph = nadi.build_graph(job(tmp_path, **changed))
    later = nadi.what_if(graph, "scale aten::mm rank=1 2")
    moved = later.replay.time - graph.time
    copies = [
        op for op in np.flatnonzero(graph.op_names == "aten::copy_") if graph.op_trace[op] == 0
    ]
    assert (moved[2 * np.array(copies)] > 3_000_000).all() == waited


def test_only_threads_that_ask_for_collectives_wait_for_them(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    times = {"done": 4_150.0, "told": 4_150.0, "back": 4_100.0}
    files = [
        rank_of(folders[0], 0, 1_000, **times, caller=3),  # type: ignore[arg-type]
        rank_of(folders[1], 1, 4_000, **times),  # type: ignore[arg-type]
    ]
    assert continues(nadi.build_graph(nadi.load_job(*files))) == [(1, "aten::copy_")]


CHANGES = (
    "scale gloo:all_reduce 0.5", "set gloo:all_reduce 10us", "network 1TB/s 5us",
    "remove gloo:all_reduce", "scale gloo:all_reduce 3",
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_transfer_moves_the_thread(tmp_path: Path, change: str) -> None:
    graph = nadi.build_graph(job(tmp_path))
    found = nadi.what_if(graph, change)
    vertex = graph.destinations[np.flatnonzero(returns_early(graph))]
    moved = found.replay.time[vertex] - graph.time[vertex]
    assert (moved > 0).all() if change.endswith(" 3") else (moved <= 0).all()
    assert moved.any()


def test_random_recordings_replay_exactly_and_only_gain_by_shorter_work(tmp_path: Path) -> None:
    for seed in range(examples(40)):
        rng = Random(seed)
        files = []
        for rank in range(2):
            entry = rng.choice((100, 1_000, 1_010, 4_000))
            done = 4_000 + rng.choice((10, 40, 100, 500))
            files.append(rank_of(
                tmp_path / f"{seed}-{rank}", rank, entry, done=done,
                told=done + rng.choice((0, 30, 200)),
                back=max(entry, done + rng.choice((-60, -40, -20, 0, 10, 300, 2_000))),
                caller=rng.choice((1, 1, 1, 3)),
            ))  # fmt: skip
        graph = nadi.build_graph(nadi.load_job(*files))
        assert (nadi.graph.replay_graph(graph).time == graph.time).all()
        assert (graph.weight >= 0).all()
        assert (graph.delay >= 0).all()
        early = np.flatnonzero(returns_early(graph))
        assert (graph.edge_kind[early] == EdgeKind.COMMUNICATION).all()
        assert (graph.time[graph.in_src[early]] < graph.time[graph.destinations[early]]).all()
        assert nadi.what_if(graph, "scale aten::mm 0.5").gain_ns >= 0
