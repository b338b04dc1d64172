"""What comes next after what came before: a model of sequences that backs off to less context.

Counts of symbols after contexts of several lengths, as in prediction by partial matching. A symbol
is drawn after the longest context that was seen. So what is drawn was seen, piece by piece, and the
pieces overlap.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Hashes, Ints

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths of contexts."""
_WITH_START = 8
"""From this length on a context also knows what its sequence began with: the role of the rank.
Shorter ones are shared by all roles, and by all jobs."""
_FACTOR = 0x9E3779B97F4A7C15
_START_FACTOR = 0xC2B2AE3D27D4EB4F
_SHIFT = 1 << 32
_MASK = (1 << 64) - 1


class Counts(NamedTuple):
    """How often symbols came after contexts of one length."""

    context: Hashes  # uint64, shape (contexts,): a hash of each, ascending
    first: Ints  # int64, shape (contexts + 1,): where the symbols of each begin
    # symbol, times: int64, shape (symbols after contexts,)
    symbol: Ints
    times: Ints


def count_contexts(sequences: Iterable[tuple[Sequence[int], int]]) -> tuple[Counts, ...]:
    """Count what follows contexts of all lengths. O(symbols log symbols) for each.

    - ``sequences``: Symbols, of which the first is only context; and how often the sequence came.
    """
    known: dict[tuple[int, ...], int] = {}
    for symbols, weight in sequences:
        key = tuple(symbols)
        known[key] = known.get(key, 0) + weight
    sizes = [len(one) - 1 for one in known]
    contexts = np.concatenate([_hashes(np.array(one, dtype=np.int64)) for one in known], axis=1)
    followers = np.concatenate([np.array(one[1:], dtype=np.int64) for one in known])
    weights = np.repeat(np.array(list(known.values()), dtype=np.int64), sizes)
    return tuple(_counted(of_level, followers, weights) for of_level in contexts)


def _counted(context: Hashes, symbol: Ints, weight: Ints) -> Counts:
    order = np.lexsort((symbol, context))
    context, symbol, weight = context[order], symbol[order], weight[order]
    is_new = np.ones(context.size, dtype=np.bool_)
    is_new[1:] = (context[1:] != context[:-1]) | (symbol[1:] != symbol[:-1])
    at = np.flatnonzero(is_new)
    count = np.add.reduceat(weight, at)
    context, symbol = context[at], symbol[at]
    begin = np.flatnonzero(np.append(True, context[1:] != context[:-1]))
    return Counts(context[begin], np.append(begin, context.size), symbol, count)


class History:
    """Symbols one after the other, and a hash of the last so many of them."""

    def __init__(self, start: int) -> None:
        self._passed = [0]
        self._of_start = start * _START_FACTOR & _MASK
        self.append(start)

    def __len__(self) -> int:
        return len(self._passed) - 1

    def append(self, symbol: int) -> None:
        """Add a symbol."""
        self._passed.append((self._passed[-1] * _FACTOR + symbol + _SHIFT) & _MASK)

    def prefixes(self, symbols: Sequence[int]) -> Hashes:
        """Add symbols; returns the hash of all up to each, from none; uint64."""
        for one in symbols:
            self.append(one)
        return np.array(self._passed, dtype=np.uint64)

    def context(self, level: int) -> int:
        """Return the hash of the last ``ORDERS[level]`` symbols, or of all if they are fewer."""
        order = min(ORDERS[level], len(self._passed) - 1)
        recent = self._passed[-1] - self._passed[-1 - order] * _powers()[order]
        return (recent + self._of_start * (ORDERS[level] >= _WITH_START)) & _MASK


@cache
def _powers() -> list[int]:
    found = [1]
    for _ in range(ORDERS[-1]):
        found.append(found[-1] * _FACTOR & _MASK)
    return found


def _hashes(symbols: Ints) -> Hashes:
    """Return hashes of what is before each symbol but the first; uint64, shape (orders, symbols).

    Those of :class:`History`.
    """
    history = History(int(symbols[0]))
    passed = history.prefixes(symbols[1:-1].tolist())
    place = np.arange(1, symbols.size)
    powers = np.array(_powers(), dtype=np.uint64)
    of_start = np.uint64(int(symbols[0]) * _START_FACTOR & _MASK)
    found = np.empty((len(ORDERS), place.size), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for level, order in enumerate(ORDERS):
            own = np.minimum(order, place)
            found[level] = passed[place] - passed[place - own] * powers[own]
            if order >= _WITH_START:
                found[level] += of_start
    return found


class BackOff:
    """Draws sequences from counts, for each of ``ORDERS``."""

    def __init__(self, counts: Sequence[Counts]) -> None:
        self._place = [
            dict(zip(one.context.tolist(), range(one.context.size), strict=True)) for one in counts
        ]
        # scalars of lists are three times as fast as those of arrays
        self._first = [one.first.tolist() for one in counts]
        self._symbol = [one.symbol.tolist() for one in counts]
        self._count = [one.times.tolist() for one in counts]

    def begin(self, start: int) -> History:
        """Return a sequence of which only the start is there."""
        return History(start)

    def next(self, history: History, random: np.random.Generator) -> list[int]:
        """Draw the next symbol; those after it may replace it.

        - ``history``: What came before, at least one symbol.
        """
        for level in range(len(ORDERS) - 1, -1, -1):
            row = self._place[level].get(history.context(level))
            if row is not None:
                begin, end = self._first[level][row], self._first[level][row + 1]
                symbols: list[int] = self._symbol[level][begin:end]
                if len(symbols) == 1:
                    return symbols
                return [_one_of(symbols, self._count[level][begin:end], random), *symbols]
        return []


def _one_of(symbols: Sequence[int], counts: Sequence[int], random: np.random.Generator) -> int:
    wanted = random.random() * sum(counts)
    for symbol, count in zip(symbols, counts, strict=True):
        wanted -= count
        if wanted < 0:
            return symbol
    return symbols[-1]
