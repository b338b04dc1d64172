"""Loads and stores of memory tiers, against a slow model in plain Python, and laws."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.errors import InputError, UsageError
from nadi.simulation import Simulation
from nadi.simulation.engine_driver import simulate_with_memories
from nadi.systems import (
    Dimension,
    LoadedLatency,
    MemoryPath,
    MemoryTier,
    Network,
    System,
    access_ns,
    loaded_latency_ns,
    rate_alone,
)
from tests.reference.memory_tiers import Operation, ends_of

STREAM = 7
RATES = (0.0, 8.0, 12.0, 16.0, 32.0, 64.0)


def system_of(
    num_ranks: int, tiers: tuple[MemoryTier, ...], paths: tuple[MemoryPath, ...] = (), **more: Any
) -> System:
    dimension = Dimension("switch", num_ranks, 50.0, 100.0)
    return System(Network((dimension,)), tiers=tiers, memory_paths=paths, **more)


def job_of(system: System, ranks: list[list[Operation]]) -> nadi.Job:
    with nadi.models.JobBuilder(len(ranks)) as builder:
        for rank, operations in zip(builder.ranks, ranks, strict=True):
            nodes: list[Any] = []
            for k, one in enumerate(operations):
                after = [nodes[j] for j in one.after]
                if one.kind == "compute":
                    node = rank.stream(STREAM).compute(f"c{k}", duration=one.amount, after=after)
                else:
                    access = getattr(rank.unordered, one.kind)
                    name = system.tiers[one.tier].name
                    node = access(f"{one.kind}{k}", one.amount, after=after, tier=name)
                nodes.append(node)
    return builder.job


def simulate(system: System, ranks: list[list[Operation]]) -> tuple[Simulation, list[list[int]]]:
    found = nadi.simulate(job_of(system, ranks), system)
    rows = found.schedule.table.sort("rank", "node")
    ends: list[list[int]] = [[] for _ in ranks]
    for rank, end in rows.select("rank", "end").iter_rows():
        ends[rank].append(end)
    return found, ends


@st.composite
def tiers(draw: st.DrawFn, name: str, num_ranks: int) -> MemoryTier:
    read = draw(st.sampled_from(RATES))
    return MemoryTier(
        name=name,
        kind="cxl",
        read_bandwidth=read,
        write_bandwidth=read * draw(st.sampled_from((0.5, 1.0, 2.0))),
        duplex=draw(st.booleans()),
        latency=draw(st.sampled_from((0.0, 250.0))),
        shared_by=draw(st.sampled_from((0, 1, 2))),
        ports=draw(st.integers(0, num_ranks)),
        port_read_bandwidth=draw(st.sampled_from(RATES)),
        port_write_bandwidth=draw(st.sampled_from(RATES)),
        path=draw(st.sampled_from(("", "pcie"))),
    )


@st.composite
def systems(draw: st.DrawFn, num_ranks: int) -> System:
    path = MemoryPath(
        name="pcie",
        read_bandwidth=draw(st.sampled_from(RATES)),
        write_bandwidth=draw(st.sampled_from(RATES)),
        shared_by=draw(st.integers(1, 2)),
    )
    found = [draw(tiers(name, num_ranks)) for name in ("near", "far")[: draw(st.integers(1, 2))]]
    return system_of(num_ranks, tuple(found), (path,))


@st.composite
def programs(draw: st.DrawFn, num_tiers: int) -> list[Operation]:
    found: list[Operation] = []
    for k in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("compute", "load", "store")))
        after = tuple(j for j in range(k) if draw(st.integers(0, 3)) == 0)
        amount = draw(st.integers(0, 20)) * (1000 if kind == "compute" else 50_000)
        tier = -1 if kind == "compute" else draw(st.integers(0, num_tiers - 1))
        found.append(Operation(kind, amount, tier, after))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[System, list[list[Operation]]]:
    num_ranks = draw(st.integers(1, 4))
    system = draw(systems(num_ranks))
    return system, [draw(programs(len(system.tiers))) for _ in range(num_ranks)]


@given(cases())
def test_ends_are_those_of_a_model_in_plain_python(
    case: tuple[System, list[list[Operation]]],
) -> None:
    system, ranks = case
    _, ends = simulate(system, ranks)
    for own, expected in zip(ends, ends_of(system, ranks), strict=True):
        assert own == pytest.approx(expected, rel=1e-4, abs=10)


# laws

PCIE = MemoryPath(name="pcie", read_bandwidth=50.0, write_bandwidth=40.0)
DRAM = MemoryTier(name="dram", kind="dram", read_bandwidth=80.0, write_bandwidth=60.0,
                  latency=500.0, path="pcie")  # fmt: skip
POOL = MemoryTier(name="pool", kind="cxl-pool", read_bandwidth=64.0, write_bandwidth=32.0,
                  latency=300.0, shared_by=0, path="pcie")  # fmt: skip


def without_accesses(ranks: list[list[Operation]]) -> list[list[Operation]]:
    """Leave out accesses: who waits for one waits for what that waits for, its lane too."""
    found = []
    for operations in ranks:
        place: dict[int, int] = {}
        before: list[set[int]] = []
        kept: list[Operation] = []
        for k, one in enumerate(operations):
            lane = [j for j in range(k) if operations[j][::2] == one[::2]]
            waits = {*one.after, *lane[-1:]}
            real = {j for j in waits if j in place} | {i for j in waits for i in before[j]}
            before.append(real if one.kind != "compute" else set())
            if one.kind == "compute":
                place[k] = len(kept)
                kept.append(one._replace(after=tuple(sorted(place[j] for j in real))))
        found.append(kept)
    return found


@given(cases())
def test_memory_without_limits_changes_nothing(case: tuple[System, list[list[Operation]]]) -> None:
    _, ranks = case
    free = tuple(
        MemoryTier(name=name, kind="cxl", shared_by=0, path="pcie") for name in ("near", "far")
    )
    system = system_of(len(ranks), free, (MemoryPath(name="pcie"),))
    _, ends = simulate(system, ranks)
    plain = without_accesses(ranks)
    with_work = [k for k, operations in enumerate(plain) if operations]
    for k in with_work:
        _, expected = simulate(system_of(1, ()), [plain[k]])
        own = [end for end, one in zip(ends[k], ranks[k], strict=True) if one.kind == "compute"]
        assert own == expected[0]


@given(cases(), st.lists(st.sampled_from((0.0, 0.5, 1.0, 3.0)), min_size=1, max_size=3))
def test_one_job_on_several_memories_is_as_on_each(
    case: tuple[System, list[list[Operation]]], factors: list[float]
) -> None:
    system, ranks = case
    systems = [system]
    for factor in factors:  # 0 is no limit
        figures = ("read_bandwidth", "write_bandwidth", "latency", "port_read_bandwidth")
        found = tuple(
            msgspec.structs.replace(tier, **{one: getattr(tier, one) * factor for one in figures})
            for tier in system.tiers
        )
        systems.append(msgspec.structs.replace(system, tiers=found))
    job = job_of(system, ranks)
    several = list(simulate_with_memories(job, systems))
    for own, done in zip(systems, several, strict=True):
        alone = nadi.simulate(job, own)
        assert done.system is own
        for one, other in ((done.start, alone.start), (done.end, alone.end)):
            assert np.array_equal(one, other)
        assert nadi.simulation.link_use(done).equals(nadi.simulation.link_use(alone))


@given(cases())
def test_links_to_memory_carry_what_accesses_take_over_them(
    case: tuple[System, list[list[Operation]]],
) -> None:
    system, ranks = case
    found, _ = simulate(system, ranks)
    links = nadi.simulation.link_use(found)
    carried: Counter[str] = Counter()
    for rank, operations in enumerate(ranks):
        for one in operations:
            if one.kind == "compute":
                continue
            tier, way = system.tiers[one.tier], {"load": "read", "store": "write"}[one.kind]
            for owner in (tier, *((system.path_of(tier),) if tier.path else ())):
                sharing = owner.shared_by or len(ranks)
                first = rank // sharing * sharing
                last = min(first + sharing, len(ranks)) - 1
                whose = f"rank{first}" if first == last else f"ranks{first}-{last}"
                if getattr(owner, f"{way}_bandwidth"):
                    carried[f"{owner.name}.{whose}.{way}"] += one.amount
                if owner is tier and not tier.duplex and tier.read_bandwidth:
                    carried[f"{owner.name}.{whose}"] += one.amount
    named = dict(links.filter(~pl.col("link").str.contains("port")).select("link", "bytes").rows())
    assert named == {name: size for name, size in carried.items() if size}
    ports = links.filter(pl.col("link").str.contains("port"))
    for tier in system.tiers:
        sizes = {
            way: sum(one.amount for operations in ranks for one in operations
                     if one.kind == kind and system.tiers[one.tier] is tier)
            for kind, way in (("load", "read"), ("store", "write"))
        }  # fmt: skip
        for way, size in sizes.items():
            own = ports.filter(
                pl.col("link").str.starts_with(tier.name) & pl.col("link").str.ends_with(way)
            )
            has = tier.ports and getattr(tier, f"port_{way}_bandwidth")
            assert own["bytes"].sum() == (size if has else 0)
    assert all(sum(row["user_bytes"]) == row["bytes"] for row in links.iter_rows(named=True))
    assert (links["utilization"] * found.makespan <= found.makespan * (1 + 1e-4) + 16).all()
    if found.trail.full.size:
        busy = links["utilization"] * found.makespan
        assert (links["full"] <= busy * (1 + 1e-4) + 16).all()


@given(cases())
def test_bytes_are_kept_in_every_account(case: tuple[System, list[list[Operation]]]) -> None:
    system, ranks = case
    found, _ = simulate(system, ranks)
    results = nadi.simulation.results_of(found)
    moved = [one for operations in ranks for one in operations if one.kind != "compute"]
    if not moved:
        assert results.tier_traffic is None
        return
    assert results.tier_traffic is not None
    assert results.tier_use is not None
    for kind, column in (("load", "bytes_read"), ("store", "bytes_written")):
        total = sum(one.amount for one in moved if one.kind == kind)
        assert results.tier_traffic[column].sum() == results.tier_use[column].sum() == total
    # no more than the devices can do, but for whole ns
    most = results.tier_traffic["utilization"] * found.makespan
    assert (most <= found.makespan * 1.001 + 10).all()
    assert (results.tier_traffic["waiting"] >= 0).all()
    assert (results.tier_traffic["busy"] <= found.makespan).all()
    times = results.rank_times
    parts = nadi.simulation.accounts.times.PARTITION
    assert times.select(parts).sum_horizontal().to_list() == times["finish"].to_list()


@given(cases(), st.sampled_from((1.25, 2.0)), st.sampled_from((0.0, 0.5)))
def test_better_memory_of_its_own_makes_no_rank_slower(
    case: tuple[System, list[list[Operation]]], faster: float, latency: float
) -> None:
    _, ranks = case
    limits = DRAM.read_bandwidth, DRAM.write_bandwidth

    def ends_with(rates: tuple[float, float], part: float) -> list[list[int]]:
        tiers = tuple(
            MemoryTier(
                name=name, kind="cxl", duplex=True, read_bandwidth=rates[0],
                write_bandwidth=rates[1], latency=part * 1000,
            )
            for name in ("near", "far")
        )  # fmt: skip
        return simulate(system_of(len(ranks), tiers), ranks)[1]

    before = ends_with(limits, 1.0)
    for after in (
        ends_with((limits[0] * faster, limits[1]), 1.0),
        ends_with((limits[0], limits[1] * faster), 1.0),
        ends_with(limits, latency),
    ):
        for own, others in zip(after, before, strict=True):
            assert all(a <= b for a, b in zip(own, others, strict=True))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from((1.1, 2.0, 8.0)))
def test_a_faster_pool_makes_none_of_those_that_share_it_later(
    sizes: list[int], faster: float
) -> None:
    ranks = [[Operation("load", size * 50_000, 0)] for size in sizes]
    ends = []
    for factor in (1.0, faster):
        pool = MemoryTier(name="pool", kind="cxl-pool", shared_by=0, latency=300.0,
                          read_bandwidth=32.0 * factor, write_bandwidth=32.0)  # fmt: skip
        ends.append(simulate(system_of(len(ranks), (pool,)), ranks)[1])
    assert all(a[0] <= b[0] for a, b in zip(ends[1], ends[0], strict=True))


@given(
    st.floats(1, 1000), st.floats(1, 100), st.floats(1, 100), st.floats(0, 1), st.floats(0, 1.5),
    st.integers(1, 4),
)  # fmt: skip
def test_loaded_latency_is_that_of_the_curve(
    idle: float, read: float, write: float, reads: float, load: float, devices: int
) -> None:
    curve = LoadedLatency(idle_ns=idle, read_gbps=read, write_gbps=write)
    tier = MemoryTier(name="cxl", kind="cxl", loaded=curve, devices=devices, latency=idle)
    mixed = 2 / (1 / read + 1 / write)
    if reads >= 0.95:
        peak = read
    elif reads <= 0.05:
        peak = write
    elif reads >= 0.5:
        peak = mixed + (read - mixed) * (reads - 0.5) / 0.5
    else:
        peak = write + (mixed - write) * reads / 0.5
    line, used = 64 / peak, min(load, 0.95)
    penalty = line * load + line * used / (1 - used) * (max(used - 0.6, 0) / 0.35) ** 2
    penalty += idle * max(load - 0.95, 0) / 0.05
    expected = idle + min(penalty, 10 * idle)
    got = loaded_latency_ns(tier, load * peak * devices, reads=reads)
    assert got == pytest.approx(expected, rel=1e-9)


# single cases


def test_an_access_alone_takes_what_is_stated_for_it() -> None:
    curve = LoadedLatency(idle_ns=400.0, read_gbps=20.0, write_gbps=10.0, outstanding=64)
    slow = MemoryTier(name="slow", kind="cxl", read_bandwidth=40.0, write_bandwidth=20.0,
                      latency=400.0, loaded=curve, devices=2)  # fmt: skip
    for tier, path in ((DRAM, PCIE), (slow, None)):
        system = system_of(1, (tier,), (PCIE,))
        for kind in ("load", "store"):
            _, ends = simulate(system, [[Operation(kind, 10_000_000, 0)]])
            assert ends == [[access_ns(tier, 10_000_000, path, store=kind == "store")]]
    # what 64 accesses of 64 bytes reach at a latency of 400 ns is less than the devices could do
    assert rate_alone(slow) == pytest.approx(64 * 64 / 406, rel=0.02)
    assert rate_alone(DRAM, PCIE, store=True) == 40.0


def test_reads_and_writes_share_devices_to_the_harmonic_mean() -> None:
    system = system_of(8, (POOL,))
    both = [[Operation("load", 10**7, 0), Operation("store", 10**7, 0)]] * 8
    _, ends = simulate(system, both)
    assert max(max(one) for one in ends) == pytest.approx(8e7 / 64 + 8e7 / 32, rel=1e-3)
    odd = MemoryTier(name="odd", kind="dram", read_bandwidth=61.7, write_bandwidth=44.1)
    _, ends = simulate(system_of(1, (odd,)), both[:1])
    assert max(ends[0]) == pytest.approx(1e7 / 61.7 + 1e7 / 44.1, rel=0.02)


def test_communication_over_the_path_of_memory_slows_both() -> None:
    num_bytes = 50_000_000
    for dimensions, slowed in (((), 1.0), ((0,), 2.0)):
        path = MemoryPath(name="pcie", read_bandwidth=50.0, write_bandwidth=50.0,
                          dimensions=dimensions)  # fmt: skip
        dram = MemoryTier(name="dram", kind="dram", read_bandwidth=80.0, write_bandwidth=80.0,
                          path="pcie")  # fmt: skip
        with nadi.models.JobBuilder(2) as builder:
            one, other = builder.ranks
            one.send(1, num_bytes)
            other.recv(0, num_bytes)
            other.unordered.load("weights", num_bytes, tier="dram")
        found = nadi.simulate(builder.job, system_of(2, (dram,), (path,)))
        assert found.makespan == pytest.approx(slowed * num_bytes / 50, rel=1e-3)


def test_collectives_share_the_path_of_memory_too() -> None:
    path = MemoryPath(name="pcie", read_bandwidth=60.0, write_bandwidth=60.0, dimensions=(0,))
    dram = MemoryTier(name="dram", kind="dram", read_bandwidth=60.0, write_bandwidth=60.0,
                      path="pcie")  # fmt: skip
    ends = []
    for loads in (False, True):
        with nadi.models.JobBuilder(4) as builder:
            for rank in builder.ranks:
                rank.stream(1).collective("all_reduce", 10**8)
                if loads:
                    rank.unordered.load("w", 10**9, tier="dram")
        ends.append(nadi.simulate(builder.job, system_of(4, (dram,), (path,))).schedule.table)
    reduced = [one.filter(one["resource"].cast(str) == "stream 1")["end"].max() for one in ends]
    # alone 50 of the 60 bytes a ns, then half of them
    assert reduced[1] == pytest.approx(reduced[0] * 50 / 30, rel=0.01)


def test_loads_overlap_computation_and_wait_where_they_are_told_to() -> None:
    size = 40_000_000  # 800,500 ns
    ranks = [[
        Operation("load", size, 0), Operation("compute", 1_000_000, after=(0,)),
        Operation("load", size, 0), Operation("compute", 1_000_000, after=(2,)),
        Operation("store", size, 0, after=(1,)),
    ]]  # fmt: skip
    found, ends = simulate(system_of(1, (DRAM,), (PCIE,)), ranks)
    load = access_ns(DRAM, size, PCIE)
    assert ends[0][:4] == [load, load + 1_000_000, 2 * load, load + 2_000_000]
    assert ends[0][4] == load + 1_000_000 + access_ns(DRAM, size, PCIE, store=True)
    resources = found.schedule.table["resource"].to_list()
    assert resources == ["dram load", "stream 7", "dram load", "stream 7", "dram store"]
    path = nadi.simulation.simulated_path(found)
    assert path.by_kind()["memory"] == load + access_ns(DRAM, size, PCIE, store=True)
    assert path.by_kind()["kernel"] == 1_000_000
    waits = nadi.simulation.tier_waits(found)
    assert waits is not None
    assert waits.select("name", "tier", "waiting").rows() == [("c1", "dram", load)]


def test_the_graph_of_a_job_with_tiers_replays_to_its_times() -> None:
    ranks = [[Operation("load", 10**7, 0), Operation("compute", 1000, after=(0,)),
              Operation("store", 10**7, 0, after=(1,))]] * 3  # fmt: skip
    found, _ = simulate(system_of(3, (POOL,), (PCIE,)), ranks)
    graph = nadi.simulation.simulated_graph(found)
    assert np.array_equal(nadi.graph.replay_graph(graph).time, graph.time)
    assert not graph.delay.any()
    assert nadi.trace.validate_job(nadi.simulation.simulated_job(found)).is_empty()


def test_one_rank_stands_for_all_where_each_has_memory_of_its_own() -> None:
    operations = [Operation("load", 10**7, 0), Operation("store", 10**7, 0),
                  Operation("compute", 1000, after=(0,))]  # fmt: skip
    for tier, stands in ((DRAM, True), (POOL, False)):
        found, ends = simulate(system_of(4, (tier,), (PCIE,)), [operations] * 4)
        assert (found.program.num_ranks == 1) == stands
        assert ends[1:] == ends[:-1]
        traffic = nadi.simulation.tier_traffic(found)
        assert traffic is not None
        assert traffic["bytes_read"].to_list() == ([10**7] * 4 if stands else [4 * 10**7])


def test_the_devices_own_memory_is_there_at_once_and_no_name_is_the_first_tier() -> None:
    with nadi.models.JobBuilder(1) as builder:
        builder.ranks[0].unordered.load("own", "1 GB", tier="hbm")
        builder.ranks[0].unordered.load("other", "1 MB")
    found = nadi.simulate(builder.job, system_of(1, (DRAM,), (PCIE,)))
    start, end = (found.schedule.table[name].to_list() for name in ("start", "end"))
    assert [b - a for a, b in zip(start, end, strict=True)] == [0, access_ns(DRAM, 10**6, PCIE)]


def test_a_tier_that_the_system_does_not_have_is_named() -> None:
    with nadi.models.JobBuilder(1) as builder:
        builder.ranks[0].load("w", "1 GB", tier="tape")
    with pytest.raises(InputError, match="tier 'tape', but the system has dram, hbm, device"):
        nadi.simulate(builder.job, system_of(1, (DRAM,), (PCIE,)))
    with pytest.raises(InputError, match="none but the device's own"):
        nadi.simulate(builder.job, system_of(1, ()))


def test_rules_without_shared_links_refuse_tiers() -> None:
    with nadi.models.JobBuilder(1) as builder:
        builder.ranks[0].load("w", "1 GB", tier="dram")
    with pytest.raises(UsageError, match="ASTRA-sim's rules cannot simulate them"):
        nadi.simulate(builder.job, system_of(1, (DRAM,), (PCIE,), compat="astra-sim"))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("memory pool.bandwidth 2x", "read_bandwidth", 128.0),
        ("memory pool.read 0.5x", "read_bandwidth", 32.0),
        ("memory pool.read 100 GB/s", "read_bandwidth", 100.0),
        ("memory pool.write .5x", "write_bandwidth", 16.0),
        ("memory pool.latency 0 ns", "latency", 0.0),
        ("memory pool.capacity 1TB", "capacity", 10**12),
    ],
)
def test_a_change_of_memory_changes_one_figure(text: str, field: str, value: float) -> None:
    system = system_of(2, (DRAM, POOL), (PCIE,))
    change = nadi.systems.parse_memory_change(text)
    assert str(change) == text
    changed = change.apply(system)
    assert changed.tiers[0] == DRAM
    assert getattr(changed.tiers[1], field) == value
    assert nadi.systems.parse_memory_change("memory pcie.write 3x").apply(system).memory_paths == (
        MemoryPath(name="pcie", read_bandwidth=50.0, write_bandwidth=120.0),
    )


def test_a_change_of_a_tier_with_a_curve_changes_the_curve() -> None:
    curve = LoadedLatency(idle_ns=400.0, read_gbps=20.0, write_gbps=10.0)
    tier = MemoryTier(name="cxl", kind="cxl", read_bandwidth=40.0, write_bandwidth=20.0,
                      latency=400.0, loaded=curve, devices=2)  # fmt: skip
    system = system_of(1, (tier,))
    for text, expected in (
        ("memory cxl.bandwidth 2x", LoadedLatency(idle_ns=400.0, read_gbps=40.0, write_gbps=20.0)),
        ("memory cxl.latency 1us", LoadedLatency(idle_ns=1000.0, read_gbps=20.0, write_gbps=10.0)),
    ):
        changed = nadi.systems.parse_memory_change(text).apply(system)
        assert changed.tiers[0].loaded == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("scale mm 2", "is not a change of memory"),
        ("memory pool.speed 2x", "'speed' is no figure of memory"),
        ("memory pool.bandwidth 0x", "'0x' is not a bandwidth"),
        ("memory tape.bandwidth 2x", "no memory tier or path 'tape'; it has dram, pool, pcie"),
        ("memory pcie.latency 2x", "a path has no latency"),
    ],
)
def test_a_change_that_cannot_be_says_why(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        nadi.systems.parse_memory_change(text).apply(system_of(1, (DRAM, POOL), (PCIE,)))


def test_ranks_that_name_other_tiers_do_not_stand_for_each_other() -> None:
    near, far = (
        MemoryTier(name=name, kind="cxl", read_bandwidth=rate, write_bandwidth=rate)
        for name, rate in (("near", 64.0), ("far", 16.0))
    )
    ranks = [[Operation("load", 10**7, tier)] for tier in (0, 1)]
    _, ends = simulate(system_of(2, (near, far)), ranks)
    assert ends == [[10**7 / 64], [10**7 / 16]]


def test_a_path_that_is_slower_than_the_network_slows_collectives_without_accesses() -> None:
    with nadi.models.JobBuilder(4) as builder:
        builder.all_ranks.collective("all_reduce", 10**8)
    times = []
    for rate in (0.0, 100.0, 25.0):
        path = MemoryPath(name="pcie", read_bandwidth=rate, write_bandwidth=rate, dimensions=(0,))
        times.append(nadi.simulate(builder.job, system_of(4, (), (path,))).makespan)
    assert times[0] == times[1]
    assert times[2] == pytest.approx(2 * times[0], rel=0.01)
