"""What bounds the step, and the changes that gain most."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Verdict"
ORDER = 0


def render(figures: Figures) -> str:
    """Write the verdict's sentences, and a row per change."""
    lines = figures.rows("verdict_in_words")
    if not lines:
        return ""
    said = [f"<p class=first>{text_line(lines[0])}</p>"]
    said += [f"<p>{text_line(line)}</p>" for line in lines[1:]]
    changes = figures.rows("best_changes")
    most = max((row["gain_ns"] for row in changes), default=0)
    rows = []
    for i, row in enumerate(changes):
        at = ("best_changes", i)
        rows.append([
            text(row.get("in_words", row["change"])),
            figures.ns(*at, "step_ns"),
            figures.ns(*at, "gain_ns"),
            figures.share((*at, "gain_ns"), ("measured_ns",)) + bar(row["gain_ns"], most, "gain"),
            figures.time_range((*at, "interval", "gain_low_ns"), (*at, "interval", "gain_high_ns")),
            f"<code>{text(row['change'])}</code>",
        ])  # fmt: skip
    columns = ["change*", "step time#", "gain#", "share#", "90 % interval#", "as --what-if*"]
    return "\n".join(said) + table("Changes that gain most, each alone", columns, rows)


def text_line(line: object) -> str:
    """Write a whole sentence."""
    from html import escape

    return escape(str(line))
