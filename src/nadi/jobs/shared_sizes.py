"""Sizes of rows that depend on how many ranks share them."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.jobs.class_rows import Origin, RowSizes
from nadi.trace.arrays import Bools, Ints
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Trace

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
