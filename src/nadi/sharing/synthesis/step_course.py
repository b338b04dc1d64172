"""When in a step a rank is slow: ranks wait for each other, so the sum of a step is not enough.

A step is cut where ranks meet. Learned is the sum of durations of each part of each rank, and a new
step is like one learned step on all ranks, so that who waits for whom stays.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.recordings.rank_spread import spread_of_ranks
from nadi.trace.arrays import Bools, Floats, Ints

_PARTS = 1024
"""Most parts of a step."""
_SUMS = 1 << 16
"""Most sums that are learned of a job: of many ranks or steps, fewer parts."""
_LARGEST = 2.0**60  # ns of a duration
_LONG = 8
"""So many of the shortest long durations take as long as the mean part."""


class StepParts(NamedTuple):
    """The parts of all steps of a job."""

    part: Ints  # int64, shape (operations,): of each operation, counted through ranks and steps
    wanted: Floats  # float64 ns, shape (all parts,): the sum of durations of each


def num_parts(steps: Sequence[Sequence[Bools]]) -> int:
    """Return in how many parts steps are cut; 1 of one rank, which waits for nobody.

    - ``steps``: Of each rank and step, which operations communicate.
    """
    if len(steps) == 1:
        return 1
    meetings = max(int(meets.sum()) for own in steps for meets in own)
    many = len(steps) * max(map(len, steps))
    return max(min(_PARTS, meetings + 1, _SUMS // many), 1)


def course_of_steps(sums: Floats, expected: Floats, role: Ints) -> Floats:
    """Return the load of each part; float64, shape (ranks, steps, parts).

    A load is the sum of durations of a rank, over what tokens of its role take on average: programs
    of a role may be unlike in a part. That of nothing is 1.

    - ``sums``, ``expected``: float64 ns, shape (ranks, steps, parts): what operations of a part
      take, and what their tokens take on average.
    """
    like = means_of_role(expected, role)
    return np.divide(sums, like, out=np.ones_like(like), where=like > 0)


def means_of_role(values: Floats, role: Ints) -> Floats:
    """Return the mean over the ranks of each role; float64, shape (ranks, ...), as ``values``."""
    found = np.empty_like(values)
    for one in np.unique(role).tolist():
        found[role == one] = values[role == one].mean(axis=0)
    return found


def step_parts_of(
    places: Sequence[Ints], load: Floats, course: Floats, usual: Floats, role: Ints
) -> StepParts:
    """Return the parts of a job, and what each shall take.

    - ``places``: Of each step of each rank, int64, shape (operations,): the part of each.
    - ``load``: float64, shape (ranks, steps): the sum of each step, over what those of its role
      take on average.
    - ``course``: float64, shape (ranks, steps, parts): as of :func:`course_of_steps`.
    - ``usual``: float64, shape (operations,): what each takes on average; 0 for communication.
    - ``role``: int64, shape (ranks,).
    """
    parts = course.shape[2]
    part = np.concatenate([place + at * parts for at, place in enumerate(places)])
    expected = np.zeros_like(course)
    np.add.at(expected.reshape(-1), part, usual)
    bent = means_of_role(expected, role) * course
    bent[expected == 0] = 0.0
    whole = bent.sum(axis=2)
    total = load * means_of_role(expected.sum(axis=2), role)
    factor = _factor(total, whole)
    return StepParts(part, (bent * factor[..., None]).reshape(-1))


def _factor(wanted: Floats, total: Floats) -> Floats:
    """Return by what sums are multiplied, at most ``_LARGEST`` of those that are nearly 0."""
    with np.errstate(over="ignore"):
        factor = np.divide(wanted, total, out=np.ones_like(total), where=total > 0)
    return np.minimum(factor, _LARGEST)


def on_more_ranks(
    parts: StepParts, alike: Ints, like: Ints, is_copy: Bools, random: np.random.Generator
) -> StepParts:
    """Let parts of ranks that were not learned take what chance gives them.

    - ``alike``: int64, shape (ranks,): as of :func:`nadi.recordings.rank_spread.nearly_alike`.
    - ``like``: int64, shape (ranks,): the learned rank that each is as slow as.
    - ``is_copy``: bool, shape (ranks,): which were not learned.
    """
    wanted = parts.wanted.reshape(alike.size, -1).copy()
    for one in np.unique(alike[like[is_copy]]).tolist():
        own = np.flatnonzero(~is_copy & (alike == one))
        copies = np.flatnonzero(is_copy & (alike[like] == one))
        drawn = spread_of_ranks(wanted[own]).drawn(np.searchsorted(own, like[copies]), random)
        wanted[copies] = drawn
    return parts._replace(wanted=wanted.reshape(-1))


def on_course(duration: Ints, token: Ints, usual: Floats, steps: StepParts) -> Ints:
    """Return durations of which each part of each step has the sum that is wanted.

    A long one, such as that of an operation that was interrupted, changes its place with another
    operation of its token: it goes to the part that has the most left to take. The rest is done by
    a factor for each part. O(operations + long durations * operations of their tokens).

    - ``usual``: As of :func:`step_parts_of`; what takes no time on average stays.
    """
    moves = (usual > 0) & (duration > 0)
    if steps.wanted.size > 1:
        duration = _placed(duration, token, moves, steps)
        moves = (usual > 0) & (duration > 0)
    many = steps.wanted.size
    total = np.bincount(steps.part, weights=np.where(moves, duration, 0), minlength=many)
    factor = _factor(steps.wanted, total.astype(np.float64))
    bent = np.minimum(duration * factor[steps.part], _LARGEST)
    return np.where(moves, np.rint(bent).astype(np.int64), duration)


def _placed(duration: Ints, token: Ints, moves: Bools, steps: StepParts) -> Ints:
    """Give long durations to the operations of their tokens whose parts have the most left."""
    is_long = moves & (duration > steps.wanted.mean() / _LONG)
    long = np.flatnonzero(is_long)
    short = np.where(moves & ~is_long, duration, 0)
    left = steps.wanted - np.bincount(steps.part, weights=short, minlength=steps.wanted.size)
    places = _places(token, np.unique(token[long]))
    taken = np.zeros(token.size, dtype=np.bool_)
    found = duration.copy()
    for row in long[np.argsort(-duration[long], kind="stable")].tolist():
        own = places[int(token[row])]
        free = np.where(taken[own], -np.inf, left[steps.part[own]])
        place = own[int(free.argmax())]
        taken[place] = True
        found[place] = duration[row]
        left[steps.part[place]] -= duration[row]
    # short ones that had to go, to where long ones were
    gone, empty = np.flatnonzero(taken & ~is_long), np.flatnonzero(is_long & ~taken)
    gone, empty = (one[np.argsort(token[one], kind="stable")] for one in (gone, empty))
    found[empty] = duration[gone]
    return found


def _places(token: Ints, chosen: Ints) -> dict[int, Ints]:
    """Return the rows of each chosen token."""
    rows = np.flatnonzero(np.isin(token, chosen))
    rows = rows[np.argsort(token[rows], kind="stable")]
    first = np.searchsorted(token[rows], chosen)
    return dict(zip(chosen.tolist(), np.split(rows, first[1:]), strict=True)) if chosen.size else {}
