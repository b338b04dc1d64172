"""Read switches from text: perf sched script, perf script, trace-cmd report, ftrace's trace file.

Lines have the same parts in all of them: thread, CPU, time in seconds, event, its fields::

    python  4135 [029]  353.580953: sched:sched_waking: comm=stream pid=4129 prio=120 target_cpu=082
    python-4135  [029] d..2.  353.580953: sched_waking: comm=stream pid=4129 prio=120 ...
    <idle>-0     [000]  975758.720303: sched_switch: swapper/0:0 [120] R ==> perf:14570 [120]
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nadi.errors import FormatError
from nadi.files.switch_events import SwitchEvents, SwitchLog

__all__ = ["decode_switch_text", "is_switch_text"]

_EVENTS = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new",
    "irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit",
)  # fmt: skip
# each is tried at places of a line that are not within one another, and repeats are bounded: a line
# is read in time that grows with its length, whatever is in it
_EVENT = re.compile(
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

    Raises
    ------
    FormatError
        If no line is an event of the scheduler, or one has unknown fields.
    """
    log = SwitchLog()
    interrupt: dict[str, int] = {}  # by CPU: what it handles at the moment
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if "sched_" not in line and "irq" not in line:
            continue
        found = _EVENT.search(line)
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
