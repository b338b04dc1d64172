"""A job recorded without devices: what each kind of rank does, as JSON or text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nadi.pytorch.fake.fake_job import FakeJob
from nadi.units import format_bytes, format_count, format_counted

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
    from rich.text import Text

    from nadi.results.text import make_table, print_issues, print_table

    kinds = format_counted(len(job.ranks), "kind")
    ranks, steps = format_counted(job.world_size, "rank"), format_counted(job.steps, "step")
    console.print(Text(f"{ranks}, {kinds} of rank, {steps}", style="bold"))
    columns = ("rank", "like it", "operators", "FLOPs", "collectives", "messages", "sent", "memory")
    table = make_table("", **dict.fromkeys(columns, "right"))
    for one in job.ranks:
        summary = one.summary
        table.add_row(
            str(summary.rank), format_count(one.num_alike), format_count(summary.operations),
            f"{summary.flops:.3g}", format_count(summary.collectives),
            format_count(summary.messages), format_bytes(summary.comm_bytes),
            format_bytes(summary.peak),
        )  # fmt: skip
    print_table(table, console)
    issues = {tuple(issue.values()): issue for rank in describe_fake_job(job)["ranks"]
              for issue in rank["issues"] if issue["severity"] != "info"}  # fmt: skip
    print_issues(issues.values(), console)
    for one in job.ranks:
        console.print(Text(f"written: {one.file}"))
