"""Whether a rank is late more than chance makes one of ranks that are alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nadi.errors import checked
from nadi.graph.arrivals import Stragglers
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window

__all__ = ["RepeatedLateness", "lateness_over_repeats"]

_LEAST = 3  # repeats: with fewer, their variation is not known


@dataclass(frozen=True)
class RepeatedLateness:
    """How a rank's lateness repeats.

    Attributes
    ----------
    repeats
        The number of steps, or, with fewer than three, of collectives and transfers in which
        ranks wait for each other.
    times
        In how many of them the others wait longer for this rank than it does for them.
    of_steps
        Whether they are steps.
    chance
        The probability that some rank is late by as much if all ranks are alike; 1 with fewer than
        three repeats, which say nothing.
    """

    repeats: int
    times: int
    of_steps: bool
    chance: float

    @property
    def is_tested(self) -> bool:
        """Whether there are enough repeats to say something."""
        return self.repeats >= _LEAST


@checked
def lateness_over_repeats(
    graph: EventGraph, window: Window, stragglers: Stragglers, rank: int
) -> RepeatedLateness:
    """Test whether a rank is late in all repeats, by Student's t over them.

    In each repeat the wait time that the rank causes is compared with the mean of what the other
    ranks cause. If all are alike, the difference varies around 0. That the rank was chosen as the
    latest counts: the probability is multiplied by the number of ranks.
    """
    found = stragglers.collectives
    begins = np.array([step.start(graph.time) for step in window.steps], dtype=np.int64)
    of_steps = begins.size >= _LEAST
    unit = (
        np.maximum(np.searchsorted(begins, found["time"].to_numpy(), side="right") - 1, 0)
        if of_steps
        else np.arange(found.height)
    )
    num_units = begins.size if of_steps else found.height
    num_ranks = len(graph.job.ranks)
    own = found["rank"].to_numpy() == rank
    signed = np.where(own, 1.0, -1.0 / max(num_ranks - 1, 1)) * found["late"].to_numpy()
    sums = np.bincount(unit, weights=signed, minlength=num_units)
    chance = min(num_ranks * _above(sums), 1.0) if num_units >= _LEAST else 1.0
    return RepeatedLateness(num_units, int((sums > 0).sum()), of_steps, chance)


def _above(values: np.ndarray) -> float:
    """Return the probability of a mean this far above 0 if the true mean is 0."""
    deviation = float(np.std(values, ddof=1))
    mean = float(np.mean(values))
    if deviation == 0:
        return 0.0 if mean > 0 else 1.0
    return _student_above(mean / deviation * math.sqrt(values.size), values.size - 1)


def _student_above(value: float, freedom: int) -> float:
    """Return the probability that Student's t exceeds a value; Abramowitz and Stegun, 26.7.3-4."""
    angle = math.atan(value / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 - within) / 2
