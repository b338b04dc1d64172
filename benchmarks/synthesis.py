"""How fast a model is learned, jobs are made of it, and two jobs are compared.

Usage: python benchmarks/synthesis.py [RECORDING]

By default of cpu_transformer_big below ../shared/data. Learning is a command in a process of its
own, reading included, so that its peak memory is its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from _measure import SHARED, best_of, measure, nadi as command

import nadi

STEPS = 16


def main() -> None:
    """Print a line for each."""
    given = sys.argv[1:]
    recording = Path(given[0]) if given else SHARED / "traces" / "cpu_transformer_big"
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model.nadimodel")
        words = ("learn", str(recording), "-o", model, "--overwrite")
        print(f"{recording.name}: learned in {measure(command(*words))}")
        found = nadi.sharing.read_trace_model(model)
        size = Path(model).stat().st_size
        job = nadi.sharing.synthesize(found, steps=STEPS, seed=1)
        seconds = best_of(lambda: nadi.sharing.synthesize(found, steps=STEPS, seed=1))
        print(
            f"{job.num_nodes:,} operations in {seconds:.2f} s, {job.num_nodes / seconds:,.0f} a "
            f"second; the model is {size:,} bytes"
        )
        begin = time.perf_counter()
        nadi.compare(job, job, systems="dgx-h100")
        print(f"compared with itself on one system in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
