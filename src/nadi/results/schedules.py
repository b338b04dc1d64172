"""Schedules that programs wrote: logs of issued nodes, and the tables of ``nadi simulate``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.csv_tables import as_written, read_table
from nadi.files.files import read_file
from nadi.files.issue_lines import decode_issue_lines, looks_like_issue_lines
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog

_COLUMNS = ("rank", "id", "name", "start", "end", "resource")
_HEAD = 4096


def read_schedule(path: Path, cycles_per_second: float, log: IssueLog) -> pl.DataFrame:
    """Read when each operation of a job ran.

    - ``path``: A log of issued and completed nodes, or a table that ``nadi simulate -o FILE.csv``
      wrote; compressed ones too.
    - ``cycles_per_second``: What times in a log count.
    - ``log``: Collects what is left out.
    - Returns: rank, id, name, start, end (int64 ns, rounded), resource.
    - Raises InputError if the file cannot be read.
    - Raises FormatError if it is neither, or has a line that is wrong.
    """
    content = bytes(read_file(path).content)
    if looks_like_issue_lines(content[:_HEAD]):
        found = decode_issue_lines(str(path), content, log)
        ns = [_ns(found[side].to_numpy(), cycles_per_second) for side in ("begin", "end")]
        found = found.select(
            "id", "name", rank="npu", resource="lane", start=pl.Series(ns[0]),
            end=pl.Series(ns[1]),
        ).select(_COLUMNS)  # fmt: skip
        return _of_ranks(path, found)
    head = content[:_HEAD].split(b"\n", 1)[0].decode(errors="replace").strip().split(",")
    if set(_COLUMNS) <= set(head):
        return _of_ranks(path, _table(path, content))
    raise FormatError(
        str(path), "is no schedule",
        "give a log with lines such as issue,npu_id=0,curr_cycle=5,node_id=1,node_name=x, or a "
        ".csv of nadi simulate; nadi convert draws traces",
    )  # fmt: skip


def _of_ranks(path: Path, found: pl.DataFrame) -> pl.DataFrame:
    """Return a schedule; FormatError if a rank is none that a trace may have."""
    wrong = found.filter(~pl.col("rank").is_between(-1, (1 << 31) - 1))["rank"]
    if wrong.len():
        raise FormatError(
            str(path), f"has the rank {wrong[0]}", "a rank is a number from -1 to 2147483647"
        )
    return found


def _ns(cycles: Ints, per_second: float) -> Ints:
    times: Ints = np.rint(cycles * (1e9 / per_second)).astype(np.int64)
    return times


def _table(path: Path, content: bytes) -> pl.DataFrame:
    types = dict.fromkeys(_COLUMNS, pl.Int64) | dict.fromkeys(("name", "resource"), pl.String)
    found = read_table(str(path), content, types, "write it again")
    wrong = found.filter((pl.col("end") < pl.col("start")) | pl.col("start").is_null())
    if wrong.height or found.null_count().select("rank", "end").sum_horizontal().item():
        raise FormatError(str(path), "has a row without a time, or that ends before it begins",
                          "write it again with nadi simulate -o FILE.csv")  # fmt: skip
    texts = as_written(pl.col("name", "resource")).fill_null("")
    return found.with_columns(texts).select(_COLUMNS)
