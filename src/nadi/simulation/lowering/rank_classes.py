"""Classes of ranks that do the same at the same time, of which one each is simulated.

In a job whose ranks share traces by role (``Job.rank_groups``), two ranks do the same if they have
the same trace, if their groups stand alike in the network, and if the other members of these
groups and those with whom they exchange messages are of the same classes. Classes are split until
that holds, as states of an automaton are when it is minimized.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.simulation.collectives.link_sharing import Traffic, even_size, is_whole_dimension
from nadi.simulation.collectives.phases import Phase, grid_of, messages_of, positions_in
from nadi.simulation.engine.codes import Comm, PhaseKind, QueuePolicy
from nadi.simulation.rules import rules_of
from nadi.simulation.work.ordered_lanes import policy_of
from nadi.simulation.work.recorded_work import Representatives, paths_slow_messages, ranks_are_apart
from nadi.systems.collective_times import nothing_contends
from nadi.systems.system import Network, System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.groups import RankGroups, name_of_group
from nadi.trace.rows import number_rows
from nadi.trace.trace import Job

_COMMUNICATION = ("COMM_COLL", "COMM_SEND", "COMM_RECV")
_WORLD = ""  # the role of the group of all ranks
_ALIKE, _DIFFERENT, _MIXED = range(3)  # the classes of the members of a group


class _Use(NamedTuple):
    """What the ranks of a trace do in groups of a role."""

    role: str
    ranks: Ints  # int64, shape (ranks of the trace,)
    collectives: tuple[str, ...]  # the types of their collectives
    peers: tuple[int, ...]  # the positions in the group to and from which messages go


def representatives_of(job: Job, system: System) -> Representatives | None:
    """Find ranks that stand for all others of a job, whose simulation gives the same times.

    O(ranks times roles) for each class that is split.

    - ``job``: With ``rank_groups``.
    - ``system``: It has as many ranks.
    - Returns: The lowest rank of each class. None if messages may wait for links, if members of a
      collective do different things, if a group has several members of one class among others, or
      if no two ranks are alike.
    """
    if system.network.num_ranks != len(job.traces) or not _lets_ranks_be_alike(system):
        return None
    if _ranks_share_memory(job, system):
        return None
    uses = list(_uses(job))
    groups = _with_world(job)
    roles = dict.fromkeys(use.role for use in uses)
    standing = {role: _standing(system, groups.members[role]) for role in roles}
    classes, _ = number_rows([_number_of_trace(job)])
    while True:
        kinds = {role: _kinds(classes[groups.members[role]]) for role in standing}
        columns = [classes]
        for use in uses:
            columns += _signature(use, groups, system.network, classes, kinds[use.role], standing)
        split, _ = number_rows(columns)
        if split.max() == classes.max():
            break
        classes = split
    rank = np.unique(classes, return_index=True)[1]
    # classes are numbered in the order of their lowest ranks
    number = np.empty(rank.size, dtype=np.int64)
    number[np.argsort(rank)] = np.arange(rank.size)
    found = Representatives(np.sort(rank), number[classes])
    if not found.are_fewer:
        return None
    checks = _Checks(system)
    if not all(_fits(use, groups, found, standing[use.role], checks) for use in uses):
        return None
    copies = {}
    for role in roles:
        copies.update(_copies(role, groups, found))
    return replace(found, copies=copies)


def _lets_ranks_be_alike(system: System) -> bool:
    """Return whether a rank's times depend on those alone with whom it communicates."""
    return (
        nothing_contends(system)
        and not system.network.is_physical
        and not paths_slow_messages(system)
        and system.slots == "device"
        and policy_of(system) == QueuePolicy.FIFO
        and not system.collectives.custom_traces
        and not system.groups
        and not system.has_memory_pool
    )


def _ranks_share_memory(job: Job, system: System) -> bool:
    """Return whether accesses of memory tiers may slow down those of other ranks."""
    if ranks_are_apart(system):
        return False
    kinds = ("MEM_LOAD", "MEM_STORE")
    return any(trace.nodes["kind"].is_in(kinds).any() for trace in set(job.traces))


def _number_of_trace(job: Job) -> Ints:
    place: dict[int, int] = {}
    return np.array([place.setdefault(id(trace), len(place)) for trace in job.traces])


def _with_world(job: Job) -> RankGroups:
    """Return the groups of a job, and that of all ranks."""
    assert job.rank_groups is not None
    size = len(job.traces)
    everyone = {_WORLD: np.arange(size)[None, :]}
    return RankGroups({**job.rank_groups.members, **everyone}, size)


def _uses(job: Job) -> Iterator[_Use]:
    """Find what each different trace does in groups of which roles."""
    numbers = _number_of_trace(job)
    for number, trace in enumerate(dict.fromkeys(job.traces)):
        ranks = np.flatnonzero(numbers == number)
        roles = [*trace.groups["name"].to_list(), _WORLD]  # that of row -1 is the last
        does = (
            trace.nodes.select("group", "kind", "comm_type", "src", "dst")
            .filter(pl.col("kind").is_in(_COMMUNICATION)).unique()
        )  # fmt: skip
        collectives, peers = defaultdict[int, set[str]](set), defaultdict[int, set[int]](set)
        for group, kind, comm_type, src, dst in does.iter_rows():
            if kind == "COMM_COLL":
                collectives[group].add(comm_type)
            else:
                peers[group].add(dst if kind == "COMM_SEND" else src)
        for row in sorted({*collectives, *peers}):
            yield _Use(
                roles[row], ranks, tuple(sorted(collectives[row])), tuple(sorted(peers[row]))
            )


def _standing(system: System, members: Ints) -> Ints:
    """Return equal numbers for groups that stand alike in the network; int64, shape (groups,)."""
    found: dict[object, int] = {}
    of_groups = rules_of(system).standing(system.network, np.sort(members, axis=1))
    return np.array([found.setdefault(one, len(found)) for one in of_groups], dtype=np.int64)


def _kinds(of_members: Ints) -> Ints:
    """Tell of each group whether its members are of one class, or each of another."""
    in_order = np.sort(of_members, axis=1)
    same = in_order[:, 1:] == in_order[:, :-1]
    found = np.full(of_members.shape[0], _MIXED)
    found[~same.any(axis=1)] = _DIFFERENT
    found[same.all(axis=1)] = _ALIKE
    return found


def _signature(
    use: _Use, groups: RankGroups, network: Network, classes: Ints, kinds: Ints,
    standing: dict[str, Ints],
) -> list[Ints]:  # fmt: skip
    """Return what ranks have to have in common to be alike, for one use of groups.

    int64, shape (ranks,) each; -1 for the ranks of other traces.
    """
    members = groups.members[use.role]
    group, position = (column[use.ranks] for column in groups.place[use.role])
    columns = []
    if use.collectives:
        columns += [standing[use.role][group], kinds[group]]
        # members of different classes know each other by their positions
        apart = kinds[group] != _ALIKE
        of_group, _ = number_rows(list(classes[members].T))
        columns += [np.where(apart, position, -1), np.where(apart, of_group[group], -1)]
    for end in use.peers:
        peer = members[group, end]
        columns += [classes[peer], *_ways(network, use.ranks, peer)]
    found = []
    for column in columns:
        of_ranks = np.full(classes.size, -1, dtype=np.int64)
        of_ranks[use.ranks] = column
        found.append(of_ranks)
    return found


def _ways(network: Network, src: Ints, dst: Ints) -> list[Ints]:
    """Return the way of messages in each dimension, as far as their times depend on it."""
    found = []
    places = zip(positions_in(network, src), positions_in(network, dst), strict=True)
    for dimension, (a, b) in zip(network.dimensions, places, strict=True):
        if dimension.topology in ("switch", "fully-connected"):
            found.append((a != b).astype(np.int64))
        elif dimension.topology == "ring":
            forward = (b - a) % dimension.size
            found.append(np.minimum(forward, dimension.size - forward))
        else:
            found.append(np.abs(a - b))
    return found


class _Checks:
    """What holds for collectives of groups that stand alike is found once for all of them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._known: dict[tuple[str, str, int, bool], bool] = {}

    def do_alike(self, use: _Use, standing: int, ranks: Ints, *, alike: bool) -> bool:
        """Return whether those that represent a group, one if its members are alike, suffice."""
        for name in use.collectives if ranks.size > 1 else ():
            key = name, use.role, standing, alike
            if key not in self._known:
                self._known[key] = _suffices(self.system, name, ranks, alike=alike)
            if not self._known[key]:
                return False
        return True


def _fits(
    use: _Use, groups: RankGroups, found: Representatives, standing: Ints, checks: _Checks
) -> bool:  # fmt: skip
    """Return whether the groups of representatives can be simulated by them alone."""
    members = groups.members[use.role]
    mine = np.unique(found.of[use.ranks])
    group = groups.place[use.role][0]
    for number in group[found.rank[mine]].tolist():
        kind = int(_kinds(found.of[members[number]][None])[0])
        if use.peers and kind != _DIFFERENT:
            return False  # a message to a position is from one rank only
        own = found.rank[mine][group[found.rank[mine]] == number]
        if not _messages_use_own_links(checks.system, use, members[number], own):
            return False
        if not use.collectives:
            continue
        if kind == _MIXED:
            return False
        if kind == _DIFFERENT and not _all_represent(members[number], found):
            return False
        ranks = np.sort(members[number])
        if not checks.do_alike(use, int(standing[number]), ranks, alike=kind == _ALIKE):
            return False
    return True


def _messages_use_own_links(system: System, use: _Use, members: Ints, own: Ints) -> bool:
    """Return whether messages pass no links of ranks that neither send nor take them."""
    if not rules_of(system).links_are_shared:
        return True
    for end in use.peers:
        distances = np.stack(_ways(system.network, own, np.full(own.size, members[end])))
        if (distances.sum(axis=0) > 1).any():
            return False
    return True


def _suffices(system: System, comm_type: str, ranks: Ints, *, alike: bool) -> bool:
    """Return whether a collective of a group can be simulated by its representatives alone.

    If one stands for all of them, all send the same the same way. Where links are shared, no
    bytes pass those of other ranks: the load of a link is then that of the rank that stands for
    its rank. Links of others are shared by ranks of which none may be like another in that.
    """
    rules = rules_of(system)
    if comm_type not in rules.collectives:
        return True  # an error later, or replayed
    (timed,) = rules.timed(system, comm_type, [1], ranks)
    if timed is not None:
        return not rules.links_are_shared or _loads_own_links(
            system, timed[0].phases[0], ranks, alike=alike
        )
    network = system.network
    phases = rules.recipe_of(
        system, comm_type, None if ranks.size == network.num_ranks else ranks
    ).phases  # fmt: skip
    own = all(is_whole_dimension(network, phase, ranks) for phase in phases)
    if rules.links_are_shared and not own:
        return False
    return not alike or all(_is_symmetric(network, phase, ranks) for phase in phases)


def _loads_own_links(system: System, phase: Phase, ranks: Ints, *, alike: bool) -> bool:
    """Return whether a phase whose time is known loads links of its members, all ``alike``.

    Rings over several nodes leave each over all of its members, where nodes have as many.
    """
    network = system.network
    if phase.comm == Comm.ALL_TO_ALL:  # too many messages to add up
        topologies = {dimension.topology for dimension in network.dimensions}
        return bool(grid_of(network, ranks)) and topologies <= {"switch", "fully-connected"}
    traffic = Traffic(system)
    src, dst, num_bytes = messages_of(phase, even_size(phase))
    traffic.add_messages(ranks[src], ranks[dst], num_bytes)
    for first, last in pairwise(traffic.first.tolist()):
        of_ranks = np.sort(traffic.bytes[first:last].reshape(network.num_ranks, -1), axis=1)
        of_members = of_ranks[ranks]
        if of_members.sum() != of_ranks.sum() or (alike and (of_members != of_members[0]).any()):
            return False
    return True


def _copies(role: str, groups: RankGroups, found: Representatives) -> dict[str, Ints]:
    """Return the groups that do the same as each group of representatives, by its name."""
    members = groups.members[role]
    number, _ = number_rows(list(np.sort(found.of[members], axis=1).T))
    of_ranks = groups.place[role][0][found.rank]
    named = {group: members[number == number[group]] for group in of_ranks[of_ranks >= 0].tolist()}
    return {name_of_group(role, group): ranks for group, ranks in named.items()}


def _all_represent(ranks: Ints, found: Representatives) -> bool:
    """Return whether all of some ranks are representatives, who can meet as they are."""
    theirs: Bools = found.rank[found.of[ranks]] == ranks
    return bool(theirs.all())


def _is_symmetric(network: Network, phase: Phase, ranks: Ints) -> bool:
    if phase.algorithm not in (PhaseKind.RING, PhaseKind.DIRECT, PhaseKind.HALVING_DOUBLING):
        return False
    if phase.is_in_rounds or not is_whole_dimension(network, phase, ranks):
        return False
    return network.dimensions[phase.dim].topology != "mesh"
