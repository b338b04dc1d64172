"""A simulated job as if it had been recorded: its graph keeps the laws, and its path is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.graph import EdgeKind
from nadi.kernels import machine as M
from nadi.simulator.meetings import meetings_of, messages_of_nodes
from tests.simulator.cases import Node, collective, compute, jobs, system_of, systems, trace_of

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def simulated(data: st.DataObject, compat: str = "astra-sim") -> nadi.Simulation:
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
    graph = nadi.simulated_graph(done)
    replay = graph.replay()
    assert (replay.time == graph.time).all()
    assert not graph.delay.any()
    times = replay.schedule().table.select("rank", "node", "start", "end")
    simulated_times = done.schedule.table.filter(pl.col("rank").is_in(graph.job.ranks))
    assert times.equals(simulated_times.select("rank", "node", "start", "end"))


@SETTINGS
@given(st.data())
def test_every_moment_is_the_latest_of_what_it_waits_for(data: st.DataObject) -> None:
    replay = nadi.simulated_graph(simulated(data)).replay()
    graph = replay.graph
    for vertex in range(graph.num_vertices):
        edges = range(graph.in_ptr[vertex], graph.in_ptr[vertex + 1])
        moments = [replay.time[graph.in_src[e]] + graph.weight[e] for e in edges]
        assert replay.time[vertex] == max(moments, default=0)
        assert all(graph.weight[e] >= 0 for e in edges)


@SETTINGS
@given(st.data(), st.integers(0, 2**32 - 1))
def test_what_takes_less_time_makes_nothing_later(data: st.DataObject, seed: int) -> None:
    graph = nadi.simulated_graph(simulated(data))
    share = np.random.default_rng(seed).random(graph.num_edges)
    less = graph.with_weights((graph.weight * share).astype(np.int64))
    assert (less.replay().time <= graph.time).all()


def walk_back(done: nadi.Simulation) -> list[tuple[int, int, int]]:
    """Walk from the last end to the start; gives node, begin and end of each stretch."""
    partners: dict[int, list[int]] = {}
    meetings = meetings_of(done)
    for node, number in zip(meetings.node.tolist(), meetings.number.tolist(), strict=True):
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
    path = done.critical_path()
    assert path.length == done.makespan
    assert path.by_kind()["delay"] == path.by_kind()["launch"] == 0
    walk = walk_back(done)
    assert walk[0][1] == 0
    assert sum(end - begin for _, begin, end in walk) == done.makespan
    for (_, _, end), (_, begin, _) in zip(walk, walk[1:], strict=False):
        assert end == begin
