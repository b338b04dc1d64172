"""What ranks and streams do, and totals of operations and collectives: as data.

The time of modules: as data, and as a table in which layers that are alike share a row.

A job as measured and as predicted on another machine, side by side.

The verdict of ``nadi run``: what bounds the window, and the changes that gain most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.bottlenecks.steps.answers import describe_interval
from nadi.bottlenecks.steps.path_changes import path_by_kind, path_changes
from nadi.bottlenecks.steps.recorded_bounds import link_bounds
from nadi.bottlenecks.steps.run import Prediction, Run
from nadi.bottlenecks.steps.verdict import WORTH_BALANCING, LateRank, Leading, Verdict
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.module_times import OUTSIDE, ModuleTimes
from nadi.graph.operation_totals import collective_totals, operation_totals
from nadi.graph.rank_excess import REASONS, Excess, ExcessPart
from nadi.graph.time_parts import rank_activity, stream_activity
from nadi.graph.unexplained import CAUSES
from nadi.graph.windows import WHOLE
from nadi.results.text import make_table, name_cell, print_table
from nadi.trace.arrays import Ints
from nadi.units import format_count, format_ns, format_percent, format_range, printable
from nadi.whatif.balance_change import Balance
from nadi.whatif.changes import NoGaps, Scale
from nadi.whatif.prediction_intervals import LEVEL
from nadi.whatif.promising_changes import TriedChange
from nadi.whatif.wait_changes import ScaleWait

__all__ = [
    "describe_activity", "describe_best_changes", "describe_modules", "describe_prediction",
    "describe_verdict", "print_modules", "print_prediction", "print_verdict", "verdict_in_words",
]  # fmt: skip


_MOST = 30  # names of operations and of collectives


def describe_activity(run: Run) -> dict[str, Any]:
    """Compute the parts of ``summary.json`` on activity and totals; times are int ns.

    ``activity`` has an object per rank, ``streams`` one per thread and stream; ``operations`` and
    ``collectives`` have the 30 with most time, and ``collectives_bound_by`` names the system whose
    links their bounds are of.
    """
    graph, window = run.graph, run.window
    bounds = link_bounds(run)
    collectives = collective_totals(graph, window, bounds.least_time if bounds else None)
    renamed = {name: f"{name}_gb_per_s"
               for name in ("bandwidth", "bus_bandwidth", "bound_bus_bandwidth")}  # fmt: skip
    return {
        "activity": _in_ns(
            rank_activity(graph, window), "computing", "transferring", "waiting", "copying", "idle"
        ),
        "streams": _in_ns(stream_activity(graph, window), "busy", "communicating", "idle"),
        "operations": _in_ns(
            operation_totals(graph, window).head(_MOST), "time", "shortest", "longest"
        ),
        "collectives": _in_ns(
            collectives.head(_MOST).rename(renamed), "waiting", "transferring", "bound"
        ),
        "collectives_bound_by": (
            {"system": bounds.system, "reason": bounds.reason} if bounds else None
        ),
    }


def _in_ns(found: pl.DataFrame, *times: str) -> list[dict[str, Any]]:
    return found.rename({name: f"{name}_ns" for name in times}).to_dicts()


_TIMES = tuple(
    f"{phase}_{place}"
    for place in ("host", "device")
    for phase in ("forward", "backward", "optimizer", "other")
)
_ALIKE = 0.25  # layers share a row that differ from their median by at most this part of it
_MAX_ROWS = 40
_NUMBERED = re.compile(r"^(.*?)\d+$")
_INDENT = "  "


def describe_modules(found: ModuleTimes) -> dict[str, Any]:
    """Compute the JSON output: a row per module, times in int ns."""
    times = {name: f"{name}_ns" for name in (*_TIMES, "critical")}
    return {
        "recorded": found.is_recorded,
        "optimizer": found.optimizer,
        "rows": found.table.rename(times).to_dicts(),
    }


def print_modules(found: ModuleTimes, path_length: int, console: Console) -> None:
    """Print the table. The modules in repeated layers are in the JSON output only."""
    table = found.table
    if table.height == 1:
        console.print("modules: none recorded; nadi.record(..., stacks=True) records them")
        return
    on_device = bool((table["device_operations"] != 0).any())
    shown = [name for name in _TIMES if (table[name] != 0).any()]
    title = "time by module" if found.is_recorded else "time by module (annotations)"
    printed = make_table(
        title, module="left", calls="right",
        **{name.replace("_", " "): "right" for name in shown},
        **({"device operations": "right"} if on_device else {}),
        **{"on the path": "right", "each: min, median, max": "left"},
    )  # fmt: skip
    groups = list(_groups(table))
    for name, rows in groups[:_MAX_ROWS]:
        sums = table[rows].select(pl.exclude("module").sum()).row(0, named=True)
        cells = [format_count(sums["calls"]) if name != OUTSIDE else ""]
        cells += [format_ns(sums[column]) for column in shown]
        if on_device:
            cells.append(format_count(sums["device_operations"]))
        cells.append(format_percent(sums["critical"], path_length))
        each = _total(table)[rows]
        spread = (each.min(), np.median(each), each.max()) if len(rows) > 1 else ()
        cells.append(", ".join(format_ns(int(time)) for time in spread))
        indent = name[: len(name) - len(name.lstrip())]
        printed.add_row(Text(indent) + name_cell(name.lstrip()), *cells)
    print_table(printed, console)
    if len(groups) > _MAX_ROWS:
        console.print(f"{len(groups) - _MAX_ROWS} more modules: --json prints all")
    if found.optimizer:
        console.print(Text(f"optimizer: {found.optimizer}"))


def _groups(table: pl.DataFrame) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows to print: a name, and the rows of the table that share it, in order."""
    paths, parent = table["module"].to_list(), table["parent"].to_list()
    inner: dict[int, dict[str, list[int]]] = {}
    names = []
    for row, (path, around) in enumerate(zip(paths[:-1], parent[:-1], strict=True)):
        names.append(path.removeprefix(f"{paths[around]}.") if around >= 0 else path)
        kind = _NUMBERED.sub(r"\1", names[row])
        inner.setdefault(around, {}).setdefault(kind, []).append(row)
    total = _total(table)

    def walk(around: int, indent: str) -> Iterator[tuple[str, list[int]]]:
        for kind, rows in inner.get(around, {}).items():
            middle = np.median(total[rows])
            alike = [row for row in rows if abs(total[row] - middle) <= _ALIKE * middle]
            if len(alike) > 1:
                last = names[alike[-1]].removeprefix(kind)
                yield f"{indent}{names[alike[0]]}-{last} ({len(alike)} x)", alike
            for row in rows if len(alike) < 2 else sorted(set(rows) - set(alike)):
                yield indent + names[row], [row]
                if len(rows) == 1:
                    yield from walk(row, indent + _INDENT)

    yield from walk(-1, "")
    yield OUTSIDE, [len(paths) - 1]


def _total(table: pl.DataFrame) -> Ints:
    """Return the time of each module on host and device; ns, shape (rows,)."""
    return table.select(pl.sum_horizontal(_TIMES)).to_series().to_numpy()


def describe_prediction(prediction: Prediction, measured: CriticalPath) -> dict[str, Any]:
    """Compute the predicted and the measured values; times are int ns."""
    answer = prediction.what_if
    return {
        "system": prediction.change.system.name,
        "measured_ns": answer.measured_ns,
        "predicted_ns": answer.step_ns,
        "kernel_factor": prediction.change.kernel_factor,
        "computation": prediction.change.reason,
        "measured_by_kind": path_by_kind(measured),
        "predicted_by_kind": path_by_kind(answer.path),
        "path_changes": path_changes(measured, answer.path),
        "communication": prediction.prices.by_type.rename(
            {"measured": "measured_ns", "predicted": "predicted_ns"}
        ).to_dicts(),
    }


def print_prediction(data: dict[str, Any], console: Console) -> None:
    """Print the result of :func:`describe_prediction`."""
    measured, predicted = data["measured_ns"], data["predicted_ns"]
    verb = "longer" if predicted > measured else "shorter"
    console.print(
        Text.assemble(
            "\npredicted on ", (printable(data["system"]), "bold"), ": measured ",
            format_ns(measured), ", predicted ", (format_ns(predicted), "bold"),
            f", {format_percent(abs(predicted - measured), measured)} {verb}",
        )
    )  # fmt: skip
    table = make_table(
        "critical path by kind", kind="left", measured="right", predicted="right"
    )  # fmt: skip
    kinds = data["measured_by_kind"], data["predicted_by_kind"]
    for kind in dict.fromkeys([*kinds[0], *kinds[1]]):
        cells = (format_ns(times.get(kind, 0)) for times in kinds)
        table.add_row(kind.replace("_", " "), *cells)
    table.add_row("total", format_ns(sum(kinds[0].values())), format_ns(sum(kinds[1].values())),
                  style="bold")  # fmt: skip
    print_table(table, console)
    if data["communication"]:
        _print_communication(data["communication"], console)
    console.print(Text(printable(data["computation"])))


def _print_communication(rows: list[dict[str, Any]], console: Console) -> None:
    table = make_table(
        "communication of the whole recording, summed over ranks",
        type="left", count="right", measured="right", predicted="right", note="left",
    )  # fmt: skip
    for row in rows:
        notes = [f"simulated as {row['simulated_as']}"] if row["simulated_as"] else []
        if row["left"]:
            notes.append(f"{format_count(row['left'])} more keep their time: size or ranks unknown")
        table.add_row(
            row["type"], format_count(row["priced"]), format_ns(row["measured_ns"]),
            format_ns(row["predicted_ns"]), "; ".join(notes),
        )  # fmt: skip
    print_table(table, console)


_NAME_IN_LINE = 60
_MORE, _SLOWER, _BETWEEN, _LATER, _ = REASONS
_ONE_NAME = 0.8  # of an excess
_BEFORE, _NOT_SCHEDULED, _UNKNOWN_WAIT, _UNKNOWN = CAUSES
_TO_RECORD = {
    _NOT_SCHEDULED: "the thread was ready and not running: see what else runs on the machine",
    _UNKNOWN_WAIT: "record device activities too, and begin before the work that is waited for",
}


def describe_verdict(verdict: Verdict) -> dict[str, Any]:
    """Compute the verdict's part of ``summary.json``."""
    return asdict(verdict)


def describe_best_changes(run: Run) -> list[dict[str, Any]]:
    """Compute the part of ``summary.json`` on the changes that gain most; times are int ns."""
    return [
        {"change": str(one.change), "about": one.about, "in_words": _in_words(one),
         "step_ns": one.step_ns, "gain_ns": one.gain_ns,
         "interval": describe_interval(one.interval)}
        for one in run.best_changes
    ]  # fmt: skip


def verdict_in_words(run: Run) -> list[str]:
    """Say what bounds the window, in sentences; the first is the verdict itself."""
    verdict = run.verdict
    window = "the whole trace" if run.window.name == WHOLE else run.window.name
    end = run.window.end(run.graph.time)
    if verdict.bound_by == "unexplained":
        return _unexplained(verdict, window, end)
    lines = {
        "straggler": _straggler, "communication": _communication, "device": _device,
        "host": _host,
    }[verdict.bound_by](verdict, window)  # fmt: skip
    if run.window.after_earlier_work:
        lines.append(
            "Before that the device was busy with work that began before the recording; "
            f"--window 0ms:{end / 1e6:.3f}ms analyses all."
        )
    return lines


def print_verdict(run: Run, console: Console) -> None:
    """Print what bounds the window, and the changes that gain most."""
    lines = verdict_in_words(run)
    console.print(Text(lines[0], style="bold"))
    for line in lines[1:]:
        console.print(Text(line))
    if run.best_changes:
        _print_changes(run, console)


def _straggler(verdict: Verdict, window: str) -> list[str]:
    late = verdict.late
    if late is None:  # nobody waits: then no straggler bounds the window
        return _host(verdict, window)
    lateness = format_ns(late.late_ns // max(verdict.num_steps, 1))
    each = " a step" if verdict.num_steps > 1 else f" in {window}"
    if late.is_alone:
        first = f"Rank {late.rank} is late by {lateness}{each}: {_reason(late, verdict)}."
    else:
        share = format_percent(late.caused_ns, late.all_caused_ns)
        first = (
            "The straggler changes from collective to collective. "
            f"Rank {late.rank} causes most wait time ({share}), and is late by {lateness}{each}: "
            f"{_reason(late, verdict)}."
        )
    return [first if late.begins_late else f"{first} {_balance(verdict)}"]


def _balance(verdict: Verdict) -> str:
    gain = verdict.length_ns - verdict.balanced_ns
    return f"Balanced ranks would gain {_share(gain, verdict)}."


def _reason(late: LateRank, verdict: Verdict) -> str:
    """Say why a rank is late: it begins late, or exceeds the others in something."""
    steps = max(verdict.num_steps, 1)
    if late.begins_late:
        return f"it begins {format_ns(late.began_late_ns)} after the others"
    if not late.is_explained:
        return "nothing recorded takes that much longer than on the other ranks"
    return _what_exceeds(late.excess, steps)


def _what_exceeds(excess: Excess, steps: int) -> str:
    most = excess.operation
    time, name = format_ns(most.more_ns // steps), _shown(most.name)
    if excess.reason == _BETWEEN:
        where = f"in {name}, " if most.name else ""
        return f"{where}{time} more between operations than on the others"
    if excess.reason == _LATER:
        return f"{name} starts or ends {time} later than what it waits for explains"
    where = f"most in {name} ({time} more{_counts(most, steps)}){_of_module(excess, steps)}"
    if excess.reason == _MORE:
        if most.count > most.others_count and most.more_ns >= _ONE_NAME * excess.time_ns:
            more = _number(most.count - most.others_count, steps)
            if not most.others_count:
                return f"it runs {more} {name} that the others do not ({time})"
        own, usual = (_number(n, steps) for n in (excess.operators, excess.others_operators))
        if excess.kind == "host op" and excess.operators >= 1.1 * excess.others_operators > 0:
            ratio = excess.operators / excess.others_operators
            return f"it runs {ratio:.1f} times as many operators ({own} against {usual}), {where}"
        return f"it does more than the others, {where}"
    if excess.has_other_shapes:
        return f"the same operators work on other shapes than on the others, {where}"
    if excess.factor:
        return f"nearly all that it does takes {excess.factor:.1f} times as long, {where}"
    return f"the same operations take longer than on the others, {where}"


def _counts(part: ExcessPart, steps: int) -> str:
    """Say how many there are, if the ranks differ in that."""
    if part.count == part.others_count:
        return ""
    return f", {_number(part.count, steps)} against {_number(part.others_count, steps)}"


def _of_module(excess: Excess, steps: int) -> str:
    module = excess.module
    if module is None:
        return ""
    counts = _counts(module, steps).removeprefix(", ")
    return f" of {_shown(module.name)}" + (f" ({counts})" if counts else "")


def _number(count: int, steps: int) -> str:
    """Write a count per step, with a fraction only if it is needed."""
    whole = count % steps == 0
    return format_count(count // steps) if whole else f"{count / steps:.1f}"


def _communication(verdict: Verdict, window: str) -> list[str]:
    share, most = _share(verdict.communication_ns, verdict), _led(verdict.leading)
    exposed = _share(verdict.exposed_ns, verdict)
    first = f"Communication bounds {window}: {share} of the critical path, most in {most}."
    if verdict.is_by_busy_device:
        first = f"Communication bounds {window}: {exposed} is exposed, most in {most}."
    return [
        first,
        f"{format_ns(verdict.exposed_ns)} ({exposed}) is exposed: no computation overlaps it.",
        *_also(verdict),
    ]


def _device(verdict: Verdict, window: str) -> list[str]:
    leading = verdict.leading
    share = f"kernels are {_share(verdict.device_ns, verdict)} of the critical path"
    if verdict.is_by_busy_device:
        share = f"it is busy for {_share(verdict.device_busy_ns, verdict)}"
    first = (
        f"The device bounds {window}: {share}, {leading.kernel_class} leads with "
        f"{_share(leading.class_ns, verdict)}, most in {_led(leading)}."
    )
    return [first, *_also(verdict)]


def _host(verdict: Verdict, window: str) -> list[str]:
    host = verdict.host_ns
    first = f"The host bounds {window}: {_share(host, verdict)} of the critical path"
    if verdict.device_idle_ns >= 0:
        first += f", while the device is idle for {_share(verdict.device_idle_ns, verdict)}"
    else:
        first += ", in operators on the CPU"
    leads = verdict.leading
    before = "waits before " if leads.is_wait else ""
    most = f"{before}{_led(leads)}" if leads.name else f"no operator ({format_ns(leads.time_ns)})"
    if leads.range_name:
        share = _share(leads.range_ns, verdict)
        most = f"{_shown(leads.range_name)} ({share}), there most in {most}"
    parts = [f"most in {most}"]
    others = {"between operations": verdict.gaps_ns, "runtime calls": verdict.calls_ns}
    for what, time in others.items():
        if 10 * time >= verdict.length_ns:
            parts.append(f"{what} {_share(time, verdict)}")
    return [f"{first}; {', '.join(parts)}.", *_also(verdict)]


def _also(verdict: Verdict) -> list[str]:
    """Say how much is not explained, if it is a fifth of the window or more, and who is late."""
    lines = _late_by_chance(verdict)
    if 5 * verdict.unexplained_ns >= verdict.length_ns:
        share = _share(verdict.unexplained_ns, verdict)
        lines.append(
            f"The recording does not explain another {share}; cause: {verdict.cause}"
            f"{_meanwhile(verdict)}."
        )
    return lines


def _meanwhile(verdict: Verdict) -> str:
    """Say what runs during the unexplained time."""
    work = verdict.meanwhile
    if work is None:
        return ""
    who = "the device" if work.on_device else "another thread"
    return f"; meanwhile {who} runs {_shown(work.name)} ({format_ns(work.time_ns)})"


def _late_by_chance(verdict: Verdict) -> list[str]:
    """Say that ranks wait for each other and none is the straggler, where that costs something."""
    late, gain = verdict.late, verdict.length_ns - verdict.balanced_ns
    if late is None or late.is_straggler or gain < WORTH_BALANCING * verdict.length_ns:
        return []
    done = late.repeated
    what = "steps" if done.of_steps else "collectives and transfers"
    found = f"rank {late.rank} in {done.times} of {done.repeats} {what}"
    return [f"No rank is late more than by chance: {found}. {_balance(verdict)}"]


def _unexplained(verdict: Verdict, window: str, end: int) -> list[str]:
    leading = verdict.leading
    share, at = _share(verdict.unexplained_ns, verdict), "at" if leading.name else "is"
    first = (
        f"The recording does not explain {share} of {window}: most {at} {_led(leading)}; "
        f"cause: {verdict.cause}{_meanwhile(verdict)}."
    )
    return [first, f"To know more: {_to_record(verdict, end)}."]


def _to_record(verdict: Verdict, end: int) -> str:
    leading = verdict.leading
    if verdict.cause == _BEFORE:
        rest = f"{leading.until_ns / 1e6:.3f}ms:{end / 1e6:.3f}ms"
        return (
            "call torch.cuda.synchronize() before the recording begins, or analyse what follows "
            f"with --window {rest}"
        )
    if leading.is_communication:
        return "record all ranks: the wait may be for one that is not here"
    if verdict.cause in _TO_RECORD:
        return _TO_RECORD[verdict.cause]
    if not verdict.has_stacks:
        return "record with with_stack=True, which names the Python functions between operations"
    return "mark what happens there with torch.profiler.record_function"


def _led(leading: Leading) -> str:
    name = _shown(leading.name) if leading.name else "between operations"
    return f"{name} ({format_ns(leading.time_ns)})"


def _share(time: int, verdict: Verdict) -> str:
    return format_percent(time, verdict.length_ns)


def _shown(name: str) -> str:
    return printable(name, _NAME_IN_LINE)


def _print_changes(run: Run, console: Console) -> None:
    table = make_table(
        "changes that gain most, of those tried; each alone",
        change="left", **{"step time": "right", "gain": "right",
                          f"{100 * LEVEL:.0f} % interval": "right", "share": "right",
                          "as --what-if": "left"},
    )  # fmt: skip
    for one in run.best_changes:
        table.add_row(
            name_cell(_in_words(one)), format_ns(one.step_ns), format_ns(one.gain_ns),
            format_range(one.interval.gain_low_ns, one.interval.gain_high_ns),
            format_percent(one.gain_ns, run.measured_ns), name_cell(str(one.change)),
        )  # fmt: skip
    print_table(table, console)
    if any(name_cell(str(one.change)).plain != str(one.change) for one in run.best_changes):
        console.print("changes with ... are shortened; --json has them in full")


def _in_words(one: TriedChange) -> str:
    change, about = one.change, _shown(one.about)
    if isinstance(change, Balance):
        return f"{about} spread evenly over ranks" if about else str(change)
    if isinstance(change, ScaleWait):
        return f"no {about}"
    if isinstance(change, Scale):
        return f"{about or 'communication'} twice as fast"
    if isinstance(change, NoGaps):
        return "no gaps between operations"
    return "each step in one CUDA graph" if about else "no launch overhead"
