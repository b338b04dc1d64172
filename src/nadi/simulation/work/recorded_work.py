"""Recorded jobs as nodes for the simulator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.schema import GIVEN_DEPS
from nadi.trace.trace import Job, Trace

if TYPE_CHECKING:
    from nadi.simulation.workload.simulator_nodes import PlayedRank

__all__ = ["nodes_of_job"]


def nodes_of_job(
    job: Job | Sequence[Trace], played: Collection[str], *, at_once: bool
) -> tuple[tuple[Trace, ...], tuple[PlayedRank, ...]]:
    """Return traces that can be simulated; recordings are converted. O(nodes log nodes).

    Nodes of a Chakra trace are taken as they are. A recording becomes what ``nadi link --for
    astra-sim`` writes; with ``at_once``, with times in ns and with communication that goes on at
    once, as devices do it.
    Its collectives of the types ``played`` stay what they are.
    Issues of the conversion are among the issues of the first trace.

    Returns
    -------
    tuple of Trace
        Of each rank.
    tuple of PlayedRank
        For a recording, the operations that the nodes of each rank come from; else empty.

    Raises
    ------
    InputError, NadiError
        As :func:`nadi.simulation.write_for_astra_sim`.
    """
    traces = job.traces if isinstance(job, Job) else tuple(job)
    # ranks may share a trace, many thousands of them
    if not any(map(_is_recorded, set(traces))):
        return traces, ()
    from nadi.recordings.join_ranks import link_job
    from nadi.simulation.workload.astra_sim_files import played_traces

    linked = job if isinstance(job, Job) else link_job(traces)
    log = IssueLog()
    ranks_played, _ = played_traces(
        linked,
        log,
        at_once=at_once,
        played=played,
    )
    ranks = tuple(ranks_played)
    first, *others = (rank.trace for rank in ranks)
    issues = summed_issues([*(trace.issues for trace in linked.traces), linked.issues, log.table()])
    return (replace(first, issues=issues), *others), ranks


def _is_recorded(trace: Trace) -> bool:
    """Return whether a trace is a recording rather than a Chakra trace."""
    sources = trace.provenance.sources
    if sources and sources[0].format.startswith("Chakra"):
        return False
    # handmade traces are recognized by their dependencies only
    kinds = set(trace.deps["kind"].unique().to_list())
    return not kinds <= set(GIVEN_DEPS) if not sources else not kinds & set(GIVEN_DEPS)
