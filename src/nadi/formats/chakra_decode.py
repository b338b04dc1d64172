"""Chakra's .et: protobuf messages, decoded into columns.

What an .et says of a node and a column can hold is in the column; all of it is in the
attributes, so that a trace that came from an .et goes back as the same messages.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.attributes import CODES, AttributeBuilder, Attributes, LazyAttributes
from nadi.errors import FormatError
from nadi.formats.container import RawFile
from nadi.issues import IssueLog
from nadi.kernels.chakra_decode import (
    NUM_COUNTS,
    PROBLEMS,
    ROLES,
    AttributeColumns,
    NodeColumns,
    count_messages,
    decode_attributes,
    decode_nodes,
    message_after,
)
from nadi.kernels.strings import intern_spans, make_words
from nadi.provenance import Provenance
from nadi.schema import CATEGORIES, COMM_TYPES, DEPS, GROUPS, NODE_KINDS, NODES
from nadi.trace import Trace
from nadi.validate import cycle_row
from nadi.version import __version__
from nadi.wire import read_varint

__all__ = ["COLLECTIVES", "decode", "looks_like", "stated_version", "trace_of"]

_Ints = npt.NDArray[np.int64]
_END_OF_TIME = 2**63 - 1
_VERSION = re.compile(rb"[0-9A-Za-z.+-]{1,32}")
# Chakra's numbers of collectives; what it calls reduce_scatter_block differs in its layout only
COLLECTIVES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
    "reduce_scatter", "reduce_scatter", "barrier",
)  # fmt: skip
# columns of nodes, and the attributes that they are read from, the first that is there
_COLUMNS = {
    "start": ("start_ns",),
    "duration": ("duration_ns",),
    "exclusive": ("exclusive_ns",),
    "is_cpu": ("is_cpu_op",),
    "stream": ("stream",),
    "comm_type": ("comm_type",),
    "thread": ("thread", "tid"),
    "device": ("device",),
    "rf_id": ("rf_id",),
    "external_id": ("external_id",),
    "correlation": ("correlation",),
    "sequence": ("sequence", "seq_id"),
    "bytes": ("bytes", "tensor_size"),
    "comm_bytes": ("comm_size",),
    "src": ("comm_src",),
    "dst": ("comm_dst",),
    "tag": ("comm_tag",),
    "is_async": ("is_async",),
    "flops": ("num_ops",),
}
_NUMBER_NAMES = tuple(name for sources in _COLUMNS.values() for name in sources)
_ALWAYS = ("start", "duration", "exclusive", "is_cpu", "stream", "comm_type")
_TEXT_NAMES = ("category", "pg_name")
_WORDS = make_words({name: code for code, name in enumerate((*_NUMBER_NAMES, *_TEXT_NAMES))})
_WORTH_SPLITTING = 1 << 22


_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _Group(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    backend_config: str = ""
    ranks: list[_Rank] = []


def looks_like(head: bytes) -> bool:
    """Tell from a file's first bytes whether it begins with Chakra's metadata and a node."""
    try:
        length, at = read_varint(head, 0)
        if length == 0:
            return len(head) == 1 or head[2:3] == b"\x08"
        if head[at : at + 1] == b"\x0a":
            size, begin = read_varint(head, at + 1)
            return size < length and bool(_VERSION.fullmatch(head[begin : begin + size]))
        return head[at : at + 1] == b"\x12" and head[at + 2 : at + 3] == b"\x0a"
    except ValueError:
        return False


def decode(raw: RawFile) -> Trace:
    """Read a Chakra execution trace of schema 0.0.4 or 1.0.0.

    Returns
    -------
    Trace
        Nodes in the order of the file, without parents; dependencies of the kinds data
        and ctrl; every attribute. A start of 0 us means that none is known. O(bytes).

    Raises
    ------
    FormatError
        If the bytes are no such messages, or an id stands twice: with the byte.
    """
    if not raw.content.size:
        raise FormatError(raw.name, "the file is empty", "was it written to the end?")
    return trace_of(raw, raw.content, "Chakra ET", Attributes.empty(), IssueLog())


def trace_of(
    raw: RawFile,
    content: npt.NDArray[np.uint8],
    form: str,
    beside: Attributes,
    log: IssueLog,
) -> Trace:
    """Make a trace of the messages of an .et, whichever form the file has that held them.

    Parameters
    ----------
    raw
        The file, for errors and provenance.
    content
        uint8: the messages; the attributes of the trace point into it.
    form
        What the provenance calls the format, before its version.
    beside
        What the file says besides and the messages have no field for.
    log
        Gets what was met.
    """
    columns, counts = _decode(raw.name, content)
    log.add(
        "chakra.unknown-field", "warning", int(counts[4]),
        "fields of attributes and operands that this version of the format does not have",
        "they are left out",
    )  # fmt: skip
    log.add(
        "chakra.unknown-field", "info", int(counts[5]),
        "fields of nodes that this version of the format does not have: kept as they are",
    )  # fmt: skip
    rows = _Rows(raw.name, columns.id)
    deps, others = _dependencies(rows, columns, log)
    metadata = _attributes(content[: message_after(content, 1)], 0, counts)
    stated = metadata.of(-1)
    nodes, groups = _tables(raw.name, content, columns, stated, log)
    return Trace(
        nodes=nodes,
        deps=deps,
        groups=groups,
        issues=log.table(),
        provenance=Provenance(
            __version__, (raw.source(f"{form} {stated_version(metadata)}".rstrip()),)
        ),
        rank=_number(stated, "rank"),
        world_size=_number(stated, "world_size"),
        process=_number(stated, "process" if "process" in stated else "pid"),
        given_attributes=LazyAttributes(lambda: _all_attributes(content, counts, (others, beside))),
    )


def _all_attributes(
    content: npt.NDArray[np.uint8], counts: _Ints, more: tuple[Attributes, ...]
) -> Attributes:
    attributes = _attributes(content, int(counts[0]), counts)
    for others in more:
        attributes = attributes.joined(others) if len(others) else attributes
    return attributes


def stated_version(attributes: Attributes) -> str | None:
    """Give the version of the schema that an .et states; None if it is not from an .et."""
    for row in attributes.rows_of(-1):
        if attributes.type[row] == CODES["operand"]:
            return attributes.span(row).decode()
    return None


def _decode(file: str, content: npt.NDArray[np.uint8]) -> tuple[NodeColumns, _Ints]:
    """Read the nodes, those of a large file in two threads; the kernels hold no lock."""
    middle = message_after(content, content.size // 2 if content.size > _WORTH_SPLITTING else 0)
    parts = [part for part in ((0, middle), (middle, content.size)) if part[0] < part[1]]
    counts = np.zeros((len(parts), NUM_COUNTS), dtype=np.int64)
    with ThreadPoolExecutor(len(parts)) as executor:
        # the first part's problem is the one to tell
        for found in executor.map(
            lambda k: count_messages(content, *parts[k], counts[k]), range(len(parts))
        ):
            _check(file, *found)
        columns = _empty_columns(counts.sum(axis=0))
        first = np.cumsum(counts, axis=0) - counts
        at_most = counts.copy()
        for found in executor.map(
            lambda k: decode_nodes(
                content, *parts[k], _part(columns, first[k], at_most[k]), _WORDS, counts[k]
            ),
            range(len(parts)),
        ):
            _check(file, *found)
    for k in range(1, len(parts)):
        columns.ctrl_end[first[k, 0] :] += first[k, 1]
        columns.data_end[first[k, 0] :] += first[k, 2]
    total = counts.sum(axis=0)
    total[3] = at_most[:, 3].sum()
    return columns, total


def _check(file: str, problem: int, where: int) -> None:
    if problem:
        raise FormatError(
            file, f"byte {where:,}: {PROBLEMS[problem]}",
            "the file is damaged or cut off: write or copy it again",
        )  # fmt: skip


def _empty_columns(counts: _Ints) -> NodeColumns:
    nodes, ctrl, data = (int(count) for count in counts[:3])
    return NodeColumns(
        id=np.zeros(nodes, dtype=np.int64),
        kind=np.zeros(nodes, dtype=np.uint8),
        name_at=np.zeros(nodes, dtype=np.int64),
        name_length=np.zeros(nodes, dtype=np.int64),
        start=np.zeros(nodes, dtype=np.int64),
        duration=np.zeros(nodes, dtype=np.int64),
        ctrl_end=np.empty(nodes, dtype=np.int64),
        ctrl=np.empty(ctrl, dtype=np.int64),
        data_end=np.empty(nodes, dtype=np.int64),
        data=np.empty(data, dtype=np.int64),
        numbers=np.empty((nodes, len(_NUMBER_NAMES)), dtype=np.int64),
        seen=np.zeros(len(_NUMBER_NAMES), dtype=np.uint8),
        text_at=np.zeros((nodes, len(_TEXT_NAMES)), dtype=np.int64),
        text_length=np.zeros((nodes, len(_TEXT_NAMES)), dtype=np.int64),
    )


def _part(columns: NodeColumns, first: _Ints, counts: _Ints) -> NodeColumns:
    """Give the rows of the columns that a part of the file fills."""
    slices = {"ctrl": 1, "data": 2}
    return NodeColumns(*(
        column if name == "seen" else column[first[k] : first[k] + counts[k]]
        for name, column in zip(columns._fields, columns, strict=True)
        for k in (slices.get(name, 0),)
    ))  # fmt: skip


def _intern(
    content: npt.NDArray[np.uint8], begin: _Ints, length: _Ints
) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Give each span the number of its text, and every text once."""
    codes, firsts = intern_spans(content, begin, length)
    return codes, [
        content[begin[row] : begin[row] + length[row]].tobytes().decode() for row in firsts
    ]


def _attributes(content: npt.NDArray[np.uint8], num_nodes: int, counts: _Ints) -> Attributes:
    at_most = int(counts[3])
    columns = AttributeColumns(
        end=np.zeros(num_nodes + 1, dtype=np.int64),
        name_at=np.empty(at_most, dtype=np.int64),
        name_length=np.empty(at_most, dtype=np.int64),
        type=np.empty(at_most, dtype=np.uint8),
        value=np.empty(at_most, dtype=np.int64),
        length=np.empty(at_most, dtype=np.int32),
    )
    decode_attributes(content, columns, np.zeros(NUM_COUNTS, dtype=np.int64))
    size = int(columns.end[-1])
    name_length = columns.name_length[:size]
    codes, names = _intern(content, columns.name_at[:size], np.maximum(name_length, 0))
    # texts of operands have no name in the file
    for number, role in enumerate(ROLES, start=1):
        if (of_role := np.flatnonzero(name_length == -number)).size:
            if role not in names:
                names.append(role)
            codes[of_role] = names.index(role)
    nodes = np.arange(-1, num_nodes, dtype=np.int32)
    return Attributes(
        node=np.repeat(nodes, np.diff(columns.end, prepend=0)),
        name=codes,
        type=columns.type[:size],
        value=columns.value[:size],
        length=columns.length[:size],
        names=tuple(names),
        buffers=(content,),
    )


class _Rows:
    """Where each node id stands."""

    def __init__(self, file: str, ids: _Ints) -> None:
        self.ids = ids
        self._order: _Ints | None = None
        ascending = bool((ids[1:] > ids[:-1]).all())
        if not ascending:
            self._order = np.argsort(ids, kind="stable")
            ordered = ids[self._order]
            if (twice := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
                raise FormatError(
                    file, f"node id {ordered[twice[0]]} stands twice; ids are unique",
                    "was the file put together from two?",
                )  # fmt: skip
            self._sorted = ordered
        else:
            self._sorted = ids

    def find(self, ids: _Ints) -> _Ints:
        """Give the row of each id, -1 where it is not there."""
        if not self.ids.size:
            return np.full(ids.size, -1, dtype=np.int64)
        at = np.minimum(self._positions(ids), self.ids.size - 1)
        found = self._sorted[at] == ids
        rows = at if self._order is None else self._order[at]
        return np.where(found, rows, -1)

    def _positions(self, ids: _Ints) -> _Ints:
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - low > 8 * self._sorted.size:
            return np.searchsorted(self._sorted, ids)
        # ids are nearly without gaps: a table of positions is several times faster
        table = np.zeros(high - low + 1, dtype=np.int64)
        table[self._sorted - low] = np.arange(self._sorted.size)
        return table[np.clip(ids - low, 0, high - low)]


def _dependencies(
    rows: _Rows, columns: NodeColumns, log: IssueLog
) -> tuple[pl.DataFrame, Attributes]:
    """Give dependencies between nodes as rows; the others as attributes, with their places."""
    builder = AttributeBuilder()
    frames = []
    for kind, end, ids in (
        ("data", columns.data_end, columns.data),
        ("ctrl", columns.ctrl_end, columns.ctrl),
    ):
        first = np.append(0, end)
        dst = np.repeat(np.arange(rows.ids.size), np.diff(first))
        src = rows.find(ids)
        usable = (src >= 0) & (src != dst)
        log.add(
            f"chakra.{kind}-missing", "warning", int((src < 0).sum()),
            f"{kind} dependencies name a node that is not in the file",
            "the trace may be part of a larger one; they are kept as attributes",
        )  # fmt: skip
        log.add(
            f"chakra.{kind}-self", "info", int(((src == dst) & (src >= 0)).sum()),
            f"{kind} dependencies of a node on itself, which mean nothing: kept as attributes",
        )  # fmt: skip
        repeated = usable & _repeated(first, src, rows.ids.size)
        log.add(
            f"chakra.{kind}-twice", "warning", int(repeated.sum()),
            f"{kind} dependencies are given more than once", "kept once, the others as attributes",
        )  # fmt: skip
        usable &= ~repeated
        for entry in np.flatnonzero(~usable).tolist():
            place = entry - int(first[dst[entry]])
            builder.add(int(dst[entry]), f"{kind}_deps[{place}]", "dependency", int(ids[entry]))
        chosen = {"src": src[usable], "dst": dst[usable], "kind": kind}
        frames.append(DEPS.build(int(usable.sum()), chosen))
    deps = pl.concat(frames)
    on_cycle = cycle_row(rows.ids.size, deps["src"].to_numpy(), deps["dst"].to_numpy())
    log.add(
        "chakra.cycle", "error", int(on_cycle >= 0),
        f"node {rows.ids[max(on_cycle, 0)] if rows.ids.size else 0} waits for itself by way of "
        "its dependencies",
        "no simulator can run this trace: mend the program that wrote it",
    )  # fmt: skip
    return deps, builder.build()


def _repeated(first: _Ints, src: _Ints, num_nodes: int) -> npt.NDArray[np.bool_]:
    """Tell which dependencies a node names that it has named before."""
    dst = np.repeat(np.arange(num_nodes), np.diff(first))
    several = np.flatnonzero(np.diff(first)[dst] > 1)
    out = np.zeros(src.size, dtype=np.bool_)
    keys = dst[several] * (num_nodes + 1) + src[several]
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    out[several[order[1:][same]]] = True
    return out


def _tables(
    file: str, content: npt.NDArray[np.uint8], columns: NodeColumns, stated: dict[str, Any],
    log: IssueLog,
) -> tuple[pl.DataFrame, pl.DataFrame]:  # fmt: skip
    size = columns.id.size
    spans = [(columns.name_at, columns.name_length)]
    spans += [(columns.text_at[:, k], columns.text_length[:, k]) for k in range(len(_TEXT_NAMES))]
    with ThreadPoolExecutor(2) as executor:  # the kernel holds no lock
        (codes, texts), category, group_name = executor.map(
            lambda span: _intern(content, span[0].copy(), span[1].copy()), spans
        )
    names = pl.Series(texts, dtype=NODES.dtypes["name"]).gather(codes.astype(np.uint32))
    kinds = pl.Series(NODE_KINDS, dtype=NODES.dtypes["kind"])
    group, groups = _groups(*group_name, stated)
    given = _numbers(columns)
    is_cpu = given["is_cpu"] != 0
    start, duration = columns.start * 1000, columns.duration * 1000
    start[columns.start == 0] = -1
    if (given["duration"] >= 0).any():
        # from Nadi: operations without these have no thread and number, and if without any time
        # in microseconds too, none at all
        duration[(columns.start == 0) & (columns.duration == 0)] = -1
        for name in ("thread", "sequence"):
            given[name] = columns.numbers[:, _NUMBER_NAMES.index(name)].copy()
    start = np.where(given["start"] >= 0, given["start"], start)
    duration = np.where(given["duration"] >= 0, given["duration"], duration)
    given |= {
        "id": columns.id,
        "name": names,
        "kind": kinds.gather(columns.kind),
        "category": _categories(*category, columns.kind, is_cpu),
        **_usable_times(file, columns.id, start, duration, given["exclusive"], log),
        "is_cpu": is_cpu,
        # which Chakra's converter states as 0 for work of the host
        "stream": np.where(is_cpu, -1, given["stream"]),
        "comm_type": _comm_types(columns.kind, given["comm_type"]),
        "group": group,
    }
    return NODES.build(size, given), groups


def _usable_times(
    file: str, ids: _Ints, start: _Ints, duration: _Ints, exclusive: _Ints, log: IssueLog
) -> dict[str, _Ints]:
    """Leave out times that contradict each other; they stay attributes."""
    too_late = (start >= 0) & (duration > _END_OF_TIME - np.maximum(start, 0))
    if too_late.any():
        raise FormatError(
            file, f"node {ids[int(np.argmax(too_late))]} ends after the year 2262",
            "the file is damaged: write it again",
        )  # fmt: skip
    endless = (start >= 0) & (duration < 0)
    log.add(
        "chakra.duration", "warning", int(endless.sum()),
        "operations have a start and no duration", "they are taken to have no known time",
    )  # fmt: skip
    longer = (exclusive > duration) & (duration >= 0)
    log.add(
        "chakra.exclusive", "warning", int(longer.sum()),
        "operations take longer without their nested ones than with them",
        "their exclusive time is taken as unknown",
    )  # fmt: skip
    return {
        "start": np.where(endless, -1, start),
        "duration": duration,
        "exclusive": np.where(longer, -1, exclusive),
    }


def _numbers(columns: NodeColumns) -> dict[str, Any]:
    """Give the columns of nodes that are read from attributes, -1 where there is none."""
    given: dict[str, Any] = {}
    for column, sources in _COLUMNS.items():
        places = [_NUMBER_NAMES.index(name) for name in sources]
        there = [place for place in places if columns.seen[place]]
        if not there and column in _ALWAYS:
            there = places[:1]
        values = [columns.numbers[:, place] for place in there]
        if values:
            given[column] = values[0].copy()
        for others in values[1:]:
            given[column] = np.where(given[column] >= 0, given[column], others)
    if "rf_id" in given:  # 0 means none, as in PyTorch's own file
        given["rf_id"][given["rf_id"] == 0] = -1
    return given


def _categories(
    stated: npt.NDArray[np.int32],
    texts: list[str],
    kind: npt.NDArray[np.uint8],
    is_cpu: npt.NDArray[np.bool_],
) -> pl.Series:
    memory = (kind == NODE_KINDS.index("MEM_LOAD")) | (kind == NODE_KINDS.index("MEM_STORE"))
    code = np.where(memory, CATEGORIES.index("memcpy"), CATEGORIES.index("kernel"))
    code[is_cpu] = CATEGORIES.index("operator")
    code[kind == NODE_KINDS.index("METADATA")] = CATEGORIES.index("metadata")
    known = np.array([CATEGORIES.index(t) if t in CATEGORIES else -1 for t in texts], dtype=int)
    if stated.size:
        code = np.where(known[stated] >= 0, known[stated], code)
    categories = pl.Series(CATEGORIES, dtype=NODES.dtypes["category"])
    return categories.gather(code.astype(np.uint32))


def _comm_types(kind: npt.NDArray[np.uint8], stated: _Ints) -> pl.Series:
    table = np.array([COMM_TYPES.index(name) for name in (*COLLECTIVES, "other")])
    stated = np.where((stated < 0) | (stated >= len(COLLECTIVES)), len(COLLECTIVES), stated)
    code = np.zeros(kind.size, dtype=np.int64)
    is_collective = kind == NODE_KINDS.index("COMM_COLL")
    code[is_collective] = table[stated[is_collective]]
    code[kind == NODE_KINDS.index("COMM_SEND")] = COMM_TYPES.index("send")
    code[kind == NODE_KINDS.index("COMM_RECV")] = COMM_TYPES.index("recv")
    types = pl.Series(COMM_TYPES, dtype=NODES.dtypes["comm_type"])
    return types.gather(code.astype(np.uint32))


def _groups(
    codes: npt.NDArray[np.int32], names: list[str], stated: dict[str, Any]
) -> tuple[_Ints, pl.DataFrame]:
    """Give each node's process group, and what the file says of the groups.

    Chakra has no place for a group's members; Nadi writes them as an attribute.
    """
    listed = stated.get("process_groups")
    try:
        known = msgspec.json.decode(listed, type=list[_Group]) if listed else []
    except (msgspec.MsgspecError, TypeError, RecursionError):
        known = []  # another program's attribute of that name: it is kept as one
    groups = {group.pg_name: group for group in known}
    number = {name: row for row, name in enumerate(groups)}
    of_code = np.array([number.setdefault(n, len(number)) if n else -1 for n in names], dtype=int)
    group = of_code[codes] if codes.size else np.zeros(0, dtype=np.int64)
    members = [groups.get(name, _Group(name)) for name in number]
    columns = {
        "name": list(number),
        "description": [g.pg_desc for g in members],
        "ranks": [sorted(g.ranks) for g in members],
        "backend": [g.backend_config for g in members],
    }
    return group, GROUPS.build(len(members), columns)


def _number(stated: dict[str, Any], name: str) -> int:
    value = stated.get(name)
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1
