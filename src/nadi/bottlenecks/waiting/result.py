"""What ``nadi waits`` says: bottlenecks with their gains, and the wait-for graph."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nadi.analyses.registry import time_unit
from nadi.bottlenecks.steps.answers import describe_interval, measured_line
from nadi.bottlenecks.waiting.bottlenecks import Waits
from nadi.bottlenecks.waiting.timelines import SegmentKind
from nadi.results.charts.charts import BarChart, Chart
from nadi.results.declared import FLAG, NAME, NS, Column, Lines, Result, Rows, share_of
from nadi.results.text import TOP
from nadi.units import format_ns, format_percent, format_range
from nadi.whatif.prediction_intervals import LEVEL

_OF_WINDOW = share_of("measured_ns")
_NO_REPLAY = (
    "a recording of switches cannot be replayed: no gains (give a recording of PyTorch, "
    "and this file with --switches)"
)


def _balanced(found: Waits) -> dict[str, Any] | None:
    """Return what balanced ranks would gain, with its interval; None where nothing is known."""
    if found.balanced is None:
        return None
    interval = describe_interval(found.balanced.interval)
    return {
        "window_ns": found.balanced.window_ns, "step_ns": found.balanced.step_ns,
        "gain_ns": found.balanced.gain_ns, "interval": interval,
    }  # fmt: skip


def _actors(found: Waits) -> Iterator[dict[str, Any]]:
    """Sum up what each actor does; those that only others wait for are left out."""
    timelines = found.graph.timelines
    segments = timelines.segments
    sums = np.zeros((len(timelines.actors), len(SegmentKind)), dtype=np.int64)
    np.add.at(sums, (segments.actor, segments.kind), segments.end - segments.start)
    for actor, (run, ready, wait) in zip(timelines.actors, sums.tolist(), strict=True):
        if run + ready + wait:
            yield {
                "name": actor.name, "kind": actor.kind, "run_ns": run, "runnable_ns": ready,
                "wait_ns": wait,
            }  # fmt: skip


def _balance(data: dict[str, Any]) -> Iterator[str]:
    """Say what balanced ranks would gain, where the window was replayed."""
    balanced = data["balanced_ranks"]
    if balanced:
        interval = balanced["interval"]
        share = format_percent(balanced["gain_ns"], data["measured_ns"])
        between = format_range(interval["gain_low_ns"], interval["gain_high_ns"])
        yield (
            f"balanced ranks would gain {format_ns(balanced['gain_ns'])} ({share}; "
            f"{100 * LEVEL:.0f} % interval: {between})"
        )


def _gaining(data: dict[str, Any]) -> list[int]:
    """Return the bottlenecks whose waits cost something; all if none does."""
    rows = data["bottlenecks"]
    return [i for i, row in enumerate(rows) if row["gain_ns"] > 0] or list(range(len(rows)))


def _knots(data: dict[str, Any]) -> Iterator[str]:
    """Say whom others wait for who wait for no other."""
    knots = "; ".join(" and ".join(knot) for knot in data["knots"][:TOP])
    yield (
        f"ends of chains of waits (others wait for them, and they for no other): {knots}"
        if knots
        else "no chains of waits: nobody waits for 1 % of the window"
    )


WAITS = Result(
    kind="waits", title="Who waits for whom", order=52,
    facts=(
        Column("window", get=lambda one: one.window.name if one.window else "whole recording"),
        Column("num_steps", get=lambda one: one.window.num_steps if one.window else 0),
        Column("measured_ns", unit=NS, about="length of the window"),
        Column("knots", get=lambda found: [
            [found.graph.timelines.actors[actor].name for actor in knot]
            for knot in found.graph.knots
        ]),
        Column("balanced_ranks", get=_balanced),
        Column("can_replay", unit=FLAG, get=lambda found: found.window is not None),
    ),
    headline=measured_line,
    parts=(
        Rows(
            "bottlenecks",
            "bottlenecks: upper bounds of the gain, if what others wait for took no time",
            lambda found: found.bottlenecks,
            (
                Column("name", "bottleneck", NAME, "a thread, a stream, a lock, or unexplained"),
                Column("kind"),
                Column("gain_ns", "gain", NS, "how much sooner the window ends without the waits"),
                Column("gain_ns", "share", _OF_WINDOW, "of the window",
                       shown=lambda row: row["gain_ns"]),
                Column("waited_ns", "waits, summed", NS,
                       "how long others wait for it themselves: the sum over all that wait"),
                Column("weight_ns", unit=NS, about="the same, with waits that are passed on"),
                Column("in_knot", "end of chain", FLAG, "it waits for no other"),
                Column("waiters", about="who waits longest for it, at most three"),
                Column("waiters", "by", NAME, "who waits longest for it",
                       shown=lambda row: row["waiters"][0] if row["waiters"] else ""),
                Column("operations", get=lambda one: [
                    {"name": name, "time_ns": time} for name, time in one.operations
                ]),
                Column("operations", "meanwhile", NAME, "what it does in the meantime",
                       shown=lambda row: row["operations"][0]["name"] if row["operations"] else ""),
            ),
            unless=lambda data: "" if data["can_replay"] else _NO_REPLAY,
            pick=_gaining,
        ),
        Lines(_balance),
        Lines(_knots),
        Rows(
            "waits",
            "who waits for whom: directly, and summed with others' waits meanwhile (cascaded)",
            lambda found: found.graph.frame().iter_rows(named=True),
            (
                Column("waiter", "waiter"),
                Column("waits_for", "waits for"),
                Column("direct_ns", "direct", NS, "how long the one waits for the other itself"),
                Column("direct_ns", "of the window", _OF_WINDOW,
                       shown=lambda row: row["direct_ns"]),
                Column("weight_ns", "cascaded", NS,
                       "with what others wait for meanwhile: a sum, which may exceed the window"),
                Column("share", about="of the cascaded time in the window, above 1 as it is a sum"),
            ),
        ),
        Rows("actors", "", _actors, tuple(
            Column(key) for key in ("name", "kind", "run_ns", "runnable_ns", "wait_ns")
        )),
    ),
)  # fmt: skip


def wait_charts(found: Waits) -> list[Chart]:
    """Return the charts: what each bottleneck costs, and what threads and streams do."""
    data = WAITS.data(found)
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
