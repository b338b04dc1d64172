"""Declared tables."""

from __future__ import annotations

import polars as pl
import pytest

from nadi.trace.schema import DEPS, GROUPS, MATCHES, NODES, TABLES, Table


def test_what_is_not_given_holds_the_missing_value() -> None:
    frame = NODES.build(2, {"id": [4, 5], "name": "op", "kind": "COMP", "category": "operator"})
    NODES.check(frame)
    assert frame["parent"].to_list() == [-1, -1]
    assert frame["comm_type"].to_list() == ["none", "none"]
    assert frame["is_cpu"].to_list() == [True, True]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"src": [1], "dst": [2]}, "'kind' must be given"),
        ({"src": [1], "dst": [2, 3], "kind": "call"}, "2 values for 1 rows"),
        ({"src": [1], "dst": [2], "kind": "call", "wight": 1}, "no column 'wight'"),
    ],
)
def test_wrong_columns_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DEPS.build(1, values)


def test_check_finds_wrong_types_and_nulls() -> None:
    good = MATCHES.build(1, {"collective": [0], "rank": [0], "node": [0]})
    MATCHES.check(good)
    with pytest.raises(ValueError, match="matches"):
        MATCHES.check(good.with_columns(rank=pl.lit(0, pl.Int32)))
    with pytest.raises(ValueError, match="1 nulls in column 'rank'"):
        MATCHES.check(good.with_columns(rank=pl.lit(None, pl.Int64)))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_empty_tables_are_of_their_schema(table: Table) -> None:
    table.check(table.empty())
    assert all(column.meaning for column in table.columns)


def test_lists_are_kept() -> None:
    frame = GROUPS.build(1, {"name": ["0"], "ranks": [[0, 1]]})
    assert frame["ranks"].to_list() == [[0, 1]]


def test_an_empty_table_that_is_changed_changes_no_other() -> None:
    frame = DEPS.empty()
    frame.insert_column(0, pl.Series("more", [], dtype=pl.Int64))
    assert DEPS.empty().columns == list(DEPS.dtypes)
