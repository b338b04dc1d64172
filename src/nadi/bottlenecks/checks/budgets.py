"""Budgets: how much of a recording may grow against a baseline, and whether it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from nadi.analyses.recorded.events import events_of
from nadi.analyses.recorded.memory_timeline import describe_memory
from nadi.bottlenecks.differences.compared_runs import (
    ComparedRuns,
    RunSide,
    compare_runs,
    marked_steps,
    read_side,
)
from nadi.bottlenecks.steps.verdict import device_idle, student_above
from nadi.errors import Parameter, UsageError, checked
from nadi.graph.time_parts import communication_by_rank
from nadi.trace.arrays import Ints
from nadi.units import as_list, parse_bytes, parse_ns
from nadi.whatif.change_syntax import parse_selection
from nadi.whatif.prediction_intervals import FEWEST_STEPS, LEVEL
from nadi.whatif.selection import outermost, select

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading

_STEP, _EXPOSED, _BUSY, _IDLE = "step", "exposed communication", "device busy", "device idle"
_MEMORY = "memory peak"
_WORDS = (_STEP, _EXPOSED, _BUSY, _IDLE, _MEMORY)
_AMOUNT = re.compile(r"([-+]?)((?:\d++(?:\.\d*+)?+|\.\d++)(?:%|[A-Za-z]+))")
_MOST = 1e6  # times a baseline
_REMEDY = (
    f"write what may grow, and by how much: 'step 3 %', 'aten::mm 2ms'; of {', '.join(_WORDS)}, "
    "or operations as nadi what-if selects them"
)


class Budget(NamedTuple):
    """How much something may grow.

    Attributes
    ----------
    what
        One of ``step``, ``exposed communication``, ``device busy``, ``device idle``,
        ``memory peak``, or operations as :func:`nadi.what_if` selects them.
    share
        The part of the baseline by which it may grow; 0 where ``amount`` says it.
    amount
        By how many ns it may grow, of ``memory peak`` bytes; 0 where ``share`` says it.
    """

    what: str
    share: float = 0.0
    amount: int = 0

    @property
    def unit(self) -> str:
        """``bytes`` or ``ns``."""
        return "bytes" if self.what == _MEMORY else "ns"


def parse_budget(text: str) -> Budget:
    """Read a budget such as ``step 3 %``, ``memory peak 200 MiB`` or ``kind=kernel gemm -1ms``.

    - Raises UsageError if the text is none.
    """
    for words in (1, 2):  # an amount is one word, or two: 3% or 3 %
        what, *rest = text.rsplit(maxsplit=words) or [""]
        if len(rest) == words and (found := _AMOUNT.fullmatch("".join(rest))):
            break
    else:
        raise UsageError(Parameter("budget", text), "is not a budget", _REMEDY)
    sign, amount = -1 if found[1] == "-" else 1, found[2]
    try:
        if what not in _WORDS:
            parse_selection(what)
        if amount.endswith("%"):
            if (share := float(amount[:-1]) / 100) > _MOST:
                raise ValueError(f"{amount} bounds nothing")
            return Budget(what, share=sign * share)
        return Budget(what, amount=sign * (parse_bytes if what == _MEMORY else parse_ns)(amount))
    except ValueError as error:
        raise UsageError(Parameter("budget", text), str(error), _REMEDY) from None


@dataclass(frozen=True)
class CheckedBudget:
    """What became of one budget; values are ns per step, summed over ranks if it is of operations.

    Of ``memory peak`` they are bytes of the device that has most.

    Attributes
    ----------
    budget
        What was asked.
    before, after
        The mean step of the baseline (the mean of its runs), and of the new recording.
    repeats
        How many values of each were measured, over all runs of the baseline.
    runs
        The mean step of each run of the baseline.
    noise
        By how much the change may be off by chance: half of a 90 % interval. With several runs of
        the baseline, the larger one of two: how much steps vary (Welch's t), and how much a
        further run varies from the mean of these runs (Student's t). None with one run and fewer
        than three steps in either recording, which do not tell.
    """

    budget: Budget
    before: float
    after: float
    repeats: tuple[int, int]
    runs: tuple[float, ...]
    noise: float | None

    @property
    def change(self) -> float:
        """By how much it grew."""
        return self.after - self.before

    @property
    def allowed(self) -> float:
        """By how much it may grow."""
        return self.budget.share * self.before + self.budget.amount

    @property
    def state(self) -> str:
        """``within``, ``exceeded``, or ``not sure``: exceeded by no more than the noise."""
        if self.change <= self.allowed:
            return "within"
        return "exceeded" if self.change - (self.noise or 0.0) > self.allowed else "not sure"


class CheckedRuns(NamedTuple):
    """What ``nadi diff`` finds of two recordings, and what became of each budget."""

    differences: ComparedRuns
    budgets: tuple[CheckedBudget, ...]

    @property
    def is_exceeded(self) -> bool:
        """Whether a budget is exceeded by more than the noise."""
        return any(one.state == "exceeded" for one in self.budgets)


_Places = Path | str | Sequence[Path | str]


@checked
def check(
    before: _Places,
    after: _Places,
    budget: str | Sequence[str],
    *,
    step: str | int = "all",
    baselines: Sequence[_Places] = (),
    progress: Callable[[str], None] = lambda _: None,
    **reading: Unpack[Reading],
) -> CheckedRuns:
    """Check whether a recording keeps its budgets against a baseline.

    Parameters
    ----------
    before, after
        The baseline and the new recording, as for :func:`nadi.bottlenecks.diff`.
    budget
        One or several, such as ``step 3 %``.
    baselines
        Further runs of the baseline, whose differences are noise, too.
    step, progress, reading
        As for :func:`nadi.bottlenecks.diff`.

    Raises
    ------
    InputError
        If files cannot be read.
    UsageError
        If a budget is none, neither recording has what it bounds, or one has no such step.
    """
    asked = [parse_budget(text) for text in as_list(budget)]
    if not asked:
        raise UsageError(Parameter("budget"), "no budget is given", _REMEDY)
    sides = [read_side(places, str(step), reading, progress) for places in (before, after)]
    values = [[_measured(one, side) for side in sides] for one in asked]
    for places in baselines:  # one at a time, as a recording can be large
        side = read_side(places, str(step), reading, progress)
        for one, measured in zip(asked, values, strict=True):
            measured.append(_measured(one, side))
    progress("comparing")
    return CheckedRuns(compare_runs(*sides), tuple(map(_checked, asked, values)))


class _Measured(NamedTuple):
    """What a budget bounds in one recording: its mean and its values by step; or why it is not."""

    mean: float = 0.0
    values: np.ndarray = np.empty(0)
    missing: UsageError | None = None


def _measured(budget: Budget, side: RunSide) -> _Measured:
    if budget.what == _MEMORY:
        return _Measured(_memory_peak(side))
    if budget.what == _STEP:
        values = np.diff(_borders(side))
    elif budget.what in _WORDS:
        values = _of_steps(budget.what, side)
    else:
        try:
            values = _selected(budget.what, side)
        except UsageError as error:  # operations that another recording may have
            return _Measured(0.0, np.zeros(side.num_steps), error)
    return _Measured(float(values.sum()) / side.num_steps, values)


def _checked(budget: Budget, measured: list[_Measured]) -> CheckedBudget:
    """Compare the new recording, which is the second, with the runs of the baseline."""
    error = measured[0].missing
    if error and all(one.missing for one in measured):
        raise error
    first, new, *further = measured
    baseline = [first, *further]
    steps = [np.concatenate([one.values for one in baseline]), new.values]
    means = np.array([one.mean for one in baseline])
    repeats = max(steps[0].size, means.size), max(steps[1].size, 1)
    known = [_steps_noise(*steps)] if min(repeats) >= FEWEST_STEPS else []
    if means.size > 1:
        spread = float(np.std(means, ddof=1)) * sqrt(1 + 1 / means.size)
        known.append(_student(means.size - 1) * spread)
    runs = tuple(means.tolist())
    return CheckedBudget(
        budget, float(means.mean()), new.mean, repeats, runs, max(known, default=None)
    )


def _steps_noise(before: np.ndarray, after: np.ndarray) -> float:
    """Return half of the interval of the difference of two means, by Welch's t."""
    parts = [float(np.var(one, ddof=1)) / one.size for one in (before, after)]
    if not (variance := sum(parts)):
        return 0.0
    squares = sum(
        part**2 / (one.size - 1) for part, one in zip(parts, (before, after), strict=True)
    )
    freedom = max(int(variance**2 / squares), 1)  # a whole number, rounded to the wider interval
    return _student(freedom) * sqrt(variance)


def _student(freedom: int) -> float:
    """Return the half-width of the interval of Student's t."""
    low, high = 0.0, 1000.0  # that of one degree of freedom is 6.3
    while high - low > 1e-6:
        middle = (low + high) / 2
        if student_above(middle, freedom) > (1 - LEVEL) / 2:
            low = middle
        else:
            high = middle
    return high


def _borders(side: RunSide) -> Ints:
    """Return the moments that divide the window into its marked steps; ns, shape (steps + 1,)."""
    time, window = side.graph.time, side.window
    begins = [step.start(time) for step in marked_steps(side)][1:]
    return np.array([window.start(time), *begins, window.end(time)], dtype=np.int64)


def _of_steps(what: str, side: RunSide) -> np.ndarray:
    """Return the time of each step that communicates exposed, or keeps devices busy or idle."""
    borders = _borders(side).tolist()
    found = []
    for begin, end in pairwise(borders):
        if what == _EXPOSED:
            ranks = communication_by_rank(side.graph, begin, end)
            found.append(sum(one.exposed for one in ranks) / len(ranks))
        else:
            idle = device_idle(side.graph, begin, end)
            if idle < 0:
                remedy = "bound the step, or operations as nadi what-if selects them"
                raise UsageError(Parameter("budget", what), "no rank has a device", remedy)
            found.append(idle if what == _IDLE else end - begin - idle)
    return np.array(found, dtype=np.float64)


def _selected(what: str, side: RunSide) -> Ints:
    """Return the time of the selected operations by step."""
    borders = _borders(side)
    graph, sums = side.graph, np.zeros(borders.size - 1, dtype=np.int64)
    chosen = select(graph, parse_selection(what))
    ops = np.flatnonzero(outermost(graph, chosen) == np.arange(graph.num_ops))
    start, end = graph.time[2 * ops], graph.time[2 * ops + 1]
    step = np.searchsorted(borders[1:-1], start, side="right")
    inside = (start >= borders[0]) & (start <= borders[-1])
    np.add.at(sums, step[inside], (end - start)[inside])
    return sums


def _memory_peak(side: RunSide) -> float:
    """Return the most bytes that a device of a rank holds in the recording."""
    memory = describe_memory(events_of(trace) for trace in side.graph.job.traces)
    if memory is None:
        raise UsageError(
            Parameter("budget", _MEMORY), "a recording has no allocations",
            "record with memory=True, or a profiler with profile_memory=True",
        )  # fmt: skip
    return float(max(row["peak_bytes"] for row in memory["peaks"]))
