"""From columns to the traces of a job, which simulators run and files hold."""

import numpy as np
import polars as pl

from nadi.files.chakra.chakra_attributes import ColumnOfAttributes
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.sharing.synthesis.storage_lives import operands_of_lives
from nadi.trace.arrays import Ints
from nadi.trace.attributes import CODES, Attributes, LazyAttributes, Part, combined
from nadi.trace.operands import AttributesWithOperands
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.protobuf_values import pack_list
from nadi.trace.rows import number_rows
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODE_KINDS, NODES
from nadi.trace.trace import Job, Provenance, Trace
from nadi.version import __version__

_NUMBERS = (
    "thread", "stream", "duration", "flops", "bytes", "comm_bytes", "tag", "layer",
)  # fmt: skip


def job_of_columns(columns: JobColumns) -> Job:
    """Return the job whose ranks do what columns say; a trace for each rank. O(nodes)."""
    size = len(columns.ranks)
    traces = [_trace(rank, number, columns, size) for number, rank in enumerate(columns.ranks)]
    return Job(tuple(traces), matches=MATCHES.empty(), issues=ISSUES.empty())


def _trace(rank: RankColumns, number: int, columns: JobColumns, world_size: int) -> Trace:
    own = [
        group for group, ranks in enumerate(columns.groups)
        if number in ranks and (rank.group == group).any()
    ]  # fmt: skip
    place = np.full(len(columns.groups) + 1, -1, dtype=np.int64)
    place[own] = np.arange(len(own))
    sends = rank.kind == NODE_KINDS.index("COMM_SEND")
    receives = rank.kind == NODE_KINDS.index("COMM_RECV")
    nodes = NODES.build(rank.size, {
        "id": np.arange(rank.size),
        "name": pl.Series(columns.labels, dtype=pl.String).gather(rank.label.astype(np.uint32)),
        "kind": NODES.coded("kind", rank.kind),
        "comm_type": NODES.coded("comm_type", rank.comm_type),
        "category": NODES.coded("category", rank.is_cpu, ("kernel", "operator")),
        "is_cpu": rank.is_cpu,
        "device": np.where(rank.stream >= 0, 0, -1),
        "group": place[rank.group],
        "dst": np.where(sends, rank.peer, -1),
        "src": np.where(receives, rank.peer, -1),
        **{name: getattr(rank, name) for name in _NUMBERS},
    })  # fmt: skip
    return Trace(
        nodes=nodes,
        deps=DEPS.build(rank.src.size, {"src": rank.src, "dst": rank.dst, "kind": "data"}),
        groups=GROUPS.build(len(own), {
            "name": [str(group + 1) for group in own],
            "ranks": [list(columns.groups[group]) for group in own],
        }),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        rank=number,
        world_size=world_size,
        given_attributes=_given(rank, columns.device),
    )  # fmt: skip


def _given(rank: RankColumns, device: str) -> Attributes | LazyAttributes:
    if not rank.lives.bytes.any():
        return _attributes(rank)
    return AttributesWithOperands(
        lambda: _attributes(rank), lambda: operands_of_lives(rank.lives, device)
    )


def _attributes(rank: RankColumns) -> Attributes:
    """Return what prices need and no column holds: class, type and shape of operations."""
    parts = [
        Part(ColumnOfAttributes(name, "string", codes - 1, tuple(words[1:])).attributes())
        for name, codes, words in (
            ("op_class", rank.op_class, OP_CLASSES),
            ("dtype", rank.dtype, DTYPE_NAMES),
        )
        if (codes > 0).any()
    ]
    stated = np.flatnonzero((rank.shape > 0).all(axis=1))
    if stated.size:
        parts.append(Part(_shapes(stated, rank.shape[stated])))
    return combined(parts) if parts else Attributes.empty()


def _shapes(node: Ints, shape: Ints) -> Attributes:
    """Return sizes as lists, each different one stored once."""
    which, first = number_rows(list(shape.T))
    packed = [pack_list("int64_list", one) for one in shape[first].tolist()]
    length = np.array([len(content) for content in packed], dtype=np.int64)
    begin = np.cumsum(length) - length
    return Attributes(
        node=node.astype(np.int32),
        name=np.zeros(node.size, dtype=np.int32),
        type=np.full(node.size, CODES["int64_list"], dtype=np.uint8),
        value=begin[which],
        length=length[which].astype(np.int32),
        names=("gemm_shape",),
        buffers=(np.frombuffer(b"".join(packed), dtype=np.uint8).copy(),),
    )
