"""Two recordings side by side: what changed, and what of it lengthens the step."""

from __future__ import annotations

from typing import Any

from nadi.results.page.figures import Figures, bar, table, text, tiles

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Differences"
ORDER = -10
_ROWS = 40  # of each table: the largest changes


def render(figures: Figures) -> str:
    """Write the step before and after, then what changed on the critical path, and elsewhere."""
    if not figures.get("diff"):
        return ""
    return "\n".join((
        _first_lines(figures),
        _kinds(figures),
        _path(figures),
        _changed(figures, "kernels", "Work on devices by name, per step", "name", ("",)),
        _changed(figures, "calls", "Calls on the host, and the device work that they launch, per "
                 "step", "path", ("", "device_")),
        _steps(figures),
    ))  # fmt: skip


def _first_lines(figures: Figures) -> str:
    before, after = (str(figures.get("diff", name)) for name in ("before", "after"))
    shown = [
        ("before", figures.mean_ns("diff", "before_ns"), f"a step of {text(before)}"),
        ("after", figures.mean_ns("diff", "after_ns"), f"a step of {text(after)}"),
        ("change", figures.change_ns("diff", "change_ns"),
         f"{figures.share(('diff', 'change_ns'), ('diff', 'before_ns'))} of the step before"),
    ]  # fmt: skip
    said = "".join(
        f"<p>{title}: {text(lines[0])}</p>"
        for title, lines in (
            ("before", figures.get("before", "verdict_in_words")),
            ("after", figures.get("verdict_in_words")),
        )
        if lines
    )
    rest = f"<p>The timeline shows both; all other sections are about {text(after)}.</p>"
    return f"{tiles(shown)}{said}{rest}"


def _kinds(figures: Figures) -> str:
    """Write the critical path of each by kind, in its window."""
    after: dict[str, int] = figures.get("critical_path_by_kind", otherwise={})
    before: dict[str, int] = figures.get("before", "critical_path_by_kind", otherwise={})
    most = max((*after.values(), *before.values()), default=0)
    rows = [
        [
            kind.replace("_", " "),
            figures.ns("before", "critical_path_by_kind", kind) + bar(before.get(kind, 0), most),
            figures.ns("critical_path_by_kind", kind) + bar(after.get(kind, 0), most),
        ]
        for kind in dict.fromkeys((*after, *before))
        if after.get(kind) or before.get(kind)
    ]
    return table("Critical path by kind, in the whole window", ["kind", "before#", "after#"], rows)


def _path(figures: Figures) -> str:
    found = figures.rows("diff", "path")
    rows = [
        [
            text(row["name"], "(no operation)"),
            str(row["kind"]).replace("_", " "),
            text(row["cause"]),
            figures.mean_ns("diff", "path", i, "before_ns"),
            figures.mean_ns("diff", "path", i, "after_ns"),
            figures.change_ns("diff", "path", i, "change_ns"),
        ]
        for i, row in enumerate(found)
        if row["change_ns"]
    ]
    columns = ["operation*", "kind", "cause", "before#", "after#", "change#"]
    title = "Critical path, per step: these changes add up to that of the step"
    return _shortened(title, columns, rows)


def _changed(
    figures: Figures, name: str, title: str, key: str, prefixes: tuple[str, ...]
) -> str:  # fmt: skip
    """Write a table of sums by name; without what stayed the same."""
    rows = []
    for i, row in enumerate(figures.rows("diff", name)):
        if row["state"] == "same" or not row["change_ns"]:
            continue
        at = ("diff", name, i)
        times = [
            figures.mean_ns(*at, f"{prefix}{side}_ns")
            for prefix in prefixes
            for side in ("before", "after")
        ]
        counts = [figures.mean(*at, f"count_{side}") for side in ("before", "after")]
        rows.append([text(row[key]), row["state"], *counts, *times,
                     figures.change_ns(*at, "change_ns")])  # fmt: skip
    columns = [f"{prefix.replace('_', ' ')}{side}#" for prefix in prefixes
               for side in ("before", "after")]  # fmt: skip
    head = ["name*", "state", "count before#", "count after#", *columns, "change#"]
    return _shortened(title, head, rows)


def _steps(figures: Figures) -> str:
    found = figures.rows("diff", "steps")
    rows = [
        [
            *(figures.plain("diff", "steps", i, name) for name in ("rank", "before", "after")),
            figures.ns("diff", "steps", i, "before_ns"),
            figures.ns("diff", "steps", i, "after_ns"),
            figures.change_ns("diff", "steps", i, "change_ns"),
        ]
        for i in range(len(found))
    ]
    columns = ["rank#", "step before#", "step after#", "before#", "after#", "change#"]
    return table("Steps of each rank", columns, rows, searchable=True)


def _shortened(title: str, columns: list[str], rows: list[list[Any]]) -> str:
    """Write the first rows of a table, and say that there are more."""
    shown = table(title, columns, rows[:_ROWS], searchable=True)
    more = len(rows) > _ROWS
    return shown + ("<p>Smaller changes: nadi diff with --json.</p>" if more else "")
