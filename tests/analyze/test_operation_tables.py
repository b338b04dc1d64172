"""Slowdown by stragglers of tables of operations, against jobs simulated rank by rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.analyses import OperationTable, operation_table, slowdowns
from nadi.analyses.recorded.slowdowns import table_of_job

MICRO_BATCHES, STAGES = 3, 2


def rows_of(seed: int, steps: int = 2, dps: int = 3) -> pl.DataFrame:
    """Make a table of a pipeline of two stages with drawn times."""
    rng = np.random.default_rng(seed)
    found = []
    for step in range(steps):
        for dp in range(dps):
            for stage in range(STAGES):
                at = 0.0
                for kind, number in program(stage):
                    took = float(rng.uniform(0.01, 0.2))
                    found.append((dp, stage, dp, step, kind, at, took, number, 0))
                    at += took
    columns = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
    return pl.DataFrame(found, schema=columns, orient="row")


def program(stage: int) -> list[tuple[str, int]]:
    """Return what a stage does in order."""
    found = [("params-all-gather", 0)]
    for number in range(MICRO_BATCHES):
        for way, receives in (("forward", stage > 0), ("backward", stage < STAGES - 1)):
            sends = not receives
            found += [(f"{way}-recv", number)] * receives + [(f"{way}-compute", number)]
            found += [(f"{way}-send", number)] * sends
    tail = ("gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
            "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer")  # fmt: skip
    return found + [(name, 0) for name in tail]


def plain_step(table: OperationTable, times: list[np.ndarray], step: int) -> float:
    """Simulate one step of all ranks, operation by operation."""
    dps = range(len(table.dp_ranks))
    end: dict[tuple[int, int], float] = {}

    def time(op: int, dp: int) -> float:
        one = np.broadcast_to(times[op], (len(table.steps), len(table.dp_ranks)))
        return float(one[step, dp])

    for node in table.nodes:
        begun = {
            (op, dp): max((end[one, dp] for one in table.before[op]), default=0.0)
            for op in node.members for dp in dps
        }  # fmt: skip
        for op, dp in begun:
            others = [at for (_, of), at in begun.items() if node.meets or of == dp]
            end[op, dp] = max(others) + time(op, dp)
    return max(end.values())


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1))
def test_steps_are_those_of_every_rank(seed: int) -> None:
    table = operation_table(rows_of(seed))
    for times in (table.recorded, table.ideal):
        expected = [plain_step(table, times, step) for step in range(2)]
        found = np.broadcast_to(table.step_times(times)[:, 0], 2)
        assert found == pytest.approx(expected)
    # one rank stands for all others where only one takes its recorded times
    rows = slowdowns(table).filter(group="dp rank")
    ideal = plain_step(table, table.ideal, 0)
    for name, slowdown in rows.select("name", "slowdown").iter_rows():
        mine = np.arange(3) == int(name)
        pairs = zip(table.recorded, table.ideal, strict=True)
        times = [np.where(mine, one, other) for one, other in pairs]
        alone = np.mean([plain_step(table, times, step) for step in range(2)])
        assert slowdown == pytest.approx(alone / ideal)


def test_a_slow_rank_is_named(tmp_path: Path) -> None:
    rows = rows_of(1, steps=3).with_columns(
        duration=pl.when(pl.col("optype").str.ends_with("compute"))
        .then(pl.when((pl.col("dp_rank") == 2) & (pl.col("stage") == 1)).then(0.4).otherwise(0.1))
        .otherwise(0.001)
    )
    file = tmp_path / "table.csv"
    rows.write_csv(file)
    found = nadi.analyses.analyze("slowdown", file)
    (job, slowest) = (found.row(by_predicate=pl.col("group") == one, named=True)
                      for one in ("job", "slowest ranks"))  # fmt: skip
    assert slowest["name"] == "2/1"
    assert slowest["gain_percent"] > 90
    assert job["low"] <= job["slowdown"] <= job["high"]
    rows.write_parquet(tmp_path / "table.parquet")
    timeline = nadi.analyses.analyze("ideal-timeline", tmp_path / "table.parquet")
    assert timeline.height == sum(len(program(stage)) for stage in range(STAGES))
    assert timeline["duration_ns"].min() >= 0


def test_steps_of_a_recording_are_as_long_as_recorded(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    table = table_of_job(job)
    graph = nadi.build_graph(job)
    steps = {one.number: one for one in nadi.graph.find_steps(graph)}
    lengths = [steps[number].length(graph.time) for number in table.steps]
    assert table.step_times(table.recorded)[:, 0] * 1e9 == pytest.approx(lengths, rel=0.02)
    found = slowdowns(job)
    assert found["group"].unique(maintain_order=True).to_list() == [
        "job", "operation", "slowest ranks", "dp rank", "step",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows.drop("mc"), "no column mc"),
        (lambda rows: rows[1:], "has these once in each"),
        (lambda rows: pl.concat([rows, rows[:1]]), "has these once in each"),
        (lambda rows: rows.with_columns(pl.lit("x").alias("step")), "conversion from"),
        (lambda rows: rows[:0], "no rows"),
        (lambda rows: rows.with_columns(duration=0.0, start_ts=0.0), "no time"),
    ],
)
def test_what_is_no_table_is_refused(change: object, told: str) -> None:
    with pytest.raises(nadi.errors.InputError, match=told):
        slowdowns(operation_table(change(rows_of(0))))  # type: ignore[operator]


def test_other_analyses_take_no_tables(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    rows_of(0).write_csv(file)
    with pytest.raises(nadi.errors.UsageError, match="slowdown"):
        nadi.analyses.analyze("stragglers", file)
    file.write_text('a,"b\n1')
    with pytest.raises(nadi.errors.InputError):
        nadi.analyses.analyze("slowdown", file)
