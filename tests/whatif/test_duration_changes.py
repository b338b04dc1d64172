"""Set, remove and the network: small programs, exact times."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.graph.edges.collective_edges import returns_early
from nadi.graph.event_graph import EventGraph
from tests.conftest import PairWriter
from tests.whatif.programs import (
    ALL_REDUCE,
    ends,
    kernel,
    launch,
    ranks_that_meet,
    spans,
    three_kernels,
)


@pytest.fixture
def waiting(pair: PairWriter) -> EventGraph:
    """A kernel of 100 us that an operator waits for, 5 us longer than it lasts."""
    pair.op("aten::mm", 0, 20)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "gemm", 20, 120)
    pair.op("aten::item", 30, 100)
    pair.event("cudaDeviceSynchronize", 40, 85, "cuda_runtime", correlation=2)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def length_after(graph: EventGraph, *changes: str) -> float:
    return nadi.what_if(graph, *changes).window_ns / 1000


def test_a_kernel_takes_the_time_that_is_set(waiting: EventGraph) -> None:
    assert spans(waiting, "set gemm 50us")["gemm"] == (20, 70)
    assert length_after(waiting, "set gemm 50us") == 80
    assert length_after(waiting, "set gemm 0.1ms") == 130
    assert length_after(waiting, "set gemm 0us") == length_after(waiting, "scale gemm 0") == 45


def test_a_host_operation_takes_the_time_with_all_that_lies_in_it(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    pair.op("inner", 10, 40, parent=outer)
    pair.op("after", 150, 50)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "set outer 10us") == {
        "outer": (0, 10), "inner": (1, 5), "after": (60, 110),
    }  # fmt: skip
    assert spans(graph, "set inner 7us")["outer"] == (0, 67)
    # nested matches share the time of the outer one
    assert spans(graph, "set outer|inner 10us") == spans(graph, "set outer 10us")
    assert spans(graph, "set . 3us")["after"] == (53, 56)


def test_shares_add_up_to_the_nanosecond(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 70)
    for k in range(7):
        pair.op(f"inner {k}", 10 * k + 1, 3, parent=outer)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    for time in (1, 2, 5, 99, 1_000_003):
        start, end = spans(graph, f"set outer {time}ns")["outer"]
        assert end - start == time / 1000


def test_what_took_no_time_may_be_given_some(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    pair.op("instant", 10, 0, parent=outer)
    launch(pair, 1, 20, 5)
    kernel(pair, 1, "empty", 30, 30)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "set instant 4us")["instant"] == (10, 14)
    assert spans(graph, "set instant 4us")["outer"] == (0, 104)
    assert spans(graph, "set empty 4us")["empty"] == (30, 34)


def test_what_is_removed_is_not_launched(waiting: EventGraph) -> None:
    # the call goes, and who waits has nothing to wait for
    assert length_after(waiting, "remove gemm") == 40
    assert spans(waiting, "remove gemm")["aten::mm"] == (0, 15)
    # with the operator goes what it launches; the gap after it stays
    assert length_after(waiting, "remove aten::mm") == 25
    # who does not wait is done before the kernel
    assert spans(waiting, "remove cudaDeviceSynchronize")["aten::item"] == (30, 45)
    assert length_after(waiting, "remove cudaDeviceSynchronize") == 120
    assert length_after(waiting, "remove .") == 10  # but for the gap


def test_work_between_two_others_goes_with_its_turn_around(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    after = spans(graph, "remove k2")
    assert after["step"] == (0, 96)
    assert after["k3"] == (65, 80)  # 3.5 us after k1, and its delay
    assert spans(graph, "remove k1")["k2"] == (23, 51)  # its call ends 4 us sooner, at 20


def test_what_was_launched_on_another_thread_goes_too(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "k1", 20, 40)
    pair.op("other", 12, 100, tid=2)
    launch(pair, 2, 30, 5, tid=2)
    kernel(pair, 2, "k2", 45, 200)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    # its call ends at 35, then latency and the same delay as before
    assert spans(graph, "remove k1")["k2"] == (43, 198)
    assert spans(graph, "remove other")["k1"] == (20, 40)
    assert length_after(graph, "remove other") == 100


def test_ranks_do_not_wait_for_what_is_removed_on_another(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    assert ends(graph, ALL_REDUCE) == [62, 62, 62]
    assert ends(graph, ALL_REDUCE, f"remove {ALL_REDUCE} rank=1")[::2] == [32, 32]
    assert ends(graph, ALL_REDUCE, f"remove {ALL_REDUCE} rank=0")[1:] == [62, 62]
    # alone a rank waits for nobody, and sends as long as before
    assert ends(graph, ALL_REDUCE, "remove nccl rank=1,2")[0] == 22
    answer = nadi.what_if(graph, "remove kind=communication")
    assert answer.window_ns == 50_000 + 1_000  # the longest work, and the rest of its wait


def test_communication_is_priced_by_what_a_rank_sends(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50])
    # two ranks send 2 * 1/2 of 4,000 bytes each: at 1 GB/s 4 us
    assert ends(graph, ALL_REDUCE, "network 1GB/s") == [56, 56]
    assert ends(graph, ALL_REDUCE, "network 1GB/s 3us") == [59, 59]
    assert ends(graph, ALL_REDUCE, "network 8Mb/s") == [4052, 4052]


def test_a_network_needs_sizes(waiting: EventGraph) -> None:
    with pytest.raises(
        nadi.errors.UsageError, match="no communication in the trace has a known size"
    ):
        nadi.what_if(waiting, "network 1GB/s")


def test_on_threads_only_the_transfer_is_priced(demo_run: nadi.bottlenecks.Run) -> None:
    """Of gloo's operations the wait from the last arrival is the transfer, one edge of each.

    Another one of the operation lets a thread continue before its end.
    """
    graph = demo_run.graph
    changed = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("network 1000GB/s 777ns"))
    (other,) = (changed.weight != graph.weight).nonzero()
    ops = graph.edge_op[other[~returns_early(graph)[other]]].tolist()
    assert len(ops) == len(set(ops)) > 0
    assert {graph.gather("comm_type")[op] for op in ops}.isdisjoint({"none"})
    free = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("network 1000GB/s"))
    assert (nadi.graph.replay_graph(free).time <= nadi.graph.replay_graph(changed).time).all()
    assert (changed.weight[other] >= 777).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [("scale . 1e60", "century"), ("set . 1e9s", "century"), ("network 1e-6B/s", "below 1 B/s")],
)
def test_centuries_are_refused(tmp_path: Path, change: str, why: str) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50])
    with pytest.raises(nadi.errors.UsageError, match=why):
        nadi.what_if(graph, *[change])
