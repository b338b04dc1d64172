"""What an obfuscated job preserves, for its owner."""

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
                "makespan_ns": one.makespan_ns,
                "obfuscated_makespan_ns": one.obfuscated_ns,
                "makespan": one.makespan,
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


def _systems_apart(data: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Give the systems whose figures differ; those with the same share a row.

    A job that was recorded with its times on one device takes as long on every system.
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(data["differences"]):
        figures = tuple(value for key, value in row.items() if key != "system")
        alike.setdefault(figures, []).append(at)
    for first, *others in alike.values():
        row = data["differences"][first]
        more = f"{row['system']} and {format_counted(len(others), 'other')}, alike"
        yield ("differences", first), {**row, "alike": more} if others else row


_SHARE = number(lambda share: f"{100 * share:.2f} %")
OBFUSCATION = Result(
    kind="obfuscation", title="Obfuscated job", order=95, facts=_described, headline=_headline,
    parts=(
        Lines(_promised),
        Rows("differences", "simulated, for the owner", None, (
            Column("system", "system", shown=lambda row: row.get("alike", row["system"])),
            Column("makespan_ns", "time of the job", NS),
            Column("obfuscated_makespan_ns", "obfuscated", NS),
            Column("makespan", "difference", _SHARE),
            Column("critical_path", "critical path", _SHARE),
        ), top=ALL, made=_systems_apart),
    ),
)  # fmt: skip
NAMES = Result(
    kind="names", title="Names", order=96, facts=dict, headline=None,
    parts=(Rows("", "names", None, (named("pseudonym"), valued("name", UNCUT)), top=ALL),),
)  # fmt: skip
"""The names behind pseudonyms."""
