"""Draw programs from a model: the operations of ranks in their order, without sizes and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from nadi.sharing.synthesis.back_off import BackOff
from nadi.sharing.synthesis.grammar import scaled_turns
from nadi.sharing.synthesis.learned_model import END, FIRST_START, Role, TraceModel
from nadi.sharing.synthesis.transformer import TransformerDraws
from nadi.trace.arrays import Ints

__all__ = ["ProgramDraws"]

_MOST = 2
"""Times the longest sequence and the largest step that were learned, after which one ends."""


class _Sequences(Protocol):
    """A model of sequences: what :class:`BackOff` and :class:`TransformerDraws` have in common."""

    def begin(self, start: int) -> Any:
        """Return a sequence with its start only, which has ``append``."""

    def next(self, history: Any, random: np.random.Generator, /) -> list[int]:
        """Return a symbol that comes next, and others that may replace it."""


class ProgramDraws:
    """Draws the steps of ranks.

    Parameters
    ----------
    temperature
        As of :class:`nadi.sharing.synthesis.back_off.BackOff`.
    """

    def __init__(self, model: TraceModel, temperature: float) -> None:
        self._model = model
        self._left = 0  # operations that a step may still get
        self._sequences: _Sequences = (
            BackOff(model.counts, temperature) if model.transformer is None
            else TransformerDraws(model.transformer, temperature)
        )  # fmt: skip

    def steps(
        self, role: Role, num_steps: int, layers: int, random: np.random.Generator
    ) -> list[Ints]:
        """Return the tokens of each step of a role; int64, shape (operations,) each.

        Parameters
        ----------
        layers
            How many each rank has; as many as learned if it is those of the role.
        """
        found = []
        deeper = max(layers / role.layers, 1.0) if role.layers else 1.0
        for number in range(num_steps):
            self._left = round(_MOST * self._model.largest * deeper)
            start = role.later_step if number else role.first_step
            found.append(self._drawn(start, len(self._model.rules), role, layers, random))
        return found

    def _drawn(
        self, start: int, below: int, role: Role, layers: int, random: np.random.Generator
    ) -> Ints:
        """Draw a sequence whose rules have numbers below one, and write out its repeats."""
        symbols = self._symbols(start, below, random)
        pieces: list[Ints] = []
        at = 0
        for place, one in enumerate(symbols):
            if one >= 0:
                continue
            pieces.append(np.array(symbols[at:place], dtype=np.int64))
            rule = self._model.rules[-1 - one]
            body = self._drawn(FIRST_START - 1 - one, -1 - one, role, layers, random)
            turns = rule.turns
            if role.layers and not rule.holds_layers and layers != role.layers:
                turns = scaled_turns(turns, role.layers, layers)
            turns = min(turns, 1 + max(self._left, 0) // max(body.size, 1))
            self._left -= (turns - 1) * body.size
            pieces.append(np.tile(body, turns))
            at = place + 1
        pieces.append(np.array(symbols[at:], dtype=np.int64))
        return np.concatenate(pieces)

    def _symbols(self, start: int, below: int, random: np.random.Generator) -> Sequence[int]:
        history = self._sequences.begin(start)
        found: list[int] = []
        while len(found) <= _MOST * self._model.longest and self._left > 0:
            options = self._sequences.next(history, random)
            if found and options[0] == END:
                break
            drawn = next((one for one in options if one != END and -1 - one < below), END)
            if drawn == END:
                break
            found.append(drawn)
            history.append(drawn)
            self._left -= drawn >= 0
        return found
