"""``nadi generate``: jobs that nobody recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.jobs.generated.command import HELP as LLM_HELP, llm
from nadi.jobs.generated.generate_network_command import HELP as NETWORK_HELP, network
from nadi.results.terminal.options import Overwrite, output_console
from nadi.results.terminal.typer_internals import QuickCommand, QuickGroup

HELP = """Generate jobs of models, or test cases, as Chakra traces.

To make a job of your own in Python: docs/generate.md.

[bold]Examples[/]

  nadi generate cases -o CASES --ranks 8
  nadi generate llm --model llama3-8b --tp 2 --dp 4 --system dgx-h100
  nadi generate network --model resnet50 --ranks 8 --batch 256 --system dgx-h100
"""
CASES_HELP = """Write small jobs, each of one kind of node, to test a simulator.

They are the fourteen kinds of chakra_generator, with matched sends and receives and the
same node ids on all ranks; and reduce, gather, scatter, a ring of messages, process
groups, and a node for each type of attribute. Each case is a folder: a .et per rank, and
comm_group.json. docs/generate.md lists them.

[bold]Examples[/]

  nadi generate cases -o CASES --ranks 8
  nadi simulate CASES/ALL_REDUCE --system dgx-h100
"""

generate = typer.Typer(cls=QuickGroup, rich_markup_mode="rich")
generate.command("llm", cls=QuickCommand, help=LLM_HELP)(llm)
generate.command("network", cls=QuickCommand, help=NETWORK_HELP)(network)


@generate.command("cases", cls=QuickCommand, help=CASES_HELP)
def cases(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Where the folder of each case is made; it may be a URL."),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", help="Number of ranks, 2 to 4,096.")
    ] = 2,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Write the cases, and print what was written."""
    from rich.text import Text

    from nadi.models.standard_cases import CASES, cases
    from nadi.results.terminal.progress import show_progress
    from nadi.units import format_count, printable

    with show_progress(announce=False, use="generate") as progress:
        progress("writing cases")
        found = cases(output, ranks, overwrite=overwrite)
    console = output_console(wraps=False)
    width = max(map(len, found))
    for name in found:
        console.print(Text(f"{name:{width}}  {CASES[name]}"))
    nodes = sum(files.nodes for files in found.values())
    told = f"{len(found)} cases of {ranks} ranks, {format_count(nodes)} nodes, in {output}"
    console.print(Text(printable(told)))
