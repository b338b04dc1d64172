"""Networks of several dimensions whose links contend, against links in plain Python."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nadi.simulator import simulate
from nadi.simulator.engine import run_tables, simulation_of
from nadi.simulator.lower import tables_of
from nadi.simulator.program import program_of
from tests.reference import astra_sim
from tests.simulator.cases import Node, jobs, system_of, systems, trace_of

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def expected_times(case: dict[str, Any], nodes: dict[int, list[Node]]) -> list[Any]:
    try:
        found = astra_sim.simulate(case, nodes)
    except astra_sim.UnsupportedError:
        assume(False)
    assume(None not in found["cycles"])  # phases of one dimension in orders of their own
    return [[times[number] for number in sorted(times)] for times in found["times"]]


@SETTINGS
@given(st.data())
def test_stacked_dimensions_take_the_times_of_the_oracle(data: st.DataObject) -> None:
    case = data.draw(systems(contended=True, stacked=True), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    expected = expected_times(case, nodes)
    program = program_of([trace_of(nodes[rank]) for rank in sorted(nodes)])
    tables = tables_of(program, system_of(case))
    done = simulation_of(tables, run_tables(tables), program.num_ranks)
    pairs = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
    first = program.first.tolist()
    assert [pairs[a:b] for a, b in zip(first[:-1], first[1:], strict=True)] == expected


@SETTINGS
@given(st.data())
def test_messages_at_once_take_the_times_of_the_oracle(data: st.DataObject) -> None:
    """Each rank sends to some others at once, so that they wait for each other on the way."""
    case = data.draw(systems(contended=True, stacked=True), label="case")
    case["cli"] = {}
    num_ranks = 1
    for count in case["network"]["npus_count"]:
        num_ranks *= count
    nodes: dict[int, list[Node]] = {rank: [] for rank in range(num_ranks)}
    for tag in range(data.draw(st.integers(1, 40))):
        src, dst = data.draw(st.permutations(range(num_ranks)))[:2]
        size = data.draw(st.integers(0, 100_000))
        ends = {"comm_src": src, "comm_dst": dst, "comm_tag": tag, "comm_size": size}
        for rank, name in ((src, "SEND"), (dst, "RECV")):
            nodes[rank].append({
                "id": len(nodes[rank]), "type": f"COMM_{name}_NODE", "is_cpu_op": False, **ends
            })  # fmt: skip
    for rank in range(num_ranks):
        idle = {"id": len(nodes[rank]), "type": "COMP_NODE", "is_cpu_op": False}
        nodes[rank].append(idle | {"duration_micros": 1})
    found = astra_sim.simulate(case, nodes, devices=True)
    traces = [trace_of(nodes[rank]) for rank in range(num_ranks)]
    done = simulate(traces, msgspec.structs.replace(system_of(case), slots="device"))
    # an idle rank computes for as long as the rules of either say: what counts is the messages
    ends = dict(zip(zip(done.program.rank.tolist(), done.program.row.tolist(), strict=True),
                    done.end.tolist(), strict=True))  # fmt: skip
    for rank, times in enumerate(found["times"]):
        for number, (_, end) in times.items():
            assert ends[rank, number] == end


@pytest.mark.parametrize(
    ("topology", "hops"),
    [("Ring", 1), ("Mesh", 3), ("Switch", 2), ("FullyConnected", 1)],
)
def test_a_message_passes_every_link_on_its_way(topology: str, hops: int) -> None:
    case = {
        "backend": "congestion_aware",
        "network": {"topology": ["Ring", topology], "npus_count": [3, 4],
                    "bandwidth": [1e9 / 2**30, 2e9 / 2**30], "latency": [100.0, 40.0]},
        "system": {"preferred-dataset-splits": 1},
    }  # fmt: skip
    ends = {"comm_src": 0, "comm_dst": 10, "comm_tag": 0, "comm_size": 1000, "is_cpu_op": False}
    nodes: list[list[Node]] = [[{"id": 0, "type": "INVALID_NODE", "is_cpu_op": False}]] * 12
    nodes[0] = [{"id": 0, "type": "COMM_SEND_NODE", **ends}]
    nodes[10] = [{"id": 0, "type": "COMM_RECV_NODE", **ends}]
    done = simulate([trace_of(of_rank) for of_rank in nodes], system_of(case))
    # 10 is one to the right of 0, and three up, or one down where the ends are joined
    assert done.cycles[10] == 100 + 1000 + hops * (40 + 500)
