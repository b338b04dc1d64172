"""Options that several commands have, and where their answers are printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "AsJson",
    "ChakraSchema",
    "ForceFile",
    "ForceLink",
    "Format",
    "ResultsFolder",
    "Step",
    "output_console",
]

Step = Annotated[
    str, typer.Option("--step", metavar="N|all", help="The step (ProfilerStep#N) to look at.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ForceFile = Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")]
ForceLink = Annotated[
    bool,
    typer.Option("--force", help="Link a host and a device trace even if they hardly correspond."),
]
Format = Annotated[
    str, typer.Option("--to", metavar="FORMAT", help="Format to write; a folder's is chakra "
                      "unless named.", show_default=False),
]  # fmt: skip
ChakraSchema = Annotated[
    str, typer.Option("--schema", metavar="VERSION", help="Chakra's schema, 0.0.4 or 1.0.0.",
                      show_default=False),
]  # fmt: skip
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output",
        metavar="FOLDER",
        help="Write summary.json, critical_path.csv and timeline.json.gz (for ui.perfetto.dev) "
        "there.",
        show_default=False,
    ),
]  # fmt: skip


def output_console(*, wraps: bool = True) -> Console:
    """Give the console of standard output, which wraps lines in a terminal at most."""
    from rich.console import Console

    soft_wrap = not wraps or not sys.stdout.isatty()
    return Console(highlight=False, emoji=False, soft_wrap=soft_wrap)
