"""Which operations of two files are the same: by ids, by the order of names, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.recordings.matching.matching import Match, match_operations
from tests.conftest import PairWriter


def without_ids(trace: nadi.Trace) -> nadi.Trace:
    nodes = trace.nodes.with_columns(rf_id=pl.lit(-1, pl.Int64), external_id=pl.lit(-1, pl.Int64))
    return replace(trace, nodes=nodes)


def shifted(trace: nadi.Trace, column: str, by: int) -> nadi.Trace:
    return replace(trace, nodes=trace.nodes.with_columns(pl.col(column) + by))


@pytest.fixture(scope="module")
def demo(demo_folder: Path) -> tuple[nadi.Trace, nadi.Trace]:
    return (
        nadi.read(demo_folder / "host_0.json.gz"),
        nadi.read(demo_folder / "device_0.json.gz"),
    )


def by_names(host: nadi.Trace, device: nadi.Trace) -> Match:
    match = match_operations(host, without_ids(device))
    assert match.key == "order of names on each thread"
    return match


def test_the_order_of_names_finds_what_ids_find(demo: tuple[nadi.Trace, nadi.Trace]) -> None:
    host, device = demo
    by_id = match_operations(host, device)
    assert by_id.key == "record function id"
    assert by_id.rate == 1.0
    found = by_names(host, device)
    paired = found.host_row >= 0
    assert found.rate > 0.99
    assert (found.host_row[paired] == by_id.host_row[paired]).all()


@pytest.mark.parametrize("name", ["cpu_transformer4", "gpu_resnet_pair"])
def test_the_order_of_names_finds_every_operation(name: str, shared_traces: Path) -> None:
    host = nadi.read(shared_traces / name / "host.json.gz")
    device = nadi.read(shared_traces / name / "device.json.gz")
    assert (by_names(host, device).host_row == match_operations(host, device).host_row).all()


def test_gaps_in_either_file(demo: tuple[nadi.Trace, nadi.Trace]) -> None:
    host, device = demo
    random = np.random.default_rng(0)
    expected = match_operations(host, device).host_row
    seen = random.random(device.nodes.height) > 0.01
    fewer = replace(device, nodes=device.nodes.filter(pl.Series(seen)))
    found = by_names(host, fewer)
    assert found.is_enough
    agreeing = found.host_row == expected[seen]
    assert agreeing.mean() > 0.99


def test_the_id_with_the_better_rate_is_taken(demo: tuple[nadi.Trace, nadi.Trace]) -> None:
    host, device = demo
    right = device.nodes.with_columns(external_id="rf_id")
    wrong = right.with_columns(rf_id=pl.when(pl.col("rf_id") > 40).then("rf_id").otherwise(-1))
    match = match_operations(host, replace(device, nodes=wrong.with_columns(pl.col("rf_id") + 1)))
    assert match.key == "External id"
    assert match.rate == 1.0


def test_external_ids_that_mean_something_else(demo: tuple[nadi.Trace, nadi.Trace]) -> None:
    host, device = demo
    nodes = device.nodes.with_columns(rf_id=pl.lit(-1, pl.Int64), external_id=pl.col("rf_id") + 1)
    match = match_operations(host, replace(device, nodes=nodes))
    assert match.key == "order of names on each thread"


def test_record_function_ids_that_contradict_the_names_are_refused_unless_forced(
    demo: tuple[nadi.Trace, nadi.Trace],
) -> None:
    host, device = demo
    other_run = shifted(device, "rf_id", 1)
    with pytest.raises(
        nadi.errors.PairError, match=r"by order of names .* the files are of two runs; .*force=True"
    ):
        match_operations(host, other_run)
    forced = match_operations(host, other_run, force=True)
    assert forced.key == "order of names on each thread"
    assert forced.rate > 0.99


def test_a_short_program_is_not_found_scattered_in_a_long_one(pair: PairWriter) -> None:
    random = np.random.default_rng(0)
    for number, name in enumerate(random.choice(["aten::mm", "aten::add", "aten::relu"], 300)):
        pair.op(name, 10 * number, 5)
    host, device = (nadi.read(path) for path in pair.write())
    few = np.arange(device.nodes.height) % 7 == 0
    scattered = replace(without_ids(device), nodes=without_ids(device).nodes.filter(pl.Series(few)))
    with pytest.raises(nadi.errors.PairError, match="at least 95%"):
        match_operations(host, scattered)


def test_operations_that_begin_at_once_are_told_apart_by_their_ids(pair: PairWriter) -> None:
    # a clock too coarse: both begin and end at one time, and the file has the inner one first
    outer, inner = pair.op("outer", 0, 0), pair.op("inner", 0, 0)
    host, device = pair.write()
    assert (outer, inner) == (2, 3)
    read = nadi.read(device)
    nodes = read.nodes.reverse().with_columns(
        external_id=pl.col("rf_id") + 7, rf_id=pl.lit(-1, pl.Int64)
    )
    match = match_operations(nadi.read(host), replace(read, nodes=nodes))
    assert match.host_row.tolist() == [2, 1]


def test_an_id_of_zero_is_none(pair: PairWriter) -> None:
    """Operations without an id are not expected to be found by one."""
    for number in range(10):
        pair.op(f"op{number}", 10 * number, 5)
    host, device = (nadi.read(path) for path in pair.write())
    with_id = (pl.col("rf_id") > 0) & (pl.col("name").cast(str) < "op5")
    fewer = host.nodes.with_columns(rf_id=pl.when(with_id).then("rf_id").otherwise(0))
    match = match_operations(replace(host, nodes=fewer), device)
    assert match.key == "record function id"
    assert (match.num_equal, match.num_expected) == (5, 5)


def test_threads_are_found_by_what_runs_on_them(pair: PairWriter) -> None:
    structure = "[pytorch|profiler|execution_trace|thread]"
    pair.nodes += [{"id": number, "name": structure, "ctrl_deps": 1} for number in (2, 3)]
    # the threads of the device file have other numbers, in another order
    for time in range(0, 100, 10):
        pair.op("forward", time, 5, parent=2, tid=99)
        pair.op("backward", time, 5, parent=3, tid=5)
    host, device = (nadi.read(path) for path in pair.write())
    assert (by_names(host, device).host_row == match_operations(host, device).host_row).all()


def test_the_match_is_an_issue_of_the_linked_trace(demo: tuple[nadi.Trace, nadi.Trace]) -> None:
    host, device = demo
    issues = {row["code"]: row for row in nadi.link_pair(host, device).issues.to_dicts()}
    assert issues["link.matched"]["severity"] == "info"
    assert issues["link.matched"]["count"] == match_operations(host, device).num_equal
    assert issues["link.matched"]["detail"].endswith("by record function id: all operations")
    assert "link.forced" not in issues


def test_a_forced_match_is_a_warning(pair: PairWriter) -> None:
    for number in range(10):
        pair.op(f"op{number}", 10 * number, 5)
    host, device = (nadi.read(path) for path in pair.write())
    names = pl.Series(["op0", *["other"] * 9], dtype=device.nodes.schema["name"])
    other = replace(device, nodes=device.nodes.with_columns(name=names))
    with pytest.raises(nadi.errors.PairError, match=r"only 1 of 10 operations \(10.0 %\)"):
        nadi.link_pair(host, other)
    trace = nadi.link_pair(host, other, force=True)
    issues = {row["code"]: row for row in trace.issues.to_dicts()}
    assert issues["link.forced"]["severity"] == "warning"
    assert "only 1 of 10 operations (10.0 %)" in issues["link.forced"]["detail"]
    assert trace.nodes.height == 1 + 9 + 10


@pytest.mark.parametrize("force", [False, True])
def test_files_without_operations(force: bool, pair: PairWriter) -> None:
    host, device = (nadi.read(path) for path in pair.write())
    if force:
        assert nadi.link_pair(host, device, force=True).nodes.height == 1
    else:
        with pytest.raises(nadi.errors.PairError, match="nothing can be matched"):
            nadi.link_pair(host, device)
