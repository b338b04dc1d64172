"""Latency of a memory under load, and the bandwidth that so many accesses under way reach.

The curve is that of CXLMemSim (src/cxlendpoint.cpp at 71c5979), which was calibrated with Intel's
Memory Latency Checker. Its penalties are times of 64 bytes at the peak.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from nadi.trace.arrays import Floats

__all__ = ["LoadedLatency", "latency_ns", "peak_rate", "reached_rate"]

_LINE = 64.0  # bytes of an access
_PURE = 0.05  # a share of reads or writes below which there are none
_MOST_TIMES = 10.0  # of the idle latency, the largest penalty
_RATIOS = np.linspace(0.0, 1.0, 41)
_BISECTIONS = 60
_Rate = Annotated[float, Meta(gt=0)]
_NotNegative = Annotated[float, Meta(ge=0)]
_Share = Annotated[float, Meta(gt=0, lt=1)]


class LoadedLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How latency grows with load.

    Attributes
    ----------
    idle_ns
        Latency of an access without load.
    read_gbps, write_gbps
        Peak bandwidth of reads alone and of writes alone, in 10^9 bytes a second.
    slope
        Penalty of full load, without queues.
    knee, saturation
        Loads, as shares of the peak, from which queues form, and from which no more is served.
    most_ns
        The largest penalty, if ten times the idle latency is less.
    outstanding
        Accesses of 64 bytes that are under way at once.
    """

    idle_ns: _Rate
    read_gbps: _Rate
    write_gbps: _Rate
    slope: _NotNegative = 1.0
    knee: _Share = 0.6
    saturation: _Share = 0.95
    most_ns: _NotNegative = 0.0
    outstanding: _Rate = 1024.0

    def __post_init__(self) -> None:
        if self.knee >= self.saturation:
            raise ValueError(f"knee is {self.knee:g}, and must be below saturation")


def peak_rate(curve: LoadedLatency, reads: Floats) -> Floats:
    """Give the peak in bytes a second for shares of reads: linear through both pure and half."""
    read, write = curve.read_gbps, curve.write_gbps
    mixed = 2 / (1 / read + 1 / write)
    found = np.interp(reads, [0.0, 0.5, 1.0], [write, mixed, read])
    found = np.where(reads >= 1 - _PURE, read, np.where(reads <= _PURE, write, found))
    rate: Floats = found * 1e9
    return rate


def latency_ns(curve: LoadedLatency, load: Floats, peak: Floats) -> Floats:
    """Give the latency at loads, shares of a peak in bytes a second."""
    line = _LINE / peak * 1e9
    penalty = line * load * curve.slope
    queued = np.minimum(load, curve.saturation)
    over = np.maximum(queued - curve.knee, 0.0) / (curve.saturation - curve.knee)
    penalty = penalty + line * queued / (1 - queued) * over**2
    beyond = np.maximum(load - curve.saturation, 0.0) / (1 - curve.saturation)
    penalty = penalty + curve.idle_ns * beyond
    most = max(curve.most_ns, _MOST_TIMES * curve.idle_ns)
    latency: Floats = curve.idle_ns + np.minimum(penalty, most)
    return latency


def reached_rate(curve: LoadedLatency, reads: Floats) -> Floats:
    """Give the bytes a second that the accesses under way reach, for shares of reads.

    As many bytes are under way as bandwidth times latency, and latency grows with bandwidth:
    of both the load at which they agree, or the peak.
    """
    found: Floats = np.interp(reads, _RATIOS, _reached(curve))
    return found


@lru_cache(maxsize=1024)
def _reached(curve: LoadedLatency) -> Floats:
    """Give the rate for each of ``_RATIOS``."""
    peak = peak_rate(curve, _RATIOS)
    under_way = curve.outstanding * _LINE
    low, high = np.zeros(peak.size), np.ones(peak.size)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = middle * peak * latency_ns(curve, middle, peak) / 1e9 <= under_way
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return high * peak
