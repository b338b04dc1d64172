"""Loads and stores of memory tiers as one would do them by hand: slow, in plain Python.

Every rank has lanes: one that computes, and for each tier one that loads and one that stores.
What is in a lane comes one after the other. Bytes of all accesses that are under way move at
rates that rise together until a link is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nadi.systems import MemoryPath, MemoryTier, System, loaded_latency_ns, rate_alone


class Operation(NamedTuple):
    """An operation of a rank: a computation of some ns, or an access of a tier of some bytes.

    ``after`` are positions of operations before it in the rank's list.
    """

    kind: str  # compute, load or store
    amount: int
    tier: int = -1
    after: tuple[int, ...] = ()


@dataclass
class _Access:
    """An access that is under way."""

    links: dict[object, Fraction]
    left: float
    most: float


def _links(system: System, rank: int, operation: Operation) -> dict[object, Fraction]:
    """Give the links of an access, and the share of each that a byte per ns takes."""
    tier, store = system.tiers[operation.tier], operation.kind == "store"
    memory = tier.name, rank // tier.shared_by if tier.shared_by else 0
    found: dict[object, Fraction] = {}

    def add(name: object, rates: tuple[float, float]) -> None:
        if rates[store]:
            found[name, store] = 1 / Fraction(rates[store])

    add(("device", memory), (tier.read_bandwidth, tier.write_bandwidth))
    if not tier.duplex and tier.read_bandwidth and tier.write_bandwidth:
        share = 1 / Fraction((tier.read_bandwidth, tier.write_bandwidth)[store])
        found["both", memory] = share
    if tier.ports:
        size = min(tier.shared_by or system.network.num_ranks, system.network.num_ranks)
        port = rank % size * min(tier.ports, size) // size
        add(("port", memory, port), (tier.port_read_bandwidth, tier.port_write_bandwidth))
    path: MemoryPath | None = system.path_of(tier)
    if path:
        add((path.name, rank // path.shared_by), (path.read_bandwidth, path.write_bandwidth))
    return found


def _rates(accesses: dict[tuple[int, int], _Access]) -> dict[tuple[int, int], float]:
    """Raise all rates together; what has its most, or meets a full link, stays."""
    rate: dict[tuple[int, int], float] = {}
    while len(rate) < len(accesses):
        free = {key: one for key, one in accesses.items() if key not in rate}
        limits: dict[object, float] = {("most", key): one.most for key, one in free.items()}
        for link in {link for one in free.values() for link in one.links}:
            taken = sum(
                float(accesses[key].links.get(link, 0)) * known for key, known in rate.items()
            )
            wanted = sum(float(one.links.get(link, 0)) for one in free.values())
            limits[link] = (1.0 - taken) / wanted
        least = min(limits.values())
        for key, one in free.items():
            own = [limits[link] for link in (*one.links, ("most", key))]
            if min(own) <= least * (1 + 1e-9):
                rate[key] = max(least, 0.0)
    return rate


def ends_of(system: System, ranks: list[list[Operation]]) -> list[list[float]]:
    """Give when each operation of each rank ends, in ns."""
    ends: list[list[float | None]] = [[None] * len(one) for one in ranks]
    under_way: dict[tuple[int, int], _Access] = {}
    computing: dict[tuple[int, int], float] = {}  # also latency after the last byte
    begun: set[tuple[int, int]] = set()
    now = 0.0
    while True:
        for rank, operations in enumerate(ranks):
            for k, one in enumerate(operations):
                lane = [j for j in range(k) if operations[j][::2] == one[::2]]  # kind and tier
                before = [*one.after, *lane[-1:]]
                if (rank, k) in begun or any(
                    ends[rank][j] is None or ends[rank][j] > now for j in before
                ):
                    continue
                begun.add((rank, k))
                _begin(system, (rank, k), one, now, under_way, computing)
        if not under_way and not computing:
            return [[float(end or 0) for end in one] for one in ends]
        rate = _rates(under_way)
        times = [now + one.left / rate[key] for key, one in under_way.items()]
        time = min([*times, *computing.values()])
        for key, one in list(under_way.items()):
            one.left -= (time - now) * rate[key]
            if one.left <= one.most * 1e-6:  # of a ns
                del under_way[key]
                rank, k = key
                computing[key] = time + _latency(system, ranks[rank][k])
        now = time
        for key, end in list(computing.items()):
            if end <= now:
                del computing[key]
                ends[key[0]][key[1]] = end


def _latency(system: System, one: Operation) -> float:
    tier: MemoryTier = system.tiers[one.tier]
    store = one.kind == "store"
    rate = rate_alone(tier, system.path_of(tier), store=store)
    return round(loaded_latency_ns(tier, rate, reads=0.0 if store else 1.0))


def _begin(
    system: System, key: tuple[int, int], one: Operation, now: float,
    under_way: dict[tuple[int, int], _Access], computing: dict[tuple[int, int], float],
) -> None:  # fmt: skip
    if one.kind == "compute":
        computing[key] = now + one.amount
        return
    tier = system.tiers[one.tier]
    most = rate_alone(tier, system.path_of(tier), store=one.kind == "store")
    if not most or not one.amount:
        computing[key] = now + _latency(system, one)
    else:
        under_way[key] = _Access(_links(system, key[0], one), float(one.amount), most)
