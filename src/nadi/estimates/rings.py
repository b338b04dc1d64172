"""Seconds of collectives and messages in a network of dimensions, for many groups at once.

Rings in each dimension, cut into chunks: what the simulator does for such systems, in closed form
(``tests/estimate/test_default_rules.py`` compares them).
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import (
    MachineDescription,
    NestedNetwork,
    network_time,
)
from nadi.systems.collective_times import known_times
from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.rows import number_rows

_REDUCTION = 3.0  # two operands are read, and one is written


class RankGroup(NamedTuple):
    """Where the members of a group stand; int64, shape (groups,) or (1,)."""

    members: Ints  # how many there are
    stride: Ints  # ranks from one member to the next
    tier: Ints  # the network tier that they use, where the network is described by tiers


def collective_seconds(
    machine: MachineDescription, operation: str, size: Floats, group: RankGroup
) -> Floats:
    """Give the seconds of a collective alone; a group of one takes none.

    - ``operation``: ``all_reduce``, ``reduce_scatter``, ``all_gather`` or ``all_to_all``.
    - ``size``: Bytes that each member contributes, shape (groups,) or (1,).
    """
    network = machine.nested
    if network is None:
        return _of_tiers(machine, operation, size, group)
    if machine.system is not None:
        return _known(machine, machine.system, operation, size, group)
    return _by_dimensions(machine, network, operation, size, group)


def _known(
    machine: MachineDescription, system: System, operation: str, size: Floats, group: RankGroup
) -> Floats:
    """Give the times that are known for each size and group; rings for what is not known."""
    columns = np.broadcast_arrays(size.astype(np.int64), group.members, group.stride)
    number, first = number_rows([np.ascontiguousarray(one).reshape(-1) for one in columns])
    contributed, members, stride = (one.reshape(-1)[first] for one in columns)
    found = np.zeros(first.size)
    moving = np.flatnonzero((members > 1) & (contributed > 0))
    of_group, groups = number_rows([members[moving], stride[moving]])
    for place, row in enumerate(moving[groups].tolist()):
        rows = moving[of_group == place]
        ranks = np.arange(0, members[row] * stride[row], stride[row])
        whole = contributed[rows] * nccl_tests_factors(operation, ranks.size)[0]
        known = known_times(system, operation, whole, ranks)
        found[rows] = -1.0 if known is None else known.ns / 1e9
    times: Floats = found[number].reshape(columns[0].shape)
    if (found < 0).any() and machine.nested is not None:
        rings = _by_dimensions(machine, machine.nested, operation, size, group)
        times = np.where(times < 0, rings, times)
    return times


def _by_dimensions(
    machine: MachineDescription, network: NestedNetwork, operation: str, size: Floats,
    group: RankGroup,
) -> Floats:  # fmt: skip
    """Give the seconds of rings in each dimension, cut into chunks."""
    counts = _places(network, group)
    chunks = np.clip(np.floor(size / network.least_chunk), 1, network.chunks)
    links = _links(network, group, counts)
    steps = _chunk_steps(machine, network, operation, size, chunks, counts, links)
    table = np.stack(np.broadcast_arrays(*steps))
    # while one dimension works on a chunk, the others work on those before and after it
    whole = table.sum(axis=0)
    least = (chunks - 1) * table + whole
    if operation == "all_reduce":
        # the last chunk comes back to it while it gathers the chunks before
        later = whole - np.cumsum(table, axis=0)
        least = least - np.minimum(later, (chunks - 1) * table / 2)
    seconds: Floats = network.start + least.max(axis=0)
    return np.where((group.members > 1) & (size > 0), seconds, 0.0)


class LinkTurns(NamedTuple):
    """When the parts of a collective come to links, and keep them; float64, shape (groups,)."""

    first: Floats  # seconds until the first part is there
    every: Floats  # and from each part to the next
    step: Floats  # seconds for which a part keeps the links
    parts: Floats  # how many there are; 0 where no other collective uses these links

    @property
    def seconds(self) -> Floats:
        """For which all parts keep the links."""
        found: Floats = self.parts * self.step
        return found

    def passed(self, moment: Floats) -> Floats:
        """Give when the parts have passed that are there at a moment; 0 if none is."""
        gone = np.divide(
            moment - self.first, self.every,
            out=np.where(moment >= self.first, np.inf, -1.0), where=self.every > 0,
        )  # fmt: skip
        there = np.clip(np.floor(gone) + 1.0, 0.0, self.parts)
        slower = np.maximum(self.every, self.step)
        return np.where(there > 0, self.first + (there - 1.0) * slower + self.step, 0.0)


def shared_seconds(
    machine: MachineDescription, operation: str, size: Floats, group: RankGroup, other: RankGroup
) -> Floats:
    """Give the seconds for which a collective keeps the links that another group uses, too.

    One row for each dimension, or one for all where the network is known by no dimensions.
    """
    turns = link_turns(machine, operation, size, group, other)
    return np.stack([one.seconds for one in turns])


def link_turns(
    machine: MachineDescription, operation: str, size: Floats, group: RankGroup, other: RankGroup
) -> list[LinkTurns]:
    """Give when a collective keeps the links that another group uses, too.

    Of each dimension, in the order in which its parts go through them; or of all at once where the
    network is known by no dimensions, or the collective as a whole.
    """
    there = (group.members > 1) & (other.members > 1) & (size > 0)
    network = machine.nested
    if network is None:
        whole = _of_tiers(machine, operation, size, group)
        return [_whole_turn(whole, there & (group.tier == other.tier))]
    counts, others = _places(network, group), _places(network, other)
    if machine.system is not None:  # one at a time in the last dimension that each of both uses
        same = _last_used(counts) == _last_used(others)
        whole = _known(machine, machine.system, operation, size, group)
        return [_whole_turn(whole, there & same)]
    chunks = np.clip(np.floor(size / network.least_chunk), 1, network.chunks)
    links = _links(network, group, counts)
    steps = _chunk_steps(machine, network, operation, size, chunks, counts, links)
    passed = list(zip(counts, others, strict=True))
    if operation == "all_gather":
        passed.reverse()
    if operation == "all_reduce":  # what it gathers comes later, chunk by chunk, if it goes further
        several = sum((count > 1).astype(np.int64) for count in counts) > 1
        steps = [np.where(several, step / 2, step) for step in steps]
    found, first, every = [], np.zeros(1), np.zeros(1)
    for step, (count, beside) in zip(steps, passed, strict=True):
        parts = np.where(there & (count > 1) & (beside > 1), chunks, 0.0)
        columns = np.broadcast_arrays(first, every, step, parts)
        found.append(LinkTurns(*columns))
        first, every = first + step, np.maximum(every, step)
    return found


def _whole_turn(seconds: Floats, is_shared: Bools) -> LinkTurns:
    """Give the turn of a collective that keeps its links as a whole."""
    parts = np.where(is_shared, 1.0, 0.0)
    return LinkTurns(*np.broadcast_arrays(np.zeros(1), np.zeros(1), seconds, parts))


def share_a_link(machine: MachineDescription, group: RankGroup, other: RankGroup) -> Bools:
    """Tell whether members of two groups send over the same link to a switch."""
    found: Bools = np.zeros(1, dtype=np.bool_)
    if machine.nested is None:
        return found
    places = zip(
        machine.nested.dimensions, _places(machine.nested, group), _places(machine.nested, other),
        strict=True,
    )  # fmt: skip
    for dimension, count, beside in places:
        is_switch = not dimension.ways and not dimension.direct
        found = found | ((count > 1) & (beside > 1) & is_switch)
    return found


def link_seconds(
    network: NestedNetwork, operation: str, size: Floats, group: RankGroup
) -> Floats:  # fmt: skip
    """Give the seconds for which the bytes of a collective keep a member's links.

    What rings send, without latency: links are free while a collective waits for messages.

    - Returns: One row for each dimension.
    """
    found, part = [], size
    dimensions = list(zip(network.dimensions, _places(network, group), strict=True))
    for dimension, count in dimensions[:: -1 if operation == "all_gather" else 1]:
        if operation == "all_gather":
            sent, part = (count - 1) * part, part * count
        elif operation == "all_to_all":
            sent = (count - 1) * part / count
        else:
            part = part / count
            sent = (count - 1) * part * (2 if operation == "all_reduce" else 1)
        found.append(np.where(count > 1, sent / (dimension.GBps * 1e9), 0.0))
    return np.stack(found[:: -1 if operation == "all_gather" else 1])


def message_seconds(machine: MachineDescription, size: Floats, group: RankGroup) -> Floats:
    """Give the seconds of a message between neighbors of a group: of all such pairs, the mean."""
    if machine.nested is None:
        seconds = network_time(machine, group.tier, "p2p", size, group.members)
        return np.where(group.members > 1, seconds, 0.0)
    found: Floats = np.zeros(1)
    blocks = group.members  # of neighbors within the dimensions so far
    for dimension, count in zip(
        machine.nested.dimensions, _places(machine.nested, group), strict=True
    ):
        pairs, blocks = blocks - blocks // count, blocks // count
        found = found + pairs * (dimension.latency + size / (dimension.GBps * 1e9))
    return found / np.maximum(group.members - 1, 1)


def _places(network: NestedNetwork, group: RankGroup) -> list[Ints]:
    """Give how many members differ in each dimension; their product is the number of members."""
    left, stride = group.members, group.stride
    found = []
    for dimension in network.dimensions:
        fits = np.maximum(dimension.size // stride, 1)
        count = np.minimum(left, fits)
        count = np.where(left % count == 0, count, 1)
        found.append(count)
        left = left // count
        stride = np.maximum(stride // dimension.size, 1)
    found[-1] = found[-1] * left
    return found


class _Links(NamedTuple):
    """What is between the members of groups in a dimension; int64, shape (groups,) or (1,)."""

    groups: Ints  # how many share its links, so that each has so much less of its bandwidth
    detour: Ints  # hops that a message of the last member to the first has more than others


def _links(network: NestedNetwork, group: RankGroup, counts: list[Ints]) -> list[_Links]:
    """Give what is between the members of a group in each dimension.

    Between neighbors of a group lie the members of as many others. Messages go the shorter way:
    what two members send both ways round goes one way, and the last member of some neighbors sends
    back to the first one over their links.
    """
    stride, found = group.stride, []
    for dimension, count in zip(network.dimensions, counts, strict=True):
        groups, detour = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        if dimension.ways:
            between = np.clip(stride, 1, max(dimension.size // 2, 1))
            goes_round = (count * between >= dimension.size) & ((count > 2) | (dimension.size <= 2))
            groups = between * np.where(goes_round, 1, dimension.ways)
            back = (count - 1) * between
            if not dimension.is_line:
                back = np.minimum(back, dimension.size - back)
            detour = np.where(count > 1, np.maximum(back - between, 0), 0)
        found.append(_Links(groups, detour))
        stride = np.maximum(stride // dimension.size, 1)
    return found


def _last_used(counts: list[Ints]) -> Ints:
    """Give the last dimension in which members differ."""
    found: Ints = np.zeros(1, dtype=np.int64)
    for dimension, count in enumerate(counts):
        found = np.where(count > 1, dimension, found)
    return found


def _chunk_steps(
    machine: MachineDescription, network: NestedNetwork, operation: str, size: Floats,
    chunks: Floats, counts: list[Ints], links: list[_Links],
) -> list[Floats]:  # fmt: skip
    """Give the seconds of a chunk in each dimension."""
    found = []
    size = size / chunks
    dimensions = list(zip(network.dimensions, counts, links, strict=True))
    if operation == "all_gather":  # slow links first, while there is little to move
        dimensions.reverse()
    memory = machine.mem1.GBps * 1e9
    for dimension, count, (groups, detour) in dimensions:
        rate, latency = dimension.GBps * 1e9 / groups, dimension.latency * groups
        part = size / count
        again = 2 if operation == "all_reduce" else 1
        # of a round of turns, in which all members pass on what came over the detour, one is late
        rounds = np.ceil(again * (count - 1) * chunks / count) / chunks
        late = rounds * detour * dimension.latency
        # to all others at once on links of their own, or one after the other
        turns = np.minimum(count - 1, 1) if operation in dimension.direct else count - 1
        if operation == "all_gather":
            step = turns * (latency + size / rate) + late
            size = size * count
        elif operation == "all_to_all":
            step = np.where(count > 1, latency, 0.0) + turns * part / rate
        else:
            # while one of the groups that share a link reduces, another one sends
            alone = again * part / (dimension.GBps * 1e9) + _REDUCTION * part / memory
            step = turns * (again * latency + np.maximum(again * part / rate, alone))
            step = step + late
            size = part
        found.append(step)
    return found


def _of_tiers(
    machine: MachineDescription, operation: str, size: Floats, group: RankGroup
) -> Floats:
    """Give the seconds on the tier that a group names."""
    name, whole = operation, size
    if operation == "all_gather":
        whole = size * group.members
    elif operation == "all_to_all":  # as many bytes as a reduce-scatter
        name = "reduce_scatter"
    return network_time(machine, group.tier, name, whole, group.members)
