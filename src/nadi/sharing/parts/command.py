"""``nadi extract``: a part of a job as traces of its own."""

from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson, ForceLink, Overwrite
from nadi.results.terminal.progress import show_progress

HELP = """Extract a step, a layer, a time range or ranks of a job.

An operation is in the part if it meets every condition that is given: a module, a
step, a time range, ranks, or operations with all that is nested in them. A part of a
recording is a recording, with a host and a device trace for each rank, and the times of
the whole. Linked traces (.nadi, .et) keep their format.

waits.csv lists what operations of the part wait for outside, and until when. tensors.csv
lists the tensors that the part takes from operations outside, or that these read later.
The traces have both tables, too.

[bold]Examples[/]

  nadi extract TRACES --step 5 -o STEP
  nadi extract TRACES --module 'layers.3' -o LAYER
  nadi extract TRACES --ranks 1-2 --window 50ms:180ms -o WINDOW
  nadi extract TRACES --step 5 --under 'aten::linear$' -o LINEAR
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES",
            help="A folder with a host and a device trace for each rank, the files themselves, or "
            "a folder of linked traces with times.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", help="A folder.", show_default=False),
    ],
    module: Annotated[
        str, typer.Option("--module", metavar="REGEX", show_default=False,
                          help="Modules: their calls, forward, backward and optimizer."),
    ] = "",
    step: Annotated[
        str, typer.Option("--step", metavar="N", show_default=False,
                          help="A step: what hosts issue in it, and its device work."),
    ] = "",
    window: Annotated[
        str, typer.Option("--window", metavar="FROM:TO", show_default=False,
                          help="What lies wholly between two times since the first event, such "
                          "as 120ms:180ms."),
    ] = "",
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="RANKS", show_default=False,
                          help="Ranks such as 0-3,6; process groups shrink to them."),
    ] = "",
    under: Annotated[
        str, typer.Option("--under", metavar="REGEX", show_default=False,
                          help="Operations by name, what is nested in them, and its device work."),
    ] = "",
    force: ForceLink = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Extract, and print what the part is and what crosses its border."""
    with show_progress(announce=False, use="extract") as progress:
        progress("starting")
        from nadi.sharing.parts.extract import extract
        from nadi.sharing.parts.result import EXTRACTION

        part = extract(
            *paths, output=output, module=module, step=step, window=window, ranks=ranks,
            under=under, force=force, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    EXTRACTION.tell(EXTRACTION.data(part), as_json=as_json)
