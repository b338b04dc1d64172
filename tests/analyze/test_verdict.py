"""What bounds a window, and what a late rank does more than the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from nadi.bottlenecks.steps.verdict import BOUND_BY, LateRank, RepeatedLateness
from nadi.graph import rank_excess
from nadi.graph.critical_paths import PATH_KINDS
from nadi.graph.rank_excess import Excess, ExcessPart
from tests.conftest import PairWriter

pytestmark = pytest.mark.usefixtures("demo_read_once")

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
Op = tuple[str, float]


def run_of(folder: Path, ranks: list[list[Op]], *, since: list[float] | None = None) -> Any:
    """Run ranks that each do operations, with one nested in each, and then an all_reduce."""
    folder.mkdir(exist_ok=True)
    group = {"pg_config": [{"pg_name": "0", "ranks": list(range(len(ranks)))}]}
    begins = since or [0.0] * len(ranks)
    ends = [begin + sum(length for _, length in ops)
            for begin, ops in zip(begins, ranks, strict=True)]  # fmt: skip
    end = max(ends) + 12
    for rank, ops in enumerate(ranks):
        writer = PairWriter(folder)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": len(ranks), **group
        }  # fmt: skip
        writer.event("ProfilerStep#3", begins[rank], end + 2 - begins[rank], "user_annotation")
        at = begins[rank]
        for name, length in ops:
            parent = writer.op(name, at, length)
            writer.op(f"inner {name}", at + length / 10, length * 0.8, parent=parent)
            at += length
        launch, sync = {"correlation": 1}, {"correlation": 2}
        writer.event("cudaLaunchKernel", at, 1, "cuda_runtime", **launch)
        writer.event(ALL_REDUCE, at + 2, end - at - 2, "kernel", pid=0, tid=7, stream=7, device=0,
                     **{"Process Group Name": "0"}, **launch)  # fmt: skip
        writer.event("cudaDeviceSynchronize", at + 2, end + 1 - at - 2, "cuda_runtime", **sync)
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    return nadi.run(folder)


@pytest.mark.parametrize(("caused_ns", "is_alone"), [(4, False), (5, False), (6, True)])
def test_a_rank_is_alone_if_it_causes_more_than_half(caused_ns: int, is_alone: bool) -> None:
    excess = Excess("", "", 0, 0, 0, False, 0.0, ExcessPart("", 0, 0, 0, 0), None)
    repeated = RepeatedLateness(1, 1, False, 1.0)
    assert LateRank(0, 1, caused_ns, 10, 0, excess, repeated).is_alone is is_alone


def test_the_cause_of_a_late_rank_is_what_it_does_more_and_not_what_takes_longest(
    tmp_path: Path,
) -> None:
    common = [("mm", 500.0), ("add", 100.0)]
    extra = [("svd", 10.0)] * 30
    run = run_of(tmp_path, [common, [*common, *extra], common])
    late = run.verdict.late
    assert run.verdict.bound_by == "straggler"
    assert (late.rank, late.late_ns, late.is_alone) == (1, 300_000, True)
    # the time is in "inner svd", a part of "svd"
    most = late.excess.operation
    assert (late.excess.reason, late.excess.kind) == ("more operations", "host op")
    assert late.excess.time_ns == 300_000
    assert (late.excess.operators, late.excess.others_operators) == (64, 4)
    assert most == ExcessPart("svd", 30, 0, 300_000, 0)
    assert late.is_straggler
    assert run.measured_ns - run.verdict.balanced_ns == pytest.approx(200_000, abs=2_000)
    best = next(one for one in run.best_changes if str(one.change).startswith("balance"))
    # a third of it stays, the others get as much
    assert best.gain_ns == pytest.approx(200_000, abs=2_000)
    assert best.gain_ns == run.measured_ns - nadi.what_if(run.graph, str(best.change)).window_ns


def test_a_rank_that_does_the_same_more_slowly(tmp_path: Path) -> None:
    run = run_of(tmp_path, [[("mm", 100.0), ("add", 300.0)], [("mm", 260.0), ("add", 300.0)]])
    excess = run.verdict.late.excess
    assert (excess.reason, excess.factor) == ("slower operations", 0)
    assert excess.operation == ExcessPart("mm", 1, 1, 260_000, 100_000)
    change = next(one for one in run.best_changes if str(one.change).startswith("balance"))
    assert change.gain_ns == pytest.approx(80_000, abs=1_000)


def test_a_rank_that_does_everything_more_slowly(tmp_path: Path) -> None:
    ops = [("mm", 100.0), ("add", 300.0), ("svd", 50.0)]
    run = run_of(tmp_path, [ops, [(name, 1.5 * length) for name, length in ops]])
    assert run.verdict.late.excess.factor == pytest.approx(1.5)


def test_an_excess_beside_the_path_counts_if_the_path_explains_little(tmp_path: Path) -> None:
    """As where a recording does not show what an all_reduce on another thread waited for."""
    run = run_of(tmp_path, [[("mm", 100.0)], [("mm", 100.0), *[("svd", 10.0)] * 30]])
    others = replace(run.path, segments=run.path.segments.clear())
    args = (run.graph, run.window, others, 1)
    assert nadi.graph.find_excess(*args, late_ns=300_000).operation.name == "svd"
    # nor does a path through a thread that idles hide it
    idle = run.path.segments.filter(kind="host op", rank=1).head(1).with_columns(
        pl.lit("").alias("name"), pl.lit("host gap").cast(pl.Enum(PATH_KINDS)).alias("kind"),
    ).with_columns(end=pl.col("start") + 10**6)  # fmt: skip
    path = replace(run.path, segments=idle)
    found = nadi.graph.find_excess(*args[:2], path, 1, late_ns=300_000)
    assert found.operation.name == "svd"


def test_an_excess_is_the_same_however_many_edges_are_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, [[("mm", 100.0)], [("mm", 100.0), *[("svd", 10.0)] * 30]])
    found = nadi.graph.find_excess(run.graph, run.window, run.path, 1, late_ns=300_000)
    assert found.time_ns == 300_000
    for block in (1, 7):
        monkeypatch.setattr(rank_excess, "_BLOCK", block)
        again = nadi.graph.find_excess(run.graph, run.window, run.path, 1, late_ns=300_000)
        assert again == found


def test_a_rank_that_begins_late(tmp_path: Path) -> None:
    same = [("mm", 100.0)]
    run = run_of(tmp_path, [same, same, same], since=[0.0, 0.0, 400.0])
    late = run.verdict.late
    assert (late.rank, late.late_ns, late.began_late_ns) == (2, 400_000, 400_000)
    assert late.excess.time_ns == 0


def test_ranks_in_step_are_bound_by_something_else(tmp_path: Path) -> None:
    run = run_of(tmp_path, [[("mm", 1000.0)], [("mm", 1004.0)]])
    assert run.verdict.bound_by == "host"
    assert run.verdict.leading.name == "inner mm"
    assert run.verdict.num_steps == 1


def write_kernels(pair: PairWriter, kernels: list[Op], *, delay: float = 0) -> Path:
    """Write launches in the first us, and kernels one after the other on a stream."""
    at = 30 + delay
    for number, (name, length) in enumerate(kernels):
        launch = {"correlation": number + 1}
        pair.event("cudaLaunchKernel", number, 0.5, "cuda_runtime", **launch)
        pair.event(name, at, length, "kernel", pid=0, tid=7, stream=7, device=0, **launch)
        at += length
    pair.event("cudaDeviceSynchronize", 25, at - 24, "cuda_runtime", correlation=99)
    return pair.write()[1]


def test_the_class_of_kernels_that_leads(pair: PairWriter) -> None:
    kernels = [("ampere_sgemm_32x32", 60.0), ("gemv2T", 50.0), ("fmha_forward", 90.0)]
    run = nadi.run(write_kernels(pair, kernels))
    verdict, leading = run.verdict, run.verdict.leading
    assert verdict.bound_by == "device"
    assert (leading.kernel_class, leading.class_ns) == ("matrix multiplication", 110_000)
    assert (leading.name, leading.time_ns, leading.count) == ("ampere_sgemm_32x32", 60_000, 1)
    assert not verdict.has_host_trace
    first = run.best_changes[0]
    assert (first.about, first.gain_ns) == ("matrix multiplication kernels", 55_000)
    assert [one.gain_ns for one in run.best_changes] == sorted(
        (one.gain_ns for one in run.best_changes), reverse=True
    )


def test_communication_on_one_rank(pair: PairWriter) -> None:
    run = nadi.run(write_kernels(pair, [("gemm", 20.0), (ALL_REDUCE, 200.0)]))
    assert run.verdict.bound_by == "communication"
    assert run.verdict.leading.name == ALL_REDUCE
    assert run.verdict.leading.is_communication
    assert run.verdict.exposed_ns == 200_000


def test_what_the_recording_does_not_explain(pair: PairWriter) -> None:
    device = write_kernels(pair, [("gemm", 20.0), ("gemm", 20.0)], delay=5000)
    run = nadi.run(device, window="0ms:6ms")
    verdict = run.verdict
    assert verdict.bound_by == "unexplained"
    assert verdict.cause == "device busy with work begun before the recording"
    assert verdict.leading.name == "gemm"
    assert verdict.leading.until_ns == 5_030_000
    assert verdict.unexplained_ns == run.unexplained.total_ns


@pytest.mark.parametrize("which", ["demo", "step"])
def test_the_parts_of_a_recording_add_up(
    which: str, demo_run: nadi.bottlenecks.Run, demo_folder: Path
) -> None:
    run = demo_run if which == "demo" else nadi.run(demo_folder, step=2)
    verdict = run.verdict
    assert verdict.bound_by in BOUND_BY
    parts = (verdict.host_ns, verdict.device_ns, verdict.communication_ns, verdict.unexplained_ns)
    assert sum(parts) == verdict.length_ns == run.measured_ns
    assert min(parts) >= 0
    assert verdict.num_steps == (2 if which == "demo" else 1)
    assert verdict.late is not None
    assert verdict.late.caused_ns <= verdict.late.all_caused_ns
    # what is tried are what-ifs that anyone can ask for
    for one in run.best_changes:
        asked = nadi.what_if(run.graph, str(one.change), window=run.window)
        assert (asked.window_ns, asked.gain_ns) == (one.window_ns, one.gain_ns)


def test_the_parts_are_those_of_the_path(pair: PairWriter) -> None:
    """Two calls with a gap between them, the latency of a launch, and a kernel."""
    pair.event("aten::a", 0, 20)
    pair.event("aten::b", 24, 10)
    pair.event("cudaLaunchKernel", 26, 5, "cuda_runtime", correlation=1)
    pair.event("k", 33, 100, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    run = nadi.run(pair.write()[1])
    kinds, verdict = run.path.by_kind(), run.verdict
    assert kinds["launch"] > 0
    assert kinds["host gap"] == verdict.gaps_ns == 4_000
    assert verdict.host_ns == kinds["host op"] + kinds["host gap"] + kinds["launch"]
    assert (verdict.device_ns, verdict.communication_ns) == (100_000, 0)
    assert verdict.host_ns + verdict.device_ns + verdict.unexplained_ns == run.path.length


@pytest.mark.parametrize(("rows", "is_structural"), [((8, 8), False), ((8, 32), True)])
def test_a_rank_with_larger_operands_is_a_straggler(
    tmp_path: Path, rows: tuple[int, int], *, is_structural: bool
) -> None:
    for rank, count in enumerate(rows):
        writer = PairWriter(tmp_path)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        own, end = (100.0, 400.0)[rank], 420.0
        writer.op("aten::mm", 0, own, **{"Input Dims": [[count, 64], [64, 64]]})
        writer.event("cudaLaunchKernel", own, 1, "cuda_runtime", correlation=1)
        writer.event(ALL_REDUCE, own + 2, end - own - 2, "kernel", pid=0, tid=7, stream=7,
                     device=0, **{"Process Group Name": "0"}, correlation=1)  # fmt: skip
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    late = nadi.run(tmp_path).verdict.late
    assert late is not None
    assert (late.rank, late.excess.reason) == (1, "slower operations")
    assert late.excess.has_other_shapes is late.excess.is_structural is is_structural


@pytest.mark.parametrize(
    ("function", "usual", "reason", "is_structural"),
    [
        ("train.py(3): tokenize", 50.0, "longer functions", True),
        ("train.py(3): tokenize", 200.0, "longer functions", False),
        ("wait in queue.py(80): get", 50.0, "more time between operations", False),
    ],
)
def test_a_function_of_python_that_takes_twice_as_long_makes_a_straggler(
    tmp_path: Path, function: str, usual: float, reason: str, *, is_structural: bool
) -> None:
    for rank, own in enumerate([usual, 300.0]):
        writer = PairWriter(tmp_path)
        writer.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        writer.op("aten::a", 0, 10)
        writer.event(function, 10.1, own, "python_function")
        writer.op("aten::mm", 10.2 + own, 40 - 10 * rank)
        at = 51 + own
        writer.event("cudaLaunchKernel", at, 1, "cuda_runtime", correlation=1)
        writer.event(ALL_REDUCE, at + 2, 420 - at - 2, "kernel", pid=0, tid=7, stream=7,
                     device=0, **{"Process Group Name": "0"}, correlation=1)  # fmt: skip
        for node in writer.nodes:
            node["pid"] = rank
        writer.write(f"_{rank}")
    run = nadi.run(tmp_path)
    late = run.verdict.late
    assert late is not None
    assert (late.rank, late.excess.reason, late.excess.kind) == (1, reason, "host gap")
    assert late.excess.operation.name == function
    assert late.excess.is_structural is is_structural
    spends = f"it spends 300.0 us in {function}, the others {usual:.4g}"
    assert (spends in verdict_in_words(run)[0]) is (reason == "longer functions")
