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
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.chakra_messages import attribute_value, read_messages

THREAD_NODE = "[pytorch|profiler|execution_trace|thread]"
GAP_US = 1000  # a thread that pauses for longer is taken to wait for another one

Json = dict[str, Any]


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
    def gap_sources(self) -> dict[int, int]:
        """What the gap rule lets each host operation wait for: position to function id.

        What follows a pause of over 1000 us depends, with all up to the next pause, on the
        operation of another thread that starts last before it.
        """
        starts = {thread: [op.start for op in ops] for thread, ops in self.threads.items()}
        found: dict[int, int] = {}
        for thread, ops in self.threads.items():
            source, last = 0, None
            for op in ops:
                if last is None or op.start - last.start - last.duration > GAP_US:
                    source = self._latest_elsewhere(thread, op.start, starts)
                if source:
                    found[op.position] = source
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


def peer_exclusive_us(ops: Iterable[Event]) -> dict[int, float]:
    """Work out exclusive times of one thread as the linker does: position to us.

    Of operations that start together the shortest comes first, and only what comes after an
    operation and ends within it is taken off it: an operation keeps the time of one nested
    in it that starts with it. All in float64, as the differences are far larger numbers.
    """
    ordered = sorted(ops, key=lambda op: (op.start, op.duration))
    found = {}
    for at, op in enumerate(ordered):
        nested = []
        for later in ordered[at + 1 :]:
            if later.end <= op.end:
                nested.append((later.start, later.end))
            if op.end < later.start:
                break
        found[op.position] = _without(op.duration, nested)
    return found


def exclusive_ns(spans: Sequence[tuple[int, int]], *, shortest_first: bool = False) -> list[int]:
    """Work out the same in whole ns, for spans in order of start: with the longest first.

    ``shortest_first`` keeps the linker's order of those that start together.
    """
    sign = 1 if shortest_first else -1
    ordered = sorted(range(len(spans)), key=lambda i: (spans[i][0], sign * spans[i][1]))
    found = [0] * len(spans)
    for at, one in enumerate(ordered):
        start, end = spans[one]
        nested = []
        for other in ordered[at + 1 :]:
            if spans[other][0] > end:
                break
            if spans[other][1] <= end:
                nested.append(spans[other])
        found[one] = int(_without(end - start, nested))
    return found


def innermost_ns(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Give each moment of a thread to the operation open in it that began last.

    ``spans`` are in order of start, the longest first.
    """
    found = [0] * len(spans)
    open_spans: list[int] = []
    time = 0
    moments = [(start, end - start, i) for i, (start, end) in enumerate(spans)]
    for start, _, i in [*moments, (1 << 62, 0, -1)]:
        while open_spans and spans[open_spans[-1]][1] <= start:
            ended = open_spans.pop()
            found[ended] += max(spans[ended][1] - time, 0)
            time = max(time, spans[ended][1])
        if open_spans:
            found[open_spans[-1]] += start - time
        time = start
        open_spans.append(i)
    return found


def _without(duration: float, nested: list[tuple[float, float]]) -> float:
    """Take the union of the nested spans off a duration, one after the other."""
    left = duration
    merged: list[tuple[float, float]] = []
    for start, end in sorted(nested, key=lambda span: span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    for start, end in merged:
        left -= end - start
    return left
