"""Predicted and real: what true changes of a program gained, against what Nadi predicted.

Usage: python verification/predicted_and_real.py [FOLDER OR .tar.xz FILE...]

Each holds ``SETTING/CASE/ROUND/before`` with the pairs of all ranks, and ``.../after`` with device
traces. The default is what ``record_changes.py`` recorded with torch on the CPU: one and two ranks,
idle and with one core kept busy, each change three times. The real step time is computed from
``after`` by Python's json module, without Nadi.

The truth of a case is the ratio of step times after and before, over all its rounds: the speed of
the machine drifts from one recording to the next, and both versions were recorded in turns.

Checked: at least nine of ten intervals contain the real ratio, half of the cases are predicted with
an error of at most 4 % of the step, and half of the intervals are at most 25 % of it wide.
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
    """One prediction: step times in ns, and the interval as parts of ``before``."""

    before: float
    predicted: float
    low: float
    high: float


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
    interval, steps = found.interval, found.interval.num_steps
    ends = (interval.low_ns / found.measured_ns, interval.high_ns / found.measured_ns)
    return Round(found.measured_ns / steps, found.window_ns / steps, *ends)


def check(folder: Path, checks: Checks) -> None:
    """Print a table of all cases, and what holds."""
    print("| ranks, load | change | before | step after / before | 90 % interval | real | error |")
    print("|---|---|---|---|---|---|---|")
    errors, inside, widths = [], [], []
    for case in sorted(path for path in folder.glob("*/*") if path.name in CHANGES):
        places = sorted(case.iterdir())
        rounds = [predict(path, case.name) for path in places]
        # both versions ran in turns: the sums have seen the same machine
        real = sum(real_step_ns(path / "after") for path in places)
        real /= sum(one.before for one in rounds)
        inside += [one.low <= real <= one.high for one in rounds]
        widths += [one.high - one.low for one in rounds]
        before, predicted, low, high = map(mean, zip(*rounds, strict=True))
        errors.append(predicted / before - real)
        print(
            f"| {case.parent.name.replace('-', ', ')} | {case.name.replace('-', ' ')} "
            f"| {before / 1e6:.1f} ms | {predicted / before:.3f} | {low:.3f} to {high:.3f} "
            f"| {real:.3f} | {100 * errors[-1]:+.1f} % |"
        )
    middle = median(map(abs, errors))
    print(f"{sum(inside)} of {len(inside)} intervals contain the real ratio; median width "
          f"{100 * median(widths):.1f} % of the step, median error of {len(errors)} cases "
          f"{100 * middle:.1f} % of the step")  # fmt: skip
    checks.add("nine of ten intervals contain the real ratio", sum(inside) >= 0.9 * len(inside))
    checks.add("median error at most 4 % of the step", middle <= 0.04)
    checks.add("intervals at most 25 % of the step wide in the median", median(widths) <= 0.25)


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
