"""What Ascend's ``trace_view.json`` says otherwise than PyTorch's profiler.

Its events are a bare list. Only host operators state a category; the others are of the kind of
their process, which a metadata event names: calls of CANN, tasks of the device, analyses of both.
A task has no correlation id in common with its call: an arrow ``HostToDevice`` leads from a time
within the call to the start of the task.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import numpy as np

from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.kineto_event_kernels import EVENT
from nadi.files.kineto.kineto_events import Events
from nadi.trace.arrays import Ints
from nadi.trace.schema import CATEGORIES, DEVICE_WORK

_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_KIND_OF_PROCESS = {
    "Ascend Hardware": "kernel",
    "CANN": "runtime",
    "Python": "operator",
    "Communication": "device_annotation",
    "HCCL": "device_annotation",
}
# tasks of a stream that are no kernels, by the beginning of their name in capitals
_KIND_OF_TASK = {
    "MEMCPY": "memcpy", "SDMA": "memcpy", "MEMSET": "memset", "EVENT": "sync", "NOTIFY": "sync",
}  # fmt: skip
_ARROW = "HostToDevice"
_Place = tuple[int, int, int]


class _Mark(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int = -1
    tid: int = -1
    ts: msgspec.Raw = msgspec.Raw(b"0")
    id: msgspec.Raw = msgspec.Raw(b"")
    args: dict[str, object] | None = None


_decoder = msgspec.json.Decoder(_Mark)


@dataclass(frozen=True)
class Marks:
    """What events that are not work say about the others."""

    # int64, shape (processes, 2): pid, and the category of its events that state none
    processes: Ints
    # tails, heads: per arrow from host to device its id, pid, tid and time in ns
    tails: dict[bytes, _Place] = field(default_factory=dict)
    heads: dict[bytes, _Place] = field(default_factory=dict)


def read_marks(raw: RawFile, events: Events) -> Marks | None:
    """Read processes and arrows; None if no device of Ascend has a process. O(other events)."""
    content = raw.content.data
    kind_of: dict[int, int] = {}
    marks = Marks(np.empty((0, 2), dtype=np.int64))
    is_ascend = False
    for _, _, at, length in events.found.kept[events.found.kept[:, 1] == EVENT].tolist():
        try:
            mark = _decoder.decode(content[at : at + length])
            if mark.ph == "M" and mark.name == "process_name":
                name = (mark.args or {}).get("name")
                is_ascend |= name == "Ascend Hardware"
                if name in _KIND_OF_PROCESS:
                    kind_of[mark.pid] = _CODE[_KIND_OF_PROCESS[str(name)]]
            elif mark.cat == _ARROW and mark.ph in ("s", "f"):
                ends = marks.tails if mark.ph == "s" else marks.heads
                ends[bytes(mark.id).strip(b'"')] = (mark.pid, mark.tid, _nanoseconds(mark.ts))
        except (msgspec.MsgspecError, ValueError):  # one that says nothing of these
            continue
    if not is_ascend:
        return None
    processes = np.array(list(kind_of.items()), dtype=np.int64).reshape(-1, 2)
    return Marks(processes, marks.tails, marks.heads)


def _nanoseconds(value: msgspec.Raw) -> int:
    """Return decimal microseconds, a number or a text, as ns, rounded half away from zero."""
    whole, _, decimals = bytes(value).decode().strip('"').partition(".")
    return int(whole + f"{decimals:0<3}"[:3]) + (decimals[3:4] >= "5")


def categories_by_name(category: Ints, names: Texts) -> Ints:
    """Return the categories, where the name tells more than the process; int64, shape (nodes,)."""

    def told(name: str) -> int:
        if name.startswith("ProfilerStep#"):
            return _CODE["annotation"]
        start = name.upper()
        return next((_CODE[k] for task, k in _KIND_OF_TASK.items() if start.startswith(task)), -1)

    by_name = names.numbers(told)
    is_step = (by_name == _CODE["annotation"]) & (category == _CODE["operator"])
    is_task = (by_name > _CODE["annotation"]) & (category == _CODE["kernel"])
    return np.where(is_step | is_task, by_name, category)


def numbered_launches(marks: Marks, category: Ints, events: Events) -> Ints:
    """Give a number to each call that an arrow leaves, and the tasks that its arrows lead to.

    - Returns: int64, shape (nodes,): from 1 on; -1 for nodes without an arrow. O(nodes log nodes).
    """
    start, duration, tid = (events.column(name) for name in ("start", "duration", "tid"))
    pid = events.column("pid")
    tails: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for arrow, (process, thread, time) in marks.tails.items():
        tails[process, thread].append((time, arrow))
    calls: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    rows = np.flatnonzero(category == _CODE["runtime"])
    for row, *call in zip(
        rows.tolist(), *(c[rows].tolist() for c in (pid, tid, start, duration)), strict=True
    ):
        calls[call[0], call[1]].append((call[2], -call[3], row))
    call_of = {
        arrow: row for place, here in tails.items() for arrow, row in _inside(calls[place], here)
    }
    rows = np.flatnonzero(np.isin(category, [_CODE[kind] for kind in DEVICE_WORK]))
    places = zip(*(c[rows].tolist() for c in (pid, tid, start)), strict=True)
    task_at = dict(zip(places, rows.tolist(), strict=True))
    number = np.full(start.size, -1, dtype=np.int64)
    for arrow, place in marks.heads.items():
        if arrow in call_of and place in task_at:
            launcher = call_of[arrow]
            number[launcher] = number[task_at[place]] = launcher + 1
    return number


def _inside(
    calls: list[tuple[int, int, int]], tails: list[tuple[int, bytes]]
) -> list[tuple[bytes, int]]:
    """Return for each arrow that begins within a call the innermost such call's row.

    ``calls`` are of one thread: start, negative duration, row. ``tails`` are times and arrows.
    """
    found = []
    open_calls: list[tuple[int, int]] = []
    calls = sorted(calls)
    at = 0
    for time, arrow in sorted(tails):
        while at < len(calls) and calls[at][0] <= time:
            begin, shorter, row = calls[at]
            open_calls = [one for one in open_calls if one[0] > begin]
            open_calls.append((begin - shorter, row))
            at += 1
        open_calls = [one for one in open_calls if one[0] >= time]
        if open_calls:
            found.append((arrow, open_calls[-1][1]))
    return found
