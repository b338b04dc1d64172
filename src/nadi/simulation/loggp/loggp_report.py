"""Results of a LogGP model, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.files.goal import Action
from nadi.results.text import make_table, print_table
from nadi.simulation.loggp.loggp import LogGPTimes
from nadi.units import format_bytes, format_count, format_counted, format_ns

__all__ = ["describe_messages", "print_messages"]

_SHOWN = 16  # ranks
_PARTS = {
    "computing": "compute", "sending": "send", "receiving": "receive",
}  # fmt: skip


def describe_messages(times: LogGPTimes) -> dict[str, Any]:
    """Describe when ranks finish, and what their processors do; times are ns."""
    program = times.program
    sends = program.action == Action.SEND
    return {
        "ranks": program.num_ranks,
        "operations": program.num_operations,
        "messages": int(sends.sum()),
        "bytes": int(program.size[sends].sum()),
        "makespan_ns": times.makespan,
        "rank_times": [
            {
                "rank": rank,
                "finish": int(times.finish[rank]),
                **{name: int(getattr(times, name)[rank]) for name in _PARTS},
            }
            for rank in range(program.num_ranks)
        ],
    }


def print_messages(described: dict[str, Any], console: Console) -> None:
    """Print a summary, and the ranks that finish last."""
    console.print(
        Text(
            f"{format_counted(described['ranks'], 'rank')}, {format_count(described['messages'])} "
            f"messages, {format_bytes(described['bytes'])}: {format_ns(described['makespan_ns'])}"
        )
    )
    ranks = sorted(described["rank_times"], key=lambda row: (-row["finish"], row["rank"]))
    more = f" (of {format_count(len(ranks))})" if len(ranks) > _SHOWN else ""
    headings = {"rank": "right", "finish": "right", **dict.fromkeys(_PARTS.values(), "right")}
    table = make_table(f"\nTime of processors, last rank first{more}", **headings)
    for row in ranks[:_SHOWN]:
        parts = [format_ns(row[name]) for name in ("finish", *_PARTS)]
        table.add_row(str(row["rank"]), *parts)
    print_table(table, console)
