"""Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open: writing.

A trace is given in the dialect of PyTorch's profiler, Kineto, so that whatever reads
Kineto's files reads these. Timelines of results are written by :mod:`chrome_timeline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.formats.communication_names import comm_type_of_host, comm_type_of_kernel
from nadi.formats.timeline import chrome_kernels as kernels
from nadi.model.arrays import Bools, Bytes, Ints
from nadi.model.attributes import CODES, Attributes
from nadi.model.issues import IssueLog
from nadi.model.schema import CATEGORIES, COMM_TYPES
from nadi.model.trace import Trace

__all__ = ["encode"]


_info_decoder = msgspec.json.Decoder(dict[str, Any])
_BYTES_AT_ONCE = 1 << 23

_KINETO_CATEGORY = {
    "metadata": "cpu_op",
    "annotation": "user_annotation",
    "python": "python_function",
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "driver": "cuda_driver",
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "sync": "cuda_sync",
    "device_annotation": "gpu_user_annotation",
}
# what stands before the columns that every event has
_PREFIXES = ('{"ph":"X","cat":', ',"name":', ',"pid":', ',"tid":', ',"ts":', ',"dur":')
_KINDS = (
    kernels.TEXT, kernels.TEXT, kernels.NUMBER, kernels.NUMBER,
    kernels.NANOSECONDS, kernels.NANOSECONDS,
)  # fmt: skip
# args made from columns, where none were recorded
_NUMBERS = {
    "External id": "external_id", "Record function id": "rf_id", "Sequence number": "sequence",
    "correlation": "correlation", "device": "device", "stream": "stream", "bytes": "bytes",
    "Src Rank": "src", "Dst Rank": "dst", "tag": "tag",
    "Is asynchronized op": "is_async", "flops": "flops",
}  # fmt: skip
_TOLD_BY_NAME = {"kernel": comm_type_of_kernel, "annotation": comm_type_of_host}
_COLLECTIVE = {
    "Collective name": kernels.TEXT, "In msg nelems": kernels.NUMBER, "dtype": kernels.TEXT,
    "Process Group Name": kernels.TEXT,
}  # fmt: skip
_MOST_ELEMENTS = 2**56  # that the reader takes for a size
_ROLES = {"cat": kernels.CATEGORY, "pid": kernels.PID, "tid": kernels.TID, "args": kernels.ARGS}
_OWN_KEYS = ("ph", "name", "ts", "dur")  # written from columns
_DEVICES_LAST = 5_000_000  # as Kineto orders processes


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as PyTorch's profiler writes it: reading it gives the same nodes.

    What was recorded and kept as attributes is written as it stood: the ``args`` of
    events and their other keys, events that are no nodes, and top-level keys. Where it
    was not, args come from the columns, bytes of a communication as so many elements of
    dtype Byte; ``distributedInfo`` comes from rank and groups; and processes and threads
    are named.

    Parameters
    ----------
    trace
        Any trace with times.
    log
        Told, once the first piece is written, what could not be written.

    Yields
    ------
    bytes
        Pieces of the file. O(bytes).
    """
    timed = np.flatnonzero(trace.column("start") >= 0)
    log.add(
        "chrome.untimed", "warning", trace.nodes.height - timed.size,
        "nodes without a time cannot be written as events",
        "link the host trace to its device trace first",
    )  # fmt: skip
    attributes = trace.attributes
    of_trace = np.array(attributes.rows_of(-1), dtype=np.int64)
    of_trace = of_trace[attributes.type[of_trace] == CODES["json"]]
    is_event = np.isin(of_trace, attributes.rows_named("event"))
    keys = {
        attributes.names[attributes.name[row]]: attributes.span(row)
        for row in of_trace[~is_event].tolist()
    }
    base = _base_time(trace, keys, timed)
    texts = _Texts()
    columns = _columns(trace, base, texts, log)
    spans, kept = _spans(attributes, trace.nodes.height, of_trace[is_event], texts)
    order = _order(trace.column("event")[timed], timed, kept)
    first_text, content = texts.table()
    events = kernels.Events(
        order=order, first_text=first_text, texts=content, **columns, **spans
    )  # fmt: skip
    yield _head(trace, keys, base)
    yield from _pieces(events)
    if timed.size and not keys and not kept.size:
        yield b",\n" + ",\n".join(_titles(trace, timed)).encode()
    yield b"\n]}\n"


class _Texts:
    """Texts, each with its number."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []

    def add(self, texts: Iterable[str]) -> int:
        """Add texts; gives the number of the first."""
        first = len(self._texts)
        self._texts += [text.encode() for text in texts]
        return first

    def add_json(self, values: Iterable[str], end: str = "") -> int:
        """Add texts as JSON strings."""
        return self.add(msgspec.json.encode(value).decode() + end for value in values)

    def table(self) -> tuple[Ints, Bytes]:
        """Give where each text begins, and after the last where it ends; and all their bytes."""
        first = np.cumsum([0, *map(len, self._texts)], dtype=np.int64)
        return first, np.frombuffer(b"".join(self._texts), dtype=np.uint8).copy()


def _base_time(trace: Trace, keys: dict[str, bytes], timed: Ints) -> int:
    """Give the time that the file counts from: the recorded one, else the second of the start."""
    if keys:
        return int(keys.get("baseTimeNanoseconds", b"0"))
    start = trace.column("start")[timed]
    return int(start.min(initial=2**63 - 1)) // 10**9 * 10**9 if start.size else 0


def _columns(trace: Trace, base: int, texts: _Texts, log: IssueLog) -> dict[str, Any]:
    """Give the columns that events are written from, and what stands before each."""
    nodes = trace.nodes
    on_device = ~nodes["is_cpu"].to_numpy()
    unique = nodes["name"].unique()
    codes = unique.to_physical().to_numpy()
    name = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    name[codes] = texts.add_json(unique.cast(pl.String)) + np.arange(codes.size)
    first_category = texts.add_json(_KINETO_CATEGORY[category] for category in CATEGORIES)
    columns = [
        nodes["category"].to_physical().to_numpy() + np.int64(first_category),
        name[nodes["name"].to_physical().to_numpy()],
        np.where(on_device, trace.column("device"), trace.process),
        np.where(on_device, trace.column("stream"), trace.column("thread")),
        trace.column("start") - base,
        trace.column("duration"),
    ]
    for column in _NUMBERS.values():
        values = trace.column(column)
        is_of_device = column in ("device", "stream")
        columns.append(np.where(on_device, values, -1) if is_of_device else values)
    columns += _collectives(trace, texts, log)
    of_numbers, of_args = [kernels.NUMBER] * len(_NUMBERS), _COLLECTIVE.values()
    first_prefix = texts.add(_PREFIXES)
    texts.add_json((*_NUMBERS, *_COLLECTIVE), ":")
    return {
        "values": np.stack(columns),
        "kind": np.array([*_KINDS, *of_numbers, *of_args], dtype=np.uint8),
        "prefix": first_prefix + np.arange(len(columns)),
        "args": texts.add([',"args":']),
    }


def _collectives(trace: Trace, texts: _Texts, log: IssueLog) -> list[Ints]:
    """Give the args that describe communication, in the order of ``_COLLECTIVE``."""
    comm_type = trace.nodes["comm_type"].to_physical().to_numpy().astype(np.int64)
    size, group = trace.column("comm_bytes"), trace.column("group")
    fits = size < _MOST_ELEMENTS
    has_args = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last: the trace itself
    has_args[trace.attributes.node[trace.attributes.rows_named("args")]] = True
    found = has_args[:-1] & (size >= 0) & (trace.deps.height > 0)
    log.add(
        "chrome.recorded-args", "info", int(found.sum()),
        "communications keep the args that were recorded; what linking found of their bytes and "
        "groups is not added",
    )  # fmt: skip
    log.add(
        "chrome.comm-bytes", "warning", int((~fits).sum()),
        "sizes of communication of 2^56 bytes or more are left out of the args",
    )  # fmt: skip
    first_type = texts.add_json(COMM_TYPES)
    byte = texts.add_json(["Byte"])
    first_group = texts.add_json(trace.groups["name"])
    return [
        np.where(_is_stated(trace.nodes), first_type + comm_type, -1),
        np.where(fits, size, -1),
        np.where(fits & (size >= 0), byte, -1),
        np.where(group >= 0, first_group + group, -1),
    ]


def _is_stated(nodes: pl.DataFrame) -> Bools:
    """Tell where the name does not tell the type of communication; bool, shape (nodes,)."""
    stated = ~nodes["comm_type"].is_in(["none", "other"]).to_numpy()
    rows = np.flatnonzero(stated)
    candidates = nodes.select("name", "category", "comm_type")[rows]
    stated[rows] = [
        comm_type != _TOLD_BY_NAME.get(category, lambda _: "none")(name)
        for name, category, comm_type in candidates.iter_rows()
    ]
    return stated


def _spans(
    attributes: Attributes, num_nodes: int, kept: Ints, texts: _Texts
) -> tuple[dict[str, Any], Ints]:
    """Give what was recorded of nodes, and the spans that are events by themselves."""
    names = attributes.names
    role = np.array([_ROLES.get(name, kernels.OTHER) for name in names], dtype=np.uint8)
    is_key = np.array([name not in _OWN_KEYS for name in names], dtype=np.bool_)
    first_key = texts.add(f",{msgspec.json.encode(name).decode()}:" for name in names)
    of_nodes = np.flatnonzero(
        (attributes.type == CODES["json"]) & (attributes.node >= 0) & is_key[attributes.name]
    )
    count = np.bincount(attributes.node[of_nodes], minlength=num_nodes)
    row = np.concatenate([of_nodes, kept])
    return {
        "first_span": np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        "role": role[attributes.name[row]],
        "key": first_key + attributes.name[row].astype(np.int64),
        "at": attributes.value[row],
        "length": attributes.length[row].astype(np.int64),
        "recorded": attributes.bytes(),
    }, np.arange(of_nodes.size, row.size)


def _order(event: Ints, row: Ints, kept: Ints) -> Ints:
    """Put nodes where they stood in the file, and what is kept of other events around them."""
    total = row.size + kept.size
    is_free = np.ones(total, dtype=np.bool_)
    is_free[event[(event >= 0) & (event < total)]] = False
    place = np.concatenate([event, np.flatnonzero(is_free)[: kept.size]])
    return np.concatenate([row, -1 - kept])[np.argsort(place, kind="stable")]


def _pieces(events: kernels.Events) -> Iterator[bytes]:
    """Write the events, so many at a time that the pieces stay small."""
    size = np.concatenate([[0], np.cumsum(_largest_sizes(events)[events.order])])
    out = np.empty(0, dtype=np.uint8)
    low = 0
    while low < events.order.size:
        high = int(np.searchsorted(size, size[low] + _BYTES_AT_ONCE, side="right")) - 1
        high = max(high, low + 1)
        if size[high] - size[low] > out.size:
            out = np.empty(int(size[high] - size[low]), dtype=np.uint8)
        yield out[: kernels.write_events(events, low, high, out)].tobytes()
        low = high


def _largest_sizes(events: kernels.Events) -> Ints:
    """Bound the bytes of every row and, after the rows and from the end, of every span."""
    text = np.diff(events.first_text)
    spans = np.concatenate([[0], np.cumsum(events.length + text[events.key])])
    of_rows = kernels.BYTES_PER_EVENT + np.diff(spans[events.first_span])
    of_rows += int(text[events.prefix].sum() + text[events.args])
    for kind, values in zip(events.kind, events.values, strict=True):
        of_texts = text[np.maximum(values, 0)] if kind == kernels.TEXT else None
        of_rows += kernels.BYTES_PER_NUMBER if of_texts is None else of_texts
    return np.concatenate([of_rows, kernels.BYTES_PER_EVENT + events.length[::-1]])


def _head(trace: Trace, keys: dict[str, bytes], base: int) -> bytes:
    """Write the top-level keys, the recorded ones as they stood."""
    if not keys:
        keys = {"schemaVersion": b"1", "displayTimeUnit": b'"ms"'}
        keys["baseTimeNanoseconds"] = str(base).encode()
    distributed = _distributed(trace, keys.get("distributedInfo"))
    if distributed is not None:
        keys = {**keys, "distributedInfo": distributed}
    members = [msgspec.json.encode(key) + b":" + value for key, value in keys.items()]
    return b"{\n" + b",\n".join([*members, b'"traceEvents":[\n'])


def _distributed(trace: Trace, recorded: bytes | None) -> bytes | None:
    """Give rank, world size and groups; as recorded, if that says the same."""
    try:
        info = _info_decoder.decode(recorded or b"{}")
        groups = msgspec.convert(info.get("pg_config", []), list[dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError):  # it is not from a Kineto trace
        info, groups = {}, []
    known = {str(group.get("pg_name", "")) for group in groups}
    missing = [
        {
            "pg_name": name, "pg_desc": description, "backend_config": backend,
            "pg_size": len(ranks), "ranks": ranks,
        }
        for name, description, ranks, backend in trace.groups.iter_rows()
        if name not in known
    ]  # fmt: skip
    sizes = {"rank": trace.rank, "world_size": trace.world_size}
    if not missing and all(info.get(key, -1) == value for key, value in sizes.items()):
        return recorded
    groups = [*groups, *missing]
    return msgspec.json.encode({**info, **sizes, "pg_count": len(groups), "pg_config": groups})


def _titles(trace: Trace, timed: Ints) -> list[str]:
    """Name processes, threads and streams."""
    columns = ["is_cpu", "device", "stream", "thread"]
    places = trace.nodes.select(columns)[timed].unique()
    owner = f"rank {trace.rank}" if trace.rank >= 0 else "python"
    titles: dict[tuple[str, int, int], dict[str, Any]] = {}
    for is_cpu, device, stream, thread in places.sort(columns).iter_rows():
        pid, tid = (trace.process, thread) if is_cpu else (device, stream)
        titles["process_name", pid, 0] = {"name": owner}
        titles["process_labels", pid, 0] = {"labels": "CPU" if is_cpu else f"GPU {device}"}
        order = pid if is_cpu else _DEVICES_LAST + device
        titles["process_sort_index", pid, 0] = {"sort_index": order}
        kind = "thread" if is_cpu else "stream"
        title = f"{kind} {tid}" if tid >= 0 else f"without a {kind}"
        titles["thread_name", pid, tid] = {"name": title}
    return [
        msgspec.json.encode(
            {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
        ).decode()
        for (name, pid, tid), args in titles.items()
    ]  # fmt: skip
