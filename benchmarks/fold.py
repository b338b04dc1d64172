"""How fast jobs are folded, and how small and fast folded jobs are.

Usage: python benchmarks/fold.py

GPT-3 175B on 1,024 and on 32,768 ranks: folded, written, read and simulated, each in a process of
its own, so that its peak memory is its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nadi
from nadi.recordings import read_folded, write_folded

CASES = {
    "1024": {"tp": 8, "pp": 16, "dp": 8, "global_batch": 1536},
    "32768": {"tp": 8, "pp": 16, "dp": 256, "global_batch": 8192},
}


def peak_mb() -> float:
    """Give the highest memory of this process; getrusage may give that of who started it."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def fold(case: str, file: Path) -> None:
    job = nadi.llm_job("gpt3-175b", **CASES[case])
    begin, used = time.perf_counter(), time.process_time()
    small = nadi.fold(job)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    size = write_folded(small, file)
    kept = sum(fold.nodes.height for fold in small.folds)
    print(
        f"GPT-3 175B, {len(job.traces):,} ranks, {job.num_nodes:,} nodes: folded in "
        f"{seconds:.1f} s ({used:.1f} s of processors) to {len(small.folds)} classes, "
        f"{kept:,} nodes, {size:,} bytes, {peak_mb():.0f} MB"
    )


def simulate(case: str, file: Path) -> None:
    begin, used = time.perf_counter(), time.process_time()
    job = read_folded(file)
    read = time.perf_counter() - begin
    done = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    rate = job.num_nodes / seconds / 1e6
    print(
        f"  read in {read:.2f} s, simulated after {seconds:.2f} s ({used:.2f} s of processors), "
        f"{rate:,.0f} M nodes/s of the whole job, {peak_mb():.0f} MB; "
        f"step {done.makespan / 1e9:.3f} s"
    )


def main() -> None:
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as place:
            for case in CASES:
                for what in ("fold", "simulate"):
                    run = [sys.executable, __file__, what, case, f"{place}/{case}.nadi"]
                    subprocess.run(run, check=True)
    else:
        {"fold": fold, "simulate": simulate}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))


if __name__ == "__main__":
    main()
