"""``nadi demo``: the main analysis on the recording that ships with Nadi."""

from importlib import resources

import typer

from nadi.bottlenecks.steps.command import Request, ResultFiles, analyse
from nadi.results.terminal.options import Overwrite, ReportFile, ResultsFolder

HELP = """Analyse the recording that ships with Nadi, as nadi run does.

Two steps of data-parallel training on 4 ranks, on CPUs, with the gloo backend.

[bold]Examples[/]

  nadi demo
  nadi demo -o demo-results
  nadi demo --report demo.html
"""

_WHAT_IF = "scale gloo:all_reduce 0.5"
_NEXT = """
Next steps
  nadi demo --report demo.html  write all of it as one page, with a timeline; open it in a browser
  nadi demo -o demo-results     write a timeline; open demo-results/timeline.json.gz in
                                ui.perfetto.dev: arrows follow the critical path
  nadi run TRACES               analyse your own recording: a folder with two files per rank
  nadi run --help               options: one step, what-if, JSON output"""


def command(
    output: ResultsFolder = None, report: ReportFile = None, overwrite: Overwrite = False
) -> None:
    """Run the demo."""
    typer.echo("Demo: two steps of data-parallel training on 4 ranks (CPU, gloo)")
    typer.echo(f"      nadi run DEMO --what-if '{_WHAT_IF}'\n")
    with resources.as_file(resources.files("nadi") / "data" / "demo") as folder:
        files = ResultFiles(output, report, overwrite)
        analyse([folder], Request(what_if=[_WHAT_IF]), files, announce=True)
    typer.echo(_NEXT)
