"""``nadi analyze`` and ``nadi diff``."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from nadi.analyses import ANALYSES, analyze
from nadi.cli import main
from nadi.recordings import large
from nadi.results.terminal import workers

pytestmark = pytest.mark.usefixtures("demo_read_once")


def test_without_arguments_analyses_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{one.name} " in f"\n{printed}" for one in ANALYSES)


def test_a_table_is_printed_and_written(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "flame", str(demo_folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    for suffix in (".csv", ".json", ".parquet"):
        file = tmp_path / f"flame{suffix}"
        assert main(["analyze", "flame", str(demo_folder), "-o", str(file)]) == 0
        read = {".csv": pl.read_csv, ".json": pl.read_json, ".parquet": pl.read_parquet}[suffix]
        assert read(file)["self_ns"].to_list() == [row["self_ns"] for row in rows]
    capsys.readouterr()
    assert main(["analyze", "flame", str(demo_folder), "-o", str(tmp_path / "flame.csv")]) == 2
    assert "exists" in capsys.readouterr().err


def test_processes_say_the_same(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "flame", str(demo_folder), "--json"]) == 0
    here = capsys.readouterr().out
    monkeypatch.setattr(large, "_SMALL", 0)
    started: list[int] = []
    begun = workers._ReplacedProcesses.submit
    monkeypatch.setattr(
        workers._ReplacedProcesses, "submit",
        lambda *given, **named: started.append(1) or begun(*given, **named),
    )  # fmt: skip
    line = ["analyze", "flame", str(demo_folder), "--executor", "processes:1", "--json"]
    assert main(line) == 0
    assert (capsys.readouterr().out, len(started)) == (here, 4)


def test_all_are_written_to_a_folder(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "all", str(demo_folder), "-o", str(tmp_path / "all")]) == 0
    printed = f"\n{capsys.readouterr().out}"
    written = {path.stem for path in (tmp_path / "all").iterdir()}
    assert (
        {"annotations", "stragglers", "flame"}
        <= written
        <= {*(one.name for one in ANALYSES), "charts"}
    )
    told = {one.name for one in ANALYSES if f"\n{one.name}: " in printed}
    assert written | told == {*(one.name for one in ANALYSES), "charts"}
    page = (tmp_path / "all" / "charts.html").read_text()
    assert page.count("<svg") >= len(written) / 2


def test_a_time_range_is_a_part(demo_folder: Path) -> None:
    whole = analyze("annotations", demo_folder)
    part = analyze("annotations", demo_folder, window="100ms:250ms")
    assert 0 < part["count"].sum() < whole["count"].sum()
    assert part["sum_ns"].max() <= 150_000_000


def test_a_part_is_analysed_as_if_it_had_been_extracted(demo_folder: Path, tmp_path: Path) -> None:
    part = ["--step", "2"]
    assert main(["extract", str(demo_folder), *part, "-o", str(tmp_path / "part")]) == 0
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    assert main(["analyze", "all", str(demo_folder), *part, "-o", str(whole)]) == 0
    assert main(["analyze", "all", str(tmp_path / "part"), "-o", str(alone)]) == 0
    assert {file.name for file in whole.iterdir()} == {file.name for file in alone.iterdir()}
    for file in whole.glob("*.csv"):  # rows that are alike may come in another order
        lines = [sorted((folder / file.name).read_text().splitlines()) for folder in (whole, alone)]
        if file.stem not in ("flame", "stacks"):  # which number their rows
            assert lines[0] == lines[1], file.name
        assert len(lines[0]) == len(lines[1])


@pytest.mark.parametrize(("given", "said"), [
    (["idle", "DEMO", "--step", "99"], "the trace has no such step"),
    (["idle", "DEMO", "--step", "2", "--window", "1ms:2ms"], "both choose what is analysed"),
    (["temprl", "x"], "unknown analysis"),
    (["temporal"], "no recording is given"),
    (["temporal", "absent.json"], "absent.json"),
    (["idle", "DEMO", "--set", "gap=3"], "its parameters are: kernel_gap_ns=30000"),
    (["all", "DEMO", "--set", "gap=3"], "all has no parameters"),
    (["idle", "DEMO", "-o", "idle.txt"], "use one of .csv"),
    (["temporal", "DEMO"], "the recording has no device work"),
])  # fmt: skip
def test_bad_requests_are_one_line(
    given: list[str], said: str, demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", *(str(demo_folder) if one == "DEMO" else one for one in given)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_recording_and_itself(demo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(demo_folder), str(demo_folder)]) == 0
    assert "critical path, per step: no change" in capsys.readouterr().out
    assert main(["diff", str(demo_folder), str(demo_folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "before_ns", "after_ns", "change_ns", "path", "kernels", "calls", "modules", "steps",
        "forms", "of", "speed", "vendors", "ranks",
    }  # fmt: skip
