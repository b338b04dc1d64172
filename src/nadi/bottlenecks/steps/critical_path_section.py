"""The critical path, by kind of time and by operation."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, stacked_bar, table, text
from nadi.results.text import rank_ranges

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Critical path"
ORDER = 20


def render(figures: Figures) -> str:
    """Write a bar of the kinds, a row per kind and per operation, and what is not explained."""
    kinds = figures.get("critical_path_by_kind")
    if not kinds:
        return ""
    whole = ("critical_path_ns",)
    length = figures.get(*whole)
    rows = [
        [
            f'<i class="key {kind}"></i>{kind.replace("_", " ")}',
            figures.ns("critical_path_by_kind", kind),
            figures.share(("critical_path_by_kind", kind), whole),
        ]
        for kind, time in kinds.items()
        if time
    ]
    rows.append(["<b>total</b>", f"<b>{figures.ns(*whole)}</b>", ""])
    by_kind = table("By kind", ["kind", "time#", "share#"], rows)
    return "\n".join([
        stacked_bar(list(kinds.items()), length), by_kind, _operations(figures), _causes(figures),
    ])  # fmt: skip


def _operations(figures: Figures) -> str:
    found = figures.rows("critical_path_top")
    most = max((row["ns"] for row in found), default=0)
    rows = []
    for i, row in enumerate(found):
        at, kind = ("critical_path_top", i), row["kind"]
        rows.append([
            text(row["name"], "(between operations)"),
            f'<i class="key {kind}"></i>{kind.replace("_", " ")}',
            figures.ns(*at, "ns"),
            figures.share((*at, "ns"), ("critical_path_ns",)) + bar(row["ns"], most, kind),
            figures.count(*at, "count"),
            rank_ranges(row["ranks"]),
        ])  # fmt: skip
    columns = ["operation*", "kind", "time#", "share#", "count#", "ranks"]
    return table("Operations with most time on it", columns, rows)


def _causes(figures: Figures) -> str:
    causes = figures.get("unexplained", "by_cause", otherwise={})
    rows = [
        [
            cause.replace("_", " "),
            figures.ns("unexplained", "by_cause", cause),
            figures.share(("unexplained", "by_cause", cause), ("critical_path_ns",)),
        ]
        for cause, time in causes.items()
        if time
    ]
    if figures.get("unexplained", "inferred_ns"):
        inferred = ("unexplained", "inferred_ns")
        share = figures.share(inferred, ("critical_path_ns",))
        rows.append(["rests on inferred dependencies", figures.ns(*inferred), share])
    return table(
        "What the recording does not explain", ["cause", "time on the path#", "share#"], rows
    )
