"""Operations that enclose others."""

from __future__ import annotations

import numpy as np
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
