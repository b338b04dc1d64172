"""Level ``private``: the times between communications and the sizes of these, with noise.

What communicates with whom in which order, and what waits for which communication, is published as
it is. So are threads and streams. Everything else that leaves is a noisy number, or is computed
from noisy numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random, SystemRandom

import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError
from nadi.model.arrays import Ints
from nadi.model.schema import MATCHES
from nadi.model.trace import Job, Trace
from nadi.obfuscation.free_schedule import RankWork, free_schedule, works_of
from nadi.obfuscation.laplace_noise import discrete_laplace
from nadi.obfuscation.merged_work import Beside, Cuts, merge_work
from nadi.obfuscation.obfuscated_job import PrivacyLoss

__all__ = ["LEAST_EPSILON", "noisy_job"]

_UNIT_NS = 100_000
_UNIT_BYTES = 1 << 20
_PARTS = {"times": Fraction(1, 2), "sizes": Fraction(1, 4), "count": Fraction(1, 4)}
LEAST_EPSILON, _MOST_EPSILON = 0.001, 1000.0
_LARGEST_BOTTOM = 10**6


def noisy_job(job: Job, epsilon: float, random: Random | None = None) -> tuple[Job, PrivacyLoss]:
    """Return a job whose times and sizes have noise, and what it spends.

    Parameters
    ----------
    job
        Without names, from :func:`nadi.obfuscation.structure.simulator_job`, with times.
    epsilon
        The privacy loss of the whole release.
    random
        By default the randomness of the operating system. It is not derived from a key: noise
        that comes again for a neighboring job would reveal their difference.

    Returns
    -------
    job, loss
        Ranks that shared a trace share one, which is published once.

    Raises
    ------
    UsageError
        If epsilon is out of range.
    InputError
        If ids contradict dependencies.
    """
    if not LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise UsageError(
            Parameter("epsilon", epsilon), f"it must be {LEAST_EPSILON} to {_MOST_EPSILON:g}",
            "1 is common",
        )  # fmt: skip
    random = random or SystemRandom()
    whole = Fraction(int(epsilon * _LARGEST_BOTTOM), _LARGEST_BOTTOM)  # never more than stated
    part = {name: whole * share for name, share in _PARTS.items()}
    # what follows from times, such as an order of events, must not be published: there are none
    works = works_of(job, free_schedule(_without_times(job)))
    different = list({id(work): work for work in works}.values())
    sizes = _noisy_sizes(different, _UNIT_BYTES / part["sizes"], random)
    done: dict[int, Trace] = {}
    cuts: dict[int, Cuts] = {}
    for rank, (work, own) in enumerate(zip(different, sizes, strict=True)):
        if id(work.trace) not in cuts:  # published once, whoever shares it
            exact = _cuts(work, rank)
            cuts[id(work.trace)] = exact._replace(
                busy=_noisy_times(exact.busy, _UNIT_NS / part["times"], random)
            )
        nothing = np.zeros(work.row.size, dtype=np.int64)
        beside = Beside(nothing, nothing, 1)
        done[id(work)] = merge_work(work, cuts[id(work.trace)], own, beside, np.inf)
    traces = tuple(done[id(work)] for work in works)
    count = sum(int(work.computes.sum()) for work in {id(w.trace): w for w in works}.values())
    loss = PrivacyLoss(
        epsilon, {name: float(one) for name, one in part.items()}, _UNIT_NS, _UNIT_BYTES,
        max(count + discrete_laplace(1 / part["count"], random), 0),
    )  # fmt: skip
    return replace(job, traces=traces, matches=MATCHES.empty()), loss


def _without_times(job: Job) -> Job:
    timeless = {
        id(trace): replace(trace, nodes=trace.nodes.with_columns(
            duration=pl.lit(0, pl.Int64), exclusive=pl.lit(-1, pl.Int64),
        ))
        for trace in job.traces
    }  # fmt: skip
    return replace(job, traces=tuple(timeless[id(trace)] for trace in job.traces))


def _cuts(work: RankWork, rank: int) -> Cuts:
    """Cut after each communication, and before each computation that waits for one."""
    if (work.src > work.dst).any():
        raise InputError(
            f"rank {rank}", "ids do not follow dependencies, and level private keeps the order of "
            "ids", "use level structure",
        )  # fmt: skip
    waits = np.zeros(work.row.size, dtype=np.int64)
    waits[work.dst[~work.computes[work.src]]] = 1
    interval = np.cumsum(np.where(work.computes, waits, 1))
    lanes = int(work.lane.max(initial=0)) + 1
    busy = np.zeros((lanes, int(interval.max(initial=0)) + 1), dtype=np.int64)
    nodes = work.trace.nodes[work.row]
    own, whole = nodes["exclusive"].to_numpy(), nodes["duration"].to_numpy()
    time = np.maximum(np.where(own >= 0, own, whole), 0)
    rows = np.flatnonzero(work.computes)
    np.add.at(busy, (work.lane[rows], interval[rows]), time[rows])
    return Cuts(interval, interval, interval, busy)


def _noisy_times(busy: Ints, scale: Fraction, random: Random) -> Ints:
    """Add noise to each time, also to those of 0; sums of lanes are kept as noise left them."""
    noise = [discrete_laplace(scale, random) for _ in range(busy.size)]
    noisy = busy + np.array(noise, dtype=np.int64).reshape(busy.shape)
    positive = np.maximum(noisy, 0)
    share = np.maximum(noisy.sum(axis=1), 0) / np.maximum(positive.sum(axis=1), 1)
    scaled = np.rint(positive * np.minimum(share, 1.0)[:, None]).astype(np.int64)
    return np.asarray(
        np.maximum(scaled, 1)
    )  # a block everywhere: which lanes were idle is not published


def _noisy_sizes(works: Sequence[RankWork], scale: Fraction, random: Random) -> list[Ints]:
    """Add noise to the sizes of communication: the same for all that one size is published for."""
    roots: dict[object, object] = {}

    def root(one: object) -> object:
        while roots.setdefault(one, one) != one:
            one = roots[one]
        return one

    for work in works:
        for node in np.flatnonzero(~work.computes).tolist():
            roots[root(("meeting", int(work.meeting[node])))] = root(_place(work, node))
    noise: dict[object, int] = {}
    found = []
    for work in works:
        nodes = work.trace.nodes[work.row]
        is_barrier = (nodes["comm_type"].cast(pl.String) == "barrier").to_numpy()
        size = np.where(is_barrier, 1, nodes["comm_bytes"].to_numpy())
        # sizes of 0, too: whether a size is 0 is not published
        for node in np.flatnonzero(~work.computes & ~is_barrier & (size >= 0)).tolist():
            key = root(_place(work, node))
            if key not in noise:
                noise[key] = discrete_laplace(scale, random)
            size[node] = max(int(size[node]) + noise[key], 1)
        found.append(size)
    return found


def _place(work: RankWork, node: int) -> tuple[str, int, int]:
    return "place", id(work.trace), int(work.row[node])
