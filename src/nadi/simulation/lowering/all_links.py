"""All links that transfers of a job may share: those of the network, and those to memory."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nadi.simulation.flows.memory_links import MemoryLinks
from nadi.simulation.flows.network_graph import network_graph
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints

__all__ = ["AllLinks"]


class AllLinks:
    """The links of a system: of its network first, then those of paths and memory tiers.

    Attributes
    ----------
    network
        The graph of the network.
    memory
        The links of tiers and paths.
    is_physical
        Whether messages take other links than those of the dimensions.
    """

    def __init__(self, system: System) -> None:
        self.network = network_graph(system)
        self.memory = MemoryLinks(system, self.network.bandwidth.size)
        self._on_paths = sorted({d for path in system.memory_paths for d in path.dimensions})
        self.is_physical = bool(system.network.is_physical or self._on_paths)

    @cached_property
    def bandwidth(self) -> Floats:
        """What each link carries, bytes per ns; 0 of a link that is down."""
        return np.concatenate([self.network.bandwidth, self.memory.bandwidth])

    @cached_property
    def names(self) -> list[str]:
        """The name of each link; empty where a number has no link."""
        return [*self.network.names, *self.memory.names]

    def hops(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the messages and links of all hops of messages; int64, shape (hops,) each.

        A dimension may be reached over the path of a rank's memory: that is a hop, too.
        """
        routes = self.network.routes(src, dst)
        message = np.repeat(np.arange(src.size), np.diff(routes.first))
        messages, links = [message], [routes.link.astype(np.int64)]
        for dimension in self._on_paths:
            pair, leaves, reaches = self.network.ends(dimension, src, dst)
            of_pair, link = self.memory.ends(dimension, leaves, reaches)
            messages.append(pair[of_pair])
            links.append(link)
        return np.concatenate(messages), np.concatenate(links)
