"""The price of operations on a device, what its kernels reach, and how far off that may be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.systems.device import (
    AttentionCurve,
    Device,
    Errors,
    GemmCurve,
    MemoryCurve,
    RooflineCurve,
)
from nadi.trace.arrays import Bools, Bytes, Floats, Ints
from nadi.trace.operations import DTYPE_NAMES, DTYPES, OP_CLASSES, Operations
from nadi.trace.rows import number_rows

SOURCES = ("none", "exact", "interpolated", "curve", "roofline")
"""What a price comes from: nothing, a recorded operation of the same shape, recorded operations
of other shapes, a curve of published measurements, or a plain roofline."""

_NONE, _CURVE, _ROOFLINE = (SOURCES.index(name) for name in ("none", "curve", "roofline"))
_GEMM, _CONV, _ATTENTION = (OP_CLASSES.index(name) for name in ("gemm", "conv", "attention"))
_LONGEST = 2.0**62
# bytes of an element of each type; of an unknown one as of a half
_ITEM_SIZES = np.array([2, *(dtype.itemsize for dtype in DTYPES)], dtype=np.int64)


class PriceList(NamedTuple):
    """A price per operation.

    Attributes
    ----------
    duration, low, high
        int64 ns, shape (operations,): the price, and the interval that it is in; -1 without one.
    source
        uint8, shape (operations,): position in :data:`SOURCES`.
    """

    duration: Ints
    low: Ints
    high: Ints
    source: Bytes

    def at(self, rows: Ints) -> PriceList:
        """Return some rows, as copies."""
        return PriceList(
            self.duration[rows], self.low[rows], self.high[rows], self.source[rows]
        )  # fmt: skip


class _Known(NamedTuple):
    """Distinct operations, with what follows from their types."""

    flops: Floats
    size: Floats
    shape: Floats
    peak: Floats
    has_flops: Bools
    has_size: Bools
    has_shape: Bools


def price(operations: Operations, device: Device) -> PriceList:
    """Return the price of operations on a device, from its curves.

    A matrix multiplication, convolution or attention with a shape takes its curve, and an
    operation bound by memory that of its class, if it states bytes. Others take the device's
    roofline; without operations and bytes they have no price.

    Parameters
    ----------
    operations
        Columns; equal rows are priced once.

    Returns
    -------
    PriceList
        O(operations), and O(distinct operations * tiles).
    """
    columns = [*operations[:4], *operations.shape.T]
    number, first = number_rows(columns)
    found = _priced(operations.at(first), device)
    return found.at(number)


def _priced(operations: Operations, device: Device) -> PriceList:
    known = _known(operations, device)
    size = known.size.size
    time, low, high = np.full((3, size), -1.0)
    source = np.full(size, _NONE, dtype=np.uint8)

    def put(rows: Ints, found: Floats, errors: Errors, code: int) -> None:
        least, most = _factors(found, errors)
        time[rows], low[rows], high[rows], source[rows] = found, found * least, found * most, code

    left = known.has_flops | known.has_size | known.has_shape
    matrix = left & _is_product(operations) & known.has_shape
    if device.gemm and (rows := np.flatnonzero(matrix)).size:
        own = device.gemm, device, known.shape[rows], known.size[rows], known.peak[rows]
        put(rows, gemm_ns(*own), device.gemm.errors, _CURVE)
        left &= ~matrix
    fused = left & (operations.op_class == _ATTENTION) & known.has_shape
    if device.attention and (rows := np.flatnonzero(fused)).size:
        attention = device.attention
        of_rows = known.flops[rows], known.size[rows], known.peak[rows]
        put(rows, attention_ns(attention, device, known.shape[rows], *of_rows),
            attention.errors, _CURVE)  # fmt: skip
        left &= ~fused
    bound = left & known.has_size & (operations.op_class > 0)
    # a convolution without a shape, such as a depthwise one, fills no tiles
    bound &= (operations.op_class != _GEMM) & (operations.op_class != _ATTENTION)
    for code in np.unique(operations.op_class[bound]).tolist() if device.memory else ():
        curve = device.memory.get(OP_CLASSES[code], device.memory.get(""))
        if curve:
            rows = np.flatnonzero(bound & (operations.op_class == code))
            of_rows = known.flops[rows], known.size[rows], known.peak[rows]
            put(rows, memory_ns(curve, device, *of_rows), curve.errors, _CURVE)
            left[rows] = False
    rows = np.flatnonzero(left)
    of_rows = known.flops[rows], known.size[rows], known.peak[rows]
    code = _ROOFLINE if device.is_plain else _CURVE
    put(rows, roofline_ns(device.roofline, device, *of_rows), device.roofline.errors, code)
    return PriceList(_whole(time), _whole(low), _whole(high), source)


def _is_product(operations: Operations) -> Bools:
    """Return which are matrix products, or convolutions, which are computed as ones."""
    found: Bools = (operations.op_class == _GEMM) | (operations.op_class == _CONV)
    return found


def _whole(time: Floats) -> Ints:
    return np.minimum(np.rint(time), _LONGEST).astype(np.int64)


def _known(operations: Operations, device: Device) -> _Known:
    """Return what is known, with operations and bytes that follow from shapes."""
    shape = np.maximum(operations.shape, 0).astype(np.float64)
    has_shape = (operations.shape > 0).all(axis=1)
    has_shape &= _is_product(operations) | (operations.op_class == _ATTENTION)
    batch, m, n, k = shape.T
    is_gemm = _is_product(operations)
    item = _ITEM_SIZES[operations.dtype]
    count = np.where(is_gemm, batch * (m * k + k * n + m * n), 2 * batch * (m + n) * k)
    work = np.where(is_gemm, 2.0, 4.0) * batch * m * n * k
    flops = np.where(operations.flops >= 0, operations.flops, np.where(has_shape, work, 0.0))
    size = np.where(operations.bytes >= 0, operations.bytes, np.where(has_shape, count * item, 0.0))
    rates = np.array([device.peak_of(name) for name in DTYPE_NAMES])
    return _Known(
        flops, size, shape, rates[operations.dtype],
        (operations.flops >= 0) | has_shape, (operations.bytes >= 0) | has_shape, has_shape,
    )  # fmt: skip


def _factors(time: Floats, errors: Errors) -> tuple[Floats, Floats]:
    """Return the factors of predicted times between which measurements lie."""
    ends, low, high = np.array(errors).T
    band = np.minimum(np.searchsorted(ends, time), ends.size - 1)
    return low[band], high[band]


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

    - ``shape``: float64, shape (operations, 4): batch, m, n, k.
    - ``size``, ``peak``: float64, shape (operations,): bytes read and written; operations per s for
      their type.
    - Returns float64 ns, shape (operations,): O(operations * tiles * splits).
    """
    batch, m, n, k = shape.T
    reading = size / (device.bandwidth * curve.memory) * 1e9
    rate = peak / device.units / 1e9
    # of all tiles the least arithmetic takes the least time, too, whatever is read beside it
    count = [batch * np.ceil(m / rows) * np.ceil(n / columns) for rows, columns, _ in curve.tiles]
    each = [2.0 * rows * columns / (rate * share) for rows, columns, share in curve.tiles]
    best = np.full(size.shape, np.inf)
    for parts in _SPLITS:
        busy = np.full(size.shape, np.inf)
        for tiles, one in zip(count, each, strict=True):
            np.minimum(busy, np.ceil(tiles * parts / device.units) * one, out=busy)
        time = _overlapped(busy * (np.ceil(k / parts) + curve.ramp), reading, curve.overlap)
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

    - ``shape``: float64, shape (operations, 4): batch times heads, queries, keys, size of a head.
    - ``flops``, ``size``, ``peak``: float64, shape (operations,).
    - Returns float64 ns, shape (operations,)
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
