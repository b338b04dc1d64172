"""Step times of generated, priced and simulated jobs beside those that Megatron-LM measured.

Usage: python benchmarks/published_llm_steps.py

The rows are table 5 of arXiv 2205.05198 (A100 80GB): full recomputation, and selective
recomputation with sequence parallelism. Nothing is fitted to them: prices are the curves of the
device (docs/pricing.md), the network is the system file dgx-a100.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nadi
from nadi.pipeline import llm_statistics

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "verification"))

from _published_runs import calculon_runs


def main() -> None:
    errors = []
    print(f"{'row':44} {'measured':>9} {'simulated':>10} {'error':>8} {'MFU':>6} "
          f"{'took':>6}")  # fmt: skip
    for run in calculon_runs():
        begin = time.perf_counter()
        job = nadi.llm_job(run.model, **run.plan)
        system = nadi.load_system(run.system, len(job.traces))
        step = nadi.simulate(job, system).makespan / 1e9
        took = time.perf_counter() - begin
        statistics = llm_statistics(run.model, **run.plan)
        possible = system.compute.peak * len(job.traces) * step
        error = step / run.seconds - 1
        errors.append(abs(error))
        print(f"{run.name:44} {run.seconds:8.2f}s {step:9.2f}s {100 * error:+7.1f}% "
              f"{100 * statistics.model_flops / possible:5.1f}% {took:5.1f}s")  # fmt: skip
    print(f"mean absolute error {100 * sum(errors) / len(errors):.1f} %")


if __name__ == "__main__":
    main()
