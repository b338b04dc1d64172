"""Synthetic jobs against jobs that were held back: similarity by measure, makespans, deadlocks.

Usage: python verification/synthesis.py [PART ...] [--cases] [--all] [--write FILE]

``recorded``: a step of each recording is held back, and a step made of what its other steps taught.
``generated``: language models of a width, depth and number of ranks that were not learned.
``random``: jobs of random size and seed are valid and run to their end; 20 of them,
with ``--all`` 1,000. ``--cases`` has more recordings and language models; ``--all`` these, too, a
large recording, and all systems that ship with Nadi instead of two.
``--write`` writes the table of all measures to a page.

What is held back is drawn, so that no result chooses it: of a recording any of its steps, by its
name, and with ``--all`` each of them in turn; of language models width, depth and ranks, by one
seed. All other steps are learned. All cases are printed, also where the other steps of the
recording are so far away that none could be met. So errors of makespans stand beside those that
each other step of the recording has, which was really taken.

A measure holds if it is at least half of the way from the naive guess to the floor. The floor is
another step of the same recording, drawn, too; of generated jobs, which are the same each time, it
is 0. The naive guess has the operations, sizes and times of that step, or of the learned job that
is the most alike, each column shuffled.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from _report import SHARED, Checks, Tally

import nadi
from nadi.sharing import columns_of_job, independent_sample, job_of_columns
from nadi.systems import Dimension, Network, System
from nadi.trace import Job, validate_trace

MEDIAN, NINETIETH = 0.05, 0.10
SHARES = (0.5, 0.9)
EQUAL = 0.01
ALIKE = "those whose own steps differ by at most 10 %"
UNLIKE = "makespans of its own steps differ by more than 10 %"
FEW, MANY = 20, 1000
SYSTEMS = ("dgx-h100", "mi300x-node")
RECORDED = ("cpu_ddp4", "gpu_resnet_pair")
MORE_RECORDED = ("cpu_mlp", "cpu_transformer4", "cpu_transformer_mid")
LARGE_RECORDED = ("cpu_transformer_big",)
MODEL = """
layers = {layers}
hidden = {hidden}
heads = {heads}
ffn = {ffn}
vocab = 50257
sequence = 1024
gated = false
norm = "layernorm"
attention_bias = true
mlp_bias = true
position = "learned"
max_positions = 2048
tied_embeddings = true
"""
GENERATORS = "\n## Generators\n"
"""Where a page of scores goes on with what ``generative.py`` writes."""
TP, PP = 2, 2
# hidden size, layers, data parallel ranks
LEARNED = ((768, 12, 2), (1536, 12, 2), (768, 24, 2), (768, 12, 4))
FEW_GENERATED, MANY_GENERATED = 2, 6


def held_back(count: int) -> list[tuple[int, int, int]]:
    """Draw hidden sizes between those learned, layers also beyond, and data parallel ranks."""
    random = np.random.default_rng(0)
    drawn = [
        (128 * int(random.integers(6, 13)), 4 * int(random.integers(2, 10)),
         int(random.choice([2, 4])))
        for _ in range(2 * MANY_GENERATED)  # some come twice
    ]  # fmt: skip
    return list(dict.fromkeys(drawn))[:count]


@dataclass
class Scores:
    """What was measured.

    Attributes
    ----------
    everything
        Whether to measure all cases, on all systems that ship with Nadi.
    cases
        Whether to measure all but large cases.
    rows
        Case, measure, distance, floor and naive guess.
    errors
        Of each case the relative differences of makespans.
    own
        Of each recording the relative differences of the makespans of all its other steps;
        of generated jobs, which are the same each time, 0.
    """

    everything: bool = False
    cases: bool = False
    rows: list[tuple[str, str, float, float, float]] = field(default_factory=list)
    errors: dict[str, list[float]] = field(default_factory=dict)
    own: dict[str, list[float]] = field(default_factory=dict)

    def add(self, case: str, held: Job, made: Job, learned: Job, others: Sequence[Job]) -> None:
        """Compare a job that was held back with the one that was made.

        Parameters
        ----------
        learned
            The one that the naive guess is made of.
        others
            The other steps of its recording, the one for the floor first; none if it is generated.
        """
        systems = () if self.everything else SYSTEMS
        found = nadi.compare(held, made, systems=systems)
        guess = job_of_columns(independent_sample(columns_of_job(learned)))
        naive = nadi.compare(held, guess, systems=systems)
        real = [nadi.compare(held, one, systems=systems) for one in others]
        ceiling = {one.measure: one.distance for one in naive.measures}
        floor = {one.measure: one.distance for one in real[0].measures} if real else {}
        for one in found.measures:
            self.rows.append((case, one.measure, one.distance, floor.get(one.measure, 0.0),
                              ceiling.get(one.measure, 0.0)))  # fmt: skip
        self.errors[case] = _apart(found)
        self.own[case] = [one for other in real for one in _apart(other)] or [0.0]

    def is_within_own(self, case: str) -> bool:
        """Return whether some other step of the recording is as far away, if not near."""
        return bool(np.median(self.errors[case]) <= max(MEDIAN, *self.own[case]))

    def is_stable(self, case: str) -> bool:
        """Return whether the steps of a recording are alike to 10 %."""
        return bool(np.median(self.own[case]) <= NINETIETH)

    def makespans(self, cases: Iterable[str]) -> tuple[list[float], list[float]]:
        """Return the 50th and 90th percentile of the differences of some cases, and of their own.

        In the latter each case weighs as much as in the former.
        """
        made = [one for case in cases for one in self.errors[case]]
        own = sorted(
            (one, len(self.errors[case]) / len(self.own[case]))
            for case in cases for one in self.own[case]
        )  # fmt: skip
        passed = np.cumsum([weight for _, weight in own])
        at = np.searchsorted(passed, np.array(SHARES) * passed[-1])
        return np.quantile(made, SHARES).tolist(), [own[place][0] for place in at.tolist()]


def _apart(found: nadi.sharing.Similarity) -> list[float]:
    return [abs(b - a) / a for a, b in found.makespan_ns.values()]


def steps_of(recording: Path) -> list[int]:
    """Return the numbers of the steps that all ranks have."""
    own = [
        {int(found[1]) for name in trace.nodes["name"].unique().cast(str).to_list()
         if (found := re.fullmatch(r"ProfilerStep#(\d+)", name))}
        for trace in nadi.load_job(recording).traces
    ]  # fmt: skip
    return sorted(set.intersection(*own))


def step_of(recording: Path, step: int, folder: Path) -> Job:
    """Read a step of a recording."""
    place = folder / f"{recording.name}-{step}"
    nadi.extract(recording, output=place, step=str(step))
    return nadi.load_job(place)


def recorded(scores: Scores) -> None:
    """Hold back a step of each recording."""
    more = MORE_RECORDED if scores.cases else ()
    for name in (*RECORDED, *more, *(LARGE_RECORDED if scores.everything else ())):
        place = SHARED / "traces" / name
        if not place.exists():
            print(f"{name} is not here")
            continue
        steps = steps_of(place)
        if len(steps) < 2:
            print(f"{name} has no two steps")
            continue
        random = np.random.default_rng(crc32(name.encode()))
        drawn = random.permutation(steps).tolist()
        with tempfile.TemporaryDirectory() as folder:
            jobs = {step: step_of(place, step, Path(folder)) for step in steps}
            for turn in range(len(drawn) if scores.everything else 1):
                held, *others = [*drawn[turn:], *drawn[:turn]]
                rest = [jobs[step] for step in steps if step != held]
                made = nadi.sharing.synthesize(nadi.sharing.learn(rest), seed=1)
                case = f"{name}, step {held} of {steps[0]} to {steps[-1]}"
                scores.add(case, jobs[held], made, jobs[others[0]], [jobs[one] for one in others])


def language_model(hidden: int, layers: int, dp: int, folder: Path) -> Job:
    """Make a training step of a language model."""
    file = folder / "model.toml"
    text = MODEL.format(hidden=hidden, layers=layers, heads=hidden // 64, ffn=4 * hidden)
    file.write_text(text)
    return nadi.llm_job(file, tp=TP, pp=PP, dp=dp, global_batch=4 * dp)


def generated(scores: Scores) -> None:
    """Hold back widths, depths and numbers of ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = {one: language_model(*one, folder) for one in LEARNED}
        model = nadi.sharing.learn(list(jobs.values()))
        for one in held_back(MANY_GENERATED if scores.cases else FEW_GENERATED):
            hidden, layers, dp = one
            made = nadi.sharing.synthesize(
                model, hidden=hidden, layers=layers, ranks=TP * PP * dp, seed=1
            )
            held = language_model(*one, folder)
            near = min(jobs, key=lambda learned: sum(
                abs(log(a / b)) for a, b in zip(learned, one, strict=True)
            ))  # fmt: skip
            case = f"GPT, hidden {hidden}, {layers} layers, {TP * PP * dp} ranks"
            scores.add(case, held, made, jobs[near], ())


def switch_of(ranks: int) -> System:
    """Return a system of any number of ranks: the devices of a node, on one switch."""
    system = nadi.load_system("dgx-h100", 8)
    network = Network((Dimension("switch", ranks, bandwidth=100.0, latency=500.0),))
    return msgspec.structs.replace(system, network=network, nccl=None)


def random_jobs(checks: Checks, count: int) -> None:
    """Make jobs of random size, validate and simulate them."""
    models = []
    with tempfile.TemporaryDirectory() as name:
        jobs = [language_model(*one, Path(name)) for one in LEARNED]
        models.append((nadi.sharing.learn(jobs), TP * PP, (2, 12)))
    if (SHARED / "traces" / "cpu_ddp4").exists():
        # of its two layers not all operations repeat: they stay as many
        models.append((nadi.sharing.learn(SHARED / "traces" / "cpu_ddp4"), 1, (0, 0)))
    random = np.random.default_rng(0)
    held = 0
    for number in range(count):
        # a recording has a hundred times the operations of a generated step
        model, at_once, most = models[0 if number % 10 else -1]
        wishes = {
            "ranks": at_once * int(random.integers(1, 5)),
            "layers": 2 * int(random.integers(most[0], most[1] + 1)),
            "steps": int(random.integers(1, 3)),
            "seed": number,
        }
        job = nadi.sharing.synthesize(model, **wishes)
        problems = [one for trace in job.traces for one in validate_trace(trace)["code"]]
        done = nadi.simulate(job, switch_of(len(job.traces)))  # a deadlock would be an error
        held += not problems and done.makespan > 0
    checks.add_many("random jobs are valid, and run to their end", held, count)


def report(scores: Scores, checks: Checks) -> None:
    """Count each measure of each case, and makespans over all."""
    for case in dict.fromkeys(row[0] for row in scores.rows):
        own = [row for row in scores.rows if row[0] == case]
        room = [row for row in own if row[4] > row[3] + EQUAL]
        near = [row for row in room if row[2] <= max((row[3] + row[4]) / 2, EQUAL)]
        tally = Tally(exact=len(near))
        for row in room:
            if row not in near:
                detail = f"{row[1]}: {row[2]:.3f}, floor {row[3]:.3f}, guess {row[4]:.3f}"
                is_noise = row[1] == "durations" and not scores.is_stable(case)
                tally.add(rule=f"{detail}: {UNLIKE}" if is_noise else "", detail=detail)
        checks.add_tally(f"{case}: measures half of the way or nearer", tally)
        if len(room) < len(own):
            print(f"     no room between floor and naive guess in {len(own) - len(room)} measures")
        times = np.array(scores.errors[case])
        print(f"     {times.size} makespans: median error {100 * np.median(times):.2f} %, "
              f"of its own steps {100 * np.median(scores.own[case]):.2f} %")  # fmt: skip
    near = [case for case in scores.errors if scores.is_within_own(case)]
    checks.add_many("median error of makespans at most 5 %, or that of another recorded step",
                    len(near), len(scores.errors))  # fmt: skip
    for about, cases in groups_of_cases(scores).items():
        made, own = scores.makespans(cases)
        print(f"     {about}: makespans {_percentages(made)} (median, 90th percentile), of own "
              f"steps {_percentages(own)}")  # fmt: skip
        if about == ALIKE:
            for what, found, most in zip(("median", "90th percentile"), made, (MEDIAN, NINETIETH),
                                         strict=True):  # fmt: skip
                checks.add(f"error of makespans where own steps differ by at most 10 %, {what}",
                           found <= most)  # fmt: skip


def groups_of_cases(scores: Scores) -> dict[str, list[str]]:
    """Return cases by what they are of."""
    generated = [one for one in scores.errors if one.startswith("GPT")]
    groups = {
        "recordings": [one for one in scores.errors if one not in generated],
        "generated jobs": generated,
        "all": list(scores.errors),
        ALIKE: [one for one in scores.errors if scores.is_stable(one)],
    }
    return {about: cases for about, cases in groups.items() if cases}


def page(scores: Scores) -> str:
    """Write the table of all measures; makespans are the worst of all systems."""
    lines = [
        "# How near synthetic jobs are to jobs that were held back",
        "",
        f"Written by `python verification/synthesis.py {' '.join(sys.argv[1:])}`.",
        "[synthesize.md](synthesize.md) says what is learned.",
        "",
        "Distances from 0 (equal) to 1 (nothing in common). Which step, width, depth and number of",
        "ranks is held back is drawn. In parentheses: the floor, which is another step of the same",
        "recording, also drawn, and 0 for generated jobs; and the naive guess, which is that step,",
        "or the most similar learned job, with each column shuffled. **Bold** is over half of the",
        "way to the guess, where the guess is not as near as the floor.",
    ]
    for about, cases in list(groups_of_cases(scores).items())[:2]:
        lines += ["", f"## {about.capitalize()}", "", f"| measure | {' | '.join(cases)} |",
                  f"|---|{'---|' * len(cases)}"]  # fmt: skip
        found = {case: {row[0]: row[1:] for row in merged(scores, case)} for case in cases}
        for measure in dict.fromkeys(name for own in found.values() for name in own):
            cells = [written(found[case].get(measure)) for case in cases]
            lines.append(f"| {measure} | {' | '.join(cells)} |")
    lines += [
        "", "## Makespans", "",
        f"Errors of makespans on {' and '.join(SYSTEMS)}; with `--all` on all shipped systems."
        if not scores.everything else "Errors of makespans on all shipped systems.",
        "With and without changes. The last two columns are the errors that the other steps of the",
        "recording have, which were really taken: what is learned of these can hardly be",
        "nearer than they are. Generated jobs are the same each time.", "",
        "| job | makespans | median | 90th percentile | own steps, median | 90th percentile |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    every = {case: [case] for case in scores.errors} | groups_of_cases(scores)
    for about, cases in every.items():
        made, own = scores.makespans(cases)
        lines.append(
            f"| {about} | {sum(len(scores.errors[case]) for case in cases)} | "
            f"{_percentages(made, ' | ')} | {_percentages(own, ' | ')} |"
        )
    return "\n".join([*lines, ""])


def written(found: tuple[float, float, float] | None) -> str:
    """Write a distance with its floor and the naive guess; nothing where there is none."""
    if found is None:
        return ""
    distance, floor, ceiling = found
    is_far = ceiling > floor + EQUAL and distance > max((floor + ceiling) / 2, EQUAL)
    own = f"**{distance:.3f}**" if is_far else f"{distance:.3f}"
    return f"{own} ({floor:.3f}, {ceiling:.3f})"


def _percentages(shares: list[float], between: str = ", ") -> str:
    return between.join(f"{100 * one:.2f} %" for one in shares)


def merged(scores: Scores, case: str) -> list[tuple[str, float, float, float]]:
    """Return the measures of a case, of makespans the one with the largest distance."""
    own = [row[1:] for row in scores.rows if row[0] == case]
    times = [row for row in own if row[0].startswith("makespan")]
    worst = max(times, key=lambda row: row[1])
    return [*(row for row in own if row not in times), ("makespan, the worst", *worst[1:])]


def main() -> None:
    """Run the parts that the command line names, or all."""
    words = sys.argv[1:]
    everything = "--all" in words
    target = words[words.index("--write") + 1] if "--write" in words else ""
    options = ("--all", "--cases", "--write", target)
    chosen = [one for one in words if one not in options]
    parts = {"recorded": recorded, "generated": generated}
    checks, scores = Checks(), Scores(everything, everything or "--cases" in words)
    for name, part in parts.items():
        if not chosen or name in chosen:
            part(scores)
    if scores.rows:
        report(scores, checks)
    if not chosen or "random" in chosen:
        random_jobs(checks, MANY if everything else FEW)
    if target:  # what generative.py wrote stays
        before = Path(target).read_text().partition(GENERATORS)[1:] if Path(target).exists() else ()
        Path(target).write_text("".join([page(scores), *before]))
    checks.finish()


if __name__ == "__main__":
    main()
