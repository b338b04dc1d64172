"""What a generated job of a language model, or of a network, amounts to."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from nadi.models.llm.generated_jobs import JobStatistics
from nadi.models.networks.network_jobs import NetworkStatistics
from nadi.results.declared import (
    ALL,
    BYTES,
    COUNT,
    LABEL,
    UNCUT,
    Column,
    Lines,
    Result,
    Rows,
    Within,
    text_of,
)
from nadi.results.text import rank_ranges
from nadi.simulation.accounts.simulation_results import SimulationResults, results_of
from nadi.simulation.accounts.times import steady_step
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.simulation import Simulation
from nadi.trace.work import flops_utilization
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_number

_SHOWN, _PARTS = 6, 12  # stages, parts of a network
_COMPONENTS = ("weights", "gradients", "optimizer", "tables", "activations", "kv_cache", "total")


# jobs of language models


def _described(made: tuple[JobStatistics, Simulation | None]) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames, per rank of a stage."""
    statistics, done = made
    found: dict[str, Any] = {
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
    if done is not None:
        found["simulation"] = SIMULATION.data(results_of(done))
        found |= _rate_of_step(statistics, done)
    return found


def _rate_of_step(statistics: JobStatistics, done: Simulation) -> dict[str, float]:
    """Return at which rate simulated steps of a job follow each other.

    ``step_ns`` is the time from one to the next: of training the makespan; steps of inference
    follow each other without a pause, so that the stages of a pipeline stay full. ``mfu`` is
    that of :func:`~nadi.trace.work.flops_utilization`.
    """
    step = done.makespan
    if statistics.inference:
        step = steady_step(done, feeds_back=statistics.inference == "decode")
    peak = done.system.compute.peak_of(statistics.dtype)
    share = flops_utilization(statistics.model_flops, step / 1e9, statistics.world_size, peak)
    rate = statistics.tokens / max(step, 1) * 1e9
    return {"step_ns": step, "tokens_per_second": rate, "mfu": share}


def _short(number: int) -> str:
    """Format a large number with a prefix, as 174.6 G."""
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{format_number(number / 10**power)} {prefix}"
    return f"{format_count(number)} "


def _headline(data: dict[str, Any]) -> str:
    active = ""
    if data["active_parameters"] < data["parameters"]:
        active = f" ({_short(data['active_parameters'])} per token)"
    return (
        f"{_short(data['parameters'])} parameters{active} on "
        f"{format_counted(data['ranks'], 'rank')} in {format_counted(data['stages'], 'stage')}: "
        f"{_short(data['model_flops'])}FLOP and {format_count(data['tokens'])} tokens per step, "
        f"{format_counted(data['micro_batches'], 'micro-batch', 'es')} per rank"
    )


def _most(data: dict[str, Any]) -> Iterator[str]:
    """Say what a rank holds and communicates at most."""
    memory = data["memory_per_rank_bytes"].sort("total", descending=True, maintain_order=True)
    most = memory.row(0, named=True)
    parts = [f"{name} {format_bytes(most[name])}" for name in _COMPONENTS[:-1] if most.get(name)]
    yield (
        f"most memory: {format_bytes(most['total'])} of a rank of stage {most['stage']}: "
        f"{', '.join(parts)}"
    )
    of_stage = data["communication_per_rank"].group_by("stage", "role", maintain_order=True).agg(
        pl.col("bytes").sum()
    )  # fmt: skip
    largest = of_stage.group_by("role").agg(pl.col("bytes").max()).sort("bytes", descending=True)
    told = [f"{role} {format_bytes(size)}" for role, size in largest.iter_rows()]
    if told:
        yield f"most communication of a rank per step, by group: {', '.join(told)}"


def _fit(data: dict[str, Any]) -> Iterator[str]:
    """Say the rate and utilization of a simulated step, and whether it fits into memory."""
    if (done := data.get("simulation")) is None:
        return
    told = f", model FLOPs utilization {100 * data['mfu']:.1f} %" if data["mfu"] >= 0 else ""
    if "samples" in data:
        rate = round(data["samples"] / max(done["makespan_ns"], 1) * 1e9)
        yield f"{format_count(rate)} samples/s{told}"
    else:
        step, rate = data["step_ns"], _short(round(data["tokens_per_second"])).strip()
        is_full = step == done["makespan_ns"]
        full = "" if is_full else f" of full stages ({format_ns(step)} a step)"
        yield f"{rate} tokens/s{full}{told}"
    most, capacity = data["memory_per_rank_bytes"]["total"].max(), done["memory_capacity_bytes"]
    if capacity and most > capacity:
        yield (
            f"does not fit: a rank needs {format_bytes(most)}, and a device has "
            f"{format_bytes(capacity)}"
        )


def _largest(data: dict[str, Any]) -> Iterable[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Return what sends most of each role and type."""
    most = (
        data["communication_per_rank"].with_row_index("at")
        .sort("bytes", descending=True, maintain_order=True)
        .group_by("role", "type", maintain_order=True)
        .first()
        .sort("bytes", descending=True, maintain_order=True)
    )  # fmt: skip
    return [(("communication_per_rank", row["at"]), _with_ranks(row, data))
            for row in most.iter_rows(named=True)]  # fmt: skip


def _with_ranks(row: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the ranks of its kind."""
    return row | {"of": data["ranks_of_kind"][row["kind"]]} if "kind" in row else row


def _tables(stage: Column, which: str) -> tuple[Rows, Rows]:
    """Return the tables of memory and of communication; the column names whose they are."""
    return (
        Rows("", "memory of a rank", None, (
            stage, *(Column(name, name, BYTES, is_rare=True) for name in _COMPONENTS),
        ), top=_SHOWN, made=lambda data: [
            (("memory_per_rank_bytes", i), _with_ranks(row, data))
            for i, row in enumerate(data["memory_per_rank_bytes"].iter_rows(named=True))
        ]),
        Rows("", f"communication of a rank per step, of the {which} with most", None, (
            Column("role", "group", UNCUT), Column("type", "type"), Column("ranks", "ranks", COUNT),
            Column("count", "count", COUNT), Column("bytes", "bytes", BYTES), stage,
        ), made=_largest, top=ALL),
    )  # fmt: skip


_MEMORY, _COMMUNICATION = _tables(Column("stage", "stage", LABEL), "stage")
_FLOPS = Rows(
    "flops_per_rank", "FLOPs of a rank per step", None,
    lambda data: [
        Column(name, name, LABEL) if name == "stage"
        else Column(name, name, text_of(lambda flops: _short(flops).strip()), is_rare=True)
        for name in data["flops_per_rank"].columns
    ], top=_SHOWN,
)  # fmt: skip
_SIMULATED = (Within("simulation", SIMULATION), Lines(_fit))

GENERATED = Result(
    kind="generated", title="Generated job", order=81, facts=_described, headline=_headline,
    parts=(Lines(_most), *_SIMULATED),
)  # fmt: skip
"""Made of statistics and the simulation, or None."""
GENERATED_IN_FULL = GENERATED._replace(
    parts=(Lines(_most), _MEMORY, _FLOPS, _COMMUNICATION, *_SIMULATED)
)
"""The same, with FLOPs, communication and memory of each stage."""


# jobs of networks


def _described_network(made: tuple[NetworkStatistics, SimulationResults | None]) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames, per rank of a kind."""
    statistics, results = made
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
        found["mfu"] = flops_utilization(
            statistics.model_flops, results.makespan / 1e9, statistics.world_size,
            results.system.compute.peak_of(statistics.dtype),
        )  # fmt: skip
    return found


def _network_headline(data: dict[str, Any]) -> str:
    tables = ""
    if data["table_parameters"]:
        tables = f" ({_short(data['table_parameters']).strip()} in shared tables)"
    return (
        f"{_short(data['parameters']).strip()} parameters{tables} on "
        f"{format_counted(data['ranks'], 'rank')}: {_short(data['model_flops'])}FLOP and "
        f"{format_counted(data['samples'], 'sample')} per step, "
        f"{format_count(data['samples'] // data['ranks'])} per rank; "
        f"forward of a sample: {_short(data['macs'])}MAC"
    )


def _ranks_of_kinds(statistics: NetworkStatistics) -> list[str]:
    """Return the ranks of each kind, as ranges."""
    kinds = range(int(statistics.kinds.max()) + 1)
    return [rank_ranges(np.flatnonzero(statistics.kinds == kind).tolist()) for kind in kinds]


def _parts(data: dict[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return the parts, which share the beginning of their names; of many those with most work."""
    layers = data["layers"].with_columns(pl.col("part").str.extract(r"^([^.]*)"))
    parts = layers.with_row_index("row").group_by("part", maintain_order=True).agg(
        pl.col("row").first(), pl.col("output").last(), pl.len().alias("layers"),
        pl.col("parameters", "macs", "forward_flops").sum(),
    )  # fmt: skip
    shown = parts.sort("macs", "parameters", descending=True, maintain_order=True).head(_PARTS)
    return [((), row) for row in shown.sort("row").iter_rows(named=True)]


def _more_parts(data: dict[str, Any]) -> Iterator[str]:
    rest = data["layers"]["part"].str.extract(r"^([^.]*)").n_unique() - _PARTS
    if rest > 0:
        yield f"and {rest} more parts with less"


_NUMBER = text_of(lambda number: _short(number).strip())

GENERATED_NETWORK = Result(
    kind="generated_network", title="Generated job", order=81, facts=_described_network,
    headline=_network_headline,
    parts=(
        Rows("", "parts of the network", None, (
            Column("part", "part", UNCUT), Column("layers", "layers", COUNT),
            Column("output", "output", LABEL), Column("parameters", "parameters", _NUMBER),
            Column("macs", "MAC per sample", _NUMBER),
        ), made=_parts, top=ALL),
        Lines(_more_parts), *_tables(Column("of", "of ranks", LABEL), "ranks"), *_SIMULATED,
    ),
)  # fmt: skip
"""Made of statistics and the results of the simulation, or None."""
