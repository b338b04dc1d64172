"""A folded job: its classes of alike ranks, and what repeats."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Alike ranks and repeats"
ORDER = 82
_ROWS = 64


def render(figures: Figures) -> str:
    """Write the size before and after, and a row per class of ranks and per repeat."""
    figures = figures.under("fold")
    classes = figures.rows("classes")
    if not classes:
        return ""
    first = (
        f"<p class=first>{figures.count('ranks')} ranks and {figures.count('nodes')} operations "
        f"are {len(classes)} {'class' if len(classes) == 1 else 'classes'} of ranks and "
        f"{figures.count('kept_nodes')} operations</p>"
    )
    rows = [
        [
            text(row["ranks"]),
            figures.count("classes", i, "num_ranks"),
            figures.count("classes", i, "nodes"),
            figures.count("classes", i, "kept_nodes") + bar(row["kept_nodes"], row["nodes"]),
            figures.ns("classes", i, "times_ns", "typical"),
            figures.ns("classes", i, "times_ns", "low"),
            figures.ns("classes", i, "times_ns", "high"),
            text(" ".join(row["roles"])),
        ]
        for i, row in enumerate(classes[:_ROWS])
    ]
    columns = ["ranks*", "number#", "operations#", "kept#", "sum of times, typical#", "least#",
               "largest#", "roles in groups*"]  # fmt: skip
    repeats = [
        [
            text(classes[i]["ranks"]),
            figures.count("classes", i, "repeats", k, "turns"),
            figures.count("classes", i, "repeats", k, "kept_nodes"),
            text(row["from"]),
            text(row["to"]),
            text(", ".join(row["varies"])),
        ]
        for i in range(len(classes))
        for k, row in enumerate(classes[i]["repeats"])
    ][:_ROWS]
    heads = ["ranks*", "turns#", "operations in each#", "from*", "to*", "varies"]
    return (
        first
        + table("Classes of ranks", columns, rows)
        + table("Repeats", heads, repeats, searchable=True)
    )
