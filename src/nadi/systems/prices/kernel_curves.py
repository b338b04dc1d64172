"""The time of kernels on a device, from their shapes: vectorised formulas, without intervals.

All grow with each of their sizes, and fall with each rate of the device. ``docs/pricing.md``
shows how far they are from measurements.
"""

from __future__ import annotations

import numpy as np

from nadi.systems.device import AttentionCurve, Device, GemmCurve, MemoryCurve, RooflineCurve
from nadi.trace.arrays import Floats

_SPLITS = (1, 2, 3, 4, 6, 8, 16)  # parts of k that libraries sum up afterwards
_PARTIAL = 4  # bytes of an element of a partial sum
_BLOCK = 128  # queries that a block of fused attention works on
_BACKWARD = 2.5  # operations of attention's backward pass, over those of its forward pass
# what fits into this part of the cache stays there, and of more than the other part nothing does
_CACHE = (0.75, 1.5)
_SOFTMAX_OVERLAP = 3.0  # exponent
_HALFWAY = 1.1  # more operations than a forward pass has: a backward pass


def gemm_ns(
    curve: GemmCurve, device: Device, shape: Floats, size: Floats, peak: Floats
) -> Floats:  # fmt: skip
    """Return the time of matrix multiplications.

    The best of all tiles and splits of k: tiles are done in waves of one per unit, each takes
    its operations at its share of a unit's peak, and k has a ramp. Reading and writing takes
    bytes at a share of the bandwidth, and both overlap in part.

    Parameters
    ----------
    shape
        float64, shape (operations, 4): batch, m, n, k.
    size, peak
        float64, shape (operations,): bytes read and written; operations per s for their type.

    Returns
    -------
    float64 ns, shape (operations,)
        O(operations * tiles * splits).
    """
    batch, m, n, k = shape.T
    reading = size / (device.bandwidth * curve.memory) * 1e9
    rate = peak / device.units / 1e9
    best = np.full(size.shape, np.inf)
    for rows, columns, share in curve.tiles:
        tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
        each = 2.0 * rows * columns / (rate * share)
        for parts in _SPLITS:
            waves = np.ceil(tiles * parts / device.units)
            time = _overlapped(
                waves * each * (np.ceil(k / parts) + curve.ramp), reading, curve.overlap
            )
            if parts > 1:  # partial sums are written and read
                partial = 2 * parts * _PARTIAL * batch * m * n
                time += curve.split + partial / (device.bandwidth * curve.memory) * 1e9
            np.minimum(best, time, out=best)
    return best + curve.floor


def attention_ns(
    curve: AttentionCurve,
    device: Device,
    shape: Floats,
    flops: Floats,
    size: Floats,
    peak: Floats,
) -> Floats:  # fmt: skip
    """Return the time of fused attention.

    What part of the scores is computed, and whether it is a backward pass, follow from the
    operations: 4 batch q kv d for a forward pass with all scores, 2.5 times as many backward.

    Parameters
    ----------
    shape
        float64, shape (operations, 4): batch times heads, queries, keys, size of a head.
    flops, size, peak
        float64, shape (operations,).

    Returns
    -------
    float64 ns, shape (operations,)
    """
    heads, queries, keys, width = shape.T
    whole = 4.0 * heads * queries * keys * width
    part = np.where(flops > 0, flops / np.maximum(whole, 1), 1.0)
    backward = part > _HALFWAY
    part = np.minimum(np.where(backward, part / _BACKWARD, part), 1.0)
    # half of the scores is a causal mask; more than that, less of one
    masked = 1 - (1 - curve.causal) * np.minimum(2 * (1 - part), 1.0)
    share = np.where(backward, curve.backward, curve.forward)
    work = whole * np.where(backward, _BACKWARD, 1.0)
    part = part / masked + curve.ramp / np.maximum(keys, 1)
    # softmax and products overlap in part
    each = _overlapped(1 / share, curve.softmax / np.maximum(width, 1) / (share / curve.forward),
                       _SOFTMAX_OVERLAP)  # fmt: skip
    # with fewer blocks than units, some idle
    idle = np.maximum(device.units / np.maximum(heads * np.ceil(queries / _BLOCK), 1), 1.0)
    arithmetic = work * part * idle * each / peak * 1e9
    reading = size / (device.bandwidth * curve.memory) * 1e9
    time: Floats = np.maximum(arithmetic, reading) + curve.floor
    return time


def memory_ns(
    curve: MemoryCurve, device: Device, flops: Floats, size: Floats, peak: Floats
) -> Floats:
    """Return the time of kernels that read and write ``size`` bytes; float64 ns."""
    hits = np.zeros_like(size)
    if device.cache:
        begin, end = (part * device.cache for part in _CACHE)
        hits = np.clip((end - size) / (end - begin), 0.0, 1.0)
    moved = size * (1 - hits + hits / curve.cached)
    reading = moved / (device.bandwidth * curve.share)
    time: Floats = np.maximum(reading, flops / peak) * 1e9 + curve.floor
    return time


def roofline_ns(
    curve: RooflineCurve, device: Device, flops: Floats, size: Floats, peak: Floats
) -> Floats:
    """Return the time of operations of which nothing but operations and bytes is known; ns."""
    arithmetic = flops / (peak * curve.compute) * 1e9
    reading = size / (device.bandwidth * curve.memory) * 1e9
    return _overlapped(arithmetic, reading, curve.overlap) + curve.floor


def _overlapped(one: Floats, other: Floats, exponent: float) -> Floats:
    """Return the norm of two times: their maximum if the exponent is infinite, their sum if 1."""
    most = np.maximum(one, other)
    least = np.minimum(one, other)
    ratio = np.divide(least, most, out=np.zeros_like(most), where=most > 0)
    return most * (1 + ratio**exponent) ** (1 / exponent)
