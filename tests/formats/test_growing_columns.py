"""Columns that grow piece by piece, against one array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nadi.files.kineto import kineto_columns
from nadi.files.kineto.kineto_columns import GrowingColumn

VALUES = st.one_of(st.integers(-5, 300), st.integers(-(2**63), 2**63 - 1))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_columns, "_CHUNK_BYTES", 16)


@given(
    st.lists(st.lists(VALUES, max_size=9), max_size=6),
    st.sampled_from([np.uint8, np.int32]),
    st.randoms(use_true_random=False),
)
def test_it_is_one_array(pieces: list[list[int]], narrow: type, random: object) -> None:
    column, whole = GrowingColumn(narrow), []
    for piece in pieces:
        column.add(np.array(piece, dtype=np.int64))
        whole += piece
    assert len(column) == len(whole)
    assert column.values().tolist() == whole
    chosen = np.array([random.random() < 0.6 for _ in whole], dtype=np.bool_)  # type: ignore[attr-defined]
    column.keep(chosen)
    kept = [one for one, is_kept in zip(whole, chosen, strict=True) if is_kept]
    assert column.values().tolist() == kept
    new_row = np.arange(len(kept))
    random.shuffle(new_row)  # type: ignore[attr-defined]
    ordered = column.take_ordered(new_row)
    assert ordered[new_row].tolist() == kept
    assert len(column) == 0


def test_values_stay_narrow_where_they_fit() -> None:
    column = GrowingColumn(np.int32)
    column.add(np.array([1, 2, 3]))
    assert column.values().dtype == np.int32
    column.add(np.array([2**40]))
    assert column.values().dtype == np.int64
