"""When the ranks of a LogGP model finish, and what their processors do."""

from __future__ import annotations

from typing import Any

from nadi.files.goal import Action
from nadi.results.declared import BLANK, NS, PLAIN, Column, Result, Rows
from nadi.simulation.loggp.loggp import LogGPTimes
from nadi.units import format_bytes, format_count, format_counted, format_ns

_SHOWN = 16  # ranks
_PARTS = {"computing": "compute", "sending": "send", "receiving": "receive"}


def _described(times: LogGPTimes) -> dict[str, Any]:
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


def _last_first(data: dict[str, Any]) -> list[int]:
    rows = data["rank_times"]
    return sorted(range(len(rows)), key=lambda i: (-rows[i]["finish"], rows[i]["rank"]))


MESSAGES = Result(
    kind="messages", title="Program of messages", order=97, facts=_described,
    headline=lambda data: (
        f"{format_counted(data['ranks'], 'rank')}, {format_count(data['messages'])} messages, "
        f"{format_bytes(data['bytes'])}: {format_ns(data['makespan_ns'])}"
    ),
    parts=(
        BLANK,
        Rows("rank_times", "Time of processors, last rank first", None, (
            Column("rank", "rank", PLAIN), Column("finish", "finish", NS),
            *(Column(key, title, NS) for key, title in _PARTS.items()),
        ), pick=_last_first, top=_SHOWN),
    ),
)  # fmt: skip
