"""The events of one rank, as the analyses of recordings take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from nadi.analyses.recorded.kernel_types import KERNEL_TYPES, kernel_type_codes
from nadi.errors import checked
from nadi.recordings.dependencies.launch_correlation import launcher_rows
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Job, Trace

__all__ = ["RankEvents", "Recorded", "events_of", "events_of_ranks"]

COLUMNS = ("name", "category", "start", "duration", "thread", "device", "stream", "correlation")


@dataclass(frozen=True, eq=False)
class RankEvents:
    """The events of one rank.

    Attributes
    ----------
    rank
        Global rank; -1 if the file does not state it.
    table
        A row per event: ``name``, ``category``, ``start`` and ``duration`` (int64 ns), ``thread``,
        ``device``, ``stream``, ``correlation``, as in ``schema.NODES``.
    launcher
        int64, shape (events,): the row of the call that launched each, or -1.
    type_codes
        int64, shape (device work,): the type of device work, a position in ``KERNEL_TYPES``.
    trace
        The trace that they come from; its rows are theirs, unless ``node`` says otherwise.
    node
        int64, shape (events,): the node of each event, or -1; None if it is the row itself.
    """

    rank: int
    table: pl.DataFrame
    launcher: Ints
    type_codes: Ints
    trace: Trace
    node: Ints | None = None

    def column(self, name: str) -> Ints:
        """Return a column of integers as int64, shape (events,)."""
        return self.table[name].to_numpy()

    def is_of(self, *categories: str) -> Bools:
        """Return which events are of any of ``categories``; bool, shape (events,)."""
        return self.table["category"].is_in(categories).to_numpy()

    @cached_property
    def work(self) -> Ints:
        """The rows of device work, int64, shape (device work,): kernels, copies, memory sets."""
        return np.flatnonzero(self.is_of(*DEVICE_WORK))

    @cached_property
    def end(self) -> Ints:
        """The end of each event in ns; int64, shape (events,)."""
        return self.column("start") + self.column("duration")

    @cached_property
    def parent(self) -> Ints:
        """The row that encloses each host event on its thread, or -1; int64, shape (events,)."""
        if (known := self.trace.column("parent")).max(initial=-1) >= 0 and self.node is None:
            return known
        parent = np.full(self.table.height, -1, dtype=np.int64)
        nesting = nest(self.trace)
        rows, above = nesting.rows, nesting.parent_row
        if self.node is not None:
            row_of = np.full(self.trace.nodes.height + 1, -1, dtype=np.int64)
            row_of[self.node] = np.arange(self.node.size)
            row_of[-1] = -1
            rows, above = row_of[rows], row_of[above]
            rows, above = rows[rows >= 0], above[rows >= 0]
        parent[rows] = above
        return parent

    def of_type(self, *types: str) -> Ints:
        """Return the rows of device work of some types of ``KERNEL_TYPES``, int64."""
        return self.work[np.isin(self.type_codes, [KERNEL_TYPES.index(one) for one in types])]

    def has_issue(self, code: str) -> bool:
        """Return whether a problem was met when the trace was read."""
        return bool((self.trace.issues["code"] == code).any())

    def around(self, rows: Ints, wanted: Bools) -> Ints:
        """Return the nearest wanted event at or around each row, or -1; int64."""
        return nearest(rows, self.parent, wanted)


Recorded = Job | Trace | RankEvents | Iterable[Trace]
"""What an analysis takes: a job, one rank, or several."""


@checked
def events_of(trace: Trace) -> RankEvents:
    """Return the events of a trace, as read or linked. O(nodes log nodes)."""
    table = trace.nodes.select(COLUMNS)
    is_work = table["category"].is_in(DEVICE_WORK)
    work = table.select("name", "category").filter(is_work)
    return RankEvents(
        trace.rank, table, launcher_rows(trace),
        kernel_type_codes(work["name"], work["category"]), trace,
    )  # fmt: skip


def events_of_ranks(source: Recorded) -> Iterable[RankEvents]:
    """Yield the events of each rank of what an analysis is given."""
    if isinstance(source, RankEvents):
        yield source
    elif isinstance(source, Trace):
        yield events_of(source)
    else:
        traces = source.traces if isinstance(source, Job) else source
        yield from (events_of(trace) for trace in traces)
