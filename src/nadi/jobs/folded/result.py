"""What a folded job consists of, as data and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.folded.folded_trace import FoldedTrace
from nadi.recordings.folded.row_values import COUNTERS
from nadi.results.text import make_table, print_table, rank_ranges
from nadi.trace.arrays import Ints
from nadi.units import format_bytes, format_count, format_counted

if TYPE_CHECKING:
    from nadi.jobs.folded.fewer_ranks import ScaledDown

__all__ = ["describe_fold", "describe_scaled", "print_fold", "print_scaled"]

_SHOWN = 6  # classes, and repeats of the first class
_FEW = 4  # ranges of ranks


def describe_fold(job: FoldedJob) -> dict[str, Any]:
    """Describe classes of ranks, repeats, what varies, and the size before and after."""
    return {
        "ranks": int(job.of.size),
        "nodes": job.num_nodes,
        "kept_nodes": sum(fold.nodes.height for fold in job.folds),
        "dependencies": sum(trace.deps.height for trace in job.traces),
        "times_vary": job.times_vary,
        "classes": [
            _class(fold, np.flatnonzero(job.of == number), job)
            for number, fold in enumerate(job.folds)
        ],
    }


def _class(fold: FoldedTrace, ranks: Ints, job: FoldedJob) -> dict[str, Any]:
    times = fold.all_times
    typical, low, high = (
        int(np.maximum(column, 0).sum()) for column in (times.typical, times.low, times.high)
    )
    return {
        "ranks": _ranges(ranks),
        "num_ranks": int(ranks.size),
        "roles": fold.groups["name"].to_list() if job.rank_groups else [],
        "nodes": fold.num_nodes,
        "kept_nodes": fold.nodes.height,
        "times_ns": {"typical": typical, "low": low, "high": high},
        "ranks_vary": fold.ranks_vary,
        "iterations_vary": fold.turns_vary,
        "repeats": _repeats(fold),
    }


def _ranges(ranks: Ints) -> str:
    """Format ranks as ranges, of many the first and the last."""
    texts = rank_ranges(ranks.tolist()).split(", ")
    return ", ".join(texts if len(texts) <= _FEW else [*texts[:2], "...", texts[-1]])


def _repeats(fold: FoldedTrace) -> list[dict[str, Any]]:
    """Describe each repeat: where it is, its body, its iterations, and what grows in it."""
    names = fold.nodes["name"].cast(pl.String)
    first = fold.layout.first
    found = []
    for row in fold.loops.sort("first", "depth").iter_rows(named=True):
        begin, end = row["first"], row["first"] + row["size"]
        steps = fold.steps.filter(
            (pl.col("depth") == row["depth"])
            & pl.col("value").is_between(int(first[begin]), int(first[end]) - 1)
        )
        place = steps["value"].to_numpy()
        owner = np.searchsorted(first, place, side="right") - 1
        column = place - first[owner]
        counters = [COUNTERS[k] for k in np.unique(column[column < len(COUNTERS)]).tolist()]
        labels = [name for name in counters if name not in ("id", "parent", "event")]
        found.append({
            "depth": row["depth"], "iterations": row["count"], "kept_nodes": row["size"],
            "from": names[begin], "to": names[end - 1], "varies": labels,
        })  # fmt: skip
    return found


def print_fold(described: dict[str, Any], console: Console) -> None:
    """Print the size before and after, the classes of ranks, and the repeats of the first."""
    ranks, nodes = described["ranks"], described["nodes"]
    kept, classes = described["kept_nodes"], described["classes"]
    console.print(Text(
        f"{format_counted(ranks, 'rank')}, {format_counted(nodes, 'node')} -> "
        f"{format_counted(len(classes), 'class', 'es')} of ranks, "
        f"{format_counted(kept, 'node')} kept, {_times(nodes / max(kept, 1))} fewer"
        + (f" ({format_bytes(described['file_bytes'])})" if "file_bytes" in described else "")
    ))  # fmt: skip
    console.print(_variation(described))
    page = make_table("classes of ranks", **{
        "ranks": "left", "number": "right", "nodes": "right", "kept": "right", "repeats": "right",
        "times of ranks": "right", "roles in groups": "left",
    })  # fmt: skip
    for one in classes[:_SHOWN]:
        page.add_row(
            one["ranks"], format_count(one["num_ranks"]), format_count(one["nodes"]),
            format_count(one["kept_nodes"]), str(len(one["repeats"])), _spread(one),
            " ".join(one["roles"]) or "-",
        )  # fmt: skip
    print_table(page, console)
    if len(classes) > _SHOWN:
        console.print(f"and {len(classes) - _SHOWN} more classes; --json prints all")
    _print_repeats(classes[0], console)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _variation(described: dict[str, Any]) -> str:
    if described["times_vary"]:
        return "alike ranks took different times: answers have a bound (nadi simulate prints it)"
    if 1 < described["ranks"] == len(described["classes"]):
        return "no two ranks are alike, so all are kept: exact"
    if any(one["iterations_vary"] for one in described["classes"]):
        return "iterations have times of their own; alike ranks took the same times: exact"
    return "alike ranks and iterations took the same times: exact"


def _spread(one: dict[str, Any]) -> str:
    """Format by how much the sum of the least and largest times differs from typical ones."""
    times = one["times_ns"]
    if not one["ranks_vary"] or not times["typical"]:
        return "same"
    low, high = (100 * (times[name] / times["typical"] - 1) for name in ("low", "high"))
    return f"{low:+.1f} to {high:+.1f} %"


def _print_repeats(one: dict[str, Any], console: Console) -> None:
    if not one["repeats"]:
        console.print("no repeats")
        return
    page = make_table(f"repeats of rank {one['ranks'].partition('-')[0].partition(',')[0]}", **{
        "iterations": "right", "body": "right", "from": "left", "to": "left", "varies": "left",
    })  # fmt: skip
    by_size = sorted(one["repeats"], key=lambda row: -row["iterations"] * row["kept_nodes"])
    largest = by_size[:_SHOWN]
    for row in [row for row in one["repeats"] if row in largest]:
        inside = "  " * row["depth"]
        page.add_row(
            str(row["iterations"]), format_count(row["kept_nodes"]), inside + row["from"],
            row["to"], ", ".join(name.replace("_", "-") for name in row["varies"]) or "-",
        )  # fmt: skip
    print_table(page, console)
    if len(one["repeats"]) > _SHOWN:
        console.print(f"and {len(one['repeats']) - _SHOWN} shorter ones; --json prints all")


def describe_scaled(small: ScaledDown) -> dict[str, Any]:
    """Describe a job scaled down: which ranks stand for which, its links, and its step."""
    return {
        "ranks": len(small.ranks),
        "original_ranks": small.ranks,
        "axes": [
            {"axis": one.axis, "from": one.before, "to": one.after,
             "bandwidth_gb_per_s": one.bandwidth, "latency_ns": one.latency,
             "error": one.error}
            for one in small.links
        ],
        "step_ns": small.step_ns,
        "whole_step_ns": small.whole_step_ns,
    }  # fmt: skip


def print_scaled(scaled: dict[str, Any], console: Console) -> None:
    """Print the links of a job scaled down, and its step beside that of the whole job."""
    page = make_table(f"scaled down to {scaled['ranks']} ranks", **{
        "axis": "left", "ranks": "right", "bandwidth GB/s": "right", "latency ns": "right",
        "time preserved": "right",
    })  # fmt: skip
    for one in scaled["axes"]:
        page.add_row(
            one["axis"], f"{one['from']} -> {one['to']}", f"{one['bandwidth_gb_per_s']:.3f}",
            f"{one['latency_ns']:.1f}", f"{100 * (1 - one['error']):.1f} %",
        )  # fmt: skip
    print_table(page, console)
    step, whole = scaled["step_ns"], scaled["whole_step_ns"]
    console.print(
        f"step {format_count(step)} ns, of the whole job {format_count(whole)} ns: "
        f"{100 * (step / max(whole, 1) - 1):+.2f} %"
    )
