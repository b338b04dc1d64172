"""`nadi info` and `nadi info --check`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main
from tests.conftest import PairWriter


def test_info_of_a_folder_shows_every_file(
    demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(demo_folder)]) == 0
    out = capsys.readouterr().out
    for name in ("host_0.json.gz", "device_3.json.gz", "rank 3 of 4", "gloo:all_reduce",
                 "default_pg", "PyTorch ET 1.1.1-chakra.0.0.4", "Kineto"):  # fmt: skip
        assert name in out.replace("\n", "")


def test_info_adds_up(demo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = demo_folder / "device_0.json.gz"
    assert main(["info", str(path), "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    trace = nadi.read(path)
    assert data["nodes"] == trace.nodes.height == sum(k["count"] for k in data["by_category"])
    assert sum(k["total_ns"] for k in data["by_thread"]) == trace.nodes["duration"].sum()
    most = trace.nodes.filter(pl.col("name").cast(str) == data["by_operation"][0]["name"])
    assert data["by_operation"][0]["count"] == most.height
    assert data["rank"] == 0
    assert [group["ranks"] for group in data["groups"]] == [[0, 1, 2, 3], [0, 1]]
    assert {c["comm_type"] for c in data["by_communication"]} >= {"all_reduce", "send", "barrier"}


def test_a_device_trace_alone_will_do(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(demo_folder / "device_1.json.gz", tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    assert main(["info", str(tmp_path)]) == 0
    assert "skipped: " in capsys.readouterr().out
    assert main(["info", "--check", str(tmp_path)]) == 0
    assert "device_1.json.gz: valid" in capsys.readouterr().out.replace("\n", "")


def test_files_that_are_written_beside_traces_are_named(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("7f3a91c04d5e2b68f1a07c93d2e845b6\n")
    shared = str(tmp_path / "shared")
    assert main(["obfuscate", str(demo_folder), "-o", shared, "--key", str(key)]) == 0
    assert main(["info", shared]) == 0
    out = capsys.readouterr().out.replace("\n", "")
    assert "obfuscation.json: the report of the obfuscated job, level names" in out
    assert "skipped" not in out


def test_host_operations_are_of_the_kinds_that_the_device_trace_gives_them(
    demo_folder: Path,
) -> None:
    host = nadi.read(demo_folder / "host_0.json.gz").nodes["category"].value_counts()
    device = nadi.read(demo_folder / "device_0.json.gz").nodes["category"].value_counts()
    counts = {name: dict(c.iter_rows()) for name, c in (("host", host), ("device", device))}
    assert counts["host"]["annotation"] == counts["device"]["annotation"] == 30
    assert counts["host"]["operator"] == counts["device"]["operator"] == 5012


def test_validate_checks_files_and_the_job_that_they_make(
    demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--check", str(demo_folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 + 4 + 1
    assert all(line.endswith(": valid") for line in lines)


def test_a_broken_rule_is_named_and_the_exit_code_is_1(
    pair: PairWriter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.op("op", 0, 10)
    _, device = pair.write()
    read = nadi.read(device)
    broken = read.nodes.with_columns(parent=pl.lit(7, pl.Int64))
    monkeypatch.setattr("nadi.files.trace_files.read", lambda _: nadi.Trace(
        broken, read.deps, read.groups, read.issues, read.provenance))  # fmt: skip
    assert main(["info", "--check", str(device)]) == 1
    assert "nodes.parent: 1 rows of nodes break the rule: a parent is" in capsys.readouterr().out
