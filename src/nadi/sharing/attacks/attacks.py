"""Attacks on obfuscated jobs: which model it is, how large, which belong together, which was known.

Each attack is given what the strongest of its kind would have: known jobs both as they are and
obfuscated at the same level with other keys. Its accuracy is that of the better of both.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.sharing.attacks.attack_features import Seen, side_by_durations
from nadi.sharing.obfuscation.product_numbers import rank_of_estimate, rank_of_side
from nadi.systems.device import Device
from nadi.trace.arrays import Floats, Ints

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


def attack_targets(targets: Sequence[Target]) -> pl.DataFrame:
    """Run all attacks on the jobs of a corpus, leaving out the job under attack.

    - Returns: ``attack``, ``accuracy``, ``chance``: shares of right guesses; chance is that of
      guessing the most common answer. O(jobs^3).
    """
    models = [target.model for target in targets]
    known = np.stack([target.known.vector for target in targets])
    first = np.stack([target.first.vector for target in targets])
    second = np.stack([target.second.vector for target in targets])
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
        ranks = [_rank_of_hidden(target, rank) for target in targets]
        found.append((f"hidden size by {title}", float(np.mean(ranks)), 0.5))
    whole = [whole_vectors([getattr(t, name) for t in targets]) for name in ("first", "second")]
    for title, pair in (("linkage", whole), ("linkage by volume", scales[1:])):
        linked = _distances(*pair).argmin(axis=1) == np.arange(len(targets))
        found.append((title, float(linked.mean()), 1 / len(targets)))
    found.append(("membership", _membership(known, first), 0.5))
    return pl.DataFrame(found, schema=["attack", "accuracy", "chance"], orient="row")


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


def _rank_of_hidden(target: Target, rank: Callable[[Target, int], float]) -> float:
    """Rank the true hidden size behind the released side that stands for it, if there is one.

    Which one that is, the attacker is told: it occurs as often as the hidden size does.
    """
    often = target.known.sides.get(target.hidden, 0)
    stand = [
        side for side, count in target.first.sides.items()
        if count == often and abs(side / target.hidden - 1) < _FARTHEST
    ]  # fmt: skip
    return float(np.mean([rank(target, side) for side in stand])) if stand else 0.5


def _rank_by_equations(target: Target, side: int) -> float:
    return rank_of_side(target.hidden, side, target.first.products)


def _rank_by_durations(target: Target, side: int) -> float:
    estimate = side_by_durations(side, target.first.timed, target.device)
    return rank_of_estimate(target.hidden, side, estimate)


def _guess(name: str, seen: Seen) -> int:
    """Guess a size from what products state: -1 if there are none."""
    if name == "layers":
        return seen.layers
    sides = sorted(seen.sides.items(), key=lambda item: -item[1])
    large = [round(side / _NICE) * _NICE for side, _ in sides if side >= _NICE]
    return large[0 if name == "hidden" else 1] if len(large) > 1 else -1


def _membership(known: Floats, seen: Floats) -> float:
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
