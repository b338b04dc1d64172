"""Small decision trees over named facts: whether an operation is there, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from nadi.trace.arrays import Floats, Ints

_DEEPEST = 8


class DecisionTree(msgspec.Struct, frozen=True):
    """A tree of questions.

    Attributes
    ----------
    answer
        What holds where no question is left: the commonest answer.
    fact, least
        The question: whether this fact is at least so large; no fact for none.
    low, high
        What to ask next if it is not, and if it is.
    """

    answer: int = 0
    fact: str = ""
    least: float = 0.0
    low: DecisionTree | None = None
    high: DecisionTree | None = None

    @property
    def facts(self) -> set[str]:
        """The facts that it asks about."""
        if self.low is None or self.high is None:
            return set()
        return {self.fact} | self.low.facts | self.high.facts

    def decide(self, facts: Mapping[str, float]) -> int:
        """Return the answer for facts by name; a fact that is missing is 0."""
        tree = self
        while tree.low is not None and tree.high is not None:
            tree = tree.high if facts.get(tree.fact, 0.0) >= tree.least else tree.low
        return tree.answer


def grow(
    names: Sequence[str], facts: Floats, answers: Ints, deepest: int = _DEEPEST
) -> DecisionTree:
    """Learn a tree; equally good questions are asked of the fact that is named first.

    - ``names``: Of the facts.
    - ``facts``: float64, shape (examples, facts).
    - ``answers``: int64, shape (examples,): from 0.
    """
    counts = np.bincount(answers)
    answer = int(counts.argmax())
    if counts[answer] == answers.size or not deepest:
        return DecisionTree(answer)
    best = (_disorder(answers) - 1e-9, -1, 0.0)
    for place in range(len(names)):
        values = np.unique(facts[:, place])
        for low, high in pairwise(values):
            above = facts[:, place] >= (low + high) / 2
            left = _disorder(answers[above]) + _disorder(answers[~above])
            if left < best[0] - 1e-9:
                best = (left, place, float(low + high) / 2)
    if best[1] < 0:
        return DecisionTree(answer)
    above = facts[:, best[1]] >= best[2]
    low_tree = grow(names, facts[~above], answers[~above], deepest - 1)
    high_tree = grow(names, facts[above], answers[above], deepest - 1)
    return DecisionTree(answer, names[best[1]], best[2], low_tree, high_tree)


def _disorder(answers: Ints) -> float:
    """Return the entropy of answers, times their number."""
    if not answers.size:
        return 0.0
    counts = np.bincount(answers)
    counts = counts[counts > 0]
    return float(-(counts * np.log(counts / answers.size)).sum())
