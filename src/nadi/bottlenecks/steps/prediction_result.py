"""A job as measured and as predicted: on another machine, or after the first change."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from nadi.bottlenecks.steps.path_changes import path_by_kind, path_changes
from nadi.bottlenecks.steps.run import Prediction
from nadi.graph.critical_paths import CriticalPath
from nadi.results.declared import (
    ALL,
    CHANGE_NS,
    COUNT,
    KIND,
    NAME,
    NS,
    PAGE,
    Column,
    Lines,
    Result,
    Rows,
    Sums,
    Tiles,
    name_or,
    share_of,
)
from nadi.units import format_count, format_ns, format_percent, printable


def _described(found: tuple[Prediction, CriticalPath]) -> dict[str, Any]:
    """Compute the predicted and the measured values; times are int ns."""
    prediction, measured = found
    answer = prediction.what_if
    return {
        "system": prediction.change.system.name,
        "measured_ns": answer.measured_ns,
        "predicted_ns": answer.window_ns,
        "kernel_factor": prediction.change.kernel_factor,
        "computation": prediction.change.reason,
        "measured_by_kind": path_by_kind(measured),
        "predicted_by_kind": path_by_kind(answer.path),
        "path_changes": path_changes(measured, answer.path),
        "communication": prediction.prices.by_type.rename(
            {"measured": "measured_ns", "predicted": "predicted_ns"}
        ).to_dicts(),
    }


def _lines(data: dict[str, Any]) -> Iterator[str | Text]:
    measured, predicted = data["measured_ns"], data["predicted_ns"]
    yield ""
    yield Text.assemble(
        "predicted on ", (printable(data["system"]), "bold"), ": measured ",
        format_ns(measured), ", predicted ", (format_ns(predicted), "bold"),
        f", {format_percent(abs(predicted - measured), measured)} "
        f"{'longer' if predicted > measured else 'shorter'}",
    )  # fmt: skip


def _note(row: dict[str, Any]) -> str:
    notes = [f"simulated as {row['simulated_as']}"] if row["simulated_as"] else []
    if row["left"]:
        notes.append(f"{format_count(row['left'])} more keep their time: size or ranks unknown")
    return "; ".join(notes)


def measured_tiles(
    measured: str, window: str, predicted: str, what: str
) -> list[Column]:  # fmt: skip
    """Return the tiles of a measured time and a predicted one, by their keys."""
    return [Column(measured, "measured", NS, window), Column(predicted, "predicted", NS, what)]


def _tiles(measured: str, window: str, predicted: str, what: str) -> list[Column]:
    by = Column(predicted, "predicted by measured", share_of(measured), "of the measured time")
    return [*measured_tiles(measured, window, predicted, what), by]


def _changes(key: str) -> Rows:
    return Rows(key, "Time on the critical path: the largest changes", None, (
        Column("name", "operation", name_or("(between operations)")), Column("kind", "kind", KIND),
        Column("measured_ns", "measured", NS), Column("predicted_ns", "predicted", NS),
        Column("change_ns", "change", CHANGE_NS, "predicted without measured"),
    ), on=PAGE)  # fmt: skip


def _by_kind(measured: str, predicted: str) -> Sums:
    return Sums("critical path by kind", "kind", {"measured": measured, "predicted": predicted})


ON_SYSTEM = Result(
    kind="on_system", title="On another system", order=-5, facts=_described, headline=None,
    parts=(
        Lines(_lines),
        Tiles(lambda data: _tiles("measured_ns", "", "predicted_ns", f"on {data['system']}")),
        _by_kind("measured_by_kind", "predicted_by_kind"),
        _changes("path_changes"),
        Rows("communication", "communication of the whole recording, summed over ranks", None, (
            Column("type", "type"), Column("priced", "count", COUNT, "that have a price"),
            Column("measured_ns", "measured", NS), Column("predicted_ns", "predicted", NS),
            Column("simulated_as", "note", NAME, "and how many keep their time", shown=_note),
        ), top=ALL),
        Lines(lambda data: [data["computation"]]),
    ),
)  # fmt: skip
"""Declared of a prediction and the measured critical path."""

FIRST_CHANGE = Result(
    kind="first_change", title="After the first change", order=-5, facts=(), headline=None,
    parts=(
        Tiles(lambda data: _tiles("measured_ns", data["window"], "what_if/0/window_ns",
                                  f"after {data['what_if'][0]['change']}")),
        _by_kind("critical_path_by_kind", "what_if/0/critical_path_by_kind"),
        _changes("what_if/0/path_changes"),
    ),
    at="", needs="what_if/0/path_changes",
)  # fmt: skip
"""Of the results of ``nadi run``, on a page only."""
