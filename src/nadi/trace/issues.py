"""Problems found while reading: collected, kept with the trace, never dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from nadi.trace.schema import ISSUES


@dataclass(frozen=True)
class Issue:
    """One kind of problem: stable code, severity, count, description and remedy."""

    code: str
    severity: str
    count: int
    detail: str
    remedy: str = ""


class IssueLog:
    """Collects issues; those with a count of zero are not issues."""

    def __init__(self) -> None:
        self._issues: list[Issue] = []

    def add(self, code: str, severity: str, count: int, detail: str, remedy: str = "") -> None:
        """Record a problem that occurred ``count`` times; 0 records nothing."""
        if count:
            self._issues.append(Issue(code, severity, count, detail, remedy))

    def has(self, code: str) -> bool:
        """Return whether a problem of this code was recorded."""
        return any(issue.code == code for issue in self._issues)

    def add_all(self, other: IssueLog) -> None:
        """Append the issues of another log."""
        self._issues += other._issues

    def table(self) -> pl.DataFrame:
        """Return the issues as a table (``schema.ISSUES``)."""
        if not self._issues:
            return ISSUES.empty()
        columns = {
            "code": [issue.code for issue in self._issues],
            "severity": [issue.severity for issue in self._issues],
            "count": [issue.count for issue in self._issues],
            "detail": [issue.detail for issue in self._issues],
            "remedy": [issue.remedy for issue in self._issues],
        }
        return ISSUES.build(len(self._issues), columns)


def summed_issues(tables: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Sum the issues of several traces: one row for issues that differ only in their count.

    ``schema.ISSUES``, in the order of first occurrence.
    """
    summed: pl.DataFrame = (
        pl.concat([ISSUES.empty(), *tables])
        .group_by("code", "severity", "detail", "remedy", maintain_order=True)
        .agg(pl.col("count").sum())
        .select(list(ISSUES.dtypes))
    )
    return summed
