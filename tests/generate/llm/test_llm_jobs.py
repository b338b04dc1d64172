"""Jobs of language models: any plan that is accepted gives one that runs and conserves bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.models import LanguageModel, ParallelPlan, llm_statistics, load_language_model
from nadi.models.llm.language_model import LatentAttention, MixtureOfExperts
from nadi.trace.trace import Job, Trace
from nadi.trace.validate import validate_trace
from tests.amounts import examples

SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2", "dualpipe")


@st.composite
def models(draw: st.DrawFn) -> LanguageModel:
    """Draw a small model of any kind."""
    kind = draw(st.sampled_from(["gpt", "llama", "moe", "mla"]))
    layers = draw(st.integers(4, 9))
    common = {"layers": layers, "hidden": 64, "heads": 8, "vocab": 1000, "max_positions": 256}
    if kind == "gpt":
        return LanguageModel(
            **common, ffn=256, position="learned", attention_bias=True, mlp_bias=True,
            tied_embeddings=True,
        )  # fmt: skip
    if kind == "llama":
        return LanguageModel(
            **common, ffn=192, kv_heads=2, gated=True, norm="rmsnorm",
            qk_norm=draw(st.booleans()), tied_embeddings=draw(st.booleans()),
        )  # fmt: skip
    experts = MixtureOfExperts(
        experts=8, top_k=2, expert_ffn=64, shared_experts=draw(st.integers(0, 1)),
        first_dense_layers=draw(st.integers(0, 2)),
    )  # fmt: skip
    latent = LatentAttention(32, 16, 8, 16, q_lora_rank=draw(st.sampled_from([0, 48])))
    return LanguageModel(
        **common, ffn=192, gated=True, norm="rmsnorm", moe=experts,
        mla=latent if kind == "mla" else None,
    )  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> ParallelPlan:
    """Draw a plan, which need not fit a model."""
    schedule = draw(st.sampled_from(SCHEDULES))
    pp = draw(st.sampled_from([1, 2, 4]))
    dp = draw(st.sampled_from([1, 2]))
    inference = draw(st.sampled_from(["", "", "", "prefill", "decode"]))
    return ParallelPlan(
        tp=draw(st.sampled_from([1, 2, 4])), cp=draw(st.sampled_from([1, 2])), dp=dp, pp=pp,
        ep=draw(st.sampled_from([1, 2, 4])), zero=draw(st.integers(0, 3)),
        sequence_parallel=draw(st.sampled_from([None, False, True])),
        global_batch=dp * pp * draw(st.sampled_from([1, 2, 4])), sequence=128, schedule=schedule,
        chunks=draw(st.sampled_from([1, 2])) if schedule == "interleaved" else 1,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        attention=draw(st.sampled_from(["flash", "unfused"])),
        inference=inference, prefix=draw(st.sampled_from([0, 96])) if inference else 0,
    )  # fmt: skip


def job_of(model: LanguageModel, plan: ParallelPlan) -> Job:
    """Make the job of a plan that fits; others are refused with what would."""
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    refused = ""
    try:
        return nadi.llm_job(model, **fields)
    except UsageError as error:
        refused = error.remedy
    assert refused
    assume(False)
    raise AssertionError


def of_all_ranks(job: Job) -> Job:
    traces = tuple(job.own_trace(rank) for rank in range(len(job.traces)))
    return replace(job, traces=traces, rank_groups=None)


def sent_and_received(job: Job) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all messages of a job, by their ends, tag and bytes."""
    parts: dict[str, list[pl.DataFrame]] = {"COMM_SEND": [], "COMM_RECV": []}
    for rank, trace in enumerate(job.traces):
        for kind, found in parts.items():
            other = "dst" if kind == "COMM_SEND" else "src"
            own = "src" if kind == "COMM_SEND" else "dst"
            chosen = trace.nodes.filter(pl.col("kind") == kind)
            found.append(chosen.select(
                pl.lit(rank, dtype=pl.Int64).alias(own), other, "tag", "comm_bytes"
            ).select("src", "dst", "tag", "comm_bytes"))  # fmt: skip
    one, two = (pl.concat(found).sort("src", "dst", "tag") for found in parts.values())
    return one, two


@SETTINGS
@given(models(), plans())
def test_any_plan_that_fits_is_valid_and_runs(model: LanguageModel, plan: ParallelPlan) -> None:
    job = job_of(model, plan)
    for trace in dict.fromkeys(job.traces):
        assert not validate_trace(trace).height
    everyone = of_all_ranks(job)
    sent, received = sent_and_received(everyone)
    assert sent.equals(received)
    for role, ranks in (job.rank_groups.members if job.rank_groups else {}).items():
        assert_members_agree(everyone, role, ranks)
    done = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))
    assert done.cycles.size == plan.world_size
    assert (done.end >= done.start).all()


def assert_members_agree(job: Job, role: str, groups: np.ndarray) -> None:
    """Assert that all members of a group take part in the same collectives, in the same order."""
    for ranks in groups.tolist():
        found = []
        for rank in ranks:
            trace = job.traces[rank]
            rows = [n for n, name in enumerate(trace.groups["description"]) if name == role]
            own = trace.nodes.filter(pl.col("group").is_in(rows) & (pl.col("kind") == "COMM_COLL"))
            found.append(own.select("comm_type", "comm_bytes"))
        assert all(one.equals(found[0]) for one in found)


@SETTINGS
@given(models(), plans())
def test_work_does_not_depend_on_how_it_is_spread(model: LanguageModel, plan: ParallelPlan) -> None:
    assume(not plan.inference and plan.recompute == "none" and plan.tp <= 2)
    job = job_of(model, plan)
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    whole = fields | {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "ep": 1, "expert_tp": 0, "chunks": 1,
                      "schedule": "1f1b", "sequence_parallel": None}  # fmt: skip
    flops = gemm_flops(job)
    alone = gemm_flops(nadi.llm_job(model, **whole))
    # what MLA compresses is computed by all tensor parallel ranks, unless tokens are shared
    repeated = model.mla is not None or model.moe is not None
    assert flops == alone or (repeated and flops >= alone)


def gemm_flops(job: Job) -> int:
    """Return the FLOPs of products and attention of all ranks."""
    found = {}
    for trace in dict.fromkeys(job.traces):
        names = trace.nodes["name"].cast(pl.String)
        products = names.str.contains(r"(qkv|core|output|up|down|query|logits|scores|values)")
        products &= ~names.str.contains("norm")
        flops = trace.nodes.filter(products & (pl.col("kind") == "COMP"))["flops"]
        found[id(trace)] = int(flops.sum())
    return sum(found[id(trace)] for trace in job.traces)


def node(trace: Trace, name: str) -> dict[str, object]:
    return trace.nodes.filter(pl.col("name") == name).row(0, named=True)


LLAMA = LanguageModel(layers=4, hidden=64, heads=8, kv_heads=2, ffn=192, vocab=1000, gated=True,
                      norm="rmsnorm", max_positions=128)  # fmt: skip


def test_sizes_of_a_layer() -> None:
    job = nadi.llm_job(LLAMA, tp=2, dp=2, sequence_parallel=True)
    trace = job.traces[0]
    tokens, hidden = 128, 64
    qkv = node(trace, "layers.0.attention.qkv")
    assert qkv["flops"] == 2 * tokens * hidden * (8 + 2 * 2) * 8 // 2
    gathered = node(trace, "layers.0.attention.qkv.all_gather")
    assert gathered["comm_bytes"] == tokens * hidden * 2 // 2
    scattered = node(trace, "layers.0.mlp.residual.reduce_scatter")
    assert scattered["comm_bytes"] == tokens * hidden * 2
    of_layer = 64 * 96 + 64 * 64 + 3 * 64 * 192  # linears
    reduced = node(trace, "layers.3.gradients.reduce_scatter")
    assert reduced["comm_bytes"] == (of_layer // 2 + 2 * 64) * 4
    attributes = trace.attributes.of(int(str(qkv["id"])))
    assert attributes["op_class"] == "gemm"
    assert attributes["gemm_shape"] == [1, tokens, 48, hidden]
    assert "phase" not in attributes
    assert (qkv["phase"], qkv["layer"], qkv["micro_batch"]) == ("forward", 0, 0)


def test_a_product_of_experts_moves_the_weights_of_each() -> None:
    moe = MixtureOfExperts(experts=8, top_k=2, expert_ffn=96)
    model = LanguageModel(layers=1, hidden=64, heads=4, vocab=128, sequence=32, moe=moe)
    trace = nadi.llm_job(model).own_trace(0)
    moved = dict(trace.nodes.select(pl.col("name").cast(pl.String), "bytes").iter_rows())
    tokens, weights = 2 * 32, 8 * 64 * 96  # each token goes to two experts
    assert moved["layers.0.mlp.experts.up"] == 2 * (tokens * (64 + 96) + weights)
    assert moved["layers.0.mlp.experts.up.input_gradient"] == 2 * (tokens * (64 + 96) + weights)
    assert moved["layers.0.mlp.experts.up.weight_gradient"] == 2 * tokens * (64 + 96) + 4 * weights


def test_context_parallel_ranks_gather_keys_and_values() -> None:
    trace = nadi.llm_job(LLAMA, cp=4).traces[0]
    gathered = node(trace, "layers.0.attention.keys_and_values.all_gather")
    assert gathered["comm_bytes"] == 32 * 2 * (2 * 8) * 2
    reduced = node(trace, "layers.0.attention.keys_and_values.reduce_scatter")
    assert reduced["comm_bytes"] == 4 * 32 * 2 * (2 * 8) * 2


def test_ranks_of_a_stage_share_a_trace() -> None:
    job = nadi.llm_job("gpt3-175b", tp=8, pp=16, dp=256, global_batch=16 * 256)
    assert len(job.traces) == 32_768
    assert len(set(job.traces)) == 16


def test_written_traces_are_those_of_the_job(tmp_path: Path) -> None:
    job = nadi.llm_job(LLAMA, tp=2, pp=2, dp=2)
    nadi.models.write_job(job, tmp_path)
    system = nadi.load_system("dgx-h100", 8)
    read = nadi.recordings.read_job(tmp_path)
    found, expected = nadi.simulate(read, system), nadi.simulate(of_all_ranks(job), system)
    assert found.cycles.tolist() == expected.cycles.tolist()


def test_statistics() -> None:
    statistics = llm_statistics(LLAMA, tp=2, pp=2, dp=2, global_batch=8)
    assert statistics.parameters == LLAMA.total_parameters
    weights = int(statistics.memory["parameters"].sum()) * 2
    norms = 9 * 64  # which both tensor parallel ranks have
    assert weights == LLAMA.total_parameters + norms
    assert statistics.tokens == 8 * 128
    # two FLOPs, three products, of weights that tokens meet, and of scores, which are twice
    looked_up = LLAMA.vocab * LLAMA.hidden * (not LLAMA.tied_embeddings)
    matrices = LLAMA.total_parameters - 9 * 64 - looked_up
    scores = 2 * LLAMA.layers * 128 * LLAMA.heads * LLAMA.head_dim
    assert statistics.model_flops == 6 * statistics.tokens * (matrices + scores)
    roles = set(statistics.communication["role"])
    assert roles == {"tp", "dp", "pp"}


@pytest.mark.parametrize("fields", [
    {"tp": 2}, {"cp": 4}, {"recompute": "full"}, {"attention": "unfused"}, {"micro_batch": 4},
    {"pp": 2, "schedule": "interleaved", "chunks": 2}, {"zero": 3, "dp": 4},
])  # fmt: skip
def test_model_flops_do_not_depend_on_how_a_step_is_run(fields: dict[str, Any]) -> None:
    found = llm_statistics(LLAMA, **fields, global_batch=16)
    assert found.model_flops == llm_statistics(LLAMA, global_batch=16).model_flops


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tp": 3}, r"tp.*3 does not divide the model's heads, 8; one of 1, 2, 4, 8"),
        ({"ep": 2}, "the model has no experts; leave it out"),
        ({"dp": 4, "global_batch": 6}, r"no multiple of dp \* micro_batch.*4 or 8 would fit"),
        ({"pp": 8}, "8 chunks of a model with 4 layers; at most 4 stages have a layer each"),
        ({"sequence": 130, "cp": 4}, "130 tokens cannot be shared equally by 4 ranks; 128 would"),
        ({"color": 1}, "a plan has no such field; known are tp, cp, dp"),
        ({"tp": "two"}, "expected `int`, got `str`"),
        ({"zero": 4}, "zero"),
    ],
)
def test_impossible_plans_are_refused_with_what_would_fit(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        nadi.llm_job(LLAMA, **fields)


def test_a_word_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="no such value; use one of prefill, decode"):
        nadi.llm_job(LLAMA, inference="training")


@pytest.mark.parametrize(
    ("plan", "micro_batch"),
    [
        ({"inference": "decode", "global_batch": 16}, 16),
        ({"inference": "decode", "global_batch": 64, "dp": 2, "pp": 4}, 8),
        ({"inference": "decode", "global_batch": 24, "pp": 2, "micro_batch": 4}, 4),
        ({"inference": "decode", "global_batch": 10, "pp": 4}, 2),  # 5 micro-batches for 4 stages
        ({"inference": "decode", "global_batch": 3, "pp": 4}, 1),
        ({"inference": "decode"}, 1),
        ({"inference": "prefill", "global_batch": 16}, 1),
        ({"global_batch": 16}, 1),
    ],
)
def test_decode_takes_all_sequences_of_a_rank_at_once(
    plan: dict[str, Any], micro_batch: int
) -> None:
    found = ParallelPlan(**plan).of(load_language_model("llama3-8b"))
    assert found.micro_batch == micro_batch
    assert found.micro_batches * micro_batch * found.dp == found.global_batch
