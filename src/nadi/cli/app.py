"""The ``nadi`` command and its list of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nadi.analyses import command as analyze
from nadi.bottlenecks.changes import command as what_if
from nadi.bottlenecks.differences import command as diff
from nadi.bottlenecks.hangs import command as hang
from nadi.bottlenecks.pages import report_command as report, view_command as view
from nadi.bottlenecks.paths import command as critical_path
from nadi.bottlenecks.reordering import command as reorder
from nadi.bottlenecks.steps import command as run, demo_command as demo
from nadi.bottlenecks.waiting import command as waits
from nadi.cli import info_command as info, validate_command as validate
from nadi.estimates.searches import command as search
from nadi.estimates.single import command as estimate
from nadi.graph import draw_command as graph
from nadi.graph.timeline import command as timeline
from nadi.jobs.folded import command as fold, unfold_command as unfold
from nadi.jobs.generated import generate_command as generate
from nadi.jobs.scaled import command as scale
from nadi.memory.offloading import command as offload
from nadi.memory.tiers import command as cxl
from nadi.pytorch.collecting import command as collect
from nadi.pytorch.fake import command as record_fake
from nadi.pytorch.rerunning import command as replay
from nadi.results.terminal.typer_internals import QuickCommand, QuickGroup
from nadi.serving import command as serve
from nadi.sharing.attacks import command as attack
from nadi.sharing.conversion import convert_command as convert, link_command as link
from nadi.sharing.obfuscation import command as obfuscate
from nadi.sharing.parts import command as extract
from nadi.sharing.similarity import command as compare
from nadi.sharing.synthesis import command as synthesize, learn_command as learn
from nadi.simulation.alone import command as collective
from nadi.simulation.loggp import command as loggp
from nadi.simulation.runs import command as simulate
from nadi.systems import command as systems
from nadi.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["make_app"]

# by what a user wants to know; the list of commands has these titles and this order
_COMMANDS: dict[str, dict[str, ModuleType]] = {
    "Find what bounds a step": {
        "demo": demo, "run": run, "critical-path": critical_path, "waits": waits,
        "hang": hang, "analyze": analyze, "diff": diff, "report": report, "view": view,
        "graph": graph,
    },
    "Predict what a change gains": {"what-if": what_if, "reorder": reorder},
    "Simulate a job on another machine": {
        "simulate": simulate, "systems": systems, "collective": collective, "scale": scale,
        "fold": fold, "unfold": unfold, "loggp": loggp,
    },
    "Estimate without a trace": {
        "estimate": estimate, "search": search, "serve": serve, "cxl": cxl, "offload": offload,
    },
    "Record and replay": {"collect": collect, "record-fake": record_fake, "replay": replay},
    "Read, check and convert traces": {
        "info": info, "validate": validate, "link": link, "convert": convert, "extract": extract,
        "timeline": timeline,
    },
    "Make and share jobs": {
        "generate": generate, "learn": learn, "synthesize": synthesize, "compare": compare,
        "obfuscate": obfuscate, "attack": attack,
    },
}  # fmt: skip


def make_app(named: str | None = None) -> typer.Typer:
    """Make the list of commands.

    Parameters
    ----------
    named
        The only command that has its parameters, or an empty text for none: typer looks long at
        those of each. By default all have theirs.
    """
    app = typer.Typer(
        name="nadi",
        cls=QuickGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for title, modules in _COMMANDS.items():
        for name, module in modules.items():
            is_whole = named is None or name == named
            if module is generate:
                inner = generate.generate if is_whole else typer.Typer()
                app.add_typer(inner, name=name, help=module.HELP, rich_help_panel=title)
                continue
            declare = app.command(name, cls=QuickCommand, help=module.HELP, rich_help_panel=title)
            declare(module.command if is_whole else _listed)
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
    """Find the bottleneck of an AI training or inference step from PyTorch traces.

    [bold]Start with[/]

      nadi demo                              the recording that ships with Nadi
      nadi run TRACES                        a folder: a pair of traces per rank
      nadi run host.json.gz device.json.gz   one rank
      nadi run TRACES --step 5 -o results    one step, and result files
      nadi run TRACES --what-if 'scale aten::mm 0.5'

    A pair of traces is the execution trace (host), which PyTorch's
    ExecutionTraceObserver writes, and the Kineto trace (device), which the PyTorch
    profiler writes. Both come from one run, as JSON or gzip.
    """
