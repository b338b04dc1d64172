"""What ranks and streams do, and totals of operations and collectives: as data.

The time of modules; in text layers that are alike share a row.

The verdict of ``nadi run``: what bounds the window, and the changes that gain most.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from rich.text import Text

from nadi.bottlenecks.steps.answers import describe_interval, time_title
from nadi.bottlenecks.steps.run import Run
from nadi.bottlenecks.steps.verdict import LateRank, Leading, Verdict
from nadi.errors import UsageError
from nadi.files.remedies import Remedies, remedies_of
from nadi.graph.module_times import OUTSIDE, ModuleTimes
from nadi.graph.operation_totals import LeastTime, collective_totals, operation_totals
from nadi.graph.rank_excess import REASONS, Excess, ExcessPart
from nadi.graph.time_parts import rank_activity, stream_activity
from nadi.graph.unexplained import CAUSES
from nadi.graph.windows import WHOLE
from nadi.results.declared import (
    COUNT,
    NS,
    PAGE,
    TEXT,
    Column,
    Lines,
    Result,
    Rows,
    Unit,
    barred,
    in_words,
    range_of,
    share_of,
    text_of,
)
from nadi.results.page.figures import text
from nadi.results.text import name_cell
from nadi.systems.library import read_system_file, recorded_devices, shipped_systems
from nadi.systems.system import System
from nadi.trace.categories import OTHER_KERNELS
from nadi.trace.trace import Job
from nadi.units import format_count, format_ns, format_percent, format_range, shown_name
from nadi.whatif.balance_change import Balance
from nadi.whatif.changes import NoGaps, Remove, Scale, ScaleWait
from nadi.whatif.prediction_intervals import LEVEL
from nadi.whatif.promising_changes import LEAST_GAIN, TriedChange
from nadi.whatif.selection import Selection
from nadi.whatif.what_if_results import what_if

_MOST = 30  # names of operations and of collectives


def describe_activity(run: Run) -> dict[str, Any]:
    """Compute the parts of ``summary.json`` on activity and totals; times are int ns.

    ``activity`` has an object per rank, ``streams`` one per thread and stream; ``operations`` and
    ``collectives`` have the 30 with most time, and ``collectives_bound_by`` names the system whose
    links their bounds are of.
    """
    graph, window = run.graph, run.window
    system, reason, least_time = link_bounds(run) or ("", "", None)
    collectives = collective_totals(graph, window, least_time)
    renamed = {name: f"{name}_gb_per_s"
               for name in ("bandwidth", "bus_bandwidth", "bound_bus_bandwidth")}  # fmt: skip
    return {
        "activity": in_ns(
            rank_activity(graph, window), "computing", "transferring", "waiting", "copying", "idle"
        ),
        "streams": in_ns(stream_activity(graph, window), "busy", "communicating", "idle"),
        "operations": in_ns(
            operation_totals(graph, window).head(_MOST), "time", "shortest", "longest"
        ),
        "collectives": in_ns(
            collectives.head(_MOST).rename(renamed), "waiting", "transferring", "bound"
        ),
        "collectives_bound_by": ({"system": system, "reason": reason} if system else None),
    }


def in_ns(table: pl.DataFrame, *times: str) -> list[dict[str, Any]]:
    """Convert rows to objects, with the unit in the names of times."""
    return table.rename({name: f"{name}_ns" for name in times}).to_dicts()


_TIMES = tuple(
    f"{phase}_{place}"
    for place in ("host", "device")
    for phase in ("forward", "backward", "optimizer", "other")
)
_ALIKE = 0.25  # layers share a row that differ from their median by at most this part of it
_MAX_ROWS, _MOST_MODULES = 40, 100  # in text, and on pages
_NO_MODULES = "modules: none recorded; nadi record and nadi.record record them"
_NOT_RECORDED = " (annotations and functions)"
_DIGITS = "0123456789"
_INDENT = "  "


def describe_modules(found: ModuleTimes) -> dict[str, Any]:
    """Compute the JSON output: a row per module, times in int ns."""
    times = {name: f"{name}_ns" for name in (*_TIMES, "critical")}
    return {
        "recorded": found.is_recorded,
        "optimizer": found.optimizer,
        "rows": found.table.rename(times).to_dicts(),
    }


def _indented(name: str, _: dict[str, Any]) -> Text:
    return Text(name[: len(name) - len(name.lstrip())]) + name_cell(name.lstrip())


_MODULE_COLUMNS = (
    Column("module", "module", Unit(_indented, lambda _, __, value: text(value), "*")),
    Column("calls", "calls", text_of(lambda calls: format_count(calls) if calls else ""), on=TEXT),
    Column("calls", "calls", COUNT, "of its forward", on=PAGE),
    *(Column(f"{name}_ns", name.replace("_", " "), NS, is_rare=True) for name in _TIMES),
    Column("device_operations", "device operations", COUNT, is_rare=True),
    Column("critical_ns", "on the path", share_of("critical_path_ns"), on=TEXT),
    Column("critical_ns", "on the critical path", barred(NS), on=PAGE),
    Column("each", "each: min, median, max", in_words(
        lambda times: ", ".join(format_ns(int(time)) for time in times)), on=TEXT),
)  # fmt: skip


def _module_groups(data: dict[str, Any]) -> Iterator[tuple[tuple[()], dict[str, Any]]]:
    """Sum up layers that are alike; those in repeated layers are in the JSON output only."""
    rows = data["modules"]["rows"]
    for name, alike in _groups(rows):
        group = [rows[i] for i in alike]
        each = [_total(row) for row in group] if len(group) > 1 else []
        sums = {key: sum(row[key] for row in group) for key in rows[0] if key != "module"}
        sums |= {"calls": 0} if name == OUTSIDE else {}
        spread = (min(each), np.median(each), max(each)) if each else ()
        yield (), {**sums, "module": name, "each": spread}


def _with_most_time(data: dict[str, Any]) -> list[int]:
    rows = data["modules"]["rows"]
    return sorted(sorted(range(len(rows)), key=lambda i: -_total(rows[i]))[:_MOST_MODULES])


_MODULE_ROWS = Rows(
    "modules/rows",
    lambda data: f"time by module{'' if data['modules']['recorded'] else _NOT_RECORDED}", None,
    _MODULE_COLUMNS, lambda data: "" if len(data["modules"]["rows"]) > 1 else _NO_MODULES,
    top=_MAX_ROWS, most=_MOST_MODULES,
)  # fmt: skip
MODULES = Result(
    kind="module", title="Modules", order=30, facts=(), headline=None,
    parts=(
        _MODULE_ROWS._replace(made=_module_groups, on=TEXT),
        _MODULE_ROWS._replace(pick=_with_most_time, on=PAGE),
        Lines(lambda data: [f"optimizer: {data['modules']['optimizer']}"]
              if data["modules"]["optimizer"] and len(data["modules"]["rows"]) > 1 else []),
        Lines(lambda data: [f"Modules with less time than these {_MOST_MODULES} are left out."]
              if len(data["modules"]["rows"]) > _MOST_MODULES else [], on=PAGE),
    ),
    at="", needs="modules",
)  # fmt: skip
"""The time of modules; on a page those with most time."""


def _groups(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows to print: a name, and the rows of the table that share it, in order."""
    inner: dict[int, dict[str, list[int]]] = {}
    names = []
    for number, row in enumerate(rows[:-1]):
        path, around = row["module"], row["parent"]
        names.append(path.removeprefix(f"{rows[around]['module']}.") if around >= 0 else path)
        kind = names[number].rstrip(_DIGITS)
        inner.setdefault(around, {}).setdefault(kind, []).append(number)
    total = list(map(_total, rows))

    def walk(around: int, indent: str) -> Iterator[tuple[str, list[int]]]:
        for kind, mine in inner.get(around, {}).items():
            middle = np.median([total[row] for row in mine])
            alike = [row for row in mine if abs(total[row] - middle) <= _ALIKE * middle]
            if len(alike) > 1:
                last = names[alike[-1]].removeprefix(kind)
                yield f"{indent}{names[alike[0]]}-{last} ({len(alike)} x)", alike
            for row in mine if len(alike) < 2 else sorted(set(mine) - set(alike)):
                yield indent + names[row], [row]
                if len(mine) == 1:
                    yield from walk(row, indent + _INDENT)

    yield from walk(-1, "")
    yield OUTSIDE, [len(rows) - 1]


def _total(row: dict[str, Any]) -> int:
    """Return the time of a module on host and device; ns."""
    return sum(row[f"{name}_ns"] for name in _TIMES)


_NAME_IN_LINE = 60
_A, _WAIT_IN = "a ", "wait in "  # as recordings name waits of threads
_MORE, _SLOWER, _FUNCTIONS, _BETWEEN, _LATER, _ = REASONS
_ONE_NAME = 0.8  # of an excess
_BEFORE, _NOT_SCHEDULED, _UNKNOWN_WAIT, _BEGINS_LATER, _UNKNOWN = CAUSES
_TO_RECORD = {
    _NOT_SCHEDULED: "the thread was ready and not running: see what else runs on the machine",
    _BEGINS_LATER: "record the same steps on all ranks, and the steps before them, too",
    _UNKNOWN_WAIT: "record device activities too, and begin before the work that is waited for",
}


def describe_verdict(verdict: Verdict) -> dict[str, Any]:
    """Compute the verdict's part of ``summary.json``."""
    return asdict(verdict)


def describe_best_changes(run: Run) -> list[dict[str, Any]]:
    """Compute the part of ``summary.json`` on the changes that gain most; times are int ns."""
    return [
        {"change": str(one.change), "about": one.about, "in_words": _in_words(one),
         "window_ns": one.window_ns, "step_ns": one.step_ns, "gain_ns": one.gain_ns,
         "interval": describe_interval(one.interval)}
        for one in run.best_changes
    ]  # fmt: skip


def describe_no_gain(run: Run) -> dict[str, Any] | None:
    """Compute why no change gains: what bounds the window with all operations twice as fast.

    None if one gains.
    """
    if run.best_changes:
        return None
    answer = what_if(run.graph, Scale(Selection(), 0.5), window=run.window)
    kind, name = answer.bound_by
    return {"window_ns": answer.window_ns, "step_ns": answer.step_ns,
            "bound_by_kind": kind.replace(" ", "_"), "bound_by_operation": name}  # fmt: skip


def verdict_in_words(run: Run) -> list[str]:
    """Say what bounds the window, in sentences; the first is the verdict itself."""
    verdict = run.verdict
    window = "the whole trace" if run.window.name == WHOLE else run.window.name
    others = [_others(verdict, window)] if verdict.is_by_others else []
    return [*others, *_bound_in_words(run, window)]


def _others(verdict: Verdict, window: str) -> str:
    return (
        f"Other threads bound {window}: they have the processors for "
        f"{_share(verdict.not_run_ns, verdict)} of the time, while the thread of the steps is "
        "ready to run; record where nothing else runs."
    )


def _bound_in_words(run: Run, window: str) -> list[str]:
    """Say what bounds the window of what the program does."""
    verdict = run.verdict
    end = run.window.end(run.graph.time)
    remedies = remedies_of(run.job.traces[0])
    if verdict.bound_by == "unexplained":
        return _unexplained(verdict, window, end, remedies)
    lines = {
        "straggler": _straggler, "communication": _communication, "device": _device,
        "host": _host,
    }[verdict.bound_by](verdict, window)  # fmt: skip
    if verdict.bound_by == "host" and verdict.leading.is_gap:
        lines.append(f"To know more: {_to_name(verdict, remedies)}.")
    if run.window.after_earlier_work:
        late = format_ns(run.window.start(run.graph.time))
        lines.append(
            f"The device's work is recorded from {late} on, though calls launch it before: "
            "probably the device did work that began before the recording; "
            f"--window 0ms:{end / 1e6:.3f}ms analyses all."
        )
    return lines


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
    share = _share(verdict.length_ns - verdict.balanced_ns, verdict)
    low, high = verdict.balanced_gain_ns or (1, 1)
    if low > 0:
        return f"Balanced ranks would gain {share}."
    interval = f"{100 * LEVEL:.0f} % interval {format_range(low, high)}"
    return f"Balanced ranks would gain {share}, which is not sure: {interval}."


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
    if excess.reason == _FUNCTIONS:
        own, others = (format_ns(one // steps) for one in (most.time_ns, most.others_ns))
        rest = f"the others {others}" if most.others_ns else "in which the others are not seen"
        return f"it spends {own} in {name}, {rest}"
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
    leads = f"{leading.kernel_class} leads"
    if leading.kernel_class == OTHER_KERNELS:
        leads = "kernels of no known class lead"
    first = (
        f"The device bounds {window}{_mostly(verdict)}: {share}, {leads} with "
        f"{_share(leading.class_ns, verdict)}, most in {_led(leading)}."
    )
    return [first, *_also(verdict)]


def _host(verdict: Verdict, window: str) -> list[str]:
    host = verdict.host_ns
    first = (
        f"The host bounds {window}{_mostly(verdict)}: {_share(host, verdict)} of the critical path"
    )
    leads = verdict.leading
    is_wait = leads.is_wait or leads.name.startswith(_WAIT_IN)
    if verdict.device_idle_ns >= 0:
        first += f", while the device is idle for {_share(verdict.device_idle_ns, verdict)}"
    elif not is_wait or 2 * leads.time_ns <= host:  # a thread that waits runs no operators
        is_between = 2 * verdict.gaps_ns > host
        first += f", {'most of it between' if is_between else 'in'} operators on the CPU"
    if leads.is_gap:
        return [f"{first}{_in_gaps(verdict)}.", *_also(verdict)]
    before = "waits before " if leads.is_wait else _A if leads.name.startswith(_WAIT_IN) else ""
    most = f"{before}{_led(leads)}" if leads.name else f"no operator ({format_ns(leads.time_ns)})"
    if leads.range_name:
        share = _share(leads.range_ns, verdict)
        if leads.called_ns < leads.range_ns:
            share += f" with its backward, {_share(leads.called_ns, verdict)} without"
        most = f"{_shown(leads.range_name)} ({share}), of that most in {most}"
    others = {"between operations": verdict.gaps_ns, "in runtime calls": verdict.calls_ns}
    parts = [(_share(time, verdict), what) for what, time in others.items()
             if 10 * time >= verdict.length_ns]  # fmt: skip
    rest = "".join(f"{' and ' if i else '; '}{share}{'' if i else ' of the path lies'} {what}"
                   for i, (share, what) in enumerate(parts))  # fmt: skip
    return [f"{first}; most in {most}{rest}.", *_once(leads), *_also(verdict)]


def _mostly(verdict: Verdict) -> str:
    """Say which rank has most of the path, where it does more than the others."""
    return f", mostly on rank {verdict.heaviest}" if verdict.heaviest >= 0 else ""


def _in_turn(verdict: Verdict) -> list[str]:
    """Say what the rank with most of the path does more, where balanced ranks would gain little."""
    late = verdict.late
    if verdict.heaviest < 0 or late is None or verdict.is_worth_balancing:
        return []
    more = f"Rank {late.rank} has more work than the others: {_reason(late, verdict)}"
    return [f"{more}. Balanced ranks would gain little, as ranks work in turn."]


def _once(leads: Leading) -> list[str]:
    """Say that one operation of many has most of their time, and how to know if that repeats."""
    one = leads.one_off
    if one is None:
        return []
    share = format_percent(one.time_ns, leads.time_ns)
    first = (
        f"One {_shown(leads.name)} of {format_count(one.count)} takes {format_ns(one.time_ns)} of "
        f"that ({share})"
    )
    if not one.first_launch:
        return [f"{first}; record more steps to see whether that repeats."]
    advice = "may load or compile code, which later steps do not repeat: record after a warm-up"
    launched = f"the first launch of {_shown(one.first_launch)} in the recording"
    return [f"{first}: {launched}. A first launch {advice}."]


def _in_gaps(verdict: Verdict) -> str:
    """Say that a thread does most in long gaps, which nothing names."""
    unnamed = f", and {_share(verdict.unnamed_ns, verdict)} in long gaps between operations"
    leads = verdict.leading
    before = _led(leads) if leads.name else f"the end of a step ({format_ns(leads.time_ns)})"
    return (
        f"{unnamed if 20 * verdict.unnamed_ns >= verdict.length_ns else ''}; most before "
        f"{before}, in Python or a wait that the recording does not name"
        f"{_meanwhile(verdict)}"
    )


def _also(verdict: Verdict) -> list[str]:
    """Say how much is not explained, if it is a fifth of the window or more, and who is late."""
    lines = [*_in_turn(verdict), *_late_by_chance(verdict)]
    rest = verdict.unexplained_ns - (verdict.unnamed_ns if verdict.leading.is_gap else 0)
    if 5 * rest >= verdict.length_ns:
        before = f", most before {_shown(verdict.unnamed_before)} "
        before += f"({format_ns(verdict.unnamed_before_ns)})"
        is_most = verdict.unnamed_before and 2 * verdict.unnamed_before_ns >= rest
        lines.append(
            f"The recording does not explain another {_share(rest, verdict)}"
            f"{before if is_most and not verdict.leading.is_gap else ''}; cause: {verdict.cause}"
            f"{_meanwhile(verdict)}."
        )
        if verdict.cause in _TO_RECORD:
            lines.append(f"To know more: {_TO_RECORD[verdict.cause]}.")
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
    late = verdict.late
    if late is None or late.is_straggler or not verdict.is_worth_balancing:
        return []
    done = late.repeated
    what = "steps" if done.of_steps else "collectives and transfers"
    found = f"rank {late.rank} in {done.times} of {done.repeats} {what}"
    return [f"No rank is late more than by chance: {found}. {_balance(verdict)}"]


def _unexplained(verdict: Verdict, window: str, end: int, remedies: Remedies) -> list[str]:
    leading = verdict.leading
    share, at = _share(verdict.unexplained_ns, verdict), "at" if leading.name else "is"
    first = (
        f"The recording does not explain {share} of {window}: most {at} {_led(leading)}; "
        f"cause: {verdict.cause}{_meanwhile(verdict)}."
    )
    return [first, f"To know more: {_to_record(verdict, end, remedies)}."]


def _to_record(verdict: Verdict, end: int, remedies: Remedies) -> str:
    leading = verdict.leading
    if verdict.cause == _BEFORE:
        rest = f"{leading.until_ns / 1e6:.3f}ms:{end / 1e6:.3f}ms"
        return f"{remedies.idle}, or analyse what follows with --window {rest}"
    if leading.is_communication:
        return "record all ranks: the wait may be for one that is not here"
    if verdict.cause in _TO_RECORD:
        return _TO_RECORD[verdict.cause]
    return _to_name(verdict, remedies)


def _to_name(verdict: Verdict, remedies: Remedies) -> str:
    """Say how to name what a thread does between operations."""
    return (verdict.has_stacks and remedies.marks) or remedies.names


def _led(leading: Leading) -> str:
    name = _shown(leading.name) if leading.name else "between operations"
    return f"{name} ({format_ns(leading.time_ns)})"


def _share(time: int, verdict: Verdict) -> str:
    return format_percent(time, verdict.length_ns)


def _shown(name: str) -> str:
    return shown_name(name, _NAME_IN_LINE)


def _in_words(one: TriedChange) -> str:
    change, about = one.change, _shown(one.about)
    if isinstance(change, Balance):
        return f"{about} spread evenly over ranks" if about else str(change)
    if isinstance(change, Remove):
        return about
    if isinstance(change, ScaleWait):
        return f"no {about}"
    if isinstance(change, Scale):
        return f"{about or 'communication'} twice as fast"
    if isinstance(change, NoGaps):
        return "no gaps between operations"
    return "each step in one CUDA graph" if about else "no launch overhead"


def _no_gain(data: dict[str, Any]) -> Iterator[str]:
    """Say that no change gains, and why."""
    if why := data.get("no_gain"):
        name = _shown(why["bound_by_operation"] or "time between operations")
        kind = why["bound_by_kind"].replace("_", " ")
        yield (
            f"no change of those tried gains {100 * LEAST_GAIN:g} % or more; with all operations "
            f"twice as fast: {time_title(data)} {format_ns(why['window_ns'])}, bound by {name} "
            f"({kind})"
        )


def _shortened(data: dict[str, Any]) -> Iterator[str]:
    changes = [row["change"] for row in data["best_changes"]]
    if any(name_cell(change).plain != change for change in changes):
        yield "changes with ... are shortened; --json has them in full"


def _best_columns(data: dict[str, Any]) -> tuple[Column, ...]:
    return (
        Column("in_words", "change", shown=lambda row: row.get("in_words", row["change"])),
        Column("window_ns", time_title(data), NS, "after the change alone"),
        Column("gain_ns", "gain", NS, "how much shorter that is than measured"),
        Column("interval", f"{100 * LEVEL:.0f} % interval",
               range_of("gain_low_ns", "gain_high_ns"), "of the gain"),
        Column("gain_ns", "share", barred(share_of("measured_ns"), "gain"), "of the measured time"),
        Column("change", "as --what-if"),
    )  # fmt: skip


VERDICT = Result(
    kind="verdict", title="Verdict", order=0, facts=(),
    headline=lambda data: data["verdict_in_words"][0],
    parts=(
        Lines(lambda data: data["verdict_in_words"][1:]),
        Rows("best_changes", "changes that gain most, of those tried; each alone", None,
             _best_columns),
        Lines(_no_gain), Lines(_shortened, on=TEXT),
    ),
    at="", needs="verdict_in_words",
)  # fmt: skip
"""What bounds the window, and the changes that gain most."""


def link_bounds(run: Run) -> tuple[str, str, LeastTime] | None:
    """Return whose links bound collectives: the given system, or one of the recorded device.

    Its name, why this one, and the bound.

    None if no system was given, and none of those that ship with Nadi has the device and room for
    the ranks.
    """
    if not run.job.num_collectives:
        return None
    if run.prediction is not None:
        return _bounds(run.prediction.change.system, "as given")
    found = _recorded_system(run.job)
    return _bounds(*found) if found else None


def _bounds(system: System, reason: str) -> tuple[str, str, LeastTime]:
    from nadi.simulation.alone.collective import least_collective_time  # imports the simulator

    return system.name, reason, partial(least_collective_time, system)


def _recorded_system(job: Job) -> tuple[System, str] | None:
    recorded = recorded_devices(job)
    for name in shipped_systems() if recorded else ():
        described = read_system_file(name)
        if any(device in recorded for device in described.compute.devices):
            try:
                return described.fit(job.world_size), f"it has the recorded device, {recorded}"
            except UsageError:
                continue
    return None
