"""Changes of waits of threads, asked of a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from nadi.cli import main


@pytest.mark.parametrize("change", ["remove wait", "scale wait in=loss 0.5"])
def test_a_simulation_has_no_waits_of_threads(
    demo_folder: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    asked = ["simulate", str(demo_folder), "--system", "dgx-h100", "--what-if", change]
    assert main(asked) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert f"change '{change}': a simulated job has no waits of threads" in said[0]
    assert "nadi what-if" in said[0]
