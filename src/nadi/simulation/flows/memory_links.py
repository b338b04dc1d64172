"""The links between ranks and memory tiers, and those that accesses and messages take there.

A tier's devices are a link for what is read, one for what is written, and one for both, if they
share the devices. Before them are the ports of a switch, and the path of a rank.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from nadi.systems.memory_tiers import MemoryPath, MemoryTier
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints

_FINEST = 32  # parts of a byte in which reads and writes of a device are weighed, at most
_EIGHTH = 8


def access_number(system: System, rank: Ints, tier: int, *, store: bool) -> Ints:
    """Return the number of the way between ranks and a tier, behind those of pairs of ranks."""
    num_ranks = system.network.num_ranks
    return num_ranks * (num_ranks + 2 * tier + store) + rank


class _Block(NamedTuple):
    """Links of one kind, whose numbers follow each other."""

    # name, way: of the tier or path, and what passes: ``.read`` towards ranks, ``.write``, or both
    name: str
    way: str
    shared_by: int  # ranks of each memory or path, 0 for all
    ports: int = 1  # links of each
    is_switch: bool = False  # whether they are ports of a switch
    # first, count: the first link, and how many
    first: int = 0
    count: int = 0


class MemoryLinks:
    """The links of all tiers and paths of a system, numbered from ``first``.

    Attributes
    ----------
    bandwidth
        float64, shape (links,): bytes per ns; of what reads and writes share in its own units.
    """

    def __init__(self, system: System, first: int = 0) -> None:
        self._num_ranks = system.network.num_ranks
        self._system, self._first = system, first
        self._bandwidths: list[Floats] = []
        self._blocks: list[_Block] = []
        self._next = first
        self._paths = {path.name: self._links_of_path(path) for path in system.memory_paths}
        self._tiers = [self._links_of_tier(tier) for tier in system.tiers]
        self.bandwidth: Floats = np.concatenate([np.zeros(0), *self._bandwidths])

    def _add(self, bandwidth: float, block: _Block) -> int:
        """Add links that carry so much each; returns the first, -1 if nothing limits them."""
        sharing = block.shared_by or self._num_ranks
        count = -(-self._num_ranks // sharing) * block.ports
        if not bandwidth or not count:
            return -1
        self._bandwidths.append(np.full(count, bandwidth))
        self._blocks.append(block._replace(first=self._next, count=count, shared_by=sharing))
        self._next += count
        return self._next - count

    def _links_of_path(self, path: MemoryPath) -> tuple[int, int]:
        block = _Block(path.name, ".read", path.shared_by)
        return (
            self._add(path.read_bandwidth, block),
            self._add(path.write_bandwidth, block._replace(way=".write")),
        )

    def _links_of_tier(self, tier: MemoryTier) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Add the devices of a tier, and the ports before them."""
        to_read, to_write = (_Block(tier.name, way, tier.shared_by) for way in (".read", ".write"))
        devices = (
            self._add(tier.read_bandwidth, to_read), self._add(tier.write_bandwidth, to_write)
        )  # fmt: skip
        both = -1
        if not tier.duplex and min(tier.read_bandwidth, tier.write_bandwidth) > 0:
            read, write = _weights(tier)
            most = max(read * tier.read_bandwidth, write * tier.write_bandwidth) / _EIGHTH
            both = self._add(most, to_read._replace(way=""))
        of_switch = {"ports": tier.ports, "is_switch": True}
        ports = (
            self._add(tier.port_read_bandwidth, to_read._replace(**of_switch)),
            self._add(tier.port_write_bandwidth, to_write._replace(**of_switch)),
        )
        return devices, ports, both

    @property
    def names(self) -> list[str]:
        """The name of each link: of the tier or path, whose it is, and what passes it."""
        found = []
        for block in self._blocks:
            for number in range(block.count):
                memory, port = divmod(number, block.ports)
                first = memory * block.shared_by
                last = min(first + block.shared_by, self._num_ranks) - 1
                whose = f"rank{first}" if first == last else f"ranks{first}-{last}"
                of_port = f".port{port}" if block.is_switch else ""
                found.append(f"{block.name}.{whose}{of_port}{block.way}")
        return found

    def owned_by(self, link: Ints, home: Ints) -> Ints:
        """Return the links of the ranks that stand for the ranks whose links are given.

        ``home``, int64, shape (ranks,), says who stands for each rank. No link has several ranks.
        """
        found = link.copy()
        for block in self._blocks:
            there = np.flatnonzero((link >= block.first) & (link < block.first + block.count))
            rank, port = np.divmod(link[there] - block.first, block.ports)
            found[there] = block.first + home[rank] * block.ports + port
        return found

    def hops(self, numbers: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the links of accesses, by the numbers of their ways.

        - Returns access, link, load: int64 and float64, shape (hops,): a position in ``numbers``,
          its link, and what a byte of it counts there.
        """
        which, rank = np.divmod(numbers, self._num_ranks)
        number, store = np.divmod(which - self._num_ranks, 2)
        found: list[tuple[Ints, Ints, Floats]] = []

        def add(chosen: Ints, first: int, place: Ints, load: float = 1.0) -> None:
            if first >= 0:
                found.append((chosen, first + place, np.full(chosen.size, load)))

        for t, tier in enumerate(self._system.tiers):
            devices, ports, both = self._tiers[t]
            path = self._system.path_of(tier)
            for direction in (0, 1):
                chosen = np.flatnonzero((number == t) & (store == direction))
                own = rank[chosen]
                instance = own // tier.shared_by if tier.shared_by else np.zeros_like(own)
                add(chosen, devices[direction], instance)
                if both >= 0:
                    add(chosen, both, instance, _weights(tier)[direction] / _EIGHTH)
                add(chosen, ports[direction], instance * tier.ports + self._port(tier, own))
                if path:
                    add(chosen, self._paths[path.name][direction], own // path.shared_by)
        nothing = np.zeros(0, dtype=np.int64)
        columns = zip((nothing, nothing, np.zeros(0)), *found, strict=True)
        access, link, load = (np.concatenate(column) for column in columns)
        return access, link, load

    def _port(self, tier: MemoryTier, rank: Ints) -> Ints:
        """Return which of its switch's ports each rank uses."""
        size = min(tier.shared_by or self._num_ranks, self._num_ranks)
        return rank % size * min(tier.ports, size) // size

    def ends(self, dimension: int, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the links on which messages from and to ranks share paths with accesses.

        - ``dimension``: The dimension or fabric that they take.
        - ``src``, ``dst``: int64, shape (messages,): the ranks that they leave and reach there.
        - Returns message, link: int64, shape (hops,).
        """
        message = np.arange(src.size)
        found = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
        for path in self._system.memory_paths:
            if dimension in path.dimensions:
                read, write = self._paths[path.name]
                for first, rank in ((write, src), (read, dst)):
                    if first >= 0:
                        found.append((message, first + rank // path.shared_by))
        messages, links = (np.concatenate(column) for column in zip(*found, strict=True))
        return messages, links


def _weights(tier: MemoryTier) -> tuple[int, int]:
    """Return in eighths what a byte read and a byte written count on a tier's devices.

    Their ratio is that of the bandwidths, to 2 in 100 and between 1 and 32.
    """
    read, write = tier.read_bandwidth, tier.write_bandwidth
    ratio = Fraction(min(read, write) / max(read, write)).limit_denominator(_FINEST)
    ratio = max(ratio, Fraction(1, _FINEST))
    times = _FINEST // ratio.denominator
    less, more = times * ratio.numerator, times * ratio.denominator
    return (less, more) if write <= read else (more, less)
