"""CSV: write each table of a trace as a text file, and read a table of numbers and texts."""

import io
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from nadi.errors import InputError
from nadi.files.native.nadi_file import first_line
from nadi.files.parquet_process import read_parquet_apart
from nadi.trace.trace import Trace
from nadi.units import UNSHOWN

_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_CONTROL = f"[{UNSHOWN}]"
_FORMULA = r"^'*[=+\-@\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}\t\r\n]"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
_ESCAPED = r"^'('*[=+\-@\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}\t\r\n])"
_PARQUET = b"PAR1"
TABLE_FILES = (".parquet", ".csv", ".csv.gz")
_TABLES = ("nodes", "deps", "groups", "attrs", "issues")


def trace_tables(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return the tables of a trace by name, each as :mod:`nadi.trace.schema` declares it."""
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
    return csv_bytes(frame.with_columns(as_json))


def csv_bytes(frame: pl.DataFrame, *, header: bool = True) -> bytes:
    """Write a table as CSV, in which no text is a formula, and none has what is not shown.

    Spreadsheets compute what begins with one of ``= + - @``, a tab or a line end: such a text gets
    an apostrophe before it, unless it is a number. :func:`as_written` takes it away. O(rows).
    """
    texts = [name for name, dtype in frame.schema.items() if dtype in _TEXTS]
    safe = frame.with_columns(_safe(pl.col(name).cast(pl.String)).alias(name) for name in texts)
    return safe.write_csv(include_header=header).encode()


def read_table(
    name: str, content: bytes, columns: Mapping[str, type[pl.DataType]], remedy: str
) -> pl.DataFrame:
    """Read columns of a CSV or Parquet file; others are passed over.

    - Raises InputError if one is missing, or has other values; the message names the file.
    """
    try:
        if content[: len(_PARQUET)] == _PARQUET:
            found = read_parquet_apart(content, list(columns))
            return found.select(pl.col(key).cast(dtype) for key, dtype in columns.items())
        return pl.read_csv(
            io.BytesIO(content), columns=list(columns), schema_overrides=dict(columns)
        ).select(list(columns))
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise InputError(name, f"is no table: {first_line(error)}", remedy) from None


def read_parquet(name: str, content: bytes, remedy: str) -> pl.DataFrame:
    """Read all columns of a Parquet file.

    - Raises InputError if it is none, or claims far more rows than its bytes can hold; the message
      names the file.
    """
    try:
        return read_parquet_apart(content)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise InputError(name, f"is no table: {first_line(error)}", remedy) from None


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Write a table as Parquet; polars does not tell a full disk from other errors. O(rows)."""
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


def _safe(texts: pl.Expr) -> pl.Expr:
    clean = texts.str.replace_all(_CONTROL, "\ufffd")
    is_formula = clean.str.contains(_FORMULA) & ~clean.str.contains(_NUMBER)
    return pl.when(is_formula).then(pl.concat_str(pl.lit("'"), clean)).otherwise(clean)


def as_written(texts: pl.Expr) -> pl.Expr:
    """Return texts of a CSV file as they were before :func:`csv_bytes` wrote them."""
    return texts.str.replace(_ESCAPED, "$1")
