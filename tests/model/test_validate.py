"""Every rule of the data model is checked, and every trace made here keeps them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.schema import DEPS
from nadi.trace.validate import RULES

Change = Callable[[nadi.Trace], nadi.Trace]


def nodes(**columns: Any) -> Change:
    return lambda trace: replace(trace, nodes=trace.nodes.with_columns(**columns))


def set_cell(column: str, row: int, value: int) -> Change:
    """Put a value into a column of the nodes."""
    at = pl.int_range(pl.len()) == row
    return nodes(**{column: pl.when(at).then(value).otherwise(column).cast(pl.Int64)})


def deps(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Change:
    return lambda trace: replace(trace, deps=change(trace.deps))


def groups(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Change:
    return lambda trace: replace(trace, groups=change(trace.groups))


def attributes(**columns: Any) -> Change:
    builder = AttributeBuilder()
    for node in (1, 2, 3):
        builder.add(node, "stream", "int64", 7)
    return lambda trace: replace(trace, given_attributes=replace(builder.build(), **columns))


def given(values: str, **texts: str) -> Change:
    """Let node 3 be given operands: the texts of values, and of shapes, types and strides."""
    builder = AttributeBuilder()
    for kind, text in {"values": values, **texts}.items():
        builder.add(3, f"inputs.{kind}", "operand", text)
    return lambda trace: replace(trace, given_attributes=builder.build())


def operands(**columns: Any) -> Change:
    """Change columns of a table of three scalars, which reading alone cannot get wrong."""

    def change(trace: nadi.Trace) -> nadi.Trace:
        changed = given("[1, 2, 3]")(trace)
        changed.__dict__["operands"] = changed.operands.with_columns(**columns)
        return changed

    return change


def cycle(trace: nadi.Trace) -> nadi.Trace:
    """Let three nodes wait for one another."""
    columns = {"src": [5, 6, 7], "dst": [6, 7, 5], "kind": ["data", "ctrl", "data"]}
    return replace(trace, deps=DEPS.build(3, columns))


# the first timed row of the demo's rank 0 is row 4; it is ProfilerStep#1
BROKEN: dict[str, Change] = {
    "nodes.id": set_cell("id", 100, 5),
    "nodes.order": set_cell("start", 100, 1),
    "nodes.duration": set_cell("duration", 100, -5),
    "nodes.exclusive": set_cell("exclusive", 100, 10**15),
    "nodes.parent": set_cell("parent", 100, 100),
    "nodes.group": set_cell("group", 100, 2),
    "nodes.cycle": cycle,
    "deps.rows": deps(lambda d: d.with_columns(dst=d["dst"] + 10**6)),
    "deps.order": deps(lambda d: d.filter(pl.col("kind") == "call").rename(
        {"src": "dst", "dst": "src"}).select("src", "dst", "kind", "inferred")),
    "deps.twice": deps(lambda d: pl.concat([d, d.head(1)])),
    "attrs.node": attributes(node=np.array([1, 2, 10**6], dtype=np.int32)),
    "attrs.order": attributes(node=np.array([3, 2, 1], dtype=np.int32)),
    "tensors.elements": given('[[1,2,0,12,4,"cpu"]]', shapes="[[3,5]]"),
    "tensors.strides": given('[[1,2,0,12,4,"cpu"]]', shapes="[[3,4]]", strides="[[4]]"),
    "operands.node": operands(node=pl.lit(10**6, pl.Int64)),
    "operands.tensor": operands(tensor=pl.lit(0, pl.Int64)),
    "operands.order": operands(position=pl.Series([0, 0, 1])),
    "operands.text": given("[1, 2"),
    "groups.name": groups(lambda g: pl.concat([g, g.head(1)])),
    "groups.ranks": groups(lambda g: g.with_columns(pl.col("ranks").list.reverse())),
}  # fmt: skip


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_rule_is_found_by_its_code(code: str, demo_run: nadi.bottlenecks.Run) -> None:
    found = nadi.trace.validate_trace(BROKEN[code](demo_run.job.traces[0]))
    assert code in found["code"].to_list()
    (detail,) = found.filter(pl.col("code") == code)["detail"]
    assert RULES[code] in detail
    assert "first in row" in detail


def test_broken_matches_are_found(demo_run: nadi.bottlenecks.Run) -> None:
    job = demo_run.job
    twice = replace(job, matches=pl.concat([job.matches, job.matches.head(1)]))
    outside = replace(job, matches=job.matches.with_columns(node=pl.lit(10**6, pl.Int64)))
    assert nadi.trace.validate_job(twice)["code"].to_list() == ["matches.rank"]
    assert nadi.trace.validate_job(outside)["code"].to_list() == ["matches.node"]


def test_broken_clocks_are_found(demo_run: nadi.bottlenecks.Run) -> None:
    job = demo_run.job
    for code, clocks in (
        ("clocks.rank", pl.concat([job.clocks, job.clocks.head(1)])),
        ("clocks.rank", job.clocks.with_columns(reference=pl.lit(7, pl.Int64))),
        ("clocks.shift", job.clocks.with_columns(shift=10**9 * pl.col("rank"))),
    ):
        assert nadi.trace.validate_job(replace(job, clocks=clocks))["code"].to_list() == [code]


def test_every_rule_has_a_test() -> None:
    of_jobs = {"matches.rank", "matches.node", "clocks.rank", "clocks.shift"}
    assert set(BROKEN) | of_jobs == set(RULES)


def test_what_nadi_reads_and_links_is_valid(
    demo_run: nadi.bottlenecks.Run, demo_folder: Path
) -> None:
    for path in sorted(demo_folder.glob("*.json.gz")):
        assert nadi.trace.validate_trace(nadi.read(path)).is_empty()
    for trace in demo_run.job.traces:
        assert nadi.trace.validate_trace(trace).is_empty()
    assert nadi.trace.validate_job(demo_run.job).is_empty()


def test_every_recording_at_hand_is_valid(shared_traces: Path) -> None:
    for path in sorted(shared_traces.glob("*/*.json.gz")):
        if path.parent.name != "cpu_transformer_big":
            found = nadi.trace.validate_trace(nadi.read(path))
            assert found.is_empty(), f"{path}: {found.rows()}"
