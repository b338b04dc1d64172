"""Chakra's feeder with its window, in plain Python: one node after the other, no arrays.

As in the C++ ETFeeder, a window is read on past its end while any dependency is unresolved. It
differs where that one hangs or fails: a node that has ended counts as resolved, nodes in flight
are not made ready again, and the next window is read when fewer nodes than one are held.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["WindowedFeeder"]


class WindowedFeeder:
    """Hands out the ids of nodes; ``nodes`` are ids with the ids that each waits for."""

    def __init__(self, nodes: Iterable[tuple[int, list[int]]], window: int, policy: str) -> None:
        self.left = list(nodes)
        self.window = window
        self.policy = policy
        self.read: set[int] = set()
        self.ended: set[int] = set()
        self.held: dict[int, list[int]] = {}
        self.ready: list[int] = []
        self.in_flight: set[int] = set()
        self.read_window()

    def read_window(self) -> None:
        new: list[int] = []
        unresolved: set[int] = set()
        while self.left and (len(new) < self.window or unresolved):
            node, waits = self.left.pop(0)
            new.append(node)
            self.held[node] = waits
            self.read.add(node)
            unresolved = {
                other for one in new for other in self.held[one] if other not in self.read
            }
        assert not unresolved, "only traces that are whole are given"
        self.ready += sorted(node for node in new if self.is_free(node))

    def is_free(self, node: int) -> bool:
        return all(other in self.ended for other in self.held[node])

    def take(self) -> int | None:
        while not self.ready and not self.in_flight and self.left:
            self.read_window()
        if not self.ready:
            return None
        place = {"id": self.ready.index(min(self.ready)), "fifo": 0, "lifo": -1}[self.policy]
        node = self.ready.pop(place)
        self.in_flight.add(node)
        return node

    def put_back(self, node: int) -> None:
        self.in_flight.remove(node)
        self.ready.append(node)

    def end(self, node: int) -> None:
        self.in_flight.remove(node)
        self.ended.add(node)
        for child, waits in self.held.items():  # in the order of the file
            if node in waits and self.is_free(child):
                self.ready.append(child)

    def remove(self, *nodes: int) -> None:
        for node in nodes:
            del self.held[node]
        if len(self.held) < self.window and self.left:
            self.read_window()
