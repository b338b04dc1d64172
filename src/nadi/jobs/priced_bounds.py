"""Prices of operations as times with an interval, so that a simulation states one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nadi.jobs.class_rows import RankClass, classes_of, columns_of
from nadi.recordings.folded.folded_job import FoldedJob, fold_classes
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.recordings.folded.repeats import RankClasses
from nadi.systems.device import Device
from nadi.systems.prices.price_list import price
from nadi.systems.prices.traced_operations import operations_of
from nadi.systems.system import System
from nadi.trace.host_nodes import on_host
from nadi.trace.operations import Operations

__all__ = ["with_prices"]


def with_prices(job: FoldedJob, system: System) -> FoldedJob:
    """Return a job whose computations without a time have the prices of a system's device.

    Least and largest times are the ends of the prices' intervals.
    """
    device = system.compute.device
    if device is None or system.compat:
        return job
    listed = [_priced(one, device) for one in classes_of(job)]
    traces = tuple(listed[k].trace for k in job.of.tolist())
    times = {number: one.times for number, one in enumerate(listed)}
    return fold_classes(RankClasses(traces, job.of, job.rank_groups), times, job.issues)


def _priced(one: RankClass, device: Device) -> RankClass:
    trace = one.trace
    work = operations_of(trace)
    is_wanted = (trace.nodes["kind"] == "COMP").to_numpy() & ~on_host(trace)
    is_wanted &= (one.times.typical < 0) | ((one.times.typical == 0) & (work.flops > 0))
    rows = np.flatnonzero(is_wanted)
    found = price(Operations(*(column[rows] for column in work)), device)
    rows, found = rows[found.duration >= 0], found.at(np.flatnonzero(found.duration >= 0))
    columns = [column.copy() for column in columns_of(one.times)]
    for column, prices in zip(columns, (found.duration, found.low, found.high), strict=True):
        column[rows] = prices
    times = NodeTimes(*columns)
    nodes = with_own_times(trace.nodes, times.typical)
    return one._replace(trace=replace(trace, nodes=nodes), times=times)
