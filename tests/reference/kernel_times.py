"""Kernel times one at a time, in plain Python, for ``nadi.systems.prices.price_list``."""

from __future__ import annotations

from math import ceil

from nadi.systems import Device


def overlapped(one: float, other: float, exponent: float) -> float:
    """Return the norm of two times."""
    most = max(one, other)
    if most == 0:
        return 0.0
    return most * ((one / most) ** exponent + (other / most) ** exponent) ** (1 / exponent)


def gemm(device: Device, shape: tuple[int, int, int, int], size: int, peak: float) -> float:
    """Return the time of a matrix multiplication in ns."""
    curve = device.gemm
    assert curve
    batch, m, n, k = shape
    bandwidth = device.bandwidth * curve.memory
    best = float("inf")
    for rows, columns, share in curve.tiles:
        for parts in (1, 2, 3, 4, 6, 8, 16):
            tiles = batch * ceil(m / rows) * ceil(n / columns) * parts
            waves = ceil(tiles / device.units)
            seconds = 2 * rows * columns * (ceil(k / parts) + curve.ramp)
            seconds = waves * seconds / (peak / device.units * share)
            time = overlapped(seconds * 1e9, size / bandwidth * 1e9, curve.overlap)
            if parts > 1:
                time += curve.split + 2 * parts * 4 * batch * m * n / bandwidth * 1e9
            best = min(best, time)
    return best + curve.floor


def attention(
    device: Device, shape: tuple[int, int, int, int], flops: int, size: int, peak: float
) -> float:
    """Return the time of fused attention in ns."""
    curve = device.attention
    assert curve
    heads, queries, keys, width = shape
    work, share = 4.0 * heads * queries * keys * width, curve.forward
    part = flops / work if flops > 0 else 1.0
    if part > 1.1:
        part, work, share = part / 2.5, 2.5 * work, curve.backward
    part = min(part, 1.0)
    causal = min(2 * (1 - part), 1.0)
    products = 1 / share
    softmax = curve.softmax / width * curve.forward / share
    time = work * (part / (1 - causal * (1 - curve.causal)) + curve.ramp / keys) / peak * 1e9
    time *= overlapped(products, softmax, 3.0)
    time *= max(1.0, device.units / (heads * ceil(queries / 128)))
    return max(time, size / (device.bandwidth * curve.memory) * 1e9) + curve.floor


def memory(device: Device, op_class: str, flops: int, size: int, peak: float) -> float:
    """Return the time of a kernel that is bound by memory in ns."""
    curve = device.memory.get(op_class, device.memory[""])
    hits = 0.0
    if device.cache:
        hits = min(max((1.5 * device.cache - size) / (0.75 * device.cache), 0.0), 1.0)
    moved = size * (1 - hits) + size * hits / curve.cached
    return max(moved / (device.bandwidth * curve.share), flops / peak) * 1e9 + curve.floor


def roofline(device: Device, flops: int, size: int, peak: float) -> float:
    """Return the time of an operation without a class in ns."""
    curve = device.roofline
    reading = size / (device.bandwidth * curve.memory) * 1e9
    return overlapped(flops / (peak * curve.compute) * 1e9, reading, curve.overlap) + curve.floor
