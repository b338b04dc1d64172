"""The schedule of updates: against one that goes part by part, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nadi.systems.memory_tiers import streamed_seconds, update_parts
from tests.amounts import examples

_SECONDS = st.floats(0.0, 10.0)
_BYTES = st.integers(0, 1 << 40)


def by_parts(size: int, load: float, work: float, store: float) -> float:
    """Load, update and store one part after the other, each as soon as it can be."""
    parts = int(update_parts(np.array(size)))
    loaded = updated = stored = 0.0
    for _ in range(parts):
        loaded += load / parts
        updated = max(updated, loaded) + work / parts
        stored = max(stored, updated) + store / parts
    return stored


@settings(max_examples=examples(100))
@given(size=_BYTES, load=_SECONDS, work=_SECONDS, store=_SECONDS)
def test_it_takes_what_its_parts_take(size: int, load: float, work: float, store: float) -> None:
    found = streamed_seconds(np.array(float(size)), *map(np.array, (load, work, store)))
    assert float(found) == pytest.approx(by_parts(size, load, work, store))


@settings(max_examples=examples(100))
@given(size=_BYTES, load=_SECONDS, work=_SECONDS, store=_SECONDS, factor=st.floats(1, 100))
def test_faster_moves_never_take_longer_and_hide_no_more_than_the_update(
    size: int, load: float, work: float, store: float, factor: float
) -> None:
    def seconds(by: float, *, duplex: bool) -> float:
        values = np.array(load / by), np.array(work), np.array(store / by)
        both = None if duplex else values[0] + values[2]
        return float(streamed_seconds(np.array(float(size)), *values, both))

    full, half = seconds(1, duplex=True), seconds(1, duplex=False)
    near = 1 + 1e-9
    assert seconds(factor, duplex=True) <= full * near
    assert seconds(factor, duplex=False) <= half * near
    assert max(load, work, store) <= full * near
    assert full <= half * near
    assert half <= (load + work + store) * near
