"""Placements by the solver: as good as the best of all, and no worse than those by room."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.errors import UsageError
from nadi.memory import BySolver
from nadi.memory.placement.placed_steps import PlainStep, plain_step
from nadi.memory.placement_choice import ByRoom, TierRoom, moves_ever, rooms_of
from nadi.memory.placement_solver import (
    MOVES,
    PlacementCase,
    case_of_tensors,
    cost_of_placement,
    excess_bytes,
    most_bytes,
    placement_program,
    solve_case,
)
from nadi.systems.memory_tiers import second_tier
from tests.amounts import examples
from tests.reference.placements import best_cost, lacking, least_lacking

pytest.importorskip("highspy", reason="the solver is an extra")
CLOSE = 2e-5
SIZES = st.integers(1, 12)


@st.composite
def cases(draw: st.DrawFn) -> PlacementCase:
    """A few tensors, some of them alike, and some that never move."""

    def lives(count: int) -> np.ndarray:
        rows = []
        for _ in range(count):
            begin = draw(st.integers(0, 5))
            rows.append((draw(SIZES), begin, draw(st.integers(begin + 1, 7))))
        return np.array(rows, dtype=np.int64).reshape(-1, 3).T

    count = draw(st.integers(1, 4))
    size, begin, end = lives(count)
    windows = draw(st.integers(1, 3))
    mover, window, is_store, moved = [], [], [], []
    for tensor in range(count):
        for _ in range(draw(st.integers(1, 3))):
            mover.append(tensor)
            window.append(draw(st.integers(0, windows - 1)))
            is_store.append(draw(st.integers(0, 1)))
            moved.append(draw(st.integers(1, int(size[tensor]))))
    work = draw(st.lists(st.integers(0, 20), min_size=windows, max_size=windows))
    columns = [np.array(one, dtype=np.int64) for one in (mover, window, is_store, moved)]
    if draw(st.booleans()):  # the first tensor twice
        again = columns[0] == 0
        columns = [np.append(one, one[again]) for one in columns]
        columns[0][-int(again.sum()) :] = count
        size, begin, end = (np.append(one, one[0]) for one in (size, begin, end))
    return PlacementCase(
        np.arange(size.size), size, begin, end, lives(draw(st.integers(0, 2))), *columns,
        np.array(work, dtype=np.int64),
    )  # fmt: skip


@st.composite
def rooms_of_tiers(draw: st.DrawFn) -> list[TierRoom]:
    """One or two lower tiers."""
    rooms = [TierRoom("hbm", draw(st.integers(0, 40)))]
    for number in range(draw(st.integers(1, 2))):
        capacity = draw(st.sampled_from([math.inf, 5.0, 12.0, 30.0]))
        rates = [draw(st.sampled_from([0.25, 0.5, 1.0, 4.0])) for _ in range(2)]
        rooms.append(TierRoom(f"tier{number}", capacity, *rates, draw(st.sampled_from([0.0, 2.0]))))
    return rooms


@settings(max_examples=examples(200), deadline=None)
@given(cases(), rooms_of_tiers())
def test_no_placement_is_better(case: PlacementCase, rooms: list[TierRoom]) -> None:
    found = solve_case(case, rooms)
    least = best_cost(case, rooms, MOVES)
    tier = tuple(found.tier.tolist())
    if least is None:
        assert found.missing == least_lacking(case, rooms)
        assert lacking(case, rooms, tier) == found.missing
        return
    assert found.missing == 0
    assert lacking(case, rooms, tier) == 0
    assert not excess_bytes(case, rooms, found.tier).any()
    assert found.cost_ns == pytest.approx(least, rel=CLOSE, abs=CLOSE)
    assert found.bound_ns <= least * (1 + CLOSE) + CLOSE
    step, moves = cost_of_placement(case, rooms, found.tier)
    assert found.step_ns == step
    assert found.cost_ns == step + MOVES * moves


@settings(max_examples=examples(100), deadline=None)
@given(cases(), rooms_of_tiers(), st.integers(0, 2), st.floats(1.0, 4.0))
def test_more_of_a_tier_is_never_worse(
    case: PlacementCase, rooms: list[TierRoom], which: int, factor: float
) -> None:
    which = min(which, len(rooms) - 1)
    room = rooms[which]
    before = solve_case(case, rooms)
    for name in ("capacity", "read_rate", "write_rate"):
        more = room._replace(**{name: getattr(room, name) * factor})
        after = solve_case(case, [*rooms[:which], more, *rooms[which + 1 :]])
        assert after.missing <= before.missing
        if not before.missing:
            assert after.cost_ns <= before.cost_ns * (1 + CLOSE) + CLOSE


@settings(max_examples=examples(100), deadline=None)
@given(cases(), rooms_of_tiers(), st.data())
def test_a_placement_to_begin_with_is_the_worst_that_comes_out(
    case: PlacementCase, rooms: list[TierRoom], data: st.DataObject
) -> None:
    tiers = st.lists(
        st.integers(0, len(rooms) - 1), min_size=case.size.size, max_size=case.size.size
    )
    begin = np.array(data.draw(tiers), dtype=np.int64)
    found = solve_case(case, rooms, 10.0, [begin])
    if not excess_bytes(case, rooms, begin).any():
        step, moves = cost_of_placement(case, rooms, begin)
        assert found.cost_ns <= step + MOVES * moves
    assert 0 <= found.gap < 1


def test_without_tensors_or_tiers_nothing_is_chosen() -> None:
    empty = np.zeros(0, dtype=np.int64)
    stays = np.array([[7], [0], [3]])
    case = PlacementCase(*[empty] * 4, stays, *[empty] * 4, np.array([5, 6]))
    found = solve_case(case, [TierRoom("hbm", 4), TierRoom("cxl", 9.0, 1.0, 1.0)])
    assert (found.step_ns, found.missing, found.gap) == (11, 3, 0)
    assert solve_case(case, [TierRoom("hbm", 9)]).missing == 0


def plain_70b() -> PlainStep:
    job = nadi.llm_job("llama3-70b", tp=8, micro_batch=1, global_batch=1, sequence=512)
    return plain_step(job, nadi.load_system("dgx-h100", 8))


def test_a_generated_job_is_placed_no_worse_than_by_room() -> None:
    plain = plain_70b()
    (tensors,) = plain.tensors.traces
    costs = []
    for memory, rate in ((100, 64.0), (60, 64.0), (60, 512.0)):
        system = msgspec.structs.replace(
            plain.system, tiers=(second_tier(rate),), memory_capacity=memory << 30
        )
        staging = plain.staging(system)
        rooms = rooms_of(system, staging.buffers)
        case = case_of_tensors(tensors, staging.distance, staging.buffers)
        assert int(case.work.sum()) == plain.ns
        (found,) = BySolver(6.0, staging.distance, staging.buffers).solve(plain.tensors, rooms)
        (by_room,) = ByRoom()(plain.tensors, rooms)
        assert not found.tier[~moves_ever(tensors)].any()
        tier = found.tier[case.life]
        assert excess_bytes(case, rooms, tier).max() <= 1e-6 * rooms[0].capacity
        step, moves = cost_of_placement(case, rooms, by_room[case.life])
        assert found.cost_ns <= step + MOVES * moves
        assert found.bound_ns <= found.cost_ns
        placed = plain.placed((found.tier,), system, staging)
        assert placed.excess <= 1e-6 * rooms[0].capacity
        costs.append(found.cost_ns)
    assert costs[0] <= costs[1] >= costs[2]


def test_equal_tensors_are_one_column() -> None:
    plain = plain_70b()
    (tensors,) = plain.tensors.traces
    case = case_of_tensors(tensors)
    made = placement_program(case, [TierRoom("hbm", 1e12), TierRoom("cxl", math.inf, 64.0, 64.0)])
    groups = int(made.group.max()) + 1
    assert groups < case.size.size
    for group in range(groups):
        some = np.flatnonzero(made.group == group)
        assert np.unique(case.size[some]).size == 1


def test_a_recording_is_placed(demo_folder: Path) -> None:
    plain = plain_step(nadi.recordings.read_job(str(demo_folder)), nadi.load_system("dgx-h100", 4))
    most = max(most_bytes(case_of_tensors(one)) for one in plain.tensors.traces)
    system = msgspec.structs.replace(plain.system, tiers=(second_tier(1.0),))
    rooms = (TierRoom("hbm", 0.8 * most), *rooms_of(system)[1:])
    for one, found in zip(
        plain.tensors.traces, BySolver(2.0).solve(plain.tensors, rooms), strict=True
    ):
        case = case_of_tensors(one)
        assert found.tier.any() == (most_bytes(case) > rooms[0].capacity)
        assert excess_bytes(case, rooms, found.tier[case.life]).max() <= found.missing + 1


def test_a_solver_needs_time() -> None:
    with pytest.raises(UsageError, match="seconds=0: no time"):
        BySolver(0)


def test_the_command_says_how_good_it_is(
    demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = [str(demo_folder), "--system", "dgx-h100", "--memory", "16MiB"]
    assert main(["memory", "place", *job, "--bandwidth", "1", "--place", "solver"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"placement: by solver, (the least of its model|at most [\d.]+ %)", printed)
