"""Changes of random graphs, against slow ones that go through the edges one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.errors import NadiError
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.trace.schema import DEPS
from tests.amounts import ALL, examples
from tests.analyze.random_replays import ON_DEVICE, operations

K = EdgeKind
WORK = (K.HOST_OP, K.HOST_GAP, K.KERNEL, K.COMMUNICATION)


class Edge(NamedTuple):
    """An edge of the graph."""

    src: int
    dst: int
    weight: int
    kind: int
    op: int


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    return operations(tmp_path_factory.mktemp("two_ranks"))


def random_graph(graph: EventGraph, seed: int) -> EventGraph:
    """Draw what is nested in what, what launches what, and waits; times are small."""
    rng = Random(seed)
    kept = np.array([rng.random() < 0.85 for _ in range(graph.num_ops)])
    kept[rng.randrange(graph.num_ops)] = True
    graph = graph.of_operations(kept, np.flatnonzero(np.repeat(kept, 2)))
    num_ops = graph.num_ops
    is_work = [category in ON_DEVICE for category in graph.gather("category").to_list()]
    trace = graph.op_trace.tolist()
    hosts = [op for op in range(num_ops) if not is_work[op]]
    parent = [-1] * num_ops
    for op in rng.sample(hosts, 2 * len(hosts) // 3):
        outer = [other for other in hosts if other < op and trace[other] == trace[op]]
        parent[op] = rng.choice([*outer, -1])
    place = [rng.random() for _ in range(2 * num_ops + 2)]
    for op in range(num_ops):
        place[2 * op : 2 * op + 2] = sorted(place[2 * op : 2 * op + 2])
    edges: list[Edge] = []
    deps: list[list[tuple[int, int]]] = [[] for _ in graph.job.traces]

    def add(src: int, dst: int, kind: EdgeKind, op: int) -> bool:
        weight = rng.choice((0, 1, 1, 2, 3, 5, 8))
        fits = place[src] < place[dst]
        if fits:
            edges.append(Edge(src, dst, weight, kind, op))
        return fits

    works = [op for op in range(num_ops) if is_work[op]]
    streams: dict[tuple[int, int, int], list[int]] = {}
    device = graph.gather("device").to_list()
    for op in sorted(works, key=lambda op: place[2 * op]):
        queue = streams.setdefault((trace[op], device[op], int(graph.op_stream[op])), [])
        if queue and rng.random() < 0.8:
            add(2 * queue[-1] + 1, 2 * op, K.STREAM, op)
        queue.append(op)
        add(2 * op, 2 * op + 1, K.KERNEL, op)
        callers = [host for host in hosts if trace[host] == trace[op]]
        if callers and rng.random() < 0.85:
            call = rng.choice(callers[-3:])
            if rng.random() < 0.8:
                add(2 * call + rng.randrange(2), 2 * op, K.LAUNCH, op)
            if rng.random() < 0.9:
                deps[trace[op]].append((int(graph.op_row[call]), int(graph.op_row[op])))
    for _ in range(rng.randint(0, 14)):
        kind = rng.choice((K.HOST_OP, K.HOST_OP, K.HOST_GAP, K.SYNC, K.THREAD, K.THREAD, K.ADDED))
        one, other = rng.randrange(num_ops), rng.randrange(num_ops)
        if kind in (K.HOST_OP, K.HOST_GAP) and hosts:
            one, other = rng.choice(hosts), rng.choice(hosts)
            op = one if kind == K.HOST_OP else parent[one]
            add(2 * one + rng.randrange(2), 2 * other + rng.randrange(2), kind, op)
        elif kind == K.SYNC and works:
            add(
                2 * rng.choice(works) + rng.choice((1, 1, 0)),
                2 * other + rng.randrange(2),
                kind,
                other,
            )
        else:
            add(2 * one + 1, 2 * other, K.THREAD if kind == K.THREAD else K.ADDED, other)
    for op in rng.sample(range(num_ops), min(4, num_ops)):
        hub = 2 * num_ops + rng.randrange(2)
        add(2 * op, hub, K.ARRIVAL, op)
        add(hub, 2 * op + 1, K.COMMUNICATION, op)
    traces = tuple(
        replace(one, deps=deps_of(dict.fromkeys(((a, b, "launch") for a, b in pairs), False)))
        for one, pairs in zip(graph.job.traces, deps, strict=True)
    )
    delay = np.array([rng.choice((0, 0, 1, 4)) for _ in range(2 * num_ops)])
    job = replace(graph.job, traces=traces)
    graph = replace(graph, job=job, op_parent=np.array(parent), delay=delay)
    graph = graph.with_edges(as_columns(edges), 2)
    return replace(graph, time=nadi.graph.replay_graph(graph).time)


def deps_of(found: dict[tuple[int, int, str], bool]) -> pl.DataFrame:
    """Make a table of dependencies: source, destination and kind, and whether it is inferred."""
    columns = {
        "src": np.array([a for a, _, _ in found], dtype=np.int64),
        "dst": np.array([b for _, b, _ in found], dtype=np.int64),
        "kind": [kind for _, _, kind in found], "inferred": list(found.values()),
    }  # fmt: skip
    return DEPS.build(len(found), columns)


def as_columns(edges: list[Edge]) -> Edges:
    return Edges(*np.array(edges, dtype=np.int64).reshape(-1, 5).T)


@dataclass
class Facts:
    """A graph as lists, and what a slow change makes of them."""

    graph: EventGraph
    since: int
    edges: list[Edge] = field(init=False)
    delay: list[int] = field(init=False)
    stream: list[int] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        columns = [np.asarray(column).tolist() for column in graph.edges]
        self.edges = [Edge(*row) for row in zip(*columns, strict=True)]
        self.delay = graph.delay.tolist()
        self.stream = graph.op_stream.tolist()
        self.ops = range(graph.num_ops)
        self.time = graph.time.tolist()
        self.name = graph.op_names.to_list()
        self.parent = graph.op_parent.tolist()
        self.trace = graph.op_trace.tolist()
        self.device = graph.gather("device").to_list()
        categories = graph.gather("category").to_list()
        self.on_device = [category in ON_DEVICE for category in categories]
        self.call = {e.dst // 2: e.src // 2 for e in self.edges if e.kind == K.LAUNCH}
        op_of = {
            (t, int(r)): op for op, (t, r) in enumerate(zip(self.trace, graph.op_row, strict=True))
        }
        self.recorded_call = {
            op_of[number, dst]: op_of[number, src]
            for number, trace in enumerate(graph.job.traces)
            for src, dst, *_ in trace.deps.iter_rows()
        }
        self.entered = {e.dst for e in self.edges}

    def owner(self, edge: Edge) -> int:
        """Give the operation whose time an edge is, or -1."""
        if self.starts_in_call(edge):
            return edge.src // 2
        return edge.op if edge.kind in WORK else -1

    def starts_in_call(self, edge: Edge) -> bool:
        return edge.kind == K.LAUNCH and edge.src % 2 == 0 and self.on_device[edge.dst // 2]

    def around(self, op: int) -> list[int]:
        """Give an operation, and all around it up to the outermost."""
        found = [op]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found

    def is_later(self, op: int) -> bool:
        return self.time[2 * op] >= self.since

    def weigh(self, edge: Edge, weight: int) -> None:
        self.edges[self.edges.index(edge)] = edge._replace(weight=weight)

    def drop_idle_calls(self, gone: set[int], also: set[int]) -> None:
        """Let calls whose work is all gone take no time, and wait for nothing."""
        launched = set(self.call.values())
        left = {call for work, call in self.call.items() if work not in gone}
        calls = also | {call for call in launched - left if self.is_later(call)}
        self.edges = [
            e._replace(weight=0) if e.op in calls else e for e in self.edges
            if not (e.kind == K.SYNC and e.dst % 2 and e.dst // 2 in calls)
        ]  # fmt: skip

    def made(self) -> EventGraph:
        graph = replace(self.graph, delay=np.array(self.delay), op_stream=np.array(self.stream))
        none = np.zeros(graph.num_edges, dtype=np.bool_)
        return graph.rewired(none, as_columns(self.edges), self.since)


def scale(facts: Facts, chosen: set[int]) -> bool:
    for edge in list(facts.edges):
        owner = facts.owner(edge)
        is_inside = owner >= 0 and chosen & set(facts.around(owner))
        if is_inside and facts.time[edge.src] >= facts.since:
            facts.weigh(edge, round(edge.weight * 2.5))
    return True


def set_time(facts: Facts, chosen: set[int]) -> bool:
    parts: dict[int, tuple[list[int], list[int]]] = {}
    for at, edge in enumerate(facts.edges):
        owner = facts.owner(edge)
        tops = [op for op in facts.around(owner) if op in chosen] if owner >= 0 else []
        if tops:
            beside = facts.starts_in_call(edge)
            parts.setdefault(tops[-1], ([], []))[beside].append(at)
    old = list(facts.edges)
    for top, (own, beside) in parts.items():
        whole, reached, given = sum(old[at].weight for at in own), 0, 0
        for at in beside:
            if facts.time[old[at].src] >= facts.since:
                share = round(7 * min(old[at].weight / max(whole, 1), 1))
                facts.edges[at] = old[at]._replace(weight=share)
        for at in own:
            reached += old[at].weight
            due = round(7 * reached / whole) if whole else 0
            share = due - given
            given = due
            if not whole and old[at].dst == 2 * top + 1:
                share = 7
            if facts.time[old[at].src] >= facts.since:
                facts.edges[at] = old[at]._replace(weight=share)
    return True


def no_overhead(facts: Facts, chosen: set[int]) -> bool:
    calls = {facts.call[op] for op in chosen if op in facts.call}
    facts.edges = [
        e._replace(weight=0)
        if facts.time[e.src] >= facts.since
        and ((e.kind in (K.LAUNCH, K.STREAM) and e.dst // 2 in chosen)
             or (e.kind == K.HOST_OP and e.op in calls))
        else e
        for e in facts.edges
    ]  # fmt: skip
    return bool(calls)


def remove(facts: Facts, chosen: set[int]) -> bool:
    gone: set[int] = set()
    more = set(chosen)
    while more > gone:
        gone = set(more)
        more |= {op for op in facts.ops if gone & set(facts.around(op))}
        more |= {work for work, call in facts.recorded_call.items() if call in more}
    gone = {op for op in gone if facts.is_later(op)}
    hub = 2 * len(facts.ops)
    meets = [e for e in facts.edges if e.op in gone and max(e.src, e.dst) >= hub]
    facts.edges = [e for e in facts.edges if e not in meets]
    facts.edges += [
        Edge(2 * e.op, 2 * e.op + 1, 0, K.COMMUNICATION, e.op) for e in meets if e.src >= hub
    ]
    facts.drop_idle_calls(gone, gone)
    facts.edges = [
        e._replace(weight=0) if e.kind == K.STREAM and e.dst // 2 in gone else e
        for e in facts.edges
        if not (e.kind == K.LAUNCH and e.dst // 2 in gone)
    ]
    for op in gone:
        for vertex in (2 * op, 2 * op + 1):
            if vertex in facts.entered:
                facts.delay[vertex] = 0
    return True


def fuse(facts: Facts, chosen: set[int]) -> bool:
    others = [e for e in facts.edges if e.kind in (K.SYNC, K.THREAD, K.ADDED)]
    awaited, waiting = {e.src for e in others}, {e.dst for e in others}
    pairs = [
        e for e in facts.edges
        if e.kind == K.STREAM and {e.src // 2, e.dst // 2} <= chosen
        and e.src not in awaited and e.dst not in waiting
    ]  # fmt: skip
    fused = [e for e in pairs if facts.is_later(e.src // 2) and facts.is_later(e.dst // 2)]
    follows = {e.dst // 2 for e in fused}
    facts.edges = [
        e._replace(weight=0) if e in fused else e for e in facts.edges
        if not (e.kind == K.LAUNCH and e.dst // 2 in follows)
    ]  # fmt: skip
    for op in follows:
        facts.delay[2 * op] = 0
    facts.drop_idle_calls(follows, set())
    return bool(pairs)


def capture(facts: Facts, chosen: set[int]) -> bool:
    chosen = {op for op in chosen if not facts.on_device[op]}
    top = {
        op: tops[-1] for op in facts.ops if (tops := [o for o in facts.around(op) if o in chosen])
    }
    work = {op: facts.call[op] for op in facts.ops
            if facts.on_device[op] and facts.call.get(op) in top}  # fmt: skip
    if not work:
        return False
    work = {op: call for op, call in work.items() if facts.is_later(top[call])}
    inside = {op for op in top if facts.is_later(top[op])}
    calling = set(facts.call.values())
    for e in facts.edges:
        source, call = e.src // 2, e.dst // 2
        if e.kind == K.SYNC and e.dst % 2 and call in inside and facts.on_device[source]:
            for_room = call in calling and facts.call.get(source, -1) != call
            if not for_room:
                return False
    first: dict[int, int] = {}
    for call in work.values():
        first[top[call]] = min(call, first.get(top[call], call))
    saved = {op for op in inside if top[op] in first} - set(first.values())
    again = [
        e for e in facts.edges
        if e.kind == K.LAUNCH and e.dst // 2 in work and e.src // 2 != first[top[work[e.dst // 2]]]
    ]  # fmt: skip
    facts.edges = [
        e._replace(weight=0) if e.kind in (K.HOST_OP, K.HOST_GAP) and e.op in saved else e
        for e in facts.edges
        if e not in again and not (e.kind == K.SYNC and e.dst % 2 and e.dst // 2 in saved)
    ]
    for op in {e.dst // 2 for e in again}:
        latencies = (0 if facts.starts_in_call(e) else e.weight for e in again if e.dst // 2 == op)
        latency = max(latencies)
        facts.edges.append(Edge(2 * first[top[work[op]]] + 1, 2 * op, latency, K.LAUNCH, op))
        facts.delay[2 * op] = 0
    return True


NEW_STREAM = 9


def move(facts: Facts, chosen: set[int]) -> bool:
    works = [op for op in facts.ops if facts.on_device[op]]
    moved = {op for op in chosen & set(works)
             if facts.stream[op] != NEW_STREAM and facts.is_later(op)}  # fmt: skip
    begun = {op: facts.time[2 * op] for op in works}
    recorded = dict(enumerate(facts.graph.gather("stream").to_list()))

    def queues(stream: dict[int, int], moment: dict[int, int]) -> list[list[int]]:
        found: dict[tuple[int, int, int], list[int]] = {}
        for op in sorted(works, key=lambda op: (moment[op], op)):
            found.setdefault((facts.trace[op], facts.device[op], stream[op]), []).append(op)
        return list(found.values())

    launched = {}
    for queue in queues(recorded, begun):
        latest = -1
        for op in queue:
            call = facts.recorded_call.get(op)
            latest = max(latest, begun[op] if call is None else facts.time[2 * call])
            launched[op] = latest if facts.is_later(op) else -1
    stream = dict(enumerate(facts.stream))
    old = queues(stream, launched)
    new = queues({**stream, **dict.fromkeys(moved, NEW_STREAM)}, launched)
    before, then = (
        {op: queue[k - 1] if k else -1 for queue in found for k, op in enumerate(queue)}
        for found in (old, new)
    )
    weights = [e.weight for e in facts.edges if e.kind == K.STREAM]
    usual = int(median(weights)) if weights else 0
    changed = [op for op in works if before[op] != then[op]]
    waits = [e for e in facts.edges if e.kind == K.SYNC]
    facts.edges = [e for e in facts.edges if e.kind != K.STREAM or e.dst // 2 not in changed]
    facts.edges += [
        Edge(2 * then[op] + 1, 2 * op, usual, K.STREAM, op) for op in changed if then[op] >= 0
    ]
    queue_of = {op: queue for queue in old for op in queue}
    more = []
    for e in waits:
        source, op = e.src // 2, e.dst // 2
        if e.src % 2 and source in queue_of and facts.recorded_call.get(source, -1) != op:
            queue = queue_of[source]
            others = [o for o in queue[: queue.index(source)] if (o in moved) != (source in moved)]
            more += [e._replace(src=2 * o + 1) for o in others[-1:]]
        if not e.dst % 2 and op in queue_of:
            queue = queue_of[op]
            others = [o for o in queue[queue.index(op) :] if (o in moved) != (op in moved)]
            more += [e._replace(dst=2 * o, op=o) for o in others[:1]]
    facts.edges += [e for e in more if facts.time[e.dst] >= facts.since]
    for op in moved:
        facts.stream[op] = NEW_STREAM
    return bool(chosen & set(works))


def cut(kind: EdgeKind) -> Callable[[Facts, set[int]], bool]:
    def apply(facts: Facts, chosen: set[int]) -> bool:
        hub = 2 * len(facts.ops)
        if kind == K.ARRIVAL:
            held = [e for e in facts.edges if e.op in chosen and e.src >= hub]
        else:
            held = [e for e in facts.edges if e.kind == kind and e.dst // 2 in chosen]
        late = [e for e in held if facts.time[e.dst] >= facts.since]
        if kind == K.ARRIVAL:
            facts.edges = [e._replace(src=2 * e.op) if e in late else e for e in facts.edges]
        else:
            facts.edges = [e for e in facts.edges if e not in late]
        return bool(held)

    return apply


CHANGES: dict[str, Callable[[Facts, set[int]], bool]] = {
    "scale {} 2.5": scale, "set {} 7ns": set_time, "no-overhead {}": no_overhead,
    "remove {}": remove, "fuse {}": fuse, "cuda-graph {}": capture,
    f"move {{}} to {NEW_STREAM}": move, "cut sync {}": cut(K.SYNC),
    "cut arrival {}": cut(K.ARRIVAL), "cut stream {}": cut(K.STREAM),
    "cut thread {}": cut(K.THREAD),
}  # fmt: skip


def selections(facts: Facts) -> dict[str, set[int]]:
    """Give what to select, and what that is."""
    ranks = [facts.graph.job.ranks[t] for t in facts.trace]
    inside = {
        op for op in facts.ops
        if any("train" in facts.name[o] for o in facts.around(op)[1:])
        or (op in facts.recorded_call
            and any("train" in facts.name[o] for o in facts.around(facts.recorded_call[op])))
    }  # fmt: skip
    return {
        ".": set(facts.ops),
        "mm|train": {op for op in facts.ops if "mm" in facts.name[op] or "train" in facts.name[op]},
        "kind=device": {op for op in facts.ops if facts.on_device[op]},
        "kind=host rank=1": {op for op in facts.ops if not facts.on_device[op] and ranks[op] == 1},
        "stream=7,9 rank=0,5": {
            op for op in facts.ops if facts.stream[op] in (7, 9) and ranks[op] == 0
        },
        "in=train": inside,
    }  # fmt: skip


def shown(graph: EventGraph) -> tuple[object, ...]:
    """Give what a change may change, whatever the order of its edges."""
    edges = sorted(zip(*(np.asarray(column).tolist() for column in graph.edges), strict=True))
    return edges, graph.delay.tolist(), graph.time.tolist(), graph.op_stream.tolist()


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_random_graphs(two_ranks: EventGraph, change: str) -> None:
    outcomes: dict[str, int] = Counter()
    for seed in range(examples(90)):
        graph = random_graph(two_ranks, seed)
        since = Random(seed).choice([0, 0, *graph.time.tolist()])
        for text, chosen in selections(Facts(graph, since)).items():
            facts = Facts(graph, since)
            is_possible = bool(chosen) and CHANGES[change](facts, chosen)
            try:
                expected = shown(facts.made()) if is_possible else None
            except nadi.graph.CycleError:
                expected = None
            try:
                parsed = nadi.whatif.parse_change(change.format(text))
                found = shown(nadi.whatif.apply_change(graph, parsed, since))
            except NadiError:
                found = None
            assert found == expected, (seed, text)
            outcomes[
                "refused" if found is None else "same" if found == shown(graph) else "changed"
            ] += 1
    assert not ALL or outcomes["changed"] > 5, outcomes
