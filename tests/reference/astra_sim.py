"""ASTRA-sim's timing model, message by message, as slowly and obviously as it can be said.

Written from the model in ``shared/peers/astra-sim.md``: one global queue of events, one object
per rank, stream, link and message. A case is a dictionary as the golden files have it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from tests.reference.astra_bus import of_32_bits, sides_of

__all__ = ["UnsupportedError", "simulate"]

Callback = Callable[[], None]
_TYPES = {0: "all_reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter"}
_IMPLEMENTATION = {
    "all_reduce": "all-reduce-implementation",
    "all_gather": "all-gather-implementation",
    "reduce_scatter": "reduce-scatter-implementation",
    "all_to_all": "all-to-all-implementation",
}
_IMPLEMENTED = (0, 2, 6, 7)
_HANDSHAKE = 8192


class UnsupportedError(Exception):
    """A case at which the simulator stops with an error or breaks down."""


class Clock:
    """Global events in order of time, those of one time in order of insertion."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callback]] = []
        self._number = itertools.count()

    def at(self, time: int, call: Callback) -> None:
        heapq.heappush(self._heap, (time, next(self._number), call))

    def run(self) -> None:
        while self._heap:
            self.now, _, call = heapq.heappop(self._heap)
            call()


class Unaware:
    """No contention: hops * latency + size / bandwidth of the lowest dimension that differs."""

    def __init__(self, clock: Clock, network: dict[str, Any]) -> None:
        self.clock = clock
        self.dims = list(zip(network["topology"], network["npus_count"],
                             network["bandwidth"], network["latency"], strict=True))  # fmt: skip

    def send(self, src: int, dst: int, size: int, arrived: Callback) -> None:
        for topology, n, bandwidth, latency in self.dims:
            a, b = src % n, dst % n
            src, dst = src // n, dst // n
            if a != b:
                hops = {"FullyConnected": 1, "Switch": 2}.get(
                    topology, min((a - b) % n, (b - a) % n)
                )
                time = int(hops * float(latency) + size / (bandwidth * 2**30 / 1e9))
                self.clock.at(self.clock.now + time, arrived)
                return
        raise UnsupportedError("a message to oneself")


class Link:
    """One directed link: whole messages, first in first out."""

    def __init__(self, clock: Clock, bandwidth: float, latency: float) -> None:
        self.clock, self.latency = clock, float(latency)
        self.rate = bandwidth * 2**30 / 1e9
        self.waiting: deque[tuple[int, Callback]] = deque()
        self.busy = False

    def put(self, size: int, arrived: Callback) -> None:
        if self.busy:
            self.waiting.append((size, arrived))
        else:
            self._serve(size, arrived)

    def _serve(self, size: int, arrived: Callback) -> None:
        self.busy = True
        self.clock.at(self.clock.now + int(self.latency + size / self.rate), arrived)
        self.clock.at(self.clock.now + int(size / self.rate), self._free)

    def _free(self) -> None:
        self.busy = False
        if self.waiting:
            self._serve(*self.waiting.popleft())


Place = tuple[Any, ...]  # the coordinates of a rank, or a switch and those it joins


class Aware:
    """Links of all dimensions; a message is stored at each device on its way.

    It goes through the dimensions one after the other, the first one first. ASTRA-sim's own
    backend of this kind has one dimension, and no mesh.
    """

    def __init__(self, clock: Clock, network: dict[str, Any]) -> None:
        self.topology, self.counts = network["topology"], network["npus_count"]
        self.links: list[dict[tuple[Place, Place], Link]] = [
            defaultdict(lambda b=bandwidth, t=latency: Link(clock, b, t))  # type: ignore[misc]
            for bandwidth, latency in zip(network["bandwidth"], network["latency"], strict=True)
        ]

    def place(self, rank: int) -> Place:
        found = []
        for count in self.counts:
            rank, coordinate = divmod(rank, count)
            found.append(coordinate)
        return tuple(found)

    def route(self, src: int, dst: int) -> list[tuple[int, Place, Place]]:
        """Give all links of a way: their dimension, and what they join."""
        way = []
        at, goal = self.place(src), self.place(dst)
        for dim, count in enumerate(self.counts):
            before, after = at[:dim], at[dim + 1 :]
            stops: list[Place] = [
                place if isinstance(place, tuple) else (*before, place, *after)
                for place in self.line(self.topology[dim], count, at[dim], goal[dim])
            ]
            stops = [("switch", dim, *before, *after) if s[0] == "switch" else s for s in stops]
            way += [(dim, one, other) for one, other in itertools.pairwise(stops)]
            at = (*before, goal[dim], *after)
        return way

    def line(self, topology: str, count: int, src: int, dst: int) -> list[Any]:
        """Give the coordinates on the way in one dimension; a switch is a tuple."""
        if src == dst:
            return [src]
        if topology == "Switch":
            return [src, ("switch",), dst]
        if topology == "FullyConnected":
            return [src, dst]
        if topology == "Mesh":
            return list(range(src, dst + 1)) if src < dst else list(range(src, dst - 1, -1))
        forward = (dst - src) % count
        step = 1 if forward <= count - forward else -1
        return [(src + step * k) % count for k in range(min(forward, count - forward) + 1)]

    def send(self, src: int, dst: int, size: int, arrived: Callback) -> None:
        self._hop(self.route(src, dst), size, arrived)

    def _hop(self, way: list[tuple[int, Place, Place]], size: int, arrived: Callback) -> None:
        if not way:
            arrived()
            return
        dim, here, there = way[0]
        self.links[dim][here, there].put(size, lambda: self._hop(way[1:], size, arrived))


class Mail:
    """The k-th send of a key meets the k-th receive of that key."""

    def __init__(self, clock: Clock, network: Unaware | Aware) -> None:
        self.clock, self.network = clock, network
        self.sent: dict[Any, int] = defaultdict(int)
        self.asked: dict[Any, int] = defaultdict(int)
        self.arrived: set[Any] = set()
        self.wanted: dict[Any, Callback] = {}

    def send(self, tag: Any, src: int, dst: int, size: int, done: Callback = lambda: None) -> None:
        key = (tag, src, dst, size)
        entry = (key, self.sent[key])
        self.sent[key] += 1

        def arrive() -> None:
            done()
            if entry in self.wanted:
                self.wanted.pop(entry)()
            else:
                self.arrived.add(entry)

        self.network.send(src, dst, size, arrive)

    def receive(self, tag: Any, src: int, dst: int, size: int, done: Callback) -> None:
        key = (tag, src, dst, size)
        entry = (key, self.asked[key])
        self.asked[key] += 1
        if entry in self.arrived:
            self.clock.at(self.clock.now, done)
        else:
            self.wanted[entry] = done


class RendezvousMail(Mail):
    """A receiver asks first; a sender waits until it is asked."""

    def send(self, tag: Any, src: int, dst: int, size: int, done: Callback = lambda: None) -> None:
        direct = super().send
        super().receive(
            ("rendezvous", tag), dst, src, _HANDSHAKE, lambda: direct(tag, src, dst, size, done)
        )

    def receive(self, tag: Any, src: int, dst: int, size: int, done: Callback) -> None:
        direct = super().receive
        super().send(
            ("rendezvous", tag), dst, src, _HANDSHAKE, lambda: direct(tag, src, dst, size, done)
        )


class Memory:
    """Remote memory: a time for each access, behind a server where it is shared."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.kind = config.get("memory-type", "NO_MEMORY_EXPANSION")
        self.latency = int(config.get("remote-mem-latency", 0))
        self.bandwidth = int(config.get("remote-mem-bw", 0))
        self.per_node = int(config.get("num-npus-per-node", 1))
        self.waiting: dict[int, deque[tuple[Rank, int, Callback]]] = defaultdict(deque)
        self.busy: set[int] = set()

    def access(self, rank: Rank, size: int, done: Callback) -> None:
        if self.kind == "NO_MEMORY_EXPANSION":
            raise UnsupportedError("a node needs remote memory and there is none")
        if self.kind == "PER_NPU_MEMORY_EXPANSION":
            rank.after(self.time(size), done)
            return
        server = 0 if self.kind == "MEMORY_POOL" else rank.number // self.per_node
        if server in self.busy:
            self.waiting[server].append((rank, size, done))
        else:
            self._serve(server, rank, size, done)

    def _serve(self, server: int, rank: Rank, size: int, done: Callback) -> None:
        self.busy.add(server)

        def finish() -> None:
            done()
            self.busy.discard(server)
            if self.waiting[server]:
                self._serve(server, *self.waiting[server].popleft())

        rank.after(self.time(size), finish)

    def time(self, size: int) -> int:
        return self.latency + (size // self.bandwidth if self.bandwidth else 0)


class Phase:
    """One algorithm in one dimension, for one stream of one rank."""

    def __init__(
        self, stream: Stream, comm: str, size: int, members: list[int], delay: int
    ) -> None:
        self.stream, self.rank = stream, stream.rank
        self.comm, self.size, self.members, self.delay = comm, size, members, delay
        self.n, self.index = len(members), members.index(stream.rank.number)

    def end_size(self) -> int:
        if self.comm == "reduce_scatter":
            return self.size // self.n
        return self.size * self.n if self.comm == "all_gather" else self.size

    def pass_memory(
        self,
        size: int,
        reduces: bool,
        done: Callback,
        *,
        outwards: bool = False,
        goes_back: bool = False,
    ) -> None:
        """The endpoint delay, or the way over the bus, and a reduction after it.

        In process groups there is no bus.
        """
        rank = self.rank

        def passed() -> None:
            if not reduces:
                done()
                return
            rate = rank.world.memory_rate
            rank.after(3 * (int(size / rate) if rate else 0), done)

        if rank.bus is not None and not self.stream.in_group:
            rank.bus[0 if outwards else 1].request(size, reduces, goes_back, passed)
        else:
            rank.after(self.delay, passed)

    def send(self, index: int, size: int) -> None:
        self.rank.world.mail.send(self.stream.tag, self.rank.number, self.members[index], size)

    def receive(self, index: int, size: int) -> None:
        self.rank.world.mail.receive(
            self.stream.tag, self.members[index], self.rank.number, size, self.received
        )

    def start(self) -> None:
        raise NotImplementedError

    def received(self) -> None:
        raise NotImplementedError

    def exit(self) -> None:
        self.stream.phase_done()


class Packets(Phase):
    """What rings, direct and halving-doubling have in common: inserts, free slots, packets.

    Inserts come in blocks, alternately free and charged; in a charged block they reduce.
    """

    window = 1
    charged_block = 0
    max_count = 0

    def start(self) -> None:
        self.inserted = self.free = self.taken = self.sends = 0
        for _ in range(self.window):
            self.insert()

    def received(self) -> None:
        self.taken += 1
        self.insert()

    def insert(self) -> None:
        pair, place = divmod(self.inserted, self.window + self.charged_block)
        self.inserted += 1
        free = place < self.window
        reduces = not free and (
            self.comm == "reduce_scatter" or (self.comm == "all_reduce" and pair % 2 == 0)
        )
        self.pass_memory(
            self.message_size(),
            reduces,
            self.general,
            outwards=free,
            goes_back=not free and place < self.charged_block,
        )

    def general(self) -> None:
        self.free += 1
        self.ready()
        self.check()

    def ready(self) -> None:
        if self.sends == self.max_count or self.free == 0 or self.sends >= self.inserted:
            return
        size, to, by = self.next_message()
        self.send(to, size)
        self.receive(by, size)
        self.sends += 1
        self.free -= 1

    def check(self) -> None:
        if self.sends == self.max_count and self.free == self.window:
            self.exit()

    def message_size(self) -> int:
        raise NotImplementedError

    def next_message(self) -> tuple[int, int, int]:
        raise NotImplementedError


class Ring(Packets):
    def __init__(self, *given: Any, clockwise: bool = True) -> None:
        super().__init__(*given)
        self.step = 1 if clockwise else -1
        self.charged_block = self.n - 1
        self.max_count = {
            "all_reduce": 2 * (self.n - 1),
            "all_to_all": self.n * (self.n - 1) // 2,
        }.get(self.comm, self.n - 1)

    def message_size(self) -> int:
        return self.size if self.comm == "all_gather" else self.size // self.n

    def next_message(self) -> tuple[int, int, int]:
        return (
            self.message_size(),
            (self.index + self.step) % self.n,
            (self.index - self.step) % self.n,
        )


class Direct(Ring):
    def __init__(self, *given: Any, clockwise: bool = True, window: int = -1) -> None:
        super().__init__(*given, clockwise=clockwise)
        self.window = self.n - 1 if window < 0 else min(window, self.n - 1)
        self.charged_block = self.window * (self.n - 1 if self.stream.in_group else 1)
        self.max_count = 2 * (self.n - 1) if self.comm == "all_reduce" else self.n - 1

    def next_message(self) -> tuple[int, int, int]:
        distance = self.step * (self.sends % (self.n - 1) + 1)
        return (
            self.message_size(),
            (self.index + distance) % self.n,
            (self.index - distance) % self.n,
        )

    def general(self) -> None:
        self.free += 1
        if self.comm == "all_reduce" and self.sends >= self.n - 1:
            if self.taken < self.n - 1:
                return
            for _ in range(self.window):
                self.ready()
        else:
            self.ready()
        self.check()


class HalvingDoubling(Packets):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.comm == "all_to_all":
            raise UnsupportedError("halvingDoubling has no all-to-all")
        levels = self.n.bit_length() - 1
        if self.n & (self.n - 1):
            distances = [self.n >> (k + 1) for k in range(levels)]
            if self.comm != "all_gather" or any(self.n % (2 * d) for d in distances):
                raise UnsupportedError(
                    "halvingDoubling on a number of ranks that is no power of two"
                )
        halving = [1 << k for k in range(levels)]
        self.distances = {"reduce_scatter": halving, "all_reduce": halving + halving[::-1]}.get(
            self.comm, [self.n >> (k + 1) for k in range(levels)]
        )
        self.levels = levels
        self.charged_block = levels - 1
        self.max_count = len(self.distances)

    def message_size(self) -> int:
        """Halve or double as often as something was sent; also after the last message."""
        if self.comm == "all_gather":
            return self.size << self.sends
        if self.comm == "all_reduce" and self.sends >= self.levels:
            # all bytes that ever got lost stay so
            return self.size >> (self.levels + 1) << (self.sends - self.levels + 1)
        return self.size >> (self.sends + 1)

    def next_message(self) -> tuple[int, int, int]:
        distance = self.distances[self.sends]
        partner = self.index + (distance if self.index // distance % 2 == 0 else -distance)
        return self.message_size(), partner, partner


class Tree(Phase):
    """A double binary tree's one tree: an all-reduce, whatever was asked for."""

    def __init__(self, *given: Any, root_is_last: bool) -> None:
        super().__init__(*given)
        if self.n & (self.n - 1):
            raise UnsupportedError("doubleBinaryTree on a number of ranks that is no power of two")
        offset = 0 if root_is_last else 1
        self.parent, self.children = -1, []
        root = self.n - 1 if root_is_last else 0

        def build(low: int, high: int, parent: int) -> None:
            middle = (low + high) // 2
            if self.index == middle + offset:
                self.parent = parent
                if low < high:
                    self.children = [
                        (low + middle - 1) // 2 + offset,
                        (middle + 1 + high) // 2 + offset,
                    ]
            elif low < high:
                build(low, middle - 1, middle + offset)
                build(middle + 1, high, middle + offset)

        build(0, self.n - 2, root)
        if self.index == root:
            self.children = [(self.n - 2) // 2 + offset]

    def end_size(self) -> int:
        return self.size

    def start(self) -> None:
        self.reduced, self.taken, self.from_parent = 0, 0, False
        if self.children:
            for child in self.children:
                self.receive(child, self.size)
        else:
            self.pass_memory(self.size, False, self.up, outwards=True)

    def received(self) -> None:
        if not self.children:
            self.pass_memory(self.size, False, self.exit)
        elif self.from_parent or self.parent < 0:
            self.pass_memory(self.size, True, self.down, goes_back=True)
        else:
            self.taken += 1
            last = self.taken == len(self.children)
            self.pass_memory(self.size, True, self.reduce, goes_back=last)

    def reduce(self) -> None:
        self.reduced += 1
        if self.reduced == len(self.children):
            self.up()

    def up(self) -> None:
        self.from_parent = True
        self.send(self.parent, self.size)
        self.receive(self.parent, self.size)

    def down(self) -> None:
        for child in self.children:
            self.send(child, self.size)
        self.exit()


class Custom(Phase):
    """A collective given as an execution trace for each rank: only its dependencies count."""

    def __init__(self, *given: Any, nodes: list[dict[str, Any]]) -> None:
        super().__init__(*given)
        self.todo = {node["id"]: dict(node) for node in nodes}
        self.waits = {
            node["id"]: len({*node.get("data_deps", ()), *node.get("ctrl_deps", ())})
            for node in nodes
        }

    def start(self) -> None:
        for node in sorted(n for n, count in self.waits.items() if count == 0):
            self.issue(node)

    def issue(self, number: int) -> None:
        node, rank = self.todo[number], self.rank
        mail, tag = rank.world.mail, (self.stream.tag, node.get("comm_tag", 0))
        size = node.get("comm_size", 0)
        done = lambda: self.finish(number)  # noqa: E731
        if node["type"] == "COMM_SEND_NODE":
            mail.send(tag, rank.number, self.members[node["comm_dst"]], size, done)
        elif node["type"] == "COMM_RECV_NODE":
            mail.receive(tag, self.members[node["comm_src"]], rank.number, size, done)
        else:
            rank.after(node.get("duration_micros", 0) * 1000 or 1, done)

    def finish(self, number: int) -> None:
        self.todo.pop(number)
        for other in sorted(self.todo):
            node = self.todo[other]
            if number in node.get("data_deps", ()) or number in node.get("ctrl_deps", ()):
                self.waits[other] -= 1
                if self.waits[other] == 0:
                    self.issue(other)
        if not self.todo:
            self.exit()


class Stream:
    """One chunk of a collective on one rank: its phases, one after the other."""

    def __init__(self, rank: Rank, tag: Any, plan: list[Any], size: int, done: Callback) -> None:
        self.rank, self.tag, self.plan, self.size, self.done = rank, tag, plan, size, done
        self.in_group = tag[0] != ""
        self.queue = -1
        self.priority = 0
        self.phase: Phase | None = None

    def enter(self) -> None:
        self.queue, make = self.plan.pop(0)
        self.phase = make(self, self.size)
        self.size = self.phase.end_size()
        if not self.rank.world.devices:
            self.rank.queues[self.queue].append(self)

    def serve(self) -> None:
        """Let the queue go on; of devices, all members' once the last of them is here."""
        world = self.rank.world
        if not world.devices:
            self.rank.serve(self.queue)
            return
        assert self.phase is not None
        there = world.gathered[self.tag, len(self.plan), tuple(self.phase.members)]
        there.append(self)
        if len(there) == self.phase.n:
            # in order of their places; those of one time are served in that order too
            there.sort(key=lambda stream: stream.phase.index)
            for stream in there:
                stream.rank.queues[stream.queue].append(stream)
            if world.policy != "fifo":
                world.waiting.append(list(there))
                world.start_together(world.waiting[-1:])
                return
            for stream in list(there):
                stream.rank.serve(stream.queue)

    def phase_done(self) -> None:
        rank, old = self.rank, self.queue
        if not self.plan:
            self.done()
        rank.queues[old].remove(self)
        rank.running[old] -= 1
        if self.plan:
            self.enter()
            rank.serve(old)
            self.serve()
        else:
            rank.serve(old)


class Rank:
    """One NPU: its callbacks, its queues of streams, its nodes."""

    def __init__(self, world: World, number: int, nodes: list[dict[str, Any]]) -> None:
        self.world, self.number = world, number
        self.lists: dict[int, list[Callback]] = {}
        shared = world.system.get("model-shared-bus")
        self.bus = sides_of(self, world.system) if shared else None
        self.queues: dict[int, list[Stream]] = defaultdict(list)
        self.running: dict[int, int] = defaultdict(int)
        self.streams: dict[Any, int] = defaultdict(int)
        self.turn: dict[Any, int] = defaultdict(int)
        self.nodes = {node["id"]: node for node in nodes}
        if len(self.nodes) == 0:
            raise UnsupportedError("a rank without nodes")
        self.waits = {
            node["id"]: {*node.get("data_deps", ()), *node.get("ctrl_deps", ())} for node in nodes
        }
        self.instance = 0
        if world.devices:
            last: dict[str, int] = {}
            for node in sorted(nodes, key=lambda node: node["id"]):
                if lane := lane_of(node):
                    if lane in last:
                        self.waits[node["id"]].add(last[lane])
                    last[lane] = node["id"]
        self.children: dict[int, list[int]] = defaultdict(list)
        for node, parents in self.waits.items():
            for parent in parents:
                self.children[parent].append(node)
        self.free = {node for node, parents in self.waits.items() if not parents}
        self.ongoing: set[int] = set()
        self.slots = {"cpu": 0, "comp": 0, "comm": 0}
        self.finish: int | None = None
        self.compute = 0
        self.times: dict[int, tuple[int, int]] = {}
        self.started: dict[int, int] = {}

    # callbacks of one tick run together, where the first of them stands in the global queue

    def after(self, delay: int, call: Callback) -> None:
        tick = self.world.clock.now + delay
        if tick in self.lists:
            self.lists[tick].append(call)
            return
        if tick == 0:
            raise UnsupportedError("an event at time 0")
        self.lists[tick] = [call]
        self.world.clock.at(tick, lambda: self._run_list(tick))

    def _run_list(self, tick: int) -> None:
        calls, at = self.lists[tick], 0
        while at < len(calls):
            calls[at]()
            at += 1
        del self.lists[tick]

    # streams

    def serve(self, queue: int) -> None:
        waiting = self.queues[queue]
        if self.world.policy != "fifo":
            self.world.start_together(self.in_order_of_policy(waiting))
            return
        while self.running[queue] < min(self.world.limit, len(waiting)):
            stream = waiting[self.running[queue]]
            self.running[queue] += 1
            stream.phase.start()

    def in_order_of_policy(self, streams: list[Stream]) -> list[list[Stream]]:
        """Give the phases that wait in a queue, as all their members, whose turn is first first."""
        found = [members for members in self.world.waiting if set(members) & set(streams)]
        if self.world.policy == "lifo":
            return found[::-1]
        own = [next(stream for stream in members if stream in streams) for members in found]
        by_priority = sorted(range(len(found)), key=lambda k: -own[k].priority)
        return [found[k] for k in by_priority]

    def collective(self, node: dict[str, Any], done: Callback) -> None:
        world = self.world
        comm, size = _TYPES[node["comm_type"]], node["comm_size"]
        group = str(node.get("pg_name", ""))
        ranks = world.groups.get(group) if group not in ("", "0") else None
        if ranks is not None and set(ranks) == set(range(world.n)):
            ranks = None
        if ranks is None:
            group = ""
        custom = world.custom_of(comm, node) is not None
        plans = world.plan(self, comm, ranks, node)
        if custom:
            chunks, chunk = 1, size
        else:
            splits = world.system.get("preferred-dataset-splits", 0)
            if splits <= 0:
                raise UnsupportedError("preferred-dataset-splits is missing")
            chunk = size // splits
            if comm != "all_gather" and world.n > chunk:
                chunk = world.n
                size = splits * chunk
            if chunk == 0:
                raise UnsupportedError("an all-gather smaller than its splits")
            chunks = -(-size // chunk)
        left = [chunks]

        def stream_done() -> None:
            left[0] -= 1
            if left[0] == 0:
                done()

        counted = self.number_in_group(node)
        for number in range(chunks):
            self.instance = counted * chunks + number
            plan = plans()
            if not plan:
                self.after(0, done)
                return
            tag = (group, (counted, number) if world.devices else self.streams[group])
            stream = Stream(self, tag, plan, chunk, stream_done)
            stream.priority = node.get("comm_priority", 0)
            self.streams[group] += 1
            stream.enter()
            stream.serve()

    def group_of(self, node: dict[str, Any]) -> str:
        """Give the group of a collective; all ranks have no name."""
        group = str(node.get("pg_name", ""))
        ranks = self.world.groups.get(group) if group not in ("", "0") else None
        return "" if ranks is None or len(set(ranks)) == self.world.n else group

    def number_in_group(self, node: dict[str, Any]) -> int:
        """Count the collectives of a node's group with lower ids."""
        return sum(
            other["type"] == "COMM_COLL_NODE" and other["id"] < node["id"]
            and other["comm_type"] in _IMPLEMENTED and self.group_of(other) == self.group_of(node)
            for other in self.nodes.values()
        )  # fmt: skip

    def queue(self, dim: int, half: int) -> tuple[int, bool]:
        """Take the next queue of a dimension: of all (0), the first half (1), the second (2)."""
        count = self.world.queues
        position = self.turn[dim, half]
        if count == 1:
            return dim * count, half != 2
        first, size = {0: (0, count), 1: (0, count // 2), 2: (count // 2, count - count // 2)}[half]
        if self.world.devices:
            position = self.instance % size
        self.turn[dim, half] = (position + 1) % size
        return dim * count + first + position, first + position < count // 2

    # nodes

    def slot(self, node: dict[str, Any]) -> str | None:
        if self.world.devices:
            if lane_of(node) or node["type"].startswith("COMM"):
                return None
            if node["type"].startswith("MEM"):
                return "comm"
        if node.get("is_cpu_op", True):
            return "cpu"
        if node["type"] == "COMP_NODE":
            return "comp"
        return None if node["type"] == "COMM_RECV_NODE" else "comm"

    def issue_free(self) -> None:
        ready = sorted(self.free)
        for number in ready:
            node = self.nodes[number]
            slot = self.slot(node)
            if slot is None or self.slots[slot] == 0:
                self.free.discard(number)
                self.ongoing.add(number)
                if slot is not None:
                    self.slots[slot] = 1
                self.issue(node)
                if self.gives_way(node) and any(one in self.free for one in ready):
                    self.world.clock.at(self.world.clock.now, self.go_on)
                    return

    def gives_way(self, node: dict[str, Any]) -> bool:
        """Tell whether others issue collectives of this time first, once a node is issued."""
        is_meeting = node["type"] == "COMM_COLL_NODE" and node["comm_type"] != 5
        return self.world.devices and is_meeting and not self.world.replay_only

    def issue(self, node: dict[str, Any]) -> None:
        world, number, kind = self.world, node["id"], node["type"]
        self.started[number] = world.clock.now
        done = lambda: self.complete(number)  # noqa: E731
        micros = node.get("duration_micros", 0)
        measured = micros * 1000 or 1
        if world.replay_only and kind != "INVALID_NODE":
            if not node.get("is_cpu_op", True):
                self.compute += measured  # whatever the device does
            self.after(measured, done)
        elif kind == "COMP_NODE":
            self.issue_compute(node, measured, done)
        elif kind in ("MEM_LOAD_NODE", "MEM_STORE_NODE"):
            world.memory.access(self, node.get("tensor_size", 0), done)
        elif kind == "COMM_SEND_NODE":
            tag = ("native", node.get("comm_tag", 0))
            world.mail.send(tag, self.number, node["comm_dst"], node["comm_size"], done)
        elif kind == "COMM_RECV_NODE":
            tag = ("native", node.get("comm_tag", 0))
            world.mail.receive(tag, node["comm_src"], self.number, node["comm_size"], done)
        elif kind == "COMM_COLL_NODE":
            if node["comm_type"] not in _TYPES:
                raise UnsupportedError("a collective that is not implemented")
            if node["comm_type"] == 5:
                self.after(measured, done)
            else:
                self.collective(node, done)
        elif kind == "INVALID_NODE":
            self.leave(number)
        else:
            raise UnsupportedError(f"a node of type {kind}")

    def issue_compute(self, node: dict[str, Any], measured: int, done: Callback) -> None:
        system = self.world.system
        if node.get("is_cpu_op", True) or not system.get("roofline-enabled"):
            time = measured
        else:
            if "num_ops" not in node:
                raise UnsupportedError("roofline without num_ops")
            ops, size = node["num_ops"], node.get("tensor_size", 0)
            if size == 0:
                self.leave(node["id"])
                return
            if ops == 0:
                raise UnsupportedError("roofline with num_ops of 0")
            rate = min(
                float(system["local-mem-bw"]) * 1e9 * (ops / size), system["peak-perf"] * 1e12
            )
            time = int(ops / rate * 1e9)
        if not node.get("is_cpu_op", True):
            self.compute += time
        self.after(time, done)

    def leave(self, number: int) -> None:
        """A node is over; its children may be issued by whatever is completed next."""
        self.times[number] = self.started[number], self.world.clock.now
        self.ongoing.discard(number)
        slot = self.slot(self.nodes[number])
        if slot is not None:
            self.slots[slot] = 0
        for child in self.children[number]:
            self.waits[child].discard(number)
            if not self.waits[child]:
                self.free.add(child)

    def complete(self, number: int) -> None:
        self.leave(number)
        self.go_on()

    def go_on(self) -> None:
        self.issue_free()
        if not self.free and not self.ongoing and not any(self.slots.values()):
            self.finish = self.world.clock.now


def lane_of(node: dict[str, Any]) -> str:
    """Name what a device does in order: a stream, or a thread; empty if a node says of none."""
    if node["type"] in ("COMM_SEND_NODE", "COMM_RECV_NODE", "INVALID_NODE"):
        return ""
    if "stream" in node and not node.get("is_cpu_op", True):
        return f"stream {node['stream']}"
    return f"thread {node['thread']}" if "thread" in node else ""


class World:
    """All ranks, the network and what the system file says.

    With ``devices`` ranks have no slots but for what says of no thread and no stream. These do
    one thing after the other, issue one collective in turn if they issue several at one time, and
    a phase is queued for its members when the last is there. With
    another ``scheduling-policy`` than FIFO it starts on all of them when all have room for it.
    """

    def __init__(
        self, case: dict[str, Any], nodes: dict[int, list[dict[str, Any]]], *, devices: bool = False
    ) -> None:
        self.devices = devices
        self.gathered: dict[Any, list[Stream]] = defaultdict(list)
        network, self.system = case["network"], case["system"]
        stated = str(self.system.get("scheduling-policy", "fifo")).lower()
        self.policy = stated if devices else "fifo"
        self.waiting: list[list[Stream]] = []  # phases whose members are all there, as they came
        cli = case.get("cli") or {}
        self.clock = Clock()
        net = (Aware if case["backend"] == "congestion_aware" else Unaware)(self.clock, network)
        rendezvous = str(cli.get("rendezvous-protocol", "false")) == "true"
        self.mail = (RendezvousMail if rendezvous else Mail)(self.clock, net)
        self.memory = Memory(case.get("remote_memory") or {})
        self.counts = [int(n) for n in network["npus_count"]]
        self.n = 1
        for count in self.counts:
            self.n *= count
        self.queues = int(cli.get("num-queues-per-dim", 1))
        self.delay = int(self.system.get("endpoint-delay", 10))
        # in 32 bits: of what is multiplied, and of what comes of it
        scale = of_32_bits(float(cli.get("injection-scale", 1)))
        self.delay = int(of_32_bits(of_32_bits(self.delay) * scale))
        active = int(self.system.get("active-chunks-per-dimension", 1))
        self.limit = -(-active // self.queues)
        self.replay_only = bool(self.system.get("replay-only", 0))
        self.memory_rate = float(self.system.get("local-mem-bw", 0))
        self.groups = {name: list(ranks) for name, ranks in (case.get("comm_group") or {}).items()}
        self.trees: dict[Any, int] = defaultdict(int)
        # nodes by rank, or by place in the group; the second by the id of the collective
        self.custom = case.get("custom_nodes") or {}
        self.custom_by_node = case.get("custom_nodes_by_node") or {}
        self.ranks = [Rank(self, rank, nodes.get(rank, [])) for rank in range(self.n)]

    def start_together(self, phases: list[list[Stream]]) -> None:
        """Start each of the phases for which there is room on all members."""
        for members in phases:
            if all(stream.rank.running[stream.queue] < self.limit for stream in members):
                self.waiting.remove(members)
                for stream in members:
                    stream.rank.running[stream.queue] += 1
                for stream in members:
                    stream.phase.start()

    def algorithm(
        self,
        name: str,
        rank: Rank,
        comm: str,
        members: list[int],
        clockwise: bool,
        dim: Any,
        delay: int,
    ) -> Callable[[Stream, int], Phase]:
        name = name.removeprefix("one").lower() if name.startswith("one") else name.lower()
        if name.startswith("doublebinarytree"):
            turn = self.trees[rank.number, comm_of_plan(dim), dim]
            self.trees[rank.number, comm_of_plan(dim), dim] += 1
            turn = rank.instance if self.devices else turn
            return lambda stream, size: Tree(
                stream, comm, size, members, delay, root_is_last=turn % 2 == 0
            )
        if name == "ring":
            return lambda stream, size: Ring(
                stream, comm, size, members, delay, clockwise=clockwise
            )
        if name == "halvingdoubling":
            return lambda stream, size: HalvingDoubling(stream, comm, size, members, delay)
        if name.startswith("direct"):
            window = int(name.removeprefix("direct") or -1)
            return lambda stream, size: Direct(
                stream, comm, size, members, delay, clockwise=clockwise, window=window
            )
        raise UnsupportedError(f"an algorithm {name}")

    def plan(
        self, rank: Rank, comm: str, group: list[int] | None, node: dict[str, Any]
    ) -> Callable[[], list[Any]]:
        """Give what makes the phases of one stream, as (queue, what makes the phase)."""
        if (custom := self.custom_of(comm, node)) is not None:
            members = list(range(self.n)) if group is None else group
            nodes = custom[members.index(rank.number)]
            return lambda: [
                (0, lambda stream, size: Custom(stream, comm, size, members, 0, nodes=nodes))
            ]
        names = self.system.get(_IMPLEMENTATION[comm])
        if not names:
            raise UnsupportedError("no implementation of the collective")
        if group is not None:
            return lambda: self._group_plan(rank, comm, group, names)
        if names[0].startswith("one"):
            return lambda: self._single_plan(rank, comm, names[0])
        if len(names) > len(self.counts):
            raise UnsupportedError("more implementations than dimensions")
        involved = list(node.get("involved_dim") or [True] * 4)
        if len(involved) < len(names):
            raise UnsupportedError("fewer entries in involved_dim than dimensions")
        dims = [d for d in range(len(names)) if self.counts[d] > 1 and involved[d]]
        return lambda: self._dims_plan(rank, comm, names, dims)

    def custom_of(self, comm: str, node: dict[str, Any]) -> dict[int, list[Any]] | None:
        """Give the nodes of each member of a collective that is given as traces."""
        if node["id"] in self.custom_by_node:
            return self.custom_by_node[node["id"]]
        return self.custom if self.system.get(_IMPLEMENTATION[comm] + "-custom") else None

    def _group_plan(self, rank: Rank, comm: str, group: list[int], names: list[str]) -> list[Any]:
        if len(group) == 1:
            return []
        name = names[0] if len(names) == 1 else "ring"
        if name.lower().startswith("doublebinarytree"):
            raise UnsupportedError("doubleBinaryTree in a communicator group")
        queue, clockwise = rank.queue(0, 1 if comm == "all_reduce" and self.bw_aware else 0)
        return [(queue, self.algorithm(name, rank, comm, group, clockwise, 0, 10))]

    def _single_plan(self, rank: Rank, comm: str, name: str) -> list[Any]:
        queue, clockwise = rank.queue(0, 1 if comm == "all_reduce" and self.bw_aware else 0)
        members = list(range(self.n))
        return [
            (queue, self.algorithm(name, rank, comm, members, clockwise, (comm, 0), self.delay))
        ]

    @property
    def bw_aware(self) -> bool:
        return self.system.get("collective-optimization", "baseline") == "localBWAware"

    def _dims_plan(self, rank: Rank, comm: str, names: list[str], dims: list[int]) -> list[Any]:
        if comm == "all_reduce" and self.bw_aware:
            steps = [(d, "reduce_scatter", 1) for d in dims[:-1]]
            steps += [(d, "all_reduce", 1) for d in dims[-1:]]
            steps += [(d, "all_gather", 2) for d in reversed(dims[:-1])]
        else:
            steps = [(d, comm, 0) for d in (reversed(dims) if comm == "all_gather" else dims)]
        plan = []
        for dim, kind, half in steps:
            queue, clockwise = rank.queue(dim, half)
            members = self.members(rank.number, dim)
            plan.append(
                (queue, self.algorithm(
                    names[dim], rank, kind, members, clockwise, (comm, dim), self.delay
                ))
            )  # fmt: skip
        return plan

    def members(self, rank: int, dim: int) -> list[int]:
        stride = 1
        for count in self.counts[:dim]:
            stride *= count
        base = rank - rank // stride % self.counts[dim] * stride
        return [base + k * stride for k in range(self.counts[dim])]


def comm_of_plan(dim: Any) -> Any:
    """Trees alternate per dimension of each type of collective."""
    return dim[0] if isinstance(dim, tuple) else None


def simulate(
    case: dict[str, Any], nodes: dict[int, list[dict[str, Any]]], *, devices: bool = False
) -> dict[str, Any]:
    """Simulate; gives cycles and exposed per rank, None for a rank that never finishes.

    Raises
    ------
    UnsupportedError
        Where the simulator stops with an error or breaks down.
    """
    world = World(case, nodes, devices=devices)
    for rank in world.ranks:
        rank.go_on()
    world.clock.run()
    return {
        "cycles": [rank.finish for rank in world.ranks],
        "exposed": [
            None if rank.finish is None else rank.finish - rank.compute for rank in world.ranks
        ],
        "times": [rank.times for rank in world.ranks],
    }
