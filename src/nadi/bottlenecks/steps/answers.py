"""The results of ``nadi what-if``: a row per change, all changes together, a sweep, limits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from nadi.bottlenecks.steps.path_changes import path_by_kind
from nadi.bottlenecks.steps.run import Answers
from nadi.graph.contention import PUBLISHED
from nadi.graph.windows import step_times
from nadi.results.declared import (
    ALL,
    COUNT,
    NAME,
    NS,
    PAGE,
    TEXT,
    WORDS,
    Column,
    Lines,
    Result,
    Rows,
    range_of,
    share_of,
    stacked,
    text_of,
)
from nadi.results.text import issue_lines, of_steps
from nadi.trace.issues import summed_issues
from nadi.units import format_ns, format_percent
from nadi.whatif.prediction_intervals import LEVEL, Interval
from nadi.whatif.what_if_results import WhatIf

_Data = dict[str, Any]
_LEVEL = f"{LEVEL:.0%} ".replace("%", " %")
# issues that bear on all predictions
_OF_PREDICTIONS = (
    "job.recording-cost", "job.unlike-steps", "job.busy-processors", "job.both-recorders",
    "link.nested-steps",
)  # fmt: skip
_BETWEEN = "between operations"
_BESIDE = "beside_communication"
_PUBLISHED = (
    "kernels run {0} beside communication, and how much that slows them is unknown: steps are "
    "predicted without it, intervals include the published {1:.2f} to {3:.2f} "
    "(nadi analyze contention)"
)


def _described(answers: Answers) -> _Data:
    """Compute the JSON output; times are int ns."""
    together, job = answers.together, answers.graph.job
    issues = summed_issues([*(trace.issues for trace in job.traces), job.issues])
    return {
        "window": answers.window.name,
        "num_steps": answers.window.num_steps,
        "measured_ns": answers.measured_ns,
        "changes": [_describe(answer) for answer in answers.alone],
        "together": _describe(together) if together else None,
        "sweep": [{"value": value, **_describe(answer)} for value, answer in answers.sweep],
        "ideals": [
            {"name": limit.name, "window_ns": limit.window_ns, "step_ns": limit.step_ns,
             "gain_ns": answers.measured_ns - limit.window_ns}
            for limit in answers.limits
        ],
        "asked": list(answers.asked),
        "issues": issues.filter(pl.col("code").is_in(_OF_PREDICTIONS)).to_dicts(),
    }  # fmt: skip


def _describe(answer: WhatIf) -> dict[str, Any]:
    kind, name = answer.bound_by
    return {
        "change": "; ".join(map(str, answer.changes)),
        "window_ns": answer.window_ns,
        "step_ns": answer.step_ns,
        "gain_ns": answer.gain_ns,
        "interval": describe_interval(answer.interval),
        "bound_by_kind": kind.replace(" ", "_"),
        "bound_by_operation": name,
        "included": list(answer.included),
        "critical_path_by_kind": path_by_kind(answer.path),
        **({"by_kind_of_step": kinds} if (kinds := _by_kind(answer)) else {}),
    } | _beside(answer)


def _beside(answer: WhatIf) -> dict[str, Any]:
    """Compute what publications say of kernels whose slowdown the recording does not tell."""
    if answer.published_ns is None:
        return {}
    least, mean, most = PUBLISHED
    return {
        _BESIDE: {
            "unknown_ns": answer.unknown_ns, "published_ratios": [least, mean, most],
            "window_ns": answer.published_ns,
        }
    }  # fmt: skip


def _by_kind(answer: WhatIf) -> list[dict[str, Any]]:
    """Compare the steps of each kind of a serving engine; none if all are of one kind.

    A step lasts from its mark to the next one.
    """
    steps = answer.window.steps
    kinds = np.array([step.serving.kind if step.serving else "" for step in steps])
    if len(there := dict.fromkeys(kinds.tolist())) < 2:
        return []
    before = step_times(answer.graph, steps, answer.graph.time)
    after = step_times(answer.graph, steps, answer.replay.time)
    return [
        {"kind": kind, "steps": int(of_kind.sum()), "step_ns": int(after[of_kind].mean()),
         "measured_ns": int(before[of_kind].mean())}
        for kind in there
        if (of_kind := kinds == kind).any()
    ]  # fmt: skip


def describe_interval(interval: Interval) -> dict[str, Any]:
    """Compute the interval of a predicted time."""
    return {
        "low_ns": interval.low_ns,
        "high_ns": interval.high_ns,
        "gain_low_ns": interval.gain_low_ns,
        "gain_high_ns": interval.gain_high_ns,
        "steps": interval.num_steps,
    }


def measured_line(data: _Data) -> str:
    """Say how long the window is; of several steps also their mean."""
    measured, number = data["measured_ns"], data.get("num_steps", 0)
    each = f" ({format_ns(round(measured / number))} a step)" if number > 1 else ""
    return f"{data['window']}: measured {format_ns(measured)}{each}"


def one_step_line(rows: Sequence[_Data]) -> Iterator[str]:
    """Say what the intervals of rows were made without, if the window has no second step."""
    if rows and rows[0]["interval"]["steps"] < 2:
        yield (
            "the window has fewer than two steps: intervals take how much steps vary from other "
            "programs"
        )


def _bottleneck(row: _Data) -> str:
    return f"{row['bound_by_operation'] or _BETWEEN} ({row['bound_by_kind'].replace('_', ' ')})"


_AFTER = (
    Column("interval", f"{_LEVEL}interval", range_of("low_ns", "high_ns"), "of the time"),
    Column("gain_ns", "gain", NS, "how much shorter that is than measured"),
    Column("interval", f"{_LEVEL}interval ", range_of("gain_low_ns", "gain_high_ns"), "of it"),
    Column("gain_ns", "share", share_of("measured_ns"), "of the measured time"),
    Column("bound_by_operation", "new bottleneck", NAME, "with most of the new critical path",
           shown=_bottleneck),
    Column("window_ns", "of measured", share_of("measured_ns"), on=PAGE),
    stacked("critical path", lambda row: row["critical_path_by_kind"]),
)  # fmt: skip


def time_title(data: _Data) -> str:
    """Name the time of the window: of one step, of how many, or of no whole steps."""
    number = data.get("num_steps", 0)  # files of former versions do not state it
    return "step time" if number == 1 else f"time of {of_steps(number, 'the window')}"


def after_change(data: _Data) -> tuple[Column, ...]:
    """Return the columns of a window after a change, but for its gain."""
    time = Column("window_ns", time_title(data), NS, "after the change")
    return (time, _AFTER[0], *_AFTER[-2:])


def _columns(name: Column) -> Callable[[_Data], tuple[Column, ...]]:
    return lambda data: (name, after_change(data)[0], *_AFTER)


_Placed = tuple[tuple[str | int, ...], _Data]


def _with_together(data: _Data) -> Iterator[_Placed]:
    for i, row in enumerate(data["changes"]):
        yield ("changes", i), row
    if data["together"]:
        yield ("together",), {**data["together"], "change": "all together"}


def _by_kinds(rows: Iterable[_Placed], label: str) -> Iterator[_Placed]:
    for place, row in rows:
        for i, one in enumerate(row.get("by_kind_of_step", ())):
            gain = one["measured_ns"] - one["step_ns"]
            yield (*place, "by_kind_of_step", i), {**one, "label": row[label], "gain_ns": gain}


def _kinds(label: str, rows: Callable[[_Data], Iterable[_Placed]]) -> Rows:
    """Declare the mean step of each kind of a serving engine, if there are several."""
    return Rows("changes", "mean step of each kind", None, (
        Column("label", label), Column("kind", "kind", WORDS), Column("steps", "steps", COUNT),
        Column("measured_ns", "measured", NS), Column("step_ns", "step time", NS),
        Column("gain_ns", "gain", NS, on=TEXT), Column("gain_ns", "share", text_of(str),
            shown=lambda row: format_percent(row["gain_ns"], row["measured_ns"]), on=TEXT),
    ), top=ALL, made=lambda data: _by_kinds(rows(data), label))  # fmt: skip


def _included(data: _Data) -> list[str]:
    asked = [*data["changes"], *data["sweep"]]
    published = [row[_BESIDE] for row in asked if _BESIDE in row][:1]
    return [
        *dict.fromkeys(text for row in asked for text in row["included"]),
        *(_PUBLISHED.format(format_ns(one["unknown_ns"]), *one["published_ratios"])
          for one in published),
    ]  # fmt: skip


ANSWERS = Result(
    kind="what_if", title="What if", order=15, facts=_described,
    headline=measured_line,
    parts=(
        Rows("changes", lambda data: f"{time_title(data)} after each change", None,
             _columns(Column("change", "change")), top=ALL, made=_with_together),
        Lines(lambda data: one_step_line(data["changes"]), on=TEXT),
        _kinds("change", _with_together),
        Rows("sweep", lambda data: "; ".join(data.get("asked", ())), None,
             _columns(Column("value", "value")), top=ALL),
        Lines(lambda data: one_step_line(data["sweep"]), on=TEXT),
        _kinds("value", lambda data: ((("sweep", i), one) for i, one in enumerate(data["sweep"]))),
        Lines(_included),
        Rows("ideals", "upper bounds of the gain: one kind of cost removed", None, lambda data: (
            Column("name", "removed"), Column("window_ns", time_title(data), NS),
            Column("gain_ns", "gain", NS), Column("gain_ns", "share", share_of("measured_ns")),
        ), top=ALL),
        Lines(lambda data: issue_lines(data.get("issues", ()))),
    ),
    at="", needs="ideals",
)  # fmt: skip
"""Declared of ``Answers``."""
