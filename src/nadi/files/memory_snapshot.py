"""Read memory snapshots of PyTorch, as events that are those of a Kineto trace.

``torch.cuda.memory._dump_snapshot`` pickles what the caching allocator of a device holds: its
segments, their blocks, and the latest allocations and releases with their call stacks. Allocations
become the events that the profiler writes with ``profile_memory=True``, so that one analysis
answers for both. Only plain values are read from the pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import (
    EventArguments,
    ForeignEvents,
    ForeignRecording,
    decode_events,
    json_key,
)
from nadi.files.plain_pickles import PickledValues, is_pickle
from nadi.kernels.strings import intern_spans
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
_AT_ONCE = 1 << 15  # events: what is needed meanwhile grows with them

_MOST_BYTES, _LATEST = 2**62 - 1, 2**52 - 1  # us, which are ns of 63 bits
_LAST_DEVICE = 127  # c10::DeviceIndex has 8 bits
_INTEGERS = -(2**63), 2**63 - 1


class _Segments(NamedTuple):
    """Segments of all devices; int64, shape (segments,)."""

    device: Ints
    stream: Ints
    reserved: Ints  # bytes
    kind: list[str]
    is_expandable: Bools


class _Blocks(NamedTuple):
    """Blocks of all segments; int64, shape (blocks,)."""

    segment: Ints  # ascending
    address: Ints
    size: Ints  # bytes
    requested: Ints  # bytes; the size where it is not known
    is_used: Bools
    stack: Ints


class _Entries(NamedTuple):
    """The history of all devices; int64, shape (entries,)."""

    device: Ints  # ascending
    kind: Ints  # of the action, a value of _ACTIONS
    address: Ints
    size: Ints
    time: Ints  # us since 1970
    stack: Ints
    is_full: Bools  # whether it says that the device had no room

    def of(self, device: int) -> _Entries:
        """Return those of a device."""
        low, high = np.searchsorted(self.device, (device, device + 1))
        return _Entries(*(column[low:high] for column in self))  # type: ignore[arg-type]


class _Snapshot(NamedTuple):
    segments: _Segments
    blocks: _Blocks
    entries: _Entries
    stacks: list[_Stack]
    num_devices: int
    annotations: Sequence[tuple[str, str, int]]  # stage, name, time in us


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
    return decode_events(raw, recording(raw), "PyTorch's memory snapshot")


def recording(raw: RawFile) -> ForeignRecording:
    """Return the events, and what the snapshot does not hold.

    - Raises FormatError as :func:`decode`.
    """
    snapshot = _read(PickledValues.read(raw.content, raw.name))
    sizes = (snapshot.entries.size, snapshot.blocks.size, snapshot.segments.reserved)
    if sum(float(one.sum(dtype=np.float64)) for one in sizes) >= 2**62:
        raise FormatError(raw.name, "sizes add up to more than a device can have", "write it again")
    log = IssueLog()
    found = [_changes(snapshot, device, log) for device in range(snapshot.num_devices)]
    log.add(
        NO_OPERATIONS, "info", 1,
        "the snapshot has no operators and no device work", "torch.profiler records them",
    )  # fmt: skip
    stacks = snapshot.stacks
    of_stacks = (one.members(number) for number, one in enumerate((*stacks, _BEFORE)))
    texts = [*_MEMBERS, *chain.from_iterable(of_stacks)]
    parts = [_ranges(found, snapshot.annotations)]
    parts += [part for device, one in enumerate(found) for part in _written(device, one, texts)]
    more = {SEGMENTS: _summaries(snapshot), _STACKS: [one.calls for one in stacks]}
    return ForeignRecording(parts, log, more=more)


def _read(values: PickledValues) -> _Snapshot:
    segments, traces, noted = values.fields(
        values.whole, "segments", "device_traces", "external_annotations"
    )
    if segments[0] < 0:
        raise FormatError(values.name, "no memory snapshot", "write it again")
    _, segment = values.inside(segments)
    _, trace = values.inside(traces)
    if trace.size > _LAST_DEVICE + 1:
        raise FormatError(
            values.name, f"device_traces has {trace.size:,} lists, one for each device, "
            f"but PyTorch numbers devices from 0 to {_LAST_DEVICE}", "write it again",
        )  # fmt: skip
    device, stream, reserved, kind, expands, blocks = values.fields(
        segment, "device", "stream", "total_size", "segment_type", "is_expandable", "blocks",
        needed=("total_size", "blocks"),
    )  # fmt: skip
    of_segments = _Segments(
        values.integers(device, -1, _LAST_DEVICE), values.integers(stream, *_INTEGERS),
        values.integers(reserved, 0, _MOST_BYTES), _words(values, kind), values.are_true(expands),
    )  # fmt: skip
    first_block, block = values.inside(blocks)
    first_entry, entry = values.inside(trace)
    *of_block, of_blocks = values.fields(
        block, "address", "size", "requested_size", "state", "frames", needed=("size", "state")
    )
    action, *of_entry, of_entries = values.fields(
        entry, "action", "addr", "size", "time_us", "frames", needed=("action",)
    )
    number_of, stacks = _numbered_stacks(values, np.concatenate([of_entries, of_blocks]))
    address, size, requested = (values.integers(one, 0, _MOST_BYTES) for one in of_block[:3])
    is_used = values.texts(of_block[3]).numbers(lambda text: text != "inactive") == 1
    kinds = values.texts(action)
    entries = _Entries(
        _owners(first_entry), kinds.numbers(lambda text: _ACTIONS.get(text, _NOTED)),
        values.integers(of_entry[0], 0, _MOST_BYTES),
        values.integers(of_entry[1], 0, _MOST_BYTES),
        values.integers(of_entry[2], 0, _LATEST), number_of[of_entries],
        kinds.numbers(lambda text: text == "oom") == 1,
    )  # fmt: skip
    known = set(of_segments.device.tolist())
    num_devices = min(max(known, default=-1) + 1, len(known) + trace.size)
    return _Snapshot(
        of_segments,
        _Blocks(_owners(first_block), address, size, np.where(requested, requested, size), is_used,
                number_of[of_blocks]),
        entries, stacks, max(num_devices, trace.size), _annotations(values, noted),
    )  # fmt: skip


def _owners(first: Ints) -> Ints:
    return np.repeat(np.arange(first.size - 1), np.diff(first))


def _words(values: PickledValues, chosen: Ints) -> list[str]:
    found = values.texts(chosen)
    return [(*found.unique, "")[code] for code in found.codes.tolist()]


def _annotations(values: PickledValues, noted: Ints) -> Sequence[tuple[str, str, int]]:
    _, one = values.inside(noted)
    stage, name, time = values.fields(one, "stage", "name", "time_us", needed=("stage",))
    times = values.integers(time, 0, _LATEST).tolist()
    return [*zip(_words(values, stage), _words(values, name), times, strict=True)]


def _summaries(snapshot: _Snapshot) -> list[dict[str, Any]]:
    """Return what matters of segments; of free blocks how many there are, and the largest."""
    segments, blocks = snapshot.segments, snapshot.blocks
    count = segments.device.size

    def sums(values: Ints, chosen: Bools) -> list[int]:
        found = np.zeros(count, dtype=np.int64)
        np.add.at(found, blocks.segment[chosen], values[chosen])
        return found.tolist()

    used, free, one = blocks.is_used, ~blocks.is_used, np.ones_like(blocks.size)
    largest = np.zeros(count, dtype=np.int64)
    np.maximum.at(largest, blocks.segment[free], blocks.size[free])
    columns = {
        "device": segments.device.tolist(), "stream": segments.stream.tolist(),
        "kind": segments.kind, "expandable": segments.is_expandable.tolist(),
        "reserved_bytes": segments.reserved.tolist(), "blocks": sums(one, used),
        "used_bytes": sums(blocks.size, used), "requested_bytes": sums(blocks.requested, used),
        "free_blocks": sums(one, free), "free_bytes": sums(blocks.size, free),
        "largest_free_bytes": largest.tolist(),
    }  # fmt: skip
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class _Changes(NamedTuple):
    """Allocations and releases of a device, in order; int64, shape (changes,)."""

    time: Ints  # us since 1970
    change: Ints  # bytes, negative where they are released
    reserved: Ints  # bytes of segments
    address: Ints
    text: Ints  # of what the place is, and of the stack where memory was allocated


def _changes(snapshot: _Snapshot, device: int, log: IssueLog) -> _Changes:
    """Return the allocations and releases of a device.

    The history is a ring: what it no longer has was allocated before its oldest entry.
    """
    entries, before_all = snapshot.entries.of(device), len(snapshot.stacks)
    _, kind, address, size, time, stack, _ = entries
    of_device = snapshot.segments.device == device
    grown = np.cumsum(np.where(np.abs(kind) == 1, kind * size, 0))
    at_first = int(snapshot.segments.reserved[of_device].sum()) - int(grown[-1:].sum())
    rows = np.flatnonzero((kind == _ALLOCATES) | (kind == _RELEASES))
    allocates, size = kind[rows] == _ALLOCATES, size[rows]
    before, is_live = _allocation_before(address[rows], allocates)
    stack = np.where(allocates, stack[rows], before_all)
    stack = np.where(before >= 0, stack[before], stack)
    released = np.where(before >= 0, size[before], size)
    change = np.where(allocates, size, -released)
    # what was there before: what is released without having been allocated, and other blocks
    odd = ~allocates & (before < 0)
    blocks = snapshot.blocks
    left = np.flatnonzero(
        blocks.is_used & of_device[blocks.segment]
        & ~np.isin(blocks.address, address[rows[is_live]])
    )  # fmt: skip
    first = np.concatenate([size[odd], blocks.requested[left]])
    place = np.where(blocks.stack[left] > 0, blocks.stack[left], before_all)
    _note(entries, snapshot.stacks, log)
    log.add(
        "memory.no-history", "warning", int(not kind.size and bool(of_device.any())),
        f"device {device} has no history: times are unknown",
        "call torch.cuda.memory._record_memory_history() when the program begins",
    )  # fmt: skip
    stack = np.concatenate([np.full(size[odd].size, before_all), place, stack])
    change = np.concatenate([first, change])
    return _Changes(
        np.concatenate([np.full(first.size, time[:1].sum()), time[rows]]), change,
        np.concatenate([np.full(first.size, at_first), at_first + grown[rows]]),
        np.concatenate([address[rows[odd]], blocks.address[left], address[rows]]),
        len(_MEMBERS) + 2 * stack + (change > 0),
    )  # fmt: skip


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


def _note(entries: _Entries, stacks: Sequence[_Stack], log: IssueLog) -> None:
    for row in np.flatnonzero(entries.is_full).tolist():
        log.add(
            "memory.out-of-memory", "warning", 1,
            f"the device had no room for {entries.size[row]:,} bytes, "
            f"at {stacks[entries.stack[row]].place}",
            "nadi analyze memory-holders shows what held it",
        )  # fmt: skip
    log.add(
        "memory.unknown", "warning", int(((entries.kind == _NOTED) & ~entries.is_full).sum()),
        "entries of the history are of an unknown kind", "they are left out",
    )  # fmt: skip


class _Frame(NamedTuple):
    name: str
    line: str  # of a program in Python, as a stack has it
    short: str  # the same, as the place of an allocation
    is_own: bool  # whether it is Python's, but not PyTorch's


def _frame(name: str, file: str, line: int) -> _Frame:
    if not file.endswith(".py"):
        return _Frame(name, "", "", is_own=False)
    short = f"{'/'.join(file.split('/')[-2:])}:{line} {name}"
    return _Frame(name, f"{file}:{line} {name}", short, "/torch/" not in file)


class _Stack(NamedTuple):
    """A call stack: where in the program it is, and its calls of Python."""

    place: str
    calls: Sequence[str] = ()

    def members(self, number: int) -> tuple[str, str]:
        """Return members of an event: the place, and the place with the number of the stack."""
        place = json_key("Place") + msgspec.json.encode(self.place).decode()
        return place, f"{place},{json_key('Stack')}{number}" if self.calls else place


_BEFORE = _Stack("(before the history)")  # allocated before its oldest entry


def _numbered_stacks(values: PickledValues, lists: Ints) -> tuple[Ints, list[_Stack]]:
    """Return the different stacks of a snapshot, the empty one first.

    - ``lists``: int64, shape (uses,): the lists of frames; the same ones are used again and again.
    - Returns number_of: int64, shape (values + 1,): the number of a list's stack, also of -1.
    - and stacks: Each with its place. O(values).
    - Raises FormatError if one is no list of frames.
    """
    used = _distinct(lists)
    first, frame = values.inside(used)
    # a stack is one because its frames are the same objects
    at, size = first[:-1] * frame.itemsize, np.diff(first) * frame.itemsize
    codes, rows = intern_spans(frame.view(np.uint8), at, size)
    different = [frame[first[row] : first[row + 1]] for row in rows.tolist()]
    known = np.unique(np.concatenate([*different, frame[:0]])).astype(np.int64)
    name, file, line = values.fields(known, "name", "filename", "line")
    lines = values.integers(line, *_INTEGERS).tolist()
    frames = [*map(_frame, _words(values, name), _words(values, file), lines)]
    stacks = [_Stack(*_place([frames[k] for k in np.searchsorted(known, one).tolist()]))
              for one in different]  # fmt: skip
    number_of = np.zeros(len(values.values) + 1, dtype=np.int64)
    number_of[used] = np.where(size > 0, codes + 1, 0)
    return number_of, [_Stack(*_place(())), *stacks]


def _distinct(chosen: Ints) -> Ints:
    """Return the different values, ascending, without -1."""
    is_used = np.zeros(int(chosen.max(initial=-1)) + 2, dtype=np.bool_)
    is_used[chosen] = True
    return np.flatnonzero(is_used[:-1])


def _place(frames: Sequence[_Frame]) -> tuple[str, list[str]]:
    """Return where in the program memory was allocated, and the stack of Python.

    Of the innermost line of Python that is not PyTorch's; without Python, as in the backward pass,
    the node of autograd, else the operator.
    """
    of_python = [one for one in frames if one.line]
    stack = [one.line for one in of_python[:_MOST_FRAMES]]
    if of_python:
        return next((one for one in of_python if one.is_own), of_python[0]).short, stack
    for kind, prefix in ((_NODE, ""), (_OPERATOR, "aten::")):
        found = next(filter(None, (kind.match(one.name) for one in frames)), None)
        if found is not None:
            return prefix + found[1], stack
    return (frames[-1].name if frames else "(no stack)"), stack


def _ranges(
    found: Sequence[_Changes], annotations: Sequence[tuple[str, str, int]]
) -> ForeignEvents:
    """Return the history as a whole, and the annotations of the program that have both ends."""
    times = np.concatenate([one.time for one in found]) if found else np.zeros(0, dtype=np.int64)
    first = int(times.min()) if times.size else 0
    ranges = [("memory history", first, int(times.max(initial=first)) - first)]
    begun: dict[str, list[int]] = {}
    for stage, name, time in annotations:
        if stage == "START":
            begun.setdefault(name, []).append(time)
        elif stage == "END" and begun.get(name):
            start = begun[name].pop()
            ranges.append((name, start, max(time - start, 0)))
    names, starts, durations = zip(*ranges, strict=True)
    none = np.zeros(len(ranges), dtype=np.int64)
    return ForeignEvents(
        category=_same("user_annotation", len(ranges)),
        name=Texts(np.arange(len(ranges), dtype=np.int32), names), pid=none, tid=none,
        start=1000 * np.array(starts), duration=1000 * np.array(durations),
        args={"events": np.where(np.arange(len(ranges)) == 0, times.size, -1)},
    )  # fmt: skip
