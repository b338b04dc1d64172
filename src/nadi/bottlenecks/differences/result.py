"""What ``nadi diff`` tells: two recordings compared, or one with a saved prediction of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from nadi.analyses.recorded.call_stacks import compared_frames
from nadi.analyses.recorded.result import frames_html
from nadi.bottlenecks.steps.prediction_result import FIRST_CHANGE, ON_SYSTEM, measured_tiles
from nadi.results.declared import (
    ALL,
    CHANGE_NS,
    MEAN,
    NAME,
    NS,
    PAGE,
    PLAIN,
    TEXT,
    WORDS,
    Column,
    Html,
    Lines,
    Result,
    Rows,
    Sums,
    Tiles,
    in_words,
    name_or,
)
from nadi.results.page.figures import Figures
from nadi.units import format_ns, format_percent, printable, shown_name

if TYPE_CHECKING:  # pages of saved results take the words only
    from nadi.bottlenecks.differences.compared_runs import ComparedRuns
    from nadi.bottlenecks.differences.predictions import ComparedPrediction

_Data = dict[str, Any]
_SLIGHT = 0.001  # of the step: changes of the path below are not printed
_OTHER_WORK = 0.03  # of the number of operations on devices
_NAMED = 3  # changes in the first lines
_NAME_IN_LINE = 60


def _differences(found: ComparedRuns) -> _Data:
    """Compute the JSON output: every row of every table."""
    ranks = found.steps.group_by("rank", maintain_order=True)
    return {
        "of": found.of,
        "before_ns": found.before_ns,
        "after_ns": found.after_ns,
        "change_ns": found.after_ns - found.before_ns,
        "speed": asdict(found.speed),
        "vendors": [list(vendors) for vendors in found.vendors],
        "forms": found.forms.to_dicts(),
        "path": found.path.to_dicts(),
        "kernels": found.kernels.to_dicts(),
        "calls": found.calls.to_dicts(),
        "modules": found.modules.to_dicts(),
        "steps": found.steps.to_dicts(),
        "ranks": ranks.agg(pl.mean("before_ns", "after_ns", "change_ns")).to_dicts(),
    }


def _time(nanoseconds: float) -> str:
    return format_ns(round(nanoseconds))


def _signed(nanoseconds: float) -> str:
    return f"{'+' if nanoseconds > 0 else '-'}{_time(abs(nanoseconds))}"


def _own(row: _Data) -> float:
    """Return the change of a row without what the machine explains of it."""
    change: float = row["change_ns"] - row.get("machine_ns", 0)
    return change


def _headline(data: _Data) -> str:
    before, after, change = (data[f"{key}_ns"] for key in ("before", "after", "change"))
    if change == 0:
        return f"{data['of']}: {_time(before)} in both"
    share = 100 * abs(change) / before if before else 0.0
    return (
        f"{data['of']}: {_time(before)} -> {_time(after)}, {_time(abs(change))} ({share:.1f} %) "
        f"{'slower' if change > 0 else 'faster'}"
    )


def _why(data: _Data) -> Iterator[str]:
    """Say what came or went of the ways in which the program runs, then what the machine does."""
    if data["change_ns"] == 0:
        return
    yield from _other_work(data)
    for row in data["forms"]:
        before, after = (f"{row[f'count_{side}']:.4g}" for side in ("before", "after"))
        taken = max(row["before_ns"], row["after_ns"])
        yield f"  {row['form']}: {before} -> {after} a step ({_time(taken)})"
    if _other_vendor(data):
        before, after = (" and ".join(vendors) for vendors in data["vendors"])
        yield f"  devices: {before} -> {after}; kernels by operator and class"
    speed = data["speed"]
    for place, factor in (("on the host", speed["host"]), ("on devices", speed["device"])):
        if factor != 1:
            slower = "longer" if factor > 1 else "less"
            percent = format_percent(abs(factor - 1), 1)
            yield f"  the machine: unchanged operations {place} take {percent} {slower}"
    machine = float(sum(row["machine_ns"] for row in data["path"]))
    if any(factor != 1 for factor in speed.values()):
        yield f"  {_signed(machine)} of the step: in a column of its own below"
    rest = data["change_ns"] - machine
    same = [data["path"][i] for i in _not_slight(data) if _own(data["path"][i]) * rest > 0]
    for row in same[:_NAMED]:
        name = shown_name(row["name"], _NAME_IN_LINE) or "(no operation)"
        yield f"  {_signed(_own(row))}: {name} ({row['kind']}, {row['cause']})"


def _other_work(data: _Data) -> Iterator[str]:
    """Say if recordings without steps are as long as each other, but do not do the same work.

    So are those that stop after some time: the slower program does less in it.
    """
    if data["of"] != "recording" or not data["before_ns"]:
        return
    counts = [sum(row[f"count_{side}"] for row in data["kernels"]) for side in ("before", "after")]
    work = counts[1] / counts[0] - 1 if counts[0] else 0.0
    longer = data["after_ns"] / data["before_ns"] - 1
    if abs(work) > _OTHER_WORK and abs(longer) < abs(work) / 2:
        more = "more" if work > 0 else "less"
        rate = (1 + longer) / (1 + work) - 1
        took = "longer" if rate > 0 else "shorter"
        share = format_percent(abs(work), 1)
        yield (
            f"  no steps are marked, and the second recording does {share} {more} device work "
            f"({counts[1]:,.0f} operations against {counts[0]:,.0f}):"
        )
        yield f"  for the same work it would be {format_percent(abs(rate), 1)} {took}"


def _other_vendor(data: _Data) -> bool:
    """Return whether the devices are of different vendors."""
    return all(data["vendors"]) and data["vendors"][0] != data["vendors"][1]


def _not_slight(data: _Data) -> list[int]:
    least = _SLIGHT * data["before_ns"]
    return [i for i, row in enumerate(data["path"]) if abs(_own(row)) > least]


def _where(key: str, changed: Callable[[_Data], bool]) -> Callable[[_Data], list[int]]:
    return lambda data: [i for i, row in enumerate(data[key]) if changed(row)]


def _titled(title: str) -> Callable[[_Data], str]:
    return lambda data: f"{title}, per {data['of']}"


def _adding_up(data: _Data, sides: tuple[Column, ...]) -> tuple[Column, ...]:
    """Put both sides and the change in columns that add up; on pages all of it is a change."""
    before, after = sides
    machine = Column("machine_ns", "machine", CHANGE_NS, "what its speed changes", on=TEXT)
    is_other = any(factor != 1 for factor in data["speed"].values())
    return (
        before, *([machine] if is_other else []), after,
        Column("change_ns", "change", CHANGE_NS, "without what the machine explains", shown=_own,
               on=TEXT),
        Column("change_ns", "change", CHANGE_NS, on=PAGE),
    )  # fmt: skip


def _sides(data: _Data) -> tuple[Column, ...]:
    return _adding_up(data, (Column("before_ns", "before", NS), Column("after_ns", "after", NS)))


_STEPS = (
    Column("before_ns", "before", NS),
    Column("after_ns", "after", NS),
    Column("change_ns", "change", CHANGE_NS),
)
_COUNTS = (
    Column("state", "state", WORDS, "added, removed, called more or less, slower or faster"),
    Column("count_before", "count before", MEAN), Column("count_after", "count after", MEAN),
)  # fmt: skip


def _calls_apart(data: _Data) -> dict[str, str]:
    """Name calls by those around them: the last two, and more if other calls share these."""
    paths = {row["path"]: row["path"].split(" > ") for row in data["calls"]}
    often = Counter(tuple(path[-last:]) for path in paths.values() for last in range(len(path) + 1))
    found = {}
    for whole, path in paths.items():
        lasts = (n for n in range(2, len(path)) if often[tuple(path[-n:])] == 1)
        found[whole] = " > ".join(path[-next(lasts, len(path)) :])
    return found


def _call_name(data: _Data) -> Column:
    names = _calls_apart(data)
    return Column("path", "name", NAME, "the call, and that around it",
                  shown=lambda row: names[row["path"]])  # fmt: skip


def _on_both(key: str, title: str, name: Callable[[_Data], Column]) -> Rows:
    """Declare sums of host and device by name: in text together, on pages each."""

    def both(side: str) -> Callable[[_Data], float]:
        return lambda row: row[f"{side}_ns"] + row[f"device_{side}_ns"]

    sides = tuple(Column(f"{side}_ns", side, NS, "host and device", shown=both(side), on=TEXT)
                  for side in ("before", "after"))  # fmt: skip
    apart = tuple(Column(f"{place}{side}_ns", f"{place.replace('_', ' ')}{side}", NS, on=PAGE)
                  for place in ("", "device_") for side in ("before", "after"))  # fmt: skip

    def columns(data: _Data) -> tuple[Column, ...]:
        *told, change = _adding_up(data, sides)
        return (name(data), *_COUNTS, *told, *apart,
                change._replace(title="change, host and device"))  # fmt: skip

    return Rows(key, _titled(title), None, columns,
        lambda data: "" if data[key] or key == "calls" else None,
        _where(key, lambda row: row["state"] != "same"), "no change")  # fmt: skip


_PATH = Rows("path", _titled("critical path"), None, lambda data: (
    Column("name", "name", name_or("(no operation)")), Column("kind", "kind", WORDS),
    Column("cause", "cause", WORDS, "why it takes another time"), *_sides(data),
), pick=_not_slight, empty="no change", on=TEXT)  # fmt: skip


def _both_pages(figures: Figures) -> str:
    """Write what bounds each, and both critical paths by kind; of the whole page's results."""
    whole = Figures(figures.results)
    said = [
        f"{side}: {lines[0]}"
        for side, at in (("before", ("before",)), ("after", ()))
        if (lines := whole.get(*at, "verdict_in_words"))
    ]
    rest = f"The timeline shows both; all other sections are about {figures.get('after')}."
    by_kind = Sums("Critical path by kind, in the whole window", "kind", {
        "before": "before/critical_path_by_kind", "after": "critical_path_by_kind",
    })  # fmt: skip
    lines = Lines(lambda _: [*said, rest])
    return lines.html({}, figures) + by_kind.html(whole.results, whole)


def _compared_frames(figures: Figures) -> str:
    """Draw the calls and the modules of both recordings in one flame graph."""
    calls = compared_frames(figures.rows("calls"), "path", " > ")
    modules = compared_frames(figures.rows("modules"), "module", ".")
    return frames_html({"calls": calls, "modules": modules})


DIFF = Result(
    kind="diff", title="Differences", order=-10, facts=_differences, headline=_headline,
    parts=(
        Tiles(lambda data: [
            *(Column(f"{side}_ns", side, NS, f"a step of {data.get(side)}")
              for side in ("before", "after")),
            Column("change_ns", "change", CHANGE_NS, "of the step before", whole="before_ns"),
        ]),
        Lines(_why), Html(_both_pages), Html(_compared_frames), _PATH,
        _PATH._replace(
            title="Critical path, per step: these changes add up to that of the step",
            pick=_where("path", lambda row: row["change_ns"]), on=PAGE),
        Rows("kernels", lambda data: "device work by {}, per {}".format(
            "operator and class" if _other_vendor(data) else "name", data["of"]),
            None, lambda data: (Column("name", "name"), *_COUNTS, *_sides(data)),
            pick=_where("kernels", lambda row: row["state"] != "same"), empty="no change"),
        _on_both("modules", "modules without those in them, host and device",
                 lambda _: Column("module", "name")),
        _on_both("calls", "calls, host and device", _call_name),
        Rows("ranks", "steps by rank", None,
             (Column("rank", "rank", PLAIN._replace(sign="")), *_STEPS),
             pick=_where("ranks", lambda _: True), unless=lambda data: "" if len(data["ranks"]) > 1
             and any(row["change_ns"] for row in data["ranks"]) else None),
        Rows("steps", "Steps of each rank", None, (
            Column("rank", "rank", PLAIN), Column("before", "step before", PLAIN),
            Column("after", "step after", PLAIN), *_STEPS,
        ), most=1 << 20, on=PAGE),
    ),
)  # fmt: skip
"""Declared of ``ComparedRuns``; a page adds what ``before`` and ``after`` are called."""

_PARTS = {
    "computing": "computation",
    "transferring": "exposed transfer",
    "waiting": "exposed wait for other ranks",
    "copying": "copies, and memory beyond the device",
    "rest": "host and idle",
}


def _compared(found: ComparedPrediction) -> _Data:
    """Compute the JSON output: every row of every table; times are ns."""
    return {
        "kind": found.kind,
        "system": found.system,
        "window": found.window,
        "measured_ns": found.measured_ns,
        "predicted_ns": found.predicted_ns,
        "change_ns": found.predicted_ns - found.measured_ns,
        "parts": found.parts.to_dicts(),
        "ranks": found.ranks.to_dicts(),
        "operations": found.operations.to_dicts(),
    }


def _far_apart(data: _Data) -> str:
    on = f" on {printable(data['system'])}" if data["system"] else ""
    change = data["change_ns"]
    return (
        f"{data['window']}: measured {_time(data['measured_ns'])}, predicted by the "
        f"{data['kind']}{on} {_time(data['predicted_ns'])}, "
        f"{format_percent(abs(change), data['measured_ns'])} "
        f"{'longer' if change > 0 else 'shorter'}"
    )


def _beside(measured: str = "measured_ns", predicted: str = "predicted_ns") -> tuple[Column, ...]:
    return (
        Column(measured, "measured", NS), Column(predicted, "predicted", NS),
        Column("change_ns", "change", CHANGE_NS, "predicted without measured"),
    )  # fmt: skip


COMPARED_PREDICTION = Result(
    kind="prediction", title="Measured and predicted", order=-5, facts=_compared,
    headline=_far_apart,
    parts=(
        Tiles(lambda data: [
            *measured_tiles("measured_ns", data["window"], "predicted_ns",
                            f"{data['kind']} on {data['system']}".removesuffix(" on ")),
            Column("change_ns", "change", CHANGE_NS, "of the measured time", whole="measured_ns"),
        ]),
        Rows("parts", "time of a rank, mean over ranks", None, (
            Column("part", "part", in_words(lambda part: _PARTS.get(part, part))), *_beside(),
        ), top=ALL),
        Rows("ranks", "when each rank finishes", None,
             (Column("rank", "rank", PLAIN), *_beside()),
             lambda data: "" if len(data["ranks"]) > 1 else None),
        Rows("operations", "operations by name, self time", None, (
            Column("name", "name"), Column("state", "predicted", WORDS, on=PAGE),
            *_beside("before_ns", "after_ns"),
        ), pick=_where("operations", lambda row: row["change_ns"])),
    ),
)  # fmt: skip
"""Declared of ``ComparedPrediction``."""


def _first(figures: Figures) -> str:
    """Write the differences to a saved prediction, to another system, or to the first change."""
    shown = (one.html(figures) for one in (COMPARED_PREDICTION, ON_SYSTEM, FIRST_CHANGE))
    return next(filter(None, shown), "")


PREDICTION = COMPARED_PREDICTION._replace(headline=None, parts=(Html(_first),), at="")
"""The section of whatever is predicted."""
