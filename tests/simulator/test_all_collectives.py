"""Collectives of all types and algorithms: their graph keeps the laws, their links the counts."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.systems.system import Dimension, Network
from tests.amounts import examples
from tests.simulator.cases import collective, compute, trace_of
from tests.simulator.test_against_right_rules import jobs, machines, system_of, traces_of

SETTINGS = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck)
)


@SETTINGS
@given(st.data(), st.booleans())
def test_links_carry_what_the_engine_counts_and_the_graph_keeps_the_laws(
    data: st.DataObject, rendezvous: bool
) -> None:
    machine = data.draw(machines(), label="machine")
    work = data.draw(jobs(machine), label="work")
    system, traces = system_of(machine, work), traces_of(work)
    found = []
    for congestion in (False, True):
        network = msgspec.structs.replace(
            system.network, congestion=congestion, rendezvous=rendezvous
        )
        try:
            done = nadi.simulate(traces, msgspec.structs.replace(system, network=network))
        except (PairError, UsageError):
            assume(False)
        graph = nadi.simulation.simulated_graph(done)
        assert (nadi.graph.replay_graph(graph).time == graph.time).all()
        assert not graph.delay.any()
        assert (graph.weight >= 0).all()
        assert nadi.simulation.simulated_path(done).length == done.makespan
        found.append(nadi.simulation.link_table(done)["bytes"].to_numpy())
    assert np.array_equal(*found)


@pytest.mark.parametrize("comm_type", ["broadcast", "scatter", "reduce", "gather"])
def test_only_who_needs_the_data_of_others_waits_for_them(comm_type: str) -> None:
    node = collective(1, comm_type, 4000, comm_src=1, comm_dst=1, data_deps=[0])
    traces = [trace_of([compute(0, micros), node]) for micros in (1, 2, 3, 4)]
    system = nadi.systems.System(Network((Dimension("switch", 4, 10.0, 100.0),)))
    graph = nadi.simulation.simulated_graph(nadi.simulate(traces, system))
    moved = {}
    for rank in range(4):
        slower = graph.weight + np.where(graph.edge_op == 2 * rank, 1_000_000, 0)
        ends = (nadi.graph.replay_graph(graph.with_weights(slower)).time - graph.time)[
            3 : 2 * graph.num_ops : 4
        ]
        moved[rank] = [other for other in range(4) if ends[other] and other != rank]
    if comm_type in ("broadcast", "scatter"):
        assert moved == {0: [], 1: [0, 2, 3], 2: [], 3: []}
    else:
        assert moved == {0: [1], 1: [], 2: [1], 3: [1]}
