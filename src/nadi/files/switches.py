"""Read switches from a Perfetto trace: its ftrace events, single or compact.

The numbers of fields are those of Perfetto's protos/perfetto/trace (TracePacket,
FtraceEventBundle, FtraceEvent).

Switches of threads and their wakeups, as the system's scheduler recorded them.

Read switches from text: perf sched script, perf script, trace-cmd report, ftrace's trace file.

Lines have the same parts in all of them: thread, CPU, time in seconds, event, its fields::

    python  4135 [029]  353.580953: sched:sched_waking: comm=stream pid=4129 prio=120 target_cpu=082
    python-4135  [029] d..2.  353.580953: sched_waking: comm=stream pid=4129 prio=120 ...
    <idle>-0     [000]  975758.720303: sched_switch: swapper/0:0 [120] R ==> perf:14570 [120]

Files with the switches of threads, as the system recorded them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nadi.errors import FormatError
from nadi.files.files import HEAD_SIZE, locate, read_file, read_head
from nadi.files.messages import plain_fields, plain_varint
from nadi.trace.arrays import Bools, Ints

SWITCH, WAKEUP = 0, 1
INTERRUPTS = {-1: "interrupt", -2: "timer", -4: "network", -5: "disk", -15: "timer",
              -16: "software interrupt"}  # fmt: skip
"""What wakes a thread if it is no thread, by its code."""


@dataclass(frozen=True, eq=False)
class SwitchEvents:
    """Events of the scheduler in order of time; arrays of shape (events,)."""

    kind: Ints  # int64: SWITCH or WAKEUP
    time: Ints  # int64 ns
    before: Ints  # int64: the thread that leaves the CPU, or the one that wakes another
    # int64: the thread that gets the CPU, or the one that is woken. 0 is the idle thread
    after: Ints
    cause: Ints  # int64: a code of ``INTERRUPTS`` if an interrupt woke the thread, else 0
    stays: Bools  # bool: whether the thread that leaves could go on (it was preempted)
    names: dict[int, str] = field(default_factory=dict)  # name of each thread that has one

    def __repr__(self) -> str:
        return f"<SwitchEvents events={self.kind.size} threads={len(self.names)}>"


class SwitchLog:
    """Collects events while a file is read.

    Files have up to two events per wakeup: ``sched_waking``, in the context of the waker, and
    ``sched_wakeup``, which may come from an interrupt of another CPU. If there are any of the
    first kind, only those count.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._switches: list[tuple[int, int, int, int, int, bool]] = []
        self._wakings: list[tuple[int, int, int, int, int, bool]] = []
        self._wakeups: list[tuple[int, int, int, int, int, bool]] = []

    def switch(self, time: int, before: int, after: int, *, stays: bool) -> None:
        """Add a switch from one thread to another."""
        self._switches.append((SWITCH, time, before, after, 0, stays))

    def wakeup(self, time: int, waker: int, woken: int, cause: int, *, is_waking: bool) -> None:
        """Add a wakeup; the idle thread wakes nobody, so an interrupt did."""
        where = self._wakings if is_waking else self._wakeups
        where.append((WAKEUP, time, waker, woken, cause or (0 if waker > 0 else -1), False))

    def events(self) -> SwitchEvents:
        """Give all events in order of time; of equal times wakeups come first.

        - Raises FormatError if a time or a thread is no number of 64 bits.
        """
        rows = self._switches + (self._wakings or self._wakeups)
        try:
            table = np.array(rows, dtype=np.int64).reshape(-1, 6)
        except OverflowError:
            what = "a time or the number of a thread has over 63 bits"
            raise FormatError("", what, "record the switches again") from None
        table = table[np.lexsort((-table[:, 0], table[:, 1]))]
        kind, time, before, after, cause, stays = table.T.copy()
        return SwitchEvents(kind, time, before, after, cause, stays == 1, self.names)


_PACKET = 1
_BUNDLE = 1  # of TracePacket: ftrace_events
_EVENT, _COMPACT = 2, 4  # of FtraceEventBundle
_TIME, _THREAD, _SWITCH, _WAKEUP, _WAKING, _WAKEUP_NEW = 1, 2, 4, 17, 20, 114  # of FtraceEvent
_SOFT_ENTRY, _SOFT_EXIT, _HARD_ENTRY, _HARD_EXIT = 24, 25, 36, 37
_PREV_COMM, _PREV, _STATE, _NEXT_COMM, _NEXT = 1, 2, 4, 5, 6  # of SchedSwitchFtraceEvent
_COMM, _WOKEN = 1, 2  # of SchedWakingFtraceEvent
_VECTOR = {1: -2, 2: -4, 3: -4, 4: -5, 8: -2}  # of soft interrupts: timer, network, block
_PREEMPTED = 0x7F  # bits of a state that say what a thread waits for; none if it could go on


def decode_perfetto_switches(content: bytes) -> SwitchEvents:
    """Read all switches and wakeups of a Perfetto trace. O(bytes).

    - Raises FormatError if the file is cut off, or has no events of the scheduler.
    """
    log = SwitchLog()
    view = memoryview(content)
    try:
        for number, packet in plain_fields(view):
            if number != _PACKET or isinstance(packet, int):
                continue
            for field, bundle in plain_fields(packet):
                if field == _BUNDLE and not isinstance(bundle, int):
                    _read_bundle(log, bundle)
    except (IndexError, ValueError):
        what = "the file is cut off, or no Perfetto trace"
        raise FormatError("", what, "record it again") from None
    events = log.events()
    if not events.kind.size:
        what = "the Perfetto trace has no events of the scheduler"
        remedy = (
            "record the data source linux.ftrace with sched/sched_switch and sched/sched_waking"
        )
        raise FormatError("", what, remedy)
    return events


def _read_bundle(log: SwitchLog, bundle: memoryview) -> None:
    """Read the events of one CPU; an interrupt counts until it is done."""
    current = 0
    running: list[tuple[int, int]] = []
    for number, value in plain_fields(bundle):
        if isinstance(value, int):
            continue
        if number == _EVENT:
            current = _read_event(log, value, current)
        elif number == _COMPACT:
            _read_compact(log, value, running)


def _read_event(log: SwitchLog, event: memoryview, current: int) -> int:
    """Read one event; gives the interrupt that the CPU handles afterwards."""
    time = thread = 0
    for number, value in plain_fields(event):
        if isinstance(value, int):
            time, thread = (value, thread) if number == _TIME else (time, thread)
            thread = _signed(value) if number == _THREAD else thread
        elif number == _SWITCH:
            said = dict(plain_fields(value))
            before, after = _signed(_int(said, _PREV)), _signed(_int(said, _NEXT))
            log.names[before], log.names[after] = _text(said, _PREV_COMM), _text(said, _NEXT_COMM)
            log.switch(time, before, after, stays=_int(said, _STATE) & _PREEMPTED == 0)
        elif number in (_WAKING, _WAKEUP, _WAKEUP_NEW):
            said = dict(plain_fields(value))
            woken = _signed(_int(said, _WOKEN))
            log.names[woken] = _text(said, _COMM)
            log.wakeup(time, thread, woken, current, is_waking=number == _WAKING)
        elif number == _SOFT_ENTRY:
            current = _VECTOR.get(_int(dict(plain_fields(value)), 1), -16)
        elif number == _HARD_ENTRY:
            current = -1
        elif number in (_SOFT_EXIT, _HARD_EXIT):
            current = 0
    return current


def _read_compact(log: SwitchLog, compact: memoryview, running: list[tuple[int, int]]) -> None:
    """Read switches and wakeups that are kept as columns; times are differences.

    Who leaves at a switch is who came at the one before on this CPU; so is who wakes.
    """
    names = [bytes(v).decode(errors="replace") for n, v in plain_fields(compact)
             if n == 5 and not isinstance(v, int)]  # fmt: skip
    columns = {
        n: list(_packed(v)) for n, v in plain_fields(compact) if n != 5 and not isinstance(v, int)
    }
    time, before = 0, running[-1][1] if running else 0
    for delta, state, after, name in zip(
        columns.get(1, []), columns.get(2, []), columns.get(3, []), columns.get(6, []), strict=True
    ):
        time += delta
        if running:
            log.switch(time, before, _signed(after), stays=state & _PREEMPTED == 0)
        before = _signed(after)
        log.names[before] = names[name]
        running.append((time, before))
    time, at = 0, 0
    flags = columns.get(12) or [0] * len(columns.get(7, []))
    for delta, woken, name, flag in zip(
        columns.get(7, []), columns.get(8, []), columns.get(11, []), flags, strict=True
    ):
        time += delta
        while at < len(running) and running[at][0] <= time:
            at += 1
        log.names[_signed(woken)] = names[name]
        waker = running[at - 1][1] if at else 0
        cause = -1 if flag & 8 else -16 if flag & 16 else 0  # TRACE_FLAG_HARDIRQ, _SOFTIRQ
        log.wakeup(time, waker, _signed(woken), cause, is_waking=True)


def _packed(values: memoryview) -> Iterator[int]:
    at = 0
    while at < len(values):
        value, at = plain_varint(values, at)
        yield value


def _signed(value: int) -> int:
    """Return an int32 or int64 as it was before it was written without a sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _int(fields: dict[int, int | memoryview], number: int) -> int:
    value = fields.get(number, 0)
    return value if isinstance(value, int) else 0


def _text(fields: dict[int, int | memoryview], number: int) -> str:
    value = fields.get(number, b"")
    return "" if isinstance(value, int) else bytes(value).decode(errors="replace")


_EVENTS = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new",
    "irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit",
)  # fmt: skip
# each is tried at places of a line that are not within one another, and repeats are bounded: a line
# is read in time that grows with its length, whatever is in it
_EVENT_OF_TEXT = re.compile(
    r"(?P<second>[0-9]{1,10})\.(?P<part>[0-9]{1,12}):\s{1,8}(?:\w{1,32}:)?(?P<event>"
    + "|".join(_EVENTS)
    + r"):\s"
)
_CPU = re.compile(r"([0-9]{1,9})\]\s*(\S*)")
_SHORT = re.compile(r"(.*):([0-9]{1,10}) \[-?[0-9]{1,10}\](?: (\S+))?")
_MOST_SECONDS = 9_200_000_000  # what int64 ns hold
_ACTION = re.compile(r"action=(\w+)")
_NAME = re.compile(r"name=(\S+)")
_HEAD = re.compile(rb"\bsched_(?:switch|waking|wakeup)(?:_new)?: ")

_BY_SOFT_INTERRUPT = {"NET_RX": -4, "NET_TX": -4, "BLOCK": -5, "TIMER": -2, "HRTIMER": -2}
_BY_NAME = (("timer", -2), ("nvme", -5), ("ahci", -5), ("scsi", -5), ("eth", -4), ("mlx", -4),
            ("ens", -4), ("virtio", -1))  # fmt: skip


def is_switch_text(head: bytes) -> bool:
    """Return whether the begin of a file has an event of the scheduler as text."""
    return _HEAD.search(head) is not None


def decode_switch_text(content: bytes) -> SwitchEvents:
    """Read all switches and wakeups; other events are skipped. O(bytes).

    Who wakes a thread is the thread in whose context the event was, or an interrupt: if the flags
    of ftrace say so, if events of interrupts are recorded around it, or if that thread is the idle
    one.

    - Raises FormatError if no line is an event of the scheduler, or one has unknown fields.
    """
    log = SwitchLog()
    interrupt: dict[str, int] = {}  # by CPU: what it handles at the moment
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if "sched_" not in line and "irq" not in line:
            continue
        found = _EVENT_OF_TEXT.search(line)
        context = _context(line[: found.start()]) if found else None
        if found is None or context is None:
            continue
        event, fields = found["event"], line[found.end() :].strip()
        if event.startswith(("irq", "softirq")):
            _interrupt(interrupt, context.cpu, event, fields)
            continue
        second = int(found["second"])
        time = second * 10**9 + int(found["part"].ljust(9, "0")[:9])
        is_known = _add(log, event, fields, time, context, interrupt.get(context.cpu, 0))
        if not is_known or second > _MOST_SECONDS:
            what = f"{event} has fields that are not known: {fields[:60]!r}"
            raise FormatError(
                f"line {number}", what, "write it with perf script or trace-cmd report"
            )
    events = log.events()
    if not events.kind.size:
        remedy = "record the events sched_switch and sched_waking, and write them as text"
        raise FormatError("", "no line is an event of the scheduler", remedy)
    return events


class _Context(NamedTuple):
    """In which context an event was: what stands before its time."""

    comm: str
    thread: int
    cpu: str
    flags: str


def _context(text: str) -> _Context | None:
    """Read ``comm-thread (group) [cpu] flags``, from its end: a name may have blanks in it."""
    before, _, after = text.rstrip().rpartition("[")
    found = _CPU.fullmatch(after)
    before = before.rstrip()
    if before.endswith(")"):  # the group of threads, in brackets
        before = before.rpartition("(")[0].rstrip()
    rest, thread = _last_number(before)
    if rest.endswith("/"):  # the process stands before the thread
        rest = _last_number(rest[:-1])[0]
    if found is None or thread < 0 or not rest.endswith(("-", " ", "\t")):
        return None
    return _Context(rest[:-1].strip(), thread, found[1], found[2])


def _last_number(text: str) -> tuple[str, int]:
    """Return what stands before the digits that a text ends with, and their number, or -1."""
    rest = text.rstrip("0123456789")
    return rest, _thread(text[len(rest) :])


def _thread(text: str) -> int:
    """Return the number of a thread, or -1."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1


def _named_thread(fields: str, comm: str, pid: str) -> tuple[str, int]:
    """Return what follows ``comm=`` up to `` pid=``, and the number that stands there, or -1."""
    _, is_there, rest = fields.partition(comm)
    name, is_stated, rest = rest.partition(pid)
    return name, _thread(rest.partition(" ")[0]) if is_there and is_stated else -1


def _add(
    log: SwitchLog, event: str, fields: str, time: int, context: _Context, interrupt: int
) -> bool:
    """Add one event; gives whether its fields are known."""
    if event == "sched_switch":
        return _add_switch(log, fields, time)
    name, thread = _named_thread(fields, "comm=", " pid=")
    if thread < 0:
        short = _SHORT.match(fields)
        if short is None:
            return False
        name, thread = short[1], int(short[2])
    log.names[thread] = name
    waker = context.thread
    log.names.setdefault(waker, context.comm)
    cause = interrupt or _of_flags(context.flags)
    log.wakeup(time, waker, thread, cause, is_waking=event == "sched_waking")
    return True


def _add_switch(log: SwitchLog, fields: str, time: int) -> bool:
    """Add a switch; gives whether its fields are known."""
    left, _, right = fields.partition(" ==> ")
    name, before = _named_thread(left, "prev_comm=", " prev_pid=")
    next_name, after = _named_thread(right, "next_comm=", " next_pid=")
    state = left.rpartition(" prev_state=")[2]
    if before < 0 or after < 0:
        short, other = _SHORT.fullmatch(left), _SHORT.match(right)
        if short is None or other is None or short[3] is None:
            return False
        name, before, state = short[1], int(short[2]), short[3]
        next_name, after = other[1], int(other[2])
    log.names[before], log.names[after] = name, next_name
    log.switch(time, before, after, stays=state.startswith("R"))
    return True


def _of_flags(flags: str) -> int:
    """Return the interrupt that ftrace's flags state: the third is h, H, Z or s."""
    kind = flags[2:3]
    return -1 if kind in ("h", "H", "Z", "z") else -16 if kind == "s" else 0


def _interrupt(current: dict[str, int], cpu: str, event: str, fields: str) -> None:
    """Remember what a CPU handles, until it is done."""
    if event.endswith("exit"):
        current[cpu] = 0
    elif event == "softirq_entry":
        action = _ACTION.search(fields)
        current[cpu] = _BY_SOFT_INTERRUPT.get(action[1] if action else "", -16)
    else:
        name = _NAME.search(fields)
        text = name[1].lower() if name else ""
        current[cpu] = next((code for part, code in _BY_NAME if part in text), -1)


_PERFETTO_PACKET = 0x0A  # field 1 with a length


def is_switches(path: Path | str) -> bool:
    """Return whether a file has switches: text of the scheduler's events, or a Perfetto trace.

    - Raises InputError if it cannot be read.
    """
    place = locate(path)
    if place.is_dir():
        return False
    head = read_head(place)
    return is_switch_text(head) or _is_perfetto(head)


def read_switches(path: Path | str) -> SwitchEvents:
    """Read the switches of a file: text, or a Perfetto trace; either may be compressed.

    - Raises InputError if it cannot be read, or has no switches; the message has the line of a
      text.
    """
    raw = read_file(locate(path))
    content = raw.content.tobytes()
    decode = decode_perfetto_switches if _is_perfetto(content[:HEAD_SIZE]) else decode_switch_text
    try:
        return decode(content)
    except FormatError as error:
        place = f"{path}: {error.where}" if error.where else str(path)
        raise FormatError(place, error.what, error.remedy) from None


def _is_perfetto(head: bytes) -> bool:
    """Return whether a file begins like a Perfetto trace: with a line feed, but as no text."""
    is_text = head[:256].strip()[:1] in (b"{", b"[") or is_switch_text(head)
    return head[:1] == bytes([_PERFETTO_PACKET]) and not is_text
