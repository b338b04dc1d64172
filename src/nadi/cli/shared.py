"""Options that several commands have, and where their answers are printed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["AsJson", "ForceFile", "ForceLink", "Step", "output_console"]

Step = Annotated[
    str, typer.Option("--step", metavar="N|all", help="The step (ProfilerStep#N) to look at.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ForceFile = Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")]
ForceLink = Annotated[
    bool,
    typer.Option("--force", help="Link a host and a device trace even if they hardly correspond."),
]


def output_console(*, wraps: bool = True) -> Console:
    """Give the console of standard output, which wraps lines in a terminal at most."""
    from rich.console import Console

    soft_wrap = not wraps or not sys.stdout.isatty()
    return Console(highlight=False, emoji=False, soft_wrap=soft_wrap)
