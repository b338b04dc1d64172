"""Steps of a serving engine by kind, the time between them, and a steady state."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from nadi.bottlenecks.steps.run import Run
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window, step_times
from nadi.results.text import make_table, name_cell, print_table
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Ints
from nadi.trace.schema import THREAD_WORK
from nadi.units import format_count, format_ns, format_percent

__all__ = ["describe_serving", "print_serving"]

_TOP = 5  # names of work between steps
_STEADY = 3  # steps at least
# what engines do between steps, by names of functions, modules and operators of vLLM and SGLang
_PARTS = {
    "scheduling": r"(?i)schedul(?:e|er)\b|get_next_batch",
    "sampling": r"(?i)sampl|aten::(?:argmax|multinomial|topk|sort)$",
    "detokenising": r"(?i)detokeni|output_processor|tokenizer.*decode",
}
_KINDS = ("prefill", "mixed", "decode", "idle", "step")


def describe_serving(run: Run) -> dict[str, Any] | None:
    """Compute the JSON output, times in int ns; None if no serving engine marked steps.

    A step lasts from its mark to the next one, the last until its work ends. The steady state is
    the longest run of steps of one kind with as many sequences each.
    """
    served = [(step, step.serving) for step in run.steps if step.serving is not None]
    if not served:
        return None
    table = pl.DataFrame({
        "step": [step.number for step, _ in served],
        "kind": [what.kind for _, what in served],
        "tokens": [what.tokens for _, what in served],
        "sequences": [what.sequences for _, what in served],
        "ns": step_times(run.graph, run.steps, run.graph.time),
    })  # fmt: skip
    kinds = [_of_kind(kind, rows) for kind in _KINDS
             if (rows := table.filter(pl.col("kind") == kind)).height]  # fmt: skip
    return {"steps": table.to_dicts(), "kinds": kinds, "between": _between(run.graph, run.steps),
            "steady": _steady(table)}  # fmt: skip


def _of_kind(kind: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Sum the steps of a kind; -1 for tokens and sequences that are not stated."""
    is_known = bool((rows["tokens"] >= 0).all())
    lasts = int(rows["ns"].sum())
    tokens = int(rows["tokens"].sum()) if is_known else -1
    return {
        "kind": kind, "steps": rows.height, "tokens": tokens,
        "sequences": [int(rows["sequences"].min()), int(rows["sequences"].max())],  # type: ignore[arg-type]
        "ns": lasts, "median_ns": int(rows["ns"].median()),  # type: ignore[arg-type]
        "tokens_per_s": tokens * 1e9 / lasts if is_known and lasts else -1.0,
    }  # fmt: skip


def _steady(table: pl.DataFrame) -> dict[str, Any] | None:
    """Return the longest run of equal steps; None if no three follow each other."""
    runs = [
        (key, [row["step"] for row in rows], [row["ns"] for row in rows])
        for key, rows in (
            (key, list(rows))
            for key, rows in groupby(table.to_dicts(), lambda row: (row["kind"], row["sequences"]))
        )
        if key[0] in ("decode", "mixed", "prefill")
    ]
    (kind, sequences), steps, lasts = max(
        runs, key=lambda one: len(one[1]), default=(("", -1), [], [])
    )
    if len(steps) < _STEADY:
        return None
    return {"kind": kind, "sequences": sequences, "first": steps[0], "last": steps[-1],
            "median_ns": int(np.median(lasts))}  # fmt: skip


def _between(graph: EventGraph, steps: list[Window]) -> dict[str, Any]:
    """Return the time of the first rank's host between marks, by the outermost work in it.

    ``parts`` are the times of those operations in it whose names tell what they do.
    """
    marks = np.array([step.first[0] // 2 for step in steps])
    start, end = graph.time[2 * marks[1:]], graph.time[2 * marks[:-1] + 1]
    gaps = np.maximum(start - end, 0)
    thread = graph.numbers("thread")
    mine = graph.gather("category").is_in(THREAD_WORK).to_numpy()
    mine &= (graph.op_trace == graph.op_trace[marks[0]]) & (thread == thread[marks[0]])
    mine &= (graph.gather("category") != "annotation").to_numpy()
    ops = np.flatnonzero(mine)
    begins, ends = graph.time[2 * ops], graph.time[2 * ops + 1]
    gap = np.searchsorted(end, begins, side="right") - 1
    inside = ops[(gap >= 0) & (ends <= np.append(start, -1)[gap])]
    by = _outermost(graph, inside).head(_TOP).to_dicts()
    names = graph.names(inside)
    parts = {word: _outermost(graph, inside[names.str.contains(pattern).to_numpy()])["ns"].sum()
             for word, pattern in _PARTS.items()}  # fmt: skip
    return {"ns": int(gaps.sum()), "median_ns": int(np.median(gaps)) if gaps.size else 0,
            "parts": {word: time for word, time in parts.items() if time}, "by": by}  # fmt: skip


def _outermost(graph: EventGraph, ops: Ints) -> pl.DataFrame:
    """Return names and times of those operations that are in no other one, the longest first."""
    chosen = np.zeros(graph.num_ops, dtype=np.bool_)
    chosen[ops] = True
    kept = ops[nearest(graph.op_parent[ops], graph.op_parent, chosen) < 0]
    lasts = graph.time[2 * kept + 1] - graph.time[2 * kept]
    table = pl.DataFrame({"name": graph.names(kept).cast(pl.String), "ns": lasts})
    return table.group_by("name").sum().sort("ns", "name", descending=[True, False])


def print_serving(data: dict[str, Any], console: Console) -> None:
    """Print the steps by kind, the steady state, and what runs between steps."""
    table = make_table("steps of the serving engine by kind", kind="left", steps="right",
                       tokens="right", sequences="right", time="right", median="right",
                       **{"tokens/s": "right"})  # fmt: skip
    for one in data["kinds"]:
        low, high = one["sequences"]
        table.add_row(
            one["kind"], format_count(one["steps"]), _known(one["tokens"]),
            _known(low) if low == high else f"{_known(low)} to {format_count(high)}",
            format_ns(one["ns"]), format_ns(one["median_ns"]), _known(round(one["tokens_per_s"])),
        )  # fmt: skip
    print_table(table, console)
    if (steady := data["steady"]) is not None:
        console.print(
            f"steady: {steady['kind']} of {_known(steady['sequences'])} sequences in steps "
            f"{steady['first']} to {steady['last']}, median {format_ns(steady['median_ns'])}"
        )
    between = data["between"]
    if between["ns"]:
        whole = sum(one["ns"] for one in data["kinds"])
        named = list(between["parts"].items()), [(one["name"], one["ns"]) for one in between["by"]]
        parts, longest = (
            ", ".join(f"{name_cell(name)} {format_ns(time)}" for name, time in one) for one in named
        )
        names = "; most in ".join(filter(None, [parts, longest]))
        console.print(
            f"between steps: {format_ns(between['ns'])} of the host "
            f"({format_percent(between['ns'], whole)}), median {format_ns(between['median_ns'])}"
            + (f": {names}" if names else ""), markup=False,
        )  # fmt: skip


def _known(number: int) -> str:
    return "" if number < 0 else format_count(number)
