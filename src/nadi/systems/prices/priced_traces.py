"""Times for the operations of traces that have none.

What pricing gave to the computations of a job, in sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.systems.device import Device
from nadi.systems.prices.learned_prices import LearnedPrices
from nadi.systems.prices.price_list import SOURCES, PriceList, price
from nadi.systems.prices.traced_operations import operators_of, stated_operations
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.operations import Operations
from nadi.trace.trace import Job, Trace, on_host


class PricedWork(msgspec.Struct, frozen=True):
    """Computations that had no time and got one, over all ranks.

    Attributes
    ----------
    device
        Name of the device whose curves they were priced by.
    exact, interpolated, curve, roofline
        Number of operations by what their price comes from (``nadi.systems.SOURCES``).
    unpriced
        Number of operations without a time that state nothing to price them by.
    duration_ns, low_ns, high_ns
        Sums of all prices, and of the ends of their intervals.
    """

    device: str
    exact: int = 0
    interpolated: int = 0
    curve: int = 0
    roofline: int = 0
    unpriced: int = 0
    duration_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0

    @property
    def num_priced(self) -> int:
        """Number of operations that got a time."""
        return self.exact + self.interpolated + self.curve + self.roofline

    def plus(self, other: PricedWork, times: int = 1) -> PricedWork:
        """Return the sum of two, of which the other one counts several times."""
        sums = {
            name: getattr(self, name) + times * getattr(other, name)
            for name in self.__struct_fields__
            if name != "device"
        }
        return PricedWork(self.device or other.device, **sums)


@checked
def price_trace(
    trace: Trace, device: Device | System, learned: LearnedPrices | None = None
) -> tuple[Trace, PricedWork]:
    """Return a trace in which computations on the device have times.

    Computations with a time keep it. In a trace without any device work and without times, as a
    recording of fake tensors has, the operators of PyTorch stand for kernels and get a time.

    Parameters
    ----------
    device
        The device, or a system that has one.
    learned
        Prices learned from a recording, which take precedence.

    Returns
    -------
    trace
        With the issue ``pricing.no-work`` if operations state nothing to price them by; the same
        object if there is nothing to price.
    priced
        What was priced, and what the prices sum up to.

    Raises
    ------
    ValueError
        If a system has no device.
    """
    if isinstance(device, System):
        if device.compute.device is None:
            raise ValueError("the system states neither a device nor peak and bandwidth")
        device = device.compute.device
    wanted, operations = _wanted(trace)
    rows = np.flatnonzero(wanted)
    if not rows.size:
        return trace, PricedWork(device.name)
    chosen = operations.at(rows)
    if learned:
        names = trace.nodes["name"].gather(rows.astype(np.uint32)).cast(pl.String)
        found = learned.price(chosen, device, names)
    else:
        found = price(chosen, device)
    has_price = found.duration >= 0
    priced = _summed(found, device)
    if priced.num_priced:
        trace = _with_times(trace, rows[has_price], found.duration[has_price])
    if priced.unpriced:
        log = IssueLog()
        log.add(
            "pricing.no-work", "warning", priced.unpriced,
            "computations have no time, and state neither operations, bytes nor shapes",
            "state flops and bytes, or op_class and gemm_shape",
        )  # fmt: skip
        trace = replace(trace, issues=summed_issues([trace.issues, log.table()]))
    return trace, priced


@checked
def price_job(
    job: Job | Sequence[Trace], system: System, learned: LearnedPrices | None = None
) -> tuple[Job | Sequence[Trace], PricedWork | None]:
    """Return a job in which computations have times, as :func:`price_trace` does for a trace.

    A trace that several ranks share is priced once. With ``compat``, a roofline of the system or a
    pure replay nothing is priced, and neither on a system without a device.

    Returns
    -------
    job
        Of the same kind; the same object if there is nothing to price.
    priced
        Over all ranks; None if nothing was to be priced.
    """
    compute = system.compute
    if system.compat or compute.roofline or compute.replay_only or compute.device is None:
        return job, None
    traces = job.traces if isinstance(job, Job) else tuple(job)
    count = Counter(map(id, traces))
    done: dict[int, Trace] = {}
    total = PricedWork(compute.device.name)
    for trace in {id(trace): trace for trace in traces}.values():
        done[id(trace)], priced = price_trace(trace, compute.device, learned)
        total = total.plus(priced, count[id(trace)])
    if not total.num_priced and not total.unpriced:
        return job, None
    new = tuple(done[id(trace)] for trace in traces)
    return (replace(job, traces=new) if isinstance(job, Job) else new), total


def _wanted(trace: Trace) -> tuple[Bools, Operations]:
    """Return which nodes need a price, and the work of all nodes."""
    time = trace.column("duration")
    computes = (trace.nodes["kind"] == "COMP").to_numpy()
    host = on_host(trace)
    if host.all() and not (time > 0).any() and trace.operands.height:
        return operators_of(trace)
    wanted = computes & ~host & (time <= 0)
    if not wanted.any():
        return wanted, stated_operations(trace)
    operations = stated_operations(trace)
    # a time of 0 is none if there is work; elsewhere a node may really take none
    return wanted & ((time < 0) | (operations.flops > 0)), operations


def _with_times(trace: Trace, rows: Ints, duration: Ints) -> Trace:
    """Return a trace in which some nodes have these durations."""
    time, own = trace.column("duration").copy(), trace.column("exclusive").copy()
    time[rows], own[rows] = duration, -1
    columns = {"duration": pl.Series(time), "exclusive": pl.Series(own)}
    return replace(trace, nodes=trace.nodes.with_columns(**columns))


def _summed(found: PriceList, device: Device) -> PricedWork:
    number = np.bincount(found.source, minlength=len(SOURCES)).tolist()
    count = dict(zip(SOURCES, number, strict=True))
    sums = (int(np.maximum(column, 0).sum()) for column in found[:3])
    return PricedWork(
        device.name, count["exact"], count["interpolated"], count["curve"], count["roofline"],
        count["none"], *sums,
    )  # fmt: skip
