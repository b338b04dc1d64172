"""Time by module: forward, backward and optimizer, on host and device."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Modules"
ORDER = 30
_TIMES = tuple(
    f"{phase}_{place}_ns"
    for place in ("host", "device")
    for phase in ("forward", "backward", "optimizer", "other")
)
_MOST = 100  # rows


def render(figures: Figures) -> str:
    """Write a row per module, of many those with most time."""
    found = figures.rows("modules", "rows")
    if len(found) < 2:  # only what is outside of modules
        return ""
    sums = [sum(row[name] for name in _TIMES) for row in found]
    kept = sorted(sorted(range(len(found)), key=lambda i: -sums[i])[:_MOST])
    columns = [name for name in _TIMES if any(row[name] for row in found)]
    most = max(row["critical_ns"] for row in found)
    rows = [
        [
            text(found[i]["module"]),
            figures.count("modules", "rows", i, "calls"),
            figures.ns("modules", "rows", i, "critical_ns") + bar(found[i]["critical_ns"], most),
            *(figures.ns("modules", "rows", i, name) for name in columns),
        ]
        for i in kept
    ]
    titles = [name.removesuffix("_ns").replace("_", ", ") + "#" for name in columns]
    more = f"; the {_MOST} with most time of {len(found)}" if len(kept) < len(found) else ""
    return table(
        f"Time by module, with the modules in it{more}",
        ["module*", "calls#", "on the critical path#", *titles], rows, searchable=True,
    )  # fmt: skip
