"""Predictions that a command wrote, to compare with a recording: simulations and estimates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nadi.results.saved import SavedSummary
from nadi.simulation.runs.saved import SavedSimulation, is_saved_simulation, read_simulation

__all__ = ["SavedPrediction", "prediction_of", "read_saved_prediction"]

_SIMULATED = {
    "computing": ("computing",),
    "transferring": ("transferring",),
    "waiting": ("awaiting_members", "awaiting_sender", "awaiting_receiver"),
    "copying": ("accessing", "awaiting_memory"),
    "rest": ("hosting", "other", "idle"),
}
_ESTIMATED = {
    "computing": ("forward", "backward", "ends", "optimizer", "computed_again"),
    "transferring": ("tensor_parallel", "exchanged_again", "pipeline_parallel", "data_parallel"),
    "waiting": ("bubble",),
    "copying": ("forward_offload", "backward_offload"),
    "rest": (),
}


@dataclass(frozen=True, eq=False)
class SavedPrediction:
    """What a command predicted about a job.

    Attributes
    ----------
    kind
        ``simulation`` of a job, or ``estimate`` of a step.
    system
        The name of its system; empty if the results do not state it.
    predicted_ns
        Until the last rank finishes, or the estimated step.
    parts
        What a rank spends it on, ns, mean over ranks: ``computing``, ``transferring`` and
        ``waiting`` (exposed), ``copying`` (memory beyond the device), ``rest`` (host and idle).
        They add up to ``predicted_ns``.
    ranks
        When each rank finishes: ``rank``, ``finish`` (ns); empty for an estimate.
    simulation
        The tables and the schedule, if they were saved (``.nadi``); else None.
    """

    kind: str
    system: str
    predicted_ns: int
    parts: dict[str, float]
    ranks: pl.DataFrame
    simulation: SavedSimulation | None = None


def prediction_of(saved: SavedSummary) -> SavedPrediction | None:
    """Return the prediction among results that were read; None if they are none.

    Raises
    ------
    KeyError, TypeError
        If values of the results are missing, or of another type.
    """
    data: dict[str, Any] = saved.data
    if saved.kind == "estimate":
        parts = {
            part: 1e9 * sum(data["times"][name] for name in names)
            for part, names in _ESTIMATED.items()
        }
        step = round(1e9 * data["seconds"])
        parts["rest"] = step - sum(parts.values())
        ranks = pl.DataFrame(schema={"rank": pl.Int64, "finish": pl.Int64})
        return SavedPrediction("estimate", "", step, parts, ranks)
    if saved.kind == "simulation":
        rows = pl.DataFrame(data["per_rank"], infer_schema_length=None)
        table = rows.rename({name: name.removesuffix("_ns") for name in rows.columns})
        return _simulated(table, str(data.get("system") or ""), None)
    return None


def read_saved_prediction(path: Path | str) -> SavedPrediction | None:
    """Read a simulation that ``nadi simulate -o FILE.nadi`` wrote; None if the file is none.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    if not is_saved_simulation(path):
        return None
    found = read_simulation(path)
    return _simulated(found.rank_times, found.system.name, found)


def _simulated(
    ranks: pl.DataFrame, system: str, simulation: SavedSimulation | None
) -> SavedPrediction:  # fmt: skip
    finish = ranks.select("rank", "finish")
    makespan = int(ranks["finish"].max() or 0)  # type: ignore[arg-type]
    parts = {
        part: float(ranks.select(pl.sum_horizontal(names)).to_series().mean() or 0.0)  # type: ignore[arg-type]
        for part, names in _SIMULATED.items()
    }
    parts["rest"] = makespan - sum(time for part, time in parts.items() if part != "rest")
    return SavedPrediction("simulation", system, makespan, parts, finish, simulation)
