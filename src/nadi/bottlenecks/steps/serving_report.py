"""Steps of a serving engine by kind, the time between them, and a steady state."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl

from nadi.bottlenecks.steps.run import Run
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window, step_times
from nadi.results.declared import COUNT, NS, WORDS, Column, Lines, Rows, Unit, number
from nadi.results.text import name_cell
from nadi.trace.arrays import Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import THREAD_WORK
from nadi.units import format_count, format_counted, format_ns, format_percent

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
    the longest run of steps of one kind with as many sequences each. A step in which devices did
    work that began before the recording has no rate.
    """
    served = [(step, step.serving) for step in run.steps if step.serving is not None]
    if not served:
        return None
    time, window = run.graph.time, run.window
    begin = window.start(time) if window.after_earlier_work else -1
    table = pl.DataFrame({
        "step": [step.number for step, _ in served],
        "kind": [what.kind for _, what in served],
        "tokens": [what.tokens for _, what in served],
        "sequences": [what.sequences for _, what in served],
        "is_padded": [what.is_padded for _, what in served],
        "ns": step_times(run.graph, run.steps, time),
        "is_recorded": [step.start(time) >= begin for step, _ in served],
    })  # fmt: skip
    kinds = [_of_kind(kind, rows) for kind in _KINDS
             if (rows := table.filter(pl.col("kind") == kind)).height]  # fmt: skip
    steps = table.drop("is_recorded")
    return {"steps": steps.to_dicts(), "kinds": kinds, "between": _between(run.graph, run.steps),
            "steady": _steady(steps)}  # fmt: skip


def _of_kind(kind: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Sum the steps of a kind; -1 for tokens and sequences that are not stated."""
    is_known = bool((rows["tokens"] >= 0).all())
    lasts = int(rows["ns"].sum())
    tokens = int(rows["tokens"].sum()) if is_known else -1
    whole = rows.filter("is_recorded")
    rated, rated_ns = int(whole["tokens"].sum()), int(whole["ns"].sum())
    return {
        "kind": kind, "steps": rows.height, "tokens": tokens,
        "sequences": [int(rows["sequences"].min()), int(rows["sequences"].max())],  # type: ignore[arg-type]
        "ns": lasts, "median_ns": int(rows["ns"].median()),  # type: ignore[arg-type]
        "tokens_per_s": rated * 1e9 / rated_ns if is_known and rated_ns else -1.0,
        "unrecorded_steps": rows.height - whole.height,
        "is_padded": bool(rows["is_padded"].any()),
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


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """Say the steady state, and what runs between steps."""
    found = data.get("serving")
    if not found:
        return
    if any(one["is_padded"] for one in found["kinds"]):
        yield (
            "the engine annotates no steps: tokens and sequences are the sizes of its graphs, "
            "with padding; work without a graph counts to the step before it"
        )
    if unrecorded := sum(one.get("unrecorded_steps", 0) for one in found["kinds"]):
        yield (
            f"tokens/s are without {format_counted(unrecorded, 'step')} of which device work is "
            "not recorded, as it began before the recording"
        )
    if (steady := found["steady"]) is not None:
        yield (
            f"steady: {steady['kind']} of {_known(steady['sequences'])} sequences in steps "
            f"{steady['first']} to {steady['last']}, median {format_ns(steady['median_ns'])}"
        )
    between = found["between"]
    if between["ns"]:
        named = list(between["parts"].items()), [(one["name"], one["ns"]) for one in between["by"]]
        parts, longest = (
            ", ".join(f"{name_cell(name)} {format_ns(time)}" for name, time in one) for one in named
        )
        names = "; most in ".join(filter(None, [parts, longest]))
        share = format_percent(between["ns"], sum(one["ns"] for one in found["kinds"]))
        yield (
            f"between steps: {format_ns(between['ns'])} of the host ({share}), median "
            f"{format_ns(between['median_ns'])}{f': {names}' if names else ''}"
        )


def _known(number: float) -> str:
    return "" if number < 0 else format_count(round(number))


def _sequences(value: list[int]) -> str:
    low, high = map(_known, value)
    return low if low == high else f"{low} to {high}"


def _title(data: dict[str, Any]) -> str:
    """Name the table, and where the rest of the results is about a part of these steps, that."""
    title = "steps of the serving engine by kind"
    lasts = sum(kind["ns"] for kind in data["serving"]["kinds"])
    if lasts <= data["measured_ns"]:
        return title
    rest = f"all else is about {data['window']} ({format_ns(data['measured_ns'])})"
    return f"{title}, from their marks on ({format_ns(lasts)}); {rest}"


_KNOWN = number(_known, "")
SERVING = (
    Rows("serving/kinds", _title, None, (
        Column("kind", "kind", WORDS), Column("steps", "steps", COUNT),
        Column("tokens", "tokens", _KNOWN), Column("sequences", "sequences", Unit(
            lambda value, _: _sequences(value),
            lambda figures, at, _: " to ".join(
                figures.number((*at, end), _known, "") for end in (0, 1)))),
        Column("ns", "time", NS, "of all of them"), Column("median_ns", "median", NS),
        Column("tokens_per_s", "tokens/s", _KNOWN),
    )),
    Lines(_lines),
)  # fmt: skip
"""Steps by kind, of the results of ``nadi run``."""
