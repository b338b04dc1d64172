"""Read the JSON of rocprofv3, as events that are those of a Kineto trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile, garbage_collection_paused
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import ForeignEvents, JsonTexts, kineto_content
from nadi.files.kineto.kineto_trace import MERGED, decode_events
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_GPU = 2  # the type of an agent
_CALLS = {"hip_api": "cuda_runtime", "hsa_api": "cuda_driver", "rccl_api": "user_annotation",
          "marker_api": "user_annotation"}  # fmt: skip
_READ = ("kernel_dispatch", "memory_copy", *_CALLS)
_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: _Whole = 0


class _Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: _Whole = 0


class _Size(msgspec.Struct, frozen=True, gc=False):
    x: _Whole = 1
    y: _Whole = 1
    z: _Whole = 1


class _Dispatch(msgspec.Struct, frozen=True, gc=False):
    agent_id: _Handle
    kernel_id: _Whole
    queue_id: _Handle = _Handle()
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _Record(msgspec.Struct, frozen=True, gc=False):
    start_timestamp: _Whole
    end_timestamp: _Whole
    kind: _Whole = 0
    operation: _Whole = 0
    thread_id: _Whole = 0
    correlation_id: _Correlation = _Correlation()
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    bytes: _Whole | None = None


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle
    type: _Whole = 0
    logical_node_type_id: _Whole = 0


class _Kernel(msgspec.Struct, frozen=True):
    kernel_id: _Whole
    formatted_kernel_name: str = ""


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Kind] = []


class _Metadata(msgspec.Struct, frozen=True):
    pid: _Whole = 0


class _Tool(msgspec.Struct, frozen=True):
    buffer_records: dict[str, msgspec.Raw]
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    kernel_symbols: list[_Kernel] = []
    strings: _Strings = _Strings()


class _File(msgspec.Struct, frozen=True):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


_decoder = msgspec.json.Decoder(_File)
_records = msgspec.json.Decoder(list[_Record])
_others = msgspec.json.Decoder(list[msgspec.Raw])


def decode(raw: RawFile) -> Trace:
    """Read a file of rocprofv3.

    - Returns: Nodes with their times in ns since the machine started: kernels, copies, and the
      calls of HIP and RCCL where they were traced, joined by correlation id.
    - Raises FormatError if the JSON is broken.
    """
    content, log = to_events(raw)
    return decode_events(raw, content, "rocprofv3", log)


def to_events(raw: RawFile) -> tuple[bytearray, IssueLog]:
    """Return the events as the JSON of a Kineto trace, and what the file does not hold.

    - Raises FormatError as :func:`decode`.
    """
    log = IssueLog()
    try:
        text = raw.content.tobytes()
        if not text.isascii():
            text.decode()  # all of it is UTF-8, also what is not looked at
        with garbage_collection_paused():
            tools = _decoder.decode(text).tools
            content = kineto_content((part for tool in tools for part in _events(tool, log)), raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = str(error)[:300]
        raise FormatError(
            raw.name, what if what.isprintable() else "not valid JSON", "record it again"
        ) from None
    log.add(
        MERGED, "warning", len(tools) if len(tools) > 1 else 0,
        "processes have work in the file, as if ranks were merged into it",
        "nadi run reads them as ranks; other commands read one trace",
    )  # fmt: skip
    return content, log


def _events(tool: _Tool, log: IssueLog) -> Iterator[ForeignEvents]:
    unknown: Counter[str] = Counter()
    held = []
    for table, written in tool.buffer_records.items():
        if table not in _READ:
            count = len(_others.decode(written))
            log.add("rocprof.not-read", "info", count, f"records of {table}", "they are not read")
            continue
        records = _records.decode(written)
        held += [table] * bool(records)
        of_kernels = [one for one in records if one.dispatch_info is not None]
        if of_kernels:
            yield _kernels(tool, of_kernels, unknown)
            records = [one for one in records if one.dispatch_info is None]
        yield _calls_and_copies(tool, records, table)
    for what, count in unknown.items():
        log.add("rocprof.unknown", "warning", count, what, "they are kept without it")
    empty = [table for table in ("hip_api", "memory_copy", "rccl_api") if table not in held]
    log.add(
        "rocprof.not-traced", "info", len(empty),
        f"kinds of records are absent: {', '.join(empty)}",
        "trace them with --hip-trace, --memory-copy-trace and --rccl-trace",
    )  # fmt: skip
    log.add(
        "rocprof.not-held", "info", 1,
        "the file has no operators, no tensors, and no sizes and groups of collectives",
        "torch.profiler records them",
    )  # fmt: skip


def _devices(tool: _Tool) -> dict[int, int]:
    return {a.id.handle: a.logical_node_type_id for a in tool.agents if a.type == _GPU}


def _numbers(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _same(word: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.int32), (word,))


def _times(records: list[_Record]) -> tuple[Ints, Ints]:
    """Return start and duration of records in ns."""
    start = _numbers(one.start_timestamp for one in records)
    return start, _numbers(one.end_timestamp for one in records) - start


def _calls_and_copies(tool: _Tool, records: list[_Record], table: str) -> ForeignEvents:
    """Return the records of a table that are no kernels, by the names of its operations."""
    kinds, devices, number = tool.strings.buffer_records, _devices(tool), dict[str, int]()
    start, duration = _times(records)
    codes = []
    for one in records:
        operations = kinds[one.kind].operations if one.kind < len(kinds) else []
        name = operations[one.operation] if one.operation < len(operations) else "unnamed"
        codes.append(number.setdefault(name, len(number)))
    pid = np.full(len(records), tool.metadata.pid, dtype=np.int64)
    tid = _numbers(one.thread_id for one in records)
    args = {"correlation": _numbers(one.correlation_id.internal for one in records)}
    if table == "memory_copy":
        pid = _numbers(
            next((devices[end.handle] for end in (one.dst_agent_id, one.src_agent_id)
                  if end and end.handle in devices), -1) for one in records)  # fmt: skip
        tid = _numbers(one.stream_id.handle if one.stream_id else 0 for one in records)
        size = _numbers(-1 if one.bytes is None else one.bytes for one in records)
        args |= {"device": pid, "stream": tid, "bytes": size}
    return ForeignEvents(
        category=_same(_CALLS.get(table, "gpu_memcpy"), len(records)),
        name=Texts(_numbers(codes).astype(np.int32), tuple(number)),
        pid=pid, tid=tid, start=start, duration=duration, args=args,
    )  # fmt: skip


def _kernels(tool: _Tool, records: list[_Record], unknown: Counter[str]) -> ForeignEvents:
    """Return kernels, and count those of which the file does not say enough."""
    known = {one.kernel_id: one.formatted_kernel_name for one in tool.kernel_symbols}
    agents = _devices(tool)
    dispatches = [one.dispatch_info for one in records if one.dispatch_info is not None]
    device = _numbers(agents.get(one.agent_id.handle, -1) for one in dispatches)
    queue = _numbers(one.queue_id.handle for one in dispatches)
    stream = _numbers(queue if one.stream_id is None else one.stream_id.handle
                      for one, queue in zip(records, queue.tolist(), strict=True))  # fmt: skip
    name: dict[str, int] = {}
    sizes: dict[tuple[_Size, _Size], int] = {}
    names = _numbers(name.setdefault(known.get(one.kernel_id, "") or "unnamed", len(name))
                     for one in dispatches)  # fmt: skip
    shapes = _numbers(sizes.setdefault((one.grid_size, one.workgroup_size), len(sizes))
                      for one in dispatches).astype(np.int32)  # fmt: skip
    unknown["kernels ran on an agent that is no GPU of the file"] += int((device < 0).sum())
    nameless = sum(not known.get(one.kernel_id) for one in dispatches)
    unknown["kernels have no name in the file"] += nameless
    start, duration = _times(records)
    return ForeignEvents(
        category=_same("kernel", len(records)),
        name=Texts(names.astype(np.int32), tuple(name)),
        pid=device, tid=stream, start=start, duration=duration,
        args={
            "correlation": _numbers(one.correlation_id.internal for one in records),
            "device": device, "stream": stream, "queue": queue,
            "thread": _numbers(one.thread_id for one in records),
            "block": JsonTexts(shapes, tuple(_list(block) for _, block in sizes)),
            "grid": JsonTexts(shapes, tuple(_blocks(grid, block) for grid, block in sizes)),
        },
    )  # fmt: skip


def _list(size: _Size) -> str:
    return f"[{size.x},{size.y},{size.z}]"


def _blocks(grid: _Size, block: _Size) -> str:
    """Return the blocks of a grid, whose threads the file counts."""
    pairs = ((grid.x, block.x), (grid.y, block.y), (grid.z, block.z))
    return _list(_Size(*(-(-size // max(of, 1)) for size, of in pairs)))
