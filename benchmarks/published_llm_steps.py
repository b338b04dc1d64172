"""Step times of generated, priced and simulated jobs beside published ones.

Usage: python benchmarks/published_llm_steps.py [TRAINING.json.gz ...]

First the rows of table 5 of arXiv 2205.05198 (A100 80GB). With files of published records, such as
those of ``shared/data/published``, all of their rows that can be stated, by source, with the mean
and median error of each, and why others cannot be. Nothing is fitted to them: prices are the
curves of the device (docs/pricing.md), networks are those of system files; what a source leaves
open is assumed alike for all of its rows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import msgspec

import nadi
from nadi.models import llm_statistics
from nadi.systems import shipped_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "verification"))

from _published_runs import ASSUMED, PublishedRun, calculon_runs, published_runs


def simulated(run: PublishedRun, folder: str) -> tuple[float, float]:
    """Give the seconds of a step, and the model FLOPs utilization."""
    system = run.system
    if run.between_nodes:
        path = Path(folder) / f"{system}.toml"
        path.write_text(shipped_text(system).replace('"200 Gb/s"', f'"{run.between_nodes}"'))
        system = str(path)
    job = nadi.llm_job(run.model, **run.plan)
    machine = nadi.load_system(system, len(job.traces))
    step = nadi.simulate(job, machine).makespan / 1e9
    possible = machine.compute.peak * len(job.traces) * step
    return step, llm_statistics(run.model, **run.plan).model_flops / possible


def show(source: str, runs: Sequence[PublishedRun], folder: str) -> tuple[int, Counter[str]]:
    """Print a line for each row; gives how many were simulated, and why others were refused."""
    print(f"\n{source}: {ASSUMED[source]}")
    print(f"{'row':44} {'measured':>9} {'simulated':>10} {'error':>8} {'MFU':>6} {'took':>6}")
    errors: list[float] = []
    refused: Counter[str] = Counter()
    known: dict[bytes, tuple[float, float]] = {}
    for run in runs:
        begin = time.perf_counter()
        key = msgspec.json.encode([run.model, run.system, run.plan, run.between_nodes])
        try:
            step, utilization = known.get(key) or simulated(run, folder)
        except nadi.NadiError as error:
            refused[str(error)] += 1
            continue
        known[key] = step, utilization
        took = time.perf_counter() - begin
        errors.append(step / run.seconds - 1)
        print(f"{run.name:44} {run.seconds:8.2f}s {step:9.2f}s {100 * errors[-1]:+7.1f}% "
              f"{100 * utilization:5.1f}% {took:5.1f}s", flush=True)  # fmt: skip
    if errors:
        sizes = [abs(error) for error in errors]
        print(f"{source}: {len(errors)} rows, mean absolute error {mean(sizes):.1%}, "
              f"median {median(sizes):.1%}, signed median {median(errors):+.1%}")  # fmt: skip
    return len(errors), refused


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        show("Megatron, A100", calculon_runs(), folder)
        if not paths:
            return
        runs, reasons, num = published_runs(paths)
        done = 0
        for source in dict.fromkeys(run.source for run in runs):
            count, refused = show(source, [run for run in runs if run.source == source], folder)
            done, reasons = done + count, reasons + refused
    print(f"\n{num} rows, {done} stated and simulated; others:")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")


if __name__ == "__main__":
    main()
