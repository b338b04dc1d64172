"""Draw sizes and durations of operations from a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.model.arrays import Floats, Ints
from nadi.synthesis.learned_model import Quantities, Template
from nadi.synthesis.quantities import EDGES, NUM_VARIANTS

__all__ = [
    "TokenQuantities", "check_width", "draw_durations", "quantities_at",
           "sizes_of_job", "step_paces"]

_TAPS = 24
"""Earlier operations that the noise of one depends on."""
_WIDEST = 1 << 40


class TokenQuantities(NamedTuple):
    """Sizes and durations of each token at one width; as of ``Quantities``, a row per token."""

    flops: Ints
    bytes: Ints
    comm_bytes: Ints
    shape: Ints
    duration: Floats


def quantities_at(known: Quantities, num_tokens: int, width: int) -> TokenQuantities:
    """Return what tokens take at a width.

    Between two widths that were learned, powers of the width; a token that was seen at one width
    only is taken from there. O(tokens).
    """
    key = known.token * _WIDEST + known.hidden
    token = np.arange(num_tokens)
    first = np.searchsorted(known.token, token)
    end = np.searchsorted(known.token, token, side="right") - 1
    above = np.clip(np.searchsorted(key, token * _WIDEST + width), first, end)
    # of a width beyond those learned, the two nearest
    above = np.where((above == first) & (above < end) & (known.hidden[above] < width), above + 1,
                     above)  # fmt: skip
    exact = known.hidden[above] == width
    below = np.where(exact, above, np.maximum(above - 1, first))
    above = np.where((below == above) & ~exact, np.minimum(above + 1, end), above)
    wide = np.log(np.maximum(known.hidden, 1))
    span = wide[above] - wide[below]
    wanted = np.log(max(width, 1)) - wide[below]
    part = np.divide(wanted, span, out=np.zeros_like(span), where=span > 0)
    return TokenQuantities(
        *(_between(one, below, above, part) for one in known[2:5]),
        _between(known.shape, below, above, part),
        _power(known.duration, below, above, part),
    )


def check_width(known: Quantities, width: int) -> None:
    """Raise UsageError unless two widths were learned, between which others lie.

    Raises
    ------
    UsageError
        The message names the learned width.
    """
    learned = np.unique(known.hidden[known.hidden > 0]).tolist()
    if width in learned:
        return
    if len(learned) < 2:  # noqa: PLR2004
        what = f"the model was learned at width {learned[0]} only" if learned else (
            "the model knows no width, as the learned jobs state no tensors"
        )  # fmt: skip
        raise UsageError(
            Parameter("hidden", width), what, "learn from jobs of two widths or more"
        )


def _between(values: Ints, below: Ints, above: Ints, part: Floats) -> Ints:
    found = _power(values, below, above, part)
    same = values[below] == values[above]
    return np.where(same, values[below], np.rint(found).astype(np.int64))


def _power(values: Ints | Floats, below: Ints, above: Ints, part: Floats) -> Floats:
    """Return values at a part of the way on a logarithmic scale; where none is known, as is."""
    low, high = values[below].astype(np.float64), values[above].astype(np.float64)
    known = (low > 0) & (high > 0)
    way = part.reshape(-1, *([1] * (low.ndim - 1)))
    scaled = np.where(known, low, 1) * (np.where(known, high, 1) / np.where(known, low, 1)) ** way
    return np.where(known, scaled, low)


def sizes_of_job(known: TokenQuantities, random: np.random.Generator) -> TokenQuantities:
    """Draw the sizes of all tokens: small ones, or large ones, of those that were learned."""
    variant = int(random.integers(NUM_VARIANTS))
    return known._replace(
        flops=known.flops[:, variant], bytes=known.bytes[:, variant],
        comm_bytes=known.comm_bytes[:, variant], shape=known.shape[:, variant],
    )  # fmt: skip


def step_paces(
    template: Template, learned: Sequence[int], num_steps: int, random: np.random.Generator
) -> Floats:
    """Draw how slow each step of each rank is; float64, shape (ranks, steps).

    A new step is as slow on all ranks as one learned step was: the first as the first, later ones
    as any later one. A new rank is as slow as a learned rank of its role.
    """
    many = template.pace.shape[1]
    later = random.integers(min(1, many - 1), many, size=max(num_steps, 1))
    later[0] = 0
    role = np.array(template.role)
    found = np.empty((len(learned), num_steps))
    for rank, like in enumerate(learned):
        alike = np.flatnonzero(role == role[like])
        chosen = like if rank < template.num_ranks else int(random.choice(alike))
        found[rank] = template.pace[chosen, later[:num_steps]]
    return found


def draw_durations(
    token: Ints, pace: Floats, template: Template, known: TokenQuantities, memory: float,
    random: np.random.Generator,
) -> Ints:  # fmt: skip
    """Draw the duration of each operation of a job, in ns; -1 where none were learned.

    Durations of a token have the distribution that was learned, as evenly as their number allows;
    noise says only in which order they come (R. L. Iman, W. J. Conover, A distribution-free
    approach to inducing rank correlation among input variables, 1982).

    Parameters
    ----------
    token
        Of all ranks, one after the other.
    pace
        float64, shape (operations,): the score of the step of each.
    memory
        Correlation with the operation before.
    """
    if not (known.duration[:, 0] >= 0).any():
        return np.full(token.size, -1, dtype=np.int64)
    noise = random.standard_normal(token.size + _TAPS)
    kernel = memory ** np.arange(_TAPS + 1)
    kernel /= np.sqrt((kernel**2).sum())
    own = np.convolve(noise, kernel, mode="valid")
    score = pace + own * np.sqrt(max(1 - template.pace_share, 0.0))
    order = np.lexsort((score, token))
    first = np.flatnonzero(np.diff(token[order], prepend=-1))
    size = np.diff(np.append(first, token.size))
    chance = np.empty(token.size)
    within = np.arange(token.size) - np.repeat(first, size)
    chance[order] = (within + random.random(token.size)) / np.repeat(size, size)
    place = np.searchsorted(EDGES, chance, side="right") - 1
    return np.rint(known.duration[token, place]).astype(np.int64)
