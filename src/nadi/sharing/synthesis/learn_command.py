"""``nadi learn``: a model of jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson, Overwrite

HELP = """Learn a model of jobs, for nadi synthesize.

A job is a Chakra .et file per rank, a recording, or a folded job, as for nadi simulate.
The model knows which operations follow which, in steps and layers; on which threads,
streams and process groups; their sizes and durations. Of several jobs it learns what they
share; of two widths, what lies between.

[bold]Examples[/]

  nadi learn TRACES -o model.nadimodel
  nadi learn JOB_A JOB_B JOB_C -o model.nadimodel
  nadi synthesize model.nadimodel -o JOB --steps 10
"""


def command(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Jobs to learn from.",
                                  show_default=False),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="MODEL", show_default=False,
                          help="Write the model to this file."),
    ],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Learn, write the model, and print what it knows."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="learn") as progress:
        from pathlib import Path

        from nadi.files.files import check_target, locate
        from nadi.sharing.synthesis.learned_jobs import learn
        from nadi.sharing.synthesis.model_bytes import write_trace_model
        from nadi.sharing.synthesis.result import LEARNED

        check_target(locate(output), [Path(job) for job in jobs], overwrite=overwrite)
        model = learn(jobs, progress=progress)
        progress(f"writing {output}")
        size = write_trace_model(model, output, overwrite=overwrite)
    LEARNED.tell(LEARNED.data((model, size)), output, as_json=as_json)
