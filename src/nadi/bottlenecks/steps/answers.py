"""The results of ``nadi what-if``: a row per change, all changes together, a sweep, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.bottlenecks.steps.path_changes import path_by_kind
from nadi.bottlenecks.steps.run import Answers
from nadi.graph.contention import PUBLISHED
from nadi.graph.windows import step_times
from nadi.results.text import make_table, name_cell, print_issues, print_table
from nadi.trace.issues import summed_issues
from nadi.units import format_count, format_ns, format_percent, format_range, printable
from nadi.whatif.prediction_intervals import LEVEL, Interval
from nadi.whatif.what_if_results import WhatIf

__all__ = ["describe_answers", "describe_interval", "print_answers", "print_if_one_step"]

_LEVEL = f"{LEVEL:.0%} ".replace("%", " %")
# issues that bear on all predictions
_OF_PREDICTIONS = ("job.recording-cost", "job.both-recorders", "link.nested-steps")
_BETWEEN = "between operations"
_BESIDE = "beside_communication"


def describe_answers(answers: Answers) -> dict[str, Any]:
    """Compute the JSON output; times are int ns."""
    together = answers.together
    return {
        "window": answers.window.name,
        "measured_ns": answers.measured_ns,
        "changes": [_describe(answer) for answer in answers.alone],
        "together": _describe(together) if together else None,
        "sweep": [{"value": value, **_describe(answer)} for value, answer in answers.sweep],
        "ideals": [
            {"name": limit.name, "step_ns": limit.step_ns,
             "gain_ns": answers.measured_ns - limit.step_ns}
            for limit in answers.limits
        ],
    }  # fmt: skip


def _describe(answer: WhatIf) -> dict[str, Any]:
    kind, name = answer.bound_by
    return {
        "change": "; ".join(map(str, answer.changes)),
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
            "step_ns": answer.published_ns,
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


def print_answers(answers: Answers, console: Console) -> None:
    """Print the page of text."""
    data = describe_answers(answers)
    measured = data["measured_ns"]
    console.print(Text(f"{data['window']}: measured {format_ns(measured)}"))
    if data["changes"]:
        rows = [(row["change"], row) for row in data["changes"]]
        if data["together"]:
            rows.append(("all together", data["together"]))
        _print_table("step time after each change", "change", rows, measured, console)
        _print_kinds("change", rows, console)
    if data["sweep"]:
        rows = [(row["value"], row) for row in data["sweep"]]
        _print_table("; ".join(answers.asked), "value", rows, measured, console)
        _print_kinds("value", rows, console)
    asked = [*data["changes"], *data["sweep"]]
    for text in dict.fromkeys(text for row in asked for text in row["included"]):
        console.print(Text(printable(text)))
    if published := next((row[_BESIDE] for row in asked if _BESIDE in row), None):
        least, _, most = published["published_ratios"]
        console.print(
            f"kernels run {format_ns(published['unknown_ns'])} beside communication, and how much "
            f"that slows them is unknown: steps are predicted without it, intervals include the "
            f"published {least:.2f} to {most:.2f} (nadi analyze contention)"
        )
    if data["ideals"]:
        table = make_table(
            "upper bounds: the step with one kind of cost removed",
            **{"removed": "left", "step time": "right", "gain": "right", "share": "right"},
        )
        for limit in data["ideals"]:
            table.add_row(
                limit["name"], format_ns(limit["step_ns"]), format_ns(limit["gain_ns"]),
                format_percent(limit["gain_ns"], measured),
            )  # fmt: skip
        print_table(table, console)
    job = answers.graph.job
    issues = summed_issues([*(trace.issues for trace in job.traces), job.issues])
    print_issues(
        issues.filter(pl.col("code").is_in(_OF_PREDICTIONS)).iter_rows(named=True), console
    )


def _print_table(
    title: str, first: str, rows: list[tuple[str, dict[str, Any]]], measured: int, console: Console
) -> None:
    table = make_table(
        printable(title),
        **{first: "left", "step time": "right", f"{_LEVEL}interval": "right", "gain": "right",
           f"{_LEVEL}interval ": "right", "share": "right", "new bottleneck": "left"},
    )  # fmt: skip
    for label, row in rows:
        interval = row["interval"]
        kind = row["bound_by_kind"].replace("_", " ")
        bottleneck = f"{row['bound_by_operation'] or _BETWEEN} ({kind})"
        table.add_row(
            name_cell(label),
            format_ns(row["step_ns"]), format_range(interval["low_ns"], interval["high_ns"]),
            format_ns(row["gain_ns"]),
            format_range(interval["gain_low_ns"], interval["gain_high_ns"]),
            format_percent(row["gain_ns"], measured), name_cell(bottleneck),
        )  # fmt: skip
    print_table(table, console)
    print_if_one_step(rows[0][1]["interval"]["steps"], console)


def _print_kinds(first: str, rows: list[tuple[str, dict[str, Any]]], console: Console) -> None:
    """Print the mean step of each kind of a serving engine, if there are several."""
    table = make_table(
        "mean step of each kind",
        **{first: "left", "kind": "left", "steps": "right", "measured": "right",
           "step time": "right", "gain": "right", "share": "right"},
    )  # fmt: skip
    for label, row in rows:
        for one in row.get("by_kind_of_step", []):
            gain = one["measured_ns"] - one["step_ns"]
            table.add_row(
                name_cell(label), one["kind"], format_count(one["steps"]),
                format_ns(one["measured_ns"]), format_ns(one["step_ns"]), format_ns(gain),
                format_percent(gain, one["measured_ns"]),
            )  # fmt: skip
    if table.row_count:
        print_table(table, console)


def print_if_one_step(steps: int, console: Console) -> None:
    """Say what intervals were made without, if there is but one step."""
    if steps < 2:
        console.print(
            "the window has one step: intervals take how much steps vary from other programs"
        )
