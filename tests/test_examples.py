"""The scripts of examples/ run on the recording that ships with Nadi, and answer its questions."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
# what each prints on the demo, and what it writes
EXPECTED = {
    "custom_collective.py": ("star: ", "star.3.et"),
    "edit_with_networkx.py": ("78 edges removed: 412.7 ms -> 300.6 ms", "no_waiting.pftrace"),
    "feeder_loop.py": ("rank 1 takes 412.7 ms", "simulation"),
    "link_and_convert.py": ("22 collectives matched across ranks", "rank0.graphml"),
    "own_change.py": ("every host operation 1000 ns cheaper: ", "gain.txt"),
    "simulate_on_dgx.py": ("makespan: 351.1 ms", "done.nadi"),
    "what_bounds_my_step.py": ("rank 1 causes most wait time: 135.4 ms", "timeline.json.gz"),
    "what_if_sweep.py": ("aten::copy_", "sweep.csv"),
}


def test_every_example_is_listed_and_tested() -> None:
    scripts = {path.name for path in FOLDER.glob("*.py")}
    listed = set(re.findall(r"^\| \[([\w.]+)\]", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert scripts == listed == set(EXPECTED)


@pytest.mark.usefixtures("demo_read_once")
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(
    name: str, demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(FOLDER / name))["main"](demo_folder, tmp_path)
    printed, written = EXPECTED[name]
    assert printed in capsys.readouterr().out
    assert (tmp_path / written).exists()
