from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from nadi.kernels.jit import kernel
from nadi.kernels.json_tokens import read_microseconds
from tests.amounts import examples
from tests.reference.digits import nanoseconds

SETTINGS = settings(max_examples=examples(200))
DIGITS = "0123456789"

# whole microseconds that fit with room for any nanoseconds
microseconds = st.one_of(st.integers(-20, 20), st.integers(-9_223_372_036_854_000, 10**15))
decimals = st.one_of(
    st.just(""),
    st.text(DIGITS, min_size=1, max_size=7).map(lambda digits: "." + digits),
    # around the half, where rounding turns
    st.builds("{}{}".format, st.sampled_from([".0005", ".9995", ".1234"]), st.sampled_from(
        ["", "0", "1", "9", "000000000000000001"])),
)  # fmt: skip
signs = st.sampled_from(["", "-"])
numbers = st.builds(
    lambda sign, whole, part: f"{sign}{abs(whole)}{part}", signs, microseconds, decimals
)  # fmt: skip


@kernel
def _read(text: np.ndarray) -> tuple[int, int, int]:
    return read_microseconds(text, 0)


def read(text: str) -> int | None:
    """Give the nanoseconds, or None if the text as a whole is no time."""
    end, value, flag = _read(np.frombuffer(text.encode(), dtype=np.uint8).copy())
    assert end == 0 if flag else end <= len(text)
    return value if flag == 0 and end == len(text) else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("12", 12_000),
        ("12.5", 12_500),
        ("-12.5", -12_500),
        ("0.001", 1),
        ("0.0004", 0),
        ("0.0005", 1),
        ("-0.0005", -1),
        ("-0.00049999", 0),
        ("0.0009999", 1),
        ("2.9996", 3_000),
        ("1700000000000000.001", 1_700_000_000_000_000_001),
        ("9223372036854775", 9_223_372_036_854_775_000),
        ("-9223372036854775.799", -9_223_372_036_854_775_799),
    ],
)
def test_reads_known_numbers(text, expected):
    assert read(text) == expected


def test_exact_where_a_float_is_not():
    text = "1700000000000000.001"
    assert round(float(text) * 1000) != 1_700_000_000_000_000_001
    assert read(text) == 1_700_000_000_000_000_001


@SETTINGS
@given(numbers)
def test_equals_decimal_arithmetic(text):
    assert read(text) == nanoseconds(text)


@SETTINGS
@given(st.text("0123456789.-+eE x", max_size=6))
@example("")
@example("-")
@example(".5")
@example("5.")
@example("1.2.3")
@example("1e3")
@example("--1")
@example("1-")
@example("01")
@example("0.1234-")
def test_refuses_what_is_no_decimal_number(text):
    is_number = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", text)
    assert (read(text) is None) == (is_number is None)


@SETTINGS
@given(st.integers(2**63, 10**25), signs)
@example(2**63, "")
@example(2**63, "-")
@example(2**64, "")
@example(2**64 + 5, "-")
def test_refuses_what_does_not_fit(whole_ns, sign):
    assert read(f"{sign}{whole_ns // 1000}.{whole_ns % 1000:03}") is None
    assert read(f"{sign}{-(-whole_ns // 1000)}") is None
