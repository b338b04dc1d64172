"""A replay: time of its steps, what was left out, and operators beside their originals."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from nadi.files.files import check_target, write_pieces
from nadi.pytorch.rerunning.operator_trials import Skipped
from nadi.pytorch.rerunning.replay import ReplayedJob
from nadi.results.declared import COUNT, LABEL, NS, Column, Lines, Result, Rows, in_words
from nadi.units import (
    format_change,
    format_count,
    format_counted,
    format_ns,
    format_percent,
    printable,
)

_SHOWN = 12  # rows of a table


def _described(done: ReplayedJob) -> dict[str, Any]:
    """Compute the JSON output; times are in ns."""
    return {
        "ranks": len(done.ranks),
        "step_ns": done.step_ns,
        "steps_ns": [[list(steps) for steps in rank.times.steps] for rank in done.ranks],
        "operators": sum(rank.num_operators for rank in done.ranks),
        "calls": sum(len(rank.calls) for rank in done.ranks),
        "skipped": _counted(done.skipped),
        "replaced": _counted(done.replaced),
        "comparisons": [
            {
                "original_steps_ns": list(one.original_steps),
                "replayed_steps_ns": list(one.replayed_steps),
                "different_calls": one.num_different,
                "operators": one.operators.to_dicts(),
            }
            for one in done.comparisons
        ],
    }


def _counted(found: Counter[Skipped]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "reason": one.reason, "count": count}
        for one, count in found.most_common()
    ]


def _headline(data: dict[str, Any]) -> str:
    what = f"{format_count(data['calls'])} calls of operators"
    if data["ranks"] > 1:
        what += f", {data['ranks']} ranks"
    return f"{what}, {format_counted(len(data['steps_ns'][0][0]), 'step')}"


def _times(data: dict[str, Any]) -> Iterator[str]:
    """Say how long a step takes, without a recorder and with one."""
    number = sum(map(len, data["steps_ns"][0]))
    slowest = ", slowest rank" if data["ranks"] > 1 else ""
    yield (
        f"step time  {format_ns(round(data['step_ns']))} without a recorder "
        f"(median of {number}{slowest})"
    )
    if data["comparisons"] and data["comparisons"][0]["original_steps_ns"]:
        before, after = (
            max(statistics.median(one[f"{key}_steps_ns"]) for one in data["comparisons"])
            for key in ("original", "replayed")
        )
        yield (
            f"recorded   {format_ns(round(after))}, original {format_ns(round(before))} "
            f"({format_change(after, before)})"
        )


def _again(data: dict[str, Any]) -> Iterator[str]:
    if data["comparisons"]:
        calls = data["calls"]
        same = calls - sum(one["different_calls"] for one in data["comparisons"])
        yield (
            f"{format_count(same)} of {format_count(calls)} calls are recorded again with the "
            "same name and shapes"
        )


def _together(data: dict[str, Any]) -> Iterator[tuple[tuple[()], dict[str, Any]]]:
    """Yield the operators of all ranks."""
    rows = [row for one in data["comparisons"] for row in one["operators"]]
    if not rows:
        return
    sums = (
        pl.DataFrame(rows, infer_schema_length=None)
        .group_by("name")
        .agg(pl.col("count", "original", "replayed").sum())
        .sort("original", "name", descending=[True, False])
    )
    yield from (((), row) for row in sums.iter_rows(named=True))


def _ratio(row: dict[str, Any]) -> str:
    return format_percent(row["replayed"], row["original"]) if row["original"] > 0 else ""


_LEFT_OUT = (
    Column("name", "operator"), Column("count", "calls", COUNT),
    Column("reason", "reason", in_words(lambda reason: printable(reason, 100))),
)  # fmt: skip

REPLAY = Result(
    kind="replay", title="Replay", order=94, facts=_described, headline=_headline,
    parts=(
        Lines(_times),
        Rows("skipped", "not replayed", None, _LEFT_OUT, top=_SHOWN),
        Rows("replaced", "replayed by the operators inside", None, _LEFT_OUT, top=_SHOWN),
        Lines(_again),
        Rows("", "operators, original and replay", None, (
            Column("name", "operator"), Column("count", "calls", COUNT),
            Column("original", "original", NS), Column("replayed", "replay", NS),
            Column("", "ratio", LABEL, shown=_ratio),
        ), made=_together, top=_SHOWN),
    ),
)  # fmt: skip


def check_script(path: Path, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a program can be written, before anything is replayed.

    - Raises InputError if it cannot be written, or exists already and ``overwrite`` is not given.
    """
    check_target(path, sources, overwrite=overwrite)


def write_script(path: Path, done: ReplayedJob) -> None:
    """Write the replay of the first rank as a program, complete or not at all."""
    write_pieces(path, [done.ranks[0].script.encode()])
