"""Parts of merged collectives sum up to their size, and are the same for all members."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from nadi.sharing.obfuscation.merged_work import EVEN, Splits, _split
from nadi.sharing.obfuscation.secret_key import SecretKey

KEY = SecretKey(b"0123456789abcdef")
MERGED = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.integers(1, 5), st.integers(0, 99), st.booleans()),
    min_size=1, max_size=6,
)  # fmt: skip


def secret(meeting: int, part: int) -> float:
    return KEY.unit(str(meeting), str(part))


@given(MERGED, st.sampled_from([0.0, 0.5, 1.5]))
def test_parts_sum_up_and_do_not_depend_on_what_else_is_merged(
    merged: list[tuple[int, int, int, bool]], spread: float
) -> None:
    size, count, first, is_collective = (np.array(one) for one in zip(*merged, strict=True))
    splits = Splits(secret, spread)
    sizes, counts = _split(size, count, first, is_collective, splits)
    at = 0
    for number, (whole, least, _, collective) in enumerate(merged):
        own = sizes[at : at + counts[number]]
        at += counts[number]
        assert own.sum() == whole
        assert (own >= 0).all()
        wanted = least if collective else 1
        assert wanted <= own.size <= (3 * wanted if collective and spread else wanted)
        rows = slice(number, number + 1)
        alone, _ = _split(size[rows], count[rows], first[rows], is_collective[rows], splits)
        assert alone.tolist() == own.tolist()
    assert at == sizes.size


def test_even_parts_differ_by_rounding_only() -> None:
    one = np.ones(1, dtype=np.bool_)
    sizes, counts = _split(np.array([1000]), np.array([3]), np.array([7]), one, EVEN)
    assert (sorted(sizes.tolist()), counts.tolist()) == ([333, 333, 334], [3])
