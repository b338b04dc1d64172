"""The links of fabrics, and the ways that data takes over them.

Each layout numbers the links of one fabric from 0: ``num_links``, what they carry, their names,
and the ways between ends. Ends are numbered from 0, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import accumulate

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.flows.way_building import Ends, Line, Ways, add_steps, hashed
from nadi.systems.fabrics import Dragonfly, Fabric, FullMesh, Torus, Tree
from nadi.trace.arrays import Floats, Ints

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

    Raises
    ------
    UsageError
        If it has no place for them.
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
