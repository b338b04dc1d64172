"""``nadi search``: the fastest way to run a model on a number of ranks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.errors import UsageError
from nadi.estimates.single.command import Compat, MachineName, ModelName, calibration_of
from nadi.estimates.single.sweep_output import check_output, show_sweep
from nadi.models.llm.options import Seq
from nadi.results.terminal.options import AsJson, Calibrate, ExecutorName, Overwrite, SweepOver

if TYPE_CHECKING:
    pass

HELP = """Find the fastest way to run a model on a number of ranks.

Tries every degree of tensor, pipeline, data and context parallelism, micro-batch,
interleaving, recomputation, sharding (ZeRO 1 to 3), overlap and offloading, or the values
of --set. Prints the fastest possible configurations, and why the others are not possible.

[bold]Examples[/]

  nadi search llama3-70b dgx-h100 --ranks 512 --global-batch 1024
  nadi search model.json machine.json --ranks 64 --global-batch 64 --top 5 \\
      --set tensor_par=4,8 --set activation_recompute=none,attn_only
  nadi search llama3-8b dgx-h100 --ranks 64 --global-batch 64 --set zero=3 --set cp=1,2
  nadi search model.json machine.json --ranks 512 --global-batch 512 -o FOLDER
  nadi search llama3-70b dgx-h100 --ranks 64 --global-batch 64 \\
      --sweep memory.tier2.bandwidth=32,64,128GB/s \\
      --sweep memory.tier2.capacity=1TiB -o best.html
"""
_TRUTH = {"true": True, "false": False}


_Ranks = Annotated[
    int, typer.Option("--ranks", metavar="N", min=1, help="How many ranks.",
                      show_default=False),
]  # fmt: skip
_GlobalBatch = Annotated[
    int, typer.Option("--global-batch", metavar="N", min=1, help="Sequences of a step.",
                      show_default=False),
]  # fmt: skip
SetFields = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE,...", show_default=False,
                 help="Try these values of a field of plans or executions; repeatable."),
]  # fmt: skip
_Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                 help="A folder for all configurations, as Parquet; a search that was stopped "
                 "continues. With --sweep a table or chart, as nadi estimate writes it."),
]  # fmt: skip


def command(
    model: ModelName,
    system: MachineName,
    ranks: _Ranks,
    global_batch: _GlobalBatch,
    given: SetFields = None,
    top: Annotated[
        int, typer.Option("--top", metavar="ROWS", min=1, help="How many to print."),
    ] = 20,
    round_batch: Annotated[
        bool, typer.Option("--round-batch", help="Let replicas that do not divide the batch take "
                           "the largest one below it that they divide."),
    ] = False,
    output: _Output = None,
    calibrate: Calibrate = None, seq: Seq = 0, compat: Compat = "", sweep: SweepOver = None,
    overwrite: Overwrite = False, executor: ExecutorName = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Search, and print the fastest."""
    from nadi.results.terminal.progress import show_progress

    if sweep:
        check_output(output, has_sweep=True, overwrite=overwrite)
    with show_progress(announce=False, counts="configurations") as progress:
        progress("starting")
        from nadi.estimates.calculon.rules import rules_named
        from nadi.estimates.search_layouts import search_space
        from nadi.estimates.searches.search import search, sweep_search
        from nadi.estimates.single.estimate import describe_search
        from nadi.estimates.stated_files import read_machine, read_model
        from nadi.results.terminal.workers import executor_named

        chosen = fields_in(given)
        rules = rules_named(compat)
        how: dict[str, Any] = {"round_batch": round_batch, "rules": rules}
        measured = calibration_of(calibrate, rules)
        with executor_named(executor) as workers:
            if sweep:
                described = describe_search(model, system, ranks, global_batch, seq, measured)
                progress("searching")
                swept = sweep_search(described, sweep, chosen, executor=workers, **how)
            else:
                told = read_model(model, seq), read_machine(system, ranks, calibration=measured)
                progress("searching")
                space = search_space(*told, ranks, global_batch, chosen, **how)
                found = search(space, top=top, output=output, executor=workers)
    if sweep:
        show_sweep(swept.frame(), swept.axes, f"{model} on {ranks} {system}", output,
                   as_json=as_json)  # fmt: skip
        return
    from nadi.estimates.searches.result import SEARCH

    SEARCH.tell(SEARCH.data((found, space)), as_json=as_json)
    if not found.num_feasible:
        raise typer.Exit(1)


def fields_in(given: list[str] | None) -> dict[str, list[Any]]:
    """Read the values of each field that ``--set`` gives."""
    return dict(map(_parsed, given or []))


def _parsed(text: str) -> tuple[str, list[Any]]:
    """Read ``FIELD=VALUE,...``; whole numbers and truth values become such."""
    field, equals, values = text.partition("=")
    if not (equals and field and values):
        raise UsageError(f"--set {text}", "is not FIELD=VALUE,...", "such as --set tensor_par=4,8")
    return field.strip(), [_value(one.strip()) for one in values.split(",")]


def _value(text: str) -> Any:
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    return int(text) if text.lstrip("-").isdigit() else text
