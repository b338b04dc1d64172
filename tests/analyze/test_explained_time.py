"""How much of the measured time is explained: small cases, and what the recordings must reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from tests.conftest import PairWriter

REMOVED = -(2**60)
PERCENT = 0.01


def explained(*paths: Path) -> nadi.graph.Explained:
    return nadi.graph.explain_time(nadi.build_graph(nadi.load_job(*paths)))


def without(graph: EventGraph, kind: EdgeKind) -> EventGraph:
    return graph.with_weights(np.where(graph.edge_kind == kind, REMOVED, graph.weight))


def test_delays_are_taken_out_and_named(pair: PairWriter) -> None:
    pair.op("op", 0, 10)
    pair.event("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=1)
    pair.event("k", 105, 10, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.event("root", 0, 1, "kernel", pid=0, tid=8, stream=8, device=0)
    found = explained(*pair.write())
    assert (found.measured_ns, found.explained_ns) == (115_000, 18_000)  # 3 us are typical
    assert (found.num_late, found.num_device_operations) == (1, 2)
    (largest,) = found.largest().to_dicts()
    assert (largest["name"], largest["moment"], largest["delay"]) == ("k", "start", 97_000)
    assert found.ranks.rows() == [(0, 115_000, 18_000)]
    assert found.error == (18 - 115) / 115


def test_delays_before_a_moment_stay(pair: PairWriter) -> None:
    pair.op("op", 0, 10)
    for number, start in ((1, 105), (2, 305)):
        pair.event("cudaLaunchKernel", start - 103, 3, "cuda_runtime", correlation=number)
        pair.event("k", start, 10, "kernel", pid=0, tid=7, stream=7, device=0, correlation=number)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    found = nadi.graph.explain_time(graph, since=200_000)
    assert found.vertices.size == 1
    assert found.measured_ns == 115_000
    assert found.explained_ns == 115_000 - 97_000


@pytest.mark.parametrize(("delay_us", "num_late"), [(0, 0), (10, 0), (10.001, 1)])
def test_work_is_late_over_10_us_after_all_that_it_waits_for(
    pair: PairWriter, delay_us: float, num_late: int
) -> None:
    pair.op("op", 0, 10)
    pair.event("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=1)
    begins = 5 + 3 + delay_us  # 3 us are typical
    pair.event("k", begins, 10, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    found = explained(*pair.write())
    assert found.num_late == num_late
    assert found.largest()["delay"].to_list() == [round(1000 * delay_us)] * (delay_us > 0)


def test_a_delay_at_the_moment_itself_is_taken_out(pair: PairWriter) -> None:
    pair.op("op", 0, 10)
    pair.event("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=1)
    pair.event("k", 105, 10, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert [
        nadi.graph.explain_time(graph, since).vertices.size for since in (105_000, 105_001)
    ] == [1, 0]


def test_the_longest_delays_come_first_and_as_many_as_asked_for(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    for number, late in enumerate((40, 90, 20, 70)):
        begin = 200 * number
        pair.event("cudaLaunchKernel", begin, 3, "cuda_runtime", correlation=number + 1)
        pair.event(f"k{late}", begin + 3 + late, 10, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number + 1)  # fmt: skip
    found = explained(*pair.write())
    assert found.largest()["name"].to_list() == ["k90", "k70", "k40", "k20"]
    assert found.largest(2)["name"].to_list() == ["k90", "k70"]
    delays = found.largest()["delay"]
    assert delays.diff().drop_nulls().to_list() == [-20_000, -30_000, -20_000]
    assert found.largest()["time"][0] == 200_000 + 93_000
    assert found.graph.op_names[int(found.vertices[0]) // 2] == "k90"
    assert set(found.largest()["moment"]) == {"start"}


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("gpu_resnet_pair", PERCENT),
        ("gpu_hta/ns_resolution.json.gz", PERCENT),
        *((f"gpu_dlrm8/device_{rank}.json.gz", PERCENT) for rank in range(8)),
        ("cpu_ddp4", 3 * PERCENT),  # rank 1 goes on 9.2 ms after the last all_reduce of all
    ],
)
def test_recordings_are_explained_within_a_percent(
    shared_traces: Path, name: str, most: float
) -> None:
    found = explained(shared_traces / name)
    assert abs(found.error) <= most
    assert found.num_late <= found.num_device_operations / 1000


@pytest.mark.parametrize("name", ["alexnet", "simple_add", "cuda_event_sync"])
def test_short_recordings_are_explained_within_a_fifth_of_a_millisecond(
    shared_traces: Path, name: str
) -> None:
    found = explained(shared_traces / "gpu_hta" / f"{name}.json.gz")
    assert abs(found.explained_ns - found.measured_ns) <= 200_000


def test_eight_ranks_together(shared_traces: Path) -> None:
    files = sorted((shared_traces / "gpu_dlrm8").glob("device_*.json.gz"))
    found = explained(*files)
    assert abs(found.error) <= PERCENT
    assert found.num_late <= found.num_device_operations / 1000


def test_waits_for_devices_are_what_explains_it(shared_traces: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / "gpu_dlrm8" / "device_3.json.gz"))
    assert nadi.graph.explain_time(without(graph, EdgeKind.SYNC)).error < -0.2
