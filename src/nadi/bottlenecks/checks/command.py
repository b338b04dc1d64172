"""``nadi check``: whether a recording keeps its budgets against a baseline."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson, Capture, ForceLink, Overwrite, Step
from nadi.results.terminal.progress import show_progress

HELP = """Check that a recording keeps its budgets against a baseline.

A budget says what may grow, and by how much: step, exposed communication, device busy,
device idle, memory peak, or operations as nadi what-if selects them. What it is
compared with is what nadi diff finds: means per step.

The exit code is 0 if all budgets are kept, 1 if one is exceeded by more than the noise,
and 2 for input that cannot be used. Noise is how much the steps of the recordings vary,
and with further runs of the baseline (--baseline) how much its runs vary. With one run and
fewer than three steps in a recording it is not known: then what is exceeded counts.

[bold]Examples[/]

  nadi check BASELINE NEW --budget 'step 3 %'
  nadi check BASELINE NEW --budget 'step 3 %' --budget 'memory peak 200 MiB'
  nadi check BASELINE NEW --budget 'kind=kernel gemm 1ms' --budget 'in=Block_2 5 %'
  nadi check RUN1 NEW --baseline RUN2 --baseline RUN3 --budget 'step 3 %'
  nadi check BASELINE NEW --budget 'step 3 %' --markdown comment.md --junit budgets.xml
"""


def command(
    before: Annotated[
        str, typer.Argument(metavar="BASELINE", help="A folder of traces, or a device trace.",
                            show_default=False),
    ],
    after: Annotated[
        str, typer.Argument(metavar="NEW", help="The same of the run that is checked.",
                            show_default=False),
    ],
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="BUDGET", show_default=False,
                     help="What may grow, and by how much: a percentage, a time, or for memory a "
                     "size; below 0 it has to shrink. Repeatable."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="RUN", show_default=False,
                     help="A further run of the baseline: what runs differ by is noise. "
                     "Repeatable."),
    ] = None,
    step: Step = "all",
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", show_default=False,
                     help="Write the tables as Markdown (.md), for a pull request."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", show_default=False,
                     help="Write a test case for each budget as JUnit's XML (.xml)."),
    ] = None,
    capture: Capture = "",
    force: ForceLink = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare, print, and write what is asked for."""
    with show_progress(announce=False, use="check") as progress:
        progress("starting")
        from nadi.bottlenecks.checks.budgets import check
        from nadi.bottlenecks.checks.result import CHECK, junit as junit_of
        from nadi.files.files import check_new_file, write_pieces

        for file, suffix in ((markdown, ".md"), (junit, ".xml")):
            if file is not None:
                check_new_file(file, [suffix], overwrite=overwrite)
        found = check(
            before, after, budget or [], step=step, baselines=baseline or [], progress=progress,
            force=force, capture=capture,
        )  # fmt: skip
        data = CHECK.data(found)
        if markdown is not None:
            write_pieces(markdown, [CHECK.markdown(data).encode()])
        if junit is not None:
            write_pieces(junit, [junit_of(data)])
    CHECK.tell(data, markdown, junit, as_json=as_json)
    if found.is_exceeded:
        raise typer.Exit(1)
