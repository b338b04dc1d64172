"""PyTorch execution traces without times, by msgspec and plain Python: no attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.files.communication_names import comm_type_of_call, comm_type_of_host
from nadi.files.files import RawFile
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.version import __version__

__all__ = ["GROUP_INIT", "KNOWN_SCHEMAS", "decode"]

KNOWN_SCHEMAS = (
    "1.0.1",
    "1.0.2-chakra.0.0.4",
    "1.0.3-chakra.0.0.4",
    "1.1.0-chakra.0.0.4",
    "1.1.1-chakra.0.0.4",
    "1.1.1-chakra.1.0.0",
)
GROUP_INIT = "## process_group:init ##"
_USER_SCOPE = 7  # of PyTorch's RecordScope
_STRUCTURE = ("[pytorch|profiler|execution_trace|", "[pytorch|profiler|execution_graph|")
_MAX_BYTES = 2**62
_NOTHING = msgspec.Raw(b"[]")


_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Reference = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_GroupSize = Annotated[int, msgspec.Meta(ge=0, le=2**22)]


class _Attr(msgspec.Struct, gc=False):
    name: str
    value: int | float | bool | str | list[Any] | dict[str, Any] | None = None


class _Node(msgspec.Struct, gc=False):
    id: _Id
    name: str
    inputs: msgspec.Raw = _NOTHING
    attrs: list[_Attr] = []
    ctrl_deps: _Reference = -1
    # schema 1.0.1 has these on the node itself, and calls ctrl_deps parent
    parent: _Reference = -1
    rf_id: _Reference = -1
    seq_id: _Reference = -1
    scope: _Reference = -1


class _File(msgspec.Struct):
    schema: str
    nodes: list[_Node]
    pid: _Reference = -1


class _Operands(msgspec.Struct):
    values: list[Any] = []


class _Group(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    backend_config: str = ""
    ranks: list[_Rank] = []
    group_size: _GroupSize = 0


_decoder = msgspec.json.Decoder(_File)
_operands_decoder = msgspec.json.Decoder(_Operands | list[Any])
_groups_decoder = msgspec.json.Decoder(list[_Group])


def decode(raw: RawFile) -> Trace:
    """Read a PyTorch execution trace.

    Returns
    -------
    Trace
        Nodes in ascending order of id, without times and without dependencies but
        for ``parent``; the process groups that it initializes. O(nodes log nodes).

    Raises
    ------
    FormatError
        If the JSON is broken or an id stands twice: with the place.
    """
    file = _decoder.decode(raw.content.tobytes())
    log = IssueLog()
    log.add(
        "et.schema", "warning", int(file.schema not in KNOWN_SCHEMAS),
        f"schema {file.schema!r} is unknown to this version of Nadi", "check the results",
    )  # fmt: skip
    source = raw.source(f"PyTorch ET {file.schema}")
    file.nodes.sort(key=lambda node: node.id)
    nodes = NODES.build(len(file.nodes), _columns(raw.name, file.nodes, log))
    return Trace(
        nodes=nodes,
        deps=DEPS.empty(),
        groups=_groups_table(raw.name, file.nodes),
        issues=log.table(),
        provenance=Provenance(__version__, (source,)),
        process=file.pid,
    )


def _columns(path: str, nodes: list[_Node], log: IssueLog) -> dict[str, Any]:
    ids = np.array([node.id for node in nodes], dtype=np.int64)
    if (repeated := np.flatnonzero(ids[1:] == ids[:-1])).size:
        raise FormatError(
            path, f"node id {ids[repeated[0]]} occurs twice; ids must be unique",
            "check whether two files were concatenated",
        )  # fmt: skip
    attributes = [_attributes(node) for node in nodes]
    comm_types = [_comm_type(node.name) for node in nodes]
    return {
        "id": ids,
        "name": [node.name for node in nodes],
        "kind": ["METADATA" if _is_structure(node) else "COMP" for node in nodes],
        "category": [
            "metadata"
            if _is_structure(node)
            else "annotation"
            if scope == _USER_SCOPE
            else "operator"
            for node, (_, _, scope) in zip(nodes, attributes, strict=True)
        ],
        "parent": _parent_rows(nodes, ids, log),
        "rf_id": [rf_id for rf_id, _, _ in attributes],
        "sequence": [sequence for _, sequence, _ in attributes],
        "comm_type": comm_types,
        "comm_bytes": [
            -1 if comm_type == "none" else min(sum(_tensor_bytes(_values(path, node))), _MAX_BYTES)
            for node, comm_type in zip(nodes, comm_types, strict=True)
        ],
    }


def _comm_type(name: str) -> str:
    of_call = comm_type_of_call(name)
    return comm_type_of_host(name) if of_call == "none" else of_call


def _is_structure(node: _Node) -> bool:
    """Tell the process, its threads and its groups from what they do."""
    return node.name == GROUP_INIT or node.name.startswith(_STRUCTURE)


def _attributes(node: _Node) -> tuple[int, int, int]:
    """Give record function id, sequence number and scope; an id of 0 means none."""
    found = {"rf_id": node.rf_id, "seq_id": node.seq_id, "scope": node.scope}
    for attr in node.attrs:
        if attr.name in found and type(attr.value) is int and abs(attr.value) < 2**62:
            found[attr.name] = attr.value
    rf_id = found["rf_id"]
    return (rf_id if rf_id > 0 else -1), found["seq_id"], found["scope"]


def _parent_rows(
    nodes: list[_Node], ids: npt.NDArray[np.int64], log: IssueLog
) -> npt.NDArray[np.int64]:
    """Turn ids of parents into rows; the root is recorded as its own parent."""
    parents = np.array(
        [node.ctrl_deps if node.ctrl_deps >= 0 else node.parent for node in nodes], dtype=np.int64
    )
    rows = np.searchsorted(ids, parents)
    known = (rows < ids.size) & (ids[np.minimum(rows, ids.size - 1)] == parents)
    own_rows = np.arange(ids.size)
    log.add(
        "et.parent-missing", "warning", int((~known & (parents >= 0)).sum()),
        "nodes name a parent that is not in the file", "they are kept without a parent",
    )  # fmt: skip
    log.add(
        "et.parent-later", "warning", int((known & (rows > own_rows)).sum()),
        "nodes name a parent with a higher id", "they are kept without a parent",
    )  # fmt: skip
    return np.where(known & (rows < own_rows), rows, -1)


def _values(path: str, node: _Node) -> list[Any]:
    try:
        operands = _operands_decoder.decode(node.inputs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(path, f"node {node.id}, inputs: {error}") from None
    return operands if isinstance(operands, list) else operands.values


def _tensor_bytes(value: Any) -> Iterator[int]:
    """Find tensors in nested operands: [id, storage, offset, elements, itemsize, device]."""
    if not isinstance(value, list):
        return
    if (
        len(value) == 6
        and isinstance(value[5], str)
        and all(isinstance(number, int) and 0 <= number < 2**40 for number in value[3:5])
    ):
        yield min(value[3] * value[4], _MAX_BYTES)
    else:
        for item in value:
            yield from _tensor_bytes(item)


def _groups_table(path: str, nodes: list[_Node]) -> pl.DataFrame:
    """Read the groups from the text operand of each process group initialization."""
    groups: dict[str, _Group] = {}
    for node in nodes:
        if node.name == GROUP_INIT:
            for text in _values(path, node):
                try:
                    found = _groups_decoder.decode(text)
                except (msgspec.MsgspecError, TypeError):
                    raise FormatError(
                        path,
                        f"node {node.id} ({GROUP_INIT}): expected a JSON list of process groups, "
                        f"got {str(text)[:40]!r}",
                        "record the trace again",
                    ) from None
                for group in found:
                    groups.setdefault(group.pg_name, group)
    columns = {
        "name": list(groups),
        "description": [g.pg_desc for g in groups.values()],
        # an empty list stands for all ranks
        "ranks": [sorted(g.ranks) or list(range(g.group_size)) for g in groups.values()],
        "backend": [g.backend_config for g in groups.values()],
    }
    return GROUPS.build(len(groups), columns)
