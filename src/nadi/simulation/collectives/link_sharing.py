"""How messages of a phase share link bandwidth when they do not queue.

In ASTRA-sim, each message has a link of its own. By Nadi's rules no link exceeds its bandwidth:
in a phase among all ranks of a dimension it is known how many messages a link has at a time; of
members that stand anywhere, all messages of the phase are added up along their ways.

Bytes on each link of a network, from messages and from rings.

Links are numbered as in :mod:`nadi.simulation.engine.network_links`, and messages go the same
ways: lower dimensions first, in a ring the shorter way.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from nadi.simulation.collectives.phases import Phase, messages_of
from nadi.simulation.collectives.step_tables import ROOTED, sent_alone
from nadi.simulation.engine.codes import Comm, PhaseKind
from nadi.simulation.engine.machine_state import MOST_PIECES, PIECE
from nadi.systems.system import Dimension, Network, System
from nadi.trace.arrays import Ints


def links_per_rank(dimension: Dimension) -> int:
    """Return the link numbers per rank in a dimension, used or not."""
    return dimension.size if dimension.topology == "fully-connected" else 2


class Traffic:
    """Accumulates bytes per link.

    Attributes
    ----------
    bytes
        int64, shape (numbers of links,).
    """

    def __init__(self, system: System) -> None:
        network = system.network
        self.dimensions = network.dimensions
        self.num_ranks = network.num_ranks
        per_rank = [links_per_rank(dimension) for dimension in self.dimensions]
        self.first = np.append(0, np.cumsum(per_rank)) * self.num_ranks
        self.strides = [1]
        for dimension in self.dimensions[:-1]:
            self.strides.append(self.strides[-1] * dimension.size)
        self.bytes = np.zeros(self.first[-1], dtype=np.int64)

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank; int64, shape (messages,). O(messages + links)."""
        at = src.copy()
        for d, dimension in enumerate(self.dimensions):
            n, stride = dimension.size, self.strides[d]
            a, b = at // stride % n, dst // stride % n
            moves = np.flatnonzero(a != b)
            if moves.size:
                a, b, now = a[moves], b[moves], at[moves]
                line = now % stride + now // (stride * n) * stride
                loads = _loads(dimension, line, a, b, num_bytes[moves], self.num_ranks // n)
                self._add(d, loads)
                at[moves] += (b - a) * stride

    def add_lines(
        self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1
    ) -> None:  # fmt: skip
        """Add the same messages in every line of ranks that differ in one dimension only.

        ``src`` and ``dst`` are places in the line. With ``inner`` only in those lines that have
        this number in the dimensions below. O(messages + links of the dimension).
        """
        dimension = self.dimensions[d]
        loads = _loads(dimension, np.zeros_like(src), src, dst, num_bytes, 1)
        num_lines = self.num_ranks // dimension.size
        loads = np.broadcast_to(loads, (num_lines, *loads.shape[1:]))
        if inner >= 0:
            there = np.arange(num_lines) % self.strides[d] == inner
            loads = loads * there[:, None, None]
        self._add(d, loads)

    def most_of_dimensions(self) -> list[int]:
        """Return the bytes on the busiest link of each dimension."""
        ends = zip(self.first[:-1], self.first[1:], strict=True)
        return [int(self.bytes[first:last].max()) for first, last in ends]

    def _add(self, d: int, loads: Ints) -> None:
        """Add the loads of lines, shape (lines, places, links of a place)."""
        n, stride = self.dimensions[d].size, self.strides[d]
        own = self.bytes[self.first[d] : self.first[d + 1]]
        # ranks are outer lines, places, inner lines
        by_rank = loads.reshape(-1, stride, n, loads.shape[2]).swapaxes(1, 2)
        own += by_rank.reshape(-1)


def _loads(
    dimension: Dimension, line: Ints, a: Ints, b: Ints, num_bytes: Ints, num_lines: int
) -> Ints:
    """Return the bytes on each link of lines, from places ``a`` to ``b`` that differ.

    - Returns int64, shape (lines, places, links of a place): In the order of the numbers of links.
    """
    n, ports = dimension.size, links_per_rank(dimension)
    flat = np.zeros(num_lines * n * ports, dtype=np.int64)
    loads = flat.reshape(num_lines, n, ports)
    if dimension.topology == "fully-connected":
        np.add.at(flat, (line * n + a) * ports + b, num_bytes)
    elif dimension.topology == "switch":
        np.add.at(flat, (line * n + a) * ports, num_bytes)
        np.add.at(flat, (line * n + b) * ports + 1, num_bytes)
    else:
        backward = b < a
        if dimension.topology == "ring":
            forward = (b - a) % n
            backward = forward > n - forward
        on = ~backward
        loads[:, :, 0] = _passed(line[on], a[on], b[on], num_bytes[on], num_lines, n)
        # backward from a place to the one before it is the link of the place
        back = _passed(line[backward], b[backward], a[backward], num_bytes[backward], num_lines, n)
        loads[:, :, 1] = np.roll(back, 1, axis=1)
    return loads


def _passed(line: Ints, low: Ints, high: Ints, num_bytes: Ints, num_lines: int, n: int) -> Ints:
    """Add bytes to the positions in ``[low, high)``, with wrap-around if ``high < low``.

    By what is more at each place than at the one before it: O(messages + places), however long
    the ways are.
    """
    steps = np.zeros(num_lines * n, dtype=np.int64)
    np.add.at(steps, line * n + low, num_bytes)
    np.subtract.at(steps, line * n + high, num_bytes)
    round_the_end = high < low
    np.add.at(steps, line[round_the_end] * n, num_bytes[round_the_end])
    loads: Ints = np.cumsum(steps.reshape(num_lines, n), axis=1)
    return loads


_AT_A_TIME = 1 << 20


def shared(
    system: System, phase: Phase, phases: list[Phase], members: Ints | None, root: int
) -> Phase:
    """Compute how many messages of a phase share a link, and the resulting pace.

    As many chunks share links as are worked on at once.

    - ``system``: The system. If its links contend, the engine models sharing itself.
    - ``phase``, ``phases``: One phase of a collective, and all of them.
    - ``members``: int64, shape (members,): the ranks of its group; None for all ranks.
    - ``root``: Position of the root among the members, where there is one.
    """
    if system.network.congestion:
        return phase
    collectives = system.collectives
    queues = collectives.queues  # each of which works on one at least
    at_once = queues * -(-collectives.active_chunks // queues)
    halves = any(other.both for other in phases) and not phase.both
    beside = min(at_once, collectives.chunks * (2 if halves else 1))
    share = float(beside)
    if not is_whole_dimension(system.network, phase, members):
        return replace(phase, share=share, pace=_pace(system, phase, members, root), beside=beside)
    far = phase.algorithm == PhaseKind.HALVING_DOUBLING or phase.name not in ("", "ring", "direct")
    return replace(phase, share=share * _in_a_line(system, phase), far=far, beside=beside)


def is_whole_dimension(network: Network, phase: Phase, members: Ints | None) -> bool:
    """Return whether a phase covers all ranks that differ in one dimension, in their order.

    Where every two ranks have a link, or one to a switch, those that do not take part change
    nothing: any members are as a whole dimension of their size.
    """
    if phase.dim < 0:
        return False
    dimension = network.dimensions[phase.dim]
    if dimension.topology in ("fully-connected", "switch"):
        return True
    if phase.size < dimension.size:
        return False
    return members is None or bool((np.diff(_line(phase, members)) > 0).all())


def _line(phase: Phase, members: Ints) -> Ints:
    """Return the first line of members of a phase; the other lines are alike."""
    return members[: phase.size * phase.stride : phase.stride]


def _in_a_line(system: System, phase: Phase) -> float:
    """Count the messages of a chunk that share a link in a phase of a whole dimension.

    Of a direct algorithm, all messages of a rank share its link to a switch; in a ring, they go
    through all links between. What is done by steps sends one message after the other, but for
    those to and from a root at once.
    """
    n, topology = phase.size, system.network.dimensions[phase.dim].topology
    if phase.algorithm == PhaseKind.STEPS and phase.name == "direct":
        if topology == "ring":
            return n // 2  # which has two ways
        return 1 if topology == "fully-connected" else n - 1
    if phase.algorithm == PhaseKind.DIRECT:
        return max(1.0, _of_a_line(topology, n) / _rounds(phase))
    return 1


def _rounds(phase: Phase) -> int:
    """Return how many messages a member of a direct algorithm sends one after the other."""
    others = phase.size - 1
    return 1 if phase.window < 0 else -(-others // min(phase.window, others))


def _of_a_line(topology: str, n: int) -> int:
    """Return the messages on the busiest link of n ranks in an all-to-all in one dimension.

    In a ring those to the member opposite go clockwise, as the router sends them.
    """
    half = n // 2
    if topology == "ring":
        return half * (half + 1) // 2
    return {"fully-connected": 1, "switch": n - 1, "mesh": half * (n - half)}[topology]


def _pace(system: System, phase: Phase, members: Ints | None, root: int) -> float:
    """Return the least ns per byte at which no link exceeds its bandwidth.

    Every message goes at this pace, if its own links are not slower. At each moment of the phase
    the link counts that is busiest then; so the phase takes no less than any link needs for it.
    """
    line = None if members is None else _line(phase, members)
    if phase.algorithm == PhaseKind.DIRECT:
        return float(_slowest(system, _of_an_exchange(system, line)) / _rounds(phase))
    # both ways round, if there are queues for both
    ways = (
        (True, False)
        if system.collectives.queues > 1 and phase.algorithm == PhaseKind.RING
        else (True,)
    )
    ranks = np.arange(system.network.num_ranks) if line is None else line
    root = root // phase.stride % phase.size
    paces = []
    for turn, clockwise in product(range(max(len(phase.steps), 1)), ways):
        moments, alone = _moments(phase, turn, clockwise, root)
        time = Fraction()
        for src, dst, num_bytes in moments:
            traffic = Traffic(system)
            traffic.add_messages(ranks[src], ranks[dst], num_bytes)
            time += _slowest(system, traffic.most_of_dimensions())
        paces.append(float(time / alone))
    return max(paces)


def _moments(
    phase: Phase, turn: int, clockwise: bool, root: int
) -> tuple[list[tuple[Ints, Ints, Ints]], int]:
    """Find which messages are in flight together if each byte takes 1 ns.

    - Returns list: Senders, receivers and bytes, which they send in that time, one moment after the
      other.
    - and int: How long all moments are, in ns.
    """
    size = even_size(phase)
    if not phase.steps or phase.steps[turn].are_repeated:
        src, dst, num_bytes = messages_of(phase, size, clockwise=clockwise, turn=turn, root=root)
        ends = np.zeros((2, phase.size), dtype=np.int64)
        np.add.at(ends[0], src, num_bytes)
        np.add.at(ends[1], dst, num_bytes)
        alone = int(ends.max())  # of the busiest member, one after the other
        if phase.algorithm != PhaseKind.HALVING_DOUBLING:
            return [(src, dst, num_bytes)], alone
        levels = [num_bytes == each for each in np.unique(num_bytes)]  # each level has its own
        return [(src[level], dst[level], num_bytes[level]) for level in levels], alone
    sent, alone = sent_alone(phase.steps[turn], size, root if phase.comm in ROOTED else 0)
    src, dst, leaves, left = sent
    times = np.unique(np.concatenate([leaves, left]))
    moments = []
    for begin, end in pairwise(times.tolist()):
        there = (leaves <= begin) & (left > begin)
        moments.append((src[there], dst[there], np.full(int(there.sum()), end - begin)))
    return moments, alone


def even_size(phase: Phase) -> int:
    """Return a number of bytes that divides evenly into the most pieces."""
    n = phase.size
    if phase.comm in (Comm.ALL_GATHER, Comm.GATHER) and phase.algorithm != PhaseKind.TIMED:
        return 1  # which are not cut
    if phase.steps and phase.steps[0].is_piped:
        return n * PIECE * (1 if n >= MOST_PIECES else MOST_PIECES)
    return n << n.bit_length()


def _slowest(system: System, carried: list[int]) -> Fraction:
    """Return the time in ns of the bytes on the busiest links of the dimensions."""
    rates = [Fraction(dimension.bandwidth) for dimension in system.network.dimensions]
    return max(num_bytes / rate for num_bytes, rate in zip(carried, rates, strict=True))


def _of_an_exchange(system: System, members: Ints | None) -> list[int]:
    """Return the messages on the busiest link of each dimension in an all-to-all."""
    network = system.network
    if members is None:
        return [
            _of_a_line(one.topology, one.size) * (network.num_ranks // one.size)
            if one.size > 1
            else 0
            for one in network.dimensions
        ]
    traffic, n = Traffic(system), members.size
    rows = max(_AT_A_TIME // n, 1)
    for first in range(0, n, rows):
        senders = members[first : first + rows]
        src, dst = np.repeat(senders, n), np.tile(members, senders.size)
        traffic.add_messages(src, dst, np.ones(src.size, dtype=np.int64))
    return traffic.most_of_dimensions()
