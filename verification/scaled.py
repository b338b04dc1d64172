"""Scaled jobs against jobs generated at their size, and predicted against recorded processes.

Usage: python verification/scaled.py [PART ...] [--all]

``generated``: jobs of 8 ranks scaled to 64, 512 and 4,096, with more replicas, other tensor
parallel degrees and other stages; ``--all`` also has cases that simulate every rank. ``recorded``:
data parallelism among 1, 2 and 4 processes, recorded here; each is scaled to the next, and its step
printed beside the recorded one. ``latest``: jobs of 8 ranks of different times scaled to 64, beside
64 such ranks, and recordings that are scaled, and made anew (``nadi synthesize``), with more ranks.
``split``: a transformer of one process, recorded here, as 2 tensor parallel ranks and as 2 stages,
with ``--all`` as 4 of each: it has to have the collectives and messages that such processes are
recorded with, and steps are printed side by side. Recording needs PyTorch, and one line says so
where that is missing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from _report import SHARED, Checks, run_parts

import nadi
from nadi.systems import Collectives, Dimension, Network, System, price_job
from nadi.trace import Trace

CLOSE = 0.01


class Case(NamedTuple):
    """A model, the plan of a small job, and what is different in the large one."""

    model: str
    small: dict[str, Any]
    large: dict[str, Any]


DENSE = {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8}
SHARDED = {"tp": 2, "dp": 4, "zero": 3, "global_batch": 4}
CONTEXTS = {"cp": 2, "dp": 2, "tp": 2, "zero": 3, "global_batch": 4}
EXPERTS = {"pp": 2, "dp": 4, "ep": 2, "global_batch": 8}
OWN_EXPERTS = {"tp": 2, "dp": 4, "ep": 2, "global_batch": 4}
SPLIT_EXPERTS = {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8}
PLAIN = {**DENSE, "sequence_parallel": False, "zero": 0}
INTERLEAVED = {**DENSE, "schedule": "interleaved", "chunks": 2}
GPIPE = {**DENSE, "schedule": "gpipe", "recompute": "full"}
CASES = (
    Case("gpt3-1.3b", DENSE, {"dp": 16}),
    Case("gpt3-1.3b", DENSE, {"tp": 4, "pp": 4, "dp": 4}),
    Case("gpt3-1.3b", PLAIN, {"tp": 8, "pp": 4}),
    Case("gpt3-1.3b", GPIPE, {"tp": 4, "pp": 8}),
    Case("gpt3-1.3b", INTERLEAVED, {"pp": 4, "dp": 8}),
    Case("llama3-8b", SHARDED, {"tp": 8, "dp": 8}),
    Case("mixtral-8x7b", EXPERTS, {"pp": 8, "dp": 8}),
    Case("mixtral-8x7b", OWN_EXPERTS, {"tp": 4}),
    Case("mixtral-8x7b", OWN_EXPERTS | {"zero": 3}, {"tp": 8, "dp": 8}),
    Case("mixtral-8x7b", SPLIT_EXPERTS, {"tp": 8, "pp": 4}),
    Case("mixtral-8x7b", SPLIT_EXPERTS | {"sequence_parallel": False}, {"tp": 4, "dp": 8}),
    Case("deepseek-v3", SPLIT_EXPERTS | {"ep": 2}, {"tp": 8}),
    Case("llama3-8b", CONTEXTS, {"cp": 8, "dp": 4}),
    Case("mixtral-8x7b", OWN_EXPERTS | {"cp": 2}, {"cp": 8}),
    Case("gpt3-1.3b", DENSE, {"tp": 8, "dp": 32}),
    Case("gpt3-1.3b", DENSE, {"tp": 8, "pp": 8, "dp": 8}),
    Case("llama3-8b", SHARDED, {"tp": 8, "dp": 64}),
    Case("gpt3-1.3b", DENSE, {"tp": 8, "pp": 8, "dp": 64}),
    Case("gpt3-1.3b", PLAIN, {"tp": 8, "pp": 2, "dp": 256}),
    Case("llama3-8b", SHARDED, {"tp": 8, "dp": 512}),
)
EVERY_RANK = (
    Case("gpt3-1.3b", DENSE, {"dp": 128}),
    Case("gpt3-1.3b", DENSE, {"dp": 1024}),
    Case("mixtral-8x7b", EXPERTS, {"dp": 256}),
    Case("mixtral-8x7b", EXPERTS, {"pp": 4, "dp": 1024}),
)


def generated(checks: Checks) -> None:
    for model, small, changed in (*CASES, *(EVERY_RANK if "--all" in ARGUMENTS else ())):
        large = {**small, **changed}
        large["global_batch"] = small["global_batch"] * large["dp"] // small["dp"]
        truth = nadi.llm_job(model, **large)
        ranks = len(truth.traces)
        axes = {axis: changed[axis] for axis in ("tp", "pp", "dp", "cp") if axis in changed}
        scaled = nadi.scale(nadi.llm_job(model, **small), **axes)
        system = nadi.load_system("dgx-h100", ranks)
        step = nadi.simulate(scaled.job, system).makespan
        wanted = nadi.simulate(truth, system).makespan
        what = ", ".join(f"{axis} {number}" for axis, number in axes.items())
        error = step / wanted - 1
        told = f"{step:,} ns, generated {wanted:,} ns, {error:+.4%}"
        is_close = abs(error) <= (CLOSE if {"tp"} & set(axes) else 0)
        checks.add(f"{model}, 8 to {ranks:,} ranks ({what})", is_close, told)
        checks.add("  as many nodes", scaled.job.num_nodes == truth.num_nodes)
        ours, theirs = _exchanged(scaled.job), _exchanged(truth)
        names = ours.keys() == theirs.keys()
        counts = names and all(ours[key][0] == theirs[key][0] for key in theirs)
        checks.add("  as many collectives and messages of each group", counts)
        apart = [ours[key][1] / max(theirs[key][1], 1) - 1 for key in theirs] if names else [1.0]
        worst = max(map(abs, apart), default=0.0)
        checks.add("  their bytes", worst <= CLOSE, f"{worst:.4%} apart at most")


def _exchanged(job: nadi.trace.Job) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the number of operations and of bytes by role of a group and type, of all ranks."""
    found: Counter[tuple[str, str]] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    ranks_of = Counter(map(id, job.traces))
    for trace in {id(one): one for one in job.traces}.values():
        roles = trace.groups["name"].to_list()
        rows = trace.nodes.select(pl.col("comm_type").cast(pl.String), "group", "comm_bytes")
        counted = rows.group_by("comm_type", "group").agg(pl.len(), pl.col("comm_bytes").sum())
        for kind, group, number, size in counted.iter_rows():
            if kind != "none":
                key = roles[group] if group >= 0 else "", kind
                found[key] += number * ranks_of[id(trace)]
                moved[key] += size * ranks_of[id(trace)]
    return {key: (found[key], moved[key]) for key in found}


def recorded(checks: Checks) -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS RECORDED (pip install torch)")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        programs = Path(__file__).with_name("_replay_programs.py")
        ran = {n: int(_output(programs, f"ddp{n}", folder / str(n))) for n in (1, 2, 4)}
        steps = {n: _step(folder / str(n)) for n in ran}
        systems = {n: _gloo(n) for n in (2, 4)}
        print(f"{os.cpu_count()} cores; a prediction has one for each process")
        for few, many in ((1, 2), (2, 4), (1, 4)):
            scaled = nadi.scale(folder / str(few), dp=many)
            done = nadi.simulate(scaled.job, systems[many])
            per_step = done.makespan / steps[few][1]
            real = steps[many][0] / steps[many][1]
            print(
                f"{few} to {many} processes: predicted {per_step / 1e6:.1f} ms a step, recorded "
                f"{real / 1e6:.1f} ms ({per_step / real - 1:+.0%}); without a recorder "
                f"{ran[many] / 1e6:.1f} ms"
            )
            ranks = scaled.after.ranks == many and scaled.job.num_nodes > 0
            checks.add(f"{few} to {many} processes: a job of all", ranks)


def noisy(plan: dict[str, Any], dp: int, kind: str, seed: int) -> nadi.trace.Job:
    """Generate a job whose ranks are up to 5 % slower, and its operations by chance."""
    random = np.random.default_rng(seed)
    job = nadi.llm_job("gpt3-125m", dp=dp, global_batch=4 * dp, sequence=512, zero=0, **plan)
    priced, _ = price_job(job, nadi.load_system("dgx-h100", len(job.traces)))
    traces = []
    for trace in priced.traces:
        time = trace.column("duration")
        at_once = 50 if kind == "waves" else 1  # operations that are slow together
        chance = np.repeat(random.normal(0, 0.1, time.size // at_once + 1), at_once)[: time.size]
        slow = (1 + 0.05 * random.random()) * np.exp(chance)
        time = np.where(time > 0, np.maximum(time * slow, 1), time).astype(np.int64)
        traces.append(replace(trace, nodes=trace.nodes.with_columns(duration=pl.Series(time))))
    return replace(priced, traces=tuple(traces))


def latest(checks: Checks) -> None:
    few, many = 8, 64
    for plan, kind in (({}, "small"), ({}, "waves"), ({"pp": 2}, "small"), ({"pp": 2}, "waves")):
        size = many * plan.get("pp", 1)
        system = nadi.load_system("dgx-h100", size)
        truth = [nadi.simulate(noisy(plan, many, kind, seed), system).makespan for seed in (1, 2)]
        found, made = [], []
        for seed in (11, 12):
            small = noisy(plan, few, kind, seed)
            scaled = nadi.scale(small, dp=many)
            found.append(nadi.simulate(scaled.job, system).makespan)
            model = nadi.sharing.learn(small)
            like = nadi.sharing.synthesize(model, ranks=size, seed=seed)
            made.append(nadi.simulate(like, system).makespan)
        off, made_off = (np.mean(one) / np.mean(truth) - 1 for one in (found, made))
        told = f"scaled {off:+.1%}, made {made_off:+.1%}"
        about = f"8 to 64 ranks of other times, {kind}, {plan or 'no stages'}"
        checks.add(f"{about}: step within 5 %", abs(off) <= 0.05, told)
    for name in ("cpu_ddp4", "gpu_dlrm8"):
        if not (SHARED / "traces" / name).exists():
            print(f"{name} is not here")
            continue
        job = nadi.load_job(SHARED / "traces" / name)
        model = nadi.sharing.learn(job)
        for times in (1, 4, 16):
            ranks = times * len(job.traces)
            system = nadi.load_system("dgx-h100", ranks)
            step = nadi.simulate(nadi.scale(job, dp=ranks).job, system).makespan
            made = [
                nadi.simulate(nadi.sharing.synthesize(model, ranks=ranks, seed=seed), system)
                for seed in range(4)
            ]
            other = float(np.median([one.makespan for one in made]))
            told = f"{step / 1e6:.2f} ms, made anew {other / 1e6:.2f} ms, {other / step - 1:+.1%}"
            checks.add(
                f"{name} with {ranks} ranks: one answer", abs(other / step - 1) <= 0.06, told
            )


def split(checks: Checks) -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS RECORDED (pip install torch)")
        return
    program = Path(__file__).with_name("_split_programs.py")
    with tempfile.TemporaryDirectory() as place:
        for way in ("tp", "pp"):
            sizes = (2, 4) if "--all" in ARGUMENTS else (2,)
            folders = {n: Path(place) / f"{way}{n}" for n in (1, *sizes)}
            plain = {n: int(_output(program, way, n, folder)) for n, folder in folders.items()}
            few = _step(folders[1])
            for size in sizes:
                scaled = nadi.scale(folders[1], **{way: size})
                truth = nadi.load_job(folders[size])
                ours = [_communication(scaled.job.own_trace(rank)) for rank in range(size)]
                theirs = [_communication(one) for one in truth.traces]
                name = f"1 to {size} processes ({way})"
                told = f"{ours[0]} {theirs[0]}"
                checks.add(f"{name}: as much communication as recorded", ours == theirs, told)
                predicted = nadi.simulate(scaled.job, _gloo(size)).makespan / few[1]
                real = _step(folders[size])
                print(
                    f"{name}: predicted {predicted / 1e6:.1f} ms a step, recorded "
                    f"{real[0] / real[1] / 1e6:.1f} ms "
                    f"({predicted / (real[0] / real[1]) - 1:+.0%}); without a recorder "
                    f"{plain[size] / 1e6:.1f} ms, of one process {plain[1] / 1e6:.1f} ms"
                )


def _communication(trace: Trace) -> Counter[tuple[str, int]]:
    """Count the communication of a rank by type and bytes."""
    rows = trace.nodes.select(pl.col("comm_type").cast(pl.String), "comm_bytes")
    return Counter(row for row in rows.iter_rows() if row[0] != "none")


def _step(folder: Path) -> tuple[int, int]:
    """Return the time of a recording in ns, and how many steps it has."""
    run = nadi.run(folder)
    return run.measured_ns, max(run.num_steps, 1)


def _output(program: Path, *arguments: object) -> str:
    given = [str(one) for one in arguments]
    ran = subprocess.run(
        [sys.executable, program, *given], stdout=subprocess.PIPE, check=True, text=True
    )
    return ran.stdout.split()[-1]


def _gloo(size: int) -> System:
    """Return processes of one machine whose all-reduces take the times measured here."""
    program = Path(__file__).with_name("_gloo_times.py")
    small, large, few, many = map(int, _output(program, size).split(","))
    moved = 2 * (size - 1) / size * (many - few)  # by each process of a ring
    bandwidth = moved / max(large - small, 1)
    latency = max(small / (2 * (size - 1)), 1.0)
    network = Network((Dimension("switch", size, bandwidth, latency),))
    print(f"gloo among {size}: {bandwidth:.3f} GB/s, {latency:,.0f} ns a message")
    return System(network, collectives=Collectives(endpoint_delay=0))


PARTS = {"generated": generated, "recorded": recorded, "latest": latest, "split": split}
ARGUMENTS = sys.argv[1:]

if __name__ == "__main__":
    sys.argv = [sys.argv[0], *(one for one in ARGUMENTS if one != "--all")]
    run_parts(PARTS)
