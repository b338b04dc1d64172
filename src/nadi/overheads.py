"""Typical overheads of a rank, estimated from its own recording.

What an operation waited longer than this after its launch, or after the work before
it, is not explained by that dependency and stays a delay of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nadi.link.synchronisation import BLOCKING_COPY
from nadi.schema import DEVICE_WORK
from nadi.trace import Trace

__all__ = ["launch_latency", "stream_turnaround"]

_Ints = npt.NDArray[np.int64]
_MIN_SAMPLES = 20
_LARGEST_GUESS_NS = 3_000
_FAR = 2**62
_QUEUED_NS = 10_000
_LONGEST_TURNAROUND_NS = 5_000


def launch_latency(trace: Trace, caller: _Ints, work: _Ints) -> tuple[_Ints, _Ints]:
    """Estimate the time from a call to the start of the work that it launched.

    For device work both are medians over launches onto an idle stream; with under 20 of
    these lower quartiles over all launches, the one from the end at most 3 us. Copies that
    block their call are estimated apart, as are gloo's threads from others.

    Parameters
    ----------
    caller, work
        int64, shape (launches,): node rows.

    Returns
    -------
    after_end, after_start
        int64 ns, shape (launches,), 0 or more: from the end of the call, for device work
        that starts after it; from its start, for all other.
    """
    start = trace.column("start")
    end = start + trace.column("duration")
    since_end, since_start = start[work] - end[caller], start[work] - start[caller]
    names = trace.nodes["name"].cast(str).gather(work)
    on_device = ~trace.nodes["is_cpu"].to_numpy()[work]
    blocking = names.str.contains(BLOCKING_COPY).to_numpy() & on_device
    is_gloo = names.str.starts_with("gloo:").to_numpy()
    is_comm = (trace.nodes["comm_type"] != "none").to_numpy()[work]
    idle = ~on_device | (_end_of_previous(trace)[work] <= start[caller])
    after_end, after_start = np.zeros((2, work.size), dtype=np.int64)
    for group in (on_device & ~blocking, blocking, is_gloo, ~on_device & ~is_gloo):
        sample = group & ~(is_comm & on_device)
        after_start[group] = _typical(since_start[sample], idle[sample], _FAR)
        after_end[group] = _typical(since_end[sample], idle[sample], _LARGEST_GUESS_NS)
    return after_end, after_start


def _typical(times: _Ints, idle: npt.NDArray[np.bool_], largest_guess: int) -> int:
    """Give the median over idle launches, or if they are few a low guess over all."""
    possible = times >= 0
    if (idle & possible).sum() >= _MIN_SAMPLES:
        return int(np.median(times[idle & possible]))
    if not possible.any():
        return 0
    return int(min(np.percentile(times[possible], 25), largest_guess))


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
