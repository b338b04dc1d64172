"""What physical links carried, and for whom: laws, and small jobs worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.simulation.runs.simulate import simulate
from tests.amounts import examples
from tests.simulator.cases import Node, collective, jobs, run_each, system_of, systems, trace_of
from tests.simulator.test_shared_transfers import mixed_jobs, no_jobs, sends, traces_of

SETTINGS = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck)
)


def named_bytes(system: nadi.systems.System, links: pl.DataFrame) -> Counter[str]:
    """Give the bytes of a table of logical links by the names that physical ones have."""
    there = [name for name in nadi.simulation.network_graph(system).names if name]
    assert len(there) == links.height
    pairs = zip(there, links["bytes"].to_list(), strict=True)
    return Counter({name: carried for name, carried in pairs if carried})


@SETTINGS
@given(st.data(), st.sampled_from(["astra-sim", ""]))
def test_without_a_physical_network_its_links_are_the_logical_ones(
    data: st.DataObject, compat: str
) -> None:
    case = data.draw(systems(contended=False), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    system = system_of(case, compat=compat)
    try:
        done = simulate([trace_of(nodes[rank]) for rank in sorted(nodes)], system)
    except (PairError, UsageError):
        assume(False)
    found = nadi.simulation.link_use(done)
    expected = named_bytes(system, nadi.simulation.link_table(done))
    assert dict(found.select("link", "bytes").rows()) == expected
    for row in found.iter_rows(named=True):
        assert sum(row["user_bytes"]) == row["bytes"]
        assert len(set(row["users"])) == len(row["user_bytes"])


@SETTINGS
@given(mixed_jobs())
def test_a_link_is_not_full_for_longer_than_its_bytes_take(
    drawn: tuple[nadi.systems.System, dict[int, list[Node]]],
) -> None:
    system, nodes = drawn
    done = run_each(traces_of(nodes), system)
    found = nadi.simulation.link_use(done)
    if not done.trail.full.size:
        assert (found["full"] == -1).all()
        return
    busy = found["bytes"] / found["bandwidth"]
    slack = 64 * len(nodes)  # times are whole ns
    assert (found["full"] <= busy * (1 + 1e-2) + slack).all()
    assert (found["utilization"] <= 1 + 1e-3 + slack / max(done.makespan, 1)).all()


def test_a_link_that_slows_all_is_full_all_the_time() -> None:
    nodes = no_jobs()
    for dst in range(1, 8):
        sends(nodes, 0, dst, 1 << 30)
    done = simulate(traces_of(nodes), nadi.load_system("dgx-h100", 8))
    busiest, *others = nadi.simulation.link_use(done).iter_rows(named=True)
    assert (busiest["link"], busiest["users"]) == ("dimension0.rank0.up", ["messages"])
    assert busiest["bytes"] == busiest["user_bytes"][0] == 7 << 30
    assert busiest["full"] == pytest.approx(done.makespan, rel=1e-3)
    assert {row["full"] for row in others} == {0}


_NCCL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")


@SETTINGS
@given(
    st.sampled_from(["dgx-a100", "dgx-h100", "gb200-nvl72"]), st.sampled_from(_NCCL),
    st.integers(1, 1 << 31), st.data(),
)  # fmt: skip
def test_with_times_of_nccl_no_link_is_used_for_longer_than_the_job(
    name: str, comm_type: str, size: int, data: st.DataObject
) -> None:
    system = nadi.load_system(name, 16 if name.startswith("dgx") else 72)
    ranks = st.integers(0, system.network.num_ranks - 1)
    members = data.draw(st.lists(ranks, min_size=2, max_size=16, unique=True) | st.just([]))
    members = members or list(range(16))
    group: dict[str, Any] = {"pg_name": "g"}
    traces = traces_of(
        {rank: [collective(0, comm_type, size, **group)] if rank in members else []
         for rank in range(system.network.num_ranks)}
    )  # fmt: skip
    named = [
        replace(trace, groups=trace.groups.with_columns(ranks=pl.lit(sorted(members))))
        for trace in traces
    ]
    done = simulate(named, system)
    for table in (nadi.simulation.link_use(done), nadi.simulation.link_table(done)):
        assert (table["utilization"] <= 1 + 1e-6).all()


def test_a_ring_of_nccl_leaves_a_node_over_all_of_its_adapters() -> None:
    size = 1 << 28
    trace = trace_of([collective(0, "all_reduce", size)])
    done = simulate([trace] * 16, nadi.load_system("dgx-h100", 16))
    found = nadi.simulation.link_table(done)
    between = found.filter(pl.col("dimension") == 1)["bytes"].unique().to_list()
    # NCCL's corrected time is a little shorter than these bytes take: then the link is full
    most = done.makespan * 50
    assert most == pytest.approx(2 * 15 * size / 16 / 8, rel=1e-2)
    assert between == [pytest.approx(min(2 * 15 * size / 16 / 8, most), rel=5e-3)]


def test_too_short_times_by_rules_of_astra_sim_are_told() -> None:
    case = {
        "backend": "congestion_unaware", "cli": {}, "comm_group": None,
        "network": {"topology": ["Switch"], "npus_count": [8], "bandwidth": [10.0],
                    "latency": [1.0]},
        "system": {"preferred-dataset-splits": 1, "all-to-all-implementation": ["direct"]},
    }  # fmt: skip
    trace = trace_of([collective(0, "all_to_all", 8_000_000)])
    for options, told in ({}, True), ({"congestion": True}, False), ({"compat": ""}, False):
        done = simulate([trace] * 8, system_of(case, **options))
        issues = nadi.simulation.results_of(done).issues
        found = issues.filter(pl.col("code") == "simulate.links-overloaded")
        assert found.height == int(told)
        if told:
            most = nadi.simulation.link_table(done)["utilization"].max()
            assert f"factor of {most:.2f}" in found["detail"][0]
