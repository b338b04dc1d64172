"""The events of one rank, as the analyses of recordings take them, and as HTA's parser has them.

How an analysis of one rank becomes one of a job: a table with a column ``rank``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import Concatenate, ParamSpec, Protocol

import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import parse_events, trace_name
from nadi.errors import InputError, checked
from nadi.files.communication_names import comm_type_of_kernel
from nadi.files.kineto.kineto_columns import NO_ARGUMENTS, NO_HOST_EVENTS
from nadi.files.remedies import OF_PYTORCH, remedies_of
from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import COPY_KERNELS
from nadi.trace.rows import nearest
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Job, Trace

KERNEL_TYPES = ("computation", "communication", "memory")
"""Memory is copies and memory sets; computation is every other kernel that does not communicate."""

_COMPUTATION, _COMMUNICATION, _MEMORY = range(len(KERNEL_TYPES))


@cache
def is_communication(name: str) -> bool:
    """Return whether a kernel communicates, by its name."""
    return comm_type_of_kernel(name) != "none"


def kernel_type_codes(name: pl.Series, category: pl.Series) -> Ints:
    """Return the type of device work, as its position in ``KERNEL_TYPES``.

    - ``name``, ``category``: Columns of ``schema.NODES``, shape (rows,).
    - Returns int64, shape (rows,): Each distinct name is looked at once.
    """
    distinct = name.unique()
    texts = distinct.cast(pl.String)
    talks = distinct.filter(pl.Series([is_communication(one) for one in texts], dtype=pl.Boolean))
    codes = np.where(name.is_in(talks.implode()).to_numpy(), _COMMUNICATION, _COMPUTATION)
    copies = distinct.filter(texts.str.contains(COPY_KERNELS))
    is_copy = category.is_in(["memcpy", "memset"]) | name.is_in(copies.implode())
    codes[is_copy.to_numpy()] = _MEMORY
    return codes.astype(np.int64)


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


_P = ParamSpec("_P")
_OneRank = Callable[Concatenate[RankEvents, _P], pl.DataFrame]


class _AllRanks(Protocol[_P]):
    """An analysis of a job, of a trace, or of several."""

    def __call__(self, source: Recorded, *args: _P.args, **kwargs: _P.kwargs) -> pl.DataFrame: ...


def per_rank(*needs: str, uses: tuple[str, ...] = ()) -> Callable[[_OneRank[_P]], _AllRanks[_P]]:
    """Make an analysis of one rank one of a job, in whose table each rank's rows come together.

    - ``needs``: What a recording must have, by the names in :data:`NEEDS`.
    - ``uses``: What the analysis takes into account where a recording has it.
    """

    def decorate(analysis: _OneRank[_P]) -> _AllRanks[_P]:
        @wraps(analysis)
        def of_all(source: Recorded, *args: _P.args, **kwargs: _P.kwargs) -> pl.DataFrame:
            parts = []
            for events in events_of_ranks(source):
                require(events, *needs)
                table = analysis(events, *args, **kwargs)
                rank = pl.Series("rank", np.full(table.height, events.rank, dtype=np.int64))
                parts.append(table.insert_column(0, rank))
            return pl.concat(parts) if parts else pl.DataFrame()

        of_all.needs = needs  # type: ignore[attr-defined]
        of_all.uses = uses  # type: ignore[attr-defined]
        return of_all

    return decorate


def require(events: RankEvents, *needs: str) -> None:
    """Check that a recording has what an analysis needs.

    - Raises InputError if not: what it lacks, and how to record it.
    """
    if why := missing(events, needs):
        raise InputError(trace_name(events.trace), *why)


def missing(events: RankEvents, needs: tuple[str, ...]) -> tuple[str, str] | None:
    """Return what a recording lacks and how to record it; None if it has all."""
    if "launches" in needs:
        needs = ("device work", *needs)
    for need in needs:
        has, what, remedy = NEEDS[need]
        if not has(events):
            tool = remedies_of(events.trace)
            if tool is not OF_PYTORCH and remedy not in ("", _PART):
                remedy = (tool.marks if need == "annotations" else "") or tool.names
            return what, remedy
    return None


_PART = "choose a part of it, with --step or --window of the command line"
_Has = Callable[[RankEvents], bool]
NEEDS: dict[str, tuple[_Has, str, str]] = {
    "device work": (
        lambda events: events.work.size > 0,
        "the recording has no device work",
        "record with ProfilerActivity.CUDA (or of your device)",
    ),
    "launches": (
        lambda events: bool((events.launcher[events.work] >= 0).any()),
        "no device work has the call that launched it",
        "record with ProfilerActivity.CPU too",
    ),
    "annotations": (
        lambda events: bool(events.is_of("annotation", "device_annotation").any()),
        "the recording has no user annotations",
        "mark parts of the program with torch.profiler.record_function",
    ),
    "copies": (
        lambda events: events.of_type("memory").size > 0,
        "the recording has no copies and no memory sets",
        "",
    ),
    "host events": (
        lambda events: events.work.size < events.table.height,
        "the recording has no host events",
        "record with ProfilerActivity.CPU too",
    ),
    "operators": (
        lambda events: not events.has_issue(NO_HOST_EVENTS),
        "the file is so large that its operators are not read",
        _PART,
    ),
    "arguments": (
        lambda events: not events.has_issue(NO_ARGUMENTS),
        "the file is so large that arguments of its events are not read",
        _PART,
    ),
}
"""What a recording may lack: how to see whether it has it, what to say, how to record it."""


@checked
def hta_events(
    traces: Sequence[Trace], at: int = 0, *, include_last_step: bool = False
) -> RankEvents:
    """Return the events of one rank with HTA's times: whole microseconds, without the last step.

    The analyses of recordings then come to HTA's figures: in them alone Nadi's differ where both
    are right. Times begin at the earliest event of any rank.

    Parameters
    ----------
    traces, at, include_last_step
        As in :func:`nadi.analyses.hta.recorded_fields.parse_events`.

    Raises
    ------
    InputError
        If a trace has no events.
    """
    events = parse_events(traces, at, include_last_step=include_last_step)
    index = events["index"].to_numpy()
    row_of = np.full(int(index.max(initial=-1)) + 2, -1, dtype=np.int64)
    row_of[index] = np.arange(index.size)
    partner = events["partner"].to_numpy()
    on_device = events["category"].is_in(DEVICE_WORK).to_numpy()
    table = events.select(
        "name", "category", "start", "duration", "thread", device="process", stream="stream",
        correlation="correlation", index="index",
    )  # fmt: skip
    work = table.filter(on_device)
    return RankEvents(
        traces[at].rank, table,
        np.where(on_device & (partner > 0), row_of[np.maximum(partner, -1)], -1),
        kernel_type_codes(work["name"], work["category"]), traces[at], events["node"].to_numpy(),
    )  # fmt: skip
