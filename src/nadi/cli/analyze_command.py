"""``nadi analyze``: tables about a recording as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import AsJson, Overwrite, output_console

__all__ = ["HELP", "command"]

HELP = """Analyse recordings as they are: idle times, kernels, overlap, queues and more.

Each analysis is a table. Without arguments the analyses are listed; the name all
runs every one, and says in a line what a recording lacks for it. Device traces are
enough. Ranks are read one after the other, and only their rows are kept.

[bold]Examples[/]

  nadi analyze
  nadi analyze temporal TRACES
  nadi analyze kernels device.json.gz --top 5
  nadi analyze idle TRACES -o idle.csv
  nadi analyze rates TRACES --set peak_tflops=989 --set peak_tb_per_s=3.35
  nadi analyze all TRACES -o results
"""


def command(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An analysis, or all.", show_default=False),
    ] = "",
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="A folder with a device trace per rank, or the files themselves.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="ROWS", min=1, help="Print so many rows.")
    ] = 20,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PARAMETER=VALUE", show_default=False,
            help="A parameter of the analysis, such as kernel_gap_ns=10000 of idle; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE|FOLDER",
            help="Write all rows (.csv, .json, .parquet); of all analyses, a folder of CSV files.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run an analysis, or all."""
    from nadi.errors import InputError, Parameter, UsageError
    from nadi.report.analysis_report import (
        check_analysis_file,
        print_analyses,
        print_analysis,
        write_analysis,
    )
    from nadi.report.text_layout import to_json

    console = output_console()
    if not name:
        print_analyses(console)
        return
    with show_progress(announce=False, use="analyze") as progress:
        progress("starting")
        from nadi.analyze.analysis_registry import ANALYSES, analysis_named
        from nadi.pipeline.recorded_analyses import analyze_all

        chosen = list(ANALYSES) if name == "all" else [analysis_named(name)]
        if not paths:
            raise UsageError("PATH", "no recording is given", "name a file or a folder")
        options = {}
        if settings:
            if name == "all":
                raise UsageError(Parameter("set"), "all has no parameters", "name one analysis")
            options = {name: chosen[0].options(settings)}
        files = {}
        if output is not None:
            many = name == "all"
            files = {one.name: output / f"{one.name}.csv" if many else output for one in chosen}
            if many:
                output.mkdir(parents=True, exist_ok=True)
            for file in files.values():
                check_analysis_file(file, overwrite=overwrite)
        found = analyze_all(
            *paths, names=[one.name for one in chosen], progress=progress, options=options
        )
        tables = {key: one for key, one in found.items() if not isinstance(one, str)}
        if not tables:
            raise InputError("", str(next(iter(found.values()))))
        for key, table in tables.items():
            if key in files:
                write_analysis(files[key], table)
    if as_json:
        data = {key: table.to_dicts() for key, table in tables.items()}
        sys.stdout.write(to_json(data if name == "all" else data[name]).decode())
        return
    for one in chosen:
        if isinstance(told := found[one.name], str):
            console.print(f"{one.name}: {told}", markup=False)
        else:
            print_analysis(one, told, console, top)
        if name == "all":
            console.print()
    for key, file in files.items():
        if key in tables:
            console.print(f"wrote {file}", markup=False)
