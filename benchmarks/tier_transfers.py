"""Nodes per second of jobs whose weights and gradients live in memory tiers.

Ranks load the weights of each layer from a pool of their node, two layers ahead, and store its
gradients to host memory; every tenth layer they reduce. All transfers share links.
"""

from __future__ import annotations

import time

from _measure import best_of, peak_memory_mb

import nadi

_COMPUTE, _COMMUNICATION = 7, 20  # streams


def job_of(num_ranks: int, layers: int) -> nadi.Job:
    with nadi.models.JobBuilder(num_ranks) as builder:
        for rank in builder.ranks:
            done: list[nadi.models.BuiltNode] = []
            for k in range(layers):
                load = rank.unordered.load("weights", 20_000_000, tier="cxl", after=done[-2:-1])
                work = 300_000 + k % 7 * 10_000  # ns
                done.append(rank.stream(_COMPUTE).compute("layer", duration=work, after=load))
                if k % 10 == 0:
                    rank.stream(_COMMUNICATION).collective("all_reduce", 10**7, after=done[-1])
                rank.unordered.store("gradients", 10_000_000, tier="dram", after=done[-1])
    return builder.job


def main() -> None:
    warm = job_of(2, 10)
    nadi.simulate(warm, nadi.load_system("dgx-h100-cxl", 2))
    for num_ranks, layers in ((8, 10_000), (64, 1000), (512, 100)):
        job = job_of(num_ranks, layers)
        system = nadi.load_system("dgx-h100-cxl", num_ranks)
        done = nadi.simulate(job, system)
        seconds = best_of(lambda job=job, system=system: nadi.simulate(job, system), 3)  # type: ignore[misc]
        begin = time.perf_counter()
        nadi.simulation.results_of(done)
        accounts = time.perf_counter() - begin
        print(
            f"{num_ranks} ranks, {done.num_nodes} nodes: {seconds:.2f} s, "
            f"{done.num_nodes / seconds / 1e3:.0f} k nodes/s; accounts {accounts:.2f} s; "
            f"{peak_memory_mb():.0f} MB"
        )


if __name__ == "__main__":
    main()
