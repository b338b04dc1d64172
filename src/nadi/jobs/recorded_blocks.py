"""Where a recorded model can be cut into stages: between layers, if one tensor is all that passes.

Layers are repeats in the sequence of operators of the forward. Their names and sizes have to be
equal, and each has a product or an attention. A cut is where only one tensor, of those that have a
gradient, was given before and is read after.
"""

from typing import NamedTuple, NoReturn

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.jobs.recorded_ranks import Direction, KnownRank, Operators
from nadi.recordings.folded.repeat_search import Loop, SignedRows, find_repeats
from nadi.trace.arrays import Bools, Ints
from nadi.trace.operations import OP_CLASSES

EVERY = -1
"""The block of what belongs to no block: each stage does it."""

_WITH_WEIGHTS = [OP_CLASSES.index(name) for name in ("gemm", "attention")]


class Blocks(NamedTuple):
    """The blocks of a model, one for each layer; the first and the last have all around."""

    number: int  # how many there are
    # int64, shape (nodes,): of each node that a simulation has of the rank, or ``EVERY``
    of_node: Ints
    passed: Ints  # int64, shape (blocks,): bytes that pass from the block before; 0 for the first
    weights: Ints  # int64, shape (blocks,): bytes of weights that its operators read
    of_operator: Ints  # int64, shape (operators,): of each operator, or ``EVERY``
    of_weight: dict[int, int]  # the block of each storage of weights


def find_blocks(known: KnownRank) -> Blocks:
    """Find the blocks of a recorded rank. O(operators log operators).

    - Raises UsageError if its forward has no repeats that can be cut, or micro-batches differ.
    """
    parts, operators = known.parts, known.operators
    if not operators.row.size:
        _refuse("no operator of the recording states tensors, so layers cannot be found",
                "record host traces, too (nadi record, nadi.record)")  # fmt: skip
    if not (parts.direction == Direction.BACKWARD).any():
        _refuse("the recording has no backward, or its operators state no sequence numbers, so it "
                "is no training step")  # fmt: skip
    forwards = np.flatnonzero(parts.direction == Direction.FORWARD)
    own = [np.flatnonzero(operators.part == part) for part in forwards.tolist()]
    cuts, passed = zip(*(_cuts(operators, one) for one in own), strict=True)
    number = len(cuts[0])
    if number == 0:
        _refuse("no operators of its forward repeat as layers between which one tensor passes")
    if any(len(one) != number for one in cuts):
        _refuse("its micro-batches differ in their operators")
    start = known.trace.column("start")
    begins = [start[operators.row[one[cut]]] for one, cut in zip(own, cuts, strict=True)]
    of_node = _at_times(known, forwards, begins, known.time)
    of_operator = _at_times(known, forwards, begins, start[operators.row])
    weights, owner = _weights(operators, own[0], cuts[0])
    _of_updates(known, owner, of_node, of_operator)
    return Blocks(number + 1, of_node, np.array([0, *passed[0]]), weights, of_operator, owner)


def _refuse(what: str, remedy: str = "change other axes") -> NoReturn:
    raise UsageError(Parameter("pp"), what, remedy)


def _cuts(operators: Operators, own: Ints) -> tuple[list[int], list[int]]:
    """Return before which operators a forward can be cut, and the bytes that pass there."""
    sign = _signs(operators, own)
    loops = find_repeats(SignedRows(sign, np.zeros(own.size + 1, dtype=np.int64), sign[:0]))
    has_weights = np.isin(operators.work.op_class[operators.row[own]], _WITH_WEIGHTS)
    passed = _passed(operators, own)
    found: set[int] = set()
    for loop in loops:
        if has_weights[loop.first : loop.first + loop.size].any():
            found.update(_borders(loop, sign, passed >= 0))
    # what is before the first layer and behind the last goes with them
    at = [one for one in sorted(found)[1:-1] if passed[one] >= 0]
    return at, passed[at].tolist()


def _signs(operators: Operators, own: Ints) -> Ints:
    """Return equal numbers for operators of equal names and sizes."""
    known: dict[object, int] = {}
    keys = (
        (operators.name[k], tuple(use.shape for use in operators.inputs[k]),
         tuple(use.shape for use in operators.outputs[k]))
        for k in own.tolist()
    )  # fmt: skip
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _borders(loop: Loop, sign: Ints, can_cut: Bools) -> list[int]:
    """Return the borders of the turns of a repeat, of all that it can have those with most cuts.

    Where the first turn begins and the last one ends are borders, too.
    """
    first, end, period = loop.first, loop.end, loop.size
    while first > 0 and sign[first - 1] == sign[first - 1 + period]:
        first -= 1
    while end < sign.size and sign[end] == sign[end - period]:
        end += 1
    best: list[int] = []
    most = -1
    for shift in range(period):
        borders = list(range(first + shift, end + 1, period))
        number = sum(bool(can_cut[at]) for at in borders[1:-1])
        if number > most:
            best, most = borders, number
    return [best[0], *(at for at in best[1:-1] if can_cut[at]), best[-1]]


def _passed(operators: Operators, own: Ints) -> Ints:
    """Return the bytes of the only tensor that passes before each operator; -1 if several do."""
    size = own.size
    count, total = np.zeros((2, size + 1), dtype=np.int64)
    live: dict[int, tuple[int, int, int]] = {}  # storage: given by, last read by, bytes

    def close(storage: int) -> None:
        given, last, moved = live.pop(storage)
        if last > given:
            count[given + 1] += 1
            count[last + 1] -= 1
            total[given + 1] += moved
            total[last + 1] -= moved

    for at, number in enumerate(own.tolist()):
        read = {use.storage for use in operators.inputs[number]}
        for storage in read & live.keys():
            given, _, moved = live[storage]
            live[storage] = given, at, moved
        for use in operators.outputs[number]:
            if use.storage in read:
                continue  # changed in place
            if use.storage in live:
                close(use.storage)
            if operators.makes_gradients[number]:
                live[use.storage] = at, at, use.elements * use.itemsize
    for storage in list(live):
        close(storage)
    passing, size_of = np.cumsum(count)[:size], np.cumsum(total)[:size]
    return np.where(passing == 1, size_of, -1)


def _at_times(known: KnownRank, forwards: Ints, begins: list[Ints], time: Ints) -> Ints:
    """Return the block of what begins at some times; ``EVERY`` at the ends of steps."""
    parts = known.parts
    part = parts.at(time)
    found = np.full(time.size, EVERY, dtype=np.int64)
    for forward, borders in zip(forwards.tolist(), begins, strict=True):
        own = np.flatnonzero(part == forward)
        found[own] = np.searchsorted(borders, time[own], side="right")
    made_in = parts.at(known.made_by)
    block = np.full(known.backward.size, -1, dtype=np.int64)
    for forward, borders in zip(forwards.tolist(), begins, strict=True):
        own = np.flatnonzero((known.made_by >= 0) & (made_in == forward))
        block[own] = np.searchsorted(borders, known.made_by[own], side="right")
    last = np.maximum.accumulate(np.where(block >= 0, np.arange(block.size), 0))
    block = np.maximum(block[last], 0)  # accumulations of gradients are of the node before
    rows = np.flatnonzero(parts.direction[part] == Direction.BACKWARD)
    at = np.searchsorted(known.backward, time[rows], side="right") - 1
    found[rows] = block[np.maximum(at, 0)]
    return found


def _weights(operators: Operators, own: Ints, cuts: list[int]) -> tuple[Ints, dict[int, int]]:
    """Return the bytes of weights of each block, and the block of each weight's storage."""
    made: set[int] = set()
    owner: dict[int, int] = {}
    size = np.zeros(len(cuts) + 1, dtype=np.int64)
    for at, number in enumerate(own.tolist()):
        block = int(np.searchsorted(cuts, at, side="right"))
        for use in operators.inputs[number] if operators.makes_gradients[number] else ():
            if use.storage not in made and use.storage not in owner:
                owner[use.storage] = block
                size[block] += use.elements * use.itemsize
        made.update(use.storage for use in operators.outputs[number])
    return size, owner


def _of_updates(known: KnownRank, owner: dict[int, int], of_node: Ints, of_operator: Ints) -> None:
    """Set the block of nodes of an optimizer that works on one block's weights after another."""
    operators = known.operators
    found = np.full(operators.row.size + 1, EVERY, dtype=np.int64)
    ends = np.flatnonzero(known.parts.direction[operators.part] == Direction.END)
    for number in ends.tolist():
        blocks = {owner[use.storage] for use in operators.inputs[number] if use.storage in owner}
        if len(blocks) == 1:
            found[number] = blocks.pop()
        elif blocks:
            return  # on all at once
    rows = np.flatnonzero(known.is_update)
    rows = rows[np.argsort(known.time[rows], kind="stable")]
    block = found[known.operator[rows]]
    if not (block >= 0).any():
        return
    is_known = found[:-1] >= 0
    of_operator[is_known] = found[:-1][is_known]
    # what an optimizer does for a weight is around the operators that name it
    known_at = np.flatnonzero(block >= 0)
    after = np.minimum(np.searchsorted(known_at, np.arange(rows.size)), known_at.size - 1)
    of_node[rows] = block[known_at[after]]
