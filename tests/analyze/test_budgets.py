"""Budgets: what may grow, what the noise of steps explains, and what systems of CI are given."""

from __future__ import annotations

import json
import re
import shlex
from math import sqrt
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.main import get_command

import nadi
from nadi.bottlenecks import Budget, check
from nadi.bottlenecks.checks.budgets import parse_budget
from nadi.bottlenecks.checks.result import CHECK, junit
from nadi.cli import main
from nadi.cli.app import make_app
from nadi.errors import NadiError, UsageError

_GEMM, _ALL_REDUCE = "sm90_gemm", "ncclDevKernel_AllReduce_Sum"


def _recording(path: Path, gemms: list[int], *, comm: int = 0, peak: int = 0) -> Path:
    """Write steps of 100 us and their gemm, with a kernel of each kind in it; times in us."""
    events: list[dict[str, object]] = []

    def add(name: str, category: str, start: int, length: int, **more: object) -> None:
        events.append({"ph": "X", "name": name, "cat": category, "ts": start, "dur": length,
                       "pid": 1, "tid": 1, **more})  # fmt: skip

    at = 0
    for number, gemm in enumerate(gemms):
        add(f"ProfilerStep#{number}", "user_annotation", at, 100 + gemm + comm)
        kernels = {_GEMM: gemm, _ALL_REDUCE: comm}
        start = at + 50
        for k, (name, length) in enumerate(kernels.items()):
            if length:
                which = 2 * number + k
                add("cudaLaunchKernel", "cuda_runtime", at + 20 + 10 * k, 5,
                    args={"correlation": which})  # fmt: skip
                add(name, "kernel", start, length, tid=7,
                    args={"stream": 7, "device": 0, "correlation": which})  # fmt: skip
                start += length
        if peak:
            args = {"Device Type": 1, "Device Id": 0, "Bytes": peak, "Total Allocated": peak}
            events.append({"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event",
                           "ts": at + 1, "pid": 1, "tid": 1, "args": args})  # fmt: skip
        at += 100 + gemm + comm
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_each_amount_is_what_the_recordings_were_made_of(tmp_path: Path) -> None:
    before = _recording(tmp_path / "a.json", [100] * 3, comm=20, peak=1000)
    after = _recording(tmp_path / "b.json", [130] * 3, comm=50, peak=1500)
    asked = ["step 60us", "exposed communication 29us", "device busy 50 %", "device idle 0 ns",
             "memory peak 1KB", "kind=kernel gemm 29 %"]  # fmt: skip
    found = check(before, after, asked)
    assert [(one.before, one.after) for one in found.budgets] == [
        (220_000, 280_000), (20_000, 50_000), (120_000, 180_000), (100_000, 100_000),
        (1000, 1500), (100_000, 130_000),
    ]  # fmt: skip
    assert [one.state for one in found.budgets] == [
        "within", "exceeded", "within", "within", "within", "exceeded",
    ]  # fmt: skip
    assert found.is_exceeded
    differences = nadi.bottlenecks.diff(before, after)  # has the same answers
    assert (differences.before_ns, differences.after_ns) == (220_000, 280_000)
    assert set(differences.kernels["change_ns"]) == {30_000}
    assert not check(after, before, ["step -21 %", "kind=kernel gemm -23%"]).is_exceeded
    assert check(after, before, ["step -22 %"]).is_exceeded


def test_noise_is_that_of_steps(tmp_path: Path) -> None:
    before = _recording(tmp_path / "a.json", [90, 100, 110])
    after = _recording(tmp_path / "b.json", [105, 115, 125])
    found = check(before, after, ["step 0 %", "gemm 0us"])
    for one in found.budgets:
        # Student's t of 4 degrees of freedom, of which 5 % exceed 2.132
        assert one.noise == pytest.approx(2.1318 * sqrt(2 * 10_000**2 / 3), rel=1e-4)
        assert one.change == 15_000
        assert one.state == "not sure"
    assert not found.is_exceeded
    slower = _recording(tmp_path / "c.json", [125, 135, 145])
    assert check(before, slower, "step 0 %").is_exceeded
    assert not check(before, slower, "step 20us").is_exceeded
    two = _recording(tmp_path / "d.json", [105, 115])
    (one,) = check(before, two, "step 0 %").budgets
    assert (one.noise, one.repeats, one.state) == (None, (3, 2), "exceeded")


def test_runs_of_the_baseline_differ(tmp_path: Path) -> None:
    """Steps are alike within each run, and runs are not: only further runs show that."""
    runs = [_recording(tmp_path / f"{gemm}.json", [gemm] * 3) for gemm in (100, 90, 110)]
    slower = _recording(tmp_path / "b.json", [115] * 3)
    assert check(runs[0], slower, "step 3 %").is_exceeded
    found = check(runs[0], slower, ["step 3 %", "sm90_gemm 1us"], baselines=runs[1:])
    for one in found.budgets:
        assert one.repeats == (9, 3)
        # Student's t of 2 degrees of freedom, of which 5 % exceed 2.920
        assert one.noise == pytest.approx(2.92 * 10_000 * sqrt(1 + 1 / 3), rel=1e-4)
        assert one.change == 15_000
        assert one.state == "not sure"
    assert found.budgets[0].runs == (200_000, 190_000, 210_000)
    much_slower = _recording(tmp_path / "c.json", [150] * 3)
    assert check(runs[0], much_slower, "step 3 %", baselines=runs[1:]).is_exceeded
    # steps that vary by more than runs do are the noise
    uneven = [_recording(tmp_path / f"{k}.json", [60, 100, 140 + k]) for k in range(3)]
    one = check(uneven[0], slower, "step 0 %", baselines=uneven[1:]).budgets[0]
    assert one.noise is not None
    assert one.noise > 15_000


def test_one_step_in_each_of_several_runs_tells_the_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [_recording(tmp_path / f"{gemm}.json", [gemm], peak=gemm) for gemm in (100, 90, 110)]
    line = ["check", *map(str, runs[:2]), "--baseline", str(runs[2]), "--budget"]
    assert main([*line, "memory peak 0 %"]) == 0
    assert "baseline: the mean of 2 runs" in capsys.readouterr().out
    assert check(runs[0], runs[1], "step 0 %").budgets[0].noise is None


def test_operations_of_one_recording_only(tmp_path: Path) -> None:
    before = _recording(tmp_path / "a.json", [100])
    after = _recording(tmp_path / "b.json", [100], comm=10)
    added, removed = check(before, after, "AllReduce 5 %"), check(after, before, "AllReduce 5 %")
    assert added.is_exceeded
    assert removed.budgets[0].change == -10_000
    with pytest.raises(UsageError, match="matches none of the"):
        check(before, after, "conv 5 %")


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("step 3 %", Budget("step", share=0.03)),
        ("memory peak 2KiB", Budget("memory peak", amount=2048)),
        ("gemm 128 3%", Budget("gemm 128", share=0.03)),
        ("'step' kind=kernel  -2 ms", Budget("'step' kind=kernel", amount=-2_000_000)),
    ],
)
def test_budgets_are_read(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text",
    ["", "step", "3 %", "step 3", "step three %", "memory peak 2ms", "step 2MiB", "kind=x 3 %",
     "( 3 %", "step 9999999999 %"],
)  # fmt: skip
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_what_was_not_recorded(tmp_path: Path) -> None:
    host = [{"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": 0, "dur": 9, "pid": 1, "tid": 1}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": host}))
    for word in ("device busy", "memory peak"):
        with pytest.raises(NadiError, match=word):
            check(path, path, f"{word} 3 %")


def test_files_for_a_pull_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = str(_recording(tmp_path / "a.json", [100] * 3))
    after = str(_recording(tmp_path / "b.json", [130] * 3))
    files = [tmp_path / "check.md", tmp_path / "check.xml"]
    written = ["--markdown", str(files[0]), "--junit", str(files[1])]
    line = ["check", before, after, "--budget", "step 3 %", "--budget", "sm90_gemm 50 %"]
    assert main([*line, *written]) == 1
    assert "1 of 2 budgets exceeded" in capsys.readouterr().out
    rows = [row for row in files[0].read_text().splitlines() if row.startswith("|")]
    assert rows[2] == (
        "| step | 200.0 us | 230.0 us | +30.00 us (+15.0 %) | +6.000 us | 0 ns | exceeded |"
    )
    assert rows[3].startswith(r"| sm90\_gemm | 100.0 us")
    suite = ElementTree.fromstring(files[1].read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [len(case.findall("failure")) for case in suite] == [1, 0]
    assert main([*line, *written]) == 2  # the files exist
    assert main(["check", before, after]) == 2
    assert main(["check", before, before, "--budget", "step 3 %"]) == 0


def test_names_stay_in_their_cell(tmp_path: Path) -> None:
    path = _recording(tmp_path / "a.json", [100])
    data = CHECK.data(check(path, path, "a|<b>|gemm 3 %"))
    assert r"| a\|&lt;b&gt;\|gemm |" in CHECK.markdown(data)
    assert ElementTree.fromstring(junit(data))[0].get("name") == "a|<b>|gemm"


def test_examples_for_ci_call_what_there_is(
    demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "check.md"
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    action, hooks = map(yaml.safe_load, blocks)
    steps = [one.get("run", "") for one in action["jobs"]["check"]["steps"]]
    calls = [line for step in steps for line in step.splitlines()]
    calls += [hook["entry"] for hook in hooks["repos"][0]["hooks"]]
    calls = [words for one in calls if (words := shlex.split(one))[0] == "nadi"]
    assert [words[1] for words in calls] == [
        *["record"] * 4, "check", "record", "check"
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").mkdir()
    for words in calls:
        if words[1] == "record":
            options = get_command(make_app("record")).commands["record"].make_context(
                "record", words[2:], resilient_parsing=False
            ).params  # fmt: skip
            assert options["steps"] == 10
            written = tmp_path / options["folder"]
            assert written.parent.name == "traces"
            if not written.exists():
                written.symlink_to(demo_folder)
        else:
            assert main(words[1:]) == 0
    assert (tmp_path / "check.md").read_text().startswith("**1 budget kept**")
    assert (tmp_path / "check.xml").exists()
