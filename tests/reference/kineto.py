"""Kineto traces, by msgspec and plain Python: slow, and without attributes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.formats.communication_names import (
    comm_kind,
    comm_type_of_host,
    comm_type_of_kernel,
    comm_type_of_text,
    is_told_by_call,
)
from nadi.formats.files import RawFile
from nadi.model.dtypes import ITEMSIZE
from nadi.model.issues import IssueLog
from nadi.model.provenance import Provenance
from nadi.model.schema import CATEGORIES, DEPS, DEVICE_WORK, GROUPS, NODES
from nadi.model.trace import Trace
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
}
_OF_THE_PROFILER = ("Trace", "overhead")  # what it spent itself; no work of the program
_REDUNDANT = ("ac2g",)  # arrows from launch to work: the correlation ids say the same
_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_CATEGORY_NAMES = np.array(CATEGORIES, dtype=object)
_DEVICE_CODES = [_CODE[c] for c in (*DEVICE_WORK, "sync", "device_annotation")]
_MAX_TID = 2**62
_DECIMAL = re.compile(r"-?\d{1,16}(\.\d+)?")
_INTEGER_ARGS = ("rf_id", "external_id", "correlation", "sequence", "bytes")
_END_OF_TIME = 2**63 - 1
_NO_STREAM = 2**32 - 1  # an unsigned -1 of older CUPTI versions
_MOST_RANKS = 2**22

_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=_MOST_RANKS)]
_Base = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Count = Annotated[int, msgspec.Meta(ge=-1, lt=2**56)]  # of elements: their bytes fit as well


class _Args(msgspec.Struct, gc=False):
    external_id: int = msgspec.field(default=-1, name="External id")
    rf_id: int = msgspec.field(default=-1, name="Record function id")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    correlation: int = -1
    device: int = -1
    stream: int = -1
    bytes: int = -1
    in_nelems: _Count = msgspec.field(default=-1, name="In msg nelems")
    dtype: str = ""
    collective: str = msgspec.field(default="", name="Collective name")
    group: str = msgspec.field(default="", name="Process Group Name")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    dur: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    args: _Args | None = None


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


class _File(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815  the format's own name
    baseTimeNanoseconds: _Base = 0  # noqa: N815
    distributedInfo: _Distributed | None = None  # noqa: N815


_decoder = msgspec.json.Decoder(_File)
_no_args = _Args()


def decode(raw: RawFile) -> Trace:
    """Read a Kineto trace.

    Returns
    -------
    Trace
        Nodes with their times, exact to the nanosecond, in order of start; no
        dependencies, no parents. O(events log events).

    Raises
    ------
    FormatError
        If the JSON is broken, or an event has no time: with its JSON path.
    """
    file = _decoder.decode(raw.content.tobytes())
    log = IssueLog()
    distributed = file.distributedInfo or _Distributed()
    groups = _groups_table(distributed)
    rows = _importable(file.traceEvents, log)
    events = [file.traceEvents[row] for row in rows]
    columns = _columns(raw.name, file.baseTimeNanoseconds, events, rows, groups)
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


def _importable(events: Sequence[_Event], log: IssueLog) -> list[int]:
    """Choose the complete events of a known category; count the others."""
    rows = []
    unknown: Counter[str] = Counter()
    arrows = incomplete = own = instants = 0
    for row, event in enumerate(events):
        if event.ph == "X":
            if event.cat in _CATEGORY:
                rows.append(row)
            elif event.cat in _OF_THE_PROFILER:
                own += 1
            else:
                unknown[event.cat] += 1
        elif event.cat in _CATEGORY:
            incomplete += 1
        elif event.cat == "fwdbwd":
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
    return rows


def _columns(
    path: str, base: int, events: list[_Event], rows: list[int], groups: pl.DataFrame
) -> dict[str, Any]:
    args = [event.args or _no_args for event in events]
    codes = np.array([_CODE[_CATEGORY[event.cat]] for event in events], dtype=np.uint8)
    on_device = np.isin(codes, _DEVICE_CODES)
    stream = _integers(path, rows, args, "stream")
    stream[(stream == _NO_STREAM) | ~on_device] = -1
    start, duration = _intervals(path, base, events, rows)
    group_row = {name: row for row, name in enumerate(groups["name"])}
    names = pl.Series([event.name for event in events], dtype=pl.String)
    comm_types = _comm_types(names, codes, [a.collective for a in args])
    return {
        "id": 0,
        "name": names,
        "kind": comm_types.replace_strict({t: comm_kind(t) for t in comm_types.unique()}),
        "category": _CATEGORY_NAMES[codes].tolist(),
        "start": start,
        "duration": duration,
        "thread": _threads(events, on_device),
        "device": np.where(on_device, _integers(path, rows, args, "device"), -1),
        "stream": stream,
        "is_cpu": ~on_device,
        "event": rows,
        **{name: _integers(path, rows, args, name) for name in _INTEGER_ARGS},
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
    tids = [-1 if device else event.tid for event, device in zip(events, on_device, strict=True)]
    ids = {tid for tid in tids if isinstance(tid, int) and -1 <= tid < _MAX_TID}
    free = max(ids, default=0) + 1
    names = sorted(set(tids) - ids, key=str)
    number: dict[int | str, int] = {tid: tid for tid in ids}
    number.update({tid: free + k for k, tid in enumerate(names)})
    return [number[tid] for tid in tids]


def _intervals(
    path: str, base: int, events: list[_Event], rows: list[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read start and duration in ns, both 0 or more and their sum below 2^63."""
    start = _times(path, rows, "ts", [event.ts for event in events])
    duration = _times(path, rows, "dur", [event.dur for event in events])
    earliest, latest = -base, _END_OF_TIME - base
    for key, wrong, what in (
        ("ts", (start < earliest) | (start > latest), "lies outside of the years 1970 to 2262"),
        ("dur", duration < 0, "is negative"),
        ("dur", duration > _END_OF_TIME - np.maximum(start, 0) - max(base, 0), "is too long"),
    ):
        if wrong.any():
            raise _time_error(path, rows[int(np.argmax(wrong))], key, what)
    return start + base, duration


def _times(path: str, rows: list[int], key: str, numbers: list[Any]) -> npt.NDArray[np.int64]:
    """Read decimal microseconds as ns, naming the event of the first that is none."""
    for row, number in zip(rows, numbers, strict=True):
        if number is msgspec.UNSET:
            raise _time_error(path, row, key, "is missing")
    texts = [bytes(number).decode() for number in numbers]
    for row, text in zip(rows, texts, strict=True):
        if not _DECIMAL.fullmatch(text):
            raise _time_error(path, row, key, "is no time")
    return np.array([nanoseconds(text) for text in texts], dtype=np.int64)


def _integers(path: str, rows: list[int], args: list[_Args], name: str) -> npt.NDArray[np.int64]:
    values = [getattr(a, name) for a in args]
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        bad = next(i for i, value in enumerate(values) if not -(2**63) <= value < 2**63)
        raise FormatError(
            path,
            f"{name} {values[bad]} does not fit a 64-bit integer"
            f" - at $.traceEvents[{rows[bad]}].args",
            "record the trace again",
        ) from None


def _time_error(path: str, row: int, key: str, what: str) -> FormatError:
    return FormatError(
        path, f"{key} {what} - at $.traceEvents[{row}].{key}", "record the trace again"
    )


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
        e.pid for e in events if _CATEGORY[e.cat] == "operator" and isinstance(e.pid, int)
    )
    return int(counts.most_common(1)[0][0]) if counts else -1
