"""A recording beside a prediction that was saved: how far they are apart, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.bottlenecks.differences.compared_runs import compare_sums
from nadi.bottlenecks.differences.saved_predictions import SavedPrediction
from nadi.bottlenecks.steps.run import Run
from nadi.errors import checked
from nadi.graph.rank_activity import rank_activity
from nadi.graph.windows import Window, choose_window
from nadi.trace.schema import DEVICE_WORK

__all__ = ["ComparedPrediction", "compare_prediction"]

_PARTS = ("computing", "transferring", "waiting", "copying", "rest")


@dataclass(frozen=True, eq=False)
class ComparedPrediction:
    """How far a prediction is from a recording. Times are ns.

    Attributes
    ----------
    kind, system
        As of :class:`nadi.bottlenecks.differences.saved_predictions.SavedPrediction`.
    window
        What was measured: a window of the recording, or ``a step``: the mean over steps.
    measured_ns, predicted_ns
        Its length, and the predicted one.
    parts
        A row per part of a rank's time, mean over ranks: ``part`` (``computing``,
        ``transferring``, ``waiting``, ``copying``, ``rest``), ``measured_ns``, ``predicted_ns``,
        ``change_ns``. The changes add up to that of the whole.
    ranks
        A row per rank of both: ``rank``, ``measured_ns``, ``predicted_ns`` (when it finishes),
        ``change_ns``.
    operations
        A row per name of the simulated operations: ``name``, ``count_before``, ``count_after``,
        ``before_ns`` (measured), ``after_ns`` (predicted), ``change_ns``, ``state``; the largest
        change first. Times on the host are self times. Empty if the schedule was not saved.
    """

    kind: str
    system: str
    window: str
    measured_ns: float
    predicted_ns: int
    parts: pl.DataFrame
    ranks: pl.DataFrame
    operations: pl.DataFrame

    def __repr__(self) -> str:
        return f"<ComparedPrediction {self.measured_ns:.0f} -> {self.predicted_ns} ns>"


@checked
def compare_prediction(
    run: Run, prediction: SavedPrediction, *, whole: bool = True
) -> ComparedPrediction:  # fmt: skip
    """Compare a recording with a prediction of it. O(ops log ops).

    Parameters
    ----------
    run
        The recording, analysed.
    prediction
        What was saved. An estimate is compared with the mean over the steps of the run's window.
    whole
        Whether a simulation is compared with the whole recording, from its first to its last
        event, and not with the window of the run.
    """
    window, count = run.window, max(run.num_steps, 1)
    name = window.name if count == 1 else "a step"
    if prediction.kind == "simulation" and whole:
        window, count = choose_window(run.graph, []), 1
        name = window.name
    measured = window.length(run.graph.time) / count
    return ComparedPrediction(
        prediction.kind, prediction.system, name, measured, prediction.predicted_ns,
        _parts(run, window, count, prediction), _ranks(run, window, prediction),
        _operations(run, window, prediction),
    )  # fmt: skip


def _parts(run: Run, window: Window, count: int, prediction: SavedPrediction) -> pl.DataFrame:
    """Return each part, measured and predicted.

    What computes on a rank without a device is its host, which a simulation has among the rest.
    """
    activity = rank_activity(run.graph, window).rename({"idle": "rest"})
    means = {part: float(activity[part].mean() or 0.0) / count for part in _PARTS}  # type: ignore[arg-type]
    if prediction.kind == "simulation" and not activity["has_device"].any():
        means["rest"] += means.pop("computing")
        means = {"computing": 0.0, **means}
    predicted = [prediction.parts[part] for part in _PARTS]
    found = pl.DataFrame({
        "part": _PARTS, "measured_ns": [means[part] for part in _PARTS], "predicted_ns": predicted,
    })  # fmt: skip
    return found.with_columns(change_ns=pl.col("predicted_ns") - pl.col("measured_ns"))


def _ranks(run: Run, window: Window, prediction: SavedPrediction) -> pl.DataFrame:
    """Return when each rank ends its part of the window, measured and predicted."""
    graph = run.graph
    begin, end = window.start(graph.time), window.end(graph.time)
    ends = graph.time[1 : 2 * graph.num_ops : 2]
    last = np.full(len(graph.job.traces), begin)
    inside = (ends >= begin) & (ends <= end)
    np.maximum.at(last, graph.op_trace[inside], ends[inside])
    measured = pl.DataFrame({"rank": list(graph.job.ranks), "measured_ns": last - begin})
    both = measured.join(prediction.ranks.rename({"finish": "predicted_ns"}), on="rank")
    return both.with_columns(change_ns=pl.col("predicted_ns") - pl.col("measured_ns")).sort("rank")


def _operations(run: Run, window: Window, prediction: SavedPrediction) -> pl.DataFrame:
    """Compare operations by name; of the ranks that both have."""
    graph, saved = run.graph, prediction.simulation
    schedule = pl.DataFrame(
        schema={"rank": pl.Int64, "name": pl.String, "start": pl.Int64, "end": pl.Int64}
    )
    if saved is not None:
        schedule = saved.schedule.filter(pl.col("rank").is_in(graph.job.ranks))
    length = pl.col("end") - pl.col("start")
    predicted = schedule.group_by(pl.col("name").cast(pl.String)).agg(
        count=pl.len().cast(pl.Float64), ns=length.sum().cast(pl.Float64)
    )
    if saved is None:
        return _compared([predicted, predicted])
    begin, end = window.start(graph.time), window.end(graph.time)
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside = np.flatnonzero((start >= begin) & (start <= end))
    on_device = graph.gather("category", inside).is_in(DEVICE_WORK).to_numpy()
    own = np.maximum(graph.numbers("exclusive", inside), 0)
    measured = (
        pl.DataFrame({
            "name": graph.names(inside),
            "ns": np.where(on_device, graph.time[2 * inside + 1] - start[inside], own),
        })
        .group_by("name")
        .agg(count=pl.len().cast(pl.Float64), ns=pl.sum("ns").cast(pl.Float64))
        .join(predicted.select("name"), on="name", how="semi")
    )  # fmt: skip
    return _compared([measured, predicted])


def _compared(sides: list[pl.DataFrame]) -> pl.DataFrame:
    """Put operations side by side; a prediction is of no machine that could be taken out."""
    return compare_sums(sides, ["name"], {"ns": 1.0}).drop("machine_ns")
