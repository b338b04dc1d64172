"""The links of a system's network, and the routes that data takes from rank to rank.

The links of a physical network: fabrics one inside the other, joined by ranks and adapters.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.flows.dimension_links import DimensionLinks
from nadi.simulation.flows.fabric_links import Links, links_of
from nadi.simulation.flows.flow_state import Routes, rate_units
from nadi.simulation.flows.way_building import Ends, Ways, hashed
from nadi.systems.fabrics import Fabric, GivenRoute, Tree
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
