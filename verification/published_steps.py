"""Estimates beside published step times of training; nothing is fitted to any of them.

Judged are the eight rows that Calculon was validated with (arXiv 2205.05198, table 5): the mean
error must be no larger than Calculon's 3.65 %, no error larger than its largest, 8.87 %, and every
row of every record must be estimated or have a reason. The other rows are shown with their
errors: what their sources leave open is assumed as ``ASSUMED`` says, so they judge nothing.

    python verification/published_steps.py [TRAINING_...json.gz ...]
"""

from __future__ import annotations

import tempfile

from _published_runs import FILES, calculon_runs, published_runs, show_estimates
from _report import Checks, arguments

CALCULON_MEAN, CALCULON_LARGEST = 0.0365, 0.0887


def main() -> None:
    checks = Checks()
    paths = arguments(*(f"published/training_{name}.json.gz" for name in FILES))
    with tempfile.TemporaryDirectory() as folder:
        errors, _ = show_estimates("Megatron, A100", calculon_runs(), folder)
        sizes = [abs(error) for error in errors]
        mean, largest = sum(sizes) / len(sizes), max(sizes)
        runs, reasons, num = published_runs(paths)
        refused = 0
        for source in dict.fromkeys(run.source for run in runs):
            of_source = [run for run in runs if run.source == source]
            refused += show_estimates(source, of_source, folder)[1].total()
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
