"""The ``nadi`` command and its list of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nadi.analyses import command as analyze
from nadi.bottlenecks.changes import command as what_if
from nadi.bottlenecks.checks import command as check
from nadi.bottlenecks.differences import command as diff
from nadi.bottlenecks.hangs import command as hang
from nadi.bottlenecks.pages import report_command as report
from nadi.bottlenecks.paths import command as critical_path
from nadi.bottlenecks.steps import command as run, demo_command as demo
from nadi.bottlenecks.waiting import command as waits
from nadi.cli import info_command as info
from nadi.estimates.searches import command as search
from nadi.estimates.single import command as estimate
from nadi.graph import draw_command as draw_graph
from nadi.graph.timeline import command as draw_timeline
from nadi.jobs.folded import command as fold
from nadi.jobs.generated import command as generate
from nadi.jobs.scaled import command as scale
from nadi.memory.offloading import command as memory_offload
from nadi.memory.placement import command as memory_place
from nadi.memory.tiers import command as memory_plan
from nadi.pytorch.collecting import command as record
from nadi.pytorch.rerunning import command as rerun
from nadi.results.terminal.typer_internals import QuickCommand, QuickGroup
from nadi.serving import command as serve
from nadi.sharing.attacks import command as attack
from nadi.sharing.conversion import convert_command as convert, link_command as link
from nadi.sharing.obfuscation import command as obfuscate
from nadi.sharing.parts import command as extract
from nadi.sharing.similarity import command as similarity
from nadi.sharing.synthesis import command as synthesize, learn_command as learn
from nadi.simulation.alone import command as collective
from nadi.simulation.loggp import command as loggp
from nadi.simulation.runs import command as simulate
from nadi.systems import command as systems
from nadi.version import __version__

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

# rooms do not know each other: this one simulates what that one checks
estimate.offloaded_simulation = memory_place.simulate_offloaded

# the list of commands has these titles and this order: first what most users need, then the rest
# by what a user wants to know
_COMMANDS: dict[str, dict[str, ModuleType]] = {
    "Start here": {
        "demo": demo, "run": run, "waits": waits, "analyze": analyze, "diff": diff,
        "what-if": what_if, "simulate": simulate, "estimate": estimate,
        "memory place": memory_place, "memory plan": memory_plan, "memory offload": memory_offload,
        "record": record, "generate": generate, "convert": convert,
    },
    "More on what bounds a step": {
        "critical-path": critical_path, "check": check, "hang": hang, "report": report,
        "draw graph": draw_graph, "draw timeline": draw_timeline,
    },
    "More on other machines and sizes": {
        "systems": systems, "collective": collective, "loggp": loggp, "search": search,
        "serve": serve, "scale": scale, "fold": fold,
    },
    "Read recordings, and run them again": {
        "info": info, "link": link, "extract": extract, "rerun": rerun,
    },
    "Share jobs": {
        "obfuscate": obfuscate, "attack": attack, "learn": learn, "synthesize": synthesize,
        "similarity": similarity,
    },
}  # fmt: skip
_HELP = """Find the bottleneck of an AI training or inference step from PyTorch traces.

  nadi demo                              the recording that ships with Nadi
  nadi record -- python train.py         record a program of yours
  nadi run TRACES                        a folder: a pair of traces per rank
  nadi run TRACES --step 5 -o results    one step, and result files
"""
_GROUPS = {
    "memory": """Ask what memory tiers, such as CXL memory, change for a job or a plan.

A tier has a bandwidth, a latency and a capacity; nadi systems dgx-h100-cxl shows one.

[bold]Examples[/]

  nadi memory place RECORDING --system dgx-h100 --place optimizer=cxl   this job
  nadi memory plan --model 175b --system h100                           the best plan
  nadi memory offload opt-30b t4                                        a larger model
""",
    "draw": """Draw the graph of a step, or a schedule as a timeline.

Traces of a recording are drawn by nadi convert, and what was found by nadi report.

[bold]Examples[/]

  nadi draw graph TRACES -o graph.svg
  nadi draw timeline schedule.csv schedule.json.gz
""",
}


class _CommandList(QuickGroup):
    """The list of commands, whose help fits one screen, and takes no time to be laid out."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Give the names in the order of the list above."""
        return list(dict.fromkeys(one.split()[0] for some in _COMMANDS.values() for one in some))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what to start with, and a line for each command, below its title."""
        formatter.write(f"{self.get_usage(ctx)}\n\n{_HELP}\n")
        title = ""
        width = max(map(len, self.commands))
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            if command.rich_help_panel != title:
                title = str(command.rich_help_panel)
                formatter.write(f"{typer.style(title, bold=True)}\n")
            summary = str(command.help).partition("\n")[0]
            formatter.write(f"  {typer.style(f'{name:{width}}', fg='cyan')}  {summary}\n")
        formatter.write(
            "\nnadi COMMAND --help says more, and nadi --version which version this is.\n"
        )


def make_app(named: str | None = None) -> typer.Typer:
    """Make the list of commands.

    - ``named``: The only command that has its parameters, or an empty text for none: typer looks
      long at those of each. By default all have theirs.
    """
    app = typer.Typer(
        name="nadi",
        cls=_CommandList,
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    groups: dict[str, typer.Typer] = {}
    for title, modules in _COMMANDS.items():
        for words, module in modules.items():
            group, _, name = words.rpartition(" ")
            is_whole = named is None or words.split()[0] == named
            if module is generate:
                inner = generate.generate if is_whole else typer.Typer()
                app.add_typer(inner, name=name, help=module.HELP, rich_help_panel=title)
                continue
            if group and group not in groups:
                groups[group] = typer.Typer(
                    cls=QuickGroup, rich_markup_mode="rich", no_args_is_help=True
                )
                app.add_typer(groups[group], name=group, help=_GROUPS[group], rich_help_panel=title)
            if group and not is_whole:
                continue
            declare = groups.get(group, app).command
            panel = None if group else title
            of_it = declare(name, cls=QuickCommand, help=module.HELP, rich_help_panel=panel)
            of_it(module.command if is_whole else _listed)
    app.callback()(_nadi)
    return app


def _listed() -> None:
    """Stand for a command of which only the name and the help are asked for."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nadi {__version__}")
        raise typer.Exit


def _nadi(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Print the version, or go on."""
