"""``nadi draw timeline``: a schedule in a file as a timeline for trace viewers."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import Overwrite, output_console

HELP = """Draw a schedule for ui.perfetto.dev or chrome://tracing.

A schedule is a log of issued and completed nodes, as Chakra's timeline visualizer
takes it, or a table of nadi simulate -o FILE.csv. A log has lines such as

  issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_matmul
  callback,npu_id=0,curr_cycle=105,node_id=1,node_name=COMP_NODE_matmul

and counts cycles of --frequency. Traces are drawn by nadi convert.

[bold]Examples[/]

  nadi draw timeline run.log run.json
  nadi draw timeline run.log run.pftrace --frequency 1.5GHz
  nadi draw timeline schedule.csv schedule.json.gz
"""


def command(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The schedule.", show_default=False)
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The timeline: .json, .pftrace, or these with .gz.",
            show_default=False,
        ),
    ],
    frequency: Annotated[
        str,
        typer.Option(
            "--frequency", metavar="FREQUENCY",
            help="Of the cycles in a log, such as 1.5GHz or 1500 (MHz).",
        ),
    ] = "1GHz",
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Draw the schedule."""
    from nadi.graph.timeline.schedule_timeline import draw_schedule
    from nadi.results.text import print_written
    from nadi.units import format_counted

    number, left_out = draw_schedule(source, target, frequency, overwrite=overwrite)
    console = output_console()
    console.print(format_counted(number, "operation"))
    print_written(target, left_out, console)
