from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nadi.kernels.digits import microseconds_to_ns
from tests.reference.digits import nanoseconds

SETTINGS = settings(max_examples=200)
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
    lambda sign, zeros, whole, part: f"{sign}{zeros}{abs(whole)}{part}",
    signs, st.sampled_from(["", "", "00"]), microseconds, decimals,
)  # fmt: skip


def read(text: str, count: int) -> tuple[int, list[int]]:
    out = np.full(count, -7, dtype=np.int64)
    status = microseconds_to_ns(np.frombuffer(text.encode(), dtype=np.uint8).copy(), out)
    return int(status), out.tolist()


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
    assert read(text, 1) == (-1, [expected])


def test_exact_where_a_float_is_not():
    text = "1700000000000000.001"
    assert round(float(text) * 1000) != 1_700_000_000_000_000_001
    assert read(text, 1) == (-1, [1_700_000_000_000_000_001])


@SETTINGS
@given(st.lists(numbers, max_size=8))
@example([])
def test_equals_decimal_arithmetic(texts):
    assert read(",".join(texts), len(texts)) == (-1, [nanoseconds(text) for text in texts])


@SETTINGS
@given(st.lists(numbers, max_size=4), st.text("0123456789.-+eE x", max_size=6))
@example(["1"], "")
@example([], "-")
@example([], ".5")
@example([], "1.2.3")
@example([], "1e3")
@example([], "--1")
@example([], "1-")
@example([], "0.1234-")
def test_names_the_first_number_of_another_form(before, broken):
    body = broken.removeprefix("-")
    well_formed = body.count(".") <= 1 and body.replace(".", "").isdigit() and body[0] != "."
    assume(not well_formed)
    status, out = read(",".join([*before, broken, "1"]), len(before) + 2)
    assert status == len(before)
    assert out[: len(before)] == [nanoseconds(text) for text in before]


@SETTINGS
@given(st.integers(2**63, 10**25), signs)
@example(2**63, "")
@example(2**63, "-")
@example(2**64, "")
@example(2**64 + 5, "-")
def test_refuses_what_does_not_fit(whole_ns, sign):
    text = f"{sign}{whole_ns // 1000}.{whole_ns % 1000:03}"
    assert read(f"1,{text},2", 3)[0] == 1
    assert read(f"{sign}{-(-whole_ns // 1000)}", 1)[0] == 0


@pytest.mark.parametrize(
    ("text", "count", "position"),
    [("1,2", 3, 2), ("", 1, 0), ("1,", 1, 1), ("1,2,3", 2, 2), (",1", 2, 0), ("1,,2", 3, 1)],
)
def test_names_what_is_missing_or_too_much(text, count, position):
    assert read(text, count)[0] == position
