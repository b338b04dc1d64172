"""``nadi similarity``: how alike two jobs are."""

from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson

HELP = """Compare two jobs: how alike are operations, graphs and times?

A job is a Chakra .et file per rank, a recording, or a folded job, as for nadi simulate.
Each measure is a distance from 0 (equal) to 1 (nothing in common). Beside it stands the
distance of independent draws: a job with the operations of A, in which each column is
shuffled on its own. A measure is near if it is at most half of that distance, or with --same
at most half of the way from another recording of the program to that distance. Both jobs
are also simulated on each system.

[bold]Examples[/]

  nadi similarity RECORDED SYNTHETIC
  nadi similarity RECORDED SYNTHETIC --same RECORDED_AGAIN
  nadi similarity A B --system dgx-h100 --system mine.toml
"""


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A job.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="The job to compare.", show_default=False)],
    system: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="NAME|FILE", show_default=False,
                     help="A system on which to simulate both; repeatable. By default all that "
                     "ship with Nadi and fit both."),
    ] = None,
    same: Annotated[
        str, typer.Option("--same", metavar="JOB", show_default=False,
                          help="Another recording of the program of A, as a reference point."),
    ] = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare, and print a row per measure and the times of the whole jobs."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="compare") as progress:
        from nadi.sharing.similarity.result import SIMILARITY
        from nadi.sharing.similarity.similarity import compare

        found = compare(a, b, systems=system or (), same=same or None, progress=progress)
    SIMILARITY.tell(SIMILARITY.data(found), as_json=as_json)
