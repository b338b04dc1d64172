"""One order of communication for all ranks, whatever order each of them had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nadi
from nadi.simulation.workload.activities import Activities
from nadi.simulation.workload.simulator_communication import Order, Transfer, find_order
from tests.reference.feeder import COLL, FeederError, FeederNode, replay


def job(*spans: tuple[int, int, int], deps: list[tuple[int, int]]) -> Activities:
    """Make activities of (rank, start, end), all of them communication."""
    trace, start, end = np.array(spans, dtype=np.int64).T
    size = trace.size
    src, dst = np.array(deps, dtype=np.int64).reshape(-1, 2).T
    return Activities(
        trace=trace, op=np.arange(size), on_thread=trace < 0, is_comm=trace >= 0, start=start,
        end=end, duration=end - start, resource=np.arange(size), src=src, dst=dst,
        first_of_op=np.arange(size), last_of_op=np.arange(size),
    )  # fmt: skip


def collective(entered: int, *ops: int, ranks: tuple[int, ...] = (0, 1)) -> Transfer:
    return Transfer(ops, ranks, "all_reduce", "all_reduce", 8, 1, -1, entered)


def pairs(order: Order) -> set[tuple[int, int]]:
    return set(zip(order.src.tolist(), order.dst.tolist(), strict=True))


def check(found: Order, activities: Activities) -> None:
    assert sorted(found.position.tolist()) == list(range(activities.op.size))
    src = np.concatenate([activities.src, found.src])
    dst = np.concatenate([activities.dst, found.dst])
    assert (found.position[src] < found.position[dst]).all()


def test_ranks_that_began_in_different_orders() -> None:
    """Rank 0 enters A before B and rank 1 the other way round; B is entered by all first."""
    activities = job((0, 0, 30), (0, 10, 20), (1, 15, 30), (1, 5, 20), deps=[])
    found = find_order(activities, [collective(10, 1, 3), collective(15, 0, 2)], np.arange(4))
    assert pairs(found) == {(1, 0), (3, 2)}
    check(found, activities)


def nodes_of(rank: int, activities: Activities, turns: set[tuple[int, int]]) -> list[FeederNode]:
    """Write the activities of a rank: even ones are of group A, odd ones of group B."""
    own = np.flatnonzero(activities.trace == rank).tolist()
    return [
        FeederNode(
            number, "", COLL, 1, [src for src, dst in turns if dst == number],
            {"is_cpu_op": False, "pg_name": "AB"[number % 2], "measured_transfer_ns": 10},
        )
        for number in own
    ]  # fmt: skip


def test_without_turns_a_simulator_stands_still() -> None:
    activities = job((0, 0, 30), (0, 10, 20), (1, 5, 20), (1, 0, 30), deps=[])
    # rank 0 has A, then B by number; rank 1 too, but A there waits for B
    groups = {"A": [0, 1], "B": [0, 1]}
    ranks = [nodes_of(rank, activities, {(3, 2)}) for rank in (0, 1)]
    with pytest.raises(FeederError, match="ranks stand still"):
        replay(ranks, groups)
    transfers = [collective(5, 0, 2), collective(10, 1, 3)]
    activities = replace(activities, src=np.array([3]), dst=np.array([2]))
    found = find_order(activities, transfers, np.arange(4))
    assert pairs(found) == {(1, 0), (3, 2)}
    assert replay([nodes_of(rank, activities, pairs(found)) for rank in (0, 1)], groups)


def test_an_order_that_dependencies_forbid() -> None:
    """Rank 0 left B, as the root of a broadcast may, before A, which was entered sooner."""
    activities = job((0, 10, 20), (0, 0, 5), (1, 9, 20), (1, 30, 40), deps=[(1, 0)])
    found = find_order(activities, [collective(10, 0, 2), collective(30, 1, 3)], np.arange(4))
    assert pairs(found) == {(1, 0), (3, 2)}
    check(found, activities)


def test_a_circle() -> None:
    activities = job((0, 10, 20), (0, 0, 5), (1, 9, 20), (1, 30, 40), deps=[(1, 0), (2, 3)])
    with pytest.raises(nadi.NadiError, match="wait for each other in a cycle"):
        find_order(activities, [collective(10, 0, 2), collective(30, 1, 3)], np.arange(4))


def test_a_receiver_takes_no_turn() -> None:
    """A receive is posted before the collective, and ends after it."""
    activities = job((0, 5, 10), (0, 20, 30), (1, 0, 30), (1, 6, 10), deps=[])
    send = Transfer((1, 2), (0, 1), "send", "send", 8, -1, 0, 20)
    found = find_order(activities, [collective(6, 0, 3), send], np.arange(4))
    assert pairs(found) == {(0, 1)}
    check(found, activities)


def test_without_communication() -> None:
    activities = job((0, 5, 10), (0, 5, 5), (0, 0, 5), deps=[(2, 1), (1, 0)])
    found = find_order(activities, [], np.full(3, -1))
    assert found.position.tolist() == [2, 1, 0]
    assert found.src.size == 0
