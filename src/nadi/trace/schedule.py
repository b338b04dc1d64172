"""Schedule: when each operation ran; one table for measured and replayed runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from nadi.trace.schema import SCHEDULE
from nadi.trace.tables.trace_tables import to_arrow, to_pandas

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Schedule:
    """When each operation of a job ran (``schema.SCHEDULE``)."""

    table: pl.DataFrame

    def __post_init__(self) -> None:
        SCHEDULE.check(self.table)

    def __repr__(self) -> str:
        return f"<Schedule operations={self.table.height} makespan={self.makespan} ns>"

    @property
    def makespan(self) -> int:
        """Time from the first start to the last end, in ns; 0 without operations."""
        if self.table.is_empty():
            return 0
        ends: int = self.table["end"].max()  # type: ignore[assignment]
        starts: int = self.table["start"].min()  # type: ignore[assignment]
        return ends - starts

    def to_pandas(self) -> pd.DataFrame:
        """Return the table for pandas.

        Raises
        ------
        UsageError
            If pandas or pyarrow is not installed.
        """
        return to_pandas(self.table)

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's.

        Raises
        ------
        UsageError
            If pyarrow is not installed.
        """
        return to_arrow(self.table)
