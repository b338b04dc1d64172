"""What Python does between operations: from samples of its stacks, in steps that are not timed.

A profiler with stacks slows Python down, and its files have an event for every call. Samples are
few, and tell what long gaps are. They are of other steps than the times, and belong to gaps between
operations of the same names. Standard library only, as all of this folder.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

WAIT_IN = "wait in "
_EVERY_S = 0.001
_SWITCH_S = 50e-6  # how long Python may run until it is sampled: else 5 ms
_MOST_SAMPLES = 100_000
_MOST_EVENTS = 300_000
_LEAST_NS = 100_000  # of a gap that gets a name
_LEAST_SAMPLES = 2
_MARKS = ("ProfilerStep#", "Optimizer.")  # ranges that say nothing of what happens in them
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = ("site-packages", "dist-packages")
_TORCH = f"{os.sep}torch{os.sep}"
_CPU = "DeviceType.CPU"


class Called(NamedTuple):
    """A function, and the line where it begins; of a program outside of functions, where it is."""

    code: CodeType
    line: int


class Sample(NamedTuple):
    """What a thread did."""

    time_ns: int
    thread: int
    stack: tuple[Called, ...]  # the innermost function last
    ran_ns: int  # since it began: it ran, or was ready to; -1 if the system does not say so
    sampler_ns: int  # the same of the thread that samples, for which it may have to wait


class Span(NamedTuple):
    """An operation or a range of a thread; ns."""

    thread: int
    begin: int
    end: int
    name: str


class Gap(NamedTuple):
    """Time between two operations of a thread; ns."""

    begin: int
    end: int
    place: tuple[str, str]  # the names of the operations before and after it


class StackSampler:
    """Notes every millisecond what each thread of Python does, until it is stopped."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._stopped = threading.Event()
        self._switch = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._run, name="nadi samples", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()

    def stop(self) -> None:
        """End; the samples are complete then."""
        self._stopped.set()
        self._thread.join()
        sys.setswitchinterval(self._switch)

    def _run(self) -> None:
        own, sampler = threading.get_ident(), threading.get_native_id()
        while not self._stopped.wait(_EVERY_S) and len(self.samples) < _MOST_SAMPLES:
            native = {thread.ident: thread.native_id for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != own and (thread := native.get(ident)):
                    ran = _ran_ns(thread), _ran_ns(sampler)
                    self.samples.append(Sample(time.time_ns(), thread, _stack(frame), *ran))


def _stack(frame: FrameType | None) -> tuple[Called, ...]:
    """Return the functions of a stack but those of this folder."""
    found = []
    while frame is not None:
        code = frame.f_code
        if os.path.dirname(code.co_filename) != _HERE:
            line = frame.f_lineno if code.co_name == "<module>" else code.co_firstlineno
            found.append(Called(code, line))
        frame = frame.f_back
    return tuple(reversed(found))


def scheduled_ns(thread: int) -> tuple[int, int] | None:
    """Return for how long a thread ran, and was ready while others ran; None if nothing says so."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            ran, ready, _ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    return ran, ready


def _ran_ns(thread: int) -> int:
    """Return for how long a thread ran or was ready to, or -1."""
    return -1 if (times := scheduled_ns(thread)) is None else sum(times)


def spans_of(results: Any) -> list[Span]:
    """Take the operations and ranges of the host from what a profiler has recorded."""
    found = results.events()
    if len(found) > _MOST_EVENTS:  # their names would hold up the program
        return []
    return [
        Span(one.device_resource_id(), one.start_ns(), one.start_ns() + one.duration_ns(),
             one.name())
        for one in found if str(one.device_type()) == _CPU
    ]  # fmt: skip


def name_gaps(samples: Iterable[Sample], sampled: list[Span]) -> dict[tuple[str, str], list[str]]:
    """Say what happens in gaps: for each place the names of one or two functions.

    The first is the innermost function of the program's own files, the last what that calls of a
    library, or a wait in it, if it is half of the samples.
    """
    gaps = _gaps(sampled)
    begins = {thread: [gap.begin for gap in mine] for thread, mine in gaps.items()}
    met: dict[tuple[str, str], list[tuple[tuple[str, ...], bool]]] = {}
    for sample, is_asleep in _asleep(samples):
        mine = gaps.get(sample.thread, [])
        at = bisect.bisect_right(begins.get(sample.thread, []), sample.time_ns) - 1
        if at >= 0 and sample.time_ns < mine[at].end:
            names = _functions(sample.stack, is_asleep=is_asleep)
            met.setdefault(mine[at].place, []).append((names, is_asleep))
    found = {place: _most_met(here) for place, here in met.items()}
    return {place: functions for place, functions in found.items() if functions}


def _most_met(here: list[tuple[tuple[str, ...], bool]]) -> list[str]:
    """Return the function of most samples of a place, and what it calls in most of these."""
    chosen: tuple[str, ...] = ()
    for depth in (1, 2):
        ((most, times),) = collections.Counter(names[:depth] for names, _ in here).most_common(1)
        if times < _LEAST_SAMPLES or 2 * times < len(here):
            break
        chosen, here = most, [one for one in here if one[0][:depth] == most]
    if not chosen:
        return []
    asleep = sum(is_asleep for _, is_asleep in here)
    return [*chosen[:-1], f"{WAIT_IN}{chosen[-1]}"] if 2 * asleep > len(here) else list(chosen)


def named_events(
    timed: list[Span], names: dict[tuple[str, str], list[str]], base_ns: int
) -> list[dict[str, Any]]:
    """Make events of Python functions for the long gaps of timed steps at places with names.

    ``base_ns`` is the time of which the file counts. An event ends where the mark of a step does.
    """
    marks = sorted({time for one in timed if one.name.startswith(_MARKS) for time in one[1:3]})
    events: list[dict[str, Any]] = []
    for thread, gaps in _gaps(timed).items():
        for gap in gaps:
            if gap.end - gap.begin < _LEAST_NS or gap.place not in names:
                continue
            inside = marks[bisect.bisect_right(marks, gap.begin) : bisect.bisect(marks, gap.end)]
            edges = [gap.begin, *inside, gap.end]
            for begin, end in itertools.pairwise(edges):
                if end - begin >= _LEAST_NS:
                    events += _nested(names[gap.place], begin, end, thread, base_ns)
    return events


def _nested(
    names: list[str], begin: int, end: int, thread: int, base_ns: int
) -> Iterator[dict[str, Any]]:
    """Make an event for each name, each inside of the one before it."""
    for depth, name in enumerate(names, 1):
        yield {
            "ph": "X", "cat": "python_function", "name": name, "pid": os.getpid(), "tid": thread,
            "ts": (begin + depth - base_ns) / 1000, "dur": (end - begin - 2 * depth) / 1000,
            "args": {"sampled in later steps": 1},
        }  # fmt: skip


def _gaps(spans: Iterable[Span]) -> dict[int, list[Gap]]:
    """Return the times of each thread between its operations, in order.

    The first begins with the first mark of a step, as if the last operation came before it.
    """
    found: dict[int, list[Gap]] = {}
    first: dict[int, Span] = {}
    last: dict[int, Span] = {}
    marked: dict[int, int] = {}
    for one in sorted(spans, key=lambda one: (one.begin, -one.end)):
        if one.name.startswith(_MARKS):
            marked.setdefault(one.thread, one.begin)
            continue
        before = last.get(one.thread)
        first.setdefault(one.thread, one)
        if before is not None and one.begin > before.end:
            gap = Gap(before.end, one.begin, (before.name, one.name))
            found.setdefault(one.thread, []).append(gap)
        if before is None or one.end > before.end:
            last[one.thread] = one
    for thread, begin in marked.items():
        if thread in first and begin < first[thread].begin:
            place = last[thread].name, first[thread].name
            found.setdefault(thread, []).insert(0, Gap(begin, first[thread].begin, place))
    return found


def _asleep(samples: Iterable[Sample]) -> Iterator[tuple[Sample, bool]]:
    """Say of each sample whether its thread has slept for most of the time since the one before.

    The time in which the sampler ran or was ready to counts for no thread: Python runs one at a
    time, and a thread that gives way to the sampler sleeps until that had its turn, which takes
    long where other programs have the processors.
    """
    last: dict[int, Sample] = {}
    for one in samples:
        before = last.get(one.thread, one)
        last[one.thread] = one
        ran, sampling = one.ran_ns - before.ran_ns, one.sampler_ns - before.sampler_ns
        yield one, one.ran_ns >= 0 and 2 * ran < one.time_ns - before.time_ns - sampling


def _functions(stack: tuple[Called, ...], *, is_asleep: bool) -> tuple[str, ...]:
    """Name the innermost function of the program, and what it calls of a library; or nothing.

    What PyTorch waits for by itself is a device, a collective or one of its threads: recorded.
    """
    if not stack or (is_asleep and _TORCH in stack[-1].code.co_filename):
        return ()
    own = [depth for depth, called in enumerate(stack) if not _is_library(called.code)]
    at = own[-1] if own else 0
    return tuple(map(_name, stack[at : at + 2]))


def _is_library(code: CodeType) -> bool:
    path = code.co_filename
    return path.startswith((_LIBRARY, "<frozen")) or any(part in path for part in _PACKAGES)


def _name(called: Called) -> str:
    """Name a function as PyTorch does: ``FILE(LINE): FUNCTION``."""
    code = called.code
    name = getattr(code, "co_qualname", code.co_name)
    return f"{os.path.basename(code.co_filename)}({called.line}): {name}"
