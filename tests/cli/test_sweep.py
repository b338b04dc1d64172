"""`--sweep` of `nadi estimate` and `nadi search` as a user has it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from nadi.cli import main
from nadi.units import format_number
from tests.estimate.described import EXAMPLES

FILES = [str(EXAMPLES / f"{name}.json") for name in ("model", "machine", "execution")]
FILES += ["--compat", "calculon"]
SEARCH = [*FILES[:2], "--compat", "calculon", "--ranks", "16", "--global-batch", "32", "--set",
          "microbatch_size=1", "--set", "tensor_par=8", "--set", "fused_activation=1"]  # fmt: skip
TWO = ["--sweep", "mem2.GBps=32:512:x4", "--sweep", "mem2.GiB=16,1024"]


HEAD = ["sequences/s", "step", "tier", "1", "tier", "2", "lacks"]


def test_one_axis_is_a_row_per_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *FILES, "--sweep", "mem2.GBps=32:512:x2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mem2.GBps", "(GB/s)", *HEAD]
    assert [line.split()[0] for line in lines[1:6]] == ["32", "64", "128", "256", "512"]
    assert lines[-1].endswith("5 possible; fastest: 16.96 sequences/s at mem2.GBps 512 GB/s")


def test_two_axes_are_a_table_with_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *FILES, *TWO]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [["32", "-"], ["128", "-"], ["512", "-"]]
    assert "6 points, 3 possible" in lines[-1]


def test_rows_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *FILES, "--sweep", "batch_size=2:200:2"]) == 0
    assert "... and 60 more (--json)" in capsys.readouterr().out


def test_points_go_to_tables_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("csv", "json", "parquet", "html", "svg"):
        assert main(["estimate", *FILES, *TWO, "-o", str(tmp_path / f"out.{suffix}")]) == 0
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert frame.height == 6
    assert frame["rate"].null_count() == 3
    assert pl.read_csv(tmp_path / "out.csv")["seconds"].to_list() == frame["seconds"].to_list()
    told = json.loads((tmp_path / "out.json").read_text())
    assert [row["lacks"] for row in told] == ["tier2", ""] * 3
    assert (tmp_path / "out.svg").read_text() in (tmp_path / "out.html").read_text()
    capsys.readouterr()
    assert main(["estimate", *FILES, *TWO, "-o", str(tmp_path / "out.csv")]) == 2
    assert "exists already; give another name, or --overwrite" in capsys.readouterr().err


def test_a_search_has_the_fastest_of_each_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *SEARCH, "--sweep", "mem2.GBps=32,512", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["mem2.GBps"] for row in rows] == [32, 512]
    assert rows[0]["rate"] <= rows[1]["rate"]
    assert main(["search", *SEARCH, "--sweep", "mem2.GBps=32,512"]) == 0
    assert format_number(rows[1]["rate"]) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--sweep", "mem2.GBs=1"], "mem2 has no GBs; did you mean GBps; known: GiB, GBps"),
     (["-o", "x.csv"], "--output x.csv: is the file of a sweep"),
     (["--sweep", "hidden=1", "-o", "x.txt"], ".txt is not known; use one of .csv")],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", *FILES, *arguments]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert words in found
