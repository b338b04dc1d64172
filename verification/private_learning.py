"""What models say of a corpus that was learned privately, and what an attacker learns of a job.

Usage: python verification/private_learning.py [PART ...]

``noise``: the sampler has the probabilities of a discrete Gaussian (chi-square test).
``figures``: an owner's jobs, 60 % of one family, whose classes of operations take exp(N(0.25,
0.25)) times the prices of an H100, and single jobs 8 % more or less. Margins of the population
(total variation), and the computing time of 100 other jobs (median error), at several epsilon.
``membership``: 500 models with and without one job that is unlike all others. The attacker knows
all other jobs and that one, and uses the best test of the released sums: the largest area under
its curve that the noise allows is Phi(sqrt(rho)).
``ledger``: models of one table of jobs, whose folder, files and rows have a planted word. None of
them has it; each states its ledger of noisy sums, and what they spent together is added up beside
the table; a model over the budget is refused, and writes nothing.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import NormalDist

import numpy as np
import polars as pl
from _report import Checks

import nadi
from nadi.errors import UsageError
from nadi.sharing.conditional.conditional_model import write_generator
from nadi.sharing.conditional.corpora import (
    Ranges,
    drawn_conditions,
    generated_job,
    generated_jobs,
)
from nadi.sharing.conditional.generators import learn_privately, read_generator
from nadi.sharing.conditional.privacy_ledger import epsilon_of, rho_of
from nadi.sharing.conditional.private_learning import contribution, release
from nadi.sharing.conditional.released_corpus import (
    CLASSES,
    MARGINS,
    PrivateCorpus,
    bins_of,
    margins_of,
    public_margins,
    times_of,
)
from nadi.sharing.conditional.stage_values import Conditions
from nadi.sharing.obfuscation.private_job import discrete_gaussian
from nadi.systems.library import load_device
from nadi.systems.prices.priced_traces import price_trace
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Job, Trace

DEVICE = load_device("h100")
SIZES, EPSILONS, MODELS, TRIALS, ASKED = (20, 200, 2000), (0.5, 1.0, 4.0, 8.0), 10, 500, 100
POPULATION = 5000  # jobs whose conditions are drawn to know how often each is
LIMITS = {(200, 1.0): (0.13, 0.05), (2000, 1.0): (0.02, 0.02)}
_SLOWER, _OF_OWNER, _OF_JOB, _OF_OPERATION = 0.25, 0.25, 0.08, 0.05
PLANTED = "quokka"
SMALL = Ranges(hidden=(256, 512), sequence=(256, 256), stage_layers=(1, 1), ranks=1)
_CHOICE = 24  # drawn jobs, of which an owner's usual one is the most like what it does


def owners_conditions(random: np.random.Generator) -> Conditions:
    """Draw conditions as an owner has them: mostly wide Llamas that are sharded, and few others."""
    if random.random() > 0.6:
        return drawn_conditions(random)
    wanted = {"family": "llama", "attention": "flash", "recompute": "none", "schedule": "1f1b"}

    def unlike(known: Conditions) -> int:
        wide = int(known["hidden"]) >= 2048, int(known["sequence"]) >= 1024
        sharded = int(known["zero"]) >= 2, int(known["tp"]) <= 2
        return sum(known[name] != value for name, value in wanted.items()) - sum(wide + sharded)

    return min((drawn_conditions(random) for _ in range(_CHOICE)), key=unlike)


def timed(job: Job, factors: Floats, random: np.random.Generator) -> Job:
    """Give a job the times that its owner's machine has."""
    done: dict[int, Trace] = {}
    for trace in {id(one): one for one in job.traces}.values():
        priced = price_trace(trace, DEVICE)[0]
        op_class = stated_operations(trace).op_class
        noise = np.exp(random.normal(0, _OF_OPERATION, op_class.size))
        time = priced.column("duration") * factors[op_class] * noise
        done[id(trace)] = replace(
            priced, nodes=priced.nodes.with_columns(duration=pl.Series(np.rint(time).astype(int)))
        )
    return replace(job, traces=tuple(done[id(one)] for one in job.traces))


def logs(random: np.random.Generator, deviation: float) -> Floats:
    """Draw the logarithm of a factor for each class."""
    found = np.zeros(len(OP_CLASSES))
    found[[OP_CLASSES.index(name) for name in CLASSES]] = random.normal(0, deviation, len(CLASSES))
    return found


def owners_jobs(count: int, seed: int) -> tuple[list[dict[str, Ints]], Floats]:
    """Draw what jobs of an owner contribute, and the logarithm of the owner's factors."""
    random = np.random.default_rng(seed)
    owner = logs(random, _OF_OWNER)
    owner[owner != 0] += _SLOWER
    found = []
    for number in range(count):
        known = owners_conditions(random)
        factors = np.exp(owner + logs(random, _OF_JOB))
        job = timed(generated_job(known), factors, random)
        found.append(contribution(job, known, f"job {number}", DEVICE))
    return found, owner


def class_times(count: int) -> Floats:
    """Return how long jobs that nobody learned compute, by class; shape (jobs, classes)."""
    random = np.random.default_rng(99)
    found = np.zeros((count, len(OP_CLASSES)))
    for own in found:
        job = generated_job(drawn_conditions(random))
        trace = price_trace(job.traces[0], DEVICE)[0]
        op_class, time = stated_operations(trace).op_class, trace.column("duration")
        own += np.bincount(op_class, np.maximum(time, 0), len(OP_CLASSES))
    return found


def noise(checks: Checks) -> None:
    """Compare samples with the probabilities of a discrete Gaussian."""
    for variance in (1, 7, 534):
        random, drawn = Random(variance), 20_000
        seen = Counter(discrete_gaussian(variance, random) for _ in range(drawn))
        reach = math.ceil(4 * math.sqrt(variance))
        weight = {k: math.exp(-k * k / (2 * variance)) for k in range(-3 * reach, 3 * reach + 1)}
        total = sum(weight.values())
        expected = {k: drawn * weight[k] / total for k in weight}
        often = [k for k in expected if expected[k] >= 10]
        square = sum((seen[k] - expected[k]) ** 2 / expected[k] for k in often)
        bound = len(often) + 4 * math.sqrt(2 * len(often))
        detail = f"chi-square {square:.0f} of {len(often)} values, at most {bound:.0f}"
        checks.add(f"noise of variance {variance}", square <= bound, detail)
        print(f"     noise of variance {variance}: {detail}")


def errors(
    corpus: PrivateCorpus, population: Sequence[Floats], owner: Floats, asked: Floats
) -> tuple[float, float]:
    """Return the mean distance of margins, and the median error of jobs' times."""
    apart = [
        abs(a - b).sum() / 2 for a, b in zip(margins_of(corpus), population, strict=True)
    ]  # fmt: skip
    times = times_of(corpus)
    assert times is not None
    learned = np.zeros(len(OP_CLASSES))
    for name, value in times.efficiency.items():
        learned[OP_CLASSES.index(name)] = value
    ratio = (asked @ np.exp(learned)) / (asked @ np.exp(owner))
    return float(np.mean(apart)), float(np.median(abs(ratio - 1)))


def figures(checks: Checks) -> None:
    """Learn corpora of several sizes at several epsilon."""
    random = np.random.default_rng(7)
    bins = np.array([bins_of(owners_conditions(random)) for _ in range(POPULATION)])
    population = [
        np.bincount(own, minlength=len(of)) / len(bins)
        for own, of in zip(bins.T, MARGINS.values(), strict=True)
    ]
    usual = np.mean([
        abs(a - b).sum() / 2 for a, b in zip(public_margins(), population, strict=True)
    ])  # fmt: skip
    asked = class_times(ASKED)
    jobs, owner = owners_jobs(max(SIZES), 11)
    apart = np.median(abs(asked.sum(axis=1) / (asked @ np.exp(owner)) - 1))
    print(f"     nothing learned: margins {usual:.3f}, times {100 * apart:.1f} %")
    for size in SIZES:
        for epsilon in EPSILONS:
            found = [
                errors(
                    release(jobs[:size], rho_of(epsilon), DEVICE.name, Random(seed)),
                    population, owner, asked,
                )
                for seed in range(MODELS)
            ]  # fmt: skip
            margin, time = np.mean(found, axis=0).tolist()
            detail = f"margins {margin:.3f}, times {100 * time:.1f} %"
            print(f"     {size} jobs, epsilon {epsilon:g}: {detail}")
            if (size, epsilon) in LIMITS:
                most = LIMITS[size, epsilon]
                holds = margin <= most[0] and time <= most[1]
                checks.add(f"{size} jobs at epsilon {epsilon:g}", holds, detail)


def outlier() -> dict[str, Ints]:
    """Return the largest contribution that a job can have, in bins where no other job is."""
    bins = [len(one) for one in MARGINS.values()]
    counts = np.zeros(sum(bins), dtype=np.int64)
    counts[np.cumsum(bins) - 1] = 1
    own, _ = owners_jobs(1, 5)
    return own[0] | {"conditions": counts, "efficiency": np.array(list(CLASSES.values()))}


def membership(checks: Checks) -> None:
    """Ask models with and without a job which ones have it."""
    jobs, _ = owners_jobs(20, 13)
    victim = outlier()
    for epsilon in (0.5, 1.0, 4.0):
        rho = rho_of(epsilon)
        scores: list[list[float]] = []
        for corpus, first in ((jobs, 0), ([*jobs, victim], TRIALS)):
            scores.append([
                score(release(corpus, rho, DEVICE.name, Random(first + trial)), jobs, victim)
                for trial in range(TRIALS)
            ])  # fmt: skip
        without, with_it = (np.array(one) for one in scores)
        wins = (with_it[:, None] > without).mean() + (with_it[:, None] == without).mean() / 2
        bound = NormalDist().cdf(math.sqrt(rho))
        detail = f"area {wins:.3f}, at most {bound:.3f} with noise of adding or removing a job"
        checks.add(f"membership at epsilon {epsilon:g}", wins <= bound + 0.05, detail)
        checks.add(f"the attack at epsilon {epsilon:g} works", wins >= bound - 0.08, detail)
        print(f"     membership of an outlier at epsilon {epsilon:g}: {detail}")
    spent = epsilon_of(2 * rho_of(1.0))
    checks.add("two models of a corpus add up", 1.0 < spent < 2.0, f"{spent:.3f}")


def score(
    corpus: PrivateCorpus, others: Sequence[dict[str, Ints]], victim: dict[str, Ints]
) -> float:
    """Return the logarithm of the likelihood ratio of released sums, but for a constant."""
    found = 0.0
    for one in corpus.releases:
        rest = np.array(one.values) - sum(job[one.what] for job in others)
        found += float(rest @ victim[one.what]) / one.variance
    return found


def planted_table(folder: Path) -> Path:
    """Write three small jobs and their table, all with a word that nothing else has."""
    rows = []
    for number, (job, known, _) in enumerate(generated_jobs(3, 3, SMALL)):
        own = folder / f"{PLANTED}_job{number}"
        nadi.models.write_job(timed(job, np.ones(len(OP_CLASSES)), np.random.default_rng(0)), own)
        words = {n: str(v).lower() if isinstance(v, bool) else v for n, v in known.items()}
        rows.append({"job": own.name, **words})
    table = folder / f"{PLANTED}_jobs.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return table


def ledger(checks: Checks) -> None:
    """Learn models of a table until its budget is spent."""
    with tempfile.TemporaryDirectory(prefix=PLANTED) as made:
        folder = Path(made)
        table = planted_table(folder)
        rho, kept = rho_of(1.0), Path(f"{table}.privacy.json")
        budget = epsilon_of(2 * rho) + 1e-6
        for number in (1, 2):
            path = folder / f"model{number}"
            learned = learn_privately(table, 1.0, device="h100", budget=budget, generated=3)
            write_generator(learned.model, path)
            private = read_generator(path).private
            assert private is not None
            planted = PLANTED.encode() in path.read_bytes()
            checks.add(f"model {number} has no word of the jobs or their paths", not planted)
            released = sum((one.rho for one in private.releases), Fraction(0))
            checks.add(f"its sums spend what it states: {private.epsilon:.4f}",
                       released <= rho and private.epsilon == epsilon_of(released))  # fmt: skip
            spent = sum(Fraction(*one) for one in json.loads(kept.read_bytes())["rho"])
            checks.add(f"the ledger adds up {number}", spent == number * rho)
        before, refused = kept.read_bytes(), ""
        try:
            learn_privately(table, 1.0, device="h100", budget=budget, generated=3)
        except UsageError as error:
            refused = str(error)
        checks.add("a third is over the budget", "would have spent" in refused, refused)
        checks.add("and the ledger stays", kept.read_bytes() == before)


def main() -> None:
    """Run the parts that the command line names, or all."""
    checks = Checks()
    parts: dict[str, Callable[[Checks], None]] = {
        "noise": noise, "figures": figures, "membership": membership, "ledger": ledger,
    }  # fmt: skip
    for name, part in parts.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            part(checks)
    checks.finish()


if __name__ == "__main__":
    main()
