"""What-if: the step after each change that was asked for."""

from __future__ import annotations

from nadi.results.page.figures import Figures, Path, stacked_bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "What if"
ORDER = 15


def render(figures: Figures) -> str:
    """Write a row per change; of ``nadi run``, or of ``nadi what-if``."""
    answers: list[Path] = [("what_if", i) for i in range(len(figures.rows("what_if")))]
    answers += [("changes", i) for i in range(len(figures.rows("changes")))]
    if figures.get("together"):
        answers.append(("together",))
    return (
        table(
            "Step time after each change",
            _columns("change*"),
            [_row(figures, at) for at in answers],
        )
        + table(
            "With each value",
            _columns("value"),
            [_row(figures, ("sweep", i)) for i in range(len(figures.rows("sweep")))],
        )
        + _limits(figures)
    )


def _columns(first: str) -> list[str]:
    return [first, "step time#", "of measured#", "90 % interval#", "new bottleneck*",
            "new critical path"]  # fmt: skip


def _row(figures: Figures, at: Path) -> list[str]:
    name = figures.get(*at, "value") or figures.get(*at, "change")
    where = "all together" if at == ("together",) else str(name)
    interval = (*at, "interval")
    kind = str(figures.get(*at, "bound_by_kind", otherwise="")).replace("_", " ")
    operation = figures.get(*at, "bound_by_operation", otherwise="")
    kinds: dict[str, int] = figures.get(*at, "critical_path_by_kind", otherwise={})
    return [
        text(where),
        figures.ns(*at, "step_ns"),
        figures.share((*at, "step_ns"), ("measured_ns",)),
        figures.time_range((*interval, "low_ns"), (*interval, "high_ns")),
        text(operation, "between operations") + f" ({kind})" if kind else "",
        stacked_bar(list(kinds.items()), sum(kinds.values())) if kinds else "",
    ]


def _limits(figures: Figures) -> str:
    rows = [
        [
            text(row["name"]),
            figures.ns("ideals", i, "step_ns"),
            figures.ns("ideals", i, "gain_ns"),
            figures.share(("ideals", i, "gain_ns"), ("measured_ns",)),
        ]
        for i, row in enumerate(figures.rows("ideals"))
    ]
    columns = ["removed*", "step time#", "gain#", "share#"]
    return table("Upper bounds: the step with one kind of cost removed", columns, rows)
