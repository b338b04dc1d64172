"""The fastest executions that a search found, and what the others lack."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Search"
ORDER = 4
_FIELDS = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "microbatch_size": "microbatch",
    "pipeline_interleaving": "interleaving",
}  # fmt: skip


def render(figures: Figures) -> str:
    """Write how many there are, a row per execution, and one per reason."""
    figures = figures.under("search")
    if figures.get("executions") is None:
        return ""
    first = (
        f"<p class=first>{figures.count('executions')} configurations, of which "
        f"{figures.count('feasible')} are possible</p>"
    )
    found = figures.rows("best")
    most = max((row["rate"] for row in found), default=0.0)
    rows = [
        [
            figures.mean("best", i, "rate") + bar(row["rate"], most),
            figures.seconds("best", i, "seconds"),
            *(figures.plain("best", i, "execution", name) for name in _FIELDS),
            text(row["execution"]["activation_recompute"]),
            figures.whole_size("best", i, "tier1_bytes"),
        ]
        for i, row in enumerate(found)
    ]
    lacking: dict[str, int] = figures.get("lacking", otherwise={})
    reasons = [[figures.count("lacking", reason), text(reason)] for reason in lacking]
    columns = ["sequences/s#", "step#", *(f"{name}#" for name in _FIELDS.values()), "recompute",
               "memory#"]  # fmt: skip
    return (
        first
        + table("Fastest", columns, rows)
        + table("Not possible", ["configurations#", "reason*"], reasons)
    )
