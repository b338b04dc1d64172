"""How much a flow moves in a time, and how long it takes: exact, without floating point results.

A rate times a time does not fit in 64 bits. What a flow has left is therefore two numbers:
1/1024 bytes, and parts of these that are 10^12 to one, so that a unit of a rate moves one such
part per ps.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulation.flows.flow_state import NEVER

__all__ = ["moved", "time_to_move"]

_PARTS = 1_000_000_000_000  # parts of 1/1024 byte
_HALF = 1_000_000


@inner
def moved(rate: int, time: int) -> tuple[int, int]:
    """Return what a rate moves in a time: 1/1024 bytes, and parts; exact if that fits."""
    rate_high, rate_low = rate // _HALF, rate % _HALF
    time_high, time_low = time // _HALF, time % _HALF
    one, other = rate_high * time_low, rate_low * time_high
    whole = rate_high * time_high + one // _HALF + other // _HALF
    parts = (one % _HALF + other % _HALF) * _HALF + rate_low * time_low
    return whole + parts // _PARTS, parts % _PARTS


@inner
def time_to_move(whole: int, parts: int, rate: int) -> int:
    """Return how long a rate needs, rounded up; NEVER if that is more than half of all times."""
    if whole == 0 and parts == 0:
        return 0
    if rate == 0:
        return NEVER
    about = (np.float64(whole) * 1e12 + np.float64(parts)) / np.float64(rate)
    if about > 4.6e18:
        return NEVER
    time = np.int64(about)
    while True:  # a few units too many or too few
        done, done_parts = moved(rate, time)
        short, short_parts = whole - done, parts - done_parts
        # at most 2^11 units of time are missing, each of them less than 2^63 parts
        missing = np.float64(short) * 1e12 + np.float64(short_parts)
        step = np.int64(missing / np.float64(rate))
        if step == 0:
            break
        time += step
    # less than a unit of time is missing or too much, up to rounding: look at both neighbors
    while _is_enough(whole, parts, rate, time - 1):
        time -= 1
    while not _is_enough(whole, parts, rate, time):
        time += 1
    return time


@inner
def _is_enough(whole: int, parts: int, rate: int, time: int) -> bool:
    done, done_parts = moved(rate, time)
    return done > whole or (done == whole and done_parts >= parts)
