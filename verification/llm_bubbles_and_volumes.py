"""Generated jobs of language models, against closed forms of what they send and how they wait.

Usage: python verification/llm_bubbles_and_volumes.py [MODEL ...]

For each model (a name that ships with Nadi, or a file) and layout:

volumes
    Bytes that a rank contributes to collectives and messages in a step equal the closed forms of
    tensor, pipeline, data (ZeRO 0 to 3), expert and context parallelism, and of heads of keys that
    several ranks hold. The formulas are written here, from the model's shape alone.
bubbles
    On a network that takes no time, with operations of given times, a simulated step takes
    ``m (F + B + W)`` and the published bubble of its schedule, to the nanosecond.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import polars as pl
from _report import Checks

import nadi
from nadi.models import LanguageModel, llm_statistics
from nadi.simulation import Simulation
from nadi.systems import Collectives, Dimension, Network, System
from nadi.trace.trace import Job

MODELS = ("gpt3-13b", "llama3-8b", "llama3-70b", "mixtral-8x7b", "qwen3-30b-a3b")
SEQUENCE = 2048
BYTES, GRADIENT = 2, 4  # of an element of a weight or activation, and of a gradient


def sums(model: LanguageModel, **plan: object) -> dict[tuple[str, str], int]:
    """Return the bytes of one rank of each stage, over all stages, by role and type."""
    table = llm_statistics(model, sequence=SEQUENCE, **plan).communication
    rows = table.group_by("role", "type").agg(pl.col("bytes").sum()).iter_rows()
    return {(role, comm_type): size for role, comm_type, size in rows}


def layer_weights(model: LanguageModel) -> tuple[int, int]:
    """Return the parameters of all layers without experts, and those of experts."""
    kinds = model.layer_kinds
    dense = experts = 0
    for kind in kinds:
        counts = model.layer_parameters(kind)
        experts += counts.experts
        dense += counts.total - counts.experts
    return dense, experts


def ends(model: LanguageModel) -> int:
    """Return the parameters of the embedding, the head and the last norm."""
    dense, experts = layer_weights(model)
    return model.total_parameters - dense - experts


def tensor_parallel(checks: Checks, name: str, model: LanguageModel) -> None:
    """Sum the residual stream twice forward and twice backward per layer; and at both ends."""
    if model.moe is not None:
        return
    tp, m = 4, 2
    stream = SEQUENCE * model.hidden * BYTES
    whole = sums(model, tp=tp, global_batch=m, sequence_parallel=False)
    # the gradients' norm and three sums of the loss
    small = m * 3 * 4 * SEQUENCE + 4
    expected = m * (4 * model.layers + 2) * stream + small
    checks.add(f"{name}: tp={tp}, all-reduce", whole["tp", "all_reduce"] == expected)
    sharded = sums(model, tp=tp, global_batch=m, sequence_parallel=True)
    # forward and backward of two blocks, and after the embedding; before the head's backward
    scattered = m * (4 * model.layers + 2) * stream
    # forward, the same again for weight gradients, and gradients before row parallel layers
    gathered = m * (6 * model.layers + 3) * stream // tp
    checks.add(f"{name}: tp={tp} sp, reduce-scatter",
               sharded["tp", "reduce_scatter"] == scattered)  # fmt: skip
    checks.add(f"{name}: tp={tp} sp, all-gather", sharded["tp", "all_gather"] == gathered,
               f"{sharded['tp', 'all_gather']:,} for {gathered:,}")  # fmt: skip


def pipeline_parallel(checks: Checks, name: str, model: LanguageModel) -> None:
    """Send an activation and a gradient across each cut, for each micro-batch."""
    stream = SEQUENCE * model.hidden * BYTES
    for schedule, chunks, m in (("1f1b", 1, 8), ("interleaved", 2, 8), ("dualpipe", 1, 16)):
        pp = 4
        found = sums(model, pp=pp, global_batch=m, schedule=schedule, chunks=chunks)
        cuts = pp * (chunks if schedule == "interleaved" else 1) - 1
        expected = 2 * m * cuts * stream
        checks.add(f"{name}: pp={pp} {schedule}, sends", found["pp", "send"] == expected)
        checks.add(f"{name}: pp={pp} {schedule}, receives", found["pp", "recv"] == expected)


def data_parallel(checks: Checks, name: str, model: LanguageModel) -> None:
    """Reduce gradients once per step; with ZeRO-3, gather weights for each forward and backward."""
    dp, m = 8, 2
    if any(count % dp for count in (*layer_weights(model), ends(model))):
        return  # shards of different sizes are rounded up
    total = model.total_parameters
    for zero in range(4):
        found = sums(model, dp=dp, zero=zero, global_batch=dp * m)
        by_type = {comm_type: size for (role, comm_type), size in found.items()
                   if role == "dp"}  # fmt: skip
        by_edp = {comm_type: size for (role, comm_type), size in found.items()
                  if role == "edp"}  # fmt: skip
        both = {key: by_type.get(key, 0) + by_edp.get(key, 0) for key in (*by_type, *by_edp)}
        norm = 4 if zero else 0
        if zero == 0:
            expected = {"all_reduce": total * GRADIENT}
        elif zero < 3:
            expected = {"reduce_scatter": total * GRADIENT, "all_gather": total * BYTES // dp,
                        "all_reduce": norm}  # fmt: skip
        else:
            expected = {"reduce_scatter": m * total * GRADIENT,
                        "all_gather": 2 * m * total * BYTES // dp, "all_reduce": norm}  # fmt: skip
        checks.add(f"{name}: dp={dp} ZeRO-{zero}", both == expected, f"{both} for {expected}")


def expert_parallel(checks: Checks, name: str, model: LanguageModel) -> None:
    """Send each token and bring it back, forward and backward, once for each of its experts."""
    if model.moe is None:
        return
    ep, m = 4, 2
    found = sums(model, dp=4, ep=ep, global_batch=4 * m)
    moe_layers = model.layer_kinds.count("moe")
    tokens = SEQUENCE * model.moe.top_k * model.hidden * BYTES
    expected = m * moe_layers * 4 * tokens
    checks.add(f"{name}: ep={ep}, all-to-all", found["ep", "all_to_all"] == expected)


def context_parallel(checks: Checks, name: str, model: LanguageModel) -> None:
    """Gather keys and values forward, and reduce their gradients backward."""
    cp, m = 4, 2
    found = sums(model, cp=cp, global_batch=m)
    own = 2 * SEQUENCE // cp * model.kv_heads * model.head_dim * BYTES
    checks.add(f"{name}: cp={cp}, all-gather", found["cp", "all_gather"] == m * model.layers * own)
    scattered = m * model.layers * own * cp
    checks.add(f"{name}: cp={cp}, reduce-scatter", found["cp", "reduce_scatter"] == scattered)


def copied_heads(checks: Checks, name: str, model: LanguageModel) -> None:
    """Sum the gradients of heads of keys and values over the ranks that hold the same ones."""
    tp = 2 * model.kv_heads
    if model.mla is not None or model.heads % tp:
        return
    found = sums(model, tp=tp, dp=2)
    biases = int(model.attention_bias or model.qkv_bias)
    own = 2 * model.head_dim * (model.hidden + biases)
    expected = model.layers * own * GRADIENT
    checks.add(f"{name}: tp={tp}, copies of heads", found["kv", "all_reduce"] == expected)


# bubbles


def timed(job: Job, times: tuple[int, int, int], layers_of_stage: int) -> Job:
    """Give a norm of each layer the time of its stage's forward, backward and weight gradient."""
    names = {
        r"^layers\.\d+\.attention\.norm$": times[0],
        r"^layers\.\d+\.attention\.norm\.input_gradient$": times[1],
        r"^layers\.\d+\.attention\.norm\.weight_gradient$": times[2],
    }
    of_trace = {}
    for trace in dict.fromkeys(job.traces):
        name = trace.nodes["name"].cast(pl.String)
        duration = np.zeros(name.len(), dtype=np.int64)
        for pattern, time in names.items():
            duration[name.str.contains(pattern).to_numpy()] = time // layers_of_stage
        nodes = trace.nodes.with_columns(duration=pl.Series(duration))
        of_trace[id(trace)] = replace(trace, nodes=nodes)
    return replace(job, traces=tuple(of_trace[id(trace)] for trace in job.traces))


def longest_span(done: Simulation) -> int:
    """Return the longest time from the first to the last computation of a stage, on stream 0."""
    computes = pl.col("resource").cast(pl.String) == "stream 0"
    worked = done.schedule.table.filter(computes & (pl.col("end") > pl.col("start")))
    spans = worked.group_by("rank").agg(span=pl.col("end").max() - pl.col("start").min())
    return int(spans["span"].max())


def bubbles(checks: Checks) -> None:
    """Compare simulated steps on a free network with the published bubbles."""
    f, b, w = 840_000, 1_680_000, 840_000
    model = LanguageModel(layers=48, hidden=64, heads=4, ffn=128, vocab=64, max_positions=64)
    cases = [
        (schedule, p, m, v)
        for p in (2, 4, 8)
        for m in (p, 2 * p, 4 * p)
        for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3),
                            ("zero-bubble", 1), ("zero-bubble-h2", 1), ("dualpipe", 1))
        if schedule not in ("dualpipe", "zero-bubble-h2") or m >= 2 * p
    ]  # fmt: skip
    for schedule, p, m, v in cases:
        # half as much work in DualPipe's chunks would be its full work: each stage has two
        work = (f, f, f) if schedule in ("dualpipe", "zero-bubble") else (f, b, w)
        work = (f, f, 3 * f // 4) if schedule == "zero-bubble-h2" else work
        job = nadi.llm_job(model, pp=p, global_batch=m, schedule=schedule,
                           chunks=v)  # fmt: skip
        job = timed(job, work, 48 // p)
        free = System(
            Network((Dimension("switch", p, 1e15),)), collectives=Collectives(endpoint_delay=0)
        )
        done = nadi.simulate(job, free)
        # stages of ZB-H2 begin one after the other; the wait of each is in between
        step = longest_span(done) if schedule == "zero-bubble-h2" else done.makespan
        one = sum(work)
        expected = {
            "gpipe": (p - 1) * one, "1f1b": (p - 1) * one, "interleaved": (p - 1) * one // v,
            "zero-bubble": (p - 1) * (work[0] + work[1] - work[2]),
            "zero-bubble-h2": (p - 1) * (work[0] + work[1] - 2 * work[2]),
            # one after the other: pipeline_schedules.py
            "dualpipe": (p // 2 - 1) * (work[0] + work[1] - work[2]),
        }[schedule]  # fmt: skip
        bubble = step - m * one
        name = f"bubble of {schedule}, p={p} m={m} v={v}"
        checks.add(name, bubble == expected, f"{bubble} for {expected}")


def main() -> None:
    checks = Checks()
    for name in sys.argv[1:] or MODELS:
        model = nadi.models.load_language_model(name)
        for part in (tensor_parallel, pipeline_parallel, data_parallel, expert_parallel,
                     context_parallel, copied_heads):  # fmt: skip
            part(checks, name, model)
    bubbles(checks)
    checks.finish()


if __name__ == "__main__":
    main()
