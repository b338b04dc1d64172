"""The words of ``nadi diff`` follow from the figures beside them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, strategies as st

from nadi.bottlenecks.differences.compared_runs import compare_sums, path_cause
from nadi.bottlenecks.differences.result import _calls_apart, _sides
from nadi.results.declared import PAGE

COUNTS = st.sampled_from([0, 0.2, 1, 3, 3.03, 4, 10, 100, 99])
TIMES = st.sampled_from([0, 1, 99, 100, 101, 110, 1_000, 40_000]) | st.integers(0, 10**6)
FACTORS = st.sampled_from([1.0, 0.57, 1.3])
SLOWER, FASTER = ("called less, each slower", "slower"), ("called more, each faster", "faster")


@st.composite
def sides(draw: st.DrawFn) -> list[pl.DataFrame]:
    """Draw sums of two recordings: those without calls have no time."""
    names = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)

    def side() -> pl.DataFrame:
        rows = [(name, draw(COUNTS), draw(TIMES)) for name in draw(names)]
        rows = [(name, count, time if count else 0) for name, count, time in rows]
        schema = {"name": pl.String, "count": pl.Float64, "ns": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    return [side(), side()]


@given(both=sides(), factor=FACTORS)
def test_states_agree_with_the_signs_of_changes_and_counts(
    both: list[pl.DataFrame], factor: float
) -> None:
    for row in compare_sums(both, ["name"], {"ns": factor}).iter_rows(named=True):
        state, own = row["state"], row["change_ns"] - row["machine_ns"]
        more = row["count_after"] - row["count_before"]
        assert row["before_ns"] + row["change_ns"] == row["after_ns"]
        assert own <= 1e-6 or state not in ("called less", "removed", *FASTER), row
        assert own >= -1e-6 or state not in ("called more", "added", *SLOWER), row
        assert ("called more" in state) <= (more > 0), row
        assert ("called less" in state) <= (more < 0), row
        if state == "same":
            whole = max(row["before_ns"] + row["machine_ns"], row["after_ns"])
            assert abs(own) <= 0.041 * whole, row
        if state == "added":
            assert row["before_ns"] == row["count_before"] == 0
        if state == "removed":
            assert row["after_ns"] == row["count_after"] == 0


STATES = ("added", "removed", "called more", "called less", "same", *SLOWER, *FASTER)


@given(
    kind=st.sampled_from(["host op", "host gap", "kernel", "launch", "unexplained"]),
    state=st.sampled_from(STATES), was=COUNTS, became=COUNTS, before=TIMES, after=TIMES,
    factor=FACTORS,
)  # fmt: skip
def test_causes_on_the_path_agree_with_the_signs_of_changes(
    *, kind: str, state: str, was: float, became: float, before: int, after: int, factor: float
) -> None:
    machine = before * (factor - 1) if before and after else 0.0
    row = pl.DataFrame({"kind": [kind], "before_ns": [float(before)], "after_ns": [float(after)],
                        "machine_ns": [machine]})  # fmt: skip
    found = row.select(path_cause(pl.lit(state), pl.lit(was), pl.lit(became))).item()
    own = after - before - machine
    up = ("added", "called more", "moved onto the path", "hidden less", "longer", *SLOWER)
    down = ("removed", "called less", "moved off the path", "hidden more", "shorter", *FASTER)
    assert (found == "same") == (own == 0)
    assert own > 0 or found not in up
    assert own < 0 or found not in down
    assert found not in (*SLOWER, *FASTER) or kind in ("host op", "kernel")
    assert after or found not in SLOWER


@given(before=TIMES, after=TIMES, host=FACTORS)
def test_shown_columns_subtract(before: int, after: int, host: float) -> None:
    row = {"before_ns": before, "after_ns": after, "change_ns": after - before,
           "machine_ns": before * (host - 1)}  # fmt: skip
    columns = _sides({"speed": {"host": host, "device": 1.0}})
    *first, after_shown, change = (one.value(row) for one in columns if one.on != PAGE)
    assert sum(first) + change == pytest.approx(after_shown)
    assert len(first) == (1 if host == 1 else 2)


def test_calls_that_end_alike_are_told_apart() -> None:
    paths = ["a > f > g", "b > f > g", "f > g", "x > y", "g"]
    names = _calls_apart({"calls": [{"path": path} for path in paths]})
    assert names == {path: path for path in paths}
    assert _calls_apart({"calls": [{"path": "a > b > c > d"}]}) == {"a > b > c > d": "c > d"}
