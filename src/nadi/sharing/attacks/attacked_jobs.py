"""Attack obfuscated jobs of known models, and say how often that succeeds, by level."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.errors import InputError, Parameter, UsageError
from nadi.models.llm.generated_jobs import checked_plan, job_of_model
from nadi.models.llm.language_model import shipped_language_models
from nadi.progress import tell
from nadi.results.text import make_table, print_table
from nadi.sharing.attacks.attack_features import Seen, seen_of
from nadi.sharing.attacks.attacks import (
    ATTACKS,
    Target,
    attack_targets,
    best_threshold,
    whole_vectors,
)
from nadi.sharing.obfuscation.fidelity import LEVELS
from nadi.sharing.obfuscation.obfuscate import obfuscate_with
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.sharing.synthesis.learning import learn_model
from nadi.sharing.synthesis.membership import distance_to_model
from nadi.sharing.synthesis.synthetic_jobs import JobWishes, synthetic_job
from nadi.systems.device import Device
from nadi.systems.library import load_system
from nadi.systems.prices.priced_traces import price_job
from nadi.trace.trace import Job
from nadi.units import format_count

_Thing = TypeVar("_Thing")

ATTACKED_MODELS = ("gpt3-1.3b", "gpt3-6.7b", "llama2-13b", "llama3-8b", "qwen3-8b")
"""The language models whose jobs are attacked by default."""
_PLANS = ((1, 1, 1), (1, 1, 2), (2, 1, 1), (2, 1, 2), (1, 1, 4), (1, 2, 1), (4, 1, 1), (1, 2, 2))
_DEVICES = ("dgx-a100", "dgx-h100", "hgx-h200", "mi300x-node")
_SEQUENCES = (1024, 2048, 4096)
_SPREAD = 0.03  # of the durations of two recordings of one job
_LEAST_JOBS = 2
_LEARNED = ("model", "synthetic")
ATTACKED_LEVELS = (*LEVELS, *_LEARNED)
"""What is attacked: obfuscated jobs, a model learned of jobs, and jobs made of it."""


class _Made(NamedTuple):
    """A job of the corpus, in three recordings: the attacker's own, and the two released."""

    model: str
    hidden: int
    layers: int
    tokens: int
    device: Device
    recordings: tuple[Job, Job, Job]


def attack(
    models: Sequence[str] = ATTACKED_MODELS,
    levels: Sequence[str] = ATTACKED_LEVELS,
    jobs: int = 10,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> pl.DataFrame:
    """Attack obfuscated jobs of known models, and return how often each attack succeeds.

    Jobs are generated: of each model several, with random parallel layouts, sequences,
    micro-batches and devices; two recordings of a job differ by 3 % in every duration.

    Parameters
    ----------
    models
        Names of language models that ship with Nadi: what the attacker chooses from.
    levels
        At which jobs are obfuscated; ``original``, as they are, always comes first. ``model`` is a
        model learned of a random half of the jobs, and ``synthetic`` are as many jobs made of it:
        of these the attacker is asked which jobs they were learned of.
    jobs
        Of each model.
    seed
        Of the layouts, durations and keys.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    polars.DataFrame
        ``level``, ``attack``, ``accuracy``, ``chance``, ``jobs``: a row per level and attack. Jobs
        that cannot be obfuscated at a level are left out of that level.

    Raises
    ------
    UsageError
        If a model or a level is unknown, or there is nothing to choose from.
    """
    _check_request(models, levels, jobs)
    random = np.random.default_rng(seed)
    progress("generating jobs")
    wanted = [(model, number) for model in models for number in range(jobs)]
    corpus = [_make(*one, random) for one in _counted(wanted)]
    known = [seen_of(made.recordings[0]) for made in corpus]
    tables = []
    obfuscated = ["original", *(one for one in levels if one not in _LEARNED)]
    for number, level in enumerate(obfuscated, 1):
        progress(f"attacking level {level}, {number} of {len(obfuscated)}")
        targets = _targets(corpus, known, level, random)
        if len(targets) >= _LEAST_JOBS:
            found = attack_targets(targets)
            size = pl.lit(len(targets), pl.Int64).alias("jobs")
            tables.append(found.select(pl.lit(level).alias("level"), pl.all(), size))
    learned = [one for one in levels if one in _LEARNED]
    if learned:
        tables.append(_membership(corpus, known, learned, random, progress))
    return pl.concat(tables)


def _membership(
    corpus: Sequence[_Made], known: Sequence[Seen], levels: Sequence[str],
    random: np.random.Generator, progress: Callable[[str], None],
) -> pl.DataFrame:  # fmt: skip
    """Learn a model of half of the jobs, and ask of all whether they are among these."""
    progress("learning a model")
    is_member = np.zeros(len(corpus), dtype=np.bool_)
    is_member[random.permutation(len(corpus))[: len(corpus) // 2]] = True
    members = [made for made, one in zip(corpus, is_member.tolist(), strict=True) if one]
    model = learn_model(made.recordings[0] for made in _counted(members))
    rows = []
    for level in levels:
        progress(f"attacking level {level}")
        if level == "model":
            apart = np.array(
                [distance_to_model(model, made.recordings[0]) for made in _counted(corpus)]
            )
        else:
            seeds = _counted(range(len(members)))
            drawn = [seen_of(synthetic_job(model, JobWishes(seed=seed))) for seed in seeds]
            vectors = whole_vectors([*known, *drawn])
            own, others = vectors[: len(corpus), None], vectors[None, len(corpus) :]
            apart = np.abs(own - others).sum(axis=2).min(axis=1)
        accuracy = best_threshold(apart[is_member], apart[~is_member])
        rows.append((level, "membership", accuracy, 0.5, len(corpus)))
    return pl.DataFrame(
        rows, schema=["level", "attack", "accuracy", "chance", "jobs"], orient="row"
    )


def _targets(
    corpus: Sequence[_Made], known: Sequence[Seen], level: str, random: np.random.Generator
) -> list[Target]:
    """Release two recordings of each job at a level; jobs that are refused are left out."""
    targets = []
    for made, own in _counted(list(zip(corpus, known, strict=True))):
        first, second = (_released(job, level, random) for job in made.recordings[1:])
        if first is not None and second is not None:
            what = made.model, made.hidden, made.layers, made.tokens, made.device
            targets.append(Target(*what, own, first, second))
    return targets


def _counted(things: Sequence[_Thing]) -> Iterator[_Thing]:
    """Give each, and tell how many of them are done."""
    for done, one in enumerate(things):
        tell(done, len(things))
        yield one
    tell(len(things), len(things))


def _check_request(models: Sequence[str], levels: Sequence[str], jobs: int) -> None:
    _check("model", models, shipped_language_models())
    _check("level", levels, ATTACKED_LEVELS)
    if len(set(models)) < _LEAST_JOBS or jobs < _LEAST_JOBS:
        raise UsageError(
            "attack", "one answer alone cannot be wrong", "name two models and two jobs or more"
        )


def _check(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    for one in given:
        if one not in known:
            raise UsageError(
                Parameter(name, one), f"unknown {name}", f"there are {', '.join(known)}"
            )


def _make(model: str, number: int, random: np.random.Generator) -> _Made:
    tp, pp, dp = _PLANS[number % len(_PLANS)]
    sequence = int(random.choice(_SEQUENCES))
    micro_batch = int(random.integers(1, 3))
    fields: dict[str, Any] = {
        "tp": tp, "pp": pp, "dp": dp, "sequence": sequence, "micro_batch": micro_batch,
    }  # fmt: skip
    described, plan = checked_plan(model, fields)
    system = load_system(str(random.choice(_DEVICES)), plan.world_size)
    job, _ = price_job(job_of_model(described, plan), system)
    assert isinstance(job, Job)
    assert system.compute.device is not None
    recordings = tuple(_recorded(job, random) for _ in range(3))
    return _Made(
        model, described.hidden, described.layers, sequence * micro_batch, system.compute.device,
        (recordings[0], recordings[1], recordings[2]),
    )  # fmt: skip


def _recorded(job: Job, random: np.random.Generator) -> Job:
    """Return a job whose durations differ as those of another recording would."""
    done = {}
    for trace in {id(one): one for one in job.traces}.values():
        time = trace.column("duration")
        factor = np.exp(_SPREAD * random.standard_normal(time.size))
        moved = np.where(time > 0, np.rint(time * factor), time).astype(np.int64)
        done[id(trace)] = replace(trace, nodes=trace.nodes.with_columns(duration=pl.Series(moved)))
    return replace(job, traces=tuple(done[id(trace)] for trace in job.traces))


def _released(job: Job, level: str, random: np.random.Generator) -> Seen | None:
    if level == "original":
        return seen_of(job)
    try:
        return seen_of(obfuscate_with(job, SecretKey(random.bytes(32)), level).job)
    except InputError:
        return None


def print_attacks(found: pl.DataFrame, console: Console) -> None:
    """Print how often each attack succeeded at each level, a row per attack, and its chance."""
    levels = found["level"].unique(maintain_order=True).to_list()
    titles = dict.fromkeys(levels, "right")
    table = make_table("right answers", attack="left", **titles, chance="right")
    for (attack,), rows in found.group_by("attack", maintain_order=True):
        of = dict(zip(rows["level"].to_list(), rows["accuracy"].to_list(), strict=True))
        cells = [f"{100 * of[level]:.0f} %" if level in of else "-" for level in levels]
        table.add_row(str(attack), *cells, f"{100 * rows['chance'][0]:.0f} %")
    print_table(table, console)
    for level, jobs in found.select("level", "jobs").unique(maintain_order=True).iter_rows():
        console.print(Text(f"{level}: {format_count(jobs)} jobs"))
    for attack, meaning in ATTACKS.items():
        console.print(Text(f"{attack}: {meaning}"))
