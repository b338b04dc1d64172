"""Routes of a job's messages and collectives, over links that they share.

A message takes the links of its pair of ranks. A phase of a collective takes all links of its
members, each as often as messages of one member go over it.

All links that transfers of a job may share: those of the network, and those to memory.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from nadi.simulation.collectives.link_sharing import even_size
from nadi.simulation.collectives.phases import Phase, messages_of
from nadi.simulation.collectives.step_tables import ROOTED
from nadi.simulation.engine.codes import NodeKind, PhaseKind
from nadi.simulation.engine.machine_state import NODE, SHAPE
from nadi.simulation.flows.dimension_links import owned_by
from nadi.simulation.flows.flow_state import (
    RATE_UNITS,
    UNBOUND,
    Flows,
    Routes,
    new_flows,
    no_flows,
)
from nadi.simulation.flows.memory_links import MemoryLinks
from nadi.simulation.flows.network_graph import network_graph
from nadi.simulation.lowering.task_tables import Tables, accesses_share_links
from nadi.simulation.rules import rules_of
from nadi.simulation.work.recorded_work import paths_slow_messages
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.rows import number_rows


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


_PARTS = 8  # of a flow's rate, in which its loads on links are counted
_NS = RATE_UNITS * 10**9  # the rate of a flow of a unit per ns
_FASTEST, _LARGEST = 2**62, 2**52  # a capacity, and bytes of a flow
_FINEST = 1 << 20
_MARGIN = 64  # how much longer a collective may be under way than its bytes on one link
_ROUNDING = 1e-6


class SharedRoutes(NamedTuple):
    """Routes, as :class:`nadi.simulation.engine.machine_state.Machine` has them."""

    capacity: Ints  # int64, shape (links,): in parts of a message's rate
    routes: Routes  # of pairs first, then of phases
    units: int  # in how many units a byte per ns is counted as a rate; 0 if no links are shared
    # ways, pairs, shares: as there
    ways: np.ndarray
    pairs: Ints
    shares: Floats


def shares_links(tables: Tables) -> bool:
    """Return whether transfers of a job may slow each other down.

    Not by rules without shared links, and not where collectives alone run, one behind the other:
    those of a rank wait for each other in the queue of a dimension, and the chunks that run at
    once there share links by a fixed rule.
    """
    system = tables.system
    if system.network.congestion or not rules_of(system).links_are_shared:
        return False
    if accesses_share_links(tables.program, system, tables.nodes):
        return True
    kinds = tables.nodes[:, NODE.kind]
    if (kinds == NodeKind.SEND).any():
        return True
    if system.network.is_physical or paths_slow_messages(system):
        return bool((kinds == NodeKind.COLLECTIVE).any())
    phases = {phase for recipe in tables.recipes for phase in recipe.phases}
    if any(phase.pace > 0 or phase.dim < 0 for phase in phases):
        return len(tables.group_members) > 1
    collectives = system.collectives
    at_once = collectives.queues * -(-collectives.active_chunks // collectives.queues)
    slots = tables.nodes[kinds == NodeKind.COLLECTIVE, NODE.slot]
    several = bool(slots.size and (slots != slots[0]).any())
    return several or at_once > collectives.chunks


@cache
def no_routes() -> SharedRoutes:
    """Return no routes, for jobs whose transfers do not share links."""
    nothing = np.zeros(0, dtype=np.int64)
    routes = Routes(np.zeros(1, dtype=np.int64), nothing, nothing, nothing)
    ways = np.full((1, 1, 1, 2), -1, dtype=np.int32)
    return SharedRoutes(nothing, routes, 0, ways, nothing, np.zeros((1, 3)))


def flows_over(shared: SharedRoutes, room: int) -> Flows:
    """Return flows over routes, none of which has begun, with room for so many at once."""
    if not shared.units:
        return no_flows()
    long = np.diff(shared.routes.first)[shared.pairs.size :]
    return new_flows(shared.capacity, shared.routes, room, 16 * room + 4 * int(long.sum()))


def routes_of(tables: Tables) -> SharedRoutes:
    """Find all routes of a job. O(messages of its different collectives)."""
    network, stand_ins = tables.system.network, tables.representatives
    links = AllLinks(tables.system)
    pairs, accesses = _pairs(tables), _accesses(tables)
    pair, link = links.hops(*np.divmod(pairs, network.num_ranks))
    loads = [_Loads(pair, link, np.ones(link.size))]
    access, link, load = links.memory.hops(accesses)
    loads.append(_Loads(pairs.size + access, link, load))
    num_pairs = pairs.size + accesses.size
    ways, num_routes = _ways(tables, links, num_pairs, loads)
    whole = _Loads(*(np.concatenate(column) for column in zip(*loads, strict=True)))
    link = whole.link
    if stand_ins.are_fewer:
        home = stand_ins.rank[stand_ins.of]
        link = owned_by(network.dimensions, network.num_ranks, link, home)
    # what goes over one link several times is one load
    number, first = number_rows([whole.route, link])
    total = np.bincount(number, weights=whole.num_bytes).astype(np.float64)
    merged = _Loads(whole.route[first], link[first], total)
    shared = _shared(tables, links, merged, num_routes, slice(pairs.size, num_pairs))
    return shared._replace(ways=ways, pairs=np.concatenate([pairs, accesses]))


class _Loads(NamedTuple):
    """What routes carry on which links; shape (positions,) each.

    ``num_bytes`` are those of a pair's message of one byte, or of a phase's chunk of one byte.
    """

    route: Ints
    link: Ints
    num_bytes: Floats


class _Use(NamedTuple):
    """Groups that do collectives of a recipe, with a root at one place of each.

    ``members`` has shape (groups, members). Of ``is_alike`` the first member stands for all.
    """

    recipe: int
    root: int
    groups: Ints
    members: Ints
    is_alike: bool


def _uses(tables: Tables) -> Iterator[_Use]:
    """Find which groups do which collectives."""
    nodes = tables.nodes
    chosen = np.flatnonzero(nodes[:, NODE.kind] == NodeKind.COLLECTIVE)
    if not chosen.size:
        return
    group, shape = nodes[chosen, NODE.peer], tables.shapes[nodes[chosen, NODE.key]]
    sizes = np.array([ranks.size for ranks in tables.group_members], dtype=np.int64)
    alike = np.array(tables.group_is_alike, dtype=np.int64)
    columns = [shape[:, SHAPE.recipe], shape[:, SHAPE.root], sizes[group], alike[group], group]
    _, first = number_rows(columns)
    distinct = [column[first] for column in columns]
    use, begin = number_rows(distinct[:4])
    for number, at in enumerate(begin.tolist()):
        groups = distinct[4][use == number]
        members = np.stack([tables.group_members[one] for one in groups.tolist()])
        recipe, root, _, is_alike = (int(column[at]) for column in distinct[:4])
        yield _Use(recipe, root, groups, members, bool(is_alike))


def _lines(use: _Use, phase: Phase) -> Ints:
    """Return the ranks of all lines of a phase: int64, shape (groups x lines, members)."""
    place = np.arange(use.members.shape[1])
    first = place[place // phase.stride % phase.size == 0]
    if use.is_alike:
        first = first[:1]
    lines = use.members[:, first[:, None] + phase.stride * np.arange(phase.size)]
    return lines.reshape(-1, phase.size)


def _sent(phase: Phase, root: int, variant: int) -> tuple[Ints, Ints, Ints, int]:
    """Return senders, receivers, and bytes of a phase's messages, and of its chunk."""
    size = even_size(phase)
    root = root // phase.stride % phase.size if phase.comm in ROOTED else 0
    sent = messages_of(phase, size, clockwise=variant == 0, turn=variant, root=root)
    return *sent, size


def _pairs(tables: Tables) -> Ints:
    """Return the pairs of ranks that send messages of their own, as numbers in order."""
    nodes, places = tables.nodes, tables.representatives.rank
    num_ranks = tables.system.network.num_ranks
    sends = nodes[nodes[:, NODE.kind] == NodeKind.SEND]
    found = [(places[sends[:, NODE.rank]], sends[:, NODE.peer])]
    if tables.system.network.rendezvous:
        asks = nodes[nodes[:, NODE.kind] == NodeKind.RECEIVE]
        found.append((places[asks[:, NODE.rank]], asks[:, NODE.peer]))
    numbers = np.concatenate([src * num_ranks + dst for src, dst in found if src.size] or [[]])
    return np.unique(numbers.astype(np.int64))


def _accesses(tables: Tables) -> Ints:
    """Return the ways between ranks and memory tiers that are taken, as numbers in order."""
    nodes = tables.nodes
    return np.unique(nodes[nodes[:, NODE.kind] == NodeKind.TRANSFER, NODE.key])


def _ways(
    tables: Tables, links: AllLinks, num_pairs: int, loads: list[_Loads]
) -> tuple[np.ndarray, int]:
    """Add what phases of collectives carry; returns their routes and how many."""
    most = max((len(recipe.phases) for recipe in tables.recipes), default=1)
    shape = (len(tables.group_members), max(len(tables.recipes), 1), max(most, 1), 2)
    ways, number = np.full(shape, -1, dtype=np.int32), num_pairs
    for use in _uses(tables):
        for p, phase in enumerate(tables.recipes[use.recipe].phases):
            if phase.size < 2:
                continue
            lines = _lines(use, phase)
            of_group = lines.shape[0] // use.groups.size
            turns = phase.algorithm in (PhaseKind.RING, PhaseKind.TIMED) or len(phase.steps) > 1
            for variant in (0, 1) if turns else (0,):
                base = number + of_group * np.arange(use.groups.size)
                ways[use.groups, use.recipe, p, variant:] = base[:, None]
                loads.append(_of_lines(links, use, phase, lines, variant, number))
                number += lines.shape[0]
    return ways, number


def _of_lines(
    links: AllLinks, use: _Use, phase: Phase, lines: Ints, variant: int, number: int
) -> _Loads:  # fmt: skip
    """Return what the lines of a phase carry, whose first route has a number."""
    src, dst, num_bytes, size = _sent(phase, use.root, variant)
    share = float(size)
    if use.is_alike and src.size > phase.size:  # what one sends to all comes to all as often
        own = src == 0
        src, dst, num_bytes = src[own], dst[own], num_bytes[own]
    elif use.is_alike:  # each has its part of what all send
        share *= phase.size
    hop, link = links.hops(lines[:, src].ravel(), lines[:, dst].ravel())
    line, message = np.divmod(hop, src.size)
    return _Loads(number + line, link, num_bytes[message] / share)


def _shared(
    tables: Tables, links: AllLinks, loads: _Loads, num_routes: int, of_memory: slice
) -> SharedRoutes:
    """Count loads and capacities in units that fit; which route is whose is left out."""
    logical = np.array([dimension.bandwidth for dimension in tables.system.network.dimensions])
    units = _units(tables, np.append(logical, links.bandwidth[links.bandwidth > 0]))
    capacity = np.maximum((np.minimum(links.bandwidth * units, _FASTEST)).astype(np.int64), 1)
    capacity = np.minimum(capacity, _FASTEST // (_PARTS * _NS))
    # a transfer is one flow on the link that it needs for longest
    order = np.argsort(loads.route, kind="stable")
    loads = _Loads(loads.route[order], loads.link[order], loads.num_bytes[order])
    first = np.searchsorted(loads.route, np.arange(num_routes + 1))
    on_link = capacity[loads.link]
    most, needed = np.zeros(num_routes), np.zeros(num_routes)
    time = loads.num_bytes / on_link
    np.maximum.at(most, loads.route, time)
    is_busiest = time == most[loads.route]
    slowest = np.full(num_routes, _FASTEST)
    np.minimum.at(slowest, loads.route[is_busiest], on_link[is_busiest])
    needed = most * slowest
    # what an access counts on a memory's devices is in parts of its own bytes
    slowest[of_memory], needed[of_memory] = 1 / most[of_memory], 1.0
    parts = np.ceil(loads.num_bytes / needed[loads.route] * _PARTS - _ROUNDING).astype(np.int64)
    weight = np.clip(parts, 1, on_link * _PARTS // slowest[loads.route])
    routes = Routes(
        first.astype(np.int64), loads.link.astype(np.int32), weight.astype(np.int32),
        np.zeros(num_routes, dtype=np.int64),
    )  # fmt: skip
    # what the logical network lets through may be too much for the physical one
    bound = np.full(num_routes, UNBOUND) if links.is_physical else slowest.astype(np.float64)
    shares = np.stack([needed, bound, slowest.astype(np.float64)], axis=1)
    return no_routes()._replace(
        capacity=capacity * (_PARTS * _NS), routes=routes, units=units, shares=shares
    )


def _units(tables: Tables, rates: Floats) -> int:
    """Choose as fine units as fit: of the fastest link, and of what is longest under way."""
    program = tables.program
    largest = max(int(program.comm_bytes.max(initial=1)), 1)
    if (tables.nodes[:, NODE.kind] == NodeKind.TRANSFER).any():
        largest = max(largest, int(program.tensor_bytes.max()))
    of_size = _LARGEST * float(rates.min()) / (_MARGIN * largest * float(rates.max()))
    of_rate = _FASTEST / (_PARTS * _NS) / float(rates.max())
    return 1 << max(int(min(of_size, of_rate, _FINEST)).bit_length() - 1, 0)
