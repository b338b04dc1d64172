"""Jobs that follow from a description: of a language model and how it is spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nadi.models.job_rows import ADAM_STATE
from nadi.models.llm.chunk_tensors import cache_width, group_size
from nadi.models.llm.language_model import LanguageModel, load_language_model
from nadi.models.llm.layer_pieces import model_flops
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    WEIGHT_GRADIENT,
    StageOrder,
    pipeline_schedule,
)
from nadi.models.llm.stage_traces import Chunk, message_bytes, plan_from, stage_chunks, stage_trace
from nadi.models.row_traces import job_by_role, refuse_too_many, step_totals
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job


def job_of_model(model: LanguageModel, plan: ParallelPlan) -> Job:
    """Make the job of one step, or of one prompt or token in inference.

    - ``model``: A checked description.
    - ``plan``: How it is spread over ranks.
    - Returns: ``plan.world_size`` ranks, whose traces are one for each stage of the pipeline, with
      groups by role. Computations state FLOPs, bytes, class and shape, but no duration.
    - Raises UsageError if model and plan do not fit together.
    """
    checked = plan.of(model)
    stages = [
        stage_trace(model, checked, stage, order)
        for stage, order in enumerate(stage_orders(checked))
    ]
    of_stage = checked.world_size // checked.pp
    traces = [trace for trace in stages for _ in range(of_stage)]
    return job_by_role(traces, checked.groups(model))


def stage_orders(plan: ParallelPlan) -> list[StageOrder]:
    """Return what each stage does, in order; in inference the forwards alone.

    - Raises UsageError if the traces of it do not fit into the memory that is free.
    """
    refuse_too_many(plan.pp * plan.stage_chunks * plan.micro_batches)
    v = plan.chunks if plan.schedule == "interleaved" else 1
    if not plan.inference:
        return list(pipeline_schedule(plan.schedule, plan.pp, plan.micro_batches, v))
    numbers = np.arange(plan.micro_batches)
    zeros = np.zeros_like(numbers)
    order = StageOrder(zeros + FORWARD, zeros, numbers, zeros.astype(np.bool_))
    return [order] * plan.pp


def llm_job(model: str | Path | LanguageModel, **plan: Any) -> Job:
    """Make the job of a training step of a language model, or of inference.

    Parameters
    ----------
    model
        The name of a model that ships with Nadi (:func:`nadi.models.shipped_language_models`), the
        path of a description in TOML, YAML or JSON, or a description.
    plan
        Fields of :class:`nadi.models.ParallelPlan`: ``tp``, ``pp``, ``dp``, ``micro_batch``,
        ``global_batch`` and others.

    Returns
    -------
    Job
        For :func:`nadi.simulate` and :func:`nadi.models.write_job`. Ranks of a stage share a
        trace, so that 100,000 ranks are a few traces; see ``Job.rank_groups``.

    Raises
    ------
    UsageError
        If model and plan do not fit together; the message names values that would.
    InputError, FormatError
        If there is no such model, or its description is invalid.

    Examples
    --------
    >>> job = nadi.llm_job("gpt3-175b", tp=8, pp=16, dp=8, micro_batch=1, global_batch=1536)
    >>> nadi.simulate(job, nadi.load_system("dgx-h100", 1024))
    """
    return job_of_model(*checked_plan(model, plan))


def llm_statistics(model: str | Path | LanguageModel, **plan: Any) -> JobStatistics:
    """Compute parameters, FLOPs, communication and memory of a job, as :func:`llm_job` makes it."""
    return statistics_of(*checked_plan(model, plan))


def checked_plan(
    model: str | Path | LanguageModel, fields: Mapping[str, Any]
) -> tuple[LanguageModel, ParallelPlan]:
    """Find a model, and make a plan from its fields, with every default put in.

    - Raises UsageError if there is no such field, its value is of another type or range, or the
      plan does not fit the model.
    - Raises InputError, FormatError if there is no such model, or its description is invalid.
    """
    found = model if isinstance(model, LanguageModel) else load_language_model(str(model))
    return found, plan_from(ParallelPlan, fields).of(found)


@dataclass(frozen=True, eq=False)
class JobStatistics:
    """The size of a job of a language model.

    Attributes
    ----------
    world_size, micro_batches, tokens
        Ranks, micro-batches of a rank, and tokens of a step of all ranks.
    parameters, active_parameters
        Of the model; and those that a token uses.
    flops
        A row per stage of the pipeline: ``stage``, and the FLOPs of one of its ranks in a step:
        ``forward``, ``backward``, ``recompute``, ``optimizer``.
    communication
        A row per stage, role of the group and type: ``stage``, ``role``, ``type``, ``ranks`` of a
        group, ``count`` and ``bytes`` of one rank in a step.
    memory
        A row per stage, with the bytes of one of its ranks: ``stage``, ``parameters`` (a count),
        ``weights``, ``gradients``, ``optimizer``, ``activations``, ``kv_cache`` and ``total``.
    model_flops
        Of a step of all ranks (:func:`~nadi.models.llm.layer_pieces.model_flops`).
    dtype
        Of its products.
    inference
        What the step is: ``prefill``, ``decode``, or "" for training.
    """

    world_size: int
    micro_batches: int
    tokens: int
    parameters: int
    active_parameters: int
    flops: pl.DataFrame
    communication: pl.DataFrame
    memory: pl.DataFrame
    model_flops: int
    dtype: str
    inference: str = ""

    @property
    def total_flops(self) -> int:
        """FLOPs of a step of all ranks."""
        ranks = self.world_size // self.flops.height
        return ranks * int(self.flops.drop("stage").sum_horizontal().sum())


def statistics_of(
    model: LanguageModel, plan: ParallelPlan, job: Job | None = None
) -> JobStatistics:
    """Compute the statistics of a job.

    - ``model``, ``plan``: As for :func:`~nadi.models.llm.generated_jobs.job_of_model`.
    - ``job``: The job, if it was made already.
    - Raises UsageError if model and plan do not fit together.
    """
    checked = plan.of(model)
    made = job_of_model(model, checked) if job is None else job
    flops, communication = step_totals(made, "stage")
    orders = stage_orders(checked)
    memory = [
        {"stage": stage, **_memory(model, checked, stage_chunks(model, checked, stage), order)}
        for stage, order in enumerate(orders)
    ]
    tokens = checked.global_batch * (1 if checked.inference == "decode" else checked.suffix)
    return JobStatistics(
        world_size=checked.world_size,
        micro_batches=checked.micro_batches,
        tokens=tokens,
        parameters=model.total_parameters,
        active_parameters=model.active_parameters(),
        flops=flops,
        communication=communication,
        memory=pl.DataFrame(memory),
        model_flops=model_flops(model, checked),
        dtype=checked.dtype,
        inference=checked.inference,
    )  # fmt: skip


def _memory(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk], order: StageOrder
) -> dict[str, int]:
    """Return the bytes of one rank of a stage, by what they are for."""
    layers = [pieces for chunk in chunks for _, pieces in chunk.layers]
    of_layers = {
        "dp": [sum(piece.weight for piece in pieces) for pieces in layers],
        "edp": [sum(piece.expert_weight for piece in pieces) for pieces in layers],
    }
    trained = {
        "dp": [sum(piece.trained for piece in pieces) for pieces in layers],
        "edp": [sum(piece.trained_experts for piece in pieces) for pieces in layers],
    }
    whole, updated = (
        {role: [sum(counts)] for role, counts in one.items()} for one in (of_layers, trained)
    )

    def held(counts: Mapping[str, Sequence[int]], size: int, from_stage: int) -> int:
        """Return the bytes of buffers, which are shared from a stage of ZeRO on."""
        shards = {role: group_size(plan, role) if plan.zero >= from_stage else 1 for role in counts}
        return size * sum(
            -(-count // shards[role]) for role, listed in counts.items() for count in listed
        )

    found = {
        "parameters": held(whole, 1, 4),
        "weights": held(of_layers, plan.itemsize, 3),
        "gradients": 0 if plan.inference else held(trained, plan.gradient_itemsize, 2),
        "optimizer": 0 if plan.inference else held(updated, ADAM_STATE, 1),
        "activations": _activations(model, plan, chunks, order),
        "kv_cache": _kv_cache(model, plan, chunks) if plan.inference else 0,
    }
    return {**found, "total": sum(found.values()) - found["parameters"]}


def _activations(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk], order: StageOrder
) -> int:
    """Return the largest sum of what micro-batches under way keep for their backward."""
    kept = np.array([_kept(model, plan, chunk) for chunk in chunks], dtype=np.int64)
    if plan.inference:  # nothing is kept: what one layer works on
        return max(sum(piece.kept for piece in pieces)
                   for chunk in chunks for _, pieces in chunk.layers)  # fmt: skip
    change = np.zeros(order.phase.size, dtype=np.int64)
    change[order.phase == FORWARD] = 1
    change[np.isin(order.phase, (BACKWARD, WEIGHT_GRADIENT))] = -1
    held: Ints = np.cumsum(change * kept[order.chunk])
    working = _logits(model, plan) if any(chunk.last for chunk in chunks) else 0
    if plan.recompute == "full":
        of_layers = [sum(piece.kept for piece in pieces)
                     for chunk in chunks for _, pieces in chunk.layers]  # fmt: skip
        working = max(working, *of_layers)
    return int(held.max()) + working


def _logits(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the bytes of the logits, which are there while the loss makes its float32 copy."""
    return plan.tokens * -(-model.vocab // plan.tp) * plan.itemsize


def _kept(model: LanguageModel, plan: ParallelPlan, chunk: Chunk) -> int:
    """Return the bytes that a chunk keeps of one micro-batch from its forward to its backward."""
    total = 0
    for layer, pieces in chunk.layers:
        if plan.recompute == "full" and layer >= 0:
            total += message_bytes(model, plan)
            continue
        for piece in pieces:
            total += piece.kept - (piece.made_again if plan.recompute == "selective" else 0)
    return total


def _kv_cache(model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk]) -> int:
    """Return the bytes of keys and values of all sequences of a rank."""
    layers = sum(layer >= 0 for chunk in chunks for layer, _ in chunk.layers)
    tokens = plan.prefix + plan.global_batch // plan.dp * (plan.suffix // plan.cp)
    return layers * tokens * cache_width(model, plan) * plan.itemsize
