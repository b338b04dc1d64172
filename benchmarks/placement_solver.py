"""Placements by the solver beside those by room, predicted and simulated.

    python benchmarks/placement_solver.py [RECORDING...]

A generated step of 70 billion parameters on 64 ranks, and the largest CPU recording, with a first
tier that is a part of what they need. Prints how long the solver takes and by how much a better
placement may be shorter by its model; the step that the model predicts; and simulated steps:
without tiers, by the solver, and by both rules that fill the first tier. Of the recording, whose
operations are slow, the second tier has 50 MB/s.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
from _measure import SHARED, peak_memory_mb

import nadi
from nadi.memory import BySolver
from nadi.memory.placement.placed_steps import PlainStep, plain_step
from nadi.memory.placement_choice import ByRoom, rooms_of
from nadi.memory.placement_solver import case_of_tensors, most_bytes
from nadi.recordings import read_job
from nadi.systems import second_tier

PLAN = {"tp": 8, "pp": 8, "global_batch": 16, "micro_batch": 1, "sequence": 4096}
BUFFERS = 16 / 15  # of the first tier, that are not left for tensors


def main() -> None:
    print(f"{'job':24} {'tensors':>8} {'room':>5} {'solver':>7} {'gap':>6} {'model':>9} "
          f"{'plain':>9} {'solver':>9} {'by room':>9} {'by bytes':>9}  ms")  # fmt: skip
    job = nadi.llm_job("llama3-70b", **PLAN)
    compare("llama3-70b, 64 ranks", plain_step(job, nadi.load_system("dgx-h100", 64)), 64.0)
    given = sys.argv[1:] or [str(SHARED / "traces" / "cpu_transformer_big")]
    for path in given:
        recorded = read_job(path)
        ranks = len(recorded.traces) if isinstance(recorded, nadi.Job) else len(recorded)
        plain = plain_step(recorded, nadi.load_system("dgx-h100", ranks))
        compare(Path(path).name, plain, 0.05)
    print(f"{peak_memory_mb():,.0f} MB at peak")


def compare(name: str, plain: PlainStep, bandwidth: float) -> None:
    """Print a line for each size of the first tier."""
    tensors = plain.tensors.traces
    most = max(most_bytes(case_of_tensors(one)) for one in tensors)
    lives = sum(one.table.height for one in tensors)
    for room in (0.9, 0.7, 0.5):
        system = msgspec.structs.replace(
            plain.system, tiers=(second_tier(bandwidth),), memory_paths=(),
            memory_capacity=int(most * room * BUFFERS),
        )  # fmt: skip
        staging = plain.staging(system)
        rooms = rooms_of(system, staging.buffers)
        begin = time.perf_counter()
        solver = BySolver(distance=staging.distance, buffers=staging.buffers)
        solved = solver.solve(plain.tensors, rooms)
        seconds = time.perf_counter() - begin
        tiers = [
            tuple(one.tier for one in solved),
            *(ByRoom(by_time=by_time)(plain.tensors, rooms) for by_time in (True, False)),
        ]
        steps = [plain.placed(tier, system, staging).ns / 1e6 for tier in tiers]
        model = max(one.step_ns for one in solved) / 1e6
        gap = max(one.gap for one in solved)
        print(f"{name:24} {lives:8,} {room:5.0%} {seconds:6.1f}s {gap:6.1%} {model:9.1f} "
              f"{plain.ns / 1e6:9.1f} {steps[0]:9.1f} {steps[1]:9.1f} {steps[2]:9.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
