"""Analyses of recordings against slow ones, and on recordings written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi import analyses as analyze
from nadi.analyses.recorded.events import KERNEL_TYPES
from nadi.cli import main
from nadi.trace import schema
from tests.conftest import PairWriter
from tests.reference.naive_analyses import Work, idle_of, lengths_of, states_of

TYPES = ("computation", "communication", "memory")


@st.composite
def works(draw: st.DrawFn) -> list[Work]:
    """Make work on two streams; work of one stream can overlap, as graphs make it."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(10, 60))
        launched = draw(st.one_of(st.none(), st.integers(0, start)))
        found.append(Work(draw(st.sampled_from(TYPES)), draw(st.integers(0, 1)), start,
                          start + draw(st.integers(1, 15)), launched))  # fmt: skip
    return found


EMPTY = nadi.trace.Trace(
    schema.NODES.empty(),
    schema.DEPS.empty(),
    schema.GROUPS.empty(),
    schema.ISSUES.empty(),
    nadi.trace.Provenance("", ()),
)


def events_of(work: list[Work]) -> analyze.RankEvents:
    """Make events: the calls that launch first, then the work."""
    calls = [one.launched for one in work if one.launched is not None]
    launcher, used = [-1] * len(calls), 0
    for one in work:
        launcher.append(used if one.launched is not None else -1)
        used += one.launched is not None
    table = pl.DataFrame({
        "name": ["launch"] * len(calls) + [one.type for one in work],
        "category": ["runtime"] * len(calls) + ["kernel"] * len(work),
        "start": calls + [one.start for one in work],
        "duration": [0] * len(calls) + [one.end - one.start for one in work],
        "thread": [1] * len(calls) + [-1] * len(work),
        "device": [-1] * len(calls) + [0] * len(work),
        "stream": [-1] * len(calls) + [one.stream for one in work],
        "correlation": [0] * (len(calls) + len(work)),
    })  # fmt: skip
    codes = np.array([KERNEL_TYPES.index(one.type) for one in work], dtype=np.int64)
    return analyze.RankEvents(0, table, np.array(launcher, dtype=np.int64), codes, EMPTY)


@given(works())
def test_times_of_devices_are_those_of_every_unit_of_time(work: list[Work]) -> None:
    states = states_of(work)
    (found,) = analyze.temporal_breakdown(events_of(work)).iter_rows(named=True)
    assert found["total_ns"] == states.total()
    assert found["idle_ns"] == states[frozenset()]
    computing = sum(time for state, time in states.items() if "computation" in state)
    assert found["computation_ns"] == computing
    exposed = sum(time for state, time in states.items()
                  if "communication" in state and "computation" not in state)  # fmt: skip
    assert found["exposed_communication_ns"] == exposed
    assert found["busy_ns"] == computing + exposed + found["exposed_memory_ns"]
    types = dict(analyze.kernel_types(events_of(work)).select("type", "time_ns").iter_rows())
    assert {frozenset(name.split(" + ")): time for name, time in types.items()} == {
        state: time for state, time in states.items() if state
    }
    (overlap,) = analyze.communication_overlap(events_of(work)).iter_rows(named=True)
    assert overlap["overlapped_ns"] == states[frozenset(TYPES[:2])] + states[frozenset(TYPES)]


@given(works(), st.integers(1, 10))
def test_idle_times_are_those_of_every_gap(work: list[Work], gap: int) -> None:
    found = analyze.idle_times(events_of(work), kernel_gap_ns=gap)
    assert {
        (stream, cause): time for stream, cause, time in
        found.select("stream", pl.col("cause").cast(pl.String), "idle_ns").iter_rows()
    } == idle_of(work, gap)  # fmt: skip


@given(works())
def test_queues_are_those_of_every_launch_and_start(work: list[Work]) -> None:
    events = events_of(work)
    if not any(one.launched is not None for one in work):
        with pytest.raises(nadi.errors.InputError, match="call that launched"):
            analyze.queue_lengths(events)
        return
    found = analyze.queue_lengths(events)
    begin = int(events.column("start").min())
    for stream in {one.stream for one in work}:
        mine = found.filter(pl.col("stream") == stream)
        times = (mine["time_ns"] + begin).to_list()
        expected = lengths_of(work, stream)
        assert times == [time for time, _ in expected]
        assert mine["length"].to_list() == [length for _, length in expected]
    summary = analyze.queue_summary(events)
    assert summary["max"].max() == found["length"].max()


def test_every_analysis_answers_or_says_what_is_missing(demo_folder: Path) -> None:
    found = nadi.analyses.analyze_all(demo_folder)
    assert list(found) == [one.name for one in analyze.ANALYSES]
    assert len(set(found)) == len(analyze.ANALYSES)
    for one in analyze.ANALYSES:
        table = found[one.name]
        if isinstance(table, str):
            assert "\n" not in table
            continue
        assert set(one.chart[1:]) <= set(table.columns), one.name
        times = [name for name in table.columns if name.endswith("_ns")]
        assert all(table[name].dtype.is_numeric() for name in times)


def nested(pair: PairWriter) -> Path:
    """Write an operator in another, two kernels, an annotation, allocations and counters."""
    pair.event("part", 0, 100, "user_annotation")
    pair.event("outer", 10, 80)
    pair.event("aten::mm", 20, 40, **{
        "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"],
        "Concrete Inputs": ["", ""],
    })  # fmt: skip
    for number, (call, work) in enumerate([(25, 70), (40, 90)], 1):
        pair.event("cudaLaunchKernel", call, 5, "cuda_runtime", correlation=number)
        pair.event(f"kernel {number}", work, 10, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
        pair.events.append({"ph": "X", "cat": "cuda_profiler_range", "name": f"kernel {number}",
                            "pid": 0, "tid": 0, "ts": work, "dur": 10,
                            "args": {"smsp__inst_executed.sum": 100 * number}})  # fmt: skip
    pair.event("Memcpy HtoD (Pageable -> Device)", 120, 2, "gpu_memcpy", pid=0, tid=7, stream=7,
               device=0, bytes=4000)  # fmt: skip
    for ts, size, total in ((30, 512, 512), (95, -512, 0)):
        args = {"Bytes": size, "Device Type": 1, "Device Id": 0, "Total Allocated": total,
                "Total Reserved": 1024}  # fmt: skip
        pair.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t",
                            "pid": 7, "tid": 1, "ts": ts, "args": args})  # fmt: skip
    return pair.write()[1]


def test_bandwidths_of_single_copies_have_a_unit(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stood as ``min``, ``median`` and ``max`` beside ``GB/s``."""
    assert main(["analyze", "bandwidth", str(nested(pair))]) == 0
    (heading,) = (line for line in capsys.readouterr().out.splitlines() if "median" in line)
    assert heading.split("  ")[-3:] == ["min GB/s", "median GB/s", "max GB/s"]


def test_frames_come_in_order_of_their_first_names(pair: PairWriter) -> None:
    names = ["met second in this process", "met first in this process"]
    known = pl.Series(reversed(names)).cast(pl.Categorical)  # polars numbers names as it meets them
    for number, name in enumerate(names):
        pair.event(name, 100 * number, 50)
    flame = analyze.flame_graph(nadi.read(pair.write()[1]))
    assert (flame["name"].to_list(), known.len()) == (names, 2)


def test_a_small_recording_by_hand(pair: PairWriter) -> None:
    trace = nadi.read(nested(pair))
    stacks = analyze.call_stacks(trace)
    depth = dict(stacks.select("name", "depth").iter_rows())
    assert depth == {"part": 0, "outer": 1, "aten::mm": 2, "cudaLaunchKernel": 3}
    outer = stacks.filter(pl.col("name") == "outer").row(0, named=True)
    assert (outer["self_ns"], outer["kernels"], outer["device_ns"]) == (40_000, 2, 20_000)
    flame = analyze.flame_graph(trace)
    assert flame["count"].to_list() == [1, 1, 1, 2]
    assert flame["parent"].to_list() == [-1, 0, 1, 2]
    assert flame["self_ns"].sum() == 100_000

    rates = analyze.operator_rates(trace, peak_tflops=1.0, peak_tb_per_s=1.0).row(0, named=True)
    assert rates["flops"] == 2 * 4 * 8 * 2
    assert rates["size_bytes"] == 4 * (32 + 16 + 8)
    assert rates["sum_ns"] == 20_000
    assert rates["bound"] == "memory"
    assert rates["tb_per_s"] == pytest.approx(224 / 20e3 / 1e3)

    sequences = analyze.kernel_sequences(trace, shortest=2)
    assert sequences["operator"].to_list() == ["aten::mm", "outer"]
    assert set(sequences["sequence"]) == {"kernel 1 -> kernel 2"}
    delays = analyze.operator_delays(trace).row(0, named=True)
    assert (delays["call_delay_ns"], delays["kernel_delay_ns"]) == (5_000, 45_000)
    assert analyze.launches(trace)["delay_ns"].to_list() == [40_000, 45_000]

    assert analyze.annotation_times(trace)["sum_ns"].to_list() == [100_000]
    inside = dict(analyze.annotation_kernels(trace).select("name", "annotation").iter_rows())
    assert inside["kernel 1"] == "part"
    assert inside["Memcpy HtoD (Pageable -> Device)"] == ""
    assert analyze.memory_bandwidth(trace)["gb_per_s"].to_list() == [2.0]

    memory = analyze.memory_timeline(trace)
    assert memory["operator"].to_list() == ["aten::mm", ""]
    assert memory["allocated_bytes"].to_list() == [512, 0]
    assert analyze.memory_peaks(trace)["peak_ns"].to_list() == [30_000]
    counters = analyze.device_counters(trace)
    assert counters["value"].to_list() == [100.0, 200.0]
    assert counters["operator"].to_list() == ["aten::mm", "aten::mm"]


def test_annotations_of_the_device_contain_work_of_their_stream(pair: PairWriter) -> None:
    for stream in (7, 8):
        for name, ts, dur in (("wide", 0, 100), ("narrow", 40, 20)):
            if (stream, name) != (8, "narrow"):
                pair.event(name, ts, dur, "gpu_user_annotation", pid=0, tid=stream)
        for number, ts in enumerate((10, 45, 70, 99)):
            pair.event(f"kernel {number}", ts, 5, "kernel", pid=0, tid=stream, stream=stream,
                       device=0, correlation=10 * stream + number)  # fmt: skip
    table = analyze.annotation_kernels(nadi.read(pair.write()[1]))
    found = {(name, one): count for one, name, count in
             table.select("annotation", "name", "count").iter_rows()}  # fmt: skip
    assert found == {("kernel 0", "wide"): 2, ("kernel 1", "narrow"): 1, ("kernel 1", "wide"): 1,
                     ("kernel 2", "wide"): 2, ("kernel 3", ""): 2}  # fmt: skip


def test_one_rank_after_the_other_gives_the_table_of_all(tmp_path: Path) -> None:
    for rank in range(3):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 3}
        pair.op("aten::mm", 5, 10)
        pair.event("gemm", 10, 20 + rank, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
        pair.write(f"_{rank}")[0].unlink()
    table = nadi.analyses.analyze("temporal", tmp_path)
    assert table["rank"].to_list() == [0, 1, 2]
    assert table["busy_ns"].to_list() == [20_000, 21_000, 22_000]
    assert table.equals(analyze.temporal_breakdown(nadi.recordings.load_devices(tmp_path)))


def test_wrong_parameters_are_refused() -> None:
    one = analyze.analysis_named("idle")
    assert one.options(["kernel_gap_ns=5"]) == {"kernel_gap_ns": 5}
    with pytest.raises(nadi.errors.UsageError, match="no parameter 'gap'"):
        one.options(["gap=5"])
    with pytest.raises(nadi.errors.UsageError, match="is no int"):
        one.options(["kernel_gap_ns=soon"])
    with pytest.raises(nadi.errors.UsageError, match="there are all, temporal"):
        analyze.analysis_named("temprl")


@pytest.mark.parametrize(
    ("kernel", "name", "whole", "bus"),
    [("AllReduce", "allreduce", 1, 1.0), ("AllGather", "_allgather_base", 2, 0.5)],
)
def test_collectives_have_skew_latency_and_bandwidth(
    tmp_path: Path, kernel: str, name: str, whole: int, bus: float
) -> None:
    for rank, start in enumerate((10, 40)):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        pair.op("aten::mm", 0, 5)
        pair.event("cudaLaunchKernel", 2, 1, "cuda_runtime", correlation=1)
        pair.event(f"ncclDevKernel_{kernel}_Sum_f32_RING_LL", start, 100 - start, "kernel", pid=0,
                   tid=7, stream=7, device=0, correlation=1,
                   **{"Process Group Name": "0", "Collective name": name, "dtype": "Float",
                      "In msg nelems": 1000})  # fmt: skip
        pair.write(f"_{rank}")[0].unlink()
    job = nadi.load_job(tmp_path)
    (one,) = analyze.collective_list(job).iter_rows(named=True)
    shift = int(job.traces[1].column("start").min() - job.traces[0].column("start").min())
    assert one["last_rank"] == 1
    assert one["skew_ns"] == 30_000 + shift
    assert one["comm_latency_ns"] == 60_000 - max(shift, 0)
    assert one["transfer_ns"] == 60_000 + max(-shift, 0)
    (row,) = analyze.collective_skew(job).iter_rows(named=True)
    assert row["count"] == 1
    # as nccl-tests: of an all-gather the bytes that all ranks give
    assert row["algbw_gb_per_s"] == whole * 4000 / row["transfer_ns"]
    assert row["busbw_gb_per_s"] == row["algbw_gb_per_s"] * bus
    assert row["longest_ns"] == one["longest_ns"]
    assert json.dumps(row)


def test_collectives_of_one_rank_are_listed_with_their_time_alone(tmp_path: Path) -> None:
    pair = PairWriter(tmp_path)
    pair.op("aten::mm", 0, 5)
    for number, lasts in enumerate((30, 50), 1):
        pair.event("cudaLaunchKernel", number, 1, "cuda_runtime", correlation=number)
        pair.event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100 * number, lasts, "kernel", pid=0,
                   tid=7, stream=7, device=0, correlation=number)  # fmt: skip
    job = nadi.load_job(*pair.write())
    found = analyze.collective_list(job)
    assert found.select("collective", "ranks", "longest_ns").rows() == [
        (0, 1, 30_000), (1, 1, 50_000)
    ]  # fmt: skip
    assert found.select("skew_ns", "comm_latency_ns", "transfer_ns").null_count().rows() == [
        (2, 2, 2)
    ]
    (row,) = analyze.collective_skew(job).iter_rows(named=True)
    assert (row["count"], row["longest_ns"], row["skew_ns"]) == (2, 40_000, None)


def test_ranks_without_a_common_collective_cannot_be_tested_for_stragglers(tmp_path: Path) -> None:
    for rank in (0, 1):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 8}
        pair.op("aten::mm", 0, 5)
        pair.write(f"_{rank}")[0].unlink()
    job = nadi.load_job(tmp_path)
    for analysis in (analyze.straggler_ranks, analyze.late_collectives):
        with pytest.raises(nadi.errors.InputError, match="could not be tested: no collective"):
            analysis(job)


def test_ranks_are_told_by_names_where_files_do_not_begin_with_them(tmp_path: Path) -> None:
    for rank in range(5):
        pair = PairWriter(tmp_path)
        pair.event("gemm", 0, 10 + rank, "kernel", pid=0, tid=7, stream=7, device=0)
        pair.write()[1].rename(tmp_path / f"rank{4 - rank}.json")
        (tmp_path / "host.json").unlink()
    table = nadi.analyses.analyze("temporal", tmp_path)
    assert table.select("rank", "busy_ns").rows() == [(r, 14_000 - 1_000 * r) for r in range(5)]
