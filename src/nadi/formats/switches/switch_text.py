"""Read switches from text: perf sched script, perf script, trace-cmd report, ftrace's trace file.

Lines have the same parts in all of them: thread, CPU, time in seconds, event, its fields::

    python  4135 [029]  353.580953: sched:sched_waking: comm=stream pid=4129 prio=120 target_cpu=082
    python-4135  [029] d..2.  353.580953: sched_waking: comm=stream pid=4129 prio=120 ...
    <idle>-0     [000]  975758.720303: sched_switch: swapper/0:0 [120] R ==> perf:14570 [120]
"""

from __future__ import annotations

import re

from nadi.errors import FormatError
from nadi.formats.switches.switch_events import SwitchEvents, SwitchLog

__all__ = ["decode_switch_text", "is_switch_text"]

_EVENTS = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new",
    "irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit",
)  # fmt: skip
_LINE = re.compile(
    r"^\s*(?P<comm>.*?)[-\s]\s*(?:\d+/)?(?P<thread>\d+)\s+(?:\([^)]*\)\s+)?\[(?P<cpu>\d+)\]\s+"
    r"(?:(?P<flags>[^\s\d]\S{2,7})\s+)?(?P<second>\d+)\.(?P<part>\d+):\s+(?:\w+:)?(?P<event>"
    + "|".join(_EVENTS)
    + r"):\s*(?P<fields>.*)$"
)
_SWITCH = re.compile(
    r"prev_comm=(.*?) prev_pid=(\d+) .*?prev_state=(\S+).*? ==> next_comm=(.*?) next_pid=(\d+)"
)
_SHORT_SWITCH = re.compile(r"(.*?):(\d+) \[-?\d+\] (\S+) ==> (.*?):(\d+) \[")
_WAKEUP = re.compile(r"comm=(.*?) pid=(\d+) ")
_SHORT_WAKEUP = re.compile(r"(.*?):(\d+) \[-?\d+\]")
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
        found = _LINE.match(line)
        if found is None:
            continue
        event, fields = found["event"], found["fields"]
        if event.startswith(("irq", "softirq")):
            _interrupt(interrupt, found["cpu"], event, fields)
            continue
        time = int(found["second"]) * 10**9 + int(found["part"].ljust(9, "0")[:9])
        if not _add(log, event, fields, time, found, interrupt.get(found["cpu"], 0)):
            what = f"{event} has fields that are not known: {fields[:60]!r}"
            raise FormatError(
                f"line {number}", what, "write it with perf script or trace-cmd report"
            )
    events = log.events()
    if not events.kind.size:
        remedy = "record the events sched_switch and sched_waking, and write them as text"
        raise FormatError("", "no line is an event of the scheduler", remedy)
    return events


def _add(
    log: SwitchLog, event: str, fields: str, time: int, found: re.Match[str], interrupt: int
) -> bool:
    """Add one event; gives whether its fields are known."""
    if event == "sched_switch":
        said = _SWITCH.search(fields) or _SHORT_SWITCH.match(fields)
        if said is None:
            return False
        comm, before, state, next_comm, after = said.groups()
        log.names[int(before)], log.names[int(after)] = comm, next_comm
        log.switch(time, int(before), int(after), stays=state.startswith("R"))
        return True
    said = _WAKEUP.search(fields) or _SHORT_WAKEUP.match(fields)
    if said is None:
        return False
    log.names[int(said[2])] = said[1]
    waker = int(found["thread"])
    log.names.setdefault(waker, found["comm"].strip())
    cause = interrupt or _of_flags(found["flags"] or "")
    log.wakeup(time, waker, int(said[2]), cause, is_waking=event == "sched_waking")
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
