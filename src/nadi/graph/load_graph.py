"""The event graph of recorded files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from nadi.errors import InputError
from nadi.files.memory_snapshot import NO_OPERATIONS
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.event_graph import EventGraph
from nadi.recordings.job_of_files import Reading, load_job, why_empty

_Progress = Callable[[str], None]


def load_graph(
    paths: Sequence[Path | str],
    progress: _Progress,
    *,
    tensors: bool = False,
    **reading: Unpack[Reading],
) -> EventGraph:
    """Load a job and build its event graph; ``reading`` as in :func:`load_job`.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    """
    job = load_job(*paths, tensors=tensors, progress=progress, **reading)
    if all((trace.issues["code"] == NO_OPERATIONS).any() for trace in job.traces):
        raise InputError(
            ", ".join(map(str, paths)),
            "a memory snapshot has no operators and no device work that could be replayed",
            "nadi analyze memory-holders, memory and memory-segments show what it holds",
        )  # fmt: skip
    progress("building the event graph")
    graph = build_graph(job)
    if graph.num_ops == 0:
        reasons = dict.fromkeys(why for why in map(why_empty, job.traces) if ":" in why)
        raise InputError(
            ", ".join(map(str, paths)), "; ".join(["no operation has a timestamp", *reasons]),
            "record a device trace with torch.profiler while the program runs",
        )  # fmt: skip
    return graph
