"""Read memory snapshots of PyTorch, as events that are those of a Kineto trace.

``torch.cuda.memory._dump_snapshot`` pickles what the caching allocator of a device holds: its
segments, their blocks, and the latest allocations and releases with their call stacks. Allocations
become the events that the profiler writes with ``profile_memory=True``, so that one analysis
answers for both. Only plain values are read from the pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile, garbage_collection_paused
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import (
    EventArguments,
    ForeignEvents,
    json_key,
    kineto_content,
)
from nadi.files.kineto.kineto_trace import decode_events
from nadi.files.plain_pickles import is_pickle, read_plain
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

SEGMENTS = "memorySegments"
"""The key of a file under which the segments are kept: a list of objects."""
_STACKS = "memoryStacks"  # the key of the stacks of Python, to whose places allocations refer
NO_OPERATIONS = "memory.not-held"
"""The code of the issue that a file has no operations, as it is a memory snapshot."""

_HEAD = 64  # bytes within which the first key stands
# what an action does: it changes what is reserved by its size with this sign, or one of these
_ALLOCATES, _RELEASES, _NOTHING, _NOTED = 2, 3, 0, 4
_ACTIONS = {
    "segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1,
    "alloc": _ALLOCATES, "free_completed": _RELEASES, "free_requested": _NOTHING,
    "snapshot": _NOTHING,
}  # fmt: skip
_MOST_FRAMES = 32  # of Python that are kept of a call stack
_NODE = re.compile(r"torch::autograd::generated::(\w+)::apply")
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
# members of an event as the profiler writes it, without their values; that of CUDA is type 1
_MEMBERS = (
    '"Total Allocated":', '"Total Reserved":', '"Device Type":1,"Device Id":', '"Addr":',
    '"Bytes":',
)  # fmt: skip
_AT_ONCE = 1 << 13  # events: what is needed meanwhile grows with them

_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Time = Annotated[int, msgspec.Meta(ge=0, lt=2**52)]  # us, which are ns of 63 bits
_Device = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str = ""
    line: int = 0


class _Block(msgspec.Struct, gc=False):
    size: _Whole
    state: str
    address: _Whole = 0
    requested_size: _Whole = 0
    stack: int = 0


class _Segment(msgspec.Struct):
    total_size: _Whole
    blocks: list[_Block]
    device: _Device = 0
    address: _Whole = 0
    stream: int = 0
    segment_type: str = ""
    is_expandable: bool = False


class _Entry(msgspec.Struct, gc=False):
    action: str
    addr: _Whole = 0
    size: _Whole = 0
    stream: int = 0
    time_us: _Time = 0
    stack: int = 0


class _Annotation(msgspec.Struct):
    stage: str
    name: str = ""
    time_us: _Time = 0


class _Snapshot(msgspec.Struct):
    segments: list[_Segment]
    device_traces: list[list[_Entry]] = []
    external_annotations: list[_Annotation] = []


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a pickled snapshot does: with its segments."""
    return is_pickle(head) and b"segments" in head[:_HEAD]


def decode(raw: RawFile) -> Trace:
    """Read a memory snapshot.

    - Returns: The annotations of the program, and the history as a whole, as nodes with their times
      in ns since 1970. Allocations and releases are kept as the profiler's events ``[memory]``.
    - Raises FormatError if the pickle is broken, holds anything but plain values, or is no
      snapshot.
    """
    content, log = to_events(raw)
    return decode_events(raw, content, "PyTorch's memory snapshot", log)


def to_events(raw: RawFile) -> tuple[bytearray, IssueLog]:
    """Return the events as the JSON of a Kineto trace, and what the snapshot does not hold.

    - Raises FormatError as :func:`decode`.
    """
    try:
        with garbage_collection_paused():
            made = read_plain(raw.content.tobytes(), raw.name)
            stacks = _numbered_stacks(made)
            snapshot = msgspec.convert(made, _Snapshot, strict=False)
            del made
    except (msgspec.ValidationError, RecursionError) as error:
        what = str(error)[:200]
        raise FormatError(
            raw.name, what if what.isprintable() else "no memory snapshot", "write it again"
        ) from None
    log = IssueLog()
    traces = snapshot.device_traces
    traces += [[] for _ in range(_num_devices(snapshot) - len(traces))]
    sizes: list[Iterable[int]] = [map(attrgetter("size"), one) for one in traces]
    sizes += [map(attrgetter("size"), one.blocks) for one in snapshot.segments]
    if sum(map(sum, sizes)) + sum(one.total_size for one in snapshot.segments) >= 2**62:
        raise FormatError(raw.name, "sizes add up to more than a device can have", "write it again")
    found = [_changes(snapshot, device, entries, stacks, log)
             for device, entries in enumerate(traces)]  # fmt: skip
    log.add(
        NO_OPERATIONS, "info", 1,
        "the snapshot has no operators and no device work", "torch.profiler records them",
    )  # fmt: skip
    of_stacks = (one.members(number) for number, one in enumerate((*stacks, _BEFORE)))
    texts = [*_MEMBERS, *chain.from_iterable(of_stacks)]
    parts = [_ranges(found, snapshot.external_annotations)]
    parts += [part for device, one in enumerate(found) for part in _written(device, one, texts)]
    more = {SEGMENTS: [*map(_summary, snapshot.segments)], _STACKS: [one.calls for one in stacks]}
    return kineto_content(parts, raw, more=more), log


def _num_devices(snapshot: _Snapshot) -> int:
    known = {one.device for one in snapshot.segments}
    return min(max(known, default=-1) + 1, len(known) + len(snapshot.device_traces))


def _summary(segment: _Segment) -> dict[str, Any]:
    """Return what matters of a segment; of its free blocks how many there are, and the largest."""
    used = [one for one in segment.blocks if one.state != "inactive"]
    free = [one.size for one in segment.blocks if one.state == "inactive"]
    return {
        "device": segment.device, "stream": segment.stream, "kind": segment.segment_type,
        "expandable": segment.is_expandable, "reserved_bytes": segment.total_size,
        "blocks": len(used), "used_bytes": sum(one.size for one in used),
        "requested_bytes": sum(one.requested_size or one.size for one in used),
        "free_blocks": len(free), "free_bytes": sum(free),
        "largest_free_bytes": max(free, default=0),
    }  # fmt: skip


class _Changes(NamedTuple):
    """Allocations and releases of a device, in order; int64, shape (changes,)."""

    time: Ints  # us since 1970
    change: Ints  # bytes, negative where they are released
    reserved: Ints  # bytes of segments
    address: Ints
    text: Ints  # of what the place is, and of the stack where memory was allocated


def _changes(
    snapshot: _Snapshot, device: int, entries: Sequence[_Entry], stacks: Sequence[_Stack],
    log: IssueLog,
) -> _Changes:  # fmt: skip
    """Return the allocations and releases of a device.

    The history is a ring: what it no longer has was allocated before its oldest entry.
    """
    kind = _column(map(_ACTIONS.get, map(attrgetter("action"), entries), repeat(_NOTED)))
    size, address, time, stack = (
        _column(map(attrgetter(name), entries)) for name in ("size", "addr", "time_us", "stack")
    )
    segments = [one for one in snapshot.segments if one.device == device]
    grown = np.cumsum(np.where(np.abs(kind) == 1, kind * size, 0))
    at_first = sum(one.total_size for one in segments) - int(grown[-1:].sum())
    rows = np.flatnonzero((kind == _ALLOCATES) | (kind == _RELEASES))
    allocates, size = kind[rows] == _ALLOCATES, size[rows]
    before, is_live = _allocation_before(address[rows], allocates)
    stack = np.where(allocates, stack[rows], len(stacks))
    stack = np.where(before >= 0, stack[before], stack)
    released = np.where(before >= 0, size[before], size)
    change = np.where(allocates, size, -released)
    # what was there before: what is released without having been allocated, and other blocks
    odd = ~allocates & (before < 0)
    blocks = [one for segment in segments for one in segment.blocks if one.state != "inactive"]
    allocated = set(address[rows[is_live]].tolist())
    left = [one for one in blocks if one.address not in allocated]
    first = np.concatenate([size[odd], _column(one.requested_size or one.size for one in left)])
    place = _column(one.stack or len(stacks) for one in left)
    for row in np.flatnonzero(kind == _NOTED).tolist():
        _note(entries[row], stacks, log)
    log.add(
        "memory.no-history", "warning", int(not entries),
        f"device {device} has no history: times are unknown",
        "call torch.cuda.memory._record_memory_history() when the program begins",
    )  # fmt: skip
    stack = np.concatenate([np.full(size[odd].size, len(stacks)), place, stack])
    change = np.concatenate([first, change])
    return _Changes(
        np.concatenate([np.full(first.size, time[0] if entries else 0), time[rows]]), change,
        np.concatenate([np.full(first.size, at_first), at_first + grown[rows]]),
        np.concatenate([address[rows[odd]], _column(one.address for one in left), address[rows]]),
        len(_MEMBERS) + 2 * stack + (change > 0),
    )  # fmt: skip


def _column(values: Iterable[int | None]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _allocation_before(address: Ints, allocates: Bools) -> tuple[Ints, Bools]:
    """Find what each release releases.

    - ``address``, ``allocates``: int64 and bool, shape (changes,).
    - Returns before: int64, shape (changes,): the allocation of its address before it, or -1.
    - and is_live: bool, shape (changes,): whether it is an allocation that is never released.
    """
    order = np.argsort(address, kind="stable")
    before = np.full(address.size, -1, dtype=np.int64)
    same = address[order[1:]] == address[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    is_last = np.ones(address.size, dtype=np.bool_)
    is_last[order[:-1][same]] = False
    before[allocates | ~allocates[before]] = -1
    return before, is_last & allocates


def _written(device: int, changes: _Changes, texts: list[str]) -> Iterator[ForeignEvents]:
    """Return changes of a device as the profiler's events, with what it holds after each."""
    held = np.cumsum(changes.change)
    for low in range(0, held.size, _AT_ONCE):
        some = slice(low, low + _AT_ONCE)
        count = held[some].size
        values = np.zeros((count, len(_MEMBERS) + 1), dtype=np.int64)
        text = np.tile(np.arange(len(_MEMBERS) + 1), (count, 1))
        values[:, 0], values[:, 1], values[:, 2] = held[some], changes.reserved[some], device
        values[:, 3], values[:, 4] = changes.address[some], changes.change[some]
        text[:, -1] = changes.text[some]
        none = np.zeros(count, dtype=np.int64)
        yield ForeignEvents(
            category=_same("cpu_instant_event", count), name=_same("[memory]", count),
            pid=none, tid=none, start=1000 * changes.time[some], duration=none,
            members=EventArguments(
                np.repeat(np.arange(count), text.shape[1]), text.ravel(), values.ravel(),
                np.tile(np.arange(text.shape[1]) < len(_MEMBERS), count), texts,
            ),
            is_instant=True,
        )  # fmt: skip


def _same(word: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.int32), (word,))


def _note(one: _Entry, stacks: Sequence[_Stack], log: IssueLog) -> None:
    if one.action == "oom":
        log.add(
            "memory.out-of-memory", "warning", 1,
            f"the device had no room for {one.size:,} bytes, at {stacks[one.stack].place}",
            "nadi analyze memory-holders shows what held it",
        )  # fmt: skip
    else:
        log.add("memory.unknown", "warning", 1, "entries of the history are of an unknown kind",
                "they are left out")  # fmt: skip


class _Stack(NamedTuple):
    """A call stack: where in the program it is, and its calls of Python."""

    place: str
    calls: Sequence[str] = ()

    def members(self, number: int) -> tuple[str, str]:
        """Return members of an event: the place, and the place with the number of the stack."""
        place = json_key("Place") + msgspec.json.encode(self.place).decode()
        return place, f"{place},{json_key('Stack')}{number}" if self.calls else place


_NO_FRAMES: list[Any] = []
_BEFORE = _Stack("(before the history)")  # allocated before its oldest entry


def _numbered_stacks(made: Any) -> list[_Stack]:
    """Return the different stacks of a snapshot, the empty one first; entries get their numbers.

    The history has few stacks, whose frames are few objects: each is converted once.

    - Raises msgspec.ValidationError if a stack is no list of frames.
    """
    stacks = [_Stack(*_place(()))]
    number_of_list: dict[int, int] = {id(_NO_FRAMES): 0}
    number_of_frames: dict[tuple[int, ...], int] = {(): 0}
    for entry in _with_stacks(made):
        frames = entry.get("frames", _NO_FRAMES)
        number = number_of_list.get(id(frames))
        if number is None:
            of_frames = tuple(map(id, frames)) if isinstance(frames, list) else (id(frames),)
            number = number_of_frames.setdefault(of_frames, len(stacks))
            if number == len(stacks):
                converted = msgspec.convert(frames, list[_Frame], strict=False)
                stacks.append(_Stack(*_place(converted)))
            number_of_list[id(frames)] = number
        entry["stack"] = number
    return stacks


def _with_stacks(made: Any) -> Iterator[dict[str, Any]]:
    """Return what has stacks in a snapshot that may be anything: entries and blocks."""
    whole = made if isinstance(made, dict) else {}
    segments = [one for one in _listed(whole.get("segments")) if isinstance(one, dict)]
    for entries in (*_listed(whole.get("device_traces")), *(one.get("blocks") for one in segments)):
        yield from (one for one in _listed(entries) if isinstance(one, dict))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _place(frames: Sequence[_Frame]) -> tuple[str, list[str]]:
    """Return where in the program memory was allocated, and the stack of Python.

    Of the innermost line of Python that is not PyTorch's; without Python, as in the backward pass,
    the node of autograd, else the operator.
    """
    of_python = [one for one in frames if one.filename.endswith(".py")]
    stack = [f"{one.filename}:{one.line} {one.name}" for one in of_python[:_MOST_FRAMES]]
    own = [one for one in of_python if "/torch/" not in one.filename]
    if own or of_python:
        one = (own or of_python)[0]
        return f"{'/'.join(one.filename.split('/')[-2:])}:{one.line} {one.name}", stack
    for kind, prefix in ((_NODE, ""), (_OPERATOR, "aten::")):
        found = next(filter(None, (kind.match(one.name) for one in frames)), None)
        if found is not None:
            return prefix + found[1], stack
    return (frames[-1].name if frames else "(no stack)"), stack


def _ranges(found: Sequence[_Changes], annotations: Sequence[_Annotation]) -> ForeignEvents:
    """Return the history as a whole, and the annotations of the program that have both ends."""
    times = np.concatenate([one.time for one in found]) if found else np.zeros(0, dtype=np.int64)
    first = int(times.min()) if times.size else 0
    ranges = [("memory history", first, int(times.max(initial=first)) - first)]
    begun: dict[str, list[int]] = {}
    for one in annotations:
        if one.stage == "START":
            begun.setdefault(one.name, []).append(one.time_us)
        elif one.stage == "END" and begun.get(one.name):
            start = begun[one.name].pop()
            ranges.append((one.name, start, max(one.time_us - start, 0)))
    names, starts, durations = zip(*ranges, strict=True)
    none = np.zeros(len(ranges), dtype=np.int64)
    return ForeignEvents(
        category=_same("user_annotation", len(ranges)),
        name=Texts(np.arange(len(ranges), dtype=np.int32), names), pid=none, tid=none,
        start=1000 * np.array(starts), duration=1000 * np.array(durations),
        args={"events": np.where(np.arange(len(ranges)) == 0, times.size, -1)},
    )  # fmt: skip
