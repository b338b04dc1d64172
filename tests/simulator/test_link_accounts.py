"""What links carry: as the engine counts it where messages wait, and by laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.systems.system import Collectives, Dimension, Network
from tests.amounts import examples
from tests.simulator.cases import Node, collective, jobs, system_of, systems, trace_of

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)
TOPOLOGIES = ("ring", "fully-connected", "switch", "mesh")


def link_bytes(done: nadi.simulation.Simulation) -> list[int]:
    return nadi.simulation.link_table(done)["bytes"].to_list()


def system_with(
    *dimensions: tuple[str, int], congestion: bool = False, **more: Any
) -> nadi.systems.System:
    made = tuple(Dimension(topology, size, 10.0, 100.0) for topology, size in dimensions)
    return nadi.systems.System(
        Network(made, congestion=congestion), collectives=Collectives(**more)
    )


def counted(case: dict[str, Any], nodes: dict[int, list[Node]], **changes: Any) -> pl.DataFrame:
    traces = [trace_of(nodes[rank]) for rank in sorted(nodes)]
    return nadi.simulation.link_table(nadi.simulate(traces, system_of(case, **changes)))


@SETTINGS
@given(st.data(), st.sampled_from(["astra-sim", ""]))
def test_without_congestion_links_carry_what_the_engine_counts_with_it(
    data: st.DataObject, compat: str
) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    try:
        with_it = counted(case, nodes, congestion=True, compat=compat)
        without = counted(case, nodes, congestion=False, compat=compat)
    except (PairError, UsageError):
        assume(False)
    same = ["dimension", "kind", "src", "dst", "bytes"]
    assert without.select(same).equals(with_it.select(same))
    assert (without["peak_queue"] == -1).all()
    assert (with_it["utilization"] <= 1).all()


# laws


def of_collective(
    system: nadi.systems.System, comm_type: str, size: int, **more: Any
) -> pl.DataFrame:
    trace = trace_of([collective(0, comm_type, size, **more)])
    return nadi.simulation.link_table(nadi.simulate([trace] * system.network.num_ranks, system))


@pytest.mark.parametrize("n", [2, 3, 8, 17])
@pytest.mark.parametrize("topology", TOPOLOGIES[:3])
def test_a_ring_all_reduce_moves_what_the_closed_form_says(n: int, topology: str) -> None:
    size = 1000 * n
    links = of_collective(system_with((topology, n), all_reduce=("ring",)), "all_reduce", size)
    ways = 2 if topology == "switch" else 1
    assert links["bytes"].sum() == 2 * (n - 1) * size * ways
    used = links.filter(pl.col("bytes") > 0)
    assert used.height == n * ways
    assert used["bytes"].unique().to_list() == [2 * (n - 1) * size // n]


@pytest.mark.parametrize("n", [2, 5, 8])
def test_direct_all_to_all_takes_the_shorter_way_round_a_ring(n: int) -> None:
    links = of_collective(system_with(("ring", n)), "all_to_all", 100 * n)
    hops = sum(min((b - a) % n, (a - b) % n) for a in range(n) for b in range(n))
    assert links["bytes"].sum() == 100 * hops


def test_a_mesh_has_no_link_round_its_end() -> None:
    links = of_collective(system_with(("mesh", 4)), "all_to_all", 400)
    ends = links.select("src", "dst", "bytes").rows()
    assert sorted(ends) == [
        (0, 1, 300), (1, 0, 300), (1, 2, 400), (2, 1, 400), (2, 3, 300), (3, 2, 300),
    ]  # fmt: skip


@pytest.mark.parametrize("congestion", [False, True])
def test_a_message_goes_through_lower_dimensions_first(congestion: bool) -> None:
    system = system_with(
        ("ring", 4), ("switch", 3), ("fully-connected", 2), congestion=congestion
    )  # fmt: skip
    src, dst = 1 + 4 * 0 + 12 * 0, 3 + 4 * 2 + 12 * 1
    ends = {"comm_src": src, "comm_dst": dst, "comm_tag": 0, "comm_size": 70, "is_cpu_op": False}
    idle = trace_of([{"id": 0, "type": "COMP_NODE", "is_cpu_op": False, "duration_micros": 1}])
    traces = [idle] * 24
    traces[src] = trace_of([{"id": 0, "type": "COMM_SEND_NODE", **ends}])
    traces[dst] = trace_of([{"id": 0, "type": "COMM_RECV_NODE", **ends}])
    used = nadi.simulation.link_table(nadi.simulate(traces, system)).filter(pl.col("bytes") > 0)
    assert used.select("dimension", "kind", "src", "dst", "bytes").rows() == [
        (0, "ring", 1, 2, 70), (0, "ring", 2, 3, 70), (1, "to switch", 3, -1, 70),
        (1, "from switch", -1, 11, 70), (2, "direct", 11, 23, 70),
    ]  # fmt: skip


@pytest.mark.parametrize("congestion", [False, True])
def test_busy_time_and_utilization_are_of_the_bytes(congestion: bool) -> None:
    system = system_with(("ring", 4), congestion=congestion)
    trace = trace_of([collective(0, "all_reduce", 40_000)])
    done = nadi.simulate([trace] * 4, system)
    used = nadi.simulation.link_table(done).filter(pl.col("bytes") > 0)
    assert used["busy"].to_list() == [60_000 // 10] * 4
    assert used["utilization"].to_list() == [pytest.approx(6000 / done.makespan)] * 4
    assert used["peak_queue"].unique().to_list() == ([0] if congestion else [-1])


def test_messages_that_nothing_holds_up_may_need_more_than_the_time_there_is() -> None:
    compat = system_of({
        "backend": "congestion_unaware", "cli": {}, "comm_group": None,
        "network": {"topology": ["Switch"], "npus_count": [8], "bandwidth": [10.0],
                    "latency": [1.0]},
        "system": {"preferred-dataset-splits": 1, "all-to-all-implementation": ["direct"]},
    })  # fmt: skip
    trace = trace_of([collective(0, "all_to_all", 8_000_000)])
    assert nadi.simulation.link_table(nadi.simulate([trace] * 8, compat))["utilization"].min() > 3
    trace = trace_of([collective(0, "all_to_all", 8_000_000)])
    right = system_with(("switch", 8))
    found = nadi.simulation.link_table(nadi.simulate([trace] * 8, right))["utilization"]
    assert 0.9 < found.min() <= found.max() <= 1


def test_as_many_links_as_the_network_has() -> None:
    done = nadi.simulate(
        [trace_of([collective(0, "all_reduce", 100)])] * 24,
        system_with(("ring", 4), ("switch", 3), ("fully-connected", 2), all_reduce=("ring",)),
    )
    links = nadi.simulation.link_table(done)
    assert links.group_by("dimension", "kind", maintain_order=True).len().rows() == [
        (0, "ring", 48), (1, "to switch", 24), (1, "from switch", 24), (2, "direct", 24),
    ]  # fmt: skip
    assert np.array_equal(links["dimension"].to_numpy(), np.sort(links["dimension"].to_numpy()))


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("shape", [(("ring", 8),), (("switch", 2), ("ring", 4))])
def test_chunks_take_the_two_trees_in_turn(shape: Any, chunks: int) -> None:
    trace = trace_of([collective(k, "all_reduce", 9000, data_deps=[k - 1][:k]) for k in range(3)])
    found = [
        link_bytes(nadi.simulate(
            [trace] * 8,
            system_with(*shape, congestion=congestion, all_reduce=("doubleBinaryTree",),
                        chunks=chunks),
        ))
        for congestion in (False, True)
    ]  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize("queues", [2, 3, 4])
def test_chunks_take_the_queues_in_turn(queues: int) -> None:
    trace = trace_of([collective(k, "all_reduce", 9001, data_deps=[k - 1][:k]) for k in range(3)])
    found = [
        link_bytes(
            nadi.simulate(
                [trace] * 8,
                system_with(
                    ("ring", 4), ("ring", 2), congestion=congestion, queues=queues, chunks=5
                ),
            )
        )
        for congestion in (False, True)
    ]
    assert found[0] == found[1]
    assert min(found[0][:8]) > 0  # both ways round
