"""How fast tensors of a job are placed in tiers of memory, and the job simulated with them.

Usage: python benchmarks/placement.py [big|70b|sweep]

A recording (cpu_transformer_big) whose first tier has room for half of its peak, and a generated
step of 70 billion parameters on 64 ranks with 24 GiB each: from the traces in memory to accounts of
all tiers; and 200 points of bandwidth and room of the latter. Each in a process of its own, so that
its peak memory is its own; kernels were compiled before. CPU time is that of all processes, for a
machine that has other work.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import msgspec
from _measure import SHARED, peak_memory_mb

import nadi
from nadi.memory import ByRoom, PlainStep, TierGrid, plain_step, sweep_tiers, with_room
from nadi.simulation import live_memory
from nadi.systems import System, second_tier

GIB = 1 << 30
PLAN = {"tp": 8, "pp": 4, "dp": 2, "sequence": 4096, "global_batch": 32}
BANDWIDTHS = tuple(8.0 * 2 ** (number / 3) for number in range(20))
MEMORIES = tuple((12 + 3 * number) * GIB for number in range(10))


def cpu_seconds() -> float:
    """Give the CPU time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def with_tier(system: System, memory: int) -> System:
    return with_room(msgspec.structs.replace(system, tiers=(second_tier(64.0),)), memory)


def place(job: nadi.Job, name: str, part: float = 0.0) -> tuple[PlainStep, System]:
    """Place the tensors of a job, simulate it, and print how long that took."""
    ranks = len(job.traces)
    begin, used = time.perf_counter(), cpu_seconds()
    plain = plain_step(job, nadi.load_system("dgx-h100", ranks))
    read = time.perf_counter() - begin
    memory = 24 * GIB
    if part:
        live = live_memory(plain.tensors.simulation)
        assert live is not None
        memory = int(part * int(live["peak"][0]))
    system = with_tier(plain.system, memory)
    staging = plain.staging(system)
    step = plain.placed(plain.chosen(ByRoom(), system, staging), system, staging)
    peak = step.accounts.tiers[0].peak
    seconds = time.perf_counter() - begin
    moves = sum(moves.tier.size for moves in step.placed.moves)
    print(
        f"{name}: {job.num_nodes:,} nodes on {ranks} ranks, {plain.tensors.table.height:,} tensors "
        f"of {len(plain.tensors.traces)} traces, {moves:,} moves; without tiers and tensors "
        f"{read:.2f} s, placed, simulated and accounted after {seconds:.2f} s "
        f"({cpu_seconds() - used:.2f} s of CPU), {job.num_nodes / seconds / 1e3:,.0f} k nodes/s, "
        f"{peak_memory_mb():,.0f} MB; step "
        f"{plain.ns / 1e6:,.1f} -> {step.ns / 1e6:,.1f} ms, first tier {peak / 2**20:,.0f} of "
        f"{memory / 2**20:,.0f} MiB"
    )
    return plain, system


def sweep() -> None:
    """Simulate 200 points, in processes."""
    job = nadi.llm_job("llama3-70b", **PLAN)
    begin, used = time.perf_counter(), cpu_seconds()
    plain = plain_step(job, nadi.load_system("dgx-h100", len(job.traces)))
    grid, placers = TierGrid(BANDWIDTHS, MEMORIES), [ByRoom(), ByRoom(by_time=False)]
    points = sweep_tiers(plain, placers, with_tier(plain.system, 0), grid)
    seconds = time.perf_counter() - begin
    print(
        f"70B on 64 ranks, {points.height} points of bandwidth and room: {seconds:.1f} s "
        f"({cpu_seconds() - used:.1f} s of CPU), {points.height / seconds:.1f} points/s, "
        f"{peak_memory_mb():,.0f} MB in the first process; "
        f"{points['ratio'].min():.3f} to {points['ratio'].max():.3f} times as long"
    )


def main() -> None:
    if len(sys.argv) == 1:
        for case in ("big", "70b", "sweep"):
            subprocess.run([sys.executable, __file__, case], check=True)
    elif sys.argv[1] == "big":
        place(nadi.load_job(SHARED / "traces" / "cpu_transformer_big"), "cpu_transformer_big", 0.5)
    elif sys.argv[1] == "70b":
        place(nadi.llm_job("llama3-70b", **PLAN), "llama3-70b")
    else:
        sweep()


if __name__ == "__main__":
    main()
