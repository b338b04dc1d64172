"""Values over time in timeline files: those of the analyses, in both formats."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi import analyses as analyze
from nadi.analyses.recorded.over_time import recorded_counters
from nadi.cli import main
from tests.conftest import PairWriter
from tests.reference.perfetto_import import load as load_perfetto

_Series = dict[tuple[str, str], list[tuple[int, int]]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a recording of two streams with copies, allocations and releases."""
    pair = PairWriter(tmp_path_factory.mktemp("counted"))
    pair.event("ProfilerStep#1", 0, 1000, "user_annotation")
    for i in range(20):
        pair.event("cudaLaunchKernel", 10 + 20 * i, 5, "cuda_runtime", correlation=i + 1)
        pair.event("gemm", 40 + 30 * i, 25, "kernel", correlation=i + 1, device=0,
                   stream=7 + i % 2, tid=7, pid=0)  # fmt: skip
    for i, (begin, lasts) in enumerate(((55, 20), (600, 150), (700, 40))):  # exposed from 635 on
        pair.event("cudaLaunchKernel", 18 + 20 * i, 5, "cuda_runtime", correlation=50 + i)
        pair.event("ncclDevKernel_AllReduce", begin, lasts, "kernel", correlation=50 + i,
                   device=0, stream=20 + i, tid=9, pid=0)  # fmt: skip
    pair.event("cudaMemcpyAsync", 700, 5, "cuda_runtime", correlation=99)
    pair.event(
        "Memcpy HtoD (Pageable -> Device)",
        860,
        10,
        "gpu_memcpy",
        correlation=99,
        device=0,
        stream=7,
        tid=7,
        pid=0,
        **{"bytes": 4000, "memory bandwidth (GB/s)": 0.4},
    )
    for ts, size in ((100, 512), (100, 1024), (300, -512)):
        args = {"Bytes": size, "Addr": abs(size), "Device Type": 1, "Device Id": 0,
                "Total Allocated": 0, "Total Reserved": 0}  # fmt: skip
        pair.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t",
                            "pid": 1, "tid": 1, "ts": ts, "args": args})  # fmt: skip
    return pair.write()[1]


def expected(path: Path) -> _Series:
    """Give what the analyses say, after all that happens at one moment."""
    trace = nadi.read(path)
    found: _Series = {}

    def put(table: pl.DataFrame, title: str, unit: str, value: str, factor: int = 1) -> None:
        last = {time: round(factor * one) for time, one in
                table.select("time_ns", value).iter_rows()}  # fmt: skip
        found[title, unit] = sorted(last.items())

    nodes = trace.nodes.filter(pl.col("category").cast(pl.String).is_in(["kernel", "memcpy"]))
    work = [(start - trace.nodes["start"].min(), lasts, str(name)) for start, lasts, name in
            nodes.select("start", "duration", "name").iter_rows()]  # fmt: skip

    def running(time: int, word: str) -> bool:
        return any(begin <= time < begin + lasts and word in name for begin, lasts, name in work)

    activity: _Series = {("device busy", "%"): [], ("exposed communication", "%"): []}
    for time in sorted({at for begin, lasts, _ in work for at in (begin, begin + lasts)}):
        exposed = running(time, "nccl") and not running(time, "gemm")
        for series, holds in zip(activity.values(), (running(time, ""), exposed), strict=True):
            if holds != (series[-1][1] == 100 if series else False):
                series.append((time, 100 * holds))
    found |= activity
    breakdown = analyze.temporal_breakdown(trace).row(0, named=True)
    assert [
        sum(value * (after - time) for (time, value), (after, _) in pairwise(series)) // 100
        for series in activity.values()
    ] == [breakdown["busy_ns"], breakdown["exposed_communication_ns"]]
    for stream in (7, 8, 20, 21, 22):
        of_stream = analyze.queue_lengths(trace).filter(pl.col("stream") == stream)
        put(of_stream, f"queue length of device 0 stream {stream}", "value", "length")
    copies = analyze.memory_bandwidth_series(trace)
    put(copies, "bandwidth Memcpy HtoD", "MB/s", "gb_per_s", 1000)
    put(analyze.memory_timeline(trace), "memory cuda:0", "bytes", "allocated_bytes")
    return found


def test_run_writes_counters_into_its_timeline(recorded: Path, tmp_path: Path) -> None:
    assert main(["run", str(recorded), "-o", str(tmp_path / "results")]) == 0
    content = gzip.decompress((tmp_path / "results" / "timeline.json.gz").read_bytes())
    found: _Series = defaultdict(list)
    for event in json.loads(content, parse_float=Decimal)["traceEvents"]:
        if event["ph"] == "C":
            assert event["pid"] == 0
            ((unit, value),) = event["args"].items()
            found[event["name"], unit].append((int(event["ts"] * 1000), value))
    assert found == expected(recorded)
    assert max(value for _, value in found["memory cuda:0", "bytes"]) == 1536


def test_perfetto_has_the_same_counters(recorded: Path, tmp_path: Path) -> None:
    run = nadi.run(recorded)
    path = tmp_path / "timeline.pftrace"
    counters = [*recorded_counters(run.job, of_work=True)]
    below = counters[0]._replace(title="below zero", value=-counters[0].value)
    nadi.graph.write_timeline(path, run.replay, run.path, [*counters, below])
    timeline = load_perfetto(path.read_bytes())
    found: _Series = {}
    for number, values in timeline.counters.items():
        track = timeline.tracks[number]
        assert timeline.tracks[track.parent_uuid].name == "rank 0"
        found[track.name, track.counter.unit_name or "value"] = values
    negative = found.pop(("below zero", counters[0].unit))
    assert negative == list(zip(below.time.tolist(), below.value.tolist(), strict=True))
    assert found == expected(recorded)
    assert len(timeline.slices) > 20
