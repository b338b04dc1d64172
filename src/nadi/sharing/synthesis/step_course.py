"""When in a step a rank is slow: ranks wait for each other, so the sum of a step is not enough.

A step is cut into parts of equally many operations. Learned is the sum of durations of each part of
each rank, and a new step is like one learned step on all ranks, so that who waits for whom stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Bools, Floats, Ints

_PARTS = 128
"""Most parts of a step."""
_OF_PART = 16
"""Least operations of a part."""
_SUMS = 1 << 16
"""Most sums that are learned of a job: of many ranks or steps, fewer parts."""
_LONG = 8
"""So many of the shortest long durations take as long as the mean part."""


class StepParts(NamedTuple):
    """The parts of all steps of a job."""

    part: Ints  # int64, shape (operations,): of each operation, counted through ranks and steps
    wanted: Floats  # float64 ns, shape (all parts,): the sum of durations of each


def num_parts(steps: Sequence[Sequence[Ints]]) -> int:
    """Return in how many parts steps are cut; 1 of one rank, which waits for nobody.

    - ``steps``: Of each rank the rows of each step.
    """
    if len(steps) == 1:
        return 1
    longest = max(rows.size for own in steps for rows in own)
    many = len(steps) * max(map(len, steps))
    return max(min(_PARTS, longest // _OF_PART, _SUMS // many), 1)


def course_of_step(taken: Ints, usual: Floats, parts: int) -> Floats:
    """Return the load of each part of a step, over that of the whole; float64, shape (parts,).

    - ``taken``, ``usual``: ns, shape (operations,): what each takes, and what its token takes on
      average. A load is the sum of the one over the sum of the other; that of nothing is as of the
      whole.
    """
    place = _part(taken.size, parts)
    sums = (np.bincount(place, weights=one, minlength=parts) for one in (taken, usual))
    own, expected = sums
    whole = own.sum() / expected.sum() if expected.sum() else 0.0
    known = (expected > 0) & (whole > 0)
    return np.divide(own, expected * whole, out=np.ones(parts), where=known)


def means_of_role(values: Floats, role: Ints) -> Floats:
    """Return the mean of each step over the ranks of its role; float64, shape (ranks, steps)."""
    found = np.empty_like(values)
    for one in np.unique(role).tolist():
        found[role == one] = values[role == one].mean(axis=0)
    return found


def step_parts_of(
    sizes: Ints, load: Floats, course: Floats, usual: Floats, role: Ints
) -> StepParts:
    """Return the parts of a job, and what each shall take.

    - ``sizes``: int64, shape (ranks * steps,): operations of each step.
    - ``load``: float64, shape (ranks, steps): the sum of each step, over what those of its role
      take on average.
    - ``course``: float64, shape (ranks * steps, parts): as of :func:`course_of_step`.
    - ``usual``: float64, shape (operations,): what each takes on average; 0 for communication.
    - ``role``: int64, shape (ranks,).
    """
    steps, parts = course.shape
    part = np.concatenate([_part(size, parts) + at * parts for at, size in enumerate(sizes)])
    expected = np.bincount(part, weights=usual, minlength=steps * parts).reshape(steps, parts)
    bent = expected * course
    whole = bent.sum(axis=1)
    total = (load * means_of_role(expected.sum(axis=1).reshape(load.shape), role)).ravel()
    factor = np.divide(total, whole, out=np.ones(steps), where=whole > 0)
    return StepParts(part, (bent * factor[:, None]).reshape(-1))


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
    factor = np.divide(steps.wanted, total, out=np.ones(many), where=total > 0)
    return np.where(moves, np.rint(duration * factor[steps.part]).astype(np.int64), duration)


def _part(size: int, parts: int) -> Ints:
    return np.arange(size) * parts // max(size, 1)


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
