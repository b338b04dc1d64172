"""Exposed communication."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from tests.conftest import PairWriter


def measured(pair: PairWriter) -> tuple[int, int]:
    run = nadi.run(*pair.write())
    (rank,) = run.communication
    return rank.communication, rank.exposed


def test_on_a_device_kernels_hide_communication_and_copies_do_not(pair: PairWriter) -> None:
    pair.op("op", 0, 300)
    common = {"pid": 0, "device": 0}
    pair.event("ncclDevKernel_AllReduce", 0, 100, "kernel", tid=9, stream=9, **common)
    pair.event("ncclDevKernel_AllReduce", 150, 100, "kernel", tid=9, stream=9, **common)
    pair.event("gemm", 20, 30, "kernel", tid=7, stream=7, **common)
    pair.event("gemm", 40, 30, "kernel", tid=8, stream=8, **common)
    pair.event("Memcpy DtoD", 150, 100, "gpu_memcpy", tid=7, stream=7, **common)
    assert measured(pair) == (200_000, 150_000)


def test_without_a_device_operators_outside_of_communication_hide_it(pair: PairWriter) -> None:
    step = pair.op("ProfilerStep#1", 0, 300, cat="user_annotation")
    pair.op("c10d::allreduce_", 5, 10, parent=step)
    pair.op("aten::mm", 20, 40, parent=step)
    gloo = pair.op("gloo:all_reduce", 10, 100, cat="user_annotation", tid=2, parent=step)
    pair.op("aten::add_", 70, 20, tid=2, parent=gloo)
    assert measured(pair) == (105_000, 65_000)  # from the call on


def test_an_operator_hides_communication_in_its_self_time_only(pair: PairWriter) -> None:
    """Those that wait for communication, or ask for it, lie in others that autograd runs."""
    layer = pair.op("RowwiseParallel", 0, 200)
    asked = pair.op("_c10d_functional::all_reduce", 5, 20, parent=layer)
    pair.op("c10d::allreduce_", 10, 10, parent=asked)
    pair.op("_c10d_functional::wait_tensor", 40, 80, parent=layer)
    pair.op("gloo:all_reduce", 12, 100, cat="user_annotation", tid=2, parent=layer)
    # from the call, at 10, until the wait ends; hidden from 20 to 40, as the call ends at 20
    assert measured(pair) == (110_000, 90_000)


def test_only_the_window_counts(pair: PairWriter) -> None:
    pair.op("ProfilerStep#1", 0, 50, cat="user_annotation")
    pair.op("gloo:all_reduce", 40, 100, cat="user_annotation", tid=2)
    run = nadi.run(*pair.write())
    # the work starts within the step, so the step lasts until it ends
    assert run.measured_ns == 140_000
    found = nadi.graph.communication_by_rank(run.graph, 0, 60_000)
    assert [(c.communication, c.exposed) for c in found] == [(20_000, 20_000)]


def test_the_first_operation_of_all_may_be_what_asks(pair: PairWriter) -> None:
    """What lies within it is no computation, as of any other that asks for communication."""
    first = pair.op("c10d::allreduce_", 0, 100)
    pair.op("aten::add_", 20, 40, parent=first)
    pair.op("gloo:all_reduce", 10, 100, cat="user_annotation", tid=2)
    assert measured(pair) == (110_000, 110_000)


def test_a_window_holds_what_is_in_it_to_the_nanosecond(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 300)
    for start in (10, 60):
        pair.event("ncclDevKernel_AllReduce", start, 20, "kernel", pid=0, tid=9, stream=9, device=0)
    graph = nadi.run(*pair.write()).graph
    for low, high, expected in ((10_000, 80_000, 40), (10_001, 79_999, 39.998), (30_000, 60_000, 0),
                                (29_999, 60_001, 0.002), (80_000, 90_000, 0)):  # fmt: skip
        (found,) = nadi.graph.communication_by_rank(graph, low, high)
        assert (found.communication, found.exposed) == (1000 * expected, 1000 * expected)


@pytest.mark.parametrize("name", ["Sum", "mylib::all_reduce"])
def test_an_operator_that_waits_for_its_own_communication_does_not_hide_it(
    pair: PairWriter, name: str
) -> None:
    layer = pair.op(name, 0, 200)
    asked = pair.op("c10d::allreduce_", 10, 10, parent=layer)
    pair.op("gloo:all_reduce", 15, 170, cat="user_annotation", tid=2, parent=asked)
    # it waits from 20, where the call ends, until it ends
    assert measured(pair) == (175_000, 175_000)


@pytest.mark.parametrize("way", ["fn0", "fn1", "fn2"])
def test_a_wait_is_a_wait_wherever_it_is_called_from(shared_programs: Path, way: str) -> None:
    """One program with its blocking collective as it is, in a function of autograd, in a label.

    Rank 1 does eight times as much: the other waits for it for nearly half of all time.
    """
    run = nadi.run(shared_programs / "min_fn" / "rec" / way)
    verdict = run.verdict
    assert verdict.bound_by == "straggler"
    assert verdict.late is not None
    assert verdict.late.rank == 1
    assert 0.35 < 1 - verdict.balanced_ns / verdict.length_ns < 0.5
    assert 0.4 < verdict.exposed_ns / verdict.length_ns < 0.55
    waited = dict(run.stragglers.ranks.select("rank", "waited").iter_rows())
    for rank in run.communication:
        assert waited[rank.rank] <= rank.exposed <= rank.communication
