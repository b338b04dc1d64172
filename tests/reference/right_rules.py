"""Collectives under the right rules, message by message, as slowly and obviously as can be said.

One global queue of events; each member of each phase of each chunk is a generator that sends,
takes and waits. Nothing contends: messages share links by the fixed rule of ``docs/simulate.md``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, prod
from typing import Any

__all__ = ["Machine", "Work", "finish_times"]

Member = Iterator[tuple[Any, ...]]
_OUTWARDS, _INWARDS = ("broadcast", "scatter"), ("reduce", "gather")


@dataclass(frozen=True)
class Work:
    """A computation of ``time`` ns, or a collective of a type."""

    time: int = 0
    comm: str = ""
    size: int = 0
    root: int = 0
    group: tuple[int, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Dimensions as (topology, size, bytes per ns, latency); algorithms by type."""

    dims: tuple[tuple[str, int, float, float], ...]
    algorithms: dict[str, tuple[str, ...]]
    chunks: int = 1
    active: int = 1
    queues: int = 1
    aware: bool = True
    delay: int = 10
    start: int = 0
    memory_rate: float = 0.0

    @property
    def num_ranks(self) -> int:
        product = 1
        for _, size, _, _ in self.dims:
            product *= size
        return product

    def coordinates(self, rank: int) -> list[int]:
        found = []
        for _, size, _, _ in self.dims:
            found.append(rank % size)
            rank //= size
        return found

    def way(self, src: int, dst: int, spread: bool) -> tuple[float, float, int]:
        """Latency, slowest rate, and how often a link is shared because of hops."""
        latency, rate, most = 0.0, 0.0, 1
        ends = zip(self.dims, self.coordinates(src), self.coordinates(dst), strict=True)
        for (topology, n, own_rate, own_latency), a, b in ends:
            if a != b:
                around = min((a - b) % n, (b - a) % n)
                hops = {"switch": 2, "fully-connected": 1, "ring": around}.get(topology, abs(a - b))
                latency += hops * own_latency
                rate = own_rate if rate == 0 else min(rate, own_rate)
                if topology in ("ring", "mesh"):
                    most = max(most, hops)
        return latency, rate, most if spread else 1


def busiest(m: Machine, sent: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Add up messages from rank to rank on every link on their way: lower dimensions first.

    Gives the bytes on the busiest link of each dimension.
    """
    carried: dict[Any, int] = defaultdict(int)
    for src, dst, size in sent:
        at, ends = m.coordinates(src), m.coordinates(dst)
        for d, (topology, n, _, _) in enumerate(m.dims):
            if at[d] == ends[d]:
                continue
            if topology in ("switch", "fully-connected"):
                other = ends[d] if topology == "fully-connected" else "switch"
                carried[d, *at, other] += size
                at[d] = ends[d]
                carried[d, *at, "from switch"] += size * (topology == "switch")
                continue
            step = 1 if ends[d] > at[d] else -1
            if topology == "ring":
                step = 1 if (ends[d] - at[d]) % n <= (at[d] - ends[d]) % n else -1
            while at[d] != ends[d]:
                carried[d, *at, step] += size
                at[d] = (at[d] + step) % n
    most: dict[int, int] = defaultdict(int)
    for (d, *_), count in carried.items():
        most[d] = max(most[d], count)
    return most


def part(size: int, n: int) -> int:
    return -(-size // n)


# algorithms: what a member does; counted from the root where there is one


def ring(m: Machine, comm: str, n: int, v: int, size: int, step: int) -> Member:
    own = size if comm == "all_gather" else part(size, n)
    yield ("wait", m.delay)
    for k in range(2 * (n - 1) if comm == "all_reduce" else n - 1):
        yield ("send", (v + step) % n, (n - 1 - k) * own if comm == "all_to_all" else own, True)
        yield ("take", (v - step) % n)
        sums = comm == "reduce_scatter" or (comm == "all_reduce" and k < n - 1)
        yield ("wait", m.delay + (reduction(m, own) if sums else 0))


def direct(m: Machine, comm: str, n: int, v: int, size: int, step: int) -> Member:
    own = size if comm == "all_gather" else part(size, n)
    yield ("wait", m.delay)
    for k in range(1, n):
        yield ("send", (v + step * k) % n, own, True)
    for k in range(1, n):
        yield ("take", (v - step * k) % n)
    yield ("wait", m.delay + (reduction(m, own) if comm == "reduce_scatter" else 0))


def halving_doubling(m: Machine, comm: str, n: int, v: int, size: int, step: int) -> Member:
    halving = [(1 << k, part(size, 2 << k)) for k in range(n.bit_length() - 1)]
    doubling = [(d, size * n // (2 * d)) for d, _ in reversed(halving)]
    steps = {"reduce_scatter": halving, "all_reduce": halving + halving[::-1]}.get(comm, doubling)
    yield ("wait", m.delay)
    for k, (distance, own) in enumerate(steps):
        yield ("send", v ^ distance, own, True)
        yield ("take", v ^ distance)
        # what is reduced while it comes is not counted, and no sum follows the last halving
        sums = comm != "all_gather" and k + 1 < len(halving)
        yield ("wait", m.delay + (reduction(m, steps[k + 1][1]) if sums else 0))


def reduction(m: Machine, size: int) -> int:
    return 3 * int(size / m.memory_rate) if m.memory_rate else 0


class Steps:
    """Things that algorithms by steps have in common: sums, and a first packet that takes time."""

    def __init__(self, m: Machine) -> None:
        self.m, self.fresh = m, True

    def send(self, to: int, size: int, beside: bool = False) -> Member:
        if self.fresh:
            self.fresh = False
            yield ("wait", self.m.delay)
        yield ("send", to, size, beside)

    def take(self, by: int, size: int, sums: bool = False) -> Member:
        self.fresh = False
        yield ("take", by) if by >= 0 else ("take", by, "whoever comes first")
        yield ("wait", self.m.delay + (reduction(self.m, size) if sums else 0))


def pieces_of(size: int, n: int) -> list[int]:
    most = max(n, 64)
    if size > most * 65536:
        return [(size + most - 1 - k) // most for k in range(most)]
    return [min(65536, size - first) for first in range(0, size, 65536)] or [size]


def chain(m: Machine, comm: str, n: int, v: int, size: int) -> Member:
    one = Steps(m)
    if comm in ("broadcast", "reduce"):
        place = v if comm == "broadcast" else n - 1 - v
        way = 1 if comm == "broadcast" else -1
        for piece in pieces_of(size, n):
            if place > 0:
                yield from one.take(v - way, piece, comm == "reduce")
            if place < n - 1:
                yield from one.send(v + way, piece)
    elif comm == "scatter":
        for k in range(v, n):  # what is for those behind goes on
            if v > 0:
                yield from one.take(v - 1, part(size, n))
            if k < n - 1:
                yield from one.send(v + 1, part(size, n))
    else:
        for k in range(v, n):
            if v > 0:
                yield from one.send(v - 1, size)
            if k < n - 1:
                yield from one.take(v + 1, size)


def star(m: Machine, comm: str, n: int, v: int, size: int) -> Member:
    one = Steps(m)
    own = part(size, n) if comm == "scatter" else size
    sends = (v == 0) == (comm in _OUTWARDS)
    for k in range(1, n) if v == 0 else [0]:
        if sends:
            yield from one.send(k, own, True)
        else:
            yield from one.take(0 if v else -1, own, comm == "reduce")


def binomial(m: Machine, comm: str, n: int, v: int, size: int) -> Member:
    one = Steps(m)
    own = part(size, n) if comm == "scatter" else size
    lowest = v & -v if v else 1 << n.bit_length()

    def amount(child: int, distance: int) -> int:
        behind = len(range(child, min(child + distance, n)))
        return own * behind if comm in ("gather", "scatter") else own

    distances = [1 << k for k in range(n.bit_length()) if 1 << k < lowest and v + (1 << k) < n]
    if comm in _OUTWARDS:
        if v:
            yield from one.take(v - lowest, own)
        for d in reversed(distances):
            yield from one.send(v + d, amount(v + d, d))
    else:
        for d in distances:
            yield from one.take(v + d, amount(v + d, d), comm == "reduce")
        if v:
            yield from one.send(v - lowest, amount(v, lowest))


def bruck(m: Machine, comm: str, n: int, v: int, size: int) -> Member:
    one = Steps(m)
    distance = 1
    while distance < n:
        count = sum(1 for block in range(n) if block // distance % 2)
        yield from one.send((v + distance) % n, count * part(size, n))
        yield from one.take((v - distance) % n, 0)
        distance *= 2


def folded(m: Machine, comm: str, n: int, v: int, size: int) -> Member:
    one = Steps(m)
    core = 1 << (n.bit_length() - 1)
    if v >= core:
        yield from one.send(v - core, size)
        yield from one.take(v - core, 0)
        return
    helps = v + core < n

    def blocks(member: int, modulus: int) -> int:
        return sum(1 for block in range(n) if block % core % modulus == member % modulus)

    if helps:
        yield from one.take(v + core, size, comm != "all_gather")
    halving = [1 << k for k in range(core.bit_length() - 1)]
    if comm != "all_gather":
        for d in halving:
            whole = comm == "all_reduce"
            gives, gets = (
                part(size, 2 * d) if whole else blocks(member, 2 * d) * part(size, n)
                for member in (v ^ d, v)
            )
            yield from one.send(v ^ d, gives)
            yield from one.take(v ^ d, gets, True)
    if comm != "reduce_scatter":
        for d in reversed(halving):
            whole = comm == "all_reduce"
            yield from one.send(v ^ d, part(size, 2 * d) if whole else blocks(v, 2 * d) * size)
            yield from one.take(v ^ d, 0)
    if helps:
        last = {"all_reduce": size, "reduce_scatter": part(size, n)}.get(comm, (n - 1) * size)
        yield from one.send(v + core, last)


def tree(m: Machine, comm: str, n: int, v: int, size: int, second: bool) -> Member:  # noqa: C901
    one = Steps(m)
    is_rooted = comm in _OUTWARDS + _INWARDS
    if is_rooted and second:
        parent_of, children_of = tree_of(range(1, n), 0)
        parent_of = {-k % n: -p % n for k, p in parent_of.items()}
        children_of = {-k % n: [-c % n for c in cs] for k, cs in children_of.items()}
    elif is_rooted or second:
        parent_of, children_of = tree_of(range(1, n), 0)
    else:
        parent_of, children_of = tree_of(range(n - 1), n - 1)

    def below(k: int) -> int:
        return 1 + sum(below(child) for child in children_of.get(k, []))

    def up(k: int) -> int:
        if comm in ("gather", "all_gather"):
            return below(k) * size
        return below(k) * (n - below(k)) * part(size, n) if comm == "all_to_all" else size

    def down(k: int) -> int:
        if comm == "all_gather":
            return (n - below(k)) * size
        if comm == "all_to_all":
            return up(k)
        return below(k) * part(size, n) if comm in ("scatter", "reduce_scatter") else size

    own, parent = children_of.get(v, []), parent_of.get(v)
    in_pieces = comm in ("broadcast", "reduce")
    sums = comm in ("reduce", "all_reduce", "reduce_scatter")
    whole = size
    for size in pieces_of(whole, n) if in_pieces else [whole]:  # noqa: B007 - up and down see it
        if comm not in _OUTWARDS:
            for child in reversed(own):
                yield from one.take(child, up(child), sums)
            if parent is not None:
                yield from one.send(parent, up(v))
        if comm not in _INWARDS:
            if parent is not None:
                yield from one.take(parent, 0)
            for child in own:
                yield from one.send(child, down(child))


def tree_of(members: range, root: int) -> tuple[dict[int, int], dict[int, list[int]]]:
    """In order over all but the root, which has the middle one below it."""
    parent_of: dict[int, int] = {}
    children_of: dict[int, list[int]] = defaultdict(list)

    def put(below: range, parent: int) -> None:
        if below:
            middle = len(below) // 2
            parent_of[below[middle]] = parent
            children_of[parent].append(below[middle])
            put(below[:middle], below[middle])
            put(below[middle + 1 :], below[middle])

    put(members, root)
    return parent_of, children_of


# phases, queues and ranks


@dataclass(frozen=True)
class Phase:
    """One algorithm; of all members of the group if ``dim`` is -1; half as of an all-reduce.

    ``size`` is how many members a line of it has.
    """

    dim: int
    comm: str
    name: str
    half: int
    size: int


def phases_of(m: Machine, work: Work) -> list[Phase]:
    comm = "all_reduce" if work.comm == "barrier" else work.comm
    names = [name.lower() for name in m.algorithms[work.comm]]
    halves = comm == "all_reduce" and m.aware
    members = list(work.group or range(m.num_ranks))
    sizes = [len({m.coordinates(rank)[d] for rank in members}) for d in range(len(m.dims))]
    is_grid = prod(sizes) == len(members)
    if len(members) > 1 and (names[0].startswith("one") or not is_grid):
        return [Phase(-1, comm, names[0].removeprefix("one"), int(halves), len(members))]
    names += names[-1:] * (len(m.dims) - len(names))
    dims = [d for d, size in enumerate(sizes) if size > 1]
    if halves:
        plan = [(d, "reduce_scatter", 1) for d in dims[:-1]]
        plan += [(d, "all_reduce", 1) for d in dims[-1:]]
        plan += [(d, "all_gather", 2) for d in dims[:-1][::-1]]
    else:
        inwards = comm in ("all_gather", *_OUTWARDS)
        plan = [(d, comm, 0) for d in (dims[::-1] if inwards else dims)]
    return [Phase(d, kind, names[d], half, sizes[d]) for d, kind, half in plan]


def ordered(m: Machine, group: Sequence[int]) -> list[int]:
    """Put the members of a grid of several dimensions in order; others are in their own."""
    sizes = [len({m.coordinates(rank)[d] for rank in group}) for d in range(len(m.dims))]
    several = prod(sizes) == len(group) and sum(size > 1 for size in sizes) > 1
    return sorted(group) if several else list(group)


def is_by_steps(phase: Phase, n: int) -> bool:
    if phase.name == "halvingdoubling" and (phase.comm == "all_to_all" or n & (n - 1) != 0):
        return True
    return phase.comm in _OUTWARDS + _INWARDS or phase.name == "doublebinarytree"


def program_of(
    m: Machine, phase: Phase, n: int, v: int, size: int, clockwise: bool, second: bool
) -> Member:
    """Give what member ``v`` does; ``second`` says which of the two trees it is."""
    if phase.name == "doublebinarytree":
        return tree(m, phase.comm, n, v, size, second)
    if phase.comm in _OUTWARDS + _INWARDS:
        by_name = {"ring": chain, "direct": star, "halvingdoubling": binomial}
        return by_name[phase.name](m, phase.comm, n, v, size)
    if phase.name == "halvingdoubling" and is_by_steps(phase, n):
        return (bruck if phase.comm == "all_to_all" else folded)(m, phase.comm, n, v, size)
    same = {"ring": ring, "direct": direct, "halvingdoubling": halving_doubling}
    return same[phase.name](m, phase.comm, n, v, size, 1 if clockwise else -1)


def pace_of(m: Machine, phase: Phase, members: Sequence[int], root: int) -> float:
    """Give the time of a byte at which the busiest link of a phase can carry all that it has to."""
    paces = []
    for clockwise in (True, False) if m.queues > 1 and phase.name == "ring" else (True,):
        for second in (False, True) if phase.name == "doublebinarytree" else (False,):
            moments, long = alone(phase, len(members), clockwise, second)
            ranks = [members[(v + root) % len(members)] for v in range(len(members))]
            time = Fraction()
            for sent in moments:
                carried = busiest(m, [(ranks[a], ranks[b], size) for a, b, size in sent])
                time += max(most / Fraction(m.dims[d][2]) for d, most in carried.items())
            paces.append(float(time / long))
    return max(paces)


@cache
def alone(
    phase: Phase, n: int, clockwise: bool, second: bool
) -> tuple[list[list[tuple[int, int, int]]], int]:
    """Give what members send at each moment, and how long all takes if a byte takes 1 ns.

    Where pieces or parts follow each other all is one moment, that of the busiest member.
    """
    quiet = Machine((), {}, delay=0)
    size = 27720 * 64 * 65536  # which all numbers of members divide, and all pieces
    todo = {v: program_of(quiet, phase, n, v, size, clockwise, second) for v in range(n)}
    now, busy, comes = [0] * n, [0] * n, [0] * n
    mail: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    sent: list[tuple[int, int, int, int]] = []
    waits: dict[int, Any] = {}
    while todo:
        for v in list(todo):
            what, *how = waits.pop(v, None) or next(todo[v], ("done",))
            if what == "done":
                del todo[v]
            elif what == "send":
                to, own, beside = how
                begins = now[v] if beside else max(now[v], busy[v])
                now[v], busy[v] = begins, max(busy[v], begins + own)
                to_any = phase.name == "direct" and phase.comm in _INWARDS
                mail[-1 if to_any else v, to].append((begins + own, 0 if beside else own))
                sent.append((begins, begins + own, v, to))
            elif what == "take" and not mail[how[0], v]:
                waits[v] = (what, *how)
            elif what == "take":
                arrives, long = mail[how[0], v].pop(0)
                now[v] = max(now[v], arrives)
                if long:
                    now[v] = comes[v] = max(now[v], comes[v] + long)
    in_pieces = phase.comm in _OUTWARDS + _INWARDS and (
        phase.name == "ring"
        or (phase.name == "doublebinarytree" and phase.comm in ("broadcast", "reduce"))
    )
    if in_pieces:
        whole = [(a, b, end - begin) for begin, end, a, b in sent]
        ends = [sum(own for *pair, own in whole if pair[k] == v) for k in (0, 1) for v in range(n)]
        return [whole], max(ends)
    times = sorted({time for begin, end, _, _ in sent for time in (begin, end)})
    moments = [
        [(a, b, end - begin) for since, until, a, b in sent if since <= begin < until]
        for begin, end in itertools.pairwise(times)
    ]
    return [moment for moment in moments if moment], max(now + busy)


class World:
    def __init__(self, m: Machine, jobs: list[list[Work]]) -> None:
        self.m, self.jobs, self.now = m, jobs, 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.number = itertools.count()
        self.arrived: dict[Any, int] = {}  # how long each message takes to come in
        self.in_all: dict[Any, int] = defaultdict(int)
        self.waiting: dict[Any, Callable[[], None]] = {}
        self.done: list[int | None] = [None] * m.num_ranks
        self.begun: dict[Any, int] = defaultdict(int)
        self.paces: dict[Any, float] = {}

    def at(self, time: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (time, next(self.number), call))

    def next_work(self, rank: int, k: int) -> None:
        if k == len(self.jobs[rank]):
            self.done[rank] = self.now
            return
        work, following = self.jobs[rank][k], lambda: self.next_work(rank, k + 1)
        if not work.comm:
            self.at(self.now + work.time, following)
            return
        number = self.begun[rank, work.group]
        self.begun[rank, work.group] += 1
        phases = phases_of(self.m, work)
        if not phases:
            self.at(self.now, following)
            return
        one = Collective(self, rank, work, (work.group, number), phases, following)
        self.at(self.now + self.m.start, one.begin)


class Collective:
    """What one rank does for one collective."""

    def __init__(
        self, world: World, rank: int, work: Work, key: Any, phases: list[Phase],
        following: Callable[[], None],
    ) -> None:  # fmt: skip
        self.world, self.rank, self.work, self.key = world, rank, work, key
        self.phases, self.following = phases, following
        size = 1 if work.comm == "barrier" else work.size
        self.count = max(min(world.m.chunks, size), 1)
        self.sizes = [size // self.count + (c < size % self.count) for c in range(self.count)]
        # each queue's chunks and phases, in the order in which all ranks start them
        self.order: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for p, c in itertools.product(range(len(phases)), range(self.count)):
            self.order[self.queue(p, c)].append((p, c))
        self.entered: set[tuple[int, int]] = set()
        self.running: dict[Any, int] = defaultdict(int)
        self.left = self.count

    def place(self, p: int, c: int) -> int:
        """Of all queues of the dimension, or of the first or second half of them."""
        queues, half = self.world.m.queues, self.phases[p].half
        if queues == 1:
            return 0
        own = {0: range(queues), 1: range(queues // 2), 2: range(queues // 2, queues)}[half]
        return own[c % len(own)]

    def queue(self, p: int, c: int) -> tuple[int, int]:
        return max(self.phases[p].dim, 0), self.place(p, c)

    def begin(self) -> None:
        for c in range(self.count):
            self.enter(0, c)

    def enter(self, p: int, c: int) -> None:
        self.entered.add((p, c))
        self.serve(self.queue(p, c))

    def serve(self, queue: Any) -> None:
        m, order = self.world.m, self.order[queue]
        while order and order[0] in self.entered and self.running[queue] < part(m.active, m.queues):
            self.running[queue] += 1
            p, c = order.pop(0)
            Run(self, p, c).go_on()

    def leave(self, p: int, c: int) -> None:
        queue = self.queue(p, c)
        self.running[queue] -= 1
        if p + 1 < len(self.phases):
            self.enter(p + 1, c)
        else:
            self.left -= 1
            if self.left == 0:
                self.following()
        self.serve(queue)


class Run:
    """A member's way through a phase of a chunk."""

    def __init__(self, whole: Collective, p: int, c: int) -> None:
        self.whole, self.p, self.c = whole, p, c
        m, phase, rank = whole.world.m, whole.phases[p], whole.rank
        self.root = 0
        self.takes_part = True
        self.members = ordered(m, whole.work.group or range(m.num_ranks))
        has_root = phase.comm in _OUTWARDS + _INWARDS
        if phase.dim >= 0:
            own, root, d = m.coordinates(rank), m.coordinates(whole.work.root), phase.dim
            self.members = [
                r for r in self.members
                if m.coordinates(r)[:d] == own[:d] and m.coordinates(r)[d + 1 :] == own[d + 1 :]
            ]  # fmt: skip
            if has_root:
                self.root = [m.coordinates(r)[d] for r in self.members].index(root[d])
                self.takes_part = own[:d] == root[:d]
        elif has_root:
            self.root = self.members.index(whole.work.root)
        self.sent: dict[int, int] = defaultdict(int)
        self.taken: dict[int, int] = defaultdict(int)
        self.busy, self.comes = 0, whole.world.now
        share, self.spread = self.sharing(phase)
        self.share = int(share * 2**20) / 2**20
        self.at_least = ceil(self.pace(phase) * 2**40) / 2**40
        self.by_steps = is_by_steps(phase, len(self.members))
        self.program = self.member(phase)

    def size(self) -> int:
        """Of the chunk, after the phases before."""
        size = self.whole.sizes[self.c]
        for phase in self.whole.phases[: self.p]:
            if phase.comm in ("reduce_scatter", "scatter"):
                size = part(size, phase.size)
            elif phase.comm in ("all_gather", "gather"):
                size *= phase.size
        return size

    def sharing(self, phase: Phase) -> tuple[float, bool]:
        m, n = self.whole.world.m, len(self.members)
        share = min(m.queues * part(m.active, m.queues), m.chunks)
        if not self.is_whole_dimension(phase):
            return share, False  # which goes by its pace
        topology = m.dims[phase.dim][0]
        if phase.name == "direct" and phase.comm in _OUTWARDS + _INWARDS:
            if topology == "ring":
                return share * (n // 2), False
            return share * (1 if topology == "fully-connected" else n - 1), False
        if phase.name == "direct":
            carried = busiest(m, [(a, b, 1) for a, b in itertools.permutations(self.members, 2)])
            return share * max(1, *carried.values()), False
        return share, phase.name != "ring"

    def is_whole_dimension(self, phase: Phase) -> bool:
        if phase.dim < 0:
            return False
        topology, size = self.whole.world.m.dims[phase.dim][:2]
        if topology in ("fully-connected", "switch"):  # others there are in nobody's way
            return True
        return phase.size == size and self.members == sorted(self.members)

    def pace(self, phase: Phase) -> float:
        """How long a byte takes at least: among members that stand anywhere."""
        if self.is_whole_dimension(phase):
            return 0.0
        world, key = self.whole.world, (phase, tuple(self.members), self.root)
        if key not in world.paces:
            world.paces[key] = pace_of(world.m, phase, self.members, self.root)
        return world.paces[key]

    def member(self, phase: Phase) -> Member:
        m, n = self.whole.world.m, len(self.members)
        if not self.takes_part:
            return iter(())
        v = (self.members.index(self.whole.rank) - self.root) % n
        place, queues = self.whole.place(self.p, self.c), m.queues
        clockwise = place < queues // 2 if queues > 1 else phase.half != 2
        return program_of(m, phase, n, v, self.size(), clockwise, self.c % 2 == 1)

    def go_on(self) -> None:
        world = self.whole.world
        for what, *how in self.program:
            if what == "wait":
                world.at(world.now + how[0], self.go_on)
                return
            if what == "send":
                to, size, beside = how
                if not beside and self.busy > world.now:  # it is this message's turn then
                    self.program = itertools.chain([(what, *how)], self.program)
                    world.at(self.busy, self.go_on)
                    return
                self.send(to, size, beside)
            else:
                by = -1 if len(how) > 1 else (how[0] + self.root) % len(self.members)
                sender = -1 if by < 0 else self.members[by]
                key = (*self.key(), sender, self.whole.rank, self.taken[by])
                self.taken[by] += 1
                if key not in world.arrived:
                    world.waiting[key] = lambda key=key: self.take(world.arrived[key])
                    return
                if not self.come_in(world.arrived[key]):
                    return
        if self.by_steps and self.busy > world.now:  # its last message is leaving
            world.at(self.busy, self.go_on)
            return
        self.whole.leave(self.p, self.c)

    def take(self, long: int) -> None:
        if self.come_in(long):
            self.go_on()

    def come_in(self, long: int) -> bool:
        """Let a message come in after those before it; tells whether it is in at once."""
        now = self.whole.world.now
        if long == 0:  # beside others, which share the link
            return True
        self.comes = max(self.comes + long, now)
        if self.comes > now:
            self.whole.world.at(self.comes, self.go_on)
        return self.comes == now

    def key(self) -> Any:
        return (self.whole.key, self.p, self.c)

    def send(self, to: int, size: int, beside: bool) -> None:
        world = self.whole.world
        to = (to + self.root) % len(self.members)
        dst = self.members[to]
        latency, rate, often = world.m.way(self.whole.rank, dst, self.spread)
        shared = size * self.share * often
        long = max(shared / rate, shared * self.at_least)
        number, phase = self.sent[to], self.whole.phases[self.p]
        self.sent[to] += 1
        to_any = phase.name == "direct" and phase.comm in _INWARDS
        self.busy = max(self.busy, world.now + int(long))

        def arrive() -> None:
            key = (*self.key(), self.whole.rank, dst, number)
            if to_any:
                key = (*self.key(), -1, dst, world.in_all[*self.key(), dst])
                world.in_all[*self.key(), dst] += 1
            world.arrived[key] = 0 if beside else int(long)
            if key in world.waiting:
                world.waiting.pop(key)()

        world.at(world.now + int(latency + long), arrive)


def finish_times(m: Machine, jobs: list[list[Work]]) -> list[int | None]:
    """Give when each rank has done all its work, one after the other; None if it never has."""
    world = World(m, jobs)
    for rank in range(m.num_ranks):
        world.next_work(rank, 0)
    while world.heap:
        world.now, _, call = heapq.heappop(world.heap)
        call()
    return world.done
