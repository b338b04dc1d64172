"""The right rules, without what is odd about ASTRA-sim: closed forms and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nadi.simulation.runs.simulate import simulate
from nadi.systems import System
from nadi.systems.system import Collectives, Dimension, Network
from tests.amounts import examples
from tests.simulator.cases import collective, compute, run_each, trace_of

SETTINGS = settings(max_examples=examples(120), deadline=None)
COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_DELAY = 10
_COUNT = st.sampled_from([2, 3, 4, 5, 8, 16])
_SIZE = st.integers(1, 1 << 24)


def system_with(algorithm: str, *dimensions: Dimension, **collectives: Any) -> System:
    names = dict.fromkeys(COMM_TYPES, (algorithm,) * len(dimensions))
    settings_of = Collectives(**(names | collectives), endpoint_delay=_DELAY)
    return System(network=Network(dimensions=dimensions), collectives=settings_of)


def time_of(system: System, comm_type: str, size: int) -> int:
    """Simulate one collective of all ranks, by messages and by one rank for all.

    Followed messages have the links that a closed form gives them: as flows of their own they
    would share them by other rules.
    """
    node = collective(0, comm_type, size)
    traces = [trace_of([node])] * system.network.num_ranks
    done = simulate(traces, system)
    assert done.cycles.tolist() == run_each(traces, system).cycles.tolist()
    by_messages, at_once = (
        run_each(traces, system, meet=meet, flows=False).cycles.tolist() for meet in (False, True)
    )
    assert by_messages == at_once
    return done.makespan


def part(size: int, n: int) -> int:
    return -(-size // n)


@SETTINGS
@given(_COUNT, _SIZE, st.integers(0, 3000), st.floats(0.5, 500))
def test_a_ring_takes_its_closed_form(n: int, size: int, latency: int, bandwidth: float) -> None:
    system = system_with("ring", Dimension("ring", n, bandwidth, latency))
    one = int(latency + part(size, n) / bandwidth) + _DELAY
    assert time_of(system, "reduce_scatter", size) == _DELAY + (n - 1) * one
    assert time_of(system, "all_reduce", size) == _DELAY + 2 * (n - 1) * one
    whole = int(latency + size / bandwidth) + _DELAY
    assert time_of(system, "all_gather", size) == _DELAY + (n - 1) * whole
    steps = [int(latency + k * part(size, n) / bandwidth) + _DELAY for k in range(1, n)]
    assert time_of(system, "all_to_all", size) == _DELAY + sum(steps)


@SETTINGS
@given(st.sampled_from([2, 4, 8, 16]), _SIZE, st.integers(0, 3000), st.floats(0.5, 500))
def test_halving_and_doubling_take_their_closed_form(
    n: int, size: int, latency: int, bandwidth: float
) -> None:
    system = system_with("halvingDoubling", Dimension("fully-connected", n, bandwidth, latency))
    parts = [part(size, 2 << k) for k in range(n.bit_length() - 1)]
    one_way = sum(int(latency + p / bandwidth) + _DELAY for p in parts)
    assert time_of(system, "reduce_scatter", size) == _DELAY + one_way
    assert time_of(system, "all_reduce", size) == _DELAY + 2 * one_way


@SETTINGS
@given(_COUNT, _SIZE, st.integers(0, 3000), st.floats(0.5, 500))
def test_direct_takes_its_closed_form(n: int, size: int, latency: int, bandwidth: float) -> None:
    system = system_with("direct", Dimension("fully-connected", n, bandwidth, latency))
    one = int(latency + part(size, n) / bandwidth) + _DELAY
    assert time_of(system, "all_to_all", size) == _DELAY + one
    assert time_of(system, "reduce_scatter", size) == _DELAY + one
    assert time_of(system, "all_reduce", size) == _DELAY + 2 * one


_LINKS = {"ring": lambda n: min(2, n), "switch": lambda n: 1, "fully-connected": lambda n: n - 1}


@SETTINGS
@given(
    st.sampled_from(COMM_TYPES),
    st.sampled_from(["ring", "direct", "direct2", "halvingDoubling"]),
    st.sampled_from(sorted(_LINKS)),
    st.sampled_from([2, 4, 8, 16]),
    st.integers(1 << 16, 1 << 26),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_no_collective_beats_its_bandwidth_bound(
    comm_type: str, algorithm: str, topology: Any, n: int, size: int, active: int, chunks: int
) -> None:
    if comm_type == "all_to_all" and algorithm == "halvingDoubling":
        return
    bandwidth = 25.0
    system = system_with(
        algorithm, Dimension(topology, n, bandwidth, 0.0), active_chunks=active, chunks=chunks
    )
    sent = {"all_gather": size * (n - 1), "all_reduce": 2 * size * (n - 1) / n}
    least = sent.get(comm_type, size * (n - 1) / n) / (bandwidth * _LINKS[topology](n))
    if comm_type == "all_to_all" and topology == "ring":
        hops = sum(min(k, n - k) for k in range(1, n))
        least = size / n * hops / (bandwidth * _LINKS[topology](n))
    assert time_of(system, comm_type, size) >= least - chunks


def test_a_message_across_two_dimensions_pays_for_both() -> None:
    system = system_with("ring", Dimension("switch", 2, 10.0, 100), Dimension("ring", 3, 5.0, 1000))
    ends = {"comm_src": 0, "comm_dst": 3, "comm_tag": 0, "comm_size": 1000, "is_cpu_op": False}
    nodes = [[compute(0, 1)] for _ in range(6)]
    nodes[0] = [{"id": 0, "type": "COMM_SEND_NODE", **ends}]
    nodes[3] = [{"id": 0, "type": "COMM_RECV_NODE", **ends}]
    done = simulate([trace_of(of_rank) for of_rank in nodes], system)
    assert done.cycles[3] == 2 * 100 + 1000 + 1000 / 5


def test_an_algorithm_holds_for_the_dimensions_that_none_is_given_for() -> None:
    dimensions = Dimension("ring", 4, 10.0, 100), Dimension("ring", 2, 5.0, 1000)
    both = system_with("ring", *dimensions)
    names = dict.fromkeys(COMM_TYPES, ("ring",))
    one = system_with("ring", *dimensions, **names)
    for comm_type in COMM_TYPES:
        assert time_of(one, comm_type, 1 << 20) == time_of(both, comm_type, 1 << 20)


@pytest.mark.parametrize("chunks", [1, 3, 4, 7])
def test_what_remains_of_a_division_is_no_further_chunk(chunks: int) -> None:
    dimension = Dimension("ring", 4, 1.0, 0.0)
    system = system_with("ring", dimension, chunks=chunks)
    size = 4_000_003
    least = 2 * 3 * size // 4
    assert least <= time_of(system, "all_reduce", size) < least + chunks * 7 * (_DELAY + 2)
