"""Time and memory of drawn jobs of language models on every shipped system, whatever their size.

Usage: python benchmarks/any_scale.py [--count N] [--seed N] [--ranks N]

Draws a model, a system with or without its ``[nccl]``, and a plan of up to 32,768 ranks (or as
many as the system has), generates and simulates it in a process of its own with 6 GB of memory at
most, and prints seconds of the processor, peak memory and how many operations were simulated for
how many ranks. A job that is refused states why. Ends with 1 if one takes over 15 s or 2 GB, is
refused after more than 2 s, or fails in another way.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from typing import Any

import msgspec
from _measure import peak_memory_mb

import nadi
from nadi.errors import NadiError, UsageError
from nadi.models import shipped_language_models
from nadi.models.llm.generated_jobs import checked_plan
from nadi.systems import shipped_systems

LIMIT = 6 << 30  # bytes that a drawn job may ask for
SECONDS, REFUSED_SECONDS, MEGABYTES = 15.0, 2.0, 2000.0
SCHEDULES = ("1f1b", "1f1b", "1f1b", "gpipe", "interleaved", "zero-bubble")


def draw(rng: random.Random, most: int) -> dict[str, Any]:
    """Draw a job that a model and a system allow."""
    while True:
        name, system = rng.choice(shipped_language_models()), rng.choice(list(shipped_systems()))
        plan = {
            "tp": rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 32, 64)),
            "pp": rng.choice((1, 1, 2, 3, 4, 6, 8, 12, 16, 32)),
            "cp": rng.choice((1, 1, 1, 2, 4, 8)),
            "ep": rng.choice((1, 2, 4, 8, 16, 64)),
            "zero": rng.choice((0, 1, 2, 3)),
            "schedule": rng.choice(SCHEDULES),
        }
        if plan["schedule"] == "interleaved":
            plan["chunks"] = 2
        others = plan["tp"] * plan["pp"] * plan["cp"]
        plan["dp"] = max(rng.choice((most, most, most // 8, rng.randint(1, most))) // others, 1)
        if rng.random() < 0.2:
            plan["inference"] = rng.choice(("prefill", "decode"))
        job = {"model": name, "system": system, "nccl": rng.random() < 0.6, "plan": plan}
        try:
            size = checked_plan(name, plan)[1].world_size
            if size <= most:
                nadi.load_system(system, size)
                return job
        except UsageError:
            continue


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Generate and simulate a job in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    found: dict[str, Any] = {}
    try:
        plan = checked_plan(job["model"], job["plan"])[1]
        system = nadi.load_system(job["system"], plan.world_size)
        if not job["nccl"]:
            system = msgspec.structs.replace(system, nccl=None, measured=())
        made = nadi.llm_job(job["model"], **job["plan"])
        found["ranks"] = len(made.traces)
        done = nadi.simulate(made, system)
        nadi.simulation.results_of(done)
        found |= {"stand": done.program.num_ranks, "nodes": done.program.num_nodes,
                  "step": done.makespan}  # fmt: skip
    except NadiError as error:
        found["refused"] = str(error)
    except MemoryError:
        found["failed"] = "out of memory"
    return found | {"seconds": time.process_time(), "mb": peak_memory_mb()}


def report(job: dict[str, Any], found: dict[str, Any]) -> bool:
    """Print how a job did; tells whether that holds."""
    what = " ".join(f"{name} {value}" for name, value in job["plan"].items() if value != 1)
    on = job["system"] + ("" if job["nccl"] else ", no nccl")
    ranks = f"{found.get('ranks', 0):,} ranks"
    used = f"{found.get('seconds', 0):5.1f} s {found.get('mb', 0):6,.0f} MB"
    if "failed" in found:
        end, holds = f"FAILED {found['failed']}", False
    elif "refused" in found:
        end, holds = f"refused: {found['refused']}", found["seconds"] < REFUSED_SECONDS
    else:
        rate = found["ranks"] / found["seconds"]
        end = (f"{found['stand']:,} simulated, {found['nodes']:,} operations, {rate:,.0f} ranks/s, "
               f"step {found['step'] / 1e9:.3f} s")  # fmt: skip
        holds = found["seconds"] < SECONDS and found["mb"] < MEGABYTES
    print(f"{'' if holds else 'TOO MUCH: '}{used}  {job['model']} on {on}, {ranks}, {what}: {end}",
          flush=True)  # fmt: skip
    return holds


def main() -> None:
    reader = argparse.ArgumentParser()
    reader.add_argument("--count", type=int, default=40)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--ranks", type=int, default=32768)
    reader.add_argument("--job", help=argparse.SUPPRESS)
    given = reader.parse_args()
    if given.job:
        print(json.dumps(run(json.loads(given.job))))
        return
    rng = random.Random(given.seed)
    held = 0
    for _ in range(given.count):
        job = draw(rng, given.ranks)
        command = [sys.executable, __file__, "--job", json.dumps(job)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        told = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        held += report(job, {"failed": told[0]} if done.returncode else json.loads(done.stdout))
    print(f"{held} of {given.count} in under {SECONDS:.0f} s and {MEGABYTES:,.0f} MB, or refused "
          f"in under {REFUSED_SECONDS:.0f} s")  # fmt: skip
    sys.exit(held < given.count)


if __name__ == "__main__":
    main()
