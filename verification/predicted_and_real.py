"""Predicted and real: what true changes of a program gained, against what Nadi predicted.

Usage: python verification/predicted_and_real.py [FOLDER OR .tar.xz FILE...]

Each holds ``SETTING/CASE/ROUND/before`` with the pairs of all ranks, and ``.../after`` with device
traces. The default is what ``record_changes.py`` recorded with torch on the CPU: one and two ranks,
idle and with one core kept busy, each change three times. The real step time is computed from
``after`` by Python's json module, without Nadi.

Checked: at least nine of ten real step times lie in the 90 % interval of their prediction, and half
of the cases are predicted with an error below 5 %, as means over their rounds.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from _report import Checks, arguments, unpack

import nadi

RECORDINGS = Path(__file__).with_suffix("") / "recordings.tar.xz"
_ACTIVATIONS = "gelu|gelu_backward|sum|add|pow|mul|mean"
_GROWS_WITH_BATCH = f"'^aten::(addmm|mm|{_ACTIVATIONS})$'"
_WEIGHTS = "'^aten::(addmm|mm)$'"

# what a user would ask for before making the change
CHANGES = {
    "remove-sleep": ["remove write_checkpoint"],
    "remove-svds": ["remove linalg_svd"],
    "half-layers": ["remove in=layers.2", "remove in=layers.3"],
    "half-batch": [f"scale {_GROWS_WITH_BATCH} 0.5"],
    "double-hidden": [
        f"scale {_WEIGHTS} 4",
        "scale Optimizer.step 4",
        f"scale in=layers '^aten::({_ACTIVATIONS})$' 2",
    ],
    "faster-loader": ["scale DataLoader 0.5"],
}
# of several ranks also
COMMUNICATION = {"double-hidden": ["scale gloo:all_reduce 4", "scale ^aten::copy_$ 4"]}


class Round(NamedTuple):
    """One prediction and what was real; mean step times in ns."""

    before: float
    predicted: float
    low: float
    high: float
    real: float

    @property
    def is_inside(self) -> bool:
        """Whether the real time lies in the interval."""
        return self.low <= self.real <= self.high


def real_step_ns(folder: Path) -> float:
    """Return the mean step time of a recording, over all ranks."""
    starts, ends, numbers = [], [], set()
    for path in folder.glob("device_*.json"):
        file = json.loads(path.read_bytes())
        base = file.get("baseTimeNanoseconds", 0)
        for event in file["traceEvents"]:
            if event.get("ph") == "X" and event["name"].startswith("ProfilerStep#"):
                starts.append(base + event["ts"] * 1e3)
                ends.append(base + (event["ts"] + event["dur"]) * 1e3)
                numbers.add(event["name"])
    return (max(ends) - min(starts)) / len(numbers)


def predict(folder: Path, case: str) -> Round:
    """Predict the change of one recording, as a user would."""
    job = nadi.load_job(folder / "before")
    more = COMMUNICATION.get(case, []) if len(job.traces) > 1 else []
    found = nadi.what_if(nadi.build_graph(job), *CHANGES[case], *more)
    interval = found.interval
    times = (found.measured_ns, found.step_ns, interval.low_ns, interval.high_ns)
    return Round(*(time / interval.num_steps for time in times), real_step_ns(folder / "after"))


def check(folder: Path, checks: Checks) -> None:
    """Print a table of all cases, and what holds."""
    print("| ranks, load | change | before | predicted | 90 % interval | real | error |")
    print("|---|---|---|---|---|---|---|")
    errors, inside = [], []
    for case in sorted(path for path in folder.glob("*/*") if path.name in CHANGES):
        rounds = [predict(path, case.name) for path in sorted(case.iterdir())]
        inside += [one.is_inside for one in rounds]
        means = Round(*map(mean, zip(*rounds, strict=True)))
        errors.append(means.predicted / means.real - 1)
        before, predicted, low, high, real = (f"{time / 1e6:.1f}" for time in means)
        print(
            f"| {case.parent.name.replace('-', ', ')} | {case.name.replace('-', ' ')} "
            f"| {before} ms | {predicted} ms | {low} to {high} ms | {real} ms "
            f"| {100 * errors[-1]:+.1f} % |"
        )
    middle = median(map(abs, errors))
    print(f"{sum(inside)} of {len(inside)} real step times in their intervals; median error of "
          f"{len(errors)} cases: {100 * middle:.1f} %")  # fmt: skip
    checks.add("nine of ten real step times in the interval", sum(inside) >= 0.9 * len(inside))
    checks.add("median error below 5 %", middle < 0.05)


def main() -> None:
    """Check what each argument holds."""
    checks = Checks()
    for path in arguments(str(RECORDINGS)):
        with tempfile.TemporaryDirectory() as name:
            folder = path
            if path.is_file():
                unpack(path, name)
                folder = Path(name)
            check(folder, checks)
    checks.finish()


if __name__ == "__main__":
    main()
