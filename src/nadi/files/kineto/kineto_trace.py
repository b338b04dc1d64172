"""Read Kineto traces: the work on host threads and devices that PyTorch's profiler recorded.

Labels that torch 1.8 to 1.11 recorded as operators: they had no category of their own.
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.files.communication_names import (
    comm_kind,
    comm_type_of_host,
    comm_type_of_kernel,
    comm_type_of_text,
    is_told_by_call,
)
from nadi.files.files import RawFile
from nadi.files.json_file import (
    Span,
    Texts,
    decode_span,
    find_texts,
    json_error,
    skip_blanks,
    unescaped_text,
    walk_members,
)
from nadi.files.kineto.ascend import Marks, categories_by_name, numbered_launches, read_marks
from nadi.files.kineto.kineto_event_kernels import ARGS, CAT, EVENT, NOT_A_NUMBER, PID, TID
from nadi.files.kineto.kineto_events import Events, Limits, scan
from nadi.kernels.json_tokens import BAD_CHARACTER
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import CODES, Attributes, LazyAttributes
from nadi.trace.groups import Group, group_columns
from nadi.trace.issues import IssueLog
from nadi.trace.operations import ITEMSIZE
from nadi.trace.schema import (
    CATEGORIES,
    COMM_TYPES,
    DEPS,
    DEVICE_WORK,
    GROUPS,
    NODE_KINDS,
    NODES,
    ON_DEVICE,
)
from nadi.trace.trace import Provenance, StepLengths, Trace
from nadi.version import __version__

_OLD = '"Operator"'
_OPERATOR, _ANNOTATION = map(CATEGORIES.index, ("operator", "annotation"))
_LABEL = re.compile(
    r"ProfilerStep#\d+|Optimizer\.(step|zero_grad)#.*|enumerate\(DataLoader\)#.*|(gloo|nccl):.*"
)


def labels_of_old(raw: RawFile, events: Events, names: Texts, category: Ints) -> Ints:
    """Return the categories of nodes; what later versions record as an annotation is one.

    These are the marks of steps, optimizers and data loaders, and the ranges of communication.
    int64, shape (nodes,). O(nodes whose category is kept as text).
    """
    row, code, at, length = events.found.kept.T
    stated = (code == CAT) & (row >= 0)
    row = row[stated]
    if not row.size:
        return category
    words = find_texts(raw, at[stated], length[stated], unescaped_text)
    old = row[words.numbers(lambda word: word == _OLD) == 1]
    named = Texts(names.codes[old], names.unique)
    is_label = named.numbers(lambda name: _LABEL.fullmatch(name) is not None) == 1
    found = category.copy()
    found[old[is_label & (category[old] == _OPERATOR)]] = _ANNOTATION
    return found


MERGED = "kineto.merged-ranks"
"""The code of the issue that several processes have operators in a file."""

_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_COMM = {comm_type: code for code, comm_type in enumerate(COMM_TYPES)}
_KINDS = np.array([NODE_KINDS.index(comm_kind(comm_type)) for comm_type in COMM_TYPES])
_DEVICE_CODES = [_CODE[c] for c in ON_DEVICE]
_WORK_CODES = [_CODE[c] for c in DEVICE_WORK]
_MAX_TID = 2**62
_INTEGER_ARGS = ("rf_id", "external_id", "sequence", "bytes")
_NO_STREAM = 2**32 - 1  # an unsigned -1 of older CUPTI versions
_KEPT_NAMES = {ARGS: "args", PID: "pid", TID: "tid", EVENT: "event", CAT: "cat"}
_QUOTE = ord('"')
_WORTH_THREADS = 1 << 16  # nodes
_LATER = "of later steps"

_BARE_LIST = re.compile(rb'\s*\[\s*\{.*?"ph"\s*:\s*"[A-Za-z]"', re.DOTALL)
_COMMS_ID = re.compile(rb'"Comms Id"\s*:\s*"?(\d{1,20})(?!\d)')
_LOWER_63_BITS = 2**63 - 1
_ODD = {
    "event": "a form that no event has",
    "ts": "a time that is missing or cannot be read",
    "dur": "a duration that is missing, negative or cannot be read",
}
_ODD_VALUE = "a value of an unexpected type"
Members = list[tuple[str, Span]]

_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_Length = Annotated[int, msgspec.Meta(gt=0, lt=2**62)]
_Base = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Recorded(msgspec.Struct):
    """What :mod:`nadi.pytorch.collecting.hook.recorded_steps` writes."""

    host_trace: str = ""
    timed_ns: tuple[_Length, ...] = ()
    observed_ns: tuple[_Length, ...] = ()
    unrecorded_ns: tuple[_Length, ...] = ()
    ready_ns: tuple[_Base, ...] = ()
    unrecorded_ready_ns: tuple[_Base, ...] = ()

    def lengths(self) -> StepLengths:
        is_later = self.host_trace == _LATER
        return StepLengths(
            self.timed_ns, self.observed_ns, self.unrecorded_ns, is_later, self.ready_ns,
            self.unrecorded_ready_ns,
        )  # fmt: skip


class _Distributed(msgspec.Struct):
    rank: _Rank = -1
    world_size: _Rank = -1
    pg_config: list[Group] = []


class Header(NamedTuple):
    """What a file says beside its events."""

    base: int = 0  # of its times, in ns since 1970
    distributed: _Distributed = _Distributed()
    lengths: StepLengths | None = None


_base_decoder = msgspec.json.Decoder(_Base)
_recorded_decoder = msgspec.json.Decoder(_Recorded)
_distributed_decoder = msgspec.json.Decoder(_Distributed | None)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Values of the nodes in the order of the file; arrays of shape (nodes,)."""

    raw: RawFile
    events: Events
    names: Texts
    category: Ints
    correlation: Ints
    on_device: Bools
    thread: Ints
    device: Ints
    stream: Ints
    process: int


def decode(raw: RawFile) -> Trace:
    """Read a Kineto trace.

    - Returns: Nodes with their times, exact to the nanosecond, in order of start; no dependencies,
      no parents. Values without a column are kept as attributes, as are events that are not
      operations. O(bytes + events log events).
    - Raises FormatError if the JSON is broken, or has no list of events.
    """
    log = IssueLog()
    events, members = _scan(raw, Limits())
    header = _header(raw, members or [], log)
    events, marks = _scan_again(raw, events, header.base, is_list=members is None)
    return trace_of_events(raw, events, members or [], header, log, marks)


def trace_of_events(
    raw: RawFile, events: Events, members: Members, header: Header, log: IssueLog,
    marks: Marks | None = None,
) -> Trace:  # fmt: skip
    """Return the trace of events that were read.

    - ``raw``: The file, in whose content the texts are to which all the others refer.
    - ``members``: Of its outermost object, but for the events.
    - ``header``: What they say.
    - ``log``: What was met already; what is there is not added again.
    """
    groups = _groups_table(header.distributed)
    nodes = describe_nodes(raw, events, marks)
    order = nodes_in_order(events.column("start"), events.column("duration"), nodes.category)
    # what attributes need, without the columns
    ids, kept, keys = identity_rows(nodes), events.found.kept, events.found.keys
    _add_issues(raw, events, log)
    num_processes = _num_processes(raw, nodes)
    log.add(
        MERGED, "warning", num_processes if num_processes > 1 and not log.has(MERGED) else 0,
        "processes have operators in the file, as if ranks were merged into it",
        "nadi run reads them as ranks; other commands read one trace: give a file for each rank",
    )  # fmt: skip
    columns = _columns(nodes, header.base, order, groups)
    trace = Trace(
        nodes=NODES.build(order.size, columns),
        deps=DEPS.empty(),
        groups=groups,
        issues=log.table(),
        provenance=Provenance(__version__, (raw.source("Kineto"),)),
        rank=header.distributed.rank,
        world_size=header.distributed.world_size,
        process=nodes.process,
        step_lengths=header.lengths,
        given_attributes=LazyAttributes(
            lambda: attributes_of(raw, ids, kept, keys, members, order)
        ),
    )
    return trace.with_codes(columns).with_names(nodes.names.codes[order], nodes.names.unique)


def looks_like(head: bytes) -> bool:
    """Return whether JSON begins as a bare list of events, as Chrome's format allows."""
    return _BARE_LIST.match(head) is not None


def _scan(raw: RawFile, limits: Limits) -> tuple[Events, Members | None]:
    """Read the events, and the other members of the object; None if it is a bare list."""
    begin = skip_blanks(raw.content, 0)
    if raw.content[begin : begin + 1].tobytes() == b"[":
        events, end = scan(raw, begin, limits)
        if (end := skip_blanks(raw.content, end)) < raw.content.size:
            raise json_error(raw, BAD_CHARACTER, end)
        return events, None
    lists: list[Events] = []

    def read_events(at: int) -> int:
        events, end = scan(raw, at, limits)
        lists[:] = [events]
        return end

    members = walk_members(raw, {"traceEvents": read_events})
    if not lists:
        raise FormatError(
            raw.name, "object missing required field `traceEvents`", "record the trace again"
        )
    return lists[0], members


def _scan_again(
    raw: RawFile, events: Events, base: int, *, is_list: bool
) -> tuple[Events, Marks | None]:
    """Read the events again if what the whole file says tells more of them to be nodes, or less."""
    marks = read_marks(raw, events) if is_list else None
    earliest = int(events.column("start").min(initial=0))
    if marks is None and earliest >= -base:
        return events, None
    limits = Limits(earliest=-base) if marks is None else Limits(-base, processes=marks.processes)
    return _scan(raw, limits)[0], marks


def _header(raw: RawFile, members: Members, log: IssueLog) -> Header:
    """Read the keys of the outermost object that Nadi uses, besides the events."""
    base, distributed, lengths = 0, None, None
    for key, span in members:
        try:
            if key == "baseTimeNanoseconds":
                base = decode_span(raw, span, _base_decoder, f"$.{key}")
            elif key == "distributedInfo":
                distributed = decode_span(raw, span, _distributed_decoder, f"$.{key}")
            elif key == "nadi":
                lengths = decode_span(raw, span, _recorded_decoder, f"$.{key}").lengths()
        except FormatError as error:
            log.add("kineto.odd-field", "warning", 1, error.what, "it is kept, but not used")
    return Header(base, distributed or _Distributed(), lengths)


def _add_issues(raw: RawFile, events: Events, log: IssueLog) -> None:
    """Record the events that are not nodes, and values that cannot be used, as issues."""
    unknown = find_texts(raw, *events.found.unknown.T)
    counts = np.bincount(unknown.codes, minlength=len(unknown.unique))
    for category, count in zip(unknown.unique, counts.tolist(), strict=True):
        log.add(
            "kineto.category", "warning", count, f"events have the unknown category {category!r}",
            "they are kept, but left out of the analysis",
        )  # fmt: skip
    counted = events.counts
    log.add(
        "kineto.profiler", "info", counted["own"],
        "spans of the profiler itself are kept, but not analysed",
    )  # fmt: skip
    log.add(
        "kineto.instant", "info", counted["instants"],
        "instant and counter events, such as memory usage, are kept, but not analysed",
    )  # fmt: skip
    log.add(
        "kineto.incomplete", "warning", counted["incomplete"],
        "events are not complete events (ph X)", "they are kept, but left out of the analysis",
    )  # fmt: skip
    log.add(
        "kineto.forward-backward", "info", counted["arrows"],
        "arrows from forward to backward operations are kept; their sequence numbers are used",
    )  # fmt: skip
    for what, count in events.odd.items():
        log.add(
            "kineto.odd-field", "warning", count,
            f"events have {_ODD.get(what, _ODD_VALUE)}: {what}",
            "they are kept; what cannot be read of them is left out of the analysis",
        )  # fmt: skip


def describe_nodes(raw: RawFile, events: Events, marks: Marks | None) -> Nodes:
    """Return where each node ran."""
    category, names = events.column("category"), events.names(raw.content)
    correlation = events.column("correlation")
    if marks is not None:
        category = categories_by_name(category, names)
        correlation = numbered_launches(marks, category, events)
    else:
        category = labels_of_old(raw, events, names, category)
    on_device = np.isin(category, _DEVICE_CODES)
    device, stream = (np.where(on_device, events.column(k), -1) for k in ("device", "stream"))
    # some vendors state both only as pid and tid
    untold = np.flatnonzero((device == -1) & (stream == -1) & np.isin(category, _WORK_CODES))
    for values, key in ((device, "pid"), (stream, "tid")):
        values[untold] = np.maximum(events.column(key)[untold], -1)
    stream[stream == _NO_STREAM] = -1
    return Nodes(
        raw=raw,
        events=events,
        names=names,
        category=category,
        correlation=correlation,
        on_device=on_device,
        thread=_threads(raw, events, on_device),
        device=device,
        stream=stream,
        process=_process(events.column("pid")[category == _CODE["operator"]]),
    )


def _threads(raw: RawFile, events: Events, on_device: Bools) -> Ints:
    """Return the thread of host work; threads with names instead of ids get unused ids."""
    tid = np.where(on_device, -1, events.column("tid"))
    rows, names = named_threads(raw, events, on_device)
    if rows.size:
        number = unused_ids(np.delete(tid, rows), names.unique)
        tid[rows] = names.numbers(number.__getitem__)
    return tid


def named_threads(raw: RawFile, events: Events, on_device: Bools) -> tuple[Ints, Texts]:
    """Return the host work whose threads have names, or numbers that are no ids, and the names."""
    tid = events.column("tid")
    rows = np.flatnonzero(~on_device & ((tid < -1) | (tid >= _MAX_TID)))
    at, length = events.column("tid_at")[rows], events.column("tid_length")[rows]
    return rows, find_texts(raw, at, length, unescaped_text)


def unused_ids(ids: Ints, names: Iterable[str]) -> dict[str, int]:
    """Give threads with names ids that no others have."""
    free = int(ids.max(initial=-1 if ids.size else 0)) + 1
    return {name: free + k for k, name in enumerate(sorted(set(names), key=_plain))}


def _plain(name: str) -> str:
    """Return a name without the quotes that distinguish it from a number."""
    return name.strip('"')


def _process(pids: Ints) -> int:
    """Return the process of most host operators; of several the first."""
    known = pids[pids != NOT_A_NUMBER]
    if known.size == 0:
        return -1
    if (known == known[0]).all():
        return int(known[0])
    unique, first, counts = np.unique(known, return_index=True, return_counts=True)
    return int(unique[np.lexsort((first, -counts))[0]])


def _num_processes(raw: RawFile, nodes: Nodes) -> int:
    """Count the processes that have operators."""
    rows = np.flatnonzero(nodes.category == _CODE["operator"])
    pids = nodes.events.column("pid")[rows]
    if not rows.size or ((pids == pids[0]).all() and pids[0] != NOT_A_NUMBER):
        return min(rows.size, 1)
    texts = rows[pids == NOT_A_NUMBER]
    at, length = (nodes.events.column(f"pid_{part}")[texts] for part in ("at", "length"))
    known = len(find_texts(raw, at, length, unescaped_text).unique) if texts.size else 0
    return known + np.unique(pids[pids != NOT_A_NUMBER]).size


def nodes_in_order(start: Ints, duration: Ints, category: Ints) -> Ints:
    """Sort nodes by start, then longest first, category, and position in the file."""
    order = np.argsort(start, kind="stable")
    in_order = start[order]
    same = in_order[1:] == in_order[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if tied.size:  # few are: sort only these by all keys
        rows = order[tied]
        keys = rows, category[rows], -duration[rows], start[rows]
        order[tied] = rows[np.lexsort(keys)]
    return order


def _columns(nodes: Nodes, base: int, order: Ints, groups: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of the nodes in their final order."""
    events, names = nodes.events, nodes.names
    comm = _communication(nodes, groups)
    comm_type = _comm_types(names, nodes.category, comm.pop("stated", np.array(-1)))
    columns = _in_order(order, {
        "name": names.codes,
        "category": nodes.category,
        "start": events.column("start") + base,
        "duration": events.column("duration"),
        "thread": nodes.thread,
        "device": nodes.device,
        "stream": nodes.stream,
        "is_cpu": ~nodes.on_device,
        **{name: events.column(name) for name in ("event", *_INTEGER_ARGS)},
        "correlation": nodes.correlation,
        "comm_type": comm_type,
        **comm,
    })  # fmt: skip
    return {
        **columns,
        "id": np.arange(order.size),
        "name": Texts(columns["name"], names.unique).series(),
        "kind": _KINDS[columns["comm_type"]],
    }


def _in_order(order: Ints, columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return columns with their rows in another order."""
    if (order[1:] > order[:-1]).all():  # it is theirs
        return columns
    if order.size < _WORTH_THREADS:
        return {name: column[order] for name, column in columns.items()}
    with ThreadPoolExecutor(2) as executor:  # numpy holds no lock meanwhile
        taken = executor.map(lambda column: column[order], columns.values())
        return dict(zip(columns, taken, strict=True))


def _communication(nodes: Nodes, groups: pl.DataFrame) -> dict[str, Ints]:
    """Return the communication in the arguments of each node, in the order of the file.

    Nothing if no node has such arguments.
    """
    raw, events = nodes.raw, nodes.events
    rows = events.comm("row")
    if not rows.size:
        return {}
    names = ("comm_bytes", "group", "src", "dst", "stated", "comms_id")
    columns = {name: np.full(nodes.category.size, -1, dtype=np.int64) for name in names}
    elements = events.comm("in_nelems")
    item_size = _values(raw, events, "dtype", lambda text: ITEMSIZE.get(text, -1))
    known = (elements >= 0) & (item_size >= 0)
    columns["comm_bytes"][rows] = np.where(known, elements * item_size, -1)
    row_of = {name: row for row, name in enumerate(groups["name"])}
    columns["group"][rows] = _values(
        raw, events, "group", lambda text: row_of.get(text, -1) if text else -1
    )
    stated = _values(raw, events, "collective", lambda text: _COMM[comm_type_of_text(text)])
    columns["stated"][rows] = stated
    columns["src"][rows] = np.maximum(events.comm("src"), -1)
    columns["dst"][rows] = np.maximum(events.comm("dst"), -1)
    columns["comms_id"][rows] = _comms_ids(raw, events, rows)
    return columns


def _comms_ids(raw: RawFile, events: Events, rows: Ints) -> Ints:
    """Return the Comms Id in the arguments of nodes, which newer versions of PyTorch write; or -1.

    It is a hash of the process group and of the number of the communication in it.
    """
    node, code, at, length = events.found.kept.T
    wanted = np.zeros(events.column("start").size, dtype=np.bool_)
    wanted[rows] = True
    is_args = np.flatnonzero(code == ARGS)
    places = is_args[wanted[node[is_args]]]
    ids = np.full(wanted.size, -1, dtype=np.int64)
    for place in places.tolist():
        args = raw.content[at[place] : at[place] + length[place]].tobytes()
        if (found := _COMMS_ID.search(args)) is not None:
            ids[node[place]] = int(found[1]) & _LOWER_63_BITS
    return ids[rows]


def _values(raw: RawFile, events: Events, name: str, value_of: Callable[[str], int]) -> Ints:
    """Return the number of a text argument of each communicating node; -1 without one."""
    at = events.comm(f"{name}_at")
    values = np.full(at.size, -1, dtype=np.int64)
    rows = np.flatnonzero(at >= 0)
    texts = find_texts(raw, at[rows], events.comm(f"{name}_length")[rows])
    values[rows] = texts.numbers(value_of)
    return values


def _comm_types(names: Texts, category: Ints, stated: Ints) -> npt.NDArray[np.uint32]:
    """Find the communications among the operations, with one lookup per name."""
    of_kernel, of_gloo, by_call = _comm_of_names(names.unique)[:, names.codes]
    by_call = (by_call > 0) | (of_kernel == _COMM["other"]) | (stated == _COMM["barrier"])
    of_kernel = np.where((of_kernel > 0) & by_call & (stated > 0), stated, of_kernel)
    found = np.where(category == _CODE["annotation"], of_gloo, _COMM["none"])
    return np.where(category == _CODE["kernel"], of_kernel, found).astype(np.uint32)


@lru_cache(64)
def _comm_of_names(names: tuple[str, ...]) -> Ints:
    """Return what names tell of communication; int64, shape (3, names). Ranks have the same names.

    The codes of what a kernel does and of what gloo does, and whether only a kernel's call tells.
    """
    # gloo works on host threads under an annotation; other libraries' annotations only launch
    return np.array([
        [_COMM[comm_type_of_kernel(name)] for name in names],
        [_COMM[comm_type_of_host(name) if name.startswith("gloo:") else "none"] for name in names],
        [is_told_by_call(name) for name in names],
    ], dtype=np.int64)  # fmt: skip


def attributes_of(
    raw: RawFile, ids: Ints, kept: Ints, found_keys: Ints, members: list[tuple[str, Span]],
    order: Ints,
) -> Attributes:  # fmt: skip
    """Return values without a column: keys of the file and whole events, then those of nodes."""
    codes: dict[str, int] = {}
    top = [(codes.setdefault(key, len(codes)), s.at, s.end - s.at) for key, s in members]
    keys = find_texts(raw, *found_keys.T)
    row, code, at, length = kept.T
    # keys by name, known ones first; those of the file have the same name in the same column
    number = {kind: codes.setdefault(name, len(codes)) for kind, name in _KEPT_NAMES.items()}
    known = np.array([number[kind] for kind in sorted(number)], dtype=np.int64)
    others = np.array([codes.setdefault(key, len(codes)) for key in keys.unique], dtype=np.int64)
    name = np.where(code >= 0, known[np.maximum(code, 0)], 0)
    other = np.flatnonzero(code < 0)
    name[other] = others[keys.codes[-1 - code[other]]]
    ids = ids.copy()
    ids[:, 1] = known[ids[:, 1]]
    columns = [
        np.concatenate(parts)
        for parts in zip(
            np.array([(-1, *of_key) for of_key in top], dtype=np.int64).reshape(-1, 4).T,
            ids.T,
            (np.where(code == EVENT, -1, row), name, at, length),
            strict=True,
        )
    ]
    new_row = np.empty(order.size, dtype=np.int64)
    new_row[order] = np.arange(order.size)
    node, name, at, length = columns
    return Attributes(
        node=node.astype(np.int32),
        name=name.astype(np.int32),
        type=np.full(node.size, CODES["json"], dtype=np.uint8),
        value=at,
        length=length.astype(np.int32),
        names=tuple(codes),
        buffers=(raw.content,),
    ).moved(new_row)


def identity_rows(nodes: Nodes) -> Ints:
    """Return pid and tid of nodes whose columns do not hold them; shape (such, 4).

    The columns are those of the kernel's kept values: node, key, position and length.
    """
    events = nodes.events
    told_pid = np.where(nodes.on_device, nodes.device, nodes.process)
    told_tid = np.where(nodes.on_device, nodes.stream, nodes.thread)
    parts = []
    for code, key, told in ((PID, "pid", told_pid), (TID, "tid", told_tid)):
        at, length = events.column(f"{key}_at"), events.column(f"{key}_length")
        differs = (events.column(key) != told) | (at < 0)
        if events.has_quoted_ids:
            differs |= nodes.raw.content[np.maximum(at, 0)] == _QUOTE
        rows = np.flatnonzero(differs)
        # one that is absent stays so: its span is empty
        span = np.maximum(at[rows], 0), np.maximum(length[rows], 0)
        parts.append(np.stack([rows, np.full(rows.size, code), *span], axis=1))
    return np.concatenate(parts)


def _groups_table(distributed: _Distributed) -> pl.DataFrame:
    groups = distributed.pg_config
    columns = group_columns(groups, distributed.world_size)
    table = GROUPS.build(len(groups), columns)
    is_repeated = len(set(columns["name"])) < len(groups)
    return table.unique("name", keep="first", maintain_order=True) if is_repeated else table
