"""What a move is promised to gain at most: idle time of its thread, an earlier start of work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nadi
from nadi.whatif.reordering.movable_units import find_units
from nadi.whatif.reordering.move_search import Promise
from nadi.whatif.reordering.moves import Block
from nadi.whatif.reordering.operation_layout import OperationLayout
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch

LONG, SHORT = 10_000, 1_000  # ns, an operator


@pytest.fixture
def promise(pair: PairWriter) -> Promise:
    """Two threads of three operators each, that wait for nothing; all of it critical."""
    for thread in (1, 2):
        for number in range(3):
            length = LONG if number < 2 else SHORT
            pair.op(f"aten::o{number}", 20 * number, length / 1_000, tid=thread)
    return promise_of(nadi.build_graph(nadi.load_job(*pair.write())))


def promise_of(graph: nadi.EventGraph) -> Promise:
    replay = nadi.graph.replay_graph(graph)
    units = find_units(OperationLayout.of(graph), replay.time, 0)
    return Promise(units, replay, np.arange(graph.num_vertices))


def with_waits(promise: Promise, *waits: int) -> Promise:
    """Let each operator begin so many ns later than the one before lets it."""
    graph = promise.units.layout.graph
    delay = graph.delay.copy()
    delay[2 * promise.units.op] += waits
    return promise_of(replace(graph, delay=delay))


def test_a_thread_that_never_waits_has_no_unit_after_which_it_waits(promise: Promise) -> None:
    assert [promise.wait_before(unit) for unit in range(6)] == [-1] * 6


def test_a_thread_waits_after_the_last_unit_before_its_idle_time(promise: Promise) -> None:
    waiting = with_waits(promise, 0, 7, 0, 0, 0, 1)
    assert [waiting.wait_before(unit) for unit in range(6)] == [-1, 0, 0, 0, 0, 4]


def test_at_its_fence_a_unit_could_fill_all_idle_time_up_to_its_own_begin(
    promise: Promise,
) -> None:
    waiting = with_waits(promise, 0, 7, 90, 0, 500, 0)
    units = waiting.units
    assert (units.fence < units.begin).tolist() == [False, True, True, False, True, True]
    assert waiting.at_fence.tolist() == [0, 7, 97, 0, 500, 500]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("unit", [1, 2])
def test_a_unit_whose_start_or_end_is_critical_could_gain_and_no_other(
    promise: Promise, unit: int, side: int
) -> None:
    waiting = with_waits(promise, 0, 7, 90, 0, 0, 0)
    path = np.array([2 * waiting.units.op[unit] + side])
    gains = [0] * 6
    gains[unit] = [0, 7, 97][unit]
    replay = nadi.graph.replay_graph(waiting.units.layout.graph)
    assert Promise(waiting.units, replay, path).at_fence.tolist() == gains


@pytest.mark.parametrize(("wait", "gain"), [(300, 300), (SHORT, SHORT), (SHORT + 1, SHORT)])
def test_a_move_fills_the_idle_time_that_it_passes_with_its_own_time_at_most(
    promise: Promise, wait: int, gain: int
) -> None:
    waiting = with_waits(promise, 0, 50, wait, 0, 0, 0)
    assert waiting.of(Block(1, (2,))) == gain
    assert waiting.of(Block(0, (1, 2))) == 50 + wait
    assert waiting.of(Block(3, (5,))) == 0


@pytest.mark.parametrize("since", [0, 15_000])
@pytest.mark.parametrize("critical", [0, 1, 2])
def test_critical_work_could_start_as_soon_as_its_call_may(
    pair: PairWriter, critical: int, since: int
) -> None:
    for number in range(3):
        pair.op(f"aten::o{number}", 20 * number, 10)
        launch(pair, number + 1, 20 * number + 2, 5)
        kernel(pair, number + 1, f"k{number}", 100 + 10 * number, 105 + 10 * number)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    replay = nadi.graph.replay_graph(graph)
    units = find_units(OperationLayout.of(graph), replay.time, since)
    op = graph.op_names.to_list().index(f"k{critical}")
    promise = Promise(units, replay, np.array([2 * op]))
    may_start = replay.time[units.layout.chain[units.fence[critical]]]
    gains = [0, 0, 0]
    gains[critical] = int(replay.time[2 * op] - may_start)
    assert promise.at_fence.tolist() == gains
    first_ends = replay.time[2 * units.op[0] + 1]
    to_second = [promise.of(Block(0, (unit,))) for unit in (1, 2)]
    assert to_second == [int(replay.time[2 * op] - first_ends) * (critical == k) for k in (1, 2)]
