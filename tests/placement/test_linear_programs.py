"""What the solver finds is what a slow one in fractions finds."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nadi.errors import UsageError
from nadi.memory.linear_programs import program_of_rows, solve_program
from tests.amounts import examples
from tests.reference.simplex import least_cost

pytest.importorskip("highspy", reason="the solver is an extra")
NUMBERS = st.integers(-6, 6)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_small_programs_have_the_cost_that_fractions_give(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    rows = [data.draw(st.lists(NUMBERS, min_size=width, max_size=width)) for _ in range(height)]
    limits = data.draw(st.lists(NUMBERS, min_size=height, max_size=height))
    costs = data.draw(st.lists(NUMBERS, min_size=width, max_size=width))
    program = program_of_rows(
        np.array(costs, float), np.zeros(width), np.full(width, 5.0), np.array(rows, float),
        np.full(height, -np.inf), np.array(limits, float),
    )  # fmt: skip
    found = solve_program(program)
    # each limit, and each bound of 5, with a slack
    all_rows = [*rows, *np.eye(width, dtype=int).tolist()]
    equal = [
        [*map(Fraction, row), *(Fraction(int(i == k)) for k in range(len(all_rows)))]
        for i, row in enumerate(all_rows)
    ]
    wanted = least_cost(
        [Fraction(c) for c in costs] + [Fraction(0)] * len(all_rows), equal,
        [Fraction(one) for one in [*limits, *[5] * width]],
    )  # fmt: skip
    if wanted is None:
        assert found.status == "infeasible"
        assert found.gap == np.inf
    else:
        assert found.objective == pytest.approx(float(wanted), abs=1e-6)
        assert found.bound == found.objective
        assert found.gap == 0


def test_whole_numbers() -> None:
    program = program_of_rows(
        np.array([-1.0, -1.0]), np.zeros(2), np.full(2, 9.0), np.array([[2.0, 2.0]]),
        np.array([-np.inf]), np.array([3.0]),
    )  # fmt: skip
    assert solve_program(program).objective == pytest.approx(-1.5)
    found = solve_program(program._replace(whole=np.array([True, True])))
    assert found.objective == pytest.approx(-1)
    assert found.status == "optimal"


def test_no_time_is_no_answer_but_no_error() -> None:
    rng = np.random.default_rng(1)
    size = 60
    program = program_of_rows(
        -rng.uniform(1, 2, size), np.zeros(size), np.ones(size), rng.uniform(0, 1, (size, size)),
        np.full(size, -np.inf), np.full(size, 7.3),
    )._replace(whole=np.ones(size, np.bool_))  # fmt: skip
    found = solve_program(program, seconds=0.2)
    assert found.status == "time limit"
    assert found.gap > 0
    assert found.bound < found.objective


def test_without_the_solver_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    program = program_of_rows(*(np.zeros(1),) * 3, np.zeros((1, 1)), np.zeros(1), np.zeros(1))
    with pytest.raises(UsageError, match=r"highspy.*not installed; pip install 'nadi\[solver\]'"):
        solve_program(program)


def test_the_solver_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Its banner comes once in a process, so another one solves."""
    line = "nadi memory offload opt-30b t4 --prompt 512 --generate 32 --json"
    subprocess.run([sys.executable, "-m", *line.split()], check=True)
    written = capfd.readouterr()
    assert json.loads(written.out)["policy"]
    assert "HiGHS" not in written.err
