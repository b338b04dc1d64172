"""Devices: threads and streams in order, all of them at once, and communication beside it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from nadi.errors import InputError, PairError, UsageError
from nadi.simulation.runs.simulate import simulate
from tests.amounts import examples
from tests.reference import astra_sim
from tests.simulator.cases import (
    Node,
    collective,
    compute,
    devices_of,
    jobs,
    num_ranks_of,
    put_collectives_in_order,
    run_devices,
    run_nodes,
    system_of,
    systems,
    times_of,
    trace_of,
)

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)
RING = {
    "backend": "congestion_unaware",
    "network": {"topology": ["Ring"], "npus_count": [2], "bandwidth": [25.0], "latency": [300.0]},
    "system": {
        "preferred-dataset-splits": 2, "endpoint-delay": 7,
        **{f"{name}-implementation": ["ring"] for name in
           ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
    },
}  # fmt: skip


@SETTINGS
@given(st.data())
def test_every_message_gives_the_times_of_the_oracle(data: st.DataObject) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case, 8, devices=True), label="nodes")
    try:
        found = astra_sim.simulate(case, nodes, devices=True)
    except astra_sim.UnsupportedError:
        assume(False)
    assert None not in found["cycles"], "phases that are queued together never wait in a circle"
    expected = [[times[number] for number in sorted(times)] for times in found["times"]]
    assert times_of(run_devices(case, nodes, meet=False)) == expected


@SETTINGS
@given(st.data())
def test_collectives_worked_out_at_once_end_as_their_messages_do(data: st.DataObject) -> None:
    case = data.draw(systems(contended=False), label="case")
    nodes = data.draw(jobs(case, 8, devices=True), label="nodes")
    # one after the other: which of two is first that come to a queue in one ns, nothing says
    put_collectives_in_order(nodes)
    try:
        by_message = times_of(run_devices(case, nodes, meet=False))
    except UsageError:
        assume(False)
    assert times_of(run_devices(case, nodes, meet=True)) == by_message


@SETTINGS
@given(st.data())
def test_one_rank_stands_for_all_that_are_alike(data: st.DataObject) -> None:
    case = data.draw(systems(contended=False), label="case")
    assume("doubleBinaryTree" not in case["system"]["all-reduce-implementation"])
    num_ranks = num_ranks_of(case)
    nodes: list[Node] = []
    for number in range(data.draw(st.integers(1, 5))):
        comm_type = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))
        size = data.draw(st.integers(64, 3_000_000))
        one = collective(number, comm_type, size) if number % 2 else compute(number, 300)
        lane = data.draw(st.sampled_from([{}, {"stream": 1}, {"stream": 2}]))
        deps = data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        nodes.append(one | lane | {"data_deps": sorted(deps), "ctrl_deps": []})
    trace = trace_of(nodes)
    done = simulate([trace] * num_ranks, devices_of(case))
    full = times_of(run_devices(case, dict.fromkeys(range(num_ranks), nodes), meet=False))
    assert done.cycles.tolist() == [max(end for _, end in times) for times in full]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_replayed_everything_takes_its_recorded_time(data: st.DataObject) -> None:
    case = data.draw(systems(), label="case")
    case["system"]["replay-only"] = 1
    nodes = data.draw(jobs(case), label="nodes")
    for of_rank in nodes.values():
        for node in of_rank:
            node["duration_micros"] = 1 + node["id"] % 5
    found = astra_sim.simulate(case, nodes)
    expected = [[times[number] for number in sorted(times)] for times in found["times"]]
    assert times_of(run_nodes(nodes, system_of(case))) == expected


def test_streams_go_on_at_once_and_each_in_order() -> None:
    nodes = [
        compute(0, 5, stream=7), compute(1, 3, stream=20), compute(2, 4, stream=7),
        compute(3, 2, thread=1, is_cpu_op=True), compute(4, 2, thread=1, is_cpu_op=True),
        compute(5, 9, thread=2, is_cpu_op=True),
    ]  # fmt: skip
    done = run_devices(RING, {0: nodes, 1: nodes})
    assert times_of(done)[0] == [
        (0, 5000), (0, 3000), (5000, 9000), (0, 2000), (2000, 4000), (0, 9000)
    ]  # fmt: skip
    assert done.schedule.table["resource"].to_list()[:6] == [
        "stream 7", "stream 20", "stream 7", "thread 1", "thread 1", "thread 2"
    ]  # fmt: skip


def test_the_order_of_a_stream_is_that_of_recorded_starts() -> None:
    nodes = [compute(0, 5, stream=7, start=900), compute(1, 3, stream=7, start=100)]
    assert times_of(run_devices(RING, {0: nodes, 1: nodes}))[0] == [(3000, 8000), (0, 3000)]
    del nodes[0]["start"]  # one without: ids then
    assert times_of(run_devices(RING, {0: nodes, 1: nodes}))[0] == [(0, 5000), (5000, 8000)]


def test_what_says_of_no_stream_takes_its_turn_as_it_is_ready() -> None:
    nodes = [compute(0, 5), compute(1, 1, data_deps=[2]), compute(2, 2)]
    done = run_devices(RING, {0: nodes, 1: nodes})
    assert times_of(done)[0] == [(0, 5000), (7000, 8000), (5000, 7000)]


def test_collectives_of_two_streams_begun_in_other_orders_meet() -> None:
    """With slots each rank would wait in one for what the other has not begun."""
    one, other = collective(0, "all_reduce", 1 << 20), collective(1, "all_reduce", 1 << 22)
    nodes = {
        0: [one | {"stream": 1}, other | {"stream": 2, "data_deps": [2]}, compute(2, 50)],
        1: [one | {"stream": 1, "data_deps": [2]}, other | {"stream": 2}, compute(2, 50)],
    }
    done = run_devices(RING, nodes)
    ends = [[end for _, end in times] for times in times_of(done)]
    assert ends[0] == ends[1]
    with pytest.raises(PairError, match="they differ in type or size"):
        simulate([trace_of(nodes[rank]) for rank in range(2)], system_of(RING))


def test_collectives_at_once_share_the_links_and_so_take_as_long_as_in_turns() -> None:
    pair = [collective(number, "all_reduce", 1 << 20, stream=number) for number in range(2)]
    alone = run_devices(RING, {0: pair[:1], 1: pair[:1]}).makespan
    assert run_devices(RING, {0: pair, 1: pair}).makespan == 2 * alone


def test_a_lane_that_contradicts_its_dependencies_is_named() -> None:
    nodes = [
        compute(0, 5, stream=7, start=100, data_deps=[2]),
        compute(1, 1),
        compute(2, 5, stream=7, start=200),
    ]
    message = r"rank 0 node 2 \(n2\).*is queued after rank 0 node 0 \(n0\) on stream 7"
    with pytest.raises(InputError, match=message):
        run_devices(RING, {0: nodes, 1: nodes})


def test_a_missing_member_is_named() -> None:
    nodes = {0: [collective(0, "all_reduce", 8), collective(1, "all_reduce", 8)],
             1: [collective(0, "all_reduce", 8)]}  # fmt: skip
    with pytest.raises(
        PairError, match=r"rank 0 node 1 \(n1\), all_.* bytes, waits in group all ranks for rank 1"
    ):
        run_devices(RING, nodes)
