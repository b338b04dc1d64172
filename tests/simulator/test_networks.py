"""Networks of several dimensions whose links contend, against links in plain Python."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from nadi.errors import UsageError
from nadi.simulation.runs.simulate import simulate
from nadi.systems import System
from nadi.systems.system import Collectives, Dimension, Network
from tests.amounts import examples
from tests.reference import astra_sim
from tests.simulator.cases import (
    Jobs,
    Node,
    collective,
    jobs,
    num_ranks_of,
    run_each,
    run_nodes,
    system_of,
    systems,
    times_of,
    trace_of,
)

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)


def expected_times(case: dict[str, Any], nodes: Jobs) -> list[Any]:
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
    assert times_of(run_nodes(nodes, system_of(case))) == expected


@SETTINGS
@given(st.data())
def test_messages_at_once_take_the_times_of_the_oracle(data: st.DataObject) -> None:
    """Each rank sends to some others at once, so that they wait for each other on the way."""
    case = data.draw(systems(contended=True, stacked=True), label="case")
    case["cli"] = {}
    num_ranks = num_ranks_of(case)
    nodes: Jobs = {rank: [] for rank in range(num_ranks)}
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


# rings both ways round

COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_DELAY = 10


def two_way(*dimensions: Dimension, algorithm: str = "biring", **network: Any) -> System:
    names = dict.fromkeys(COMM_TYPES, (algorithm,) * len(dimensions))
    collectives = Collectives(**names, endpoint_delay=_DELAY)
    return System(network=Network(dimensions=dimensions, **network), collectives=collectives)


def time_of(system: System, comm_type: str, size: int) -> int:
    """Simulate one collective in all ways there are, which have to agree."""
    traces = [trace_of([collective(0, comm_type, size)])] * system.network.num_ranks
    done = simulate(traces, system)
    for meet in (False, True):
        full = run_each(traces, system, meet=meet)
        assert full.cycles.tolist() == done.cycles.tolist()
    return done.makespan


def part(size: int, n: int) -> int:
    return -(-size // n)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from([3, 4, 5, 8, 16]), st.integers(1, 1 << 24), st.integers(0, 3000),
    st.floats(0.5, 500), st.sampled_from(["ring", "fully-connected"]),
)  # fmt: skip
def test_a_ring_both_ways_takes_half_the_bytes_each(
    n: int, size: int, latency: int, bandwidth: float, topology: Any
) -> None:
    system = two_way(Dimension(topology, n, bandwidth, latency))
    half = part(size, 2)
    one = int(latency + part(half, n) / bandwidth) + _DELAY
    assert time_of(system, "reduce_scatter", size) == _DELAY + (n - 1) * one
    assert time_of(system, "all_reduce", size) == _DELAY + 2 * (n - 1) * one
    whole = int(latency + half / bandwidth) + _DELAY
    assert time_of(system, "all_gather", size) == _DELAY + (n - 1) * whole


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(COMM_TYPES), st.sampled_from([2, 3, 4, 8]), st.sampled_from([2, 3, 4]),
    st.sampled_from(["ring", "fully-connected", "switch", "mesh"]),
    st.sampled_from(["ring", "fully-connected", "switch", "mesh"]), st.integers(1, 1 << 24),
)  # fmt: skip
def test_stacked_rings_both_ways_agree_and_cost_no_more_than_one_way(
    comm_type: str, n: int, k: int, first: Any, second: Any, size: int
) -> None:
    dimensions = Dimension(first, n, 50.0, 300.0), Dimension(second, k, 25.0, 700.0)
    both = time_of(two_way(*dimensions), comm_type, size)
    one = time_of(two_way(*dimensions, algorithm="ring"), comm_type, size)
    # rounding, and the halves of a dimension that both go through one way come one after the other
    slack = 4 * (n + k) * (1 + _DELAY + 700 * max(n, k))
    assert both <= one + slack
    large = 1 << 28
    rings = {"ring", "fully-connected"}
    if first in rings and second in rings and n > 2 and k > 2:
        quick = time_of(two_way(*dimensions), comm_type, large)
        slow = time_of(two_way(*dimensions, algorithm="ring"), comm_type, large)
        assert quick == pytest.approx(slow / 2, rel=0.01)


@pytest.mark.parametrize("comm_type", COMM_TYPES)
@pytest.mark.parametrize("n", [3, 4, 8])
def test_on_links_that_contend_both_ways_have_links_of_their_own(comm_type: str, n: int) -> None:
    free = two_way(Dimension("ring", n, 50.0, 300.0))
    contended = two_way(Dimension("ring", n, 50.0, 300.0), congestion=True)
    for size in (1, 1_000_003):
        assert time_of(contended, comm_type, size) == time_of(free, comm_type, size)


def test_astra_sim_has_no_ring_both_ways() -> None:
    system = msgspec.structs.replace(two_way(Dimension("ring", 4, 50.0, 300.0)), compat="astra-sim")
    with pytest.raises(UsageError, match="ASTRA-sim has no biring"):
        simulate([trace_of([collective(0, "all_reduce", 64)])] * 4, system)
