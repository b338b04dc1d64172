"""A replay: time of its steps, what was left out, and operators beside their originals."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from nadi.files.files import check_target, check_writable, write_pieces
from nadi.pytorch.rerunning.operator_trials import Skipped
from nadi.pytorch.rerunning.replay import ReplayedJob
from nadi.results.text import make_table, name_cell, print_table
from nadi.units import format_change, format_count, format_ns, format_percent, printable

__all__ = ["check_script", "describe_replay", "print_replay", "write_script"]

_SHOWN = 12  # rows of a table


def describe_replay(done: ReplayedJob) -> dict[str, Any]:
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


def print_replay(done: ReplayedJob, console: Console) -> None:
    """Print the step time, what was left out, and the slowest operators."""
    steps = sum(len(rank.times.steps[0]) for rank in done.ranks[:1])
    repeats = len(done.ranks[0].times.steps)
    calls = sum(len(rank.calls) for rank in done.ranks)
    what = f"{format_count(calls)} calls of operators"
    if len(done.ranks) > 1:
        what += f", {len(done.ranks)} ranks"
    console.print(f"{what}, {steps} {'step' if steps == 1 else 'steps'}", markup=False)
    console.print(
        f"step time  {format_ns(round(done.step_ns))} without a recorder "
        f"(median of {repeats * steps}{_of_slowest(done)})",
        markup=False,
    )
    if done.comparisons and done.comparisons[0].original_steps:
        before = max(statistics.median(one.original_steps) for one in done.comparisons)
        after = max(statistics.median(one.replayed_steps) for one in done.comparisons)
        console.print(
            f"recorded   {format_ns(round(after))}, original {format_ns(round(before))} "
            f"({format_change(after, before)})",
            markup=False,
        )
    _print_left_out("not replayed", done.skipped, console)
    _print_left_out("replayed by the operators inside", done.replaced, console)
    if done.comparisons:
        _print_comparison(done, console)


def _of_slowest(done: ReplayedJob) -> str:
    return ", slowest rank" if len(done.ranks) > 1 else ""


def _print_left_out(title: str, found: Counter[Skipped], console: Console) -> None:
    if not found:
        return
    table = make_table(title, operator="left", calls="right", reason="left")
    for one, count in found.most_common(_SHOWN):
        table.add_row(name_cell(one.name), format_count(count), printable(one.reason, 100))
    print_table(table, console)
    rest = len(found) - _SHOWN
    if rest > 0:
        console.print(f"and {rest} more (--json prints all)", markup=False)


def _print_comparison(done: ReplayedJob, console: Console) -> None:
    different = sum(one.num_different for one in done.comparisons)
    calls = sum(len(rank.calls) for rank in done.ranks)
    console.print(
        f"{format_count(calls - different)} of {format_count(calls)} calls are recorded again "
        "with the same name and shapes",
        markup=False,
    )
    together = (
        pl.concat([one.operators for one in done.comparisons])
        .group_by("name")
        .agg(pl.col("count", "original", "replayed").sum())
        .sort("original", "name", descending=[True, False])
    )
    table = make_table(
        "operators, original and replay", operator="left", calls="right", original="right",
        replay="right", ratio="right",
    )  # fmt: skip
    for name, count, original, replayed in together.head(_SHOWN).iter_rows():
        ratio = format_percent(replayed, original) if original > 0 else ""
        table.add_row(
            name_cell(name), format_count(count), format_ns(original), format_ns(replayed), ratio
        )
    print_table(table, console)


def check_script(path: Path, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a program can be written, before anything is replayed.

    Raises
    ------
    InputError
        If it cannot be written, or exists already and ``overwrite`` is not given.
    """
    check_target(path, sources, overwrite=overwrite)
    check_writable(path)


def write_script(path: Path, done: ReplayedJob) -> None:
    """Write the replay of the first rank as a program, complete or not at all."""
    write_pieces(path, [done.ranks[0].script.encode()])
