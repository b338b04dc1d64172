"""A golden answer of Chakra's tools beside Nadi's trace of the same pair of files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from _chakra import Answer, Event, Recording
from _linked import Linked

import nadi


class Pair:
    """What each node of the linker is in Nadi's trace.

    Attributes
    ----------
    answer
        What the peers answered.
    recording
        The device file, read by Python's json module.
    ours
        Nadi's trace.
    row
        By the linker's node, the row in Nadi's trace: of host operations by their ids, which
        the linker renumbers in order from 0; of device work by name, start and duration.
    node
        The reverse.
    """

    def __init__(self, answer: Answer, host: Path, device: Path) -> None:
        self.answer, self.recording = answer, Recording(device)
        host_trace = nadi.read(host)
        self.ours = Linked(nadi.link_pair(host_trace, nadi.read(device)))
        row_of_id = {number: row for row, number in enumerate(self.ours.values["id"])}
        host_nodes = sorted(node for node in answer.nodes if not answer.is_device(node))
        ids = sorted(host_trace.nodes["id"].to_list())
        rows = {node: row_of_id.get(i, -1) for node, i in zip(host_nodes, ids, strict=False)}
        self.row_of_event = {e: row for row, e in enumerate(self.ours.values["event"]) if e >= 0}
        position = {
            (event.name, event.start, event.duration): event.position
            for event in self.recording.events.values()
            if event.is_device_op
        }
        for number, node in answer.nodes.items():
            if answer.is_device(number):
                key = node["name"], node["ts"], node["inclusive_dur"]
                rows[number] = self.row_of_event.get(position.get(key, -1), -1)
        self.row = {node: row for node, row in rows.items() if row >= 0}
        self.node = {row: node for node, row in self.row.items()}

    def event(self, row: int) -> Event | None:
        """Give the event of the device file that a row comes from."""
        return self.recording.events.get(self.ours.values["event"][row])

    def is_profiler_step(self, node: int) -> bool:
        """Tell whether a node marks a step: the linker gives it no time."""
        return bool(self.answer.nodes[node]["name"].startswith("ProfilerStep"))

    def is_untimed(self, node: int) -> bool:
        """Tell whether a host node has no event in the device file."""
        if self.is_profiler_step(node) or self.answer.is_device(node):
            return False
        return self.answer.attribute(node, "rf_id") not in self.recording.host_op_of_id

    def rule_without_time(self, node: int) -> str:
        """Name the rule why the linker gives a node no time, if Nadi follows it."""
        row = self.row[node]
        if self.is_untimed(node):
            return "untimed" if self.ours.start[row] < 0 else ""
        event = self.event(row)
        if self.is_profiler_step(node) and event is not None:
            end = Decimal(repr(event.start)) + Decimal(repr(event.duration))
            right = end * 1000 == self.ours.end[row] - self.recording.origin
            return "profiler-step" if right else ""
        return ""

    def say(self, node: int, theirs: Any, ours: Any) -> str:
        """Say what differs at a node."""
        name = self.answer.nodes[node]["name"][:50]
        return f"node {node} ({name}): {theirs!r}, Nadi {ours!r}"
