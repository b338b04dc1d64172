"""When a verdict names what bounds a program, and when predictions of true changes hold."""

from __future__ import annotations

import re

import pytest
from _report import Checks
from programs import Prediction, check_predictions, expressions, true_ratio


@pytest.mark.parametrize(
    ("bound", "verdict", "named"),
    [
        ("rank 1, longer sequences", "Rank 1 is late by 2 ms", True),
        ("rank 1, longer sequences", "Rank 0 is late by 2 ms", False),
        ("rank 1: more of it", "Rank 11 is late by 2 ms", False),
        ("the loader process", "most in enumerate(DataLoader)#__next__", True),
        ("convolutions; the loader is hidden", "most in aten::convolution_backward", True),
        ("convolutions; the loader is hidden", "most in enumerate(DataLoader)", False),
        ("matrix products", "most in aten::addmm (2 ms)", True),
        ("matrix products", "The host bounds steps; most in aten::add", False),
        ("most operators of the host", "The host bounds steps 1 to 5, in operators", False),
        ("waits for requests", "The program waits for 80 % of the time", True),
        ("embeddings of users", "most in aten::embedding_bag", True),
    ],
)
def test_words_of_a_bound_stand_for_names(bound: str, verdict: str, named: bool) -> None:
    found = expressions({"bound": bound})
    assert any(re.search(one, verdict, re.IGNORECASE) for one in found) == named


def test_stated_names_come_before_words() -> None:
    assert expressions({"bound": "rank 1", "names": ["clean"]}) == ["clean"]


def test_truth_is_the_median_of_cpu_times_if_there_are_any() -> None:
    assert true_ratio({"ratio_wall": [0.9, 0.7, 0.5]}) == 0.7
    assert true_ratio({"ratio_wall": [0.9, 0.7], "ratio_cpu": 0.6}) == 0.6


def predictions(error: float, width: float, number: int) -> list[Prediction]:
    # the true step is 0.5
    gain = 0.5 + error
    return [Prediction("x", 0.5, gain, gain - width / 2, gain + width / 2)] * number


@pytest.mark.parametrize(
    ("done", "hold"),
    [
        (predictions(0.02, 0.1, 10), 4),
        (predictions(0.02, 0.1, 9) + predictions(0.02, 0.01, 1), 4),
        (predictions(0.02, 0.1, 8) + predictions(0.02, 0.01, 2), 3),
        (predictions(0.05, 0.2, 10), 3),
        (predictions(0.0, 0.1, 9) + predictions(0.21, 0.5, 1), 3),
        (predictions(0.02, 0.3, 10), 3),
        (predictions(0.25, 0.3, 10), 0),
    ],
)
def test_all_four_bounds_are_checked(done: list[Prediction], hold: int) -> None:
    checks = Checks()
    check_predictions(done, checks)
    assert (checks.num_exact, checks.num_checks) == (hold, 4)
