"""Shapes of charts: texts, lines, and the colors and sizes that all charts share."""

from __future__ import annotations

from nadi.results.charts.chart_text import escape

__all__ = ["BOTTOM", "COLORS", "FONT", "GRID", "HEIGHT", "INK", "LEFT", "RIGHT", "SOFT", "TOP",
           "WIDTH", "line_between", "text_at"]  # fmt: skip

WIDTH, HEIGHT = 760, 420
LEFT, TOP, BOTTOM, RIGHT = 72, 64, 56, 24
FONT = "Inter, Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
INK, SOFT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
COLORS = ("#2f6db5", "#e0762f", "#2f9464", "#c33d4c", "#7d5fb0", "#8a6a4f", "#d0609f",
           "#5f6b78", "#a8921f", "#2a9fb0")  # fmt: skip


def text_at(
    x: float, y: float, text: str, *, size: int = 12, color: str = SOFT, anchor: str = "start",
    weight: int = 400,
) -> str:  # fmt: skip
    """Write a text at a place; ``anchor`` says which part of it stands there."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}"{where}{bold}>'
        f"{escape(text)}</text>"
    )


def line_between(x1: float, y1: float, x2: float, y2: float, color: str = GRID) -> str:
    """Draw a line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'
