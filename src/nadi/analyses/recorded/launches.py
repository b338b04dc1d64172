"""What operators launch, after which delay, and what waits in the queues of streams."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.recordings.graph_replays.joining import GRAPH_LAUNCH
from nadi.trace.arrays import Ints, text_codes

_ARROW = " -> "
_Words = npt.NDArray[np.uint64]


@per_rank("operators", "launches")
def operator_delays(events: RankEvents) -> pl.DataFrame:
    """Measure the delays between operators, launches and kernels.

    An operator counts for the kernels that its own calls launch, without those of operators in it.

    Returns
    -------
    polars.DataFrame
        A row per operator and sequence of kernels: ``operator``, ``sequence`` (names in order of
        launch), ``kernels``, ``count``, ``call_delay_ns`` (mean, from the start of the operator to
        its first launch), ``kernel_delay_ns`` (mean, from there to the first kernel's start),
        ``work_ns`` (mean of the sum of kernels). O(work * depth).
    """
    rows = events.work[events.is_of("kernel")[events.work] & (events.launcher[events.work] >= 0)]
    operator = events.around(events.launcher[rows], events.is_of("operator"))
    rows, operator = rows[operator >= 0], operator[operator >= 0]
    return (
        _sequences(events, rows, operator)
        .group_by("operator", "sequence", "kernels")
        .agg(
            count=pl.len().cast(pl.Int64), call_delay_ns=pl.mean("call_delay"),
            kernel_delay_ns=pl.mean("kernel_delay"), work_ns=pl.mean("work"),
        )
        .sort("operator", "sequence")
    )  # fmt: skip


@per_rank("operators", "launches")
def kernel_sequences(
    events: RankEvents, operator: str = "", shortest: int = 3, most: int = 50
) -> pl.DataFrame:
    """Find the sequences of device work that operators launch most, with all that is in them.

    Frequent sequences of short kernels are candidates for fusion.

    Parameters
    ----------
    events
        A job, a trace, or several.
    operator
        Only operators of this name; by default all.
    shortest
        The least number of pieces of work in a sequence.
    most
        So many sequences of each rank.

    Returns
    -------
    polars.DataFrame
        ``operator``, ``sequence`` (names in order of launch), ``kernels`` (their number),
        ``count``, ``work_ns`` (of the device, summed over all), ``operator_ns`` (durations of the
        operators, summed); the most work first. O(work * depth).
    """
    pairs = _contained_work(events, operator)
    if pairs.height == 0:
        return pl.DataFrame(schema=_SEQUENCE)
    row, work = pairs["row"].to_numpy(), pairs["work"].to_numpy()
    first = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    length = np.diff(np.append(first, row.size))
    position = np.arange(row.size) - np.repeat(first, length)
    # sums of hashes by position distinguish sequences without a text for each
    names = text_codes(events.table["name"]).astype(np.uint64)
    mixed = _mix(names[work] + _mix(position.astype(np.uint64)))
    instances = pl.DataFrame({
        "operator": events.table["name"].gather(row[first]).cast(pl.String),
        "hash": np.add.reduceat(mixed, first), "kernels": length, "first": first,
        "work": np.add.reduceat(events.column("duration")[work], first),
        "duration": events.column("duration")[row[first]],
    }).filter(pl.col("kernels") >= shortest)  # fmt: skip
    table = instances.group_by("operator", "hash", "kernels").agg(
        count=pl.len().cast(pl.Int64), work_ns=pl.sum("work"), operator_ns=pl.sum("duration"),
        first=pl.min("first"),
    ).sort("work_ns", "operator", "first", descending=[True, False, False]).head(most)  # fmt: skip
    sequences = [
        _ARROW.join(events.table["name"].gather(work[begin : begin + size]).to_list())
        for begin, size in table.select("first", "kernels").iter_rows()
    ]
    texts = pl.Series(sequences, dtype=pl.String)
    return table.with_columns(sequence=texts).select(list(_SEQUENCE))


def _contained_work(events: RankEvents, operator: str) -> pl.DataFrame:
    """Return each operator (``row``) with each piece of ``work`` launched in it, in order."""
    is_operator = events.is_of("operator")
    if operator:
        is_operator &= (events.table["name"] == operator).to_numpy()
    start = events.column("start")
    work = events.work[events.launcher[events.work] >= 0]
    work = work[np.lexsort((work, start[work], start[events.launcher[work]]))]
    at, around = np.arange(work.size), events.launcher[work]
    parts = []
    while True:
        around = events.around(around, is_operator)
        kept = around >= 0
        at, around, work = at[kept], around[kept], work[kept]
        parts.append(pl.DataFrame({"row": around, "at": at, "work": work}))
        if at.size == 0:
            return pl.concat(parts).sort("row", "at")
        around = events.parent[around]


_SEQUENCE = {
    "operator": pl.String, "sequence": pl.String, "kernels": pl.Int64, "count": pl.Int64,
    "work_ns": pl.Int64, "operator_ns": pl.Int64,
}  # fmt: skip


def _mix(values: _Words) -> _Words:
    """Spread integers over 64 bits (the finalizer of SplitMix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _sequences(events: RankEvents, rows: Ints, operator: Ints) -> pl.DataFrame:
    """Return a row per operator that launches: the kernels in order, and its delays."""
    start, call = events.column("start"), events.launcher[rows]
    table = pl.DataFrame({
        "row": operator, "name": events.table["name"].gather(rows),
        "launched": start[call], "begun": start[rows],
        "duration": events.column("duration")[rows],
    }).sort("row", "launched", "begun", maintain_order=True)  # fmt: skip
    grouped = table.group_by("row", maintain_order=True).agg(
        pl.col("name"), pl.first("launched"), pl.first("begun"), work=pl.sum("duration"),
        kernels=pl.len().cast(pl.Int64),
    )  # fmt: skip
    row = grouped["row"].to_numpy()
    return grouped.select(
        operator=events.table["name"].gather(row).cast(pl.String),
        sequence=pl.col("name").cast(pl.List(pl.String)).list.join(_ARROW),
        kernels="kernels",
        call_delay=pl.col("launched") - pl.Series(start[row]),
        kernel_delay=pl.col("begun") - pl.col("launched"),
        work="work",
    )


@per_rank("launches")
def launches(events: RankEvents) -> pl.DataFrame:
    """List device work with the call that launched it.

    Returns
    -------
    polars.DataFrame
        In order of launch: ``correlation``, ``call`` and ``name``, ``call_ns`` and ``work_ns``
        (their durations), ``delay_ns`` (from the end of the call to the start of the work, 0 if it
        starts before). Work of a CUDA or HIP graph is that of the call that launched the graph.
        O(work log work).
    """
    return _launched(events).drop("row")


def _launched(events: RankEvents) -> pl.DataFrame:
    rows = events.work[events.launcher[events.work] >= 0]
    rows = rows[np.lexsort((rows, events.column("start")[events.launcher[rows]]))]
    call, names = events.launcher[rows], events.table["name"].cast(pl.String)
    # of a graph the host called only its launch, in which the calls of the capture are placed
    is_graph = events.is_of("runtime", "driver") & names.str.contains(GRAPH_LAUNCH).to_numpy()
    graph = events.around(call, is_graph)
    call = np.where(graph >= 0, graph, call)
    return pl.DataFrame({
        "row": call, "correlation": events.column("correlation")[rows],
        "call": names.gather(call), "name": names.gather(rows),
        "call_ns": events.column("duration")[call],
        "work_ns": events.column("duration")[rows],
        "delay_ns": np.maximum(events.column("start")[rows] - events.end[call], 0),
    })  # fmt: skip


@per_rank("launches")
def launch_summary(
    events: RankEvents, long_call_ns: int = 50_000, long_delay_ns: int = 100_000
) -> pl.DataFrame:
    """Summarize launches by call.

    Parameters
    ----------
    events
        A job, a trace, or several.
    long_call_ns, long_delay_ns
        Above which calls and delays count as outliers.

    Returns
    -------
    polars.DataFrame
        ``call``, ``count`` (of calls that launched work), ``call_ns``, ``work_ns`` (of all that a
        call launched) and ``delay_ns`` (to the first of it; medians), ``short`` (work shorter than
        its call: the host cannot keep the device busy), ``long_calls``, ``long_delays``,
        ``short_percent``; the most frequent first.
    """
    return (
        _launched(events)
        .group_by("row", "call")
        .agg(pl.first("call_ns"), pl.sum("work_ns"), pl.min("delay_ns"))
        .group_by("call")
        .agg(
            count=pl.len().cast(pl.Int64), call_ns=pl.median("call_ns"),
            work_ns=pl.median("work_ns"), delay_ns=pl.median("delay_ns"),
            short=(pl.col("work_ns") < pl.col("call_ns")).sum().cast(pl.Int64),
            long_calls=(pl.col("call_ns") > long_call_ns).sum().cast(pl.Int64),
            long_delays=(pl.col("delay_ns") > long_delay_ns).sum().cast(pl.Int64),
        )
        .with_columns(short_percent=100 * pl.col("short") / pl.col("count"))
        .sort("count", "call", descending=[True, False])
    )  # fmt: skip


_STATISTICS = ("mean", "std", "min", "p25", "median", "p75", "max")


@per_rank("launches")
def queue_lengths(events: RankEvents) -> pl.DataFrame:
    """Follow the length of each stream's queue.

    A call that launches work makes the queue of its stream longer when the call starts; the work
    makes it shorter when it starts. Launches come first where both happen at once.

    Returns
    -------
    polars.DataFrame
        A row per change, in order of time on each stream: ``device``, ``stream``, ``time_ns``
        (since the rank's first event), ``length`` after it. O(work log work).
    """
    return pl.concat(
        one.changes.select(
            *one.names(), "time_ns", "length",
        )
        for one in _queues(events)
    )  # fmt: skip


@per_rank("launches")
def queue_summary(events: RankEvents) -> pl.DataFrame:
    """Summarize the length of each stream's queue.

    Returns
    -------
    polars.DataFrame
        ``device``, ``stream``, ``changes``; ``mean``, ``std``, ``min``, ``p25``, ``median``,
        ``p75``, ``max`` of the length over its changes, as HTA counts; ``mean_over_time``, for
        which each length counts as long as it lasted. O(work log work).
    """
    length, lasts = pl.col("length"), _LASTS
    return _of_each(
        events, changes=pl.len().cast(pl.Int64), mean=length.mean(), std=length.std(),
        min=length.min(), p25=length.quantile(0.25, "linear"), median=length.median(),
        p75=length.quantile(0.75, "linear"), max=length.max(),
        mean_over_time=(length * lasts).sum() / lasts.sum(),
    )  # fmt: skip


@per_rank("launches")
def full_queues(events: RankEvents, max_length: int = 1024) -> pl.DataFrame:
    """Measure how long each stream's queue was full, so that launches had to wait.

    Parameters
    ----------
    events
        A job, a trace, or several.
    max_length
        The length of a full queue: CUDA's holds 1,024.

    Returns
    -------
    polars.DataFrame
        Of streams whose queue ever was: ``device``, ``stream``, ``full_ns``, ``full_percent`` of
        the time from the first to the last change. O(work log work).
    """
    is_full = pl.col("length") >= max_length
    full = _LASTS.filter(is_full).sum()
    return (
        _of_each(
            events, full_ns=full, was_full=is_full.any(), full_percent=100 * full / _LASTS.sum()
        )
        .filter("was_full")
        .drop("was_full")
    )


class _Queue(NamedTuple):
    """The queue of one stream: a row per change, with ``time_ns`` and ``length`` after it."""

    device: int
    stream: int
    changes: pl.DataFrame

    def names(self) -> tuple[pl.Expr, ...]:
        """Give the columns ``device`` and ``stream``, of the same type for any number."""
        return tuple(
            pl.lit(number, dtype=pl.Int64).alias(name)
            for name, number in (("device", self.device), ("stream", self.stream))
        )


_LASTS = (pl.col("time_ns").shift(-1) - pl.col("time_ns")).fill_null(0)
"""How long each length lasts."""


def _of_each(events: RankEvents, **values: pl.Expr) -> pl.DataFrame:
    """Return a row per stream, with values of its queue."""
    return pl.concat(one.changes.select(*one.names(), **values) for one in _queues(events))


def _queues(events: RankEvents) -> Iterator[_Queue]:
    """Yield the queues of streams, one after the other: there are many changes."""
    rows = events.work[events.launcher[events.work] >= 0]
    start = events.column("start")
    device, stream = events.column("device")[rows], events.column("stream")[rows]
    order = np.lexsort((stream, device))
    rows, device, stream = rows[order], device[order], stream[order]
    first = np.append(True, (device[1:] != device[:-1]) | (stream[1:] != stream[:-1]))
    for place, mine in zip(
        np.flatnonzero(first).tolist(), np.split(rows, np.flatnonzero(first)[1:]), strict=True
    ):
        time = np.concatenate([start[events.launcher[mine]], start[mine]])
        order = np.argsort(time, kind="stable")  # launches first
        length = np.cumsum(np.where(order < mine.size, 1, -1))
        changes = pl.DataFrame({"time_ns": time[order] - int(start.min()), "length": length})
        yield _Queue(int(device[place]), int(stream[place]), changes)
