"""``nadi analyze``: tables about a recording as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.errors import InputError, Parameter, UsageError
from nadi.results.terminal.options import (
    AsJson,
    Capture,
    ExecutorName,
    Overwrite,
    Step,
    TimeRange,
    output_console,
)
from nadi.results.terminal.progress import show_progress

if TYPE_CHECKING:
    from nadi.analyses.registry import Analysis

HELP = """Tabulate idle times, kernels, overlap, queues and more.

Analyses recordings as they are, without replay. Each analysis is a table. Without
arguments the analyses are listed. The name all runs every one; a line says what a
recording lacks for an analysis. Device traces are enough. Ranks are read one after the
other, and only their rows are kept. Each table has a chart.

[bold]Examples[/]

  nadi analyze
  nadi analyze temporal TRACES
  nadi analyze kernels device.json.gz --top 5
  nadi analyze idle TRACES -o idle.csv
  nadi analyze flame TRACES -o flame.html
  nadi analyze slowdown operations.parquet
  nadi analyze kernels TRACES --step 5
  nadi analyze rates TRACES --set peak_tflops=989 --set peak_tb_per_s=3.35
  nadi analyze all TRACES -o results
"""


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="An analysis, or all.", show_default=False)
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TRACES",
        help="A folder with a device trace per rank, its files, or a table of operations.",
        show_default=False,
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="ROWS", min=1, help="Print so many rows.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PARAMETER=VALUE", show_default=False,
        help="A parameter of the analysis, such as kernel_gap_ns=10000 of idle; repeatable.",
    ),
]  # fmt: skip
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE|FOLDER",
        help="Write all rows (.csv, .json, .parquet) or a chart (.html, .svg, .png); of all "
        "analyses, a folder of CSV files and charts.html.",
        show_default=False,
    ),
]  # fmt: skip


def command(
    name: Name = "",
    paths: Paths = None,
    step: Step = "all",
    window: TimeRange = "",
    capture: Capture = "",
    executor: ExecutorName = "processes",
    top: Top = 20,
    settings: Settings = None,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Run an analysis, or all."""
    from nadi.analyses.registry import print_analyses, print_analysis
    from nadi.results.text import to_json

    console = output_console()
    if not name:
        print_analyses(console)
        return
    with show_progress(announce=False, use="analyze") as progress:
        progress("starting")
        from nadi.analyses.analyses import analyze_all
        from nadi.results.terminal.workers import executor_named

        chosen, options = _chosen(name, paths, settings)
        files = _files(name, chosen, output, overwrite=overwrite)
        names = [one.name for one in chosen]
        with executor_named(executor) as workers:
            found = analyze_all(
                *paths or [], names=names, step=step, window=window, capture=capture,
                executor=workers, progress=progress, options=options,
            )  # fmt: skip
        tables = {key: one for key, one in found.items() if not isinstance(one, str)}
        if not tables:
            raise InputError("", str(found[names[0]]))
        if files:
            _write(files, tables)
    if as_json:
        data = {key: table.to_dicts() for key, table in tables.items()}
        sys.stdout.write(to_json(data if name == _ALL else data[name]).decode())
        return
    for one in chosen:
        if isinstance(told := found[one.name], str):
            console.print(f"{one.name}: {told}", markup=False)
        else:
            print_analysis(one, told, console, top)
        if name == _ALL:
            console.print()
    for key, file in files.items():
        if key in tables or key == _CHARTS:
            console.print(f"wrote {file}", markup=False)


def _write(files: dict[str, Path], tables: dict[str, Any]) -> None:
    """Write the table of an analysis; of all, the page is there when all tables are."""
    from nadi.analyses.registry import analysis_named, write_analysis, write_analysis_page
    from nadi.files.whole_folders import whole_files

    if _CHARTS not in files:
        for key, file in files.items():
            write_analysis(file, analysis_named(key), tables[key])
        return
    with whole_files([files[key] for key in (_CHARTS, *tables)]) as (page, *places):
        for place, (key, table) in zip(places, tables.items(), strict=True):
            write_analysis(place, analysis_named(key), table)
        write_analysis_page(page, tables)


_ALL = "all"
_CHARTS = "charts"


def _chosen(
    name: str, paths: list[str] | None, settings: list[str] | None
) -> tuple[list[Analysis], dict[str, dict[str, Any]]]:
    """Return the analyses of a name, and their parameters."""
    from nadi.analyses.registry import ANALYSES, analysis_named

    chosen = list(ANALYSES) if name == _ALL else [analysis_named(name)]
    if not paths:
        raise UsageError("TRACES", "no recording is given", "name a file or a folder")
    if not settings:
        return chosen, {}
    if name == _ALL:
        raise UsageError(Parameter("set"), "all has no parameters", "name one analysis")
    return chosen, {name: chosen[0].options(settings)}


def _files(
    name: str, chosen: list[Analysis], output: Path | None, *, overwrite: bool
) -> dict[str, Path]:
    """Return the file of each analysis, and check that it can be written."""
    from nadi.analyses.registry import ANALYSIS_FILES
    from nadi.files.files import check_new_file

    if output is None:
        return {}
    if name != _ALL:
        check_new_file(output, ANALYSIS_FILES, overwrite=overwrite)
        return {name: output}
    files = {one.name: output / f"{one.name}.csv" for one in chosen}
    files[_CHARTS] = output / f"{_CHARTS}.html"
    for file in files.values():
        check_new_file(file, ANALYSIS_FILES, overwrite=overwrite)
    return files
