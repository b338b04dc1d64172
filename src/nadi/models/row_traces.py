"""The trace of what ranks do in a step: pieces of rows, in their order.

What the nodes of a generated trace amount to: FLOPs by phase, and bytes by group.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.files.chakra.chakra_attributes import ColumnOfAttributes
from nadi.files.files import available_memory
from nadi.models.job_rows import BEFORE, COMPUTE, STREAM_OF, Row, joined_ranges, operand_columns
from nadi.trace.arrays import Ints, whole_numbers
from nadi.trace.attributes import CODES, Attributes, LazyAttributes, Part, combined
from nadi.trace.groups import RankGroups
from nadi.trace.operands import AttributesWithOperands
from nadi.trace.protobuf_values import pack_list
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Provenance, Trace
from nadi.units import format_bytes, format_count
from nadi.version import __version__

_BYTES_OF_NODE = 1900  # of memory, until it is written
_KIND = {"send": "COMM_SEND", "recv": "COMM_RECV"}


class StepOrder(NamedTuple):
    """The pieces of a step, and their order."""

    pieces: Sequence[Sequence[Row]]  # the rows of each different piece
    piece: Ints  # int64, shape (pieces in order,): which of them comes
    # int64, shape (pieces in order,): of which micro-batch; -1 for none, which is the end of a
    # training step and waits for the last gradients
    micro_batch: Ints
    tags: int = 0  # different messages of a micro-batch


class _Pool(NamedTuple):
    """All different pieces of a step, one after the other."""

    rows: list[Row]  # their rows
    first: Ints  # int64, shape (pieces + 1,): where the rows of each begin
    # waits, waiters, first_wait: int64: rows of the same piece, counted from its first; and where
    # those of each piece begin
    waits: Ints
    waiters: Ints
    first_wait: Ints


class _Program(NamedTuple):
    """The nodes of a step in their order."""

    row: Ints  # int64, shape (nodes,): of the pool
    micro_batch: Ints  # int64, shape (nodes,): -1 for none
    piece: Ints  # int64, shape (pieces in order,)
    first: Ints


def refuse_too_many(operations: int) -> None:
    """Raise UsageError if so many generated operations do not fit into the memory that is free."""
    needed, room = _BYTES_OF_NODE * operations, available_memory()
    if needed > room:
        raise UsageError(
            "the job", f"its traces have {format_count(operations)} operations or more, which need "
            f"{format_bytes(needed)} of memory, and {format_bytes(room)} are free",
            "take fewer layers, or fewer micro-batches",
        )  # fmt: skip


def trace_of_rows(
    step: StepOrder, roles: Sequence[str], world_size: int, at_once: int = 1
) -> Trace:
    """Make the trace of ranks that do the same, whose groups are roles.

    Computations have no durations. O(nodes).

    - ``roles``: Those of the job, in their order; the trace has the ones that its rows name.
    - ``at_once``: How many traces of about this size there will be.
    - Raises UsageError if these do not fit into the memory that is free.
    """
    pool = _pool(step.pieces)
    refuse_too_many(int(np.diff(pool.first)[step.piece].sum()) * at_once)
    program = _program(pool, step.piece, step.micro_batch)
    used = {row.role for row in pool.rows}
    own = [role for role in roles if role in used]
    nodes = _nodes(pool, program, step.tags, own)
    deps = _deps(pool, program, nodes["stream"].to_numpy())
    return Trace(
        nodes=nodes,
        deps=DEPS.build(deps.shape[1], {"src": deps[0], "dst": deps[1], "kind": "data"}),
        groups=GROUPS.build(len(own), {"name": own, "ranks": [[] for _ in own]}),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        world_size=world_size,
        given_attributes=_given(pool, program),
    )


def _pool(made: Sequence[Sequence[Row]]) -> _Pool:
    pairs = [
        [(wait, number) for number, row in enumerate(rows) for wait in row.waits] for rows in made
    ]
    flat = np.array([pair for of_piece in pairs for pair in of_piece], dtype=np.int64)
    flat = flat.reshape(-1, 2)
    return _Pool(
        [row for rows in made for row in rows],
        np.cumsum([0, *map(len, made)]), flat[:, 0], flat[:, 1], np.cumsum([0, *map(len, pairs)]),
    )  # fmt: skip


def _program(pool: _Pool, pieces: Ints, micro_batches: Ints) -> _Program:
    row, first = joined_ranges(pool.first, pieces)
    return _Program(row, np.repeat(micro_batches, np.diff(first)), pieces, first)


def _nodes(pool: _Pool, program: _Program, tags: int, roles: Sequence[str]) -> pl.DataFrame:
    rows, size = pool.rows, program.row.size
    role_number = {"": -1, **{role: number for number, role in enumerate(roles)}}
    is_send = [row.comm_type == "send" for row in rows]
    per_row: dict[str, pl.Series] = {
        "name": pl.Series([row.name for row in rows], dtype=NODES.dtypes["name"]),
        "kind": pl.Series([
            "COMP" if row.work else _KIND.get(row.comm_type, "COMM_COLL") for row in rows
        ], dtype=NODES.dtypes["kind"]),
        "comm_type": pl.Series([row.comm_type for row in rows], dtype=NODES.dtypes["comm_type"]),
        "phase": pl.Series([row.phase for row in rows], dtype=NODES.dtypes["phase"]),
    }  # fmt: skip
    numbers = {
        "stream": [row.stream for row in rows],
        "flops": [row.work.flops if row.work else -1 for row in rows],
        "bytes": [row.work.bytes if row.work else -1 for row in rows],
        "comm_bytes": [row.comm_bytes for row in rows],
        "layer": [row.layer for row in rows],
        "group": [role_number[row.role] for row in rows],
        "dst": [row.peer if sends else -1 for row, sends in zip(rows, is_send, strict=True)],
        "src": [-1 if sends else row.peer for row, sends in zip(rows, is_send, strict=True)],
    }
    tag = np.array([row.tag for row in rows], dtype=np.int64)[program.row]
    of_micro_batch = tags * np.maximum(program.micro_batch, 0)
    columns = {name: series.gather(program.row) for name, series in per_row.items()}
    return NODES.build(size, {
        "id": np.arange(size),
        **columns,
        **{name: whole_numbers(values, "job")[program.row] for name, values in numbers.items()},
        "micro_batch": program.micro_batch,
        "category": "kernel",
        "is_cpu": False,
        "device": 0,
        "tag": np.where(tag >= 0, tag + of_micro_batch, -1),
    })  # fmt: skip


def _deps(pool: _Pool, program: _Program, stream: Ints) -> Ints:
    """Return all dependencies as rows, each once; shape (2, dependencies)."""
    size = program.row.size
    entry, first_wait = joined_ranges(pool.first_wait, program.piece)
    of_piece = np.repeat(program.first[:-1], np.diff(first_wait))
    dst = pool.waiters[entry] + of_piece
    src = pool.waits[entry]
    before = _computed_before(stream, program)
    src = np.where(src == BEFORE, np.repeat(before, np.diff(first_wait)), src + of_piece)
    stated = [np.stack([src, dst])]
    if (program.micro_batch == -1).any():  # the optimizer waits for all gradients
        start = int(program.first[-2])
        ends = [np.flatnonzero(stream[:start] == STREAM_OF[role]) for role in ("dp", "edp")]
        last = np.array([rows[-1] for rows in ends if rows.size], dtype=np.int64)
        stated.append(np.stack([last, np.full(last.size, start)]))
    in_order = _in_order(stream)
    predecessor = np.full(size, -1, dtype=np.int64)
    predecessor[in_order[1]] = in_order[0]
    src, dst = np.concatenate(stated, axis=1)
    is_new = (src >= 0) & (predecessor[dst] != src)
    return np.concatenate([np.stack([src, dst])[:, is_new], in_order], axis=1)


def _computed_before(stream: Ints, program: _Program) -> Ints:
    """Return the last computation before each piece, -1 if there is none."""
    computed = np.where(stream == COMPUTE, np.arange(stream.size), -1)
    latest = np.append(-1, np.maximum.accumulate(computed))
    return latest[program.first[:-1]]


def _in_order(stream: Ints) -> Ints:
    """Return the order on each stream; several messages may be under way at once."""
    beside = (STREAM_OF["send"], STREAM_OF["receive"])
    chosen = np.flatnonzero(~np.isin(stream, beside))
    order = chosen[np.argsort(stream[chosen], kind="stable")]
    same = np.flatnonzero(stream[order[1:]] == stream[order[:-1]])
    return np.stack([order[same], order[same + 1]])


def _given(pool: _Pool, program: _Program) -> LazyAttributes:
    """Return what has no column, and the operands of rows that state any."""
    operands = [row.operands for row in pool.rows]
    if not any(one.outputs for one in operands):
        return LazyAttributes(lambda: _attributes(pool, program))
    return AttributesWithOperands(
        lambda: _attributes(pool, program),
        lambda: operand_columns(operands, program.row, program.micro_batch),
    )


def _attributes(pool: _Pool, program: _Program) -> Attributes:
    """Return what has no column: class, shape and type of operations."""
    rows = pool.rows
    texts = {
        "op_class": [row.work.op_class if row.work else "" for row in rows],
        "dtype": [row.work.dtype if row.work else "" for row in rows],
    }
    parts = []
    for name, values in texts.items():
        known = tuple(dict.fromkeys(value for value in values if value))
        code = np.array([known.index(value) if value else -1 for value in values], dtype=np.int64)
        column = ColumnOfAttributes(name, "string", code[program.row], known)
        parts.append(Part(column.attributes()))
    parts.append(Part(_shapes(rows, program.row)))
    return combined(parts)


def _shapes(rows: Sequence[Row], node: Ints) -> Attributes:
    """Return the shapes of products and attention, each stored once."""
    shapes = [row.work.shape if row.work else () for row in rows]
    return shape_attributes(shapes, node)


def shape_attributes(shapes: Sequence[Sequence[int]], number: Ints) -> Attributes:
    """Return the attribute ``gemm_shape`` of nodes.

    - ``shapes``: The different ones, stored once each; an empty one is none.
    - ``number``: int64, shape (nodes,): which of them each node has.
    """
    packed = [pack_list("int64_list", list(shape)) if shape else b"" for shape in shapes]
    length = np.array([len(content) for content in packed], dtype=np.int64)
    begin = np.cumsum(length) - length
    chosen = np.flatnonzero(length[number])
    return Attributes(
        node=chosen.astype(np.int32),
        name=np.zeros(chosen.size, dtype=np.int32),
        type=np.full(chosen.size, CODES["int64_list"], dtype=np.uint8),
        value=begin[number[chosen]],
        length=length[number[chosen]].astype(np.int32),
        names=("gemm_shape",),
        buffers=(np.frombuffer(b"".join(packed), dtype=np.uint8).copy(),),
    )


def job_by_role(traces: Sequence[Trace], groups: Mapping[str, Ints]) -> Job:
    """Make a job of the traces of all ranks, with those groups that they use."""
    used = {role for trace in set(traces) for role in trace.groups["name"].to_list()}
    members = {role: ranks for role, ranks in groups.items() if role in used}
    rank_groups = RankGroups(members, len(traces))
    return Job(tuple(traces), MATCHES.empty(), ISSUES.empty(), rank_groups=rank_groups)


def step_totals(job: Job, each: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what a rank of each different trace does in a step: FLOPs and communication.

    The column ``each`` numbers the traces.
    """
    flops, communication = [], []
    for n, trace in enumerate(dict.fromkeys(job.traces)):
        number = pl.lit(n, dtype=pl.Int64).alias(each)
        flops.append(_flops_by_phase(trace).select(number, pl.all()))
        communication.append(_communication_by_role(trace, job).select(number, pl.all()))
    return pl.concat(flops), pl.concat(communication)


def _flops_by_phase(trace: Trace) -> pl.DataFrame:
    """Return one row, a column per phase."""
    sums = (
        trace.nodes.filter(pl.col("flops") > 0)
        .group_by(pl.col("phase").cast(pl.String))
        .agg(pl.col("flops").sum())
    )
    found = dict(sums.iter_rows())
    phases = ("forward", "backward", "recompute", "optimizer")
    return pl.DataFrame({phase: found.get(phase, 0) for phase in phases})


def _communication_by_role(trace: Trace, job: Job) -> pl.DataFrame:
    """Return the collectives and messages: a row per role and type."""
    assert job.rank_groups is not None
    roles = trace.groups["name"].to_list()
    sizes = [job.rank_groups.members[role].shape[1] for role in roles]
    names = pl.DataFrame(
        {"group": range(len(roles)), "role": roles, "ranks": sizes},
        schema={"group": pl.Int64, "role": pl.String, "ranks": pl.Int64},
    )
    return (
        trace.nodes.filter(pl.col("group") >= 0)
        .group_by("group", pl.col("comm_type").cast(pl.String).alias("type"), maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("comm_bytes").sum().alias("bytes"))
        .join(names, on="group")
        .select("role", "type", "ranks", "count", "bytes")
        .sort("role", "type")
    )
