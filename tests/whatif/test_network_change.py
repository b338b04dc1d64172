"""Communication on another network: the price of each collective is its closed form."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch

# what is asked for, the kernel that does it, and how often a rank of n sends its bytes on a ring
RING = {
    "all_reduce": ("allreduce", "AllReduce_Sum_f32_RING_LL", lambda n: Fraction(2 * (n - 1), n)),
    "reduce_scatter": ("reduce_scatter", "ReduceScatter_Sum_f32", lambda n: Fraction(n - 1, n)),
    "all_to_all": ("all_to_all", "SendRecv", lambda n: Fraction(n - 1, n)),
    "gather": ("gather", "SendRecv", lambda n: Fraction(n - 1)),
    "scatter": ("scatter", "SendRecv", lambda n: Fraction(n - 1, n)),
    "all_gather": ("all_gather", "AllGather_RING_LL", lambda n: Fraction(n - 1)),
    "broadcast": ("broadcast", "Broadcast_RING_LL", lambda n: Fraction(1)),
    "reduce": ("reduce", "Reduce_Sum_f32", lambda n: Fraction(1)),
    "send": ("send", "SendRecv", lambda n: Fraction(1)),
    "recv": ("recv", "SendRecv", lambda n: Fraction(1)),
}


def communicating(
    folder: Path, ranks: int, elements: int, group: int | None, *, named: bool = True
) -> EventGraph:
    """Record every collective once on rank 0 of a job, in a group of its first ranks."""
    pair = PairWriter(folder)
    if ranks:
        groups = [] if group is None else [{"pg_name": "5", "ranks": list(range(group))}]
        pair.device_keys["distributedInfo"] = {
            "rank": 0, "world_size": ranks, "pg_config": groups,
        }  # fmt: skip
    pair.op("step", 0, 10_000)
    for number, (call, name, _) in enumerate(RING.values(), 1):
        launch(pair, number, 100 * number, 1)
        more = {"Process Group Name": "5"} if group is not None and named else {}
        size = {"In msg nelems": elements, "dtype": "Float"} if elements >= 0 else {}
        kernel(pair, number, f"ncclDevKernel_{name}", 100 * number + 10, 100 * number + 60,
               **more, **size, **{"Collective name": call})  # fmt: skip
    return nadi.build_graph(nadi.load_job(*pair.write()))


def transfer_times(graph: EventGraph, change: str) -> dict[str, int]:
    """Give what each communication takes after a change; ns."""
    replay = nadi.what_if(graph, change).replay
    types = graph.gather("comm_type").to_list()
    return {
        name: int(replay.time[2 * op + 1] - replay.time[2 * op])
        for op, name in enumerate(types) if name != "none"
    }  # fmt: skip


@pytest.mark.parametrize("latency", [0, 777])
@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (8, 3), (8, 8), (4, 1), (12, 5)])
def test_every_collective_takes_its_latency_and_what_a_ring_sends(
    tmp_path: Path, ranks: int, group: int, latency: int
) -> None:
    elements = 5 * 1009  # bytes that most rings cannot part evenly
    graph = communicating(tmp_path, ranks, elements, group)
    gbit = transfer_times(graph, f"network 1GB/s {latency}ns")  # a byte a nanosecond
    quarter = transfer_times(graph, f"network 250MB/s {latency}ns")
    assert set(gbit) == set(RING)
    for comm_type, (_, _, share) in RING.items():
        sent = round(4 * elements * share(group))
        assert gbit[comm_type] == latency + sent, comm_type
        assert quarter[comm_type] == latency + 4 * sent, comm_type


def test_time_is_rounded_to_the_nearest_nanosecond(tmp_path: Path) -> None:
    graph = communicating(tmp_path, 2, 1, 2)
    assert transfer_times(graph, "network 1.5GB/s")["broadcast"] == 3  # 4 bytes: 2.67 ns
    assert transfer_times(graph, "network 3GB/s")["broadcast"] == 1  # 1.33 ns


def test_without_a_group_all_ranks_of_the_job_take_part(tmp_path: Path) -> None:
    graph = communicating(tmp_path, 6, 600, None)
    assert transfer_times(graph, "network 1GB/s")["all_gather"] == 5 * 4 * 600


def test_nothing_to_send_takes_the_latency_alone(tmp_path: Path) -> None:
    graph = communicating(tmp_path, 4, 0, 4)
    assert set(transfer_times(graph, "network 1GB/s 5us").values()) == {5_000}


@pytest.mark.parametrize(("ranks", "elements"), [(4, -1), (0, 100)])
def test_unknown_sizes_and_partners_are_not_priced(
    tmp_path: Path, ranks: int, elements: int
) -> None:
    """A rank that is alone as far as is known, and yet communicates, has partners elsewhere."""
    graph = communicating(tmp_path, ranks, elements, 4 if ranks else None)
    with pytest.raises(nadi.errors.UsageError, match="no communication in the trace has a known"):
        nadi.what_if(graph, "network 1GB/s")


def test_what_began_before_the_window_keeps_its_time(tmp_path: Path) -> None:
    graph = communicating(tmp_path, 4, 1_000, 4)
    change = nadi.whatif.parse_change("network 1GB/s")
    edges = (graph.edge_kind == EdgeKind.COMMUNICATION).nonzero()[0]
    begins = graph.time[graph.in_src[edges]]
    moment = sorted(begins.tolist())[4]
    changed = nadi.whatif.apply_change(graph, change, moment).weight != graph.weight
    assert changed[edges].tolist() == (begins >= moment).tolist()
    assert not changed.all()


@pytest.mark.parametrize(("latency", "fits"), [(2**62 - 512, True), (2**62, False)])
def test_times_that_int64_nanoseconds_may_not_hold_are_refused(
    pair: PairWriter, latency: int, *, fits: bool
) -> None:
    pair.device_keys["distributedInfo"] = {"rank": 0, "world_size": 2, "pg_config": []}
    pair.op("step", 0, 10)
    launch(pair, 1, 0, 1)
    kernel(pair, 1, "ncclDevKernel_AllReduce", 2, 9, **{"In msg nelems": 0, "dtype": "Float"})
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    change = nadi.whatif.OnNetwork(1e9, latency)  # the next double below 2**62 is 512 less
    if fits:
        assert latency in change.apply(graph).weight
    else:
        with pytest.raises(nadi.errors.UsageError, match="would exceed a century"):
            change.apply(graph)


def test_a_change_is_written_as_it_is_read() -> None:
    for text in ("network 1GB/s", "network 1GB/s 1ns", "network 1GB/s 3us"):
        assert str(nadi.whatif.parse_change(text)) == text
