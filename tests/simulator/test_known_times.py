"""Collectives whose time is known: what the engine makes of it, and laws of measured tables."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.simulation import collective_time
from nadi.systems.collective_times import known_times
from nadi.systems.nccl.measured import MeasuredCollective, measured_times, nccl_tests_factors
from tests.amounts import examples
from tests.simulator.cases import collective, compute, trace_of

PAIR = nadi.load_system("dgx-h100", 16)
TABLE = MeasuredCollective(
    "all_reduce", 16, 2, (8, 1024, 1 << 20, 1 << 24, 1 << 26, 1 << 28),
    (30e3, 31e3, 60e3, 300e3, 1.1e6, 4.3e6),
)  # fmt: skip


def known(comm_type: str, size: int, ranks: int = 16) -> int:
    whole = size * nccl_tests_factors(comm_type, ranks)[0]
    found = known_times(PAIR, comm_type, np.array([whole]), np.arange(ranks))
    assert found is not None
    return int(found.ns[0])


@pytest.mark.parametrize("comm_type", ["all_reduce", "all_gather", "broadcast", "barrier"])
def test_a_collective_alone_takes_its_known_time(comm_type: str) -> None:
    assert collective_time(PAIR, comm_type, 1 << 20) == known(comm_type, 1 << 20)


def test_it_begins_with_its_last_member_and_others_follow_one_by_one() -> None:
    node = nadi.load_system("dgx-h100", 8)
    size, step = 1 << 22, 5
    jobs = [
        trace_of([
            compute(0, step * (rank + 1)),
            collective(1, "all_reduce", size, data_deps=[0]),
            collective(2, "all_reduce", size, data_deps=[1]),
        ])
        for rank in range(8)
    ]  # fmt: skip
    done = nadi.simulate(jobs, node)
    alone = collective_time(node, "all_reduce", size)
    assert done.makespan == step * 8 * 1000 + 2 * alone


def test_collectives_within_nodes_and_between_them_run_beside_each_other() -> None:
    node, across, size = tuple(range(8)), (0, 8), 1 << 22
    with nadi.JobBuilder(16) as job:
        job.together(range(9, 16)).compute("idle", duration="1 us")
        near, far = job.group("1", node), job.group("2", across)
        for ranks, groups in (([0], (near, far)), (range(1, 8), (near,)), ([8], (far,))):
            program = job.together(ranks)
            for group in groups:
                stream = program.stream(int(group.name))
                stream.collective("all_reduce", size, group=group)
    done = nadi.simulate(job.job, PAIR)
    alone = [collective_time(PAIR, "all_reduce", size, group) for group in (node, across)]
    assert done.makespan == max(alone) < sum(alone)


@pytest.mark.parametrize("policy", ["lifo", "explicit"])
def test_any_order_of_queues_gives_a_collective_alone_its_time(policy: str) -> None:
    collectives = msgspec.structs.replace(PAIR.collectives, policy=policy)
    system = msgspec.structs.replace(PAIR, collectives=collectives)
    assert collective_time(system, "all_reduce", 1 << 20) == known("all_reduce", 1 << 20)


def test_one_rank_that_represents_all_gets_the_same_time() -> None:
    size = 1 << 22
    with nadi.JobBuilder(64) as job:
        job.all_ranks.collective("all_reduce", size)
    system = nadi.load_system("dgx-h100", 64)
    done = nadi.simulate(job.job, system)
    assert done.trail.rank.size < 64
    assert done.makespan == collective_time(system, "all_reduce", size)


def test_what_shares_links_is_followed() -> None:
    network = msgspec.structs.replace(PAIR.network, congestion=True)
    crowded = msgspec.structs.replace(PAIR, network=network)
    plain = msgspec.structs.replace(crowded, nccl=None)
    size = 1 << 20
    followed = collective_time(crowded, "all_reduce", size)
    assert followed == collective_time(plain, "all_reduce", size)
    (alone,) = nadi.simulation.estimate_collectives(crowded, "all_reduce", [size])
    assert (alone.time_ns, alone.source, alone.modeled_ns) == (followed, "simulated", -1)


def test_a_measured_table_comes_first_for_its_ranks_and_nodes() -> None:
    system = nadi.simulation.with_tables(PAIR, (TABLE,))
    assert collective_time(system, "all_reduce", 1 << 20) == 60_000
    assert collective_time(system, "all_gather", 1 << 20) == known("all_gather", 1 << 20)
    near = tuple(range(8))
    assert collective_time(system, "all_reduce", 1 << 20, near) == known("all_reduce", 1 << 20, 8)


@pytest.mark.parametrize("comm_type", ["all_gather", "gather", "scatter", "barrier"])
def test_a_simulation_and_a_lone_estimate_take_the_same_measured_time(comm_type: str) -> None:
    measured = "all_reduce" if comm_type == "barrier" else comm_type
    table = MeasuredCollective(measured, 16, 2, TABLE.sizes, TABLE.times)
    system = nadi.simulation.with_tables(PAIR, (table,))
    given = 1 << 20
    whole = given * (16 if comm_type in ("all_gather", "gather") else 1)
    (alone,) = nadi.simulation.estimate_collectives(system, comm_type, [whole])
    assert collective_time(system, comm_type, given) == alone.time_ns
    assert alone.source.startswith("measured")


def test_the_source_of_a_barrier_is_that_of_the_all_reduce_that_it_is() -> None:
    (barrier,) = nadi.simulation.estimate_collectives(PAIR, "barrier", [1])
    (one_byte,) = nadi.simulation.estimate_collectives(PAIR, "all_reduce", [1])
    assert barrier.source == one_byte.source
    assert (barrier.time_ns, barrier.algorithm) == (one_byte.time_ns, one_byte.algorithm)


def test_measured_regimes_and_what_lies_outside() -> None:
    sizes = np.array([1, 512, 1 << 19, 1 << 25, 1 << 29], dtype=np.int64)
    times, regimes = measured_times(TABLE, sizes)
    assert [regime.split(",")[0] for regime in regimes] == [
        "latency", "latency", "transition", "bandwidth", "bandwidth",
    ]  # fmt: skip
    assert [regime.endswith("extrapolated") for regime in regimes] == [
        True, False, False, False, True,
    ]  # fmt: skip
    assert times[0] == pytest.approx(30e3)
    assert times[3] == pytest.approx(300e3 + (1.1e6 - 300e3) / 3)
    assert times[4] == pytest.approx(4.3e6 + (4.3e6 - 1.1e6) / 3 * 4)


@settings(max_examples=examples(50), deadline=None, derandomize=True)
@given(st.lists(st.floats(1e3, 1e8), min_size=1, max_size=12), st.integers(3, 40))
def test_more_bytes_never_take_less_time(times: list[float], power: int) -> None:
    sizes = tuple(1 << (4 + 2 * at) for at in range(len(times)))
    table = MeasuredCollective("all_reduce", 4, 1, sizes, tuple(times))
    wanted = np.array([(1 << power) - 1, 1 << power, (1 << power) + 1], dtype=np.int64)
    found = measured_times(table, wanted)[0]
    assert (np.diff(found) >= -1e-6 * found[1:]).all()
    exact = measured_times(table, np.array(sizes, dtype=np.int64))[0]
    assert np.log(exact).sum() == pytest.approx(np.log(times).sum())
