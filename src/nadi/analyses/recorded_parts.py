"""Steps and time ranges of recordings, as the recordings of these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.graph.edges.job_graph import build_graph
from nadi.recordings.job_of_files import ReadRank, load_recordings
from nadi.recordings.join_host_device import link_device, link_pair
from nadi.recordings.join_ranks import link_job
from nadi.recordings.large import are_large
from nadi.recordings.windowed_recordings import load_window
from nadi.trace.arrays import Bools
from nadi.trace.trace import Job, Trace
from nadi.whatif.parts import PartOf, part_operations
from nadi.whatif.sub_traces import part_of_device, part_of_host, part_rows

_ALL = "all"


class RecordedPart(NamedTuple):
    """A part of a recording, in memory: what :func:`nadi.extract` would write, read again."""

    # the traces of its ranks as read; ``host`` is None where there is none
    ranks: tuple[ReadRank, ...]

    @property
    def job(self) -> Job:
        """Its ranks, linked."""
        return link_job([
            link_device(one.device) if one.host is None else link_pair(one.host, one.device)
            for one in self.ranks
        ])  # fmt: skip


def part_named(step: str | int = _ALL, window: str = "") -> PartOf | None:
    """Return what options ask for; None for everything.

    - Raises UsageError if both are given.
    """
    wanted = "" if str(step) == _ALL else str(step)
    if wanted and window:
        raise UsageError(
            [Parameter("step"), " and ", Parameter("window")], "both choose what is analysed",
            "give one of them",
        )  # fmt: skip
    return PartOf(step=wanted, window=window) if wanted or window else None


def recorded_part(
    paths: Sequence[Path | str],
    part_of: PartOf,
    progress: Callable[[str], None] = lambda _: None,
    capture: Path | str = "",
) -> RecordedPart:
    """Read recordings, and take a part out of them.

    Of device traces with half a GiB of events or more, no more than the part needs is in memory
    (:mod:`nadi.recordings.windowed_recordings`); host traces are ignored then.

    - Raises InputError if a file cannot be read.
    - Raises UsageError if there is no such part.
    """
    if are_large(paths):
        job, as_read = load_window(
            *paths, step=part_of.step, window=part_of.window, capture=capture, progress=progress
        )
    else:
        job, as_read = load_recordings(*paths, capture=capture, progress=progress)
    progress("finding the part")
    graph = build_graph(job)
    chosen = part_operations(graph, part_of)
    found = []
    for number, (linked, one) in enumerate(zip(job.traces, as_read, strict=True)):
        mine = graph.op_trace == number
        if chosen[mine].any():
            found.append(_part(linked, one, part_rows(linked, graph.op_row[mine], chosen[mine])))
    return RecordedPart(tuple(found))


def _part(linked: Trace, one: ReadRank, kept: Bools) -> ReadRank:
    """Return the rows of a rank that are kept, of its traces as read."""
    event, start, ids = (linked.column(name) for name in ("event", "start", "id"))
    on_device = np.flatnonzero(kept & (event >= 0))
    device = part_of_device(one.device, event[on_device], start[on_device])
    host = None if one.host is None else part_of_host(one.host, ids[kept], ids[start >= 0])
    return ReadRank(host, device)
