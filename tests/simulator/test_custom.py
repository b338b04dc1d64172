"""Collectives that are traces of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.errors import UsageError
from nadi.pipeline.simulated_jobs import simulate
from tests.reference import astra_sim
from tests.simulator.cases import Node, collective, compute, system_of, trace_of

RANKS = 4


def ring_of(rank: int, size: int, micros: int) -> list[Node]:
    """Give a ring's reduce-scatter as nodes: send on, receive, reduce."""
    after, before = (rank + 1) % RANKS, (rank - 1) % RANKS
    nodes: list[Node] = []
    for step in range(RANKS - 1):
        ends = {"comm_tag": step, "comm_size": size, "is_cpu_op": False}
        last = [3 * step - 1] if step else []
        nodes += [
            {"id": 3 * step, "type": "COMM_SEND_NODE", "comm_src": rank, "comm_dst": after,
             "data_deps": last, "ctrl_deps": [], **ends},
            {"id": 3 * step + 1, "type": "COMM_RECV_NODE", "comm_src": before, "comm_dst": rank,
             "data_deps": [], "ctrl_deps": [], **ends},
            compute(3 * step + 2, micros, data_deps=[3 * step + 1], ctrl_deps=[]),
        ]  # fmt: skip
    return nodes


@pytest.fixture
def case(tmp_path: Path) -> dict[str, Any]:
    custom = {rank: ring_of(rank, 100_000, 2) for rank in range(RANKS)}
    for rank, nodes in custom.items():
        nadi.write(trace_of(nodes), tmp_path / f"own.{rank}.et")
    return {
        "network": {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": [25.0],
                    "latency": [300.0]},
        "system": {"preferred-dataset-splits": 1, "local-mem-bw": 50,
                   "all-reduce-implementation-custom": [str(tmp_path / "own")]},
        "custom_nodes": custom,
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["congestion_aware", "congestion_unaware"])
@pytest.mark.parametrize("rendezvous", ["true", "false"])
def test_they_take_the_times_of_the_oracle(
    case: dict[str, Any], backend: str, rendezvous: str
) -> None:
    case |= {"backend": backend, "cli": {"rendezvous-protocol": rendezvous}}
    nodes = {
        rank: [
            compute(0, 1 + 3 * rank, data_deps=[], ctrl_deps=[]),
            collective(1, "all_reduce", 5, data_deps=[0], ctrl_deps=[]),
            compute(2, 1 + rank, data_deps=[1], ctrl_deps=[]),
            collective(3, "all_reduce", 5, data_deps=[2], ctrl_deps=[]),
        ]
        for rank in range(RANKS)
    }
    done = simulate([trace_of(nodes[rank]) for rank in range(RANKS)], system_of(case))
    expected = astra_sim.simulate(case, nodes)
    assert done.cycles.tolist() == expected["cycles"]
    found = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
    assert found == [times[number] for times in expected["times"] for number in range(4)]


def test_they_have_to_be_of_as_many_ranks(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / f"own.{RANKS - 1}.et").unlink()
    case["backend"] = "congestion_unaware"
    with pytest.raises(UsageError, match="its traces have 3 ranks"):
        simulate([trace_of([collective(0, "all_reduce", 5)])] * RANKS, system_of(case))
