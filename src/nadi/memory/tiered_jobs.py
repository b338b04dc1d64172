"""Jobs whose tensors live in several tiers: what is simulated then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nadi.errors import checked
from nadi.memory.in_place_access import SlowedWork, in_place_trace, shared_rooms, slowed_work
from nadi.memory.placed_tensors import JobTensors
from nadi.memory.placement_choice import rooms_of
from nadi.memory.staged_moves import Moves, Staging, staged_moves
from nadi.memory.staged_traces import staged_trace
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job, Trace

__all__ = ["TieredJob", "tiered_job"]


@dataclass(frozen=True, eq=False)
class TieredJob:
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
    slowed
        For each of ``tensors.traces``, computations that access tensors in place; empty without.
    """

    job: Job | Sequence[Trace]
    tensors: JobTensors
    tier: tuple[Ints, ...]
    moves: tuple[Moves, ...]
    slowed: tuple[SlowedWork, ...] = ()

    def at(self, which: str) -> TieredJob:
        """Return the job where work in place takes its time ``low`` or ``high``."""
        made = [
            in_place_trace(
                self.traces[int(one.ranks[0])],
                work,
                getattr(work, which) - work.expected + work.duration,
            )
            for one, work in zip(self.tensors.traces, self.slowed, strict=True)
        ]
        return replace(self, job=_with_traces(self.job, self.tensors, made))

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Of all ranks."""
        return self.job.traces if isinstance(self.job, Job) else tuple(self.job)


@checked
def tiered_job(
    job: Job | Sequence[Trace], tensors: JobTensors, tier: Sequence[Ints], staging: Staging,
    system: System,
) -> TieredJob:  # fmt: skip
    """Add the moves of tensors to a job. O(accesses log accesses) for each different trace.

    Parameters
    ----------
    job
        As it was simulated for ``tensors``.
    tier
        As in :class:`TieredJob`.
    system
        With its lower tiers.
    """
    moves = tuple(
        staged_moves(one, of_lives, staging)
        for one, of_lives in zip(tensors.traces, tier, strict=True)
    )
    made = [
        staged_trace(one.trace, moved, [tier.name for tier in system.tiers])
        for one, moved in zip(tensors.traces, moves, strict=True)
    ]
    slowed: tuple[SlowedWork, ...] = ()
    if staging.in_place:
        rooms = shared_rooms(system, rooms_of(system))
        slowed = tuple(
            slowed_work(one, of_lives, rooms, system)
            for one, of_lives in zip(tensors.traces, tier, strict=True)
        )
        made = [
            in_place_trace(trace, work, work.expected)
            for trace, work in zip(made, slowed, strict=True)
        ]
    return TieredJob(_with_traces(job, tensors, made), tensors, tuple(tier), moves, slowed)


def _with_traces(
    job: Job | Sequence[Trace], tensors: JobTensors, made: Sequence[Trace]
) -> Job | Sequence[Trace]:
    """Return a job with others in the place of its different traces."""
    traces = list(tensors.simulation.traces)
    for one, trace in zip(tensors.traces, made, strict=True):
        for rank in one.ranks.tolist():
            traces[rank] = trace
    if isinstance(job, Job) and job.rank_groups is not None:
        return replace(job, traces=tuple(traces))
    return tuple(traces)
