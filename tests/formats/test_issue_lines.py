"""Logs of issued nodes: read, drawn at the right scale, and refused where they are wrong."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from nadi.files.issue_lines import decode_issue_lines
from nadi.trace.issues import IssueLog
from tests.amounts import examples

SAMPLE = """issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_aten::mm, 2 x 2
callback,npu_id=0,curr_cycle=105,node_id=1,node_name=COMP_NODE_aten::mm, 2 x 2
issue,npu_id=1,curr_cycle=7,node_id=2,node_name=COMM_COLL_NODE_a=b
callback,npu_id=1,curr_cycle=207,node_id=2,node_name=COMM_COLL_NODE_a=b
"""


def drawn(folder: Path, text: str, *options: str) -> list[dict[str, Any]]:
    (folder / "run.log").write_text(text)
    target = folder / "out.json"
    assert (
        main(["draw", "timeline", str(folder / "run.log"), str(target), "--overwrite", *options])
        == 0
    )
    events = json.loads(target.read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


@pytest.mark.parametrize(
    ("frequency", "mhz"), [("1GHz", 1000), ("1.5GHz", 1500), ("500 MHz", 500), ("250", 250)]
)
def test_cycles_are_times_of_the_clock(tmp_path: Path, frequency: str, mhz: int) -> None:
    found = drawn(tmp_path, SAMPLE, "--frequency", frequency)
    expected = [(0, "COMP_NODE_aten::mm, 2 x 2", 5, 105), (1, "COMM_COLL_NODE_a=b", 7, 207)]
    for event, (rank, name, begin, end) in zip(found, expected, strict=True):
        assert (event["pid"], event["name"]) == (rank, name)
        times = [round(Fraction(1000 * cycle, mhz)) for cycle in (begin, end)]  # ns
        assert round(1000 * event["ts"]) == times[0]
        assert round(1000 * event["dur"]) == times[1] - times[0]


def test_random_logs_are_paired_as_a_plain_program_pairs_them() -> None:
    for seed in range(examples(60)):
        source = random.Random(seed)
        lines, opened, expected = [], {}, []
        for cycle in range(source.randrange(1, 60)):
            npu, node = source.randrange(3), source.randrange(3)
            name = f"COMP_NODE_{node}"
            word = source.choice(("issue", "callback"))
            queue = opened.setdefault((npu, node), [])
            if word == "callback" and not queue:
                continue
            lines.append(f"{word},npu_id={npu},curr_cycle={cycle},node_id={node},node_name={name}")
            if word == "issue":
                queue.append(cycle)
            else:
                expected.append((npu, node, queue.pop(0), cycle))
        log = IssueLog()
        content = "\n".join(lines).encode()
        if not lines:
            continue
        found = decode_issue_lines("x.log", content, log)
        rows = found.select("npu", "id", "begin", "end").rows()
        assert sorted(rows) == sorted(expected)
        open_ones = sum(len(queue) for queue in opened.values())
        assert log.table()["count"].sum() == open_ones


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "is no issue"),
        ("issue,npu_id=x,curr_cycle=1,node_id=1,node_name=a", "line 5"),
        ("issue,npu_id=0,curr_cycle=-1,node_id=1,node_name=a", "line 5"),
        ("issue,npu_id=0,curr_cycle=99999999999999999999,node_id=1,node_name=a", "line 5"),
        ("issue,0,1,2,a", "line 5"),
        ("callback,npu_id=0,curr_cycle=1", "line 5"),
    ],
)
def test_wrong_lines_are_named(
    tmp_path: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text(SAMPLE + line + "\n")
    assert main(["draw", "timeline", str(tmp_path / "run.log"), str(tmp_path / "out.json")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out.json").exists()


def test_an_end_before_its_begin_and_what_is_no_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = SAMPLE.splitlines()
    for text, said in (
        ("\n".join([lines[0].replace("=5,", "=500,"), lines[1]]), "before it is issued at 500"),
        ("{}", "is no schedule"), ("", "is no schedule"),
        ("rank,id,name,start,end,resource\n0,1,a,9,3,x\n", "ends before it begins"),
        ("rank,id,name,start,end,resource\n0,1,a,b,3,x\n", "is no table"),
    ):  # fmt: skip
        (tmp_path / "run.log").write_text(text)
        assert (
            main(["draw", "timeline", str(tmp_path / "run.log"), str(tmp_path / "out.json")]) == 2
        )
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out.json").exists()


def test_options_are_checked_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").write_text(SAMPLE)
    source = str(tmp_path / "run.log")
    cases = [
        ([source, str(tmp_path / "out.txt")], "no timeline format"),
        ([source, source], "no timeline format"),
        ([source, str(tmp_path / "out.json"), "--frequency", "fast"], "is not a frequency"),
        ([source, str(tmp_path / "out.json"), "--frequency", "0GHz"], "is not a frequency"),
        ([str(tmp_path / "none"), str(tmp_path / "out.json")], "none"),
    ]
    for arguments, said in cases:
        assert main(["draw", "timeline", *arguments]) == 2
        assert said in capsys.readouterr().err


def test_the_log_and_the_table_of_a_simulation_are_drawn_alike(
    tmp_path: Path, demo_folder: Path
) -> None:
    times = []
    for suffix in (".log", ".csv"):
        made = str(tmp_path / f"simulated{suffix}")
        assert main(["simulate", str(demo_folder), "--system", "dgx-h100", "-o", made]) == 0
        target = tmp_path / f"{suffix[1:]}.json"
        assert main(["draw", "timeline", made, str(target)]) == 0
        events = json.loads(target.read_text())["traceEvents"]
        times.append(sorted(
            (event["pid"], event["args"].get("node", -1), event["ts"], event["dur"])
            for event in events if event["ph"] == "X"
        ))  # fmt: skip
    assert times[0] == times[1]
    assert len(times[0]) > 20_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.log", SAMPLE.replace("npu_id=1", f"npu_id={2**63 - 1}")),
        ("run.csv", f"rank,id,name,start,end,resource\n{2**31},1,a,0,5,main\n"),
    ],
)
def test_a_rank_that_no_trace_may_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["timeline", str(tmp_path / name), str(tmp_path / "out.json")]) == 2
    assert "has the rank" in capsys.readouterr().err
