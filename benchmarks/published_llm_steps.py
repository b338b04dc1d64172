"""Step times of generated, priced and simulated jobs beside those that Megatron-LM measured.

Usage: python benchmarks/published_llm_steps.py

The rows are table 5 of arXiv 2205.05198 (A100 80GB): full recomputation, and selective
recomputation with sequence parallelism. Nothing is fitted to them: prices are the curves of the
device (docs/pricing.md), the network is the system file dgx-a100.
"""

from __future__ import annotations

import time
from typing import Any

import nadi
from nadi.pipeline import llm_statistics

ROWS: list[tuple[str, dict[str, Any], float, float]] = [
    ("megatron-22b", {"tp": 8, "global_batch": 4, "micro_batch": 4}, 1.42, 1.10),
    ("megatron-175b", {"tp": 8, "pp": 8, "global_batch": 64, "schedule": "interleaved",
                       "chunks": 3}, 18.13, 13.75),
    ("megatron-530b", {"tp": 8, "pp": 35, "global_batch": 280, "schedule": "interleaved",
                       "chunks": 3}, 49.05, 37.83),
    ("megatron-1t", {"tp": 8, "pp": 64, "global_batch": 512}, 94.42, 71.49),
]  # fmt: skip
WAYS = (
    ("full recomputation", {"recompute": "full", "sequence_parallel": False}),
    ("selective, sequence parallel", {"recompute": "selective", "sequence_parallel": True}),
)


def main() -> None:
    errors = []
    print(f"{'model':14} {'way':30} {'measured':>9} {'simulated':>10} {'error':>8} {'MFU':>6} "
          f"{'took':>6}")  # fmt: skip
    for name, plan, *measured in ROWS:
        for (way, more), seconds in zip(WAYS, measured, strict=True):
            fields = {**plan, **more, "zero": 0, "attention": "unfused", "sequence": 2048}
            begin = time.perf_counter()
            job = nadi.llm_job(name, **fields)
            system = nadi.load_system("dgx-a100", len(job.traces))
            step = nadi.simulate(job, system).makespan / 1e9
            took = time.perf_counter() - begin
            statistics = llm_statistics(name, **fields)
            possible = system.compute.peak * len(job.traces) * step
            error = step / seconds - 1
            errors.append(abs(error))
            print(f"{name:14} {way:30} {seconds:8.2f}s {step:9.2f}s {100 * error:+7.1f}% "
                  f"{100 * statistics.model_flops / possible:5.1f}% {took:5.1f}s")  # fmt: skip
    print(f"mean absolute error {100 * sum(errors) / len(errors):.1f} %")


if __name__ == "__main__":
    main()
