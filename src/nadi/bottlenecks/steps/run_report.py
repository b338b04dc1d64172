"""What ``nadi run`` tells: its results as data, declared for text and pages, and in files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.analyses.recorded.over_time import recorded_counters
from nadi.bottlenecks.steps.answers import (
    after_change,
    describe_interval,
    measured_line,
    one_step_line,
    time_title,
)
from nadi.bottlenecks.steps.path_changes import path_by_kind, path_changes
from nadi.bottlenecks.steps.prediction_result import ON_SYSTEM
from nadi.bottlenecks.steps.result import (
    MODULES,
    VERDICT,
    describe_activity,
    describe_best_changes,
    describe_modules,
    describe_no_gain,
    describe_verdict,
    in_ns,
    verdict_in_words,
)
from nadi.bottlenecks.steps.run import Run
from nadi.bottlenecks.steps.serving_report import SERVING, describe_serving
from nadi.errors import checked
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, write_pieces
from nadi.files.remedies import remedies_of
from nadi.files.whole_folders import whole_files
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.timeline.schedule_timeline import write_timeline
from nadi.graph.unexplained import LATE_NS
from nadi.graph.windows import MARK, WHOLE, step_times
from nadi.results.declared import (
    ALL,
    BYTES,
    COUNT,
    GB_PER_S,
    KIND,
    NS,
    PAGE,
    PLAIN,
    RANKS,
    TEXT,
    UNCUT,
    WORDS,
    Column,
    Facts,
    Html,
    Lines,
    Result,
    Rows,
    Sums,
    Tiles,
    barred,
    name_or,
    number,
    share_of,
    stacked,
)
from nadi.results.page.figures import Figures, stacked_bar, text
from nadi.results.saved import RESULT_FILES
from nadi.results.text import TOP, issue_lines, to_json
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
    shown_name,
)
from nadi.whatif.what_if_results import WhatIf

_LACKS = (".not-held", ".not-traced", ".no-operators")  # what another tool's file has not
# every result depends on which traces were read, how they were matched, and kernels of graphs
_ALWAYS_SHOWN = (
    "link.matched", "link.no-host", "job.iterations", "graphs.joined", "graphs.by-position",
    "graphs.earlier", "graphs.no-capture",
)  # fmt: skip
_NAME_IN_LINE = 40
_STEPS = 8  # in a line
_MANY = 200  # rows of a table of ranks or streams
_UNCORRECTED = "no correction applied"
_READ = {
    "ranks": "ranks of the recording",
    "world_size": "ranks of the job",
    "nodes": "operations",
    "collectives_matched": "collectives matched across ranks",
    "transfers_matched": "transfers matched across ranks",
}
_ACTIVITY = {
    "computing": "compute",
    "transferring": "exposed transfer",
    "waiting": "exposed wait for stragglers",
    "copying": "exposed copies",
    "idle": "idle",
}
_FRACTION = barred(number(lambda value: format_percent(value, 1) if value >= 0 else "-"))
_SEVERITY = WORDS._replace(
    write=lambda _, __, value: f'<span class="severity {value}">{text(value)}</span>'
    if value in ("info", "warning", "error") else text(value)
)  # fmt: skip
_Data = dict[str, Any]


@checked
def summarize(run: Run) -> dict[str, Any]:
    """Compute the content of ``summary.json``; times are int ns.

    ``exposed_comm_ns`` is the mean over ranks, rounded down; ``per_rank`` has each.
    """
    return _summary(run, describe_activity(run))


def _summary(run: Run, activity: dict[str, Any]) -> dict[str, Any]:
    exposed = [c.exposed for c in run.communication]
    return {
        "verdict": describe_verdict(run.verdict),
        "verdict_in_words": verdict_in_words(run),
        "best_changes": describe_best_changes(run),
        "no_gain": describe_no_gain(run),
        "ranks": len(run.job.traces),
        "world_size": run.job.world_size,
        "nodes": run.job.num_nodes,
        "nodes_by_kind": _nodes_by_kind(run),
        "dependencies_by_kind": _dependencies_by_kind(run),
        "collectives_matched": run.job.num_collectives,
        "transfers_matched": run.job.num_transfers,
        "clocks": _clocks(run),
        "window": run.window.name,
        "num_steps": run.num_steps,
        "steps_found_by": (
            {"mark": run.steps[0].mark, "alike": run.steps[0].alike} if run.steps else None
        ),
        "steps": _steps(run),
        "to_have_steps": "" if run.steps else remedies_of(run.job.traces[0]).steps,
        "serving": describe_serving(run),
        "measured_ns": run.measured_ns,
        "replayed_ns": run.replayed_ns,
        **describe_path(run.path),
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
            ON_SYSTEM.data((run.prediction, run.path)) if run.prediction else None
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
        "window_ns": asked.window_ns,
        "step_ns": asked.step_ns,
        "interval": describe_interval(asked.interval),
        "included": list(asked.included),
        "critical_path_by_kind": path_by_kind(asked.path),
        "path_changes": path_changes(run.path, asked.path),
    }


def _modules(run: Run) -> dict[str, Any] | None:
    return describe_modules(run.modules) if run.modules is not None else None


def describe_path(path: CriticalPath) -> dict[str, Any]:
    """Compute the parts of ``summary.json`` on the critical path; times are int ns."""
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
        "ranks": in_ns(run.stragglers.ranks, "caused", "waited"),
        "collectives": in_ns(longest, "time", "waited", "late", "longest"),
    }


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
        write_timeline(timeline, run.replay, run.path, recorded_counters(run.job, of_work=True))
    return written


def check_results_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that :func:`write_results` can write into a folder; writes nothing.

    - Raises InputError if a file exists already and ``overwrite`` is not given, or cannot be
      written.
    """
    for name in RESULT_FILES:
        check_target(folder / name, [], overwrite=overwrite)


def _bold(text: str, *parts: str) -> Text:
    """Make every second part bold."""
    return Text.assemble(text, *((part, "bold" if i % 2 == 0 else "") for i, part in
                                 enumerate(parts)))  # fmt: skip


def _what_ifs(data: _Data) -> Iterator[str | Text]:
    replayed = data["replayed_ns"]
    for change in data["what_if"]:
        gain, interval = replayed - change["window_ns"], change["interval"]
        yield _bold(
            "what if ", printable(change["change"]), ": ", format_ns(change["window_ns"]),
            f", {format_percent(abs(gain), replayed)} {'shorter' if gain >= 0 else 'longer'} "
            f"(90 % interval: {format_range(interval['low_ns'], interval['high_ns'])})",
        )  # fmt: skip
        yield from (f"  {text}" for text in change["included"])
    yield from one_step_line((data["what_if"] or data["best_changes"])[:1])


WHAT_IFS = Result(
    kind="what_ifs", title="What if", order=15, facts=(), headline=None,
    parts=(
        Lines(_what_ifs, on=TEXT),
        Rows("what_if", lambda data: f"{time_title(data)} after each change", None,
             lambda data: (Column("change", "change"), *after_change(data)), on=PAGE),
    ),
    at="", needs="what_if",
)  # fmt: skip


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{format_count(number)} {kind}" for kind, number in found.items())


def _job(data: _Data) -> Iterator[str | Text]:
    ranks = format_counted(data["ranks"], "rank")
    if data["world_size"] > data["ranks"]:
        ranks += f" of {data['world_size']}"
    nodes = f", {format_count(data['nodes'])} nodes: {_counts(data['nodes_by_kind'])}"
    yield ""
    yield _bold("", ranks, nodes)
    yield f"dependencies: {_counts(data['dependencies_by_kind'])}"
    if data["ranks"] > 1:
        matched = format_counted(data["collectives_matched"], "collective")
        if data["transfers_matched"]:
            matched += f", {format_counted(data['transfers_matched'], 'point-to-point transfer')}"
        yield f"matched across ranks: {matched}"
    yield from _skew(data["clocks"], data["verdict"])


def _skew(clocks: list[_Data], verdict: _Data) -> Iterator[str]:
    """Say the bound on clock skew against the reference ranks, and whether it was corrected.

    If a rank is said to be late by no more than that, it could be its clock.
    """
    bounds = [
        clock[end]
        for clock in clocks
        if clock["rank"] != clock["reference"]
        for end in ("low_ns", "high_ns")
    ]
    if bounds:
        largest = None if None in bounds else max(map(abs, bounds))
        most = "not bounded" if largest is None else f"at most {format_ns(largest)}"
        shifted = sum(clock["shift_ns"] != 0 for clock in clocks)
        done = f"corrected on {shifted} of {len(clocks)} ranks" if shifted else _UNCORRECTED
        yield f"clock skew between ranks: {most} ({done})"
        late = verdict["late"] if verdict["bound_by"] == "straggler" else None
        lasts = late["late_ns"] // max(verdict["num_steps"], 1) if late else 0
        if late and (largest is None or 2 * largest >= lasts):
            yield (
                f"  the clocks could differ by as much as rank {late['rank']} is late, though no "
                "communication shows that; what a rank does more does not depend on its clock"
            )


def _read(data: _Data) -> Iterator[Column]:
    for key, title in _READ.items():
        if isinstance(data.get(key), int):
            yield Column(key, title, COUNT)
    for kind in data.get("dependencies_by_kind") or ():
        yield Column(f"dependencies_by_kind/{kind}", f"dependencies: {kind}", COUNT)


PROVENANCE = Result(
    kind="provenance", title="Provenance", order=100, facts=(), headline=None,
    parts=(
        Lines(_job, on=TEXT),
        Facts("What was read", _read),
        Rows("sources", "Files", None, (
            Column("path", "file"), Column("format", "format", WORDS),
            Column("size", "size", BYTES), Column("hash", "BLAKE2b-128", WORDS._replace(
                write=lambda _, __, value: f"<code>{text(value)}</code>")),
        ), most=ALL, on=PAGE),
        Lines(lambda data: [f"Nadi {data['nadi_version']}"], on=PAGE),
    ),
    at="", needs="nadi_version",
)  # fmt: skip


def _times(data: _Data) -> Iterator[str | Text]:
    steps = data["steps"]
    if steps:
        shown = ", ".join(f"{s['step']}: {format_ns(s['measured_ns'])}" for s in steps[:_STEPS])
        more = f", and {len(steps) - _STEPS} more" if len(steps) > _STEPS else ""
        yield f"steps: {shown}{more}"
    else:
        whole = "; the whole trace is analysed" if data["window"] == WHOLE else ""
        yield f"steps: none (no marks of steps, and nothing repeats){whole}"
        if data.get("to_have_steps"):
            yield f"to have steps: {data['to_have_steps']}"
    found = data["steps_found_by"]
    if found and not data["serving"] and found["mark"] != MARK:
        whole = "; the whole trace is analysed, --step N takes one"
        yield (
            "no ProfilerStep annotations: steps begin or end with "
            f"{printable(found['mark'], _NAME_IN_LINE)}, and are "
            f"{format_percent(found['alike'], 1)} alike{whole if data['window'] == WHOLE else ''}"
        )


def _measured(data: _Data) -> Iterator[Text]:
    """Say the times of the window, and how a step alone differs from its time above."""
    measured, replayed = data["measured_ns"], data["replayed_ns"]
    took = [s["measured_ns"] for s in data["steps"] if f"step {s['step']}" == data["window"]]
    until = (
        f" from its mark until all its work ends ({format_ns(took[0])} to the next mark)"
        if took and took[0] != measured
        else ""
    )
    same = "identical" if measured == replayed else "NOT the measured time"
    yield Text.assemble((measured_line(data), "bold"),
                        f"{until}, replayed {format_ns(replayed)} ({same})")  # fmt: skip


def _time_tiles(data: _Data) -> Iterator[Column]:
    on = f"on {data['on_system']['system']}" if data.get("on_system") else ""
    yield Column("measured_ns", "measured", NS, data.get("window", ""))
    if data["measured_ns"] != data.get("replayed_ns"):
        yield Column("replayed_ns", "replayed", NS, "not the measured")
    yield Column("on_system/predicted_ns", "predicted", NS, on)
    yield Column("explained/explained_ns", "explained by dependencies", NS,
                 "of the critical path", whole="explained/measured_ns")  # fmt: skip
    if data.get("exposed_comm_ns"):
        yield Column("exposed_comm_ns", "exposed communication", NS,
                     "of the measured time, mean over ranks", whole="measured_ns")  # fmt: skip


def _step_columns(data: _Data) -> Iterator[Column]:
    yield Column("step", "step", PLAIN)
    yield Column("measured_ns", "measured", barred(NS))
    if any(step["measured_ns"] != step["replayed_ns"] for step in data["steps"]):
        yield Column("replayed_ns", "replayed", NS)


STEP_TIME = Result(
    kind="step_time", title="Measured time", order=5, facts=(), headline=None,
    parts=(
        Lines(_times, on=TEXT),
        *SERVING,
        Lines(_measured, on=TEXT),
        Tiles(_time_tiles),
        Rows("steps", "Steps", None, _step_columns, most=ALL, on=PAGE,
             unless=lambda data: "" if len(data.get("steps", ())) > 1 else None),
    ),
    at="", needs="measured_ns",
)  # fmt: skip


def _explained_lines(data: _Data) -> Iterator[str | Text]:
    """Say how much of the path the recording explains, and the causes of the rest."""
    explained, found = data["explained"], data["unexplained"]
    total = explained["measured_ns"]

    def told(time: int) -> tuple[str, str]:
        return format_ns(time), f" ({format_percent(time, total)})"

    time, share = told(explained["explained_ns"])
    line = ["explained by dependencies: ", time, f" of the critical path{share}"]
    if found["ns"]:
        causes = [f"{cause.replace('_', ' ')} {format_ns(time)}"
                  for cause, time in found["by_cause"].items() if time]  # fmt: skip
        time, share = told(found["ns"])
        line[-1] += "; unexplained: "
        line += [time, f"{share}: {', '.join(causes)}"]
    yield _bold(*line)
    yield from _doubts(data)


def _doubts(data: _Data) -> Iterator[str]:
    """Say what of the path is inferred, and what of devices begins late."""
    total, inferred = data["explained"]["measured_ns"], data["unexplained"]["inferred_ns"]
    if inferred:
        share = format_percent(inferred, total)
        yield f"rests on inferred dependencies: {format_ns(inferred)} of the path ({share})"
    late = data["without_delays"]
    if late["late_starts"]:
        yield (
            f"{format_count(late['late_starts'])} of {format_count(late['device_operations'])} "
            f"device operations start over {format_ns(LATE_NS)} later than their dependencies "
            "explain"
        )


PATH = Result(
    kind="critical_path", title="Critical path", order=20, facts=(), headline=None,
    parts=(
        Html(lambda figures: stacked_bar(list(figures.get("critical_path_by_kind").items()),
                                         figures.get("critical_path_ns"), is_named=True)),
        Sums("critical path by kind", "kind", {"time": "critical_path_by_kind"},
             whole="critical_path_ns"),
        Rows("critical_path_top", "top operations on the critical path", None, (
            Column("name", "operation", name_or("(between operations)")),
            Column("kind", "kind", KIND),
            Column("ns", "time", NS), Column("ns", "share", barred(share_of("critical_path_ns"))),
            Column("count", "count", COUNT), Column("ranks", "ranks", RANKS, "where it runs"),
        )),
    ),
    at="", needs="critical_path_by_kind",
)  # fmt: skip
"""The critical path, as ``nadi critical-path`` tells it, too."""

CRITICAL_PATH = PATH._replace(parts=(
    *PATH.parts,
    Sums("What the recording does not explain", "cause",
         {"time on the path": "unexplained/by_cause"}, WORDS, "critical_path_ns",
         total=False, on=PAGE),
    Lines(_explained_lines, on=TEXT), Lines(_doubts, on=PAGE),
))  # fmt: skip


def _exposed(data: _Data) -> Iterator[str | Text]:
    exposed, ranks = data["exposed_comm_ns"], data["per_rank"]
    if any(rank["communication_ns"] for rank in ranks):
        worst = max(ranks, key=lambda rank: rank["exposed_comm_ns"])
        most = f", mean over ranks; most on rank {worst['rank']}: "
        most += format_ns(worst["exposed_comm_ns"])
        yield _bold("exposed communication: ", format_ns(exposed),
                    f" ({format_percent(exposed, data['measured_ns'])})"
                    f"{most if len(ranks) > 1 else ''}")  # fmt: skip


def _divided(row: _Data) -> dict[str, float]:
    return {part: row[f"{part}_ns"] for part in _ACTIVITY}


def _of_stream(row: _Data) -> dict[str, float]:
    talks = row["communicating_ns"]
    return {"plain": row["busy_ns"] - talks, "transferring": talks,
            "idle": row["idle_ns"]}  # fmt: skip


def _legend(figures: Figures) -> str:
    keys = " ".join(
        f'<span><i class="key {part}"></i>{name}</span>' for part, name in _ACTIVITY.items()
        if any(row[f"{part}_ns"] for row in figures.rows("activity"))
    )  # fmt: skip
    return f"<p class=legend>{keys}</p>"


ACTIVITY = Result(
    kind="activity", title="Ranks, threads and streams", order=40, facts=(), headline=None,
    parts=(
        Lines(_exposed, on=TEXT),
        Html(_legend),
        Rows("activity", "Time of each rank", None, (
            Column("rank", "rank", PLAIN), stacked("divided", _divided),
            *(Column(f"{part}_ns", title, NS, is_rare=True) for part, title in _ACTIVITY.items()),
        ), most=_MANY, on=PAGE),
        Rows("streams", "Time of each thread and stream", None, (
            Column("rank", "rank", PLAIN), Column("resource", "thread or stream"),
            Column("operations", "operations", COUNT), stacked("divided", _of_stream),
            Column("busy_ns", "busy", NS),
            Column("communicating_ns", "of it communication", NS), Column("idle_ns", "idle", NS),
        ), most=_MANY, on=PAGE),
    ),
    at="", needs="activity",
)  # fmt: skip


def _longest_wait(data: _Data) -> Iterator[str]:
    found = data["stragglers"]["collectives"]
    if found:
        worst = max(found, key=lambda row: row["longest_ns"])
        what = shown_name(worst["operation"], _NAME_IN_LINE) or "between operations"
        mostly = f", mostly {what}" if worst["operation"] or worst["cause"] != "unexplained" else ""
        yield (
            f"longest wait: {format_ns(worst['longest_ns'])} for rank {worst['rank']} in "
            f"{shown_name(worst['name'], _NAME_IN_LINE)}; cause of the delay: {worst['cause']}"
            f"{mostly}"
        )


STRAGGLERS = Result(
    kind="straggler", title="Stragglers", order=50, facts=(), headline=None,
    parts=(
        Rows("stragglers/ranks", "stragglers in collectives and transfers", None, (
            Column("rank", "rank", PLAIN),
            Column("times_last", "times last", COUNT, "that it enters after all others"),
            Column("caused_ns", "wait time caused", barred(NS, "waiting"), "of all other ranks"),
            Column("waited_ns", "own wait time", NS),
        ), pick=lambda data: [
            i for i, row in enumerate(data["stragglers"]["ranks"])
            if row["times_last"] or row["caused_ns"] or row["waited_ns"]
        ], top=ALL),
        Lines(_longest_wait, on=TEXT),
        Rows("stragglers/collectives", "Collectives with the longest wait times", None, (
            Column("name", "collective"), Column("rank", "last rank", PLAIN),
            Column("waited_ns", "wait time of the others", NS),
            Column("longest_ns", "longest wait", NS),
            Column("cause", "why it is late", WORDS),
            Column("operation", "mostly", name_or("(between operations)")),
        ), on=PAGE),
    ),
    at="", needs="stragglers/collectives",
)  # fmt: skip


def _collective_title(data: _Data) -> str:
    bound = data["collectives_bound_by"]
    title = "Bandwidth of transfers, as nccl-tests count it; "
    if bound is None:
        return f"{title}--system SYSTEM says what its links allow"
    return f"{title}the bound is that of the links of {bound['system']} ({bound['reason']})"


def _collective_columns(data: _Data) -> tuple[Column, ...]:
    bounds = (
        Column("bound_bus_bandwidth_gb_per_s", "busbw GB/s at the bound", GB_PER_S),
        Column("fraction", "of the bound", _FRACTION),
    )
    return (
        Column("type", "type"), Column("group", "group"), Column("members", "ranks", COUNT),
        Column("bytes", "size", BYTES), Column("bandwidth_gb_per_s", "algbw GB/s", GB_PER_S),
        Column("bus_bandwidth_gb_per_s", "busbw GB/s", GB_PER_S),
        *(bounds if data["collectives_bound_by"] is not None else ()),
    )  # fmt: skip


COLLECTIVES = Result(
    kind="collectives", title="Collectives", order=60, facts=(), headline=None,
    parts=(
        Rows("collectives", "By name, group and size; times are sums", None, (
            Column("name", "collective"), Column("group", "group"),
            Column("bytes", "size", BYTES), Column("count", "count", COUNT),
            Column("waiting_ns", "wait: first to last entry", NS),
            Column("transferring_ns", "transfer: last entry to last end", NS),
            stacked("divided", lambda row: {part: row[f"{part}_ns"] for part in
                                     ("waiting", "transferring")}, alone=False),
        )),
        Rows("collectives", _collective_title, None, _collective_columns, pick=lambda data: [
            i for i, row in enumerate(data["collectives"])
            if row.get("bandwidth_gb_per_s", -1) >= 0
        ]),
    ),
    at="", needs="collectives",
)  # fmt: skip


def _has_classes(data: _Data) -> bool:
    return any(row["class"] for row in data["operations"])


def _operations(
    kind: str, title: str, caption: str, order: int, unless: Callable[[_Data], str | None]
) -> Result:
    """Declare operations by name: those of devices, or of hosts where there is no device."""
    return Result(kind, title, order, (), None, (
        Rows("operations", f"{caption}, summed over ranks", None, lambda data: (
            Column("name", "name"), Column("class", "class", is_rare=True),
            Column("time_ns", "time", barred(NS)), Column("count", "count", COUNT),
            Column("shortest_ns", "shortest", NS), Column("longest_ns", "longest", NS),
            *([Column("ranks", "ranks", COUNT, "that run it")] if data["ranks"] > 1 else []),
        ), unless),
    ), at="", needs="operations")  # fmt: skip


KERNELS = _operations(
    "operation", "Kernels", "Work on devices", 70,
    lambda data: "" if _has_classes(data) else None,
)  # fmt: skip
HOST_OPERATIONS = _operations(
    "host-operations", "Operators", "By self time", 71,
    lambda data: None if _has_classes(data) or data.get("operators") else "",
)  # fmt: skip
"""Operators of a run without devices; pages with ``operators`` have these and more there."""


def _shown_issues(data: _Data) -> Iterator[str]:
    yield from issue_lines(
        i for i in data["issues"]
        if i["severity"] != "info" or i["code"] in _ALWAYS_SHOWN or i["code"].endswith(_LACKS)
    )  # fmt: skip


ISSUES = Result(
    kind="issues", title="Import issues", order=90, facts=(), headline=None,
    parts=(
        Lines(_shown_issues, on=TEXT),
        Rows("issues", "met while the files were read", None, (
            Column("severity", "severity", _SEVERITY),
            Column("detail", "what", UNCUT, shown=lambda row: row["detail"] or row["code"]),
            Column("count", "count", COUNT), Column("remedy", "what to do", UNCUT),
        ), most=ALL, on=PAGE),
    ),
    at="", needs="issues",
)  # fmt: skip


def print_summary(run: Run, console: Console) -> None:
    """Print the page of text."""
    data = _summary(run, {})
    for one in (
        VERDICT, WHAT_IFS, PROVENANCE, STEP_TIME, CRITICAL_PATH, ACTIVITY, STRAGGLERS,
    ):  # fmt: skip
        one.print(data, console)
    if data["modules"]:
        MODULES.print(data, console)
    if data["on_system"]:
        ON_SYSTEM.print(data["on_system"], console)
    ISSUES.print(data, console)


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
