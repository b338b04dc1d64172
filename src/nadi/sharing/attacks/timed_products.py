"""What durations of products and the curves of their device tell of a size that was moved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.sharing.obfuscation.product_numbers import LEAST_MOVED, MOST_MOVED
from nadi.systems.device import Device
from nadi.systems.prices.price_list import price
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import Operations
from nadi.trace.rows import number_rows
from nadi.trace.trace import Trace

_SAMPLES = 1000
# how far logarithms of durations may be from the curves, round by round: the fit is coarse first
_NOISE = np.geomspace(0.3, 0.005, 12)
_JITTER = 0.3  # of the noise, by which sides of a sample move between rounds


class TimedProducts(NamedTuple):
    """The different matrix products and attentions of a job, and how long they take."""

    operations: Operations
    duration: Floats  # mean ns, shape (operations,)


def timed_products(traces: list[Trace]) -> TimedProducts:
    """Return the different products that traces state, with the mean of their durations."""
    found = [stated_operations(trace) for trace in traces]
    operations = Operations(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    duration = np.concatenate([trace.column("duration") for trace in traces])
    rows = np.flatnonzero((operations.shape > 0).all(axis=1) & (duration > 0))
    operations, duration = operations.at(rows), duration[rows]
    number, first = number_rows([*operations[:4], *operations.shape.T])
    mean = np.bincount(number, duration, first.size) / np.maximum(np.bincount(number), 1)
    return TimedProducts(operations.at(first), mean)


def side_by_durations(moved: int, products: TimedProducts, device: Device) -> float:
    """Estimate the true side behind a moved one from durations and the curves of a device.

    Samples of all true sides are weighted by how well the curves then explain the durations, drawn
    again by these weights, and moved a little, with less and less tolerance.

    - ``moved``: A released side.
    - ``products``: Of which it is a side.
    - Returns: O(products * samples).
    """
    released, place = np.unique(products.operations.shape, return_inverse=True)
    place = place.reshape(-1, 4)
    random = np.random.default_rng(0)
    is_free = released >= LEAST_MOVED
    most = np.where(is_free, -np.log(1 - MOST_MOVED), 0)
    start = np.log(released)
    logs = start + most * random.uniform(-1, 1, (_SAMPLES, released.size))
    for noise in _NOISE:
        apart = _misfit(np.rint(np.exp(logs)).astype(np.int64)[:, place], products, device)
        weight = np.exp((apart.min() - apart) / (2 * noise**2))
        drawn = logs[random.choice(_SAMPLES, _SAMPLES, p=weight / weight.sum())]
        logs = drawn + _JITTER * noise * is_free * random.standard_normal(logs.shape)
        logs = np.clip(logs, start - most, start + most)
    return float(np.exp(np.median(drawn[:, released == moved])))


def _misfit(shapes: Ints, products: TimedProducts, device: Device) -> Floats:
    """Return of each sample by how much the curves miss the durations: a sum of squares."""
    stated = products.operations
    work = shapes.prod(axis=2, dtype=float) / stated.shape.prod(axis=1, dtype=float)
    count = shapes.shape[0]
    sampled = Operations(
        np.rint(work * stated.flops).astype(np.int64).ravel(), np.full(work.size, -1),
        np.tile(stated.op_class, count), np.tile(stated.dtype, count), shapes.reshape(-1, 4),
    )  # fmt: skip
    explained = np.maximum(price(sampled, device).duration, 1).reshape(work.shape)
    return np.asarray(np.square(np.log(explained / products.duration)).sum(axis=1))
