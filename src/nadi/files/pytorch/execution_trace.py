"""Read PyTorch execution traces: the operations of the host, with tensors and process groups.

PyTorch writes them without times. Chakra's linker adds times and device work in the same
layout; this module also reads such linked traces.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.communication_names import (
    comm_kind,
    comm_type_of_call,
    comm_type_of_host,
    comm_type_of_kernel,
)
from nadi.files.files import RawFile
from nadi.files.json_file import Span, Texts, decode_span, walk_members
from nadi.files.kineto.kineto_events import CATEGORY_WORDS
from nadi.files.pytorch.host_nodes import HostNodes, read_node_list, tensor_bytes
from nadi.files.pytorch.record_param_comms import GROUP_INIT, with_param_comms
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import AttributeBuilder, Attributes, LazyAttributes
from nadi.trace.groups import Group, group_columns
from nadi.trace.issues import IssueLog
from nadi.trace.operations import MAX_BYTES
from nadi.trace.schema import CATEGORIES, COMM_TYPES, DEPS, GROUPS, NODE_KINDS, NODES, ON_DEVICE
from nadi.trace.trace import Provenance, Trace
from nadi.version import __version__

KNOWN_SCHEMAS = (
    "1.0.1",
    "1.0.2-chakra.0.0.4",
    "1.0.3-chakra.0.0.4",
    "1.1.0-chakra.0.0.4",
    "1.1.1-chakra.0.0.4",
    "1.1.1-chakra.1.0.0",
)
_USER_SCOPE = 7  # of PyTorch's RecordScope
_STRUCTURE = ("[pytorch|profiler|execution_trace|", "[pytorch|profiler|execution_graph|")
_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_COMM = {comm_type: code for code, comm_type in enumerate(COMM_TYPES)}
_KINDS = np.array([
    NODE_KINDS.index(kind) for kind in (*map(comm_kind, COMM_TYPES), "COMP", "METADATA")
])  # fmt: skip
_DEVICE_CODES = [_CODE[c] for c in ON_DEVICE]
_TIMESTAMPS = ("pid", "start_ts", "finish_ts")
_TEXTS = ("schema", "time")

_Reference = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]
_schema_decoder = msgspec.json.Decoder(str)
_pid_decoder = msgspec.json.Decoder(_Reference)
_header_decoder: msgspec.json.Decoder[int | str] = msgspec.json.Decoder(int | str)
_values_decoder = msgspec.json.Decoder(list[Any])
_groups_decoder = msgspec.json.Decoder(list[Group])


@dataclass(frozen=True, eq=False)
class _Rows:
    """The row of each node in the trace, and the arrays that determine it."""

    order: Ints  # int64, shape (nodes,): the node of each row, numbered as in the file
    new_row: Ints  # int64, shape (nodes,): the row of each node
    # by_id, ids: int64, shape (nodes,): the nodes in ascending order of id, and their ids
    by_id: Ints
    ids: Ints
    category: Ints  # int64, shape (nodes,): position in ``schema.CATEGORIES``, in the file's order
    is_structure: Bools  # bool, shape (nodes,): process, threads and groups, in the file's order

    def of_ids(self, wanted: Ints) -> Ints:
        """Return the rows of nodes by their ids; -1 if there is no such node."""
        if self.ids.size == 0:
            return np.full(wanted.size, -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.ids, wanted), self.ids.size - 1)
        return np.where(self.ids[place] == wanted, self.new_row[self.by_id[place]], -1)


def decode(raw: RawFile) -> Trace:
    """Read a PyTorch execution trace, linked or not.

    - Returns: Without times: nodes in ascending order of id, and no dependencies but ``parent``.
      Linked: nodes in order of start, those without a time first, and the dependencies between
      threads that the file states. The process groups that it initializes; values without a column
      as attributes. O(bytes + nodes log nodes).
    - Raises FormatError if the JSON is broken or an id occurs twice; the error states the place.
    """
    lists: list[HostNodes] = []

    def read_nodes(at: int) -> int:
        nodes, end = read_node_list(raw, at, CATEGORY_WORDS)
        lists[:] = [nodes]
        return end

    members = walk_members(raw, {"nodes": read_nodes})
    schema, process = _header(raw, members, bool(lists))
    (nodes,) = lists
    log = IssueLog()
    log.add(
        "et.schema", "warning", int(schema not in KNOWN_SCHEMAS),
        f"schema {schema!r} is unknown to this version of Nadi", "check the results",
    )  # fmt: skip
    _check_ends(nodes)
    names = nodes.texts()
    rows = _rows(nodes, names)
    parent, lost_parents = _parents(nodes, rows, log)
    deps, lost_deps = _thread_deps(nodes, rows, log)
    lost = {"ctrl_deps[0]": lost_parents, "inter_thread_dep": lost_deps}
    rest, new_row = nodes.without_columns(), rows.new_row
    columns = {"parent": parent, **_columns(nodes, names, rows)}
    trace = Trace(
        nodes=NODES.build(rows.order.size, columns),
        deps=deps,
        groups=_groups_table(nodes, names, rows),
        issues=log.table(),
        provenance=Provenance(__version__, (raw.source(f"PyTorch ET {schema}"),)),
        process=process,
        given_attributes=LazyAttributes(lambda: _attributes(rest, members, lost, new_row)),
    )
    trace = trace.with_codes(columns).with_names(names.codes[rows.order], names.unique)
    return with_param_comms(trace)


def _header(raw: RawFile, members: list[tuple[str, Span]], has_nodes: bool) -> tuple[str, int]:
    """Return the schema and the process id."""
    spans = dict(members)
    for key, is_there in (("schema", "schema" in spans), ("nodes", has_nodes)):
        if not is_there:
            raise FormatError(
                raw.name, f"object missing required field `{key}`", "record the trace again"
            )
    schema = decode_span(raw, spans["schema"], _schema_decoder, "$.schema")
    pid = decode_span(raw, spans["pid"], _pid_decoder, "$.pid") if "pid" in spans else -1
    return schema, pid


def _check_ends(nodes: HostNodes) -> None:
    """Raise FormatError if a time's end does not fit a 64-bit integer of nanoseconds."""
    too_late = nodes.column("start") > 2**63 - 1 - np.maximum(nodes.column("duration"), 0)
    if too_late.any():
        raise FormatError(
            nodes.raw.name,
            f"inclusive_dur is too long - at $.nodes[{np.argmax(too_late)}].inclusive_dur",
            "link the trace again",
        )


def _rows(nodes: HostNodes, names: Texts) -> _Rows:
    """Sort the nodes: those without a time by id, then the others by time."""
    ids = nodes.column("id")
    by_id = np.argsort(ids, kind="stable")
    in_order = ids[by_id]
    if (repeated := np.flatnonzero(in_order[1:] == in_order[:-1])).size:
        raise FormatError(
            nodes.raw.name, f"node id {in_order[repeated[0]]} occurs twice; ids must be unique",
            "check whether two files were concatenated",
        )  # fmt: skip
    is_structure = names.numbers(_is_structure) > 0
    host = np.where(nodes.column("scope") == _USER_SCOPE, _CODE["annotation"], _CODE["operator"])
    stated = nodes.column("category")
    known = (stated >= 0) & (stated < len(CATEGORIES))
    category = np.where(known, stated, np.where(is_structure, _CODE["metadata"], host))
    start = nodes.column("start")[by_id]
    order = by_id
    if (start >= 0).any():
        order = by_id[np.lexsort((category[by_id], -nodes.column("duration")[by_id], start))]
        untimed = start.size - int((start >= 0).sum())
        order[:untimed] = by_id[start < 0]
    new_row = np.empty(ids.size, dtype=np.int64)
    new_row[order] = np.arange(ids.size)
    return _Rows(order, new_row, by_id, in_order, category, is_structure)


def _is_structure(name: str) -> int:
    """Return 1 if a name is that of the process, a thread or groups, else 0."""
    return int(name == GROUP_INIT or name.startswith(_STRUCTURE))


def _parents(nodes: HostNodes, rows: _Rows, log: IssueLog) -> tuple[Ints, Ints]:
    """Turn ids of parents into rows; the root is recorded as its own parent.

    - Returns: The row of each row's parent, or -1; and shape (lost, 2), the nodes, numbered as in
      the file, whose parent is not usable, and the id that they name.
    """
    stated = nodes.column("ctrl_deps")
    ids = np.where(stated >= 0, stated, nodes.column("parent"))[rows.order]
    parent = rows.of_ids(ids)
    own_rows = np.arange(ids.size)
    log.add(
        "et.parent-missing", "warning", int(((parent < 0) & (ids >= 0)).sum()),
        "nodes name a parent that is not in the file", "they are kept without a parent",
    )  # fmt: skip
    log.add(
        "et.parent-later", "warning", int((parent > own_rows).sum()),
        "nodes name a parent with a higher id or a later start", "they are kept without a parent",
    )  # fmt: skip
    is_known = (parent >= 0) & (parent < own_rows)
    lost = np.flatnonzero(~is_known & (ids >= 0))
    return np.where(is_known, parent, -1), np.stack([rows.order[lost], ids[lost]], axis=1)


def _thread_deps(nodes: HostNodes, rows: _Rows, log: IssueLog) -> tuple[pl.DataFrame, Ints]:
    """Read the dependencies between threads; returns them, and unusable ones as `_parents`."""
    ids = nodes.column("thread_dep")[rows.order]
    dst = np.flatnonzero(ids >= 0)
    src = rows.of_ids(ids[dst])
    start = nodes.column("start")[rows.order]
    fits = (src >= 0) & (src != dst) & (start[src] >= 0) & (start[src] <= start[dst])
    lost = dst[~fits]
    log.add(
        "et.thread-dependency", "warning", lost.size,
        "nodes depend on another thread's node that is missing or starts later",
        "they are kept without this dependency",
    )  # fmt: skip
    columns = {"src": src[fits], "dst": dst[fits], "kind": "thread"}
    deps = DEPS.build(int(fits.sum()), columns)
    return deps, np.stack([rows.order[lost], ids[lost]], axis=1)


def _columns(nodes: HostNodes, names: Texts, rows: _Rows) -> dict[str, Any]:
    """Return the columns of the nodes except the parent, in the order of rows."""
    order = rows.order
    category = rows.category[order]
    on_device = np.isin(category, _DEVICE_CODES)
    names = Texts(names.codes[order], names.unique)
    comm_type = _comm_types(names, category, bool((nodes.column("start") >= 0).any()))
    kind = np.where(on_device, comm_type, len(COMM_TYPES))
    kind[rows.is_structure[order]] = len(COMM_TYPES) + 1
    rf_id, duration = nodes.column("rf_id")[order], nodes.column("duration")[order]
    comm_bytes = np.full(order.size, -1, dtype=np.int64)
    for row in np.flatnonzero(comm_type != _COMM["none"]).tolist():
        sizes = tensor_bytes(_values(nodes, int(order[row])))
        comm_bytes[row] = min(sum(sizes), MAX_BYTES)
    return {
        "id": nodes.column("id")[order],
        "name": names.series(),
        "kind": _KINDS[kind],
        "category": category,
        "start": nodes.column("start")[order],
        "duration": duration,
        "exclusive": np.minimum(nodes.column("exclusive")[order], duration),
        "device": nodes.column("device")[order],
        "stream": nodes.column("stream")[order],
        "is_cpu": ~on_device,
        "rf_id": np.where(rf_id > 0, rf_id, -1),
        "sequence": nodes.column("sequence")[order],
        "comm_type": comm_type,
        "comm_bytes": comm_bytes,
    }


def _comm_types(names: Texts, category: Ints, is_linked: bool) -> Ints:
    """Find the communications, with one lookup per name; in linked traces the device work."""
    none = _COMM["none"]
    of_host, of_call = _comm_of_names(names.unique)[:, names.codes]
    found: Ints = np.where(of_call != none, of_call, of_host)
    if is_linked:
        of_kernel = names.numbers(lambda name: _COMM[comm_type_of_kernel(name)])
        works = names.numbers(lambda name: int(name.startswith("gloo:"))) > 0
        of_host = np.where((category == _CODE["annotation"]) & works, of_host, none)
        found = np.where(category == _CODE["kernel"], of_kernel, of_host)
    return found


@lru_cache(64)
def _comm_of_names(names: tuple[str, ...]) -> Ints:
    """Return the codes of what annotations and calls of these names do; int64, shape (2, names)."""
    told = (comm_type_of_host, comm_type_of_call)
    return np.array([[_COMM[one(name)] for name in names] for one in told], dtype=np.int64)


def _values(nodes: HostNodes, node: int) -> list[Any]:
    """Return the values of a node's inputs."""
    content = nodes.span("values", node)
    try:
        return _values_decoder.decode(content) if content else []
    except (msgspec.MsgspecError, RecursionError) as error:
        number = int(nodes.column("id")[node])
        raise FormatError(nodes.raw.name, f"node {number}, inputs: {error}") from None


def _groups_table(nodes: HostNodes, names: Texts, rows: _Rows) -> pl.DataFrame:
    """Read the groups from the text operand of each process group initialization."""
    groups: dict[str, Group] = {}
    code = names.unique.index(GROUP_INIT) if GROUP_INIT in names.unique else -1
    for node in rows.by_id[names.codes[rows.by_id] == code].tolist():
        for text in _values(nodes, node):
            try:
                found = _groups_decoder.decode(text)
            except (msgspec.MsgspecError, TypeError, RecursionError):
                raise FormatError(
                    nodes.raw.name,
                    f"node {nodes.column('id')[node]} ({GROUP_INIT}): expected a JSON list of "
                    f"process groups, got {str(text)[:40]!r}",
                    "record the trace again",
                ) from None
            for group in found:
                groups.setdefault(group.name, group)
    return GROUPS.build(len(groups), group_columns(list(groups.values())))


def _header_value(content: bytes) -> Any:
    try:
        return _header_decoder.decode(content)
    except msgspec.MsgspecError:
        return None  # of another type: it is kept as it stands


def _attributes(
    nodes: HostNodes, members: list[tuple[str, Span]], lost: dict[str, Ints], new_row: Ints
) -> Attributes:
    """Return values without a column: of the file, and of the nodes by row."""
    builder = AttributeBuilder()
    for key, span in members:
        content = nodes.raw.content[span.at : span.end].tobytes()
        value = _header_value(content) if key in (*_TIMESTAMPS, *_TEXTS) else None
        if key in _TIMESTAMPS and isinstance(value, int) and -(2**63) <= value < 2**64:
            builder.add(-1, key, "uint64" if value >= 0 else "int64", value)
        elif key in _TEXTS and isinstance(value, str):
            builder.add(-1, key, "string", value)
        else:
            builder.add(-1, key, "json", content)
    for name, pairs in lost.items():
        for node, number in pairs.tolist():
            builder.add(node, name, "dependency", number)
    return nodes.attributes(new_row, builder.build())
