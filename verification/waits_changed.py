"""Compare what ``scale wait`` and ``remove wait`` predict with programs that wait less.

Three programs (_awaited_programs.py) are recorded with ``nadi record``: one sleeps, one gets its
batches of a queue, one awaits an event loop twice in each step. Each is recorded again with a
shorter wait. The gain that was predicted from the first recording has to be real within a tenth,
and the suggestions of ``nadi run`` have to name the wait first.

Without PyTorch, which weighs much, nothing can be recorded: one line says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _report import Checks

import nadi

WITHIN = 0.10
STEPS = 8
TRIES = 3  # pairs of recordings: others run on the machine too


class Case(NamedTuple):
    """A program, its seconds before and after, what a user would ask, and what is suggested."""

    name: str
    before: str
    after: str
    change: str
    suggested: str


CASES = (
    Case("timer", "0.04", "0.02", "scale wait in=limit 0.5", "remove wait in=^limit$"),
    # the queue is waited for as long as its producer takes longer than a step
    Case("queue", "0.04", "0", "remove wait in=next_batch", "remove wait in=^next_batch$"),
    Case("event_loop", "0.04", "0.008", "scale wait in=request 0.2", "remove wait in=^request$"),
)


def recorded(name: str, seconds: str, folder: Path) -> Path:
    """Record a program; gives the folder."""
    program = str(Path(__file__).with_name("_awaited_programs.py"))
    subprocess.run(
        [sys.executable, "-m", "nadi", "record", "--steps", str(STEPS), "-o", folder, "--",
         sys.executable, program, name, seconds],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def compare(checks: Checks, case: Case, place: Path) -> None:
    """Record a program with both waits, until prediction and reality agree."""
    for attempt in range(TRIES):
        run = nadi.run(recorded(case.name, case.before, place / f"{case.name}{attempt}"))
        if not attempt:
            first = str(run.best_changes[0].change)
            checks.add(f"{case.name}: the first suggestion is {first}", first == case.suggested)
        gain = nadi.what_if(run.graph, case.change, window=run.window).gain_ns
        other = nadi.run(recorded(case.name, case.after, place / f"{case.name}{attempt}_after"))
        real = run.measured_ns - other.measured_ns
        difference = gain / real - 1
        print(
            f"{case.name}: {case.change}: predicted {gain / 1e6:.1f} ms, real {real / 1e6:.1f} ms"
        )
        if abs(difference) <= WITHIN:
            break
    checks.add(f"{case.name}: gain against reality {difference:+.1%}", abs(difference) <= WITHIN)


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS RECORDED (pip install torch)")
        print("0 of 0 exact")
        return
    checks = Checks()
    with tempfile.TemporaryDirectory() as place:
        for case in CASES:
            compare(checks, case, Path(place))
    checks.finish()


if __name__ == "__main__":
    main()
