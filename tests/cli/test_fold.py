"""`nadi fold`, `nadi fold --undo`, and folded jobs in other commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.models import write_job
from nadi.recordings import write_folded

PLAN = {"tp": 2, "pp": 2, "dp": 4, "global_batch": 16}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("traces")
    write_job(nadi.llm_job("gpt3-125m", **PLAN), folder)
    return folder


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("folded") / "small.nadi"
    write_folded(nadi.fold(nadi.llm_job("gpt3-125m", **PLAN)), file)
    return file


def test_traces_become_a_file_and_traces_again(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, again = tmp_path / "small.nadi", tmp_path / "again"
    assert main(["fold", str(traces), "-o", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "16 ranks" in printed
    assert "2 classes of ranks" in printed
    assert "exact" in printed
    assert main(["fold", "--undo", str(file), "-o", str(again)]) == 0
    for name in os.listdir(traces):
        assert (traces / name).read_bytes() == (again / name).read_bytes()


def test_simulate_takes_a_folded_job(folded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(folded), "--system", "dgx-h100", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bound"]["low_ns"] == said["makespan_ns"] == said["bound"]["high_ns"]
    assert said["ranks"] == 16


def test_a_saved_simulation_keeps_the_bound(folded: Path, tmp_path: Path) -> None:
    file = tmp_path / "done.nadi"
    assert main(["simulate", str(folded), "--system", "dgx-h100", "-o", str(file)]) == 0
    saved = nadi.simulation.read_simulation(file)
    assert saved.bound is not None
    assert saved.bound.is_exact


def test_a_generated_job_is_written_folded(tmp_path: Path) -> None:
    file = tmp_path / "job.nadi"
    plan = ["--model", "gpt3-125m", "--dp", "4"]
    assert main(["generate", "llm", *plan, "-o", str(file)]) == 0
    assert len(nadi.recordings.read_folded(file).traces) == 4


def test_few_ranks_take_the_time_of_all(
    folded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "eight"
    command = ["fold", str(folded), "--system", "dgx-h100", "--to-ranks", "8"]
    assert main([*command, "-o", str(place), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["scaled_down"]
    assert said["ranks"] == 8
    assert {one["axis"] for one in said["axes"]} == {"tp", "dp", "pp"}
    assert abs(said["step_ns"] / said["whole_step_ns"] - 1) < 0.05
    # what is written is what was simulated
    done = nadi.simulate(place, nadi.load_system(place / "system.toml", 8))
    assert done.makespan == said["step_ns"]
    files = ["--network", str(place / "network.yml")]
    files += ["--system-config", str(place / "system.json")]
    assert main(["simulate", str(place), *files]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to-ranks", "8"], "times of communication depend on a system"),
        (["--system", "dgx-h100", "--to-ranks", "7"], "numbers that may fit: 8"),
        (["-o", "small.zip"], "end it in .nadi"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    folded: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fold", str(folded), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_only_folded_jobs_are_unfolded(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fold", "--undo", str(traces / "trace.0.et"), "-o", str(tmp_path / "x")]) == 2
    assert "not a folded job" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_existing_files_stay(folded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folded.with_name("other.nadi")
    other.write_bytes(b"mine")
    assert main(["fold", str(folded), "-o", str(other)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert other.read_bytes() == b"mine"
