"""What Chakra's linker and converter answered, and the rules by which they did.

The rules are those of ``chakra_trace_link`` and ``chakra_converter`` 1.0.0, worked out here
once more from the recording, in floating point and in the order that they work in. Where a
result of Nadi differs from theirs, this says which rule their figure came from.
"""

from __future__ import annotations

import gzip
import json
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.chakra_messages import (
    COLLECTIVE_TYPES,
    NODE_TYPES,
    attribute_value,
    read_messages,
)

__all__ = [
    "COLLECTIVE_TYPES",
    "NODE_TYPES",
    "THREAD_NODE",
    "Answer",
    "Event",
    "Exclusive",
    "Recording",
    "exclusive_by_rule",
]

THREAD_NODE = "[pytorch|profiler|execution_trace|thread]"
GAP_US = 1000  # a thread that pauses for longer is taken to wait for another one

Json = dict[str, Any]
Span = tuple[Any, Any, Any]  # start, end, length: float us or int ns


def content_of(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored


class Answer:
    """The linker's ``et_plus.json.gz`` and the converter's ``out.et.gz`` of one recording.

    ``nodes`` are the linker's by id, ``messages`` the converter's.
    """

    def __init__(self, folder: Path) -> None:
        linked = json.loads(content_of(folder / "et_plus.json.gz"))
        self.nodes: dict[int, Json] = {node["id"]: node for node in linked["nodes"]}
        _, messages = read_messages(content_of(folder / "out.et.gz"))
        self.messages: dict[int, Any] = {message.id: message for message in messages}

    def is_device(self, node: int) -> bool:
        return "cat" in self.nodes[node]

    def attribute(self, node: int, name: str) -> Any:
        """Give what the linker says of a node, or None."""
        return next((a["value"] for a in self.nodes[node]["attrs"] if a["name"] == name), None)

    def message_attributes(self, node: int) -> dict[str, Any]:
        return {a.name: attribute_value(a)[1] for a in self.messages[node].attr}

    @cached_property
    def before_on_thread(self) -> dict[int, int]:
        """The host node before each in the walk that the converter takes: by call and id."""
        children: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self.nodes):
            parent = self.nodes[number]["ctrl_deps"]
            if parent != number and not self.is_device(number):
                children[parent].append(number)
        before = {}
        for root in (n for n, node in self.nodes.items() if node["name"] == THREAD_NODE):
            open_nodes, last = [root], -1
            while open_nodes:
                number = open_nodes.pop()
                if last >= 0:
                    before[number] = last
                last = number
                open_nodes.extend(reversed(children[number]))
        return before


@dataclass(frozen=True)
class Event:
    """One event of a device file with a duration; times in us, as a float64 holds them."""

    position: int
    name: str
    category: str
    start: float
    duration: float
    thread: Any
    args: Json

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def is_host_op(self) -> bool:
        """Whether the linker takes it for work of the host."""
        known = self.category in ("cpu_op", "user_annotation")
        return known and not self.name.startswith("ProfilerStep")

    @property
    def is_device_op(self) -> bool:
        """Whether the linker takes it for work of a device."""
        return self.category in ("kernel", "gpu_memcpy")


class Recording:
    """A device file as Python's json module reads it: ``events`` by position in the file."""

    def __init__(self, path: Path) -> None:
        file = json.loads(content_of(path))
        self.origin: int = file.get("baseTimeNanoseconds", 0)
        self.events: dict[int, Event] = {
            position: Event(
                position, e["name"], e.get("cat", ""), e["ts"], e.get("dur", 0), e.get("tid"),
                e.get("args", {}),
            )
            for position, e in enumerate(file["traceEvents"])
            if e.get("ph") == "X"
        }  # fmt: skip

    @cached_property
    def threads(self) -> dict[Any, list[Event]]:
        """The linker's host operations of each thread, in order of start, then of the file."""
        by_start = sorted(self.events.values(), key=lambda event: event.start)
        threads: dict[Any, list[Event]] = defaultdict(list)
        for event in by_start:
            if event.is_host_op:
                threads[event.thread].append(event)
        return threads

    @cached_property
    def host_op_of_id(self) -> dict[int, Event]:
        """The host operation of each record function id; of several the last."""
        known = (event for ops in self.threads.values() for event in ops)
        by_id = sorted(known, key=lambda event: event.start)
        return {
            event.args["Record function id"]: event
            for event in by_id
            if "Record function id" in event.args
        }

    @cached_property
    def gap_sources(self) -> dict[int, tuple[int, Event]]:
        """What the gap rule lets each host operation wait for, by position.

        What follows a pause of over 1000 us depends, with all up to the next pause, on the
        operation of another thread that starts last before it: its function id is given,
        and the operation that is the first after the pause.
        """
        starts = {thread: [op.start for op in ops] for thread, ops in self.threads.items()}
        found: dict[int, tuple[int, Event]] = {}
        for thread, ops in self.threads.items():
            first, last = ops[0], None
            for op in ops:
                if last is None or op.start - last.start - last.duration > GAP_US:
                    first, source = op, self._latest_elsewhere(thread, op.start, starts)
                if source:
                    found[op.position] = source, first
                last = op
        return found

    def _latest_elsewhere(self, thread: Any, time: float, starts: Mapping[Any, list[float]]) -> int:
        latest, source = 0.0, 0
        for other, ops in self.threads.items():
            at = bisect_left(starts[other], time) - 1
            if other == thread or at < 0 or starts[other][at] <= latest:
                continue
            latest = starts[other][at]
            first = bisect_left(starts[other], latest)
            source = ops[first].args.get("Record function id", 0)
        return source


@dataclass(frozen=True)
class Exclusive:
    """The exclusive time of one operation by several rules.

    Attributes
    ----------
    peer_us
        As the linker works it out, in float64 us. Of operations that start together the
        shortest comes first, and only what comes after an operation and ends within it is
        taken off it: an operation keeps the time of one nested in it that starts with it.
    peer, repaired
        By the same rule in whole ns; and by that rule with the longest first.
    right
        The time in which the operation is the one open on its thread that began last, in ns.
    """

    peer_us: float
    peer: int
    repaired: int
    right: int


def exclusive_by_rule(recording: Recording) -> dict[int, Exclusive]:
    """Work out exclusive times of the linker's host operations, by position of the event."""
    found = {}
    for ops in recording.threads.values():
        us = [(op.start, op.end, op.duration) for op in ops]
        starts = [_whole_ns(op.start) for op in ops]
        lengths = [_whole_ns(op.duration) for op in ops]
        ns = [(s, s + length, length) for s, length in zip(starts, lengths, strict=True)]
        rank = [(op.category == "cpu_op", op.position) for op in ops]
        results = (
            _less_nested(us, sorted(range(len(ops)), key=lambda i: (us[i][0], us[i][2]))),
            _less_nested(ns, sorted(range(len(ops)), key=lambda i: (ns[i][0], ns[i][2]))),
            _less_nested(ns, longest := sorted(
                range(len(ops)), key=lambda i: (ns[i][0], -ns[i][2], rank[i])
            )),
            _innermost(ns, longest),
        )  # fmt: skip
        for op, *figures in zip(ops, *results, strict=True):
            found[op.position] = Exclusive(*figures)
    return found


def _whole_ns(us: float) -> int:
    return int(Decimal(repr(us)) * 1000)


def _less_nested(spans: Sequence[Span], order: Sequence[int]) -> list[Any]:
    """Take off each span (start, end, length) what comes after it in order and ends in it."""
    found: list[Any] = [0] * len(spans)
    for at, one in enumerate(order):
        _, end, left = spans[one]
        nested = []
        for other in order[at + 1 :]:
            if spans[other][1] <= end:
                nested.append(spans[other])
            if end < spans[other][0]:
                break
        for begin, finish in _union(nested):
            left -= finish - begin
        found[one] = left
    return found


def _union(spans: Iterable[Span]) -> list[tuple[Any, Any]]:
    merged: list[tuple[Any, Any]] = []
    for start, end, _ in sorted(spans, key=lambda span: span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _innermost(spans: Sequence[Span], order: Sequence[int]) -> list[int]:
    """Give each moment to the span open in it that comes last in order, which is by start."""
    found = [0] * len(spans)
    open_spans: list[int] = []
    time = 0

    def close_before(moment: int) -> None:
        nonlocal time
        while open_spans and spans[open_spans[-1]][1] <= moment:
            ended = open_spans.pop()
            found[ended] += max(spans[ended][1] - time, 0)
            time = max(time, spans[ended][1])

    for one in order:
        close_before(spans[one][0])
        if open_spans:
            found[open_spans[-1]] += spans[one][0] - time
        time = spans[one][0]
        open_spans.append(one)
    close_before(max((end for _, end, _ in spans), default=0))
    return found
