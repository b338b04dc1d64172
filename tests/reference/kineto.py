"""Kineto traces, by json and plain Python: slow, and without attributes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.files.communication_names import (
    comm_kind,
    comm_type_of_host,
    comm_type_of_kernel,
    comm_type_of_text,
    is_told_by_call,
)
from nadi.files.files import RawFile
from nadi.trace.issues import IssueLog
from nadi.trace.operations import ITEMSIZE
from nadi.trace.schema import CATEGORIES, DEPS, DEVICE_WORK, GROUPS, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.version import __version__
from tests.reference.digits import nanoseconds

__all__ = ["decode"]

_CATEGORY = {
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "python_function": "python",
    "hpu_op": "operator",
    "cuda_runtime": "runtime",  # of HIP too
    "mtia_runtime": "runtime",
    "xpu_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "cuda_driver": "driver",
    "xpu_driver": "driver",
    "privateuse1_driver": "driver",
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "device_annotation",
    "mtia_insight": "device_annotation",
    "glow_runtime": "runtime",
    "enqueue": "operator",
    "dequeue": "operator",
    "Operator": "operator",
    "Annotation": "annotation",
    "Runtime": "runtime",
    "Driver": "driver",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}
_OF_THE_PROFILER = ("Trace", "overhead")  # what it spent itself; no work of the program
_REDUNDANT = (
    "ac2g", "async", "async_gpu", "async_cpu", "HostToDevice", "async_npu", "async_task_queue",
)  # fmt: skip  # arrows from launch to work: the correlation ids say the same
_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_CATEGORY_NAMES = np.array(CATEGORIES, dtype=object)
_DEVICE_CODES = [_CODE[c] for c in (*DEVICE_WORK, "sync", "device_annotation")]
_MAX_TID = 2**62
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INTEGER_ARGS = ("rf_id", "external_id", "correlation", "sequence", "bytes")
_INT64 = range(-(2**63), 2**63)
_END_OF_TIME = 2**62
_NO_STREAM = 2**32 - 1  # an unsigned -1 of older CUPTI versions
_MOST_RANKS = 2**17

_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=_MOST_RANKS)]
_Base = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_TEXTS = ("ph", "cat", "name")
_IDS = ("pid", "tid")
_ARG_NUMBERS = {
    "External id": "external_id", "Record function id": "rf_id", "Sequence number": "sequence",
    "correlation": "correlation", "device": "device", "stream": "stream", "bytes": "bytes",
    "In msg nelems": "in_nelems", "Src Rank": "src", "Dst Rank": "dst",
}  # fmt: skip
_SAME_ARGS = {"external id": "External id", "connection_id": "correlation"}
_ARG_TEXTS = {"dtype": "dtype", "Collective name": "collective", "Process Group Name": "group"}
_ODD = (
    "event", "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", *_ARG_NUMBERS, *_ARG_TEXTS,
)  # fmt: skip


@dataclass
class _Args:
    external_id: int = -1
    rf_id: int = -1
    sequence: int = -1
    correlation: int = -1
    device: int = -1
    stream: int = -1
    bytes: int = -1
    in_nelems: int = -1
    src: int = -1
    dst: int = -1
    dtype: str = ""
    collective: str = ""
    group: str = ""


@dataclass
class _Event:
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | None = None
    dur: int | None = None
    args: _Args = field(default_factory=_Args)
    is_usable: bool = True


def _integer(value: Any) -> int | None:
    """Read a number, also as text; None for what is none."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        return None
    return value


def _event(found: Any, odd: Counter[str]) -> _Event:
    """Read an event, and count what of it cannot be used."""
    event = _Event()
    if not isinstance(found, dict):
        odd["event"] += 1
        return event
    for key in _TEXTS:
        if isinstance(value := found.get(key, ""), str):
            setattr(event, key, value)
        else:
            odd[key] += 1
            event.is_usable = False
    for key in _IDS:
        value = found.get(key, -1)
        number = _integer(value)
        setattr(event, key, value if number is None else number)
        odd[key] += isinstance(value, bool) or not isinstance(value, int | str)
    for key in ("ts", "dur"):
        text = str(found.get(key))
        if not isinstance(found.get(key), bool) and _DECIMAL.fullmatch(text):
            time = Decimal(text).adjusted() < 16
            setattr(event, key, nanoseconds(text) if time else None)
    args = found.get("args") or {}
    if not isinstance(args, dict):
        odd["args"] += 1
        return event
    odd["args"] += not isinstance(found.get("args", {}), dict | None)
    for key, value in args.items():
        key = _SAME_ARGS.get(key, key)
        if key in _ARG_NUMBERS:
            number = _integer(value)
            if number is None or (key == "In msg nelems" and not -1 <= number < 2**56):
                odd[key] += 1
            else:
                setattr(event.args, _ARG_NUMBERS[key], number)
        elif key in _ARG_TEXTS:
            if isinstance(value, str):
                setattr(event.args, _ARG_TEXTS[key], value)
            else:
                odd[key] += 1
    return event


class _Group(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    backend_config: str = ""
    ranks: list[_Rank] = []
    pg_size: _Size = 0


class _Distributed(msgspec.Struct):
    rank: _Rank = -1
    world_size: _Rank = -1
    pg_config: list[_Group] = []


def decode(raw: RawFile) -> Trace:
    """Read a Kineto trace.

    Returns
    -------
    Trace
        Nodes with their times, exact to the nanosecond, in order of start; no
        dependencies, no parents. O(events log events).

    Raises
    ------
    ValueError
        If the JSON is broken.
    """
    file = json.loads(raw.content.tobytes(), parse_float=Decimal)
    log = IssueLog()
    base = file.get("baseTimeNanoseconds", 0)
    if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base < _END_OF_TIME:
        base = 0
        log.add("kineto.odd-field", "warning", 1, "base time", "")
    try:
        plain = json.loads(raw.content.tobytes()).get("distributedInfo")
        distributed = msgspec.convert(plain, _Distributed | None) or _Distributed()
    except msgspec.ValidationError:
        distributed = _Distributed()
        log.add("kineto.odd-field", "warning", 1, "distributed information", "")
    groups = _groups_table(distributed)
    odd: Counter[str] = Counter()
    found = [_event(one, odd) for one in file["traceEvents"]]
    rows = _importable(found, base, odd, log)
    events = [found[row] for row in rows]
    columns = _columns(base, events, rows, groups)
    nodes = NODES.build(len(events), columns).sort(
        "start", -pl.col("duration"), pl.col("category").to_physical(), "event"
    )
    nodes = nodes.with_columns(id=pl.int_range(nodes.height, dtype=pl.Int64))
    source = raw.source("Kineto")
    return Trace(
        nodes=nodes,
        deps=DEPS.empty(),
        groups=groups,
        issues=log.table(),
        provenance=Provenance(__version__, (source,)),
        rank=distributed.rank,
        world_size=distributed.world_size,
        process=_process(events),
    )


def _importable(events: Sequence[_Event], base: int, odd: Counter[str], log: IssueLog) -> list[int]:
    """Choose the complete events of a known category; count the others."""
    rows = []
    unknown: Counter[str] = Counter()
    arrows = incomplete = own = instants = 0
    for row, event in enumerate(events):
        if event.ph == "X":
            if event.cat in _CATEGORY:
                if _has_times(event, base, odd) and event.is_usable:
                    rows.append(row)
            elif event.cat in _OF_THE_PROFILER:
                own += 1
            else:
                unknown[event.cat] += 1
        elif event.cat in _CATEGORY:
            incomplete += 1
        elif event.cat in ("fwdbwd", "forward_backward"):
            arrows += event.ph == "s"
        elif event.cat and event.cat not in _REDUNDANT:
            instants += 1
    for category, count in unknown.items():
        log.add(
            "kineto.category", "warning", count, f"events have the unknown category {category!r}",
            "they are left out of the analysis",
        )  # fmt: skip
    log.add(
        "kineto.profiler", "info", own, "spans of the profiler's own work are not kept"
    )  # fmt: skip
    log.add(
        "kineto.instant", "info", instants,
        "instants and counters, such as those of memory, are not kept",
    )  # fmt: skip
    log.add(
        "kineto.incomplete", "warning", incomplete,
        "events are not complete events (ph X)", "they are left out of the analysis",
    )  # fmt: skip
    log.add(
        "kineto.forward-backward", "info", arrows,
        "arrows from forward to backward operations are not kept",
    )  # fmt: skip
    for what in _ODD:
        log.add("kineto.odd-field", "warning", odd[what], f"values cannot be used: {what}", "")
    return rows


def _has_times(event: _Event, base: int, odd: Counter[str]) -> bool:
    """Tell whether an event can be a node by its times; count the first that is odd."""
    if event.ts is None or not -base <= event.ts <= _END_OF_TIME:
        odd["ts"] += 1
    elif event.dur is None or event.dur < 0 or event.ts + event.dur > _END_OF_TIME:
        odd["dur"] += 1
    else:
        return True
    return False


def _columns(
    base: int, events: list[_Event], rows: list[int], groups: pl.DataFrame
) -> dict[str, Any]:
    args = [event.args for event in events]
    codes = np.array([_CODE[_CATEGORY[event.cat]] for event in events], dtype=np.uint8)
    on_device = np.isin(codes, _DEVICE_CODES)
    device, stream = _integers(args, "device"), _integers(args, "stream")
    for i, event in enumerate(events):
        if device[i] == stream[i] == -1 and _CATEGORY[event.cat] in DEVICE_WORK:
            device[i], stream[i] = (
                max(one, -1) if isinstance(one, int) and one in _INT64 else -1
                for one in (event.pid, event.tid)
            )
    stream[(stream == _NO_STREAM) | ~on_device] = -1
    group_row = {name: row for row, name in enumerate(groups["name"])}
    names = pl.Series([event.name for event in events], dtype=pl.String)
    comm_types = _comm_types(names, codes, [a.collective for a in args])
    return {
        "id": 0,
        "name": names,
        "kind": comm_types.replace_strict({t: comm_kind(t) for t in comm_types.unique()}),
        "category": _CATEGORY_NAMES[codes].tolist(),
        "start": [event.ts + base for event in events],
        "duration": [event.dur for event in events],
        "thread": _threads(events, on_device),
        "device": np.where(on_device, device, -1),
        "stream": stream,
        "is_cpu": ~on_device,
        "event": rows,
        **{name: _integers(args, name) for name in _INTEGER_ARGS},
        "comm_type": comm_types,
        "comm_bytes": [
            a.in_nelems * ITEMSIZE[a.dtype] if a.in_nelems >= 0 and a.dtype in ITEMSIZE else -1
            for a in args
        ],
        "group": [group_row.get(a.group, -1) if a.group else -1 for a in args],
    }


def _comm_types(
    names: pl.Series, codes: npt.NDArray[np.uint8], collectives: list[str]
) -> pl.Series:
    """Find the communication among the operations, one look per name."""
    unique = names.unique().to_list()
    of_kernel = names.replace_strict({n: comm_type_of_kernel(n) for n in unique}, default="none")
    of_gloo = names.replace_strict(
        {n: comm_type_of_host(n) if n.startswith("gloo:") else "none" for n in unique},
        default="none",
    )
    stated = pl.Series([comm_type_of_text(name) for name in collectives], dtype=pl.String)
    by_call = names.replace_strict({n: is_told_by_call(n) for n in unique}, default=False)
    columns = {
        "kernel": of_kernel, "gloo": of_gloo, "stated": stated, "code": codes, "by_call": by_call,
    }  # fmt: skip
    # gloo works on host threads under an annotation; other libraries' annotations only launch
    return (
        pl.DataFrame(columns)
        .select(
            pl.when(pl.col("code") == _CODE["kernel"])
            .then(
                pl.when(
                    (pl.col("kernel") != "none")
                    & (pl.col("stated") != "none")
                    & (
                        pl.col("by_call")
                        | pl.col("kernel").eq("other")
                        | pl.col("stated").eq("barrier")
                    )
                )
                .then("stated")
                .otherwise("kernel")
            )
            .when(pl.col("code") == _CODE["annotation"])
            .then("gloo")
            .otherwise(pl.lit("none"))
        )
        .to_series()
    )


def _threads(events: list[_Event], on_device: npt.NDArray[np.bool_]) -> list[int]:
    """Give the thread of host work; threads with names instead of ids get free ids."""
    tids = [
        -1 if device else event.tid if isinstance(event.tid, (int, str)) else str(event.tid)
        for event, device in zip(events, on_device, strict=True)
    ]
    ids = {tid for tid in tids if isinstance(tid, int) and -1 <= tid < _MAX_TID}
    free = max(ids, default=0) + 1
    names = sorted(set(tids) - ids, key=str)
    number: dict[int | str, int] = {tid: tid for tid in ids}
    number.update({tid: free + k for k, tid in enumerate(names)})
    return [number[tid] for tid in tids]


def _integers(args: list[_Args], name: str) -> npt.NDArray[np.int64]:
    return np.array([getattr(a, name) for a in args], dtype=np.int64)


def _groups_table(distributed: _Distributed) -> pl.DataFrame:
    groups = distributed.pg_config
    columns = {
        "name": [g.pg_name for g in groups],
        "description": [g.pg_desc for g in groups],
        # an empty list stands for all ranks
        "ranks": [
            sorted(g.ranks) or list(range(g.pg_size or min(distributed.world_size, _MOST_RANKS)))
            for g in groups
        ],
        "backend": [g.backend_config for g in groups],
    }
    return GROUPS.build(len(groups), columns).unique("name", keep="first", maintain_order=True)


def _process(events: list[_Event]) -> int:
    """Give the process that most host operators ran in."""
    counts = Counter(
        e.pid
        for e in events
        if _CATEGORY[e.cat] == "operator" and isinstance(e.pid, int) and e.pid in _INT64
    )
    return int(counts.most_common(1)[0][0]) if counts else -1
