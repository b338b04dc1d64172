"""A simulated job as if it had been recorded: its graph keeps the laws, and its path is true."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.simulation.accounts.collective_accounts import meetings_of, messages_of_nodes
from nadi.simulation.engine.codes import Slot
from nadi.systems.memory_tiers import remote_tier
from nadi.systems.system import Dimension, Network
from tests.amounts import examples
from tests.simulator.cases import collective, compute, jobs, system_of, systems, trace_of

SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


def simulated(data: st.DataObject, compat: str = "astra-sim") -> nadi.simulation.Simulation:
    """Simulate a random job on a random system."""
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    traces = [trace_of(nodes[rank]) for rank in sorted(nodes)]
    try:
        return nadi.simulate(traces, system_of(case, compat=compat))
    except (PairError, UsageError):
        assume(False)
        raise


@SETTINGS
@given(st.data(), st.sampled_from(["astra-sim", ""]))
def test_replay_gives_back_every_simulated_time_and_nothing_is_unexplained(
    data: st.DataObject, compat: str
) -> None:
    done = simulated(data, compat)
    graph = nadi.simulation.simulated_graph(done)
    replay = nadi.graph.replay_graph(graph)
    assert (replay.time == graph.time).all()
    assert not graph.delay.any()
    times = replay.schedule().table.select("rank", "node", "start", "end")
    simulated_times = done.schedule.table.filter(pl.col("rank").is_in(graph.job.ranks))
    assert times.equals(simulated_times.select("rank", "node", "start", "end"))


@SETTINGS
@given(st.data())
def test_every_moment_is_the_latest_of_what_it_waits_for(data: st.DataObject) -> None:
    replay = nadi.graph.replay_graph(nadi.simulation.simulated_graph(simulated(data)))
    graph = replay.graph
    for vertex in range(graph.num_vertices):
        edges = range(graph.in_ptr[vertex], graph.in_ptr[vertex + 1])
        moments = [replay.time[graph.in_src[e]] + graph.weight[e] for e in edges]
        assert replay.time[vertex] == max(moments, default=0)
        assert all(graph.weight[e] >= 0 for e in edges)


@SETTINGS
@given(st.data(), st.integers(0, 2**32 - 1))
def test_what_takes_less_time_makes_nothing_later(data: st.DataObject, seed: int) -> None:
    graph = nadi.simulation.simulated_graph(simulated(data))
    share = np.random.default_rng(seed).random(graph.num_edges)
    less = graph.with_weights((graph.weight * share).astype(np.int64))
    assert (nadi.graph.replay_graph(less).time <= graph.time).all()


def walk_back(done: nadi.simulation.Simulation) -> list[tuple[int, int, int]]:
    """Walk from the last end to the start; gives node, begin and end of each stretch."""
    partners: dict[int, list[int]] = {}
    for node, number in zip(*(one.tolist() for one in meetings_of(done)), strict=True):
        partners.setdefault(number, []).append(node)
    members = {node: nodes for nodes in partners.values() for node in nodes}
    messages = messages_of_nodes(done)
    sender = dict(zip(messages.receive.tolist(), messages.send.tolist(), strict=True))
    receiver = {send: receive for receive, send in sender.items()}
    start, end = done.start.tolist(), done.end.tolist()
    at = max(range(len(end)), key=end.__getitem__)
    found = []
    while at >= 0:
        latest = at
        if at in sender and end[at] > start[at]:
            at = latest = sender[at]
        if at in members and end[at] > start[at]:
            latest = max(members[at], key=start.__getitem__)
        elif at in receiver and done.system.network.rendezvous:
            latest = max(at, receiver[at], key=start.__getitem__)
        found.append((at, start[latest], end[at]))
        at = int(done.cause[latest])
    return found[::-1]


@SETTINGS
@given(st.data(), st.sampled_from(["astra-sim", ""]))
def test_the_path_is_as_long_as_the_job_and_as_a_walk_back_over_causes(
    data: st.DataObject, compat: str
) -> None:
    done = simulated(data, compat)
    path = nadi.simulation.simulated_path(done)
    assert path.length == done.makespan
    assert path.by_kind()["unexplained"] == path.by_kind()["launch"] == 0
    walk = walk_back(done)
    assert walk[0][1] == 0
    assert sum(end - begin for _, begin, end in walk) == done.makespan
    for (_, _, end), (_, begin, _) in pairwise(walk):
        assert end == begin


@SETTINGS
@given(st.data(), st.integers(0, 2**32 - 1))
def test_after_changes_everything_still_waits_for_what_it_waited_for(
    data: st.DataObject, seed: int
) -> None:
    done = simulated(data)
    graph = nadi.simulation.simulated_graph(done)
    longer = np.random.default_rng(seed).integers(0, 5_000_000, graph.num_edges)
    own_time = (graph.in_src % 2 == 0) & (graph.in_src < 2 * graph.num_ops) & (graph.weight > 0)
    weight = np.where(own_time, graph.weight + longer, graph.weight)
    time = nadi.graph.replay_graph(graph.with_weights(weight)).time
    program = done.program
    op = program.first[program.rank] + program.row
    start, end = time[2 * op], time[2 * op + 1]
    assert (start >= done.start).all()
    parent = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    assert (start[program.children] >= end[parent]).all()
    (node, number), messages = meetings_of(done), messages_of_nodes(done)
    entered = np.zeros(program.num_nodes, dtype=np.int64)
    np.maximum.at(entered, number, start[node])
    assert (end[node] >= entered[number]).all()
    assert (end[messages.receive] >= end[messages.send]).all()
    if done.system.network.rendezvous:
        assert (end[messages.send] > start[messages.receive]).all()
    slot = done.trail.slot[: program.num_nodes]
    for rank in range(program.num_ranks):
        for one in (Slot.CPU, Slot.COMP, Slot.COMM):
            mine = np.flatnonzero((program.rank == rank) & (slot == one) & (done.end > done.start))
            mine = mine[np.argsort(done.start[mine])]
            assert (start[mine[1:]] >= end[mine[:-1]]).all()


def two_by_two(case: dict[str, Any]) -> dict[str, Any]:
    """Give a network of two rings of two, whose all-reduces use the first dimension only."""
    network = {
        "topology": ["Ring", "Ring"], "npus_count": [2, 2], "bandwidth": [10.0, 10.0],
        "latency": [50.0, 50.0],
    }  # fmt: skip
    system = {
        "preferred-dataset-splits": 1, "all-reduce-implementation": ["ring"],
        "endpoint-delay": 1,
    }  # fmt: skip
    return case | {
        "backend": "congestion_unaware", "network": network, "system": system, "cli": {},
        "comm_group": None,
    }  # fmt: skip


def test_ranks_that_differ_in_other_dimensions_do_not_wait_for_each_other() -> None:
    all_reduce = collective(1, "all_reduce", 1000, data_deps=[0])
    traces = [trace_of([compute(0, micros), all_reduce]) for micros in (1, 2, 300, 400)]
    done = nadi.simulate(traces, system_of(two_by_two({})))
    graph = nadi.simulation.simulated_graph(done)
    assert not graph.delay.any()
    met = graph.job.matches.group_by("collective", maintain_order=True).agg("rank")
    assert met["rank"].to_list() == [[0, 1], [2, 3]]
    slower = graph.weight + np.where(graph.edge_op == 4, 1_000_000, 0)  # compute of rank 2
    moved = nadi.graph.replay_graph(graph.with_weights(slower)).time - graph.time
    ends = moved[1 : 2 * graph.num_ops : 2].reshape(4, 2)
    assert ends[:, 1].tolist() == [0, 0, 900_000, 900_000]


def test_the_last_to_enter_a_collective_is_on_the_path() -> None:
    all_reduce = collective(1, "all_reduce", 1000, data_deps=[0])
    traces = [trace_of([compute(0, micros), all_reduce]) for micros in (1, 2, 4, 3)]
    network = nadi.systems.System(Network((Dimension("ring", 4, 10.0, 100.0),)))
    path = nadi.simulation.simulated_path(nadi.simulate(traces, network))
    assert path.segments.select("rank", "name", "start").rows()[0] == (2, "n0", 0)
    assert path.by_kind()["kernel"] == 4000


def test_an_access_to_remote_memory_waits_for_those_that_its_server_took_before() -> None:
    load = {"id": 0, "type": "MEM_LOAD_NODE", "is_cpu_op": False, "tensor_size": 100}
    memory = remote_tier("pool", latency=10, bandwidth=1)
    system = nadi.systems.System(Network((Dimension("ring", 3, 10.0),)), remote_memory=memory)
    sizes = (100, 200, 300)
    traces = [trace_of([load | {"tensor_size": size}, compute(1, 1)]) for size in sizes]
    graph = nadi.simulation.simulated_graph(nadi.simulate(traces, system))
    ends = 2 * np.flatnonzero(graph.op_row == 0) + 1
    assert graph.time[ends].tolist() == [110, 320, 630]
    assert not graph.delay.any()
    first = graph.edge_op == 0
    assert first.sum() == 1
    twice = nadi.graph.replay_graph(graph.with_weights(np.where(first, 2, 1) * graph.weight))
    assert twice.time[ends].tolist() == [220, 430, 740]


def test_one_of_many_ranks_that_are_alike_has_everybodys_path() -> None:
    trace = trace_of([compute(0, 7), collective(1, "all_reduce", 5000, data_deps=[0])])
    system = nadi.systems.System(Network((Dimension("ring", 4096, 10.0, 100.0),)))
    done = nadi.simulate([trace] * 4096, system)
    graph = nadi.simulation.simulated_graph(done)
    assert (graph.job.ranks, graph.job.world_size) == ((0,), 4096)
    assert nadi.simulation.simulated_path(done).length == done.makespan
    assert nadi.trace.validate_trace(graph.job.traces[0]).is_empty()


def test_a_change_that_keeps_the_order_says_what_a_new_simulation_says() -> None:
    def traces(micros: int) -> list[nadi.Trace]:
        nodes = [compute(0, micros), collective(1, "all_reduce", 90_000, data_deps=[0]),
                 compute(2, 2 * micros, data_deps=[1])]  # fmt: skip
        return [trace_of(nodes)] * 4

    system = nadi.systems.System(Network((Dimension("ring", 4, 10.0, 100.0),)))
    graph = nadi.simulation.simulated_graph(nadi.simulate(traces(40), system))
    answer = nadi.what_if(graph, "scale n[02] 0.5")
    assert answer.window_ns == nadi.simulate(traces(20), system).makespan


def test_the_job_keeps_to_the_data_model() -> None:
    sends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 10, "is_cpu_op": False}
    traces = [
        trace_of([compute(0, 3, is_cpu_op=True), {"id": 1, "type": f"COMM_{kind}_NODE", **sends}])
        for kind in ("SEND", "RECV")
    ]
    system = nadi.systems.System(Network((Dimension("ring", 2, 10.0, 100.0),)))
    job = nadi.simulation.simulated_job(nadi.simulate(traces, system))
    assert nadi.trace.validate_job(job).is_empty()
    assert all(nadi.trace.validate_trace(trace).is_empty() for trace in job.traces)
    assert job.matches.rows() == [(0, 0, 1), (0, 1, 1)]
    assert job.num_transfers == 1
    lanes = job.traces[1].nodes.select("is_cpu", "thread", "device", "stream", "start", "duration")
    assert lanes.rows() == [(True, 0, -1, -1, 0, 3000), (False, -1, 0, 2, 0, 101)]


def test_with_rendezvous_a_send_waits_for_its_receive() -> None:
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 10, "is_cpu_op": False}
    traces = [
        trace_of([compute(0, micros), {"id": 1, "type": f"COMM_{kind}_NODE", "data_deps": [0]}
                  | ends])
        for kind, micros in (("SEND", 1), ("RECV", 50))
    ]  # fmt: skip
    network = Network((Dimension("ring", 2, 10.0, 100.0),), rendezvous=True)
    done = nadi.simulate(traces, nadi.systems.System(network))
    path = nadi.simulation.simulated_path(done)
    assert path.segments.select("rank", "name").rows() == [(1, "n0"), (0, "n1")]
    graph = nadi.simulation.simulated_graph(done)
    later = nadi.what_if(graph, "scale n0 rank=1 2")
    assert later.window_ns == done.makespan + 50_000
