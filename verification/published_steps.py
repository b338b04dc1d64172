"""Estimates beside published step times of training; nothing is fitted to any of them.

Judged are the eight rows that Calculon was validated with (arXiv 2205.05198, table 5): the mean
error must be no larger than Calculon's 3.65 %, no error larger than its largest, 8.87 %, and every
row of every record must be estimated or have a reason. The other rows are shown with their
errors: what their sources leave open is assumed as ``ASSUMED`` says, so they judge nothing.

    python verification/published_steps.py [TRAINING_...json.gz ...]
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from _published_runs import ASSUMED, FILES, PublishedRun, calculon_runs, published_runs
from _report import Checks, arguments

import nadi
from nadi.estimates import describe_step, estimate
from nadi.systems import shipped_text

CALCULON_MEAN, CALCULON_LARGEST = 0.0365, 0.0887


def estimated(run: PublishedRun, folder: str) -> Any:
    """Estimate a row."""
    system = run.system
    if run.between_nodes:
        text = shipped_text(system).replace('"200 Gb/s"', f'"{run.between_nodes}"')
        path = Path(folder) / f"{system}.toml"
        path.write_text(text)
        system = str(path)
    step = describe_step(run.model, system, run.plan)
    return estimate(step.model, step.machine, step.execution)


def show(runs: Sequence[PublishedRun], folder: str) -> tuple[list[float], list[str]]:
    """Print a line per row; give the errors, and why rows are refused."""
    errors, refused = [], []
    print(f"{'row':40} {'measured':>9} {'estimated':>10} {'error':>8}")
    for run in runs:
        try:
            found = estimated(run, folder)
        except nadi.NadiError as error:
            refused.append(f"{error}")
            print(f"{run.name:40} {run.seconds:8.2f}s {'refused':>10}  {error}")
            continue
        error = found.seconds / run.seconds - 1
        errors.append(error)
        lacks = "  (more memory than it has)" if found.lacks else ""
        print(f"{run.name:40} {run.seconds:8.2f}s {found.seconds:9.2f}s {error:+8.1%}{lacks}")
    return errors, refused


def main() -> None:
    checks = Checks()
    paths = arguments(*(f"published/training_{name}.json.gz" for name in FILES))
    with tempfile.TemporaryDirectory() as folder:
        errors, _ = show(calculon_runs(), folder)
        sizes = [abs(error) for error in errors]
        mean, largest = sum(sizes) / len(sizes), max(sizes)
        runs, reasons, num = published_runs(paths)
        refused = 0
        for source in dict.fromkeys(run.source for run in runs):
            print(f"\n{source}: assumed {ASSUMED[source]}")
            found, without = show([run for run in runs if run.source == source], folder)
            refused += len(without)
            if found:
                print(f"{len(found)} rows, median error {median(found):+.1%}, "
                      f"median size {median(map(abs, found)):.1%}")  # fmt: skip
    print(f"\n{num} rows: {len(runs) - refused} estimated, {refused} refused, "
          f"{reasons.total()} not stated")  # fmt: skip
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
    checks.add("mean error on Calculon's rows is no worse than its 3.65 %",
               mean <= CALCULON_MEAN, f"{mean:.2%}")  # fmt: skip
    checks.add("largest error on Calculon's rows is no worse than its 8.87 %",
               largest <= CALCULON_LARGEST, f"{largest:.2%}")  # fmt: skip
    checks.add("every row is estimated or has a reason", len(runs) + reasons.total() == num)
    checks.finish()


if __name__ == "__main__":
    main()
