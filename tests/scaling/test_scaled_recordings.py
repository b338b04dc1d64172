"""Recordings of one process as tensor parallel ranks, stages and replicas."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.graph.build.job_graph import build_graph
from nadi.model.trace import Job
from nadi.scaling import ScaledJob
from nadi.scaling.recorded_blocks import find_blocks
from nadi.scaling.recorded_memory import find_lives, peak_bytes
from nadi.scaling.recorded_ranks import recorded_rank
from nadi.scaling.recorded_stage_memory import StageBlocks, stage_bytes
from nadi.scaling.recorded_stages import cut_evenly
from nadi.simulator.work.recorded_work import nodes_of_job
from tests.amounts import examples

TOKENS, WIDTH, LAYERS, STEPS = 256, 256, 4, 3  # of cpu_transformer4, with 1,000 words
STREAM = TOKENS * WIDTH * 4


@pytest.fixture(scope="module")
def transformer(shared_traces: Path) -> Job:
    job = nadi.load_job(shared_traces / "cpu_transformer4")
    assert isinstance(job, Job)
    return job


@pytest.fixture(scope="module")
def before(transformer: Job) -> nadi.folding.FoldedJob:
    return nadi.fold(transformer)


def rows_of(job: Job, rank: int = 0) -> pl.DataFrame:
    columns = ("name", "kind", "comm_type")
    return job.own_trace(rank).nodes.with_columns(pl.col(*columns).cast(pl.String))


def collectives(scaled: ScaledJob) -> list[tuple[str, int]]:
    rows = rows_of(scaled.job).filter(pl.col("kind") == "COMM_COLL")
    return list(rows.select("comm_type", "comm_bytes").iter_rows())


def total(rows: pl.DataFrame, name: str) -> int:
    return int(rows.filter(pl.col("name") == name)["duration"].sum())


def test_a_transformer_is_shared_as_megatron_does(
    transformer: Job, before: nadi.folding.FoldedJob
) -> None:
    halves, quarters = (nadi.scale(transformer, tp=ranks) for ranks in (2, 4))
    found = collectives(halves)
    # per layer two sums forward and two backward; the head's input, and the loss in two sums
    assert found.count(("all_reduce", STREAM)) == STEPS * (4 * LAYERS + 1)
    assert found.count(("all_reduce", 2 * TOKENS * 4)) == STEPS * 2
    assert len(found) == STEPS * (4 * LAYERS + 3)
    assert collectives(quarters) == found
    whole, half, quarter = (rows_of(one) for one in (before, halves.job, quarters.job))
    for name in ("aten::mm", "aten::bmm", "aten::relu"):
        assert total(whole, name) > total(half, name) > total(quarter, name)
    for name in ("aten::transpose", "aten::native_layer_norm", "aten::embedding", "aten::t"):
        assert total(whole, name) == total(half, name) == total(quarter, name)
    groups = quarters.job.rank_groups
    assert groups is not None
    assert groups.members["tp"].tolist() == [[0, 1, 2, 3]]


def test_all_layers_are_in_one_stage_each(transformer: Job, before: nadi.folding.FoldedJob) -> None:
    times = {}
    for stages, micro_batches in ((2, 1), (4, 1), (4, 3)):
        scaled = nadi.scale(transformer, pp=stages, micro_batches=micro_batches)
        rows = [rows_of(scaled.job, rank) for rank in range(stages)]
        sent = [one.filter(pl.col("kind") == "COMM_SEND") for one in rows]
        received = [one.filter(pl.col("kind") == "COMM_RECV") for one in rows]
        ends = [1, *(2 for _ in rows[2:]), 1]
        for one, others, number in zip(sent, received, ends, strict=True):
            assert one.height == others.height == STEPS * micro_batches * number
            assert set(one["comm_bytes"].to_list()) == {STREAM}
        every = pl.concat(rows)
        times[stages, micro_batches] = {
            name: total(every, name) for name in ("aten::mm", "aten::addmm", "aten::_softmax")
        }
    whole = rows_of(before)
    for (_, micro_batches), found in times.items():
        assert found == {name: micro_batches * total(whole, name) for name in found}


def test_axes_together(transformer: Job) -> None:
    scaled = nadi.scale(transformer, tp=2, pp=2, dp=4, micro_batches=2)
    assert scaled.before == (1, 1, 1, 1)
    assert scaled.after == (16, 4, 2, 2)
    groups = scaled.job.rank_groups
    assert groups is not None
    assert groups.members["tp"][:2].tolist() == [[0, 1], [2, 3]]
    assert groups.members["dp"][0].tolist() == [0, 2, 4, 6]
    assert groups.members["pp"][0].tolist() == [0, 8]
    done = nadi.simulate(scaled.job, nadi.load_system("dgx-h100", 16))
    assert done.makespan > 0


def test_one_replica_sums_its_gradients(transformer: Job) -> None:
    scaled = nadi.scale(transformer, dp=2)
    layer = 4 * WIDTH * WIDTH + 2 * 4 * WIDTH * WIDTH + (4 + 4 + 1 + 4) * WIDTH
    weights = LAYERS * layer + 1000 * WIDTH + 1000 * WIDTH + 1000
    sizes = [size for _, size in collectives(scaled)]
    assert sum(sizes) == STEPS * 4 * weights
    assert all(one >= 1 << 20 for one in sizes[: len(sizes) // STEPS - 1])
    assert "25 MiB" in scaled.guesses[0]


def test_ranks_of_a_recording_are_shared(demo_folder: Path) -> None:
    plain, shared = nadi.scale(demo_folder, dp=8), nadi.scale(demo_folder, dp=8, tp=2)
    assert plain.after.ranks == 8
    assert shared.after == (16, 8, 2, 1)
    sums = [
        rows_of(one.job).filter(
            (pl.col("comm_type") == "all_reduce") & ~pl.col("name").str.starts_with("tp::")
        )["comm_bytes"].sum()
        for one in (plain, shared)
    ]  # fmt: skip
    assert 0.5 <= sums[1] / sums[0] < 1


def test_tensors_that_live_at_once(transformer: Job) -> None:
    played = nodes_of_job(transformer, frozenset(), at_once=True)[1][0]
    known = recorded_rank(build_graph(transformer), 0, played)
    lives, operators = find_lives(known.operators, known.parts), known.operators
    own = np.flatnonzero(known.parts.step[operators.part] == STEPS - 1).tolist()
    most = 0
    for number in own:
        lives_now = (lives.first <= number) & (number <= lives.last)
        most = max(most, int(lives.bytes[lives_now].sum()))
        for use in operators.inputs[number]:
            assert (lives.storage[lives_now] == use.storage).sum() >= 1
    assert peak_bytes(lives) == most
    blocks = find_blocks(known)
    one_stage = StageBlocks(blocks, [np.arange(blocks.number)], 1)
    assert stage_bytes(known, lives, None, one_stage) == [most]
    halves = StageBlocks(blocks, [np.arange(2), np.arange(2, blocks.number)], 1)
    assert most < sum(stage_bytes(known, lives, None, halves)) < 1.2 * most
    scaled = nadi.scale(transformer, tp=2)
    assert scaled.memory[0] == most
    assert most / 2 < scaled.memory[1] < most


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_slowest_stage_is_as_fast_as_can_be(times: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(times)))
    cuts = cut_evenly(np.array(times), size)
    assert np.concatenate(cuts).tolist() == list(range(len(times)))
    assert all(one.size for one in cuts)
    slowest = max(sum(times[k] for k in one) for one in cuts)
    borders = itertools.combinations(range(1, len(times)), size - 1)
    ways = ([0, *one, len(times)] for one in borders)
    assert slowest == min(max(sum(times[a:b]) for a, b in itertools.pairwise(way)) for way in ways)


def test_refusals(transformer: Job, shared_traces: Path, demo_folder: Path) -> None:
    perceptron = shared_traces / "cpu_mlp"
    devices = shared_traces / "gpu_hta" / "alexnet.json.gz"
    cases: list[tuple[object, dict[str, int], str]] = [
        (transformer, {"tp": 3}, "3 ranks do not divide"),
        (transformer, {"pp": 5}, "5 stages of 4 layers"),
        (perceptron, {"pp": 2}, "no operators of its forward repeat as layers"),
        (devices, {"tp": 2}, "tp: "),
        (devices, {"pp": 2}, "pp: "),
        (nadi.fold(demo_folder), {"tp": 2}, "state no op_class"),
    ]
    for job, wanted, words in cases:
        with pytest.raises(UsageError) as met:
            nadi.scale(job, **wanted)  # type: ignore[arg-type]
        assert words in str(met.value), str(met.value)
        assert "\n" not in str(met.value)
