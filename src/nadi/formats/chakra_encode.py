"""Chakra's .et out of a trace: the same messages for one that came from an .et.

Of other traces, columns become attributes under the names that Chakra's tools read
(``is_cpu_op``, ``comm_type``, ``comm_size``, ...); parents become control dependencies,
everything else that is waited for becomes data dependencies. Chakra counts in
microseconds: the exact times stand beside, as ``start_ns`` and ``duration_ns``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.attributes import CODES, AttributeBuilder, Attributes, Part, combined
from nadi.errors import UsageError
from nadi.formats.chakra_decode import COLLECTIVES, stated_version
from nadi.issues import IssueLog
from nadi.kernels.attributes import place_spans
from nadi.kernels.chakra_attributes import ROLES
from nadi.kernels.chakra_encode import MessageColumns, encode_messages, measure_messages
from nadi.kernels.groups import group_rows
from nadi.schema import CATEGORIES, NODE_KINDS
from nadi.trace import Trace

__all__ = ["SCHEMAS", "encode", "given_ids", "start_and_duration", "with_chakra_attributes"]

SCHEMAS = ("0.0.4", "1.0.0")

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]
_PIECE = 1 << 22  # bytes of a file at a time
_AHEAD = 2  # pieces
_DEPENDENCY = re.compile(r"(ctrl|data)_deps\[(\d+)\]")
# columns of nodes that become numbers under Chakra's or PyTorch's name for them
_NUMBERS = (
    ("stream", "stream", "int64"),
    ("comm_bytes", "comm_size", "int64"),
    ("src", "comm_src", "int32"),
    ("dst", "comm_dst", "int32"),
    ("tag", "comm_tag", "int32"),
    ("is_async", "is_async", "int64"),
    ("flops", "num_ops", "int64"),
    ("bytes", "tensor_size", "uint64"),
    ("rf_id", "rf_id", "int64"),
    ("sequence", "sequence", "int64"),
    ("external_id", "external_id", "int64"),
    ("correlation", "correlation", "int64"),
    ("thread", "thread", "int64"),
    ("device", "device", "int64"),
    ("start", "start_ns", "int64"),
    ("duration", "duration_ns", "int64"),
    ("exclusive", "exclusive_ns", "int64"),
)


def encode(trace: Trace, log: IssueLog, *, schema: str = "") -> Iterator[memoryview]:
    """Write a trace as an .et.

    Parameters
    ----------
    schema
        One of :data:`SCHEMAS`; by default the one that the trace came with, else 0.0.4.

    Yields
    ------
    memoryview
        The file's content, piece by piece. O(bytes).
    """
    if schema and schema not in SCHEMAS:
        raise UsageError("", f"no schema is called {schema!r}", f"there are {', '.join(SCHEMAS)}")
    given = trace
    if stated_version(trace.attributes) is None:
        trace = with_chakra_attributes(trace, log, version=schema or SCHEMAS[0])
    attributes = _with_version(trace.attributes, schema)
    log.add(
        "chakra.unknown-key", "warning", int((attributes.type == CODES["json"]).sum()),
        "keys of a Chakra trace in JSON that its messages have no field for",
        "write JSON to keep them",
    )  # fmt: skip
    columns = _message_columns(trace, attributes, given)
    sizes = np.empty(trace.nodes.height + 1, dtype=np.int64)
    measure_messages(columns, sizes)
    yield from _pieces(columns, sizes)


def _pieces(columns: MessageColumns, sizes: _Ints) -> Iterator[memoryview]:
    """Encode piece by piece, the next ones in another thread while one is written."""
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


def _piece(columns: MessageColumns, sizes: _Ints, first: int, end: int, size: int) -> memoryview:
    out = np.empty(size, dtype=np.uint8)
    encode_messages(columns, sizes, first, end, out)
    return out.data


def _with_version(attributes: Attributes, schema: str) -> Attributes:
    stated = stated_version(attributes)
    if stated is not None and schema in ("", stated):
        return attributes
    builder = AttributeBuilder()
    builder.add(-1, "version", "operand", schema or SCHEMAS[0])
    is_version = (attributes.node == -1) & (attributes.type == CODES["operand"])
    return builder.build().joined(attributes.filtered(~is_version))


def with_chakra_attributes(trace: Trace, log: IssueLog, *, version: str = "") -> Trace:
    """Give a trace whose attributes say, in Chakra's words, what its columns say.

    Where a ``version`` is given, they say that too.
    """
    attributes = trace.attributes
    raw_events = attributes.rows_named("event")
    raw_events = raw_events[attributes.node[raw_events] < 0]
    log.add(
        "chakra.event", "info", raw_events.size,
        "events that are no operations, such as counters, have no place in a Chakra trace",
    )  # fmt: skip
    twice = _described_twice(attributes, trace.nodes.height)
    log.add(
        "chakra.args", "info", twice.size,
        "operations have raw args of a device trace beside what the host trace says of them: left "
        "out",
    )  # fmt: skip
    kept = np.ones(len(attributes), dtype=np.bool_)
    kept[raw_events] = kept[twice] = False
    attributes = _texts_as_strings(attributes)
    height = trace.nodes.height
    added = [_numbers(trace, attributes, *entry) for entry in _NUMBERS]
    is_cpu = trace.nodes["is_cpu"].to_numpy()
    added.append(_Numbers("is_cpu_op", "bool", np.arange(height), is_cpu.astype(np.int64)))
    added.append(_comm_types(trace))
    parts = [part.without(attributes, height).attributes() for part in added]
    texts = _texts(trace, attributes, version)
    rounded = sum(np.maximum(trace.column(c), 0) % 1000 for c in ("start", "duration"))
    log.add(
        "chakra.rounded", "info", int(np.count_nonzero(rounded)),
        "operations whose times are no whole microseconds: rounded, and exact in the attributes "
        "start_ns and duration_ns",
    )  # fmt: skip
    kinds = trace.deps.filter(~pl.col("kind").is_in(["data", "ctrl"])).height
    log.add(
        "chakra.dependency-kind", "info", kinds,
        "dependencies become data or control dependencies; what kind they were is not written",
    )  # fmt: skip
    every = [Part(attributes, is_kept=kept), *map(Part, parts), Part(texts)]
    return replace(trace, given_attributes=combined([*every, Part(_category_attributes(trace))]))


def _described_twice(attributes: Attributes, height: int) -> _Ints:
    """Give the rows of raw args of nodes that have what PyTorch's execution trace says."""
    args = attributes.rows_named("args")
    of_host = np.zeros(height + 1, dtype=np.bool_)  # the last stands for the trace itself
    of_host[attributes.node[attributes.rows_named("op_schema")]] = True
    return args[of_host[attributes.node[args]]]


def _texts_as_strings(attributes: Attributes) -> Attributes:
    """Give raw JSON, and operands that Chakra has no field for, as attributes of type string."""
    is_role = np.isin(attributes.name, [
        code for code, name in enumerate(attributes.names) if name in ROLES
    ])  # fmt: skip
    to_string = (attributes.type == CODES["json"]) | (
        (attributes.type == CODES["operand"]) & ~is_role
    )
    types = np.where(to_string, np.uint8(CODES["string"]), attributes.type)
    return replace(attributes, type=types)


@dataclass(frozen=True)
class _Numbers:
    """Attributes of one name and type: a number for each of some nodes."""

    name: str
    type: str
    node: _Ints
    value: _Ints

    def without(self, attributes: Attributes, height: int) -> _Numbers:
        """Leave out the nodes that have an attribute of this name."""
        has = np.zeros(height + 1, dtype=np.bool_)  # the last stands for the trace itself
        has[attributes.node[attributes.rows_named(self.name)]] = True
        kept = ~has[self.node]
        return _Numbers(self.name, self.type, self.node[kept], self.value[kept])

    def attributes(self) -> Attributes:
        """Give them as they are kept."""
        size = self.node.size
        return Attributes(
            node=self.node.astype(np.int32),
            name=np.zeros(size, dtype=np.int32),
            type=np.full(size, CODES[self.type], dtype=np.uint8),
            value=self.value,
            length=np.zeros(size, dtype=np.int32),
            names=(self.name,),
            buffers=(),
        )


def _numbers(
    trace: Trace, attributes: Attributes, column: str, name: str, type_name: str
) -> _Numbers:
    value = trace.column(column)
    rows = np.flatnonzero(value >= 0)
    if type_name == "int32" and value.max(initial=0) >= 2**31:
        type_name = "int64"
    return _Numbers(name, type_name, rows, value[rows])


def _comm_types(trace: Trace) -> _Numbers:
    types = trace.nodes["comm_type"].cast(pl.String)
    number = types.replace_strict(
        {name: COLLECTIVES.index(name) for name in COLLECTIVES}, default=-1
    ).to_numpy()
    rows = np.flatnonzero((number >= 0) & (trace.nodes["kind"] == "COMM_COLL").to_numpy())
    return _Numbers("comm_type", "int64", rows, number[rows].astype(np.int64))


def _texts(trace: Trace, attributes: Attributes, version: str) -> Attributes:
    """Give the groups of communication, and what is said of the whole trace."""
    builder = AttributeBuilder()
    if version:
        builder.add(-1, "version", "operand", version)
    stated = attributes.of(-1)
    for name in ("rank", "world_size"):
        if getattr(trace, name) >= 0 and name not in stated:
            builder.add(-1, name, "int64", getattr(trace, name))
    if trace.process >= 0 and stated.get("pid") != trace.process:
        # the host trace may be of another run of the program, with a pid of its own
        name = "process" if "pid" in stated else "pid"
        builder.add(-1, name, "uint64", trace.process)
    if trace.groups.height and "process_groups" not in stated:
        groups = [
            {"pg_name": name, "pg_desc": about, "backend_config": backend, "ranks": ranks}
            for name, about, ranks, backend in trace.groups.iter_rows()
        ]
        builder.add(-1, "process_groups", "string", msgspec.json.encode(groups).decode())
    group = trace.column("group")
    names = trace.groups["name"].to_list()
    has = np.zeros(trace.nodes.height + 1, dtype=np.bool_)
    has[attributes.node[attributes.rows_named("pg_name")]] = True
    for node in np.flatnonzero((group >= 0) & ~has[:-1]).tolist():
        builder.add(node, "pg_name", "string", names[group[node]])
    return builder.build()


def _category_attributes(trace: Trace) -> Attributes:
    category = trace.nodes["category"]
    names = list(CATEGORIES)
    sizes = np.array([len(name) for name in names])
    code = category.to_physical().to_numpy()
    height = trace.nodes.height
    return Attributes(
        node=np.arange(height, dtype=np.int32),
        name=np.zeros(height, dtype=np.int32),
        type=np.full(height, CODES["string"], dtype=np.uint8),
        value=(np.cumsum(sizes) - sizes)[code],
        length=sizes[code].astype(np.int32),
        names=("category",),
        buffers=(np.frombuffer("".join(names).encode(), dtype=np.uint8).copy(),),
    )


def _message_columns(trace: Trace, attributes: Attributes, given: Trace) -> MessageColumns:
    # whether dependencies are Chakra's own, the version tells that a trace came with
    node_names = trace.nodes["name"].unique().cast(pl.String).to_list()
    names, first = _concatenated([*node_names, *attributes.names])
    lengths = np.diff(first)
    ctrl_first, ctrl = given_ids(given, attributes, "ctrl")
    data_first, data = given_ids(given, attributes, "data")
    value, buffer, rest = _buffers(attributes, is_ours=attributes is not given.attributes)
    columns = MessageColumns(
        nodes=_node_numbers(trace, node_names, first, lengths),
        ctrl_first=ctrl_first,
        ctrl=ctrl,
        data_first=data_first,
        data=data,
        attr_first=np.searchsorted(attributes.node, np.arange(-1, trace.nodes.height + 1)),
        attr_name=attributes.name,
        attr_type=attributes.type,
        attr_value=value,
        attr_length=attributes.length,
        attr_size=np.empty(len(attributes), dtype=np.int32),
        name_at=first[len(node_names) : -1],
        name_length=lengths[len(node_names) :],
        name_role=np.array(
            [ROLES.index(name) + 1 if name in ROLES else 0 for name in attributes.names],
            dtype=np.int64,
        ),
        names=names,
        buffer=buffer,
        rest=rest,
    )
    # kernels compile anew for read-only arrays, which polars and files give
    return MessageColumns(*(np.require(column, requirements=["C", "W"]) for column in columns))


def _buffers(attributes: Attributes, *, is_ours: bool) -> tuple[_Ints, _Bytes, _Bytes]:
    """Give the first buffer as it is, and of the others what spans lie in, with new values.

    The first is most of all: the file of the host, which is not to be copied. The attributes
    are changed if they are ``ours``, and serve nothing else.
    """
    if len(attributes.buffers) == 1:
        return attributes.value, attributes.buffers[0], np.empty(0, dtype=np.uint8)
    ends = np.cumsum([buffer.size for buffer in attributes.buffers])
    begin = int(ends[0])
    rows = np.flatnonzero(attributes.is_span & (attributes.value >= begin))
    at, length = attributes.value[rows], attributes.length[rows].astype(np.int64)
    first = np.cumsum(length) - length
    rest = np.empty(int(length.sum()), dtype=np.uint8)
    number = np.searchsorted(ends, at, side="right")
    for one in np.unique(number[length > 0]).tolist():
        mine = np.flatnonzero(number == one)
        source = np.require(attributes.buffers[one], requirements=["C", "W"])
        place_spans(source, at[mine] - int(ends[one - 1]), length[mine], first[mine], rest)
    value = attributes.value if is_ours else attributes.value.copy()
    value[rows] = begin + first
    return value, attributes.buffers[0], rest


def _node_numbers(trace: Trace, names: list[str], first: _Ints, lengths: _Ints) -> _Ints:
    kinds = {name: number for number, name in enumerate(NODE_KINDS)}
    codes = {name: code for code, name in enumerate(names)}
    name = trace.nodes["name"].cast(pl.String).replace_strict(
        codes, default=0, return_dtype=pl.Int64
    ).to_numpy()  # fmt: skip
    out = np.empty((trace.nodes.height, 6), dtype=np.int64)
    out[:, 0] = trace.column("id")
    out[:, 1] = trace.nodes["kind"].cast(pl.String).replace_strict(kinds).to_numpy()
    out[:, 2] = first[name]
    out[:, 3] = lengths[name]
    out[:, 4], out[:, 5] = start_and_duration(trace)
    return out


def start_and_duration(trace: Trace) -> tuple[_Ints, _Ints]:
    """Give what Chakra calls start and duration of each node, in us; 0 where unknown."""
    exclusive, duration = trace.column("exclusive"), trace.column("duration")
    own = duration
    if "duration_ns" in trace.attributes.names:  # which keeps what is written otherwise
        own = np.where(exclusive >= 0, exclusive, duration)
    return _microseconds(trace.column("start")), _microseconds(own)


def _microseconds(nanoseconds: _Ints) -> _Ints:
    """Round to microseconds, halves up; what is missing becomes 0, Chakra's word for it."""
    known = np.maximum(nanoseconds, 0)
    return known // 1000 + (known % 1000 >= 500)


def _concatenated(texts: list[str]) -> tuple[npt.NDArray[np.uint8], _Ints]:
    encoded = [text.encode(errors="replace") for text in texts]
    first = np.cumsum([0, *(len(text) for text in encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(), first


def given_ids(trace: Trace, attributes: Attributes, kind: str) -> tuple[_Ints, _Ints]:
    """Give the ids that each node waits for, each in its place of the file where it had one.

    Returns
    -------
    first, ids
        Where each node's ids begin, and after the last where they end; int64, shapes
        (nodes + 1,) and (dependencies,).
    """
    src, dst = _dependencies(trace, kind)
    ids = trace.column("id")[src]
    node, place, other = _kept_dependencies(attributes, kind)
    height = trace.nodes.height
    total = np.bincount(dst, minlength=height) + np.bincount(node, minlength=height)
    first = np.append(0, np.cumsum(total))
    where = first[node] + place
    if np.unique(where).size < where.size or (place >= total[node]).any():
        raise ValueError(f"attributes {kind}_deps[...] stand in each other's place")
    out = np.empty(first[-1], dtype=np.int64)
    free = np.ones(out.size, dtype=np.bool_)
    free[where] = False
    out[where] = other
    out[free] = ids
    return first, out


def _dependencies(trace: Trace, kind: str) -> tuple[_Ints, _Ints]:
    """Give the rows waited for and those that wait, in order of the latter."""
    if (
        trace.deps["kind"].is_in(["data", "ctrl"]).any()
        or stated_version(trace.attributes) is not None
    ):
        chosen = trace.deps.filter(pl.col("kind") == kind)
        src, dst = chosen["src"].to_numpy(), chosen["dst"].to_numpy()
    else:
        src, dst = _of_other_kinds(trace, kind)
    order = np.empty(dst.size, dtype=np.int64)
    group_rows(dst, np.empty(trace.nodes.height + 1, dtype=np.int64), order)
    return src[order], dst[order]


def _of_other_kinds(trace: Trace, kind: str) -> tuple[_Ints, _Ints]:
    """Give parents as control dependencies, and as data those that end before others start."""
    parent = trace.column("parent")
    child = np.flatnonzero(parent >= 0)
    if kind == "ctrl":
        return parent[child], child
    # what ends no sooner than other work may have begun that work itself: in Chakra, where one
    # starts after the other's end, it is what follows on the thread that waits
    is_sync = pl.col("kind") == "sync"
    order = trace.deps.filter(pl.col("kind") == "order").select(waiting="src", next="dst")
    synchronised = (
        trace.deps.filter(is_sync)
        .join(order, left_on="dst", right_on="waiting", maintain_order="left")
        .select("src", dst="next")
    )
    others = trace.deps.filter(~is_sync & (pl.col("kind") != "call")).select("src", "dst")
    waits = pl.concat([others, synchronised]).filter(pl.col("src") < pl.col("dst"))
    waits = waits.unique(maintain_order=True)
    return waits["src"].to_numpy(), waits["dst"].to_numpy()


def _kept_dependencies(attributes: Attributes, kind: str) -> tuple[_Ints, _Ints, _Ints]:
    """Give node, place in its list, and id of dependencies that are kept as attributes."""
    places = {}
    for code, name in enumerate(attributes.names):
        if (found := _DEPENDENCY.fullmatch(name)) and found[1] == kind:
            places[code] = int(found[2])
    is_kept = (attributes.type == CODES["dependency"]) & np.isin(attributes.name, list(places))
    rows = np.flatnonzero(is_kept)
    place = np.array([places[int(code)] for code in attributes.name[rows]], dtype=np.int64)
    return attributes.node[rows].astype(np.int64), place, attributes.value[rows]
