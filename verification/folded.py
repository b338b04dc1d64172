"""Folded jobs against the whole jobs, simulated rank by rank: step times, bounds, memory, limits.

Usage: python verification/folded.py [--all] [PART ...]; without --all a drawn share of the cases.

``generated``: language models, dense and with experts, on 1 to 16 stages and up to 1,024 data
parallel ranks. ``tied``: collectives of two groups that begin at once, whose order changes the
step. ``skewed``: ranks with times of their own. ``drawn``: such ranks on networks of three speeds,
with other seeds than those that chose the interval: how often the step is in it. ``files``: from
traces and back to the same bytes. ``recorded``: cpu_ddp4, and gpu_dlrm8, whose ranks do nearly the
same. ``largest``: GPT-3 on 32,768 ranks, in a process of its own. ``fewer``: scaled down.
"""

from __future__ import annotations

import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from _report import SHARED, Checks, run_parts, takes_all

import nadi
from nadi.jobs import scale_down
from nadi.models import write_job
from nadi.recordings import read_folded, write_folded
from nadi.simulation import Simulation, results_of
from nadi.systems import Dimension, Network, price_job
from nadi.trace import Job

EVERYTHING, SEED = takes_all(), 62
WITHIN, DRAWN_SEED = 0.95, 7
CLOSE, FEW_CLOSE = 0.005, 0.02
HARD = ("30 % noise", "10 % noise, 50 operations at once")  # for intervals alone
OWN_CLOSE = 0.01  # of ranks with times of their own, for which one time of each operation stands
SECONDS, MEGABYTES = 5.0, 1000.0

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense, pp 1": ("gpt3-125m", {"tp": 2, "dp": 4, "global_batch": 32}),
    "dense, pp 2": ("gpt3-1.3b", {"tp": 2, "pp": 2, "dp": 8, "global_batch": 64}),
    "dense, pp 4, interleaved": (
        "gpt3-1.3b",
        {"pp": 4, "dp": 4, "global_batch": 32, "schedule": "interleaved", "chunks": 2},
    ),
    "dense, pp 8, recompute": (
        "gpt3-1.3b", {"tp": 2, "pp": 8, "dp": 4, "global_batch": 64, "recompute": "full"},
    ),
    "dense, pp 16": ("gpt3-1.3b", {"pp": 16, "dp": 8, "global_batch": 256}),
    "dense, zero 3": ("llama3-8b", {"dp": 16, "zero": 3, "global_batch": 32}),
    "dense, zero bubble": (
        "gpt3-1.3b", {"pp": 4, "dp": 8, "global_batch": 128, "schedule": "zero-bubble"},
    ),
    "dense, dp 1,024": ("gpt3-125m", {"dp": 1024, "global_batch": 2048}),
    "experts, pp 1": ("mixtral-8x7b", {"tp": 2, "dp": 8, "ep": 8, "global_batch": 16}),
    "experts, pp 4": (
        "mixtral-8x7b", {"tp": 2, "pp": 4, "dp": 8, "ep": 8, "global_batch": 64},
    ),
}  # fmt: skip
TIED: dict[str, tuple[str, dict[str, Any]]] = {
    "experts on ranks of their own": (
        "mixtral-8x7b", {"tp": 2, "pp": 2, "dp": 4, "ep": 4, "global_batch": 16, "sequence": 2048},
    ),
    "experts, zero 3": (
        "mixtral-8x7b",
        {"tp": 2, "dp": 4, "ep": 2, "zero": 3, "global_batch": 8, "sequence": 1024},
    ),
    "tp and zero 3": (
        "llama3-8b", {"tp": 2, "dp": 4, "zero": 3, "global_batch": 8, "sequence": 1024},
    ),
    "context parallel": (
        "gpt3-1.3b", {"tp": 2, "pp": 4, "dp": 2, "cp": 2, "global_batch": 16, "sequence": 1024},
    ),
}  # fmt: skip
SKEWED: dict[str, tuple[str, dict[str, Any]]] = {
    "pp 1": ("gpt3-125m", {"tp": 2, "dp": 16, "global_batch": 64}),
    "pp 2": ("gpt3-125m", {"tp": 2, "pp": 2, "dp": 2, "global_batch": 16}),
    "pp 4": ("gpt3-125m", {"pp": 4, "dp": 32, "global_batch": 256}),
    "pp 16": ("gpt3-1.3b", {"pp": 16, "dp": 16, "global_batch": 128}),
    "experts": ("mixtral-8x7b", {"pp": 2, "dp": 8, "ep": 8, "global_batch": 64}),
    "dp 1,024": ("gpt3-125m", {"dp": 1024, "global_batch": 2048}),
}  # fmt: skip
DRAWN: dict[str, tuple[str, dict[str, Any]]] = {
    "tp 2, dp 16": SKEWED["pp 1"],
    "tp 2, pp 2": SKEWED["pp 2"],
    "pp 4": ("gpt3-125m", {"pp": 4, "dp": 8, "global_batch": 64}),
    "zero 3": ("gpt3-125m", {"tp": 2, "dp": 8, "zero": 3, "global_batch": 16}),
    "experts": ("mixtral-8x7b", {"pp": 2, "dp": 8, "ep": 8, "global_batch": 32}),
    "dp 64": ("gpt3-125m", {"dp": 64, "global_batch": 128}),
    "pp 16": SKEWED["pp 16"],
    "context parallel": TIED["context parallel"],
}


def share(cases: Sequence[str], count: int) -> list[str]:
    """Draw some of the cases with fewer than 1,024 data parallel ranks; with --all give all."""
    if EVERYTHING:
        return list(cases)
    drawn = random.Random(SEED).sample([one for one in cases if "1,024" not in one], count)
    return [one for one in cases if one in drawn]


def whole(job: Job, system: nadi.systems.System) -> Simulation:
    """Simulate a job in which each rank has a trace of its own."""
    return nadi.simulate([job.own_trace(rank) for rank in range(len(job.traces))], system)


def is_same_memory(a: Simulation, b: Simulation) -> bool:
    """Compare the peak memory of each rank."""
    mine, theirs = results_of(a).live_memory, results_of(b).live_memory
    if mine is None or theirs is None:
        return mine is theirs
    columns = ["rank", "device", "peak", "storages"]
    return mine.select(columns).equals(theirs.select(columns))


def compare(
    what: str, job: Job, small: nadi.recordings.FoldedJob, checks: Checks, close: float = CLOSE
) -> None:
    system = nadi.load_system("dgx-h100", len(job.traces))
    truth, done = whole(job, system), nadi.simulate(small, system)
    error = done.makespan / truth.makespan - 1
    bound = done.bound
    assert bound is not None
    width = (bound.high_ns - bound.low_ns) / truth.makespan
    times = job.num_nodes / sum(fold.nodes.height for fold in small.folds)
    told = f"{error:+.4%}, bound {width:.2%} wide, {len(small.folds)} classes, {times:,.0f} times"
    checks.add(f"{what}: step within {close:.1%}", abs(error) <= close, told)
    checks.add(f"{what}: bound", bound.low_ns <= truth.makespan <= bound.high_ns)
    checks.add(f"{what}: peak memory of each rank", is_same_memory(truth, done))


def generated(checks: Checks) -> None:
    for what in share(list(MODELS), 4):
        model, plan = MODELS[what]
        job = nadi.llm_job(model, **plan)
        small = nadi.fold(job)
        compare(what, job, small, checks)
        traces = zip(dict.fromkeys(job.traces), dict.fromkeys(small.traces), strict=True)
        equal = [a.nodes.equals(b.nodes) and a.deps.equals(b.deps)
                 and a.operands.equals(b.operands) and a.tensors.equals(b.tensors)
                 for a, b in traces]  # fmt: skip
        checks.add_many(f"{what}: unfolded as it was", sum(equal), len(equal))


def tied(checks: Checks) -> None:
    for what in share(list(TIED), 2):
        model, plan = TIED[what]
        job = nadi.llm_job(model, **plan)
        system = nadi.load_system("dgx-h100", len(job.traces))
        truth, done = whole(job, system), nadi.simulate(nadi.fold(job), system)
        checks.add(f"{what}: the same step", done.makespan == truth.makespan,
                   f"{done.makespan / truth.makespan - 1:+.2%}")  # fmt: skip


def skews(size: int, seed: int) -> dict[str, Any]:
    """Return what ranks' times are multiplied by, for each kind of skew."""
    rng = np.random.default_rng(seed)
    speed = 1 + 0.05 * rng.random(size)

    def waves(_: int, nodes: int) -> np.ndarray:
        return np.exp(np.repeat(rng.normal(0, 0.1, nodes // 50 + 1), 50)[:nodes])

    return {
        "a straggler, 30 % slower": lambda rank, _: 1.3 if rank == size // 2 else 1.0,
        "ranks up to 5 % slower": lambda rank, _: speed[rank],
        "every operation up to 5 % slower": lambda _, nodes: 1 + 0.05 * rng.random(nodes),
        "10 % noise": lambda _, nodes: np.exp(rng.normal(0, 0.1, nodes)),
        "30 % noise": lambda _, nodes: np.exp(rng.normal(0, 0.3, nodes)),
        "10 % noise, 50 operations at once": waves,
    }


def skewed(checks: Checks) -> None:
    kinds = [f"{what}, {kind}" for what in SKEWED for kind in skews(1, 0) if kind not in HARD]
    chosen = share(kinds, 4)
    for number, (what, (model, plan)) in enumerate(SKEWED.items()):
        if not any(one.startswith(f"{what}, ") for one in chosen):
            continue
        plain = nadi.llm_job(model, **plan)
        system = nadi.load_system("dgx-h100", len(plain.traces))
        priced, _ = price_job(plain, system)
        assert isinstance(priced, Job)
        for kind, factor in skews(len(plain.traces), number).items():
            if f"{what}, {kind}" not in chosen:
                continue
            job = with_times(priced, factor)
            compare(f"{what}, {kind}", job, nadi.fold(job), checks, OWN_CLOSE)


def with_times(job: Job, factor: Callable[[int, int], Any]) -> Job:
    """Multiply what each rank takes; the factor of a rank and its number of nodes."""
    traces = []
    for rank, trace in enumerate(job.traces):
        time = trace.column("duration")
        time = np.where(time > 0, time * factor(rank, time.size), time).astype(np.int64)
        traces.append(replace(trace, nodes=trace.nodes.with_columns(duration=pl.Series(time))))
    return replace(job, traces=tuple(traces))


def drawn(checks: Checks) -> None:
    """Draw times of ranks, and count the steps that are in their interval."""
    held, widths, errors = [], [], []
    for number, what in enumerate(share(list(DRAWN), 3)):
        model, plan = DRAWN[what]
        plain = nadi.llm_job(model, **plan)
        size = len(plain.traces)
        node = nadi.load_system("dgx-h100", 8)
        systems = [nadi.load_system("dgx-h100", size), *(
            msgspec.structs.replace(node, nccl=None, network=Network((
                Dimension("switch", size, bandwidth=bandwidth, latency=latency),
            ))) for bandwidth, latency in ((5.0, 10_000.0), (900.0, 300.0))
        )]  # fmt: skip
        priced, _ = price_job(plain, systems[0])
        assert isinstance(priced, Job)
        for factor in skews(size, DRAWN_SEED + number).values():
            job = with_times(priced, factor)
            small = nadi.fold(job)
            for system in systems:
                truth, done = whole(job, system).makespan, nadi.simulate(small, system)
                assert done.bound is not None
                held.append(done.bound.low_ns <= truth <= done.bound.high_ns)
                widths.append((done.bound.high_ns - done.bound.low_ns) / truth)
                errors.append(abs(done.makespan / truth - 1))
    told = (
        f"{sum(held)} of {len(held)}, width {np.mean(widths):.1%} in the mean and "
        f"{np.max(widths):.1%} at most, error {np.mean(errors):.2%} and {np.max(errors):.1%}"
    )
    holds = sum(held) >= WITHIN * len(held)
    checks.add(f"{WITHIN:.0%} of drawn steps are in their interval", holds, told)
    print(f"     {told}")


def files(checks: Checks) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number, what in enumerate(share(["dense, pp 2", "experts, pp 4"], 1)):
            model, plan = MODELS[what]
            job = nadi.llm_job(model, **plan)
            given, again = folder / f"given{number}", folder / f"again{number}"
            write_job(job, given)
            size = write_folded(nadi.fold(given), folder / "small.nadi")
            small = read_folded(folder / "small.nadi")
            write_job(nadi.unfold(small), again)
            names = sorted(os.listdir(given))
            same = [filecmp.cmp(given / name, again / name, shallow=False) for name in names]
            before = sum((given / name).stat().st_size for name in names)
            told = f"{before:,} bytes, folded {size:,}"
            checks.add_many(f"{what}: files written again are the same", sum(same), len(same), told)
            system = nadi.load_system("dgx-h100", len(job.traces))
            truth = nadi.simulate(given, system)
            done = nadi.simulate(small, system)
            checks.add(f"{what}: step of the files", truth.makespan == done.makespan)


def recorded(checks: Checks) -> None:
    """Fold ranks that do the same, and those of gpu_dlrm8, which do nearly the same."""
    for name, close, times in (("cpu_ddp4", CLOSE, 2.0), ("gpu_dlrm8", FEW_CLOSE, 10.0)):
        folder = SHARED / "traces" / name
        small = nadi.fold(folder)
        system = nadi.load_system("dgx-h100", len(small.traces))
        truth = nadi.simulate(folder, system)
        done = nadi.simulate(small, system)
        error = done.makespan / truth.makespan - 1
        bound = done.bound
        assert bound is not None
        kept = sum(fold.nodes.height for fold in small.folds)
        width = (bound.high_ns - bound.low_ns) / truth.makespan
        told = f"{error:+.4%}, {small.num_nodes:,} nodes, {kept:,} kept, bound {width:.1%} wide"
        checks.add(f"{name}: step within {close:.1%}", abs(error) <= close, told)
        checks.add(f"{name}: bound", bound.low_ns <= truth.makespan <= bound.high_ns)
        checks.add(f"{name}: fewer nodes", small.num_nodes >= times * kept)


def fewer(checks: Checks) -> None:
    """Compare the step of few ranks on their links with that of all."""
    plans = {
        "dense, pp 1": (*MODELS["dense, pp 1"], 4),
        "dense, pp 2": (*MODELS["dense, pp 2"], 8),
        "dense, zero 3": (*MODELS["dense, zero 3"], 4),
    }
    for what in share(list(plans), 1):
        model, plan, size = plans[what]
        job = nadi.llm_job(model, **plan)
        small = scale_down(nadi.fold(job), nadi.load_system("dgx-h100", len(job.traces)), size)
        error = small.step_ns / small.whole_step_ns - 1
        told = f"{len(job.traces)} ranks to {size}: {error:+.2%}"
        checks.add(f"{what}: step of few ranks within 2 %", abs(error) <= FEW_CLOSE, told)


_LARGEST = r"""
import json, re, sys, time
from pathlib import Path
import nadi
from nadi.simulation import results_of
begin, wall = time.process_time(), time.perf_counter()
job = nadi.recordings.read_folded(sys.argv[1])
done = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))
seconds, wall = time.process_time() - begin, time.perf_counter() - wall
live = results_of(done).live_memory
# getrusage would give that of the process that started this one, if it is higher
peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024 / 1e6
said = [done.makespan, job.num_nodes, live["peak"].max(), live.height]
print(json.dumps([seconds, wall, peak, *said]))
"""


def largest(checks: Checks) -> None:
    job = nadi.llm_job("gpt3-175b", tp=8, pp=16, dp=256, global_batch=8192)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "small.nadi"
        size = write_folded(nadi.fold(job), file)
        run = [sys.executable, "-c", _LARGEST, str(file)]
        runs = [
            json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(4 if EVERYTHING else 2)  # the first compiles, and others may run
        ]
    seconds, wall, memory, step, nodes, peak, ranks = min(runs)
    truth = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))
    live = results_of(truth).live_memory
    assert live is not None
    told = f"{nodes:,} nodes unfolded, {size:,} bytes folded"
    checks.add("32,768 ranks: step", step == truth.makespan, told)
    checks.add("32,768 ranks: memory", (peak, ranks) == (live["peak"].max(), live.height))
    told = f"{seconds:.2f} s of processors, {wall:.2f} s beside other programs"
    checks.add("32,768 ranks: read and simulated in 5 s", seconds < SECONDS, told)
    checks.add("32,768 ranks: in 1 GB", memory < MEGABYTES, f"{memory:.0f} MB")


if __name__ == "__main__":
    run_parts({
        "generated": generated, "tied": tied, "skewed": skewed, "drawn": drawn, "files": files,
        "recorded": recorded, "largest": largest, "fewer": fewer,
    })  # fmt: skip
