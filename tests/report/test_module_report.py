"""The table of modules: layers that are alike share a row, and nothing is lost in JSON."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import nadi
from nadi.bottlenecks.steps.result import MODULES, describe_modules
from nadi.cli import main
from nadi.graph.module_times import OUTSIDE, ModuleTimes

FOUR = Path(__file__).resolve().parents[1] / "recordings" / "cpu_mlp4_modules"
TIMES = [f"{phase}_{place}" for place in ("host", "device")
         for phase in ("forward", "backward", "optimizer", "other")]  # fmt: skip


def times_of(rows: list[tuple[str, int, int]], optimizer: str = "") -> ModuleTimes:
    """Make the table of modules: path, row of the module around, and time of the forward in us."""
    zeros = dict.fromkeys([*TIMES[1:], "device_operations"], 0)
    return ModuleTimes(
        pl.DataFrame([
            {"module": path, "parent": around, "calls": 1, "forward_host": 1000 * time, **zeros,
             "critical": 1000 * time}
            for path, around, time in rows
        ]),
        True, optimizer,
    )  # fmt: skip


def printed(found: ModuleTimes, length: int = 1_000_000) -> list[str]:
    text = StringIO()
    data = {"modules": describe_modules(found), "critical_path_ns": length}
    MODULES.print(data, Console(file=text, width=200))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_layers_that_are_alike_share_a_row() -> None:
    rows = [("Net_0", -1, 500), ("Net_0.In_0", 0, 5), ("Net_0.In_0.Inner_0", 1, 4)]
    rows += [(f"Net_0.Block_{k}", 0, 100 + k) for k in range(4)]
    rows += [("Net_0.Block_4", 0, 200), ("Net_0.Block_0.Linear_0", 3, 90), (OUTSIDE, -1, 7)]
    lines = printed(times_of(rows))

    assert lines[0] == "time by module"
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "Net_0 1 500.0 us 50.0 %",
        "In_0 1 5.000 us 0.5 %",
        "Inner_0 1 4.000 us 0.4 %",
        "Block_0-3 (4 x) 4 406.0 us 40.6 % 100.0 us, 101.5 us, 103.0 us",
        "Block_4 1 200.0 us 20.0 %",
        "(outside of modules) 7.000 us 0.7 %",
    ]
    indent = [len(line) - len(line.lstrip()) for line in lines[2:]]
    assert indent == [0, 2, 4, 2, 2, 0]


def test_layers_that_differ_have_rows_of_their_own() -> None:
    rows = [(f"layers.{k}", -1, 10 * 4**k) for k in range(3)] + [(OUTSIDE, -1, 0)]
    names = [line.split()[0] for line in printed(times_of(rows))[2:-1]]
    assert names == ["layers.0", "layers.1", "layers.2"]


def test_few_rows_are_printed_and_all_are_in_json() -> None:
    rows = [(f"{chr(65 + k // 26)}{chr(65 + k % 26)}", -1, k) for k in range(60)]
    found = times_of([*rows, (OUTSIDE, -1, 0)], "attributed")
    lines = printed(found)
    assert lines[-2:] == ["... and 21 more (--json)", "optimizer: attributed"]
    assert len(lines) == 2 + 40 + 2
    described = describe_modules(found)
    assert [row["forward_host_ns"] for row in described["rows"]] == [
        *(1000 * k for k in range(60)), 0,
    ]  # fmt: skip
    assert described["recorded"]
    assert described["optimizer"] == "attributed"


def test_without_modules_the_way_to_record_them_is_said() -> None:
    assert printed(times_of([(OUTSIDE, -1, 5)])) == [
        "modules: none recorded; nadi record and nadi.record record them"
    ]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", str(FOUR), "--by", "module", "--step", "3", "--json"])
    data = json.loads(capsys.readouterr().out)
    run = nadi.run(FOUR, step=3, by="module")
    assert run.modules is not None
    assert data["modules"] == describe_modules(run.modules)
    assert data["modules"]["rows"][0]["module"] == "Mlp_0"
    main(["run", str(FOUR)])
    assert "by module" not in capsys.readouterr().out
    assert nadi.run(FOUR).modules is None
    with pytest.raises(nadi.errors.UsageError, match="by='layer': is not known; give module"):
        nadi.run(FOUR, by="layer")
