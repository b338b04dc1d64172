"""What an obfuscated job preserves, for its owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nadi.results.declared import ALL, NS, UNCUT, Column, Lines, Result, Rows, named, number, valued
from nadi.sharing.obfuscation.fidelity import ObfuscatedJob
from nadi.units import format_count, format_counted


def _described(done: ObfuscatedJob) -> dict[str, Any]:
    """Describe an obfuscated job: the report to share, and what is not shared."""
    return {
        "report": done.report,
        "ranks": len(done.job.traces),
        "nodes": done.job.num_nodes,
        "original_nodes": done.original_nodes,
        "differences": [
            {
                "system": one.system,
                "step_ns": one.step_ns,
                "obfuscated_step_ns": one.obfuscated_ns,
                "step": one.step,
                "critical_path": one.path,
            }
            for one in done.fidelity
        ],
    }


def _headline(data: dict[str, Any]) -> str:
    nodes = f"{format_count(data['original_nodes'])} nodes -> {format_count(data['nodes'])}"
    level, folder = data["report"]["level"], data["folder"]
    return f"{format_counted(data['ranks'], 'rank')}, {nodes}, level {level} -> {folder}"


def _promised(data: dict[str, Any]) -> Iterator[str]:
    """Say what is preserved and removed, against whom, and how the epsilon is spent."""
    report = data["report"]
    for name in ("preserved", "removed", "against"):
        yield f"{name}: {report[name]}"
    if privacy := report.get("privacy"):
        spent = ", ".join(f"{what} {part:g}" for what, part in privacy["spent"].items())
        yield f"epsilon {privacy['epsilon']:g}: {spent}"
        yield f"neighbors: {privacy['neighboring_relation']}"


_SHARE = number(lambda share: f"{100 * share:.2f} %")
OBFUSCATION = Result(
    kind="obfuscation", title="Obfuscated job", order=95, facts=_described, headline=_headline,
    parts=(
        Lines(_promised),
        Rows("differences", "simulated, for the owner", None, (
            Column("system", "system"), Column("step_ns", "step", NS),
            Column("obfuscated_step_ns", "obfuscated", NS), Column("step", "difference", _SHARE),
            Column("critical_path", "critical path", _SHARE),
        ), top=ALL),
    ),
)  # fmt: skip
NAMES = Result(
    kind="names", title="Names", order=96, facts=dict, headline=None,
    parts=(Rows("", "names", None, (named("pseudonym"), valued("name", UNCUT)), top=ALL),),
)  # fmt: skip
"""The names behind pseudonyms."""
