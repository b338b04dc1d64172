"""A job as measured and as predicted on another machine, side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.bottlenecks.steps.path_changes import path_by_kind, path_changes
from nadi.bottlenecks.steps.run import Prediction
from nadi.graph.critical_paths import CriticalPath
from nadi.results.text import make_table, print_table
from nadi.units import format_count, format_ns, format_percent, printable

__all__ = ["describe_prediction", "print_prediction"]


def describe_prediction(prediction: Prediction, measured: CriticalPath) -> dict[str, Any]:
    """Compute the predicted and the measured values; times are int ns."""
    answer = prediction.what_if
    return {
        "system": prediction.change.system.name,
        "measured_ns": answer.measured_ns,
        "predicted_ns": answer.step_ns,
        "kernel_factor": prediction.change.kernel_factor,
        "computation": prediction.change.reason,
        "measured_by_kind": path_by_kind(measured),
        "predicted_by_kind": path_by_kind(answer.path),
        "path_changes": path_changes(measured, answer.path),
        "communication": prediction.prices.by_type.rename(
            {"measured": "measured_ns", "predicted": "predicted_ns"}
        ).to_dicts(),
    }


def print_prediction(data: dict[str, Any], console: Console) -> None:
    """Print the result of :func:`describe_prediction`."""
    measured, predicted = data["measured_ns"], data["predicted_ns"]
    verb = "longer" if predicted > measured else "shorter"
    console.print(
        Text.assemble(
            "\npredicted on ", (printable(data["system"]), "bold"), ": measured ",
            format_ns(measured), ", predicted ", (format_ns(predicted), "bold"),
            f", {format_percent(abs(predicted - measured), measured)} {verb}",
        )
    )  # fmt: skip
    table = make_table(
        "critical path by kind", kind="left", measured="right", predicted="right"
    )  # fmt: skip
    kinds = data["measured_by_kind"], data["predicted_by_kind"]
    for kind in dict.fromkeys([*kinds[0], *kinds[1]]):
        cells = (format_ns(times.get(kind, 0)) for times in kinds)
        table.add_row(kind.replace("_", " "), *cells)
    table.add_row("total", format_ns(sum(kinds[0].values())), format_ns(sum(kinds[1].values())),
                  style="bold")  # fmt: skip
    print_table(table, console)
    if data["communication"]:
        _print_communication(data["communication"], console)
    console.print(Text(printable(data["computation"])))


def _print_communication(rows: list[dict[str, Any]], console: Console) -> None:
    table = make_table(
        "communication of the whole recording, summed over ranks",
        type="left", count="right", measured="right", predicted="right", note="left",
    )  # fmt: skip
    for row in rows:
        notes = [f"simulated as {row['simulated_as']}"] if row["simulated_as"] else []
        if row["left"]:
            notes.append(f"{format_count(row['left'])} more keep their time: size or ranks unknown")
        table.add_row(
            row["type"], format_count(row["priced"]), format_ns(row["measured_ns"]),
            format_ns(row["predicted_ns"]), "; ".join(notes),
        )  # fmt: skip
    print_table(table, console)
