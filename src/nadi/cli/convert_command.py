"""``nadi convert``: a trace in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.cli.shared_options import ChakraSchema, Format, output_console

__all__ = ["HELP", "command"]

HELP = """Convert a trace, or each trace of a folder, to another format.

What a file is, its content tells; what is written, the suffix of OUT or --to:

  chakra       .et           Chakra execution trace, as simulators read it
  chakra-json  .json         the same as JSON
  linked-json  .linked.json  as chakra_trace_link writes it
  kineto       .trace.json   for chrome://tracing, Perfetto and PyTorch's tools
  perfetto     .pftrace      for ui.perfetto.dev: large traces open faster
  graphml      .graphml      for Gephi, yEd, NetworkX
  dot svg pdf                Graphviz; drawings need its program
  csv          .csv          out.nodes.csv, out.deps.csv, ...
  nadi         .nadi         everything, exactly; opens in a moment

With .gz at its end a file is compressed. IN and OUT may be addresses such as
s3://bucket/run. What a format has no place for is told, by count.

[bold]Examples[/]

  nadi convert rank0.et rank0.graphml
  nadi convert device.json.gz device.pftrace
  nadi convert TRACES OUT --to nadi
"""


def command(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A trace, or a folder of traces.",
                            show_default=False),
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="A file; a folder, if IN is one.",
                            show_default=False),
    ],
    to: Format = "",
    schema: ChakraSchema = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:  # fmt: skip
    """Convert, and say what was written and what was left out."""
    from rich.text import Text

    from nadi.cli.progress_bar import show_progress
    from nadi.pipeline.conversion import convert
    from nadi.report.text_layout import print_issues
    from nadi.units import format_count, printable

    with show_progress(announce=True) as progress:
        done = convert(source, target, to=to, schema=schema, force=force, progress=progress)
    console = output_console(wraps=False)
    for one in done:
        line = f"{one.source} -> {one.target} ({one.format}, {format_count(one.nodes)} nodes)"
        console.print(Text(printable(line)))
        print_issues(one.issues.iter_rows(named=True), console)
