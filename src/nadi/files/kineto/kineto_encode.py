"""Write a trace as a Kineto trace, in the layout of PyTorch's profiler."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_host, comm_type_of_kernel
from nadi.files.timeline import chrome_kernels as kernels
from nadi.files.timeline.chrome import NumberedTexts, slice_columns, titles, written_pieces
from nadi.files.timeline.timeline_values import Timeline, optional_texts
from nadi.files.timeline.trace_timeline import tracks_of
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import CODES, Attributes
from nadi.trace.categories import KINETO_CATEGORIES
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CATEGORIES
from nadi.trace.trace import Trace

_info_decoder = msgspec.json.Decoder(dict[str, Any])
_KINETO_CATEGORY = {own: name for name, own in KINETO_CATEGORIES.items()} | {"metadata": "cpu_op"}
# args made from columns, where none were recorded
_NUMBERS = {
    "External id": "external_id", "Record function id": "rf_id", "Sequence number": "sequence",
    "correlation": "correlation", "device": "device", "stream": "stream", "bytes": "bytes",
    "Src Rank": "src", "Dst Rank": "dst", "tag": "tag",
    "Is asynchronized op": "is_async", "flops": "flops",
}  # fmt: skip
_TOLD_BY_NAME = {"kernel": comm_type_of_kernel, "annotation": comm_type_of_host}
_MOST_ELEMENTS = 2**56  # that the reader takes for a size
_ROLES = {"cat": kernels.CATEGORY, "pid": kernels.PID, "tid": kernels.TID, "args": kernels.ARGS}
_OWN_KEYS = ("ph", "name", "ts", "dur")  # written from columns


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as PyTorch's profiler does: it reads back as the same nodes.

    Recorded values that were kept as attributes are written unchanged: the ``args`` and other
    keys of events, events that are not nodes, and top-level keys. Without recorded values, args
    come from the columns, with the bytes of a communication as elements of dtype Byte;
    ``distributedInfo`` comes from rank and groups; and processes and threads get names.

    - ``trace``: Any trace with times.
    - ``log``: Collects, when the first piece is written, what cannot be written.
    - Yields: Pieces of the file. O(bytes).
    """
    log.add(
        "chrome.untimed", "warning", int((trace.column("start") < 0).sum()),
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
    row = np.flatnonzero(trace.column("start") >= 0)
    base = _base_time(trace, keys, row)
    timeline = _timeline(trace, row, base, log)
    texts = NumberedTexts()
    columns = slice_columns(timeline, texts)
    spans, kept = _spans(attributes, row, trace.nodes.height, of_trace[is_event], texts)
    first_text, content = texts.table()
    events = kernels.EventColumns(
        order=_order(trace.column("event")[row], kept),
        first_text=first_text, texts=content, **columns, **spans,
    )  # fmt: skip
    yield _head(trace, keys, base)
    yield from written_pieces(events)
    if row.size and not keys and not kept.size:
        yield b",\n" + b",\n".join(titles(timeline))
    yield b"\n]}\n"


def _base_time(trace: Trace, keys: dict[str, bytes], row: Ints) -> int:
    """Return the base time of the file: the recorded one, else the start in whole seconds."""
    if keys or _is_recorded(trace)[row].any():
        recorded = keys.get("baseTimeNanoseconds", b"0")
        # as it was read; a host file may hold any number under this name
        base = int(recorded) if recorded.isdigit() and len(recorded) < 20 else 0
        return base if base < 2**63 else 0
    start = trace.column("start")[row]
    return int(start.min(initial=2**63 - 1)) // 10**9 * 10**9 if start.size else 0


def _is_recorded(trace: Trace) -> Bools:
    """Return which nodes were events of a Kineto trace, and have what it says of them."""
    return (trace.column("event") >= 0) & (len(trace.attributes) > 0)


def _timeline(trace: Trace, row: Ints, base: int, log: IssueLog) -> Timeline:
    """Return the nodes that have a time as slices with Kineto's categories and args.

    ``row`` has their rows; times count from ``base``.
    """
    nodes = trace.nodes[row]
    processes, tracks, track = tracks_of(trace, nodes)
    # of recorded work pid and tid say the same
    on_device = ~nodes["is_cpu"] & pl.Series(~_is_recorded(trace)[row])
    notes = {title: nodes[column] for title, column in _NUMBERS.items()}
    for title in ("device", "stream"):
        notes[title] = notes[title].set(~on_device, -1)
    category = pl.Series([_KINETO_CATEGORY[name] for name in CATEGORIES], dtype=pl.Categorical)
    return Timeline(
        title="",
        processes=processes,
        tracks=tracks,
        slices=nodes.select(
            pl.lit(track).alias("track"), "name",
            category=category.gather(nodes["category"].to_physical()),
            start=pl.col("start") - base,
            end=pl.col("start") - base + pl.col("duration"),
        ),
        notes={**notes, **_collectives(trace, row, log)},
        tail=row[:0],
        head=row[:0],
    )  # fmt: skip


def _collectives(trace: Trace, row: Ints, log: IssueLog) -> dict[str, pl.Series]:
    """Return the args that describe communication."""
    nodes = trace.nodes[row]
    size = trace.column("comm_bytes")
    has_args = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last: the trace itself
    has_args[trace.attributes.node[trace.attributes.rows_named("args")]] = True
    found = has_args[:-1] & (size >= 0) & (trace.deps.height > 0)
    log.add(
        "chrome.recorded-args", "info", int(found.sum()),
        "communications keep their recorded args; the bytes and groups that linking found are not "
        "added",
    )  # fmt: skip
    log.add(
        "chrome.comm-bytes", "warning", int((size >= _MOST_ELEMENTS).sum()),
        "communications of 2^56 bytes or more are written without their size",
    )  # fmt: skip
    size = np.where(size < _MOST_ELEMENTS, size, -1)[row]
    return {
        "Collective name": nodes["comm_type"]
        .cast(pl.String)
        .set(pl.Series(~_is_stated(nodes)), None),
        "In msg nelems": pl.Series(size),
        "dtype": optional_texts(pl.Series(["Byte"]), np.where(size >= 0, 0, -1)),
        "Process Group Name": optional_texts(trace.groups["name"], nodes["group"].to_numpy()),
    }


def _is_stated(nodes: pl.DataFrame) -> pl.Series:
    """Return where the name does not tell the type of communication; bool, shape (nodes,)."""
    stated = ~nodes["comm_type"].is_in(["none", "other"]).to_numpy()
    rows = np.flatnonzero(stated)
    candidates = nodes.select("name", "category", "comm_type")[rows]
    stated[rows] = [
        comm_type != _TOLD_BY_NAME.get(category, lambda _: "none")(name)
        for name, category, comm_type in candidates.iter_rows()
    ]
    return pl.Series(stated)


def _spans(
    attributes: Attributes, slices: Ints, num_nodes: int, kept: Ints, texts: NumberedTexts
) -> tuple[dict[str, Any], Ints]:
    """Return the recorded values of slices, and the spans that are whole events.

    ``slices`` has the node of each slice, of ``num_nodes``.
    """
    position = np.full(num_nodes + 1, -1, dtype=np.int64)  # the last: the trace itself
    position[slices] = np.arange(slices.size)
    position = position[attributes.node]
    names = attributes.names
    role = np.array([_ROLES.get(name, kernels.OTHER) for name in names], dtype=np.uint8)
    is_key = np.array([name not in _OWN_KEYS for name in names], dtype=np.bool_)
    first_key = texts.add(f",{msgspec.json.encode(name).decode()}:" for name in names)
    of_slices = np.flatnonzero(
        (attributes.type == CODES["json"]) & (position >= 0) & is_key[attributes.name]
    )
    count = np.bincount(position[of_slices], minlength=slices.size)
    row = np.concatenate([of_slices, kept])
    return {
        "first_span": np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        "role": role[attributes.name[row]],
        "key": first_key + attributes.name[row].astype(np.int64),
        "at": attributes.value[row],
        "length": attributes.length[row].astype(np.int64),
        "recorded": attributes.bytes(),
    }, np.arange(of_slices.size, row.size)


def _order(event: Ints, kept: Ints) -> Ints:
    """Order slices and other events as in the recorded file."""
    total = event.size + kept.size
    is_free = np.ones(total, dtype=np.bool_)
    is_free[event[(event >= 0) & (event < total)]] = False
    place = np.concatenate([event, np.flatnonzero(is_free)[: kept.size]])
    return np.concatenate([np.arange(event.size), -1 - kept])[np.argsort(place, kind="stable")]


def _head(trace: Trace, keys: dict[str, bytes], base: int) -> bytes:
    """Write the top-level keys, the recorded ones unchanged."""
    if not keys:
        keys = {"schemaVersion": b"1", "displayTimeUnit": b'"ms"'}
        keys["baseTimeNanoseconds"] = str(base).encode()
    distributed = _distributed(trace, keys.get("distributedInfo"))
    if distributed is not None:
        keys = {**keys, "distributedInfo": distributed}
    members = [msgspec.json.encode(key) + b":" + value for key, value in keys.items()]
    return b"{\n" + b",\n".join([*members, b'"traceEvents":[\n'])


def _distributed(trace: Trace, recorded: bytes | None) -> bytes | None:
    """Return rank, world size and groups; as recorded, if that states the same."""
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
