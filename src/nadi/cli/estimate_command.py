"""``nadi estimate``: what a model would take on a machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.shared_options import AsJson, output_console

__all__ = ["HELP", "MachineFile", "ModelFile", "command"]

HELP = """Estimate a step of training or inference, without a trace.

Prints the time of a step and where it goes, the bytes in both memory tiers, and what
limits it. The files are JSON: those of Calculon as they are, and the numbers are
Calculon's. docs/estimate.md has one of each.

[bold]Examples[/]

  nadi estimate model.json machine.json execution.json
  nadi estimate model.json machine.json execution.json --json | jq .times
"""

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Sizes of the model.", show_default=False)
]
MachineFile = Annotated[
    Path, typer.Argument(metavar="SYSTEM", help="Processors, memory tiers and networks.",
                         show_default=False),
]  # fmt: skip
_ExecutionFile = Annotated[
    Path, typer.Argument(metavar="EXECUTION", help="Degrees of parallelism, batch, and all else.",
                         show_default=False),
]  # fmt: skip


def command(
    model: ModelFile, system: MachineFile, execution: _ExecutionFile, as_json: AsJson = False
) -> None:
    """Estimate a step, and print what limits it."""
    from nadi.estimate.single_estimate import estimate
    from nadi.load.estimate_files import read_execution, read_machine, read_model

    found = estimate(read_model(model), read_machine(system), read_execution(execution))
    from nadi.report.estimate_report import describe_estimate, print_estimate
    from nadi.report.text_layout import to_json

    if as_json:
        sys.stdout.write(to_json(describe_estimate(found)).decode())
        return
    print_estimate(found, output_console())
