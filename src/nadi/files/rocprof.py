"""Read the JSON of rocprofv3, as events that are those of a Kineto trace."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.json_objects import read_columns
from nadi.files.kineto.foreign_events import (
    ForeignEvents,
    ForeignRecording,
    decode_events,
    number_lists,
    with_step_marks,
)
from nadi.files.kineto.kineto_trace import MERGED
from nadi.files.read_columns import ReadColumns
from nadi.files.remedies import ROCPROF
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.trace import Trace

_ASCII = 127
_GPU = 2  # the type of an agent
_CALLS = {"hip_api": "cuda_runtime", "hsa_api": "cuda_driver", "rccl_api": "user_annotation",
          "marker_api": "user_annotation"}  # fmt: skip
_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


_SIZES = {part: [f"dispatch_info.{name}_size.{axis}" for axis in "xyz"]
          for part, name in (("grid", "grid"), ("block", "workgroup"))}  # fmt: skip
_AGENT, _KERNEL, _QUEUE = (
    f"dispatch_info.{key}" for key in ("agent_id.handle", "kernel_id", "queue_id.handle")
)
_ALWAYS = ("start_timestamp", "end_timestamp", "kind", "operation", "thread_id",
           "correlation_id.internal", "stream_id.handle")  # fmt: skip
_FIELDS = {
    "kernel_dispatch": (*_ALWAYS, _AGENT, _KERNEL, _QUEUE, *_SIZES["grid"], *_SIZES["block"]),
    "memory_copy": (*_ALWAYS, "dst_agent_id.handle", "src_agent_id.handle", "bytes"),
    **dict.fromkeys(_CALLS, _ALWAYS),
}  # fmt: skip


class _Handle(msgspec.Struct, frozen=True):
    handle: _Whole = 0


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle
    type: _Whole = 0
    logical_node_type_id: _Whole = 0


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: _Whole
    formatted_kernel_name: str = ""


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct, frozen=True):
    key: _Whole  # the correlation id of the mark
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Metadata(msgspec.Struct, frozen=True):
    pid: _Whole = 0


class _Tool(msgspec.Struct, frozen=True):
    buffer_records: dict[str, msgspec.Raw]
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    strings: _Strings = _Strings()


class _File(msgspec.Struct, frozen=True):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


_decoder = msgspec.json.Decoder(_File)
_others = msgspec.json.Decoder(list[msgspec.Raw])


def decode(raw: RawFile) -> Trace:
    """Read a file of rocprofv3.

    - Returns: Nodes with their times in ns since the machine started: kernels, copies, and the
      calls of HIP and RCCL where they were traced, joined by correlation id.
    - Raises FormatError if the JSON is broken.
    """
    return decode_events(raw, recording(raw), ROCPROF)


def recording(raw: RawFile) -> ForeignRecording:
    """Return the events, and what the file does not hold.

    - Raises FormatError as :func:`decode`, also while events are looked at.
    """
    log = IssueLog()
    return ForeignRecording(_parts(raw, log), log)


def _parts(raw: RawFile, log: IssueLog) -> Iterator[ForeignEvents]:
    try:
        if (raw.content > _ASCII).any():
            raw.content.tobytes().decode()  # all is UTF-8, also what is not looked at
        tools = _decoder.decode(raw.content.data).tools
        for tool in tools:
            yield from _events(raw, tool, log)
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


def _events(raw: RawFile, tool: _Tool, log: IssueLog) -> Iterator[ForeignEvents]:
    unknown: Counter[str] = Counter()
    held = []
    for table, written in tool.buffer_records.items():
        if table not in _FIELDS:
            count = len(_others.decode(written))
            log.add("rocprof.not-read", "info", count, f"records of {table}", "they are not read")
            continue
        records = read_columns(raw.with_content(bytearray(written)), _FIELDS[table], is_list=True)
        held += [table] * bool(records.height)
        if table == "kernel_dispatch":
            yield _kernels(tool, records, unknown)
        else:
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


def _same(word: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.int32), (word,))


def _named(values: Sequence[Ints], name_of: Callable[..., str]) -> Texts:
    """Return the names of rows, each of which is made of some numbers once."""
    codes, first = number_rows(values)
    rows = zip(*(one[first].tolist() for one in values), strict=True)
    return Texts(codes.astype(np.int32), tuple(name_of(*row) for row in rows))


def _devices(tool: _Tool, agents: Ints) -> Ints:
    """Return the devices of agents, -1 of those that are no GPU of the file."""
    known = {a.id.handle: a.logical_node_type_id for a in tool.agents if a.type == _GPU}
    return _numbered(agents, lambda agent: known.get(agent, -1))


def _numbered(values: Ints, number_of: Callable[[int], int]) -> Ints:
    codes, first = number_rows([values])
    return np.array([*map(number_of, values[first].tolist())], dtype=np.int64)[codes]


def _calls_and_copies(tool: _Tool, records: ReadColumns, table: str) -> ForeignEvents:
    """Return the records of a table that are no kernels, by the names of its operations."""
    kinds = tool.strings.buffer_records

    def name_of(kind: int, operation: int) -> str:
        operations = kinds[kind].operations if kind < len(kinds) else []
        return operations[operation] if operation < len(operations) else "unnamed"

    pid = np.full(records.height, tool.metadata.pid)
    tid = records.whole("thread_id", 0)
    args = {"correlation": records.whole("correlation_id.internal", 0)}
    if table == "memory_copy":
        dst, src = (_devices(tool, records.whole(f"{end}_agent_id.handle", -1))
                    for end in ("dst", "src"))  # fmt: skip
        pid, tid = np.where(dst < 0, src, dst), records.whole("stream_id.handle", 0)
        args |= {"device": pid, "stream": tid, "bytes": records.whole("bytes", -1)}
    name = _named([records.whole("kind", 0), records.whole("operation", 0)], name_of)
    if table == "marker_api":  # what the program said, where it said anything
        said = {one.key: one.value for one in tool.strings.marker_api}
        mark = np.where(np.isin(args["correlation"], list(said)), args["correlation"], -1)
        rows = [mark, name.codes.astype(np.int64)]
        name = _named(rows, lambda key, code: said.get(key) or name.unique[code])
        name = with_step_marks(name, tid)
    start = records.whole("start_timestamp")
    return ForeignEvents(
        category=_same(_CALLS.get(table, "gpu_memcpy"), records.height), name=name,
        pid=pid, tid=tid, start=start, duration=records.whole("end_timestamp") - start, args=args,
    )  # fmt: skip


def _kernels(tool: _Tool, records: ReadColumns, unknown: Counter[str]) -> ForeignEvents:
    """Return kernels, and count those of which the file does not say enough."""
    symbols = {one.kernel_id: one.formatted_kernel_name for one in tool.kernel_symbols}
    kernel = records.whole(_KERNEL)
    name = _named([kernel], lambda number: symbols.get(number) or "unnamed")
    device, queue = _devices(tool, records.whole(_AGENT)), records.whole(_QUEUE, 0)
    stream = records.whole("stream_id.handle", -1)
    stream = np.where(stream < 0, queue, stream)
    grid, block = ([records.whole(axis, 1) for axis in _SIZES[part]] for part in ("grid", "block"))
    # blocks of a grid, whose threads the file counts
    grid = [-(-size // np.maximum(of, 1)) for size, of in zip(grid, block, strict=True)]
    nameless = _numbered(kernel, lambda number: not symbols.get(number))
    unknown["kernels ran on an agent that is no GPU of the file"] += int((device < 0).sum())
    unknown["kernels have no name in the file"] += int(nameless.sum())
    start = records.whole("start_timestamp")
    return ForeignEvents(
        category=_same("kernel", records.height), name=name, pid=device, tid=stream, start=start,
        duration=records.whole("end_timestamp") - start,
        args={
            "correlation": records.whole("correlation_id.internal", 0),
            "device": device, "stream": stream, "queue": queue,
            "thread": records.whole("thread_id", 0),
            "block": number_lists(block), "grid": number_lists(grid),
        },
    )  # fmt: skip
