"""What an importer makes of Perfetto's packets, read by the protobuf package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.reference.perfetto_messages import parse

__all__ = ["Slice", "Timeline", "load"]

BEGIN, END, COUNTER = 1, 2, 4


@dataclass
class Slice:
    name: str
    category: str
    start: int
    track: int
    notes: dict[str, Any]
    end: int = -1


@dataclass
class Timeline:
    """What an importer makes of the packets."""

    slices: list[Slice] = field(default_factory=list)
    tracks: dict[int, Any] = field(default_factory=dict)
    flows: list[tuple[Slice, Slice]] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)
    counters: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


def load(content: bytes) -> Timeline:
    """Import packets as trace_processor does: in order of time, equal times as they stand."""
    packets = parse(content)
    timeline = Timeline()
    texts: dict[int, dict[str, dict[int, str]]] = {}
    for packet in packets:
        sequence = packet.trusted_packet_sequence_id
        assert sequence > 0
        if packet.HasField("interned_data"):
            assert packet.sequence_flags == 1
            texts[sequence] = {
                kind.name: {text.iid: text.name for text in table}
                for kind, table in packet.interned_data.ListFields()
            }
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            assert described.uuid not in timeline.tracks
            assert described.parent_uuid == 0 or described.parent_uuid in timeline.tracks
            timeline.tracks[described.uuid] = described
        for clock in packet.clock_snapshot.clocks:
            timeline.clocks[clock.clock_id] = clock.timestamp
    events = [packet for packet in packets if packet.HasField("track_event")]
    for packet in events:
        event = packet.track_event
        if event.type == COUNTER:
            assert timeline.tracks[event.track_uuid].HasField("counter")
            timeline.counters[event.track_uuid].append((packet.timestamp, event.counter_value))
    events = [packet for packet in events if packet.track_event.type != COUNTER]
    assert [e.timestamp for e in events] == sorted(e.timestamp for e in events)
    _import_events(events, texts, timeline)
    return timeline


def _import_events(
    events: Sequence[Any], texts: dict[int, dict[str, dict[int, str]]], timeline: Timeline
) -> None:
    stacks: dict[int, list[Slice]] = defaultdict(list)
    flows: dict[int, Slice] = {}
    for packet in events:
        assert packet.sequence_flags == 2
        event, known = packet.track_event, texts[packet.trusted_packet_sequence_id]
        stack = stacks[event.track_uuid]
        assert event.track_uuid in timeline.tracks
        if event.type == BEGIN:
            (category,) = event.category_iids
            current = Slice(
                known["event_names"][event.name_iid],
                known["event_categories"][category],
                packet.timestamp,
                event.track_uuid,
                _notes(event, known),
            )
            stack.append(current)
            timeline.slices.append(current)
        else:
            assert event.type == END
            current = stack.pop()
            current.end = packet.timestamp
        for flow in event.terminating_flow_ids:
            timeline.flows.append((flows.pop(flow), current))
        for flow in event.flow_ids:
            assert flow not in flows
            flows[flow] = current
    assert not flows
    assert not any(stacks.values())


def _notes(event: Any, known: dict[str, dict[int, str]]) -> dict[str, Any]:
    return {
        known["debug_annotation_names"][note.name_iid]: (
            note.int_value
            if note.HasField("int_value")
            else known["debug_annotation_string_values"][note.string_value_iid]
        )
        for note in event.debug_annotations
    }
