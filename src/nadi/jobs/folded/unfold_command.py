"""``nadi unfold``: write all ranks of a folded job."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.results.terminal.options import Overwrite, output_console

__all__ = ["HELP", "command"]

HELP = """Write all ranks of a folded job as Chakra traces.

A job whose alike ranks took the same times becomes what it was. Where they took
different ones, each rank gets the typical times. A recording becomes the nodes that
nadi simulate makes of it.

[bold]Examples[/]

  nadi unfold small.nadi -o TRACES
"""


def command(
    job: Annotated[
        str, typer.Argument(metavar="FOLDED", help="A file that nadi fold wrote.",
                            show_default=False),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write the traces.",
                          show_default=False),
    ],
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Write all ranks."""
    from rich.text import Text

    from nadi.jobs.folded.fold import unfold
    from nadi.models.job_files import check_place, write_job
    from nadi.recordings.folded.files import read_folded
    from nadi.results.terminal.progress import show_progress
    from nadi.units import format_counted

    with show_progress(announce=False, use="unfold") as progress:
        progress(f"reading {job}")
        folded = read_folded(job)
        from pathlib import Path

        check_place(Path(output), "trace", len(folded.traces), overwrite=overwrite)
        progress(f"writing {output}")
        files = write_job(unfold(folded), output, overwrite=overwrite)
    times = "typical times, as alike ranks took different ones" if folded.times_vary else ""
    console = output_console()
    ranks = format_counted(len(files.traces), "rank")
    nodes = format_counted(files.nodes, "node")
    console.print(Text(f"{ranks}, {nodes} -> {output}{'; ' if times else ''}{times}"))
