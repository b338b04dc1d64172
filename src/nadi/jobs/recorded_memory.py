"""How many bytes of tensors a recorded rank has at once, and one of several that share its work.

A storage lives from the operator that gives it to the last one that reads it; what is read and was
not given in the step (weights, states of the optimizer) lives all the time. What operators use
within themselves, and what an allocator keeps, is not counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.jobs.recorded_ranks import Direction, Operators, Parts
from nadi.trace.arrays import Bools, Floats, Ints

__all__ = ["Lives", "Sharing", "find_lives", "peak_bytes"]


class Sharing(NamedTuple):
    """What a rank has of tensors.

    Attributes
    ----------
    given
        float64, shape (operators,): of what each operator gives.
    lasting
        Of storages that were not given in the step; others are whole.
    """

    given: Floats
    lasting: dict[int, float]


class Lives(NamedTuple):
    """The lives of storages in one step; arrays of shape (lives,).

    Attributes
    ----------
    first, last
        int64: positions of the operators between which each lives, the last one included.
    bytes
        int64.
    giver
        int64: the operator that gives it; -1 for one that lasts.
    storage
        int64.
    """

    first: Ints
    last: Ints
    bytes: Ints
    giver: Ints
    storage: Ints


def find_lives(operators: Operators, parts: Parts) -> Lives:
    """Return the lives of storages in the last step that has an end. O(operands)."""
    ended = parts.step[parts.direction == Direction.END]
    step = int(ended[-1]) if ended.size else int(parts.step[-1])
    rows: list[tuple[int, int, int, int, int]] = []
    live: dict[int, tuple[int, int, int, int]] = {}  # first, last, bytes, giver
    own = np.flatnonzero(parts.step[operators.part] == step)
    end = int(own[-1]) if own.size else 0
    for number in own.tolist():
        read = {use.storage for use in operators.inputs[number]}
        for use in operators.inputs[number]:
            size = use.elements * use.itemsize
            if use.storage not in live:
                live[use.storage] = int(own[0]), number, size, -1
            else:
                first, last, before, giver = live[use.storage]
                live[use.storage] = first, max(last, number), max(before, size), giver
        for use in operators.outputs[number]:
            if use.storage in read:
                continue
            if use.storage in live:
                rows.append((*live[use.storage], use.storage))
            live[use.storage] = number, number, use.elements * use.itemsize, number
    for storage, (first, last, size, giver) in live.items():
        rows.append((first, end if giver < 0 else last, size, giver, storage))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Lives(*(np.ascontiguousarray(column) for column in columns))


def peak_bytes(lives: Lives, sharing: Sharing | None = None, chosen: Bools | None = None) -> int:
    """Return the most bytes that live at once.

    Parameters
    ----------
    sharing
        What the rank has of tensors; all without it.
    chosen
        bool, shape (lives,): those that it has.
    """
    size = lives.bytes.astype(np.float64)
    if sharing is not None:
        lasting = [sharing.lasting.get(one, 1.0) for one in lives.storage.tolist()]
        size = size * np.where(lives.giver >= 0, sharing.given[lives.giver], lasting)
    if chosen is not None:
        size = np.where(chosen, size, 0.0)
    change = np.zeros(int(lives.last.max(initial=-1)) + 2)
    np.add.at(change, lives.first, size)
    np.add.at(change, lives.last + 1, -size)
    return round(float(np.cumsum(change).max(initial=0.0)))
