"""Waits for gloo on a machine that schedules threads late: the straggler stays the bottleneck."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from tests.conftest import PairWriter

ROUNDS = 6
LATE_US = 8_000


def rank_of(folder: Path, rank: int, work_us: float, late: dict[int, float]) -> Path:
    """Write rounds of computation and a blocking all_reduce that ends 100 us after 2 ms each.

    ``late`` says how long the thread takes to go on after some of them; else 50 us.
    """
    folder.mkdir()
    pair = PairWriter(folder)
    pair.device_keys["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 2}
    begin = 0.0
    for k in range(ROUNDS):
        entry = begin + work_us
        done = begin + 2_100
        pair.event("aten::linalg_svd" if work_us > 1_000 else "aten::mm", begin, work_us - 20)
        pair.event("c10d::allreduce_", entry - 20, 10, **{"Record function id": 10 * k + 1})
        pair.event("gloo:all_reduce", entry, done - entry, "user_annotation", tid=5,
                   **{"Record function id": 10 * k + 2})  # fmt: skip
        begin = done + 50 + max(late.get(k, 0), 0)
        # both ranks begin a round together
    pair.event("aten::add", begin, 10)
    return pair.write(str(rank))[1]


def job(tmp_path: Path, late: float) -> nadi.bottlenecks.Run:
    """Rank 1 computes 2 ms a round and rank 0 a tenth; both go on late after round 3."""
    idle = rank_of(tmp_path / "0", 0, 200, {3: late})
    busy = rank_of(tmp_path / "1", 1, 2_000, {3: late})
    return nadi.run(idle, busy, what_if="remove linalg_svd")


@pytest.mark.parametrize("late", [0, 400, LATE_US])
def test_the_straggler_is_on_the_path_however_late_threads_go_on(
    tmp_path: Path, late: float
) -> None:
    run = job(tmp_path, late)
    top = run.path.by_operation().row(0, named=True)
    assert (top["name"], top["kind"]) == ("aten::linalg_svd", "host op")
    assert run.path.by_kind()["host op"] >= ROUNDS * 1_980_000
    # what rank 0 does remains: nearly all of its 1.8 ms of waiting a round
    assert run.what_ifs[0].gain_ns == pytest.approx(ROUNDS * 1_780_000, rel=0.1)


def test_going_on_late_is_a_delay_and_not_explained(tmp_path: Path) -> None:
    run = job(tmp_path, LATE_US)
    assert run.path.by_kind()["unexplained"] == pytest.approx(LATE_US * 1000, rel=0.01)
    assert (
        run.explained.measured_ns - run.explained.explained_ns == run.path.by_kind()["unexplained"]
    )
