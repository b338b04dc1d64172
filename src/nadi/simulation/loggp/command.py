"""``nadi loggp``: a program of messages in a LogGP model."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson, output_console

HELP = """Predict when ranks finish in a LogGP model of messages.

PROGRAM is a GOAL file, or a job as for nadi simulate, whose collectives are taken
apart into messages. The network has no links that messages share; processors and
network interfaces take one message at a time. nadi convert JOB job.goal writes the
program for LogGOPSim, ATLAHS, htsim or ns-3.

[bold]Examples[/]

  nadi loggp job.goal --latency 2.5us --overhead 1.5us --gap 1us --gap-per-byte 6ns
  nadi loggp TRACES --latency 2us --overhead 1us --gap 0ns --gap-per-byte 50GB/s
"""


_Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="A GOAL file, or a folder of traces.",
                        show_default=False),
]  # fmt: skip
_Latency = Annotated[
    str, typer.Option("--latency", metavar="TIME", show_default=False,
                      help="L: from a sender to a receiver."),
]  # fmt: skip
_Overhead = Annotated[
    str, typer.Option("--overhead", metavar="TIME", show_default=False,
                      help="o: of a processor, for a message that it sends or receives."),
]  # fmt: skip
_Gap = Annotated[
    str, typer.Option("--gap", metavar="TIME", show_default=False,
                      help="g: between two messages of a network interface."),
]  # fmt: skip
_GapPerByte = Annotated[
    str, typer.Option("--gap-per-byte", metavar="TIME|RATE", show_default=False,
                      help="G: time of a byte, such as 20ps, or a bandwidth, such as 50GB/s."),
]  # fmt: skip
_OverheadPerByte = Annotated[
    str, typer.Option("--overhead-per-byte", metavar="TIME|RATE",
                      help="O: time of a processor for each byte."),
]  # fmt: skip
_EagerLimit = Annotated[
    str, typer.Option("--eager-limit", metavar="SIZE",
                      help="S: a larger message waits for its receive."),
]  # fmt: skip
_System = Annotated[
    str, typer.Option("--system", metavar="NAME|FILE", show_default=False,
                      help="A system whose device prices computations without a time."),
]  # fmt: skip
_CommGroup = Annotated[
    Path | None,
    typer.Option("--comm-group", metavar="JSON", show_default=False,
                 help="ASTRA-sim's file of process groups and their ranks, for traces that "
                 "do not contain them."),
]  # fmt: skip


def command(
    program: _Program,
    latency: _Latency,
    overhead: _Overhead,
    gap: _Gap,
    gap_per_byte: _GapPerByte,
    overhead_per_byte: _OverheadPerByte = "0ns",
    eager_limit: _EagerLimit = "65535B",
    system: _System = "",
    comm_group: _CommGroup = None,
    as_json: AsJson = False,
) -> None:
    """Run a program of messages, and print when ranks finish."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="loggp") as progress:
        progress("starting")
        from nadi.simulation.loggp.loggp import LogGP
        from nadi.simulation.loggp.message_jobs import simulate_messages
        from nadi.systems.importers.astra_sim import read_comm_groups
        from nadi.trace.issues import IssueLog

        machine = LogGP.of_texts(
            latency, overhead, gap, gap_per_byte, overhead_per_byte, eager_limit
        )
        groups = read_comm_groups(comm_group) if comm_group else {}
        log = IssueLog()
        times = simulate_messages(
            program, machine, groups, system=system, log=log, progress=progress
        )
    from nadi.results.text import print_issues
    from nadi.simulation.loggp.loggp import MESSAGES

    MESSAGES.tell(MESSAGES.data(times), as_json=as_json)
    if not as_json:
        print_issues(log.table().iter_rows(named=True), output_console())
