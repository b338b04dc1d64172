"""The report of ``nadi waits``: bottlenecks with their gains, and the wait-for graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from nadi.analyses.registry import time_unit
from nadi.bottlenecks.steps.answers import describe_interval
from nadi.bottlenecks.waiting.bottlenecks import Waits
from nadi.bottlenecks.waiting.timelines import SegmentKind, Timelines
from nadi.results.charts.charts import BarChart, Chart
from nadi.results.text import TOP, make_table, name_cell, print_table
from nadi.units import format_ns, format_percent, format_range, printable
from nadi.whatif.prediction_intervals import LEVEL

__all__ = ["describe_waits", "print_waits", "wait_charts"]


def describe_waits(found: Waits) -> dict[str, Any]:
    """Compute the JSON output; times are int ns."""
    timelines = found.graph.timelines
    names = [actor.name for actor in timelines.actors]
    return {
        "window": found.window.name if found.window else "whole recording",
        "measured_ns": found.measured_ns,
        "bottlenecks": [
            {"name": one.name, "kind": one.kind, "in_knot": one.in_knot, "gain_ns": one.gain_ns,
             "waited_ns": one.waited_ns, "weight_ns": one.weight_ns, "waiters": one.waiters,
             "operations": [{"name": name, "time_ns": time} for name, time in one.operations]}
            for one in found.bottlenecks
        ],
        "knots": [[names[actor] for actor in knot] for knot in found.graph.knots],
        "waits": found.graph.frame().to_dicts(),
        "balanced_ranks": (
            None if found.balanced is None
            else {"step_ns": found.balanced.step_ns, "gain_ns": found.balanced.gain_ns,
                  "interval": describe_interval(found.balanced.interval)}
        ),
        "actors": _actors(timelines),
        "can_replay": found.window is not None,
    }  # fmt: skip


def _actors(timelines: Timelines) -> list[dict[str, Any]]:
    """Sum up what each actor does; those that only others wait for are left out."""
    segments = timelines.segments
    sums = np.zeros((len(timelines.actors), len(SegmentKind)), dtype=np.int64)
    np.add.at(sums, (segments.actor, segments.kind), segments.end - segments.start)
    return [
        {"name": actor.name, "kind": actor.kind, "run_ns": run, "runnable_ns": ready,
         "wait_ns": wait}
        for actor, (run, ready, wait) in zip(timelines.actors, sums.tolist(), strict=True)
        if run + ready + wait
    ]  # fmt: skip


def wait_charts(found: Waits) -> list[Chart]:
    """Return the charts: what each bottleneck costs, and what threads and streams do."""
    data = describe_waits(found)
    charts: list[Chart] = []
    if gains := data["bottlenecks"][:TOP]:
        factor, unit = time_unit(max(one["gain_ns"] for one in gains))
        lengths = np.array([max(one["gain_ns"], 0) for one in gains]) / factor
        charts.append(BarChart(
            f"bottlenecks of {data['window']}", f"gain if nobody waited for it, in {unit}",
            tuple(one["name"] for one in gains), ("",), lengths[:, None],
        ))  # fmt: skip
    actors = sorted(data["actors"], key=lambda one: (-one["run_ns"], one["name"]))[:TOP]
    factor, unit = time_unit(data["measured_ns"])
    spent = [[one[f"{key}_ns"] / factor for key in ("run", "runnable", "wait")] for one in actors]
    charts.append(BarChart(
        "threads and streams", f"time in {unit}", tuple(one["name"] for one in actors),
        ("work", "ready to work", "waiting"), np.array(spent).reshape(-1, 3),
    ))  # fmt: skip
    return charts


def print_waits(found: Waits, console: Console) -> None:
    """Print the page of text."""
    data = describe_waits(found)
    measured = data["measured_ns"]
    console.print(Text(f"{data['window']}: measured {format_ns(measured)}"))
    if data["can_replay"]:
        _print_bottlenecks(data, console)
    else:
        console.print(
            "a recording of switches cannot be replayed: no gains (give a recording of PyTorch, "
            "and this file with --switches)"
        )
    knots = [" and ".join(knot) for knot in data["knots"]]
    if knots:
        console.print(Text(printable(f"ends of chains of waits (others wait for them, and they for "
                                     f"no other): {'; '.join(knots[:TOP])}")))  # fmt: skip
    else:
        console.print("no chains of waits: nobody waits for 1 % of the window")
    _print_waits(data, console)


def _print_bottlenecks(data: dict[str, Any], console: Console) -> None:
    table = make_table(
        "bottlenecks: upper bounds of the gain, if what others wait for took no time",
        **{"bottleneck": "left", "gain": "right", "share": "right", "waited for": "right",
           "end of chain": "left", "by": "left", "meanwhile": "left"},
    )  # fmt: skip
    for one in data["bottlenecks"][:TOP]:
        operations = one["operations"]
        table.add_row(
            name_cell(one["name"]), format_ns(one["gain_ns"]),
            format_percent(one["gain_ns"], data["measured_ns"]), format_ns(one["waited_ns"]),
            "yes" if one["in_knot"] else "", name_cell(one["waiters"][0] if one["waiters"] else ""),
            name_cell(operations[0]["name"] if operations else ""),
        )  # fmt: skip
    print_table(table, console)
    if len(data["bottlenecks"]) > TOP:
        console.print(f"... and {len(data['bottlenecks']) - TOP} more (--json)")
    if data["balanced_ranks"]:
        gain, interval = data["balanced_ranks"]["gain_ns"], data["balanced_ranks"]["interval"]
        share = format_percent(gain, data["measured_ns"])
        between = format_range(interval["gain_low_ns"], interval["gain_high_ns"])
        console.print(
            f"balanced ranks would gain {format_ns(gain)} ({share}; "
            f"{100 * LEVEL:.0f} % interval: {between})"
        )


def _print_waits(data: dict[str, Any], console: Console) -> None:
    table = make_table(
        "who waits for whom: directly, and with what others wait for meanwhile (cascaded)",
        **{"waiter": "left", "waits for": "left", "direct": "right", "cascaded": "right",
           "of the window": "right"},
    )  # fmt: skip
    for one in data["waits"][:TOP]:
        table.add_row(
            name_cell(one["waiter"]), name_cell(one["waits_for"]), format_ns(one["direct_ns"]),
            format_ns(one["weight_ns"]), format_percent(one["weight_ns"], data["measured_ns"]),
        )  # fmt: skip
    print_table(table, console)
    if len(data["waits"]) > TOP:
        console.print(f"... and {len(data['waits']) - TOP} more (--json)")
