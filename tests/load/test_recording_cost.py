"""A warning where recording made steps much longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.trace.trace import StepLengths
from tests.conftest import PairWriter


@pytest.mark.parametrize(
    ("unrecorded", "is_told"), [([80, 100, 70], True), ([95], False), ([], False)]
)
def test_a_high_cost_is_told_with_analyses_and_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unrecorded: list[int], *, is_told: bool
) -> None:
    pair = PairWriter(tmp_path)
    pair.device_keys["nadi"] = {"timed_ns": [100], "unrecorded_ns": unrecorded}
    pair.op("ProfilerStep#1", 0, 100, cat="user_annotation")
    pair.op("aten::mm", 10, 50, parent=2)
    pair.write()
    for command in (["run", str(tmp_path)], ["what-if", str(tmp_path), "scale aten::mm 0.5"]):
        assert main(command) == 0
        told = "recording made steps 25 % longer" in capsys.readouterr().out.replace("\n", " ")
        assert told == is_told


def test_the_cost_of_recording_is_not_that_of_a_busy_machine() -> None:
    lengths = StepLengths((300, 100, 400), (), (110, 90, 100, 500), ready_ns=(180, 0, 290))
    assert lengths.cost == pytest.approx(300 / 105 - 1)  # of the others nothing is known
    known = replace(lengths, unrecorded_ready_ns=(10, 0, 0, 390))
    assert (known.longer_ns, known.cost) == (10.0, pytest.approx(0.1))
    always = replace(known, unrecorded_ready_ns=known.unrecorded_ns)
    assert always.cost == lengths.cost
    assert StepLengths().cost is None


@pytest.mark.parametrize(("ready", "is_told"), [([30, 4], True), ([30, 0], False), ([], False)])
def test_processors_that_others_had_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ready: list[int], *, is_told: bool
) -> None:
    pair = PairWriter(tmp_path)
    pair.device_keys["nadi"] = {"timed_ns": [100, 100], "ready_ns": ready}
    pair.op("aten::mm", 10, 50)
    pair.write()
    for command in (["run", str(tmp_path)], ["what-if", str(tmp_path), "scale aten::mm 0.5"]):
        assert main(command) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert ("for 17 % of the recorded steps their thread was ready" in printed) == is_told


@pytest.mark.parametrize(("length", "share"), [(200, "33 %"), (500, "")])
def test_two_recorders_at_once_are_told_with_what_they_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], length: int, share: str
) -> None:
    pair = PairWriter(tmp_path)
    pair.op("aten::linear", 0, length)
    for number in range(10):  # each takes 4 us, and begins 2 us after the one before
        pair.op("aten::view", 10 + number * 6, 4, parent=3)
    pair.write()
    for command in (["run", str(tmp_path)], ["what-if", str(tmp_path), "scale aten::view 0.5"]):
        assert main(command) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert ("profiler ran at once: they take at least" in printed) == bool(share)
        assert share in printed


def test_no_more_than_all_of_the_steps_was_waited_for_processors() -> None:
    assert StepLengths((100, 100), ready_ns=(40, 20)).contention == 0.3
    assert StepLengths((100, 100), ready_ns=(240, 2)).contention == 1
