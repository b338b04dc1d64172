"""Synthetic jobs against jobs that were held back: similarity by measure, step times, deadlocks.

Usage: python verification/synthesis.py [PART ...] [--all] [--write FILE]

``recorded``: a step of each recording is held back, and a step made of what its other steps taught.
``generated``: language models of a width, depth and number of ranks that were not learned.
``random``: jobs of random size, seed and temperature are valid and run to their end; 20 of them,
with ``--all`` 1,000; that also asks all systems that ship with Nadi, and more language models.
``--write`` writes the table of all measures to a page.

A measure holds if it is at least half of the way from the naive guess to the floor. The floor is
another step of the same recording; of generated jobs, which are the same each time, it is 0. The
naive guess has the operations, sizes and times of the learned steps, each column shuffled.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from _report import SHARED, Checks, Tally

import nadi
from nadi.comparison import independent_sample
from nadi.model import Job, validate_trace
from nadi.synthesis import columns_of_job, job_of_columns

MEDIAN, NINETIETH = 0.05, 0.10
EQUAL = 0.01
UNKNOWN_MEMORY = (
    "memory that lasts at another width, depth or number of ranks: learned as one sum, not weight "
    "by weight"
)
FEW, MANY = 20, 1000
SYSTEMS = ("dgx-h100", "mi300x-node")
# the steps that are learned, and the one that is held back
RECORDED: dict[str, tuple[tuple[int, ...], int]] = {
    "cpu_ddp4": ((1,), 2),
    "cpu_transformer_mid": ((1, 3), 2),
    "cpu_transformer4": ((1, 3), 2),
    "gpu_resnet_pair": ((4, 6), 5),
}
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
TP, PP = 2, 2
# hidden size, layers, data parallel ranks
LEARNED = ((768, 12, 2), (1536, 12, 2), (768, 24, 2))
HELD_BACK = ((1024, 12, 2), (1024, 24, 4))
MORE_HELD_BACK = ((768, 36, 2), (1536, 12, 4))


@dataclass
class Scores:
    """What was measured.

    Attributes
    ----------
    rows
        Case, measure, distance, floor and naive guess.
    everything
        Whether to measure all cases, on all systems that ship with Nadi.
    errors, noisy
        Relative differences of step times; and cases whose own steps differ by more than 10 %.
    """

    everything: bool = False
    rows: list[tuple[str, str, float, float, float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    noisy: list[str] = field(default_factory=list)

    def add(self, case: str, held: Job, made: Job, learned: Job, *, is_recorded: bool) -> None:
        """Compare a job that was held back with the one that was made."""
        same = learned if is_recorded else None
        found = nadi.compare(held, made, same=same, systems=() if self.everything else SYSTEMS)
        guess = job_of_columns(independent_sample(columns_of_job(learned)))
        naive = nadi.compare(held, guess, systems=() if self.everything else SYSTEMS)
        ceiling = {one.measure: one.distance for one in naive.measures}
        for one in found.measures:
            self.rows.append((case, one.measure, one.distance, one.floor or 0.0,
                              ceiling.get(one.measure, 0.0)))  # fmt: skip
        own = [one.floor or 0.0 for one in found.measures if one.measure.startswith("step time")]
        if np.median(own) > NINETIETH:
            self.noisy.append(case)
            return
        self.errors += [abs(b - a) / a for a, b in found.step_ns.values()]


def step_of(recording: Path, step: int, folder: Path) -> Job:
    """Read a step of a recording."""
    place = folder / f"{recording.name}-{step}"
    nadi.extract(recording, output=place, step=str(step))
    return nadi.load_job(place)


def recorded(scores: Scores) -> None:
    """Hold back a step of each recording."""
    for name, (learned, held) in RECORDED.items():
        place = SHARED / "traces" / name
        if not place.exists():
            print(f"{name} is not here")
            continue
        with tempfile.TemporaryDirectory() as folder:
            jobs = [step_of(place, step, Path(folder)) for step in learned]
            made = nadi.pipeline.synthesize(nadi.pipeline.learn(jobs), seed=1)
            rest = step_of(place, held, Path(folder))
            scores.add(name, rest, made, jobs[0], is_recorded=True)


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
        jobs = [language_model(*one, folder) for one in LEARNED]
        model = nadi.pipeline.learn(jobs)
        held_back = (*HELD_BACK, *(MORE_HELD_BACK if scores.everything else ()))
        for hidden, layers, dp in held_back:
            made = nadi.pipeline.synthesize(
                model, hidden=hidden, layers=layers, ranks=TP * PP * dp, seed=1
            )
            held = language_model(hidden, layers, dp, folder)
            case = f"GPT, hidden {hidden}, {layers} layers, {TP * PP * dp} ranks"
            scores.add(case, held, made, jobs[0], is_recorded=False)


def random_jobs(checks: Checks, count: int) -> None:
    """Make jobs of random size, validate and simulate them."""
    models = []
    with tempfile.TemporaryDirectory() as name:
        jobs = [language_model(*one, Path(name)) for one in LEARNED]
        models.append((nadi.pipeline.learn(jobs), TP * PP, (2, 12)))
    if (SHARED / "traces" / "cpu_ddp4").exists():
        models.append(
            (nadi.pipeline.learn(nadi.load_job(SHARED / "traces" / "cpu_ddp4")), 1, (1, 3))
        )
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
            "temperature": float(random.choice([0, 0.5, 1, 2, 20, 300])),
        }
        job = nadi.pipeline.synthesize(model, **wishes)
        system = nadi.load_system("dgx-h100", len(job.traces) if len(job.traces) < 9 else 16)
        problems = [one for trace in job.traces for one in validate_trace(trace)["code"]]
        if len(job.traces) < 9 or len(job.traces) == system.network.num_ranks:
            nadi.simulate(job, system)
        held += not problems
    checks.add_many("random jobs are valid, and run to their end", held, count)


def report(scores: Scores, checks: Checks) -> None:
    """Count each measure of each case, and step times over all."""
    for case in dict.fromkeys(row[0] for row in scores.rows):
        own = [row for row in scores.rows if row[0] == case]
        room = [row for row in own if row[4] > row[3] + EQUAL]
        near = [row for row in room if row[2] <= max((row[3] + row[4]) / 2, EQUAL)]
        tally = Tally(exact=len(near))
        for row in room:
            if row not in near:
                known = UNKNOWN_MEMORY if row[1] == "live memory" and case.startswith("GPT") else ""
                tally.add(rule=known, detail=f"{row[1]}: {row[2]:.3f}")
        checks.add_tally(f"{case}: measures half of the way or nearer", tally)
        if len(room) < len(own):
            print(f"     no room between floor and naive guess in {len(own) - len(room)} measures")
    for case in scores.noisy:
        print(f"     {case}: its own steps differ by more than 10 %, so its step time is not asked")
    if scores.errors:
        errors = np.array(scores.errors)
        for what, found, most in (
            ("median", np.median(errors), MEDIAN),
            ("90th percentile", np.quantile(errors, 0.9), NINETIETH),
        ):
            detail = f"{100 * found:.2f} % of {errors.size} step times"
            checks.add(f"error of step times, {what}", bool(found <= most), detail)


def page(scores: Scores) -> str:
    """Write the table of all measures; step times are the worst of all systems."""
    lines = [
        "# How near synthetic jobs are to jobs that were held back",
        "",
        "Written by `python verification/synthesis.py --all --write docs/synthesis-scores.md`.",
        "[synthesize.md](synthesize.md) says what is learned.",
        "",
        "Distances from 0 (equal) to 1 (nothing in common). The floor is another step of the same",
        "recording, the naive guess the learned steps with each column shuffled. `far` is over",
        "half of the way to the guess; `-` has no room: the guess is as near as the floor.",
    ]
    for case in dict.fromkeys(row[0] for row in scores.rows):
        lines += ["", f"## {case}", "", "| measure | distance | floor | naive guess | |",
                  "|---|---|---|---|---|"]  # fmt: skip
        for measure, distance, floor, ceiling in merged(scores, case):
            near = "near" if distance <= max((floor + ceiling) / 2, EQUAL) else "far"
            mark = near if ceiling > floor + EQUAL else "-"
            lines.append(f"| {measure} | {distance:.3f} | {floor:.3f} | {ceiling:.3f} | {mark} |")
    errors = np.array(scores.errors)
    lines += [
        "",
        "## Step times",
        "",
        f"Of {errors.size} pairs of a job and a system or a change on it, in cases whose own",
        f"steps differ by less than 10 %: median error {100 * np.median(errors):.2f} %,",
        f"90th percentile {100 * np.quantile(errors, 0.9):.2f} %.",
    ]
    if scores.noisy:
        lines += ["Left out, as another step of the recording is further away: "
                  + ", ".join(f"`{one}`" for one in scores.noisy) + "."]  # fmt: skip
    return "\n".join([*lines, ""])


def merged(scores: Scores, case: str) -> list[tuple[str, float, float, float]]:
    """Return the measures of a case, of step times the one with the largest distance."""
    own = [row[1:] for row in scores.rows if row[0] == case]
    times = [row for row in own if row[0].startswith("step time")]
    worst = max(times, key=lambda row: row[1])
    return [*(row for row in own if row not in times), ("step time, the worst", *worst[1:])]


def main() -> None:
    """Run the parts that the command line names, or all."""
    words = sys.argv[1:]
    everything = "--all" in words
    target = words[words.index("--write") + 1] if "--write" in words else ""
    chosen = [one for one in words if one not in ("--all", "--write", target)]
    parts = {"recorded": recorded, "generated": generated}
    checks, scores = Checks(), Scores(everything)
    for name, part in parts.items():
        if not chosen or name in chosen:
            part(scores)
    if scores.rows:
        report(scores, checks)
    if not chosen or "random" in chosen:
        random_jobs(checks, MANY if everything else FEW)
    if target:
        Path(target).write_text(page(scores))
    checks.finish()


if __name__ == "__main__":
    main()
