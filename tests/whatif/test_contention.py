"""Kernels beside communication: what a recording tells of them, and what changes do to them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import nadi
from nadi.graph.contention import learn_contention, learned_ratio
from nadi.kernels.sequences import union_of
from nadi.trace.schema import NODE_KINDS
from tests.conftest import PairWriter

US = 1_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


class Recording:
    """Kernels one after the other on a stream, and communication on another; times in us."""

    def __init__(self, pair: PairWriter) -> None:
        self.pair, self.number, self.at = pair, 0, 1_000.0

    def launch(self, name: str, start: float, dur: float, stream: int, **args: object) -> None:
        self.number += 1
        at, work = 3.0 * self.number, {"correlation": self.number, "device": 0, "stream": stream}
        dims = args.pop("dims", None)
        self.pair.event("aten::mm", at, 2, **({"Input Dims": dims} if dims else {}))
        self.pair.event("cudaLaunchKernel", at + 0.5, 1, "cuda_runtime", correlation=self.number)
        self.pair.event(name, start, dur, "kernel", **work, **args)

    def kernel(self, name: str, dur: float, *, beside: float = 0.0, dims: object = None) -> None:
        """Add a kernel with communication beside its first part."""
        if beside:
            said = {"Process Group Name": "0", "In msg nelems": 1_000, "dtype": "Float"}
            self.launch(NCCL, self.at, beside, 20, **said, **{"Collective name": "allreduce"})
        self.launch(name, self.at, dur, 7, dims=dims, grid=[100, 1, 1], block=[128, 1, 1])
        self.at += dur + 5

    def job(self) -> nadi.Job:
        _, device = self.pair.write()
        return nadi.load_job(device)


SMALL, LARGE = [[64, 64], [64, 64]], [[512, 64], [64, 64]]


def written(pair: PairWriter) -> Recording:
    """Make kernels of two names, four times alone and four times beside communication."""
    made = Recording(pair)
    for _ in range(4):
        for name, ratio in (("slow", 1.5), ("same", 1.0)):
            made.kernel(name, 200, dims=SMALL)
            made.kernel(name, 200 * ratio, beside=200 * ratio, dims=SMALL)
    made.kernel("slow", 250, beside=150, dims=SMALL)  # 100 us of its work beside communication
    return made


@pytest.fixture
def known(pair: PairWriter) -> nadi.Job:
    """``slow`` takes 1.5 times as long beside communication, ``same`` as long as alone."""
    return written(pair).job()


def test_known_ratios_are_found(known: nadi.Job) -> None:
    table = nadi.analyses.kernel_contention(known)
    ratio = dict(table.select("name", "ratio").iter_rows())
    assert ratio == pytest.approx({"slow": 1.5, "same": 1.0}, rel=0.01)
    assert table["basis"].to_list() == ["recording"] * 2
    slow = table.row(by_predicate=pl.col("name") == "slow", named=True)
    assert (slow["alone"], slow["beside"], slow["beside_ns"]) == (4, 4, 1350 * US)
    assert slow["low"] < slow["ratio"] < slow["high"]


def test_each_run_of_a_kernel_has_the_ratio_of_the_kernel(known: nadi.Job) -> None:
    (trace,), found = known.traces, learn_contention(known)
    of_name = dict(found.kernels.select("name", "ratio").iter_rows())
    (runs,) = found.runs
    names = trace.nodes["name"].to_list()
    expected = [max(of_name[names[row]], 1.0) for row in runs.rows.tolist()]
    assert runs.ratio.tolist() == expected
    assert runs.rows.tolist() == [row for row, name in enumerate(names) if name in of_name]
    assert int(runs.beside.sum()) == found.kernels["beside_ns"].sum()
    ratio, beside = runs.of_nodes(len(names))
    assert ratio[runs.rows].tolist() == expected
    assert np.delete(ratio, runs.rows).tolist() == [1.0] * (len(names) - runs.rows.size)
    assert int(beside.sum()) == found.kernels["beside_ns"].sum()


@pytest.mark.parametrize(
    ("shapes", "why"),
    [((None, None), "no shapes are recorded"), ((SMALL, LARGE), "fewer than two alone")],
)
def test_confounded_shapes_are_unknown(
    pair: PairWriter, shapes: tuple[object, object], why: str
) -> None:
    made = Recording(pair)
    for _ in range(3):
        made.kernel("gemm", 200, dims=shapes[0])
        made.kernel("gemm", 360, beside=360, dims=shapes[1])
    (row,) = nadi.analyses.kernel_contention(made.job()).iter_rows(named=True)
    assert (row["ratio"], row["unknown"], row["basis"]) == (None, why, "published")
    assert (row["low"], row["high"]) == (1.0, 1.4)


def test_other_work_with_the_same_shapes_is_unknown() -> None:
    share = np.ones(4)
    varies = learned_ratio(np.array([100.0, 300, 110, 310]), np.full(4, 400.0), share)
    faster = learned_ratio(np.full(4, 219.0), np.full(4, 41.0), share)
    assert isinstance(varies, str)
    assert isinstance(faster, str)


def test_few_and_scattered_times_count_less() -> None:
    alone = np.full(4, 100.0)
    sure = learned_ratio(alone, np.full(20, 150.0), np.ones(20))
    unsure = learned_ratio(alone, np.array([110.0, 150, 230]), np.ones(3))
    assert not isinstance(sure, str)
    assert not isinstance(unsure, str)
    assert 1 < unsure.ratio < sure.ratio < 1.5
    assert unsure.high - unsure.low > sure.high - sure.low


def times_of(answer: nadi.whatif.WhatIf, name: str) -> list[int]:
    graph = answer.replay.graph
    ops = np.flatnonzero(graph.op_names == name)
    return (answer.replay.time[2 * ops + 1] - answer.replay.time[2 * ops]).tolist()


def test_removed_communication_frees_the_kernels_that_it_slowed(known: nadi.Job) -> None:
    graph = nadi.build_graph(known)
    answer = nadi.what_if(graph, "remove nccl")
    (ratio,) = learn_contention(known).kernels.filter(pl.col("name") == "slow")["ratio"]
    beside = np.array([0, 300, 0, 300, 0, 300, 0, 300, 150]) * US
    measured = np.array([200, 300, 200, 300, 200, 300, 200, 300, 250]) * US
    expected = measured - beside * (1 - 1 / ratio)
    assert times_of(answer, "slow") == pytest.approx(expected, abs=1)
    assert times_of(answer, "same") == [200 * US] * 8


def test_what_does_not_change_the_overlap_changes_no_time(known: nadi.Job) -> None:
    graph = nadi.build_graph(known)
    same = nadi.what_if(graph, "scale nccl 1")
    assert (same.replay.time == graph.time).all()


@pytest.mark.parametrize("change", ["scale nccl 2", "scale nccl 0.3", "scale slow 0.5"])
def test_kernels_do_their_work_slower_beside_communication_alone(
    known: nadi.Job, change: str
) -> None:
    graph = nadi.build_graph(known)
    answer = nadi.what_if(graph, change)
    (ratio,) = learn_contention(known).kernels.filter(pl.col("name") == "slow")["ratio"]
    is_nccl = graph.named("nccl")

    def work(time: nadi.trace.arrays.Ints, op: int) -> float:
        begin, end = time[2 * op], time[2 * op + 1]
        talks = [(time[2 * one], time[2 * one + 1]) for one in np.flatnonzero(is_nccl)]
        beside = sum(max(min(end, stop) - max(begin, start), 0) for start, stop in talks)
        return float(end - begin - beside * (1 - 1 / ratio))

    factor = 0.5 if "slow" in change else 1.0
    for op in np.flatnonzero(graph.op_names == "slow").tolist():
        assert work(answer.replay.time, op) == pytest.approx(factor * work(graph.time, op), abs=2)


def test_unknown_kernels_are_predicted_as_they_are_within_what_is_published(
    pair: PairWriter,
) -> None:
    made = Recording(pair)
    for _ in range(3):
        made.kernel("gemm", 360, beside=360)
    answer = nadi.what_if(nadi.build_graph(made.job()), "remove nccl")
    assert times_of(answer, "gemm") == [360 * US] * 3
    assert answer.unknown_ns == 3 * 360 * US
    assert answer.published_ns == answer.window_ns - 3 * round(360 * US * (1 - 1 / 1.4))
    assert answer.interval.low_ns <= answer.published_ns


def test_simulated_communication_slows_kernels_as_long_as_it_takes(tmp_path: Path) -> None:
    for rank in range(2):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        written(pair).pair.write(str(rank))
    job = nadi.load_job(*tmp_path.glob("device*"))
    system = msgspec.structs.replace(nadi.load_system("dgx-h100", 2), nccl=None)
    done = nadi.simulate(job, system)
    program, time = done.program, done.end - done.start
    is_talk = np.isin(program.kind, [NODE_KINDS.index("COMM_COLL")])
    talks = list(zip(done.start[is_talk], done.end[is_talk], program.rank[is_talk], strict=True))
    assert 0 < time[is_talk].max() < 50 * US
    (ratio,) = learn_contention(job).kernels.filter(pl.col("name") == "slow")["ratio"]
    names = pl.concat([trace.nodes["name"].cast(pl.String) for trace in done.traces])
    slow = np.flatnonzero(names.gather(program.first[program.rank] + program.row) == "slow")
    beside = np.array([
        sum(max(min(done.end[node], stop) - max(done.start[node], start), 0)
            for start, stop, rank in talks if rank == program.rank[node])
        for node in slow
    ])  # fmt: skip
    # beside the time before the first, and 5 us between kernels, which are simulated with them
    later = done.start[slow] > 1_000 * US
    work = (time[slow] - beside * (1 - 1 / ratio))[later]
    assert beside.astype(bool).sum() == 10
    assert work == pytest.approx(np.full(work.size, 205 * US), rel=0.002)
    # steps with tiers are simulated from these traces, which have the kernels as long
    assert nadi.simulate(done.traces, system).makespan == done.makespan


def test_kernels_that_begin_before_the_one_before_ends(pair: PairWriter) -> None:
    made = Recording(pair)
    made.launch("first", 1_000, 100, 7)
    made.launch("second", 1_080, 70, 7)  # 50 us after the end of the first
    made.launch("third", 1_150, 10, 7)
    graph = nadi.build_graph(made.job())
    assert (nadi.graph.replay_graph(graph).time == graph.time).all()
    halved = nadi.what_if(graph, "scale first 0.5")
    ends = [int(halved.replay.time[2 * op + 1]) for op in np.flatnonzero(
        graph.gather("category").is_in(["kernel"]).to_numpy())]  # fmt: skip
    # the second waits for the end of the first no more, and does 50 us of work
    assert np.diff(ends).tolist() == [80 * US, 10 * US]
    for change in ("set second 20us", "scale second 0.4"):
        assert nadi.what_if(graph, change).gain_ns == 30 * US


def test_union_of_intervals() -> None:
    union = union_of(np.array([5, 0, 1, 9]), np.array([7, 2, 3, 9]))
    moments = np.arange(-1, 11)
    inside = [sum(0 <= t < 3 or 5 <= t < 7 for t in range(-1, end)) for end in moments]
    assert union.until(moments).tolist() == inside
    assert union_of(moments[:0], moments[:0]).until(moments).tolist() == [0] * 12
