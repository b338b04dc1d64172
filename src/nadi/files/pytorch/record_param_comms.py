"""Read communications from PyTorch's nodes ``record_param_comms``.

Every call of NCCL or a similar library records such a node. Its inputs are

    [tensors,] sequence, group, rank, name, in splits, out splits [, size]
    [tensors,] sequence, group, rank, name, in splits, out splits, start, stride, size [, async]

where the group is a number that is valid within its process (schemas 1.0.1 and 1.0.2),
or a pair of its name and description; the sequence may be a pair too; the rank is the
root's or the peer's for calls with one, counted within the group; and the members'
global ranks are start, start + stride, ... (stride -1: not regular). From schema 1.1.0 on,
attributes state most of it again. Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp,
ProcessGroupNCCL.cpp and torch/csrc/profiler/util.cpp (saveNcclMeta) of PyTorch.

Arguments of calls such as ``c10d::broadcast_``: root or peer, tag, asynchronous or not.

The host trace holds the arguments of a call by position, and their names in ``op_schema``:

    c10d::send(Tensor[] tensors, ... process_group, int dst, int tag) -> ...

Ranks are counted within the process group, which is an object without a name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_text
from nadi.files.pytorch.host_nodes import tensor_bytes
from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes
from nadi.trace.collectives import FROM_ROOT, TO_ROOT
from nadi.trace.operands import InputLeaf, input_leaves
from nadi.trace.operations import ITEMSIZE, MAX_BYTES
from nadi.trace.schema import COMM_TYPES, GROUPS, NODES
from nadi.trace.trace import Trace

GROUP_INIT = "## process_group:init ##"
NODE_NAME = "record_param_comms"
PARAM_COMMS: Mapping[str, pl.DataType] = {
    "node": pl.Int64(),
    "collective": pl.String(),
    "comm_type": pl.Enum(COMM_TYPES),
    "comm_bytes": pl.Int64(),
    "group": pl.String(),
    "group_size": pl.Int64(),
    "ranks": pl.List(pl.Int64),
    "group_rank": pl.Int64(),
    "src": pl.Int64(),
    "dst": pl.Int64(),
    "tag": pl.Int64(),
    "is_async": pl.Int64(),
}
_MAX_SIZE = 2**17  # ranks of a group, as for the groups of a file
_FLAGS = {"1": 1, "true": 1, "0": 0, "false": 0}


_Arguments = dict[int, list[InputLeaf]]  # by position


@dataclass
class _Groups:
    """The groups of a process: ranks by name, and names by number within the process."""

    ranks: dict[str, list[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


def param_comms(rows: Ints, attributes: Attributes, init_rows: Sequence[int] = ()) -> pl.DataFrame:
    """Read the communications of a host trace.

    Parameters
    ----------
    rows
        int64: rows of the nodes named :data:`NODE_NAME`.
    attributes
        The trace's; only those of ``rows`` and ``init_rows`` are read.
    init_rows
        Rows of the nodes that set up process groups (``## process_group:init ##``), which
        name groups that are otherwise known only by number, and state irregular ranks.

    Returns
    -------
    polars.DataFrame
        Columns as in :data:`PARAM_COMMS`, one row per row of ``rows``, in their order.

        - ``collective``: the call's name as recorded. ``comm_type`` is ``none`` for calls
          that send nothing (wait, init, startCoalescing); all else is missing then.
        - ``comm_bytes``: ``in_msg_nelems`` times the size of ``dtype`` where the attributes
          have both; else the bytes of the input tensors; 0 without any (barrier).
        - ``group``: the group's name; "" if only a number is known.
        - ``group_size``, ``ranks``: size, -1 if not stated; global ranks, in the group's
          order, empty if they are not stated.
        - ``group_rank``: the rank stated, counted within the group; -1 if none is.
        - ``src``, ``dst``: global ranks of a root or a peer; -1 where a call has none, or
          the ranks are not known.
        - ``tag``: always -1: PyTorch does not record it.
        - ``is_async``: 1 or 0; -1 if not stated, as in all schemas known so far.

        O(attributes + rows), some 50 us a row.
    """
    return pl.DataFrame(
        _records(rows, attributes, init_rows), schema=dict(PARAM_COMMS), orient="row"
    )


# attributes of a node that are not its operands
_STATED = (
    "collective_name", "dtype", "global_rank_start", "global_rank_stride", "in_msg_nelems",
    "is_asynchronized_op", "pg_name", "pg_size",
)  # fmt: skip


class _Record(NamedTuple):
    """A row of :func:`param_comms`."""

    node: int
    collective: str
    comm_type: str
    comm_bytes: int
    group: str
    group_size: int
    ranks: list[int]
    group_rank: int
    src: int
    dst: int
    tag: int
    is_async: int


def _records(rows: Ints, attributes: Attributes, init_rows: Sequence[int]) -> list[_Record]:
    looked_at = np.concatenate([rows, np.array(init_rows, dtype=np.int64)])
    found = _arguments(attributes.of_nodes(looked_at))
    groups = _groups(found.get(row, {}) for row in init_rows)
    return [_record(row, found.get(row, {}), attributes, groups) for row in rows.tolist()]


def _arguments(attributes: Attributes) -> dict[int, _Arguments]:
    """Return the inputs of each node."""
    found: dict[int, _Arguments] = {}
    for node, position, leaf in input_leaves(attributes):
        found.setdefault(node, {}).setdefault(position, []).append(leaf)
    return found


def _groups(inits: Iterable[_Arguments]) -> _Groups:
    groups = _Groups()
    for arguments in inits:
        for leaf in arguments.get(0, []):
            for group in _group_texts(leaf.value):
                name = str(group.get("pg_name", ""))
                size = _integer(group.get("group_size"))
                ranks = group.get("ranks")
                if isinstance(ranks, list) and ranks:
                    groups.ranks.setdefault(name, [_integer(rank) for rank in ranks])
                elif 0 < size <= _MAX_SIZE:  # no ranks stands for all ranks
                    groups.ranks.setdefault(name, list(range(size)))
                groups.names.setdefault(_integer(group.get("backend_id")), name)
    groups.names.pop(-1, None)
    return groups


def _group_texts(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
    except ValueError:
        return []  # the reader of groups is the one to complain
    return [g for g in found if isinstance(g, dict)] if isinstance(found, list) else []


def _record(row: int, arguments: _Arguments, attributes: Attributes, groups: _Groups) -> _Record:
    stated = attributes.of(row, *_STATED)
    name_at = max(
        (at for at, leaves in arguments.items() if leaves[0][:2] == (-1, "String")), default=-1
    )
    collective = str(stated.get("collective_name") or _value(arguments, name_at))
    comm_type = comm_type_of_text(collective)
    if comm_type == "none":
        return _Record(row, collective, comm_type, -1, "", -1, [], -1, -1, -1, -1, -1)
    start, stride, size, is_async = _members(stated, arguments, name_at)
    group = str(stated.get("pg_name", "")) or _group_name(arguments, name_at, groups)
    ranks = groups.ranks.get(group, [])
    if start >= 0 and 0 < size <= _MAX_SIZE and (stride > 0 or size == 1):
        ranks = [start + max(stride, 1) * number for number in range(size)]
    elif 0 <= size != len(ranks):
        ranks = []  # another group of that name
    rank = _integer(_value(arguments, name_at - 1)) if name_at > 0 else -1
    src, dst = _ends(collective, comm_type, ranks[rank] if 0 <= rank < len(ranks) else -1)
    sent = _bytes(stated, arguments)
    return _Record(
        row, collective, comm_type, sent, group, size if size >= 0 else len(ranks) or -1, ranks,
        rank, src, dst, -1, is_async,
    )  # fmt: skip


def _value(arguments: _Arguments, position: int) -> str:
    """Return an argument that is not a list; "" if it is a list or missing."""
    leaves = arguments.get(position, [])
    return leaves[0].value if leaves and leaves[0].item < 0 else ""


def _integer(value: Any) -> int:
    """Read an integer; -1 if the value is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return -1
    return number if abs(number) < 2**63 else -1


def _members(
    stated: dict[str, Any], arguments: _Arguments, name_at: int
) -> tuple[int, int, int, int]:
    """Return start and stride of the ranks, the group's size, and whether the call returns at once.

    They follow the name and two lists of splits; each is -1 if not stated.
    """
    values = [_value(arguments, at) for at in range(name_at + 3, max(arguments, default=-1) + 1)]
    start = stride = size = -1
    if name_at >= 0 and len(values) == 1:
        size = _integer(values[0])
    elif name_at >= 0 and len(values) >= 3:
        start, stride, size = (_integer(value) for value in values[:3])
    is_async = _FLAGS.get(values[3], -1) if name_at >= 0 and len(values) > 3 else -1
    is_async = _FLAGS.get(str(stated.get("is_asynchronized_op", "")).lower(), is_async)
    return (
        _integer(stated.get("global_rank_start", start)),
        _integer(stated.get("global_rank_stride", stride)),
        _integer(stated.get("pg_size", size)),
        is_async,
    )


def _group_name(arguments: _Arguments, name_at: int, groups: _Groups) -> str:
    """Find the group's name in the second argument before the call's name."""
    leaves = arguments.get(name_at - 2, [])
    if not leaves:
        return ""
    if leaves[0].type == "String":  # alone, or before a description
        return leaves[0].value
    return groups.names.get(_integer(leaves[0].value), "")


def _ends(collective: str, comm_type: str, rank: int) -> tuple[int, int]:
    """Return the ranks that send and receive: root or peer of the calls that have one."""
    squeezed = collective.lower().replace("_", "")
    if comm_type == "recv":
        return (-1 if "any" in squeezed else rank), -1
    if comm_type == "send":
        return -1, rank
    if comm_type in FROM_ROOT:
        return rank, -1
    return (-1, rank) if comm_type in TO_ROOT else (-1, -1)


def _bytes(stated: dict[str, Any], arguments: _Arguments) -> int:
    elements, size = _integer(stated.get("in_msg_nelems")), ITEMSIZE.get(stated.get("dtype", ""))
    if elements >= 0 and size is not None:
        return min(elements * size, MAX_BYTES)
    tensors = (leaf.bytes for leaves in arguments.values() for leaf in leaves)
    return min(sum(size for size in tensors if size >= 0), MAX_BYTES)


def with_param_comms(trace: Trace) -> Trace:
    """Return a host trace whose nodes ``record_param_comms`` are communications.

    The call around such a node, as ``c10d::allreduce_``, and the annotation in it, as
    ``nccl:all_reduce``, are then no longer communications, so that each communication occurs once.
    """
    is_record = (trace.nodes["name"] == NODE_NAME).to_numpy()
    if not is_record.any():
        return trace
    is_init = (trace.nodes["name"] == GROUP_INIT).to_numpy()
    records = [
        one
        for one in _records(
            np.flatnonzero(is_record), trace.attributes, np.flatnonzero(is_init).tolist()
        )
        if one.comm_type != "none"
    ]
    groups = _with_groups(trace.groups, records)
    number = {name: row for row, name in enumerate(groups["name"])}
    rows = np.array([one.node for one in records], dtype=np.int64)
    parent = trace.column("parent")
    is_recorded = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last: no parent
    is_recorded[rows] = True
    others = np.append(parent[rows], np.flatnonzero(is_recorded[parent]))
    others = others[others >= 0]
    comm_type = trace.codes("comm_type").copy()
    comm_bytes = trace.column("comm_bytes").copy()
    comm_type[others], comm_bytes[others] = COMM_TYPES.index("none"), -1
    comm_type[rows] = [COMM_TYPES.index(one.comm_type) for one in records]
    columns = {"comm_bytes": comm_bytes}
    for name in ("src", "dst", "tag", "is_async", "group"):
        columns[name] = trace.column(name).copy()
    for name in ("comm_bytes", "src", "dst", "tag", "is_async"):
        columns[name][rows] = [getattr(one, name) for one in records]
    columns["group"][rows] = [number.get(one.group, -1) for one in records]
    nodes = NODES.changed(trace.nodes, comm_type=comm_type, **columns)
    return trace.changed(nodes=nodes, groups=groups, codes={"comm_type": comm_type})


def _with_groups(groups: pl.DataFrame, records: Sequence[_Record]) -> pl.DataFrame:
    """Add the groups that only communications name, with their stated members."""
    known = {"", *groups["name"]}
    longest: dict[str, _Record] = {}
    for one in sorted(records, key=lambda one: -len(one.ranks)):
        if one.group not in known:
            longest.setdefault(one.group, one)
    if not longest:
        return groups
    found = sorted(longest.values(), key=lambda one: one.node)
    columns = {"name": [one.group for one in found], "ranks": [sorted(one.ranks) for one in found]}
    return pl.concat([groups, GROUPS.build(len(found), columns)])


C10D_CALLS = ("bytes", "src", "dst", "root", "tag", "is_async")
_SCHEMA = re.compile(r"^[\w:.]+\((.*)\) ->")
# how the arguments are called that say something; the names changed over time
_MEANING = {
    "src": "src", "dst": "dst", "root_rank": "root", "tag": "tag", "async_op": "is_async",
    "asyncOp": "is_async",
}  # fmt: skip
_MAX_RANK = 2**31


def c10d_calls(rows: Ints, attributes: Attributes) -> dict[str, Ints]:
    """Read the arguments of ``c10d`` calls.

    - ``rows``: int64: rows of nodes whose names begin with ``c10d::``.
    - ``attributes``: The trace's; only those of ``rows`` are read.
    - Returns: Columns as in :data:`C10D_CALLS`, int64, shape of ``rows``, in their order; -1 if a
      call does not state a value. ``bytes`` is the size of the tensors sent: only of the
      arguments named input, if there are any. O(attributes + rows).
    """
    attributes = attributes.of_nodes(rows)
    calls = []
    for row in rows.tolist():
        stated = attributes.of(row, "inputs.values", "op_schema")
        calls.append(_call(stated.get("inputs.values"), stated.get("op_schema")))
    return {
        name: np.array([call.get(name, -1) for call in calls], dtype=np.int64)
        for name in C10D_CALLS
    }


@cache
def _arguments_of_calls(schema: str) -> tuple[str, ...]:
    """Return the names of a call's arguments, in order."""
    found = _SCHEMA.match(schema)
    parts = found[1].split(",") if found and found[1] else []
    return tuple(part.partition("=")[0].split()[-1] if part.split() else "" for part in parts)


def _call(inputs: Any, schema: Any) -> dict[str, int]:
    """Read the inputs of a call, a JSON list, by their names in its schema."""
    try:
        values = msgspec.json.decode(inputs) if isinstance(inputs, str) else []
    except (msgspec.MsgspecError, RecursionError):
        values = []  # the rules on operands are the ones to complain
    names = _arguments_of_calls(schema) if isinstance(schema, str) else ()
    stated: dict[str, int] = {}
    sent, given = [], []
    for position, value in enumerate(values if isinstance(values, list) else []):
        name = names[position] if position < len(names) else ""
        sizes = list(tensor_bytes(value))
        given += sizes
        if name.startswith("input"):
            sent += sizes
        if (meaning := _MEANING.get(name)) and isinstance(value, int) and 0 <= value < _MAX_RANK:
            stated[meaning] = int(value)
    if given:
        stated["bytes"] = min(sum(sent or given), MAX_BYTES)
    return stated
