"""Typical overheads of a rank, estimated from its own recording.

What an operation waited longer than this after its launch, or after the work before
it, is not explained by that dependency and stays a delay of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nadi.schema import DEVICE_WORK
from nadi.trace import Trace

__all__ = ["launch_latency", "stream_turnaround"]

_Ints = npt.NDArray[np.int64]
_MIN_SAMPLES = 20
_LARGEST_GUESS_NS = 3_000
_QUEUED_NS = 10_000
_LONGEST_TURNAROUND_NS = 5_000


def launch_latency(trace: Trace, caller: _Ints, work: _Ints) -> _Ints:
    """Estimate the time from a call to the start of the work that it launched.

    For device work it is the median, from the end of the call, over launches onto an idle
    stream; with under 20 of these the lower quartile over all launches, at most 3 us. For
    work of other threads it is the median from the start of the call.

    Parameters
    ----------
    caller, work
        int64, shape (launches,): node rows.

    Returns
    -------
    int64 ns, shape (launches,)
    """
    start = trace.column("start")
    end = start + trace.column("duration")
    on_thread = trace.nodes["is_cpu"].to_numpy()[work]
    typical = np.zeros(work.size, dtype=np.int64)
    if on_thread.any():
        from_start = start[work[on_thread]] - start[caller[on_thread]]
        typical[on_thread] = max(int(np.median(from_start)), 0)
    if not on_thread.all():
        after_call = start[work] - end[caller]
        usual = ~on_thread & (trace.nodes["comm_type"] == "none").to_numpy()[work]
        idle = usual & (_end_of_previous(trace)[work] <= start[caller]) & (after_call >= 0)
        if idle.sum() >= _MIN_SAMPLES:
            estimate = np.median(after_call[idle])
        else:
            known = after_call[usual & (after_call >= 0)]
            lower_quartile = np.percentile(known, 25) if known.size else 0
            estimate = min(lower_quartile, _LARGEST_GUESS_NS)
        typical[~on_thread] = int(estimate)
    return typical


def stream_turnaround(trace: Trace, before: _Ints, after: _Ints) -> _Ints:
    """Estimate the time between consecutive work of a stream that was queued in good time.

    It is the mean over pairs of the same two categories (kernel after kernel, kernel
    after copy, ...) whose second was launched 10 us before the first ended and started
    within 5 us of it; over all such pairs where these two categories have none.

    Parameters
    ----------
    before, after
        int64, shape (pairs,): node rows.

    Returns
    -------
    int64 ns, shape (pairs,)
    """
    if before.size == 0:
        return np.empty(0, dtype=np.int64)
    start = trace.column("start")
    end = start + trace.column("duration")
    gap = start[after] - end[before]
    queued = _launched_at(trace)[after] <= end[before] - _QUEUED_NS
    sample = queued & (gap >= 0) & (gap <= _LONGEST_TURNAROUND_NS)
    category = trace.nodes["category"].to_physical().to_numpy().astype(np.int64)
    pair = category[before] * 256 + category[after]
    typical = np.full(after.size, int(gap[sample].mean()) if sample.any() else 0, dtype=np.int64)
    for one in np.unique(pair[sample]):
        typical[pair == one] = int(gap[sample & (pair == one)].mean())
    return typical


def _deps(trace: Trace, kind: str) -> tuple[_Ints, _Ints]:
    chosen = trace.deps.filter(trace.deps["kind"] == kind)
    return chosen["src"].to_numpy(), chosen["dst"].to_numpy()


def _end_of_previous(trace: Trace) -> _Ints:
    """Give for each node the end of the work before it on its stream; 0 where there is none."""
    before, after = _deps(trace, "stream")
    previous = np.zeros(trace.nodes.height, dtype=np.int64)
    previous[after] = (trace.column("start") + trace.column("duration"))[before]
    return previous


def _launched_at(trace: Trace) -> _Ints:
    """Give for each node the end of the call that launched it; the far future if unknown."""
    caller, work = _deps(trace, "launch")
    launched = np.full(trace.nodes.height, np.iinfo(np.int64).max)
    on_device = trace.category_mask(*DEVICE_WORK)[work]
    caller, work = caller[on_device], work[on_device]
    launched[work] = (trace.column("start") + trace.column("duration"))[caller]
    return launched
