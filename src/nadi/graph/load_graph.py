"""The event graph of recorded files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import polars as pl

from nadi.errors import InputError
from nadi.files.files import free_memory
from nadi.files.memory_snapshot import NO_OPERATIONS
from nadi.graph.contention import keep_kernels, kernels_of
from nadi.graph.edges.job_graph import build_graph, graph_of_parts, rank_part
from nadi.graph.edges.rank_vertices import RankPart
from nadi.graph.event_graph import EventGraph
from nadi.recordings.job_of_files import Reading, load_ranks, why_empty
from nadi.trace.trace import Trace

_Progress = Callable[[str], None]


class _RankFacts(NamedTuple):
    """What a job's graph needs of a rank beside its tables."""

    part: RankPart
    kernels: pl.DataFrame  # most comes from its arguments


def _facts_of(trace: Trace) -> _RankFacts:
    return _RankFacts(rank_part(trace), kernels_of(trace))


def load_graph(
    paths: Sequence[Path | str],
    progress: _Progress,
    *,
    tensors: bool = False,
    **reading: Unpack[Reading],
) -> EventGraph:
    """Load a job and build its event graph; ``reading`` as in :func:`load_job`.

    What a rank alone determines of it is worked out where the rank is linked.

    - Raises InputError if a file cannot be read, files are not from one job, or no operation has a
      timestamp.
    """
    job, facts = load_ranks(*paths, work=_facts_of, tensors=tensors, progress=progress, **reading)
    if all((trace.issues["code"] == NO_OPERATIONS).any() for trace in job.traces):
        raise InputError(
            ", ".join(map(str, paths)),
            "a memory snapshot has no operators and no device work that could be replayed",
            "nadi analyze memory-holders, memory and memory-segments show what it holds",
        )  # fmt: skip
    progress("building the event graph")
    if facts:
        keep_kernels(job, [one.kernels for one in facts])
        parts = [one.part for one in reversed(facts)]
        facts.clear()
        graph = graph_of_parts(job, (parts.pop() for _ in job.traces))
    else:
        graph = build_graph(job)
    free_memory()  # the columns of threads that it was made of
    if graph.num_ops == 0:
        reasons = dict.fromkeys(why for why in map(why_empty, job.traces) if ":" in why)
        raise InputError(
            ", ".join(map(str, paths)), "; ".join(["no operation has a timestamp", *reasons]),
            "record a device trace with torch.profiler while the program runs",
        )  # fmt: skip
    return graph
