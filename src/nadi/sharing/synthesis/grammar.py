"""Programs of ranks as a grammar: steps, and repeats in them, each body written once.

A symbol is a token, or a rule: a body of symbols that comes several times in a row. Rules are
found by :func:`nadi.recordings.folded.row_values.find_repeats`, one inside the other, in each
step.

A repeat grows with the layers of the model if its turns go from layer to layer. Operations state
their layers, or modules do; without either, a repeat that comes about as often as the longest one
is of layers, unless it is in another one of layers, or around one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nadi.graph.module_tree import EVERY_LAYER, NO_LAYER
from nadi.recordings.folded.row_values import Loop, SignedRows, find_repeats
from nadi.sharing.synthesis.job_columns import RankColumns
from nadi.trace.arrays import Floats, Ints

_LEAST_LAYER = 8
"""Operations that a layer has at least."""


class Repeat(NamedTuple):
    """A rule: what repeats, and how often."""

    body: tuple[int, ...]  # symbols: tokens, and rules as ``-1 - rule``
    turns: int  # how often the body comes in a row
    # growth, per_layers: so many turns more for so many layers more; 0 and 1 for none
    growth: int = 0
    per_layers: int = 1


class StepLayers(NamedTuple):
    """The layers of a step of a rank."""

    layer: Ints  # int64, shape (operations,): as of ``RankColumns``
    number: int  # how many there are; 0 if none were found
    # the most turns of a repeat that each stated layer has: for each of its weights. Loops of an
    # optimizer whose layers are not stated come once, or several times, for each of these.
    weights: int = 1

    @property
    def is_stated(self) -> bool:
        """Whether operations say which layer they are of."""
        return bool((self.layer >= 0).any())

    def growth(self, loop: Loop, *, inside: bool) -> tuple[int, int]:
        """Return so many turns of a repeat more for so many layers more; 0 and 1 for none.

        - ``inside``: Whether it is in a repeat that grows.
        """
        if self.number < 1 or inside:
            return 0, 1
        own = self.layer[loop.first : loop.end].reshape(loop.turns, loop.size)
        if (own >= 0).any():
            return _growth_of_turns(own)
        if self.is_stated and not (own == EVERY_LAYER).all():
            return 0, 1
        if _holds_layers(loop, self.number):
            return 0, 1
        of_each = of_layer(loop.turns, self.number)
        return of_each - of_each % self.weights, 1


class ParsedStep(NamedTuple):
    """A step as symbols."""

    symbols: tuple[int, ...]
    beside: int  # as of ``_beside_layers``


@dataclass
class Grammar:
    """The rules of all programs, and the steps as sequences of symbols."""

    rules: list[Repeat] = field(default_factory=list)  # each different repeat once
    _known: dict[Repeat, int] = field(default_factory=dict)
    _parsed: dict[bytes, ParsedStep] = field(default_factory=dict)

    def parse(
        self, token: Ints, label: Ints, layer: Ints, layers: int, backward: Mapping[int, int]
    ) -> ParsedStep:
        """Return a step as symbols. Equal steps are parsed once. O(n log n) for each repeat.

        - ``token``, ``label``, ``layer``: int64, shape (operations,): the last as of
          ``RankColumns``.
        - ``layers``: How many layers the rank has.
        - ``backward``: As of :func:`backward_labels`.
        """
        key = token.tobytes() + layer.tobytes() + layers.to_bytes(8, "little")
        if key not in self._parsed:
            loops = _find_loops(token, layer)
            step = StepLayers(layer, layers)
            step = step._replace(weights=_most_growth(step, loops))
            symbols = self._symbols(token, (0, token.size), loops, step, inside=False)
            self._parsed[key] = ParsedStep(symbols, _beside_layers(label, step, loops, backward))
        return self._parsed[key]

    def size_of(self, symbols: Sequence[int]) -> int:
        """Return how many operations symbols stand for."""
        return sum(
            1 if one >= 0 else self.rules[-1 - one].turns * self.size_of(self.rules[-1 - one].body)
            for one in symbols
        )

    def _symbols(
        self, token: Ints, rows: tuple[int, int], loops: Sequence[Loop], layers: StepLayers,
        *, inside: bool,
    ) -> tuple[int, ...]:  # fmt: skip
        found: list[int] = []
        at, end = rows
        for loop in loops:
            found += token[at : loop.first].tolist()
            growth = layers.growth(loop, inside=inside)
            turn = loop.first, loop.first + loop.size
            grows = inside or growth[0] > 0
            body = self._symbols(token, turn, loop.inner, layers, inside=grows)
            rule = Repeat(body, loop.turns, *growth)
            number = self._known.setdefault(rule, len(self.rules))
            if number == len(self.rules):
                self.rules.append(rule)
            found.append(-1 - number)
            at = loop.end
        return (*found, *token[at:end].tolist())


def _growth_of_turns(layer: Ints) -> tuple[int, int]:
    """Return so many turns more for so many layers more of a repeat whose layers are known.

    - ``layer``: int64, shape (turns, operations): what most of a turn is of counts.
    """
    known, place = np.unique(np.maximum(layer, NO_LAYER), return_inverse=True)
    turn = np.broadcast_to(np.arange(len(layer))[:, None], layer.shape)
    count = np.zeros((len(layer), known.size), dtype=np.int64)
    np.add.at(count, (turn, place.reshape(layer.shape)), known[place.reshape(layer.shape)] >= 0)
    of_turn = known[count[count.any(axis=1)].argmax(axis=1)]
    begin = np.flatnonzero(np.diff(of_turn, prepend=NO_LAYER))
    if begin.size == 1:
        return 0, 1
    middle = (begin.size - 1) // 2
    turns = begin[middle + 1] - begin[middle]
    return int(turns), int(abs(of_turn[begin[middle + 1]] - of_turn[begin[middle]]))


def _find_loops(token: Ints, layer: Ints) -> tuple[Loop, ...]:
    """Return the repeats of a step, also few operations that come once in each of few layers."""
    empty = np.zeros(0, dtype=np.int64)
    found = find_repeats(SignedRows(token, np.zeros(token.size + 1, dtype=np.int64), empty))
    return tuple(_with_short(token, layer, (0, token.size), found))


def _with_short(
    token: Ints, layer: Ints, rows: tuple[int, int], loops: Sequence[Loop]
) -> Iterator[Loop]:
    """Yield repeats, and between them those of layers that follow each other."""
    at, end = rows
    for loop in (*loops, Loop(end, 0, 1)):
        yield from _of_layers(token, layer, at, loop.first)
        at = loop.end
        if loop.size:
            turn = loop.first, loop.first + loop.size
            yield loop._replace(inner=tuple(_with_short(token, layer, turn, loop.inner)))


def _of_layers(token: Ints, layer: Ints, begin: int, end: int) -> Iterator[Loop]:
    """Yield repeats of which each turn is all that a layer has in a row."""
    cuts = begin + 1 + np.flatnonzero(np.diff(layer[begin:end]))
    borders = [begin, *cuts.tolist(), end]
    at = 0
    while begin < end and at < len(borders) - 1:
        first, size = borders[at], borders[at + 1] - borders[at]
        turns = 1
        while (
            layer[first] >= 0 and at + turns < len(borders) - 1
            and layer[borders[at + turns]] >= 0
            and borders[at + turns + 1] == first + (turns + 1) * size
            and np.array_equal(token[first : first + size], token[borders[at + turns] :][:size])
        ):  # fmt: skip
            turns += 1
        if turns > 1:
            yield Loop(first, size, turns)
        at += turns


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
    pending = list(_find_loops(token[rows], rank.layer[rows]))
    while pending:
        loop = pending.pop()
        turns = Counter(one.turns for one in loop.inner if one.size >= _LEAST_LAYER)
        if turns and max(turns.values()) > 1:
            pending += loop.inner
        elif loop.size >= _LEAST_LAYER:
            best = max(best, (loop.size, loop.turns))
    return best[1]


def of_layer(turns: int, layers: int) -> int:
    """Return how many turns of a repeat come for each layer; 0 for none.

    A repeat comes some times for each layer, and some times more, such as an optimizer for each
    weight; or once for each layer but the first. Shorter ones are of no layer.

    >>> of_layer(147, 12), of_layer(5, 6), of_layer(2, 12)
    (12, 1, 0)
    """
    of_each, more = divmod(turns, layers)
    return of_each + (more == layers - 1 and layers > 2)


def _beside_layers(
    label: Ints, layers: StepLayers, loops: Sequence[Loop], backward: Mapping[int, int]
) -> int:
    """Return the label of operations of layers that do not grow with them; -1 if all do.

    What repeats from layer to layer has to be, all together, what one layer has: otherwise a model
    with more layers would have more of some operations of each, and not of others. Where turns are
    several layers, what these have on average. Where layers are not stated, no operator grows
    without its backward.

    - ``label``: int64, shape (operations,): the name of each.
    """
    grown = np.zeros(label.size)
    per_layers = _add_grown(grown, layers, loops, 1)
    if not layers.is_stated:
        grows, present = set(label[grown > 0].tolist()), set(label.tolist())
        alone = (
            {one, other} - grows for one, other in backward.items()
            if {one, other} <= present and (one in grows) != (other in grows)
        )  # fmt: skip
        return max((one for pair in alone for one in pair), default=-1)
    stated = layers.layer >= 0
    known, place = np.unique(label[stated], return_inverse=True)
    added = np.bincount(place, weights=grown[stated], minlength=known.size)
    layer = np.unique(layers.layer[stated], return_inverse=True)[1]
    have = np.bincount(layer * known.size + place, minlength=layers.number * known.size)
    have = have.reshape(-1, known.size)
    windows = max(have.shape[0] - per_layers, 0) + 1
    apart = [
        np.abs(have[at : at + per_layers].mean(axis=0) - added) for at in range(windows)
    ]  # fmt: skip
    nearest = min(apart, key=lambda one: float(one.sum()))
    return int(known[nearest.argmax()]) if nearest.max() > 1e-9 else -1


def backward_labels(labels: Sequence[str]) -> dict[int, int]:
    """Return of operators the label of their backward: of ``aten::addmm`` ``AddmmBackward#``."""
    plain = {
        one.removeprefix("aten::").replace("_", ""): number
        for number, one in enumerate(labels) if one.startswith("aten::") and one[-1] != "_"
    }  # fmt: skip
    names = {
        number: one.removesuffix("Backward#").lower()
        for number, one in enumerate(labels) if one.endswith("Backward#")
    }  # fmt: skip
    return {plain[name]: number for number, name in names.items() if name in plain}


def _most_growth(step: StepLayers, loops: Sequence[Loop]) -> int:
    """Return the most turns that a layer has of a repeat whose layers are stated; at least 1."""
    most = 1
    for loop in loops:
        if (step.layer[loop.first : loop.end] >= 0).any():
            growth, per_layers = step.growth(loop, inside=False)
            most = max(most, growth // per_layers)
        most = max(most, _most_growth(step, loop.inner))
    return most


def _add_grown(grown: Floats, layers: StepLayers, loops: Sequence[Loop], times: int) -> int:
    """Add to operations how often one more layer has them; returns the layers of a turn."""
    widest = 1
    for loop in loops:
        growth, per_layers = layers.growth(loop, inside=False)
        widest = max(widest, per_layers // growth if growth else 1)
        if growth:  # a turn in the middle: others may begin before layers, or end after them
            begin = loop.first + loop.turns // 2 * loop.size
            grown[begin : begin + loop.size] += times * growth / per_layers
        else:
            widest = max(widest, _add_grown(grown, layers, loop.inner, times * loop.turns))
    return widest
