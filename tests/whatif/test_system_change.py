"""A recording on another machine: prices of communication, and the change made of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

import nadi
from nadi.cli import main
from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind
from nadi.simulation import message_time
from nadi.simulation.on_system import prices_on
from nadi.systems import System
from nadi.systems.library import read_system_file
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch

pytestmark = pytest.mark.usefixtures("demo_read_once")


def followed(ranks: int) -> System:
    """A system whose collectives are followed message by message."""
    return msgspec.structs.replace(nadi.load_system("dgx-h100", ranks), nccl=None)


NODE = followed(8)


@pytest.mark.parametrize("size", [1, 4096, 1_000_003])
def test_a_collective_of_all_takes_its_closed_form(size: int) -> None:
    whole = int(2 * 235 + size / 450) + 10
    start = 3600 + 10
    assert nadi.simulation.collective_time(NODE, "all_gather", size) == start + 7 * whole
    # a broadcast goes from each to the next in whole pieces and a rest, one after the other: the
    # rest follows the last whole one at its pace, and is alone only on its last way
    num_whole, rest = divmod(size, 65536)
    piece = 65536 if num_whole else rest
    each = int(2 * 235 + piece / 450) + 10
    last = int(2 * 235 + rest / 450) + 10
    pace = max(int(piece / 450), 10)
    assert (
        nadi.simulation.collective_time(NODE, "broadcast", size)
        == start + num_whole * pace + 6 * each + last
    )
    assert nadi.simulation.collective_time(
        NODE, "broadcast", size, root=5
    ) == nadi.simulation.collective_time(NODE, "broadcast", size)


@pytest.mark.parametrize("size", [1, 4096, 1_000_003])
def test_a_group_within_a_node_is_as_a_smaller_node(size: int) -> None:
    for comm_type in ("all_reduce", "all_gather", "reduce_scatter"):
        of_group = nadi.simulation.collective_time(NODE, comm_type, size, (1, 3, 4, 6))
        assert of_group == nadi.simulation.collective_time(followed(4), comm_type, size)


def test_groups_across_nodes_pay_for_the_way_between() -> None:
    system = followed(16)
    near = nadi.simulation.collective_time(system, "all_reduce", 1 << 24, (0, 1))
    far = nadi.simulation.collective_time(system, "all_reduce", 1 << 24, (0, 8))
    assert far > 5 * near
    assert nadi.simulation.collective_time(system, "all_reduce", 1 << 24, (3,)) == 0
    assert nadi.simulation.collective_time(system, "barrier", 0) < nadi.simulation.collective_time(
        system, "all_reduce", 1 << 20
    )


def test_messages_take_the_way_between_their_ranks() -> None:
    system = nadi.load_system("dgx-h100", 16)
    size = 1 << 20
    assert message_time(system, size, 0, 3) == pytest.approx(2 * 235 + size / 450, abs=1)
    assert message_time(system, size, 0, 8) == pytest.approx(2 * 1350 + size / 50, abs=1)


@pytest.mark.parametrize(("comm_type", "group"), [("send", ()), ("all_reduce", (0, 8))])
def test_what_cannot_be_priced_is_refused(comm_type: str, group: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        nadi.simulation.collective_time(NODE, comm_type, 1, group)


@pytest.mark.parametrize("rank", [0, 7, 15])
def test_messages_are_priced_from_rank_to_rank_the_first_and_the_last_too(
    pair: PairWriter, rank: int
) -> None:
    """Within a node and between nodes; a rank sends to others and receives from them."""
    system = nadi.load_system("dgx-h100", 16)
    pair.device_keys["distributedInfo"] = {
        "rank": rank, "world_size": 16, "pg_config": [{"pg_name": "0", "ranks": list(range(16))}],
    }  # fmt: skip
    expected = []
    for number, peer in enumerate(p for p in (0, 1, 8, 14, 15) if p != rank):
        for k, verb in enumerate((f"send {rank}->{peer}", f"recv {rank}<-{peer}")):
            call, at = 2 * number + k + 1, 200 * (2 * number + k)
            pair.op(f"nccl:{verb}", at, 20, cat="user_annotation")
            launch(pair, call, at + 5, 5)
            kernel(
                pair,
                call,
                "ncclDevKernel_SendRecv",
                at + 20,
                at + 60,
                **{"In msg nelems": 10_000, "dtype": "Float", "Process Group Name": "0"},
            )
            ends = (rank, peer) if k == 0 else (peer, rank)
            expected.append(message_time(system, 40_000, *ends))
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    prices = prices_on(graph, system)
    kernels = (graph.gather("category") == "kernel").to_numpy()
    assert prices.time[kernels].tolist() == expected
    assert len(set(expected)) > 1
    assert prices.by_type["left"].sum() == 0
    assert prices.by_type["priced"].sum() == len(expected)


def test_a_collective_is_priced_for_the_ranks_of_its_group(pair: PairWriter) -> None:
    system = nadi.load_system("dgx-h100", 16)
    groups = {"near": [0, 1], "far": [0, 8], "all": list(range(16))}
    pair.device_keys["distributedInfo"] = {
        "rank": 0, "world_size": 16,
        "pg_config": [{"pg_name": name, "ranks": ranks} for name, ranks in groups.items()],
    }  # fmt: skip
    pair.op("step", 0, 1_000)
    for number, name in enumerate(groups, 1):
        launch(pair, number, 100 * number, 5)
        said = {"In msg nelems": 10_000, "dtype": "Float", "Process Group Name": name}
        begin = 100 * number + 10
        kernel(pair, number, "ncclDevKernel_AllReduce_Sum", begin, begin + 40, **said)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    time = prices_on(graph, system).time[(graph.gather("category") == "kernel").to_numpy()]
    assert time.tolist() == [
        nadi.simulation.collective_time(system, "all_reduce", 40_000, tuple(ranks))
        for ranks in groups.values()
    ]
    assert len(set(time.tolist())) == len(groups)


def test_only_communication_takes_another_time(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    change = nadi.bottlenecks.on_system(demo_run.job, read_system_file("dgx-h100"))
    changed = change.apply(graph)
    differs = changed.weight != graph.weight
    assert differs.any()
    assert (graph.edge_kind[differs] == EdgeKind.COMMUNICATION).all()
    prices = prices_on(graph, change.system)
    sizes = graph.gather("comm_bytes").to_numpy()
    types = graph.gather("comm_type").to_list()
    everybody = set(range(4))
    groups = [trace.groups["ranks"].to_list() for trace in graph.job.traces]
    of_op = graph.gather("group").to_numpy()
    checked = 0
    for op in np.flatnonzero(prices.time >= 0)[:200].tolist():
        members = groups[graph.op_trace[op]][of_op[op]] if of_op[op] >= 0 else everybody
        if types[op] == "all_reduce" and set(members) == everybody:
            expected = nadi.simulation.collective_time(change.system, "all_reduce", int(sizes[op]))
            assert prices.time[op] == expected
            checked += 1
    assert checked


def test_what_lies_before_the_window_stays(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    change = nadi.bottlenecks.on_system(demo_run.job, read_system_file("pcie-workstation"))
    assert (change.apply(graph, 2**62).weight == graph.weight).all()


def test_a_slower_network_takes_longer_and_goes_with_other_changes(
    demo_run: nadi.bottlenecks.Run,
) -> None:
    names = ("pcie-workstation", "dgx-h100")
    files = (msgspec.structs.replace(read_system_file(name), nccl=None) for name in names)
    slow, fast = (nadi.bottlenecks.on_system(demo_run.job, file) for file in files)
    graph, window = demo_run.graph, demo_run.window
    alone = nadi.what_if(graph, slow, window=window)
    assert nadi.what_if(graph, fast, window=window).window_ns < alone.window_ns
    both = nadi.what_if(graph, slow, "scale aten::mm 0.5", window=window)
    assert both.window_ns < alone.window_ns
    assert [str(change) for change in both.changes] == [
        "on pcie-workstation", "scale aten::mm 0.5"
    ]  # fmt: skip


def test_a_system_of_another_size_is_refused(demo_run: nadi.bottlenecks.Run) -> None:
    with pytest.raises(UsageError, match="it has 8 ranks, but the job has 4"):
        nadi.simulation.OnSystem(NODE).apply(demo_run.graph)


def kernels_on(pair: PairWriter, device: str) -> nadi.Job:
    pair.device_keys["deviceProperties"] = [{"id": 0, "name": device}]
    pair.op("aten::mm", 0, 10)
    pair.event("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=5)
    pair.event("gemm", 6, 100, "kernel", tid=7, pid=0, correlation=5, stream=7, device=0)
    return nadi.load_job(*pair.write())


def test_kernels_are_faster_by_the_smaller_ratio_where_the_device_is_known(
    pair: PairWriter,
) -> None:
    job = kernels_on(pair, "NVIDIA A100-SXM4-80GB")
    change = nadi.bottlenecks.on_system(job, read_system_file("dgx-h100"))
    assert change.kernel_factor == pytest.approx(2039 / 3350)
    assert "an estimate" in change.reason
    graph = nadi.build_graph(job)
    kernel = graph.edge_kind == EdgeKind.KERNEL
    assert graph.weight[kernel].tolist() == [100_000]
    assert change.apply(graph).weight[kernel].tolist() == [round(100_000 * 2039 / 3350)]
    assert (change.apply(graph).weight == graph.weight)[~kernel].all()


def test_kernels_of_an_unknown_device_take_their_recorded_time(pair: PairWriter) -> None:
    change = nadi.bottlenecks.on_system(kernels_on(pair, "Abacus 3"), read_system_file("dgx-h100"))
    assert change.kernel_factor == 1
    assert "Abacus 3" in change.reason


def test_the_command_shows_both_side_by_side(
    demo_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(demo_folder), "--system", "dgx-h100"]) == 0
    page = capfd.readouterr().out
    assert "on dgx-h100: measured" in page
    assert "computation as recorded" in page
    assert main(["run", str(demo_folder), "--system", "dgx-h100", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    told = found["on_system"]
    assert told["measured_ns"] == found["measured_ns"]
    assert sum(told["predicted_by_kind"].values()) == told["predicted_ns"]
    assert {row["type"] for row in told["communication"]} >= {"all_reduce"}


def test_a_system_that_does_not_fit_is_refused(
    demo_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(demo_folder), "--system", "dgx-h1"]) == 2
    assert "nadi systems lists them" in capfd.readouterr().err
