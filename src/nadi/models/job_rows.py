"""The nodes of a generated trace, as rows: computations, collectives and messages, and their waits.

A piece of a step is a list of rows, which is made once and repeated where the order of the step has
it. Waits of a row are rows before it in the same piece.

What an update of weights by Adam costs.

The collective between two operations follows from how each has its tensor laid out.

This is said once, as a table: an operation gives a tensor in one layout on the ranks of an axis,
the next one needs it in another, and the pair names the collective. What a weight goes
through along the data parallel axis follows from the same table.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.trace.arrays import Bools, Ints
from nadi.trace.operands import OperandColumns, TensorType
from nadi.trace.work import Work

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

    - ``of_rows``: Of each row.
    - ``row``, ``micro_batch``: int64, shape (nodes,): of each node; -1 for no micro-batch.
      O(operands log operands).
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


BEFORE = -1  # waits for the last computation before this piece
COMPUTE = 0
_ROLES = "tp cp ep dp edp pp embedding mirror send receive tables kv"
STREAM_OF = {role: 1 + number for number, role in enumerate(_ROLES.split())}
"""Streams of a rank's device: one for computation, and one for the communication of each role."""


class Row(NamedTuple):
    """A node, repeated for each micro-batch."""

    # name, phase, layer: what it is called, whether it is of the forward, the backward or another
    # phase, and the layer of the model; -1 for none
    name: str
    phase: str
    layer: int
    work: Work | None  # of a computation; None for communication
    # comm_type, comm_bytes, role: of communication: its type, the bytes that each member
    # contributes, and the group
    comm_type: str = "none"
    comm_bytes: int = -1
    role: str = ""
    stream: int = COMPUTE  # of the device
    # peer, tag: of a message, the position of the other stage in the group; and which of the
    # messages of a micro-batch it is
    peer: int = -1
    tag: int = -1
    # rows of the same piece before it; ``BEFORE`` is the computation before the piece
    waits: tuple[int, ...] = ()
    operands: RowOperands = NO_OPERANDS  # the tensors that it reads and gives


class Link(NamedTuple):
    """Where a message goes or comes from: a position in the pipeline's group, and its number."""

    peer: int
    tag: int


class RowList:
    """Collects the rows of one piece; what computes waits for what it was given."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.rows: list[Row] = []
        self._pending: list[int] = []  # exchanges that the next computation waits for
        self._last = BEFORE  # the computation that gave what is exchanged next
        self.computed = BEFORE  # the last computation of any kind

    def compute(
        self, name: str, layer: int, work: Work, operands: RowOperands = NO_OPERANDS, *,
        is_passed_on: bool = True,
    ) -> int:  # fmt: skip
        """Add a computation, after the exchanges before it.

        What is not passed on, the gradient of weights, is not what later exchanges wait for.
        """
        number = len(self.rows)
        waits = tuple(self._pending)
        self.rows.append(Row(name, self.phase, layer, work, waits=waits, operands=operands))
        self._pending = []
        self.computed = number
        if is_passed_on:
            self._last = number
        return number

    def collective(
        self, name: str, layer: int, role: str, comm_type: str, size: int,
        operands: RowOperands = NO_OPERANDS, *, after: int | None = None, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        """Add a collective after the last computation, or another row."""
        waits = [self._last if after is None else after]
        if is_awaited:
            waits += self._pending  # a chain of exchanges of one tensor
            self._pending = []
        row = Row(
            name, self.phase, layer, None, comm_type, size, role, STREAM_OF[role],
            waits=tuple(dict.fromkeys(waits)), operands=operands,
        )  # fmt: skip
        self.rows.append(row)
        if is_awaited:
            self._pending.append(len(self.rows) - 1)
        return len(self.rows) - 1

    def receive(self, name: str, link: Link, size: int, received: Operand | None = None) -> None:
        """Add a receive that the next computation waits for."""
        operands = RowOperands((), () if received is None else (received,))
        row = Row(
            name, self.phase, -1, None, "recv", size, "pp", STREAM_OF["receive"], *link,
            operands=operands,
        )  # fmt: skip
        self.rows.append(row)
        self._pending.append(len(self.rows) - 1)

    def send(self, name: str, link: Link, size: int, sent: Operand | None = None) -> None:
        """Add a send of what was made last, after all computations, as pipelines do it."""
        waits = tuple(dict.fromkeys([self.computed, *self._pending]))
        self._pending = []
        operands = RowOperands(() if sent is None else (sent,))
        row = Row(
            name, self.phase, -1, None, "send", size, "pp", STREAM_OF["send"], *link, waits,
            operands,
        )  # fmt: skip
        self.rows.append(row)

    def await_all(self, rows: Iterable[int]) -> None:
        """Let the next computation wait for rows."""
        self._pending += rows


ADAM_STATE = 12
"""Bytes of a parameter's float32 copy and its two moments."""

_FLOPS = 11  # per parameter, as Calculon counts Adam


def adam_work(parameters: int, gradient_itemsize: int, itemsize: int) -> Work:
    """Return the work of one update: the state is read and written, the gradient read.

    - ``gradient_itemsize``, ``itemsize``: Bytes of an element of a gradient, and of a weight.
    """
    moved = parameters * (2 * ADAM_STATE + gradient_itemsize + itemsize)
    return Work("optimizer", _FLOPS * parameters, moved, dtype="float32")


class Layout(Enum):
    """How the ranks of an axis hold a tensor.

    WHOLE: each has all of it. TOKENS, FEATURES: each has a part, along the sequence or the width.
    PARTIAL: each has a summand. PARTS: each has a part of a weight or its gradient, or the tokens
    that belong to its experts.
    """

    WHOLE = "whole"
    TOKENS = "tokens"
    FEATURES = "features"
    PARTIAL = "partial"
    PARTS = "parts"


class Exchange(NamedTuple):
    """A collective, and the bytes that each of its ranks contributes."""

    comm_type: str
    bytes: int


_SPLIT = (Layout.TOKENS, Layout.FEATURES, Layout.PARTS)
_COLLECTIVE: dict[tuple[Layout, Layout], str] = {
    (Layout.PARTIAL, Layout.WHOLE): "all_reduce",
    **{(Layout.PARTIAL, part): "reduce_scatter" for part in _SPLIT},
    **{(part, Layout.WHOLE): "all_gather" for part in _SPLIT},
    (Layout.TOKENS, Layout.FEATURES): "all_to_all",
    (Layout.FEATURES, Layout.TOKENS): "all_to_all",
    # tokens to their experts, and back
    (Layout.TOKENS, Layout.PARTS): "all_to_all",
    (Layout.PARTS, Layout.TOKENS): "all_to_all",
    # a rank that has all of a tensor takes its part
    **{(Layout.WHOLE, part): "" for part in _SPLIT},
    **{(layout, layout): "" for layout in Layout},
}


def exchange(given: Layout, needed: Layout, size: int, ranks: int) -> Exchange | None:
    """Return the collective that brings a tensor from one layout into another.

    - ``given``, ``needed``: Its layouts.
    - ``size``: Bytes of the whole tensor.
    - ``ranks``: Number of ranks of the axis; one needs no collective.
    - Raises UsageError if there is none: summands are only made by computing.
    """
    if (given, needed) not in _COLLECTIVE:
        what = f"no collective makes it {needed.value}"
        raise UsageError(f"a tensor that is {given.value}", what, "change the operation after it")
    comm_type = _COLLECTIVE[given, needed]
    if ranks == 1 or not comm_type:
        return None
    part = size if comm_type in ("all_reduce", "reduce_scatter") else -(-size // ranks)
    return Exchange(comm_type, part)
