"""Where the results come from: what was read, how much of it there is, and what made the page."""

from __future__ import annotations

from nadi.results.page.figures import Figures, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Provenance"
ORDER = 100


def render(figures: Figures) -> str:
    """Write how much was read, a row per file, and the version."""
    facts = [
        [title, figures.count(name)]
        for title, name in {
            "ranks of the recording": "ranks",
            "ranks of the job": "world_size",
            "operations": "nodes",
            "collectives matched across ranks": "collectives_matched",
            "transfers matched across ranks": "transfers_matched",
        }.items()
        if isinstance(figures.get(name), int)
    ]
    kinds = figures.get("dependencies_by_kind", otherwise={})
    facts += [
        [f"dependencies: {text(kind)}", figures.count("dependencies_by_kind", kind)]
        for kind in kinds
    ]
    files = [
        [
            text(row["path"]),
            text(row["format"]),
            figures.size("sources", i, "size"),
            f"<code>{text(row['hash'])}</code>",
        ]
        for i, row in enumerate(figures.rows("sources"))
    ]
    version = figures.get("nadi_version", otherwise="")
    made = f"<p>Nadi {text(version)}</p>" if version else ""
    return (
        table("What was read", ["", "#"], facts)
        + table("Files", ["file*", "format", "size#", "BLAKE2b-128"], files)
        + made
    )
