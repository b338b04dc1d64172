"""CSV: write each table of a trace as a text file."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nadi.model.trace import Trace

__all__ = ["encode_table", "file_of_table", "tables_of"]

_TABLES = ("nodes", "deps", "groups", "attrs", "issues")


def tables_of(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return the tables of a trace by name, each as :mod:`nadi.model.schema` declares it."""
    return {name: getattr(trace, name) for name in _TABLES}


def file_of_table(path: Path, table: str) -> Path:
    """Return the file of a table: ``out.nodes.csv.gz`` of ``out.csv.gz``."""
    compressed = ".gz" if path.name.endswith(".gz") else ""
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    return path.with_name(f"{stem}.{table}.csv{compressed}")


def encode_table(frame: pl.DataFrame) -> bytes:
    """Write a table as CSV, UTF-8, with a line of column names.

    Fields with a comma, a quote or a line end are quoted; a missing number is -1 as in
    the table; a list of numbers is JSON, such as ``"[0,1]"``. O(rows).
    """
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    as_json = [
        pl.format("[{}]", pl.col(name).cast(pl.List(pl.String)).list.join(",")).alias(name)
        for name in lists
    ]
    return frame.with_columns(as_json).write_csv().encode()
