"""The physical network of a system, as values: fabrics of links, and links that are not as others.

Bandwidths are bytes per ns and latencies ns, of one link in one direction.

Physical networks as system files state them, and what they become.
"""

from collections.abc import Callable
from typing import Literal, NoReturn, TypeVar

import msgspec

from nadi.errors import FormatError
from nadi.units import parse_ns, parse_rate


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


class GivenRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of the links from one rank to another, one after the other."""

    src: int
    dst: int
    links: tuple[str, ...]


_Value = TypeVar("_Value")
_MOST = 1 << 31  # of anything that is counted
_FASTEST = 4e15  # bytes per second


class _Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all fabrics have; adapters make them join nodes, and not ranks."""

    name: str
    bandwidth: str
    latency: str = "0 ns"
    ranks: int | Literal["any"] = "any"
    adapters: int = 0
    adapter_link: str = ""


class _Switch(_Common, frozen=True, tag="switch", kw_only=True):
    pass


class _FatTree(_Common, frozen=True, tag="fat-tree", kw_only=True):
    leaf: int
    pod: int = 0
    oversubscription: float | tuple[float, ...] = 1.0
    uplink: str = ""
    rails: bool = False
    routing: Literal["hashed", "by-destination"] = "hashed"


class _Rails(_Common, frozen=True, tag="rails", kw_only=True):
    pass


class _Torus(_Common, frozen=True, tag="torus", kw_only=True):
    shape: str


class _FullMesh(_Common, frozen=True, tag="fully-connected", kw_only=True):
    pass


class _Dragonfly(_Common, frozen=True, tag="dragonfly", kw_only=True):
    ends: int
    routers: int
    global_links: int
    local: str = ""
    between_groups: str = ""


FabricPart = _Switch | _FatTree | _Rails | _Torus | _FullMesh | _Dragonfly


class LinkPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is different about some links: a bandwidth, or a part of theirs such as ``0.5x``."""

    bandwidth: str = ""
    down: bool = False


def fabrics_of(parts: tuple[FabricPart, ...], name: str) -> tuple[Fabric, ...]:
    """Return the fabrics of a system file, checked.

    - Raises FormatError if a value is invalid; the message names its path.
    """
    found: list[Fabric] = []
    names: set[str] = set()
    for i, part in enumerate(parts):
        where = FilePlace(name, f"$.network.fabrics[{i}]")
        if not part.name or part.name in names or set(part.name) & set(".*?["):
            where.refuse("name", f"{part.name!r} is not a name of its own", "letters and digits")
        names.add(part.name)
        found.append(_fabric(part, found[-1] if found else None, where))
    return tuple(found)


def changes_of(parts: dict[str, LinkPart], name: str) -> tuple[LinkChange, ...]:
    """Return the links of a system file that are not as others.

    - Raises FormatError if a value is invalid; the message names its path.
    """
    found = []
    for links, part in parts.items():
        where = FilePlace(name, f'$.network.links["{links}"]')
        if part.down == bool(part.bandwidth):
            where.refuse(
                "", "it states no change" if not part.down else "a link that is down has none",
                'write bandwidth = "0.5x", bandwidth = "25 GB/s" or down = true',
            )  # fmt: skip
        if part.down:
            found.append(LinkChange(links, 0.0))
        elif part.bandwidth.rstrip().endswith("x"):
            found.append(LinkChange(links, where.read("bandwidth", part.bandwidth, _factor)))
        else:
            found.append(LinkChange(links, bandwidth=where.rate("bandwidth", part.bandwidth)))
    return tuple(found)


def given_routes(parts: tuple[GivenRoute, ...], name: str) -> tuple[GivenRoute, ...]:
    """Return the given routes of a system file, checked.

    - Raises FormatError if two are of the same ranks, or one has no links or leads from a rank to
      itself.
    """
    found: dict[tuple[int, int], GivenRoute] = {}
    for i, part in enumerate(parts):
        where = FilePlace(name, f"$.network.routes[{i}]")
        for key in ("src", "dst"):
            where.count(key, getattr(part, key), least=0)
        if (part.src, part.dst) in found or part.src == part.dst or not part.links:
            where.refuse(
                "", f"it is no route of its own from {part.src} to {part.dst}",
                "give each pair of different ranks one list of links",
            )  # fmt: skip
        found[part.src, part.dst] = part
    return tuple(found.values())


class FilePlace:
    """A place in a file, for errors."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path

    def refuse(self, key: str, what: str, remedy: str) -> NoReturn:
        """Raise FormatError about a key, or about all of it."""
        path = f"{self.path}.{key}" if key else self.path
        raise FormatError(f"{self.name}: {path}", what, remedy)

    def read(self, key: str, text: str, parse: Callable[[str], _Value]) -> _Value:
        """Read a quantity."""
        try:
            return parse(text)
        except ValueError as error:
            self.refuse(key, str(error), "write the number with its unit")

    def rate(self, key: str, text: str) -> float:
        """Return a bandwidth in bytes per ns."""
        rate = self.read(key, text, parse_rate)
        if not 1 <= rate <= _FASTEST:
            self.refuse(key, f"{text!r} is not 1 B/s to 4 PB/s", "check the unit")
        return rate / 1e9

    def count(self, key: str, value: int, least: int = 1) -> int:
        """Check a count."""
        if not least <= value <= _MOST:
            self.refuse(key, f"{value} is not {least} to 2^31", "give another one")
        return value


def _factor(text: str) -> float:
    """Read a part such as ``0.5x``."""
    number = text.strip()[:-1]
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise ValueError(f"{text!r} is not a part such as 0.5x")
    return value


def _fabric(part: FabricPart, inner: Fabric | None, where: FilePlace) -> Fabric:
    ranks = 0 if part.ranks == "any" else where.count("ranks", part.ranks)
    node = 1
    if part.adapters:
        where.count("adapters", part.adapters)
        if inner is None or not inner.ranks:
            where.refuse(
                "adapters", "no fabric before it joins the ranks of a node",
                "state that fabric first, with its ranks",
            )  # fmt: skip
        node = inner.ranks
        if max(node, part.adapters) % min(node, part.adapters):
            where.refuse(
                "adapters", f"{part.adapters} do not divide among {node} ranks",
                "give a divisor or a multiple",
            )  # fmt: skip
    if inner is not None and (not inner.ranks or (ranks and ranks % inner.ranks)):
        where.refuse(
            "ranks", "it does not join whole ones of the fabric before",
            "state ranks of that fabric, and a multiple of them here",
        )  # fmt: skip
    if part.adapter_link and not part.adapters:
        where.refuse("adapter_link", "there are no adapters", "state adapters, or remove it")
    is_rails = isinstance(part, _Rails)
    if is_rails and not 0 < part.adapters <= node:
        where.refuse("adapters", "rails need adapters, one rank or more each", "state them")
    return Fabric(
        name=part.name,
        layout=_layout(part, where),
        ranks=ranks,
        node=node,
        adapters=part.adapters,
        adapter_link=where.rate("adapter_link", part.adapter_link) if part.adapter_link else 0.0,
        latency=float(where.read("latency", part.latency, parse_ns)),
        by_rail=is_rails or (isinstance(part, _FatTree) and part.rails),
        within_rails=is_rails,
        routing=part.routing if isinstance(part, _FatTree) else "hashed",
    )


def _layout(part: FabricPart, where: FilePlace) -> Tree | Torus | FullMesh | Dragonfly:
    rate = where.rate("bandwidth", part.bandwidth)
    if isinstance(part, _FatTree):
        return _fat_tree(part, rate, where)
    if isinstance(part, _Torus):
        return _torus(part, rate, where)
    if isinstance(part, _FullMesh):
        return FullMesh(rate)
    if isinstance(part, _Dragonfly):
        for key in ("ends", "routers", "global_links"):
            where.count(key, getattr(part, key))
        return Dragonfly(
            part.ends,
            part.routers,
            part.global_links,
            rate,
            where.rate("local", part.local) if part.local else rate,
            where.rate("between_groups", part.between_groups) if part.between_groups else rate,
        )
    return Tree((0,), (1,), (rate,))  # a switch; of rails one beside the other


def _torus(part: _Torus, rate: float, where: FilePlace) -> Torus:
    sizes = part.shape.split("x")
    try:
        lengths = tuple(int(size.rstrip("*")) for size in sizes)
    except ValueError:
        lengths = (0,)
    if min(lengths) < 1:
        where.refuse("shape", f"{part.shape!r} is not a shape", "write sizes such as 4*x4*x8")
    return Torus(lengths, tuple(size.endswith("*") for size in sizes), rate)


def _fat_tree(part: _FatTree, rate: float, where: FilePlace) -> Tree:
    """Return tiers of leaves, spines and, with pods, cores."""
    leaf = where.count("leaf", part.leaf)
    pod = where.count("pod", part.pod, least=0)
    uplink = where.rate("uplink", part.uplink) if part.uplink else rate
    num_tiers = 3 if pod else 2
    stated = part.oversubscription
    ratios = stated if isinstance(stated, tuple) else (stated,) + (1.0,) * (num_tiers - 2)
    if len(ratios) != num_tiers - 1 or not all(1e-6 <= ratio <= 1e6 for ratio in ratios):
        where.refuse(
            "oversubscription", f"{stated} is not a number up to 1e6 for each tier of switches",
            f"give {num_tiers - 1}, or one for the first",
        )  # fmt: skip
    ports, parents, rates = [leaf], [1], [rate]
    below, below_rate = leaf, rate
    for ratio, joined in zip(ratios, (pod, 0), strict=False):
        up = below * below_rate / (ratio * uplink)
        if not up < _MOST:
            where.refuse("uplink", f"{part.uplink!r} is too slow for this leaf", "give another one")
        parents.append(max(round(up), 1))
        # what does not make a whole number of links changes their bandwidth
        rates.append(uplink * up / parents[-1])
        ports.append(joined)
        below, below_rate = pod, rates[-1]
    return Tree(tuple(ports), tuple(parents), tuple(rates))
