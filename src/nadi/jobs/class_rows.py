"""What alike ranks do, while a job is scaled: a trace, its times, and where each row comes from.

Some sizes of rows depend on how many ranks share them.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.models.row_traces import shape_attributes
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.recordings.folded.repeats import operands_apart
from nadi.systems.device import Device
from nadi.systems.prices.price_list import price
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.attributes import Attributes, Part, combined
from nadi.trace.operations import OP_CLASSES, Operations
from nadi.trace.trace import Trace

_GEMM = OP_CLASSES.index("gemm")


class Origin(IntEnum):
    """Where a row of a scaled job comes from, and its size."""

    COPIED = 0
    RESIZED = 1
    GUESSED = 2
    MADE = 3


class RankClass(NamedTuple):
    """What alike ranks do."""

    trace: Trace  # its groups are roles
    times: NodeTimes  # of its nodes; -1 where no time is known
    origin: Ints  # int64, shape (nodes,): values of ``Origin``
    repriced: Bools  # bool, shape (nodes,): whose time was measured, and changed with the size


class RowSizes(NamedTuple):
    """What can change when ranks share work otherwise; each of shape (nodes,)."""

    comm_bytes: Ints  # int64
    work: Operations  # operations, bytes and shapes of computations


def classes_of(job: FoldedJob) -> list[RankClass]:
    """Return what each class of ranks of a folded job does."""
    first = np.unique(job.of, return_index=True)[1].tolist()
    found = []
    for rank, fold in zip(first, job.folds, strict=True):
        size = job.traces[rank].nodes.height
        nothing = np.zeros(size, dtype=np.int64)
        found.append(RankClass(job.traces[rank], fold.all_times, nothing, nothing > 0))
    return found


def row_sizes(trace: Trace) -> RowSizes:
    """Return the sizes of a trace's rows, as copies."""
    work = Operations(*(column.copy() for column in stated_operations(trace)))
    return RowSizes(trace.column("comm_bytes").copy(), work)


def resized(one: RankClass, sizes: RowSizes, origin: Ints, device: Device | None) -> RankClass:
    """Return a class whose rows have other sizes; measured times change as prices do.

    - ``origin``: int64, shape (nodes,): of the sizes.
    - ``device``: Whose prices say how times change; without it they change as operations of
      products, and as bytes of others, which is a guess: they may also stay.
    """
    trace, before = one.trace, row_sizes(one.trace)
    work = sizes.work
    changes = (work.flops != before.work.flops) | (work.bytes != before.work.bytes)
    changes |= (work.shape != before.work.shape).any(axis=1)
    origin = np.maximum(one.origin, origin)
    measured = np.flatnonzero(changes & (one.times.typical > 0))
    times, repriced = one.times, one.repriced.copy()
    repriced[measured] = True
    if measured.size:
        factors = time_factors(before.work.at(measured), work.at(measured), device)
        columns = []
        for column, factor in zip(typical_columns(times), factors, strict=True):
            changed = column.copy()
            changed[measured] = np.maximum(np.rint(column[measured] * factor), 1)
            columns.append(changed)
        times = NodeTimes(*columns)
        if device is None:
            origin[measured] = np.maximum(origin[measured], Origin.GUESSED)
    nodes = trace.nodes.with_columns(
        comm_bytes=pl.Series(sizes.comm_bytes), flops=pl.Series(work.flops),
        bytes=pl.Series(work.bytes),
    )  # fmt: skip
    trace = replace(
        trace, nodes=with_own_times(nodes, times.typical), given_attributes=_attributes(trace, work)
    )
    return RankClass(trace, times, origin, repriced)


def typical_columns(times: NodeTimes) -> tuple[Ints, Ints, Ints]:
    """Return typical, least and largest times."""
    return times.typical, times.low, times.high


def time_factors(before: Operations, after: Operations, device: Device | None) -> list[Floats]:
    """Return by what typical, least and largest times change, float64 of shape (operations,)."""
    if device is None:
        by_flops = (after.op_class == _GEMM) & (before.flops > 0)
        old = np.where(by_flops, before.flops, np.maximum(before.bytes, 1))
        new = np.where(by_flops, after.flops, np.maximum(after.bytes, 1))
        ratio = new / old
        return [ratio, np.minimum(ratio, 1.0), np.maximum(ratio, 1.0)]
    known, priced = price(before, device), price(after, device)
    whole = np.maximum(known.duration, 1)
    return [column / whole for column in (priced.duration, priced.low, priced.high)]


def _attributes(trace: Trace, work: Operations) -> Attributes:
    """Return the attributes with other shapes; tensors, whose sizes are not known, are left out."""
    _, stated = operands_apart(trace)
    is_shape = np.zeros(len(stated), dtype=np.bool_)
    is_shape[stated.rows_named("gemm_shape")] = True
    shapes, number = np.unique(np.maximum(work.shape, 0), axis=0, return_inverse=True)
    listed = [row if min(row) > 0 else [] for row in shapes.tolist()]
    new = shape_attributes(listed, number.reshape(-1))
    return combined([Part(stated, is_kept=~is_shape), Part(new)])


_OPTIMIZER = OP_CLASSES.index("optimizer")
_PARTS = ("all_gather", "gather")


def of_role(trace: Trace, roles: Sequence[str]) -> Bools:
    """Return which rows communicate in groups of some roles; bool, shape (nodes,)."""
    rows = [k for k, name in enumerate(trace.groups["name"].to_list()) if name in roles]
    found: Bools = np.isin(trace.column("group"), rows)
    return found


def comm_types(trace: Trace) -> Ints:
    """Return the type of each row's communication, as text; shape (nodes,)."""
    return trace.nodes["comm_type"].cast(pl.String).to_numpy()


def with_more_members(
    trace: Trace, sizes: RowSizes, roles: Sequence[str], before: int, after: int
) -> Ints:
    """Let members of groups contribute other parts, if as much is gathered as before.

    All-gathers have smaller parts in larger groups; what is summed or scattered stays whole.

    - ``sizes``: Changed in place.
    - ``before``, ``after``: The groups have ``after / before`` times as many members.
    - Returns: Shape (nodes,): values of :class:`Origin`.
    """
    origin = np.zeros(trace.nodes.height, dtype=np.int64)
    chosen = of_role(trace, roles) & np.isin(comm_types(trace), _PARTS)
    chosen &= sizes.comm_bytes > 0
    sizes.comm_bytes[chosen] = -(-sizes.comm_bytes[chosen] * before // after)
    origin[chosen] = Origin.RESIZED
    return origin


def is_sharded(trace: Trace, roles: Sequence[str]) -> bool:
    """Return whether groups of some roles share gradients, so that each member updates a part."""
    return bool((of_role(trace, roles) & (comm_types(trace) == "reduce_scatter")).any())


def with_smaller_shards(sizes: RowSizes, before: int, after: int) -> Ints:
    """Let the optimizer update smaller parts; changes ``sizes`` in place, returns origins."""
    chosen = sizes.work.op_class == _OPTIMIZER
    for column in (sizes.work.flops, sizes.work.bytes):
        known = chosen & (column > 0)
        column[known] = -(-column[known] * before // after)
    return np.where(chosen, int(Origin.RESIZED), int(Origin.COPIED))
