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
from nadi.graph.edges.job_graph import build_graph
from nadi.jobs import ScaledJob
from nadi.jobs.recorded_ranks import find_lives, peak_bytes, recorded_rank
from nadi.jobs.recorded_stages import StageBlocks, cut_evenly, find_blocks, stage_bytes
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.trace.trace import Job
from tests.amounts import examples, some

TOKENS, WIDTH, LAYERS, STEPS = 256, 256, 4, 3  # of cpu_transformer4, with 1,000 words
STREAM = TOKENS * WIDTH * 4


@pytest.fixture(scope="module")
def transformer(shared_traces: Path) -> Job:
    job = nadi.load_job(shared_traces / "cpu_transformer4")
    assert isinstance(job, Job)
    return job


def rows_of(job: Job, rank: int = 0) -> pl.DataFrame:
    columns = ("name", "kind", "comm_type")
    return job.own_trace(rank).nodes.with_columns(pl.col(*columns).cast(pl.String))


def collectives(scaled: ScaledJob) -> list[tuple[str, int]]:
    rows = rows_of(scaled.job).filter(pl.col("kind") == "COMM_COLL")
    return list(rows.select("comm_type", "comm_bytes").iter_rows())


def total(rows: pl.DataFrame, name: str) -> int:
    return int(rows.filter(pl.col("name") == name)["duration"].sum())


@pytest.mark.parametrize("ranks", some([4, 2], of=2))
def test_a_transformer_is_shared_as_megatron_does(transformer: Job, ranks: int) -> None:
    scaled = nadi.scale(transformer, tp=ranks)
    found = collectives(scaled)
    # per layer two sums forward and two backward; the head's input, and the loss in two sums
    assert found.count(("all_reduce", STREAM)) == STEPS * (4 * LAYERS + 1)
    assert found.count(("all_reduce", 2 * TOKENS * 4)) == STEPS * 2
    assert len(found) == STEPS * (4 * LAYERS + 3)
    whole, part = rows_of(scaled.source), rows_of(scaled.job)
    for name in ("aten::mm", "aten::bmm", "aten::relu"):
        assert total(whole, name) / ranks < total(part, name) < total(whole, name)
    for name in ("aten::transpose", "aten::native_layer_norm", "aten::embedding", "aten::t"):
        assert total(whole, name) == total(part, name)
    groups = scaled.job.rank_groups
    assert groups is not None
    assert groups.members["tp"].tolist() == [list(range(ranks))]
    assert scaled.memory[0] / ranks < scaled.memory[1] < scaled.memory[0]


@pytest.mark.parametrize(("stages", "micro_batches"), some([(4, 2), (2, 1), (4, 1)]))
def test_all_layers_are_in_one_stage_each(
    transformer: Job, stages: int, micro_batches: int
) -> None:
    scaled = nadi.scale(transformer, pp=stages, micro_batches=micro_batches)
    rows = [rows_of(scaled.job, rank) for rank in range(stages)]
    for one, neighbors in zip(rows, [1, *(2 for _ in rows[2:]), 1], strict=True):
        for kind in ("COMM_SEND", "COMM_RECV"):
            messages = one.filter(pl.col("kind") == kind)
            assert messages.height == STEPS * micro_batches * neighbors
            assert set(messages["comm_bytes"].to_list()) == {STREAM}
    every, whole = pl.concat(rows), rows_of(scaled.source)
    for name in ("aten::mm", "aten::addmm", "aten::_softmax"):
        assert total(every, name) == micro_batches * total(whole, name)


def test_axes_together(transformer: Job) -> None:
    scaled = nadi.scale(transformer, tp=2, pp=2, dp=4, micro_batches=2)
    assert scaled.before == (1, 1, 1, 1, 1)
    assert scaled.after == (16, 4, 2, 2, 1)
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
    job = nadi.load_job(demo_folder)
    shared = nadi.scale(job, dp=8, tp=2)
    assert shared.after == (16, 8, 2, 1, 1)
    sums = [
        rows_of(one).filter(
            (pl.col("comm_type") == "all_reduce") & ~pl.col("name").str.starts_with("tp::")
        )["comm_bytes"].to_list()
        for one in (shared.source, shared.job)
    ]  # fmt: skip
    assert 0.5 <= sum(sums[1]) / sum(sums[0]) < 1
    sends = [
        shared.job.own_trace(rank).nodes.filter(pl.col("kind") == "COMM_SEND")["dst"].to_list()
        for rank in (0, 1, 8, 9)
    ]  # fmt: skip
    before = shared.source.own_trace(0).nodes.filter(pl.col("kind") == "COMM_SEND")["dst"].to_list()
    assert sends == [[2 * to + part for to in before] for part in (0, 1)] + [
        [8 + 2 * to + part for to in before] for part in (0, 1)
    ]


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


def test_refusals(transformer: Job, shared_traces: Path) -> None:
    perceptron = shared_traces / "cpu_mlp"
    devices = shared_traces / "gpu_hta" / "alexnet.json.gz"
    cases: list[tuple[object, dict[str, int], str]] = [
        (perceptron, {"tp": 3}, "no product has weights of a size that 3 ranks divide"),
        (transformer, {"pp": 5}, "5 stages of 4 layers"),
        (perceptron, {"pp": 2}, "no operators of its forward repeat as layers"),
        (devices, {"tp": 2}, "tp: "),
        (devices, {"pp": 2}, "pp: "),
    ]
    for job, wanted, words in cases:
        with pytest.raises(UsageError) as met:
            nadi.scale(job, **wanted)  # type: ignore[arg-type]
        assert words in str(met.value), str(met.value)
        assert "\n" not in str(met.value)
