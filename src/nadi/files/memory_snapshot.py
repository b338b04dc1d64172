"""Read memory snapshots of PyTorch, as events that are those of a Kineto trace.

``torch.cuda.memory._dump_snapshot`` pickles what the caching allocator of a device holds: its
segments, their blocks, and the latest allocations and releases with their call stacks. Allocations
become the events that the profiler writes with ``profile_memory=True``, so that one analysis
answers for both. Only plain values are read from the pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from nadi.errors import FormatError
from nadi.files.files import RawFile, garbage_collection_paused
from nadi.files.kineto.foreign_events import within_limit
from nadi.files.kineto.kineto_trace import decode_events
from nadi.files.plain_pickles import is_pickle, read_plain
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

SEGMENTS = "memorySegments"
"""The key of a file under which the segments are kept: a list of objects."""
NO_OPERATIONS = "memory.not-held"
"""The code of the issue that a file has no operations, as it is a memory snapshot."""

_HEAD = 64  # bytes within which the first key stands
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_KNOWN = ("alloc", "free_requested", "free_completed", "snapshot", "oom", *_RESERVED)
_MOST_FRAMES = 32  # of Python that are kept of a call stack
_NODE = re.compile(r"torch::autograd::generated::(\w+)::apply")
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
# an event as the profiler writes it, with its place in the program besides
_EVENT = (
    b'{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":0,"tid":0,"ts":%d,'
    b'"args":{"Total Allocated":%d,"Total Reserved":%d,"Device Id":%d,"Device Type":1,"Addr":%d,'
    b'"Bytes":%d,"Place":%b}}'
)  # Device Type: the profiler's number of CUDA

_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
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
    time_us: _Whole = 0
    stack: int = 0


class _Annotation(msgspec.Struct):
    stage: str
    name: str = ""
    time_us: _Whole = 0


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


def to_events(raw: RawFile) -> tuple[bytes, IssueLog]:
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
    times: list[int] = []
    events = list(within_limit(
        (event for device, entries in enumerate(traces)
         for event in _history(snapshot, device, entries, stacks, times, log)), raw
    ))  # fmt: skip
    first, last = min(times, default=0), max(times, default=0)
    whole = {"ph": "X", "cat": "user_annotation", "name": "memory history", "pid": 0, "tid": 0,
             "ts": first, "dur": last - first, "args": {"events": len(events)}}  # fmt: skip
    log.add(
        NO_OPERATIONS, "info", 1,
        "the snapshot has no operators and no device work", "torch.profiler records them",
    )  # fmt: skip
    content = {
        "schemaVersion": 1, "baseTimeNanoseconds": 0,
        SEGMENTS: [_summary(one) for one in snapshot.segments],
        "traceEvents": [whole, *_annotations(snapshot.external_annotations)],
    }  # fmt: skip
    head, _, end = msgspec.json.encode(content).rpartition(b"]")
    return b",\n".join([head, *events]) + b"]" + end, log


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


def _history(
    snapshot: _Snapshot, device: int, entries: Sequence[_Entry], stacks: Sequence[_Stack],
    times: list[int], log: IssueLog,
) -> Iterator[bytes]:  # fmt: skip
    """Return the allocations and releases of a device, with what it holds after each, as JSON.

    The history is a ring: what it no longer has was allocated before its oldest entry. ``times``
    gets the time of each.
    """
    segments = [one for one in snapshot.segments if one.device == device]
    live: dict[int, tuple[int, bytes]] = {}  # address: bytes, place
    before: list[tuple[int, int, int]] = []
    allocated: set[int] = set()
    for one in entries:
        if one.action == "alloc":
            allocated.add(one.addr)
        elif one.action == "free_completed":
            if one.addr in allocated:
                allocated.remove(one.addr)
            else:
                before.append((one.addr, one.size, 0))
    before += [
        (block.address, block.requested_size or block.size, block.stack)
        for one in segments for block in one.blocks
        if block.state != "inactive" and block.address not in allocated
    ]  # fmt: skip
    held, time = 0, entries[0].time_us if entries else 0
    reserved = sum(one.total_size for one in segments)
    reserved -= sum(_RESERVED.get(one.action, 0) * one.size for one in entries)
    for address, size, number in before:
        stack = stacks[number] if number else _BEFORE
        live[address] = size, stack.written_place
        held += size
        times.append(time)
        yield _EVENT % (time, held, reserved, device, address, size,
                        stack.written if size else stack.written_place)  # fmt: skip
    for one in entries:
        if one.action == "alloc":
            stack, size = stacks[one.stack], one.size
            live[one.addr] = size, stack.written_place
            said = stack.written if size else stack.written_place
        elif one.action == "free_completed":
            freed, said = live.pop(one.addr, (one.size, _BEFORE.written_place))
            size = -freed
        else:
            reserved += _RESERVED.get(one.action, 0) * one.size
            _note(one, stacks, log)
            continue
        held += size
        times.append(one.time_us)
        yield _EVENT % (one.time_us, held, reserved, device, one.addr, size, said)
    if not entries:
        log.add(
            "memory.no-history", "warning", 1, f"device {device} has no history: times are unknown",
            "call torch.cuda.memory._record_memory_history() when the program begins",
        )  # fmt: skip


def _note(one: _Entry, stacks: Sequence[_Stack], log: IssueLog) -> None:
    if one.action == "oom":
        log.add(
            "memory.out-of-memory", "warning", 1,
            f"the device had no room for {one.size:,} bytes, at {stacks[one.stack].place}",
            "nadi analyze memory-holders shows what held it",
        )  # fmt: skip
    elif one.action not in _KNOWN:
        log.add("memory.unknown", "warning", 1, "entries of the history are of an unknown kind",
                "they are left out")  # fmt: skip


class _Stack(NamedTuple):
    """A call stack: its place, and the JSON of that without and with the frames of Python."""

    place: str
    written_place: bytes
    written: bytes

    @classmethod
    def of(cls, place: str, frames: Sequence[str] = ()) -> _Stack:
        """Write a place and frames."""
        written = msgspec.json.encode(place)
        calls = b',"Call stack":' + msgspec.json.encode(frames) if frames else b""
        return cls(place, written, written + calls)


_NO_FRAMES: list[Any] = []
_BEFORE = _Stack.of("(before the history)")  # allocated before its oldest entry


def _numbered_stacks(made: Any) -> list[_Stack]:
    """Return the different stacks of a snapshot, the empty one first; entries get their numbers.

    The history has few stacks, whose frames are few objects: each is converted once.

    - Raises msgspec.ValidationError if a stack is no list of frames.
    """
    stacks = [_Stack.of(*_place(()))]
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
                stacks.append(_Stack.of(*_place(converted)))
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


def _annotations(found: Sequence[_Annotation]) -> Iterator[dict[str, Any]]:
    """Return the annotations of the program that have both ends."""
    begun: dict[str, list[int]] = {}
    for one in found:
        if one.stage == "START":
            begun.setdefault(one.name, []).append(one.time_us)
        elif one.stage == "END" and begun.get(one.name):
            start = begun[one.name].pop()
            yield {"ph": "X", "cat": "user_annotation", "name": one.name, "pid": 0, "tid": 0,
                   "ts": start, "dur": max(one.time_us - start, 0)}  # fmt: skip
