"""What a private model states of a corpus of jobs, and what follows from it.

All of it is made of released sums alone, so it reveals nothing more than they do.
"""

from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nadi.sharing.conditional.corpora import FAMILIES, MIXED, drawn_conditions
from nadi.sharing.conditional.stage_values import LABEL, Conditions, micro_batches_of
from nadi.systems.library import shipped_devices
from nadi.trace.arrays import Floats, Ints

USUAL: Conditions = {
    LABEL: MIXED, "zero": 0, "recompute": "none", "attention": "flash", "schedule": "1f1b",
}  # fmt: skip
"""What holds of a job that does not state it."""
MARGINS: dict[str, tuple[Any, ...]] = {
    LABEL: (*FAMILIES, MIXED),
    "hidden": (256, 512, 1024, 2048, 4096), "layers": (1, 2, 4, 8, 16),
    "sequence": (256, 512, 1024, 2048, 4096), "tp": (1, 2, 4, 8), "dp": (1, 2, 4, 8),
    "pp": (1, 2, 4), "zero": (0, 1, 2, 3), "micro_batch": (1, 2, 3, 4), "micro_batches": (1, 2, 4),
    "recompute": ("none", "selective", "full"), "attention": ("flash", "unfused"),
    "schedule": ("1f1b", "gpipe"),
}  # fmt: skip
"""Conditions that are counted. Of numbers the least of each bin; of words, others count as the
last of them."""
CLASSES = {
    "gemm": 46_000, "optimizer": 28_000, "cross_entropy": 20_000, "norm": 18_000,
    "attention": 16_000, "softmax": 13_000, "activation": 10_000, "add": 9_000, "rope": 7_000,
    "embedding": 6_000,
}  # fmt: skip
"""Operator classes, each with the number that is the largest logarithm of its times. Classes that
take a larger part of generated jobs have a larger one, so less noise for its size: about the
square root of the part, with which the noise of a job's time is the least."""
MOST_APART = 0.75
"""Logarithm of the factor by which times of a class differ from the device's price, at most."""
SPREAD = np.linspace(-0.8, 0.8, 17)
"""Edges of bins of the logarithm of an operation's time against others of its class."""
WHOLE = 1 << 16
"""What the parts of all bins add up to for a job."""
SLOW = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Of how many times longer the slowest rank computes than the median rank, the least of bins."""
RELEASED = {
    "conditions": sum(len(one) for one in MARGINS.values()), "efficiency": len(CLASSES),
    "spread": SPREAD.size - 1, "slowest rank": len(SLOW),
}  # fmt: skip
"""How many numbers of each kind are released."""
_POOL, _ROUNDS, _LARGEST = 8192, 40, 1 << 60


class Release(msgspec.Struct, frozen=True):
    """Sums over the jobs of a corpus, with noise: a line of the ledger.

    Attributes
    ----------
    what
        Is summed: ``conditions``, ``efficiency``, ``spread`` or ``slowest rank``.
    sensitivity
        Of the numbers that one job adds, the largest sum of squares.
    variance
        Of the discrete Gaussian that is added to each sum.
    values
        The sums.
    """

    what: str
    sensitivity: int
    variance: int
    values: tuple[int, ...]

    @property
    def rho(self) -> Fraction:
        """What it spends of zero-concentrated differential privacy."""
        return Fraction(self.sensitivity, 2 * self.variance)


class PrivateCorpus(msgspec.Struct, frozen=True):
    """What a model states of jobs that nobody may recognize in it.

    Attributes
    ----------
    epsilon, delta
        What the releases spend together.
    protected
        What this means, in words.
    device
        Against whose prices times are stated; empty for none.
    releases
        All that depends on the jobs.
    """

    epsilon: float
    delta: float
    protected: str
    device: str
    releases: tuple[Release, ...]

    def is_sound(self) -> bool:
        """Return whether there are as many sums as there have to be, with noise."""
        sizes = RELEASED if self.device else {"conditions": RELEASED["conditions"]}
        found = {one.what: len(one.values) for one in self.releases}
        known = self.device in ("", *shipped_devices()) and found == sizes
        return known and all(
            one.variance > 0 and max(map(abs, one.values)) < _LARGEST for one in self.releases
        )

    @property
    def size(self) -> float:
        """The number of jobs, as far as their noisy counts say it."""
        bins = [len(one) for one in MARGINS.values()]
        counts = np.split(np.array(self.releases[0].values), np.cumsum(bins)[:-1])
        sums = np.array([one.sum() for one in counts])
        precision = (1 / np.array(bins)).sum()
        noise = np.sqrt(self.releases[0].variance / precision)
        return max(float((sums / bins).sum() / precision), float(noise), 1.0)


class LearnedTimes(NamedTuple):
    """How times differ from a device's prices.

    Attributes
    ----------
    efficiency
        Logarithm of the factor of each class of :data:`CLASSES`.
    spread, slowest
        float64: how likely each bin of :data:`SPREAD` and of :data:`SLOW` is.
    """

    efficiency: dict[str, float]
    spread: Floats
    slowest: Floats


def bins_of(known: Conditions) -> Ints:
    """Return in which bin of each margin a job is."""
    stated = {**USUAL, **known, "micro_batches": micro_batches_of(known)}
    found = []
    for name, bins in MARGINS.items():
        value = stated[name]
        if isinstance(bins[0], str):
            found.append(bins.index(value) if value in bins else len(bins) - 1)
        else:
            found.append(sum(1 for least in bins[1:] if int(value) >= least))
    return np.array(found)


@cache
def _public_pool() -> tuple[list[Conditions], Ints]:
    """Draw conditions as those of generated jobs are, and return their bins."""
    random = np.random.default_rng(0)
    pool = [drawn_conditions(random) for _ in range(_POOL)]
    return pool, np.array([bins_of(one) for one in pool])


def public_margins() -> list[Floats]:
    """Return how often generated jobs are in each bin of each margin."""
    _, bins = _public_pool()
    return [
        np.bincount(own, minlength=len(of)) / _POOL
        for own, of in zip(bins.T, MARGINS.values(), strict=True)
    ]


def margins_of(corpus: PrivateCorpus) -> list[Floats]:
    """Return how often jobs of the corpus are in each bin of each margin, as far as noise lets."""
    first, size = corpus.releases[0], corpus.size
    bins = [len(one) for one in MARGINS.values()]
    counts = np.split(np.array(first.values) / size, np.cumsum(bins)[:-1])
    noise = first.variance / size**2
    return [_shrunk(own, usual, noise) for own, usual in zip(counts, public_margins(), strict=True)]


def times_of(corpus: PrivateCorpus) -> LearnedTimes | None:
    """Return how times of the corpus differ from the device's prices; None if it has none."""
    if not corpus.device:
        return None
    size = corpus.size
    _, efficiency, spread, slowest = corpus.releases
    of_class = {}
    for (name, largest), value in zip(CLASSES.items(), efficiency.values, strict=True):
        noise = efficiency.variance * (MOST_APART / largest / size) ** 2
        of_class[name] = _shrunk_mean(value / largest * MOST_APART / size, noise)
    parts = np.array(spread.values) / (WHOLE * size)
    usual = np.where(np.abs(SPREAD[1:] + SPREAD[:-1]) < 0.11, 0.5, 0.0)  # the two in the middle
    slow = np.array(slowest.values) / size
    none = np.eye(len(SLOW))[0]
    return LearnedTimes(
        of_class, _shrunk(parts, usual, spread.variance / (WHOLE * size) ** 2),
        _shrunk(slow, none, slowest.variance / size**2),
    )  # fmt: skip


_USUALLY_APART = 0.25  # standard deviation of the logarithm of times of a class against prices


def _shrunk_mean(value: float, noise: float) -> float:
    found = value * _USUALLY_APART**2 / (_USUALLY_APART**2 + noise)
    return min(max(found, -MOST_APART), MOST_APART)


_SURE = 1.5  # times the noise: what is not farther away may be noise alone


def _shrunk(noisy: Floats, usual: Floats, noise: float) -> Floats:
    """Return shares: noisy ones, as much nearer to the usual ones as there is noise in them."""
    away = noisy - usual
    away -= away.mean()  # that shares add up to something else is noise
    kept = max(1 - _SURE * away.size * noise / max(float(away @ away), 1e-300), 0.0)
    return _on_simplex(usual + kept * away)


def _on_simplex(values: Floats) -> Floats:
    """Return the nearest shares: none negative, and a sum of 1."""
    ordered = np.sort(values)[::-1]
    above = (np.cumsum(ordered) - 1) / np.arange(1, values.size + 1)
    found = np.maximum(values - above[np.flatnonzero(ordered > above)[-1]], 0)
    shares: Floats = found / found.sum()
    return shares


def drawn_of(corpus: PrivateCorpus, random: np.random.Generator, count: int) -> list[Conditions]:
    """Draw conditions: of generated jobs, as often as makes the margins those of the corpus."""
    pool, bins = _public_pool()
    weight = np.full(_POOL, 1 / _POOL)
    margins = margins_of(corpus)
    for _ in range(_ROUNDS):
        for own, wanted in zip(bins.T, margins, strict=True):
            sums = np.bincount(own, weight, minlength=wanted.size)
            weight *= np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)[own]
    chosen = random.choice(_POOL, count, p=weight / weight.sum())
    return [dict(pool[one]) for one in chosen.tolist()]
