"""``nadi simulate``: how long a job would take on a machine that is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nadi.cli.shared_options import AsJson, output_console
from nadi.errors import UsageError

if TYPE_CHECKING:
    from nadi.simulator.machine.system import System

__all__ = ["HELP", "command"]

HELP = """Say how long a job would take on a machine that is not there.

The job is a Chakra .et for each rank, or a recording: a host and a device trace
for each, as nadi run takes them. The machine is one that comes with Nadi (nadi
systems lists them), a file of yours, or described as for ASTRA-sim; with its files
the answers are that simulator's, to the nanosecond, and --right leaves out what is
odd about them.

[bold]Examples[/]

  nadi simulate TRACES --system dgx-h100
  nadi simulate TRACES --system mine.toml --json | jq .makespan_ns
  nadi simulate TRACES --system mine.toml -o schedule.csv
  nadi simulate TRACES --network net.yml --system-config sys.json
  nadi simulate traces/workload --system gb200-nvl72 --comm-group groups.json
"""


_Job = Annotated[
    str, typer.Argument(metavar="JOB", help="A folder of files such as workload.0.et, or "
                        "what their names begin with; or one of recordings.",
                        show_default=False),
]  # fmt: skip
_System = Annotated[
    str, typer.Option("--system", metavar="NAME|FILE", show_default=False,
                      help="A system that comes with Nadi, or a file in TOML, YAML or JSON."),
]  # fmt: skip
_Network = Annotated[
    Path | None, typer.Option("--network", metavar="YAML", help="ASTRA-sim's network file.",
                              show_default=False),
]  # fmt: skip
_SystemConfig = Annotated[
    Path | None, typer.Option("--system-config", metavar="JSON", show_default=False,
                              help="ASTRA-sim's system file."),
]  # fmt: skip
_RemoteMemory = Annotated[
    Path | None, typer.Option("--remote-memory", metavar="JSON", show_default=False,
                              help="ASTRA-sim's file of the remote memory."),
]  # fmt: skip
_CommGroup = Annotated[
    Path | None, typer.Option("--comm-group", metavar="JSON", show_default=False,
                              help="ASTRA-sim's file of process groups and their ranks, for "
                              "traces that do not state them; with --system too."),
]  # fmt: skip
_Congestion = Annotated[
    bool, typer.Option("--congestion", help="Let messages wait for each other on links.")
]
_Queues = Annotated[int, typer.Option("--queues", metavar="N", min=1, help="Queues per dimension.")]
_Rendezvous = Annotated[
    bool, typer.Option("--rendezvous", help="Receivers ask before senders send.")
]
_InjectionScale = Annotated[
    int, typer.Option("--injection-scale", metavar="N", min=1,
                      help="How often each packet takes the endpoint delay."),
]  # fmt: skip
_Right = Annotated[bool, typer.Option("--right", help="Give right answers, not ASTRA-sim's.")]
_Output = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", show_default=False,
                      help="Write the whole result (.json), the schedule (.csv), both exactly "
                      "(.nadi), a timeline with the critical path for ui.perfetto.dev "
                      "(.trace.json, .pftrace), or what Chakra's timeline visualizer reads "
                      "(.log). Any but .nadi with .gz is compressed."),
]  # fmt: skip
_Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")]


class _AstraSim(NamedTuple):
    """What goes with ASTRA-sim's files only, by the names of its options."""

    network: Path | None = None
    system_config: Path | None = None
    remote_memory: Path | None = None
    congestion: bool = False
    queues: int = 1
    rendezvous: bool = False
    injection_scale: int = 1
    right: bool = False


def command(
    job: _Job,
    system: _System = "",
    network: _Network = None,
    system_config: _SystemConfig = None,
    remote_memory: _RemoteMemory = None,
    comm_group: _CommGroup = None,
    congestion: _Congestion = False,
    queues: _Queues = 1,
    rendezvous: _Rendezvous = False,
    injection_scale: _InjectionScale = 1,
    right: _Right = False,
    output: _Output = "",
    force: _Force = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a job, and print what bounds it."""
    from nadi.cli.progress_bar import show_progress

    with show_progress(announce=False) as progress:
        progress("starting")
        from nadi.load.simulation_jobs import read_job
        from nadi.pipeline.simulated_jobs import simulate
        from nadi.report.simulation_report import (
            check_output,
            describe_simulation,
            print_simulation,
            simulation_json,
            write_simulation,
        )
        from nadi.report.text_layout import print_written
        from nadi.simulator.results.simulation_results import results_of

        if output:
            given = (network, system_config, remote_memory, comm_group, system, job)
            check_output(output, [Path(path) for path in given if path], force=force)
        stated = _AstraSim(
            network, system_config, remote_memory, congestion, queues, rendezvous,
            injection_scale, right,
        )  # fmt: skip
        if system:
            machine_for = _described(system, comm_group, stated)
        else:
            machine_for = _of_astra_sim(comm_group, stated)
        found = read_job(job, progress)
        traces = found if isinstance(found, list) else found.traces
        if output:
            read = (source.path for trace in traces for source in trace.provenance.sources)
            check_output(output, [Path(name) for name in dict.fromkeys(read)], force=force)
        progress("simulating")
        done = simulate(found, machine_for(len(traces)))
        left_out = None
        if output:
            progress(f"writing {output}")
            left_out = write_simulation(done, output)
    if as_json:
        sys.stdout.write(simulation_json(describe_simulation(results_of(done))).decode())
        return
    console = output_console()
    print_simulation(results_of(done), console)
    if left_out is not None:
        print_written(output, left_out, console)


def _described(system: str, comm_group: Path | None, stated: _AstraSim) -> Callable[[int], System]:
    """Give the machine that a file or one of Nadi's describes, for a number of ranks."""
    from nadi.load.astra_sim_system import read_comm_groups
    from nadi.load.system_library import read_system_file

    for name, value, not_given in zip(_AstraSim._fields, stated, _AstraSim(), strict=True):
        if value != not_given:
            raise UsageError(
                f"--{name.replace('_', '-')}",
                "it goes with ASTRA-sim's files, and --system is given",
                "leave it out, and state it in the system's file",
            )
    described = read_system_file(system)
    if comm_group:
        described = described.with_groups(read_comm_groups(comm_group))
    return described.fit


def _of_astra_sim(comm_group: Path | None, stated: _AstraSim) -> Callable[[int], System]:
    """Give the machine that ASTRA-sim's files describe: theirs is the number of ranks."""
    from nadi.load.astra_sim_system import load_astra_sim_system
    from nadi.simulator.machine.astra_config import AstraSimOptions

    if not (stated.network and stated.system_config):
        raise UsageError(
            "nadi simulate", "it is not told on which machine",
            "give --system NAME (nadi systems lists them), or both --network and --system-config",
        )  # fmt: skip
    machine = load_astra_sim_system(
        stated.network, stated.system_config, stated.remote_memory, comm_group,
        AstraSimOptions(
            stated.congestion, stated.queues, stated.rendezvous, stated.injection_scale,
            "" if stated.right else "astra-sim",
        ),
    )  # fmt: skip
    return lambda _: machine
