"""CSV: each table of a trace as text that any other program reads. Writing."""

from __future__ import annotations

import polars as pl

from nadi.trace import Trace

__all__ = ["encode_table", "tables_of"]


def tables_of(trace: Trace) -> dict[str, pl.DataFrame]:
    """Give the tables of a trace by name, each as :mod:`nadi.schema` declares it."""
    return {
        "nodes": trace.nodes,
        "deps": trace.deps,
        "groups": trace.groups,
        "attrs": trace.attrs,
        "issues": trace.issues,
    }


def encode_table(frame: pl.DataFrame) -> bytes:
    """Write a table as CSV, UTF-8, with a line of column names.

    Fields with a comma, a quote or a line end stand in quotes; a missing number is -1 as in
    the table; a list of numbers is JSON, such as ``"[0,1]"``. O(rows).
    """
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    as_json = [
        pl.format("[{}]", pl.col(name).cast(pl.List(pl.String)).list.join(",")).alias(name)
        for name in lists
    ]
    return frame.with_columns(as_json).write_csv().encode()
