"""``nadi validate``: whether traces keep the rules of the data model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars as pl

__all__ = ["HELP", "command"]

HELP = """Check traces against the rules of the data model, as read and as linked.

Every file is read and checked by itself; where there are hosts and devices they are
linked as `nadi run` does, and the result is checked too. The exit code is 1 if a rule
is broken. docs/data-model.md lists the rules.

[bold]Examples[/]

  nadi validate TRACES
  nadi validate device.json.gz
"""


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Traces, or folders of traces.", show_default=False
        ),
    ],
) -> None:  # fmt: skip
    """Check each trace, and the job that they make."""
    from nadi import formats
    from nadi.discover import list_files
    from nadi.pipeline import load_job
    from nadi.validate import validate_job, validate_trace

    files = list_files(paths)
    num_broken = 0
    for file in (*files.hosts, *files.devices):
        num_broken += _report(str(file), validate_trace(formats.read(file)))
    if files.hosts and files.devices:
        job = load_job(*paths)
        for trace in job.traces:
            num_broken += _report(f"rank {trace.rank}, linked", validate_trace(trace))
        num_broken += _report("job", validate_job(job))
    if num_broken:
        raise typer.Exit(1)


def _report(what: str, broken: pl.DataFrame) -> int:
    """Print a line per broken rule, or one that says that none is; gives their number."""
    if broken.is_empty():
        typer.echo(f"{what}: valid")
    for code, _, count, detail, _ in broken.iter_rows():
        typer.echo(f"{what}: {code}: {count} {detail}")
    return broken.height
