"""HTA's graph and path, event by event in plain Python: slow, and read beside the rules.

Events are rows of ``nadi.analyses.hta.recorded_fields.parse_events`` as dictionaries; times are ns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

Event = dict[str, Any]
LOCKING = {"cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"}
BLOCKING = {
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery", "cudaEventSynchronize",
    "cudaMemcpy", "cudaMemcpyAsync",
}  # fmt: skip
LAUNCHING = {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"}  # those that tests write


@dataclass
class Graph:
    """Nodes are (index of the event, is end); edges in the order in which they were added."""

    events: dict[int, Event]
    order: list[tuple[int, bool]]
    edges: dict[tuple[Any, Any], tuple[str, int, int]] = field(default_factory=dict)

    def time(self, node: tuple[int, bool]) -> int:
        event = self.events[node[0]]
        return int(event["start"] + (event["duration"] if node[1] else 0))

    def has(self, index: int) -> bool:
        return (index, True) in self._nodes

    @property
    def _nodes(self) -> set[tuple[int, bool]]:
        return set(self.order)

    def add(
        self, begin: Any, end: Any, kind: str, event: int = -1, weight: int | None = None
    ) -> None:
        if weight is None:
            weightless = kind in ("DEPENDENCY", "SYNC_DEPENDENCY")
            weight = 0 if weightless else self.time(end) - self.time(begin)
        self.edges[begin, end] = (kind, weight, event)  # in the place of one that was there


def build(clipped: list[Event], every: list[Event], *, zero_weight: bool) -> Graph:
    """Build the graph of the events in a window."""
    events = {event["index"]: event for event in clipped}
    nodes = [
        (index, is_end)
        for index, event in events.items()
        if event["category"] in ("operator", "runtime", "driver")
        or (event["stream"] != -1 and event["partner"] >= 0)
        for is_end in (False, True)
    ]
    graph = Graph(events, nodes)
    graph.order = sorted(nodes, key=lambda node: (graph.time(node), *node))
    lock(graph)
    for thread in sorted({(e["process"], e["thread"]) for e in clipped}):
        stack(graph, [e for e in clipped if (e["process"], e["thread"]) == thread])
    device(graph, every, zero_weight=zero_weight)
    return graph


def lock(graph: Graph) -> None:
    """L1."""
    opened: list[int] = []
    last = None
    for index, is_end in graph.order:
        if graph.events[index]["name"] not in LOCKING:
            continue
        if is_end:
            while opened:
                other = opened.pop()
                if other == index:
                    graph.add((other, False), (index, True), "OPERATOR_KERNEL", index)
                else:
                    graph.add((other, False), (index, True), "DEPENDENCY")
            if last is not None and last[1]:
                graph.add(last, (index, True), "DEPENDENCY")
        else:
            opened.append(index)
        last = (index, is_end)


@dataclass
class Span:
    """An event in the tree of a thread."""

    event: Event | None
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)


def tree(events: list[Event]) -> Span:
    """C2."""
    bounds = [(e["start"], 1, -e["duration"], e["index"], e) for e in events]
    bounds += [(e["start"] + e["duration"], 0, e["duration"], -e["index"], e) for e in events]
    root = here = Span(None)
    for _, is_start, _, _, event in sorted(bounds, key=lambda bound: bound[:4]):
        if is_start:
            child = Span(event, here)
            here.children.append(child)
            here = child
        else:
            assert here.parent is not None
            here = here.parent
    return root


def visits(span: Span) -> Iterator[tuple[Span, bool]]:
    """Go through a tree depth first: each event when it is entered, and when it is left."""
    for child in span.children:
        yield child, False
        yield from visits(child)
        yield child, True


def stack(graph: Graph, events: list[Event]) -> None:
    """C1, C3 to C5, L2."""
    if any(event["stream"] >= 0 for event in events):
        return
    depth, last = 0, None
    spans: dict[int, Span] = {}
    for span, is_end in visits(tree(events)):
        assert span.event is not None
        index = span.event["index"]
        if not graph.has(index):
            continue
        node = (index, is_end)
        depth -= is_end
        if last is not None:
            before, after_end = last
            locked = {graph.events[i]["name"] for i in (before, index)} <= LOCKING
            if not locked or (after_end and not is_end):
                outermost = not is_end and depth == 0
                parent = spans[before].parent
                around = parent.event["index"] if parent and parent.event else -1
                event = before if not after_end else index if is_end else around
                weight = 0 if is_end and span.event["name"] in BLOCKING else None
                kind = "DEPENDENCY" if outermost else "OPERATOR_KERNEL"
                graph.add(last, node, kind, -1 if outermost else event,
                          0 if outermost else weight)  # fmt: skip
        depth += not is_end
        spans[index] = span
        last = node


def queue(every: list[Event]) -> dict[tuple[int, bool], int]:
    """G3: the length of the queue after each call came (False) and each work left (True)."""
    by_index = {event["index"]: event for event in every}
    changes = defaultdict(list)
    for event in every:
        if event["name"] in LAUNCHING and event["partner"] > 0 and event["partner"] in by_index:
            work = by_index[event["partner"]]
            changes[work["stream"]].append((event["start"], False, event["index"]))
            changes[work["stream"]].append((work["start"], True, work["index"]))
    lengths = {}
    place = {event["index"]: number for number, event in enumerate(every)}
    for found in changes.values():
        length = 0
        for _, leaves, index in sorted(found, key=lambda c: (c[0], c[1], place[c[2]])):
            length += -1 if leaves else 1
            lengths[index, leaves] = length
    return lengths


def device(graph: Graph, every: list[Event], *, zero_weight: bool) -> None:
    """G1 to G7, S1 to S4."""
    lengths = queue(every)
    work = [
        event for event in graph.events.values()
        if event["partner"] >= 0
        and (event["stream"] != -1 or event["name"] in ("Event Sync", "Context Sync"))
    ]  # fmt: skip
    work.sort(key=lambda e: e["start"] + (e["duration"] if e["category"] == "sync" else 0))
    last: dict[int, Event] = {}
    waits: dict[int, Event] = {}
    for event in work:
        if event["category"] == "sync":
            synchronize(graph, every, event, last, waits)
            continue
        start, end = (event["index"], False), (event["index"], True)
        graph.add(start, end, "OPERATOR_KERNEL", event["index"])
        call, before = event["partner"], last.get(event["stream"])
        source = waits.get(event["index"])
        if source is not None:
            graph.add((source["index"], True), start, "SYNC_DEPENDENCY")
        launched = graph.events[call]["start"] if graph.has(call) else None
        is_first = lengths.get((call, False)) == 1 and lengths.get((event["index"], True)) == 0
        delayed = launched is not None and is_first and all(
            graph.time((e["index"], True)) < launched for e in (before, source) if e is not None
        )  # fmt: skip
        if delayed:
            graph.add((call, False), start, "KERNEL_LAUNCH_DELAY")
        elif before is not None:
            ended = graph.time((before["index"], True))
            later = source is not None and graph.time((source["index"], True)) > ended
            if event["start"] - ended < 1_500_000 and not later:
                graph.add((before["index"], True), start, "KERNEL_KERNEL_DELAY", before["index"])
        if zero_weight and not delayed and launched is not None:
            graph.add((call, False), start, "KERNEL_LAUNCH_DELAY", weight=0)
        last[event["stream"]] = event


def synchronize(
    graph: Graph, every: list[Event], event: Event, last: dict[int, Event], waits: dict[int, Event]
) -> None:
    """S1 to S4."""
    call = event["partner"]
    if event["name"] == "Stream Wait Event":
        source = recorded(graph, every, event)
        after = next_launched(graph, every, event)
        # what was gone through before this does not wait any more
        if source and after and after["index"] not in {e["index"] for e in done(graph)}:
            waits[after["index"]] = source
        return
    found = [recorded(graph, every, event)] if event["name"] == "Event Sync" else [
        e for stream, e in last.items()
        if event["name"] == "Context Sync" or stream == event["stream"]
    ]  # fmt: skip
    for source in found:
        if source is not None and graph.has(call):
            graph.add((source["index"], True), (call, True), "SYNC_DEPENDENCY")


def done(graph: Graph) -> Iterator[Event]:
    """Give the device work that was gone through: it has its edge."""
    for index, event in graph.events.items():
        if event["stream"] != -1 and ((index, False), (index, True)) in graph.edges:
            yield event


def launches(every: list[Event]) -> Iterator[tuple[Event, Event]]:
    by_index = {event["index"]: event for event in every}
    for event in every:
        if event["name"] in LAUNCHING and event["partner"] in by_index:
            yield event, by_index[event["partner"]]


def recorded(graph: Graph, every: list[Event], event: Event) -> Event | None:
    """S2."""
    records = [
        e for e in graph.events.values()
        if e["name"] == "cudaEventRecord" and e["correlation"] == event["waits_on_record"]
    ]  # fmt: skip
    if event["waits_on_stream"] < 0 or not records:
        return None
    place = (event["waits_on_stream"], event["process"])
    found = None
    for call, work in launches(every):
        fits = (work["stream"], work["process"]) == place
        if fits and call["start"] <= records[0]["start"]:
            found = (call, work) if not found or call["start"] >= found[0]["start"] else found
    return found[1] if found and graph.has(found[1]["index"]) else None


def next_launched(graph: Graph, every: list[Event], event: Event) -> Event | None:
    """S4."""
    wait = graph.events.get(event["partner"])
    if wait is None:
        return None
    found = None
    for call, work in launches(every):
        same = all(call[key] == wait[key] for key in ("process", "thread"))
        if same and work["stream"] == event["stream"] and call["start"] > wait["start"]:
            found = (call, work) if not found or call["start"] < found[0]["start"] else found
    return graph.events.get(found[1]["index"]) if found else None


def longest(graph: Graph) -> list[tuple[int, bool]]:
    """R1."""
    path: list[tuple[int, bool]] = nx.dag_longest_path(_weighted(graph))
    return path


def has_cycle(graph: Graph) -> bool:
    """Tell whether something waits for itself."""
    return not nx.is_directed_acyclic_graph(_weighted(graph))


def _weighted(graph: Graph) -> Any:
    found = nx.DiGraph()
    for (begin, end), (_, weight, _) in graph.edges.items():
        found.add_edge(begin, end, weight=0 if weight <= -1000 else weight)
    return found
