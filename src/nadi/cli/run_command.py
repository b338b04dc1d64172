"""``nadi run``: from raw traces to what bounds the step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import ForceLink, ResultsFolder, Step, output_console

if TYPE_CHECKING:
    from nadi.pipeline.result import Run

__all__ = ["HELP", "analyse", "command"]

HELP = """Say what bounds a step: link raw traces, replay them, find the critical path.

[bold]Examples[/]

  nadi run TRACES
  nadi run host.json.gz device.json.gz --step 5
  nadi run TRACES --what-if 'scale nccl 0.5' --what-if 'scale aten::mm 0.8'
  nadi run TRACES --system dgx-h100
  nadi run TRACES -o results
  nadi run TRACES --json | jq .critical_path_by_kind
"""


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="A folder with a host and a device trace per rank, or the files themselves; "
            "device traces alone will do.",
            show_default=False,
        ),
    ],
    step: Step = "all",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="EXPR",
            help="Also say how long it takes after a change: 'scale REGEX FACTOR' multiplies the "
            "time of operations whose name matches; a host operation is its time on the host, not "
            "the kernels it launches. May be given again; each is tried alone.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(
            "--system",
            metavar="NAME|FILE",
            help="Also predict it on a system that nadi systems lists, or that a file describes: "
            "with the times that communication would take there.",
            show_default=False,
        ),
    ] = "",
    output: ResultsFolder = None,
    force: ForceLink = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the content of summary.json and nothing else.")
    ] = False,
) -> None:  # fmt: skip
    """Run the main job."""
    analyse(paths, step, what_if or [], output, system=system, force=force, as_json=as_json)


def analyse(
    paths: list[Path],
    step: str,
    what_if: list[str],
    output: Path | None,
    *,
    system: str = "",
    force: bool = False,
    as_json: bool = False,
    announce: bool = False,
) -> Run:
    """Run the main job, print it, and write its files if ``output`` is given.

    With ``announce`` a first compilation is announced even where no terminal listens.
    """
    with show_progress(announce=announce) as progress:
        progress("starting")
        from nadi.pipeline.recorded_jobs import run
        from nadi.report.run_report import (
            check_results_folder,
            print_summary,
            summarize,
            write_results,
        )
        from nadi.report.text_layout import to_json

        if output is not None:
            check_results_folder(output)
        result = run(
            *paths, step=step, what_if=what_if, system=system, force=force, progress=progress
        )
        written = []
        if output is not None:
            progress("writing results")
            written = write_results(result, output)
    if as_json:
        sys.stdout.write(to_json(summarize(result)).decode())
        return result
    console = output_console()
    print_summary(result, console)
    for path in written:
        console.print(f"wrote {path}", markup=False)
    return result
