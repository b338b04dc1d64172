"""The trace of a stage of the pipeline: its chunks, in the order of the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.formats.chakra.chakra_attributes import ColumnOfAttributes
from nadi.generate.llm.chunk_rows import (
    BEFORE,
    COMPUTE,
    STREAM_OF,
    BackwardKind,
    Chunk,
    Link,
    Links,
    Row,
    backward_rows,
    chunk_of,
    forward_rows,
)
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.optimizer_rows import optimizer_rows
from nadi.generate.llm.parallel_plan import ParallelPlan
from nadi.generate.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    StageOrder,
    neighbours,
)
from nadi.model.arrays import Bools, Ints
from nadi.model.attributes import CODES, Attributes, LazyAttributes, Part, combined
from nadi.model.protobuf_values import pack_list
from nadi.model.provenance import Provenance
from nadi.model.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.model.trace import Trace
from nadi.version import __version__

__all__ = ["stage_chunks", "stage_trace"]

_KIND = {"send": "COMM_SEND", "recv": "COMM_RECV"}


class _Pool(NamedTuple):
    """All different pieces of a stage, one after the other.

    Attributes
    ----------
    rows
        Their rows.
    first
        int64, shape (pieces + 1,): where the rows of each begin.
    waits, waiters, first_wait
        int64: rows of the same piece, counted from its first; and where those of each piece begin.
    """

    rows: list[Row]
    first: Ints
    waits: Ints
    waiters: Ints
    first_wait: Ints


class _Program(NamedTuple):
    """The pieces of a stage in their order.

    Attributes
    ----------
    row
        int64, shape (nodes,): of the pool.
    micro_batch
        int64, shape (nodes,): -1 for none.
    piece
        int64, shape (pieces in order,).
    """

    row: Ints
    micro_batch: Ints
    piece: Ints
    first: Ints


def stage_chunks(model: LanguageModel, plan: ParallelPlan, stage: int) -> list[Chunk]:
    """Return the chunks of the model's layers that a stage holds."""
    positions = [place.position for place in _places(plan, stage)]
    return [chunk_of(model, plan, one, has_table=0 in positions) for one in positions]


def stage_trace(model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder) -> Trace:
    """Make the trace that all ranks of a stage share, whose groups are roles.

    Computations have no durations. O(nodes).
    """
    pieces, micro_batches, pool = _pieces(model, plan, stage, order)
    program = _program(pool, pieces, micro_batches)
    used = {row.role for row in pool.rows}
    roles = [role for role in plan.groups() if role in used]
    nodes = _nodes(pool, program, plan, roles)
    deps = _deps(pool, program, nodes["stream"].to_numpy())
    return Trace(
        nodes=nodes,
        deps=DEPS.build(deps.shape[1], {"src": deps[0], "dst": deps[1], "kind": "data"}),
        groups=GROUPS.build(len(roles), {"name": roles, "ranks": [[] for _ in roles]}),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        world_size=plan.world_size,
        given_attributes=LazyAttributes(lambda: _attributes(pool, program)),
    )


def _places(plan: ParallelPlan, stage: int) -> list[_Place]:
    v = plan.chunks if plan.schedule == "interleaved" else 1
    found = []
    for chunk in range(plan.stage_chunks):
        position, source, destination = neighbours(plan.schedule, stage, chunk, plan.pp, v)
        before = None if source is None or source[0] == stage else source[0]
        after = None if destination is None or destination[0] == stage else destination[0]
        # messages of a micro-batch are numbered by the place where they cross, and their direction
        links = Links(
            None if before is None else Link(before, 2 * position - 2),
            None if after is None else Link(after, 2 * position),
            None if after is None else Link(after, 2 * position + 1),
            None if before is None else Link(before, 2 * position - 1),
        )
        found.append(_Place(position, links))
    return found


class _Place(NamedTuple):
    """Where a chunk stands along the pipeline, and its links."""

    position: int
    links: Links


_BACKWARDS = {
    BACKWARD: (True, True), INPUT_GRADIENT: (True, False), WEIGHT_GRADIENT: (False, True),
}  # fmt: skip


def _pieces(
    model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder
) -> tuple[Ints, Ints, _Pool]:
    """Return which piece comes when, of which micro-batch, and the rows of the pieces."""
    phase, chunk = order.phase, order.chunk
    reduces = _is_last(np.isin(phase, (BACKWARD, WEIGHT_GRADIENT)), chunk)
    keys = np.stack([phase, chunk, reduces.astype(np.int64)])
    different, number = np.unique(keys, axis=1, return_inverse=True)
    places, chunks = _places(plan, stage), stage_chunks(model, plan, stage)
    made = []
    for of_phase, of_chunk, is_last in different.T.tolist():
        own, links = chunks[of_chunk], places[of_chunk].links
        if of_phase == FORWARD:
            made.append(forward_rows(model, plan, own, links))
            continue
        kind = BackwardKind(*_BACKWARDS[of_phase], bool(is_last))
        made.append(backward_rows(model, plan, own, links, kind))
    pieces, micro_batches = number.reshape(-1), order.micro_batch
    if not plan.inference:
        made.append(optimizer_rows(model, plan, chunks))
        pieces = np.append(pieces, len(made) - 1)
        micro_batches = np.append(micro_batches, -1)
    return pieces, micro_batches, _pool(made)


def _is_last(chosen: Bools, chunk: Ints) -> Bools:
    """Return which are the last chosen ones of their chunk."""
    found = np.zeros(chosen.size, dtype=np.bool_)
    for number in np.unique(chunk[chosen]).tolist():
        found[np.flatnonzero(chosen & (chunk == number))[-1]] = True
    return found


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


def _spread(first: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return the entries of several ranges, one after the other, and the place of each range."""
    sizes = np.diff(first)[which]
    begin = np.cumsum(sizes) - sizes
    entry = np.arange(int(sizes.sum())) + np.repeat(first[which] - begin, sizes)
    return entry, np.append(begin, sizes.sum())


def _program(pool: _Pool, pieces: Ints, micro_batches: Ints) -> _Program:
    row, first = _spread(pool.first, pieces)
    return _Program(row, np.repeat(micro_batches, np.diff(first)), pieces, first)


def _nodes(
    pool: _Pool, program: _Program, plan: ParallelPlan, roles: Sequence[str]
) -> pl.DataFrame:
    rows, size = pool.rows, program.row.size
    role_number = {"": -1, **{role: number for number, role in enumerate(roles)}}
    is_send = [row.comm_type == "send" for row in rows]
    per_row: dict[str, pl.Series] = {
        "name": pl.Series([row.name for row in rows], dtype=NODES.dtypes["name"]),
        "kind": pl.Series([
            "COMP" if row.work else _KIND.get(row.comm_type, "COMM_COLL") for row in rows
        ], dtype=NODES.dtypes["kind"]),
        "comm_type": pl.Series([row.comm_type for row in rows], dtype=NODES.dtypes["comm_type"]),
    }  # fmt: skip
    numbers = {
        "stream": [row.stream for row in rows],
        "flops": [row.work.flops if row.work else -1 for row in rows],
        "bytes": [row.work.bytes if row.work else -1 for row in rows],
        "comm_bytes": [row.comm_bytes for row in rows],
        "group": [role_number[row.role] for row in rows],
        "dst": [row.peer if sends else -1 for row, sends in zip(rows, is_send, strict=True)],
        "src": [-1 if sends else row.peer for row, sends in zip(rows, is_send, strict=True)],
    }
    tag = np.array([row.tag for row in rows], dtype=np.int64)[program.row]
    of_micro_batch = 2 * plan.positions * np.maximum(program.micro_batch, 0)
    columns = {name: series.gather(program.row) for name, series in per_row.items()}
    return NODES.build(size, {
        "id": np.arange(size),
        **columns,
        **{name: np.array(values, dtype=np.int64)[program.row] for name, values in numbers.items()},
        "category": "kernel",
        "is_cpu": False,
        "device": 0,
        "tag": np.where(tag >= 0, tag + of_micro_batch, -1),
    })  # fmt: skip


def _deps(pool: _Pool, program: _Program, stream: Ints) -> Ints:
    """Return all dependencies as rows, each once; shape (2, dependencies)."""
    size = program.row.size
    entry, first_wait = _spread(pool.first_wait, program.piece)
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


def _attributes(pool: _Pool, program: _Program) -> Attributes:
    """Return what has no column: class, shape and type of operations, layer, micro-batch, phase."""
    rows = pool.rows
    texts = {
        "op_class": [row.work.op_class if row.work else "" for row in rows],
        "dtype": [row.work.dtype if row.work else "" for row in rows],
        "phase": [row.phase for row in rows],
    }
    parts = []
    for name, values in texts.items():
        known = tuple(dict.fromkeys(value for value in values if value))
        code = np.array([known.index(value) if value else -1 for value in values], dtype=np.int64)
        column = ColumnOfAttributes(name, "string", code[program.row], known)
        parts.append(Part(column.attributes()))
    layer = np.array([row.layer for row in rows], dtype=np.int64)[program.row]
    for name, numbers in (("layer", layer), ("micro_batch", program.micro_batch)):
        parts.append(Part(ColumnOfAttributes(name, "int64", numbers).attributes()))
    parts.append(Part(_shapes(rows, program.row)))
    return combined(parts)


def _shapes(rows: Sequence[Row], node: Ints) -> Attributes:
    """Return the shapes of products and attention, each stored once."""
    packed = [
        pack_list("int64_list", row.work.shape) if row.work and row.work.shape else b""
        for row in rows
    ]
    length = np.array([len(content) for content in packed], dtype=np.int64)
    begin = np.cumsum(length) - length
    chosen = np.flatnonzero(length[node])
    return Attributes(
        node=chosen.astype(np.int32),
        name=np.zeros(chosen.size, dtype=np.int32),
        type=np.full(chosen.size, CODES["int64_list"], dtype=np.uint8),
        value=begin[node[chosen]],
        length=length[node[chosen]].astype(np.int32),
        names=("gemm_shape",),
        buffers=(np.frombuffer(b"".join(packed), dtype=np.uint8).copy(),),
    )
