"""Encode a trace as Chakra's .et: the same messages for a trace that was read from an .et.

For other traces, columns become attributes under the names that Chakra's tools read
(:mod:`nadi.files.chakra.chakra_attributes`). Parents become control dependencies, and all other
dependencies become data dependencies. Chakra's times are microseconds; the attributes ``start_ns``
and ``duration_ns`` hold the exact times.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError
from nadi.files.chakra.attribute_message_kernels import ROLES
from nadi.files.chakra.chakra_attributes import ChakraFields, ColumnOfAttributes, chakra_fields
from nadi.files.chakra.et_decode import stated_version
from nadi.files.chakra.et_encode_kernels import (
    ColumnAttributes,
    GivenAttributes,
    MessageColumns,
    encode_messages,
    measure_messages,
)
from nadi.kernels.sequences import group_rows
from nadi.trace.arrays import Bytes, Ints, numbered_texts
from nadi.trace.attributes import CODES, AttributeBuilder, Attributes, Part, writable
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

SCHEMAS = ("0.0.4", "1.0.0")

_NO_BYTES = np.empty(0, dtype=np.uint8)
_PIECE = 1 << 22  # bytes of a file at a time
_AHEAD = 2  # pieces
_LEFT_OUT = np.uint8(CODES["dependency"])
_DEPENDENCY = re.compile(r"(ctrl|data)_deps\[(\d+)\]")


def encode(trace: Trace, log: IssueLog, *, schema: str = "") -> Iterator[memoryview]:
    """Write a trace as an .et.

    - ``schema``: One of :data:`SCHEMAS`; by default that of the source file, else 0.0.4.
    - Yields: Content of the file, piece by piece. O(bytes).
    """
    if schema and schema not in SCHEMAS:
        raise UsageError(
            Parameter("schema", schema),
            "unknown schema",
            f"there are {', '.join(SCHEMAS)}",
        )
    stated = version_of(trace)
    if stated is None:
        described = chakra_fields(trace, log, version=schema or SCHEMAS[0])
    else:
        described = _as_it_came(trace, stated, schema)
    log.add(
        "chakra.unknown-key", "warning",
        int((described.given.attributes.type == CODES["json"]).sum()),
        "keys of the JSON trace have no field in Chakra's messages and are not written",
        "write JSON to keep them",
    )  # fmt: skip
    columns = _message_columns(trace, described, from_chakra=stated is not None)
    sizes = np.empty(trace.nodes.height + 1, dtype=np.int64)
    measure_messages(columns, sizes)
    yield from _pieces(columns, sizes)


def version_of(trace: Trace) -> str | None:
    """Return the schema version of the .et that a trace was read from; None for other traces."""
    versions = (stated_version(part.attributes) for part in trace.attribute_parts)
    return next((version for version in versions if version is not None), None)


def _as_it_came(trace: Trace, stated: str, schema: str) -> ChakraFields:
    """Describe a trace that was read from an .et, in its own schema version."""
    attributes = trace.attributes
    if schema in ("", stated):
        return ChakraFields(Part(attributes), Attributes.empty(), ())
    builder = AttributeBuilder()
    builder.add(-1, "version", "operand", schema)
    is_version = (attributes.node == -1) & (attributes.type == CODES["operand"])
    return ChakraFields(Part(attributes, is_kept=~is_version), builder.build(), ())


def _pieces(columns: MessageColumns, sizes: Ints) -> Iterator[memoryview]:
    """Encode piece by piece; another thread encodes ahead while a piece is written."""
    # a message comes after its length, seven bits of it in a byte
    prefix = 1 + np.searchsorted(1 << np.arange(7, 63, 7), sizes, side="right")
    with_prefix = np.cumsum(sizes + prefix)
    cuts = np.searchsorted(with_prefix, np.arange(0, int(with_prefix[-1]), _PIECE)).tolist()
    bounds = pairwise([*dict.fromkeys(cuts), sizes.size])
    with ThreadPoolExecutor(1) as executor:
        ahead: deque[Future[memoryview]] = deque()
        for first, end in bounds:
            size = int(with_prefix[end - 1] - (with_prefix[first - 1] if first else 0))
            ahead.append(executor.submit(_piece, columns, sizes, first, end, size))
            if len(ahead) > _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _piece(columns: MessageColumns, sizes: Ints, first: int, end: int, size: int) -> memoryview:
    out = np.empty(size, dtype=np.uint8)
    encode_messages(columns, sizes, first, end, out)
    return out.data


def _message_columns(trace: Trace, described: ChakraFields, *, from_chakra: bool) -> MessageColumns:
    given, more = described.given.attributes, described.more.with_own_bytes()
    columns = [column for column in described.columns if (column.value >= 0).any()]
    name_of_node, node_names = numbered_texts(trace.nodes["name"])
    names = [*given.names, *more.names, *(column.name for column in columns)]
    texts = [text for column in columns for text in column.texts]
    content, first = _concatenated([*node_names, *names, *texts])
    length = np.diff(first)
    of_names = slice(len(node_names), len(node_names) + len(names))
    parts = described.given, Part(more)
    ctrl_first, ctrl = given_ids(trace, parts, "ctrl", from_chakra=from_chakra)
    data_first, data = given_ids(trace, parts, "data", from_chakra=from_chakra)
    nodes = _node_numbers(trace, exact=not from_chakra or "duration_ns" in given.names)
    nodes[:, 2], nodes[:, 3] = first[name_of_node], length[name_of_node]
    height = trace.nodes.height
    buffer, *others = given.buffers or (_NO_BYTES,)
    end = buffer.size + sum(other.size for other in others)
    first_column = len(given.names) + len(more.names)
    return MessageColumns(
        nodes=nodes,
        ctrl_first=ctrl_first,
        ctrl=writable(ctrl),
        data_first=data_first,
        data=writable(data),
        given=_given_attributes(described.given, height, 0, 0),
        more=_given_attributes(Part(more), height, len(given.names), end),
        columns=ColumnAttributes(
            value=_values(columns, height),
            name=first_column + np.arange(len(columns)),
            type=np.array([CODES[column.type] for column in columns], dtype=np.int64),
            text_at=first[of_names.stop : -1].copy(),
            text_length=length[of_names.stop :].copy(),
        ),
        name_at=first[of_names].copy(),
        name_length=length[of_names].copy(),
        name_role=np.array(
            [ROLES.index(name) + 1 if name in ROLES else 0 for name in names], dtype=np.int64
        ),
        names=content,
        buffer=writable(buffer),
        rest=np.concatenate([*others, *more.buffers]),
    )


def _given_attributes(part: Part, height: int, first_name: int, shift: int) -> GivenAttributes:
    """Return the attributes of each message, those of the metadata first.

    - ``first_name``, ``shift``: Offsets that are added to names and to the begin of spans.
    """
    given, new_row, is_kept = part
    num_nodes = height if new_row is None else new_row.size
    bounds = np.searchsorted(given.node, np.arange(-1, num_nodes + 1, dtype=np.int32))
    first, end = bounds[:-1], bounds[1:]
    if new_row is not None:
        theirs = np.append(0, 1 + np.flatnonzero(new_row >= 0))
        message = np.append(0, 1 + new_row[theirs[1:] - 1])
        first, end = np.zeros((2, height + 1), dtype=np.int64)
        first[message], end[message] = bounds[:-1][theirs], bounds[1:][theirs]
    # of a type that is not written
    kind = given.type if is_kept is None else np.where(is_kept, given.type, _LEFT_OUT)
    return GivenAttributes(
        first=writable(first),
        end=writable(end),
        name=writable(given.name + np.int32(first_name) if first_name else given.name),
        type=writable(kind),
        value=writable(given.value + shift * given.is_span if shift else given.value),
        length=writable(given.length),
        size=np.empty(len(given), dtype=np.int32),
    )


def _values(columns: Sequence[ColumnOfAttributes], height: int) -> Ints:
    """Return the values of columns, with texts as numbers; int64, shape (columns, nodes)."""
    values = np.empty((len(columns), height), dtype=np.int64)
    num_texts = 0
    for row, column in zip(values, columns, strict=True):
        row[:] = column.value
        if num_texts and column.texts:
            row[row >= 0] += num_texts
        num_texts += len(column.texts)
    return values


def _node_numbers(trace: Trace, *, exact: bool) -> Ints:
    """Return the other numeric columns of nodes; columns 2 and 3 are reserved for names."""
    out = np.empty((trace.nodes.height, 6), dtype=np.int64)
    out[:, 0] = trace.column("id")
    out[:, 1] = trace.codes("kind")
    out[:, 4], out[:, 5] = start_and_duration(trace, exact=exact)
    return out


def start_and_duration(trace: Trace, *, exact: bool) -> tuple[Ints, Ints]:
    """Return Chakra's start and duration of each node, in us; 0 if unknown.

    If the attributes hold the ``exact`` duration, the result is the exclusive one.
    """
    exclusive, duration = trace.column("exclusive"), trace.column("duration")
    own = np.where(exclusive >= 0, exclusive, duration) if exact else duration
    return _microseconds(trace.column("start")), _microseconds(own)


def _microseconds(nanoseconds: Ints) -> Ints:
    """Round to microseconds, halves up; missing values become 0, as in Chakra."""
    known = np.maximum(nanoseconds, 0)
    return known // 1000 + (known % 1000 >= 500)


def _concatenated(texts: list[str]) -> tuple[Bytes, Ints]:
    encoded = [text.encode(errors="replace") for text in texts]
    first = np.cumsum([0, *(len(text) for text in encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(), first


def given_ids(
    trace: Trace, parts: Sequence[Part], kind: str, *, from_chakra: bool
) -> tuple[Ints, Ints]:
    """Return the ids that each node depends on, in the order of the source file if there was one.

    - ``parts``: The attributes.
    - ``kind``: ``ctrl`` or ``data``.
    - ``from_chakra``: Whether the trace was read from a Chakra file, so that its dependencies have
      Chakra's kinds.
    - Returns first, ids: Where each node's ids begin, and the end of the last; int64, shapes (nodes
      + 1,) and (dependencies,).
    """
    src, dst = _dependencies(trace, kind, from_chakra=from_chakra)
    ids = trace.column("id")[src]
    kept = [_kept_dependencies(part, kind) for part in parts]
    node, place, other = (np.concatenate(columns) for columns in zip(*kept, strict=True))
    height = trace.nodes.height
    total = np.bincount(dst, minlength=height) + np.bincount(node, minlength=height)
    first = np.append(0, np.cumsum(total))
    where = first[node] + place
    if np.unique(where).size < where.size or (place >= total[node]).any():
        what = f"attributes {kind}_deps[...] have duplicate indices, or indices beyond the last"
        raise InputError("", what, "the trace may be damaged: read its source again")
    if where.size == 0:
        return first, ids
    out = np.empty(first[-1], dtype=np.int64)
    free = np.ones(out.size, dtype=np.bool_)
    free[where] = False
    out[where] = other
    out[free] = ids
    return first, out


def _dependencies(trace: Trace, kind: str, *, from_chakra: bool) -> tuple[Ints, Ints]:
    """Return source and destination rows of the dependencies, sorted by destination."""
    if from_chakra or trace.deps["kind"].is_in(["data", "ctrl"]).any():
        chosen = trace.deps.filter(pl.col("kind") == kind)
        src, dst = chosen["src"].to_numpy(), chosen["dst"].to_numpy()
    else:
        src, dst = _of_other_kinds(trace, kind)
    order = np.empty(dst.size, dtype=np.int64)
    group_rows(dst, np.empty(trace.nodes.height + 1, dtype=np.int64), order)
    return src[order], dst[order]


def _of_other_kinds(trace: Trace, kind: str) -> tuple[Ints, Ints]:
    """Return parents as control dependencies, and end-to-start dependencies as data."""
    parent = trace.column("parent")
    child = np.flatnonzero(parent >= 0)
    if kind == "ctrl":
        return parent[child], child
    # what ends no sooner than other work may have begun that work itself: in Chakra, where one
    # starts after the other's end, it is what follows on the thread that waits
    is_sync = pl.col("kind") == "sync"
    order = trace.deps.filter(pl.col("kind") == "order").select(waiting="src", next="dst")
    synchronized = (
        trace.deps.filter(is_sync)
        .join(order, left_on="dst", right_on="waiting", maintain_order="left")
        .select("src", dst="next")
    )
    others = trace.deps.filter(~is_sync & (pl.col("kind") != "call")).select("src", "dst")
    waits = pl.concat([others, synchronized]).filter(pl.col("src") < pl.col("dst"))
    waits = waits.unique(maintain_order=True)
    return waits["src"].to_numpy(), waits["dst"].to_numpy()


def _kept_dependencies(part: Part, kind: str) -> tuple[Ints, Ints, Ints]:
    """Return node, position in its list, and id of dependencies that are kept as attributes."""
    attributes = part.attributes
    places = {}
    for code, name in enumerate(attributes.names):
        if (found := _DEPENDENCY.fullmatch(name)) and found[1] == kind:
            places[code] = int(found[2])
    rows = np.zeros(0, dtype=np.int64)
    if places:
        is_kept = attributes.type == CODES["dependency"]
        rows = np.flatnonzero(is_kept & np.isin(attributes.name, list(places)))
    node = attributes.node[rows].astype(np.int64)
    if part.new_row is not None:
        node = part.new_row[node]
        rows, node = rows[node >= 0], node[node >= 0]
    place = np.array([places[int(code)] for code in attributes.name[rows]], dtype=np.int64)
    return node, place, attributes.value[rows]
