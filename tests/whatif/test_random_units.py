"""What can move in random graphs, and how far, against a slow reading of the rules."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.schema import TENSOR_DEPS
from nadi.whatif.reordering.movable_units import BLOCKERS, find_units
from nadi.whatif.reordering.operation_layout import OperationLayout
from tests.amounts import ALL, examples
from tests.analyze.random_replays import ON_DEVICE
from tests.conftest import PairWriter
from tests.whatif.programs import ALL_REDUCE
from tests.whatif.test_random_changes import Edge, as_columns, deps_of

K = EdgeKind
HOST = (
    "ProfilerStep#1", "aten::a", "aten::b", "aten::a", "aten::item", "aten::rand", "aten::dropout",
    "aten::batch_norm", "c10d::allreduce_", "aten::barrier", "triton_kernel", "gloo:all_reduce",
    "autograd::Node", "aten::c", "aten::batch_norm",
)  # fmt: skip
CALLS = ("cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernel", "cudaEventRecord",
         "cudaStreamWaitEvent", "cudaDeviceSynchronize")  # fmt: skip
WORK = (("k1", 7), ("k2", 7), ("k3", 9), (ALL_REDUCE, 40))
OPERATOR = re.compile(r"^\w+::\w+$")


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> EventGraph:
    """Operations of all kinds on two ranks of two threads; their times are not used."""
    folder = tmp_path_factory.mktemp("units")
    for rank in range(2):
        pair = PairWriter(folder)
        pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 2}
        for number, name in enumerate((*HOST, *CALLS)):
            category = "cuda_runtime" if name in CALLS else "cpu_op"
            category = "user_annotation" if name[0] in "Pg" else category
            pair.event(name, 10 * number, 5, category, tid=1 + number % 3 // 2,
                       correlation=100 + number)  # fmt: skip
        for number, (name, stream) in enumerate(WORK):
            pair.event(name, 500 + 10 * number, 5, "kernel", pid=0, tid=stream, stream=stream,
                       device=0)  # fmt: skip
        pair.write(f"_{rank}")[0].unlink()
    return nadi.build_graph(nadi.load_job(folder))


def random_graph(graph: EventGraph, seed: int) -> EventGraph:
    """Nest operations at random, and draw launches, waits, and dependencies by tensors."""
    rng = Random(seed)
    rare = ("ProfilerStep#1", "aten::item", "aten::barrier", "triton_kernel", CALLS[-1])
    kept = np.array([rng.random() < (0.25 if n in rare else 0.85) for n in graph.op_names])
    kept[rng.randrange(graph.num_ops)] = True
    graph = graph.of_operations(kept, np.flatnonzero(np.repeat(kept, 2)))
    drawn = Drawn(rng, graph)
    drawn.threads()
    drawn.launches()
    drawn.waits()
    traces = tuple(
        replace(trace, deps=drawn.deps(number)) for number, trace in enumerate(graph.job.traces)
    )
    delay = np.array([rng.choice((0, 0, 3, 7)) for _ in range(2 * graph.num_ops)])
    job = replace(graph.job, traces=traces)
    graph = replace(graph, job=job, op_parent=np.array(drawn.parent), delay=delay)
    graph = graph.with_edges(as_columns(drawn.edges))
    return replace(graph, time=nadi.graph.replay_graph(graph).time)


class Drawn:
    """A random graph in the making; ``place`` orders its vertices."""

    def __init__(self, rng: Random, graph: EventGraph) -> None:
        self.rng, self.graph = rng, graph
        self.ops = range(graph.num_ops)
        self.trace = graph.op_trace.tolist()
        self.name = graph.op_names.to_list()
        is_work = graph.gather("category").is_in(list(ON_DEVICE)).to_list()
        self.work = [op for op in self.ops if is_work[op]]
        self.hosts = [op for op in self.ops if not is_work[op]]
        self.place: dict[int, float] = {}
        self.parent = [-1] * graph.num_ops
        self.edges: list[Edge] = []

    def add(self, src: int, dst: int, kind: EdgeKind, op: int) -> None:
        if self.place[src] < self.place[dst]:
            self.edges.append(Edge(src, dst, self.rng.choice((0, 1, 2, 5)), kind, op))

    def threads(self) -> None:
        """Nest the operations of each thread; some overlap, and some edges between are lost."""
        rng, numbers = self.rng, self.graph.gather("thread").to_list()
        on_thread: dict[tuple[int, int], list[int]] = {}
        for op in self.hosts:
            on_thread.setdefault((self.trace[op], numbers[op]), []).append(op)
        share_lost = rng.choice((0, 0, 0, 0.05))
        for own in on_thread.values():
            sequence = self.nested(own)
            places = sorted(rng.random() for _ in sequence)
            self.place |= dict(zip(sequence, places, strict=True))
            for one, other in pairwise(sequence):
                kind = rng.choice((K.HOST_OP, K.HOST_OP, K.HOST_GAP, K.COMMUNICATION))
                if rng.random() >= share_lost:
                    self.add(one, other, kind, other // 2)

    def nested(self, own: list[int]) -> list[int]:
        rng = self.rng
        rng.shuffle(own)
        sequence: list[int] = []
        open_now: list[int] = []
        for op in own:
            while open_now and rng.random() < 0.6:
                sequence.append(2 * open_now.pop() + 1)
            self.parent[op] = open_now[-1] if open_now else -1
            sequence.append(2 * op)
            open_now.append(op)
        sequence += [2 * op + 1 for op in reversed(open_now)]
        at = rng.randrange(len(sequence) - 1)
        if rng.random() < 0.15 and sequence[at] // 2 != sequence[at + 1] // 2:
            sequence[at : at + 2] = sequence[at : at + 2][::-1]
        return sequence

    def launches(self) -> None:
        """Draw what calls launch onto streams, and what others ask gloo for."""
        rng, place = self.rng, self.place
        streams: dict[tuple[int, int], list[int]] = {}
        for op in self.work:
            calls = [
                call for call in self.hosts
                if self.trace[call] == self.trace[op] and self.name[call] == CALLS[0]
            ]  # fmt: skip
            call = rng.choice([*calls, -1])
            queue = streams.setdefault((self.trace[op], int(self.graph.op_stream[op])), [])
            before = [2 * call] * (call >= 0) + [2 * other + 1 for other in queue[-1:]]
            begin = max([0.0, *(place[vertex] for vertex in before)]) + rng.random() / 8
            place[2 * op], place[2 * op + 1] = begin, begin + 0.05
            self.add(2 * op, 2 * op + 1, K.KERNEL, op)
            for vertex in before:
                self.add(vertex, 2 * op, K.STREAM if vertex % 2 else K.LAUNCH, op)
            queue.append(op)
        asking = [op for op in self.hosts if self.name[op].startswith(("c10d", "aten"))]
        for op in self.hosts:
            if self.name[op].startswith("gloo") and asking and rng.random() < 0.5:
                self.add(2 * rng.choice(asking), 2 * op, K.LAUNCH, op)

    def waits(self) -> None:
        for _ in range(self.rng.randrange(3) if self.work else 0):
            vertex = self.rng.randrange(2 * self.graph.num_ops)
            self.add(2 * self.rng.choice(self.work) + 1, vertex, K.SYNC, 0)

    def deps(self, number: int) -> pl.DataFrame:
        """Draw dependencies by tensors between host operations, and waits of threads."""
        rng, row = self.rng, self.graph.op_row.tolist()
        own = [op for op in self.hosts if self.trace[op] == number]
        found: dict[tuple[int, int, str], bool] = {}
        for _ in range(6 * (len(own) > 1)):
            a, b = sorted(rng.sample(own, 2), key=lambda op: self.place[2 * op])
            found[row[a], row[b], rng.choice(TENSOR_DEPS)] = False
        if len(own) > 1 and rng.random() < 0.3:
            a, b = rng.sample(own, 2)
            found[row[a], row[b], rng.choice(("thread", "sync"))] = True
        here = {row[op] for op in self.ops if self.trace[op] == number}
        others = sorted(set(range(self.graph.job.traces[number].nodes.height)) - here)
        for kind in ("thread", "sync", *TENSOR_DEPS):  # with nodes that are no operations, too
            if own and others and rng.random() < 0.2:
                a, b = rng.sample((rng.choice(others), row[rng.choice(own)]), 2)
                found[a, b, kind] = kind not in TENSOR_DEPS
        return deps_of(found)


class Slow:
    """Units of a graph, one by one; places are those of the layout's chain."""

    def __init__(self, layout: OperationLayout, since: int) -> None:
        graph = layout.graph
        self.layout, self.graph = layout, graph
        self.ops = range(graph.num_ops)
        self.name = graph.op_names.to_list()
        self.category = graph.gather("category").to_list()
        self.is_comm = [c != "none" for c in graph.gather("comm_type").to_list()]
        self.thread = list(
            zip(graph.op_trace.tolist(), graph.gather("thread").to_list(), strict=True)
        )
        self.parent = graph.op_parent.tolist()
        self.time = graph.time.tolist()
        columns = [np.asarray(column).tolist() for column in graph.edges]
        self.edges = [Edge(*row) for row in zip(*columns, strict=True)]
        self.host = [category not in ON_DEVICE for category in self.category]
        self.chain = layout.chain.tolist()
        self.at = {vertex: place for place, vertex in enumerate(self.chain)}
        self.call = {e.dst // 2: e.src // 2 for e in self.edges if e.kind == K.LAUNCH}
        self.since = since
        self.works = sorted(
            (op for op, call in self.call.items()
             if self.host[call] and (not self.host[op] or self.thread[op] != self.thread[call])),
            key=lambda op: (self.at[2 * self.call[op]], op),
        )  # fmt: skip
        op_of = {
            (t, int(r)): op
            for op, (t, r) in enumerate(zip(graph.op_trace, graph.op_row, strict=True))
        }
        self.deps = [
            (op_of[number, a], op_of[number, b], kind, inferred)
            for number, trace in enumerate(graph.job.traces)
            for a, b, kind, inferred in trace.deps.iter_rows()
            if (number, a) in op_of and (number, b) in op_of
        ]
        self.data = [(a, b, kind) for a, b, kind, _ in self.deps if kind in TENSOR_DEPS]
        tops = {op: [o for o in self.around(op) if self.is_work(o)] for op in self.ops}
        self.units = sorted({found[-1] for found in tops.values() if found}, key=self.begin)
        self.unit_of = {op: self.units.index(found[-1]) for op, found in tops.items() if found}
        self.inside = {
            u: [op for op in self.ops if self.unit_of.get(op) == u] for u in range(len(self.units))
        }

    def begin(self, op: int) -> int:
        return self.at[2 * op]

    def end(self, op: int) -> int:
        return self.at[2 * op + 1]

    def around(self, op: int) -> list[int]:
        found = [op]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found

    def is_work(self, op: int) -> bool:
        name, category = self.name[op], self.category[op]
        is_operator = OPERATOR.match(name) and not name.startswith(("autograd::", "torch::"))
        if not self.host[op]:
            return False
        return (
            bool(is_operator and category == "operator") or category == "runtime"
            or any(op in pair[:2] for pair in self.data)
        )  # fmt: skip

    def link(self, place: int) -> Edge | None:
        """Give the edge of the thread into a place, from the one before."""
        kinds = (K.HOST_OP, K.HOST_GAP, K.COMMUNICATION)
        ends = (self.chain[place - 1], self.chain[place]) if place else None
        found = [e for e in self.edges if e[:2] == ends and e.kind in kinds]
        return found[-1] if found else None

    def launched(self, op: int) -> list[int]:
        """Give the work whose calls lie in an operation."""
        return [
            work for work in self.works
            if self.begin(op) <= self.at[2 * self.call[work]] <= self.end(op)
        ]  # fmt: skip

    def contains(self, u: int, *patterns: str) -> bool:
        return any(re.search(p, self.name[op]) for op in self.inside[u] for p in patterns)

    def is_nested(self, u: int) -> bool:
        begin, end = self.begin(self.units[u]), self.end(self.units[u])
        places = sorted(self.at[v] for op in self.inside[u] for v in (2 * op, 2 * op + 1))
        links = [self.link(place) for place in range(begin + 1, end + 1)]
        return places == list(range(begin, end + 1)) and None not in links

    def talks(self, u: int) -> bool:
        launched = any(self.is_comm[work] for work in self.launched(self.units[u]))
        return (
            launched or self.contains(u, "^c10d::") or any(self.is_comm[o] for o in self.inside[u])
        )

    def can_move(self, u: int) -> bool:
        op = self.units[u]
        serves = any(
            self.host[work] and self.thread[work] == self.thread[op] for work in self.works
        )
        return self.is_nested(u) and self.category[op] != "runtime" and not serves

    def lets_wait(self, u: int) -> bool:
        return self.contains(u, "cudaStreamWaitEvent")

    def records(self, u: int) -> bool:
        places = [self.begin(op) for op in self.inside[u] if "EventRecord" in self.name[op]]
        launches = [
            self.at[2 * self.call[w]] for w in self.works if self.unit_of.get(self.call[w]) == u
        ]
        return bool(launches) and max(places, default=-1) > max(launches)

    def awaits(self, op: int) -> bool:
        """Tell whether a call waits for device work that somebody else launched."""
        launches = any(self.call[work] == op for work in self.works)
        return any(
            e.kind == K.SYNC and e.dst == 2 * op + 1 and not self.host[e.src // 2]
            and not (launches and self.call.get(e.src // 2) != op)
            for e in self.edges
        )  # fmt: skip

    def fences(self) -> list[tuple[int, str]]:
        """Give the places that nothing passes, and why, ascending; reasons as they are listed."""
        found: list[tuple[int, str]] = []
        firsts = [
            p for p, v in enumerate(self.chain)
            if p == 0 or self.thread[self.chain[p - 1] // 2] != self.thread[v // 2]
        ]  # fmt: skip
        found += [(p, "step or thread") for p in firsts]
        found += [
            (p, "step or thread") for p, v in enumerate(self.chain) if self.time[v] < self.since
        ]
        found += [
            (p, "step or thread") for p, v in enumerate(self.chain) if self.name[v // 2][0] == "P"
        ]
        found += [
            (p, "nesting") for p in range(len(self.chain)) if p not in firsts and not self.link(p)
        ]
        ends = [self.end(op) for op in self.units]
        found += [(end, "nesting") for u, end in enumerate(ends) if not self.is_nested(u)]
        waits = [
            any(self.awaits(op) for op in self.inside[u]) or self.contains(u, "DeviceSynchronize")
            for u in self.inside
        ]
        found += [(end, "device wait") for end, is_wait in zip(ends, waits, strict=True) if is_wait]
        found += [
            (end, "value read") for u, end in enumerate(ends) if self.contains(u, "^aten::item$")
        ]
        found += [(end, "barrier") for u, end in enumerate(ends) if self.contains(u, "barrier")]
        for u, op in enumerate(self.units):
            on_device = any(not self.host[work] for work in self.launched(op))
            if on_device and not any(OPERATOR.match(self.name[o]) for o in self.inside[u]):
                found.append((ends[u], "unknown effects"))
        for a, b, kind, inferred in self.deps:
            if inferred and kind in ("thread", "sync") and not self.is_comm[a]:
                found.append((self.at[2 * b + (kind == "sync")], "hand-over"))
        return sorted(found, key=lambda one: one[0])

    def order(self) -> tuple[list[tuple[int, str]], list[list[tuple[int, str]]]]:
        """Give the fence of each unit and why, and what it has to stay after and why."""
        fences, every = [], self.fences()
        for op in self.units:
            begin, end = self.begin(op), self.end(op)
            inner = [(place, why) for place, why in every if begin <= place <= end]
            before = [(place, why) for place, why in every if place <= begin]
            fences.append((begin, inner[0][1]) if inner else before[-1])
        needs: list[list[tuple[int, str]]] = [[] for _ in self.units]
        for a, b, _ in sorted(self.data, key=lambda d: self.unit_of.get(d[0], -1)):
            u, v = self.unit_of.get(a, -1), self.unit_of.get(b, -1)
            if 0 <= u < v and self.thread[self.units[u]] == self.thread[self.units[v]]:
                pair = u, v
                kinds = [
                    k for k in TENSOR_DEPS for x, y, kind in self.data
                    if kind == k and (self.unit_of.get(x), self.unit_of.get(y)) == pair
                ]  # fmt: skip
                if (u, kinds[0]) not in needs[v]:
                    needs[v].append((u, kinds[0]))
        for why, chosen in (
            ("comm order", self.talks),
            ("random numbers", lambda u: self.contains(u, "^aten::(rand|dropout)$")),
            ("hidden state", lambda u: self.contains(u, "batch_norm")),
        ):
            for rank in (0, 1):
                mine = [
                    u for u in self.inside if chosen(u) and self.thread[self.units[u]][0] == rank
                ]
                mine.sort(key=lambda u: (self.time[2 * self.units[u]], u))
                for one, other in pairwise(mine):
                    self.follow(one, other, why, fences, needs)
        return fences, needs

    def follow(
        self, one: int, other: int, why: str, fences: list[tuple[int, str]],
        needs: list[list[tuple[int, str]]],
    ) -> None:  # fmt: skip
        first, then = self.units[one], self.units[other]
        if self.thread[first] == self.thread[then]:
            needs[other].append((one, why))
            return
        own = [
            p
            for p, v in enumerate(self.chain[: self.begin(then)])
            if self.thread[v // 2] == self.thread[then]
        ]
        low = own[0] if own else self.begin(then)
        place = low + sum(self.time[self.chain[p]] < self.time[2 * first + 1] for p in own)
        if place > fences[other][0]:
            fences[other] = place, why

    def legal(self, kinds: tuple[str, ...]) -> list[int]:
        """Give before when the work of each unit cannot start, wherever it stands."""
        fences, needs = self.order()
        own, begins, dones, found = [], [], [], []
        for u, op in enumerate(self.units):
            links = [self.link(p) for p in range(self.begin(op) + 1, self.end(op) + 1)]
            own.append(sum(e.weight for e in links if e))
            works = [w for w in self.works if self.unit_of.get(self.call[w]) == u]
            into = {w: [e.weight for e in self.edges if e.dst == 2 * w + 1
                        and e.kind in (K.KERNEL, K.COMMUNICATION)] for w in works}  # fmt: skip
            takes = max((max([0, *weights]) for weights in into.values()), default=-1)
            start, end = self.time[2 * op], self.time[2 * op + 1]
            work_start = min((self.time[2 * w] for w in works), default=start)
            work_end = max([end, *(self.time[2 * w + 1] for w in works)])
            on_device = bool(works) and not any(self.host[w] for w in works)
            ready = [min(t, work_start) for t in self.from_afar(u, kinds)]
            data = [dones[n] for n, why in needs[u] if why in kinds and self.can_move(u)]
            if self.can_move(u):
                begin = min(self.time[self.chain[fences[u][0]]], start)
                begin = max([begin, *(begins[n] + own[n] for n, _ in needs[u])])
            else:
                begin = start
            begin = max([begin, *([] if on_device else ready + data)])
            works_at = max([begin, *(ready + data if on_device else [])])
            done = max(begin + own[u] if takes < 0 else 0, works_at + max(takes, 0))
            if not self.can_move(u):
                works_at = max(works_at, work_start)
                done = max(done, works_at + max(takes, 0), work_end)
            begins.append(begin)
            dones.append(done)
            found.append(min(works_at, work_start))
        return found

    def from_afar(self, u: int, kinds: tuple[str, ...]) -> list[int]:
        """Give when data from other threads is there."""
        found = []
        for a, b, kind in self.data:
            if kind in kinds and self.unit_of.get(b) == u and self.thread[a] != self.thread[b]:
                by_place: dict[object, int] = {}
                for work in self.launched(a):
                    stream = self.thread[work][0], "stream", int(self.graph.op_stream[work])
                    resource = self.thread[work] if self.host[work] else stream
                    by_place[resource] = self.time[2 * work + 1]
                found.append(max([self.time[2 * a + 1], *by_place.values()]))
        return found


def test_units_of_random_graphs(two_ranks: EventGraph) -> None:
    reasons: dict[str, int] = Counter()
    num_in_order = 0
    for seed in range(examples(120)):
        graph = random_graph(two_ranks, seed)
        layout = OperationLayout.of(graph)
        since = Random(seed).choice((0, 0, 0, *graph.time[:1].tolist()))
        slow = Slow(layout, since)
        units = find_units(layout, graph.time, since)
        every = range(len(slow.units))
        assert units.op.tolist() == slow.units
        assert units.begin.tolist() == [slow.begin(op) for op in slow.units]
        assert units.end.tolist() == [slow.end(op) for op in slow.units]
        assert units.of_op.tolist() == [slow.unit_of.get(op, -1) for op in slow.ops]
        assert [units.at_op(op) for op in slow.ops] == [
            slow.units.index(op) if op in slow.units else -1 for op in slow.ops
        ]
        assert layout.works.op.tolist() == slow.works
        assert [
            layout.works.op[a:b].tolist()
            for a, b in zip(units.first_work, units.last_work, strict=True)
        ] == [slow.launched(op) for op in slow.units]
        for what in ("can_move", "lets_wait", "records"):
            assert getattr(units, what).tolist() == [getattr(slow, what)(u) for u in every], (
                seed,
                what,
            )
        assert units.is_communication.tolist() == [slow.talks(u) for u in every]
        # without an edge between two moments of a thread, their order need not be that of time
        moments = {thread: [] for thread in slow.thread}
        for vertex in slow.chain:
            moments[slow.thread[vertex // 2]].append(slow.time[vertex])
        if any(own != sorted(own) for own in moments.values()):
            continue
        num_in_order += 1
        fences, needs = slow.order()
        found = [
            (int(p), BLOCKERS[c]) for p, c in zip(units.fence, units.fence_reason, strict=True)
        ]
        assert found == fences, seed
        ptr = units.needs_ptr.tolist()
        assert [
            [
                (int(n), BLOCKERS[c])
                for n, c in zip(units.needs[a:b], units.needs_reason[a:b], strict=True)
            ]
            for a, b in pairwise(ptr)
        ] == needs, seed
        assert units.legal.tolist() == slow.legal(TENSOR_DEPS), seed
        assert units.legal_renamed.tolist() == slow.legal(("raw",)), seed
        first, why = units.limits
        ends = [slow.end(op) for op in slow.units]
        for u in every if ends == sorted(ends) else ():
            after = sum(end < fences[u][0] for end in ends)
            assert units.after_fence[u] == after
            limit = max([(after, ""), *((n, "need") for n, _ in needs[u])])[0]
            assert first[u] == limit
            reasons[BLOCKERS[why[u]]] += 1
    assert not ALL or num_in_order > 40, num_in_order
    assert not ALL or len(reasons) >= len(BLOCKERS) - 1, reasons
