"""Pages of the results of commands: a run, answers to what-if questions, a simulation.

What a page shows beside the content of ``summary.json``: other analyses of the recording.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from nadi.analyses.recorded.call_stacks import describe_flame, module_frames
from nadi.analyses.recorded.events import RankEvents, events_of, kernel_type_codes
from nadi.analyses.recorded.memory_timeline import describe_memory
from nadi.analyses.recorded.operators import describe_operators
from nadi.analyses.recorded.over_time import recorded_counters
from nadi.analyses.recorded.rates import operator_rates
from nadi.bottlenecks.differences.compared_runs import diff_runs
from nadi.bottlenecks.differences.predictions import (
    OWN_PAGE,
    ReportInputs,
    SavedPrediction,
    compare_prediction,
)
from nadi.bottlenecks.differences.result import COMPARED_PREDICTION, DIFF
from nadi.bottlenecks.steps.answers import ANSWERS
from nadi.bottlenecks.steps.run import Answers, Run
from nadi.bottlenecks.steps.run_report import summarize
from nadi.bottlenecks.waiting.bottlenecks import find_waits
from nadi.bottlenecks.waiting.result import WAITS
from nadi.errors import FormatError, InputError, checked
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.replay import replay_graph
from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.graph.timeline.timeline_section import (
    PageStep,
    TimelineExtras,
    page_timeline,
)
from nadi.graph.windows import step_times
from nadi.results.page.html_page import write_page
from nadi.results.text import to_json
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.runs.timeline import saved_part
from nadi.systems.library import describe_roofs, recorded_roofs
from nadi.whatif.what_if_results import WhatIf


def more_results(run: Run) -> dict[str, Any]:
    """Compute what other commands would find in the same recording.

    - Returns: ``waits`` as ``nadi waits --json`` prints it, ``rates`` as ``nadi analyze rates``,
      ``memory`` with ``peaks`` as ``nadi analyze memory``, ``operators`` as ``nadi analyze
      operators``; ``roofs`` of the device that the recording names; ``flame`` with ``calls`` and
      ``modules`` (:mod:`nadi.analyses.recorded.call_stacks`). What was not recorded is left out, or
      is empty.
    """
    ranks = [events_of(trace) for trace in run.job.traces]
    time, origin = run.graph.time, run.job.origin
    between = run.window.start(time) + origin, run.window.end(time) + origin
    flame = {"calls": describe_flame(ranks, between)}
    if run.modules is not None:
        flame["modules"] = module_frames(run.modules)
    found: dict[str, Any] = {
        "waits": WAITS.data(find_waits(run.graph, run.window)),
        "rates": _rates(ranks),
        "memory": describe_memory(ranks),
        "operators": describe_operators(ranks),
        "flame": flame,
    }
    if found["rates"] and (roofs := recorded_roofs(run.job)) is not None:
        found["roofs"] = describe_roofs(roofs, [row["type"] for row in found["rates"]])
    return found


def _rates(ranks: Sequence[RankEvents]) -> list[dict[str, Any]]:
    """Measure FLOP/s of all ranks; nothing if one has no shapes, or no device work with one."""
    try:
        return pl.concat([operator_rates(events) for events in ranks]).to_dicts()
    except InputError:
        return []


_MEASURED = "measured"
_MOST_RANKS = 64  # of a saved simulation in a timeline


class Beside(NamedTuple):
    """What a page shows beside a recording."""

    # results of other commands by their kind, as these write them with ``--json``
    results: Mapping[str, Any] = MappingProxyType({})
    prediction: SavedPrediction | None = None  # a prediction to compare the recording with
    whole: bool = True  # whether a simulation is of the whole recording
    files: tuple[str, ...] = ()  # where the results come from


@checked
def write_run_page(
    run: Run, path: Path, title: str = "", *, more: bool = False, beside: Beside | None = None
) -> None:  # fmt: skip
    """Write the page of the main analysis.

    The timeline shows the measured job, and below each rank the same as predicted: as it was
    simulated, on the other system if one was given, else after the first what-if change.

    Parameters
    ----------
    more
        Whether to add what ``summary.json`` does not have, as
        :func:`nadi.bottlenecks.pages.result_pages.more_results` computes it.
    beside
        Results of other commands, and a prediction to compare with.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    beside = beside or Beside()
    changed = _predicted_parts(run, beside)
    parts = [TimelinePart.of_replay(run.replay, run.path, _MEASURED if changed else ""), *changed]
    time = run.graph.time
    window: tuple[int, int] | None = run.window.start(time), run.window.end(time)
    if beside.prediction is not None and beside.prediction.simulation is not None:
        window = None
    results = summarize(run)
    if more:
        results |= more_results(run)
    results.update(beside.results)
    if beside.prediction is not None:
        found = compare_prediction(run, beside.prediction, whole=beside.whole)
        results["prediction"] = COMPARED_PREDICTION.data(found)
    with _as_written(beside.files):
        timeline = page_timeline(parts, window, _extras(run))
        write_page(path, results, timeline, title=title or _title(run))


def _extras(run: Run) -> TimelineExtras:
    """Return what the timeline shows beside a run's schedule: memory, copies, who is blamed."""
    counters = list(recorded_counters(run.job, of_work=False))  # the page finds it in its events
    return TimelineExtras(_blamed(run), counters, kernel_type_codes, [_steps_of(run)])


def _steps_of(run: Run) -> list[PageStep]:
    """Return the steps that are compared: all, or the only one that is analysed."""
    steps = [run.window] if run.window.number >= 0 else run.steps
    if not steps:
        return []
    times = step_times(run.graph, steps, run.graph.time)
    begins = np.append(0, np.cumsum(times)) + steps[0].start(run.graph.time)
    return [PageStep(step.number, begin, end) for step, (begin, end) in
            zip(steps, pairwise(begins.tolist()), strict=True)]  # fmt: skip


def _blamed(run: Run) -> int:
    """Return the rank that the verdict blames, else the one with most of the critical path."""
    late = run.verdict.late
    if late is not None and run.verdict.bound_by == "straggler":
        return late.rank
    parts = run.path.segments.group_by("rank").agg(
        time=(pl.col("end") - pl.col("start")).sum()
    ).sort("time", "rank", descending=[True, False])  # fmt: skip
    return int(parts["rank"][0]) if parts.height else -1


def _predicted_parts(run: Run, beside: Beside) -> list[TimelinePart]:
    """Return what is drawn below the measured schedule."""
    if beside.prediction is not None and beside.prediction.simulation is not None:
        saved = beside.prediction.simulation
        return [saved_part(saved, f"simulated on {saved.system.name}", run.job.ranks)]
    if run.prediction is not None:
        return [_changed(run.prediction.what_if, f"on {run.prediction.change.system.name}")]
    if run.what_ifs:
        return [_changed(run.what_ifs[0], "; ".join(map(str, run.what_ifs[0].changes)))]
    return []


def write_diff_page(
    before: Run, after: Run, path: Path, names: tuple[str, str], beside: Beside | None = None
) -> None:  # fmt: skip
    """Write the page of two recordings: their differences, then what is found in the second.

    The timeline shows each rank of both, one below the other; steps begin at the same places.

    - ``names``: What the recordings are called.
    - ``beside``: Results of other commands.
    - Raises InputError if the file cannot be written.
    """
    found = DIFF.data(diff_runs(before, after))
    found |= {"before": names[0], "after": names[1]}
    results = {
        **summarize(after),
        **more_results(after),
        "diff": found,
        "before": summarize(before),
        **(beside or Beside()).results,
    }
    windows = [(run.window.start(run.graph.time), run.window.end(run.graph.time))
               for run in (before, after)]  # fmt: skip
    parts = [TimelinePart.of_replay(before.replay, before.path, "before"),
             TimelinePart.of_replay(after.replay, after.path, "after")]  # fmt: skip
    aligned = windows[0][0] - windows[1][0]
    parts[1] = parts[1].later(aligned)
    window = windows[0][0], max(windows[0][1], windows[1][1] + aligned)
    later = [PageStep(number, begin + aligned, end + aligned)
             for number, begin, end in _steps_of(after)]  # fmt: skip
    extras = _extras(before)._replace(steps=[_steps_of(before), later])
    with _as_written(beside.files if beside else ()):
        timeline = page_timeline(parts, window, extras)
        write_page(path, results, timeline, title=f"{names[0]} and {names[1]}")


def write_answers_page(answers: Answers, path: Path, title: str) -> None:
    """Write the page of answers to what-if questions, with the timeline before and after.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    replay = replay_graph(answers.graph)
    path_before = walk_critical_path(replay, answers.window)
    parts = [TimelinePart.of_replay(replay, path_before, _MEASURED)]
    whole = answers.whole
    if whole.changes:
        parts.append(_changed(whole, "; ".join(map(str, whole.changes))))
    time = answers.graph.time
    window = answers.window.start(time), answers.window.end(time)
    write_page(path, ANSWERS.data(answers), page_timeline(parts, window), title=title)


def write_saved_page(inputs: ReportInputs, path: Path, title: str) -> None:
    """Write the page of results that were saved; only a schedule in them has a timeline.

    - Raises FormatError if results lack values.
    - Raises InputError if the file cannot be written.
    """
    results = saved_results(inputs)
    timeline = None
    if inputs.prediction is not None and inputs.prediction.simulation is not None:
        drawn = saved_part(inputs.prediction.simulation, ranks=range(_MOST_RANKS))
        timeline = page_timeline([drawn])
    with _as_written(inputs.results):
        write_page(path, results, timeline, title=title)


@contextmanager
def _as_written(results: Sequence[str]) -> Iterator[None]:
    """Say which results have other values than the commands that write them."""
    try:
        yield
    except (
        ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError,
        PolarsError,
    ) as error:  # fmt: skip
        if not results:
            raise
        raise FormatError(
            ", ".join(results), "lacks values that its command writes", "write it again"
        ) from error


def saved_results(inputs: ReportInputs) -> dict[str, Any]:
    """Return saved results as a page takes them: by kind; those of a run as they are."""
    results: dict[str, Any] = {}
    for one in inputs.summaries:
        results |= one.data if one.kind in OWN_PAGE else {one.kind: one.data}
    if inputs.prediction is not None and inputs.prediction.simulation is not None:
        data = SIMULATION.data(inputs.prediction.simulation)
        results["simulation"] = msgspec.json.decode(to_json(data))
    return results


def _changed(answer: WhatIf, title: str) -> TimelinePart:
    return TimelinePart.of_replay(answer.replay, answer.path, title)


def _title(run: Run) -> str:
    """Name a job by its first file."""
    sources = [source for trace in run.job.traces for source in trace.provenance.sources]
    folder = Path(sources[0].path).parent.name if len(sources) > 1 else ""
    return folder or (Path(sources[0].path).name if sources else repr(run.job))
