"""Where the time of a device goes: by type of kernel, by kernel, and by user annotation.

Kernels may have hardware counters, which the profiler records with CUPTI.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import rows_holding, rows_of_file, trace_name
from nadi.analyses.recorded.events import KERNEL_TYPES, RankEvents, per_rank, require
from nadi.errors import InputError
from nadi.trace.arrays import Ints, text_codes
from nadi.trace.categories import kernel_class


@per_rank("device work")
def kernel_types(events: RankEvents, memory: bool = True) -> pl.DataFrame:
    """Divide the busy time of each rank's devices by the types of work that run at once.

    Parameters
    ----------
    events
        A job, a trace, or several.
    memory
        Whether copies and memory sets count.

    Returns
    -------
    polars.DataFrame
        A row per combination that occurs, largest first: ``type`` such as ``computation`` (alone)
        or ``computation + communication`` (at the same time), ``time_ns``, ``percent`` of the busy
        time. The times add up to the busy time. O(work log work).
    """
    rows, code = events.work, events.type_codes
    if not memory:
        kept = code != KERNEL_TYPES.index("memory")
        rows, code = rows[kept], code[kept]
    time = np.concatenate([events.column("start")[rows], events.end[rows]])
    order = np.argsort(time, kind="stable")
    time = time[order]
    step = np.repeat(np.array([1, -1]), rows.size)[order]
    which = np.tile(code, 2)[order]
    state = np.zeros(time.size, dtype=np.int64)
    for number in range(len(KERNEL_TYPES)):
        running = np.cumsum(np.where(which == number, step, 0))
        state |= (running > 0).astype(np.int64) << number
    spent = np.bincount(state[:-1], weights=np.diff(time), minlength=1)  # below 2^53 ns: exact
    found = pl.DataFrame(
        [
            (" + ".join(one for bit, one in enumerate(KERNEL_TYPES) if number >> bit & 1), int(ns))
            for number, ns in enumerate(spent.tolist())
            if number and ns
        ],
        schema={"type": pl.String, "time_ns": pl.Int64},
        orient="row",
    )
    busy = pl.sum("time_ns")
    return found.sort("time_ns", "type", descending=[True, False]).with_columns(
        percent=100 * pl.col("time_ns") / busy
    )


@per_rank("device work")
def top_kernels(events: RankEvents, share: float = 1.0) -> pl.DataFrame:
    """Sum the time of each rank's device work by name.

    Parameters
    ----------
    events
        A job, a trace, or several.
    share
        Only the names that take this share of each rank's time; the others become one row,
        ``others``.

    Returns
    -------
    polars.DataFrame
        A row per name, largest sum first: ``name``, ``type`` (of ``KERNEL_TYPES``), ``class`` (of
        :data:`nadi.trace.categories.KERNEL_CLASSES`), ``count``, ``sum_ns``, ``percent``
        of the sum over all, ``mean_ns``, ``std_ns`` (null for one), ``min_ns``, ``max_ns``.
        O(work log names).
    """
    types = pl.Series(KERNEL_TYPES, dtype=pl.Enum(KERNEL_TYPES)).gather(events.type_codes)
    work = pl.DataFrame({
        "name": events.table["name"].gather(events.work), "type": types,
        "duration": events.column("duration")[events.work],
    })  # fmt: skip
    table = times_by_name(work, "name", "type")
    if share < 1 and table.height:
        before = table["sum_ns"].cum_sum() - table["sum_ns"]
        kept = (before < share * int(table["sum_ns"].to_numpy().sum())).to_numpy()
        rest = table["name"].filter(~pl.Series(kept))
        others = work.filter(pl.col("name").cast(pl.String).is_in(rest.implode())).with_columns(
            name=pl.lit("others")
        )
        table = pl.concat([table.filter(kept), times_by_name(others, "name", "type")])
    classes = [kernel_class(name) if name != "others" else "" for name in table["name"]]
    table.insert_column(2, pl.Series("class", classes, dtype=pl.String))
    return table


def times_by_name(table: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Sum the column ``duration`` by some columns: the largest sum first, then by the columns."""
    return (
        table.with_columns(pl.Series("group", _groups(table, keys)))
        .group_by("group")
        .agg(
            *map(pl.first, keys), count=pl.len().cast(pl.Int64), sum_ns=pl.sum("duration"),
            mean_ns=pl.mean("duration"), std_ns=pl.std("duration"),
            min_ns=pl.min("duration"), max_ns=pl.max("duration"),
        )
        .sort("sum_ns", *keys, descending=[True, *(False for _ in keys)])
        .with_columns(percent=100 * pl.col("sum_ns") / pl.sum("sum_ns"))
        .select(*keys, "count", "sum_ns", "percent", "mean_ns", "std_ns", "min_ns", "max_ns")
    )  # fmt: skip


def _groups(table: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Return a number for each combination of texts; int64, shape (rows,).

    Polars would write the texts of several columns out for each row, and names of kernels are long.
    """
    group = np.zeros(table.height, dtype=np.int64)
    for key in keys:
        codes = text_codes(table[key])
        group = group * (codes.max(initial=0) + 1) + codes
    return group


_PLACES = {"annotation": "host", "device_annotation": "device"}


@per_rank("annotations")
def annotation_times(events: RankEvents) -> pl.DataFrame:
    """Sum the time of user annotations by name, of the host and of devices.

    Returns
    -------
    polars.DataFrame
        ``place`` (host or device), ``name``, ``count``, ``sum_ns``, ``percent``, ``mean_ns``,
        ``std_ns``, ``min_ns``, ``max_ns``; the largest sum first. Annotations in each other both
        count. O(annotations log annotations).
    """
    chosen = events.table.filter(events.is_of(*_PLACES))
    table = chosen.select(
        pl.col("category").cast(pl.String).replace_strict(_PLACES).alias("place"),
        pl.col("name").cast(pl.String), "duration",
    )  # fmt: skip
    return times_by_name(table, "place", "name").sort("place", descending=True, maintain_order=True)


@per_rank("device work", "annotations")
def annotation_kernels(events: RankEvents) -> pl.DataFrame:
    """Sum the device work in each user annotation by name.

    Work belongs to the innermost annotation of the device that contains it on its stream; where the
    profiler made none, to the innermost annotation of the host around the call that launched it.

    Returns
    -------
    polars.DataFrame
        ``annotation`` (empty outside of all), ``name``, ``type``, ``count``, ``sum_ns``,
        ``percent``, ``mean_ns``, ``std_ns``, ``min_ns``, ``max_ns``. O(work log annotations).
    """
    names = events.table["name"].cast(pl.String)
    inside = kernel_annotations(events)
    named = names.gather(np.maximum(inside, 0)).set(pl.Series(inside < 0), "")
    types = pl.Series(KERNEL_TYPES, dtype=pl.Enum(KERNEL_TYPES)).gather(events.type_codes)
    table = pl.DataFrame({
        "annotation": named, "name": names.gather(events.work), "type": types,
        "duration": events.column("duration")[events.work],
    })  # fmt: skip
    return times_by_name(table, "annotation", "name", "type")


def kernel_annotations(events: RankEvents) -> Ints:
    """Return the row of the annotation of each piece of device work, or -1; int64, (work,)."""
    on_device = np.flatnonzero(events.is_of("device_annotation"))
    if on_device.size:
        return _containing(events, on_device)
    require(events, "operators")
    return events.around(events.launcher[events.work], events.is_of("annotation"))


def _containing(events: RankEvents, annotations: Ints) -> Ints:
    """Return the innermost of some annotations that contains each piece of work on its stream."""
    start, end = events.column("start"), events.end
    found = np.full(events.work.size, -1, dtype=np.int64)
    device, stream = events.column("device"), events.column("stream")
    places = _places(events, annotations)
    for place in np.unique(places, axis=0):
        mine = annotations[(places == place).all(axis=1)]
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        outer = _outer(start[mine], end[mine])
        which = (device[events.work] == place[0]) & (stream[events.work] == place[1])
        rows = events.work[which]
        at = np.searchsorted(start[mine], start[rows], side="right") - 1
        while (left := (at >= 0) & (end[mine[at]] < end[rows])).any():
            at[left] = outer[at[left]]
        found[which] = np.where(at >= 0, mine[at], -1)
    return found


def _places(events: RankEvents, annotations: Ints) -> Ints:
    """Return device and stream of annotations: process and thread of the file; (rows, 2)."""
    node = annotations if events.node is None else events.node[annotations]
    attributes = events.trace.attributes
    places = np.full((annotations.size, 2), -1, dtype=np.int64)
    at = {int(one): number for number, one in enumerate(node)}
    for column, name in enumerate(("pid", "tid")):
        for row in attributes.rows_named(name).tolist():
            number = at.get(int(attributes.node[row]))
            if number is not None and isinstance(value := attributes.python_value(row), int):
                places[number, column] = value
    return places


def _outer(start: Ints, end: Ints) -> Ints:
    """Return the interval around each, or -1: sorted by start, the longest first."""
    outer = np.full(start.size, -1, dtype=np.int64)
    stack: list[int] = []
    for number in range(start.size):
        while stack and end[stack[-1]] < end[number]:
            stack.pop()
        outer[number] = stack[-1] if stack else -1
        stack.append(number)
    return outer


class _Range(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ts: float = -1
    args: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Range)


@per_rank("arguments", "device work")
def device_counters(events: RankEvents) -> pl.DataFrame:
    """List the counters of each kernel with the operator that launched it.

    The profiler writes the ranges of counters in order of time, one for each kernel.

    Returns
    -------
    polars.DataFrame
        A row per kernel and counter: ``kernel``, ``operator`` (empty if none), ``duration_ns``,
        ``counter``, ``value``. O(kernels * counters).

    Raises
    ------
    InputError
        If no counters are recorded.
    """
    attributes = events.trace.attributes
    rows = rows_holding(attributes, rows_of_file(attributes, "event"), b"cuda_profiler_range")
    ranges = []
    for row in rows.tolist():
        try:
            ranges.append(_decoder.decode(attributes.span(row)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    ranges = sorted((one for one in ranges if one.cat == "cuda_profiler_range"), key=lambda r: r.ts)
    if not ranges:
        raise InputError(
            trace_name(events.trace), "no hardware counters are recorded",
            "record with experimental_config=_ExperimentalConfig(profiler_metrics=[...])",
        )  # fmt: skip
    kernels = np.flatnonzero(events.is_of("kernel"))
    kernels = kernels[np.argsort(events.column("start")[kernels], kind="stable")][: len(ranges)]
    operator = events.around(events.launcher[kernels], events.is_of("operator"))
    names = events.table["name"].cast(pl.String)
    found = [
        (names[int(kernel)], names[int(around)] if around >= 0 else "",
         int(events.column("duration")[kernel]), counter, float(value))
        for kernel, around, one in zip(kernels, operator, ranges, strict=False)
        for counter, value in one.args.items()
        if isinstance(value, int | float)
    ]  # fmt: skip
    return pl.DataFrame(
        found, orient="row",
        schema={"kernel": pl.String, "operator": pl.String, "duration_ns": pl.Int64,
                "counter": pl.String, "value": pl.Float64},
    )  # fmt: skip
