"""Tensors of generated operations: made before they are read, of the stated sizes, for as long."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from msgspec.structs import replace

import nadi
from nadi.models import LanguageModel, ParallelPlan, llm_statistics
from nadi.models.llm.language_model import LatentAttention, MixtureOfExperts
from nadi.simulation import results_of
from nadi.trace.arrays import Bools, Ints
from nadi.trace.operands import operand_tables, tensor_uses
from nadi.trace.trace import Trace
from tests.amounts import examples
from tests.generate.llm.test_llm_jobs import LLAMA, job_of, models, plans

SETTINGS = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck)
)


SPLIT = ("zero-bubble", "zero-bubble-h2", "dualpipe")


class Uses(NamedTuple):
    """Uses of storages in program order, and what is known of each storage."""

    node: Ints
    storage: Ints
    is_output: Bools
    size: Ints  # of each storage
    is_lasting: Bools  # of each storage: it was there before the step


def uses_of(trace: Trace) -> Uses:
    """Read the uses of tensors from the tables."""
    tensors = trace.tensors.with_row_index("tensor").with_columns(
        end=(pl.col("offset") + pl.col("elements")) * pl.col("itemsize")
    )
    uses = trace.operands.with_columns(pl.col("tensor").cast(pl.UInt32)).join(
        tensors, on="tensor", how="left", maintain_order="left"
    )
    _, storage = np.unique(uses["storage_id"].to_numpy(), return_inverse=True)
    size = np.zeros(storage.max() + 1, dtype=np.int64)
    np.maximum.at(size, storage, uses["end"].to_numpy())
    _, first = np.unique(storage, return_index=True)
    is_output = uses["is_output"].to_numpy()
    is_token = (uses["dtype"].cast(pl.String) == "long").to_numpy()
    # token ids are read first, too
    is_lasting = ~is_output[first] & ~is_token[first]
    return Uses(uses["node"].to_numpy(), storage, is_output, size, is_lasting)


def phases_of(trace: Trace) -> np.ndarray:
    return trace.nodes["phase"].cast(pl.String).to_numpy()


def kept_for_backward(trace: Trace, uses: Uses) -> Bools:
    """Return which storages the forward makes and the backward, or a repetition, reads."""
    phase = phases_of(trace)[uses.node]
    made, read = (np.zeros(uses.size.size, dtype=np.bool_) for _ in range(2))
    made[uses.storage[phase == "forward"]] = True
    read[uses.storage[np.isin(phase, ["backward", "recompute"])]] = True
    is_token = np.ones_like(made)
    is_token[uses.storage[uses.is_output]] = False
    # with ZeRO-3, a tied head reads in the backward what the forward gathered of the embedding
    names = trace.nodes["name"].cast(pl.String)
    gathers = names.str.ends_with(".weights.all_gather").to_numpy()[uses.node]
    made[uses.storage[gathers & uses.is_output]] = False
    return made & read & ~uses.is_lasting & ~is_token


def most_at_once(uses: Uses, chosen: Bools, begin: Ints, end: Ints) -> int:
    """Return the largest sum of sizes of the chosen storages from their first to their last use."""
    count = uses.size.size
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(first, uses.storage, begin[uses.node])
    np.maximum.at(last, uses.storage, end[uses.node])
    at = np.concatenate([last[chosen], first[chosen]])
    change = np.concatenate([-uses.size[chosen], uses.size[chosen]])
    return int(np.cumsum(change[np.lexsort((change, at))]).max(initial=0))


def assert_made_before_read(trace: Trace, uses: Uses, *, has_whole_gradients: bool) -> None:
    """Assert that what is read was there before the step, or made before."""
    first: dict[int, bool] = {}
    for storage, is_output in zip(uses.storage.tolist(), uses.is_output.tolist(), strict=True):
        first.setdefault(storage, is_output)
    names = trace.tensors.filter(pl.col("dtype").cast(pl.String) != "long")
    assert names.height
    made = [storage for storage, is_output in first.items() if is_output]
    assert not uses.is_lasting[made].any()
    # what was there before is used in more than one micro-batch, or by the optimizer
    phase = phases_of(trace)
    of_step = set(uses.storage[phase[uses.node] == "optimizer"].tolist())
    if of_step and not has_whole_gradients:
        assert set(np.flatnonzero(uses.is_lasting).tolist()) <= of_step


def assert_collectives_move_their_tensors(trace: Trace) -> None:
    """Assert that the first input or output of communication has the bytes that it states."""
    tensors = trace.tensors.select(bytes=pl.col("elements") * pl.col("itemsize"))
    tensors = tensors.with_row_index("tensor")
    chosen = trace.operands.filter(pl.col("position") == 0).with_columns(
        pl.col("tensor").cast(pl.UInt32)
    )
    nodes = trace.nodes.with_row_index("node").select(
        pl.col("node").cast(pl.Int64), pl.col("name").cast(pl.String), "kind", "comm_bytes"
    )
    sizes = chosen.join(tensors, on="tensor", how="left").join(nodes, on="node", how="left")
    sizes = sizes.filter(pl.col("kind").cast(pl.String).str.starts_with("COMM"))
    of_step = pl.col("name").str.contains(
        r"^(whole|key_value|embedding|mirror)\.gradients\.all_reduce"
    )
    given = sizes.filter(
        pl.col("is_output") == ((pl.col("kind") == "COMM_RECV") | of_step | (
            pl.col("name").str.contains("^gradient_norm")))
    )  # fmt: skip
    # shards are whole elements, rounded up
    wrong = given.filter((pl.col("bytes") - pl.col("comm_bytes")).abs() >= 4)
    assert wrong.is_empty(), wrong.select("name", "bytes", "comm_bytes").rows()
    assert given.height == nodes.filter(pl.col("comm_bytes") >= 0).height


@SETTINGS
@given(models(), plans())
def test_tensors_are_conserved(model: LanguageModel, plan: ParallelPlan) -> None:
    job = job_of(model, plan)
    checked = plan.of(model)
    statistics = llm_statistics(
        model, **{name: getattr(plan, name) for name in plan.__struct_fields__}
    )
    of_stage = plan.world_size // plan.pp
    # a whole buffer sums the gradients of several micro-batches before ZeRO-2 shares them
    has_whole_gradients = checked.zero == 2 and checked.micro_batches > 1
    for stage, memory in enumerate(statistics.memory.iter_rows(named=True)):
        trace = job.traces[stage * of_stage]
        uses = uses_of(trace)
        assert_made_before_read(trace, uses, has_whole_gradients=has_whole_gradients)
        assert_collectives_move_their_tensors(trace)
        lasting = int(uses.size[uses.is_lasting].sum())
        parts = ("weights", "gradients", "optimizer", "kv_cache")
        expected = sum(memory[part] for part in parts)
        assert lasting == expected or (has_whole_gradients and lasting > expected)


@SETTINGS
@given(models(), plans())
def test_what_the_backward_needs_is_what_statistics_count(
    model: LanguageModel, plan: ParallelPlan
) -> None:
    assume(not plan.inference)
    job = job_of(model, plan)
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    statistics = llm_statistics(model, **fields)
    checked = plan.of(model)
    of_stage = plan.world_size // plan.pp
    for stage, activations in enumerate(statistics.memory["activations"].to_list()):
        trace = job.traces[stage * of_stage]
        uses = uses_of(trace)
        order = np.arange(trace.nodes.height)
        found = most_at_once(uses, kept_for_backward(trace, uses), order, order + 1)
        logits = checked.tokens * -(-model.vocab // plan.tp) * 2
        has_loss = trace.nodes["name"].cast(pl.String).str.contains("head.loss").any()
        held = activations - (logits if has_loss else 0)
        # where gradients of weights are apart, those of inputs free what only they need
        if plan.recompute == "full" or plan.schedule in SPLIT:
            assert found <= activations
        else:
            assert found == held


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble", "zero-bubble-h2"])
def test_stages_hold_as_many_micro_batches_as_published(schedule: str) -> None:
    p, m = 4, 8
    fields: dict[str, Any] = {"pp": p, "global_batch": m, "schedule": schedule}
    model = replace(LLAMA, layers=p)
    job = nadi.llm_job(model, **fields)
    done = nadi.simulate(job, nadi.load_system("dgx-h100", p))
    times = done.schedule.table
    live = results_of(done).live_memory
    assert live is not None
    for stage, trace in enumerate(job.traces):
        uses = uses_of(trace)
        chosen = kept_for_backward(trace, uses)
        own = times.filter(pl.col("rank") == stage).sort("node")
        most = most_at_once(uses, chosen, own["start"].to_numpy(), own["end"].to_numpy())
        of_one, rest = divmod(int(uses.size[chosen].sum()), m)
        assert rest == 0
        expected = {
            "1f1b": p - stage, "gpipe": m, "zero-bubble": p, "zero-bubble-h2": 2 * p - 1,
        }[schedule]  # fmt: skip
        # at the turn from one to the next, what the next one has begun with is there, too
        assert most < (expected + 0.5) * of_one
        # where they are apart, gradients of inputs free what only they need
        first = {"zero-bubble": p - stage, "zero-bubble-h2": 2 * (p - stage) - 1}
        assert most >= first.get(schedule, expected) * of_one
        held = most + int(uses.size[uses.is_lasting].sum())
        assert held <= live["peak"][stage]
        # those of outputs stay till the gradients of weights
        assert schedule in SPLIT or live["peak"][stage] <= held + 2 * of_one


def test_peak_of_a_large_model_is_what_statistics_count() -> None:
    fields: dict[str, Any] = {"tp": 4, "pp": 4, "dp": 2, "global_batch": 16}
    job = nadi.llm_job("gpt3-13b", **fields)
    memory = llm_statistics("gpt3-13b", **fields).memory["total"].to_list()
    live = results_of(nadi.simulate(job, nadi.load_system("dgx-h100", 32))).live_memory
    assert live is not None
    peaks = live["peak"].to_numpy().reshape(4, 8)
    assert (peaks == peaks[:, :1]).all()
    # gradients of activations, and what is made and not kept
    assert np.allclose(peaks[:, 0], memory, rtol=0.011)
    assert (peaks[:, 0] > memory).all()


def test_recomputation_frees_what_it_makes_again() -> None:
    peaks = []
    for recompute in ("none", "selective", "full"):
        job = nadi.llm_job(
            LLAMA, pp=2, global_batch=4, recompute=recompute, attention="unfused", dtype="float32"
        )
        live = results_of(nadi.simulate(job, nadi.load_system("dgx-h100", 2))).live_memory
        assert live is not None
        peaks.append(int(live["peak"][0]))
    assert peaks[0] > peaks[1] > peaks[2]


@pytest.mark.parametrize("name", ["one.nadi", "one.et"])
def test_files_keep_all_tensors(tmp_path: Path, name: str) -> None:
    job = nadi.llm_job(LLAMA, tp=2, pp=2, global_batch=4)
    trace = job.own_trace(0)
    nadi.write(trace, tmp_path / name)
    read = nadi.read(tmp_path / name)
    assert read.operands.equals(trace.operands)
    assert read.tensors.equals(trace.tensors)
    assert trace.tensors.height > 100


def test_columns_are_what_is_read_from_their_texts() -> None:
    trace = nadi.llm_job(LLAMA, dp=2, recompute="full").traces[0]
    assert trace.operand_columns is not None
    read = operand_tables(trace.attributes)
    assert read.operands.equals(trace.operands)
    assert read.tensors.equals(trace.tensors)
    for mine, parsed in zip(
        trace.operand_columns.uses(), tensor_uses(trace.attributes), strict=True
    ):
        assert np.array_equal(mine, parsed) if isinstance(mine, np.ndarray) else mine == parsed


def test_a_branch_is_exchanged_where_it_is_read() -> None:
    model = LanguageModel(
        layers=2, hidden=64, heads=8, vocab=1000, ffn=192, gated=True, norm="rmsnorm",
        moe=MixtureOfExperts(experts=8, top_k=2, expert_ffn=64, shared_experts=1),
        mla=LatentAttention(32, 16, 8, 16, q_lora_rank=48),
    )  # fmt: skip
    nodes = nadi.llm_job(model, tp=2, ep=2, sequence=128).traces[0].nodes
    names = nodes["name"].cast(pl.String)
    assert not names.str.contains("(query_up|key_value_down).all_to_all").any()
    summed = nodes.filter(names.str.ends_with("mlp.norm.reduce_scatter"))
    assert set(summed["comm_bytes"]) == {128 * 64 * 2}
    assert not names.str.contains("from_experts.reduce_scatter").any()


@pytest.mark.parametrize("name", ["one.nadi", "one.et", "one.json"])
def test_files_keep_layer_micro_batch_and_phase(tmp_path: Path, name: str) -> None:
    trace = nadi.llm_job(LLAMA, global_batch=2).own_trace(0)
    nadi.write(trace, tmp_path / name, to="chakra-json" if name.endswith("json") else "")
    columns = ("layer", "micro_batch", "phase")
    assert nadi.read(tmp_path / name).nodes.select(columns).equals(trace.nodes.select(columns))
    found = trace.nodes.select(columns).unique()
    assert set(found["phase"]) == {"forward", "backward", "optimizer"}
    assert set(found["layer"]) == {-1, 0, 1, 2, 3}
    assert set(found["micro_batch"]) == {-1, 0, 1}
