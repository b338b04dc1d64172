"""Prices of steps with tiers, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.systems.library import shipped_text

_PLAN = 'model = "llama3-8b"\ntp = 8\nsequence = 2048\nglobal_batch = 4\n'


@pytest.fixture
def system(tmp_path: Path) -> str:
    text = shipped_text("dgx-h100-cxl").replace('"cxl-pool"', '"cxl-pool"\nhour = 4.0', 1)
    path = tmp_path / "priced.toml"
    path.write_text(f"{text}\n[cost]\nrank_hour = 2.5\n")
    return str(path)


def test_a_step_costs_its_ranks_and_the_tier_that_they_use(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["estimate", "llama3-8b", system, "--tp", "8", "--seq", "2048", "--global-batch", "4"]
    assert main([*asked, "--offload", "optimizer=cxl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["price_per_hour"] == 8 * 2.5 + 4.0
    assert found["price_per_step"] == pytest.approx(24.0 / 3600 * found["seconds"])
    tokens = 4 * 2048
    assert found["price_per_million_tokens"] == pytest.approx(
        1e6 * found["price_per_step"] / tokens
    )
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["price_per_hour"] == 20.0
    plan = tmp_path / "plan.toml"
    plan.write_text(_PLAN)
    placed = ["memory", "place", str(plan), "--system", system, "--place", "optimizer=cxl"]
    assert main([*placed, "--json"]) == 0
    step = json.loads(capsys.readouterr().out)
    assert step["price_per_step"] == pytest.approx(24.0 / 3.6e12 * step["with_tiers_ns"])
    assert step["with_tiers_ns"] == pytest.approx(1e9 * found["seconds"], rel=0.03)


def test_a_sweep_of_what_nothing_uses_is_refused(
    system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["estimate", "llama3-8b", system, "--tp", "8", "--global-batch", "4"]
    sweep = ["--sweep", "memory.tiers.1.latency=1us,2us"]
    assert main([*asked, "--offload", "optimizer", *sweep]) == 2
    assert "nothing that is estimated uses it" in capsys.readouterr().err
    assert main([*asked, "--offload", "optimizer=cxl", *sweep]) == 0
