"""What a generated job of a language model amounts to: parameters, FLOPs, bytes, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.models.job_rows import ADAM_STATE
from nadi.models.llm.chunk_rows import Chunk, message_bytes
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.lasting_tensors import cache_width, group_size
from nadi.models.llm.llm_jobs import job_of_model, stage_orders
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import BACKWARD, FORWARD, WEIGHT_GRADIENT, StageOrder
from nadi.models.llm.stage_traces import stage_chunks
from nadi.models.row_traces import communication_by_role, flops_by_phase
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job, Trace


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
    masked_flops
        FLOPs of a step of all ranks that causal masks leave out of forward and backward, which
        published FLOPs of models count.
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
    masked_flops: int = 0
    inference: str = ""

    @property
    def total_flops(self) -> int:
        """FLOPs of a step of all ranks."""
        ranks = self.world_size // self.flops.height
        return ranks * int(self.flops.drop("stage").sum_horizontal().sum())

    @property
    def model_flops(self) -> int:
        """FLOPs of a step of all ranks without recomputation and optimizer, of all scores."""
        ranks = self.world_size // self.flops.height
        return self.masked_flops + ranks * int(
            self.flops.select("forward", "backward").sum_horizontal().sum()
        )


def statistics_of(
    model: LanguageModel, plan: ParallelPlan, job: Job | None = None
) -> JobStatistics:
    """Compute the statistics of a job.

    Parameters
    ----------
    model, plan
        As for :func:`~nadi.models.llm.llm_jobs.job_of_model`.
    job
        The job, if it was made already.

    Raises
    ------
    UsageError
        If model and plan do not fit together.
    """
    checked = plan.of(model)
    made = job_of_model(model, checked) if job is None else job
    traces = list(dict.fromkeys(made.traces))
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
        flops=pl.concat([flops_by_phase(trace, stage) for stage, trace in enumerate(traces)]),
        communication=pl.concat(
            [communication_by_role(one, made, n) for n, one in enumerate(traces)]
        ),
        memory=pl.DataFrame(memory),
        masked_flops=checked.world_size // len(traces) * sum(
            round(_attention_flops(one) * (1 / checked.computed_scores - 1)) for one in traces
        ),
        inference=checked.inference,
    )  # fmt: skip


def _attention_flops(trace: Trace) -> int:
    """Return the FLOPs of fused attention of a rank, forward and backward."""
    is_core = trace.name_mask(r"attention\.core")
    is_counted = trace.nodes["phase"].cast(pl.String).is_in(["forward", "backward"]).to_numpy()
    return int(trace.column("flops")[is_core & is_counted].sum())


def _memory(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk], order: StageOrder
) -> dict[str, int]:
    """Return the bytes of one rank of a stage, by what they are for."""
    layers = [pieces for chunk in chunks for _, pieces in chunk.layers]
    of_layers = {
        "dp": [sum(piece.weight for piece in pieces) for pieces in layers],
        "edp": [sum(piece.expert_weight for piece in pieces) for pieces in layers],
    }
    whole = {role: [sum(counts)] for role, counts in of_layers.items()}

    def held(counts: Mapping[str, Sequence[int]], size: int, from_stage: int) -> int:
        """Return the bytes of buffers, which are shared from a stage of ZeRO on."""
        shards = {role: group_size(plan, role) if plan.zero >= from_stage else 1 for role in counts}
        return size * sum(
            -(-count // shards[role]) for role, listed in counts.items() for count in listed
        )

    found = {
        "parameters": held(whole, 1, 4),
        "weights": held(of_layers, plan.itemsize, 3),
        "gradients": 0 if plan.inference else held(of_layers, plan.gradient_itemsize, 2),
        "optimizer": 0 if plan.inference else held(whole, ADAM_STATE, 1),
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
