"""Lives of storages: which operation makes one, and which uses it last.

What makes storages, and how long these last, is learned by context, the operation and those before
it: for each time that it comes in a step, as activations of the first layer last longest. So a life
that begins also ends, whatever the program.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.simulation.accounts.memory_accounts import StorageUses
from nadi.trace.arrays import Hashes, Ints
from nadi.trace.operands import OperandColumns, TensorType

Made = tuple[tuple[int, int], ...]
"""Of the storages that an operation makes, or is the first to use, in a context: bytes, and
operations that they last; -1 for what is there before, and stays."""


class StorageLives(NamedTuple):
    """Storages of a rank; int64, shape (storages,)."""

    bytes: Ints  # size
    begin: Ints  # the operation that makes it; -1 if it was there before the first
    end: Ints  # the last operation that uses it
    first: Ints  # the first operation that uses it or makes it

    @classmethod
    def none(cls) -> StorageLives:
        """Return no storages."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty)


class LearnedStorages(NamedTuple):
    """What was learned of the storages of a job."""

    # for each role, by context; those that make nothing, and use nothing first, are left out. It is
    # stated for each time that the context comes in a step, once if it is always the same.
    made: tuple[Mapping[int, tuple[Made, ...]], ...]
    lasting: tuple[int, ...]  # for each rank, bytes that are there before the first operation
    device: str  # such as ``cuda:0``; empty if the job states no tensors


class Growth(NamedTuple):
    """How a rank of a job differs from the one that was learned."""

    share: float  # bytes that are there before, over those of the first rank of its role
    deeper: float  # times the layers
    # operations of a layer: storages that last as long are of several, and last longer
    layer: float


def lives_of_uses(uses: StorageUses, begin: Ints, end: Ints) -> StorageLives:
    """Return the lives of storages.

    - ``begin``, ``end``: int64, shape (rows of the trace,): the first and last operation of each
      row; -1 if none.
    """
    known = (begin[uses.row] >= 0) & (uses.size > 0)
    if not known.any():
        return StorageLives.none()
    storage, size, makes = uses.storage[known], uses.size[known], uses.makes[known]
    first, last = begin[uses.row[known]], end[uses.row[known]]
    order = np.lexsort((first, storage))
    storage, size, makes = storage[order], size[order], makes[order]
    first, last = first[order], last[order]
    span = int(last.max()) + 1
    latest = np.maximum.accumulate(storage * span + last)  # all earlier uses of it are over
    over = np.append(True, (latest[:-1] % span < first[1:]) | (storage[1:] != storage[:-1]))
    at = np.flatnonzero((np.diff(storage, prepend=-1) > 0) | (makes & over))
    return StorageLives(
        np.maximum.reduceat(size, at), np.where(makes[at], first[at], -1),
        np.maximum.reduceat(last, at), first[at],
    )  # fmt: skip


def learn_memory(
    lives: Sequence[StorageLives],
    contexts: Sequence[Sequence[Hashes]],
    role: Sequence[int],
    device: str,
) -> LearnedStorages:
    """Learn what operations make, of the first rank of each role.

    - ``contexts``: Of each rank, those of each step.
    - ``role``: Of each rank.
    """
    lasting = tuple(int(own.bytes[own.begin < 0].sum()) for own in lives)
    first = [role.index(number) for number in range(max(role) + 1)]
    return LearnedStorages(
        tuple(_made(lives[rank], contexts[rank]) for rank in first), lasting, device
    )


def _made(own: StorageLives, of_steps: Sequence[Hashes]) -> dict[int, tuple[Made, ...]]:
    """Return what a rank makes or uses by context, each in the first step that has it."""
    made: dict[int, tuple[Made, ...]] = {}
    context = np.concatenate(of_steps).tolist()
    by_row: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(own.first.tolist()):
        by_row[row].append(number)
    lasts = np.where(own.begin >= 0, own.end - own.begin, -1)
    begin = 0
    for step in of_steps:
        found: dict[int, list[Made]] = defaultdict(list)
        makers = {context[row] for row in range(begin, begin + step.size) if row in by_row}
        for row in range(begin, begin + step.size):
            if context[row] in makers:
                numbers = by_row.get(row, [])
                found[context[row]].append(
                    tuple(zip(own.bytes[numbers].tolist(), lasts[numbers].tolist(), strict=True))
                )
        for key, every in found.items():
            made.setdefault(key, tuple(every if len(set(every)) > 1 else every[:1]))
        begin += step.size
    return made


def draw_lives(
    made: Mapping[int, tuple[Made, ...]], steps: Sequence[Hashes], growth: Growth
) -> StorageLives:
    """Return the storages of a rank by the contexts of its operations. O(storages).

    - ``made``: What the role of the rank makes, as large as in the new job.
    - ``steps``: The contexts of each step.
    - ``growth``: How the job differs from the learned one.
    """
    before = 0
    share, deeper, within = growth
    last = sum(step.size for step in steps) - 1
    found: list[tuple[int, int, int, int]] = []
    earlier: set[int] = set()
    active = np.array(sorted(made), dtype=np.uint64)
    for step in steps:
        rows = np.flatnonzero(np.isin(step, active))
        keys = step[rows].tolist()
        times, seen = Counter(keys), Counter[int]()
        for row, key in zip((before + rows).tolist(), keys, strict=True):
            every = made[key]
            now = every[seen[key] * len(every) // times[key]]
            seen[key] += 1
            for amount, lasts in now:
                if lasts >= 0:
                    stays = lasts if lasts < within else round(lasts * deeper)
                    found.append((amount, row, min(row + stays, last), row))
                elif key not in earlier:  # what is there before is there once
                    found.append((round(amount * share), -1, last, row))
        before += step.size
        earlier |= set(times)
    return StorageLives(*np.array(found, dtype=np.int64).reshape(-1, 4).T)


def operands_of_lives(lives: StorageLives, device: str) -> OperandColumns:
    """Return operands: each storage is stated where it is first used, and where it ends."""
    number = np.arange(lives.bytes.size)
    stated = number[lives.bytes > 0]
    is_made = lives.begin[stated] >= 0
    # what one operation alone uses is stated once
    taken = stated[lives.end[stated] > lives.first[stated]]
    node = np.concatenate([lives.first[stated], lives.end[taken]])
    is_output = np.concatenate([is_made, np.zeros(taken.size, dtype=np.bool_)])
    storage = np.concatenate([stated, taken])
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
        types=tuple(TensorType((one,), "uint8") for one in known.tolist()),
        role=np.full(by_first.size, -1, dtype=np.int64), roles=(), device=device,
    )  # fmt: skip
