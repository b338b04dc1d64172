"""Level ``private``: noisy numbers only: how long ranks compute, and how much each axis carries.

Order, types and number of communications, and the groups within an axis, name a model's family;
none of them is published. A rank computes for its noisy time in equal parts, and after each part
every axis has one all-reduce of equal size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random, SystemRandom

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.sharing.obfuscation.communication_axes import axes_of
from nadi.sharing.obfuscation.laplace_noise import discrete_laplace
from nadi.sharing.obfuscation.obfuscated_job import PrivacyLoss
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.provenance import Provenance
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Trace
from nadi.version import __version__

__all__ = ["LEAST_EPSILON", "noisy_job"]

_UNIT_NS = 100_000
_UNIT_BYTES = 1 << 20
_PARTS = {"times": Fraction(1, 2), "sizes": Fraction(1, 4), "count": Fraction(1, 4)}
LEAST_EPSILON, _MOST_EPSILON = 0.001, 1000.0
_LARGEST_BOTTOM = 10**6
_ROUNDS = 64  # the same for every job: the number of layers and of micro-batches is in none


def noisy_job(job: Job, epsilon: float, random: Random | None = None) -> tuple[Job, PrivacyLoss]:
    """Return a job of noisy times and volumes, and what it spends.

    Parameters
    ----------
    job
        Without names, from :func:`nadi.sharing.obfuscation.structure.simulator_job`, with times.
    epsilon
        The privacy loss of the whole release.
    random
        By default the randomness of the operating system. It is not derived from a key: noise
        that comes again for a neighboring job would reveal their difference.

    Returns
    -------
    job, loss
        Ranks that shared a trace share one, whose time is published once. O(nodes).

    Raises
    ------
    UsageError
        If epsilon is out of range.
    """
    if not LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise UsageError(
            Parameter("epsilon", epsilon), f"it must be {LEAST_EPSILON} to {_MOST_EPSILON:g}",
            "1 is common",
        )  # fmt: skip
    random = random or SystemRandom()
    whole = Fraction(int(epsilon * _LARGEST_BOTTOM), _LARGEST_BOTTOM)  # never more than stated
    part = {name: whole * share for name, share in _PARTS.items()}
    different = list({id(trace): trace for trace in job.traces}.values())
    noise = _UNIT_NS / part["times"]
    times = {id(one): _busiest(one) + discrete_laplace(noise, random) for one in different}
    axes = axes_of(job)
    noise = (_UNIT_BYTES + 1) / part["sizes"]  # the mean is rounded
    sent = [
        _coarse(round(size) + discrete_laplace(noise, random), random)
        for size in axes.sent.tolist()
    ]
    made: dict[tuple[int, tuple[str, ...]], Trace] = {}
    traces = []
    for rank, trace in enumerate(job.traces):
        own = tuple(role for role, place in axes.groups.place.items() if place[0][rank] >= 0)
        if (id(trace), own) not in made:
            sizes = [
                _all_reduce(sent[number], ranks.shape[1])
                for number, (role, ranks) in enumerate(axes.groups.members.items())
                if role in own
            ]
            made[id(trace), own] = _rounds(trace, max(times[id(trace)], 1), own, sizes)
        traces.append(made[id(trace), own])
    count = sum(int((trace.nodes["kind"] == "COMP").sum()) for trace in different)
    loss = PrivacyLoss(
        epsilon, {name: float(one) for name, one in part.items()}, _UNIT_NS, _UNIT_BYTES,
        max(count + discrete_laplace(1 / part["count"], random), 0),
    )  # fmt: skip
    groups = axes.groups if axes.groups.members else RankGroups({}, len(job.traces))
    return Job(tuple(traces), MATCHES.empty(), ISSUES.empty(), rank_groups=groups), loss


def _busiest(trace: Trace) -> int:
    """Return for how many ns the thread or stream that computes longest does so."""
    own, duration = trace.column("exclusive"), trace.column("duration")
    time = np.maximum(np.where(own >= 0, own, duration), 0)
    computes = (trace.nodes["kind"] == "COMP").to_numpy()
    lanes = np.stack([trace.column("thread"), trace.column("stream")], axis=1)[computes]
    _, lane = np.unique(lanes, axis=0, return_inverse=True)
    return int(np.bincount(lane.reshape(-1), time[computes]).max(initial=0))


def _coarse(sent: int, random: Random) -> int:
    """Round a noisy volume to a power of 4: by volumes along axes, models are recognized."""
    return int(4.0 ** math.floor(math.log(max(sent, 1), 4) + random.random()))


def _all_reduce(sent: int, members: int) -> int:
    """Return the size of one of all all-reduces, by which a member sends so many bytes."""
    return max(round(sent * members / (2 * (members - 1) * _ROUNDS)), 1)


def _rounds(trace: Trace, time: int, roles: Sequence[str], sizes: Sequence[int]) -> Trace:
    """Return a trace of equal rounds: a computation, and then one all-reduce after the other."""
    per_round = 1 + len(roles)
    size = _ROUNDS * per_round
    place = np.arange(size) % per_round
    computes = place == 0
    ends = np.rint(np.linspace(0, time, _ROUNDS + 1)).astype(np.int64)
    nothing = np.full(size, -1, dtype=np.int64)

    def of_communication(values: Sequence[int]) -> Ints:
        return np.concatenate([[-1], np.array(values, dtype=np.int64)])[place]

    duration = nothing.copy()
    duration[computes] = np.maximum(np.diff(ends), 1)
    nodes = NODES.build(size, {
        "id": np.arange(size), "kind": np.where(computes, "COMP", "COMM_COLL"),
        "name": np.where(computes, "block", "all_reduce"), "category": ["operator"] * size,
        "is_cpu": np.zeros(size, dtype=np.bool_), "duration": duration,
        "comm_type": np.where(computes, "none", "all_reduce"),
        "comm_bytes": of_communication(sizes), "group": of_communication(range(len(roles))),
    })  # fmt: skip
    before = np.arange(size - 1)
    return Trace(
        nodes=nodes,
        deps=DEPS.build(size - 1, {
            "src": before, "dst": before + 1, "kind": ["data"] * (size - 1),
        }),
        groups=GROUPS.build(len(roles), {"name": list(roles), "ranks": [[] for _ in roles]}),
        issues=ISSUES.empty(), provenance=Provenance(__version__, ()),
        rank=trace.rank, world_size=trace.world_size,
    )  # fmt: skip
