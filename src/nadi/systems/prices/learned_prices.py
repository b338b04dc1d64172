"""Prices learned from operations whose times were recorded."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nadi.errors import InputError, checked
from nadi.systems.device import Device
from nadi.systems.prices.price_list import SOURCES, PriceList, price
from nadi.systems.prices.traced_operations import (
    launching_operators,
    operators_of,
    profiled_operators,
    stated_operations,
)
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.operations import Operations
from nadi.trace.trace import Job, Trace

_KEYS = ("op_class", "dtype", "s0", "s1", "s2", "s3", "work", "size")
_SEVERAL = 3  # different shapes that an interpolation needs: of two, one may be odd
_TAIL = 0.05
_COVERED = 0.9
_MICRO = 1000  # ns
_MANY = 20  # distances, of which nine tenths say something
_NO_SPREAD = 1.1  # half of the width of an interval of few measurements
_FURTHEST = 4.0  # times the smallest and largest work that was recorded
_EXACT, _INTERPOLATED = SOURCES.index("exact"), SOURCES.index("interpolated")
_Curve = tuple[Floats, Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class LearnedPrices:
    """Times of operations that were recorded.

    Attributes
    ----------
    table
        A row per operator, class, type, shape, operations and bytes: ``name`` of an operator of
        PyTorch, else empty, ``op_class`` and ``dtype`` as codes, ``s0`` to ``s3``, ``work``,
        ``size``, ``count``, and ``median``, ``low`` and ``high`` in ns (5 % and 95 % of its times).
    """

    table: pl.DataFrame

    def __repr__(self) -> str:
        return f"<LearnedPrices {self.table['count'].sum()} times of {self.table.height} shapes>"

    def price(
        self, operations: Operations, device: Device, names: pl.Series | None = None
    ) -> PriceList:
        """Return the price of operations: as recorded, else interpolated, else of the device.

        An operation of which the same operator, type, shape, operations and bytes were recorded
        takes their median; without such, the same class. Otherwise, the ratio of recorded time to
        the device's price is interpolated between recorded operations of its operator and type, or
        else of its class and type, by that price, up to a factor of four beyond them; of one
        or two shapes it is their usual one. Operations with neither operator nor class are
        found only if they are equal.

        Parameters
        ----------
        names
            Names of the operations, shape (operations,).

        Returns
        -------
        PriceList
            O(operations).
        """
        listed = price(operations, device)
        found = listed.at(np.arange(listed.duration.size))
        wanted = _frame(operations, names)
        left = np.ones(listed.duration.size, dtype=np.bool_)
        by_class = _merged(self.table.with_columns(name=pl.lit("")))
        for table, keys in ((self.table, ["name", *_KEYS]), (by_class, list(_KEYS))):
            joined = wanted.join(table, on=keys, how="left", maintain_order="left")
            exact = left & joined["median"].is_not_null().to_numpy()
            for column, name in zip(found[:3], ("median", "low", "high"), strict=True):
                column[exact] = joined[name].to_numpy()[exact].astype(np.int64)
            found.source[exact] = _EXACT
            left &= ~exact
        left &= listed.duration > 0
        named = self.table.filter(pl.col("name") != "")
        classed = by_class.filter(pl.col("op_class") > 0)
        for table, key in ((named, "name"), (classed, "op_class")):
            of_key = wanted[key]
            for (one, dtype), curve in _curves(table, key, device):
                same = left & (operations.dtype == dtype) & (of_key == one).to_numpy()
                left[_interpolated(curve, same, listed, found)] = False
        return found


def _interpolated(curve: _Curve, same: Bools, listed: PriceList, found: PriceList) -> Ints:
    """Correct prices by what recorded operations differ from theirs; return which."""
    at, *factors = curve
    near = (listed.duration >= at[0] / _FURTHEST) & (listed.duration <= at[-1] * _FURTHEST)
    rows = np.flatnonzero(same & near)
    place = np.log(listed.duration[rows])
    for column, factor in zip(found[:3], factors, strict=True):
        scale = np.interp(place, np.log(at), factor)
        column[rows] = np.rint(listed.duration[rows] * scale).astype(np.int64)
    found.source[rows] = _INTERPOLATED
    return rows


def _curves(
    table: pl.DataFrame, key: str, device: Device
) -> Iterator[tuple[tuple[Any, Any], _Curve]]:
    """Yield the price on a device, the ratio of recorded times to it, and its interval.

    For each value of ``key`` and type with different prices.
    """
    table = table.with_columns(listed=pl.Series(price(operations_of(table), device).duration))
    table = table.filter(pl.col("listed") > 0)
    found = []
    for (one, dtype), rows in table.group_by(key, "dtype", maintain_order=True):
        own = (
            rows.group_by("listed")
            .agg(pl.col("median", "low", "high").median(), pl.col("count").sum())
            .sort("listed")
        )
        at = own["listed"].to_numpy().astype(np.float64)
        ratio = own["median"].to_numpy() / at
        distances = _distances(np.log(at), np.log(ratio))
        if own.height < _SEVERAL:
            usual = np.average(np.log(ratio), weights=own["count"].to_numpy())
            ratio = np.full(at.size, np.exp(usual))
        found.append(((one, dtype), own, at, ratio, distances))
    # few shapes say little about how far others are; those of all operators say more
    every = _beyond(np.concatenate([np.zeros(0), *(one[4] for one in found)]))
    for which, own, at, ratio, distances in found:
        spread = max(_beyond(distances), every if distances.size < _MANY else 0.0)
        low = np.minimum(own["low"].to_numpy() / at, ratio * np.exp(-spread))
        high = np.maximum(own["high"].to_numpy() / at, ratio * np.exp(spread))
        yield which, (at, ratio, low, high)


def _merged(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row for rows with equal keys."""
    return table.group_by("name", *_KEYS, maintain_order=True).agg(
        pl.col("count").sum(), pl.col("median").median().round().cast(pl.Int64),
        pl.col("low").min(), pl.col("high").max(),
    )  # fmt: skip


def _distances(place: Floats, value: Floats) -> Floats:
    """Return how far each value is from the line between its neighbors; ends, from the next."""
    before, after = value[:-2], value[2:]
    part = (place[1:-1] - place[:-2]) / (place[2:] - place[:-2])
    inner = value[1:-1] - before - part * (after - before)
    ends = value[1:2] - value[:1], value[-1:] - value[-2:-1]
    found: Floats = np.abs(np.concatenate([ends[0], inner, ends[1]]))
    return found


def _beyond(distances: Floats) -> float:
    """Return a distance that 90 % of others do not exceed.

    That another one is not further than the k-th of n has a probability of k / (n + 1).
    """
    k = min(math.ceil(_COVERED * (distances.size + 1)), distances.size)
    least = math.log(_NO_SPREAD)
    return max(float(np.sort(distances)[k - 1]), least) if k else least


@checked
def learn_prices(job: Job | Trace | Sequence[Trace]) -> LearnedPrices:
    """Learn the times of operations from traces that have them.

    From a recording on a GPU: an operator's time is the sum of the kernels that it launched, and
    its class, type, shape and bytes follow from its operands. From other traces: the durations of
    computations on the device, with the attributes that they state.

    Parameters
    ----------
    job
        A linked job, or traces of ranks.

    Raises
    ------
    InputError
        If no operation has a time and states its work.
    """
    traces = (job,) if isinstance(job, Trace) else job.traces if isinstance(job, Job) else job
    parts = [_measured(trace) for trace in {id(trace): trace for trace in traces}.values()]
    measured = pl.concat(parts) if parts else pl.DataFrame()
    if not measured.height:
        read = dict.fromkeys(one.path for trace in traces for one in trace.provenance.sources)
        more = f" and {len(read) - 1} more" if len(read) > 1 else ""
        raise InputError(
            f"{next(iter(read), 'prices')}{more}",
            "no operation in it has a time on a device and states its work",
            "pass a recording with host and device traces of each rank, with operands",
        )  # fmt: skip
    table = measured.group_by("name", *_KEYS, maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("time").median().round().cast(pl.Int64).alias("median"),
        pl.col("time").quantile(_TAIL, "lower").alias("low"),
        pl.col("time").quantile(1 - _TAIL, "higher").alias("high"),
    )
    # recordings of older versions are in whole microseconds
    rounding = _MICRO // 2 if (measured["time"] % _MICRO == 0).all() else 0
    few = pl.col("count") < 1 / _TAIL  # times, which say little about how far others are
    table = table.with_columns(
        low=pl.when(few).then(pl.min_horizontal("low", pl.col("median") / _NO_SPREAD))
        .otherwise("low").cast(pl.Int64),
        high=pl.when(few).then(pl.max_horizontal("high", pl.col("median") * _NO_SPREAD))
        .otherwise("high").cast(pl.Int64),
    )  # fmt: skip
    low, high = pl.col("low") - rounding, pl.col("high") + rounding
    return LearnedPrices(table.with_columns(low=pl.max_horizontal(low, 0), high=high))


def measured_operations(trace: Trace) -> tuple[Operations, Ints, pl.Series | None]:
    """Return the operations that have a time on a device.

    - Returns operations, time: A row, and int64 ns, for each: of a recording, for operators the sum
      of the kernels that each launched.
    - and names: Of operators; None for other traces.
    """
    time = trace.column("duration")
    is_work = (trace.nodes["kind"] == "COMP").to_numpy() & ~trace.nodes["is_cpu"].to_numpy()
    device = np.flatnonzero(is_work & (time > 0))
    if "launch" in set(trace.deps["kind"].unique().to_list()):
        read = operators_of if trace.operands.height else profiled_operators
        stands, operations = read(trace)
        operator = launching_operators(trace, device, stands)
        known = operator >= 0
        total = np.bincount(operator[known], time[device][known], minlength=trace.nodes.height)
        rows = np.flatnonzero(total > 0)
        total = total.astype(np.int64)
        names = trace.nodes["name"].cast(pl.String).gather(rows.astype(np.uint32))
    else:
        operations, total = stated_operations(trace), time
        names = None
        stated = (operations.flops > 0) | (operations.bytes > 0)
        rows = device[stated[device]]
    return operations.at(rows), total[rows], names


def _measured(trace: Trace) -> pl.DataFrame:
    """Return a row per operation with a time."""
    operations, time, names = measured_operations(trace)
    return _frame(operations, names).with_columns(time=pl.Series(time))


def _frame(operations: Operations, names: pl.Series | None) -> pl.DataFrame:
    """Return operations as a table; without names of operators, these are empty."""
    columns = [operations.op_class, operations.dtype, *operations.shape.T]
    columns += [operations.flops, operations.bytes]
    frame = pl.DataFrame(
        {name: np.ascontiguousarray(c) for name, c in zip(_KEYS, columns, strict=True)}
    )
    return frame.with_columns(name=pl.lit("") if names is None else names.alias("name"))


def operations_of(table: pl.DataFrame) -> Operations:
    """Return the operations of the rows of a table of :class:`LearnedPrices`."""
    op_class, dtype, *shape, work, size = (table[name].to_numpy() for name in _KEYS)
    return Operations(work, size, op_class, dtype, np.array(shape).T.reshape(-1, 4))
