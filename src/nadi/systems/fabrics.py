"""The physical network of a system, as values: fabrics of links, and links that are not as others.

Bandwidths are bytes per ns and latencies ns, of one link in one direction.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Dragonfly", "Fabric", "FullMesh", "GivenRoute", "LinkChange", "Torus", "Tree"]


class Tree(msgspec.Struct, frozen=True, tag="tree"):
    """A tree whose inner switches may stand several times beside each other: a fat tree.

    A single switch has one tier, a leaf and spine network two, and three have cores.

    Attributes
    ----------
    ports
        For each tier from the ends up: how many of the tier below one of its subtrees joins; 0
        for all.
    parents
        For each tier: to how many switches of it each end or switch below is joined.
    bandwidths
        For each tier: of a link from below to it, bytes per ns.
    """

    ports: tuple[int, ...]
    parents: tuple[int, ...]
    bandwidths: tuple[float, ...]


class Torus(msgspec.Struct, frozen=True, tag="torus"):
    """A grid of ends with links between neighbors.

    ``sizes`` begins with the dimension of neighboring ends; ``joined`` says of each dimension
    whether its last end is joined to the first one.
    """

    sizes: tuple[int, ...]
    joined: tuple[bool, ...]
    bandwidth: float


class FullMesh(msgspec.Struct, frozen=True, tag="full-mesh"):
    """A link from each end to each other end."""

    bandwidth: float


class Dragonfly(msgspec.Struct, frozen=True, tag="dragonfly"):
    """Groups of routers: all routers of a group are joined, and all groups.

    Attributes
    ----------
    ends
        How many ends a router has.
    routers
        How many routers a group has.
    global_links
        How many links to other groups a router has.
    bandwidth, local_bandwidth, global_bandwidth
        Of a link from an end to its router, between routers of a group, and between groups.
    """

    ends: int
    routers: int
    global_links: int
    bandwidth: float
    local_bandwidth: float
    global_bandwidth: float


class Fabric(msgspec.Struct, frozen=True):
    """One network, or as many equal ones as ranks need.

    Attributes
    ----------
    name
        Names of links begin with it.
    layout
        How its ends are joined.
    ranks
        How many ranks one such network joins; 0 for all.
    node
        How many ranks share adapters.
    adapters
        How many adapters such ranks have, which are the ends; 0 if ranks are the ends.
    adapter_link
        What goes between a rank and its adapters at most, in one direction, bytes per ns; 0 for
        any.
    latency
        Of each link, ns.
    by_rail
        Ends of equal place in their nodes stand beside each other: those of rail 0 first.
    within_rails
        Nothing goes from rail to rail here: what does first goes to the rank of its own node that
        has the other's rail, over the fabric before.
    routing
        Which of equal ways is taken: ``hashed`` by the two ranks and the flow, or
        ``by-destination``.
    """

    name: str
    layout: Tree | Torus | FullMesh | Dragonfly
    ranks: int = 0
    node: int = 1
    adapters: int = 0
    adapter_link: float = 0.0
    latency: float = 0.0
    by_rail: bool = False
    within_rails: bool = False
    routing: Literal["hashed", "by-destination"] = "hashed"


class LinkChange(msgspec.Struct, frozen=True):
    """Links that are not as others.

    Attributes
    ----------
    links
        Their names, with ``*`` for any text: ``infiniband.node0.adapter3.*``.
    factor
        Their bandwidth as a part of what it would be; 0 if they are down.
    bandwidth
        Their bandwidth in bytes per ns, if that is stated instead; else 0.
    """

    links: str
    factor: float = 1.0
    bandwidth: float = 0.0


class GivenRoute(msgspec.Struct, frozen=True):
    """The names of the links from one rank to another, one after the other."""

    src: int
    dst: int
    links: tuple[str, ...]
