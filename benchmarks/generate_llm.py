"""How fast jobs of language models are generated, and simulated from there to the critical path.

Usage: python benchmarks/generate_llm.py

GPT-3 175B on 4,096 ranks (dp 32, tp 8, pp 16; STG takes 105 s for as many ranks of 96 layers), on
32,768, with 1 and with 16 micro-batches; and on 1,024 H100 from the description to the critical
path. Each in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import nadi
from nadi.simulation import results_of, simulated_path

CASES = {
    "4096": {"tp": 8, "pp": 16, "dp": 32, "global_batch": 32 * 16},
    "32768": {"tp": 8, "pp": 16, "dp": 256, "global_batch": 256 * 16},
    "one": {"tp": 8, "dp": 8, "global_batch": 8},
    "sixteen": {"tp": 8, "dp": 8, "global_batch": 8 * 16},
}
SIMULATED = {"tp": 8, "pp": 16, "dp": 8, "micro_batch": 1, "global_batch": 1536}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def generate(plan: dict[str, int]) -> None:
    """Generate once in a warm process, and print its figures."""
    nadi.llm_job("gpt3-125m", tp=2, pp=2)
    begin = time.perf_counter()
    job = nadi.llm_job("gpt3-175b", **plan)
    seconds = time.perf_counter() - begin
    print(
        f"GPT-3 175B, {len(job.traces):,} ranks, {job.num_nodes:,} nodes in "
        f"{len(set(job.traces))} traces: {seconds:.2f} s, {peak_mb():.0f} MB"
    )


def simulate() -> None:
    """Generate, simulate, and walk the critical path; compilation was before."""
    for warm in (True, False):
        begin = time.perf_counter()
        name, plan = ("gpt3-125m", {"tp": 2, "pp": 2}) if warm else ("gpt3-175b", SIMULATED)
        job = nadi.llm_job(name, **plan)
        generated = time.perf_counter() - begin
        done = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))
        results_of(done)
        simulated = time.perf_counter() - begin
        path = simulated_path(done)
        seconds = time.perf_counter() - begin
    print(
        f"GPT-3 175B on 1,024 H100: {job.num_nodes:,} nodes, {done.num_events:,} events; generated "
        f"in {generated:.1f} s, simulated after {simulated:.1f} s, critical path after "
        f"{seconds:.1f} s, {peak_mb():.0f} MB; step {path.length / 1e9:.3f} s"
    )


def main() -> None:
    if len(sys.argv) == 1:
        for case in (*CASES, "simulated"):
            subprocess.run([sys.executable, __file__, case], check=True)
    elif sys.argv[1] == "simulated":
        simulate()
    else:
        generate(CASES[sys.argv[1]])


if __name__ == "__main__":
    main()
