"""Compare the gain that ``nadi waits`` predicts with what a program gains without the cause.

Three programs (_wait_programs.py) are recorded with ``nadi record``: one waits for a lock, one for
a slow rank, one for a slow DataLoader. Each has to name its cause first, and without the cause the
recorded steps have to take what is predicted, within a tenth of the gain.

Without PyTorch, which weighs much, nothing can be recorded: one line says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from _report import Checks

import nadi

CAUSES = {
    "lock": "lock _wait_programs.py",
    "slow_rank": "rank 1 thread",
    "slow_loader": "data loader",
}
SECONDS = "0.06"
WITHIN = 0.10
STEPS = 8
TRIES = 3  # pairs of recordings: others run on the machine too


def recorded(name: str, seconds: str, folder: Path) -> Path:
    """Record a program; gives the folder."""
    program = str(Path(__file__).with_name("_wait_programs.py"))
    launcher = ["torchrun", "--nproc-per-node", "2"] if name == "slow_rank" else [sys.executable]
    subprocess.run(
        [sys.executable, "-m", "nadi", "record", "--steps", str(STEPS), "--locks", "-o", folder,
         "--", *launcher, program, name, seconds],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def compare(checks: Checks, name: str, cause: str, place: Path) -> None:
    """Record a program with and without the cause, until prediction and reality agree."""
    for attempt in range(TRIES):
        found = nadi.bottlenecks.waits(recorded(name, SECONDS, place / f"{name}{attempt}"))
        first = found.bottlenecks[0]
        if not attempt:
            checks.add(f"{name}: the first bottleneck is {first.name}", cause in first.name)
        without = nadi.bottlenecks.waits(recorded(name, "0", place / f"{name}{attempt}_without"))
        real = found.measured_ns - without.measured_ns
        difference = first.gain_ns / real - 1
        print(f"{name}: predicted {first.gain_ns / 1e6:.1f} ms, real {real / 1e6:.1f} ms")
        if abs(difference) <= WITHIN:
            break
    checks.add(f"{name}: gain against reality {difference:+.1%}", abs(difference) <= WITHIN)


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS RECORDED (pip install torch)")
        print("0 of 0 exact")
        return
    checks = Checks()
    with tempfile.TemporaryDirectory() as place:
        for name, cause in CAUSES.items():
            compare(checks, name, cause, Path(place))
    checks.finish()


if __name__ == "__main__":
    main()
