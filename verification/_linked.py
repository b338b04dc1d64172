"""Nadi's trace in plain Python: columns as lists, and what its dependencies imply."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from _reach import Reach

import nadi


class Linked:
    """Nadi's trace as lists by row, and what its dependencies imply.

    Attributes
    ----------
    values
        By name, the columns of the nodes that are looked at.
    start, end
        Times of each row in ns; -1 and less without one.
    deps
        Source row, destination row and kind of each dependency.
    """

    def __init__(self, trace: nadi.Trace) -> None:
        self.trace = trace
        columns = ("id", "parent", "start", "duration", "exclusive", "thread", "device", "stream",
                   "event", "rf_id", "correlation", "sequence", "comm_bytes", "group",
                   "is_cpu")  # fmt: skip
        self.values = {name: trace.nodes[name].to_list() for name in columns}
        texts = ("name", "kind", "category", "comm_type")
        self.values |= {name: trace.nodes[name].cast(str).to_list() for name in texts}
        self.start: list[int] = self.values["start"]
        self.end: list[int] = [
            start + duration
            for start, duration in zip(self.start, self.values["duration"], strict=True)
        ]
        self.deps = list(trace.deps.select("src", "dst", "kind").iter_rows())

    def edges(self) -> list[tuple[int, int]]:
        """Give what comes before what: the start of row r is vertex 2 r, its end 2 r + 1.

        Device work is first told what is before it on its stream, so that paths follow it.
        In which order a group's communication was asked for (comm) says nothing of when: gloo's
        threads may begin what was asked for later first.
        """
        start, end = self.start, self.end
        found = [(2 * row, 2 * row + 1) for row in range(len(start))]
        for src, dst, kind in sorted(self.deps, key=lambda dep: dep[2] != "stream"):
            if kind == "comm":
                continue
            if kind == "sync":  # a large copy may outlive the call that it holds up
                found.append((2 * src + (end[src] <= end[dst]), 2 * dst + 1))
            elif kind in ("call", "launch"):
                found.append((2 * src, 2 * dst))
            elif kind in ("order", "stream"):  # of two that overlap the first only begins first
                found.append((2 * src + (end[src] <= start[dst]), 2 * dst))
            else:
                found.append((2 * src + 1, 2 * dst))
            if kind == "call" and end[dst] <= end[src]:
                found.append((2 * dst + 1, 2 * src + 1))
        return found

    @cached_property
    def reach(self) -> Reach:
        """Which start or end comes before which, by all dependencies together."""
        return Reach(2 * len(self.start), self.edges())

    @cached_property
    def waits(self) -> dict[int, list[tuple[int, str]]]:
        """What each row waits for, and the kind of the dependency."""
        found: dict[int, list[tuple[int, str]]] = {}
        for src, dst, kind in self.deps:
            found.setdefault(dst, []).append((src, kind))
        return found

    def ancestors(self, row: int) -> Iterator[int]:
        """Give what a row lies in, from the inside out."""
        while (row := self.values["parent"][row]) >= 0:
            yield row

    def asked_for(self, row: int) -> tuple[bool, int, int]:
        """Give what orders communications as they were asked for: ids on the host, else times.

        A record function has its id from when it is made; kernels of one group start in the
        order of their launches.
        """
        on_host = self.values["is_cpu"][row]
        return on_host, self.values["rf_id"][row] if on_host else -1, self.start[row]

    def same(self, one: int, other: int, *columns: str) -> bool:
        """Tell whether two rows are equal in the columns."""
        return all(self.values[column][one] == self.values[column][other] for column in columns)

    def implies(self, src: int, dst: int) -> bool:
        """Tell whether dst follows src: its end, but its start if src encloses dst."""
        encloses = src in self.ancestors(dst)
        return self.reach.leads(2 * src + (not encloses), 2 * dst)
