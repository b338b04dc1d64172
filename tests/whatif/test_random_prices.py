"""Prices of communication in random graphs, against slow ones that look at one at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import polars as pl
import pytest

from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.simulation import on_system as system_change
from nadi.simulation.on_system import OnSystem, prices_on
from nadi.systems import Dimension, Network, System
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.schema import COMM_TYPES, GROUPS
from nadi.whatif.changes import OnNetwork
from tests.amounts import ALL, examples
from tests.whatif.test_random_changes import random_graph, two_ranks

__all__ = ["two_ranks"]

SYSTEM = System(Network((Dimension("switch", 2, 1.0),)))
FACTORS = {"all_reduce": 2, "reduce_scatter": 1, "all_to_all": 1, "scatter": 1, "barrier": 0}


def communicating(graph: EventGraph, seed: int) -> EventGraph:
    """Let some operations communicate, in groups of up to three ranks or in none."""
    rng = Random(seed)
    graph = random_graph(graph, seed)
    traces = []
    for trace in graph.job.traces:
        rows = range(trace.nodes.height)
        ranks = [rng.choice(([0, 1], [1], [], [0, 1, 5])) for _ in range(2)]
        groups = GROUPS.build(2, {"name": ["0", "1"], "ranks": ranks})
        drawn = {
            "comm_type": [rng.choice(("none", *COMM_TYPES[1:])) for _ in rows],
            "comm_bytes": [rng.choice((-1, 0, 1, 999, 1000)) for _ in rows],
            "group": [rng.choice((-1, 0, 1)) for _ in rows],
            "src": [rng.choice((-1, 0, 1, 2)) for _ in rows],
            "dst": [rng.choice((-1, 0, 1, 2)) for _ in rows],
        }
        schema = {name: trace.nodes.schema[name] for name in drawn}

        nodes = trace.nodes.with_columns(pl.DataFrame(drawn, schema=schema))
        traces.append(replace(trace, nodes=nodes, groups=groups))
    kinds = [
        int(EdgeKind.COMMUNICATION)
        if kind == EdgeKind.HOST_OP and op >= 0 and rng.random() < 0.7 else kind
        for kind, op in zip(graph.edge_kind.tolist(), graph.edge_op.tolist(), strict=True)
    ]  # fmt: skip
    job = replace(graph.job, traces=tuple(traces))
    return replace(graph, job=job, edge_kind=np.array(kinds, dtype=np.uint8))


class Facts:
    """Columns of the operations of a graph."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        self.type = graph.gather("comm_type").cast(str).to_list()
        self.bytes, self.group, self.src, self.dst = (
            graph.gather(name).to_list() for name in ("comm_bytes", "group", "src", "dst")
        )
        self.rank = [graph.job.traces[t].rank for t in graph.op_trace.tolist()]
        self.members = [
            graph.job.traces[t].groups["ranks"].to_list()[g] if g >= 0 else []
            for t, g in zip(graph.op_trace.tolist(), self.group, strict=True)
        ]
        columns = [np.asarray(column).tolist() for column in graph.edges]
        self.edges = list(zip(*columns, strict=True))

    def sent(self, op: int) -> int:
        """Give the bytes that a rank sends on a ring, or -1."""
        size = max(len(self.members[op]), 1) if self.group[op] >= 0 else 2
        if self.type[op] == "none" or self.bytes[op] < 0:
            return -1
        factor = FACTORS.get(self.type[op], 0) * (size - 1) / size
        if self.type[op] in ("all_gather", "gather"):
            factor = size - 1
        elif self.type[op] not in FACTORS:
            factor = 1.0
        return round(self.bytes[op] * factor)

    def price(self, op: int) -> int:
        """Give what the stand-ins of the simulator make of an operation, or -1."""
        kind, size = self.type[op], self.bytes[op]
        if kind in ("send", "recv"):
            src = self.rank[op] if kind == "send" else self.src[op]
            dst = self.dst[op] if kind == "send" else self.rank[op]
            if size < 0 or not 0 <= src < 2 or not 0 <= dst < 2:
                return -1
            return message(SYSTEM, size, src, dst) if src != dst else 0
        if kind not in COLLECTIVES or (size < 0 and kind != "barrier"):
            return -1
        root = -1
        if kind in ("broadcast", "scatter"):
            root = self.src[op]
        elif kind in ("reduce", "gather"):
            root = self.dst[op]
        members = tuple(self.members[op])
        return collective(SYSTEM, kind, size, members, root if root in (members or (0, 1)) else -1)


def message(system: System, size: int, src: int, dst: int) -> int:
    assert system is SYSTEM
    return 7 + size * 1_000 + src * 10 + dst


def collective(system: System, kind: str, size: int, members: tuple[int, ...], root: int) -> int:
    assert system is SYSTEM
    shape = sum(3 ** (2 + rank) for rank in members)
    return (COMM_TYPES.index(kind) * 5_000 + size) * 10_000 + shape * 10 + root + 1


def test_a_network_prices_one_transfer_of_each_operation(two_ranks: EventGraph) -> None:
    priced: dict[str, int] = Counter()
    for seed in range(examples(90)):
        graph = communicating(two_ranks, seed)
        facts = Facts(graph)
        since = Random(seed).choice([0, 0, *graph.time.tolist()])
        hub = 2 * graph.num_ops
        best: dict[int, int] = {}
        for at, (src, _, weight, kind, op) in enumerate(facts.edges):
            if kind != EdgeKind.COMMUNICATION:
                continue
            if op not in best or (src >= hub, weight) > (
                facts.edges[best[op]][0] >= hub, facts.edges[best[op]][2],
            ):  # fmt: skip
                best[op] = at
        best = {op: at for op, at in best.items() if facts.sent(op) >= 0}
        change = OnNetwork(3e9, 5)
        if not best:
            with pytest.raises(UsageError, match="no communication"):
                change.apply(graph, since)
            continue
        expected = [edge[2] for edge in facts.edges]
        for op, at in best.items():
            if graph.time[facts.edges[at][0]] >= since:
                expected[at] = 5 + round(facts.sent(op) / 3e9 * 1e9)
                priced[facts.type[op]] += 1
        assert change.apply(graph, since).weight.tolist() == expected, seed
    assert not ALL or len(priced) >= 8, priced


def test_a_system_prices_every_operation_by_what_it_is(
    two_ranks: EventGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_change, "collective_time", collective)
    monkeypatch.setattr(system_change, "message_time", message)
    for seed in range(examples(90)):
        graph = communicating(two_ranks, seed)
        facts = Facts(graph)
        since = Random(seed).choice([0, 0, *graph.time.tolist()])
        price = [facts.price(op) for op in range(graph.num_ops)]
        found = prices_on(graph, SYSTEM)
        assert found.time.tolist() == price, seed
        expected = [
            price[op] if kind == EdgeKind.COMMUNICATION and graph.time[src] >= since
            and price[op] >= 0 else weight
            for src, _, weight, kind, op in facts.edges
        ]  # fmt: skip
        kernels = graph.gather("category").to_list()
        faster = [
            round(weight * 1.5) if kind == EdgeKind.KERNEL and graph.time[src] >= since
            and kernels[op] == "kernel" else weight
            for (src, _, _, kind, op), weight in zip(facts.edges, expected, strict=True)
        ]  # fmt: skip
        assert OnSystem(SYSTEM).apply(graph, since).weight.tolist() == expected
        assert OnSystem(SYSTEM, 1.5).apply(graph, since).weight.tolist() == faster
        sums: dict[str, list[int]] = {}
        for _, _, weight, kind, op in facts.edges:
            if kind == EdgeKind.COMMUNICATION:
                of_type = sums.setdefault(facts.type[op], [0, 0, 0, 0])
                known = price[op] >= 0
                for k, more in enumerate((known, not known, weight * known, price[op] * known)):
                    of_type[k] += more
        rows = sorted(((t, *s) for t, s in sums.items()), key=lambda row: (-row[3], row[0]))
        assert found.by_type.drop("simulated_as").rows() == rows
    with pytest.raises(UsageError, match="it has 3 ranks, but the job has 2"):
        prices_on(graph, System(Network((Dimension("switch", 3, 1.0),))))
