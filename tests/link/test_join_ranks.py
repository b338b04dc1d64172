"""Ranks together: collectives matched across them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from tests.conftest import PairWriter

RANKS = range(3)


GROUPS = ({"pg_name": "all", "ranks": [0, 1, 2]}, {"pg_name": "two", "ranks": [0, 1]})


def nccl_job(
    folder: Path,
    operations: dict[int, list[tuple[str, str] | None]],
    groups: Sequence[dict[str, Any]] = GROUPS,
) -> nadi.Job:
    """Write one NCCL kernel per (group, name) and rank, 100 us apart, and load the job."""
    for rank, kernels in operations.items():
        writer = PairWriter(folder)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 3, "pg_config": [g for g in groups if rank in g["ranks"]],
        }  # fmt: skip
        writer.op("op", 0, 5)
        for number, kernel in enumerate(kernels):
            if kernel is None:
                continue
            group, name = kernel
            writer.event(
                f"ncclDevKernel_{name}", 100 * number + 10 * rank + 10, 60, "kernel", pid=0, tid=7,
                stream=7, device=0, **{"Process Group Name": group, "In msg nelems": 4,
                                       "dtype": "Float"},
            )  # fmt: skip
        writer.write(f"_{rank}")
    return nadi.load_job(*folder.glob("*.json"))


def test_the_kth_of_a_group_is_the_kth_on_every_rank(tmp_path: Path) -> None:
    both = [("all", "AllReduce"), ("two", "AllGather"), ("all", "AllReduce")]
    job = nccl_job(tmp_path, {0: both, 1: both, 2: [both[0], None, both[2]]})
    sizes = job.matches.group_by("collective").len().sort("collective")["len"].to_list()
    assert sorted(sizes) == [2, 3, 3]
    assert job.issues.is_empty()


def test_a_collective_that_a_rank_lacks_is_counted(tmp_path: Path) -> None:
    job = nccl_job(
        tmp_path,
        {0: [("all", "AllReduce")] * 2, 1: [("all", "AllReduce")] * 2, 2: [("all", "AllReduce")]},
    )
    assert job.matches.height == 3
    assert job.issues.select("code", "count").row(0) == ("job.unmatched-collective", 2)


@pytest.mark.parametrize("place", [0, 1])
def test_a_group_of_one_rank_waits_for_nobody(tmp_path: Path, place: int) -> None:
    groups = [{"pg_name": "all", "ranks": [0, 1]}]
    groups.insert(place, {"pg_name": "one", "ranks": [0]})
    together = ("all", "AllGather")
    job = nccl_job(tmp_path, {0: [("one", "AllReduce"), together], 1: [None, together]}, groups)
    assert job.matches.height == 2
    assert job.issues.is_empty()


def test_a_group_of_which_a_rank_is_absent_keeps_its_times(tmp_path: Path) -> None:
    both = [("all", "AllReduce"), ("two", "AllGather")]
    job = nccl_job(tmp_path, {0: both, 1: both})
    assert job.matches["collective"].n_unique() == 1
    assert job.issues.select("code", "count").row(0) == ("job.group-incomplete", 2)


def test_a_rank_that_enters_later_sets_the_end_for_all(tmp_path: Path) -> None:
    job = nccl_job(tmp_path, {rank: [("all", "AllReduce")] for rank in RANKS})
    graph = nadi.build_graph(job)
    assert (nadi.graph.replay_graph(graph).time == graph.time).all()
    # rank 2 enters at 30 us; with transfers that take no time all leave then
    changed = nadi.graph.replay_graph(
        nadi.whatif.apply_change(graph, nadi.whatif.parse_change("scale AllReduce 0"))
    )
    kernels = changed.schedule().table.filter(pl.col("resource").cast(str).str.contains("stream"))
    assert kernels["end"].to_list() == [30_000, 30_000, 30_000]
    assert kernels["start"].to_list() == [10_000, 20_000, 30_000]


def test_gloo_groups_are_told_by_their_threads(demo_run: nadi.bottlenecks.Run) -> None:
    matches = demo_run.job.matches
    members = (
        matches.group_by("collective", maintain_order=True)
        .agg(pl.col("rank").sort())["rank"]
        .to_list()
    )
    assert members.count([0, 1, 2, 3]) == 18
    assert members.count([0, 1]) == 4  # two of them a send and its receive
    assert members.count([2, 3]) == 2
    for rank, trace in enumerate(demo_run.job.traces):
        matched = matches.filter(pl.col("rank") == rank)["node"]
        kinds = trace.nodes["kind"].cast(str)
        assert matched.n_unique() == len(matched) == kinds.str.starts_with("COMM_").sum()


def test_a_collective_has_one_type_and_size_on_all_ranks(demo_run: nadi.bottlenecks.Run) -> None:
    seen: dict[int, set[tuple[str, int]]] = {}
    for collective, rank, node in demo_run.job.matches.iter_rows():
        nodes = demo_run.job.traces[rank].nodes
        comm_type = nodes["comm_type"][node].replace("recv", "send")
        key = (comm_type, nodes["comm_bytes"][node])
        seen.setdefault(collective, set()).add(key)
    assert all(len(keys) == 1 for keys in seen.values())
    types = [comm_type for keys in seen.values() for comm_type, _ in keys]
    # gloo runs reduce_scatter as an all_reduce; the call says what was meant
    assert types.count("reduce_scatter") == 2
    assert types.count("barrier") == types.count("send") == 2


def test_a_rank_given_twice_is_refused(demo_run: nadi.bottlenecks.Run) -> None:
    trace = demo_run.job.traces[0]
    with pytest.raises(nadi.errors.PairError, match="both are device traces of rank 0"):
        nadi.recordings.link_job([trace, trace])


def test_a_rank_alone_has_nothing_to_be_matched_or_compared_with(
    demo_run: nadi.bottlenecks.Run,
) -> None:
    alone = nadi.recordings.link_job(demo_run.job.traces[:1])
    assert alone.matches.is_empty()
    assert alone.clocks.is_empty()
    assert not nadi.recordings.link_job(demo_run.job.traces[:2]).clocks.is_empty()
