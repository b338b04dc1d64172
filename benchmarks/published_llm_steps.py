"""Estimated steps of training beside published ones.

Usage: python benchmarks/published_llm_steps.py [TRAINING.json.gz ...]

First the rows of table 5 of arXiv 2205.05198 (A100 80GB). With files of published records, such as
those of ``shared/data/published``, all of their rows that can be stated, by source, with the mean
and median error of each, and why others cannot be. Nothing is fitted to them: prices are the
curves of the device (docs/pricing.md), networks are those of system files; what a source leaves
open is assumed alike for all of its rows. Simulated jobs take as long (``nadi estimate --check``).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "verification"))

from _published_runs import calculon_runs, published_runs, show_estimates


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        show_estimates("Megatron, A100", calculon_runs(), folder)
        if not paths:
            return
        runs, reasons, num = published_runs(paths)
        errors: list[float] = []
        for source in dict.fromkeys(run.source for run in runs):
            of_source = [run for run in runs if run.source == source]
            found, refused = show_estimates(source, of_source, folder)
            errors, reasons = errors + found, reasons + refused
    sizes = [abs(error) for error in errors]
    told = ""
    if sizes:
        told = f", mean absolute error {mean(sizes):.1%}, median {median(sizes):.1%}"
    print(f"\n{num} rows, {len(errors)} stated and estimated{told}; others:")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")


if __name__ == "__main__":
    main()
