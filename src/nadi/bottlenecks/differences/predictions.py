"""A recording beside a prediction that was saved: how far they are apart, and where.

What a report is made of: recordings, and results that other commands wrote.

Predictions that a command wrote, to compare with a recording: simulations and estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.bottlenecks.differences.compared_runs import compare_sums
from nadi.bottlenecks.steps.run import Run
from nadi.errors import FormatError, UsageError, checked
from nadi.graph.time_parts import rank_activity
from nadi.graph.windows import Window, choose_window
from nadi.results.saved import RESULT_KINDS, SavedSummary, read_summary
from nadi.simulation.runs.saved import SavedSimulation, is_saved_simulation, read_simulation
from nadi.trace.schema import DEVICE_WORK

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

    - Raises KeyError, TypeError if values of the results are missing, or of another type.
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

    - Raises InputError if the file is damaged.
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


_PARTS = ("computing", "transferring", "waiting", "copying", "rest")


@dataclass(frozen=True, eq=False)
class ComparedPrediction:
    """How far a prediction is from a recording. Times are ns.

    Attributes
    ----------
    kind, system
        As of :class:`nadi.bottlenecks.differences.predictions.SavedPrediction`.
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


OWN_PAGE = ("run", "what_if")
"""Kinds of results that are about a recording themselves, and stand beside none."""


class ReportInputs(NamedTuple):
    """Paths by what they are."""

    traces: list[str]  # everything that is no result of a command
    summaries: list[SavedSummary]  # results that were saved as JSON, at most one of a kind
    # what a simulation or an estimate among the results predicts; None without one
    prediction: SavedPrediction | None
    predicted_by: str  # its name; empty without one
    results: tuple[str, ...]  # the paths of all results


def read_report_inputs(paths: Sequence[str]) -> ReportInputs:
    """Read the results among paths; recordings are left for others to read.

    - Raises FormatError if results lack values that belong to them.
    - Raises UsageError if several results are of one kind, several are predictions, or some are
      about a recording while another is given.
    """
    traces: list[str] = []
    found: dict[str, SavedSummary] = {}
    predictions: dict[str, SavedPrediction] = {}
    for path in paths:
        saved = None if "://" in path else read_summary(path)
        if saved is None:
            simulation = read_saved_prediction(path) if path.endswith(".nadi") else None
            if simulation is None:
                traces.append(path)
            else:
                predictions[path] = simulation
            continue
        if saved.kind in found:
            command = RESULT_KINDS[saved.kind][0]
            raise UsageError(path, f"is a second result of {command}", "give one of a kind")
        found[saved.kind] = saved
        if (prediction := _prediction(saved, path)) is not None:
            predictions[path] = prediction
    if traces and any(kind in OWN_PAGE for kind in found):
        raise UsageError(
            traces[0], "is a recording, and results of another are given, too",
            "give both recordings to compare them, or the results alone",
        )  # fmt: skip
    if len(predictions) > 1:
        raise UsageError(list(predictions)[1], "is a second prediction", "give one of them")
    path, prediction = next(iter(predictions.items()), ("", None))
    results = tuple(one for one in paths if one not in traces)
    return ReportInputs(traces, list(found.values()), prediction, Path(path).name, results)


def read_prediction(path: str) -> SavedPrediction:
    """Read a prediction that ``nadi simulate -o`` or ``nadi estimate --json`` wrote.

    Raises
    ------
    FormatError
        If the file is something else, or damaged.
    InputError
        If it cannot be read.
    """
    found = read_report_inputs([path]).prediction
    if found is None:
        raise FormatError(
            path, "is no prediction", "give a .nadi or .json file of nadi simulate -o, or the JSON "
            "of nadi estimate",
        )  # fmt: skip
    return found


def _prediction(saved: SavedSummary, path: str) -> SavedPrediction | None:
    try:
        return prediction_of(saved)
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError):
        raise FormatError(
            path, f"lacks values that {RESULT_KINDS[saved.kind][0]} writes", "write it again"
        ) from None
