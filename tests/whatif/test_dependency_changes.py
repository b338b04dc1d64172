"""Dependencies added and cut, work on other streams: small programs, exact times."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
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
def graph(pair: PairWriter) -> EventGraph:
    pair.op("beside", 0, 50, tid=2)
    pair.op("late", 40, 5, tid=3)
    pair.op("later", 70, 5, tid=3)
    return three_kernels(pair)


def test_what_is_added_is_waited_for(graph: EventGraph) -> None:
    after = spans(graph, "add beside -> k1")
    assert after["k1"] == (53, 93)  # with its delay of 3 us
    assert after["k3"] == (128, 143)
    assert spans(graph, "add k1 -> later")["later"] == (70, 75)  # no sooner than before
    assert spans(graph, "add k2 -> later")["later"] == (90, 95)


def test_the_first_of_a_thread_is_held_up_no_further_than_it_must(graph: EventGraph) -> None:
    """Its own time is since the job's origin, and is not added to that of what it waits for."""
    assert spans(graph, "add k1 -> late$")["late"] == (60, 65)
    assert spans(graph, "add k1 -> late$")["later"] == (90, 95)
    assert spans(graph, "add k1 -> late$", "scale k1$ 0.25")["late"] == (40, 45)
    assert spans(graph, "add k1 -> late$", "add k2 -> late$")["late"] == (90, 95)
    assert spans(graph, "add late$ -> beside")["beside"] == (45, 95)


def test_one_holds_up_all_and_others_hold_up_their_partners(graph: EventGraph) -> None:
    after = spans(graph, "add beside -> late|later")
    assert (after["late"], after["later"]) == ((50, 55), (80, 85))
    pairs = spans(graph, "add k[23] -> ^late")
    assert (pairs["late"], pairs["later"]) == ((90, 95), (120, 125))
    with pytest.raises(nadi.errors.UsageError, match="3 operations on the left and 2 on the right"):
        nadi.what_if(graph, r"add ^k\d -> ^late")


def test_a_cycle_is_named(graph: EventGraph) -> None:
    with pytest.raises(nadi.errors.UsageError, match="cycle") as caught:
        nadi.what_if(graph, "add k3 -> k1")
    message = str(caught.value)
    assert "change 'add k3 -> k1'" in message
    for name in ("start of k1 (rank 0, row ", "end of k3 (rank 0, row "):
        assert name in message
    with pytest.raises(nadi.errors.UsageError, match="start of k1"):
        nadi.what_if(graph, "add k1 -> k1")


def test_the_path_goes_through_what_was_added(graph: EventGraph) -> None:
    answer = nadi.what_if(graph, "add k3 -> late$")
    path = answer.path
    assert path.length == answer.window_ns == 110_000 + 5_000 + 25_000 + 5_000
    assert path.by_operation().filter(name="late")["time"].to_list() == [5_000]
    # where nothing holds it up, the time before it is its own delay
    alone = nadi.what_if(graph, "add beside -> late$", "set beside 1us", "scale later 100")
    rows = alone.path.segments.select("rank", "name", "kind", "start", "end").rows()
    assert rows[0] == (0, "late", "unexplained", 0, 40_000)
    assert alone.path.length == alone.window_ns


def test_what_is_cut_is_not_waited_for(graph: EventGraph) -> None:
    assert spans(graph, "cut stream k2")["k2"] == (27, 55)
    assert spans(graph, "cut stream k2")["k3"] == (60, 75)
    # k3 comes after its call at 34, a latency of 3 us, and its delay of 1.5 us
    assert spans(graph, "cut stream k3")["k3"] == (38.5, 53.5)
    # without its launch k1 waits for nothing but its delay, k2 for its own launch
    assert spans(graph, "cut launch k1")["k1"] == (3, 43)
    with pytest.raises(
        nadi.errors.UsageError, match=r"no sync dependency .* theirs are: launch, stream"
    ):
        nadi.what_if(graph, "cut sync k2")


def test_what_waits_for_nothing_begins_with_the_window(pair: PairWriter) -> None:
    pair.op("before", 0, 1_000)
    pair.op("ProfilerStep#1", 1_000, 100, cat="user_annotation")
    launch(pair, 1, 1_020, 5)
    kernel(pair, 1, "k1", 1_030, 1_090)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "cut launch k1")["k1"] == (1_002, 1_062)  # with its delay of 2 us
    assert nadi.what_if(graph, "cut launch k1").window_ns == 100_000
    whole = nadi.graph.replay_graph(
        nadi.whatif.apply_change(graph, nadi.whatif.parse_change("cut launch k1"))
    ).time
    op = graph.op_names.to_list().index("k1")
    assert whole[2 * op] == 2_000


def test_a_call_does_not_wait_for_what_is_cut(pair: PairWriter) -> None:
    pair.op("step", 0, 200)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "k1", 20, 120)
    pair.event("cudaDeviceSynchronize", 40, 85, "cuda_runtime", correlation=2)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "cut sync cudaDevice")["cudaDeviceSynchronize"] == (40, 40)
    assert spans(graph, "cut sync cudaDevice")["step"] == (0, 115)


def test_a_rank_does_not_wait_without_arrivals(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    # 10 us after its own start, as the data takes
    assert ends(graph, ALL_REDUCE, "cut arrival nccl rank=0") == [22, 62, 62]
    assert ends(graph, ALL_REDUCE, "cut arrival nccl") == [22, 62, 32]
    limits = {limit.name: limit.window_ns for limit in nadi.whatif.ideal_limits(
        graph, nadi.graph.choose_window(graph, []))}  # fmt: skip
    assert limits["no communication"] == 51_000


def test_moved_work_follows_what_was_launched_before_it(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    # k2 starts 3 us after its call; k3 follows k1 now, 2.75 us being usual, with its delay
    assert spans(graph, "move k2 to 9") == {
        "step": (0, 100), "k1": (20, 60), "k2": (27, 55), "k3": (64.25, 79.25),
    }  # fmt: skip
    assert spans(graph, "move k[12] to 9") == {
        "step": (0, 100), "k1": (20, 60), "k2": (62, 90), "k3": (38.5, 53.5),
    }  # fmt: skip
    assert spans(graph, "move k. to 7") == spans(graph)
    with pytest.raises(nadi.errors.UsageError, match="none of these operations runs on a device"):
        nadi.what_if(graph, "move step to 9")


def test_work_moves_between_work_that_is_there(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    for number, (start, stream, begin, end) in enumerate(
        [(10, 7, 20, 40), (20, 9, 30, 60), (30, 7, 40, 50), (40, 9, 60, 80)], 1
    ):
        launch(pair, number, start, 5)
        kernel(pair, number, f"k{number}", begin, end, stream)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    # on stream 9 k3 comes between k2 and k4; turn-arounds are 0 here
    after = spans(graph, "move k3 to 9")
    assert (after["k2"], after["k3"], after["k4"]) == ((30, 60), (60, 70), (70, 90))


def test_work_of_calls_that_overlap_follows_in_the_order_of_their_starts(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 50)
    launch(pair, 2, 20, 5, tid=2)
    kernel(pair, 1, "k1", 70, 80, 7)
    kernel(pair, 2, "k2", 90, 95, 9)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    moved = nadi.what_if(graph, "move k2 to 7").replay.graph
    names = graph.op_names.to_list()
    k1, k2 = names.index("k1"), names.index("k2")
    of_stream = moved.edge_kind == nadi.graph.EdgeKind.STREAM
    found = list(zip(moved.in_src[of_stream], moved.destinations[of_stream], strict=True))
    assert found == [(2 * k1 + 1, 2 * k2)]


def test_work_moved_twice_stays_moved(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    twice = spans(graph, "move k1 to 9", "move k2 to 9")
    assert twice["k1"] == (20, 60)
    assert twice["k2"] == (63.5, 91.5)  # after k1, with the turn-around that is usual by then
    assert twice["k3"] == (38.5, 53.5)
    assert spans(graph, "move k2 to 9", "move k2 to 7") == spans(
        graph, "move k2 to 9", "move stream=9 to 7"
    )
    back = spans(graph, "move k2 to 9", "move k2 to 7")
    assert back["k2"][0] == 60 + 2.75  # follows k1 again, with the usual turn-around
    changed = nadi.what_if(graph, "move k1 to 9").replay
    assert "device 0 stream 9" in changed.schedule().table["resource"].to_list()


def test_work_of_other_devices_stays_on_its_device(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    for number, device in ((1, 0), (2, 1)):
        launch(pair, number, 10 * number, 5)
        kernel(pair, number, f"k{number}", 30, 50 + number, 6 + number, device)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "move k1 to 8") == spans(graph)


@pytest.mark.parametrize("ran_before", [False, True])
def test_who_waits_for_a_stream_waits_for_both_parts_of_it(
    pair: PairWriter, *, ran_before: bool
) -> None:
    """Also for work that ran before anything was recorded on the host."""
    pair.op("step", int(ran_before), 200)
    if not ran_before:
        launch(pair, 1, 10, 5)
    kernel(pair, 1, "long", 0 if ran_before else 20, 120)
    launch(pair, 2, 20, 5)
    kernel(pair, 2, "short", 120, 130)
    pair.event("cudaDeviceSynchronize", 40, 95, "cuda_runtime", correlation=3)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    for change in ("move long to 9", "move short to 9"):
        after = spans(graph, change)
        assert after["short"][1] < 50
        assert after["cudaDeviceSynchronize"] == (40, 125)  # 5 us after the long one


@pytest.mark.parametrize("streams", [(7, 8), (8, 7)])
def test_both_parts_of_a_stream_wait_for_what_it_waited_for(
    pair: PairWriter, streams: tuple[int, int]
) -> None:
    """Whichever stream comes first; what was told to wait was the first work of its stream."""
    of, waits = streams
    pair.op("step", 0, 300)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "source", 20, 120, of)
    pair.event("cudaEventRecord", 16, 1, "cuda_runtime", correlation=2)
    pair.event("cudaStreamWaitEvent", 18, 1, "cuda_runtime", correlation=3)
    pair.event("Stream Wait Event", 19, 1, "cuda_sync", pid=0, tid=waits, correlation=3, device=0,
               stream=waits, wait_on_stream=of, wait_on_cuda_event_record_corr_id=2)  # fmt: skip
    for number, start in ((4, 120), (5, 130)):
        launch(pair, number, 10 * number, 5)
        kernel(pair, number, f"k{number}", start, start + 10, waits)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    for change in ("move k4 to 9", "move k5 to 9"):
        after = spans(graph, change)
        assert (after["k4"], after["k5"]) == ((120, 130), (120, 130))
    assert spans(graph, "move k. to 9") == spans(graph)


def test_each_rank_s_work_moves_on_its_own_devices(tmp_path: Path) -> None:
    graph = ranks_that_meet(tmp_path, [10, 50, 20])
    moved = nadi.what_if(graph, f"move {ALL_REDUCE} rank=1,2 to 9")
    of_reduce = graph.op_names.eq(ALL_REDUCE).to_numpy()
    assert moved.replay.graph.op_stream[of_reduce].tolist() == [7, 9, 9]
    assert moved.replay.time.tolist() == nadi.graph.replay_graph(graph).time.tolist()
