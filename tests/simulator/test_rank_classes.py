"""One rank of each class is simulated, with the results of a simulation of all ranks."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from polars.testing import assert_frame_equal

import nadi
from nadi.errors import PairError, UsageError
from nadi.simulation import results_of
from nadi.simulation.accounts.link_accounts import link_table
from nadi.simulation.accounts.simulation_as_recording import simulated_graph, simulated_path
from nadi.simulation.engine_driver import simulator_of
from nadi.simulation.simulation import Simulation
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.groups import RankGroups, groups_along
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Provenance, Trace
from tests.amounts import examples

SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)
ROLES = ("tp", "dp", "pp")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


class Stage:
    """The trace of a pipeline stage, row by row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.deps: list[tuple[int, int]] = []

    def add(self, kind: str, stream: int, after: int, **columns: object) -> int:
        number = len(self.rows)
        self.rows.append({"kind": kind, "stream": stream, **columns})
        if after >= 0:
            self.deps.append((after, number))
        return number

    def trace(self) -> Trace:
        missing = {"group": -1, "src": -1, "dst": -1, "tag": -1, "comm_bytes": -1,
                   "comm_type": "none", "duration": -1}  # fmt: skip
        columns = {
            name: [row.get(name, missing.get(name)) for row in self.rows]
            for name in ("kind", "stream", *missing)
        }
        nodes = NODES.build(len(self.rows), {
            "id": range(len(self.rows)), "name": "node", "category": "kernel", "is_cpu": False,
            **columns,
        })  # fmt: skip
        deps = DEPS.build(len(self.deps), {
            "src": [src for src, _ in self.deps], "dst": [dst for _, dst in self.deps],
            "kind": "data",
        })  # fmt: skip
        roles = GROUPS.build(len(ROLES), {"name": list(ROLES), "ranks": [[]] * len(ROLES)})
        return Trace(nodes, deps, roles, ISSUES.empty(), Provenance("", ()))


@st.composite
def pipelines(draw: st.DrawFn, beside: bool = False) -> tuple[Job, System]:
    """Draw a pipeline of stages with tensor and data parallel groups, and a system for it.

    With ``beside`` collectives may run beside others. Of two that come to a queue at the same time
    either may be first; all ranks of a class then do the same, but not the members of one group.
    """
    tp, dp, pp = (draw(st.sampled_from(sizes)) for sizes in ((1, 2, 4), (1, 2, 3), (1, 2, 3)))
    work = draw(st.lists(st.tuples(
        st.sampled_from(["tp", "dp", "pp", "compute"]), st.sampled_from(COLLECTIVES),
        st.integers(1, 3 << 20), st.integers(0, 2 if beside else 0),
        st.booleans() if beside else st.just(True),
    ), min_size=1, max_size=6))  # fmt: skip
    own_times = [draw(st.integers(1, 400_000)) for _ in range(pp)]
    stages = []
    for number in range(pp):
        stage = Stage()
        for microbatch in range(draw(st.just(2))):
            last = -1
            if number:
                last = stage.add("COMM_RECV", 3, -1, group=2, src=number - 1, tag=microbatch,
                                 comm_type="recv", comm_bytes=1 << 20)  # fmt: skip
            for role, comm_type, size, stream, waits in work:
                if role == "compute":
                    last = stage.add("COMP", 0, last, duration=own_times[number])
                    continue
                root = {"src": 0} if comm_type == "broadcast" else {}
                last = stage.add("COMM_COLL", 1 + stream, last if waits else -1,
                                 group=ROLES.index(role), comm_type=comm_type, comm_bytes=size,
                                 **root)  # fmt: skip
            if number + 1 < pp:
                stage.add("COMM_SEND", 4, last, group=2, dst=number + 1, tag=microbatch,
                          comm_type="send", comm_bytes=1 << 20)  # fmt: skip
        stages.append(stage.trace())
    sizes = {"tp": tp, "dp": dp, "pp": pp}
    num_ranks = tp * dp * pp
    groups = RankGroups({role: groups_along(sizes, [role]) for role in ROLES}, num_ranks)
    traces = tuple(stages[rank // (tp * dp)] for rank in range(num_ranks))
    job = Job(traces, MATCHES.empty(), ISSUES.empty(), rank_groups=groups)
    topology = st.sampled_from(["switch", "ring", "fully-connected"])
    first = draw(st.sampled_from([size for size in (1, 2, 4, num_ranks) if num_ranks % size == 0]))
    network = Network((
        Dimension(draw(topology), first, 100.0, 500.0),
        Dimension(draw(topology), num_ranks // first, 25.0, 2000.0),
    ))  # fmt: skip
    collectives = Collectives(
        all_reduce=(draw(st.sampled_from(["ring", "direct", "halvingDoubling"])),),
        chunks=draw(st.sampled_from([1, 3])), active_chunks=draw(st.sampled_from([1, 2])),
    )  # fmt: skip
    return job, System(network, collectives=collectives)


def of_all_ranks(job: Job) -> Job:
    """Return the same job with a trace of its own for each rank."""
    traces = tuple(job.own_trace(rank) for rank in range(len(job.traces)))
    return replace(job, traces=traces, rank_groups=None)


def both(job: Job, system: System) -> tuple[Simulation, Simulation]:
    """Simulate a job as it is, and with all its ranks; neither may end if the other does not."""
    try:
        everyone = nadi.simulate(of_all_ranks(job), system)
    except PairError:
        with pytest.raises(PairError):
            nadi.simulate(job, system)
        assume(False)
    return nadi.simulate(job, system), everyone


@SETTINGS
@given(pipelines())
def test_a_rank_of_each_class_gives_the_times_of_all(drawn: tuple[Job, System]) -> None:
    job, system = drawn
    some, everyone = both(job, system)
    assert some.cycles.tolist() == everyone.cycles.tolist()
    assert some.schedule.table.equals(everyone.schedule.table)
    assert some.num_nodes == everyone.num_nodes
    assert results_of(some).rank_times.equals(results_of(everyone).rank_times)


@SETTINGS
@given(pipelines(beside=True))
def test_what_runs_beside_other_work_is_the_same(drawn: tuple[Job, System]) -> None:
    job, system = drawn
    some, everyone = both(job, system)
    assert some.num_nodes == everyone.num_nodes
    keys = ["type", "algorithm"]
    one, other = (
        results_of(done).collective_types.sort(keys).select(*keys, "count", "bytes", "bound")
        for done in (some, everyone)
    )
    assert_frame_equal(one, other)
    bytes_of_links = [link_table(done)["bytes"].to_list() for done in (some, everyone)]
    assert bytes_of_links[0] == bytes_of_links[1]


@SETTINGS
@given(pipelines())
def test_results_of_a_rank_of_each_class_count_for_all(drawn: tuple[Job, System]) -> None:
    job, system = drawn
    some, everyone = both(job, system)
    sums = ["count", "bytes", "time", "waiting"]
    keys = ["type", "algorithm"]
    one, other = (
        results_of(done).collective_types.sort(keys).select(*keys, *sums)
        for done in (some, everyone)
    )
    assert one.equals(other)
    assert link_table(some).equals(link_table(everyone))


@given(pipelines(), st.lists(st.sampled_from((0.25, 0.9, 7.0)), min_size=1, max_size=2))
def test_a_simulator_of_one_network_simulates_faster_and_slower_ones(
    drawn: tuple[Job, System], factors: list[float]
) -> None:
    job, system = drawn
    try:
        simulated = simulator_of(job, system)
        simulated(system)
    except PairError:
        assume(False)
    for factor in factors:
        dimensions = tuple(
            msgspec.structs.replace(
                one, bandwidth=one.bandwidth * factor, latency=one.latency * factor
            )
            for one in system.network.dimensions
        )
        other = msgspec.structs.replace(system, network=Network(dimensions))
        done, alone = simulated(other), nadi.simulate(job, other)
        assert done.system is other
        assert np.array_equal(done.start, alone.start)
        assert np.array_equal(done.end, alone.end)


def pipeline_of_two(num_replicas: int) -> Job:
    stages = []
    for number in range(2):
        stage = Stage()
        last = -1
        if number:
            last = stage.add("COMM_RECV", 3, -1, group=2, src=0, tag=0, comm_type="recv",
                             comm_bytes=1 << 20)  # fmt: skip
        last = stage.add("COMP", 0, last, duration=1_000_000 * (1 + number))
        last = stage.add("COMM_COLL", 1, last, group=0, comm_type="all_reduce", comm_bytes=8 << 20)
        if not number:
            stage.add("COMM_SEND", 4, last, group=2, dst=1, tag=0, comm_type="send",
                      comm_bytes=1 << 20)  # fmt: skip
        stages.append(stage.trace())
    sizes = {"tp": 8, "dp": num_replicas, "pp": 2}
    num_ranks = 16 * num_replicas
    groups = RankGroups({role: groups_along(sizes, [role]) for role in ROLES}, num_ranks)
    traces = tuple(stages[rank // (8 * num_replicas)] for rank in range(num_ranks))
    return Job(traces, MATCHES.empty(), ISSUES.empty(), rank_groups=groups)


def test_two_ranks_stand_for_thousands() -> None:
    job = pipeline_of_two(512)
    done = nadi.simulate(job, nadi.load_system("dgx-h100", 8192))
    assert done.program.num_ranks == 2
    assert done.cycles.size == 8192
    assert results_of(done).collectives["copies"].to_list() == [512, 512]
    assert results_of(done).process_groups["group"].to_list() == ["tp"]
    assert simulated_path(done).length == done.makespan
    assert simulated_graph(done).job.traces[1].rank == 4096


def test_links_that_contend_need_all_ranks() -> None:
    job = pipeline_of_two(1)
    system = nadi.load_system("dgx-h100", 16)
    network = Network(system.network.dimensions, congestion=True)
    contended = System(network, collectives=system.collectives)
    assert nadi.simulate(job, contended).program.num_ranks == 16


def test_a_collective_of_all_ranks_of_several_stages_needs_all_ranks() -> None:
    stages = [Stage(), Stage()]
    for number, stage in enumerate(stages):
        stage.add("COMP", 0, -1, duration=1000 + number)
        stage.add("COMM_COLL", 1, -1, comm_type="all_reduce", comm_bytes=4096)
    groups = RankGroups({role: groups_along({role: 4}, [role]) for role in ROLES}, 4)
    first, second = (stage.trace() for stage in stages)
    job = Job((first, first, second, second), MATCHES.empty(), ISSUES.empty(), rank_groups=groups)
    done = nadi.simulate(job, nadi.load_system("dgx-h100", 4))
    assert done.program.num_ranks == 4
    assert done.cycles.tolist() == nadi.simulate(of_all_ranks(job), done.system).cycles.tolist()


@pytest.mark.parametrize(
    ("name", "plan"),
    [("dgx-h100", {"tp": 4, "dp": 8}), ("dgx-h100", {"tp": 2, "pp": 2, "dp": 8, "zero": 3}),
     ("mi300x-node", {"tp": 4, "pp": 2, "dp": 8}), ("gb200-nvl72", {"tp": 8, "dp": 18})],
)  # fmt: skip
def test_groups_of_several_members_a_node_need_one_rank_of_each_stage(
    name: str, plan: dict[str, int]
) -> None:
    job = nadi.llm_job("gpt3-125m" if plan["tp"] < 8 else "llama3-8b", sequence=512, **plan)
    system = nadi.load_system(name, len(job.traces))
    done = nadi.simulate(job, system)
    assert done.program.num_ranks == plan.get("pp", 1)
    if len(job.traces) < 64:
        assert done.cycles.tolist() == nadi.simulate(of_all_ranks(job), system).cycles.tolist()


def test_a_job_of_too_many_ranks_that_differ_is_refused() -> None:
    job = nadi.llm_job("gpt3-125m", tp=4, pp=4, dp=1023)
    with pytest.raises(UsageError, match=r"all of them have to be simulated.* in every node"):
        nadi.simulate(job, nadi.load_system("dgx-h100", 4 * 4 * 1023))


def test_groups_along_axes() -> None:
    sizes = {"tp": 2, "dp": 3, "pp": 2}
    assert groups_along(sizes, ["dp"]).tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert groups_along(sizes, ["tp", "pp"])[0].tolist() == [0, 1, 6, 7]


def test_a_rank_has_one_place_in_a_role() -> None:
    ranks = groups_along({"tp": 4}, ["tp"])
    with pytest.raises(UsageError, match=r"groups of role 'tp'.*is not a rank of the job"):
        RankGroups({"tp": ranks}, 3)


def test_own_traces_name_their_ranks() -> None:
    job = pipeline_of_two(2)
    own = job.own_trace(17)
    assert own.groups["name"].to_list() == ["tp[2]", "dp[9]", "pp[1]"]
    assert own.groups["ranks"].to_list() == [list(range(16, 24)), [17, 25], [1, 17]]
    assert own.nodes.filter(pl.col("kind") == "COMM_RECV")["src"].to_list() == [1]
    numbered = job.own_trace(17, numbered=True)
    assert numbered.groups["name"].to_list() == ["3", str(1 + 4 + 9), str(1 + 4 + 16 + 1)]
    assert (own.rank, own.world_size) == (17, 32)
