"""Operations that enclose others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nadi.trace.rows import nearest, with_ancestors


@given(data=st.data(), parents=st.lists(st.integers(-1, 30), max_size=30))
def test_what_encloses_rows_is_what_leads_to_one_of_them(
    data: st.DataObject, parents: list[int]
) -> None:
    parent = np.array([min(above, at - 1) for at, above in enumerate(parents)], dtype=np.int64)
    rows = np.array(data.draw(st.lists(st.integers(-1, parent.size - 1))), dtype=np.int64)
    one = np.arange(parent.size)
    expected = [bool((nearest(rows, parent, one == row) == row).any()) for row in one]
    assert with_ancestors(rows, parent).tolist() == expected


@given(data=st.data(), parents=st.lists(st.integers(-1, 30), max_size=30))
def test_the_nearest_is_the_first_wanted_one_upwards(
    data: st.DataObject, parents: list[int]
) -> None:
    parent = np.array([min(above, at - 1) for at, above in enumerate(parents)], dtype=np.int64)
    wanted = np.array([data.draw(st.booleans()) for _ in parents], dtype=np.bool_)
    rows = data.draw(st.lists(st.integers(-1, parent.size - 1)))

    def climbed(row: int) -> int:
        return row if row < 0 or wanted[row] else climbed(int(parent[row]))

    given_rows = np.array(rows, dtype=np.int64)
    assert nearest(given_rows, parent, wanted).tolist() == [climbed(row) for row in rows]
    assert given_rows.tolist() == rows


def test_a_parent_outside_of_the_table_is_an_error() -> None:
    nothing = np.zeros(2, dtype=np.bool_)
    with pytest.raises(IndexError, match="not in the table"):
        nearest(np.array([1]), np.array([-1, 7]), nothing)
