"""Tables for other libraries: pandas, and whatever takes Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from nadi.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["to_arrow", "to_pandas"]


def to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Return a table for pandas; kinds and categories are texts there.

    Raises
    ------
    UsageError
        If pandas or pyarrow is not installed.
    """
    try:
        return _with_texts(table).to_pandas()
    except ModuleNotFoundError as error:
        raise _missing("to_pandas()", "pandas pyarrow", error) from None


def to_arrow(table: pl.DataFrame) -> pa.Table:
    """Return a table as Arrow's; kinds and categories are texts there.

    Raises
    ------
    UsageError
        If pyarrow is not installed.
    """
    try:
        return _with_texts(table).to_arrow()
    except ModuleNotFoundError as error:
        raise _missing("to_arrow()", "pyarrow", error) from None


def _missing(asked: str, packages: str, error: ModuleNotFoundError) -> UsageError:
    return UsageError(asked, f"needs a package that is not installed: {error.name or packages}",
                      f"pip install {packages}")  # fmt: skip


def _with_texts(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.selectors.by_dtype(pl.Enum).cast(pl.String))
