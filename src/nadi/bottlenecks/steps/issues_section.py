"""What the import met: each kind of problem, how often, and what to do about it."""

from __future__ import annotations

from nadi.results.page.figures import Figures, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Import issues"
ORDER = 90


def render(figures: Figures) -> str:
    """Write a row per kind of problem."""
    rows = [
        [
            f'<span class="severity {text_class(row["severity"])}">{row["severity"]}</span>',
            text(row["detail"] or row["code"]),
            figures.count("issues", i, "count"),
            text(row["remedy"]),
        ]
        for i, row in enumerate(figures.rows("issues"))
    ]
    return table("", ["severity", "what*", "count#", "what to do*"], rows)


def text_class(severity: str) -> str:
    """Return the class of a severity in ``page.css``."""
    return severity if severity in ("info", "warning", "error") else "info"
