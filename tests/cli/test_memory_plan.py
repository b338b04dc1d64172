"""`nadi memory plan` as a user has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from nadi.cli import main

SMALL = ["--model", "gpt3-125m,gpt3-350m", "--system", "h100", "--ranks", "2",
         "--global-batch", "8", "--bandwidth", "32,0.1TB/s", "--capacity", "1,1TiB"]  # fmt: skip


def test_a_study_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert main(["memory", "plan", *SMALL, "-o", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "sequences/s by bandwidth, with tiers of 1,024 GiB" in text
    assert re.search(r"gpt3-125m +h100 +2 +\d", text)
    assert "each at 2 bandwidths and 2 capacities" in text
    points = pl.read_csv(tmp_path / "out" / "points.csv")
    assert points.height == 2 * (1 + 2 * 2)
    assert points["rate"].null_count() == 0
    page = (tmp_path / "out" / "index.html").read_text()
    names = sorted(path.name for path in (tmp_path / "out").glob("*.svg"))
    assert names == [
        "gain.svg", "points-gpt3-125m-h100.svg", "points-gpt3-350m-h100.svg", "rate-gpt3-125m.svg",
        "rate-gpt3-350m.svg",
    ]  # fmt: skip
    assert all((tmp_path / "out" / name).read_text() in page for name in names)
    assert main(["memory", "plan", *SMALL, "-o", str(tmp_path / "out")]) == 2
    assert "exists already; give another folder, or --overwrite" in capsys.readouterr().err


def test_a_study_as_json_has_the_curve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert main(["memory", "plan", *SMALL, "--compat", "calculon", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in found] == ["gpt3-125m", "gpt3-350m"]
    assert found[0]["bandwidths_gbps"] == [32, 100]
    assert len(found[0]["curve"]["rates"]) == len(found[0]["curve"]["bandwidths_gbps"])
    assert found[0]["best"][1][1]["rate"] >= found[0]["without"]["rate"]


def test_it_says_where_it_looked_and_whether_anything_is_possible(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["memory", "plan", "--system", "h100", "--bandwidth", "32,64"]
    assert main([*given, "--model", "22b", "--global-batch", "16"]) == 0
    text = capsys.readouterr().out
    line = "pays from, enough: looked for from 1 to 128 GB/s; pays below: of a tier of 64 GB/s"
    assert line in text.splitlines()
    (row,) = [line for line in text.splitlines() if re.match(r"22b +h100 +8 .*(GB/s|never)", line)]
    assert "same" in row
    assert row.endswith("no price")
    nothing = ["--model", "1t", "--ranks", "8", "--global-batch", "8", "--capacity", "1"]
    assert main([*given, *nothing]) == 1
    assert re.search(r"1t +h100 +8 +- +- +-", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--bandwidth", "32GiB"], "--bandwidth 32GiB: '32GiB' is not a bandwidth"),
     (["--capacity", "x"], "--capacity x: 'x' is not a size"),
     (["--latency", "3"], "--latency 3: '3' is not a time"),
     (["--bandwidth", "0"], "--bandwidth, --capacity: at least one of each"),
     (["--model", "gpt3-14b"], "gpt3-13b"), (["--compat", "x"], "known: calculon")],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["memory", "plan", *SMALL[2:], "--model", "gpt3-125m", *arguments]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert words in found
