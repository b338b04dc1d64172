"""LogGOPSim's rules for one processor a rank, event by event in plain Python."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import NamedTuple


class Operation(NamedTuple):
    """``kind`` is send, recv or calc; ``awaited`` are positions in the rank's list."""

    kind: str
    size: int
    peer: int = -1
    tag: int = 0
    awaited: tuple[int, ...] = ()


class Costs(NamedTuple):
    latency: int
    overhead: int
    gap: int
    per_byte: int
    overhead_per_byte: int
    limit: int


_ORDER = {"send": 0, "recv": 1, "calc": 2}


class _World:
    def __init__(self, ranks: list[list[Operation]], costs: Costs) -> None:
        self.ranks, self.costs = ranks, costs
        self.free: defaultdict[int, int] = defaultdict(int)
        self.sends: defaultdict[int, int] = defaultdict(int)
        self.receives: defaultdict[int, int] = defaultdict(int)
        self.left = {
            (r, k): len(o.awaited) for r, ops in enumerate(ranks) for k, o in enumerate(ops)
        }
        self.ended: set[tuple[int, int]] = set()
        self.fresh: list[tuple[int, int]] = []
        self.posted: defaultdict[int, list[int]] = defaultdict(list)
        self.arrived: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        # time, number of its first entry, kind, rank, operation, sender
        self.queue: list[tuple[int, int, str, int, int, int]] = []
        self.entries = 0

    def put(self, time: int, kind: str, rank: int, k: int, sender: int = -1) -> None:
        self.entries += 1
        heapq.heappush(self.queue, (time, self.entries, kind, rank, k, sender))

    def queue_fresh(self) -> None:
        def order(one: tuple[int, int]) -> tuple[int, int, int]:
            return one[0], _ORDER[self.ranks[one[0]][one[1]].kind], one[1]

        for rank, k in sorted(self.fresh, key=order):
            kind = self.ranks[rank][k].kind
            self.put(max(self.free[rank], self.sends[rank] if kind == "send" else 0), kind, rank, k)
        self.fresh = []

    def end(self, rank: int, k: int) -> None:
        self.ended.add((rank, k))
        for other, operation in enumerate(self.ranks[rank]):
            if k in operation.awaited:
                self.left[rank, other] -= 1
                if not self.left[rank, other]:
                    self.fresh.append((rank, other))

    def fits(self, rank: int, k: int, sender: int, message: int) -> bool:
        wanted, sent = self.ranks[rank][k], self.ranks[sender][message]
        return wanted.peer in (-1, sender) and wanted.tag in (-1, sent.tag)

    def meet(self, now: int, sender: int, message: int) -> None:
        if self.ranks[sender][message].size > self.costs.limit:
            self.free[sender] = max(self.free[sender], now)
            self.sends[sender] = max(self.sends[sender], now)
            self.end(sender, message)

    def wait_until(self, event: tuple[int, int, str, int, int, int], time: int) -> bool:
        """Put an event back until a time; it keeps its number."""
        if time > event[0]:
            heapq.heappush(self.queue, (time, *event[1:]))
        return time > event[0]

    def run(self) -> None:
        c = self.costs
        while self.queue:
            event = heapq.heappop(self.queue)
            now, _, kind, rank, k, sender = event
            if kind == "calc" and not self.wait_until(event, self.free[rank]):
                self.free[rank] = now + self.ranks[rank][k].size
                self.end(rank, k)
            elif kind == "send" and not self.wait_until(
                event, max(self.free[rank], self.sends[rank])
            ):
                sent = self.ranks[rank][k]
                more = max(sent.size - 1, 0)
                self.free[rank] = now + c.overhead + more * c.overhead_per_byte
                self.sends[rank] = now + c.gap + more * c.per_byte
                self.put(now + c.overhead + c.latency, "message", sent.peer, k, rank)
                if sent.size <= c.limit:
                    self.end(rank, k)
            elif kind == "recv":
                found = [m for m in self.arrived[rank] if self.fits(rank, k, *m)]
                if found:
                    self.arrived[rank].remove(found[0])
                    self.end(rank, k)
                    self.meet(now, *found[0])
                else:
                    self.posted[rank].append(k)
            elif kind == "message" and not self.wait_until(
                event, max(self.free[rank], self.receives[rank])
            ):
                more = max(self.ranks[sender][k].size - 1, 0)
                self.free[rank] = now + c.overhead + more * max(c.overhead_per_byte, c.per_byte)
                self.receives[rank] = now + c.gap + more * c.per_byte
                wanted = [r for r in self.posted[rank] if self.fits(rank, r, sender, k)]
                if wanted:
                    self.posted[rank].remove(wanted[0])
                    self.meet(now, sender, k)
                    self.end(rank, wanted[0])
                else:
                    self.arrived[rank].append((sender, k))
            self.queue_fresh()


def finish_times(ranks: list[list[Operation]], costs: Costs) -> list[int] | None:
    """Give when the processor of each rank is free for good; None if an operation never ends.

    Ranks with up to 16 operations: more that become free at once are in another order.
    """
    world = _World(ranks, costs)
    world.fresh = [one for one, left in world.left.items() if not left]
    world.queue_fresh()
    world.run()
    if len(world.ended) < len(world.left):
        return None
    return [world.free[rank] for rank in range(len(ranks))]
