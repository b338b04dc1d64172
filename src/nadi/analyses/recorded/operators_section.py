"""Operators as PyTorch's ``key_averages()`` sums them: by name, by shape, by call stack."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Operators"
ORDER = 72
_DETAILS = {"name": "", "shape": "by the shapes of their inputs", "stack": "by call stack"}


def render(figures: Figures) -> str:
    """Write a row per name; those by shape and by stack are opened by a click."""
    found = []
    for by, title in _DETAILS.items():
        written = _table(figures, by)
        if written and title:
            written = f"<details><summary>{title}</summary>{written}</details>"
        found.append(written)
    return "\n".join(filter(None, found))


def _table(figures: Figures, by: str) -> str:
    """Write the rows of a way to sum, with device times where there are any."""
    rows = figures.rows("operators", by)
    timed = any(row["device_ns"] for row in rows)
    most = {key: max((row[key] for row in rows), default=0)
            for key in ("self_host_ns", "self_device_ns")}  # fmt: skip
    lines = []
    for i, row in enumerate(rows):
        at = ("operators", by, i)
        lines.append([
            text(row["name"]),
            *([text(row[by], "-")] if by != "name" else []),
            text(row["kind"]),
            figures.count(*at, "count"),
            figures.ns(*at, "self_host_ns") + bar(row["self_host_ns"], most["self_host_ns"]),
            figures.ns(*at, "host_ns"),
            *(_of_device(figures, at, most["self_device_ns"]) if timed else []),
        ])  # fmt: skip
    of_device = ["self, device#", "total, device#", "kernels#"]
    columns = ["name*", *([f"{by}*"] if by != "name" else []), "kind", "calls#", "self, host#",
               "total, host#", *(of_device if timed else [])]  # fmt: skip
    title = (
        "Alone (self) and with what they call, whole recording, all ranks; the first "
        f"{len(rows)}: nadi analyze operators has all"
    )
    return table(title, columns, lines, searchable=True)


def _of_device(figures: Figures, at: tuple[str | int, ...], most: int) -> list[str]:
    """Write what a call launches; dashes if nothing."""
    if not figures.get(*at, "kernels"):
        return ["-", "-", "-"]
    own = figures.get(*at, "self_device_ns")
    return [figures.ns(*at, "self_device_ns") + bar(own, most, "kernel"),
            figures.ns(*at, "device_ns"), figures.count(*at, "kernels")]  # fmt: skip
