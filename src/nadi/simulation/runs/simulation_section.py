"""A simulated job: when it ends, what each rank spends its time on, collectives, links, memory."""

from __future__ import annotations

from nadi.results.page.figures import Figures, stacked_bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Simulation"
ORDER = 1
# the parts of a rank's time, with the class of their color
_PARTS = {
    "computing": ("compute", "computing"),
    "transferring": ("exposed transfer", "transferring"),
    "accessing": ("remote memory", "copying"),
    "hosting": ("host", "host_op"),
    "other": ("other nodes", "launch"),
    "awaiting_members": ("wait for stragglers", "waiting"),
    "awaiting_sender": ("wait for senders", "delay"),
    "awaiting_receiver": ("wait for receivers", "launch"),
    "awaiting_memory": ("wait for remote memory", "host_gap"),
    "idle": ("idle", "idle"),
}
_MOST = 64  # ranks and links in a table


def render(figures: Figures) -> str:
    """Write the time of the job, and a table per account."""
    if figures.get("simulation"):
        figures = figures.under("simulation")
    if figures.get("makespan_ns") is None:
        return ""
    system = text(figures.get("system", otherwise=""), "the given system")
    slowest = figures.plain("slowest_rank", "rank")
    first = (
        f"<p class=first>{figures.count('ranks')} ranks on {system}: "
        f"{figures.ns('makespan_ns')}</p>\n<p>Rank {slowest} finishes last.</p>"
    )
    return first + _ranks(figures) + _types(figures) + _links(figures) + _memory(figures)


def _ranks(figures: Figures) -> str:
    found = figures.rows("per_rank")
    parts = {name: said for name, said in _PARTS.items() if any(row[f"{name}_ns"] for row in found)}
    rows = [
        [
            figures.plain("per_rank", i, "rank"),
            stacked_bar(
                [(color, row[f"{name}_ns"]) for name, (_, color) in parts.items()],
                figures.get("makespan_ns"),
            ),
            figures.ns("per_rank", i, "finish_ns"),
            *(figures.ns("per_rank", i, f"{name}_ns") for name in parts),
        ]
        for i, row in enumerate(found[:_MOST])
    ]
    more = f"; the first {_MOST} of {len(found)}" if len(found) > _MOST else ""
    keys = "".join(
        f'<span><i class="key {color}"></i>{said}</span>' for said, color in parts.values()
    )
    columns = ["rank#", "", "finish#", *(f"{said}#" for said, _ in parts.values())]
    return table(f"Time of each rank{more}", columns, rows) + f"<p class=legend>{keys}</p>"


def _types(figures: Figures) -> str:
    rows = [
        [
            text(row["type"]),
            text(row["algorithm"]),
            figures.count("collectives_by_type", i, "count"),
            figures.size("collectives_by_type", i, "bytes"),
            figures.ns("collectives_by_type", i, "time_ns"),
            figures.ns("collectives_by_type", i, "waiting_ns"),
            figures.decimal("collectives_by_type", i, "bus_bandwidth_gb_per_s"),
            figures.percent("collectives_by_type", i, "fraction"),
        ]
        for i, row in enumerate(figures.rows("collectives_by_type"))
    ]
    columns = ["collective", "algorithm", "count#", "bytes#", "time#", "wait time#", "busbw GB/s#",
               "of the bound#"]  # fmt: skip
    return table("Collectives by type", columns, rows)


def _links(figures: Figures) -> str:
    found = figures.rows("links")
    order = sorted(range(len(found)), key=lambda i: -found[i]["utilization"])[:_MOST]
    rows = [
        [
            text(found[i]["link"]),
            figures.size("links", i, "bytes"),
            figures.percent("links", i, "utilization"),
            text(", ".join(found[i]["users"])),
        ]
        for i in order
    ]
    return table("Busiest links", ["link*", "bytes#", "utilization#", "used by*"], rows)


def _memory(figures: Figures) -> str:
    rows = [
        [
            figures.plain("live_memory", i, "rank"),
            text(row["device"]),
            figures.size("live_memory", i, "peak_bytes"),
            figures.ns("live_memory", i, "at_ns"),
        ]
        for i, row in enumerate(figures.rows("live_memory")[:_MOST])
    ]
    return table("Peak memory of live tensors", ["rank#", "device", "peak#", "at#"], rows)
