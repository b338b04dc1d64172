"""What a generated job of a language model amounts to, as text and JSON.

What a generated job of a network amounts to, as text and JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.models.llm.job_statistics import JobStatistics
from nadi.models.networks.network_statistics import NetworkStatistics
from nadi.results.text import make_table, print_table, rank_ranges
from nadi.simulation.accounts.simulation_results import SimulationResults
from nadi.simulation.accounts.steady_step import steady_step
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.simulation import Simulation
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_number

__all__ = [
    "StepRate", "describe_job", "describe_network_job", "print_communication", "print_fit",
    "print_job", "print_memory", "print_network_fit", "print_network_job", "print_tables",
    "rate_of_step", "short",
]  # fmt: skip


_SHOWN = 6  # stages
_COMPONENTS = ("weights", "gradients", "optimizer", "tables", "activations", "kv_cache", "total")


def describe_job(statistics: JobStatistics) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames, per rank of a stage."""
    return {
        "ranks": statistics.world_size,
        "stages": statistics.memory.height,
        "micro_batches": statistics.micro_batches,
        "tokens": statistics.tokens,
        "parameters": statistics.parameters,
        "active_parameters": statistics.active_parameters,
        "flops": statistics.total_flops,
        "model_flops": statistics.model_flops,
        "flops_per_rank": statistics.flops,
        "communication_per_rank": statistics.communication,
        "memory_per_rank_bytes": statistics.memory,
    }


class StepRate(NamedTuple):
    """At which rate steps of a job follow each other.

    Attributes
    ----------
    step_ns
        From one step to the next. Of training it is the makespan; of inference steps follow each
        other without a pause, so that the stages of a pipeline stay full.
    tokens_per_second
        Of all ranks.
    mfu
        Model FLOPs utilization: FLOPs of the model, of what ranks could do, from 0 to 1; -1 if the
        peak is unknown or the step takes no time.
    """

    step_ns: int
    tokens_per_second: float
    mfu: float


def rate_of_step(statistics: JobStatistics, done: Simulation) -> StepRate:
    """Return at which rate simulated steps of a job follow each other."""
    step = done.makespan
    if statistics.inference:
        step = steady_step(done, feeds_back=statistics.inference == "decode")
    possible = done.system.compute.peak * statistics.world_size * step / 1e9
    share = statistics.model_flops / possible if possible > 0 else -1.0
    return StepRate(step, statistics.tokens / max(step, 1) * 1e9, share)


def print_fit(statistics: JobStatistics, done: Simulation, console: Console) -> None:
    """Print the rate and utilization of a simulated step, and whether it fits into memory."""
    step, rate, share = rate_of_step(statistics, done)
    full = "" if step == done.makespan else f" of full stages ({format_ns(step)} a step)"
    told = f", model FLOPs utilization {100 * share:.1f} %" if share >= 0 else ""
    console.print(f"{short(round(rate)).strip()} tokens/s{full}{told}", highlight=False)
    system = done.system
    most = int(statistics.memory["total"].max() or 0)  # type: ignore[arg-type]
    if system.memory_capacity and most > system.memory_capacity:
        console.print(
            f"does not fit: a rank needs {format_bytes(most)}, and a device has "
            f"{format_bytes(system.memory_capacity)}", highlight=False,
        )  # fmt: skip


def print_job(statistics: JobStatistics, console: Console) -> None:
    """Print a summary: what the job is, and what a rank holds and communicates at most."""
    stages = statistics.memory.height
    active = ""
    if statistics.active_parameters < statistics.parameters:
        active = f" ({short(statistics.active_parameters)} per token)"
    console.print(
        f"{short(statistics.parameters)} parameters{active} on "
        f"{format_counted(statistics.world_size, 'rank')} in {format_counted(stages, 'stage')}: "
        f"{short(statistics.model_flops)}FLOP and "
        f"{format_count(statistics.tokens)} tokens per step, "
        f"{format_counted(statistics.micro_batches, 'micro-batch', 'es')} per rank",
        highlight=False,
    )
    memory = statistics.memory.sort("total", descending=True, maintain_order=True)
    most = memory.row(0, named=True)
    parts = [f"{name} {format_bytes(most[name])}" for name in _COMPONENTS[:-1] if most.get(name)]
    console.print(
        f"most memory: {format_bytes(most['total'])} of a rank of stage {most['stage']}: "
        f"{', '.join(parts)}",
        highlight=False,
    )
    of_stage = statistics.communication.group_by("stage", "role", maintain_order=True).agg(
        pl.col("bytes").sum()
    )
    largest = of_stage.group_by("role").agg(pl.col("bytes").max()).sort("bytes", descending=True)
    told = [f"{role} {format_bytes(size)}" for role, size in largest.iter_rows()]
    if told:
        console.print(
            f"most communication of a rank per step, by group: {', '.join(told)}", highlight=False
        )


def print_tables(statistics: JobStatistics, console: Console) -> None:
    """Print memory and FLOPs of each stage, and communication by group and type."""
    print_memory(statistics.memory, console)
    _print_flops(statistics.flops, console)
    print_communication(statistics.communication, console)


def _print_flops(flops: pl.DataFrame, console: Console) -> None:
    shown = [name for name in flops.columns if name != "stage" and int(flops[name].sum())]
    table = make_table("FLOPs of a rank per step", stage="right", **dict.fromkeys(shown, "right"))
    for row in flops.head(_SHOWN).iter_rows(named=True):
        table.add_row(str(row["stage"]), *(short(row[name]).strip() for name in shown))
    if flops.height > _SHOWN:
        table.caption = f"and {flops.height - _SHOWN} more stages"
    print_table(table, console)


def short(number: int) -> str:
    """Format a large number with a prefix, as 174.6 G."""
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{format_number(number / 10**power)} {prefix}"
    return f"{format_count(number)} "


def print_memory(memory: pl.DataFrame, console: Console, rest: str = "stages") -> None:
    """Print the bytes of a rank of each stage, which the first column names.

    ``rest`` is the word for those that are not shown.
    """
    stage = memory.columns[0]
    shown = [name for name in _COMPONENTS if name in memory.columns and int(memory[name].sum())]
    table = make_table("memory of a rank", **{stage: "right"}, **dict.fromkeys(shown, "right"))
    for row in memory.head(_SHOWN).iter_rows(named=True):
        table.add_row(str(row[stage]), *(format_bytes(row[name]) for name in shown))
    if memory.height > _SHOWN:
        table.caption = f"and {memory.height - _SHOWN} more {rest}"
    print_table(table, console)


def print_communication(
    communication: pl.DataFrame, console: Console, which: str = "stage"
) -> None:  # fmt: skip
    """Print the stage that sends most of each role and type, which the first column names.

    ``which`` is the word for it.
    """
    if not communication.height:
        return
    stage = communication.columns[0]
    most = (
        communication.sort("bytes", descending=True, maintain_order=True)
        .group_by("role", "type", maintain_order=True)
        .first()
        .sort(pl.col("bytes"), descending=True, maintain_order=True)
    )
    table = make_table(
        f"communication of a rank per step, of the {which} with most",
        group="left", type="left", ranks="right", count="right", bytes="right", **{stage: "right"},
    )  # fmt: skip
    for row in most.iter_rows(named=True):
        table.add_row(
            Text(row["role"]), row["type"], format_count(row["ranks"]), format_count(row["count"]),
            format_bytes(row["bytes"]), str(row[stage]),
        )  # fmt: skip
    print_table(table, console)


_SHOWN_OF_REPORT = 12  # parts


def describe_network_job(
    statistics: NetworkStatistics, results: SimulationResults | None = None
) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames, per rank of a kind."""
    found: dict[str, Any] = {
        "ranks": statistics.world_size,
        "samples": statistics.samples,
        "parameters": statistics.parameters,
        "table_parameters": statistics.table_parameters,
        "macs": statistics.macs,
        "model_flops": statistics.model_flops,
        "ranks_of_kind": _ranks_of_kinds(statistics),
        "layers": statistics.layers,
        "flops_per_rank": statistics.flops,
        "communication_per_rank": statistics.communication,
        "memory_per_rank_bytes": statistics.memory,
    }
    if results is not None:
        found["simulation"] = SIMULATION.data(results)
        found["mfu"] = _utilization(statistics, results)
    return found


def _utilization(statistics: NetworkStatistics, results: SimulationResults) -> float:
    possible = results.system.compute.peak * statistics.world_size * results.makespan / 1e9
    return statistics.model_flops / possible if possible > 0 else -1.0


def print_network_job(statistics: NetworkStatistics, console: Console) -> None:
    """Print the page of text."""
    tables = ""
    if statistics.table_parameters:
        tables = f" ({short(statistics.table_parameters).strip()} in shared tables)"
    each = statistics.samples // statistics.world_size
    console.print(
        f"{short(statistics.parameters).strip()} parameters{tables} on "
        f"{format_counted(statistics.world_size, 'rank')}: {short(statistics.model_flops)}FLOP and "
        f"{format_counted(statistics.samples, 'sample')} per step, {format_count(each)} per rank; "
        f"forward of a sample: {short(statistics.macs)}MAC",
        highlight=False,
    )
    _print_parts(statistics, console)
    print_memory(_by_ranks(statistics, statistics.memory), console, "kinds of ranks")
    communication = _by_ranks(statistics, statistics.communication)
    print_communication(communication, console, "ranks")


def _ranks_of_kinds(statistics: NetworkStatistics) -> list[str]:
    """Return the ranks of each kind, as ranges."""
    kinds = range(int(statistics.kinds.max()) + 1)
    return [rank_ranges(np.flatnonzero(statistics.kinds == kind).tolist()) for kind in kinds]


def _by_ranks(statistics: NetworkStatistics, table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the ranks of each kind in the place of its number."""
    shown = _ranks_of_kinds(statistics)
    ranks = pl.Series("of ranks", [shown[kind] for kind in table["kind"]], dtype=pl.String)
    return pl.DataFrame([ranks, *table.drop("kind")])


def _print_parts(statistics: NetworkStatistics, console: Console) -> None:
    """Print the parts, which share the beginning of their names; of many those with most work."""
    layers = statistics.layers.with_columns(pl.col("part").str.extract(r"^([^.]*)"))
    parts = layers.with_row_index("row").group_by("part", maintain_order=True).agg(
        pl.col("row").first(), pl.col("output").last(), pl.len().alias("layers"),
        pl.col("parameters", "macs", "forward_flops").sum(),
    )  # fmt: skip
    shown = parts.sort("macs", "parameters", descending=True, maintain_order=True).head(
        _SHOWN_OF_REPORT
    )
    table = make_table(
        "parts of the network", part="left", layers="right", output="right",
        parameters="right", **{"MAC per sample": "right"},
    )  # fmt: skip
    for row in shown.sort("row").iter_rows(named=True):
        table.add_row(
            Text(row["part"]), format_count(row["layers"]), row["output"],
            short(row["parameters"]).strip(), short(row["macs"]).strip(),
        )  # fmt: skip
    if parts.height > _SHOWN_OF_REPORT:
        table.caption = f"and {parts.height - _SHOWN_OF_REPORT} more parts with less"
    print_table(table, console)


def print_network_fit(
    statistics: NetworkStatistics, results: SimulationResults, console: Console
) -> None:
    """Print the rate and utilization of a simulated step, and whether it fits into memory."""
    rate = round(statistics.samples / max(results.makespan, 1) * 1e9)
    share = _utilization(statistics, results)
    told = f", model FLOPs utilization {100 * share:.1f} %" if share >= 0 else ""
    console.print(f"{format_count(rate)} samples/s{told}", highlight=False)
    most = int(statistics.memory["total"].max() or 0)  # type: ignore[arg-type]
    capacity = results.system.memory_capacity
    if capacity and most > capacity:
        console.print(
            f"does not fit: a rank needs {format_bytes(most)}, and a device has "
            f"{format_bytes(capacity)}", highlight=False,
        )  # fmt: skip
