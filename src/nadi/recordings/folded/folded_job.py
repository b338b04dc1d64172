"""A job of which few traces are stored, each with its repeats once, and that answers for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl

from nadi.recordings.folded.folded_trace import (
    FoldedTrace,
    NodeTimes,
    fold_trace,
    own_times,
    unfold_trace,
    with_own_times,
)
from nadi.recordings.folded.repeats import RankClasses
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.schema import ISSUES, MATCHES
from nadi.trace.trace import Job, Trace


@dataclass(frozen=True, eq=False)
class FoldedJob(Job):
    """A job in which alike ranks share a trace, and repeats of it are stored once.

    It is a job like any other: ``traces`` has the whole trace of each rank, with typical times, and
    alike ranks share one.

    Attributes
    ----------
    folds
        The trace of each class of ranks.
    of
        int64, shape (ranks,): the class of each rank.
    """

    folds: tuple[FoldedTrace, ...] = ()
    of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __repr__(self) -> str:
        kept = sum(fold.nodes.height for fold in self.folds)
        return (
            f"<FoldedJob ranks={self.of.size} classes={len(self.folds)} nodes={self.num_nodes} "
            f"kept={kept}>"
        )

    @property
    def times_vary(self) -> bool:
        """Whether alike ranks took different times."""
        return any(fold.ranks_vary for fold in self.folds)

    def at(self, which: Literal["low", "high"]) -> Job:
        """Return the job in which every operation takes the least, or the largest, of its times.

        Where times do not change the order of operations, the job takes at least, or at most, as
        long as it does so.
        """
        made = []
        for trace, fold in zip(self._different, self.folds, strict=True):
            own: Ints = getattr(fold.all_times, which)
            made.append(replace(trace, nodes=with_own_times(trace.nodes, own)))
        return Job(
            tuple(made[k] for k in self.of.tolist()), self.matches, self.issues,
            rank_groups=self.rank_groups,
        )  # fmt: skip

    @property
    def _different(self) -> list[Trace]:
        first = np.unique(self.of, return_index=True)[1]
        return [self.traces[rank] for rank in first.tolist()]


def folded_job(
    folds: Sequence[FoldedTrace], of: Ints, groups: RankGroups | None, issues: pl.DataFrame
) -> FoldedJob:
    """Return the job of folded traces, one for each class of ranks."""
    whole = [unfold_trace(fold) for fold in folds]
    return FoldedJob(
        tuple(whole[k] for k in of.tolist()), MATCHES.empty(), issues, rank_groups=groups,
        folds=tuple(folds), of=of,
    )  # fmt: skip


def times_of_classes(classes: RankClasses) -> list[NodeTimes | None]:
    """Return the mean, least and largest time of each node of each class; None if ranks agree."""
    found: list[NodeTimes | None] = []
    for number in range(classes.first.size):
        ranks = np.flatnonzero(classes.of == number).tolist()
        traces = list(dict.fromkeys(classes.traces[rank] for rank in ranks))
        low = own_times(traces[0].nodes).copy()
        high = low.copy()
        beyond = np.zeros(low.size, dtype=np.float64)
        for trace in traces[1:]:
            own = own_times(trace.nodes)
            np.minimum(low, own, out=low)
            np.maximum(high, own, out=high)
        if (low == high).all():
            found.append(None)
            continue
        for rank in ranks:
            beyond += own_times(classes.traces[rank].nodes) - low
        typical = low + np.rint(beyond / len(ranks)).astype(np.int64)
        found.append(NodeTimes(typical, low, high))
    return found


def fold_classes(
    classes: RankClasses, times: Mapping[int, NodeTimes], issues: pl.DataFrame | None = None
) -> FoldedJob:
    """Fold one trace of each class.

    - ``times``: Of classes whose ranks took different times.
    """
    folds = [
        fold_trace(classes.traces[rank], times.get(number))
        for number, rank in enumerate(classes.first.tolist())
    ]
    return folded_job(
        folds, classes.of, classes.groups, ISSUES.empty() if issues is None else issues
    )


def unfold_job(job: FoldedJob) -> Job:
    """Return the whole job as one that nothing is known of but its traces.

    Each rank has typical times; with equal times it is the job that was folded.
    """
    return Job(job.traces, job.matches, job.issues, job.clocks, job.rank_groups)
