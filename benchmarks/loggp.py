"""How fast a LogGP model runs programs of messages, and how fast GOAL files are read and written.

Usage: python benchmarks/loggp.py

A step of GPT-3 13B on 32 ranks with tensor, pipeline and data parallelism, whose collectives are
taken apart; and an all-reduce on a ring of 1,024 ranks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _measure import best_of, peak_memory_mb

import nadi
from nadi.simulation import LogGP, loggp_times, messages_of_job

MACHINE = LogGP(latency=2500, overhead=1500, gap=1000, gap_per_byte=20)


def report(name: str, job: nadi.Job, folder: Path) -> None:
    program = messages_of_job(job)
    file = folder / "job.goal"
    seconds = {
        "taken apart": best_of(lambda: messages_of_job(job), 2),
        "simulated": best_of(lambda: loggp_times(program, MACHINE), 3),
        "written": best_of(lambda: nadi.files.write_goal(program, file, overwrite=True), 1),
        "read": best_of(lambda: nadi.files.read_goal(file), 1),
    }
    size = program.num_operations
    print(f"{name}: {size:,} operations, {file.stat().st_size / 1e6:.0f} MB as GOAL")
    for what, time in seconds.items():
        print(f"  {what:<12}{time:7.2f} s  {size / time / 1e6:6.2f} M operations/s")


def main() -> None:
    step = nadi.llm_job("gpt3-13b", tp=4, pp=4, dp=2, global_batch=32)
    with nadi.JobBuilder(world_size=1024) as ring:
        ring.all_ranks.collective("all_reduce", bytes="1 GB")
    with tempfile.TemporaryDirectory() as folder:
        report("GPT-3 13B on 32 ranks", step, Path(folder))
        report("all-reduce, ring of 1,024", ring.job, Path(folder))
    print(f"{peak_memory_mb():.0f} MB at peak")


if __name__ == "__main__":
    main()
