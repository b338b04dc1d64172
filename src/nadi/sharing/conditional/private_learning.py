"""Learn of jobs so that nobody can tell of any of them whether it was learned.

A job adds one bounded vector of integers to sums, and what leaves are these sums with noise of the
operating system's randomness. Two corpora that differ by one job give nearly the same model. What
a sum stands for (bins, classes, prices) is public and the same for every corpus.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from random import Random, SystemRandom

import numpy as np

from nadi.sharing.conditional.privacy_ledger import DELTA, epsilon_of
from nadi.sharing.conditional.released_corpus import (
    CLASSES,
    MARGINS,
    MOST_APART,
    RELEASED,
    SLOW,
    SPREAD,
    WHOLE,
    PrivateCorpus,
    Release,
    bins_of,
)
from nadi.sharing.conditional.stage_values import with_usual
from nadi.sharing.obfuscation.private_job import discrete_gaussian
from nadi.systems.device import Device
from nadi.systems.prices.learned_prices import measured_operations
from nadi.systems.prices.price_list import price
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Job, Trace

PROTECTED = (
    "whether any one job, with all of its recordings, was among those learned: adding or removing "
    "it changes the probability of any model by a factor of exp(epsilon) at most, but with "
    "probability delta"
)
_PARTS = {
    "conditions": Fraction(3, 5), "efficiency": Fraction(1, 4), "spread": Fraction(3, 40),
    "slowest rank": Fraction(3, 40),
}  # fmt: skip
"""How rho is divided among what is released."""
_SENSITIVITY = {
    "conditions": len(MARGINS), "efficiency": sum(one * one for one in CLASSES.values()),
    "spread": WHOLE * WHOLE, "slowest rank": 1,
}  # fmt: skip


def contribution(
    job: Job | Sequence[Trace], given: Mapping[str, int | str | bool], where: str,
    device: Device | None = None,
) -> dict[str, Ints]:  # fmt: skip
    """Return what a job adds to each sum; int64.

    - ``given``: Its conditions.
    - ``where``: What to call it in messages.
    - ``device``: Against whose prices its times are stated; by default they are not.
    - Raises InputError if conditions are missing or wrong.
    """
    place = bins_of(with_usual(given, where))
    bins = [len(one) for one in MARGINS.values()]
    counts = np.zeros(sum(bins), dtype=np.int64)
    counts[np.cumsum([0, *bins[:-1]]) + place] = 1
    return {"conditions": counts} | ({} if device is None else _of_times(job, device))


def _of_times(job: Job | Sequence[Trace], device: Device) -> dict[str, Ints]:
    traces = list(job.traces if isinstance(job, Job) else job)
    of_trace = {
        id(one): _against_prices(one, device) for one in {id(t): t for t in traces}.values()
    }
    op_class, apart = (np.concatenate(own) for own in zip(*of_trace.values(), strict=True))
    usual = float(np.median(apart)) if apart.size else 0.0
    efficiency, around = [], np.zeros(apart.size)
    for name, largest in CLASSES.items():
        own = op_class == OP_CLASSES.index(name)
        # a class that the job does not have says what its others do
        middle = float(np.median(apart[own])) if own.any() else usual
        around[own] = apart[own] - middle
        within = min(max(middle, -MOST_APART), MOST_APART)
        efficiency.append(round(within / MOST_APART * largest))
    stated = np.isin(op_class, [OP_CLASSES.index(name) for name in CLASSES])
    inner = np.clip(around[stated], SPREAD[0], np.nextafter(SPREAD[-1], 0))
    spread = np.histogram(inner, SPREAD)[0]
    slow = np.zeros(len(SLOW), dtype=np.int64)
    slow[_slowest([of_trace[id(one)][1] for one in traces])] = 1
    return {
        "efficiency": np.array(efficiency), "slowest rank": slow,
        "spread": spread * WHOLE // max(int(spread.sum()), 1),
    }  # fmt: skip


def _against_prices(trace: Trace, device: Device) -> tuple[Ints, Floats]:
    """Return the class of each operation with a time and a price, and the log of their ratio."""
    operations, time, _ = measured_operations(trace)
    listed = price(operations, device).duration
    priced = listed > 0
    return operations.op_class[priced], np.log(time[priced] / listed[priced])


def _slowest(of_rank: Sequence[Floats]) -> int:
    """Return the bin of the slowest rank: its median against the median of ranks."""
    middles = [float(np.median(one)) for one in of_rank if one.size]
    factor = np.exp(max(middles) - np.median(middles)) if middles else 1.0
    return max(int(np.searchsorted(SLOW, factor, side="right")) - 1, 0)


def release(
    jobs: Iterable[Mapping[str, Ints]], rho: Fraction, device: str = "",
    random: Random | None = None,
) -> PrivateCorpus:  # fmt: skip
    """Return the noisy sums of what jobs contribute.

    - ``jobs``: Of each its :func:`contribution`.
    - ``rho``: What may be spent. Without a device the conditions have all of it.
    - ``device``: Name of the device of the contributions; empty for none.
    - ``random``: By default the randomness of the operating system: noise that comes again would
      reveal how two corpora differ.
    """
    random = random or SystemRandom()
    parts = _PARTS if device else {"conditions": Fraction(1)}
    sums = {name: np.zeros(size, dtype=np.int64) for name, size in RELEASED.items()}
    for job in jobs:
        for name in parts:
            sums[name] += job[name]
    releases = []
    for name, part in parts.items():
        variance = ceil(_SENSITIVITY[name] / (2 * rho * part))
        noisy = (one + discrete_gaussian(variance, random) for one in sums[name].tolist())
        releases.append(Release(name, _SENSITIVITY[name], variance, tuple(noisy)))
    spent = sum((one.rho for one in releases), Fraction(0))
    return PrivateCorpus(epsilon_of(spent), DELTA, PROTECTED, device, tuple(releases))
