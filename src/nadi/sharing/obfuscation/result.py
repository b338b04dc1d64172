"""What an obfuscated job preserves, as data and as text for its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, name_cell, print_table
from nadi.sharing.obfuscation.fidelity import ObfuscatedJob
from nadi.units import format_count, format_counted, format_ns, printable

__all__ = ["describe_obfuscation", "print_names", "print_obfuscation"]


def describe_obfuscation(done: ObfuscatedJob) -> dict[str, Any]:
    """Describe an obfuscated job for its owner: the report to share, and what is not shared."""
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


def print_obfuscation(done: ObfuscatedJob, files: Sequence[Path], console: Console) -> None:
    """Print what was written, what it preserves and how far, and what it is not."""
    report = done.report
    ranks = format_counted(len(done.job.traces), "rank")
    nodes = f"{format_count(done.original_nodes)} nodes -> {format_count(done.job.num_nodes)}"
    told = f"{ranks}, {nodes}, level {done.level} -> {files[0].parent}"
    console.print(Text(printable(told)))
    for name in ("preserved", "removed", "against"):
        console.print(Text(f"{name}: {report[name]}"))
    if done.privacy is not None:
        spent = ", ".join(f"{what} {part:g}" for what, part in done.privacy.spent.items())
        console.print(Text(f"epsilon {done.privacy.epsilon:g}: {spent}"))
        console.print(Text(f"neighbors: {done.privacy.relation}"))
    if done.fidelity:
        table = make_table(
            "simulated, for the owner", system="left", step="right", obfuscated="right",
            difference="right", **{"critical path": "right"},
        )  # fmt: skip
        for one in done.fidelity:
            table.add_row(
                one.system, format_ns(one.step_ns), format_ns(one.obfuscated_ns),
                f"{100 * one.step:.2f} %", f"{100 * one.path:.2f} %",
            )  # fmt: skip
        print_table(table, console)


def print_names(names: Mapping[str, str], console: Console) -> None:
    """Print the name behind each pseudonym."""
    table = make_table("names", pseudonym="left", name="left")
    for pseudonym, name in names.items():
        table.add_row(Text(pseudonym), name_cell(name))
    print_table(table, console)
