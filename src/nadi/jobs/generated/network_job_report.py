"""What a generated job of a network amounts to, as text and JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.jobs.generated.generated_job_report import print_communication, print_memory, short
from nadi.models.networks.network_statistics import NetworkStatistics
from nadi.results.text import make_table, print_table, rank_ranges
from nadi.simulation.accounts.simulation_results import SimulationResults
from nadi.simulation.runs.simulation_report import describe_simulation
from nadi.units import format_bytes, format_count, format_counted

__all__ = ["describe_network_job", "print_network_fit", "print_network_job"]

_SHOWN = 12  # parts


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
        found["simulation"] = describe_simulation(results)
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
    shown = parts.sort("macs", "parameters", descending=True, maintain_order=True).head(_SHOWN)
    table = make_table(
        "parts of the network", part="left", layers="right", output="right",
        parameters="right", **{"MAC per sample": "right"},
    )  # fmt: skip
    for row in shown.sort("row").iter_rows(named=True):
        table.add_row(
            Text(row["part"]), format_count(row["layers"]), row["output"],
            short(row["parameters"]).strip(), short(row["macs"]).strip(),
        )  # fmt: skip
    if parts.height > _SHOWN:
        table.caption = f"and {parts.height - _SHOWN} more parts with less"
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
