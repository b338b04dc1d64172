"""What a report is made of: recordings, and results that other commands wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from nadi.bottlenecks.differences.saved_predictions import (
    SavedPrediction,
    prediction_of,
    read_saved_prediction,
)
from nadi.errors import FormatError, UsageError
from nadi.results.saved import RESULT_KINDS, SavedSummary, read_summary

__all__ = ["OWN_PAGE", "ReportInputs", "read_prediction", "read_report_inputs"]

OWN_PAGE = ("run", "what_if")
"""Kinds of results that are about a recording themselves, and stand beside none."""


class ReportInputs(NamedTuple):
    """Paths by what they are.

    Attributes
    ----------
    traces
        Everything that is no result of a command.
    summaries
        Results that were saved as JSON, at most one of a kind.
    prediction
        What a simulation or an estimate among the results predicts; None without one.
    predicted_by
        Its name; empty without one.
    results
        The paths of all results.
    """

    traces: list[str]
    summaries: list[SavedSummary]
    prediction: SavedPrediction | None
    predicted_by: str
    results: tuple[str, ...]


def read_report_inputs(paths: Sequence[str]) -> ReportInputs:
    """Read the results among paths; recordings are left for others to read.

    Raises
    ------
    FormatError
        If results lack values that belong to them.
    UsageError
        If several results are of one kind, several are predictions, or some are about a recording
        while another is given.
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
