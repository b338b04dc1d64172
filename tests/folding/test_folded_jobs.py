"""Folded jobs: roles found in traces, files, bounds, and answers of the whole job."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import FormatError, NadiError
from nadi.models import write_job
from nadi.recordings import FoldedJob, read_folded, read_job, write_folded
from nadi.recordings.folded.folded_trace import own_times, with_own_times
from nadi.simulation import bound_answer, results_of, simulated_graph, simulated_path
from nadi.systems import Dimension, Network, price_job
from nadi.trace import Job
from tests.amounts import examples

PLAN: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8}


@pytest.fixture(scope="module")
def job() -> Job:
    return nadi.llm_job("gpt3-125m", **PLAN)


@pytest.fixture(scope="module")
def system() -> nadi.systems.System:
    return nadi.load_system("dgx-h100", 8)


@pytest.fixture(scope="module")
def written(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("written")
    write_job(job, folder)
    return folder


def skewed(job: Job, factors: Sequence[Any]) -> Job:
    """Give each rank times of its own."""
    priced, _ = price_job(job, nadi.load_system("dgx-h100", len(job.traces)))
    assert isinstance(priced, Job)
    traces = []
    for trace, factor in zip(priced.traces, factors, strict=True):
        time = trace.column("duration")
        slower = pl.Series(np.where(time > 0, (time * factor).astype(np.int64), time))
        traces.append(replace(trace, nodes=trace.nodes.with_columns(duration=slower)))
    return replace(priced, traces=tuple(traces))


def test_ranks_of_a_stage_are_one_class(job: Job) -> None:
    folded = nadi.fold(job)
    assert folded.of.tolist() == [0] * 4 + [1] * 4
    assert not folded.times_vary
    assert nadi.fold(folded) is folded


def test_collectives_that_ranks_begin_at_once_have_one_order() -> None:
    """Whether ranks stand for others or not: gradients of both groups are summed beside others."""
    job = nadi.llm_job("llama3-8b", tp=2, dp=4, zero=3, global_batch=8, sequence=1024)
    own = [job.own_trace(rank) for rank in range(len(job.traces))]
    system = nadi.load_system("dgx-h100", len(own))
    assert nadi.simulate(nadi.fold(job), system).makespan == nadi.simulate(own, system).makespan


def test_roles_are_found_in_files_and_files_become_the_same(written: Path, tmp_path: Path) -> None:
    folded = nadi.fold(written)
    assert len(folded.folds) == 2
    assert folded.rank_groups is not None
    assert set(folded.rank_groups.members) == {"tp", "dp", "pp", "embedding"}
    write_job(nadi.unfold(folded), tmp_path)
    names = sorted(os.listdir(written))
    assert names == sorted(os.listdir(tmp_path))
    assert filecmp.cmpfiles(written, tmp_path, names, shallow=False)[0] == names


def test_answers_are_those_of_the_whole_job(written: Path, system: nadi.systems.System) -> None:
    whole, done = nadi.simulate(written, system), nadi.simulate(nadi.fold(written), system)
    assert done.makespan == whole.makespan
    assert done.cycles.tolist() == whole.cycles.tolist()
    assert done.bound is not None
    assert done.bound.is_exact
    mine, theirs = results_of(done).live_memory, results_of(whole).live_memory
    assert mine is not None
    assert theirs is not None
    assert mine["peak"].equals(theirs["peak"])
    assert simulated_path(done).length == simulated_path(whole).length


def test_a_file_keeps_everything(job: Job, tmp_path: Path) -> None:
    folded = nadi.fold(job)
    size = write_folded(folded, tmp_path / "a.nadi")
    again = read_job(tmp_path / "a.nadi")
    assert isinstance(again, FoldedJob)
    assert write_folded(again, tmp_path / "b.nadi") == size
    assert (tmp_path / "a.nadi").read_bytes() == (tmp_path / "b.nadi").read_bytes()
    for mine, theirs in zip(again.traces, job.traces, strict=True):
        assert mine.nodes.equals(theirs.nodes)
        assert mine.tensors.equals(theirs.tensors)


@settings(max_examples=examples(12))
@given(st.lists(st.floats(1.0, 1.3), min_size=8, max_size=8))
def test_the_bound_covers_ranks_of_different_times(factors: list[float]) -> None:
    system = nadi.load_system("dgx-h100", 8)
    job = skewed(nadi.llm_job("gpt3-125m", **PLAN), factors)
    whole, done = nadi.simulate(job, system), nadi.simulate(nadi.fold(job), system)
    assert done.bound is not None
    assert done.bound.low_ns <= whole.makespan <= done.bound.high_ns
    assert done.bound.low_ns <= done.makespan <= done.bound.high_ns


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_interval_is_narrow_and_has_steps_of_other_orders(noise: float) -> None:
    """Ranks of different times send in other orders, which makes the step longer."""
    random = np.random.default_rng(1)
    plain = nadi.llm_job("gpt3-125m", tp=2, dp=8, zero=3, global_batch=16)
    slower = 1 + 0.05 * random.random(16)
    noises = np.exp(random.normal(0, noise, (16, plain.traces[0].nodes.height)))
    job = skewed(plain, list(slower[:, None] * noises))
    node = nadi.load_system("dgx-h100", 8)
    dimension = Dimension("switch", 16, bandwidth=5.0, latency=10_000.0)
    slow = msgspec.structs.replace(node, network=Network((dimension,)), nccl=None)
    folded = nadi.fold(job)
    for system, widest in ((slow, 0.12), (nadi.load_system("dgx-h100", 16), 0.11)):
        whole, done = nadi.simulate(job, system).makespan, nadi.simulate(folded, system)
        assert done.bound is not None
        assert done.bound.low_ns <= whole <= done.bound.high_ns
        assert done.bound.high_ns - done.bound.low_ns < widest * whole


def test_other_answers_have_a_bound(job: Job, system: nadi.systems.System) -> None:
    def faster(done: nadi.simulation.Simulation) -> int:
        return nadi.what_if(simulated_graph(done), "scale gemm 0.5").window_ns

    folded = nadi.fold(job)
    with pytest.raises(NadiError):
        bound_answer(folded, system, faster)  # no operation is called gemm

    def of_optimizer(done: nadi.simulation.Simulation) -> int:
        return nadi.what_if(simulated_graph(done), "scale optimizer 0.5").window_ns

    answer, bound = bound_answer(folded, system, of_optimizer)
    assert bound.low_ns == answer == bound.high_ns < nadi.simulate(folded, system).makespan


def test_a_straggler_is_counted(job: Job, system: nadi.systems.System) -> None:
    slow = skewed(job, [1.3 if rank == 5 else 1.0 for rank in range(8)])
    folded = nadi.fold(slow)
    assert len(folded.folds) == 2
    assert folded.times_vary
    whole, done = nadi.simulate(slow, system), nadi.simulate(folded, system)
    assert abs(done.makespan / whole.makespan - 1) < 0.005


def test_ranks_of_irregular_groups_stay_apart(written: Path, tmp_path: Path) -> None:
    traces = read_job(written)
    assert isinstance(traces, list)
    groups = traces[0].groups
    odd = groups.with_columns(ranks=pl.Series([[0, 1], [0, 2, 3], [0, 4], [0, 4]]))
    folded = nadi.fold([replace(traces[0], groups=odd), *traces[1:]])
    assert len(folded.folds) == 8
    assert folded.rank_groups is None


def test_ranks_that_do_nearly_the_same_are_one_class(tmp_path: Path) -> None:
    """One of four ranks has a few other operations."""
    job = nadi.llm_job("gpt3-125m", dp=4, global_batch=4, sequence=256)
    system = nadi.load_system("dgx-h100", 4)
    write_job(price_job(job, system)[0], tmp_path)
    read = read_job(str(tmp_path))
    traces = list(read.traces if isinstance(read, Job) else read)
    nodes = traces[1].nodes
    other = (nodes["kind"] == "COMP").to_numpy() & (np.arange(nodes.height) % 40 == 7)
    names = nodes["name"].cast(pl.String).to_numpy().copy()
    names[other] = "another"
    names = pl.Series(names, dtype=nodes["name"].dtype)
    traces[1] = replace(traces[1], nodes=nodes.with_columns(name=names))
    near, exact = nadi.fold(traces), nadi.fold(traces, alike="exactly")
    assert (len(near.folds), len(exact.folds)) == (1, 2)
    assert "fold.nearly-alike" in near.issues["code"].to_list()
    steps = [nadi.simulate(one, system).makespan for one in (near, exact)]
    assert abs(steps[0] / steps[1] - 1) < 0.02
    slower = with_own_times(traces[2].nodes, own_times(traces[2].nodes) * 2)
    traces[2] = replace(traces[2], nodes=slower)
    assert len(nadi.fold(traces, alike="in time").folds) == 3


def test_damaged_files_are_refused(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "a.nadi"
    write_folded(nadi.fold(job), file)
    content = file.read_bytes()
    for at in range(40, len(content), len(content) // 40):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        with suppress(FormatError):  # a byte that nothing reads does no harm
            read_folded(file)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError):
        read_folded(file)
    file.write_bytes(content)
    with pytest.raises(FormatError, match="a folded job, not a trace"):
        nadi.read(file)
