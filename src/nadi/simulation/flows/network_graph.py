"""The links of a system's network, and the routes that data takes from rank to rank.

The links of a physical network: fabrics one inside the other, joined by ranks and adapters.

Each layout numbers the links of one fabric from 0: ``num_links``, what they carry, their names, and
the ways between ends. Ends are numbered from 0, too.
"""

import fnmatch
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.flows.dimension_links import (
    DimensionLinks,
    Ends,
    Line,
    Ways,
    add_steps,
    hashed,
)
from nadi.simulation.flows.flow_state import Routes, rate_units
from nadi.systems.fabrics import Dragonfly, Fabric, FullMesh, GivenRoute, Torus, Tree
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints

_MOST_LINKS = 1 << 25
_WAYS_TRIED = 16  # in a fabric, before another adapter is tried


class _Placed:
    """Equal fabrics, as many as ranks need, and the links of all of them."""

    def __init__(self, fabric: Fabric, num_ranks: int, first: int) -> None:
        self.fabric, self.first = fabric, first
        self.ranks = min(fabric.ranks or num_ranks, num_ranks)
        self.domains = -(-num_ranks // self.ranks)
        self.nodes = -(-self.ranks // fabric.node)
        self._rail = self.nodes  # ends of a rail
        layout = fabric.layout
        if fabric.by_rail and isinstance(layout, Tree) and len(layout.ports) > 1:
            self._rail = -(-self.nodes // layout.ports[0]) * layout.ports[0]
        ends = self.ranks
        if fabric.adapters:
            ends = (self._rail if fabric.by_rail else self.nodes) * fabric.adapters
        self.links: Links = links_of(fabric, ends)
        if self.links.num_links * self.domains > _MOST_LINKS:
            raise UsageError(
                f"fabric {fabric.name}", f"it has {self.links.num_links * self.domains} links",
                f"{_MOST_LINKS} are the most: check its figures in network.fabrics",
            )  # fmt: skip
        self.bandwidths = self.links.bandwidths()
        self.to_adapters = first + self.domains * self.bandwidths.size  # two links of each rank
        self.last = self.to_adapters + (2 * num_ranks if fabric.adapter_link else 0)

    def adapter(self, rank: Ints, choice: Ints, attempt: int) -> Ints:
        """Return which of its node's adapters a rank uses."""
        node, adapters = self.fabric.node, self.fabric.adapters
        local = rank % node
        if adapters <= node:
            own = local * adapters // node
        else:
            own = local * (adapters // node) + choice % (adapters // node)
        return (own + attempt // _WAYS_TRIED) % adapters

    def end(self, rank: Ints, adapter: Ints) -> Ints:
        """Return the end of a rank."""
        if not self.fabric.adapters:
            return rank % self.ranks
        node = rank % self.ranks // self.fabric.node
        if self.fabric.by_rail:
            return adapter * self._rail + node
        return node * self.fabric.adapters + adapter

    def add_ways(self, ways: Ways, ends: Ends) -> None:
        """Append ways between ends."""
        begin = self.first + ends.domain * self.bandwidths.size
        self.links.add_ways(ways, ends, begin)

    def all_bandwidths(self) -> Floats:
        """Return what all links carry, bytes per ns."""
        own = np.full(self.last - self.to_adapters, self.fabric.adapter_link)
        return np.concatenate([np.tile(self.bandwidths, self.domains), own])

    def names(self, num_ranks: int) -> list[str]:
        """Return the names of all links."""
        found = []
        for domain in range(self.domains):
            begin = domain * self.ranks
            names = [""] * self.links.num_ends
            if self.fabric.adapters:
                node = np.repeat(np.arange(self.nodes), self.fabric.adapters)
                adapter = np.tile(np.arange(self.fabric.adapters), self.nodes)
                end = self.end(node * self.fabric.node, adapter)
                base = begin // self.fabric.node
                for n, a, at in zip(node.tolist(), adapter.tolist(), end.tolist(), strict=True):
                    names[at] = f"node{base + n}.adapter{a}"
            else:
                for at in range(self.ranks):
                    names[at] = f"rank{begin + at}" if begin + at < num_ranks else ""
            inner = f"domain{domain}." if self.domains > 1 else ""
            found += [self._whole_name(name, inner) for name in self.links.names(names)]
        if self.fabric.adapter_link:
            both = ("to.adapters", "from.adapters")
            found += [
                f"{self.fabric.name}.rank{rank}.{way}" for rank in range(num_ranks) for way in both
            ]
        return found

    def _whole_name(self, name: str, inner: str) -> str:
        if not name or name[0] == "." or name[-1] == ".":  # of an end that is not there
            return ""
        # ranks and nodes are numbered through all fabrics, switches are not
        return f"{self.fabric.name}.{'' if name.startswith(('rank', 'node')) else inner}{name}"


class JoinedFabrics:
    """Links of fabrics, each inside of the next."""

    def __init__(self, fabrics: Sequence[Fabric], num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._placed: list[_Placed] = []
        first = 0
        for fabric in fabrics:
            placed = _Placed(fabric, num_ranks, first)
            self._placed.append(placed)
            first = placed.last
        if self._placed[-1].domains > 1:
            raise UsageError(
                f"fabric {fabrics[-1].name}", f"it joins {fabrics[-1].ranks} ranks of {num_ranks}",
                "leave out ranks of the last one of network.fabrics, or add another",
            )  # fmt: skip

    def bandwidths(self) -> Floats:
        """Return what each link carries, bytes per ns."""
        return np.concatenate([one.all_bandwidths() for one in self._placed])

    def latencies(self) -> Floats:
        """Return the latency of each link, ns."""
        each = np.array([one.fabric.latency for one in self._placed], dtype=np.float64)
        return np.repeat(each, [one.last - one.first for one in self._placed])

    def names(self) -> list[str]:
        """Return the name of each link."""
        return [name for one in self._placed for name in one.names(self._num_ranks)]

    def ends(self, dimension: int, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the pairs that take a fabric, and the ranks that they leave and reach there.

        int64, shape (some of the pairs,) each. What goes to another rail first leaves its node at
        the rank that has it.
        """
        left = src != dst
        for placed in self._placed[:dimension]:
            left &= src // placed.ranks != dst // placed.ranks
        placed = self._placed[dimension]
        goes = np.flatnonzero(left & (src // placed.ranks == dst // placed.ranks))
        leaves, reaches, fabric = src[goes], dst[goes], placed.fabric
        if fabric.adapters and fabric.within_rails:
            kept = hashed(leaves, reaches, np.zeros_like(leaves))
            a, b = placed.adapter(leaves, kept, 0), placed.adapter(reaches, kept, 0)
            leaves = np.where(a != b, _with_rail(fabric, leaves, b), leaves)
        return goes, leaves, reaches

    def add_ways(self, ways: Ways, src: Ints, dst: Ints, flow: Ints, attempt: int) -> None:
        """Append the ways of pairs of ranks: over the inmost fabric that joins them."""
        pair, left = np.arange(src.size), src != dst
        for i, placed in enumerate(self._placed):
            joins = left & (src // placed.ranks == dst // placed.ranks)
            self._add(ways, i, (pair[joins], src[joins], dst[joins]), flow[joins], attempt)
            left &= ~joins

    def _add(
        self, ways: Ways, i: int, pairs: tuple[Ints, Ints, Ints], flow: Ints, attempt: int
    ) -> None:  # fmt: skip
        placed, (pair, src, dst) = self._placed[i], pairs
        fabric = placed.fabric
        choice = hashed(src, dst, flow, attempt)
        if fabric.routing == "by-destination" and attempt == 0:
            choice = np.zeros_like(src)
        if attempt:
            choice = -1 - choice
        a = b = np.zeros_like(src)
        if fabric.adapters:
            kept = np.zeros_like(src) if attempt else hashed(src, dst, flow)
            a, b = placed.adapter(src, kept, attempt), placed.adapter(dst, kept, attempt)
            if fabric.within_rails:
                over = a != b
                via = _with_rail(fabric, src, b)
                inner = pair[over], src[over], via[over]
                self._add_within(ways, i - 1, inner, flow[over], attempt)
                src, a = np.where(over, via, src), b
        ends = Ends(pair, src // placed.ranks, placed.end(src, a), placed.end(dst, b), choice)
        if fabric.adapter_link:
            ways.add(pair, placed.to_adapters + 2 * src)
        placed.add_ways(ways, ends)
        if fabric.adapter_link:
            ways.add(pair, placed.to_adapters + 2 * dst + 1)

    def _add_within(
        self, ways: Ways, i: int, pairs: tuple[Ints, Ints, Ints], flow: Ints, attempt: int
    ) -> None:  # fmt: skip
        pair, src, via = pairs
        moves = src != via
        self._add(ways, i, (pair[moves], src[moves], via[moves]), flow[moves], attempt)


def _with_rail(fabric: Fabric, rank: Ints, adapter: Ints) -> Ints:
    """Return the ranks of the same nodes that have given adapters."""
    return rank - rank % fabric.node + adapter * fabric.node // fabric.adapters


_TRIES = 128  # of other ways, where links are down
_TOLD = 3
_LONGEST = 1 << 40  # latency of a link, ns


class NetworkGraph:
    """Directed links between ranks, adapters and switches.

    Attributes
    ----------
    num_ranks
        Ranks that it joins.
    bandwidth
        float64, shape (links,): bytes per ns; 0 of a link that is down.
    capacity
        int64, shape (links,): the same in 1/1024 bytes per second.
    latency
        int64, shape (links,): ps.
    """

    def __init__(self, system: System) -> None:
        network = system.network
        self.num_ranks = network.num_ranks
        self._where = f"system {system.name}".strip()
        self._layout: DimensionLinks | JoinedFabrics = (
            JoinedFabrics(network.fabrics, self.num_ranks)
            if network.fabrics
            else DimensionLinks(network.dimensions, self.num_ranks)
        )
        self.bandwidth: Floats = self._layout.bandwidths()
        for change in network.changes:
            changed = self._matching(change.links)
            stated = change.bandwidth or self.bandwidth[changed] * change.factor
            self.bandwidth[changed] = stated
        distinct, which = np.unique(self.bandwidth, return_inverse=True)
        # what is not down carries something
        units = [max(rate_units(one * 1e9), int(one > 0)) for one in distinct.tolist()]
        self.capacity: Ints = np.array(units, dtype=np.int64)[which]
        latencies = self._layout.latencies()
        if latencies.max(initial=0.0) > _LONGEST:
            raise UsageError(
                self._where, "the latency of a link exceeds 18 minutes", "check latencies"
            )
        self.latency: Ints = np.round(latencies * 1000).astype(np.int64)
        self._given = {
            one.src * self.num_ranks + one.dst: self._links_of(one) for one in network.routes
        }

    @cached_property
    def names(self) -> list[str]:
        """The name of each link; empty where a number has no link."""
        return self._layout.names()

    def routes(self, src: Ints, dst: Ints, flow: Ints | int = 0) -> Routes:
        """Return the route of each of some pairs of ranks.

        A route of ``network.routes`` is as it is given; others go round links that are down.
        Where several ways are equal, a hash of the two ranks and the flow says which one is
        taken, or ``dst`` alone.

        Parameters
        ----------
        src, dst
            int64, shape (pairs,): ranks; a route from a rank to itself has no links.
        flow
            int64, shape (pairs,), or one for all: tells flows between the same ranks apart.

        Raises
        ------
        UsageError
            If each route from a rank to another has a link that is down. O(links of all routes).
        """
        flow = np.broadcast_to(np.asarray(flow, dtype=np.int64), src.shape)
        first, link = self._ways(src, dst, flow, 0)
        down = self.capacity == 0
        if down.any():
            first, link = self._round_what_is_down(src, dst, flow, (first, link))
        weight = np.ones(link.size, dtype=np.int32)
        total = np.append(0, np.cumsum(self.latency[link]))
        latency = total[first[1:]] - total[first[:-1]]
        return Routes(first, link.astype(np.int32), weight, latency)

    def ends(self, dimension: int, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
        """Return which pairs of ranks take a dimension or fabric, and where they leave and end.

        Parameters
        ----------
        dimension
            Its position in ``network.dimensions``, or in ``network.fabrics`` if there are some.
        src, dst
            int64, shape (pairs,): ranks.

        Returns
        -------
        pair, src, dst
            int64, shape (those that take it,): positions in the pairs, and the ranks between which
            they are on its links.
        """
        return self._layout.ends(dimension, src, dst)

    def _ways(self, src: Ints, dst: Ints, flow: Ints, attempt: int) -> tuple[Ints, Ints]:
        ways = Ways(src.size)
        if not self._given:
            self._layout.add_ways(ways, src, dst, flow, attempt)
            return ways.finish()
        number = src * self.num_ranks + dst
        given = np.flatnonzero(np.isin(number, list(self._given)))
        for pair in given.tolist():
            links = self._given[int(number[pair])]
            ways.add(np.full(links.size, pair), links)
        others = np.setdiff1d(np.arange(src.size), given, assume_unique=True)
        inner = Ways(others.size)
        self._layout.add_ways(inner, src[others], dst[others], flow[others], attempt)
        first, link = inner.finish()
        ways.add(np.repeat(others, np.diff(first)), link)
        return ways.finish()

    def _links_of(self, route: GivenRoute) -> Ints:
        """Return the links of a given route."""
        where = f"{self._where}: the route from rank {route.src} to rank {route.dst}"
        if max(route.src, route.dst) >= self.num_ranks:
            raise UsageError(where, f"there are {self.num_ranks} ranks", "remove it")
        for name in route.links:
            if name not in self._number:
                raise UsageError(
                    where, f"no link is named {name!r}", f"links are named {self._some_names()}"
                )
        return np.array([self._number[name] for name in route.links], dtype=np.int64)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: link for link, name in enumerate(self.names) if name}

    def _some_names(self) -> str:
        some = list(self._number)
        return ", ".join(dict.fromkeys([*some[:_TOLD], *some[-1:]])) or "nothing"

    def _round_what_is_down(
        self, src: Ints, dst: Ints, flow: Ints, found: tuple[Ints, Ints]
    ) -> tuple[Ints, Ints]:
        """Try other ways for pairs whose way has a link that is down."""
        first, link = found
        for attempt in range(1, _TRIES + 1):
            down = np.append(0, np.cumsum(self.capacity[link] == 0))
            blocked = np.flatnonzero(down[first[1:]] > down[first[:-1]])
            if not blocked.size:
                return first, link
            new_first, new_link = self._ways(src[blocked], dst[blocked], flow[blocked], attempt)
            ways = Ways(src.size)
            pair = np.repeat(np.arange(src.size), np.diff(first))
            keeps = ~np.isin(pair, blocked)
            ways.add(pair[keeps], link[keeps])
            ways.add(np.repeat(blocked, np.diff(new_first)), new_link)
            first, link = ways.finish()
        one = int(blocked[0])
        raise UsageError(
            self._where, f"no route from rank {src[one]} to rank {dst[one]} is up",
            "state a bandwidth for one of the links in network.links, or leave the ranks out",
        )  # fmt: skip

    def _matching(self, pattern: str) -> Ints:
        """Return the links that a pattern names."""
        matches = re.compile(fnmatch.translate(pattern)).match
        found = [i for i, name in enumerate(self.names) if name and matches(name)]
        if not found:
            raise UsageError(
                self._where, f"no link is named {pattern!r}",
                f"links are named {self._some_names()}; * stands for any text",
            )  # fmt: skip
        return np.array(found, dtype=np.int64)


def network_graph(system: System) -> NetworkGraph:
    """Return the links of a system's network, and the way to get routes over them.

    That is the physical network, if the system has ``fabrics``. Else it is the links of its
    dimensions: a switch is a link up and one down for each rank.

    Raises
    ------
    UsageError
        If fabrics do not join all ranks, or a changed link is not there.
    """
    return NetworkGraph(system)


_TIERS = ("leaf", "spine", "core")


class Links(ABC):
    """The links of a fabric with ``num_ends`` ends, of which there are ``num_links``."""

    num_links: int

    def __init__(self, num_ends: int) -> None:
        self.num_ends = num_ends

    @abstractmethod
    def bandwidths(self) -> Floats:
        """Return what each link carries, bytes per ns; float64, shape (links,)."""

    @abstractmethod
    def names(self, ends: list[str]) -> list[str]:
        """Return the name of each link, made of those of ends; empty where there is none."""

    @abstractmethod
    def add_ways(self, ways: Ways, ends: Ends, first: Ints) -> None:
        """Append the ways between ends that differ; links of each pair's fabric begin at one."""


class _TreeLinks(Links):
    """Links of a tree: for each tier those up to it, then those down from it.

    A switch is one of a subtree's, numbered by the choices that lead up to it. Down goes the only
    way there is from that switch.
    """

    def __init__(self, tree: Tree, num_ends: int, *, by_destination: bool) -> None:
        super().__init__(num_ends)
        self._tree, self._by_destination = tree, by_destination
        self._subtrees, self._beside = [num_ends], [1]
        for ports, parents in zip(tree.ports, tree.parents, strict=True):
            below = self._subtrees[-1]
            self._subtrees.append(-(-below // ports) if ports else 1)
            self._beside.append(self._beside[-1] * parents)
        # links up to each tier: from every switch below to each of its parents
        counts = [
            subtrees * beside
            for subtrees, beside in zip(self._subtrees[:-1], self._beside[1:], strict=True)
        ]
        self._up = [0, *accumulate(2 * count for count in counts)]
        self._down = [up + count for up, count in zip(self._up[:-1], counts, strict=True)]
        self.num_links = self._up[-1]

    def bandwidths(self) -> Floats:
        sizes = np.diff(self._up)
        return np.repeat(np.array(self._tree.bandwidths, dtype=np.float64), sizes)

    def names(self, ends: list[str]) -> list[str]:
        found = []
        below = ends
        for i, parents in enumerate(self._tree.parents):
            ports = self._tree.ports[i] or max(self._subtrees[i], 1)
            tier = _TIERS[i] if i < len(_TIERS) else f"tier{i + 1}_"
            up = []
            for place, name in enumerate(below):
                subtree, beside = divmod(place, self._beside[i])
                for choice in range(parents):
                    to = (subtree // ports) * self._beside[i + 1] + beside * parents + choice
                    up.append((name, f"{tier}{to}"))
            if len(self._tree.ports) == 1 and parents == 1:
                found += [f"{name}.up" for name, _ in up] + [f"{name}.down" for name, _ in up]
            else:
                found += [f"{name}.up.{to}" for name, to in up]
                found += [f"{name}.down.{to}" for name, to in up]
            below = [
                f"{tier}{number}" for number in range(self._subtrees[i + 1] * self._beside[i + 1])
            ]
        return found

    def add_ways(self, ways: Ways, ends: Ends, first: Ints) -> None:
        at, to, beside = ends.a, ends.b, np.zeros_like(ends.a)
        going = np.ones(at.size, dtype=bool)
        downs = []
        for i, parents in enumerate(self._tree.parents):
            choice = self._choices(ends, i) if parents > 1 else 0
            from_here = at * self._beside[i + 1] + beside * parents + choice
            to_there = to * self._beside[i + 1] + beside * parents + choice
            ways.add(ends.pair[going], (first + self._up[i] + from_here)[going])
            downs.append((ends.pair[going], (first + self._down[i] + to_there)[going]))
            ports = self._tree.ports[i] or max(self._subtrees[i], 1)
            at, to, beside = at // ports, to // ports, beside * parents + choice
            going &= at != to
        for pair, link in reversed(downs):
            ways.add(pair, link)

    def _choices(self, ends: Ends, i: int) -> Ints:
        """Return to which of its parents each way goes up to a tier."""
        mixed = hashed(ends.choice, i)
        if self._by_destination:
            # neighboring ends are reached over different switches
            mixed = np.where(ends.choice == 0, ends.b // self._beside[i], mixed)
        return mixed % self._tree.parents[i]


class _GridLinks(Links):
    """Links of a torus: of each end those to the next and to the one before, by dimension."""

    def __init__(self, torus: Torus, num_ends: int) -> None:
        super().__init__(num_ends)
        self._torus = torus
        self.num_links = 2 * len(torus.sizes) * num_ends

    def bandwidths(self) -> Floats:
        return np.full(self.num_links, self._torus.bandwidth)

    def names(self, ends: list[str]) -> list[str]:
        found, stride = [], 1
        for size, joined in zip(self._torus.sizes, self._torus.joined, strict=True):
            for place, name in enumerate(ends):
                at = place // stride % size
                for way in (1, -1):
                    there = size > 1 and (joined or 0 <= at + way < size)
                    other = place + ((at + way) % size - at) * stride
                    twice = ".second" if size == 2 and at + way not in (0, 1) else ""
                    found.append(f"{name}.to.{ends[other]}{twice}" if there else "")
            stride *= size
        return found

    def add_ways(self, ways: Ways, ends: Ends, first: Ints) -> None:
        num = len(self._torus.sizes)
        # a negative choice asks for another way than the first one
        other, spare = ends.choice < 0, -1 - ends.choice
        begin = np.where(other, (spare >> num) % num, 0)
        for k in range(num):
            some = ends.where(begin == k)
            at, origin, reverse = some.a.copy(), first[begin == k], spare[begin == k]
            for d in (*range(k, num), *range(k)):
                turned = (reverse >> d & 1 == 1) & other[begin == k]
                at = self._add_dimension(ways, some._replace(a=at), origin, d, turned)

    def _add_dimension(
        self, ways: Ways, ends: Ends, first: Ints, d: int, reverse: np.ndarray
    ) -> Ints:
        """Append steps in one dimension; gives where they lead to."""
        size, stride = self._torus.sizes[d], math.prod(self._torus.sizes[:d])
        line = Line(size, stride, self._torus.joined[d], reverse)
        add_steps(ways, ends.pair, first + 2 * self.num_ends * d, ends.a, ends.b, line)
        return ends.a + (ends.b // stride % size - ends.a // stride % size) * stride


class _FullMeshLinks(Links):
    """Links of a full mesh: of each end one to each."""

    def __init__(self, mesh: FullMesh, num_ends: int) -> None:
        super().__init__(num_ends)
        self._mesh = mesh
        self.num_links = num_ends**2

    def bandwidths(self) -> Floats:
        return np.full(self.num_links, self._mesh.bandwidth)

    def names(self, ends: list[str]) -> list[str]:
        return [f"{a}.to.{b}" if a != b else "" for a in ends for b in ends]

    def add_ways(self, ways: Ways, ends: Ends, first: Ints) -> None:
        ways.add(ends.pair, first + ends.a * self.num_ends + ends.b)


class _DragonflyLinks(Links):
    """Links of a dragonfly: of ends up and down, within groups, and between groups.

    A group's link number ``k`` to others is at router ``k // global_links``. It goes to the group
    that is ``1 + k % (groups - 1)`` further on, round the end. Ways are the shortest ones.
    """

    def __init__(self, dragonfly: Dragonfly, num_ends: int) -> None:
        super().__init__(num_ends)
        self._own = dragonfly
        self._group = dragonfly.ends * dragonfly.routers
        self.num_groups = max(-(-num_ends // self._group), 1)
        self._outward = dragonfly.routers * dragonfly.global_links
        self._local = 2 * num_ends
        self._global = self._local + self.num_groups * dragonfly.routers**2
        self.num_links = self._global + self.num_groups * self._outward

    def bandwidths(self) -> Floats:
        own, groups = self._own, self.num_groups
        counts = [2 * self.num_ends, groups * own.routers**2, groups * self._outward]
        values = [own.bandwidth, own.local_bandwidth, own.global_bandwidth]
        return np.repeat(np.array(values, dtype=np.float64), counts)

    def names(self, ends: list[str]) -> list[str]:
        routers, groups = self._own.routers, range(self.num_groups)
        found = [f"{name}.{way}" for name in ends for way in ("up", "down")]
        found += [
            f"group{g}.router{a}.to.router{b}" if a != b else ""
            for g in groups
            for a in range(routers)
            for b in range(routers)
        ]
        others = self.num_groups - 1
        for g in groups:
            for k in range(self._outward):
                to = (g + 1 + k % others) % self.num_groups if others else g
                used = others and k < self._outward // others * others
                found.append(f"group{g}.link{k}.to.group{to}" if used else "")
        return found

    def add_ways(self, ways: Ways, ends: Ends, first: Ints) -> None:
        own, routers = self._own, self._own.routers
        at, to = ends.a // own.ends, ends.b // own.ends  # routers
        group, to_group = at // routers, to // routers
        leave, enter = at % routers, to % routers
        ways.add(ends.pair, first + 2 * ends.a)
        others = self.num_groups - 1
        far = group != to_group
        if others:
            beside = hashed(ends.choice) % max(self._outward // others, 1)
            out = (to_group - group - 1) % self.num_groups + beside * others
            back = (group - to_group - 1) % self.num_groups + beside * others
            self._add_local(ways, ends.pair, first, group, leave, out // own.global_links, far)
            link = first + self._global + group * self._outward + out
            ways.add(ends.pair[far], link[far])
            leave = np.where(far, back // own.global_links, leave)
        self._add_local(ways, ends.pair, first, to_group, leave, enter, np.ones_like(far))
        ways.add(ends.pair, first + 2 * ends.b + 1)

    def _add_local(
        self, ways: Ways, pair: Ints, first: Ints, group: Ints, a: Ints, b: Ints, some: np.ndarray
    ) -> None:  # fmt: skip
        some = some & (a != b)
        routers = self._own.routers
        link = first + self._local + (group * routers + a) * routers + b
        ways.add(pair[some], link[some])


def links_of(fabric: Fabric, num_ends: int) -> Links:
    """Return the links of a fabric with so many ends.

    - Raises UsageError if it has no place for them.
    """
    layout = fabric.layout
    if isinstance(layout, Torus):
        num_places = math.prod(layout.sizes)
    elif isinstance(layout, Dragonfly):
        groups = layout.routers * layout.global_links + 1
        num_places = layout.ends * layout.routers * groups
    else:
        num_places = num_ends
    if num_ends > num_places:
        raise UsageError(
            f"fabric {fabric.name}", f"it has {num_places} places for {num_ends} ends",
            "enlarge it in network.fabrics, or simulate fewer ranks",
        )  # fmt: skip
    if isinstance(layout, Torus):
        return _GridLinks(layout, num_places)
    if isinstance(layout, Tree):
        by_destination = fabric.routing == "by-destination"
        return _TreeLinks(layout, num_ends, by_destination=by_destination)
    if isinstance(layout, FullMesh):
        return _FullMeshLinks(layout, num_ends)
    return _DragonflyLinks(layout, num_ends)
