"""Discrete Laplace noise, sampled exactly from integers: no rounding of floats can leak.

After Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy (2020),
algorithms 1 and 2.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

__all__ = ["discrete_laplace", "discrete_laplace_probability"]


def discrete_laplace(scale: Fraction, random: Random) -> int:
    """Return a random integer k with a probability proportional to exp(-|k| / scale).

    Added to a number that a neighbor changes by at most ``scale * epsilon``, it spends epsilon.

    Parameters
    ----------
    scale
        More than 0.
    random
        Where uniform integers come from: ``random.SystemRandom()`` for what is published.
    """
    top, bottom = scale.numerator, scale.denominator
    while True:
        rest = random.randrange(top)
        if not _happens(Fraction(rest, top), random):
            continue
        whole = 0
        while _happens(Fraction(1), random):
            whole += 1
        size = (rest + top * whole) // bottom
        negative = random.randrange(2)
        if size or not negative:
            return -size if negative else size


def discrete_laplace_probability(value: int, scale: Fraction) -> float:
    """Return the probability of a value of :func:`discrete_laplace`."""
    from math import exp

    share = exp(-1 / scale)
    return float((1 - share) / (1 + share) * share ** abs(value))


def _happens(rate: Fraction, random: Random) -> bool:
    """Return True with probability exp(-rate), for a rate from 0 to 1."""
    turn = 1
    # the chance of exactly n turns is that of the n-th term of the series of exp
    while random.randrange(rate.denominator * turn) < rate.numerator:
        turn += 1
    return turn % 2 == 1
