"""A job recorded without devices: what each kind of rank does, as JSON or text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nadi.collect.fake_job import FakeJob
from nadi.units import format_bytes, format_count

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["describe_fake_job", "print_fake_job"]


def describe_fake_job(job: FakeJob) -> dict[str, Any]:
    """Return what was recorded, as JSON values."""
    return {
        "world_size": job.world_size,
        "steps": job.steps,
        "recorded_ranks": job.num_recorded,
        "ranks": [
            {
                "file": str(one.file),
                "ranks_alike": one.num_alike,
                **one.summary._asdict(),
                "issues": [
                    dict(zip(("code", "severity", "count", "detail", "remedy"), row, strict=True))
                    for row in one.issues
                ],
            }
            for one in job.ranks
        ],
    }


def print_fake_job(job: FakeJob, console: Console) -> None:
    """Print a row for each kind of rank, and warnings."""
    from rich.table import Table
    from rich.text import Text

    kinds = f"{len(job.ranks)} kind{'s' if len(job.ranks) > 1 else ''} of rank"
    told = f"{format_count(job.world_size)} ranks, {kinds}, {job.steps} step"
    console.print(Text(told + ("s" if job.steps > 1 else ""), style="bold"))
    table = Table(box=None, pad_edge=False)
    heads = ("rank", "like it", "operations", "FLOPs", "collectives", "sends, receives",
             "communicated", "peak memory")  # fmt: skip
    for head in heads:
        table.add_column(head, justify="right")
    for one in job.ranks:
        summary = one.summary
        table.add_row(
            str(summary.rank), format_count(one.num_alike), format_count(summary.operations),
            f"{summary.flops:.3g}", format_count(summary.collectives),
            format_count(summary.messages), format_bytes(summary.comm_bytes),
            format_bytes(summary.peak),
        )  # fmt: skip
    console.print(table)
    issues = {(code, detail, remedy): severity
              for one in job.ranks for code, severity, _, detail, remedy in one.issues}  # fmt: skip
    for (_, detail, remedy), severity in issues.items():
        if severity != "info":
            console.print(Text(f"{severity}: {detail}; {remedy}"))
    for one in job.ranks:
        console.print(Text(f"written: {one.file}"))
