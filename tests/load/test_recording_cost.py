"""A warning where recording made steps much longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from nadi.cli import main
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
