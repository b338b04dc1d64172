"""The verdict of ``nadi run``: what bounds the window, and the changes that gain most."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.bottlenecks.steps.run import Run
from nadi.bottlenecks.steps.verdict import WORTH_BALANCING, LateRank, Leading, Verdict
from nadi.bottlenecks.steps.what_if_report import describe_interval
from nadi.graph.rank_excess import REASONS, Excess, ExcessPart
from nadi.graph.unexplained import CAUSES
from nadi.graph.windows import WHOLE
from nadi.results.text import make_table, name_cell, print_table
from nadi.units import format_count, format_ns, format_percent, format_range, printable
from nadi.whatif.balance_change import Balance
from nadi.whatif.prediction_intervals import LEVEL
from nadi.whatif.promising_changes import TriedChange
from nadi.whatif.scale_and_overhead_changes import NoGaps, Scale
from nadi.whatif.wait_changes import ScaleWait

__all__ = ["describe_best_changes", "describe_verdict", "print_verdict", "verdict_in_words"]

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
