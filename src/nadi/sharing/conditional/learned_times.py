"""Give operations of a job times: a device's prices, and how learned jobs differ from them."""

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.sharing.conditional.released_corpus import SLOW, SPREAD, LearnedTimes
from nadi.systems.device import Device
from nadi.systems.prices.priced_traces import price_trace
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Floats
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Job, Trace

_SLOWEST = 2.0


def timed_job(job: Job, device: Device, times: LearnedTimes | None, seed: int = 0) -> Job:
    """Return a job whose computations have times on a device.

    - ``times``: How they differ from its prices; None for not at all. One rank, which the seed
      draws, is slower than the others as the slowest ranks of learned jobs are, in all of its
      operations.
    - Returns: O(operations of different traces).
    """
    different = {id(one): one for one in job.traces}
    priced = {place: price_trace(one, device)[0] for place, one in different.items()}
    if times is None:
        return replace(job, traces=tuple(priced[id(one)] for one in job.traces))
    random = np.random.default_rng(seed)
    factor = np.ones(len(OP_CLASSES))
    for name, value in times.efficiency.items():
        factor[OP_CLASSES.index(name)] = np.exp(value)
    done = {}
    for place, trace in priced.items():
        own = factor[stated_operations(trace).op_class]
        inner = random.choice(times.spread.size, own.size, p=times.spread)
        width = SPREAD[1] - SPREAD[0]
        own *= np.exp(SPREAD[inner] + width * random.random(own.size))
        done[place] = _longer(trace, own)
    traces = [done[id(one)] for one in job.traces]
    slowest = int(random.choice(len(SLOW), p=times.slowest))
    if slowest:
        least, most = (*SLOW, _SLOWEST)[slowest : slowest + 2]
        rank = int(random.integers(len(traces)))
        slower = np.full(traces[rank].nodes.height, random.uniform(least, most))
        traces[rank] = _longer(traces[rank], slower)
    return replace(job, traces=tuple(traces))


def _longer(trace: Trace, factor: Floats) -> Trace:
    time = trace.column("duration")
    new = np.where(time > 0, np.maximum(np.rint(time * factor), 1), time).astype(np.int64)
    return replace(trace, nodes=trace.nodes.with_columns(duration=pl.Series(new)))
