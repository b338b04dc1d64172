"""Writing CSV."""

from __future__ import annotations

import csv
import io
import json

import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.files.csv_tables import as_written, encode_table, trace_tables
from nadi.trace.schema import ATTRS, DEPS, GROUPS, ISSUES, NODES, Table
from nadi.trace.trace import Trace
from tests.formats.graphs import HARD_NAMES, make_trace

TABLES = {"nodes": NODES, "deps": DEPS, "groups": GROUPS, "attrs": ATTRS, "issues": ISSUES}


def read_back(content: bytes, table: Table) -> pl.DataFrame:
    """Read CSV with Python's own reader, and give it the table's types again."""
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
    columns = {}
    for position, (name, dtype) in enumerate(table.dtypes.items()):
        texts = pl.Series([row[position] for row in rows], dtype=pl.String)
        texts = pl.select(as_written(pl.lit(texts))).to_series()
        if isinstance(dtype, pl.List) or dtype == pl.Boolean:
            columns[name] = pl.Series([json.loads(text) for text in texts], dtype=dtype)
        else:
            columns[name] = pl.Series(texts, dtype=pl.String).cast(dtype)
    assert header == list(table.dtypes)
    return pl.DataFrame(columns, schema=table.dtypes)


def assert_all_come_back(trace: Trace) -> None:
    tables = trace_tables(trace)
    assert list(tables) == list(TABLES)
    for name, frame in tables.items():
        back = read_back(encode_table(frame), TABLES[name])
        assert back.rows() == printable(frame).rows()


def printable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table without characters that are not shown, which no file of CSV has."""
    control = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    return frame.with_columns(pl.col(texts).str.replace_all(control, "\ufffd"))


def test_every_table_reads_back_equal(demo_run: nadi.bottlenecks.Run) -> None:
    assert_all_come_back(demo_run.job.traces[0])


def test_names_lists_and_attributes_read_back_equal() -> None:
    assert_all_come_back(make_trace(HARD_NAMES, [(0, 1, "data")], [(2, "ctrl_deps[0]", 0)]))


def test_an_empty_table_is_a_line_of_names() -> None:
    assert encode_table(DEPS.empty()) == b"src,dst,kind,inferred\n"


def test_lists_are_json_in_quotes() -> None:
    frame = GROUPS.build(3, {"name": ["a", "b", "c"], "ranks": [[0, 1], [], [7]]})
    assert encode_table(frame).splitlines()[1:] == [
        b'a,"","[0,1]",""', b'b,"",[],""', b'c,"",[7],""',
    ]  # fmt: skip


@given(
    st.lists(st.text(alphabet=st.sampled_from(',"\n\r\t;\\\0a ü\u2028'), max_size=5), max_size=4)
)
def test_any_text_reads_back_equal(texts: list[str]) -> None:
    columns = {"code": texts, "severity": "info", "count": 1, "detail": texts}
    frame = ISSUES.build(len(texts), columns)
    assert read_back(encode_table(frame), ISSUES).rows() == printable(frame).rows()


@pytest.mark.parametrize("name", ["nodes", "deps", "issues"])
def test_polars_reads_it_too(demo_run: nadi.bottlenecks.Run, name: str) -> None:
    frame = trace_tables(demo_run.job.traces[0])[name]
    back = pl.read_csv(encode_table(frame), schema=dict(frame.schema))
    assert back.rows() == frame.rows()
