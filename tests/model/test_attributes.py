"""Attributes give back what was put in, whatever happens to their nodes meanwhile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from nadi.trace.attributes import (
    AttributeBuilder,
    Attributes,
    JoinedAttributes,
    Part,
    combined,
)
from nadi.trace.protobuf_values import LIST_TYPES, SCALAR_TYPES

RANGES = {
    "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1), "sint32": (-(2**31), 2**31 - 1), "sint64": (-(2**63), 2**63 - 1),
    "fixed32": (0, 2**32 - 1), "fixed64": (0, 2**64 - 1), "sfixed32": (-(2**31), 2**31 - 1),
    "sfixed64": (-(2**63), 2**63 - 1),
}  # fmt: skip


def scalars(type_name: str) -> st.SearchStrategy[Any]:
    """Make values of one of Chakra's scalar types."""
    if type_name in RANGES:
        return st.integers(*RANGES[type_name])
    return {
        "double": st.floats(allow_nan=False),
        "float": st.floats(width=32, allow_nan=False),
        "bool": st.booleans(),
        "string": st.text(max_size=12),
        "bytes": st.binary(max_size=12),
    }[type_name]


def typed_values() -> st.SearchStrategy[tuple[str, Any]]:
    """Make a type and a value of it."""
    one = [st.tuples(st.just(name), scalars(name)) for name in SCALAR_TYPES]
    many = [
        st.tuples(st.just(name), st.lists(scalars(name.removesuffix("_list")), max_size=4))
        for name in LIST_TYPES
    ]
    return st.one_of(*one, *many)


Row = tuple[int, str, str, Any]
rows = st.lists(
    st.tuples(st.integers(-1, 5), st.sampled_from("abc"), typed_values()).map(
        lambda row: (row[0], row[1], *row[2])
    ),
    max_size=12,
)


def build(given_rows: list[Row]) -> Attributes:
    builder = AttributeBuilder()
    for row in given_rows:
        builder.add(*row)
    return builder.build()


def in_order(given_rows: list[Row]) -> list[Row]:
    return sorted(given_rows, key=lambda row: row[0])


@given(rows)
def test_values_come_back(given_rows: list[Row]) -> None:
    assert list(build(given_rows).items()) == in_order(given_rows)


@given(rows, st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_they_go_where_their_nodes_go(
    given_rows: list[Row], where: list[int], lost: set[int]
) -> None:
    new_row = np.array([-1 if node in lost else where[node] for node in range(6)])
    expected = [
        (-1 if row[0] < 0 else int(new_row[row[0]]), *row[1:])
        for row in given_rows
        if row[0] not in lost
    ]
    assert list(build(given_rows).moved(new_row).items()) == in_order(expected)


@given(rows, rows)
def test_those_of_two_files_stand_one_after_the_other(one: list[Row], other: list[Row]) -> None:
    assert list(build(one).joined(build(other)).items()) == in_order(one + other)
    joined = JoinedAttributes(lambda: (Part(build(one)), Part(build(other))))
    parts = [list(part.attributes.items()) for part in joined.parts]
    assert parts == [in_order(one), in_order(other)]
    assert list(joined.value.items()) == in_order(one + other)
    (whole,) = joined.parts
    assert whole.attributes is joined.value


@given(rows, rows, st.permutations(range(6)), st.sets(st.integers(0, 5)), st.sampled_from("abc"))
def test_those_with_a_name_are_found_in_each_part(
    one: list[Row], other: list[Row], where: list[int], lost: set[int], name: str
) -> None:
    new_row = np.array([-1 if node in lost else where[node] for node in range(6)])
    is_kept = np.arange(len(other)) % 3 != 1
    parts = [Part(build(one), new_row), Part(build(other), None, is_kept)]
    found = [
        (int(node), *list(part.attributes.items())[row][2:])
        for part in parts
        for row, node in zip(*part.named(name), strict=True)
    ]
    joined = combined(parts)
    expected = [(row[0], *row[2:]) for row in joined.items() if row[1] == name]
    assert sorted(found, key=lambda row: row[0]) == expected


@given(rows, st.sets(st.integers(0, 11)))
def test_what_is_left_can_lie_in_bytes_of_its_own(given_rows: list[Row], lost: set[int]) -> None:
    attributes = build(given_rows)
    kept = np.array([row not in lost for row in range(len(given_rows))], dtype=np.bool_)
    left = attributes.filtered(kept).with_own_bytes()
    expected = [row for row, is_kept in zip(attributes.items(), kept, strict=True) if is_kept]
    assert list(left.items()) == expected
    assert sum(buffer.size for buffer in left.buffers) == left.length[left.is_span].sum()


def test_the_table_writes_every_value_as_text() -> None:
    attributes = build([
        (-1, "schema", "string", "1.1.1"), (0, "a", "uint64", 2**64 - 1), (0, "b", "bool", True),
        (2, "c", "double", math.nan), (2, "d", "int32_list", [1, -2]), (3, "e", "bytes", b"\xff"),
    ])  # fmt: skip
    assert attributes.table().rows() == [
        (-1, "schema", "string", "1.1.1"),
        (0, "a", "uint64", "18446744073709551615"),
        (0, "b", "bool", "true"),
        (2, "c", "double", "nan"),
        (2, "d", "int32_list", "[1,-2]"),
        (3, "e", "bytes", "/w=="),
    ]
    assert attributes.of(2)["d"] == [1, -2]
    assert attributes.rows_named("e").tolist() == [5]
    assert attributes.rows_named("z").tolist() == []
