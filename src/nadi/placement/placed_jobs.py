"""Jobs whose tensors live in several tiers: what is simulated then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nadi.model.arrays import Ints
from nadi.model.trace import Job, Trace
from nadi.placement.placed_tensors import JobTensors
from nadi.placement.staged_moves import Moves, Staging, staged_moves
from nadi.placement.staged_traces import staged_trace

__all__ = ["PlacedJob", "placed_job"]


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A job with the moves of its tensors between tiers.

    Attributes
    ----------
    job
        As it is simulated.
    tensors
        Of the job without tiers.
    tier
        For each of ``tensors.traces``, int64, shape (lives,): where they live; 0 is the first tier.
    moves
        For each of ``tensors.traces``.
    """

    job: Job | Sequence[Trace]
    tensors: JobTensors
    tier: tuple[Ints, ...]
    moves: tuple[Moves, ...]


def placed_job(
    job: Job | Sequence[Trace], tensors: JobTensors, tier: Sequence[Ints], staging: Staging,
    names: Sequence[str],
) -> PlacedJob:  # fmt: skip
    """Add the moves of tensors to a job. O(accesses log accesses) for each different trace.

    Parameters
    ----------
    job
        As it was simulated for ``tensors``.
    tier
        As in :class:`PlacedJob`.
    names
        Of the lower tiers.
    """
    moves = tuple(
        staged_moves(one, of_lives, staging)
        for one, of_lives in zip(tensors.traces, tier, strict=True)
    )
    traces = list(tensors.simulation.traces)
    for one, moved in zip(tensors.traces, moves, strict=True):
        made = staged_trace(one.trace, moved, names)
        for rank in one.ranks.tolist():
            traces[rank] = made
    placed: Job | Sequence[Trace] = tuple(traces)
    if isinstance(job, Job) and job.rank_groups is not None:
        placed = replace(job, traces=tuple(traces))
    return PlacedJob(placed, tensors, tuple(tier), moves)
