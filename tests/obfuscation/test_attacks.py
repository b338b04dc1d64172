"""Attacks find what is there, and their command prints a row for each."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nadi
from nadi.cli import main
from nadi.sharing import ATTACKS
from nadi.sharing.attacks.attacked_jobs import identify


def test_what_differs_is_identified_and_what_does_not_is_guessed() -> None:
    random = np.random.default_rng(0)
    models = ["a", "b", "c"] * 10
    center = np.eye(3)[[0, 1, 2] * 10]
    clear = [center + 0.05 * random.standard_normal(center.shape) for _ in range(3)]
    assert identify(models, *clear) == 1
    nothing = [random.standard_normal(center.shape) for _ in range(3)]
    assert identify(models, *nothing) < 0.65


def test_the_command_prints_a_row_for_each_attack(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--model", "gpt3-125m", "--model", "qwen3-0.6b", "--jobs", "2"]
    levels = ["names", "model", "synthetic"]
    for level in levels:
        chosen += ["--level", level]
    assert main(["attack", *chosen, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["attack"] for row in rows} == set(ATTACKS)
    assert {row["level"] for row in rows} == {"original", *levels}
    assert all(0 <= row["accuracy"] <= 1 and row["jobs"] == 4 for row in rows)
    of_model = [row for row in rows if row["level"] == "model"]
    assert [(row["attack"], row["accuracy"]) for row in of_model] == [("membership", 1.0)]


@pytest.mark.parametrize(
    "wrong", [{"models": ("x", "y")}, {"levels": ("all",)}, {"models": ("gpt3-125m",)}]
)
def test_wrong_requests_are_refused(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(nadi.NadiError):
        nadi.sharing.attack(**wrong)  # type: ignore[arg-type]
