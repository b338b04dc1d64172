"""Typical overheads of a rank, estimated from its own recording.

What an operation waited longer than this after its launch, after the work before it,
or after the work that it waited for, is not explained by that dependency and stays a
delay of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.link.synchronisation import BLOCKING_COPY, STAGED_COPY_BYTES
from nadi.schema import DEVICE_WORK
from nadi.trace import Trace

__all__ = [
    "LAUNCH_CLASSES",
    "MEASURED_WAITS",
    "WAIT_CLASSES",
    "Overheads",
    "Waits",
    "estimate_overheads",
    "launch_class",
    "ready_at",
    "turnaround_class",
    "waits_of",
]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

LAUNCH_CLASSES = ("device", "blocking copy", "staged copy", "gloo", "thread")
"""Work that calls launch; a blocking copy holds its call up to its end, a staged one until most
of its data is taken along."""
WAIT_CLASSES = ("device", "stream", "event", "copy", "queue", "hand-over", "staged copy")
"""What calls wait for; the last two wait as long as they do, there is nothing typical."""
_MEASURED = ("hand-over", "staged copy")
MEASURED_WAITS = tuple(WAIT_CLASSES.index(name) for name in _MEASURED)
_WAIT_NAMES = (("device", "DeviceSynchronize|CtxSynchronize"), ("stream", "StreamSynchronize"),
               ("event", "EventSynchronize"))  # fmt: skip

_MIN_SAMPLES = 20
_LARGEST_GUESS_NS = 3_000
_FAR = 2**62
_QUEUED_NS = 10_000
_LONGEST_TURNAROUND_NS = 5_000
_Window = tuple[int, int]
_ALWAYS: _Window = (0, _FAR)


@dataclass(frozen=True)
class Overheads:
    """Typical overheads in ns; int64 arrays.

    Attributes
    ----------
    launch_after_end, launch_after_start
        Shape (launch classes,): from the end and from the start of a call to the start of
        the work that it launched.
    turnaround
        Shape (device work, device work): from the end of work of one category to the start
        of work of another on the same stream, as in ``schema.DEVICE_WORK``.
    crossing
        From the end of work to the start of work on another stream that waits for its event.
    wait_return
        Shape (wait classes,): from the end of the work to the return of the call.
    wait_call
        Shape (wait classes,): such a call by itself, with nothing left to wait for.
    """

    launch_after_end: _Ints
    launch_after_start: _Ints
    turnaround: _Ints
    crossing: int
    wait_return: _Ints
    wait_call: _Ints

    def table(self) -> pl.DataFrame:
        """Give all of it as a table: what, which, ns."""
        pairs = [f"{before} to {after}" for before in DEVICE_WORK for after in DEVICE_WORK]
        parts = (
            ("launch after call's end", LAUNCH_CLASSES, self.launch_after_end),
            ("launch after call's start", LAUNCH_CLASSES, self.launch_after_start),
            ("turn-around of a stream", pairs, self.turnaround.ravel()),
            ("crossing to another stream", ("event",), np.array([self.crossing])),
            ("return from a wait", WAIT_CLASSES, self.wait_return),
            ("call with nothing to wait for", WAIT_CLASSES, self.wait_call),
        )
        return pl.DataFrame(
            [(what, which, int(ns)) for what, names, values in parts
             for which, ns in zip(names, values, strict=True)],
            schema=["what", "which", "ns"], orient="row",
        )  # fmt: skip


@dataclass(frozen=True)
class Waits:
    """The sync dependencies of a rank, with the moment that each call waits for.

    Attributes
    ----------
    work, call
        int64, shape (waits,): node rows.
    kind
        int64, shape (waits,): position in ``WAIT_CLASSES``.
    moment
        int64 ns, shape (waits,): the end of the work; its start, of a copy that outlives
        its call.
    from_start
        bool, shape (waits,): whether it is the start.
    last
        int64 ns, shape (waits,): the latest moment of all that the same call waits for.
    """

    work: _Ints
    call: _Ints
    kind: _Ints
    moment: _Ints
    from_start: _Bools
    last: _Ints


def estimate_overheads(trace: Trace, within: tuple[int, int] = _ALWAYS) -> Overheads:
    """Estimate the typical overheads of a linked trace.

    Parameters
    ----------
    within
        Only what starts in this half-open interval is looked at, ns since the epoch.

    Returns
    -------
    Overheads
        O(nodes + deps log deps).
    """
    caller, work = _deps(trace, "launch", within)
    after_end, after_start = _launch_latencies(trace, caller, work)
    returns, calls = _wait_overheads(trace, within)
    turnaround = _turnarounds(trace, within)
    crossing = _crossing(trace, after_end, turnaround, within)
    return Overheads(after_end, after_start, turnaround, crossing, returns, calls)


def launch_class(trace: Trace, caller: _Ints, work: _Ints) -> _Ints:
    """Give the class of launches; node rows, positions in ``LAUNCH_CLASSES``, one shape."""
    on_device = ~trace.nodes["is_cpu"].to_numpy()[work]
    blocking = trace.name_mask(BLOCKING_COPY)[work]
    end = trace.column("start") + trace.column("duration")
    staged = (
        trace.name_mask(r"(?i)pageable\s*->")[work]
        & (trace.column("bytes")[work] > STAGED_COPY_BYTES)
        & (trace.column("start")[work] < end[caller])
    )
    is_gloo = trace.name_mask(r"^gloo:")[work]
    return np.select(
        [on_device & blocking, on_device & staged, on_device, is_gloo], [1, 2, 0, 3], 4
    )


def _launch_latencies(trace: Trace, caller: _Ints, work: _Ints) -> tuple[_Ints, _Ints]:
    """Take medians over launches onto an idle stream, without communication.

    With under 20 of these it is their lower quartile, from the call's end at most 3 us;
    without any it is the lower quartile over all launches, at most 3 us.
    """
    start = trace.column("start")
    end = start + trace.column("duration")
    since_end, since_start = start[work] - end[caller], start[work] - start[caller]
    on_device = ~trace.nodes["is_cpu"].to_numpy()[work]
    is_comm = (trace.nodes["comm_type"] != "none").to_numpy()[work]
    idle = ~on_device | (ready_at(trace)[work] <= start[caller])
    kind = launch_class(trace, caller, work)
    after_end, after_start = np.zeros((2, len(LAUNCH_CLASSES)), dtype=np.int64)
    for number in np.unique(kind):
        sample = (kind == number) & ~(is_comm & on_device)
        after_start[number] = _typical(since_start[sample], idle[sample], _FAR)
        after_end[number] = _typical(since_end[sample], idle[sample], _LARGEST_GUESS_NS)
    return after_end, after_start


def _typical(times: _Ints, idle: _Bools, largest_guess: int) -> int:
    """Give the median over idle launches, or if they are few a low guess."""
    possible = times >= 0
    if (idle & possible).sum() >= _MIN_SAMPLES:
        return int(np.median(times[idle & possible]))
    if (idle & possible).any():
        return int(min(np.percentile(times[idle & possible], 25), largest_guess))
    if possible.any():  # all of these waited for something else as well
        return int(min(np.percentile(times[possible], 25), _LARGEST_GUESS_NS))
    return 0


def turnaround_class(trace: Trace, before: _Ints, after: _Ints) -> tuple[_Ints, _Ints]:
    """Give the categories of consecutive work; positions in ``schema.DEVICE_WORK``."""
    category = trace.nodes["category"]
    number = np.select([(category == c).to_numpy() for c in DEVICE_WORK], range(3), 0)
    return number[before], number[after]


def _turnarounds(trace: Trace, within: _Window) -> _Ints:
    """Take means over pairs of the same two categories that were queued in good time.

    The second was launched 10 us before the first ended, and started within 5 us of it;
    where two categories have no such pair, it is the mean over all pairs that are.
    """
    before, after = _deps(trace, "stream", within)
    start = trace.column("start")
    gap = start[after] - (start + trace.column("duration"))[before]
    queued = _launched_at(trace)[after] <= start[after] - gap - _QUEUED_NS
    sample = queued & (gap >= 0) & (gap <= _LONGEST_TURNAROUND_NS)
    sample &= ready_at(trace)[after] <= start[after] - gap  # nor held by another stream
    first, second = turnaround_class(trace, before[sample], after[sample])
    gap = gap[sample]
    typical = np.full((3, 3), int(gap.mean()) if gap.size else 0, dtype=np.int64)
    for pair in {*zip(first.tolist(), second.tolist(), strict=True)}:
        typical[pair] = int(gap[(first == pair[0]) & (second == pair[1])].mean())
    return typical


def _crossing(trace: Trace, after_end: _Ints, turnaround: _Ints, within: _Window) -> int:
    """Take the median over work that an event of another stream held up to at most 5 us before.

    That is work which its launch and its own stream allowed to start by then; ``after_end``
    and ``turnaround`` as in :class:`Overheads`.
    """
    source, held = _deps(trace, "event", within)
    start = trace.column("start")
    end = start + trace.column("duration")
    before, after = _deps(trace, "stream")
    allowed = np.zeros(trace.nodes.height, dtype=np.int64)
    allowed[after] = end[before] + turnaround[turnaround_class(trace, before, after)]
    caller, work = _deps(trace, "launch")
    launched = np.minimum(end[caller] + after_end[launch_class(trace, caller, work)], start[work])
    allowed[work] = np.maximum(allowed[work], launched)
    last = np.zeros(trace.nodes.height, dtype=np.int64)
    np.maximum.at(last, held, end[source])
    held = np.unique(held)
    gap = start[held] - last[held]
    sample = (last[held] >= allowed[held]) & (gap >= 0) & (gap <= _LONGEST_TURNAROUND_NS)
    return int(np.median(gap[sample])) if sample.any() else 0


def waits_of(trace: Trace) -> Waits:
    """Give the waits of a rank's calls for work, each with its class. O(nodes + deps)."""
    work, call = _deps(trace, "sync", _ALWAYS)
    start = trace.column("start")
    end = start + trace.column("duration")
    caller, launched = _deps(trace, "launch", _ALWAYS)
    launcher = np.full(trace.nodes.height, -1, dtype=np.int64)
    launcher[launched] = caller
    own_copy = launcher[work] == call
    from_start = own_copy & (end[work] > end[call])
    on_device = trace.category_mask(*DEVICE_WORK)[work]
    named = [trace.name_mask(pattern)[call] for _, pattern in _WAIT_NAMES]
    number = {name: position for position, name in enumerate(WAIT_CLASSES)}
    kind = np.select(
        [~on_device, *named, from_start, own_copy],
        [number["hand-over"], *(number[name] for name, _ in _WAIT_NAMES), number["staged copy"],
         number["copy"]],
        number["queue"],
    )  # fmt: skip
    moment = np.where(from_start, start[work], end[work])
    last = np.zeros(trace.nodes.height, dtype=np.int64)
    np.maximum.at(last, call, moment)
    return Waits(work, call, kind, moment, from_start, last[call])


def _wait_overheads(trace: Trace, within: _Window) -> tuple[_Ints, _Ints]:
    """Take medians over calls that waited, and over calls that had nothing to wait for."""
    waits = waits_of(trace)
    start, duration = trace.column("start")[waits.call], trace.column("duration")[waits.call]
    inside = (start >= within[0]) & (start < within[1]) & (waits.moment == waits.last)
    waited = waits.last > start
    returns, calls = np.zeros((2, len(WAIT_CLASSES)), dtype=np.int64)
    for number, name in enumerate(WAIT_CLASSES):
        mine = inside & (waits.kind == number)
        if (mine & ~waited).any():
            calls[number] = int(np.median(duration[mine & ~waited]))
        # a call that took no longer than one without a wait does not show when it was woken
        woken = mine & waited & (duration > calls[number])
        if name in _MEASURED:
            returns[number] = _FAR
        elif woken.any():
            returns[number] = int(np.median((start + duration - waits.last)[woken]))
    return returns, calls


def _deps(trace: Trace, kind: str, within: _Window = _ALWAYS) -> tuple[_Ints, _Ints]:
    """Give the dependencies of a kind whose later operation starts in an interval."""
    chosen = trace.deps.filter(trace.deps["kind"] == kind)
    src, dst = chosen["src"].to_numpy(), chosen["dst"].to_numpy()
    start = trace.column("start")[dst]
    inside = (start >= within[0]) & (start < within[1])
    return src[inside], dst[inside]


def ready_at(trace: Trace) -> _Ints:
    """Give for each node the end of the last work that its stream has to wait for; else 0.

    That is the work before it, and work of other streams by way of an event. int64 ns,
    shape (nodes,).
    """
    ready = np.zeros(trace.nodes.height, dtype=np.int64)
    end = trace.column("start") + trace.column("duration")
    for kind in ("stream", "event"):
        before, after = _deps(trace, kind)
        np.maximum.at(ready, after, end[before])
    return ready


def _launched_at(trace: Trace) -> _Ints:
    """Give for each node the end of the call that launched it; the far future if unknown."""
    caller, work = _deps(trace, "launch")
    launched = np.full(trace.nodes.height, np.iinfo(np.int64).max)
    on_device = trace.category_mask(*DEVICE_WORK)[work]
    caller, work = caller[on_device], work[on_device]
    launched[work] = (trace.column("start") + trace.column("duration"))[caller]
    return launched
