"""Read switches from a Perfetto trace: its ftrace events, single or compact.

The numbers of fields are those of Perfetto's protos/perfetto/trace (TracePacket,
FtraceEventBundle, FtraceEvent).
"""

from __future__ import annotations

from collections.abc import Iterator

from nadi.errors import FormatError
from nadi.files.switch_events import SwitchEvents, SwitchLog

__all__ = ["decode_perfetto_switches"]

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

    Raises
    ------
    FormatError
        If the file is cut off, or has no events of the scheduler.
    """
    log = SwitchLog()
    view = memoryview(content)
    try:
        for number, packet in _fields(view):
            if number != _PACKET or isinstance(packet, int):
                continue
            for field, bundle in _fields(packet):
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
    for number, value in _fields(bundle):
        if isinstance(value, int):
            continue
        if number == _EVENT:
            current = _read_event(log, value, current)
        elif number == _COMPACT:
            _read_compact(log, value, running)


def _read_event(log: SwitchLog, event: memoryview, current: int) -> int:
    """Read one event; gives the interrupt that the CPU handles afterwards."""
    time = thread = 0
    for number, value in _fields(event):
        if isinstance(value, int):
            time, thread = (value, thread) if number == _TIME else (time, thread)
            thread = _signed(value) if number == _THREAD else thread
        elif number == _SWITCH:
            said = dict(_fields(value))
            before, after = _signed(_int(said, _PREV)), _signed(_int(said, _NEXT))
            log.names[before], log.names[after] = _text(said, _PREV_COMM), _text(said, _NEXT_COMM)
            log.switch(time, before, after, stays=_int(said, _STATE) & _PREEMPTED == 0)
        elif number in (_WAKING, _WAKEUP, _WAKEUP_NEW):
            said = dict(_fields(value))
            woken = _signed(_int(said, _WOKEN))
            log.names[woken] = _text(said, _COMM)
            log.wakeup(time, thread, woken, current, is_waking=number == _WAKING)
        elif number == _SOFT_ENTRY:
            current = _VECTOR.get(_int(dict(_fields(value)), 1), -16)
        elif number == _HARD_ENTRY:
            current = -1
        elif number in (_SOFT_EXIT, _HARD_EXIT):
            current = 0
    return current


def _read_compact(log: SwitchLog, compact: memoryview, running: list[tuple[int, int]]) -> None:
    """Read switches and wakeups that are kept as columns; times are differences.

    Who leaves at a switch is who came at the one before on this CPU; so is who wakes.
    """
    names = [bytes(v).decode(errors="replace") for n, v in _fields(compact)
             if n == 5 and not isinstance(v, int)]  # fmt: skip
    columns = {
        n: list(_packed(v)) for n, v in _fields(compact) if n != 5 and not isinstance(v, int)
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


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a protobuf message."""
    at, size = 0, len(message)
    while at < size:
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif wire == 2:
            length, at = _varint(message, at)
            if at + length > size:
                raise ValueError("a field is longer than its message")
            yield key >> 3, message[at : at + length]
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _packed(values: memoryview) -> Iterator[int]:
    at = 0
    while at < len(values):
        value, at = _varint(values, at)
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
