"""Spans that hold a text."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from nadi.kernels.sequences import spans_holding

LETTERS = st.binary(max_size=30).map(lambda text: bytes(97 + byte % 2 for byte in text))


@given(LETTERS, LETTERS.filter(len), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_as_python_finds_them(content: bytes, text: bytes, spans: list[tuple[int, int]]) -> None:
    cut = [(min(at, len(content)), min(at + length, len(content))) for at, length in spans]
    at = np.array([begin for begin, _ in cut], dtype=np.int64)
    length = np.array([end - begin for begin, end in cut], dtype=np.int64)
    holds = np.empty(len(cut), dtype=np.bool_)
    buffers = (np.frombuffer(part, dtype=np.uint8).copy() for part in (content, text))
    spans_holding(next(buffers), at, length, next(buffers), holds)
    assert holds.tolist() == [text in content[begin:end] for begin, end in cut]
