"""`nadi generate llm` as a user has it: a summary, and all tables with --stats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main

SMALL = ["generate", "llm", "--model", "gpt3-125m", "--tp", "2", "--pp", "2"]


def test_a_summary_is_short_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "most memory",
        "most communication of a rank per step, by group",
    ]
    assert not list(tmp_path.iterdir())


def test_statistics_are_those_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--stats"]) == 0
    text = capsys.readouterr().out
    for table in ("memory of a rank", "FLOPs of a rank per step", "communication of a rank"):
        assert f"\n{table}" in text
    assert main([*SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["type"] for row in found["communication_per_rank"]} >= {"send", "all_gather"}
    assert [row["stage"] for row in found["memory_per_rank_bytes"]] == [0, 1]


def test_statistics_are_printed_beside_what_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--stats", "-o", str(tmp_path / "job")]) == 0
    assert "memory of a rank" in capsys.readouterr().out
    assert len(list((tmp_path / "job").glob("*.et"))) == 4
