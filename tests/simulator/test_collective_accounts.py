"""When collectives ran and how fast: against plain Python, closed forms and bounds."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.simulation import Simulation
from nadi.simulation.accounts.collective_accounts import sum_by_group, sum_by_type
from nadi.simulation.collectives.bandwidth_bounds import least_time
from nadi.simulation.collectives.collective_algorithms import recipe_of
from nadi.simulation.collectives.phases import Recipe
from nadi.simulation.runs.simulate import simulate
from nadi.systems import System
from nadi.systems.system import Collectives, Dimension, Network
from tests.amounts import examples
from tests.simulator.cases import Node, collective, compute, jobs, system_of, systems, trace_of

SETTINGS = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck)
)
COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def expected_rows(nodes: dict[int, list[Node]], done: Simulation) -> dict[Any, dict[str, Any]]:
    """Find who was in each collective of a job in plain Python, by group and number."""
    first = done.program.first[done.like].tolist()
    members: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for rank, own in nodes.items():
        count: dict[str, int] = defaultdict(int)
        for number, node in enumerate(own):  # communication comes in the order of ids
            if node["type"] == "COMM_COLL_NODE":
                group = node.get("pg_name", "")
                at = first[rank] + number
                members[group, count[group]].append((done.start[at], rank, done.end[at]))
                count[group] += 1
    rows = {}
    for key, entries in members.items():
        last = max(start for start, *_ in entries)
        rows[key] = {
            "members": len(entries),
            "first_entry": min(start for start, *_ in entries),
            "last_entry": last,
            "last_rank": min(rank for start, rank, _ in entries if start == last),
            "end": max(end for *_, end in entries),
            "waiting": sum(min(last, end) - start for start, _, end in entries),
        }
    return rows


@SETTINGS
@given(st.data())
def test_they_are_those_that_plain_python_finds(data: st.DataObject) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    compat: Any = data.draw(st.sampled_from(["astra-sim", ""]))
    try:
        done = simulate([trace_of(nodes[rank]) for rank in nodes], system_of(case, compat=compat))
    except (UsageError, PairError):
        assume(False)
    table = nadi.simulation.collective_times(done)
    expected = expected_rows(nodes, done)
    assert table.height == len(expected)
    assert table["first_entry"].is_sorted()
    for row in table.iter_rows(named=True):
        wanted = expected[row["group"], row["number"]]
        assert {name: row[name] for name in wanted} == wanted
        assert row["time"] == row["end"] - row["last_entry"]
    assert sum_by_type(table)["count"].sum() == sum_by_group(table)["count"].sum() == table.height
    assert sum_by_group(table)["waiting"].sum() == table["waiting"].sum()


# bounds


@st.composite
def right_systems(draw: st.DrawFn) -> System:
    """Draw a system under the right rules, without any delay of its own."""
    counts = draw(st.sampled_from([[2], [3], [8], [2, 4], [3, 2], [2, 2, 2], [4, 1, 2]]))
    kinds: Any = st.sampled_from(["ring", "switch", "fully-connected", "mesh"])
    dimensions = tuple(
        Dimension(draw(kinds), count, draw(st.sampled_from([1.0, 7.5, 100.0])), 0.0)
        for count in counts
    )
    names = ["ring", "direct", "direct2", "oneRing", "oneDirect"]
    if all(count & (count - 1) == 0 for count in counts):
        names += ["halvingDoubling"]
    chosen = {}
    for comm_type in COMM_TYPES:
        name = draw(st.sampled_from(names))
        if comm_type == "all_to_all" and name == "halvingDoubling":
            name = "ring"
        chosen[comm_type] = (name,) if name.startswith("one") else (name,) * len(counts)
    active, chunks = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    return System(
        Network(dimensions, congestion=draw(st.booleans())),
        collectives=Collectives(
            **chosen, chunks=chunks, active_chunks=active, endpoint_delay=0,
            bandwidth_aware=draw(st.booleans()),
        ),
    )  # fmt: skip


@SETTINGS
@given(st.data())
def test_no_collective_beats_its_bound_under_the_right_rules(data: st.DataObject) -> None:
    system = data.draw(right_systems())
    num_ranks = system.network.num_ranks
    comm_type = data.draw(st.sampled_from(COMM_TYPES))
    size = data.draw(st.integers(1 << 12, 1 << 22))
    late = data.draw(st.lists(st.integers(1, 300), min_size=num_ranks, max_size=num_ranks))
    group = data.draw(st.permutations(range(num_ranks)))[: data.draw(st.integers(2, num_ranks))]
    grouped = data.draw(st.booleans())
    nodes = [
        [compute(0, late[rank])]
        + ([] if grouped and rank not in group else [
            collective(1, comm_type, size, data_deps=[0], **({"pg_name": "g"} if grouped else {}))
        ])
        for rank in range(num_ranks)
    ]  # fmt: skip
    system = System(**{name: getattr(system, name) for name in ("network", "collectives")},
                    groups={"g": tuple(group)})  # fmt: skip
    try:
        done = simulate([trace_of(own) for own in nodes], system)
    except (UsageError, PairError):  # chunks that pass each other wait for each other for ever
        assume(False)
    (row,) = nadi.simulation.collective_times(done).iter_rows(named=True)
    assert row["bound"] > 0
    # each message's time is rounded down; who comes early has sent before the last one came
    messages = 4 * num_ranks * num_ranks * system.collectives.chunks
    assert row["end"] - row["first_entry"] >= row["bound"] - messages
    assert row["fraction"] == pytest.approx(row["bound"] / row["time"])


def bound_of(system: System, comm_type: str, size: int, group: tuple[int, ...] = ()) -> float:
    recipe = recipe_of(system, comm_type, np.array(group) if group else None)
    ranks = np.array(group or range(system.network.num_ranks))
    return least_time(system, recipe, size, ranks)


@pytest.mark.parametrize(
    ("comm_type", "per_rank"),
    [("all_reduce", 1.75), ("reduce_scatter", 0.875), ("all_gather", 7), ("all_to_all", 0.875)],
)  # fmt: skip
def test_the_bound_of_a_switch_is_what_a_rank_has_to_send(comm_type: str, per_rank: float) -> None:
    system = System(Network((Dimension("switch", 8, 25.0, 900.0),)))
    assert bound_of(system, comm_type, 8000) == pytest.approx(8000 * per_rank / 25)


def test_the_bound_of_a_ring_counts_both_ways_and_hops() -> None:
    system = System(Network((Dimension("ring", 5, 10.0, 1.0),)))
    assert bound_of(system, "all_reduce", 5000) == pytest.approx(2 * 4000 / 20)
    # to two ranks it is one hop, to two others two
    assert bound_of(system, "all_to_all", 5000) == pytest.approx((1 + 1 + 2 + 2) * 1000 / 20)


def test_the_bound_of_several_dimensions_is_that_of_the_busiest() -> None:
    network = Network((Dimension("fully-connected", 4, 100.0), Dimension("switch", 2, 10.0)))
    system = System(network, collectives=Collectives(all_reduce=("ring", "ring")))
    inside, across = 2 * 3 / 4 * 8000 / 300, 2 * 1 / 2 * 2000 / 10
    assert bound_of(system, "all_reduce", 8000) == pytest.approx(max(inside, across))
    slow = System(Network((Dimension("fully-connected", 4, 1.0), network.dimensions[1])),
                  collectives=system.collectives)  # fmt: skip
    assert bound_of(slow, "all_reduce", 8000) == pytest.approx(inside * 100)


def test_the_bound_of_a_group_is_that_of_the_cut_between_its_parts() -> None:
    network = Network((Dimension("switch", 4, 100.0), Dimension("switch", 4, 10.0)))
    system = System(network)
    assert bound_of(system, "all_reduce", 8000, (0, 1, 2, 3)) == pytest.approx(2 * 6000 / 100)
    assert bound_of(system, "all_reduce", 8000, (1, 5, 9, 13)) == pytest.approx(2 * 6000 / 10)
    # two nodes of two ranks: each node tells the other its sum, by two links
    assert bound_of(system, "all_reduce", 8000, (0, 1, 4, 5)) == pytest.approx(2 * 8000 / 4 / 10)
    # from 0 to 5 a message may leave the node of 0 at 1, which is no member
    assert bound_of(system, "all_gather", 8000, (0, 5)) == pytest.approx(2 * 8000 / 4 / 10)


def test_what_nothing_is_known_of_has_no_bound() -> None:
    system = System(Network((Dimension("switch", 4, 100.0),)))
    (phase,) = recipe_of(system, "all_reduce").phases
    unknown = type(phase)(**{**vars(phase), "comm": 99})
    assert least_time(system, Recipe((unknown,), 10, False), 100, np.arange(4)) == -1


# bandwidth


@pytest.mark.parametrize(
    ("comm_type", "whole", "factor"),
    [("all_reduce", 1, 2 * 3 / 4), ("reduce_scatter", 1, 3 / 4), ("all_gather", 4, 3 / 4),
     ("all_to_all", 1, 3 / 4)],
)  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(comm_type: str, whole: int, factor: float) -> None:
    switch = Dimension("switch", 4, 50.0, 100.0)
    names = dict.fromkeys(COMM_TYPES, ("direct",))
    system = System(Network((switch,)), collectives=Collectives(**names))
    size = 1 << 24
    done = simulate([trace_of([collective(0, comm_type, size)])] * 4, system)
    (row,) = nadi.simulation.collective_times(done).iter_rows(named=True)
    assert row["algorithm"] == "direct"
    assert row["bandwidth"] == pytest.approx(whole * size / done.makespan)
    assert row["bus_bandwidth"] == pytest.approx(factor * row["bandwidth"])
    # the bus is that of the links, but for latencies
    assert 0.99 * 50 < row["bus_bandwidth"] <= 50
    assert row["fraction"] == pytest.approx(row["bus_bandwidth"] / 50)


def test_some_dimensions_only_are_a_collective_for_each_place_in_the_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gather.json"
    node = {"id": "0", "name": "gather", "type": "COMM_COLL_NODE", "attr": [
        {"name": "is_cpu_op", "boolVal": False}, {"name": "comm_type", "int64Val": "2"},
        {"name": "comm_size", "int64Val": "600"},
        {"name": "involved_dim", "boolList": {"values": [True, False]}},
    ]}  # fmt: skip
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": [node]}))
    dimensions = (Dimension("ring", 3, 10.0, 5), Dimension("ring", 2, 10.0, 5))
    names = Collectives(all_gather=("ring", "ring"))
    gather, other = nadi.read(path), trace_of([collective(0, "all_gather", 600)])
    done = simulate([gather] * 6, System(Network(dimensions), collectives=names))
    assert done.program.num_ranks == 1  # which stands for all
    assert nadi.simulation.collective_times(done)["members"].to_list() == [3, 3]
    assert nadi.simulation.collective_times(done)["last_rank"].to_list() == [0, 3]
    done = simulate([gather] * 6, System(Network(dimensions, congestion=True), collectives=names))
    assert nadi.simulation.collective_times(done)["members"].to_list() == [3, 3]
    assert nadi.simulation.collective_times(done)["last_rank"].to_list() == [0, 3]
    done = simulate([other] * 6, System(Network(dimensions, congestion=True), collectives=names))
    assert nadi.simulation.collective_times(done)["members"].to_list() == [6]


def test_a_collective_that_is_a_trace_of_its_own_has_no_bound(tmp_path: Path) -> None:
    for rank in range(2):
        ends = {"comm_tag": 0, "comm_size": 10, "is_cpu_op": False}
        own = [
            {"id": 0, "type": "COMM_SEND_NODE", "comm_src": rank, "comm_dst": 1 - rank, **ends},
            {"id": 1, "type": "COMM_RECV_NODE", "comm_src": 1 - rank, "comm_dst": rank, **ends},
        ]
        nadi.write(trace_of(own), tmp_path / f"own.{rank}.et")
    collectives = Collectives(custom={"all_reduce": str(tmp_path / "own")})
    system = System(Network((Dimension("ring", 2, 1.0, 50),)), collectives=collectives)
    nodes = [[compute(0, late), collective(1, "all_reduce", 5, data_deps=[0]),
              collective(2, "all_reduce", 5, data_deps=[1])] for late in (4, 6)]  # fmt: skip
    done = simulate([trace_of(own) for own in nodes], system)
    first, second = nadi.simulation.collective_times(done).iter_rows(named=True)
    assert (first["members"], first["number"], second["number"]) == (2, 0, 1)
    assert (first["last_entry"], first["last_rank"], first["waiting"]) == (6000, 1, 2000)
    assert first["algorithm"] == "own trace"
    assert first["bound"] == first["fraction"] == -1


def test_one_member_alone_takes_no_time() -> None:
    system = System(Network((Dimension("switch", 2, 1.0),)), groups={"a": (0,), "b": (1,)})
    traces = [trace_of([collective(0, "all_reduce", 50, pg_name=name)]) for name in "ab"]
    done = simulate(traces, system)
    for row in nadi.simulation.collective_times(done).iter_rows(named=True):
        assert (row["members"], row["time"], row["bandwidth"], row["fraction"]) == (1, 0, -1, -1)
        assert math.isclose(row["bound"], 0)
    assert nadi.simulation.rank_times(done)["communicating"].to_list() == [0, 0]
