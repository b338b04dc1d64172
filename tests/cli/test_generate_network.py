"""``nadi generate network``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main

SMALL = """
[inputs]
dense = [13]

[[layers]]
name = "tables"
kind = "embedding_bag"
rows = [40, 30, 5]
width = 4
spread = true

[[layers]]
kind = "linear"
from = "dense"
out = 4

[[layers]]
kind = "interaction"
from = ["linear", "tables"]

[[layers]]
kind = "loss"
of = "squares"
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return str(file)


def test_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "network", "--model", "list"]) == 0
    assert {"resnet50", "dit-xl-2"} <= set(capsys.readouterr().out.split())


def test_a_job_is_written_and_can_be_simulated(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "job")
    command = ["generate", "network", "--model", small, "--ranks", "2", "-o", folder]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "(300 in shared tables) on 2 ranks" in printed
    assert f"2 traces and comm_group.json in {folder}" in printed
    assert main(["info", "--check", folder]) == 0
    assert main(["simulate", folder, "--system", "dgx-h100"]) == 0
    capsys.readouterr()
    assert main(command) == 2  # without --overwrite
    assert "--overwrite" in capsys.readouterr().err


def test_json_has_layers_and_the_simulation(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "network", "--model", small, "--ranks", "2", "--json"]
    assert main([*command, "--system", "dgx-h100"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parameters"] == 300 + 13 * 4 + 4
    assert [one["name"] for one in data["layers"]] == ["tables", "linear", "interaction", "loss"]
    assert data["ranks_of_kind"] == ["0", "1"]
    assert data["simulation"]["ranks"] == 2


def test_what_does_not_fit_is_one_line(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "network", "--model", small, "--ranks", "13"]) == 2
    told = capsys.readouterr().err
    assert told == "nadi: --ranks: 13 ranks cannot share the columns of tables; 12 or less can\n"
