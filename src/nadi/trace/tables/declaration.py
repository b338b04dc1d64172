"""Declarations of tables, and what follows from them: building and checking of data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from nadi.forks import refuse_in_fork

_FEW = 4096  # rows up to which preparing an expression takes longer than the column


@dataclass(frozen=True)
class Column:
    """One column: its name, type, meaning, unit, and the value of a missing entry."""

    name: str
    dtype: pl.DataType | type[pl.DataType]
    meaning: str
    unit: str = ""
    missing: Any = None  # None: every row has a value
    references: str = ""

    @property
    def instance(self) -> pl.DataType:
        """The type as an instance, as data frames show it."""
        return self.dtype() if isinstance(self.dtype, type) else self.dtype


@dataclass(frozen=True)
class Table:
    """One table: what a row describes, its columns, and the rules that rows obey, by code."""

    name: str
    row: str
    columns: tuple[Column, ...]
    rules: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def dtypes(self) -> dict[str, pl.DataType | type[pl.DataType]]:
        """The polars schema of the table."""
        return {column.name: column.dtype for column in self.columns}

    def build(self, length: int, values: Mapping[str, Any]) -> pl.DataFrame:
        """Make a frame of this table; a column not given holds its missing value.

        - ``length``: Number of rows.
        - ``values``: Per column an array, list or polars series of that length, or one value.
        - Raises ValueError if a column is unknown, has another length, or is required and not
          given.
        - Raises UsageError: In a fork of a process in which Nadi has worked.
        """
        refuse_in_fork()
        unknown = set(values) - set(self.dtypes)
        if unknown:
            raise ValueError(f"table {self.name} has no column {sorted(unknown)[0]!r}")
        series = []
        constants = {}
        for column in self.columns:
            value = values.get(column.name, column.missing)
            if value is None:
                raise ValueError(f"column {column.name!r} must be given")
            if not isinstance(value, (str, int, bool)):
                series.append(_series(column, length, value))
            elif length <= _FEW:
                series.append(self._constant(column, value).head(length))
            else:
                constants[column.name] = pl.lit(value).cast(column.dtype)
        if not length:
            return self.empty()
        if not constants:
            return pl.DataFrame(series)
        rows = pl.DataFrame(series or {"": pl.repeat(0, length, eager=True)})
        # polars keeps a constant as one value: most columns of most traces cost nothing
        return rows.with_columns(**constants).select(list(self.dtypes))

    def _constant(self, column: Column, value: Any) -> pl.Series:
        """Return a column of one value, which the columns of small tables are slices of."""
        key = column.name, value
        if key not in self._constants:
            repeated = pl.repeat(value, _FEW).cast(column.dtype)
            self._constants[key] = pl.select(repeated.alias(column.name)).to_series()
        return self._constants[key]

    @cached_property
    def _constants(self) -> dict[tuple[str, Any], pl.Series]:
        return {}

    def compact(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the same frame, whose columns of missing values alone take no memory."""
        missing = {
            column.name: column.missing
            for column in self.columns
            if column.missing is not None and (frame[column.name] == column.missing).all()
        }
        return self.build(frame.height, {**frame.to_dict(), **missing})

    def empty(self) -> pl.DataFrame:
        """Make a frame of this table without rows."""
        return self._empty.clone()

    @cached_property
    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.dtypes)

    def check(self, frame: pl.DataFrame) -> None:
        """Raise ValueError unless ``frame`` has exactly the declared columns and no nulls."""
        if frame.columns != list(self.dtypes) or frame.dtypes != self._instances:
            raise ValueError(f"table {self.name}: expected {self.dtypes}, got {dict(frame.schema)}")
        for series in frame.get_columns():
            if nulls := series.null_count():
                raise ValueError(f"table {self.name}: {nulls} nulls in column {series.name!r}")

    @cached_property
    def _instances(self) -> list[pl.DataType]:
        return [column.instance for column in self.columns]


def _series(column: Column, length: int, value: Any) -> pl.Series:
    if isinstance(value, pl.Series):
        series = value.alias(column.name)
        if series.dtype != column.dtype:
            series = series.cast(column.dtype)
    else:
        series = pl.Series(column.name, value, dtype=column.dtype)
    if len(series) != length:
        raise ValueError(f"column {column.name!r}: {len(series)} values for {length} rows")
    return series
