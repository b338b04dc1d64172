"""A folded job: its classes of alike ranks, what repeats, and the job scaled down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.folded.folded_trace import FoldedTrace
from nadi.recordings.folded.row_values import COUNTERS
from nadi.recordings.rank_spread import communicating
from nadi.results.declared import COUNT, LABEL, Column, Lines, Result, Rows, Tiles, decimals
from nadi.results.text import rank_ranges
from nadi.trace.arrays import Ints
from nadi.units import format_bytes, format_count, format_counted

if TYPE_CHECKING:
    from nadi.jobs.folded.fewer_ranks import ScaledDown

_SHOWN = 6  # classes, and repeats of the first class
_FEW = 4  # ranges of ranks


def _described(job: FoldedJob) -> dict[str, Any]:
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
    times, works = fold.all_times, ~communicating(fold.nodes)[fold.turns[0]]
    typical, low, high = (
        int(np.maximum(column[works], 0).sum()) for column in (times.typical, times.low, times.high)
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


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _headline(data: dict[str, Any]) -> str:
    kept = data["kept_nodes"]
    written = f" ({format_bytes(data['file_bytes'])})" if "file_bytes" in data else ""
    return (
        f"{format_counted(data['ranks'], 'rank')}, {format_counted(data['nodes'], 'node')} -> "
        f"{format_counted(len(data['classes']), 'class', 'es')} of ranks, "
        f"{format_counted(kept, 'node')} kept, {_times(data['nodes'] / max(kept, 1))} fewer"
        + written
    )


def _variation(data: dict[str, Any]) -> Iterator[str]:
    if data["times_vary"]:
        yield "alike ranks took different times: answers have a bound (nadi simulate prints it)"
    elif 1 < data["ranks"] == len(data["classes"]):
        yield "no two ranks are alike, so all are kept: exact"
    elif any(one["iterations_vary"] for one in data["classes"]):
        yield "iterations have times of their own; alike ranks took the same times: exact"
    else:
        yield "alike ranks and iterations took the same times: exact"


def _spread(one: dict[str, Any]) -> str:
    """Format by how much the likely sum of the times of a rank differs from typical ones."""
    times = one["times_ns"]
    if not one["ranks_vary"] or not times["typical"]:
        return "same"
    low, high = (100 * (times[name] / times["typical"] - 1) for name in ("low", "high"))
    return f"{low:+.1f} to {high:+.1f} %"


def _longest(data: dict[str, Any]) -> list[int]:
    """Return the repeats of the first class that stand for most nodes, in their order."""
    rows = data["classes"][0]["repeats"]
    sizes = [-row["iterations"] * row["kept_nodes"] for row in rows]
    return sorted(sorted(range(len(rows)), key=sizes.__getitem__)[:_SHOWN])


def _shorter(data: dict[str, Any]) -> Iterator[str]:
    number = len(data["classes"][0]["repeats"])
    if number == 0:
        yield "no repeats"
    elif number > _SHOWN:
        yield f"and {number - _SHOWN} shorter ones; --json prints all"


def _small(data: dict[str, Any]) -> Iterator[str]:
    if small := data.get("scaled_down"):
        step, whole = small["step_ns"], small["whole_step_ns"]
        yield (
            f"step {format_count(step)} ns, of the whole job {format_count(whole)} ns: "
            f"{100 * (step / max(whole, 1) - 1):+.2f} %"
        )


FOLD = Result(
    kind="fold", title="Alike ranks and repeats", order=82,
    facts=_described,
    headline=_headline,
    parts=(
        Tiles((
            Column("ranks", "ranks", COUNT), Column("nodes", "operations", COUNT, "of all ranks"),
            Column("kept_nodes", "kept", COUNT, "operations of a rank of each class"),
        )),
        Lines(_variation),
        Rows("classes", "classes of ranks", None, (
            Column("ranks", "ranks"),
            Column("num_ranks", "number", COUNT),
            Column("nodes", "nodes", COUNT),
            Column("kept_nodes", "kept", COUNT),
            Column("repeats", "repeats", LABEL, shown=lambda one: len(one["repeats"])),
            Column("times_ns", "times of ranks", LABEL, "likely, against typical ones",
                   shown=_spread),
            Column("roles", "roles in groups", shown=lambda one: " ".join(one["roles"]) or "-"),
        ), top=_SHOWN),
        Rows("classes/0/repeats", lambda data: (
            f"repeats of rank {re.split('[-,]', data['classes'][0]['ranks'])[0]}"
        ), None, (
            Column("iterations", "iterations", COUNT),
            Column("kept_nodes", "body", COUNT, "nodes of an iteration"),
            Column("from", "from", shown=lambda row: "  " * row["depth"] + row["from"]),
            Column("to", "to"),
            Column("varies", "varies",
                   shown=lambda row: ", ".join(row["varies"]).replace("_", "-") or "-"),
        ), pick=_longest),
        Lines(_shorter),
        Rows("scaled_down/axes", lambda data: (
            f"scaled down to {data['scaled_down']['ranks']} ranks"
        ), None, (
            Column("axis", "axis"),
            Column("", "ranks", LABEL, shown=lambda one: f"{one['from']} -> {one['to']}"),
            Column("bandwidth_gb_per_s", "bandwidth GB/s", decimals(3)),
            Column("latency_ns", "latency ns", decimals(1)),
            Column("error", "time preserved", LABEL,
                   shown=lambda one: f"{100 * (1 - one['error']):.1f} %"),
        )),
        Lines(_small),
    ),
)  # fmt: skip


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
