"""Read memory snapshots of PyTorch, as events that are those of a Kineto trace.

``torch.cuda.memory._dump_snapshot`` pickles what the caching allocator of a device holds: its
segments, their blocks, and the latest allocations and releases with their call stacks. Allocations
become the events that the profiler writes with ``profile_memory=True``, so that one analysis
answers for both. Only plain values are read from the pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import msgspec

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.kineto.foreign_events import within_limit
from nadi.files.kineto.kineto_trace import decode_events
from nadi.files.plain_pickles import is_pickle, read_plain
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

SEGMENTS = "memorySegments"
"""The key of a file under which the segments are kept: a list of objects."""
NO_OPERATIONS = "memory.not-held"
"""The code of the issue that a file has no operations, as it is a memory snapshot."""

_BEFORE = "(before the history)"  # allocated before its oldest entry
_HEAD = 64  # bytes within which the first key stands
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_KNOWN = ("alloc", "free_requested", "free_completed", "snapshot", "oom", *_RESERVED)
_CUDA = 1  # the profiler's number of the kind of device
_MOST_FRAMES = 32  # of Python that are kept of a call stack
_NODE = re.compile(r"torch::autograd::generated::(\w+)::apply")
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")

_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Device = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class _Block(msgspec.Struct):
    size: _Whole
    state: str
    address: _Whole = 0
    requested_size: _Whole = 0
    frames: list[_Frame] = []


class _Segment(msgspec.Struct):
    total_size: _Whole
    blocks: list[_Block]
    device: _Device = 0
    address: _Whole = 0
    stream: int = 0
    segment_type: str = ""
    is_expandable: bool = False


class _Entry(msgspec.Struct):
    action: str
    addr: _Whole = 0
    size: _Whole = 0
    stream: int = 0
    time_us: _Whole = 0
    frames: list[_Frame] = []


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

    Returns
    -------
    Trace
        The annotations of the program, and the history as a whole, as nodes with their times in ns
        since 1970. Allocations and releases are kept as the profiler's events ``[memory]``.

    Raises
    ------
    FormatError
        If the pickle is broken, holds anything but plain values, or is no snapshot.
    """
    content, log = to_events(raw)
    return decode_events(raw, content, "PyTorch's memory snapshot", log)


def to_events(raw: RawFile) -> tuple[bytes, IssueLog]:
    """Return the events as the JSON of a Kineto trace, and what the snapshot does not hold.

    Raises
    ------
    FormatError
        As :func:`decode`.
    """
    try:
        made = read_plain(raw.content.tobytes(), raw.name)
        snapshot = msgspec.convert(made, _Snapshot, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        what = str(error)[:200]
        raise FormatError(
            raw.name, what if what.isprintable() else "no memory snapshot", "write it again"
        ) from None
    log = IssueLog()
    traces = snapshot.device_traces
    traces += [[] for _ in range(_num_devices(snapshot) - len(traces))]
    times: list[int] = []
    events = list(within_limit(_written(
        (event for device, entries in enumerate(traces)
         for event in _history(snapshot, device, entries, log)), times
    ), raw))  # fmt: skip
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
        "traceEvents": [whole, *_annotations(snapshot.external_annotations),
                        *map(msgspec.Raw, events)],
    }  # fmt: skip
    return msgspec.json.encode(content), log


def _written(events: Iterable[dict[str, Any]], times: list[int]) -> Iterator[bytes]:
    """Write events as JSON, one at a time, and note their times."""
    for event in events:
        times.append(event["ts"])
        yield msgspec.json.encode(event)


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
    snapshot: _Snapshot, device: int, entries: Sequence[_Entry], log: IssueLog
) -> Iterator[dict[str, Any]]:
    """Return the allocations and releases of a device, with what it holds after each.

    The history is a ring: what it no longer has was allocated before its oldest entry.
    """
    segments = [one for one in snapshot.segments if one.device == device]
    live: dict[int, tuple[int, str, list[str]]] = {}  # address: bytes, place, stack
    before: list[tuple[int, int, Sequence[_Frame]]] = []
    allocated: set[int] = set()
    for one in entries:
        if one.action == "alloc":
            allocated.add(one.addr)
        elif one.action == "free_completed" and one.addr in allocated:
            allocated.discard(one.addr)
        elif one.action == "free_completed":
            before.append((one.addr, one.size, ()))
    before += [
        (block.address, block.requested_size or block.size, block.frames)
        for one in segments for block in one.blocks
        if block.state != "inactive" and block.address not in allocated
    ]  # fmt: skip
    held, time = 0, entries[0].time_us if entries else 0
    reserved = sum(one.total_size for one in segments)
    reserved -= sum(_RESERVED.get(one.action, 0) * one.size for one in entries)
    for address, size, frames in before:
        place, stack = _place(frames) if frames else (_BEFORE, [])
        live[address] = size, place, stack
        held += size
        yield _event(device, time, address, size, held, reserved, place, stack)
    for one in entries:
        if one.action == "alloc":
            place, stack = _place(one.frames)
            live[one.addr], size = (one.size, place, stack), one.size
        elif one.action == "free_completed":
            freed, place, stack = live.pop(one.addr, (one.size, _BEFORE, []))
            size = -freed
        else:
            reserved += _RESERVED.get(one.action, 0) * one.size
            _note(one, log)
            continue
        held += size
        yield _event(device, one.time_us, one.addr, size, held, reserved, place, stack)
    if not entries:
        log.add(
            "memory.no-history", "warning", 1, f"device {device} has no history: times are unknown",
            "call torch.cuda.memory._record_memory_history() when the program begins",
        )  # fmt: skip


def _event(
    device: int, time: int, address: int, size: int, held: int, reserved: int, place: str,
    stack: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Return an event as the profiler writes it, with its place in the program besides."""
    args = {
        "Total Allocated": held, "Total Reserved": reserved, "Device Id": device,
        "Device Type": _CUDA, "Addr": address, "Bytes": size, "Place": place,
        **({"Call stack": stack} if stack and size > 0 else {}),
    }  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 0, "tid": 0,
            "ts": time, "args": args}  # fmt: skip


def _note(one: _Entry, log: IssueLog) -> None:
    if one.action == "oom":
        log.add(
            "memory.out-of-memory", "warning", 1,
            f"the device had no room for {one.size:,} bytes, at {_place(one.frames)[0]}",
            "nadi analyze memory-holders shows what held it",
        )  # fmt: skip
    elif one.action not in _KNOWN:
        log.add("memory.unknown", "warning", 1, "entries of the history are of an unknown kind",
                "they are left out")  # fmt: skip


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
