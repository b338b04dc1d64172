"""Who was waited for in collectives, and why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.stragglers import Stragglers, find_stragglers
from tests.conftest import PairWriter
from tests.link.test_rank_communication import GROUP, asked

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def job_of(tmp_path: Path, work: list[list[float]]) -> nadi.EventGraph:
    """Make ranks that each do some host work, in us, before each of their collectives."""
    begin = [0.0] * len(work)
    writers = []
    for rank in range(len(work)):
        writer = PairWriter(tmp_path)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": len(work),
            "pg_config": [{"pg_name": "0", "ranks": list(range(len(work)))}],
        }  # fmt: skip
        writers.append(writer)
    for number in range(len(work[0])):
        starts = []
        for rank, writer in enumerate(writers):
            writer.op(f"work of {rank}", begin[rank], work[rank][number])
            starts.append(begin[rank] + work[rank][number] + 2)
        end = max(starts) + 10
        for rank, writer in enumerate(writers):
            launch = {"correlation": number + 1}
            writer.event("cudaLaunchKernel", starts[rank] - 2, 1, "cuda_runtime", **launch)
            writer.event(ALL_REDUCE, starts[rank], end - starts[rank], "kernel", pid=0, tid=7,
                         stream=7, device=0, **{"Process Group Name": "0"}, **launch)  # fmt: skip
            sync = {"correlation": 100 + number}
            writer.event("cudaDeviceSynchronize", starts[rank], end + 1 - starts[rank],
                         "cuda_runtime", **sync)  # fmt: skip
            begin[rank] = end + 1
    for rank, writer in enumerate(writers):
        for node in writer.nodes:
            node["pid"] = rank
        host, device = writer.write(f"_{rank}")
        assert host.exists()
        assert device.exists()
    return nadi.build_graph(nadi.load_job(tmp_path))


def stragglers(graph: nadi.EventGraph) -> Stragglers:
    return find_stragglers(
        nadi.graph.replay_graph(graph),
        nadi.graph.choose_window(graph, nadi.graph.find_steps(graph)),
    )


def test_the_last_to_come_is_who_was_waited_for(tmp_path: Path) -> None:
    found = stragglers(job_of(tmp_path, [[10, 100, 50], [30, 20, 50], [20, 60, 55]]))
    columns = found.collectives.select("rank", "waited", "longest", "cause", "operation")
    assert columns.rows() == [
        (1, 30_000, 20_000, "host op", "work of 1"),
        (0, 120_000, 80_000, "host op", "work of 0"),
        (2, 10_000, 5_000, "host op", "work of 2"),
    ]
    assert found.ranks.rows() == [
        (0, 1, 120_000, 25_000),
        (1, 1, 30_000, 85_000),
        (2, 1, 10_000, 50_000),
    ]


def test_a_rank_whose_recording_begins_late_is_not_late_by_its_work(tmp_path: Path) -> None:
    graph = job_of(tmp_path, [[10, 10], [40, 30]])
    columns = ("rank", "cause", "operation")
    late = (1, "host op", "work of 1")
    assert stragglers(graph).collectives.select(columns).rows() == [late, late]
    for number in (0, 1):
        file = tmp_path / f"device_{number}.json"
        value = json.loads(file.read_text())
        events = [one for one in value["traceEvents"] if one["name"] != "cudaDeviceSynchronize"]
        if number:
            events[0].update(ts=39, dur=1)  # the rank's first work
        file.write_text(json.dumps({**value, "traceEvents": events}))
    graph = nadi.build_graph(nadi.load_job(tmp_path))
    # and what it was late by once is no cause of what follows
    expected = [(1, "unexplained", ""), late]
    assert stragglers(graph).collectives.select(columns).rows() == expected


def test_the_lowest_rank_counts_of_those_that_come_last_together(tmp_path: Path) -> None:
    found = stragglers(job_of(tmp_path, [[10], [30], [30]]))
    assert found.collectives.select("rank", "waited", "longest").rows() == [(1, 20_000, 20_000)]
    assert found.ranks["rank"].to_list() == [1, 0, 2]


def test_who_comes_last_is_no_straggler_if_nobody_waited(tmp_path: Path) -> None:
    found = stragglers(job_of(tmp_path, [[30, 10], [30, 20]]))
    assert found.collectives.select("rank", "waited").rows() == [(1, 10_000)]
    assert found.ranks["times_last"].to_list() == [1, 0]


@pytest.mark.parametrize(("received", "last", "waited"), [(20, 0, 80_000), (120, 1, 20_000)])
def test_both_sides_of_a_send_on_threads_wait_for_each_other(
    tmp_path: Path, received: float, last: int, waited: int
) -> None:
    starts, end = {"send": 100.0, "recv": received}, 150
    for rank, (name, start) in enumerate(starts.items()):
        writer = PairWriter(tmp_path)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        writer.op("aten::mm", 0, start - 10)
        other = "int dst" if name == "send" else "int src"
        types = ["GenericList[Tensor(float)]", "Object", "Int", "Int"]
        schema = f"c10d::{name}(Tensor[] tensors, {GROUP}, {other}, int tag) -> Work"
        asked(writer, f"c10d::{name}", start - 2, [[], "<Object>", 1 - rank, 0], types, schema,
              dur=3)  # fmt: skip
        writer.op(f"gloo:{name}", start, end - start, cat="user_annotation", tid=2)
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    found = stragglers(nadi.build_graph(nadi.load_job(tmp_path)))
    rows = [(last, waited, "aten::mm")]
    assert found.collectives.select("rank", "waited", "operation").rows() == rows
    by_rank = sorted(found.ranks.select("rank", "caused", "waited").rows())
    assert by_rank == sorted([(last, waited, 0), (1 - last, 0, waited)])


def test_collectives_at_the_borders_of_a_window_are_in_it(tmp_path: Path) -> None:
    graph = job_of(tmp_path, [[10, 100, 50], [30, 20, 55]])
    replay = nadi.graph.replay_graph(graph)
    found = stragglers(graph).collectives
    met = found["time"].to_list()
    at = {int(time): vertex for vertex, time in enumerate(replay.time.tolist())}
    after_first = min(time for time in at if time > met[0])
    for begin, end, inside in (
        (met[0], met[2], met), (met[1], met[1], met[1:2]), (after_first, met[2], met[1:]),
    ):  # fmt: skip
        window = nadi.graph.Window("w", -1, np.array([at[begin]]), np.array([at[end]]))
        assert find_stragglers(replay, window).collectives["time"].to_list() == inside


def test_a_change_changes_who_is_last(tmp_path: Path) -> None:
    graph = job_of(tmp_path, [[10], [100]])
    changed = nadi.what_if(graph, "scale 'work of 0' 20")
    found = find_stragglers(changed.replay, changed.window)
    assert found.collectives["rank"].to_list() == [0]
    assert found.collectives["waited"].to_list() == [100_000]


def test_without_collectives_nobody_waits(demo_folder: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(*sorted(demo_folder.glob("*_0*"))))
    found = stragglers(graph)
    assert found.collectives.is_empty()
    assert found.ranks.is_empty()


def test_waits_add_up_on_a_recording(demo_run: nadi.bottlenecks.Run) -> None:
    found = demo_run.stragglers
    assert found.collectives.height > 0
    assert found.ranks["caused"].sum() == found.ranks["waited"].sum()
    assert found.collectives["waited"].sum() == found.ranks["waited"].sum()
    assert (found.collectives["longest"] <= found.collectives["waited"]).all()


def test_a_rank_that_waits_in_two_collectives_at_once_waits_once(tmp_path: Path) -> None:
    """Gradients of two buckets: rank 0 has begun both when rank 1 comes, 50 us later."""
    for rank, begin in enumerate((10.0, 60.0)):
        writer = PairWriter(tmp_path)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        writer.op(f"work of {rank}", 0, begin - 4)
        for number, stream in enumerate((7, 8)):
            launch = {"correlation": number + 1}
            at = begin + 2 * number
            writer.event("cudaLaunchKernel", at - 2, 1, "cuda_runtime", **launch)
            writer.event(ALL_REDUCE, at, 80 - at, "kernel", pid=0, tid=stream, stream=stream,
                         device=0, **{"Process Group Name": "0"}, **launch)  # fmt: skip
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    found = stragglers(nadi.build_graph(nadi.load_job(tmp_path)))
    assert found.collectives.select("rank", "waited").rows() == [(1, 50_000), (1, 2_000)]
    assert found.ranks.rows() == [(1, 2, 52_000, 0), (0, 0, 0, 52_000)]
