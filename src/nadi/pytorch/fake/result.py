"""A job recorded without devices: what each kind of rank does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nadi.pytorch.fake.fake_job import FakeJob
from nadi.results.declared import ALL, BYTES, COUNT, PLAIN, Column, Lines, Result, Rows, number
from nadi.results.text import issue_lines
from nadi.units import format_counted


def _described(job: FakeJob) -> dict[str, Any]:
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


def _headline(data: dict[str, Any]) -> str:
    ranks, steps = format_counted(data["world_size"], "rank"), format_counted(data["steps"], "step")
    return f"{ranks}, {format_counted(len(data['ranks']), 'kind')} of rank, {steps}"


def _warnings(data: dict[str, Any]) -> Iterable[str]:
    issues = {tuple(issue.values()): issue for rank in data["ranks"]
              for issue in rank["issues"] if issue["severity"] != "info"}  # fmt: skip
    return issue_lines(issues.values())


FAKE_JOB = Result(
    kind="fake_job", title="Recorded without devices", order=93, facts=_described,
    headline=_headline,
    parts=(
        Rows("ranks", lambda _: "", None, (
            Column("rank", "rank", PLAIN), Column("ranks_alike", "like it", COUNT),
            Column("operations", "operators", COUNT),
            Column("flops", "FLOPs", number(lambda flops: f"{flops:.3g}")),
            Column("collectives", "collectives", COUNT), Column("messages", "messages", COUNT),
            Column("comm_bytes", "sent", BYTES), Column("peak", "memory", BYTES),
        ), top=ALL),
        Lines(_warnings),
        Lines(lambda data: [f"written: {one['file']}" for one in data["ranks"]]),
    ),
)  # fmt: skip
