"""What was measured beside what was predicted: the differences, before all else."""

from __future__ import annotations

from nadi.bottlenecks.differences.prediction_result import PART_WORDS
from nadi.results.page.figures import Figures, Path, bar, table, text, tiles

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Measured and predicted"
ORDER = -5
_ROWS = 40  # operations
_TIMES = ["measured#", "predicted#", "change#"]


def render(figures: Figures) -> str:
    """Write the differences to a saved prediction, another system, or the first change."""
    if figures.get("prediction"):
        return _saved(figures)
    if figures.get("on_system"):
        return _on_system(figures)
    if figures.rows("what_if") and figures.get("what_if", 0, "path_changes") is not None:
        return _changed(figures)
    return ""


def _saved(figures: Figures) -> str:
    """Write the differences to a simulation or an estimate."""
    found = figures.under("prediction")
    kind, system = text(found.get("kind")), text(found.get("system"))
    on = f"{kind} on {system}" if found.get("system") else kind
    first = _tiles(
        found, (found.mean_ns("measured_ns"), text(found.get("window"))),
        (found.ns("predicted_ns"), on), ("change_ns",), ("measured_ns",),
    )  # fmt: skip
    most = max(
        (max(row["measured_ns"], row["predicted_ns"]) for row in found.rows("parts")), default=0
    )
    parts = [
        [
            text(PART_WORDS.get(row["part"], row["part"])),
            found.mean_ns("parts", i, "measured_ns") + bar(row["measured_ns"], most),
            found.mean_ns("parts", i, "predicted_ns") + bar(row["predicted_ns"], most),
            found.change_ns("parts", i, "change_ns"),
        ]
        for i, row in enumerate(found.rows("parts"))
        if row["measured_ns"] or row["predicted_ns"]
    ]
    title = "Time of a rank, mean over ranks; these changes add up to the whole"
    return first + table(title, ["part", *_TIMES], parts) + _operations(found) + _ranks(found)


def _ranks(found: Figures) -> str:
    rows = [
        [
            found.plain("ranks", i, "rank"),
            found.ns("ranks", i, "measured_ns"),
            found.ns("ranks", i, "predicted_ns"),
            found.change_ns("ranks", i, "change_ns"),
        ]
        for i in range(len(found.rows("ranks")))
    ]
    return table("When each rank finishes", ["rank#", *_TIMES], rows, searchable=True)


def _operations(found: Figures) -> str:
    rows: list[list[str]] = []
    for i, row in enumerate(found.rows("operations")):
        if row["change_ns"] and len(rows) < _ROWS:
            at = ("operations", i)
            rows.append([
                text(row["name"]),
                text(row["state"]),
                found.mean_ns(*at, "before_ns"),
                found.mean_ns(*at, "after_ns"),
                found.change_ns(*at, "change_ns"),
            ])  # fmt: skip
    title = "Operations by name, self time, summed over ranks: the largest changes"
    return table(title, ["name*", "predicted", *_TIMES], rows, searchable=True)


def _on_system(figures: Figures) -> str:
    """Write the differences to the same job on another system."""
    found = figures.under("on_system")
    system = text(found.get("system"))
    first = _tiles(
        figures, (found.ns("measured_ns"), text(figures.get("window"))),
        (found.ns("predicted_ns"), f"on {system}"), None, ("measured_ns",),
        predicted=("on_system", "predicted_ns"),
    )  # fmt: skip
    by_type = [
        [
            text(row["type"]),
            found.count("communication", i, "priced"),
            found.ns("communication", i, "measured_ns"),
            found.ns("communication", i, "predicted_ns"),
        ]
        for i, row in enumerate(found.rows("communication"))
    ]
    return (
        first
        + _kinds(found, ("measured_by_kind",), found, ("predicted_by_kind",))
        + _path(found, ())
        + table("Communication, summed over ranks", ["type", "count#", *_TIMES[:2]], by_type)
        + f"<p>{text(found.get('computation'))}</p>"
    )


def _changed(figures: Figures) -> str:
    """Write the differences to the same window after the first change."""
    at: Path = ("what_if", 0)
    first = _tiles(
        figures, (figures.ns("measured_ns"), text(figures.get("window"))),
        (figures.ns(*at, "step_ns"), f"after {text(figures.get(*at, 'change'))}"), None,
        ("measured_ns",), predicted=(*at, "step_ns"),
    )  # fmt: skip
    kinds = (*at, "critical_path_by_kind")
    return (
        first
        + _kinds(figures, ("critical_path_by_kind",), figures, kinds)
        + _path(figures, at)
    )  # fmt: skip


def _tiles(
    figures: Figures, measured: tuple[str, str], predicted_tile: tuple[str, str],
    change: Path | None, whole: Path, predicted: Path = (),
) -> str:  # fmt: skip
    """Write what was measured, what was predicted, and how far they are apart."""
    if change is not None:
        share = f"{figures.share(change, whole)} of the measured time"
        last = ("change", figures.change_ns(*change), share)
    else:
        last = ("predicted by measured", figures.share(predicted, whole), "of the measured time")
    shown = (("measured", *measured), ("predicted", *predicted_tile), last)
    return tiles(shown)


def _kinds(before: Figures, first: Path, after: Figures, second: Path) -> str:
    """Write both critical paths by kind."""
    measured: dict[str, int] = before.get(*first, otherwise={})
    predicted: dict[str, int] = after.get(*second, otherwise={})
    most = max((*measured.values(), *predicted.values()), default=0)
    rows = [
        [
            f'<i class="key {kind}"></i>{kind.replace("_", " ")}',
            before.ns(*first, kind) + bar(measured.get(kind, 0), most, kind),
            after.ns(*second, kind) + bar(predicted.get(kind, 0), most, kind),
        ]
        for kind in dict.fromkeys((*measured, *predicted))
        if measured.get(kind) or predicted.get(kind)
    ]
    return table("Critical path by kind", ["kind", *_TIMES[:2]], rows)


def _path(figures: Figures, at: Path) -> str:
    rows = [
        [
            text(row["name"], "(between operations)"),
            text(str(row["kind"]).replace("_", " ")),
            figures.ns(*at, "path_changes", i, "measured_ns"),
            figures.ns(*at, "path_changes", i, "predicted_ns"),
            figures.change_ns(*at, "path_changes", i, "change_ns"),
        ]
        for i, row in enumerate(figures.rows(*at, "path_changes"))
    ]
    columns = ["operation*", "kind", *_TIMES]
    return table("Time on the critical path: the largest changes", columns, rows, searchable=True)
