"""Draw sizes and durations of operations from a model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.sharing.synthesis.job_columns import JobColumns
from nadi.sharing.synthesis.learned_model import Quantities, Template
from nadi.sharing.synthesis.quantities import (
    EDGES,
    NUM_VARIANTS,
    means_of_quantiles,
)
from nadi.sharing.synthesis.tokens import Token
from nadi.trace.arrays import Bools, Floats, Hashes, Ints
from nadi.trace.schema import NODE_KINDS

_COMP = NODE_KINDS.index("COMP")
_TAPS = 24
"""Earlier operations that the noise of one depends on."""
_WIDEST = 1 << 40
_LARGEST = 2.0**60  # of a size or a duration
_OF_ENTRIES = Quantities._fields[: Quantities._fields.index("context")]
_MOST_ALONE = 0.1
"""Share of operations that may have been learned at one width only, if another is wished."""


class TokenQuantities(NamedTuple):
    """Sizes and durations of each token at one width; as of ``Quantities``, a row per token."""

    flops: Ints
    bytes: Ints
    comm_bytes: Ints
    shape: Ints
    duration: Floats


class JobSize(NamedTuple):
    """How many ranks a job has, how many the learned one has that it is like, and its width."""

    ranks: int
    learned_ranks: int
    width: int


def quantities_at(known: Quantities, num_tokens: int, size: JobSize) -> TokenQuantities:
    """Return what tokens take at a width and a number of ranks.

    Between two widths that were learned, powers of the width; a token that was seen at one width
    only is taken from there. The same of numbers of ranks. O(tokens).
    """
    every = np.arange(known.token.size)
    near = _nearest(known, every, known.ranks, size.learned_ranks, num_tokens)
    own = np.flatnonzero(known.ranks == near[known.token])
    found = _at_width(known, own, np.full(num_tokens, size.width))
    others = np.flatnonzero(known.ranks != near[known.token])
    if size.ranks == size.learned_ranks or not others.size:
        return found
    beside = _nearest(known, others, known.ranks, size.ranks, num_tokens)
    beside = np.where(beside < 0, near, beside)
    there = np.flatnonzero(known.ranks == beside[known.token])
    width = _nearest(known, there, known.hidden, size.width, num_tokens)
    apart = np.log(beside / near)
    way = np.log(size.ranks / near)
    part = np.divide(way, apart, out=np.zeros_like(apart), where=apart != 0)
    one, other = (_at_width(known, rows, width) for rows in (own, there))
    return TokenQuantities(*(
        _grown(value, low, high, part) for value, low, high in zip(found, one, other, strict=True)
    ))  # fmt: skip


def _nearest(known: Quantities, rows: Ints, values: Ints, wish: int, num_tokens: int) -> Ints:
    """Return of each token the value among its rows that is nearest to a wish; -1 for none."""
    found = np.full(num_tokens, -1, dtype=np.int64)
    away = np.full(num_tokens, np.inf)
    for value in np.unique(values[rows]).tolist():
        far = abs(np.log(max(value, 1) / max(wish, 1)))
        token = known.token[rows[values[rows] == value]]
        token = token[away[token] > far]
        found[token], away[token] = value, far
    return found


def _grown(value: Any, low: Any, high: Any, part: Floats) -> Any:
    """Return values changed as between a low and a high, so many times of the way."""
    known = (low > 0) & (high > 0) & (low != high)
    way = part.reshape(-1, *([1] * (value.ndim - 1)))
    ratio = np.where(known, high, 1) / np.where(known, low, 1)
    with np.errstate(over="ignore"):
        grown = np.minimum(value * ratio**way, _LARGEST)
    whole = grown if value.dtype == np.float64 else np.rint(grown).astype(np.int64)
    return np.where(known, whole, value)


def _at_width(known: Quantities, rows: Ints, width: Ints) -> TokenQuantities:
    """Return what tokens take at a width of each, of some entries that have all tokens."""
    known = known._replace(**{name: getattr(known, name)[rows] for name in _OF_ENTRIES})
    key = known.token * _WIDEST + known.hidden
    token = np.arange(width.size)
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
    wanted = np.log(np.maximum(width, 1)) - wide[below]
    part = np.divide(wanted, span, out=np.zeros_like(span), where=span > 0)
    return TokenQuantities(
        _between(known.flops, below, above, part),
        _between(known.bytes, below, above, part),
        _between(known.comm_bytes, below, above, part),
        _between(known.shape, below, above, part),
        _power(known.duration, below, above, part),
    )


def check_width(known: Quantities, token: Ints, width: int, learned: int) -> None:
    """Raise UsageError unless what operations take is known at two widths, or at this one.

    - ``token``: Of all operations of the job.
    - ``learned``: The width of the learned job that it is like.
    - Raises UsageError: The message says how many are known at one width only.
    """
    if width == learned:
        return
    pairs = np.unique(known.token[known.hidden > 0] * _WIDEST + known.hidden[known.hidden > 0])
    widths = np.bincount(pairs // _WIDEST)
    alone = np.append(widths, np.zeros(token.max() + 1, dtype=np.int64))[token] < 2
    if alone.mean() > _MOST_ALONE:
        share = f"{100 * alone.mean():.0f} %"
        what = f"{share} of the operations are known at one width only, {learned}" if learned else (
            "the learned job states no tensors, so its width is unknown"
        )  # fmt: skip
        raise UsageError(
            Parameter("hidden", width), what, "learn from the same program at two widths or more"
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
    ratio = np.where(known, high, 1) / np.where(known, low, 1)
    with np.errstate(over="ignore"):
        scaled = np.minimum(np.where(known, low, 1) * ratio**way, _LARGEST)
    return np.where(known, scaled, low)


def sizes_of_job(known: TokenQuantities, random: np.random.Generator) -> TokenQuantities:
    """Draw the sizes of all tokens: small ones, or large ones, of those that were learned."""
    variant = int(random.integers(NUM_VARIANTS))
    return known._replace(
        flops=known.flops[:, variant], bytes=known.bytes[:, variant],
        comm_bytes=known.comm_bytes[:, variant], shape=known.shape[:, variant],
    )  # fmt: skip


def with_times_of(
    known: TokenQuantities, tokens: Sequence[Token], job: JobColumns
) -> TokenQuantities:
    """Let tokens take as long as operations of their names in a job.

    A token whose name the job does not have, on the host or on the device, keeps its own time.
    O(operations log operations).
    """
    names = {(label, is_cpu): 2 * number + is_cpu
             for number, label in enumerate(job.labels) for is_cpu in (False, True)}  # fmt: skip
    name = np.concatenate([2 * one.label + one.is_cpu for one in job.ranks])
    taken = np.concatenate([np.where(one.kind == _COMP, one.duration, -1) for one in job.ranks])
    name, taken = name[taken >= 0], taken[taken >= 0]
    order = np.lexsort((taken, name))
    each, first = np.unique(name[order], return_index=True)
    times = means_of_quantiles(first, taken[order])
    entry = dict(zip(each.tolist(), range(each.size), strict=True))
    duration = known.duration.copy()
    for number, one in enumerate(tokens):
        place = entry.get(names.get((one.label, one.is_cpu), -1), -1)
        if one.kind == _COMP and place >= 0:
            duration[number] = times[place]
    return known._replace(duration=duration)


def drawn_steps(
    template: Template, learned: Ints, is_copy: Bools, num_steps: int, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw which learned rank and step each new rank and step is as slow as.

    A new step is as slow on all ranks as one learned step was: the first as the first, later ones
    as the others, each as often as any, in an order of chance: how steps follow each other differs
    from recording to recording. A copy of a learned rank is as slow as any learned rank of its
    role.

    - Returns rank, step: int64, shapes (ranks,) and (steps,).
    """
    many = template.load.shape[1]
    later = random.permutation(np.arange(min(1, many - 1), many))
    step = np.append(0, random.permutation(np.resize(later, num_steps - 1)))
    role = np.array(template.role)
    rank = np.array([
        random.choice(np.flatnonzero(role == role[like])) if copied else like
        for like, copied in zip(learned.tolist(), is_copy.tolist(), strict=True)
    ], dtype=np.int64)  # fmt: skip
    return rank, step


def context_scores(known: Quantities, contexts: Sequence[Hashes]) -> Floats:
    """Return the score that each operation of a rank has by those before it; 0 if unseen."""
    context = np.concatenate(contexts)
    if not known.context.size:
        return np.zeros(context.size)
    place = np.minimum(np.searchsorted(known.context, context), known.context.size - 1)
    return np.where(known.context[place] == context, known.effect[place], 0.0)


class Noise(NamedTuple):
    """What scores of durations depend on, and how."""

    expected: Floats  # float64, shape (operations,): by context
    share: float  # variance that this leaves
    memory: float  # correlation with the operation before


def draw_durations(
    token: Ints, noise: Noise, known: TokenQuantities, random: np.random.Generator
) -> Ints:
    """Draw the duration of each operation of a job, in ns; -1 where none were learned.

    Durations of a token have the distribution that was learned, as evenly as their number allows;
    noise says only in which order they come (R. L. Iman, W. J. Conover, A distribution-free
    approach to inducing rank correlation among input variables, 1982).

    - ``token``: Of all ranks, one after the other.
    """
    if not (known.duration[:, 0] >= 0).any():
        return np.full(token.size, -1, dtype=np.int64)
    kernel = noise.memory ** np.arange(_TAPS + 1)
    kernel /= np.sqrt((kernel**2).sum())
    own = np.convolve(random.standard_normal(token.size + _TAPS), kernel, mode="valid")
    score = noise.expected + own * np.sqrt(noise.share)
    order = np.lexsort((score, token))
    first = np.flatnonzero(np.diff(token[order], prepend=-1))
    size = np.diff(np.append(first, token.size))
    chance = np.empty(token.size)
    within = np.arange(token.size) - np.repeat(first, size)
    chance[order] = (within + random.random(token.size)) / np.repeat(size, size)
    place = np.searchsorted(EDGES, chance, side="right") - 1
    return np.rint(known.duration[token, place]).astype(np.int64)
