"""Algorithms as step tables: what each member of a phase sends and receives, in order.

Rings, direct exchanges and halving-doubling among a power of two have their own code in
:mod:`nadi.simulation.engine.ring_direct_halving`, because every member does the
same there. All other algorithms are tables of steps, which one kernel follows. Members are
counted from the root, if there is one.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from nadi.simulation.engine.codes import Comm, StepKind
from nadi.simulation.engine.machine_state import START, STEP
from nadi.trace.arrays import Ints
from nadi.trace.collectives import COLLECTIVES, FROM_ROOT, TO_ROOT

COMM = {name: vars(Comm)[name.upper()] for name in COLLECTIVES if name.upper() in vars(Comm)}
"""The codes of the types that have one, by name."""
ROOTED = tuple(COMM[name] for name in (*FROM_ROOT, *TO_ROOT) if name in COMM)
"""Collectives with a root."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of all members of a phase."""

    # int64, shape (steps, len(STEP)): in an order in which they can be done, so that a message is
    # taken after it was sent
    rows: Ints
    starts: Ints  # int64, shape (members, len(START)): where each member begins
    is_piped: bool  # whether the chunk goes in pieces, with all these steps for each
    num_places: int  # how many senders, at most, a member tells apart

    @property
    def are_repeated(self) -> bool:
        """Whether a member repeats its steps."""
        length = np.bincount(self.rows[:, STEP.member], minlength=len(self.starts))
        return self.is_piped or bool((self.starts[:, START.count] > length).any())


@dataclass
class _Writer:
    """Writes steps; a message is sent before it is received."""

    n: int
    rows: list[list[int]] = field(default_factory=list)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    sent: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    places: dict[int, dict[int, int]] = field(default_factory=dict)
    length: dict[int, int] = field(default_factory=dict)
    is_piped: bool = False

    def send(self, src: int, dst: int, count: int, parts: int, *, beside: bool = False) -> None:
        """Send ``count`` of ``parts`` parts of the chunk; 0 parts mean a piece.

        What is sent beside others is alike, and taken as it comes: it has one place.
        """
        of_dst = self.places.setdefault(dst, {})
        place = of_dst.setdefault(0 if beside else src, len(of_dst))
        self.sent.setdefault((src, dst), []).append(len(self.rows))
        self._add(src, [StepKind.SEND, src, dst, count, parts, place, -1, -1, 0, int(beside)])

    def take(self, dst: int, src: int, *, reduces: bool = False) -> None:
        """Receive the first message of a sender that was not received yet."""
        row = self.sent[src, dst].pop(0)
        _, _, _, count, parts, place, *_, beside = self.rows[row]
        kind = StepKind.TAKE_AND_REDUCE if reduces else StepKind.TAKE
        self._add(dst, [kind, dst, src, count, parts, place, row, -1, 0, beside])

    def _add(self, member: int, row: list[int]) -> None:
        if member in self.last:
            self.rows[self.last[member]][STEP.next] = len(self.rows)
        else:
            self.first[member] = len(self.rows)
        self.last[member] = len(self.rows)
        self.rows.append(row)

    def steps(self) -> Steps:
        """Return the written steps."""
        starts = np.full((self.n, len(START)), -1, dtype=np.int64)
        counts = [0] * self.n
        for row in self.rows:
            counts[row[STEP.member]] += 1
        for member in range(self.n):
            length = self.length.get(member, counts[member])
            starts[member] = self.first.get(member, -1), length
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, len(STEP))
        num_places = max((len(of_dst) for of_dst in self.places.values()), default=1)
        return Steps(rows, starts, self.is_piped, num_places)


@lru_cache(maxsize=64)
def steps_of(name: str, comm: int, n: int, turn: int) -> Steps:
    """Return the steps of an algorithm. O(steps), at most n log n.

    - ``name``: ``ring``, ``direct``, ``halvingdoubling`` or ``doublebinarytree``.
    - ``comm``: What it does, such as ``Comm.BROADCAST``.
    - ``n``: Number of members, at least 2.
    - ``turn``: Which of the two trees it is.
    """
    writer = _Writer(n)
    if name == "doublebinarytree":
        _tree(writer, comm, turn)
    elif name == "halvingdoubling":
        if comm in ROOTED:
            _binomial(writer, comm)
        elif comm == Comm.ALL_TO_ALL:
            _bruck(writer)
        else:
            _folded(writer, comm)
    elif name == "direct":
        _star(writer, comm)
    else:
        _chain(writer, comm)
    return writer.steps()


def sent_alone(steps: Steps, size: int, root: int = 0) -> tuple[Ints, int]:
    """Compute when messages are in flight if a byte takes 1 ns and nothing else takes time.

    - ``steps``: Those that are not repeated.
    - ``size``: Bytes of the chunk.
    - ``root``: Position of the root, where there is one.
    - Returns int64, shape (4, messages): Sender, receiver, when each leaves, and when all of it has
      left.
    - and int: When all members are done. O(steps).
    """
    n = len(steps.starts)
    ends, busy, comes = [0] * n, [0] * n, [0] * n
    arrives: dict[int, int] = {}
    found = []
    for k, row in enumerate(steps.rows.tolist()):
        i, beside = row[STEP.member], row[STEP.beside]
        time = row[STEP.count] * -(-size // row[STEP.parts])
        if row[STEP.kind] >= StepKind.TAKE:
            ends[i] = max(ends[i], arrives[row[STEP.source]])
            if not beside:
                ends[i] = comes[i] = max(ends[i], comes[i] + time)
        else:
            if not beside:
                ends[i] = max(ends[i], busy[i])
            arrives[k] = busy[i] = max(busy[i], ends[i] + time)
            found.append(((i + root) % n, (row[STEP.peer] + root) % n, ends[i], arrives[k]))
    return np.array(found, dtype=np.int64).T, max(ends + busy)


def _chain(writer: _Writer, comm: int) -> None:
    """Forward along a chain, away from the root or towards it, in pieces or parts."""
    n = writer.n
    if comm in (Comm.BROADCAST, Comm.SCATTER):
        parts = 0 if comm == Comm.BROADCAST else n
        for v in range(n):
            if v > 0:
                writer.take(v, v - 1)
            if v < n - 1:
                writer.send(v, v + 1, 1, parts)
    elif comm == Comm.REDUCE:
        for v in range(n - 1, -1, -1):
            if v < n - 1:
                writer.take(v, v + 1, reduces=True)
            if v > 0:
                writer.send(v, v - 1, 1, 0)
    else:
        for v in range(n - 1, -1, -1):
            if v > 0:  # its own part before those of others
                writer.send(v, v - 1, 1, 1)
            if v < n - 1:
                writer.take(v, v + 1)
    if comm in (Comm.SCATTER, Comm.GATHER):  # those nearer to the root pass on more
        writer.length = {v: 2 * (n - v) - 1 if v > 0 else n - 1 for v in range(n)}
    else:
        writer.is_piped = True


def _star(writer: _Writer, comm: int) -> None:
    """Send from the root to all at once, or from all to the root in order of arrival."""
    n = writer.n
    others = range(1, n)
    parts = n if comm == Comm.SCATTER else 1
    outwards = comm in (Comm.BROADCAST, Comm.SCATTER)
    for v in others:
        writer.send(*((0, v) if outwards else (v, 0)), 1, parts, beside=True)
    for v in others:
        writer.take(*((v, 0) if outwards else (0, v)), reduces=comm == Comm.REDUCE)


def _binomial(writer: _Writer, comm: int) -> None:
    """Binomial tree: each step doubles the members with data; or the reverse, to the root."""
    n = writer.n
    distances = [1 << k for k in range((n - 1).bit_length())]
    outwards = comm in (Comm.BROADCAST, Comm.SCATTER)
    in_parts = comm in (Comm.SCATTER, Comm.GATHER)
    for distance in reversed(distances) if outwards else distances:
        for near in range(0, n - distance, 2 * distance):
            far = near + distance
            src, dst = (near, far) if outwards else (far, near)
            count = min(distance, n - far) if in_parts else 1
            writer.send(src, dst, count, n if comm == Comm.SCATTER else 1)
            writer.take(dst, src, reduces=comm == Comm.REDUCE)


def _bruck(writer: _Writer) -> None:
    """Bruck's algorithm: send to each power-of-two distance all data that must travel it.

    J. Bruck et al., Efficient algorithms for all-to-all communications in multiport
    message-passing systems, IEEE TPDS 8 (1997).
    """
    n = writer.n
    for k in range((n - 1).bit_length()):
        distance = 1 << k
        count = sum(1 for block in range(n) if block & distance)
        for v in range(n):
            writer.send(v, (v + distance) % n, count, n)
        for v in range(n):
            writer.take(v, (v - distance) % n)


def _folded(writer: _Writer, comm: int) -> None:
    """Halving-doubling among the largest power of two; each other member has a partner in it.

    It gives what it has to that one first, and gets the result last (R. Rabenseifner,
    Optimization of collective reduction operations, ICCS 2004).
    """
    n = writer.n
    core = 1 << (n.bit_length() - 1)
    extra = n - core
    distances = [1 << k for k in range(core.bit_length() - 1)]
    for v in range(extra):
        writer.send(core + v, v, 1, 1)
        writer.take(v, core + v, reduces=comm != Comm.ALL_GATHER)
    if comm != Comm.ALL_GATHER:
        for distance in distances:
            for v in range(core):
                other = v ^ distance
                if comm == Comm.ALL_REDUCE:
                    writer.send(v, other, 1, 2 * distance)
                else:
                    writer.send(v, other, _like(other, 2 * distance, core, extra), n)
            for v in range(core):
                writer.take(v, v ^ distance, reduces=True)
    if comm != Comm.REDUCE_SCATTER:
        for distance in reversed(distances):
            for v in range(core):
                if comm == Comm.ALL_REDUCE:
                    writer.send(v, v ^ distance, 1, 2 * distance)
                else:
                    writer.send(v, v ^ distance, _like(v, 2 * distance, core, extra), 1)
            for v in range(core):
                writer.take(v, v ^ distance)
    last = {Comm.ALL_REDUCE: (1, 1), Comm.REDUCE_SCATTER: (1, n), Comm.ALL_GATHER: (n - 1, 1)}[comm]
    for v in range(extra):
        writer.send(v, core + v, *last)
        writer.take(core + v, v)


def _like(member: int, step: int, core: int, extra: int) -> int:
    """Count members at multiples of ``step`` in the core, with their partners."""
    first = member % step
    return core // step + len(range(first, extra, step))


def _tree(writer: _Writer, comm: int, turn: int) -> None:
    """Go up a tree, down it, or both."""
    n = writer.n
    below = _below(n, turn, comm in ROOTED)
    size = [1] * n
    for parent, child in reversed(below):  # a parent comes before what is below its children
        size[parent] += size[child]
    up = comm not in (Comm.BROADCAST, Comm.SCATTER)
    down = comm not in (Comm.REDUCE, Comm.GATHER)
    reduces = comm in (Comm.ALL_REDUCE, Comm.REDUCE_SCATTER, Comm.REDUCE)
    writer.is_piped = comm in (Comm.BROADCAST, Comm.REDUCE)
    if up:
        for parent, child in reversed(below):
            writer.send(child, parent, *_up(comm, n, size[child]))
            writer.take(parent, child, reduces=reduces)
    if down:
        for parent, child in below:
            writer.send(parent, child, *_down(comm, n, size[child]))
            writer.take(child, parent)


def _up(comm: int, n: int, below: int) -> tuple[int, int]:
    """Return the share of parts that the root of a subtree sends up."""
    if comm in (Comm.GATHER, Comm.ALL_GATHER):
        return below, 1
    if comm == Comm.ALL_TO_ALL:
        return below * (n - below), n
    return 1, 0 if comm == Comm.REDUCE else 1


def _down(comm: int, n: int, below: int) -> tuple[int, int]:
    """Return the share of parts that the root of a subtree receives from above."""
    if comm == Comm.ALL_GATHER:
        return n - below, 1
    if comm == Comm.ALL_TO_ALL:
        return below * (n - below), n
    if comm in (Comm.SCATTER, Comm.REDUCE_SCATTER):
        return below, n
    return 1, 0 if comm == Comm.BROADCAST else 1


def _below(n: int, turn: int, is_rooted: bool) -> list[tuple[int, int]]:
    """List parents and children from the top of an in-order tree, whose root has one child.

    The root is the last member or the first in turn; where it is given it is the first, and the
    second tree is the first one mirrored.
    """
    root_is_last = turn == 0 and not is_rooted
    offset = 0 if root_is_last else 1
    below: list[tuple[int, int]] = []
    todo = [(n - 1 if root_is_last else 0, offset, n - 2 + offset)]
    for parent, low, high in todo:  # which grows meanwhile: level by level
        if low <= high:
            middle = (low + high + 1) // 2
            below.append((parent, middle))
            todo += [(middle, low, middle - 1), (middle, middle + 1, high)]
    if is_rooted and turn == 1:
        return [((n - parent) % n, (n - child) % n) for parent, child in below]
    return below
