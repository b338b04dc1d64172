"""``nadi simulate``: a job on a described system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nadi.errors import UsageError
from nadi.results.terminal.options import (
    AsJson,
    Measured,
    Overwrite,
    ReportFile,
    SystemName,
    output_console,
)

if TYPE_CHECKING:
    import polars as pl

    from nadi.simulation.simulation import Simulation
    from nadi.systems.memory_changes import MemoryChange
    from nadi.systems.prices.learned_prices import LearnedPrices
    from nadi.systems.system import System
    from nadi.trace.trace import Trace
    from nadi.whatif.changes import Change

HELP = """Simulate a job on a described system: time and bottleneck.

The job is a Chakra .et file per rank, or a recording: a host and a device trace per
rank, as for nadi run. The system is one that ships with Nadi (nadi systems lists
them), a file of yours, or a set of ASTRA-sim configuration files. With ASTRA-sim's
files the results equal ASTRA-sim's to the nanosecond; --default-rules turns off its
known quirks. Computations without a time are priced by the system's device.

[bold]Examples[/]

  nadi simulate TRACES --system dgx-h100
  nadi simulate TRACES --system mine.toml --json | jq .makespan_ns
  nadi simulate TRACES --system mine.toml -o schedule.csv
  nadi simulate TRACES --system mine.toml --report simulated.html
  nadi simulate TRACES --network net.yml --system-config sys.json
  nadi simulate traces/workload --system gb200-nvl72 --comm-group groups.json
  nadi simulate TRACES --system dgx-h100 --prices RECORDING
  nadi simulate TRACES --system dgx-h100 --measured nccl-tests.txt
  nadi simulate JOB_A JOB_B --system mine.toml --on 0-15 --on 16-31
  nadi simulate TRACES --system dgx-h100-cxl --what-if 'memory cxl.bandwidth 2x'
"""


_Jobs = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="A folder of files such as workload.0.et, the "
                              "prefix of their names, or a folder of recordings. Several jobs "
                              "run at once, and share the links of the network.",
                              show_default=False),
]  # fmt: skip
_On = Annotated[
    list[str] | None,
    typer.Option(
        "--on", metavar="RANKS",
        help="The ranks of the system on which a job runs, such as 0-7,16-23; once for each job, "
        "in their order. By default one job follows the other.",
        show_default=False,
    ),
]  # fmt: skip
_Network = Annotated[
    Path | None, typer.Option("--network", metavar="YAML",
                              help="ASTRA-sim's network configuration.",
                              show_default=False),
]  # fmt: skip
_SystemConfig = Annotated[
    Path | None, typer.Option("--system-config", metavar="JSON", show_default=False,
                              help="ASTRA-sim's system configuration."),
]  # fmt: skip
_RemoteMemory = Annotated[
    Path | None, typer.Option("--remote-memory", metavar="JSON", show_default=False,
                              help="ASTRA-sim's remote memory configuration."),
]  # fmt: skip
_CommGroups = Annotated[
    list[Path] | None, typer.Option("--comm-group", metavar="JSON", show_default=False,
                                    help="ASTRA-sim's file of process groups and their ranks, for "
                                    "traces that do not contain them; also with --system. Of "
                                    "several jobs one for each, in their order."),
]  # fmt: skip
_Congestion = Annotated[
    bool, typer.Option("--congestion", help="Model contention: messages queue on links.")
]
_Queues = Annotated[
    int, typer.Option("--queues", metavar="N", min=1, help="Queues per network dimension.")
]
_Rendezvous = Annotated[
    bool,
    typer.Option(
        "--rendezvous", help="Rendezvous protocol: a sender waits for the receiver's request."
    ),
]
_InjectionScale = Annotated[
    float, typer.Option("--injection-scale", metavar="X", min=0,
                        help="Factor of the endpoint delay."),
]  # fmt: skip
_DefaultRules = Annotated[
    bool, typer.Option("--default-rules", help="With ASTRA-sim's files: Nadi's default rules, "
                       "without the known quirks of ASTRA-sim."),
]  # fmt: skip
_Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", min=1, show_default="as the file states, or 1",
                      help="Ranks that run a text workload of ASTRA-sim 1.0, SimAI or AICB."),
]  # fmt: skip
_Prices = Annotated[
    str, typer.Option("--prices", metavar="RECORDING", show_default=False,
                      help="A folder of recordings: computations of the job without a time "
                      "take the times of the same operations in it."),
]  # fmt: skip
_WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if", metavar="CHANGE", show_default=False,
        help="Say what a change would do: one of nadi what-if, such as 'scale attention 0.5', or "
        "other memory, such as 'memory cxl.bandwidth 2x' or 'memory pcie.read 100GB/s': NAME.KEY "
        "of a memory tier or path of the system, and a factor or a figure. KEY: bandwidth, read, "
        "write, latency, capacity. Repeat for several, each alone.",
    ),
]  # fmt: skip
_Output = Annotated[
    str, typer.Option("-o", "--output", metavar="OUT", show_default=False,
                      help="Write all results (.json), the schedule (.csv), both lossless "
                      "(.nadi), a timeline with the critical path for ui.perfetto.dev "
                      "(.trace.json, .pftrace), or a log for Chakra's timeline visualizer "
                      "(.log). Add .gz to compress (not for .nadi)."),
]  # fmt: skip


class _AstraSim(NamedTuple):
    """Options that apply to ASTRA-sim's files only, by name."""

    network: Path | None = None
    system_config: Path | None = None
    remote_memory: Path | None = None
    congestion: bool = False
    queues: int = 1
    rendezvous: bool = False
    injection_scale: float = 1
    default_rules: bool = False


def command(
    job: _Jobs,
    on: _On = None,
    system: SystemName = "",
    network: _Network = None,
    system_config: _SystemConfig = None,
    remote_memory: _RemoteMemory = None,
    comm_group: _CommGroups = None,
    congestion: _Congestion = False,
    queues: _Queues = 1,
    rendezvous: _Rendezvous = False,
    injection_scale: _InjectionScale = 1,
    default_rules: _DefaultRules = False,
    ranks: _Ranks = None,
    prices: _Prices = "",
    measured: Measured = None,
    what_if: _WhatIf = None,
    output: _Output = "",
    report: ReportFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a job, and print what bounds it."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="simulate") as progress:
        progress("starting")
        from nadi.recordings.jobs import read_job
        from nadi.simulation.runs.simulate import name_jobs, simulate_placed, traces_of
        from nadi.simulation.runs.simulation_report import check_simulation_output

        changes = _parsed(what_if or [])
        files = (network, system_config, remote_memory)
        if output:
            given = (*files, *(comm_group or []), *(measured or []), system, *job, prices)
            check_simulation_output(
                output, [Path(path) for path in given if path], overwrite=overwrite
            )
        if report:
            _check_page(report, job, overwrite=overwrite)
        stated = _AstraSim(*files, congestion, queues, rendezvous, injection_scale, default_rules)
        own, groups = _groups_of_jobs(comm_group or [], len(job), alone=len(job) == 1 and not on)
        machine_for = _with_measured(_machine_for(system, own, stated), measured or [])
        found = [read_job(one, progress, ranks or 0) for one in job]
        for one in found if output else ():
            check_simulation_output(output, _sources(traces_of(one)), overwrite=overwrite)
        learned = _learned(prices, progress)
        progress("simulating")

        def simulated(fit: Callable[[int], System]) -> Simulation:
            return simulate_placed(jobs, fit, on or [], groups, learned)

        jobs = name_jobs(job, found)
        done, compared = _simulated(simulated, machine_for, changes)
        left_out = _written(done, output, report, Path(job[0]).name, progress)
    _show(done, compared, as_json=as_json)
    if not as_json:
        _print_written(output, left_out, report)


def _parsed(texts: Sequence[str]) -> list[Change | MemoryChange]:
    if not texts:
        return []
    from nadi.simulation.runs.changes import parse_simulated_change

    return [parse_simulated_change(text) for text in texts]


def _simulated(
    simulated: Callable[[Callable[[int], System]], Simulation],
    machine_for: Callable[[int], System], changes: Sequence[Change | MemoryChange],
) -> tuple[Simulation, pl.DataFrame | None]:  # fmt: skip
    """Return the simulation, and what changes would do if there are any."""
    if not changes:
        return simulated(machine_for), None
    from nadi.simulation.runs.changes import with_changes

    return with_changes(simulated, machine_for, changes)


def _check_page(report: Path, job: Sequence[str], *, overwrite: bool) -> None:
    from nadi.results.page.html_page import check_page

    check_page(report, [Path(path) for path in job], overwrite=overwrite)


def _written(
    done: Simulation, output: str, report: Path | None, title: str, progress: Callable[[str], None]
) -> pl.DataFrame | None:
    """Write the files that are asked for; gives what the result's format cannot hold."""
    from nadi.simulation.runs.simulation_report import write_simulation

    left_out = None
    if output:
        progress(f"writing {output}")
        left_out = write_simulation(done, output)
    if report:
        from nadi.simulation.runs.timeline import write_simulation_page

        progress(f"writing {report}")
        write_simulation_page(done, report, title)
    return left_out


def _print_written(output: str, left_out: pl.DataFrame | None, report: Path | None) -> None:
    from nadi.results.text import print_written

    if left_out is not None:
        print_written(output, left_out, output_console())
    if report:
        output_console().print(f"wrote {report}", markup=False)


def _show(done: Simulation, compared: pl.DataFrame | None, *, as_json: bool) -> None:
    """Print the results, and what changes would do."""
    from nadi.simulation.accounts.simulation_results import results_of
    from nadi.simulation.runs.result import SIMULATION, changes_data

    data = SIMULATION.data(results_of(done))
    if compared is not None:
        data["what_if"] = changes_data(compared)
    SIMULATION.tell(data, as_json=as_json)


def _groups_of_jobs(
    paths: Sequence[Path], num_jobs: int, *, alone: bool
) -> tuple[Path | None, list[dict[str, tuple[int, ...]]]]:
    """Return the file of groups of one job, and the process groups of each of several."""
    if alone and len(paths) < 2:
        return (paths[0] if paths else None), []
    if paths and len(paths) != num_jobs:
        raise UsageError(
            "--comm-group", f"files: {len(paths)}, jobs: {num_jobs}",
            "give one for each job, in their order",
        )  # fmt: skip
    from nadi.systems.importers.astra_sim import read_comm_groups

    return None, [read_comm_groups(path) for path in paths]


def _sources(traces: Sequence[Trace]) -> list[Path]:
    """Return the files that traces come from."""
    read = (source.path for trace in traces for source in trace.provenance.sources)
    return [Path(name) for name in dict.fromkeys(read)]


def _learned(recording: str, progress: Callable[[str], None]) -> LearnedPrices | None:
    """Return the prices of a recording, if one is given."""
    if not recording:
        return None
    from nadi.recordings.jobs import read_job
    from nadi.systems.prices.learned_prices import learn_prices

    progress(f"learning prices of {recording}")
    return learn_prices(read_job(recording))


def _machine_for(
    system: str, comm_group: Path | None, stated: _AstraSim
) -> Callable[[int], System]:
    """Return what gives the system for a number of ranks."""
    if system:
        return _described(system, comm_group, stated)
    return _of_astra_sim(comm_group, stated)


def _with_measured(
    machine_for: Callable[[int], System], paths: Sequence[Path]
) -> Callable[[int], System]:
    """Return what gives the system, with measured times of collectives if some are given."""
    if not paths:
        return machine_for
    from nadi.simulation.alone.collective import with_tables
    from nadi.systems.library import read_measured_collectives

    tables = read_measured_collectives(paths)
    return lambda num_ranks: with_tables(machine_for(num_ranks), tables)


def _described(system: str, comm_group: Path | None, stated: _AstraSim) -> Callable[[int], System]:
    """Return the system of a file, or one that ships with Nadi, for a number of ranks."""
    from nadi.systems.importers.astra_sim import read_comm_groups
    from nadi.systems.library import read_system_file

    for name, value, not_given in zip(_AstraSim._fields, stated, _AstraSim(), strict=True):
        if value != not_given:
            raise UsageError(
                f"--{name.replace('_', '-')}",
                "is for ASTRA-sim's files, and --system is given",
                "leave it out, and set it in the system's file",
            )
    described = read_system_file(system)
    if comm_group:
        described = described.with_groups(read_comm_groups(comm_group))
    return described.fit


def _of_astra_sim(comm_group: Path | None, stated: _AstraSim) -> Callable[[int], System]:
    """Return the system of ASTRA-sim's files, which also set the number of ranks."""
    from nadi.systems.importers.astra_sim import AstraSimOptions, load_astra_sim_system

    if not (stated.network and stated.system_config):
        raise UsageError(
            "nadi simulate", "no system is given",
            "give --system NAME (nadi systems lists them), or both --network and --system-config",
        )  # fmt: skip
    machine = load_astra_sim_system(
        stated.network, stated.system_config, stated.remote_memory, comm_group,
        AstraSimOptions(
            stated.congestion, stated.queues, stated.rendezvous, stated.injection_scale,
            "" if stated.default_rules else "astra-sim",
        ),
    )  # fmt: skip
    return lambda _: machine
