"""What Nadi says of programs whose truth is known: what bounds them, and what true changes gain.

Usage: python verification/programs.py [FOLDER...]

A FOLDER holds a folder per program: its recordings in ``rec/*``, and ``truth.json`` with ``bound``
(what bounds the step, in words) and ``changes`` that were really made to it. Of each change:
``what_if`` (the text, or several, that says the same to Nadi), and ``ratio_cpu`` or ``ratio_wall``
(the step after / before, or several measurements). Recordings may be packed: ``NAME/rec`` in the
FOLDER's ``recordings.tar.xz``. The default is ``../shared/data/programs`` and the project's own
programs beside this file, which ``_measure_programs.py`` measures and records.

The verdict, the first sentence of ``nadi run``, has to name what bounds the step: one of the
expressions in ``names``, if the file has them, else what the words of ``bound`` before its first
comma, colon, semicolon or bracket stand for (``NAMED_AS``). True is the median of the measurements,
of CPU time if there are any, as it depends less on what else ran. A prediction is inside if the
interval of the gain, as a share of the recorded step, contains it, give or take half a per cent:
so far apart are measurements of a program that nothing has changed. Changes that Nadi refuses
are not inside, and count as wrong by the whole step.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from _report import Checks, arguments, unpack

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from nadi.bottlenecks.steps.run import Run
from nadi.units import as_list

OWN = Path(__file__).with_suffix("")
RESOLUTION = 0.005  # of the step
INSIDE, MEDIAN_ERROR, LARGEST_ERROR, MEDIAN_WIDTH = 0.90, 0.04, 0.20, 0.25

# constants of intervals were chosen by these; the others say how good they are
CHOSEN_BY = {
    "adversarial", "checkpoints", "diffusion_unet", "graph_network", "language_model",
    "producer_thread", "sensor_autoencoder", "sharded_optimizer", "small_parameters",
}  # fmt: skip
# what words of a bound stand for in the names of operations and in verdicts
NAMED_AS = {
    r"load(er|ing)": r"data ?load",
    r"wait|sleep|idle|request": r"wait|sleep|idle|request",
    r"communicat|exchange|network": r"communicat|nccl|gloo",
    r"optimi[sz]er": r"optimizer",
    r"convolution": r"conv",
    r"product|matri|linear": r"mm\b|mul\b|linear|gemm",
    r"attention": r"attention|bmm",
}
# words of every verdict, which say nothing of a program
_ALWAYS = {"about", "bound", "critical", "device", "host", "most", "operations", "operators",
           "path", "step", "steps", "that", "time", "times", "which", "with"}  # fmt: skip


class Prediction(NamedTuple):
    """One change of one recording; shares of the step."""

    program: str
    what: str
    true: float
    gain: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far the predicted step is from the true one."""
        return abs((1 - self.gain) - self.true)

    @property
    def is_inside(self) -> bool:
        """Whether the true gain lies in the interval."""
        return self.low - RESOLUTION <= 1 - self.true <= self.high + RESOLUTION


def expressions(truth: dict[str, Any]) -> list[str]:
    """Give expressions of which a verdict that names the bound contains one."""
    if "names" in truth:
        return truth["names"]
    first = re.split(r"[,;:(]", truth["bound"].lower())[0]
    if ranks := re.findall(r"\brank \d+", first):
        return [rf"{rank}\b" for rank in ranks]
    words = set(re.findall(r"[a-z_]{4,}", first)) - _ALWAYS
    stand_for = [name for word, name in NAMED_AS.items() if re.search(word, first)]
    return stand_for or [re.escape(word.removesuffix("s")) for word in words]


def true_ratio(change: dict[str, Any]) -> float:
    """Give the step after the change as a share of that before."""
    measured = change["ratio_cpu" if "ratio_cpu" in change else "ratio_wall"]
    return median(measured if isinstance(measured, list) else [measured])


def predicted(run: Run, texts: list[str]) -> tuple[float, float, float]:
    """Predict changes together; gives the gain and its interval as shares of the step."""
    found = nadi.what_if(run.graph, *texts, window=run.window)
    gains = found.gain_ns, found.interval.gain_low_ns, found.interval.gain_high_ns
    gain, low, high = (one / run.measured_ns for one in gains)
    return gain, low, high


def programs_of(place: Path, unpacked: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Give the truth of each program of a folder, and the folders of its recordings."""
    alone = [place / "truth.json"] if (place / "truth.json").exists() else []
    packed = (place.parent if alone else place) / "recordings.tar.xz"
    if packed.exists():
        unpack(packed, unpacked)
    for truth in alone or sorted(place.glob("*/truth.json")):
        recorded = (unpacked / truth.parent.name if packed.exists() else truth.parent) / "rec"
        yield truth, sorted(recorded.iterdir())


def check_program(file: Path, recordings: list[Path], checks: Checks) -> Iterator[Prediction]:
    """Check the verdict on each recording of a program, and print and give the predictions."""
    truth = json.loads(file.read_text())
    for recording in recordings:
        name = f"{file.parent.name}/{recording.name}"
        run = nadi.run(recording)
        verdict = verdict_in_words(run)[0]
        named = any(re.search(one, verdict, re.IGNORECASE) for one in expressions(truth))
        checks.add(f"{name}: the verdict names its bound, {truth['bound']}", named, verdict)
        for change in truth.get("changes", []):
            if "what_if" not in change:
                continue
            try:
                answer = predicted(run, as_list(change["what_if"]))
            except nadi.NadiError as error:
                print(f"     ? {change['what_if']}: {error}")
                answer = (1.0 + true_ratio(change), 1.0, 0.0)
            what = f"{name} {change['change']}"
            one = Prediction(file.parent.name, what, true_ratio(change), *answer)
            print(
                f"       {change['change']}, {change['what_if']}: predicted {1 - one.gain:.3f}, "
                f"{1 - one.high:.3f} to {1 - one.low:.3f}; true {one.true:.3f}; "
                f"{'inside' if one.is_inside else 'OUTSIDE'}, wrong by {100 * one.error:.1f} %"
            )
            yield one


def summarized(done: list[Prediction]) -> str:
    """Say how good predictions are."""
    inside = sum(one.is_inside for one in done)
    error = median(one.error for one in done)
    width = median(max(one.high - one.low, 0) for one in done)
    return (
        f"{inside} of {len(done)} inside ({inside / len(done):.0%}), median error {error:.1%}, "
        f"median width {width:.1%} of the step"
    )


def check_predictions(done: list[Prediction], checks: Checks) -> None:
    """Check all predictions together."""
    held_back = [one for one in done if one.program not in CHOSEN_BY]
    if held_back:
        print(f"programs by which no constant was chosen: {summarized(held_back)}")
    print(f"all: {summarized(done)}")
    inside = sum(one.is_inside for one in done)
    error, worst = median(one.error for one in done), max(done, key=lambda one: one.error)
    width = median(max(one.high - one.low, 0) for one in done)
    checks.add(f"{INSIDE:.0%} of the gains lie in their intervals", inside >= INSIDE * len(done),
               f"{inside} of {len(done)}, {inside / len(done):.0%}")  # fmt: skip
    checks.add(f"median error at most {MEDIAN_ERROR:.0%} of the step", error <= MEDIAN_ERROR,
               f"{error:.1%}")  # fmt: skip
    wrong = sum(one.error > LARGEST_ERROR for one in done)
    checks.add(f"no error over {LARGEST_ERROR:.0%} of the step", not wrong,
               f"{wrong} are; the largest is {worst.error:.1%}, {worst.what}")  # fmt: skip
    checks.add(f"intervals at most {MEDIAN_WIDTH:.0%} wide in the median", width <= MEDIAN_WIDTH,
               f"{width:.1%}")  # fmt: skip


def main() -> None:
    """Check all programs."""
    checks = Checks()
    done: list[Prediction] = []
    for place in arguments("programs", str(OWN)):
        with tempfile.TemporaryDirectory() as name:
            for truth, recordings in programs_of(place, Path(name)):
                done += check_program(truth, recordings, checks)
    if done:
        check_predictions(done, checks)
    checks.finish()


if __name__ == "__main__":
    main()
