"""Does an estimate rank configurations as the machine did? Histories of tuning training jobs.

Usage: python benchmarks/tuning_histories.py [HISTORY.csv ...]

A history (cornell-sysphotonics/ccl-bench) has a configuration and its step time, or that it failed,
on each row. The job is told by the keys of its configurations: ``JOBS``. Prices are the curves of
the A100 (docs/pricing.md). Two machines are estimated: that of the data sheets, and one whose
network between nodes has the bandwidth that explains the first row, as its NCCL went over sockets;
this row is then left out. Of each history: pairs of configurations whose measured times are over
5 % apart and that the estimate puts in their order, the rank correlation (Spearman's), and how much
longer than the best the configuration takes that the estimate finds fastest.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from _measure import SHARED

from nadi.errors import NadiError
from nadi.estimates import describe_step, estimate
from nadi.models import LanguageModel, load_language_model

_SYSTEM = Path(__file__).parent / "systems" / "perlmutter.toml"
_STATED = '"200 Gb/s"'  # between nodes
_MACHINES = "data sheet", "fitted to the first row, which is left out"
_APART = 1.05
_SEQUENCE = 1024
# of the score of two histories, as the scripts of the source set it: the weight of few GPUs, how
# many count 1, and the step time in s that counts 1
_WEIGHT, _GPUS = 0.5, 16
_SCORED_SECONDS = {"megatron": 0.44, "experts": 2.633}
# as the source's script describes it
_EXPERTS = {
    "layers": 27, "hidden": 2048, "heads": 16, "vocab": 128256, "ffn": 10944, "gated": True,
    "norm": "rmsnorm", "max_positions": 4096,
    "mla": {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "q_lora_rank": 0},
    "moe": {"experts": 64, "top_k": 6, "expert_ffn": 1408, "shared_experts": 2,
            "first_dense_layers": 1},
}  # fmt: skip
JOBS = {
    "experts": "DeepSeek-V2-Lite in Megatron-LM, 8 sequences a step (configurations with ep)",
    "torchtitan": "Llama 3.1 8B in torchtitan, 32 sequences a step, FSDP (16 GPUs)",
    "megatron": "Llama 3.1 8B in Megatron-LM, a micro-batch a step (up to 8 GPUs)",
}


class Measured(NamedTuple):
    """A configuration, and its seconds a step; 0 if it failed."""

    plan: dict[str, Any]
    seconds: float


def job_of(rows: list[dict[str, str]]) -> str:
    """Tell what was tuned by the keys and the GPUs of the configurations."""
    configs = [json.loads(row["config"]) for row in rows]
    if any("ep" in one for one in configs):
        return "experts"
    return "torchtitan" if max(map(ranks_of, configs), default=0) > 8 else "megatron"


def ranks_of(config: dict[str, Any]) -> int:
    """Give the GPUs of a configuration."""
    return math.prod(int(config.get(axis, 1)) for axis in ("tp", "dp", "pp"))


def model_of(job: str) -> LanguageModel:
    """Give what a job trains."""
    if job != "experts":
        return load_language_model("llama3-8b")
    return msgspec.convert(_EXPERTS, LanguageModel)


def history(job: str, rows: list[dict[str, str]]) -> Iterator[Measured]:
    """Give the configurations of a history once each."""
    seen = set()
    for row in rows:
        config = json.loads(row["config"])
        if not config or row["config"] in seen:
            continue
        seen.add(row["config"])
        metrics = json.loads(row["metrics"]) if row["status"] == "success" else {}
        ranks = ranks_of(config)
        seconds = float(metrics.get("avg_step_time", 0))
        if "gpu_step_score" in metrics:
            left = float(metrics["gpu_step_score"]) - _WEIGHT * _GPUS / ranks
            seconds = (1 - _WEIGHT) * _SCORED_SECONDS[job] / left
        yield Measured(plan_of(job, config), seconds)


def plan_of(job: str, config: dict[str, Any]) -> dict[str, Any]:
    """Give the plan that the scripts of the source make of a configuration."""
    config = {"tp": 1, "dp": 1, "pp": 1} | config
    axes = {name: config[name] for name in ("tp", "dp", "pp", "ep") if name in config}
    micro_batch = config.get("micro_batch_size", config.get("micro_batch", 1))
    saves = config.get("activation_checkpointing", False)
    if job == "torchtitan":  # the batch of a rank goes at once where there are no stages
        own = 32 // config["dp"]
        # with stages weights stay between micro-batches, and gradients are reduced once
        return axes | {
            "zero": 3 if config["pp"] == 1 else 2, "global_batch": 32,
            "recompute": "full" if saves else "selective",
            "micro_batch": own if config["pp"] == 1 else min(micro_batch, own),
            "sequence": _SEQUENCE,
        }  # fmt: skip
    plan = axes | {
        "zero": 0, "recompute": "selective" if saves else "none", "micro_batch": micro_batch,
        "global_batch": config["dp"] * micro_batch, "sequence": _SEQUENCE,
        "sequence_parallel": False,
    }  # fmt: skip
    if (
        job == "experts"
    ):  # a share of each, which no estimate has: they are spread over as many ranks
        plan |= {"global_batch": 8, "sequence_parallel": config["tp"] > 1,
                 "ep": config["ep"] * config["tp"]}  # fmt: skip
    return plan


class Estimates:
    """Estimates of a model's plans on the machine, with a bandwidth between nodes."""

    def __init__(self, model: LanguageModel, folder: str) -> None:
        self._model, self._folder = model, Path(folder)

    def of(self, plan: dict[str, Any], gb_per_s: float = 0.0) -> tuple[float, bool]:
        """Give the seconds of a step, and whether the memory holds it; 0 is the data sheet."""
        system = _SYSTEM
        if gb_per_s:
            system = self._folder / "machine.toml"
            system.write_text(_SYSTEM.read_text().replace(_STATED, f'"{gb_per_s:.6g} GB/s"'))
        step = describe_step(self._model, str(system), plan)
        found = estimate(step.model, step.machine, step.execution)
        return found.seconds, not found.lacks

    def lacking(self, plans: list[Measured]) -> int:
        """Count the plans that are refused, or need more memory than there is."""
        count = 0
        for one in plans:
            try:
                count += not self.of(one.plan)[1]
            except NadiError:
                count += 1
        return count

    def bandwidth(self, first: Measured) -> float:
        """Give the GB/s between nodes with which a plan takes what was measured."""
        low, high = 0.05, 25.0
        for _ in range(30):
            middle = (low * high) ** 0.5
            is_slow = self.of(first.plan, middle)[0] > first.seconds
            low, high = (middle, high) if is_slow else (low, middle)
        return high


class Order(NamedTuple):
    """How an estimate orders what was measured: right pairs of all, correlation, and choice."""

    right: int
    pairs: int
    correlation: float
    lost: float  # how many times the best the chosen one takes

    def __str__(self) -> str:
        return (
            f"{self.right} of {self.pairs} pairs in order, rank correlation "
            f"{self.correlation:.2f}, the one chosen takes {self.lost:.2f} times the best"
        )


def compare(found: list[tuple[Measured, float]]) -> Order:
    """Tell how estimates rank what was measured."""
    pairs = [sorted(pair, key=lambda one: one[0].seconds) for pair in combinations(found, 2)]
    apart = [(a, b) for a, b in pairs if b[0].seconds > _APART * a[0].seconds]
    ranks = np.array([[one.seconds, seconds] for one, seconds in found]).argsort(0).argsort(0)
    chosen = min(found, key=lambda one: one[1])[0].seconds
    return Order(
        sum(a[1] < b[1] for a, b in apart), len(apart),
        float(np.asarray(np.corrcoef(ranks.T))[0, 1]),
        chosen / min(one.seconds for one, _ in found),
    )  # fmt: skip


def show(path: Path, folder: str) -> list[Order]:
    """Print and give how a history is ranked on both machines; nothing if too few ran."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    job = job_of(rows)
    known = list(history(job, rows))
    measured = [one for one in known if one.seconds]
    print(f"\n{path.name}: {JOBS[job]}")
    if len(measured) < 3:
        print(f"  {len(measured)} configurations ran: too few to rank")
        return []
    estimates = Estimates(model_of(job), folder)
    fitted = estimates.bandwidth(measured[0])
    print(f"  {'plan':58} {'measured':>9} {'data sheet':>11} {f'{fitted:.2f} GB/s':>11}")
    found: list[list[tuple[Measured, float]]] = [[], []]
    for one in measured:
        times = [estimates.of(one.plan, gb_per_s)[0] for gb_per_s in (0.0, fitted)]
        told = " ".join(f"{key} {one.plan[key]}" for key in (
            "tp", "dp", "pp", "ep", "micro_batch", "recompute") if key in one.plan)  # fmt: skip
        print(f"  {told:58} {one.seconds:8.2f}s " + " ".join(f"{time:10.2f}s" for time in times))
        for column, time in zip(found, times, strict=True):
            column.append((one, time))
    orders = [compare(found[0]), compare(found[1][1:])]
    for what, order in zip(_MACHINES, orders, strict=True):
        print(f"  {what}: {order}")
    failed = [one for one in known if not one.seconds]
    print(
        f"  more memory than a GPU has is estimated for {estimates.lacking(measured)} of "
        f"{len(measured)} that ran, and {estimates.lacking(failed)} of {len(failed)} that failed"
    )
    return orders


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]]
    paths = paths or sorted((SHARED / "field" / "ccl_bench").glob("*.csv"))
    with tempfile.TemporaryDirectory() as folder:
        shown = [orders for path in paths if (orders := show(path, folder))]
    print()
    for what, column in zip(_MACHINES, zip(*shown, strict=True), strict=False):
        right, pairs = sum(one.right for one in column), sum(one.pairs for one in column)
        print(f"{what}: {right} of {pairs} pairs in order, in {len(column)} histories")


if __name__ == "__main__":
    main()
