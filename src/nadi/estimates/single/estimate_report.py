"""The results of ``nadi estimate`` and ``nadi search``, as data and as text."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nadi.estimates.execution import moved_tensors
from nadi.estimates.network_steps import NetworkEstimate
from nadi.estimates.search_layouts import SearchSpace
from nadi.estimates.search_results import RankedExecution, SearchResult
from nadi.estimates.single.estimate_words import PART_NAMES, TENSOR_NAMES
from nadi.estimates.single_estimate import Estimate, hourly_price
from nadi.estimates.tier_words import schedule_words, tier_words
from nadi.results.text import make_table, print_table
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_number,
    format_percent,
)

__all__ = [
    "describe_estimate", "describe_network_estimate", "describe_search", "print_estimate",
    "print_network_estimate", "print_search",
]  # fmt: skip

_SHORT = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "microbatch_size": "micro-batch",
    "pipeline_interleaving": "interleaving",
}  # fmt: skip
# what would lift each part of a network's step
_LIFTED = {
    "tables": "more bandwidth of memory, or rows of fewer bytes",
    "products": "a faster engine, or larger batches that use it better",
    "other operations": "more bandwidth of memory, or fused layers",
    "optimizer": "sharding it over ranks",
    "exposed exchange of tables": "more bandwidth of the network, or fewer columns",
    "exposed data parallelism": "more bandwidth of the network, or larger batches",
}


# results as data


def describe_estimate(estimate: Estimate) -> dict[str, Any]:
    """Compute the JSON output; what has no value is null."""
    statistics = estimate.statistics
    return {
        "seconds": estimate.seconds,
        "rate": estimate.rate,
        "efficiency": statistics["total_efficiency"],
        "parameters": estimate.model.num_parameters,
        "lacks": estimate.lacks or None,
        "reason": estimate.reason or None,
        "times": estimate.times,
        "limits": [limit._asdict() for limit in estimate.limits],
        "tier1_bytes": estimate.tier1,
        "tier2_bytes": estimate.tier2,
        "tier1_capacity": estimate.capacities[0],
        "tier2_capacity": estimate.capacities[1],
        "tokens_per_second": estimate.tokens_per_second,
        "seconds_per_output_token": estimate.seconds if estimate.execution.decoding else None,
        "price_per_hour": estimate.price_per_hour or None,
        "price_per_step": estimate.price_per_step or None,
        "price_per_million_tokens": estimate.price_per_million_tokens or None,
        "currency": estimate.machine.currency if estimate.price_per_hour else None,
        "assumed": _assumed(estimate),
        "execution": msgspec.to_builtins(estimate.execution),
        "statistics": {
            name: None if math.isnan(value) else value for name, value in statistics.items()
        },
    }


def describe_network_estimate(estimate: NetworkEstimate) -> dict[str, Any]:
    """Compute the JSON output of an estimate of a network."""
    return {
        "seconds": estimate.seconds, "rate": estimate.rate, "lacks": estimate.lacks or None,
        "times": estimate.times, "memory_bytes": estimate.memory,
        "memory_capacity": estimate.system.memory_capacity or None,
        "plan": msgspec.to_builtins(estimate.plan),
    }  # fmt: skip


def describe_search(found: SearchResult, space: SearchSpace) -> dict[str, Any]:
    """Compute the JSON output."""
    prices = [_prices(one, space) for one in found.best]
    return {
        "executions": found.num_executions,
        "feasible": found.num_feasible,
        "lacking": found.lacking(),
        "best": [
            one._asdict() | {"execution": msgspec.to_builtins(one.execution)} | price
            for one, price in zip(found.best, prices, strict=True)
        ],
    }


# results as text


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Print the step's time, where it goes, where the bytes are, and what limits it."""
    share = format_percent(estimate.statistics["total_efficiency"], 1)
    how = estimate.execution
    rates = f"{format_number(estimate.rate)} sequences/s"
    if how.decoding:
        each = format_number(1 / estimate.seconds)
        rates = f"{format_number(estimate.rate)} tokens/s in all, {each} for each user"
    step = "an output token" if how.decoding else "a step"
    console.print(Text.assemble(
        (_seconds(estimate.seconds), "bold"),
        f" {step} of {format_counted(how.batch_size, 'sequence')}, {rates}, "
        f"{share} of the matrix engine's peak",
    ))  # fmt: skip
    if estimate.price_per_hour:
        currency = estimate.machine.currency
        console.print(Text(
            f"{estimate.price_per_hour:,.2f} {currency} an hour, "
            f"{format_number(estimate.price_per_step)} {currency} a step, "
            f"{format_number(estimate.price_per_million_tokens)} {currency} a million tokens"
        ))  # fmt: skip
    if estimate.lacks:
        console.print(Text(f"not possible: {estimate.lacks}", "bold red"))
    console.print()
    table = make_table("Time", part="left", time="right", share="right")
    for name, title in PART_NAMES.items():
        if estimate.times[name]:
            part = estimate.times[name]
            table.add_row(title, _seconds(part), format_percent(part, estimate.seconds))
    print_table(table, console)
    console.print()
    print_table(_memory_table(estimate), console)
    for line in _assumed(estimate):
        console.print(Text(line))
    console.print()
    columns = {"limit": "left", "share": "right", "what would lift it": "left"}
    table = make_table("Limits", **columns)
    for limit in estimate.limits:
        if limit.seconds >= 0.005 * estimate.seconds:
            share = format_percent(limit.seconds, estimate.seconds)
            table.add_row(limit.name, share, limit.lifted_by)
    print_table(table, console)
    needed = estimate.statistics["offload_mem_bw_req"]
    if 0 < needed < math.inf:
        console.print(Text(
            f"offloading would be hidden by {needed / 1e9:.4g} GB/s to the second tier"
        ))  # fmt: skip


def print_network_estimate(estimate: NetworkEstimate, console: Console) -> None:
    """Print the step's time and where it goes, most first, and where the bytes are."""
    console.print(Text.assemble(
        (_seconds(estimate.seconds), "bold"),
        f" a step of {format_counted(estimate.plan.samples, 'sample')}, "
        f"{format_number(estimate.rate)} samples/s",
    ))  # fmt: skip
    if estimate.lacks:
        console.print(Text(f"not possible: {estimate.lacks}", "bold red"))
    console.print()
    table = make_table("Time", part="left", time="right", share="right")
    for name, part in sorted(estimate.times.items(), key=lambda one: -one[1]):
        table.add_row(name, _seconds(part), format_percent(part, estimate.seconds))
    print_table(table, console)
    console.print()
    table = make_table("Memory of the rank with most", tensors="left", bytes="right")
    rows = estimate.memory | {"all": sum(estimate.memory.values())}
    for name, size in (rows | {"capacity": estimate.system.memory_capacity}).items():
        if size:
            table.add_row(name, format_bytes(size))
    print_table(table, console)
    console.print()
    name, remedy = max(_LIFTED.items(), key=lambda one: estimate.times.get(one[0], 0.0))
    console.print(Text(f"bound by {name}; what would lift it: {remedy}"))


def _assumed(estimate: Estimate) -> list[str]:
    """Say what is assumed of kernels, and of the second tier if something lives there."""
    if estimate.rules.blocks_of_calculon:
        return []
    machine, moved = estimate.machine, moved_tensors(estimate.execution)
    device = machine.device
    found = []
    if device is not None and device.is_plain and device.roofline.compute == 1.0:
        found.append(
            f"kernels run at the peaks that {machine.name} states: it has no curves of what they "
            "reach, so the step takes at least this long"
        )
    return [*found, *([tier_words(machine.mem2), *schedule_words(moved)] if moved else [])]


def _memory_table(estimate: Estimate) -> Table:
    capacities = estimate.capacities
    used = [(capacities[0], estimate.tier1)]
    if capacities[1] or any(estimate.tier2.values()):
        used.append((capacities[1], estimate.tier2))
    columns = {f"tier {k + 1}": "right" for k in range(len(used))}
    table = make_table("Memory of a rank", tensors="left", **columns)
    for name, title in TENSOR_NAMES.items():
        if any(sizes[name] for _, sizes in used):
            table.add_row(title, *(format_bytes(int(sizes[name])) for _, sizes in used))
    table.add_row("all", *(format_bytes(int(sum(sizes.values()))) for _, sizes in used))
    table.add_row("capacity", *(format_bytes(int(capacity)) for capacity, _ in used))
    return table


def _prices(one: RankedExecution, space: SearchSpace) -> dict[str, float]:
    """Give the prices of a step and of a million tokens; nothing if the machine states none."""
    hour = hourly_price(space.machine, one.execution)
    tokens = one.execution.batch_size * (1 if one.execution.decoding else space.model.seq_size)
    step = hour / 3600 * one.seconds
    return {"price_per_step": step, "price_per_million_tokens": step / tokens * 1e6} if hour else {}


def print_search(found: SearchResult, space: SearchSpace, console: Console) -> None:
    """Print the fastest executions, and what the others lack."""
    console.print(Text(
        f"{format_counted(found.num_executions, 'configuration')}, "
        f"{format_count(found.num_feasible)} possible"
    ))  # fmt: skip
    if found.best:
        console.print()
        print_table(_best_table(found.best, space), console)
    lacking = found.lacking()
    if lacking:
        console.print()
        table = make_table("Not possible", configurations="right", reason="left")
        for rule, count in lacking.items():
            table.add_row(format_count(count), rule)
        print_table(table, console)


def _best_table(best: tuple[RankedExecution, ...], space: SearchSpace) -> Table:
    rate = "tokens/s" if all(one.execution.decoding for one in best) else "sequences/s"
    columns = {rate: "right", "step": "right"} | dict.fromkeys(_SHORT.values(), "right")
    columns |= {"recompute": "left", "tensors": "left", "offload": "left", "tier 1": "right"}
    currency = space.machine.currency
    titles = [f"{currency} a step", f"{currency} a million tokens"]
    if any(_prices(one, space) for one in best):
        columns |= dict.fromkeys(titles, "right")
    table = make_table("Fastest", **columns)
    for one in best:
        e = one.execution
        also = {
            e.tensor_par_overlap: e.tensor_par_overlap != "none",
            "redo": e.seq_par_ag_redo,
            "sharded": e.optimizer_sharding,
            "overlapped dp": e.data_par_overlap,
        }
        tensors = [e.tensor_par_comm_type, *(name for name, is_so in also.items() if is_so)]
        table.add_row(
            format_number(one.rate), _seconds(one.seconds),
            *(str(getattr(e, field)) for field in _SHORT),
            e.activation_recompute, " ".join(tensors), " ".join(moved_tensors(e)) or "-",
            format_bytes(int(one.tier1_bytes)), *map(format_number, _prices(one, space).values()),
        )  # fmt: skip
    return table


def _seconds(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))
