"""Jobs of a learned generator against jobs that were left out of learning.

Usage: python verification/generative.py [PART ...] [--all] [--write docs/synthesis-scores.md]

``inside``: 40 drawn configurations; operations, dependencies, sizes, steps, also on networks of
other speeds, what what-ifs say, and predictions of steps that learn of made jobs.
``speed``: how many operations are made in a second of one core, which depends on the core.
``beyond``: 2 and 4 times the largest value of one axis that was learned, of four at once, and of
these and both axes of a model's ranks.
``one-axis``: requests that the model of sequences can answer, too, as it did before there were
generators: another width, depth or number of ranks. It has learned the four jobs that are best for
them, and the generator small drawn ones; neither may be further off by a measure.
``families``: a family left out of learning, and with 3 of its jobs. The others vary its parts.
``experts``: jobs with a mixture of experts after 10 of them beside dense ones.
``recordings``: the kernels of a recording that was left out, its device known by another one.
``spans``: the whole time of such a recording, the host's with it.
``ranks``: which rank of a recording is slow, and how durations follow each other, in a job like it.
``steps``: how durations hang together in steps and follow each other, in a recording that was left
out; records small programs twice with PyTorch. How steps follow each other is printed: it differs
between the two recordings, so that nothing of it is learned.
``learning``: seconds of a core, and memory, for learning each recording of ``../shared`` and a
generator.
``random``: jobs of drawn requests are valid and run to their end: 40, with ``--all`` 1,000.

Generators are learned from generated jobs alone; what is compared is drawn with other seeds. Steps
are simulated on devices of dgx-h100 on one switch, which prices both jobs alike: so they say
whether operations, sizes and waits are right, and nothing of durations. Naive is the learned job
that is nearest by its conditions, as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from _report import SHARED, Checks
from synthesis import GENERATORS, switch_of

import nadi
from nadi.sharing.conditional.conditional_jobs import conditional_job
from nadi.sharing.conditional.conditional_model import ConditionalModel
from nadi.sharing.conditional.corpora import (
    FAMILIES,
    USUAL_RANGES,
    Ranges,
    drawn_conditions,
    generated_job,
    generated_jobs,
)
from nadi.sharing.conditional.program_learning import generator_of_jobs
from nadi.sharing.conditional.stage_values import AXES, Conditions, with_usual
from nadi.sharing.conditional.wished_conditions import wished_conditions
from nadi.sharing.synthesis.grammar import step_parts
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns, columns_of_job
from nadi.sharing.synthesis.synthetic_jobs import JobWishes, synthetic_columns
from nadi.systems import LearnedPrices, System, learn_prices, load_device, price, price_job
from nadi.systems.prices.learned_prices import measured_operations, operations_of
from nadi.trace import Job, Trace, validate_trace

LEARNED, LEFT_OUT, OF_AXIS, FEW, MANY = 160, 40, 8, 40, 1000
DENSE, SOME = 60, 16
PROGRAMS, STEPS, DRAWS, AS_NEAR = ("mlp", "transformer"), 48, 3, 0.05
RUN = 32
SMALL = Ranges(
    hidden=(256, 1024), stage_layers=(1, 4), sequence=(256, 1024), micro_batches=(1, 4), ranks=4
)
MODELS = ("bert", "vit")
RECORDED = (("h100", "h100_{}"), ("mi300x", "amd_mi300_{}"))
SHAPE = ["name", "op_class", "dtype", "s0", "s1", "s2", "s3", "work", "size"]
WHAT_IFS = ("kernels", "communication", "optimizer", "attention")
RATE, TURNS, SECONDS, MEMORY = 100_000, 5, 600, 4 << 30
TP = PP = 2
# hidden, layers and data parallel ranks: learned by the model of sequences, and asked for
TAUGHT = ((512, 4, 2), (1024, 4, 2), (512, 8, 2), (512, 4, 4))
ONE_AXIS = (
    (768, 4, 2), (2048, 4, 2), (4096, 4, 2), (512, 6, 2), (512, 16, 2), (512, 32, 2), (512, 4, 8),
    (512, 4, 16),
)  # fmt: skip
NO_JOBS = ("et_only", "gpu_hta")  # folders of recordings that have nothing to do with each other
AS_BEFORE = 1e-3  # errors that are both nothing


class Apart(NamedTuple):
    """How far a made job is from the one that was left out; shares, and points of a response."""

    mix: float
    f1: float
    volume: float
    optimizer: float
    step: float
    response: tuple[float, ...] = ()


def held_out(count: int, seed: int, ranges: Ranges = USUAL_RANGES) -> list[tuple[Job, Conditions]]:
    """Draw jobs that no generator has learned."""
    return [(job, known) for job, known, _ in generated_jobs(count, seed, ranges)]


def compared(real: Job, made: Job, *, what_ifs: bool = False) -> Apart:
    """Compare two jobs."""
    pairs = distinct(real, made)
    mixes = [
        Counter(name for trace in of for name in names(trace)) for of in zip(*pairs, strict=True)
    ]
    sizes = [sum(mix.values()) for mix in mixes]
    mix = (
        sum(
            abs(mixes[0][name] / sizes[0] - mixes[1][name] / sizes[1])
            for name in mixes[0] | mixes[1]
        )
        / 2
    )
    right = sum(len(waits(a) & waits(b)) for a, b in pairs)
    stated = sum(len(waits(a)) + len(waits(b)) for a, b in pairs)
    volume, optimizer = (
        error(sum(total(a) for a, _ in pairs), sum(total(b) for _, b in pairs))
        for total in (sent, optimizer_bytes)
    )
    system = switch_of(len(real.traces))
    jobs = [price_job(one, system)[0] for one in (real, made)]
    before = [step_ns(one, system) for one in jobs]
    response: tuple[float, ...] = ()
    if what_ifs:
        changes = (*WHAT_IFS, *range(len(real.traces)))
        after = [[step_ns(*changed(job, system, what)) for what in changes] for job in jobs]
        response = tuple(
            100 * abs(b / before[1] - a / before[0]) for a, b in zip(*after, strict=True)
        )
    return Apart(mix, 2 * right / stated, volume, optimizer, error(*before), response)


def distinct(real: Job, made: Job) -> list[tuple[Trace, Trace]]:
    """Return the different traces of two jobs that have the same ranks, one pair for each stage."""
    pairs = {id(a): (a, b) for a, b in zip(real.traces, made.traces, strict=True)}
    return list(pairs.values())


def names(trace: Trace) -> list[str]:
    """Return the names of operations, without the number of the layer."""
    return trace.nodes["name"].cast(pl.String).str.replace(r"layers\.(\d+|#)", "layers").to_list()


def waits(trace: Trace) -> set[tuple[int, int]]:
    """Return the dependencies by rows; of equal sequences these are the same operations."""
    return set(zip(trace.deps["src"].to_list(), trace.deps["dst"].to_list(), strict=True))


def sent(trace: Trace) -> float:
    """Return the bytes that a rank contributes."""
    return float(np.maximum(trace.column("comm_bytes"), 0).sum())


def optimizer_bytes(trace: Trace) -> float:
    """Return the bytes that the optimizer reads and writes."""
    is_optimizer = np.array([one == "optimizer" for one in names(trace)])
    return float(trace.column("bytes")[is_optimizer].sum())


def error(real: float, made: float) -> float:
    """Return the difference as a share of the real value."""
    return abs(made - real) / real if real else float(made != real)


def step_ns(job: Job, system: System) -> int:
    """Simulate a job; a deadlock is an error."""
    return int(nadi.simulate(job, system).makespan)


def changed(job: Job, system: System, what: str | int) -> tuple[Job, System]:
    """Return the job and the system with one what-if: of a kind, or a rank that is slower."""
    if what == "communication":
        (dimension,) = system.network.dimensions
        faster = replace_struct(dimension, bandwidth=2 * dimension.bandwidth)
        return job, replace_struct(
            system, network=replace_struct(system.network, dimensions=(faster,))
        )
    if isinstance(what, int):
        slow = scaled(job.traces[what], lambda _: True, 1.3)
        return replace(job, traces=(*job.traces[:what], slow, *job.traces[what + 1 :])), system
    chosen: Callable[[str], bool] = {
        "kernels": lambda _: True,
        "optimizer": lambda name: name == "optimizer",
        "attention": lambda name: ".attention." in name,
    }[what]
    new = {id(one): scaled(one, chosen, 0.5) for one in job.traces}
    return replace(job, traces=tuple(new[id(one)] for one in job.traces)), system


replace_struct = msgspec.structs.replace


def scaled(trace: Trace, chosen: Callable[[str], bool], factor: float) -> Trace:
    """Return a trace with other durations of computations."""
    duration = trace.column("duration").copy()
    rows = np.array([chosen(one) for one in names(trace)])
    rows &= (trace.nodes["kind"] == "COMP").to_numpy() & (duration > 0)
    duration[rows] = np.maximum(duration[rows] * factor, 1).astype(np.int64)
    return replace(trace, nodes=trace.nodes.with_columns(duration=pl.Series(duration)))


def nearest(learned: Sequence[tuple[Job, Conditions]], known: Conditions) -> Job:
    """Return the learned job with the nearest conditions."""

    def apart(other: Conditions) -> float:
        found = 0.0
        for name, value in known.items():
            theirs = other[name]
            if isinstance(value, (bool, str)):
                found += value != theirs
            else:
                found += abs(np.log2(max(int(value), 1) / max(int(theirs), 1)))
        return found

    return min(learned, key=lambda one: apart(one[1]))[0]


def row(
    checks: Checks, about: str, found: Sequence[Apart], limits: dict[str, tuple[float, float]]
) -> None:
    """Print medians and 90th percentiles of a row, and check those that have a limit."""
    said = []
    for name in Apart._fields[:5]:
        values = [getattr(one, name) for one in found]
        low = name == "f1"
        median, ninetieth = np.quantile(values, [0.5, 0.1 if low else 0.9]).tolist()
        said.append(f"{name} {median:.4f} / {ninetieth:.4f}")
        if name in limits:
            least, most = limits[name]
            holds = median >= least if low else median <= least and ninetieth <= most
            checks.add(f"{about}: {name}", holds, f"{median:.4f}, 90th percentile {ninetieth:.4f}")
    print(f"     {about} (median / 90th percentile): {', '.join(said)}")


def inside(checks: Checks) -> None:
    """Ask for configurations between the learned ones."""
    learned = [(job, known) for job, known, _ in generated_jobs(LEARNED, 0)]
    begin = time.perf_counter()
    model = generator_of_jobs((*one, "a job") for one in learned)
    print(f"     learned {LEARNED} jobs in {time.perf_counter() - begin:.0f} s: {model.fit}")
    left = held_out(LEFT_OUT, 1)
    made = [conditional_job(model, with_usual(known, "")) for _, known in left]
    found = [compared(job, one, what_ifs=True) for (job, _), one in zip(left, made, strict=True)]
    row(checks, f"{LEFT_OUT} drawn configurations", found, {
        "mix": (0.005, 1), "f1": (0.99, 0), "volume": (0.01, 0.03), "optimizer": (0.01, 0.03),
        "step": (0.02, 0.06),
    })  # fmt: skip
    naive = [error(step_of(job), step_of(nearest(learned, known))) for job, known in left]
    print(f"     naive: step {np.median(naive):.2f} / {np.quantile(naive, 0.9):.2f}")
    kinds = len(WHAT_IFS)
    of_kinds = {what: [one.response[at] for one in found] for at, what in enumerate(WHAT_IFS)}
    of_ranks = [points for one in found for points in one.response[kinds:]]
    for what, points in (of_kinds | {"each of the ranks": of_ranks}).items():
        median, ninetieth = np.quantile(points, [0.5, 0.9]).tolist()
        detail = f"{median:.3f} points, 90th percentile {ninetieth:.3f}"
        checks.add(f"response to {what}", median <= 1 and ninetieth <= 3, detail)
        print(f"     response to {what}: {detail}")
    on_networks(checks, [job for job, _ in left], made)
    surrogate(checks, model, left)
    remembered(checks, learned, left, made)


def speed(checks: Checks) -> None:
    """Make jobs of drawn configurations, and count their operations in a second of a core."""
    model = generator_of_jobs(generated_jobs(LEARNED, 0))
    asked = [with_usual(known, "") for _, known in held_out(LEFT_OUT, 1)]
    rates = []
    for _ in range(TURNS):
        begin, count = time.process_time(), 0
        for known in asked:
            traces = {id(one): one for one in conditional_job(model, known).traces}.values()
            count += sum(trace.nodes.height for trace in traces)
        rates.append(count / (time.process_time() - begin))
    rate = max(rates)
    detail = f"{rate:,.0f}, those of ranks that share a trace counted once"
    checks.add("operations made in a second of a core", rate >= RATE, detail)
    print(f"     operations made in a second of a core: {detail}")


def on_networks(checks: Checks, left: Sequence[Job], made: Sequence[Job]) -> None:
    """Simulate jobs on networks that are slower and faster than that which others were tried on."""
    for bandwidth, latency in ((2.0, 10_000.0), (25.0, 2_000.0), (900.0, 300.0)):
        errors = []
        for jobs in zip(left, made, strict=True):
            system = switch_of(len(jobs[0].traces))
            (dimension,) = system.network.dimensions
            other = replace_struct(dimension, bandwidth=bandwidth, latency=latency)
            network = replace_struct(system.network, dimensions=(other,))
            system = replace_struct(system, network=network)
            errors.append(error(*(step_ns(price_job(one, system)[0], system) for one in jobs)))
        median, ninetieth = np.quantile(errors, [0.5, 0.9]).tolist()
        detail = f"{100 * median:.2f} %, 90th percentile {100 * ninetieth:.2f} %"
        about = f"step on a network of {bandwidth:g} GB/s and {latency / 1000:g} us"
        checks.add(about, median <= 0.02 and ninetieth <= 0.06, detail)
        print(f"     {about}: {detail}")


def surrogate(
    checks: Checks, model: ConditionalModel, left: Sequence[tuple[Job, Conditions]]
) -> None:
    """Predict steps of real jobs from conditions, learned of real jobs and of made ones.

    Both are of the same drawn conditions, so that only what was made differs.
    """
    real = held_out(LEARNED, 7)
    made = [conditional_job(model, with_usual(known, "")) for _, known in real]
    table = np.array([features(known) for _, known in real])
    asked_for = np.array([features(known) for _, known in left])
    truth = np.array([step_of(job) for job, _ in left])
    steps = [[step_of(job) for job in jobs] for jobs in ([job for job, _ in real], made)]
    median = []
    for own in steps:
        square = table.T @ table + np.eye(table.shape[1])
        weight = np.linalg.solve(square, table.T @ np.log(own))
        median.append(float(np.median(np.abs(np.exp(asked_for @ weight) / truth - 1))))
    naive = float(np.median(np.abs(np.median(steps[0]) / truth - 1)))
    detail = (
        f"{100 * median[1]:.1f} %, learned of real ones {100 * median[0]:.1f} %, "
        f"by the median job {100 * naive:.0f} %"
    )
    checks.add("predicted steps, learned of made jobs", median[1] <= 1.1 * median[0], detail)
    print(f"     predicted steps: {detail}")


def features(known: Conditions) -> list[float]:
    """Return what steps are predicted from: logarithms of numbers, and whether words hold."""
    numbers = ("hidden", "layers", "heads", "ffn", "vocab", "sequence", *AXES, "micro_batch",
               "global_batch")  # fmt: skip
    found = [1.0, *(float(np.log2(int(known[name]))) for name in numbers)]
    found += [float(known["recompute"] == one) for one in ("none", "full")]
    found += [float(known["attention"] == "flash"), float(known["gated"])]
    return [*found, *(float(int(known["zero"]) >= one) for one in (1, 3))]


def step_of(job: Job) -> int:
    """Return the step of a job on a switch of its own size."""
    return step_ns(job, switch_of(len(job.traces)))


def runs(job: Job) -> set[tuple[object, ...]]:
    """Return the runs of operations of a job with their sizes."""
    found: set[tuple[object, ...]] = set()
    for trace in {id(one): one for one in job.traces}.values():
        sizes = (trace.column(name).tolist() for name in ("flops", "bytes", "comm_bytes"))
        rows = list(zip(names(trace), *sizes, strict=True))
        found.update(tuple(rows[at : at + RUN]) for at in range(len(rows) - RUN + 1))
    return found


def remembered(
    checks: Checks, learned: Sequence[tuple[Job, Conditions]],
    left: Sequence[tuple[Job, Conditions]], made: Sequence[Job],
) -> None:  # fmt: skip
    """Count how much of made and of real jobs no learned job has."""
    hashes = {hash(one) for job, _ in learned for one in runs(job)}

    def unseen(jobs: Sequence[Job]) -> float:
        every = [[hash(one) not in hashes for one in runs(job)] for job in jobs]
        flat = [one for own in every for one in own]
        return sum(flat) / len(flat)

    of_made, of_real = unseen(made), unseen([job for job, _ in left])
    detail = f"{100 * of_made:.1f} %, of the jobs that were left out {100 * of_real:.1f} %"
    checks.add(f"runs of {RUN} with sizes that no learned job has", of_made >= 0.8, detail)
    checks.add("as new as jobs that were left out", of_made >= 0.8 * of_real, detail)
    print(f"     unseen runs of {RUN}: {detail}")
    known = [amounts(job) for job, _ in learned]
    apart = [
        float(np.median([min(amounts_apart(amounts(job), one) for one in known) for job in jobs]))
        for jobs in (made, [job for job, _ in left])
    ]
    detail = f"{apart[0]:.3f}, of the jobs that were left out {apart[1]:.3f}"
    checks.add("distance to the nearest learned job", apart[0] >= 0.8 * apart[1], detail)
    print(f"     distance to the nearest learned job: {detail}")


def amounts(job: Job) -> dict[str, np.ndarray]:
    """Return of each operation how many there are, their FLOPs, and their bytes, as logarithms."""
    found: dict[str, np.ndarray] = {}
    for trace in {id(one): one for one in job.traces}.values():
        sizes = np.stack([np.ones(trace.nodes.height), *(
            np.maximum(trace.column(name), 0) for name in ("flops", "bytes", "comm_bytes")
        )], axis=1)  # fmt: skip
        for name, own in zip(names(trace), sizes, strict=True):
            found[name] = found.get(name, np.zeros(4)) + own
    return {name: np.log2(1 + own) for name, own in found.items()}


def amounts_apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Return how far two jobs are apart: the mean difference of amounts over their sum, 0 to 1."""
    nothing = np.zeros(4)
    pairs = [(one.get(name, nothing), other.get(name, nothing)) for name in one.keys() | other]
    both = sum(float((a + b).sum()) for a, b in pairs)
    return sum(float(np.abs(a - b).sum()) for a, b in pairs) / max(both, 1)


def beyond(checks: Checks) -> None:
    """Ask for 2 and 4 times the largest value of an axis, and for four axes at once."""
    model = of_small_jobs()
    asks = {"as learned": {}}
    for name, most in (
        ("hidden", 1024),
        ("sequence", 1024),
        *((axis, 4) for axis in AXES),
    ):
        asks |= {f"{name} {times * most}": {name: times * most} for times in (2, 4)}
    asks |= {f"{times} layers a stage": {"stage_layers": times} for times in (8, 16)}
    asks |= {f"{times} micro-batches": {"micro_batches": times} for times in (8, 16)}
    four = {"hidden": 2048, "sequence": 2048, "stage_layers": 8, "micro_batches": 8}
    asks |= {"all at once": four, "all at once, with tp 8 and pp 8": {**four, "tp": 8, "pp": 8}}
    for about, ask in asks.items():
        random, found = np.random.default_rng(len(about)), []
        while len(found) < OF_AXIS:
            known = asked(drawn_conditions(random, SMALL), ask)
            try:
                job = generated_job(known)
            except nadi.errors.UsageError:
                continue
            if len(job.traces) <= 128:
                found.append(compared(job, conditional_job(model, with_usual(known, ""))))
        limits = {"volume": (0.05, 0.05), "step": (0.03, 0.10)}
        several = about.startswith("all at once")
        row(checks, about, found, {"step": (0.05, 1)} if several else limits)


@cache
def of_small_jobs() -> ConditionalModel:
    """Learn a generator of small jobs alone."""
    return generator_of_jobs(generated_jobs(LEARNED, 2, SMALL))


def asked(known: Conditions, ask: dict[str, int]) -> Conditions:
    """Return conditions with another value of an axis; what follows from it follows."""
    new: Conditions = {**known, **{name: ask[name] for name in ask if name in known}}
    wider = int(new["hidden"]) // int(known["hidden"])
    if wider > 1:
        new |= {name: wider * int(known[name]) for name in ("heads", "ffn", "kv_heads")}
    tp, of_step = int(new["tp"]), int(new["dp"]) * int(new["micro_batch"])
    batches = int(known["global_batch"]) // (int(known["dp"]) * int(known["micro_batch"]))
    layers = -(-int(known["layers"]) // int(known["pp"]))
    new["layers"] = ask.get("stage_layers", layers) * int(new["pp"])
    new["global_batch"] = ask.get("micro_batches", batches) * of_step
    new["ffn"] = -(-int(new["ffn"]) // tp) * tp
    new["heads"] = -(-int(new["heads"]) // tp) * tp
    new["max_positions"] = max(int(new["max_positions"]), int(new["sequence"]))
    return new


def one_axis(checks: Checks) -> None:
    """Ask the model of sequences and a generator for the same jobs."""
    for family in ("gpt", "llama"):
        taught = [generated_job(conditions_of(family, *one)) for one in TAUGHT]
        before = nadi.sharing.learn(taught)
        for one in ONE_AXIS:
            known = conditions_of(family, *one)
            hidden, layers, dp = one
            real, ranks = generated_job(known), TP * PP * dp
            old = nadi.sharing.synthesize(before, hidden=hidden, layers=layers, ranks=ranks)
            new = nadi.sharing.generator_job(of_small_jobs(), ranks=ranks, **known)
            both = [errors_of(compared(real, made)) for made in (new, old)]
            worse = [name for name in both[0] if both[0][name] > both[1][name] + AS_BEFORE]
            detail = "; ".join(
                f"{name} {100 * own:.2f} %, its {100 * both[1][name]:.2f} %"
                for name, own in both[0].items() if name in ("step", "volume", "optimizer")
            )  # fmt: skip
            about = f"{family}, hidden {hidden}, {layers} layers, dp {dp}"
            checks.add(f"{about}, no worse than a model of sequences", not worse, detail)


def errors_of(apart: Apart) -> dict[str, float]:
    """Return what is the smaller, the nearer a made job is."""
    found = {name: float(getattr(apart, name)) for name in ("mix", "volume", "optimizer", "step")}
    return {**found, "waits": 1 - apart.f1}


def conditions_of(family: str, hidden: int, layers: int, dp: int) -> Conditions:
    """Return the conditions of a model of a family on two by two times ``dp`` ranks."""
    return {
        "family": family, **FAMILIES[family], "hidden": hidden, "layers": layers,
        "heads": hidden // 64, "head_dim": 64, "kv_heads": hidden // 64, "ffn": 4 * hidden,
        "vocab": 32_000, "max_positions": 1024, "sequence": 1024, "tp": TP, "cp": 1, "dp": dp,
        "pp": PP, "zero": 0, "sequence_parallel": False, "micro_batch": 1,
        "global_batch": 4 * dp, "schedule": "1f1b", "recompute": "none", "attention": "flash",
    }  # fmt: skip


def families(checks: Checks) -> None:
    """Leave a family out of learning, also where its form was drawn, and give 3 of its jobs."""
    every = [(job, known) for job, known, _ in generated_jobs(LEARNED + LEARNED // 2, 5)]
    drawn = held_out(6 * LEFT_OUT, 3)
    asks = (
        (0, {"mix": (0.05, 1.0), "step": (0.10, 1.0)}),
        (3, {"mix": (0.01, 1), "step": (0.04, 1)}),
    )
    for family, form in FAMILIES.items():
        left = [one for one in drawn if one[1]["family"] == family]
        others = [one for one in every if any(one[1][name] != form[name] for name in form)]
        for count, limits in asks:
            learned = [*others[:LEARNED], *left[OF_AXIS : OF_AXIS + count]]
            model = generator_of_jobs((*one, "a job") for one in learned)
            found = [
                compared(job, conditional_job(model, with_usual(known, "")))
                for job, known in left[:OF_AXIS]
            ]
            row(checks, f"{family} with {count} of its jobs", found, limits)


def experts(checks: Checks) -> None:
    """Learn dense jobs and few with experts, and ask for others with experts.

    First after ten, of which each rank has all experts; then others, whose ranks share them.
    """
    ranges = USUAL_RANGES._replace(experts=(4, 32))
    dense = [(job, known) for job, known, _ in generated_jobs(DENSE, 5)]
    for about, count, own in (
        ("experts after 10 jobs", 10, ranges),
        (f"experts that ranks share, after {DENSE} jobs", DENSE, ranges._replace(sharing=8)),
    ):
        left = held_out(SOME + count, 3, own)
        model = generator_of_jobs((*one, "a job") for one in [*dense, *left[SOME:]])
        found = [
            compared(job, conditional_job(model, with_usual(known, "")))
            for job, known in left[:SOME]
        ]  # fmt: skip
        row(checks, about, found, {"mix": (0.02, 1), "step": (0.05, 1)})


def recordings(checks: Checks) -> None:
    """Sum the kernels of BERT and ViT by a recording of the other one on the same device."""
    errors, by_curve = [], []
    for name, files in RECORDED:
        device = load_device(name)
        both = [nadi.load_job(SHARED / "wild" / f"{files.format(x)}.json.gz") for x in MODELS]
        for about, job, other in zip(MODELS, both, reversed(both), strict=True):
            operations, time, names_of = measured_operations(job.traces[0])
            made = learn_prices(other).price(operations, device, names_of).duration
            errors.append(error(time.sum(), made.sum()))
            by_curve.append(error(time.sum(), price(operations, device).duration.sum()))
            print(f"     kernels of {about} on {name} by the other: {100 * errors[-1]:.1f} % off")
    median = float(np.median(errors))
    detail = f"{100 * median:.1f} %, by curves alone {100 * float(np.median(by_curve)):.1f} %"
    checks.add("kernels of a recording that was left out", median <= 0.10, detail)
    print(f"     median: {detail}")
    device = load_device("a100")
    for folder in ("gpu_resnet_pair", "gpu_dlrm8"):
        table = learn_prices(nadi.load_job(SHARED / "traces" / folder)).table.sort(SHAPE)
        for first in (0, 1):
            left = table[1 - first :: 2]
            found = LearnedPrices(table[first::2]).price(
                operations_of(left), device, left["name"]
            ).duration  # fmt: skip
            apart = np.abs(found / left["median"].to_numpy() - 1)[found > 0]
            print(f"     {folder}, every second shape: {100 * np.median(apart):.0f} % off")


def spans(checks: Checks) -> None:
    """Make a recording that was left out with the times of the other one on the same machine."""
    errors = []
    system = nadi.load_system("dgx-h100", 1)
    for name, files in RECORDED:
        jobs = [nadi.load_job(SHARED / "wild" / f"{files.format(x)}.json.gz") for x in MODELS]
        models = [nadi.sharing.learn(one) for one in jobs]
        for left, job in enumerate(jobs):
            made = nadi.sharing.synthesize(models[left], times=models[1 - left])
            errors.append(error(step_ns(job, system), step_ns(made, system)))
            print(f"     span of {MODELS[left]} on {name} by the other: {100 * errors[-1]:.1f} %")
    detail = f"{100 * np.median(errors):.1f} %, at most {100 * max(errors):.1f} %"
    checks.add("span of a recording that was left out", max(errors) <= 0.20, detail)
    print(f"     median {detail}")


def slow_ranks(checks: Checks) -> None:
    """Say how slow each rank of a recording is, and how durations follow, and of a made job."""
    for name in ("cpu_ddp4", "gpu_dlrm8"):
        job = nadi.load_job(SHARED / "traces" / name)
        made = nadi.sharing.synthesize(nadi.sharing.learn(job), seed=1)
        both = [columns_of_job(one) for one in (job, made)]
        slow = [np.array([float(taken(one).sum()) for one in columns.ranks]) for columns in both]
        apart = [one / one.mean() for one in slow]
        follow = [
            float(np.mean([lagged(one) for one in columns.ranks])) for columns in both
        ]  # fmt: skip
        worst = float(np.abs(apart[0] - apart[1]).max())
        detail = (
            f"{apart[0].min():.2f} to {apart[0].max():.2f} of the mean, made within {worst:.3f}; "
            f"correlation of neighbours {follow[0]:.2f}, made {follow[1]:.2f}"
        )
        is_same = int(slow[0].argmax()) == int(slow[1].argmax())
        checks.add(f"who is slow in {name} stays slow", is_same and worst < 0.05, detail)
        print(f"     ranks of {name}: {detail}")


def taken(rank: RankColumns) -> np.ndarray:
    """Return the durations of computations of a rank; ns."""
    return np.maximum(np.where(rank.comm_bytes < 0, rank.duration, 0), 0)


def lagged(rank: RankColumns) -> float:
    """Return how the logarithm of durations of neighbours is correlated, medians by name taken."""
    time = np.log(np.maximum(taken(rank), 1))
    usual = np.zeros(int(rank.label.max()) + 1)
    for label in np.unique(rank.label).tolist():
        usual[label] = np.median(time[rank.label == label])
    left = time - usual[rank.label]
    return float(np.corrcoef(left[1:], left[:-1])[0, 1])


def steps_apart(checks: Checks) -> None:
    """Learn a recording of many steps, and compare what is made with another recording of it.

    The floor is the learned recording, the ceiling durations that are drawn one by one.
    """
    if find_spec("torch") is None:
        print("     steps: PyTorch is not here")
        return
    away: dict[str, list[list[float]]] = {}
    for program in PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            jobs = [recorded_job(program, Path(folder) / str(turn)) for turn in range(2)]
        for learned, left in (jobs, jobs[::-1]):
            model = nadi.sharing.learn(learned)
            columns, real = columns_of_job(learned), columns_of_job(left)
            made = [synthetic_columns(model, JobWishes(seed=seed)) for seed in range(DRAWS)]
            naive = [one_by_one(columns, seed) for seed in range(DRAWS)]
            both = f"{follow(columns):.2f} and {follow(real):.2f}"
            print(f"     {program}, correlation of steps that follow each other: {both}")
            for about, measure in TOGETHER.items():
                truth, near = measure(real), measure(columns)
                drawn = [float(np.mean([measure(one) for one in of])) for of in (made, naive)]
                away.setdefault(about, []).append([abs(x - truth) for x in (near, *drawn)])
                print(f"     {program}, {about}: left out {truth:.2f}, learned {near:.2f}, "
                      f"made {drawn[0]:.2f}, one by one {drawn[1]:.2f}")  # fmt: skip
    for about, errors in away.items():
        floor, own, ceiling = np.mean(errors, axis=0).tolist()
        detail = f"{own:.2f} off, another recording {floor:.2f}, drawn one by one {ceiling:.2f}"
        is_near = own < ceiling or own <= floor + AS_NEAR
        checks.add(f"{about}, of a recording that was left out", is_near, detail)


def recorded_job(program: str, folder: Path) -> Job:
    """Record steps of a small program."""
    file = Path(__file__).with_name("_many_steps.py")
    command = [sys.executable, "-m", "nadi", "record", "--steps", str(STEPS), "-o", str(folder)]
    subprocess.run([*command, "--", str(file), program], check=True, capture_output=True)
    return nadi.load_job(folder)


def one_by_one(columns: JobColumns, seed: int) -> JobColumns:
    """Let each operation take as long as any of its name does."""
    random, ranks = np.random.default_rng(seed), []
    for rank in columns.ranks:
        duration = rank.duration.copy()
        for name in np.unique(rank.label).tolist():
            rows = np.flatnonzero(rank.label == name)
            duration[rows] = random.choice(duration[rows], rows.size)
        ranks.append(rank._replace(duration=duration))
    return columns._replace(ranks=tuple(ranks))


def times_of_steps(columns: JobColumns) -> np.ndarray:
    """Return what operations of each name take in each step but the first; shape (steps, names)."""
    (rank,) = columns.ranks
    parts = [rank.label[rows] for rows in step_parts(rank)[1:]]
    own = [taken(rank)[rows] for rows in step_parts(rank)[1:]]
    many = len(columns.labels)
    return np.array([np.bincount(*both, many) for both in zip(parts, own, strict=True)])


def follow(columns: JobColumns) -> float:
    """Return how the logarithm of a step's time is correlated with that of the step before."""
    time = np.log(times_of_steps(columns).sum(axis=1))
    return float(np.corrcoef(time[1:], time[:-1])[0, 1])


def together(columns: JobColumns) -> float:
    """Return the variance of steps over the sum of variances of their operations, by name.

    1 where operations of a step are independent; less where one makes up for another.
    """
    times = times_of_steps(columns)
    return float(times.sum(axis=1).var() / times.var(axis=0).sum())


TOGETHER: dict[str, Callable[[JobColumns], float]] = {
    "variance of steps over that of their operations": together,
    "correlation of neighbours": lambda columns: lagged(columns.ranks[0]),
}


def learning(checks: Checks) -> None:
    """Learn each recording, and a generator of as many jobs as elsewhere, one process each.

    Seconds are those of a core, so that what else the machine does is not counted.
    """
    every = sorted((SHARED / "traces").iterdir())
    alone = [SHARED / "wild", *(one for one in every if one.name in NO_JOBS)]
    files = [one for folder in alone for one in sorted(folder.glob("*.json.gz"))]
    given = [[str(one)] for one in (*sorted(set(every) - set(alone)), *files)]
    seconds, memory, learned = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for place, own in enumerate([*given, ["--generated", str(LEARNED)]]):
            target = f"{folder}/{place}.nadimodel"
            command = [sys.executable, "-m", "nadi", "learn", *own, "-o", target]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert process.stderr is not None
            said = process.stderr.read().decode()
            _, status, used = os.wait4(process.pid, 0)
            took = used.ru_utime + used.ru_stime
            seconds, memory = seconds + took, max(memory, 1024 * used.ru_maxrss)
            learned += not status
            refused = f", refused: {' '.join(said.split())}" if status else ""
            size = f"{used.ru_maxrss / 1e6:.2f} GB"
            print(f"     {Path(own[-1]).name}: {took:.1f} s, {size}{refused}")
    detail = f"{seconds:.0f} s, {memory / 1e9:.2f} GB at most, {learned} learned"
    checks.add("learning ../shared", seconds <= SECONDS and memory <= MEMORY, detail)


def random_requests(checks: Checks, count: int) -> None:
    """Make jobs of drawn requests, validate and simulate them."""
    model: ConditionalModel = generator_of_jobs(generated_jobs(LEARNED, 0))
    random = np.random.default_rng(6)
    held = tried = 0
    while tried < count:
        wishes: Conditions = {
            "family": str(random.choice(list(FAMILIES))),
            "hidden": 512 * int(random.integers(1, 17)),
            "tp": int(2 ** random.integers(0, 4)),
            "pp": int(2 ** random.integers(0, 3)),
            "zero": int(random.integers(0, 4)),
        }
        wishes["layers"] = int(wishes["pp"]) * int(random.integers(1, 7))
        ranks = int(wishes["tp"]) * int(wishes["pp"]) * int(2 ** random.integers(0, 3))
        try:
            wished = wished_conditions(model, wishes, ranks=ranks, seed=int(random.integers(1000)))
        except nadi.errors.UsageError:
            continue
        tried += 1
        job = conditional_job(model, wished.conditions)
        problems = [
            one
            for trace in {id(t): t for t in job.traces}.values()
            for one in validate_trace(trace)["code"]
        ]
        held += not problems and step_of(job) > 0
    checks.add_many("drawn requests are valid, and run to their end", held, count)


class Page(Checks):
    """Checks that are rows of a page, too."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []

    def add(self, name: str, is_exact: bool, detail: str = "") -> None:
        """Count a check."""
        self.rows.append(f"| {name} | {detail} | {'holds' if is_exact else 'does not hold'} |")
        super().add(name, is_exact, detail)


def write_page(target: Path, rows: Sequence[str], words: Sequence[str]) -> None:
    """Write the part of a page of scores that is of generators; the part before it stays."""
    before = target.read_text().partition(GENERATORS)[0]
    lines = [
        f"Written by `python verification/generative.py {' '.join(words)}`, which says what each",
        "part is. Medians of jobs that were left out of learning, which were drawn with other",
        "seeds. Beside a figure stands what real jobs reach, or the naive guess.", "",
        "| what was asked | found | |", "|---|---|---|", *rows,
    ]  # fmt: skip
    target.write_text(before + GENERATORS + "\n" + "\n".join(lines) + "\n")


def main() -> None:
    """Run the parts that the command line names, or all."""
    words = sys.argv[1:]
    target = words[words.index("--write") + 1] if "--write" in words else ""
    chosen = [one for one in words if one not in ("--all", "--write", target)]
    checks = Page()
    parts: dict[str, Callable[[Checks], None]] = {
        "inside": inside, "speed": speed, "beyond": beyond, "one-axis": one_axis,
        "families": families, "experts": experts, "recordings": recordings, "spans": spans,
        "ranks": slow_ranks, "steps": steps_apart, "learning": learning,
        "random": lambda checks: random_requests(checks, MANY if "--all" in words else FEW),
    }  # fmt: skip
    for name, part in parts.items():
        if not chosen or name in chosen:
            part(checks)
    if target:
        write_page(Path(target), checks.rows, words)
    checks.finish()


if __name__ == "__main__":
    main()
