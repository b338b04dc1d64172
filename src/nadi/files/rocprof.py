"""Read the JSON of rocprofv3, as events that are those of a Kineto trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.kineto.kineto_trace import MERGED, decode_events
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

__all__ = ["decode", "to_events"]

_GPU = 2  # the type of an agent
_CALLS = {"hip_api": "cuda_runtime", "hsa_api": "cuda_driver", "rccl_api": "user_annotation",
          "marker_api": "user_annotation"}  # fmt: skip
_READ = ("kernel_dispatch", "memory_copy", *_CALLS)
_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Handle(msgspec.Struct, frozen=True):
    handle: _Whole = 0


class _Correlation(msgspec.Struct, frozen=True):
    internal: _Whole = 0


class _Size(msgspec.Struct, frozen=True):
    x: _Whole = 1
    y: _Whole = 1
    z: _Whole = 1


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle
    kernel_id: _Whole
    queue_id: _Handle = _Handle()
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _Record(msgspec.Struct, frozen=True):
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
    buffer_records: dict[str, list[msgspec.Raw]]
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    kernel_symbols: list[_Kernel] = []
    strings: _Strings = _Strings()


class _File(msgspec.Struct, frozen=True):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


_decoder = msgspec.json.Decoder(_File)
_record = msgspec.json.Decoder(_Record)


def decode(raw: RawFile) -> Trace:
    """Read a file of rocprofv3.

    Returns
    -------
    Trace
        Nodes with their times in ns since the machine started: kernels, copies, and the calls of
        HIP and RCCL where they were traced, joined by correlation id.

    Raises
    ------
    FormatError
        If the JSON is broken.
    """
    content, log = to_events(raw)
    return decode_events(raw, content, "rocprofv3", log)


def to_events(raw: RawFile) -> tuple[bytes, IssueLog]:
    """Return the events as the JSON of a Kineto trace, and what the file does not hold.

    Raises
    ------
    FormatError
        As :func:`decode`.
    """
    log = IssueLog()
    try:
        tools = _decoder.decode(raw.content.tobytes().decode()).tools  # all of it is UTF-8
        events = [event for tool in tools for event in _events(tool, log)]
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
    return msgspec.json.encode({"schemaVersion": 1, "traceEvents": events}), log


def _events(tool: _Tool, log: IssueLog) -> Iterator[dict[str, Any]]:
    devices = {a.id.handle: a.logical_node_type_id for a in tool.agents if a.type == _GPU}
    names = {one.kernel_id: one.formatted_kernel_name for one in tool.kernel_symbols}
    unknown: Counter[str] = Counter()
    for table, records in tool.buffer_records.items():
        if table not in _READ:
            log.add(
                "rocprof.not-read", "info", len(records), f"records of {table}", "they are not read"
            )
            continue
        for one in map(_record.decode, records):
            event = _event(tool, one, _CALLS.get(table, ""))
            if one.dispatch_info is not None:
                event.update(_kernel(one, one.dispatch_info, devices, names, unknown))
            elif table == "memory_copy":
                event.update(_copy(one, devices))
            yield event
    for what, count in unknown.items():
        log.add("rocprof.unknown", "warning", count, what, "they are kept without it")
    empty = [table for table in ("hip_api", "memory_copy", "rccl_api")
             if not tool.buffer_records.get(table)]  # fmt: skip
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


def _event(tool: _Tool, one: _Record, category: str) -> dict[str, Any]:
    kinds = tool.strings.buffer_records
    operations = kinds[one.kind].operations if one.kind < len(kinds) else []
    name = operations[one.operation] if one.operation < len(operations) else "unnamed"
    return {
        "ph": "X", "cat": category, "name": name, "pid": tool.metadata.pid, "tid": one.thread_id,
        "ts": _micros(one.start_timestamp), "dur": _micros(one.end_timestamp - one.start_timestamp),
        "args": {"correlation": one.correlation_id.internal},
    }  # fmt: skip


def _kernel(
    one: _Record, dispatch: _Dispatch, devices: dict[int, int], names: dict[int, str],
    unknown: Counter[str],
) -> dict[str, Any]:  # fmt: skip
    device = devices.get(dispatch.agent_id.handle, -1)
    unknown["kernels ran on an agent that is no GPU of the file"] += device < 0
    name = names.get(dispatch.kernel_id, "")
    unknown["kernels have no name in the file"] += not name
    stream = (one.stream_id or dispatch.queue_id).handle
    grid, block = ([s.x, s.y, s.z] for s in (dispatch.grid_size, dispatch.workgroup_size))
    return {
        "cat": "kernel", "name": name or "unnamed", "pid": device, "tid": stream,
        "args": {
            "correlation": one.correlation_id.internal, "device": device, "stream": stream,
            "queue": dispatch.queue_id.handle, "thread": one.thread_id, "block": block,
            # the file counts threads, a Kineto trace blocks
            "grid": [-(-size // max(of, 1)) for size, of in zip(grid, block, strict=True)],
        },
    }  # fmt: skip


def _copy(one: _Record, devices: dict[int, int]) -> dict[str, Any]:
    ends = [agent.handle if agent else -1 for agent in (one.dst_agent_id, one.src_agent_id)]
    device = next((devices[end] for end in ends if end in devices), -1)
    stream = one.stream_id.handle if one.stream_id else 0
    args = {"correlation": one.correlation_id.internal, "device": device, "stream": stream}
    if one.bytes is not None:
        args["bytes"] = one.bytes
    return {"cat": "gpu_memcpy", "pid": device, "tid": stream, "args": args}


def _micros(ns: int) -> msgspec.Raw:
    """Return a time in us, exact."""
    return msgspec.Raw(b"%s%d.%03d" % (b"-" if ns < 0 else b"", abs(ns) // 1000, abs(ns) % 1000))
