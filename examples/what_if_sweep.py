"""Sweep the speed of communication, to see where faster communication stops to pay.

A recording without communication is refused.

Usage: python what_if_sweep.py [TRACES RESULTS]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import nadi


def main(traces: Path, results: Path) -> None:
    """Print the time of the window for each speed, and write it as CSV."""
    run = nadi.run(traces)
    rows = []
    for factor in (1.0, 0.75, 0.5, 0.25, 0.1):
        answer = nadi.what_if(run.graph, f"scale kind=communication {factor}", window=run.window)
        kind, operation = answer.bound_by
        rows.append({
            "factor": factor, "window_ms": answer.window_ns / 1e6, "gain_ms": answer.gain_ns / 1e6,
            "bottleneck": kind, "operation": operation,
        })  # fmt: skip
    table = pl.DataFrame(rows)
    print(table)
    table.write_csv(results / "sweep.csv")


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
