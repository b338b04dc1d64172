"""Several jobs on one machine: laws, and jobs worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import NadiError, PairError, UsageError
from nadi.systems.system import Collectives, Dimension, Network
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.trace import Trace
from tests.amounts import examples
from tests.simulator.cases import Node, collective, compute, trace_of
from tests.simulator.test_shared_transfers import mixed_jobs, no_jobs, sends, traces_of

SETTINGS = settings(
    max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck)
)


def grown(system: nadi.systems.System, times: int = 2) -> nadi.systems.System:
    """Give a system with more ranks in its last dimension."""
    *inner, last = system.network.dimensions
    last = msgspec.structs.replace(last, size=times * last.size)
    network = msgspec.structs.replace(system.network, dimensions=(*inner, last))
    return msgspec.structs.replace(system, network=network)


def times_of(done: nadi.simulation.Simulation) -> list[list[Any]]:
    """Give for each job its times together and alone, and the finish of each rank."""
    found = []
    for job, row in zip(
        done.jobs, nadi.simulation.job_times(done).iter_rows(named=True), strict=True
    ):
        found.append([row["finish"], row["alone"], done.cycles[job.ranks].tolist()])
    return found


def idle(num_ranks: int) -> list[Trace]:
    return [trace_of([compute(0, 0)])] * num_ranks


@SETTINGS
@given(mixed_jobs(), st.randoms(use_true_random=False))
def test_beside_an_idle_job_one_is_as_if_it_were_alone(
    drawn: tuple[nadi.systems.System, dict[int, list[Node]]], random: Any
) -> None:
    system, nodes = drawn
    traces, machine = traces_of(nodes), grown(system)
    places = random.sample(range(machine.network.num_ranks), machine.network.num_ranks)
    where = {"a": places[: len(traces)], "b": places[len(traces) :]}
    try:
        beside = nadi.simulate_together({"a": traces, "b": idle(len(traces))}, machine, where)
        alone = nadi.simulate_together({"a": traces}, machine, {"a": where["a"]})
    except (PairError, UsageError):
        assume(False)
    (one,), (other, nothing) = times_of(alone), times_of(beside)
    assert one == other
    assert one[0] == one[1]
    assert nothing[:2] == [0, 0]


@SETTINGS
@given(mixed_jobs(), st.integers(1, 2))
def test_on_part_of_a_machine_of_switches_a_job_is_as_on_one_of_its_size(
    drawn: tuple[nadi.systems.System, dict[int, list[Node]]], place: int
) -> None:
    system, nodes = drawn
    assume(system.network.dimensions[-1].topology in ("switch", "fully-connected"))
    traces = traces_of(nodes)
    machine = msgspec.structs.replace(grown(system, 3), groups={})
    first = place * len(traces)
    where = {"a": range(first, first + len(traces))}
    alone = nadi.simulate(traces, system)
    groups = {"a": system.groups}
    placed = nadi.simulate_together({"a": traces}, machine, where, groups)
    assert placed.cycles[placed.jobs[0].ranks].tolist() == alone.cycles.tolist()


@pytest.mark.parametrize("comm_type", COLLECTIVES)
def test_what_all_ranks_of_a_job_do_is_done_by_these(comm_type: str) -> None:
    switches = (Dimension("switch", 4, 50.0, 300.0), Dimension("switch", 2, 25.0, 700.0))
    names = dict.fromkeys(COLLECTIVES, ("ring", "halvingDoubling"))
    system = nadi.systems.System(Network(switches), collectives=Collectives(**names))
    traces = [trace_of([compute(0, k), collective(1, comm_type, 10_007)]) for k in range(8)]
    jobs = {"a": traces, "b": traces}
    done = nadi.simulate_together(jobs, grown(system))
    alone = nadi.simulate(traces, system).cycles.tolist()
    assert times_of(done) == [[max(alone), max(alone), alone]] * 2
    assert set(nadi.simulation.collective_times(done)["group"]) == {"a/all", "b/all"}


def one_send(size: int) -> list[Trace]:
    nodes = no_jobs(2)
    sends(nodes, 0, 1, size)
    return traces_of(nodes)


def test_jobs_that_share_a_link_slow_each_other() -> None:
    fabric = nadi.systems.Fabric(
        "net", nadi.systems.Tree((2, 0), (1, 1), (10.0, 10.0)), routing="by-destination"
    )
    network = Network((Dimension("switch", 8, 10.0, 0.0),), fabrics=(fabric,))
    system = nadi.systems.System(network)
    jobs = {"a": one_send(10_000_000), "b": one_send(10_000_000), "c": one_send(5_000_000)}
    done = nadi.simulate_together(jobs, system, {"a": [0, 2], "b": [1, 3], "c": [4, 6]})
    found = nadi.simulation.job_times(done)
    assert found["job"].to_list() == ["a", "b", "c"]
    assert found["alone"].to_list() == [1_000_000, 1_000_000, 500_000]
    assert found["finish"].to_list() == [2_000_000, 2_000_000, 500_000]
    assert found["slowdown"].to_list() == [2, 2, 1]
    up = nadi.simulation.link_use(done).row(0, named=True)
    assert (up["users"], up["user_bytes"]) == (["a: messages", "b: messages"], [10_000_000] * 2)
    assert (up["bytes"], up["full"], up["utilization"]) == (20_000_000, 2_000_000, 1)


@SETTINGS
@given(mixed_jobs(), mixed_jobs())
def test_the_order_of_jobs_does_not_matter(
    one: tuple[nadi.systems.System, dict[int, list[Node]]],
    other: tuple[nadi.systems.System, dict[int, list[Node]]],
) -> None:
    jobs = {"a": traces_of(one[1]), "b": traces_of(other[1])}
    groups = {"a": one[0].groups, "b": other[0].groups}
    n, m = (len(traces) for traces in jobs.values())
    where = {"a": range(0, 2 * n, 2), "b": [r for r in range(32) if r % 2 or r >= 2 * n][:m]}
    system = nadi.systems.System(
        Network((Dimension("switch", 4, 50.0, 300.0), Dimension("ring", 8, 25.0, 700.0)))
    )
    done = nadi.simulate_together(jobs, system, where, groups)
    swapped = nadi.simulate_together(dict(reversed(jobs.items())), system, where, groups)
    assert times_of(done) == times_of(swapped)[::-1]
    assert done.cycles.tolist() == swapped.cycles.tolist()


def test_ranks_are_of_one_job_only() -> None:
    system = nadi.load_system("dgx-h100", 8)
    jobs = {"a": one_send(1), "b": one_send(1)}
    cases = [
        ({"a": [0, 1], "b": [1, 2]}, "rank 1 is no rank of its own"),
        ({"a": [0, 0]}, "rank 0 is no rank of its own"),
        ({"a": [0]}, "it has 2 ranks, and is to run on 1"),
        ({"b": [7, 8]}, "8 ranks, but a job is to run on rank 8"),
    ]
    for places, what in cases:
        with pytest.raises(UsageError, match=what):
            nadi.simulate_together(jobs, system, places)  # type: ignore[arg-type]
    done = nadi.simulate_together(jobs, system, {"b": [0, 2]})
    assert [job.ranks.tolist() for job in done.jobs] == [[1, 3], [0, 2]]


def test_a_trace_that_names_a_rank_beyond_its_job_is_refused() -> None:
    with pytest.raises(NadiError, match="it has ranks 0 to 0, but its traces name 1"):
        nadi.simulate_together({"a": one_send(1)[:1]}, nadi.load_system("dgx-h100", 8))


def test_recordings_and_generated_jobs_run_beside_each_other(demo_folder: Any) -> None:
    jobs = {
        "recorded": nadi.load_job(demo_folder),
        "generated": nadi.llm_job("gpt3-125m", tp=2, dp=2, global_batch=2),
    }
    done = nadi.simulate_together(jobs, nadi.load_system("dgx-h100", 8))
    alone = nadi.simulate(jobs["recorded"], nadi.load_system("dgx-h100", 4))
    found = nadi.simulation.results_of(done).job_times
    assert found is not None
    assert found["alone"][0] == alone.makespan
    assert done.priced is not None
    assert done.priced.num_priced
    users = nadi.simulation.link_use(done)["users"].explode().unique().to_list()
    assert {user.partition(":")[0] for user in users} == {"recorded", "generated"}


def test_saved_results_keep_jobs_and_links(tmp_path: Any) -> None:
    done = nadi.simulate_together({"a": one_send(1 << 20)}, nadi.load_system("dgx-h100", 8))
    found = nadi.simulation.results_of(done)
    nadi.simulation.write_simulation(done, tmp_path / "done.nadi")
    again = nadi.simulation.read_simulation(tmp_path / "done.nadi")
    for name in ("job_times", "link_use"):
        assert isinstance(getattr(found, name), pl.DataFrame)
        assert getattr(again, name).equals(getattr(found, name))
