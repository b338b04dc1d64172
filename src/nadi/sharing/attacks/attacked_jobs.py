"""Attack obfuscated jobs of known models, and say how often that succeeds, by level.

Attacks on obfuscated jobs: which model it is, how large, which belong together, which was known.

Each attack is given what the strongest of its kind would have: known jobs both as they are and
obfuscated at the same level with other keys. Its accuracy is that of the better of both.
"""

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
from nadi.sharing.attacks.attack_features import Seen, seen_of, side_by_durations
from nadi.sharing.obfuscation.fidelity import LEVELS
from nadi.sharing.obfuscation.obfuscate import obfuscate_with
from nadi.sharing.obfuscation.product_numbers import rank_of_estimate, rank_of_side
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.sharing.synthesis.learned_model import Template, TraceModel
from nadi.sharing.synthesis.learning import learn_model, template_of
from nadi.sharing.synthesis.synthetic_jobs import JobWishes, synthetic_job
from nadi.systems.device import Device
from nadi.systems.library import load_system
from nadi.systems.prices.priced_traces import price_job
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Job, Trace
from nadi.units import format_count

_RIDGE = 1e-3
_NICE = 128
_FARTHEST = 0.3  # of a moved side from the true one
ATTACKS = {
    "identification": "which of the known models it is, by operation mix, shapes, sequences and "
    "timing ratios",
    "volume": "which of the known models it is, by computing time and bytes communicated",
    "hidden size": "its hidden size, from sides of products or the most similar known job",
    "hidden size by equations": "how high a solver ranks its hidden size among all that the moved "
    "sides allow, by FLOPs and bytes of products and by few heads; who knows nothing: 50 %",
    "hidden size by durations": "the same, by durations of products and the curves of the device",
    "layers": "its number of layers, as stated or of the most similar known job",
    "tokens": "tokens of a micro-batch, from sides of products or the most similar known job",
    "linkage": "which of all releases is of the same job as another",
    "linkage by volume": "the same, by computing time, bytes communicated and ranks alone",
    "membership": "whether the job is one of those that the attacker has",
}
"""What each attack asks of an obfuscated job, by its name."""


class Target(NamedTuple):
    """A job of the corpus: what it is, and what is seen of it."""

    model: str  # name of the architecture
    # hidden, layers, tokens: its hidden size and number of layers, and the tokens of a micro-batch
    hidden: int
    layers: int
    tokens: int
    device: Device  # on which it ran
    known: Seen  # as the attacker has it, not obfuscated
    # first, second: two recordings of it, obfuscated with different keys
    first: Seen
    second: Seen


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
    corpus = attacked_corpus(models, jobs, random)
    known = [seen_of(made.recordings[0]) for made in corpus]
    tables = []
    obfuscated = ["original", *(one for one in levels if one not in _LEARNED)]
    for number, level in enumerate(obfuscated, 1):
        progress(f"attacking level {level}, {number} of {len(obfuscated)}")
        targets = released_targets(corpus, known, level, random)
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


def attacked_corpus(models: Sequence[str], jobs: int, random: np.random.Generator) -> list[_Made]:
    """Generate so many jobs of each model, with layouts and devices at random."""
    wanted = [(model, number) for model in models for number in range(jobs)]
    return [_make(*one, random) for one in _counted(wanted)]


def released_targets(
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
        key = SecretKey(random.bytes(32))
        return seen_of(obfuscate_with(job, key, level, for_owner=False).job)
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


def attack_targets(targets: Sequence[Target]) -> pl.DataFrame:
    """Run all attacks on the jobs of a corpus, leaving out the job under attack.

    - Returns: ``attack``, ``accuracy``, ``chance``: shares of right guesses; chance is that of
      guessing the most common answer. O(jobs^3).
    """
    models = [target.model for target in targets]
    known, first, second = vectors_of(targets)
    scales = [np.stack([getattr(t, name).scale for t in targets])
              for name in ("known", "first", "second")]  # fmt: skip
    found = [
        ("identification", identify(models, known, first, second), _chance(models)),
        ("volume", identify(models, *scales), _chance(models)),
    ]
    near = [_nearest(of, first) for of in (known, second)]
    for name in ("hidden", "layers", "tokens"):
        truth = [getattr(target, name) for target in targets]
        direct = _share([_guess(name, target.first) for target in targets], truth)
        likes = [_share([truth[at] for at in own], truth) for own in near]
        title = "hidden size" if name == "hidden" else name
        found.append((title, max(direct, *likes), _chance(truth)))
    for title, rank in (("equations", _rank_by_equations), ("durations", _rank_by_durations)):
        found.append((f"hidden size by {title}", _rank_of_hidden(targets, rank), 0.5))
    whole = [whole_vectors([getattr(t, name) for t in targets]) for name in ("first", "second")]
    for title, pair in (("linkage", whole), ("linkage by volume", scales[1:])):
        linked = _distances(*pair).argmin(axis=1) == np.arange(len(targets))
        found.append((title, float(linked.mean()), 1 / len(targets)))
    found.append(("membership", _found_in_seen(known, first), 0.5))
    return pl.DataFrame(found, schema=["attack", "accuracy", "chance"], orient="row")


def vectors_of(targets: Sequence[Target]) -> tuple[Floats, Floats, Floats]:
    """Return what identification uses of each job as it is known, and of both of its releases."""
    known, first, second = (
        np.stack([getattr(target, name).vector for target in targets])
        for name in ("known", "first", "second")
    )
    return known, first, second


def identify(models: Sequence[str], known: Floats, first: Floats, second: Floats) -> float:
    """Return how often the best classifier names the model of a job that it was not given.

    Nearest neighbor and ridge regression, learned from the known jobs or from obfuscated ones.
    """
    names, truth = np.unique(np.array(models), return_inverse=True)
    best = 0.0
    for of in (known, second):
        near = truth[_nearest(of, first)] == truth
        best = max(best, float(near.mean()), _ridge(of, first, truth, names.size))
    return best


def _nearest(known: Floats, seen: Floats) -> Ints:
    """Return the known job that is nearest to each seen one, other than itself."""
    apart = _distances(seen, known)
    np.fill_diagonal(apart, np.inf)
    return np.asarray(apart.argmin(axis=1))


def _distances(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.abs(one[:, None, :] - other[None, :, :]).sum(axis=2))


def _ridge(known: Floats, seen: Floats, truth: Ints, classes: int) -> float:
    wanted = np.eye(classes)[truth] - 1 / classes
    right = 0
    for out in range(truth.size):
        rest = np.arange(truth.size) != out
        mean, spread = known[rest].mean(axis=0), known[rest].std(axis=0)
        use = spread > 0
        rows = (known[rest][:, use] - mean[use]) / spread[use]
        one = (seen[out, use] - mean[use]) / spread[use]
        inner = rows @ rows.T
        inner += _RIDGE * np.trace(inner) * np.eye(rows.shape[0])
        guess = one @ rows.T @ np.linalg.solve(inner, wanted[rest])
        right += int(guess.argmax() == truth[out])
    return right / truth.size


def _rank_of_hidden(targets: Sequence[Target], rank: Callable[[Target, Seen, int], float]) -> float:
    """Rank the true hidden size behind the side of each release that stands for it.

    Which one that is, the attacker is told: it occurs as often as the hidden size does. Releases
    that have none count only if all have none, as chance.
    """
    ranks = []
    for target in targets:
        often = target.known.sides.get(target.hidden, 0)
        for release in (target.first, target.second):
            stand = [
                side for side, count in release.sides.items()
                if count == often and abs(side / target.hidden - 1) < _FARTHEST
            ]  # fmt: skip
            if stand:
                ranks.append(np.mean([rank(target, release, side) for side in stand]))
    return float(np.mean(ranks)) if ranks else 0.5


def _rank_by_equations(target: Target, release: Seen, side: int) -> float:
    return rank_of_side(target.hidden, side, release.products)


def _rank_by_durations(target: Target, release: Seen, side: int) -> float:
    estimate = side_by_durations(side, release.timed, target.device)
    return rank_of_estimate(target.hidden, side, estimate)


def _guess(name: str, seen: Seen) -> int:
    """Guess a size from what products state: -1 if there are none."""
    if name == "layers":
        return seen.layers
    sides = sorted(seen.sides.items(), key=lambda item: -item[1])
    large = [round(side / _NICE) * _NICE for side, _ in sides if side >= _NICE]
    return large[0 if name == "hidden" else 1] if len(large) > 1 else -1


def _found_in_seen(known: Floats, seen: Floats) -> float:
    """Return how well a distance tells jobs that the attacker has from others.

    Each job is asked for twice: with all known jobs, among which is a recording of it, and without
    that. The threshold is the best one, which favors the attacker.
    """
    apart = _distances(seen, known)
    has = apart.min(axis=1)
    np.fill_diagonal(apart, np.inf)
    lacks = apart.min(axis=1)
    return best_threshold(has, lacks)


def best_threshold(has: Floats, lacks: Floats) -> float:
    """Return how well a threshold tells distances of two kinds apart, at best; 0.5 to 1.

    - ``has``, ``lacks``: Of what the attacker has, mostly small; and of what the attacker lacks.
    """
    limits = np.concatenate([has, lacks])
    return max(float(((has <= at).mean() + (lacks > at).mean()) / 2) for at in limits)


def whole_vectors(seen: Sequence[Seen]) -> Floats:
    """Return all that is seen of each job, volume too, in a row each."""
    scale = np.stack([one.scale for one in seen])
    return np.concatenate(
        [np.stack([one.vector for one in seen]), scale / np.abs(scale).max()], axis=1
    )


def _share(guesses: Sequence[int], truth: Sequence[int]) -> float:
    return float(np.mean([a == b for a, b in zip(guesses, truth, strict=True)]))


def _chance(truth: Sequence[object]) -> float:
    return max(list(truth).count(one) for one in set(truth)) / len(truth)


_COUNTS = ("num_ranks", "num_steps", "num_layers", "hidden")


def distance_to_model(model: TraceModel, job: Job | Sequence[Trace]) -> float:
    """Return how far a job is from the nearest that a model was learned from; 0 for the same.

    A model keeps of each job how many ranks, steps and layers it has, its width, its memory, how
    slow each step of each rank was, and how much of this its operations explain. Whoever has a job
    can work out the same numbers of it. O(operations log operations).

    - Raises NadiError if the job cannot be converted to what simulators take.
    """
    own = template_of(job)
    return min(_apart(own, one) for one in model.templates)


def _apart(one: Template, other: Template) -> float:
    apart = float(sum(getattr(one, name) != getattr(other, name) for name in _COUNTS))
    apart += one.memory.lasting != other.memory.lasting
    same = one.load.shape == other.load.shape
    apart += float(np.abs(one.load - other.load).mean()) if same else 1.0
    return apart + abs(one.noise_share - other.noise_share)
