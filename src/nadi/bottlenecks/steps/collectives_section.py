"""Collectives: the transfer itself apart from the wait for the straggler, bandwidth and bound."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, stacked_bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Collectives"
ORDER = 60


def render(figures: Figures) -> str:
    """Write a row per name, type, group and size: times, and then bandwidths."""
    found = figures.rows("collectives")
    if not found:
        return ""
    return _times(figures) + _bandwidths(figures)


def _times(figures: Figures) -> str:
    found = figures.rows("collectives")
    largest = max(row["waiting_ns"] + row["transferring_ns"] for row in found)
    rows = []
    for i, row in enumerate(found):
        at = ("collectives", i)
        parts = [("waiting", row["waiting_ns"]), ("transferring", row["transferring_ns"])]
        rows.append([
            text(row["name"]),
            text(row["group"]),
            figures.size(*at, "bytes"),
            figures.count(*at, "count"),
            figures.ns(*at, "waiting_ns"),
            figures.ns(*at, "transferring_ns"),
            stacked_bar(parts, largest),
        ])  # fmt: skip
    columns = ["collective*", "group", "size#", "count#", "wait: first to last entry#",
               "transfer: last entry to last end#", ""]  # fmt: skip
    return table("By name, group and size; times are sums", columns, rows, searchable=True)


def _bandwidths(figures: Figures) -> str:
    """Write the bandwidth that transfers reached; with a system, beside what its links allow."""
    bounded = figures.get("collectives_bound_by") is not None
    rows = []
    for i, row in enumerate(figures.rows("collectives")):
        if row.get("bandwidth_gb_per_s", -1) < 0:
            continue
        at = ("collectives", i)
        cells = [
            text(row["type"]),
            text(row["group"]),
            figures.count(*at, "members"),
            figures.size(*at, "bytes"),
            figures.gigabytes(*at, "bandwidth_gb_per_s"),
            figures.gigabytes(*at, "bus_bandwidth_gb_per_s"),
        ]
        if bounded:
            known = row["fraction"] >= 0
            cells += [
                figures.gigabytes(*at, "bound_bus_bandwidth_gb_per_s"),
                figures.percent(*at, "fraction") if known else "-",
                bar(row["fraction"], 1.0) if known else "",
            ]
        rows.append(cells)
    columns = ["type", "group", "ranks#", "size#", "algbw GB/s#", "busbw GB/s#"]
    title = "Bandwidth of transfers, as nccl-tests count it"
    if bounded:
        columns += ["busbw GB/s at the bound#", "of the bound#", ""]
        system, reason = (figures.get("collectives_bound_by", of) for of in ("system", "reason"))
        title += f"; the bound is that of the links of {system} ({reason})"
    elif rows:
        title += "; --system SYSTEM says what its links allow"
    return table(title, columns, rows)
