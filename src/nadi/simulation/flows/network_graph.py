"""The links of a system's network, and the routes that data takes from rank to rank."""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.flows.dimension_links import DimensionLinks
from nadi.simulation.flows.flow_state import Routes, rate_units
from nadi.simulation.flows.joined_fabrics import JoinedFabrics
from nadi.simulation.flows.way_building import Ways
from nadi.systems.fabrics import GivenRoute
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints

__all__ = ["NetworkGraph", "network_graph"]

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
