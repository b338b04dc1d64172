"""Analyses of replays, on random graphs, against slow ones that look at a vertex at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

import nadi
from nadi.graph.critical_paths import PATH_KINDS, CriticalPath, kind_of_edges, walk_critical_path
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.stragglers import find_stragglers
from nadi.graph.unexplained import CAUSES, LATE_NS, explain_time, unexplained_path
from nadi.graph.windows import Window
from tests.amounts import ALL, examples
from tests.analyze.random_replays import ON_DEVICE, operations, random_replay, random_window

BEFORE, NOT_SCHEDULED, UNKNOWN_WAIT, BEGINS_LATER, UNKNOWN = CAUSES
SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
SEEDS = range(examples(150))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    return operations(tmp_path_factory.mktemp("two_ranks"))


class Facts:
    """What the slow analyses ask a replay for."""

    def __init__(self, replay: Replay) -> None:
        graph = self.graph = replay.graph
        self.time = replay.time.tolist()
        self.delay = graph.delay.tolist()
        self.bound_by = replay.bound_by.tolist()
        self.source = graph.in_src.tolist()
        self.op = graph.edge_op.tolist()
        self.kind = [EdgeKind(kind) for kind in graph.edge_kind.tolist()]
        self.time_kind = kind_of_edges(graph, np.arange(graph.num_edges)).tolist()
        self.weight = graph.weight.tolist()
        self.into = [range(*graph.in_ptr[v : v + 2].tolist()) for v in range(len(self.time))]
        self.out_of: dict[int, list[int]] = defaultdict(list)
        for edge, vertex in enumerate(self.source):
            self.out_of[vertex].append(edge)
        self.category = graph.gather("category").to_list()
        self.names = graph.op_names.to_list()
        self.ranks = [graph.job.traces[t].rank for t in graph.op_trace.tolist()]
        self.device = graph.gather("device").to_list()
        self.num_ops = graph.num_ops

    def on_device(self, op: int) -> bool:
        return self.category[op] in ON_DEVICE


def slow_causes(facts: Facts, path: CriticalPath) -> dict[str, int]:
    sums: dict[str, int] = Counter()
    begin = min(path.segments["start"].to_list(), default=0)
    lengths = [
        facts.weight[e] for e, kind in enumerate(facts.kind)
        if kind == EdgeKind.HOST_GAP and is_silent(facts, e)
    ]  # fmt: skip
    far = float("inf")
    if len(lengths) >= 8:
        lower, upper = np.percentile(np.log(lengths), (25, 75))
        far = np.exp(4 * upper - 3 * lower)
    for v in path.vertices.tolist():
        late = max(0, min(facts.delay[v], facts.time[v] - begin))
        sums[slow_cause(facts, v)] += late
        e = facts.bound_by[v]
        if e < 0:
            continue
        own = max(0, min(facts.weight[e], facts.time[v] - late - begin))
        if facts.kind[e] == EdgeKind.HOST_GAP and is_silent(facts, e) and facts.weight[e] > far:
            sums[UNKNOWN] += own
        waits = any(facts.kind[i] == EdgeKind.SYNC for i in facts.into[v])
        own_end = v % 2 == 1 and facts.kind[e] == EdgeKind.HOST_OP and facts.op[e] == v // 2
        if own_end and facts.names[v // 2] in SYNCS and not waits:
            sums[UNKNOWN_WAIT] += own
    return sums


def is_silent(facts: Facts, edge: int) -> bool:
    op = facts.op[edge]
    return facts.weight[edge] > 0 and (op < 0 or facts.category[op] != "python")


def slow_cause(facts: Facts, v: int) -> str:
    op = v // 2
    if op >= facts.num_ops:
        return UNKNOWN
    same = [other for other in range(facts.num_ops) if facts.ranks[other] == facts.ranks[op]]
    is_first = facts.time[v] == min(facts.time[2 * other] for other in same)
    rest = BEGINS_LATER if is_first else UNKNOWN
    if not facts.on_device(op):
        return NOT_SCHEDULED if facts.into[v] else rest
    stream = stream_of(facts, op)
    ends = [
        facts.time[2 * other + 1] for other in range(facts.num_ops)
        if facts.on_device(other) and stream_of(facts, other) == stream
    ]  # fmt: skip
    return BEFORE if facts.time[v] - facts.delay[v] < min(ends) else rest


def stream_of(facts: Facts, op: int) -> tuple[int, int, int]:
    return facts.ranks[op], facts.device[op], int(facts.graph.op_stream[op])


def slow_inferred(facts: Facts, path: CriticalPath) -> int:
    """Count the moments that only an inferred dependency explains."""
    begin = min(path.segments["start"].to_list(), default=0)
    graph = facts.graph
    inferred = {
        (trace.rank, src, dst)
        for trace in graph.job.traces
        for src, dst, kind, is_inferred in trace.deps.iter_rows()
        if is_inferred and kind in ("launch", "event", "sync", "thread")
    }

    def is_inferred(source: int, v: int) -> bool:
        a, b = source // 2, v // 2
        if max(a, b) >= facts.num_ops or facts.ranks[a] != facts.ranks[b]:
            return False
        return (facts.ranks[a], graph.op_row[a], graph.op_row[b]) in inferred

    moments: set[int] = set()
    for v in path.vertices.tolist():
        e = facts.bound_by[v]
        if e < 0 or not is_inferred(facts.source[e], v):
            continue
        stated = [facts.source[i] for i in facts.into[v] if not is_inferred(facts.source[i], v)]
        since = max([begin, *(facts.time[source] for source in stated)])
        moments |= set(range(since, facts.time[v]))
    return len(moments)


def test_causes_and_inferred_time_of_paths(two_ranks: EventGraph) -> None:
    met: dict[str, int] = Counter()
    for seed in SEEDS:
        replay = random_replay(two_ranks, seed)
        path = walk_critical_path(replay, random_window(replay, seed))
        found = unexplained_path(replay, path)
        facts = Facts(replay)
        expected = slow_causes(facts, path)
        assert found.by_cause == {cause: expected[cause] for cause in CAUSES}, seed
        assert found.inferred_ns == slow_inferred(facts, path), seed
        assert found.length_ns == path.length
        assert found.total_ns == sum(expected.values())
        met += Counter(cause for cause in CAUSES if expected[cause])
        met["inferred"] += found.inferred_ns > 0
    assert not ALL or min(met.values()) > 1  # each of them stands on several paths
    assert not ALL or len(met) == len(CAUSES) + 1


def with_gaps(graph: EventGraph, weights: list[int], kind: EdgeKind = EdgeKind.HOST_GAP) -> Replay:
    """Connect the starts of the first two operations by edges of some weights."""
    size = len(weights)
    edges = Edges(
        np.zeros(size, dtype=np.int64), np.full(size, 2), np.array(weights),
        np.full(size, int(kind)), np.full(size, -1),
    )  # fmt: skip
    still = replace(graph, delay=np.zeros(graph.num_vertices, dtype=np.int64))
    return nadi.graph.replay_graph(still.with_edges(edges))


def unknown(replay: Replay) -> int:
    window = Window("gaps", -1, np.array([0]), np.array([2]))
    return unexplained_path(replay, walk_critical_path(replay, window)).by_cause[UNKNOWN]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # quartiles of 1 and 10: far out is what exceeds 10 * 10 ** 3
        ([1, 1, 1, 10, 10, 10, 10, 10, 9_990], 0),
        ([1, 1, 1, 10, 10, 10, 10, 10, 10_010], 10_010),
        # eight gaps are enough, seven are not; those of no length do not count
        ([1, 1, 1, 1, 1, 1, 1, 2], 2),
        ([1, 1, 1, 1, 1, 1, 2], 0),
        ([0, 1, 1, 1, 1, 1, 1, 2], 0),
        # from 100,000 on every second one is looked at, from 150,000 on every third
        ([1, 90] * 49_999 + [1], 0),
        ([1, 90] * 50_000, 90),
        ([1, 90, 80] * 49_999 + [1, 1], 0),
        ([1, 90, 80] * 50_000, 90),
    ],
)
def test_which_gaps_are_long(two_ranks: EventGraph, weights: list[int], expected: int) -> None:
    assert unknown(with_gaps(two_ranks, weights)) == expected


def slow_times(facts: Facts, delay: list[int]) -> list[int]:
    """Replay in the graph's order of vertices."""
    time = [0] * len(delay)
    for v in facts.graph.order.tolist():
        arrivals = [time[facts.source[e]] + facts.weight[e] for e in facts.into[v]]
        time[v] = max(arrivals, default=0) + delay[v]
    return time


def slow_span(facts: Facts, time: list[int], ranks: set[int], since: int) -> int:
    ops = [op for op in range(facts.num_ops) if facts.ranks[op] in ranks]
    if not ops:
        return 0
    return max(time[2 * op + 1] for op in ops) - max(since, min(time[2 * op] for op in ops))


def test_explained_time(two_ranks: EventGraph) -> None:
    num_late = 0
    for seed in SEEDS:
        replay = random_replay(two_ranks, seed, unit=LATE_NS // 4)
        facts = Facts(replay)
        since = (0, facts.time[seed % len(facts.time)])[seed % 2]
        found = explain_time(replay.graph, since)
        work = {2 * op for op in range(facts.num_ops) if facts.on_device(op)}
        taken = [
            v for v, delay in enumerate(facts.delay)
            if delay > 0 and facts.time[v] >= since and facts.into[v]
            and (v not in work or EdgeKind.LAUNCH in [facts.kind[e] for e in facts.into[v]])
        ]  # fmt: skip
        left = [0 if v in taken else delay for v, delay in enumerate(facts.delay)]
        explained = slow_times(facts, left)
        assert found.ranks.rows() == [
            (rank, *(slow_span(facts, time, {rank}, since) for time in (facts.time, explained)))
            for rank in (0, 1)
        ]
        assert found.measured_ns == slow_span(facts, facts.time, {0, 1}, since)
        assert found.explained_ns == slow_span(facts, explained, {0, 1}, since)
        assert found.num_device_operations == len(work)
        assert found.num_late == sum(facts.delay[v] > LATE_NS for v in work & set(taken))
        assert found.vertices.tolist() == sorted(taken, key=lambda v: (-facts.delay[v], v))
        assert found.error * max(found.measured_ns, 1) == pytest.approx(
            found.explained_ns - found.measured_ns
        )
        assert found.largest(4).rows() == [
            (facts.ranks[v // 2], facts.graph.op_row[v // 2], facts.names[v // 2],
             ("start", "end")[v % 2], facts.time[v], facts.delay[v])
            for v in found.vertices[:4].tolist()
        ]  # fmt: skip
        assert found.largest().equals(found.largest(5))
        num_late += found.num_late
    assert not ALL or num_late > 5


def test_a_collectives_moment_that_is_late_has_no_operation(two_ranks: EventGraph) -> None:
    """The first number after those of operations is the moment of a collective."""
    num_ops = two_ranks.num_ops
    hub = 2 * num_ops
    edges = Edges(*(np.array([x]) for x in (1, hub, 0, int(EdgeKind.ARRIVAL), 0)))
    graph = replace(two_ranks, delay=np.zeros(hub, dtype=np.int64)).with_edges(edges, 1)
    delay = graph.delay.copy()
    delay[hub] = 7
    found = explain_time(replace(graph, delay=delay, time=delay))
    assert found.vertices.tolist() == [hub]
    assert found.largest().rows() == [(-1, -1, "", "start", 7, 7)]


def slow_part(facts: Facts, v: int, begin: int) -> tuple[str, str]:
    """Walk back from a vertex, and sum by kind and by name."""
    kinds = dict.fromkeys(PATH_KINDS, 0)
    names: dict[str, Counter[str]] = {kind: Counter() for kind in PATH_KINDS}
    while v < 2 * facts.num_ops and facts.time[v] >= begin:
        reached = max(facts.time[v] - facts.delay[v], begin)
        kinds["unexplained"] += facts.time[v] - reached
        e = facts.bound_by[v]
        if e < 0:
            break
        kind = PATH_KINDS[facts.time_kind[e]]
        spent = reached - max(facts.time[facts.source[e]], begin)
        kinds[kind] += spent
        if facts.op[e] >= 0:
            names[kind][facts.names[facts.op[e]]] += spent
        v = facts.source[e]
    heaviest = max(PATH_KINDS, key=lambda kind: kinds[kind])
    found = names[heaviest]
    return heaviest, min(found, key=lambda name: (-found[name], name), default="")


def test_stragglers(two_ranks: EventGraph) -> None:
    num_met = 0
    for seed in SEEDS:
        replay = random_replay(two_ranks, seed)
        window = random_window(replay, seed)
        facts = Facts(replay)
        begin, end = facts.time[window.first[0]], facts.time[window.last[0]]
        rows = []
        waits: dict[int, int] = Counter()
        ranks_met: set[int] = set()
        hubs = [
            hub
            for hub in range(2 * facts.num_ops, len(facts.time))
            if facts.into[hub] and begin <= facts.time[hub] <= end
        ]
        spans = sorted(
            (facts.time[2 * facts.op[e]], hub, facts.op[e])
            for hub in hubs
            for e in facts.out_of[hub]
            if facts.kind[e] == EdgeKind.COMMUNICATION
        )
        lasts, reached = {}, dict.fromkeys(facts.graph.job.ranks, 0)
        for start, hub, op in spans:  # each moment of a rank counts for the first wait alone
            rank, until = facts.ranks[op], max(facts.time[hub], start)
            lasts[hub, op] = max(until - max(start, reached[rank]), 0)
            reached[rank] = max(reached[rank], until)
        met: dict[frozenset[int], int] = {}
        for hub in sorted(hubs, key=lambda hub: (facts.time[hub], hub)):
            last = facts.bound_by[hub]
            waited = {facts.op[e]: 0 for e in facts.into[hub]}
            waited |= {op: time for (at, op), time in lasts.items() if at == hub}
            ranks = frozenset(facts.ranks[op] for op in waited)
            since, met[ranks] = met.get(ranks, begin), facts.time[hub]
            anyone = any(facts.time[hub] > facts.time[2 * op] for at, op in lasts if at == hub)
            for op, time in waited.items():
                waits[facts.ranks[op]] += time
                ranks_met.add(facts.ranks[op])
            op = facts.op[last]
            total = sum(waited.values())
            if anyone:
                rows.append(
                    (facts.names[op], facts.ranks[op], facts.graph.op_row[op], facts.time[hub],
                     total, total // max(len(waited) - 1, 1), max(waited.values()),
                     *slow_part(facts, facts.source[last], since))
                )  # fmt: skip
        rows.sort(key=lambda row: row[3])
        found = find_stragglers(replay, window)
        assert found.collectives.rows() == rows, seed
        by_rank = [
            (rank, sum(row[1] == rank for row in rows),
             sum(row[4] for row in rows if row[1] == rank), waits[rank])
            for rank in sorted(ranks_met)
        ]  # fmt: skip
        assert found.ranks.rows() == sorted(by_rank, key=lambda row: (-row[2], row[0]))
        num_met += len(rows)
    assert num_met > (len(SEEDS) // 2 if ALL else 0)
