"""Programs of ranks as a grammar: steps, and repeats in them, each body written once.

A symbol is a token, or a rule: a body of symbols that comes several times in a row. Rules are
found by :func:`nadi.recordings.folded.repeat_search.find_repeats`, one inside the other, in each
step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nadi.recordings.folded.repeat_search import Loop, SignedRows, find_repeats
from nadi.sharing.synthesis.job_columns import RankColumns
from nadi.trace.arrays import Ints

_LEAST_LAYER = 8
"""Operations that a layer has at least."""


class Repeat(NamedTuple):
    """A rule: what repeats, and how often."""

    body: tuple[int, ...]  # symbols: tokens, and rules as ``-1 - rule``
    turns: int  # how often the body comes in a row
    # whether layers repeat in it, such as in a micro-batch: then it is not one of several layers
    holds_layers: bool


@dataclass
class Grammar:
    """The rules of all programs, and the steps as sequences of symbols."""

    rules: list[Repeat] = field(default_factory=list)  # each different repeat once
    _known: dict[Repeat, int] = field(default_factory=dict)
    _parsed: dict[bytes, tuple[int, ...]] = field(default_factory=dict)

    def parse(self, token: Ints, layers: int) -> tuple[int, ...]:
        """Return a step as symbols. Equal steps are parsed once. O(n log n) for each repeat."""
        key = token.tobytes() + layers.to_bytes(8, "little")
        if key not in self._parsed:
            loops = _loops(token)
            self._parsed[key] = self._symbols(token, 0, token.size, loops, layers)
        return self._parsed[key]

    def size_of(self, symbols: Sequence[int]) -> int:
        """Return how many operations symbols stand for."""
        return sum(
            1 if one >= 0 else self.rules[-1 - one].turns * self.size_of(self.rules[-1 - one].body)
            for one in symbols
        )

    def _symbols(
        self, token: Ints, begin: int, end: int, loops: Sequence[Loop], layers: int
    ) -> tuple[int, ...]:
        found: list[int] = []
        at = begin
        for loop in loops:
            found += token[at : loop.first].tolist()
            turn_end = loop.first + loop.size
            body = self._symbols(token, loop.first, turn_end, loop.inner, layers)
            holds = _holds_layers(loop, layers)
            rule = Repeat(body, loop.turns, holds)
            number = self._known.setdefault(rule, len(self.rules))
            if number == len(self.rules):
                self.rules.append(rule)
            found.append(-1 - number)
            at = loop.end
        return (*found, *token[at:end].tolist())


def _loops(token: Ints) -> tuple[Loop, ...]:
    empty = np.zeros(0, dtype=np.int64)
    return find_repeats(SignedRows(token, np.zeros(token.size + 1, dtype=np.int64), empty))


def _holds_layers(loop: Loop, layers: int) -> bool:
    """Return whether a repeat as long as the layers, or all but one, is inside of a repeat."""
    return any(
        (one.turns in (layers, layers - 1) and one.turns > 1 and one.size >= _LEAST_LAYER)
        or _holds_layers(one, layers)
        for one in loop.inner
    )


def step_parts(rank: RankColumns) -> list[Ints]:
    """Return the rows of each step of a rank; what precedes the first belongs to it."""
    step = rank.step
    cuts = np.flatnonzero(np.diff(step) != 0) + 1
    cuts = cuts[step[cuts - 1] >= 0]
    return np.split(np.arange(rank.size), cuts)


def num_layers(rank: RankColumns, token: Ints) -> int:
    """Return how many layers a rank has: as stated, else the turns of its longest repeat.

    0 if nothing as long as a layer repeats. A repeat in which two others have equal turns is a
    micro-batch or a step: forward and backward of the layers are in it.
    """
    stated = np.unique(rank.layer[rank.layer >= 0])
    if stated.size:
        return int(stated.size)
    rows = max(step_parts(rank), key=len)
    best = (0, 0)
    pending = list(_loops(token[rows]))
    while pending:
        loop = pending.pop()
        turns = Counter(one.turns for one in loop.inner if one.size >= _LEAST_LAYER)
        if turns and max(turns.values()) > 1:
            pending += loop.inner
        elif loop.size >= _LEAST_LAYER:
            best = max(best, (loop.size, loop.turns))
    return best[1]


def scaled_turns(turns: int, layers: int, wanted: int) -> int:
    """Return the turns of a repeat for another number of layers.

    A repeat comes some times for each layer, and some times more, such as an optimizer for each
    weight; or once for each layer but the first. Shorter ones stay.

    >>> scaled_turns(147, 12, 24), scaled_turns(5, 6, 8), scaled_turns(2, 12, 24)
    (291, 7, 2)
    """
    of_each, more = divmod(turns, layers)
    if more == layers - 1 and layers > 2:
        of_each, more = of_each + 1, -1
    return max(of_each * wanted + more, 1) if of_each else turns
