"""The tensors that rows of a step read and give, and what they are in the nodes of a trace.

A row is repeated for each micro-batch, with tensors of its own: ids are those of the row's tensors
and a multiple for the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Bools, Ints
from nadi.trace.operand_columns import OperandColumns, TensorType

_DEVICE = "cuda:0"


class Operand(NamedTuple):
    """A tensor as a row uses it."""

    storage: str  # name of its storage, the same in all rows of a rank
    # shape, dtype: its sizes, and PyTorch's name for the type of its elements
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0  # elements of the storage before it
    # whether there is one of the whole step, rather than one of each micro-batch
    lasts: bool = False
    role: str = ""  # what it is for (``schema.TENSOR_ROLES``); "" if that follows from its uses


class RowOperands(NamedTuple):
    """What a row reads and gives; what it changes in place is in both.

    A storage that a row gives first and does not read begins there; one that is read first was
    there before the step.
    """

    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()


NO_OPERANDS = RowOperands()


def operand_columns(of_rows: Sequence[RowOperands], row: Ints, micro_batch: Ints) -> OperandColumns:
    """Return the operands of nodes that repeat rows.

    Parameters
    ----------
    of_rows
        Of each row.
    row, micro_batch
        int64, shape (nodes,): of each node; -1 for no micro-batch. O(operands log operands).
    """
    tensors: dict[Operand, int] = {}
    storages: dict[tuple[str, bool], int] = {}
    types: dict[TensorType, int] = {}
    number: list[int] = []
    is_output: list[bool] = []
    position: list[int] = []
    for one in of_rows:
        for side, listed in enumerate(one):
            number += [tensors.setdefault(operand, len(tensors)) for operand in listed]
            is_output += [bool(side)] * len(listed)
            position += range(len(listed))
    storage = [storages.setdefault((one.storage, one.lasts), len(storages)) for one in tensors]
    kind = [types.setdefault(TensorType(one.shape, one.dtype), len(types)) for one in tensors]
    first = np.cumsum([0, *(len(one.inputs) + len(one.outputs) for one in of_rows)])
    entry, begin = joined_ranges(first, row)
    sizes = np.diff(begin)
    node = np.repeat(np.arange(row.size), sizes)
    slot = np.array(number, dtype=np.int64)[entry]
    lasts = np.array([one.lasts for one in tensors], dtype=np.bool_)
    roles = tuple(dict.fromkeys(one.role for one in tensors if one.role))
    role = [roles.index(one.role) if one.role else -1 for one in tensors]
    turn = np.where(lasts[slot], 0, 1 + np.repeat(micro_batch, sizes))
    tensor, code = _in_order(slot + turn * len(tensors))
    of_slot, of_turn = code % max(len(tensors), 1), code // max(len(tensors), 1)
    return OperandColumns(
        node=node,
        is_output=_chosen(is_output, entry),
        position=np.array(position, dtype=np.int64)[entry],
        tensor=tensor,
        tensor_id=1 + code,
        storage_id=1 + np.array(storage, dtype=np.int64)[of_slot] + of_turn * len(storages),
        offset=np.array([one.offset for one in tensors], dtype=np.int64)[of_slot],
        kind=np.array(kind, dtype=np.int64)[of_slot],
        types=tuple(types),
        device=_DEVICE,
        role=np.array(role, dtype=np.int64)[of_slot],
        roles=roles,
    )


def joined_ranges(first: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return the entries of several ranges, one after the other, and the place of each range."""
    sizes = np.diff(first)[which]
    begin = np.cumsum(sizes) - sizes
    entry = np.arange(int(sizes.sum())) + np.repeat(first[which] - begin, sizes)
    return entry, np.append(begin, sizes.sum())


def _chosen(flags: Sequence[bool], entry: Ints) -> Bools:
    return np.array(flags, dtype=np.bool_)[entry]


def _in_order(codes: Ints) -> tuple[Ints, Ints]:
    """Return the number of each code by where it comes first, and the code of each number."""
    different, first, which = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(order.size)
    return number[which.reshape(-1)], different[order]
