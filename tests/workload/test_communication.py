"""What is written of communication that ASTRA-sim does not play as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.simulation.workload.astra_sim_files import write_for_astra_sim
from tests.conftest import PairWriter
from tests.reference.feeder import COLL, FeederNode, read_job, replay

ALL_REDUCE, ALL_GATHER, BROADCAST, REDUCE_SCATTER = 0, 2, 5, 7


def write_rank(folder: Path, rank: int, kernels: list[tuple[str, dict[str, Any]]]) -> None:
    """Write a rank that launches NCCL kernels, 100 us apart; rank 1 is 10 us late for each."""
    pair = PairWriter(folder)
    pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 2}
    for number, (name, args) in enumerate(kernels):
        start = 100 * number + 10 * rank
        op = pair.op(f"c10d::{name}_", start, 20)
        pair.event("cudaLaunchKernel", start + 2, 4, "cuda_runtime", correlation=number + 1)
        pair.event(
            f"ncclDevKernel_{name}", start + 10, 100 * number + 60 - start, "kernel", tid=7,
            device=0, stream=7, correlation=number + 1, **{
                "External id": op, "Collective name": name, "Process Group Name": "0",
                "Process Group Ranks": "[0, 1]", **args,
            },
        )  # fmt: skip
    pair.write(str(rank))


def export(
    folder: Path, *ranks: list[tuple[str, dict[str, Any]]]
) -> tuple[list[list[FeederNode]], dict[str, list[int]], pl.DataFrame]:
    """Write and read a job; gives each rank's communication, the groups and the issues."""
    traces = folder / "traces"
    traces.mkdir()
    for rank, kernels in enumerate(ranks):
        write_rank(traces, rank, kernels)
    done = write_for_astra_sim(nadi.load_job(traces), folder / "out")
    nodes, groups = read_job(folder / "out")
    replay(nodes, groups)
    return [[n for n in own if n.type == COLL] for own in nodes], groups, done.issues


def floats(number: int) -> dict[str, Any]:
    return {"In msg nelems": number, "dtype": "Float"}


@pytest.mark.parametrize(
    ("name", "sizes", "written"),
    [
        ("reduce", (1000, 1000), (REDUCE_SCATTER, 4000)),
        ("gather", (1000, 1000), (ALL_GATHER, 4000)),
        ("scatter", (2000, 0), (REDUCE_SCATTER, 8000)),
        ("allreduce", (1000, 1000), (ALL_REDUCE, 4000)),
        ("allreduce", (1, 1), (ALL_REDUCE, 4)),
        ("_allgather_base", (1, 1), (ALL_GATHER, 64)),
        ("_allgather_base", (100, 120), (ALL_GATHER, 480)),
        ("broadcast", (1000, 1000), (BROADCAST, 4000)),
    ],
)
def test_types_and_sizes(
    name: str, sizes: tuple[int, int], written: tuple[int, int], tmp_path: Path
) -> None:
    nodes, groups, issues = export(tmp_path, *([(name, floats(size))] for size in sizes))
    found = [(n.attrs["comm_type"], n.attrs["comm_size"]) for (n,) in nodes]
    assert found == [written, written]
    assert groups == {"1": [0, 1]}
    is_replaced = name in ("reduce", "gather", "scatter")
    assert [n.attrs.get("recorded_comm_type") for (n,) in nodes] == [
        name if is_replaced else None
    ] * 2
    codes = set(issues["code"])
    assert ("export.comm-type" in codes) == is_replaced
    assert ("export.comm-size-unequal" in codes) == (len(set(sizes)) > 1)
    assert ("export.comm-size-small" in codes) == (written == (ALL_GATHER, 64))


def test_times(tmp_path: Path) -> None:
    """Rank 0 waits 10 us for rank 1; both leave at 170."""
    calls = [("allreduce", floats(8)), ("allreduce", floats(8))]
    nodes, _, issues = export(tmp_path, calls, calls)
    # ranks begin at 110 and 120, after calls that ended at 106 and 116
    assert [[n.micros for n in own][1] for own in nodes] == [64, 54]
    assert [[n.attrs["measured_transfer_ns"] for n in own][1] for own in nodes] == [50_000] * 2
    left_out = issues.filter(pl.col("code") == "export.latency-left-out")
    assert left_out["count"].to_list() == [4]
    assert "16.00 us in total" in left_out["detail"][0]


def test_one_that_does_something_else(tmp_path: Path) -> None:
    nodes, groups, issues = export(tmp_path, [("allreduce", floats(8))], [("broadcast", floats(8))])
    assert [n.attrs["comm_type"] for (n,) in nodes] == [BROADCAST] * 2
    assert sorted(groups.values()) == [[0], [1]]
    alone = issues.filter(pl.col("code") == "export.comm-alone")
    assert alone["count"].to_list() == [2]
    assert "the other ranks have no counterpart" in alone["detail"][0]
    assert [n.micros for (n,) in nodes] == [64, 54]  # as measured


def test_size_unknown(tmp_path: Path) -> None:
    nodes, _, issues = export(tmp_path, [("allreduce", {})], [("allreduce", {})])
    assert [n.attrs["comm_size"] for (n,) in nodes] == [1, 1]
    assert issues.filter(pl.col("code") == "export.comm-size-unknown")["count"].to_list() == [2]
