"""Transfers that share links: against a slow model, and laws of jobs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import nadi
from nadi.simulation.runs.simulate import simulate
from nadi.systems import System
from nadi.systems.system import Collectives, Dimension, Network
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.trace import Trace
from tests.amounts import examples
from tests.reference.shared_transfers import Transfer, end_times
from tests.simulator.cases import Node, collective, compute, run_each, trace_of

SETTINGS = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck)
)
_RANKS, _LATENCY = 8, 250


def one_switch(bandwidth: float, num_ranks: int = _RANKS, **collectives: Any) -> System:
    dimension = Dimension("switch", num_ranks, bandwidth, float(_LATENCY))
    return System(Network((dimension,)), collectives=Collectives(**collectives))


def sends(jobs: dict[int, list[Node]], src: int, dst: int, size: int, micros: int = 0) -> None:
    """Add a send, and its receive, that start after a time on streams of their own."""
    tag = sum(len(nodes) for nodes in jobs.values())
    ends = {"comm_src": src, "comm_dst": dst, "comm_size": size, "comm_tag": tag}
    for rank, kind in ((src, "SEND"), (dst, "RECV")):
        nodes = jobs[rank]
        waits = []
        if micros and kind == "SEND":
            waits = [len(nodes)]
            nodes.append(compute(len(nodes), micros, stream=100 + tag))
        nodes.append(
            {"id": len(nodes), "type": f"COMM_{kind}_NODE", "is_cpu_op": False, **ends,
             "data_deps": waits}
        )  # fmt: skip


def no_jobs(num_ranks: int = _RANKS) -> dict[int, list[Node]]:
    return {rank: [] for rank in range(num_ranks)}


def traces_of(jobs: dict[int, list[Node]]) -> list[Trace]:
    return [trace_of(nodes or [compute(0, 0)]) for _, nodes in sorted(jobs.items())]


def ends_of(done: nadi.simulation.Simulation, kind: str) -> list[int]:
    """Return when the nodes of a kind end, in order of rank and id."""
    names = [name for trace in done.traces for name in trace.nodes["kind"].to_list()]
    return [end for name, end in zip(names, done.end.tolist(), strict=True) if name == kind]


def test_sends_of_one_rank_take_what_their_bytes_take() -> None:
    jobs = no_jobs()
    for dst in range(1, 8):
        sends(jobs, 0, dst, 1 << 30)
    done = simulate(traces_of(jobs), nadi.load_system("dgx-h100", 8))
    bound = 7 * (1 << 30) / 450
    assert bound <= done.makespan <= bound + 2 * 235 + 1


_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def moved_by(comm_type: str, size: int, n: int) -> int:
    part = -(-size // n)
    return {"all_gather": (n - 1) * size, "all_reduce": 2 * (n - 1) * part}.get(
        comm_type, (n - 1) * part
    )


@SETTINGS
@given(st.data())
def test_transfers_end_when_the_slow_model_says(data: st.DataObject) -> None:
    bandwidth = data.draw(st.sampled_from((10, 50, 450)), label="bandwidth")
    system = one_switch(float(bandwidth))
    ranks, micros = st.integers(0, _RANKS - 1), st.integers(0, 40)
    jobs, expected = no_jobs(), []
    size = st.integers(1, 64).map(lambda k: k * 65_536)
    for _ in range(data.draw(st.integers(0, 6), label="sends")):
        src, dst = data.draw(ranks), data.draw(ranks)
        if src == dst:
            continue
        num_bytes, begin = data.draw(size), data.draw(micros)
        sends(jobs, src, dst, num_bytes, begin)
        alone = -(-num_bytes // bandwidth)
        expected.append(Transfer((src,), (dst,), num_bytes, alone, begin * 1000, 2 * _LATENCY))
    split = data.draw(st.integers(0, _RANKS), label="first members of the second group")
    groups = [group for group in (range(split), range(split, _RANKS)) if len(group) > 1]
    for number, group in enumerate(groups):
        comm_type, num_bytes, begin = (
            data.draw(st.sampled_from(_TYPES)),
            data.draw(size),
            data.draw(micros),
        )
        members = tuple(group)
        for rank in members:
            first = len(jobs[rank])
            jobs[rank].append(compute(first, begin, stream=1))
            node = collective(
                first + 1, comm_type, num_bytes, pg_name=f"g{number}", data_deps=[first]
            )
            jobs[rank].append(node)
        alone = nadi.simulation.collective_time(system, comm_type, num_bytes, members)
        moved = moved_by(comm_type, num_bytes, len(members))
        expected.append(Transfer(members, members, moved, alone, begin * 1000))
    named = {f"g{number}": tuple(group) for number, group in enumerate(groups)}
    done = simulate(traces_of(jobs), msgspec.structs.replace(system, groups=named))
    ends = end_times(_RANKS, Fraction(bandwidth), expected)
    found = ends_of(done, "COMM_SEND")
    found += [
        row["end"]
        for row in nadi.simulation.collective_times(done).sort("group").iter_rows(named=True)
    ]
    assert done.makespan == pytest.approx(float(max(ends, default=0)), rel=1e-4, abs=4)
    assert sorted(found) == pytest.approx(sorted(map(float, ends)), rel=1e-4, abs=4)


_ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
_ALONE = [(name, how) for name in COLLECTIVES for how in (*_ALGORITHMS, "direct1", "direct2")]


@pytest.mark.parametrize("topology", ["switch", "mesh", "ring", "fully-connected"])
@pytest.mark.parametrize("meet", [True, False])
def test_a_collective_that_shares_no_link_takes_its_closed_form(topology: str, meet: bool) -> None:
    for comm_type, algorithm in _ALONE:
        first = Dimension(topology, 4, 50.0, 300.0)  # type: ignore[arg-type]
        system = System(
            Network((first, Dimension("switch", 3, 25.0, 700.0))), groups={"g": tuple(range(8))},
            collectives=Collectives(**dict.fromkeys(COLLECTIVES, (algorithm,)), chunks=3),
        )  # fmt: skip
        jobs = no_jobs(12)
        for rank in range(8):
            node = collective(1, comm_type, 1_000_003, pg_name="g", data_deps=[0])
            jobs[rank] += [compute(0, rank % 3, stream=1), node]
        sends(jobs, 10, 11, 1 << 20)  # which is beside it
        traces = traces_of(jobs)
        alone = run_each(traces, system, flows=False).cycles.tolist()
        found = run_each(traces, system, meet=meet).cycles.tolist()
        assert found == alone, (comm_type, algorithm)


@st.composite
def mixed_jobs(draw: st.DrawFn) -> tuple[System, dict[int, list[Node]]]:
    """Draw sends and collectives of groups that may share any links."""
    topologies = st.sampled_from(("switch", "ring", "mesh", "fully-connected"))
    shape = draw(st.sampled_from(((6,), (4, 2), (2, 4), (2, 2, 2))))
    dimensions = tuple(
        Dimension(draw(topologies), n, draw(st.sampled_from((12.5, 50.0, 450.0))), 300.0)
        for n in shape
    )
    network = Network(dimensions)
    algorithms = {name: (draw(st.sampled_from(_ALGORITHMS)),) for name in COLLECTIVES}
    num_ranks = network.num_ranks
    groups = {}
    jobs = no_jobs(num_ranks)
    for number in range(draw(st.integers(1, 3))):
        members = draw(st.lists(st.integers(0, num_ranks - 1), min_size=2, unique=True))
        groups[f"g{number}"] = tuple(members)
        comm_type, size = draw(st.sampled_from(tuple(COLLECTIVES))), draw(st.integers(1, 1 << 22))
        for rank in members:
            node = collective(len(jobs[rank]), comm_type, size, pg_name=f"g{number}", stream=number)
            jobs[rank].append(node)
    for _ in range(draw(st.integers(1, 6))):
        src, dst = draw(st.integers(0, num_ranks - 1)), draw(st.integers(0, num_ranks - 1))
        if src != dst:
            sends(jobs, src, dst, draw(st.integers(1, 1 << 22)), draw(st.integers(0, 9)))
    collectives = Collectives(**algorithms, chunks=draw(st.sampled_from((1, 3))))
    return System(network, groups=groups, collectives=collectives), jobs


@SETTINGS
@given(mixed_jobs())
def test_no_link_carries_more_than_it_can(drawn: tuple[System, dict[int, list[Node]]]) -> None:
    system, jobs = drawn
    traces = traces_of(jobs)
    for meet in (False, True):
        done = run_each(traces, system, meet=meet)
        links = nadi.simulation.link_table(done)
        messages = 64 * len(traces)  # each is cut to whole ns
        assert links["busy"].max() <= done.makespan * (1 + 1e-3) + messages


@SETTINGS
@given(mixed_jobs(), st.randoms(use_true_random=False))
def test_the_order_of_transfers_does_not_matter(
    drawn: tuple[System, dict[int, list[Node]]], random: Any
) -> None:
    system, jobs = drawn
    before = simulate(traces_of(jobs), system)
    tags = list(range(1000, 2000))
    random.shuffle(tags)
    renamed = {
        rank: [{**node, "comm_tag": tags[node["comm_tag"]]} if "comm_tag" in node else node
               for node in nodes]
        for rank, nodes in jobs.items()
    }  # fmt: skip
    assert simulate(traces_of(renamed), system).cycles.tolist() == before.cycles.tolist()


@pytest.mark.parametrize("comm_type", ["all_gather", "reduce", "broadcast"])
@pytest.mark.parametrize("algorithm", ["direct2", "halvingDoubling"])
def test_a_collective_whose_messages_are_followed_shares_links(
    comm_type: str, algorithm: str
) -> None:
    size = 10_000_000
    jobs = no_jobs()
    for rank in range(8):
        jobs[rank].append(collective(0, comm_type, size))
    system = one_switch(10.0, **{comm_type: (algorithm,)})
    alone = simulate(traces_of(jobs), system).makespan
    for _ in range(8):  # into the root, and out of it
        sends(jobs, 0, 1, 4 * size)
        sends(jobs, 1, 0, 4 * size)
    done = simulate(traces_of(jobs), system)
    (found,) = nadi.simulation.collective_times(done)["end"].to_list()
    links = nadi.simulation.link_use(done)
    assert found > 1.5 * alone
    assert done.makespan >= links["bytes"].max() / 10.0
    assert links["full"].max() == pytest.approx(done.makespan, rel=0.3)


def test_one_that_is_late_slows_both_from_then_on() -> None:
    jobs = no_jobs()
    sends(jobs, 0, 1, 40_000_000)
    sends(jobs, 0, 2, 40_000_000, micros=1000)
    done = simulate(traces_of(jobs), one_switch(10.0))
    # alone for 1 ms of 4, then half as fast: 3 ms more take 6; the other has 1 ms left then
    assert ends_of(done, "COMM_SEND") == [7_000_500, 8_000_500]


def test_links_of_the_physical_network_limit_what_the_logical_one_lets_through() -> None:
    jobs = no_jobs(8)
    for rank in range(4):
        sends(jobs, rank, rank + 4, 10_000_000)
    system = one_switch(10.0)
    alone = simulate(traces_of(jobs), system)
    names = nadi.simulation.network_graph(system).names
    slow = nadi.systems.LinkChange(links=names[0], bandwidth=5.0)
    network = msgspec.structs.replace(system.network, changes=(slow,))
    found = simulate(traces_of(jobs), msgspec.structs.replace(system, network=network))
    assert set(ends_of(alone, "COMM_SEND")) == {1_000_500}
    assert ends_of(found, "COMM_SEND") == [2_000_500, 1_000_500, 1_000_500, 1_000_500]


def test_the_busiest_link_is_full_where_many_meet() -> None:
    jobs = no_jobs()
    for src in range(1, 8):
        sends(jobs, src, 0, 8_000_000)
    done = simulate(traces_of(jobs), one_switch(10.0))
    link = nadi.simulation.link_table(done).filter(pl.col("bytes") > 50_000_000)
    assert link["dst"].to_list() == [0]
    assert link["utilization"].to_list() == [pytest.approx(1, rel=1e-3)]


@pytest.mark.parametrize("tp", [2, 4])
def test_a_rank_stands_for_others_only_if_their_links_carry_the_same(tp: int) -> None:
    job = nadi.llm_job("gpt3-125m", tp=tp, pp=2, dp=4, global_batch=4)
    system = nadi.load_system("dgx-h100", len(job.traces))
    own = [job.own_trace(rank) for rank in range(len(job.traces))]
    all_ranks = replace(job, traces=tuple(own), rank_groups=None)
    some, everyone = nadi.simulate(job, system), nadi.simulate(all_ranks, system)
    assert some.program.num_ranks < len(own) or tp == 4  # of which groups span both dimensions
    assert some.cycles.tolist() == everyone.cycles.tolist()
