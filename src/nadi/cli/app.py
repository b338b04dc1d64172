"""The ``nadi`` command and its list of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nadi.cli import (
    analyze_command as analyze,
    attack_command as attack,
    collect_command as collect,
    collective_command as collective,
    compare_command as compare,
    convert_command as convert,
    critical_path_command as critical_path,
    cxl_command as cxl,
    demo_command as demo,
    diff_command as diff,
    estimate_command as estimate,
    extract_command as extract,
    fold_command as fold,
    generate_command as generate,
    graph_command as graph,
    info_command as info,
    learn_command as learn,
    link_command as link,
    loggp_command as loggp,
    obfuscate_command as obfuscate,
    offload_command as offload,
    record_fake_command as record_fake,
    reorder_command as reorder,
    replay_command as replay,
    report_command as report,
    run_command as run,
    scale_command as scale,
    search_command as search,
    simulate_command as simulate,
    synthesize_command as synthesize,
    systems_command as systems,
    timeline_command as timeline,
    unfold_command as unfold,
    validate_command as validate,
    view_command as view,
    waits_command as waits,
    what_if_command as what_if,
)
from nadi.cli.typer_internals import QuickCommand, QuickGroup
from nadi.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["make_app"]

# by what a user wants to know; the list of commands has these titles and this order
_COMMANDS: dict[str, dict[str, ModuleType]] = {
    "Find what bounds a step": {
        "demo": demo, "run": run, "critical-path": critical_path, "waits": waits,
        "analyze": analyze, "diff": diff, "report": report, "view": view, "graph": graph,
    },
    "Predict what a change gains": {"what-if": what_if, "reorder": reorder},
    "Simulate a job on another machine": {
        "simulate": simulate, "systems": systems, "collective": collective, "scale": scale,
        "fold": fold, "unfold": unfold, "loggp": loggp,
    },
    "Estimate without a trace": {
        "estimate": estimate, "search": search, "cxl": cxl, "offload": offload,
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
