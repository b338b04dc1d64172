"""The ``nadi`` command and its list of commands."""

from __future__ import annotations

from typing import Annotated

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

__all__ = ["app"]

app = typer.Typer(
    name="nadi",
    cls=QuickGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=QuickCommand, help=run.HELP)(run.command)
app.command("demo", cls=QuickCommand, help=demo.HELP)(demo.command)
app.command("analyze", cls=QuickCommand, help=analyze.HELP)(analyze.command)
app.command("diff", cls=QuickCommand, help=diff.HELP)(diff.command)
app.command("report", cls=QuickCommand, help=report.HELP)(report.command)
app.command("view", cls=QuickCommand, help=view.HELP)(view.command)
app.command("critical-path", cls=QuickCommand, help=critical_path.HELP)(critical_path.command)
app.command("simulate", cls=QuickCommand, help=simulate.HELP)(simulate.command)
app.command("loggp", cls=QuickCommand, help=loggp.HELP)(loggp.command)
app.command("collective", cls=QuickCommand, help=collective.HELP)(collective.command)
app.command("systems", cls=QuickCommand, help=systems.HELP)(systems.command)
app.command("estimate", cls=QuickCommand, help=estimate.HELP)(estimate.command)
app.command("search", cls=QuickCommand, help=search.HELP)(search.command)
app.command("cxl", cls=QuickCommand, help=cxl.HELP)(cxl.command)
app.command("offload", cls=QuickCommand, help=offload.HELP)(offload.command)
app.command("waits", cls=QuickCommand, help=waits.HELP)(waits.command)
app.command("what-if", cls=QuickCommand, help=what_if.HELP)(what_if.command)
app.command("fold", cls=QuickCommand, help=fold.HELP)(fold.command)
app.command("unfold", cls=QuickCommand, help=unfold.HELP)(unfold.command)
app.command("scale", cls=QuickCommand, help=scale.HELP)(scale.command)
app.command("obfuscate", cls=QuickCommand, help=obfuscate.HELP)(obfuscate.command)
app.command("attack", cls=QuickCommand, help=attack.HELP)(attack.command)
app.command("learn", cls=QuickCommand, help=learn.HELP)(learn.command)
app.command("synthesize", cls=QuickCommand, help=synthesize.HELP)(synthesize.command)
app.command("compare", cls=QuickCommand, help=compare.HELP)(compare.command)
app.command("reorder", cls=QuickCommand, help=reorder.HELP)(reorder.command)
app.command("info", cls=QuickCommand, help=info.HELP)(info.command)
app.command("link", cls=QuickCommand, help=link.HELP)(link.command)
app.command("convert", cls=QuickCommand, help=convert.HELP)(convert.command)
app.command("timeline", cls=QuickCommand, help=timeline.HELP)(timeline.command)
app.command("graph", cls=QuickCommand, help=graph.HELP)(graph.command)
app.command("extract", cls=QuickCommand, help=extract.HELP)(extract.command)
app.command("validate", cls=QuickCommand, help=validate.HELP)(validate.command)
app.command("record-fake", cls=QuickCommand, help=record_fake.HELP)(record_fake.command)
app.command("collect", cls=QuickCommand, help=collect.HELP)(collect.command)
app.command("replay", cls=QuickCommand, help=replay.HELP)(replay.command)
app.add_typer(generate.generate, name="generate", help=generate.HELP)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nadi {__version__}")
        raise typer.Exit


@app.callback()
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

      nadi demo                              analyse the recording that ships with Nadi
      nadi run TRACES                        a folder with a pair of traces per rank
      nadi run host.json.gz device.json.gz   one rank
      nadi run TRACES --step 5 -o results    one step, and result files
      nadi run TRACES --what-if 'scale aten::mm 0.5'

    A pair of traces is the execution trace (host), which PyTorch's
    ExecutionTraceObserver writes, and the Kineto trace (device), which the PyTorch
    profiler writes. Both come from one run, as JSON or gzip.
    """
