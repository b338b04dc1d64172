"""Compare replays of recordings with what they replay.

Every operator has to be replayed, and the recording of the replay has the same calls with the same
shapes. Programs are recorded here too (_replay_programs.py): a step of the replay takes as long
as one of the program in the same minute, both without a recorder, within a tenth. Times of a busy
machine differ by more. Both keep the memory that they free, else faults of pages decide, which
depend on what a process did before.

Without PyTorch, which weighs much, nothing can be replayed: one line says so.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _report import SHARED, Checks

import nadi

PROGRAMS = ("perceptron", "convolutions", "attention", "autocast", "bags", "ddp2", "ddp4")
RECORDED = ("cpu_mlp", "cpu_transformer4", "cpu_ddp4")
WITHIN = 0.10
# of glibc, read when a process starts, in bytes: larger than any tensor here
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
TRIES = 3  # pairs of measurements, of which the best counts: others run on the machine too


def compare(checks: Checks, name: str, source: Path, folder: Path) -> nadi.pytorch.ReplayedJob:
    """Replay a recording, and check what is recorded again."""
    num_ranks = len(list(source.glob("host*")))
    comm = "gloo" if num_ranks > 1 else "none"
    done = nadi.pytorch.replay(source, comm=comm, output=folder, repeats=6)
    calls = sum(len(rank.calls) for rank in done.ranks)
    left_out = sum(done.skipped.values())
    detail = "; ".join(f"{one.name}: {one.reason}" for one in done.skipped)
    checks.add_many(f"{name}: calls replayed", calls, calls + left_out, detail)
    different = sum(one.num_different for one in done.comparisons)
    checks.add_many(f"{name}: calls recorded again", calls - different, calls)
    return done


def compare_program(checks: Checks, name: str, folder: Path) -> None:
    """Record a program and replay it, until both take as long."""
    ratios = []
    for attempt in range(TRIES):
        source, again = folder / f"{name}{attempt}", folder / f"{name}{attempt}_again"
        program = Path(__file__).with_name("_replay_programs.py")
        ran = subprocess.run(
            [sys.executable, program, name, source], stdout=subprocess.PIPE, check=True, text=True
        )
        original = int(ran.stdout.split()[-1])
        quiet = Checks() if attempt else checks
        ratios.append(compare(quiet, name, source, again).step_ns / original)
        if abs(ratios[-1] - 1) <= WITHIN:
            break
    best = min(ratios, key=lambda ratio: abs(ratio - 1))
    checks.add(f"{name}: time of a step {best - 1:+.1%}", abs(best - 1) <= WITHIN)
    print(f"{name}: replay against program {best - 1:+.1%}")


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS REPLAYED (pip install torch)")
        print("0 of 0 exact")
        return
    if not KEPT_MEMORY.items() <= os.environ.items():
        command = [sys.executable, *sys.argv]
        os.execve(command[0], command, os.environ | KEPT_MEMORY)
    checks = Checks()
    sources = [Path(one) for one in sys.argv[1:]] or [SHARED / "traces" / n for n in RECORDED]
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            compare(checks, source.name, source, Path(folder) / source.name)
        if len(sys.argv) == 1:
            for name in PROGRAMS:
                compare_program(checks, name, Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
