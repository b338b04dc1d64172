"""Collectives that are traces of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.errors import UsageError
from nadi.simulation.runs.simulate import simulate
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


def test_groups_do_them_by_place_and_nodes_have_their_own(
    case: dict[str, Any], tmp_path: Path
) -> None:
    """Groups of two, in no order, and all four ranks for one node, whatever its type."""
    ends = {"comm_src": 0, "comm_dst": 1, "is_cpu_op": False, "data_deps": [], "ctrl_deps": []}
    sends = {"comm_tag": 0, "comm_size": 70_000, **ends}
    pair: dict[int, list[Node]] = {
        0: [{"id": 0, "type": "COMM_SEND_NODE", **sends}],
        1: [{"id": 0, "type": "COMM_RECV_NODE", **sends},
            compute(1, 9, data_deps=[0], ctrl_deps=[])],
    }  # fmt: skip
    for place, nodes in pair.items():
        nadi.write(trace_of(nodes), tmp_path / f"pair.{place}.et")
    case |= {
        "backend": "congestion_unaware", "comm_group": {"a": [3, 0], "b": [1, 2]},
        "custom_nodes_by_node": {1: case["custom_nodes"]}, "custom_nodes": pair,
    }  # fmt: skip
    (whole,) = case["system"]["all-reduce-implementation-custom"]
    case["system"] |= {
        "all-reduce-implementation-custom": [str(tmp_path / "pair")],
        "per-node-custom-implementation": {"1": whole},
    }
    jobs = {
        rank: [
            compute(0, 1 + 3 * rank, data_deps=[], ctrl_deps=[]),
            collective(1, "all_gather", 5, data_deps=[0], ctrl_deps=[]),
            collective(2, "all_reduce", 5, data_deps=[1], ctrl_deps=[], pg_name=name),
            collective(3, "all_reduce", 5, data_deps=[2], ctrl_deps=[], pg_name=name),
        ]
        for rank, name in enumerate("abba")
    }
    done = simulate([trace_of(jobs[rank]) for rank in range(RANKS)], system_of(case))
    expected = astra_sim.simulate(case, jobs)
    assert done.cycles.tolist() == expected["cycles"]
    assert len(set(expected["cycles"])) > 1
    found = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
    assert found == [times[number] for times in expected["times"] for number in range(4)]


def test_they_have_to_be_of_as_many_ranks(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / f"own.{RANKS - 1}.et").unlink()
    case["backend"] = "congestion_unaware"
    with pytest.raises(UsageError, match="its traces have 3 ranks"):
        simulate([trace_of([collective(0, "all_reduce", 5)])] * RANKS, system_of(case))
