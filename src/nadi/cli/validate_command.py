"""``nadi validate``: check traces against the rules of the data model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars as pl

__all__ = ["HELP", "command"]

HELP = """Check traces against the rules of the data model.

Every file is read and checked on its own. If there are device traces, they are also
linked as in `nadi run`, and the linked traces and the job are checked. The exit code
is 1 if a rule is violated or a trace has no operations. docs/data-model.md lists the
rules.

[bold]Examples[/]

  nadi validate TRACES
  nadi validate device.json.gz
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES", help="Traces, or folders of traces.", show_default=False
        ),
    ],
) -> None:  # fmt: skip
    """Check each trace, and the job that they form."""
    from nadi.files.trace_files import read
    from nadi.recordings.discover import list_files
    from nadi.recordings.job_of_files import load_job, why_empty
    from nadi.trace.validate import validate_job, validate_trace

    files = list_files(paths)
    traces = [read(file) for file in files.traces]
    found: list[tuple[str, pl.DataFrame]] = [
        (str(file), validate_trace(trace)) for file, trace in zip(files.traces, traces, strict=True)
    ]
    reasons = zip(map(str, files.traces), map(why_empty, traces), strict=True)
    empty = {file: why for file, why in reasons if why}
    if files.devices and not empty:
        job = load_job(*paths)
        found += [(f"rank {t.rank}, linked", validate_trace(t)) for t in job.traces]
        found.append(("job", validate_job(job)))
    for what, broken in found:
        if what in empty:
            typer.echo(f"{what}: {empty[what]}")
        elif broken.is_empty():
            typer.echo(f"{what}: valid")
        for code, _, count, detail, _ in broken.iter_rows():
            typer.echo(f"{what}: {code}: {count} {detail}")
    if empty or any(broken.height for _, broken in found):
        raise typer.Exit(1)
