"""Lives of storages: which operation makes one, and which uses it last.

What makes and frees storages is learned by context, the operation and those before it. A storage
that is freed is the latest of those made in some context and still alive, as activations are that
a backward uses in reverse order. So a life that begins also ends, whatever the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.model.arrays import Hashes, Ints
from nadi.model.operand_columns import OperandColumns, TensorType
from nadi.simulator.results.memory_accounts import StorageUses

__all__ = ["Lives", "MemoryUse", "draw_lives", "learn_memory", "lives_of_uses", "operands_of_lives"]

Made = tuple[tuple[int, int], ...]
"""Of the storages that an operation makes in a context: bytes, and operations that they last."""
Freed = tuple[tuple[int, int], ...]
"""Context that made each storage used last, and its place among those made there."""


class Lives(NamedTuple):
    """Storages of a rank; int64, shape (storages,).

    Attributes
    ----------
    bytes
        Size.
    begin
        The operation that makes it; -1 if it was there before the first.
    end
        The last operation that uses it.
    """

    bytes: Ints
    begin: Ints
    end: Ints

    @classmethod
    def none(cls) -> Lives:
        """Return no storages."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty)


class MemoryUse(NamedTuple):
    """What was learned of the storages of a job.

    Attributes
    ----------
    made, freed
        By context; contexts that make or free nothing are left out.
    lasting
        For each rank, bytes that are there before the first operation.
    device
        Such as ``cuda:0``; empty if the job states no tensors.
    """

    made: Mapping[int, Made]
    freed: Mapping[int, Freed]
    lasting: tuple[int, ...]
    device: str


def lives_of_uses(uses: StorageUses, begin: Ints, end: Ints) -> Lives:
    """Return the lives of storages.

    Parameters
    ----------
    begin, end
        int64, shape (rows of the trace,): the first and last operation of each row; -1 if none.
    """
    known = (begin[uses.row] >= 0) & (uses.size > 0)
    if not known.any():
        return Lives.none()
    storage, size, makes = uses.storage[known], uses.size[known], uses.makes[known]
    first, last = begin[uses.row[known]], end[uses.row[known]]
    order = np.lexsort((first, storage))
    storage, size, makes = storage[order], size[order], makes[order]
    first, last = first[order], last[order]
    span = int(last.max()) + 1
    latest = np.maximum.accumulate(storage * span + last)  # all earlier uses of it are over
    over = np.append(True, (latest[:-1] % span < first[1:]) | (storage[1:] != storage[:-1]))
    at = np.flatnonzero((np.diff(storage, prepend=-1) > 0) | (makes & over))
    return Lives(
        np.maximum.reduceat(size, at), np.where(makes[at], first[at], -1),
        np.maximum.reduceat(last, at),
    )  # fmt: skip


def learn_memory(
    lives: Sequence[Lives], contexts: Sequence[Hashes], device: str
) -> MemoryUse:
    """Learn what operations make and free; of a context that differs, what it does first."""
    made: dict[int, Made] = {}
    freed: dict[int, Freed] = {}
    lasting = []
    for own, context in zip(lives, contexts, strict=True):
        lasting.append(int(own.bytes[own.begin < 0].sum()))
        by_row: dict[int, list[int]] = defaultdict(list)
        for number in np.flatnonzero(own.begin >= 0).tolist():
            by_row[int(own.begin[number])].append(number)
        place = {number: k for numbers in by_row.values() for k, number in enumerate(numbers)}
        ends: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, numbers in by_row.items():
            lasts = zip(own.bytes[numbers].tolist(), (own.end[numbers] - row).tolist(), strict=True)
            key = int(context[row])
            made[key] = _longest(made[key], tuple(lasts)) if key in made else tuple(lasts)
            for number in numbers:
                ends[int(own.end[number])].append((int(context[row]), place[number]))
        for row, which in ends.items():
            if row < context.size - 1:
                freed.setdefault(int(context[row]), tuple(sorted(which)))
    return MemoryUse(made, freed, tuple(lasting), device)


def _longest(one: Made, other: Made) -> Made:
    """Return storages as long as either lasts, for those that both have."""
    longest = tuple((size, max(a, b)) for (size, a), (_, b) in zip(one, other, strict=False))
    return longest + one[len(longest) :]


def draw_lives(
    use: MemoryUse, context: Hashes, lasting: int, wider: float = 1.0, deeper: float = 1.0
) -> Lives:
    """Return the storages of a rank by the contexts of its operations. O(storages).

    Parameters
    ----------
    lasting
        Bytes that are there from the first to the last operation.
    wider, deeper
        Times the bytes, and the operations that storages last at most.
    """
    last = context.size - 1
    size, begin, end = [round(lasting)], [-1], [last]
    alive: dict[tuple[int, int], list[int]] = defaultdict(list)
    active = np.array(sorted({*use.made, *use.freed}), dtype=np.uint64)
    rows = np.flatnonzero(np.isin(context, active))
    for row, key in zip(rows.tolist(), context[rows].tolist(), strict=True):
        for place, (amount, lasts) in enumerate(use.made.get(key, ())):
            alive[key, place].append(len(size))
            size.append(round(amount * wider))
            begin.append(row)
            end.append(min(row + round(lasts * deeper), last))
        for which in use.freed.get(key, ()):
            if alive[which]:
                freed = alive[which].pop()
                end[freed] = min(end[freed], row)
    columns = (np.array(one, dtype=np.int64) for one in (size, begin, end))
    return Lives(*columns)


def operands_of_lives(lives: Lives, device: str) -> OperandColumns:
    """Return operands: each storage is given where it begins, and taken where it ends."""
    number = np.arange(lives.bytes.size)
    stated = number[lives.bytes > 0]
    is_made = lives.begin[stated] >= 0
    node = np.concatenate([np.maximum(lives.begin[stated], 0), lives.end[stated]])
    is_output = np.concatenate([is_made, np.zeros(stated.size, dtype=np.bool_)])
    storage = np.concatenate([stated, stated])
    order = np.lexsort((storage, is_output, node))
    node, is_output, storage = node[order], is_output[order], storage[order]
    side = node * 2 + is_output
    first = np.flatnonzero(np.diff(side, prepend=-1))
    sizes = np.diff(np.append(first, side.size))
    position = np.arange(side.size) - np.repeat(first, sizes)
    known, kind = np.unique(lives.bytes[stated], return_inverse=True)
    slot = np.searchsorted(stated, storage)
    different, seen, tensor = np.unique(slot, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(seen, kind="stable"), kind="stable")
    by_first = different[np.argsort(seen, kind="stable")]
    return OperandColumns(
        node=node, is_output=is_output, position=position, tensor=rank[tensor],
        tensor_id=1 + by_first, storage_id=1 + by_first, offset=np.zeros_like(by_first),
        kind=kind[by_first],
        types=tuple(TensorType((one,), "uint8") for one in known.tolist()), device=device,
    )  # fmt: skip
