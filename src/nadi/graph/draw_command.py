"""``nadi draw graph``: a part of the event graph as a drawing."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import Overwrite, output_console
from nadi.results.terminal.progress import show_progress

HELP = """Draw the event graph around an operation, or by module.

Arrows are dependencies and the order on threads and streams, by kind. A drawing has at
most 100 nodes: without --operation and --around, modules and phases of the step are the
nodes, and the command prints what was condensed. SVG and PDF need Graphviz.

[bold]Examples[/]

  nadi draw graph TRACES -o graph.svg
  nadi draw graph TRACES -o near.dot --operation aten::addmm --hops 3
  nadi draw graph TRACES -o near.graphml --around 2:1234
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="TRACES", show_default=False, help="Traces as for nadi run."),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="A .svg, .dot, .graphml or .pdf file."),
    ] = Path("graph.svg"),
    operation: Annotated[
        str,
        typer.Option("--operation", metavar="REGEX", show_default=False,
                     help="Draw what is near the first operation whose name matches."),
    ] = "",
    around: Annotated[
        str,
        typer.Option("--around", metavar="ID|RANK:ID", show_default=False,
                     help="Draw what is near the operation with this id."),
    ] = "",
    hops: Annotated[
        int, typer.Option("--hops", metavar="EDGES", min=1, help="How far from the operation.")
    ] = 2,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Draw."""
    with show_progress(announce=False, use="run") as progress:
        progress("starting")
        from nadi.graph.drawing import draw_graph

        part = draw_graph(paths, output, operation=operation, around=around, hops=hops,
                          overwrite=overwrite, progress=progress)  # fmt: skip
    console = output_console()
    console.print(part.note, markup=False)
    console.print(f"wrote {output}", markup=False)
