"""A collective of NCCL, one step after the other: what few channels make of a small one."""

from __future__ import annotations

SHARES = {"LL": 1 / 2, "LL128": 120 / 128, "Simple": 1.0}
THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
BYTES = {"LL": 8, "LL128": 8, "Simple": 64}  # of a thread at once


def channels_of(size: int, protocol: str, least: int, most: int) -> int:
    """Count the channels that carry a size: each has at least this many bytes for its threads."""
    for channels in range(most, 1, -1):
        if size >= channels * THREADS[protocol] * least:
            return channels
    return 1


def ring_time(
    size: int, protocol: str, ranks: int, base: float, step: float, channels: int, link: float
) -> float:
    """Add up the steps of an all-reduce along a ring within a node, us; link in GB/s."""
    time = base
    for _ in range(2 * (ranks - 1)):
        time += step
        part = size / ranks / channels
        time += part / (link * 1000 * SHARES[protocol])
    return time


def tree_time(
    size: int, protocol: str, down: list[tuple[float, float]], base: float, channels: int
) -> float:
    """Add up what the first line takes up and down a tree, us: steps are (us, GB/s)."""
    line = min(size / channels, THREADS[protocol] * BYTES[protocol])
    time = base
    for _ in range(2):
        for step, link in down:
            time += step + line / (link * 1000 * SHARES[protocol])
    return time
