"""``nadi critical-path``: the critical path by Nadi's rules or by HTA's."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nadi.errors import UsageError
from nadi.results.terminal.options import AsJson, Capture, ExecutorName, TimeRange, output_console
from nadi.results.terminal.progress import show_progress

HELP = """Show the critical path, by Nadi's rules or by HTA's.

Nadi's rules give one path across all ranks. It has no gaps: gaps on the host and
every kind of wait are part of it. The rules of Holistic Trace Analysis (HTA) give the
path of one rank, node for node as HTA computes it: time between operations of a
thread has weight 0, and the work that a call waited for is on the path only if the
recording contains synchronization events.

[bold]Examples[/]

  nadi critical-path TRACES --step 5
  nadi critical-path device.json.gz --rules hta --annotation ProfilerStep --instance 1
  nadi critical-path TRACES --rules hta --rank 3 --annotation ProfilerStep --instance 0:2
  nadi critical-path device.json.gz --rules hta --overlay marked.json.gz --only-critical
"""


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACES",
        help="A folder with the traces of all ranks, or the files themselves; HTA's rules "
        "use the device traces only.",
        show_default=False,
    ),
]
Rules = Annotated[str, typer.Option("--rules", metavar="nadi|hta", help="Which rules to use.")]
StepByNadi = Annotated[
    str, typer.Option("--step", metavar="N|all", help="Nadi's rules: the step to analyse.")
]
Annotation = Annotated[
    str,
    typer.Option(
        "--annotation", metavar="TEXT",
        help="HTA's rules: analyse the time range of an event whose name contains this text; "
        "by default the whole trace.",
        show_default=False,
    ),
]  # fmt: skip
Instance = Annotated[
    str,
    typer.Option(
        "--instance", metavar="N|N:M",
        help="HTA's rules: index of the event among those with that name, from 0, or the first "
        "and the last of a range.",
    ),
]  # fmt: skip
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank", metavar="N", help="HTA's rules: the rank to analyse; by default the first.",
        show_default=False,
    ),
]  # fmt: skip
ZeroWeightLaunchEdges = Annotated[
    bool,
    typer.Option(
        "--zero-weight-launch-edges",
        help="HTA's rules: add an edge of weight 0 from the launch to device work that the "
        "launch did not delay.",
    ),
]
IncludeLastStep = Annotated[
    bool,
    typer.Option(
        "--include-last-step",
        help="HTA's rules: keep the last step, which HTA drops if there are several.",
    ),
]
Overlay = Annotated[
    Path | None,
    typer.Option(
        "--overlay", metavar="FILE",
        help="HTA's rules: write the trace with the path marked in it, for ui.perfetto.dev.",
        show_default=False,
    ),
]  # fmt: skip
OnlyCritical = Annotated[
    bool,
    typer.Option(
        "--only-critical", help="Keep only events on the path (and annotations) in the overlay."
    ),
]
AllEdges = Annotated[
    bool, typer.Option("--all-edges", help="Draw all edges of the graph in the overlay, as arrows.")
]


def command(
    paths: Paths,
    rules: Rules = "nadi",
    step: StepByNadi = "all",
    window: TimeRange = "",
    capture: Capture = "",
    annotation: Annotation = "",
    instance: Instance = "0",
    rank: Rank = None,
    zero_weight_launch_edges: ZeroWeightLaunchEdges = False,
    include_last_step: IncludeLastStep = False,
    overlay: Overlay = None,
    only_critical: OnlyCritical = False,
    all_edges: AllEdges = False,
    executor: ExecutorName = "",
    as_json: AsJson = False,
) -> None:
    """Print a critical path."""
    if rules == "nadi":
        _refuse({
            "--annotation": annotation != "", "--instance": instance != "0",
            "--rank": rank is not None, "--zero-weight-launch-edges": zero_weight_launch_edges,
            "--include-last-step": include_last_step, "--overlay": overlay is not None,
            "--only-critical": only_critical, "--all-edges": all_edges,
        })  # fmt: skip
        _by_nadi(paths, step, window, capture, executor, as_json=as_json)
        return
    if rules != "hta":
        raise UsageError("--rules", f"{rules!r} is not a known set of rules", "use nadi or hta")
    if executor:
        raise UsageError("--executor", "applies to Nadi's rules only", "leave it out")
    if step != "all" or window:
        raise UsageError(
            "--window" if window else "--step",
            "applies to Nadi's rules only",
            "with HTA's rules, use --annotation ProfilerStep --instance N",
        )
    if overlay is None and (only_critical or all_edges):
        raise UsageError(
            "--only-critical and --all-edges", "apply to an overlay only", "add --overlay FILE"
        )
    options: dict[str, Any] = {
        "annotation": annotation,
        "instance": _instance(instance),
        "zero_weight_launch_edges": zero_weight_launch_edges,
        "include_last_step": include_last_step,
    }
    marks = {"only_critical": only_critical, "all_edges": all_edges}
    _by_hta(paths, capture, rank, options, overlay, marks, as_json=as_json)


def _refuse(given: dict[str, bool]) -> None:
    """Raise UsageError for an option of HTA's rules that is used with Nadi's rules."""
    for option, is_given in given.items():
        if is_given:
            raise UsageError(option, "applies to HTA's rules only", "add --rules hta")


def _instance(text: str) -> int | tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        return (int(first), int(last)) if colon else int(first)
    except ValueError:
        raise UsageError(
            "--instance",
            f"{text!r} is not a number",
            "give one number, or the first and the last: 0:2",
        ) from None


def _by_hta(
    paths: Sequence[Path | str],
    capture: str,
    rank: int | None,
    options: dict[str, Any],
    overlay: Path | None,
    marks: dict[str, bool],
    *,
    as_json: bool,
) -> None:
    with show_progress(announce=False, use="critical-path") as progress:
        progress("starting")
        from nadi.analyses.hta.hta_path import describe_hta_path, print_hta_path
        from nadi.analyses.hta.overlay import hta_overlay
        from nadi.bottlenecks.paths.critical_path import critical_path
        from nadi.files.trace_files import write
        from nadi.recordings.job_of_files import load_devices
        from nadi.results.text import to_json

        traces = load_devices(*paths, capture=capture, progress=progress)
        progress("finding the critical path")
        path = critical_path(traces, rules="hta", rank=rank, **options)
        trace = next(trace for trace in traces if rank in (None, trace.rank))
        if overlay is not None:
            progress("writing the overlay")
            write(hta_overlay(trace, path, **marks), overlay, to="kineto")
    shown = trace.rank
    if as_json:
        data = describe_hta_path(path, options["annotation"], shown)
        sys.stdout.write(to_json(data).decode())
        return
    console = output_console()
    print_hta_path(path, options["annotation"], shown, console)
    if overlay is not None:
        console.print(f"wrote {overlay}", markup=False)


def _by_nadi(
    paths: Sequence[Path | str], step: str, window: str, capture: str, executor: str, *,
    as_json: bool,
) -> None:  # fmt: skip
    with show_progress(announce=False, use="critical-path") as progress:
        progress("starting")
        from nadi.bottlenecks.paths.result import NEAR_CRITICAL
        from nadi.bottlenecks.steps.recorded_jobs import run
        from nadi.bottlenecks.steps.run_report import PATH, describe_path
        from nadi.graph.near_critical import near_critical_paths, slack_histogram
        from nadi.results.terminal.workers import executor_named
        from nadi.results.text import to_json
        from nadi.units import format_ns

        with executor_named(executor) as workers:
            found = run(
                *paths, step=step, window=window, capture=capture, executor=workers,
                progress=progress,
            )  # fmt: skip
        near = near_critical_paths(found.replay, found.window)
        room = slack_histogram(found.replay, found.window)
    data = {"window": found.window.name, "measured_ns": found.measured_ns}
    data |= describe_path(found.path) | NEAR_CRITICAL.data((found.graph, near, room))
    if as_json:
        sys.stdout.write(to_json(data).decode())
        return
    console = output_console()
    num_ranks = len(found.job.traces)
    console.print(
        f"[bold]{found.window.name}[/], {num_ranks} rank{'s' if num_ranks > 1 else ''}: measured "
        f"[bold]{format_ns(found.measured_ns)}[/]"
    )
    PATH.print(data, console)
    NEAR_CRITICAL.print(data, console)
