"""How fast a model is learned, jobs are made of it, and two jobs are compared.

Usage: python benchmarks/synthesis.py [RECORDING]

By default of cpu_transformer_big below ../shared/data. Learning is a command in a process of its
own, reading included, so that its peak memory is its own. So is making jobs of a generator, with
start and files; rates are of CPU time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from _measure import SHARED, measure, nadi as command

import nadi
from nadi.recordings.jobs import read_ranks

STEPS = 16
GENERATED = 30
ONE_RANK = ("--ranks", "1", "--layers", "32", "--set", "micro_batch=1", "--set", "global_batch=512")
MANY_RANKS = ("--ranks", "64", "--layers", "48", "--tp", "8", "--device", "h100")


def main() -> None:
    """Print a line for each."""
    given = sys.argv[1:]
    recording = Path(given[0]) if given else SHARED / "traces" / "cpu_transformer_big"
    with tempfile.TemporaryDirectory() as folder:
        of_conditions(folder)
        model = str(Path(folder) / "model.nadimodel")
        words = ("learn", str(recording), "-o", model, "--overwrite")
        print(f"{recording.name}: learned in {measure(command(*words))}")
        found = nadi.sharing.read_trace_model(model)
        size = Path(model).stat().st_size
        job = nadi.sharing.synthesize(found, steps=STEPS, seed=1)
        begin = time.process_time()
        nadi.sharing.synthesize(found, steps=STEPS, seed=1)
        seconds = time.process_time() - begin
        print(
            f"{job.num_nodes:,} operations in {seconds:.2f} CPU s, {job.num_nodes / seconds:,.0f} "
            f"a CPU second; the model is {size:,} bytes"
        )
        begin = time.perf_counter()
        nadi.compare(job, job, systems="dgx-h100")
        print(f"compared with itself on one system in {time.perf_counter() - begin:.1f} s")


def of_conditions(folder: str) -> None:
    """Print how fast ``nadi synthesize`` makes jobs of conditions."""
    generator, target = f"{folder}/generator.nadimodel", f"{folder}/job"
    done = measure(command("learn", "--generated", str(GENERATED), "-o", generator, "--overwrite"))
    print(f"a generator of {GENERATED} jobs: learned in {done}")
    for asked in (ONE_RANK, MANY_RANKS):
        words = ("--family", "llama", "--hidden", "6144", *asked, "-o", target, "--overwrite")
        done = measure(command("synthesize", generator, *words))
        count = sum(one.nodes.height for one in read_ranks(target))
        print(f"{' '.join(asked)}: {count:,} operations written in {done}, "
              f"{count / done.cpu:,.0f} a CPU second")  # fmt: skip


if __name__ == "__main__":
    main()
