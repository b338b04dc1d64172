"""Memory tiers: what must hold of loads and stores, whatever a system's figures are.

Usage: python verification/memory_tiers.py [PART ...]; parts: plain alone shared bytes better curve
astra_sim

plain: memory without limits gives exactly the times of the job without loads and stores.
alone: an access that shares nothing takes latency and bytes at the stated rate, to the ns.
shared: ranks that share ports, paths or devices end when closed forms say.
bytes: what is loaded and stored is what accounts of tiers and of each moment hold.
better: a step is never slower with more bandwidth, less latency or fewer ranks on a memory; if
communication takes the path of memory, at most by a hair.
curve: the latency of a loaded tier is that of CXLMemSim's formula, written out again here.
astra_sim: ASTRA-sim's four kinds of remote memory, by its rules, to the ns.
"""

from __future__ import annotations

import random
import tempfile
from itertools import pairwise
from pathlib import Path

from _report import SHARED, Checks, Tally, run_parts, unpack
from astra_sim import Faults, check_file

import nadi
from nadi.simulation import results_of
from nadi.systems import (
    Collectives,
    Dimension,
    LoadedLatency,
    MemoryPath,
    MemoryTier,
    Network,
    System,
    access_ns,
    loaded_latency_ns,
)

_ASTRA_SIM = SHARED / "golden" / "astra"
_COMPUTE, _COMMUNICATION = 7, 20  # streams
PCIE = MemoryPath(name="pcie", read_bandwidth=51.0, write_bandwidth=52.0, dimensions=(0,))


def system_of(num_ranks: int, tiers: tuple[MemoryTier, ...], path: MemoryPath = PCIE) -> System:
    switch = Dimension("switch", num_ranks, 50.0, 1350.0)
    ring = Collectives(all_reduce=("ring",), chunks=4)
    return System(Network((switch,)), collectives=ring, tiers=tiers, memory_paths=(path,))


def pool_of(read: float, write: float, latency: float = 600.0, shared_by: int = 0) -> MemoryTier:
    return MemoryTier(
        name="pool", kind="cxl-pool", read_bandwidth=read, write_bandwidth=write, duplex=True,
        latency=latency, shared_by=shared_by, path="pcie",
    )  # fmt: skip


def offloaded_step(num_ranks: int, layers: int, *, tier: str = "pool") -> nadi.Job:
    """Build a step whose weights and gradients live in a tier: two layers are loaded ahead.

    Without a tier, layers wait for what their loads would wait for.
    """
    chance = random.Random(1)
    work = [chance.randrange(200_000, 2_000_000) for _ in range(layers)]
    size = [chance.randrange(1, 60) * 1_000_000 for _ in range(layers)]
    with nadi.models.JobBuilder(num_ranks) as builder:
        for rank in builder.ranks:
            done: list[nadi.models.BuiltNode] = []
            for k in range(layers):
                room = done[-2:-1]
                if tier:
                    load = rank.unordered.load(f"weights{k}", size[k], tier=tier, after=room)
                    room = [load]
                done.append(rank.stream(_COMPUTE).compute("layer", duration=work[k], after=room))
                reduce = rank.stream(_COMMUNICATION).collective(
                    "all_reduce", size[k] // 4, after=[done[-1]]
                )
                if tier:
                    rank.unordered.store(f"gradients{k}", size[k] // 2, tier=tier, after=[reduce])
    return builder.job


def check_plain(checks: Checks) -> None:
    """Compare memory without limits with no memory at all."""
    for num_ranks in (1, 4, 8):
        free = MemoryTier(name="pool", kind="cxl-pool", shared_by=0, path="pcie")
        system = system_of(num_ranks, (free,), MemoryPath(name="pcie"))
        plain = nadi.simulate(offloaded_step(num_ranks, 24, tier=""), system)
        own = nadi.simulate(offloaded_step(num_ranks, 24, tier="hbm"), system)
        tiered = nadi.simulate(offloaded_step(num_ranks, 24), system)
        expected = ends_by_name(plain)
        for what, found in (("a tier without limits", tiered), ("the device's own", own)):
            got = {key: end for key, end in ends_by_name(found).items() if key in expected}
            checks.add(f"plain: {num_ranks} ranks, {what}", got == expected)


def ends_by_name(simulation: nadi.simulation.Simulation) -> dict[tuple[int, str, int], int]:
    """Give when each operation ends: by rank, name, and which of that name it is."""
    found: dict[tuple[int, str, int], int] = {}
    count: dict[tuple[int, str], int] = {}
    names = [trace.nodes["name"].to_list() for trace in simulation.traces]
    for rank, node, end in simulation.schedule.table.select("rank", "node", "end").iter_rows():
        name = names[rank][node]
        number = count[rank, name] = count.get((rank, name), 0) + 1
        found[rank, name, number] = end
    return found


def check_alone(checks: Checks) -> None:
    """Compare single accesses of the tiers of shipped systems with their closed form."""
    for name in ("dgx-h100-cxl", "gh200"):
        system = nadi.load_system(name, 1)
        exact = []
        for tier in system.tiers:
            for store in (False, True):
                for size in (1, 4096, 1_000_003, 10**10):
                    with nadi.models.JobBuilder(1) as builder:
                        lane = builder.ranks[0].unordered
                        access = lane.store if store else lane.load
                        access("access", size, tier=tier.name)
                    path = system.path_of(tier)
                    expected = access_ns(tier, size, path, store=store)
                    rate = [tier.write_bandwidth if store else tier.read_bandwidth]
                    rate += [path.write_bandwidth if store else path.read_bandwidth] if path else []
                    if tier.ports:
                        rate += [tier.port_write_bandwidth if store else tier.port_read_bandwidth]
                    written_out = round(tier.latency) + int(size / min(rate))
                    got = nadi.simulate(builder.job, system).makespan
                    exact.append(got == expected == written_out)
        checks.add_many(f"alone: {name}", sum(exact), len(exact))


def check_shared(checks: Checks) -> None:
    """Compare what shares links with closed forms."""
    size, latency = 40_000_000, 600.0
    exact = []
    for num_ranks in (2, 4, 8):
        for read, write in ((64.0, 64.0), (120.0, 60.0), (400.0, 100.0)):
            for duplex in (False, True):
                tier = MemoryTier(
                    name="pool", kind="cxl-pool", read_bandwidth=read, write_bandwidth=write,
                    duplex=duplex, latency=latency, shared_by=0, path="pcie",
                )  # fmt: skip
                with nadi.models.JobBuilder(num_ranks) as builder:
                    for rank in builder.ranks:
                        rank.unordered.load("load", size, tier="pool")
                        rank.unordered.store("store", size, tier="pool")
                got = nadi.simulate(builder.job, system_of(num_ranks, (tier,))).makespan
                total = num_ranks * size
                least = [total / read, total / write, size / 51.0]
                if not duplex:
                    least.append(total / read + total / write)
                exact.append(abs(got - max(least) - latency) <= 2e-4 * max(least) + 10)
    checks.add_many("shared: devices, paths", sum(exact), len(exact))
    exact = []
    for ports in (1, 2, 4, 8):
        tier = MemoryTier(
            name="pool", kind="cxl-pool", read_bandwidth=1000.0, write_bandwidth=1000.0,
            latency=latency, shared_by=0, ports=ports, port_read_bandwidth=40.0,
            port_write_bandwidth=40.0, path="pcie",
        )  # fmt: skip
        with nadi.models.JobBuilder(8) as builder:
            for rank in builder.ranks:
                rank.unordered.load("load", size, tier="pool")
        got = nadi.simulate(builder.job, system_of(8, (tier,))).makespan
        exact.append(abs(got - 8 * size / (40 * ports) - latency) <= 1e-4 * got)
    checks.add_many("shared: ports of a switch", sum(exact), len(exact))


def check_bytes(checks: Checks) -> None:
    """Compare the accounts of tiers with what nodes state."""
    job = offloaded_step(8, 40)
    nodes = [trace.nodes for trace in job.traces]
    for shared_by in (0, 1, 2):
        found = results_of(nadi.simulate(job, system_of(8, (pool_of(120, 60, 600, shared_by),))))
        traffic, use = found.tier_traffic, found.tier_use
        assert traffic is not None
        assert use is not None
        for kind, column in (("MEM_LOAD", "bytes_read"), ("MEM_STORE", "bytes_written")):
            stated = sum(int(table.filter(table["kind"] == kind)["bytes"].sum()) for table in nodes)
            got = int(traffic[column].sum()), int(use[column].sum())
            checks.add(f"bytes: {column}, shared by {shared_by or 'all'}", got == (stated, stated))
        held = bool((traffic["utilization"] <= 1.0005).all() and (traffic["waiting"] >= 0).all())
        checks.add(f"bytes: no more than fits, shared by {shared_by or 'all'}", held)


def check_better(checks: Checks) -> None:
    """Walk along bandwidth, latency and sharing, each from worse to better.

    Rates of flows are whole numbers of units: a part in a million. Where communication takes the
    path of memory, too, what gets faster may take from others that the step waits for: then by
    less than a part in 100,000.
    """
    job = offloaded_step(8, 24)
    factors = [2.0**k for k in range(-3, 6)]
    own = MemoryPath(name="pcie", read_bandwidth=51.0, write_bandwidth=52.0)

    def walk(what: str, systems: list[System]) -> None:
        times = [nadi.simulate(job, system).makespan for system in systems]
        shares = any(path.dimensions for path in systems[0].memory_paths)
        tally = Tally()
        for worse, better in pairwise(times):
            rule = ""
            if better <= worse * (1 + 1e-6):
                rule = "rates are whole numbers of units"
            elif shares and better <= worse * (1 + 1e-5):
                rule = "fair shares with communication on the path"
            tally.add(exact=better <= worse, rule=rule, detail=f"{worse} ns to {better} ns")
        checks.add_tally(f"better: {what}, {times[0]} ns to {times[-1]} ns", tally)

    for path in (own, PCIE):
        beside = ", communication beside it" if path.dimensions else ""
        walk(f"bandwidth of a pool{beside}", [
            system_of(8, (pool_of(120 * f, 60 * f),), path) for f in factors
        ])  # fmt: skip
        walk(f"bandwidth of reads{beside}", [
            system_of(8, (pool_of(120 * f, 60.0),), path) for f in factors
        ])  # fmt: skip
        walk(f"bandwidth of writes{beside}", [
            system_of(8, (pool_of(120.0, 60 * f),), path) for f in factors
        ])  # fmt: skip
        walk(f"bandwidth of the path{beside}", [
            system_of(8, (pool_of(1000.0, 1000.0),), MemoryPath(
                name="pcie", read_bandwidth=51 * f, write_bandwidth=52 * f,
                dimensions=path.dimensions,
            ))
            for f in factors
        ])  # fmt: skip
        walk(f"latency{beside}", [
            system_of(8, (pool_of(120.0, 60.0, latency),), path)
            for latency in (100_000, 10_000, 5000, 1000, 600, 300, 100, 0)
        ])  # fmt: skip
        walk(f"ranks that share a memory{beside}", [
            system_of(8, (pool_of(120.0, 60.0, 600, ranks),), path) for ranks in (8, 4, 2, 1)
        ])  # fmt: skip


def check_curve(checks: Checks) -> None:
    """Compare loaded latencies with the formula of CXLMemSim (src/cxlendpoint.cpp)."""
    chance = random.Random(2)
    exact = []
    for _ in range(2000):
        idle = chance.uniform(50, 1000)
        peaks = chance.uniform(5, 200), chance.uniform(5, 200)
        slope, knee = chance.uniform(0, 4), chance.uniform(0.2, 0.8)
        saturation, most = chance.uniform(0.85, 0.99), chance.choice((0.0, 20_000.0))
        curve = LoadedLatency(
            idle_ns=idle, read_gbps=peaks[0], write_gbps=peaks[1], slope=slope, knee=knee,
            saturation=saturation, most_ns=most,
        )  # fmt: skip
        reads, load, devices = chance.random(), chance.uniform(0, 1.5), chance.randrange(1, 9)
        tier = MemoryTier(name="cxl", kind="cxl", latency=idle, loaded=curve, devices=devices)
        mixed = 2 / (1 / peaks[0] + 1 / peaks[1])
        if reads >= 0.95:
            peak = peaks[0]
        elif reads <= 0.05:
            peak = peaks[1]
        elif reads >= 0.5:
            peak = mixed + (peaks[0] - mixed) * (2 * reads - 1)
        else:
            peak = peaks[1] + (mixed - peaks[1]) * 2 * reads
        line = 64 / peak  # ns of an access at the peak
        penalty = line * load * slope
        if load > knee:
            used = min(load, saturation)
            penalty += line * used / (1 - used) * ((used - knee) / (saturation - knee)) ** 2
        if load > saturation:
            penalty += idle * (load - saturation) / (1 - saturation)
        expected = idle + min(penalty, max(most, 10 * idle))
        got = loaded_latency_ns(tier, load * peak * devices, reads=reads)
        exact.append(abs(got - expected) <= 1e-9 * expected)
    checks.add_many("curve: loaded latency", sum(exact), len(exact))


def check_astra_sim(checks: Checks) -> None:
    """Compare the four kinds of remote memory with what ASTRA-sim says."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(_ASTRA_SIM / "traces_memory.tar.gz", folder)
        check_file(_ASTRA_SIM / "memory.json.gz", Path(folder), checks, Faults())


if __name__ == "__main__":
    run_parts({
        "plain": check_plain, "alone": check_alone, "shared": check_shared, "bytes": check_bytes,
        "better": check_better, "curve": check_curve, "astra_sim": check_astra_sim,
    })  # fmt: skip
