"""``nadi convert``: write a trace in another format."""

from typing import Annotated

import typer

from nadi.results.terminal.options import ChakraSchema, Format, Overwrite, output_console

HELP = """Convert a trace, or a folder of traces, to another format.

The input format is detected from the content. --to or the suffix of OUT selects the
output format:

  chakra       .et           Chakra execution trace, for simulators
  chakra-json  .json         the same as JSON
  linked-json  .linked.json  the format of chakra_trace_link
  kineto       .trace.json   for chrome://tracing, Perfetto and PyTorch tools
  perfetto     .pftrace      for ui.perfetto.dev; faster for large traces
  graphml      .graphml      for Gephi, yEd, NetworkX
  dot svg pdf                Graphviz drawings (svg and pdf need the dot program)
  csv          .csv          out.nodes.csv, out.deps.csv, ...
  nadi         .nadi         everything, lossless; opens fastest
  goal         .goal         all ranks of a folder, as messages: for LogGOPSim, htsim

A name that ends in .gz is compressed. IN and OUT can be URLs such as
s3://bucket/run. Data that the output format cannot hold is counted and listed.

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
        str, typer.Argument(metavar="OUT", help="A file, or a folder if IN is a folder.",
                            show_default=False),
    ],
    to: Format = "",
    schema: ChakraSchema = "",
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Convert, and print what was written and what was left out."""
    from rich.text import Text

    from nadi.results.terminal.progress import show_progress
    from nadi.results.text import print_issues
    from nadi.sharing.conversion.convert import convert
    from nadi.units import format_count, printable

    with show_progress(announce=True, use="convert") as progress:
        done = convert(source, target, to=to, schema=schema, overwrite=overwrite, progress=progress)
    console = output_console(wraps=False)
    for one in done:
        line = f"{one.source} -> {one.target} ({one.format}, {format_count(one.nodes)} nodes)"
        console.print(Text(printable(line)))
        print_issues(one.issues.iter_rows(named=True), console)
