"""The comparisons with HTA hold for its answers, and fail where an answer is another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import hta_correlate
import hta_critical_path
import polars as pl
import pytest
from _report import Checks

import nadi


@pytest.fixture
def golden(shared_traces: Path, tmp_path: Path) -> hta_critical_path.Golden:
    source = shared_traces.parent / "golden" / "hta" / "cuda_event_sync_multi_stream"
    for file in source.glob("cp0_[a-z]*.csv"):
        shutil.copyfile(file, tmp_path / file.name)
    meta = json.loads((source / "meta.json").read_text())
    meta["calls"] = {"cp0": meta["calls"]["cp0"]}
    return hta_critical_path.Golden(tmp_path, meta)


def held(golden: hta_critical_path.Golden, traces: Path) -> tuple[int, int]:
    checks = Checks()
    file = traces / "gpu_hta" / "cuda_event_sync_multi_stream.json.gz"
    hta_critical_path.compare(checks, golden, [file])
    return checks.num_exact, checks.num_checks


def test_answers_are_equal(golden: hta_critical_path.Golden, shared_traces: Path) -> None:
    assert held(golden, shared_traces) == (7, 7)


@pytest.mark.parametrize("what", ["nodes", "path", "summary", "breakdown"])
def test_another_table_is_noticed(
    golden: hta_critical_path.Golden, shared_traces: Path, what: str
) -> None:
    path = golden.folder / f"cp0_{what}.csv"
    path.write_text(path.read_text().replace("1.", "2.", 1))
    assert held(golden, shared_traces) == (6, 7)


def test_other_edges_are_noticed(golden: hta_critical_path.Golden, shared_traces: Path) -> None:
    path = golden.folder / "cp0_edges.csv"
    edges = pl.read_csv(path)
    edges.with_columns(type=pl.col("type").str.replace("LAUNCH", "KERNEL")).write_csv(path)
    assert held(golden, shared_traces) == (6, 7)
    last = pl.col("insert_order").max() - pl.col("insert_order")
    edges.with_columns(insert_order=last).write_csv(path)
    assert held(golden, shared_traces) == (6, 7)


def test_another_length_is_noticed(golden: hta_critical_path.Golden, shared_traces: Path) -> None:
    golden.meta["calls"]["cp0"]["cp_length_us"] += 1
    assert held(golden, shared_traces) == (6, 7)


def test_correlation_holds_and_another_is_noticed(
    shared_traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks()
    hta_correlate.compare_with_hta(checks)
    assert checks.all_hold
    right = nadi.Trace.device_frame
    monkeypatch.setattr(
        nadi.Trace, "device_frame", lambda trace: right(trace).with_columns(op_schema=pl.lit(""))
    )
    checks = Checks()
    hta_correlate.compare_with_hta(checks)
    assert not checks.all_hold
