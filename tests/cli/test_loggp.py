"""`nadi loggp` and GOAL files as a user has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main

COSTS = ["--latency", "2us", "--overhead", "1us", "--gap", "0ns", "--gap-per-byte", "50GB/s"]
# a collective of a process group whose ranks it does not state
ATTRIBUTES = [
    {"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "8"},
    {"name": "pg_name", "stringVal": "7"},
]  # fmt: skip
NODE = {"id": "0", "name": "sum", "type": "COMM_COLL_NODE", "attr": ATTRIBUTES}
UNKNOWN = json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": [NODE]})


def test_a_job_and_its_goal_file_take_the_same_time(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = tmp_path / "job.goal.gz"
    assert main(["convert", str(demo_folder), str(goal)]) == 0
    assert "goal" in capsys.readouterr().out
    assert main(["convert", str(demo_folder), str(goal)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    answers = []
    for source in (demo_folder, goal):
        assert main(["loggp", str(source), *COSTS, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["ranks"] == 4
    assert main(["loggp", str(goal), *COSTS]) == 0
    assert "4 ranks, 304 messages" in capsys.readouterr().out


def test_groups_and_times_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        (tmp_path / "sum.json").write_text(UNKNOWN)
        nadi.write(nadi.read(tmp_path / "sum.json"), tmp_path / f"sum.{rank}.et")
    assert main(["loggp", str(tmp_path / "sum"), *COSTS]) == 2
    assert "--comm-group" in capsys.readouterr().err
    (tmp_path / "groups.json").write_text('{"7": [0, 1]}')
    groups = ["--comm-group", str(tmp_path / "groups.json")]
    assert main(["loggp", str(tmp_path / "sum"), *COSTS, *groups]) == 0
    (tmp_path / "groups.json").write_text('{"7": [0, 5]}')
    assert main(["loggp", str(tmp_path / "sum"), *COSTS, *groups]) == 2
    assert "from 0 to 1" in capsys.readouterr().err


def test_a_generated_job_is_priced_by_a_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "job")
    shape = ["--model", "gpt3-125m", "--tp", "2", "--global-batch", "1", "-o", out]
    assert main(["generate", "llm", *shape]) == 0
    capsys.readouterr()
    assert main(["loggp", out, *COSTS]) == 0
    assert "computations state no time" in capsys.readouterr().out
    assert main(["loggp", out, *COSTS, "--system", "dgx-h100"]) == 0
    assert "warning" not in capsys.readouterr().out
