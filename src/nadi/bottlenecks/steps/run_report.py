"""The results of ``nadi run``: as data, as JSON and CSV files, and as a page of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.bottlenecks.steps.answers import describe_interval, print_if_one_step
from nadi.bottlenecks.steps.path_changes import path_by_kind, path_changes
from nadi.bottlenecks.steps.result import (
    describe_best_changes,
    describe_prediction,
    describe_verdict,
    print_prediction,
    print_verdict,
    verdict_in_words,
)
from nadi.bottlenecks.steps.run import Run
from nadi.bottlenecks.steps.serving_report import describe_serving, print_serving
from nadi.errors import checked
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, check_writable, write_pieces
from nadi.files.whole_folders import whole_files
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.timeline.schedule_timeline import write_timeline
from nadi.graph.unexplained import LATE_NS
from nadi.graph.windows import MARK, WHOLE, step_times
from nadi.results.saved import RESULT_FILES
from nadi.results.text import TOP, make_table, name_cell, print_issues, print_table, to_json
from nadi.trace.arrays import counted_texts
from nadi.trace.issues import summed_issues
from nadi.trace.schema import UNBOUNDED
from nadi.units import (
    format_count,
    format_counted,
    format_ns,
    format_percent,
    format_range,
    printable,
)
from nadi.whatif.what_if_results import WhatIf

__all__ = ["check_results_folder", "print_path", "print_summary", "summarize", "write_results"]

_LACKS = (".not-held", ".not-traced", ".no-operators")  # what another tool's file has not
_ALWAYS_SHOWN = ("link.matched", "link.no-host")  # every result depends on how traces were matched
_NAME_IN_LINE = 40


@checked
def summarize(run: Run) -> dict[str, Any]:
    """Compute the content of ``summary.json``; times are int ns.

    ``exposed_comm_ns`` is the mean over ranks, rounded down; ``per_rank`` has each.
    """
    # what is printed has none of it, and a short run does without what it imports
    from nadi.bottlenecks.steps.result import describe_activity

    return _summary(run, describe_activity(run))


def _summary(run: Run, activity: dict[str, Any]) -> dict[str, Any]:
    exposed = [c.exposed for c in run.communication]
    return {
        "verdict": describe_verdict(run.verdict),
        "verdict_in_words": verdict_in_words(run),
        "best_changes": describe_best_changes(run),
        "ranks": len(run.job.traces),
        "world_size": run.job.world_size,
        "nodes": run.job.num_nodes,
        "nodes_by_kind": _nodes_by_kind(run),
        "dependencies_by_kind": _dependencies_by_kind(run),
        "collectives_matched": run.job.num_collectives,
        "transfers_matched": run.job.num_transfers,
        "clocks": _clocks(run),
        "window": run.window.name,
        "steps_found_by": (
            {"mark": run.steps[0].mark, "alike": run.steps[0].alike} if run.steps else None
        ),
        "steps": _steps(run),
        "serving": describe_serving(run),
        "measured_ns": run.measured_ns,
        "replayed_ns": run.replayed_ns,
        **_critical_path(run.path),
        **_explained(run),
        "exposed_comm_ns": sum(exposed) // len(exposed),
        "per_rank": [
            {"rank": c.rank, "communication_ns": c.communication, "exposed_comm_ns": c.exposed}
            for c in run.communication
        ],
        "stragglers": _stragglers(run),
        **activity,
        "what_if": [_what_if(run, asked) for asked in run.what_ifs],
        "on_system": (
            describe_prediction(run.prediction, run.path) if run.prediction else None
        ),
        "modules": _modules(run),
        "issues": _issues(run),
        "sources": [
            msgspec.to_builtins(source)
            for trace in run.job.traces
            for source in trace.provenance.sources
        ],
        "nadi_version": run.job.traces[0].provenance.nadi_version,
    }  # fmt: skip


def _steps(run: Run) -> list[dict[str, int]]:
    measured, replayed = (
        step_times(run.graph, run.steps, time).tolist()
        for time in (run.graph.time, run.replay.time)
    )
    return [
        {"step": step.number, "measured_ns": took, "replayed_ns": takes}
        for step, took, takes in zip(run.steps, measured, replayed, strict=True)
    ]


def _what_if(run: Run, asked: WhatIf) -> dict[str, Any]:
    return {
        "change": "; ".join(map(str, asked.changes)),
        "step_ns": asked.step_ns,
        "interval": describe_interval(asked.interval),
        "included": list(asked.included),
        "critical_path_by_kind": path_by_kind(asked.path),
        "path_changes": path_changes(run.path, asked.path),
    }


def _modules(run: Run) -> dict[str, Any] | None:
    if run.modules is None:
        return None
    from nadi.bottlenecks.steps.result import describe_modules  # others do not import it

    return describe_modules(run.modules)


def _critical_path(path: CriticalPath) -> dict[str, Any]:
    return {
        "critical_path_ns": path.length,
        "critical_path_by_kind": path_by_kind(path),
        "critical_path_top": [
            {"name": name, "kind": kind.replace(" ", "_"), "ns": time, "count": count,
             "ranks": ranks}
            for name, kind, time, count, ranks in path.by_operation().head(TOP).iter_rows()
        ],
    }  # fmt: skip


def _explained(run: Run) -> dict[str, Any]:
    delays = run.explained
    return {
        "explained": {
            "measured_ns": run.unexplained.length_ns,
            "explained_ns": run.unexplained.explained_ns,
        },
        "unexplained": {
            "ns": run.unexplained.total_ns,
            "by_cause": {
                cause.replace(" ", "_"): time for cause, time in run.unexplained.by_cause.items()
            },
            "inferred_ns": run.unexplained.inferred_ns,
        },
        "without_delays": {
            "measured_ns": delays.measured_ns,
            "replayed_ns": delays.explained_ns,
            "device_operations": delays.num_device_operations,
            "late_starts": delays.num_late,
        },
    }


def _stragglers(run: Run) -> dict[str, Any]:
    longest = run.stragglers.collectives.sort("waited", descending=True).head(TOP)
    return {
        "ranks": _in_ns(run.stragglers.ranks, "caused", "waited"),
        "collectives": _in_ns(longest, "time", "waited", "late", "longest"),
    }


def _in_ns(table: pl.DataFrame, *times: str) -> list[dict[str, Any]]:
    """Convert rows to objects, with the unit in the names of times."""
    return table.rename({name: f"{name}_ns" for name in times}).to_dicts()


@checked
def write_results(run: Run, folder: Path) -> list[Path]:
    """Write ``summary.json``, ``critical_path.csv`` and ``timeline.json.gz`` into ``folder``.

    Files appear only when all are complete. Times in the CSV file are ns since the
    first event of the job.
    """
    written = [folder / name for name in RESULT_FILES]
    segments = run.path.segments.with_columns(duration_ns=pl.col("end") - pl.col("start"))
    with whole_files(written) as (summary, csv, timeline):
        write_pieces(summary, [to_json(summarize(run))])
        write_pieces(csv, [csv_bytes(segments.rename({"start": "start_ns", "end": "end_ns"}))])
        write_timeline(timeline, run.replay, run.path)
    return written


def check_results_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that :func:`write_results` can write into a folder; writes nothing.

    Raises
    ------
    InputError
        If a file exists already and ``overwrite`` is not given, or cannot be written.
    """
    for name in RESULT_FILES:
        check_target(folder / name, [], overwrite=overwrite)
        check_writable(folder / name)


def print_summary(run: Run, console: Console) -> None:
    """Print the page of text."""
    data = _summary(run, {})
    print_verdict(run, console)
    _print_what_ifs(data, console)
    console.print()
    _print_job(data, console)
    _print_times(run, data, console)
    print_path(run.path, console)
    _print_explained(run, console)
    _print_communication(data, console)
    _print_stragglers(data, console)
    if run.modules:
        from nadi.bottlenecks.steps.result import print_modules

        print_modules(run.modules, run.path.length, console)
    if data["on_system"]:
        print_prediction(data["on_system"], console)
    shown = (
        i for i in data["issues"]
        if i["severity"] != "info" or i["code"] in _ALWAYS_SHOWN or i["code"].endswith(_LACKS)
    )  # fmt: skip
    print_issues(shown, console)


def _print_job(data: dict[str, Any], console: Console) -> None:
    ranks = format_counted(data["ranks"], "rank")
    if data["world_size"] > data["ranks"]:
        ranks += f" of {data['world_size']}"
    kinds = ", ".join(f"{format_count(n)} {kind}" for kind, n in data["nodes_by_kind"].items())
    console.print(f"[bold]{ranks}[/], {format_count(data['nodes'])} nodes: {kinds}")
    deps = ", ".join(f"{format_count(n)} {k}" for k, n in data["dependencies_by_kind"].items())
    matched = format_counted(data["collectives_matched"], "collective")
    if data["transfers_matched"]:
        matched += f", {format_counted(data['transfers_matched'], 'point-to-point transfer')}"
    console.print(f"dependencies: {deps}")
    if data["ranks"] > 1:
        console.print(f"matched across ranks: {matched}")
    _print_clocks(data["clocks"], console)


def _print_clocks(clocks: list[dict[str, Any]], console: Console) -> None:
    """Print the bound on clock skew against the reference ranks, and whether it was corrected."""
    bounds = [
        clock[end]
        for clock in clocks
        if clock["rank"] != clock["reference"]
        for end in ("low_ns", "high_ns")
    ]
    if not bounds:
        return
    most = "not bounded" if None in bounds else f"at most {format_ns(max(map(abs, bounds)))}"
    shifted = sum(clock["shift_ns"] != 0 for clock in clocks)
    correction = (
        f"corrected on {shifted} of {len(clocks)} ranks" if shifted else ("no correction applied")
    )
    console.print(f"clock skew between ranks: {most} ({correction})")


def _print_times(run: Run, data: dict[str, Any], console: Console) -> None:
    steps = data["steps"]
    if steps:
        shown = ", ".join(f"{s['step']}: {format_ns(s['measured_ns'])}" for s in steps[:8])
        more = f", and {len(steps) - 8} more" if len(steps) > 8 else ""
        console.print(f"steps: {shown}{more}")
        if data["serving"]:
            print_serving(data["serving"], console)
        else:
            _print_found_steps(run, console)
    else:
        console.print(
            "steps: none (no ProfilerStep annotations, and nothing repeats)"
            + ("; the whole trace is analysed" if run.window.name == WHOLE else "")
        )
    same = "identical" if run.measured_ns == run.replayed_ns else "NOT the measured time"
    console.print(
        f"[bold]{run.window.name}[/]: measured [bold]{format_ns(run.measured_ns)}[/]"
        f"{_until_its_work_ends(run, steps)}, replayed {format_ns(run.replayed_ns)} ({same})"
    )


def _until_its_work_ends(run: Run, steps: list[dict[str, int]]) -> str:
    """Say how a step that is analysed alone differs from its time above, if it does."""
    took = next((s["measured_ns"] for s in steps if s["step"] == run.window.number), -1)
    if took < 0 or took == run.measured_ns:
        return ""
    return f" from its mark until all its work ends ({format_ns(took)} to the next mark)"


def _print_found_steps(run: Run, console: Console) -> None:
    """Say what steps were found by, if the profiler did not mark them."""
    mark, alike = run.steps[0].mark, run.steps[0].alike
    if mark == MARK:
        return
    whole = "; the whole trace is analysed, --step N takes one" if run.window.name == WHOLE else ""
    console.print(
        Text(
            f"no ProfilerStep annotations: steps begin or end with {printable(mark, _NAME_IN_LINE)}"
            f", and are {format_percent(alike, 1)} alike{whole}"
        )
    )


def _print_explained(run: Run, console: Console) -> None:
    """Print how much of the path the recording explains, and the causes of the rest."""
    found = run.unexplained
    total = found.length_ns
    line = (
        f"explained by dependencies: [bold]{format_ns(found.explained_ns)}[/] of the critical path "
        f"({format_percent(found.explained_ns, total)})"
    )
    if found.total_ns:
        causes = [f"{cause} {format_ns(time)}" for cause, time in found.by_cause.items() if time]
        line += (
            f"; unexplained: [bold]{format_ns(found.total_ns)}[/] "
            f"({format_percent(found.total_ns, total)}): {', '.join(causes)}"
        )
    console.print(line)
    if found.inferred_ns:
        console.print(
            f"rests on inferred dependencies: {format_ns(found.inferred_ns)} of the path "
            f"({format_percent(found.inferred_ns, total)})"
        )
    late = run.explained
    if late.num_late:
        console.print(
            f"{format_count(late.num_late)} of {format_count(late.num_device_operations)} device "
            f"operations start over {format_ns(LATE_NS)} later than their dependencies explain"
        )


def print_path(path: CriticalPath, console: Console) -> None:
    """Print the critical path by kind and by operation."""
    table = make_table("critical path by kind", kind="left", time="right", share="right")
    total = path.length
    for kind, time in path.by_kind().items():
        if not time:
            continue
        table.add_row(kind, format_ns(time), format_percent(time, total))
    table.add_row("total", format_ns(total), "", style="bold")
    print_table(table, console)
    table = make_table(
        "top operations on the critical path",
        operation="left", kind="left", time="right", share="right", count="right", ranks="left",
    )  # fmt: skip
    for name, kind, time, count, ranks in path.by_operation().head(TOP).iter_rows():
        shown = name_cell(name, "(between operations)")
        on = ",".join(map(str, ranks))
        table.add_row(
            shown, kind, format_ns(time), format_percent(time, total), format_count(count), on
        )
    print_table(table, console)


def _print_communication(data: dict[str, Any], console: Console) -> None:
    exposed, total = data["exposed_comm_ns"], data["measured_ns"]
    if not any(rank["communication_ns"] for rank in data["per_rank"]):
        return
    worst = max(data["per_rank"], key=lambda rank: rank["exposed_comm_ns"])
    most = f"; most on rank {worst['rank']}: {format_ns(worst['exposed_comm_ns'])}"
    console.print(
        f"exposed communication: [bold]{format_ns(exposed)}[/] "
        f"({format_percent(exposed, total)}){', mean over ranks' if data['ranks'] > 1 else ''}"
        f"{most if data['ranks'] > 1 else ''}"
    )


def _print_stragglers(data: dict[str, Any], console: Console) -> None:
    found = data["stragglers"]
    if not found["collectives"]:
        return
    table = make_table(
        "stragglers in collectives and transfers",
        rank="right", **{"times last": "right", "wait time caused": "right",
                         "own wait time": "right"},
    )  # fmt: skip
    for row in found["ranks"]:
        if not (row["times_last"] or row["caused_ns"] or row["waited_ns"]):
            continue
        table.add_row(
            str(row["rank"]), format_count(row["times_last"]), format_ns(row["caused_ns"]),
            format_ns(row["waited_ns"]),
        )  # fmt: skip
    print_table(table, console)
    worst = max(found["collectives"], key=lambda row: row["longest_ns"])
    what = printable(worst["operation"], _NAME_IN_LINE) or "between operations"
    line = (
        f"longest wait: {format_ns(worst['longest_ns'])} for rank {worst['rank']} in "
        f"{printable(worst['name'], _NAME_IN_LINE)}; cause of the delay: {worst['cause']}, "
        f"mostly {what}"
    )
    console.print(Text(line))


def _print_what_ifs(data: dict[str, Any], console: Console) -> None:
    for change in data["what_if"]:
        gain = data["replayed_ns"] - change["step_ns"]
        interval = change["interval"]
        console.print(
            Text.assemble(
                "what if ", (change["change"], "bold"), ": ",
                (format_ns(change["step_ns"]), "bold"),
                f", {format_percent(abs(gain), data['replayed_ns'])} "
                f"{'shorter' if gain >= 0 else 'longer'} "
                f"(90 % interval: {format_range(interval['low_ns'], interval['high_ns'])})",
            )
        )  # fmt: skip
        for text in change["included"]:
            console.print(Text(f"  {printable(text)}"))
    predicted = data["what_if"] or data["best_changes"]
    if predicted:
        print_if_one_step(predicted[0]["interval"]["steps"], console)


def _nodes_by_kind(run: Run) -> dict[str, int]:
    return counted_texts(pl.concat([trace.nodes["category"] for trace in run.job.traces]))


def _dependencies_by_kind(run: Run) -> dict[str, int]:
    return counted_texts(pl.concat([trace.deps["kind"] for trace in run.job.traces]))


def _clocks(run: Run) -> list[dict[str, Any]]:
    """Return the shift and bounds of each rank's clock; None where it is unbounded."""
    return [
        {
            "rank": rank,
            "reference": reference,
            "shift_ns": shift,
            "low_ns": low if low > -UNBOUNDED else None,
            "high_ns": high if high < UNBOUNDED else None,
        }
        for rank, reference, shift, low, high in run.job.clocks.iter_rows()
    ]


def _issues(run: Run) -> list[dict[str, Any]]:
    tables = [*(trace.issues for trace in run.job.traces), run.job.issues]
    return summed_issues(tables).to_dicts()
