"""Chakra's .et: protobuf messages, decoded into columns.

Columns hold everything for which the data model has a column. The attributes hold the whole
file, so that a trace that was read from an .et is written as the same messages.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.chakra.attribute_message_kernels import ROLES, AttributeColumns, decode_attributes
from nadi.files.chakra.et_nodes import DecodedNodes, WantedAttributes, decode_messages
from nadi.files.files import RawFile
from nadi.files.node_ids import NodeRows
from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32
from nadi.trace.attributes import CODES, AttributeBuilder, Attributes, LazyAttributes
from nadi.trace.groups import Group, group_columns
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import read_varint
from nadi.trace.schema import CATEGORIES, COMM_TYPES, DEPS, GROUPS, NODE_KINDS, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.trace.validate import cycle_row
from nadi.version import __version__

_END_OF_TIME = 2**63 - 1
_WORTH_A_THREAD = 1 << 20
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
    "layer": ("layer",),
    "micro_batch": ("micro_batch",),
}
_ALWAYS = ("start", "duration", "exclusive", "is_cpu", "stream", "comm_type")
WANTED = WantedAttributes(
    numbers=[name for sources in _COLUMNS.values() for name in sources],
    texts=["category", "pg_name", "phase", "memory_tier"],
)


def looks_like(head: bytes) -> bool:
    """Return whether a file's first bytes are Chakra's metadata and a node."""
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

    - Returns: Nodes in the order of the file, without parents; dependencies of the kinds data and
      ctrl; every attribute. A start of 0 us means that the start is unknown. O(bytes).
    - Raises FormatError if the bytes are not such messages, or an id occurs twice; the message
      states the byte.
    """
    if not raw.content.size:
        raise FormatError(
            raw.name, "the file is empty", "check whether the program that wrote it finished"
        )
    return trace_of_messages(raw, raw.content, "Chakra ET", Attributes.empty(), IssueLog())


def trace_of_messages(
    raw: RawFile, content: Bytes, form: str, beside: Attributes, log: IssueLog
) -> Trace:
    """Make a trace from the messages of an .et, whether the file was protobuf or JSON.

    - ``raw``: The file, for error messages and provenance.
    - ``content``: uint8: the messages; the attributes of the trace point into it.
    - ``form``: What the provenance calls the format, before its version.
    - ``beside``: Attributes of the file for which the messages have no field.
    - ``log``: Collects the issues.
    """
    decoded = decode_messages(raw.name, content, WANTED)
    _note_unknown_fields(decoded, log)
    rows = NodeRows(decoded.column("id"))
    if rows.repeated >= 0:
        raise FormatError(
            raw.name, f"node id {rows.repeated} occurs twice; ids must be unique",
            "check whether two files were concatenated",
        )  # fmt: skip
    length, begin = read_varint(content[:10].tobytes(), 0)
    at_most = decoded.total("attributes")
    metadata = message_attributes(content[: begin + length], 0, at_most)
    stated = metadata.of(-1)
    of_nodes = IssueLog()
    if content.size <= _WORTH_A_THREAD:
        nodes, groups = _tables(raw.name, decoded, rows.ids, stated, of_nodes)
        deps, others = _dependencies(rows, decoded, log)
    else:
        with ThreadPoolExecutor(1) as executor:  # numpy and polars hold no lock most of the time
            of_deps = executor.submit(_dependencies, rows, decoded, log)
            nodes, groups = _tables(raw.name, decoded, rows.ids, stated, of_nodes)
        deps, others = of_deps.result()
    log.add_all(of_nodes)
    return Trace(
        nodes=nodes,
        deps=deps,
        groups=groups,
        issues=log.table(),
        provenance=Provenance(
            __version__, (raw.source(f"{form} {stated_version(metadata)}".rstrip()),)
        ),
        rank=number_of(stated, "rank"),
        world_size=number_of(stated, "world_size"),
        process=number_of(stated, "process" if "process" in stated else "pid"),
        given_attributes=LazyAttributes(
            lambda: all_attributes(content, rows.ids.size, at_most, (others, beside))
        ),
    )


def _note_unknown_fields(decoded: DecodedNodes, log: IssueLog) -> None:
    log.add(
        "chakra.unknown-field", "warning", decoded.total("unknown_inside"),
        "fields of attributes and operands are unknown to this version of the format",
        "they are left out",
    )  # fmt: skip
    log.add(
        "chakra.unknown-field", "info", decoded.total("unknown"),
        "fields of nodes are unknown to this version of the format: they are kept unchanged",
    )  # fmt: skip


def all_attributes(
    content: Bytes, num_nodes: int, at_most: int, more: tuple[Attributes, ...]
) -> Attributes:
    """Return the attributes of a file, followed by others of the same nodes."""
    attributes = message_attributes(content, num_nodes, at_most)
    for others in more:
        attributes = attributes.joined(others) if len(others) else attributes
    return attributes


def stated_version(attributes: Attributes) -> str | None:
    """Return the version of the schema that an .et states; None if it is not from an .et."""
    for row in attributes.rows_of(-1):
        if attributes.type[row] == CODES["operand"]:
            return attributes.span(row).decode()
    return None


def _intern(content: Bytes, begin: Ints, length: Ints) -> tuple[Ints32, list[str]]:
    """Return the number of each span's text, and every text once."""
    codes, firsts = intern_spans(content, begin, length)
    return codes, [
        content[begin[row] : begin[row] + length[row]].tobytes().decode() for row in firsts
    ]


def message_attributes(content: Bytes, num_nodes: int, at_most: int) -> Attributes:
    """Return the attributes of a file, or of some of its messages after the metadata.

    - ``content``: uint8: messages in which :func:`nadi.files.chakra.et_decode_kernels.decode_nodes`
      met no problem.
    - ``at_most``: How many attributes there can be.
    """
    columns = AttributeColumns(
        end=np.zeros(num_nodes + 1, dtype=np.int64),
        name_at=np.empty(at_most, dtype=np.int64),
        name_length=np.empty(at_most, dtype=np.int64),
        type=np.empty(at_most, dtype=np.uint8),
        value=np.empty(at_most, dtype=np.int64),
        length=np.empty(at_most, dtype=np.int32),
    )
    size = int(decode_attributes(content, columns))
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


def _dependencies(
    rows: NodeRows, decoded: DecodedNodes, log: IssueLog
) -> tuple[pl.DataFrame, Attributes]:
    """Return dependencies between nodes as rows; the others as attributes, with their positions."""
    builder = AttributeBuilder()
    all_rows = np.arange(rows.ids.size)
    pairs = []
    for kind in ("data", "ctrl"):
        count, ids = decoded.dependencies(kind)
        dst = np.repeat(all_rows, count)
        src = rows.find(ids)
        is_missing, is_own = src < 0, src == dst
        log.add(
            f"chakra.{kind}-missing", "warning", int(is_missing.sum()),
            f"{kind} dependencies name a node that is not in the file",
            "the trace may be part of a larger one; they are kept as attributes",
        )  # fmt: skip
        log.add(
            f"chakra.{kind}-self", "info", int(is_own.sum()),
            f"{kind} dependencies of a node on itself are kept as attributes only",
        )  # fmt: skip
        is_left_out = is_missing | is_own
        repeated = repeated_rows(np.repeat(count > 1, count) & ~is_left_out, src, dst)
        log.add(
            f"chakra.{kind}-twice", "warning", repeated.size,
            f"{kind} dependencies occur more than once", "one is kept, the rest become attributes",
        )  # fmt: skip
        is_left_out[repeated] = True
        if (left_out := np.flatnonzero(is_left_out)).size:
            first = np.cumsum(count) - count
            for entry in left_out.tolist():
                place = entry - int(first[dst[entry]])
                builder.add(int(dst[entry]), f"{kind}_deps[{place}]", "dependency", int(ids[entry]))
            src, dst = src[~is_left_out], dst[~is_left_out]
        pairs.append((kind, src, dst))
    _look_for_cycle(rows.ids, pairs, log)
    frames = [DEPS.build(src.size, {"src": src, "dst": dst, "kind": k}) for k, src, dst in pairs]
    return pl.concat(frames), builder.build()


def repeated_rows(candidates: Bools, src: Ints, dst: Ints) -> Ints:
    """Return the candidates that repeat an earlier dependency of the same node."""
    several = np.flatnonzero(candidates)
    order = several[np.lexsort((src[several], dst[several]))]
    same = (src[order][1:] == src[order][:-1]) & (dst[order][1:] == dst[order][:-1])
    return np.asarray(order[1:][same])


def _look_for_cycle(ids: Ints, pairs: list[tuple[str, Ints, Ints]], log: IssueLog) -> None:
    if all((src < dst).all() for _, src, dst in pairs):
        return
    src, dst = (np.concatenate([pair[k] for pair in pairs]) for k in (1, 2))
    on_cycle = cycle_row(ids.size, src, dst)
    log.add(
        "chakra.cycle", "error", int(on_cycle >= 0),
        f"node {ids[max(on_cycle, 0)]} depends on itself through a cycle of dependencies",
        "no simulator can run this trace: correct the program that wrote it",
    )  # fmt: skip


def _tables(
    file: str, decoded: DecodedNodes, ids: Ints, stated: dict[str, Any], log: IssueLog
) -> tuple[pl.DataFrame, pl.DataFrame]:
    group, columns = groups_of(*decoded.text("pg_name"), stated)
    groups = GROUPS.build(len(columns["name"]), columns)
    return node_table(file, decoded, ids, group, log), groups


def node_table(
    file: str, decoded: DecodedNodes, ids: Ints, group: Ints, log: IssueLog
) -> pl.DataFrame:
    """Build the table of nodes, given the process groups.

    - Raises FormatError if a time exceeds the range of int64 nanoseconds.
    """
    codes, texts = decoded.names()
    names = pl.Series(texts, dtype=NODES.dtypes["name"]).gather(codes.astype(np.uint32))
    kind = decoded.kind()
    numbers = decoded.numbers()
    given = _numbers(numbers, ids.size)
    is_cpu = given["is_cpu"] != 0
    start, duration = decoded.column("start") * 1000, decoded.column("duration") * 1000
    no_time = start == 0
    start[no_time] = -1
    if written_by_nadi(decoded).any():
        # operations without these have no thread and number, and if without any time in
        # microseconds too, none at all
        duration[no_time & (duration == 0)] = -1
        for name in ("thread", "sequence"):
            given[name] = numbers.get(name, -1)
    start = np.where(given["start"] >= 0, given["start"], start)
    duration = np.where(given["duration"] >= 0, given["duration"], duration)
    given |= {
        "id": ids,
        "name": names,
        "kind": _words("kind").gather(kind.astype(np.uint32)),
        "category": _categories(*decoded.text("category"), kind, is_cpu),
        **_usable_times(file, ids, start, duration, given["exclusive"], log),
        "is_cpu": is_cpu,
        # which Chakra's converter states as 0 for work of the host
        "stream": np.where(is_cpu, -1, given["stream"]),
        "comm_type": _comm_types(kind, given["comm_type"]),
        "group": group,
        "phase": _words_stated("phase", *decoded.text("phase")),
        "tier": _words_stated("tier", *decoded.text("memory_tier")),
    }
    return NODES.build(ids.size, given)


def _words_stated(column: str, stated: Ints32, texts: list[str]) -> pl.Series | str:
    """Return the text of each node, or one that is empty if none states any."""
    if not any(texts):
        return ""
    words = pl.Series(texts, dtype=pl.String).cast(NODES.dtypes[column])
    return words.gather(stated.astype(np.uint32))


def written_by_nadi(decoded: DecodedNodes) -> Bools:
    """Tell which nodes state what only Nadi writes: times in ns, or a category."""
    codes, texts = decoded.text("category")
    is_known = np.array([text in CATEGORIES for text in texts], dtype=np.bool_)
    found = is_known[codes] if texts else np.zeros(codes.size, dtype=np.bool_)
    stated = decoded.numbers().get("duration_ns")
    return np.asarray(found if stated is None else found | (stated >= 0))


@cache
def _words(column: str) -> pl.Series:
    """Return the categories of a column of nodes, in their order."""
    dtype = NODES.dtypes[column]
    return pl.Series(dtype.categories, dtype=dtype)  # type: ignore[union-attr]


def _usable_times(
    file: str, ids: Ints, start: Ints, duration: Ints, exclusive: Ints, log: IssueLog
) -> dict[str, Ints]:
    """Drop times that contradict each other; the attributes keep them."""
    too_late = (start >= 0) & (duration > _END_OF_TIME - np.maximum(start, 0))
    if too_late.any():
        raise FormatError(
            file, f"node {ids[int(np.argmax(too_late))]} ends after the year 2262",
            "the file is damaged: write it again",
        )  # fmt: skip
    endless = (start >= 0) & (duration < 0)
    log.add(
        "chakra.duration", "warning", int(endless.sum()),
        "operations have a start but no duration", "their time is treated as unknown",
    )  # fmt: skip
    longer = (exclusive > duration) & (duration >= 0)
    log.add(
        "chakra.exclusive", "warning", int(longer.sum()),
        "operations have an exclusive time longer than their duration",
        "their exclusive time is treated as unknown",
    )  # fmt: skip
    return {
        "start": np.where(endless, -1, start),
        "duration": duration,
        "exclusive": np.where(longer, -1, exclusive),
    }


def _numbers(numbers: dict[str, Ints], size: int) -> dict[str, Any]:
    """Return the columns of nodes that are read from attributes; -1 where one is missing."""
    given: dict[str, Any] = {}
    for column, sources in _COLUMNS.items():
        there = [numbers[name] for name in sources if name in numbers]
        if not there and column in _ALWAYS:
            there = [np.full(size, -1, dtype=np.int64)]
        for values in there:
            given[column] = (
                np.where(given[column] >= 0, given[column], values) if column in given else values
            )
    if "rf_id" in given:  # 0 means none, as in PyTorch's own file
        given["rf_id"] = np.where(given["rf_id"] == 0, -1, given["rf_id"])
    return given


def _categories(stated: Ints32, texts: list[str], kind: Ints32, is_cpu: Bools) -> pl.Series:
    of_kind = np.full(len(NODE_KINDS), CATEGORIES.index("kernel"), dtype=np.uint32)
    of_kind[[NODE_KINDS.index("MEM_LOAD"), NODE_KINDS.index("MEM_STORE")]] = (
        CATEGORIES.index("memcpy")
    )  # fmt: skip
    code = np.where(is_cpu, np.uint32(CATEGORIES.index("operator")), of_kind[kind])
    code[kind == NODE_KINDS.index("METADATA")] = CATEGORIES.index("metadata")
    known = [CATEGORIES.index(t) if t in CATEGORIES else len(CATEGORIES) for t in texts]
    if known:
        of_text = np.array(known, dtype=np.uint32)[stated]
        code = np.where(of_text < len(CATEGORIES), of_text, code)
    return _words("category").gather(code)


def _comm_types(kind: Ints32, stated: Ints) -> pl.Series:
    table = np.array([COMM_TYPES.index(name) for name in (*COLLECTIVES, "other")], dtype=np.uint32)
    code = np.zeros(kind.size, dtype=np.uint32)
    collectives = np.flatnonzero(kind == NODE_KINDS.index("COMM_COLL"))
    number = stated[collectives]
    is_known = (number >= 0) & (number < len(COLLECTIVES))
    code[collectives] = table[np.where(is_known, number, len(COLLECTIVES))]
    code[kind == NODE_KINDS.index("COMM_SEND")] = COMM_TYPES.index("send")
    code[kind == NODE_KINDS.index("COMM_RECV")] = COMM_TYPES.index("recv")
    return _words("comm_type").gather(code)


def groups_of(
    codes: Ints32, names: list[str], stated: dict[str, Any]
) -> tuple[Ints, dict[str, list[Any]]]:
    """Return each node's process group, and the columns of the groups that the file states.

    Chakra has no field for the members of a group; Nadi writes them as an attribute.
    """
    listed = stated.get("process_groups")
    try:
        known = msgspec.json.decode(listed, type=list[Group]) if listed else []
    except (msgspec.MsgspecError, TypeError, RecursionError):
        known = []  # another program's attribute of that name: it is kept as one
    groups = {group.name: group for group in known}
    number = {name: row for row, name in enumerate(groups)}
    of_code = np.array([number.setdefault(n, len(number)) if n else -1 for n in names], dtype=int)
    group: Ints = of_code[codes] if codes.size else np.zeros(0, dtype=np.int64)
    return group, group_columns([groups.get(name, Group(name)) for name in number])


def number_of(stated: dict[str, Any], name: str) -> int:
    """Return a number in the metadata; -1 if it is missing or not a valid rank or size."""
    value = stated.get(name)
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1
