"""Scaled jobs: equal to jobs generated at their size, the same by several ways, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.jobs import ScaledJob, scaled_step
from nadi.models import LanguageModel, write_job
from nadi.models.llm.language_model import LatentAttention, MixtureOfExperts
from nadi.systems import price_job
from nadi.trace import Job
from nadi.trace.groups import RankGroups
from tests.amounts import examples

PLAN: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8, "sequence": 512}
MLA = LatentAttention(kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                      q_lora_rank=48)  # fmt: skip
COLUMNS = ["name", "kind", "phase", "comm_type", "comm_bytes", "flops", "bytes", "layer",
           "micro_batch", "stream", "src", "dst", "tag"]  # fmt: skip


def generated(**changed: int) -> Job:
    plan = PLAN | changed
    plan["global_batch"] = 4 * plan["dp"]
    return nadi.llm_job("gpt3-125m", **plan)


def with_experts(*, compressed: bool) -> LanguageModel:
    return LanguageModel(
        layers=2, hidden=256, heads=16, vocab=512, sequence=128, gated=True, norm="rmsnorm",
        position="rope", ffn=512, mla=MLA if compressed else None,
        moe=MixtureOfExperts(experts=8, top_k=2, expert_ffn=128, shared_experts=1,
                             first_dense_layers=1 if compressed else 0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def small() -> nadi.recordings.FoldedJob:
    return nadi.fold(generated())


def rows_of(job: Job, rank: int) -> pl.DataFrame:
    return job.own_trace(rank).nodes.select(pl.col(COLUMNS).cast(pl.String))


def edges_of(job: Job, rank: int) -> set[tuple[int, int]]:
    deps = job.traces[rank].deps
    return set(zip(deps["src"].to_list(), deps["dst"].to_list(), strict=True))


def counted(scaled: ScaledJob, origin: str) -> int:
    return int(scaled.origin.filter(pl.col("origin") == origin)["nodes"].sum())


def test_replicas_are_those_that_are_generated(small: nadi.recordings.FoldedJob) -> None:
    scaled, truth = nadi.scale(small, dp=6), generated(dp=6)
    assert scaled.before == (8, 2, 2, 2, 1)
    assert scaled.after == (24, 6, 2, 2, 1)
    ours, theirs = scaled.job.rank_groups, truth.rank_groups
    assert ours is not None
    assert theirs is not None
    assert {role: ranks.tolist() for role, ranks in ours.members.items()} == {
        role: ranks.tolist() for role, ranks in theirs.members.items()
    }
    for rank in (0, 11, 23):
        assert rows_of(scaled.job, rank).equals(rows_of(truth, rank))
        assert edges_of(scaled.job, rank) == edges_of(truth, rank)
        assert scaled.job.own_trace(rank).groups["ranks"].to_list() == (
            truth.own_trace(rank).groups["ranks"].to_list()
        )
    assert counted(scaled, "guessed") == counted(scaled, "made") == 0
    assert counted(scaled, "resized") > 0


@pytest.mark.parametrize("stages", [3, 4])
def test_stages_are_those_that_are_generated(small: nadi.recordings.FoldedJob, stages: int) -> None:
    scaled, truth = nadi.scale(small, pp=stages), generated(pp=stages)
    assert len(scaled.job.traces) == len(truth.traces)
    for rank in range(0, len(truth.traces), 4):
        assert edges_of(scaled.job, rank) == edges_of(truth, rank)
        ours, theirs = rows_of(scaled.job, rank), rows_of(truth, rank)
        names = ["flops", "bytes", "comm_bytes"]
        assert ours.drop(names).equals(theirs.drop(names))
        for name in names:  # the optimizer's work is divided by parameters, and rounded
            a, b = (one[name].cast(pl.Int64).to_numpy() for one in (ours, theirs))
            assert np.abs(a - b).max() <= 1e-3 * b.max()
    assert counted(scaled, "made") == scaled.job.num_nodes - counted(scaled, "copied") - (
        counted(scaled, "resized") + counted(scaled, "guessed")
    )
    assert scaled.guesses


def test_interleaved_stages_and_more_micro_batches() -> None:
    plan = PLAN | {"schedule": "interleaved", "chunks": 2}
    small = nadi.llm_job("gpt3-125m", **plan)
    scaled = nadi.scale(small, pp=3, micro_batches=6)
    truth = nadi.llm_job("gpt3-125m", **(plan | {"pp": 3, "global_batch": 12}))
    names = ["flops", "bytes", "comm_bytes"]  # which differ in the optimizer, as above
    for rank in range(0, len(truth.traces), 4):
        assert rows_of(scaled.job, rank).drop(names).equals(rows_of(truth, rank).drop(names))
        assert edges_of(scaled.job, rank) == edges_of(truth, rank)


@pytest.mark.parametrize("shared", [True, False])
def test_shares_are_those_that_are_generated(shared: bool) -> None:
    plan = PLAN | {"sequence_parallel": shared}
    truth = nadi.llm_job("gpt3-125m", **(plan | {"tp": 4}))
    scaled = nadi.scale(nadi.llm_job("gpt3-125m", **plan), tp=4)
    assert_shares_equal(scaled, truth)


def assert_shares_equal(scaled: ScaledJob, truth: Job) -> None:
    """Raise AssertionError unless a job is as generated, but for few parameters."""
    world = len(truth.traces)
    for rank in (0, world // 2 + 1, world - 1):
        ours, theirs = rows_of(scaled.job, rank), rows_of(truth, rank)
        names = ["flops", "bytes", "comm_bytes"]
        assert ours.drop(names).equals(theirs.drop(names))
        of_optimizer = (theirs["phase"] == "optimizer").to_numpy()
        for name in ("flops", "bytes"):
            a, b = (one[name].cast(pl.Int64).to_numpy() for one in (ours, theirs))
            assert (np.abs(a - b)[~of_optimizer] <= 64 * 2048).all()
            np.testing.assert_allclose(a, b, rtol=0.01)
        a, b = (one["comm_bytes"].cast(pl.Int64).to_numpy() for one in (ours, theirs))
        np.testing.assert_allclose(a, b, rtol=0.01)
        mine, other = (one.own_trace(rank).attributes for one in (scaled.job, truth))
        shapes = [
            [value for _, name, _, value in one.items() if name == "gemm_shape"]
            for one in (mine, other)
        ]
        assert shapes[0] == shapes[1]


# tensor parallel ranks share each expert, or have experts of their own; some groups lie across them
EXPERT_PLANS: list[dict[str, Any]] = [
    {"dp": 2, "sequence_parallel": False},
    {"dp": 4, "ep": 2, "zero": 3},
    {"dp": 4, "ep": 2, "pp": 2, "zero": 0},
    {"dp": 4, "ep": 2, "expert_tp": 2},
    {"dp": 2, "ep": 4, "inference": "prefill"},
]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("plan", EXPERT_PLANS)
def test_experts_are_those_that_are_generated(plan: dict[str, Any], compressed: bool) -> None:
    model = with_experts(compressed=compressed)
    plan = {"tp": 2, "global_batch": 16} | plan
    large = plan | {"tp": 4} | ({"expert_tp": 4} if "expert_tp" in plan else {})
    scaled = nadi.scale(nadi.llm_job(model, **plan), tp=4)
    truth = nadi.llm_job(model, **large)
    assert_shares_equal(scaled, truth)
    ours, theirs = scaled.job.rank_groups, truth.rank_groups
    assert ours is not None
    assert theirs is not None
    for role, ranks in theirs.members.items():
        assert ours.members[role].tolist() == ranks.tolist()


CONTEXTS: list[tuple[str | LanguageModel, dict[str, Any]]] = [
    ("gpt3-125m", {"tp": 2, "pp": 2, "dp": 2, "global_batch": 4}),
    ("gpt3-125m", {"tp": 2, "sequence_parallel": False, "zero": 0, "attention": "unfused"}),
    ("gpt3-125m", {"dp": 2, "zero": 3, "recompute": "full"}),
    (with_experts(compressed=False), {"tp": 2, "dp": 2}),
    (with_experts(compressed=False), {"dp": 4, "ep": 2, "zero": 3}),
    (with_experts(compressed=True), {"tp": 2, "dp": 2, "ep": 4, "micro_batch": 8}),
]


@pytest.mark.parametrize(("model", "plan"), CONTEXTS)
def test_contexts_are_those_that_are_generated(
    model: str | LanguageModel, plan: dict[str, Any]
) -> None:
    truth = nadi.llm_job(model, **plan, cp=4)
    scaled = nadi.scale(nadi.llm_job(model, **plan, cp=2), cp=4)
    assert scaled.after.cp == 4
    ours, theirs = scaled.job.rank_groups, truth.rank_groups
    assert ours is not None
    assert theirs is not None
    assert {role: ranks.tolist() for role, ranks in ours.members.items()} == {
        role: ranks.tolist() for role, ranks in theirs.members.items()
    }
    for rank in range(len(truth.traces)):
        assert rows_of(scaled.job, rank).equals(rows_of(truth, rank))


def test_stages_whose_ends_count_as_layers() -> None:
    plan = PLAN | {"ends_as_layers": True}
    scaled = nadi.scale(nadi.llm_job("gpt3-125m", **plan | {"pp": 4}), pp=7)
    truth = nadi.llm_job("gpt3-125m", **plan | {"pp": 7})
    for rank in range(len(truth.traces)):
        assert rows_of(scaled.job, rank).height == rows_of(truth, rank).height


def test_experts_are_not_put_elsewhere() -> None:
    plan = {"tp": 2, "dp": 4, "sequence": 512, "global_batch": 4}
    alone = nadi.llm_job("mixtral-8x7b", ep=8, **plan)
    with pytest.raises(UsageError, match="would be on 2: nothing says how its gradients"):
        nadi.scale(alone, tp=4)
    with pytest.raises(UsageError, match="do not divide the 4 ranks of a stage"):
        nadi.scale(alone, tp=1)
    job = nadi.fold(nadi.llm_job("mixtral-8x7b", ep=2, **plan))
    assert job.rank_groups is not None
    apart = dict(job.rank_groups.members) | {"ep": np.arange(8).reshape(2, 4).T}
    with pytest.raises(UsageError, match="not on neighbouring ranks"):
        nadi.scale(replace(job, rank_groups=RankGroups(apart, 8)), tp=4)


@given(st.data())
@settings(max_examples=examples(12), deadline=None)
def test_ways_to_a_size_agree(small: nadi.recordings.FoldedJob, data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from(["dp", "tp", "pp"]))
    between, last = data.draw(st.sampled_from([(4, 12), (6, 12), (4, 4), (12, 12)]))
    at_once = nadi.scale(small, **{axis: last})
    by_way = nadi.scale(nadi.scale(small, **{axis: between}).job, **{axis: last})
    assert by_way.after == at_once.after
    for rank in range(0, at_once.after.ranks, 5):
        ours, theirs = rows_of(by_way.job, rank), rows_of(at_once.job, rank)
        names = ["flops", "bytes", "comm_bytes"]
        assert ours.drop(names).equals(theirs.drop(names))
        for name in names:
            a, b = (one[name].cast(pl.Int64).to_numpy() for one in (ours, theirs))
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=64)
        assert edges_of(by_way.job, rank) == edges_of(at_once.job, rank)


def test_files_and_the_step(small: nadi.recordings.FoldedJob, tmp_path: Path) -> None:
    scaled = nadi.scale(small, dp=4, tp=4)
    write_job(scaled.job, tmp_path / "job")
    system = nadi.load_system("dgx-h100", scaled.after.ranks)
    step = scaled_step(scaled, "dgx-h100")
    assert nadi.simulate(tmp_path / "job", system).makespan == step.step_ns
    truth = nadi.simulate(generated(dp=4, tp=4), system).makespan
    assert abs(step.step_ns / truth - 1) < 0.01
    assert step.bound.low_ns < step.step_ns < step.bound.high_ns


def test_measured_times_change_as_prices_do() -> None:
    system = nadi.load_system("dgx-h100", 8)
    priced, _ = price_job(generated(), system)
    assert isinstance(priced, Job)
    scaled = nadi.scale(priced, tp=4, system=system)
    truth, _ = price_job(generated(tp=4), nadi.load_system("dgx-h100", 16))
    assert isinstance(truth, Job)
    a, b = (one.traces[0].column("duration") for one in (scaled.job, truth))
    chosen = b > 0
    np.testing.assert_allclose(a[chosen], b[chosen], rtol=0.01, atol=50)
    known = [int((truth.traces[rank].column("duration") > 0).sum()) for rank in (0, -1)]
    of_embedding = 2 * 4  # forward and backward of each micro-batch, which stay
    assert scaled.repriced == 8 * (known[0] - of_embedding + known[1])
    assert nadi.scale(priced, tp=4).guesses[-1].startswith("measured times")


def test_a_rank_alone_becomes_several() -> None:
    with nadi.JobBuilder(world_size=1) as made:
        group = made.group("all", [0])
        made.all_ranks.compute("work", duration="1 ms")
        made.all_ranks.collective("all_reduce", bytes="1 MiB", group=group)
    scaled = nadi.scale(made.job, dp=4)
    groups = scaled.job.rank_groups
    assert groups is not None
    assert [ranks.tolist() for ranks in groups.members.values()] == [[[0, 1, 2, 3]]]
    done = nadi.simulate(scaled.job, nadi.load_system("dgx-h100", 4))
    alone = nadi.simulate(made.job, nadi.load_system("dgx-h100", 1))
    assert done.makespan > alone.makespan >= 1_000_000


def test_messages_stay_in_their_replica() -> None:
    with nadi.JobBuilder(world_size=2) as made:
        for rank in made.ranks:
            rank.compute("work", duration="1 ms")
        made.ranks[0].send(1, bytes="1 MiB")
        made.ranks[1].recv(0, bytes="1 MiB")
        whole = made.group("all", [0, 1])
        for rank in made.ranks:
            rank.collective("all_reduce", bytes="1 MiB", group=whole)
    scaled = nadi.scale(made.job, dp=6)
    sends = [scaled.job.own_trace(rank).nodes.filter(pl.col("kind") == "COMM_SEND")["dst"].to_list()
             for rank in range(6)]  # fmt: skip
    assert sends == [[1], [], [3], [], [5], []]


@pytest.mark.parametrize("plan", [{"tp": 2}, {"tp": 2, "pp": 2}, {}])
def test_one_replica_gets_sums_of_gradients(plan: dict[str, int]) -> None:
    given = {"sequence": 512, **plan}
    before = nadi.llm_job("gpt3-125m", global_batch=4, **given)
    truth = nadi.llm_job("gpt3-125m", dp=4, global_batch=16, zero=0, **given)
    scaled = nadi.scale(before, dp=4)
    ranks = scaled.job.rank_groups
    assert ranks is not None
    assert truth.rank_groups is not None
    for role, members in truth.rank_groups.members.items():
        assert ranks.members[role].tolist() == members.tolist()
    for rank in range(len(truth.traces)):
        ours, theirs = rows_of(scaled.job, rank), rows_of(truth, rank)
        made = pl.col("name").str.ends_with(".gradients.all_reduce") & (pl.col("layer") != "-1")
        assert set(ours.filter(made)["name"]) == set(theirs.filter(made)["name"])
        sizes = [one.filter(made)["comm_bytes"].cast(pl.Int64).sum() for one in (ours, theirs)]
        assert 0.98 < sizes[0] / sizes[1] <= 1  # without norms and biases
    assert counted(scaled, "guessed") > 0
    assert any("it reduces no gradients" in one for one in scaled.guesses)
    system = nadi.load_system("dgx-h100", len(truth.traces))
    steps = [nadi.simulate(job, system).makespan for job in (scaled.job, truth)]
    assert steps[0] == pytest.approx(steps[1], rel=0.02)


def test_refusals(small: nadi.recordings.FoldedJob) -> None:
    experts = nadi.llm_job("mixtral-8x7b", dp=4, ep=4, sequence=512)
    prefill = nadi.llm_job("gpt3-125m", tp=2, inference="prefill")
    cases: list[tuple[Any, dict[str, int], str]] = [
        (small, {"dp": 3}, "no multiple of the 2 replicas"),
        (small, {"tp": 5}, "5 does not divide"),
        (small, {"pp": 13}, "13 stages of 12 layers"),
        (small, {"pp": 1}, "give 2 or more"),
        (small, {"dp": -2}, "give 1 or more"),
        (small, {"micro_batches": 8}, "only where stages do"),
        (nadi.llm_job("gpt3-125m", **PLAN | {"schedule": "interleaved", "chunks": 2}),
         {"pp": 4, "micro_batches": 6}, "no multiple of 4"),
        (generated(tp=1), {"tp": 2}, "no tensor parallel groups"),
        (generated(pp=1), {"pp": 2}, "one stage"),
        (generated(), {"cp": 2}, "no context parallel groups"),
        (generated(cp=2), {"cp": 1}, "give 2 or more"),
        (generated(cp=2), {"cp": 5}, "5 does not divide"),
        (prefill, {"dp": 2}, "the job has one replica"),
        (generated(dp=1), {"pp": 3}, "how many parameters a layer has"),
        (experts, {"dp": 8}, "each expert is on one rank"),
        (nadi.llm_job("gpt3-125m", **PLAN, schedule="zero-bubble"), {"pp": 3}, "pp: "),
        (replace(small, rank_groups=RankGroups({"a": np.arange(8).reshape(4, 2)}, 8)), {"dp": 4},
         "are data parallel"),
    ]  # fmt: skip
    for job, wanted, words in cases:
        with pytest.raises(UsageError) as met:
            nadi.scale(job, **wanted)
        assert words in str(met.value), str(met.value)
        assert "\n" not in str(met.value)


def test_a_changed_step_is_not_spread_anew(small: nadi.recordings.FoldedJob) -> None:
    first = small.traces[0]
    names = first.nodes["comm_bytes"].to_numpy().copy()
    names[np.flatnonzero(names > 0)[5]] += 8
    changed = replace(first, nodes=first.nodes.with_columns(comm_bytes=pl.Series(names)))
    traces = tuple(changed if trace is first else trace for trace in small.traces)
    job = Job(traces, small.matches, small.issues, rank_groups=small.rank_groups)
    with pytest.raises(UsageError, match="put together anew, stage 0 differs from row"):
        nadi.scale(job, pp=3)


def test_recorded_ranks_are_copied(demo_folder: Path) -> None:
    scaled = nadi.scale(demo_folder, dp=8)
    before = nadi.fold(demo_folder)
    assert scaled.job.num_nodes == 2 * before.num_nodes
    groups = scaled.job.rank_groups
    assert groups is not None
    assert groups.members["group-0"].tolist() == [list(range(8))]
    assert groups.members["group-1"].tolist() == [[0, 1], [4, 5]]
    for axis in ("tp", "pp"):
        with pytest.raises(UsageError, match="a folded recording keeps no tensors"):
            nadi.scale(before, **{axis: 2})
