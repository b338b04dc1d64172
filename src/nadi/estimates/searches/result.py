"""What ``nadi search`` found: the fastest executions, and what the others lack."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from nadi.estimates.execution import columns_of
from nadi.estimates.price_bounds import is_calibrated, step_bounds
from nadi.estimates.search_layouts import SearchSpace
from nadi.estimates.search_results import RankedExecution, SearchResult
from nadi.estimates.single.result import CHOICES, offloads
from nadi.estimates.single_estimate import hourly_price
from nadi.results.declared import (
    ALL,
    COUNT,
    NUMBER,
    PLAIN,
    SECONDS,
    Column,
    Lines,
    Result,
    Rows,
    Tiles,
    barred,
    named,
    number,
    valued,
)
from nadi.units import format_bytes, format_count, format_counted


def _described(asked: tuple[SearchResult, SearchSpace]) -> dict[str, Any]:
    """Compute the JSON output of what was found in a space."""
    found, space = asked
    between = _between(found.best, space)
    return {
        "executions": found.num_executions,
        "feasible": found.num_feasible,
        "lacking": found.lacking(),
        "currency": space.machine.currency
        if any(_prices(one, space) for one in found.best)
        else None,
        "best": [
            one._asdict()
            | {"execution": msgspec.to_builtins(one.execution)}
            | _prices(one, space)
            | bounds
            for one, bounds in zip(found.best, between, strict=True)
        ],
    }


def _between(best: Sequence[RankedExecution], space: SearchSpace) -> list[dict[str, float]]:
    """Give the bounds of each step, where kernels or collectives were measured."""
    if not best or not is_calibrated(space.machine):
        return [{} for _ in best]
    executions = columns_of([one.execution for one in best])
    ends = step_bounds(space.model, space.machine, executions, space.rules)
    return [{"low": float(low), "high": float(high)} for low, high in zip(*ends, strict=True)]


def _prices(one: RankedExecution, space: SearchSpace) -> dict[str, float]:
    """Give the prices of a step and of a million tokens; nothing if the machine states none."""
    hour = hourly_price(space.machine, one.execution)
    tokens = one.execution.batch_size * (1 if one.execution.decoding else space.model.seq_size)
    step = hour / 3600 * one.seconds
    return {"price_per_step": step, "price_per_million_tokens": step / tokens * 1e6} if hour else {}


def _tensors(row: dict[str, Any]) -> str:
    one = row["execution"]
    also = {
        one["tensor_par_overlap"]: one["tensor_par_overlap"] != "none",
        "redo": one["seq_par_ag_redo"],
        f"ZeRO {_zero(one)}": one["optimizer_sharding"],
        "overlapped dp": one["data_par_overlap"],
        f"expert tp {one.get('expert_tensor_par')}": one.get("expert_tensor_par"),
    }
    return " ".join([one["tensor_par_comm_type"], *(name for name, is_so in also.items() if is_so)])


def _zero(execution: dict[str, Any]) -> int:
    """Tell how many of the optimizer's state, gradients and weights replicas share."""
    stages = ("optimizer_sharding", "gradient_sharding", "weight_sharding")
    return sum(bool(execution.get(stage)) for stage in stages)


def _columns(data: dict[str, Any]) -> Iterator[Column]:
    decoding = all(one["execution"]["decoding"] for one in data["best"])
    yield Column("rate", "tokens/s" if decoding else "sequences/s", barred(NUMBER))
    yield Column("seconds", "step", SECONDS)
    if any("low" in one for one in data["best"]):
        yield Column("low", "at least", SECONDS)
        yield Column("high", "at most", SECONDS)
    for key, title in CHOICES.items():
        yield Column(f"execution/{key}", title, PLAIN)
    yield Column("execution/activation_recompute", "recompute")
    yield Column("", "tensors", shown=_tensors)
    yield Column("", "offload", shown=lambda row: offloads(row["execution"]))
    yield Column("tier1_bytes", "tier 1", number(lambda size: format_bytes(int(size))))
    for key, title in (("price_per_step", "step"), ("price_per_million_tokens", "million tokens")):
        yield Column(key, f"{data.get('currency')} a {title}", NUMBER, is_rare=True)


SEARCH = Result(
    kind="search", title="Search", order=4, needs="executions", facts=_described,
    headline=lambda data: (
        f"{format_counted(data['executions'], 'configuration')}, "
        f"{format_count(data['feasible'])} possible"
    ),
    parts=(
        Tiles((
            Column("executions", "configurations", COUNT), Column("feasible", "possible", COUNT),
        )),
        Lines(lambda data: [""] if data["best"] else []),
        Rows("best", "Fastest", None, _columns, top=ALL),
        Lines(lambda data: [""] if data["lacking"] else []),
        Rows("lacking", "Not possible", None, (valued("configurations", COUNT), named("reason")),
             top=ALL),
    ),
)  # fmt: skip
"""Made of what was found, and of the space."""
