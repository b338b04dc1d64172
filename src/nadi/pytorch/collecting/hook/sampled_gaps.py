"""What Python does around operations: from samples of its stacks, in steps that are not timed.

A profiler with stacks slows Python down, and its files have an event for every call. Samples are
few, and tell what long gaps are, and which functions call many operations. They are of other steps
than the times, and belong to gaps between operations of the same names, and to steps of the same
operations. Standard library only, as all of this folder.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import ctypes
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nadi.pytorch.collecting.hook.traced_calls import TracedCall

WAIT_IN = "wait in "
GARBAGE = "garbage collection"
_EVERY_NS = 1_000_000
_SOONEST_NS = 200_000  # a sample takes the sampler about half of it
_SAMPLES_OF_STEP = 20
_HELD_NS = 3_000_000  # between samples, without the sampler's own time: it waited for the GIL
_SWITCH_S = 5e-6  # how long Python may run until it is sampled, else 5 ms: gaps are shorter
_NOTED_S = 5e-4  # a thread that was asked for its turn before waits for this to go on
_SET_TIMER_SLACK = 29  # of prctl
_PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")  # of a function
_NESTED = 0x10  # of functions that another one makes; CO_NESTED in Python's documentation
_CLOCK_OF_THREAD = 6  # of Linux: of the processor, and of one thread
_LONGEST_LINE = 128  # bytes
_MOST_SAMPLES = 100_000
_MOST_EVENTS = 300_000
_LEAST_NS = 20_000  # of a gap that gets a name
_LEAST_SAMPLES = 2
_LEAST_LOCKED_NS = 100_000
_COMMUNICATION = ("gloo:", "nccl:", "mpi:", "ucc:", "c10d::")  # operations that wait for others
_MOST_OF_SLEEP = 1.2  # times it: times of the clock and of the system are not quite the same
_MARKS = ("ProfilerStep#", "Optimizer.")  # ranges that say nothing of what happens in them
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = ("site-packages", "dist-packages")
_TORCH = f"{os.sep}torch{os.sep}"
_CPU = "DeviceType.CPU"
_NODE = "autograd::engine::evaluate_function"


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
    at: int = 0  # the instruction of the innermost function


class Met(NamedTuple):
    """What a sample found in a gap, and for how much time it stands."""

    functions: tuple[str, ...]
    is_asleep: bool
    time_ns: int


class Span(NamedTuple):
    """An operation or a range of a thread; ns."""

    thread: int
    begin: int
    end: int
    name: str
    is_range: bool = False  # it says what is around operations, as record_function does

    @property
    def is_around(self) -> bool:
        """Whether it is a range, or the mark of a step."""
        return self.is_range or self.name.startswith(_MARKS)


class Gap(NamedTuple):
    """Time between two operations of a thread; ns."""

    begin: int
    end: int
    place: tuple[str, str]  # the names of the operations before and after it
    in_range: bool = False  # which names what the thread waits for


class Named(NamedTuple):
    """A function, and the share of its caller's samples that are in it; 1 without a caller."""

    name: str
    share: float


class Step(NamedTuple):
    """A marked step of a thread, and its operations that no other one holds, in order.

    Operations that a node of autograd calls follow it, as hooks of the program call some of them.
    """

    mark: Span
    operations: list[Span]
    holders: list[int]  # of each the position of the node that calls it, or its own

    def until(self, first: int, last: int) -> int:
        """Return when the operations from one to another have ended."""
        holder = self.holders[last]
        return self.operations[holder if holder >= first else last].end


class StackSampler:
    """Notes every millisecond what each thread of Python does, until it is stopped.

    Of steps that take ``step_ns``, under 20 ms, it notes it oftener: 20 times a step.
    """

    def __init__(self, step_ns: int = _SAMPLES_OF_STEP * _EVERY_NS) -> None:
        self.samples: list[Sample] = []
        self.every_ns = min(max(step_ns // _SAMPLES_OF_STEP, _SOONEST_NS), _EVERY_NS)
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
        files: dict[int, int] = {}  # open, as each opening gives other threads a turn
        _wake_in_time()
        while not self._stopped.wait(self.every_ns / 1e9) and len(self.samples) < _MOST_SAMPLES:
            sys.setswitchinterval(_NOTED_S)  # until all stacks are noted no other thread runs
            now = time.time_ns()
            found = [
                (ident, _stack(frame), frame.f_lasti)
                for ident, frame in sys._current_frames().items() if ident != own
            ]  # fmt: skip
            sys.setswitchinterval(_SWITCH_S)
            native = {thread.ident: thread.native_id for thread in threading.enumerate()}
            for ident, stack, at in found:
                if thread := native.get(ident):
                    ran = _ran_ns(thread, files), _ran_ns(sampler, files)
                    self.samples.append(Sample(now, thread, stack, *ran, at))
        for file in files.values():
            os.close(file)


@contextlib.contextmanager
def quick_turns() -> Iterator[None]:
    """Let other threads of Python give the GIL back at once, while the recorder reads files.

    It gives the GIL away for that, and would wait for an interval each time.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _wake_in_time() -> None:
    """Let waits of the calling thread end when they should, which Linux makes 50 us longer.

    In this time the thread that is to be sampled leaves its gap.
    """
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(1), 0, 0, 0)


def _stack(frame: FrameType | None) -> tuple[Called, ...]:
    """Return the functions of a stack but those of this folder, and expressions in functions."""
    found = []
    while frame is not None:
        code, caller = frame.f_code, frame.f_back
        is_part = (
            code.co_name in _PARTS and caller and caller.f_code.co_filename == code.co_filename
        )
        if os.path.dirname(code.co_filename) != _HERE and not is_part:
            line = frame.f_lineno if code.co_name == "<module>" else code.co_firstlineno
            found.append(Called(code, line))
        frame = caller
    return tuple(reversed(found))


def scheduled_ns(thread: int, files: dict[int, int] | None = None) -> tuple[int, int] | None:
    """Return for how long a thread ran, and was ready while others ran; None if nothing says so.

    ``files`` keeps the files of threads open.
    """
    kept = {} if files is None else files
    try:
        if thread not in kept:
            kept[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        ran, ready, _ = map(int, os.pread(kept[thread], _LONGEST_LINE, 0).split())
    except (OSError, ValueError):
        return None
    finally:
        if files is None and kept:
            os.close(kept[thread])
    return ran, ready


def _ran_ns(thread: int, files: dict[int, int] | None = None) -> int:
    """Return for how long a thread ran or was ready to, or -1.

    What the system lists of a thread that runs is some milliseconds old; its clock is exact.
    """
    if (times := scheduled_ns(thread, files)) is None:
        return -1
    with contextlib.suppress(OSError):  # it has ended
        return time.clock_gettime_ns(~thread << 3 | _CLOCK_OF_THREAD) + times[1]
    return sum(times)


def spans_of(results: Any) -> list[Span]:
    """Take the operations and ranges of the host from what a profiler has recorded."""
    found = results.events()
    if len(found) > _MOST_EVENTS:  # their names would hold up the program
        return []
    return [
        Span(one.device_resource_id(), one.start_ns(), one.start_ns() + one.duration_ns(),
             one.name(), getattr(one, "is_user_annotation", bool)())
        for one in found if str(one.device_type()) == _CPU
    ]  # fmt: skip


def name_gaps(
    samples: Iterable[Sample], sampled: list[Span], every_ns: int = _EVERY_NS
) -> dict[tuple[str, str], list[Named]]:
    """Say what happens in gaps: for each place one or two functions.

    The first is the innermost function of the program's own files, the last what that calls of a
    library, or a wait in it, if it is half of the samples. These are ``every_ns`` apart.
    """
    gaps = _gaps(sampled)
    begins = {thread: [gap.begin for gap in mine] for thread, mine in gaps.items()}
    met: dict[tuple[str, str], list[Met]] = {}
    for sample, is_asleep, time_ns in _states(samples, every_ns):
        mine = gaps.get(sample.thread, [])
        at = bisect.bisect_right(begins.get(sample.thread, []), sample.time_ns) - 1
        if at >= 0 and sample.time_ns < mine[at].end:
            is_wait = is_asleep and mine[at].in_range
            names = () if is_wait else _functions(sample.stack, is_asleep=is_asleep)
            met.setdefault(mine[at].place, []).append(Met(names, is_asleep, time_ns))
    least = _LEAST_SAMPLES * every_ns
    found = {place: _most_met(here, least) for place, here in met.items()}
    return {place: functions for place, functions in found.items() if functions}


def _most_met(here: list[Met], least_ns: int) -> list[Named]:
    """Return the function with most time of a place, and what it calls for most of that."""
    found: list[Named] = []
    for depth in (1, 2):
        times: collections.Counter[tuple[str, ...]] = collections.Counter()
        for one in here:
            times[one.functions[:depth]] += one.time_ns
        ((most, time_ns),) = times.most_common(1)
        whole = times.total()
        if time_ns < least_ns or 2 * time_ns < whole or len(most) < depth:
            break
        found.append(Named(most[-1], time_ns / whole if found else 1.0))
        here = [one for one in here if one.functions[:depth] == most]
    asleep = sum(one.time_ns for one in here if one.is_asleep)
    if found and 2 * asleep > sum(one.time_ns for one in here):
        found[-1] = found[-1]._replace(name=f"{WAIT_IN}{found[-1].name}")
    return found


def named_events(
    timed: list[Span], names: dict[tuple[str, str], list[Named]], base_ns: int
) -> list[dict[str, Any]]:
    """Make events of Python functions for the long gaps of timed steps at places with names.

    ``base_ns`` is the time of which the file counts. An event ends where a step or a range does,
    and what collects garbage is no function.
    """
    marks = sorted({time for one in timed if one.is_around for time in (one.begin, one.end)})
    garbage = {(one.thread, one.begin) for one in timed if one.name == GARBAGE}
    events: list[dict[str, Any]] = []
    for thread, gaps in _gaps(timed).items():
        for gap in gaps:
            if gap.end - gap.begin < _LEAST_NS or gap.place not in names:
                continue
            inside = marks[bisect.bisect_right(marks, gap.begin) : bisect.bisect(marks, gap.end)]
            edges = [gap.begin, *inside, gap.end]
            for begin, end in itertools.pairwise(edges):
                if end - begin >= _LEAST_NS and (thread, begin) not in garbage:
                    events += _nested(names[gap.place], begin, end, thread, base_ns)
    return events


def _nested(
    functions: list[Named], begin: int, end: int, thread: int, base_ns: int
) -> Iterator[dict[str, Any]]:
    """Make an event for each function, each inside of the one before it, for its share of that."""
    for function in functions:
        begin, end = begin + 1, begin + 1 + round(function.share * (end - begin - 2))
        yield _event(function.name, begin, end, thread, base_ns)


def _event(name: str, begin: int, end: int, thread: int, base_ns: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "python_function", "name": name, "pid": os.getpid(), "tid": thread,
        "ts": (begin - base_ns) / 1000, "dur": (end - begin) / 1000,
        "args": {} if name == GARBAGE else {"sampled in later steps": 1},
    }  # fmt: skip


def garbage_spans(collections: Iterable[tuple[int, int, int]], timed: list[Span]) -> list[Span]:
    """Make ranges of collections of garbage in timed steps: thread, begin and end of each, ns.

    The two clocks differ by some hundred nanoseconds, so each ends where an operation that it
    cannot cross begins or ends.
    """
    marked = [one for one in timed if one.name.startswith(_MARKS[0])]
    first, after = min(one.begin for one in marked), max(one.end for one in marked)
    edges: dict[int, list[int]] = {}
    for one in timed:
        edges.setdefault(one.thread, [first, after]).extend((one.begin, one.end))
    for times in edges.values():
        times.sort()
    found = []
    for thread, begin, end in collections:
        middle = (begin + end) // 2
        if thread in edges and first < middle < after:
            at = bisect.bisect_right(edges[thread], middle)
            begin, end = max(begin, edges[thread][at - 1] + 1), min(end, edges[thread][at] - 1)
            if end - begin >= _LEAST_NS:
                found.append(Span(thread, begin, end, GARBAGE, is_range=True))
    return found


class Pause(NamedTuple):
    """Time between two moments at which operations begin or end; ns."""

    begin: int
    end: int
    around: str  # the innermost operation around it


def lock_waits(
    samples: list[Sample],
    sampled: list[Span],
    timed: list[Span],
    slept: list[int],
    names: dict[tuple[str, str], list[Named]],
    garbage: Iterable[Span] = (),
) -> list[Span]:
    """Find waits for the GIL, the lock of the interpreter, in timed steps.

    A thread that computes in Python gives the GIL to one that waits for it after an interval or
    when it waits itself, and at once in sampled steps. So a pause of a timed step that lasts twice
    as long as in a sampled step is such a wait, if other threads run for most of the time, and the
    thread slept: ``slept`` has for how long in each timed step, ns. The longest pauses come first,
    until they are all of it. ``names`` are those of gaps: some are waits for other things. A pause
    in which the thread itself collects ``garbage`` is none.
    """
    usual: dict[tuple[str, ...], list[list[int]]] = {}
    for step in _steps(sampled):
        pauses = _pauses(step.mark, sampled)
        usual.setdefault(_key(pauses), []).append([one.end - one.begin for one in pauses])
    found = []
    for step in _steps(timed):
        pauses = _pauses(step.mark, timed)
        lasted = usual.get(_key(pauses))
        holder = _holder(samples, step.mark.thread) if lasted else ""
        if not (lasted and holder):
            continue
        for pause, times in zip(pauses, zip(*lasted, strict=True), strict=True):
            lasts = pause.end - pause.begin
            longer = lasts - min(times)
            communicates = pause.around.startswith(_COMMUNICATION)
            if longer >= _LEAST_LOCKED_NS and 2 * longer > lasts and not communicates:
                name = f"{WAIT_IN}the GIL, locked by {holder}"
                begin = pause.begin + 1
                found.append(Span(step.mark.thread, begin, begin + longer - 2, name))
    other = [
        (thread, gap) for thread, gaps in _gaps(timed).items() for gap in gaps
        if gap.place in names and names[gap.place][-1].name.startswith(WAIT_IN)
    ]  # fmt: skip
    left = _MOST_OF_SLEEP * (sum(slept) - sum(gap.end - gap.begin for _, gap in other))
    kept = []
    taken: list[tuple[int, Gap | Span]] = [*other, *((one.thread, one) for one in garbage)]
    for one in sorted(found, key=lambda one: one.begin - one.end):
        is_other = any(
            one.thread == thread and gap.begin < one.end and one.begin < gap.end
            for thread, gap in taken
        )
        if one.end - one.begin <= left and not is_other:
            left -= one.end - one.begin
            kept.append(one)
    return kept


def wait_events(waits: list[Span], base_ns: int) -> list[dict[str, Any]]:
    """Make events of waits, as ``named_events`` does of functions."""
    return [_event(one.name, one.begin, one.end, one.thread, base_ns) for one in waits]


def _key(pauses: list[Pause]) -> tuple[str, ...]:
    return tuple(one.around for one in pauses)


def _pauses(mark: Span, spans: list[Span]) -> list[Pause]:
    """Divide a step where operations begin and end: two pauses for each, and one."""
    found: list[Pause] = []
    around, last = [mark._replace(name="")], mark.begin

    def until(time: int) -> None:
        nonlocal last
        found.append(Pause(last, max(last, time), around[-1].name))
        last = max(last, time)

    for one in sorted(spans, key=lambda one: (one.begin, -one.end)):
        is_inside = one.thread == mark.thread and mark.begin <= one.begin < mark.end
        if not is_inside or one.name.startswith(_MARKS[0]):
            continue
        while around[-1].end <= one.begin:
            until(around[-1].end)
            around.pop()
        until(one.begin)
        around.append(one)
    while around:
        until(min(around[-1].end, mark.end))
        around.pop()
    return found


def _holder(samples: list[Sample], thread: int) -> str:
    """Name the function in which other threads run most, if they do for most of the time, or "".

    Only a function counts that goes on between samples: else it is in one call, which may have
    given the lock away.
    """
    times: collections.Counter[str] = collections.Counter()
    ran, last = 0, dict[int, Sample]()
    for one in samples:
        before = last.get(one.thread, one)
        last[one.thread] = one
        if one.thread == thread or not one.stack:
            continue
        ran += one.ran_ns - before.ran_ns
        if (one.stack, one.at) != (before.stack, before.at):
            times[_functions(one.stack, is_asleep=False)[0]] += one.ran_ns - before.ran_ns
    whole = samples[-1].time_ns - samples[0].time_ns if samples else 0
    return times.most_common(1)[0][0] if times and 2 * ran > whole else ""


def name_operations(
    calls: Iterable[TracedCall], sampled: list[Span], timed: list[Span], base_ns: int
) -> list[dict[str, Any]]:
    """Make events of modules, and of functions of the program, that call operations of timed steps.

    What they call is known for timed steps that have the same operations as one in which calls were
    traced. Where several call the same operations, the innermost module is named, or without one
    the innermost function, and none that calls all of a step. ``calls`` are in the order of their
    ends.
    """
    calls = list(calls)
    found: dict[tuple[str, ...], dict[tuple[int, int], str]] = {}
    for step in _steps(sampled):
        if not found.get(_names(step)):
            found[_names(step)] = _held(calls, step)
    events = []
    for step in _steps(timed):
        ranges = [one for one in timed if one.is_range and one.thread == step.mark.thread]
        for (first, last), name in found.get(_names(step), {}).items():
            begin, end = step.operations[first].begin, step.until(first, last)
            if not any(_cross(one, begin, end) for one in ranges):
                events.append(_event(name, begin, end, step.mark.thread, base_ns))
    return events


def _held(calls: list[TracedCall], step: Step) -> dict[tuple[int, int], str]:
    """Return the functions of a step by the first and the last operation that they call."""
    begins = [one.begin for one in step.operations]
    held: dict[tuple[int, int], str] = {}
    for call in sorted(calls, key=lambda call: not call.module):
        if call.thread == step.mark.thread and step.mark.begin <= call.begin < step.mark.end:
            first = bisect.bisect_left(begins, call.begin)
            last = bisect.bisect_left(begins, call.end) - 1
            while first <= last and step.until(first, last) > call.end:
                last -= 1
            if first <= last and (first, last) != (0, len(begins) - 1):
                name = call.module or _name(Called(call.code, call.code.co_firstlineno))
                held.setdefault((first, last), name)
    return held


def _cross(one: Span, begin: int, end: int) -> bool:
    """Whether a span begins inside of a time and ends after it, or the other way."""
    return one.begin < begin < one.end < end or begin < one.begin < end < one.end


def _names(step: Step) -> tuple[str, ...]:
    return tuple(one.name for one in step.operations)


def _steps(spans: Iterable[Span]) -> list[Step]:
    ordered = sorted(spans, key=lambda one: (one.begin, -one.end))
    begins = [one.begin for one in ordered]
    steps = [Step(one, [], []) for one in ordered if one.name.startswith(_MARKS[0])]
    for step in steps:
        until = node_until = step.mark.begin
        node = -1
        first, after = (bisect.bisect_left(begins, time) for time in (until, step.mark.end))
        for one in ordered[first:after]:
            is_inside = until <= one.begin and one.thread == step.mark.thread
            if is_inside and not one.is_around:
                if is_node := one.begin >= node_until:
                    node = len(step.operations)
                step.holders.append(node)
                step.operations.append(one)
                if is_node and one.name.startswith(_NODE):
                    node_until = one.end
                else:
                    until = one.end
    return steps


def _gaps(spans: Iterable[Span]) -> dict[int, list[Gap]]:
    """Return the times of each thread between its operations, in order.

    The first begins with the first mark of a step, as if the last operation came before it.
    """
    found: dict[int, list[Gap]] = {}
    first: dict[int, Span] = {}
    last: dict[int, Span] = {}
    marked: dict[int, int] = {}
    until: dict[int, int] = {}  # ranges last until then
    for one in sorted(spans, key=lambda one: (one.begin, -one.end)):
        if one.name.startswith(_MARKS):
            marked.setdefault(one.thread, one.begin)
        elif one.is_range:
            until[one.thread] = max(until.get(one.thread, 0), one.end)
        if one.is_around:
            continue
        before = last.get(one.thread)
        first.setdefault(one.thread, one)
        if before is not None and one.begin > before.end:
            in_range = until.get(one.thread, 0) > before.end
            gap = Gap(before.end, one.begin, (before.name, one.name), in_range)
            found.setdefault(one.thread, []).append(gap)
        if before is None or one.end > before.end:
            last[one.thread] = one
    for thread, begin in marked.items():
        if thread in first and begin < first[thread].begin:
            place = last[thread].name, first[thread].name
            found.setdefault(thread, []).insert(0, Gap(begin, first[thread].begin, place))
    return found


def _states(samples: Iterable[Sample], every_ns: int) -> Iterator[tuple[Sample, bool, int]]:
    """Say of each sample whether its thread has slept for most of the time since the one before.

    That time, for which the sample stands, is given too: it is long where the thread let no other
    one run, as in a call that holds the lock of the interpreter. Then it is no wait for another
    thread, also if it sleeps, as a call does that writes a file. The time in which the sampler ran
    or was ready to counts for no thread: Python runs one at a time, and a thread that gives way to
    the sampler sleeps until that had its turn, which takes long where other programs have the
    processors.
    """
    last: dict[int, Sample] = {}
    for one in samples:
        before = last.get(one.thread, one)
        last[one.thread] = one
        ran, sampling = one.ran_ns - before.ran_ns, one.sampler_ns - before.sampler_ns
        since = one.time_ns - before.time_ns
        is_asleep = one.ran_ns >= 0 and 2 * ran < since - sampling < _HELD_NS
        yield one, is_asleep, max(since, every_ns)


def _functions(stack: tuple[Called, ...], *, is_asleep: bool) -> tuple[str, ...]:
    """Name the innermost function of the program, and what it calls of a library; or nothing.

    Of a library it is the first public function, as calls of modules and optimizers pass others.

    What PyTorch waits for by itself is a device, a collective or one of its threads: recorded.
    """
    if not stack or (is_asleep and _TORCH in stack[-1].code.co_filename):
        return ()
    own = [depth for depth, called in enumerate(stack) if not _is_library(called.code)]
    at = own[-1] if own else 0
    below = stack[at + 1 :]
    public = [called for called in below if _is_public(called.code)]
    return tuple(map(_name, (stack[at], *(public or below)[:1])))


def _is_public(code: CodeType) -> bool:
    """Whether a function of a library has a name for others, and is no wrapper of one that has."""
    return not code.co_name.startswith(("_", "<")) and not code.co_flags & _NESTED


def is_of_program(code: CodeType) -> bool:
    """Whether code is a function of the program's own files."""
    is_here = code.co_filename.startswith(_HERE + os.sep)
    return not (is_here or code.co_name in ("<module>", *_PARTS) or _is_library(code))


def _is_library(code: CodeType) -> bool:
    path = code.co_filename
    return path.startswith((_LIBRARY, "<frozen")) or any(part in path for part in _PACKAGES)


def _name(called: Called) -> str:
    """Name a function as PyTorch does: ``FILE(LINE): FUNCTION``."""
    code = called.code
    name = getattr(code, "co_qualname", code.co_name)
    return f"{os.path.basename(code.co_filename)}({called.line}): {name}"
