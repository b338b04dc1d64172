"""Rows told apart, as one number each or by a hash: as numpy tells them apart."""

from __future__ import annotations

import numpy as np
import pytest

from nadi.trace.rows import number_rows


@pytest.mark.parametrize("size", [0, 1, 2, 1_000])
@pytest.mark.parametrize("num_columns", [1, 2, 5])
@pytest.mark.parametrize("largest", [5, 2**31, 2**62])
def test_it_is_as_numpy_does_it(size: int, num_columns: int, largest: int) -> None:
    random = np.random.default_rng(size + num_columns)
    values = np.array([-largest, -1, 0, 3, largest])
    columns = [values[random.integers(0, 5, size)] for _ in range(num_columns)]
    number, first = number_rows(columns)
    assert (number.dtype, first.dtype) == (np.int64, np.int64)
    if size:
        _, expected_first, expected = np.unique(
            np.stack(columns), axis=1, return_index=True, return_inverse=True
        )
        assert (number == expected.reshape(-1)).all()
        assert (first == expected_first).all()
    else:
        assert (number.size, first.size) == (0, 0)


def test_rows_with_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    from nadi.trace import rows

    columns = [np.array([5, -(2**61), 5, 7]), np.array([2**61, 3, 2**61, -(2**61)])]
    expected = number_rows(columns)
    monkeypatch.setattr(rows, "_FACTOR", np.uint64(0))
    for one, other in zip(number_rows(columns), expected, strict=True):
        assert one.tolist() == other.tolist()
    assert expected[0].tolist() == [1, 0, 1, 2]
