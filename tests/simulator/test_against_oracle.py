"""Random jobs on random systems: the compiled engine equals the slow one, node by node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from nadi.errors import PairError, UsageError
from nadi.simulation.runs.simulate import simulate
from tests.amounts import examples
from tests.reference import astra_sim
from tests.simulator.cases import (
    Jobs,
    Node,
    collective,
    compute,
    jobs,
    num_ranks_of,
    run_nodes,
    system_of,
    systems,
    times_of,
    trace_of,
)

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)


def expected_times(case: dict[str, Any], nodes: Jobs) -> list[Any] | None:
    """Simulate with the oracle; None where ASTRA-sim stops, or never ends."""
    try:
        found = astra_sim.simulate(case, nodes)
    except astra_sim.UnsupportedError:
        return None
    if None in found["cycles"]:
        return None
    return [[times[number] for number in sorted(times)] for times in found["times"]]


@SETTINGS
@given(st.data())
def test_every_message_gives_the_times_of_the_oracle(data: st.DataObject) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    expected = expected_times(case, nodes)
    assume(expected is not None)
    assert times_of(run_nodes(nodes, system_of(case), meet=False)) == expected


@SETTINGS
@given(st.data())
def test_collectives_worked_out_at_once_end_as_their_messages_do(data: st.DataObject) -> None:
    case = data.draw(systems(contended=False), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    try:
        by_message = times_of(run_nodes(nodes, system_of(case), meet=False))
    except (UsageError, PairError):
        assume(False)
    assert times_of(run_nodes(nodes, system_of(case), meet=True)) == by_message


@SETTINGS
@given(st.data())
def test_one_rank_stands_for_all_that_are_alike(data: st.DataObject) -> None:
    case = data.draw(systems(contended=False), label="case")
    assume("doubleBinaryTree" not in case["system"]["all-reduce-implementation"])
    num_ranks = num_ranks_of(case)
    nodes: list[Node] = []
    for number in range(data.draw(st.integers(1, 4))):
        comm_type = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))
        size = data.draw(st.integers(64, 3_000_000))
        micros = data.draw(st.integers(1, 900))
        deps = [number - 1] if number else []
        one = collective(number, comm_type, size) if number % 2 else compute(number, micros)
        nodes.append(one | {"data_deps": deps, "ctrl_deps": []})
    trace = trace_of(nodes)
    done = simulate([trace] * num_ranks, system_of(case))
    all_nodes = dict.fromkeys(range(num_ranks), nodes)
    try:
        full = times_of(run_nodes(all_nodes, system_of(case), meet=False))
    except PairError:
        assume(False)
    assert done.cycles.tolist() == [max(end for _, end in times) for times in full]
    if done.program.num_ranks == 1:
        pairs = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
        assert [pairs] * num_ranks == full


@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct2", "direct5", "halvingDoubling"])
@pytest.mark.parametrize("comm_type", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_the_three_ways_agree_where_all_begin_at_once(algorithm: str, comm_type: str) -> None:
    if algorithm == "halvingDoubling" and comm_type == "all_to_all":
        pytest.skip("halvingDoubling has no all-to-all")
    for counts in ([8], [4, 4], [2, 4, 2]):
        dims = len(counts)
        names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
        case = {
            "backend": "congestion_unaware",
            "network": {
                "topology": ["Ring", "Switch", "FullyConnected"][:dims],
                "npus_count": counts,
                "bandwidth": [50.0, 40.0, 30.0][:dims],
                "latency": [500.0, 70.0, 900.0][:dims],
            },
            "system": {
                "endpoint-delay": 7,
                "active-chunks-per-dimension": 2,
                "preferred-dataset-splits": 3,
                "collective-optimization": "localBWAware",
                "local-mem-bw": 100,
                **{f"{name}-implementation": [algorithm] * dims for name in names},
            },
        }
        nodes = [collective(0, comm_type, 1_000_003) | {"data_deps": [], "ctrl_deps": []}]
        num_ranks = num_ranks_of(case)
        done = simulate([trace_of(nodes)] * num_ranks, system_of(case))
        assert done.program.num_ranks == 1, "one rank did not stand for all"
        all_nodes = dict.fromkeys(range(num_ranks), nodes)
        expected = expected_times(case, all_nodes)
        assert [[(0, int(cycle))] for cycle in done.cycles] == expected
        for meet in (False, True):
            assert times_of(run_nodes(all_nodes, system_of(case), meet=meet)) == expected
