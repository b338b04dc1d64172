"""Steps and time ranges of recordings, as the recordings of these alone.

Of device traces that are larger than memory only the part is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.files.kineto.kineto_pieces import Survey, TimeRange, read_range, survey
from nadi.files.kineto.kineto_trace import decode
from nadi.graph.edges.job_graph import build_graph
from nadi.recordings.discover import find_files, pair_recordings, recording_of
from nadi.recordings.graph_replays.joining import join_traces
from nadi.recordings.job_of_files import ReadRank, load_recordings
from nadi.recordings.join_host_device import link_device, link_pair
from nadi.recordings.join_ranks import link_job
from nadi.recordings.large import are_large
from nadi.recordings.step_marks import time_range
from nadi.trace.arrays import Bools
from nadi.trace.trace import Job, Trace
from nadi.whatif.parts import PartOf, part_operations
from nadi.whatif.sub_traces import part_of_device, part_of_host, part_rows

_MARGIN_NS = 10_000_000  # clocks of ranks may be corrected by less


def load_window(
    *paths: Path | str,
    step: str = "",
    window: str = "",
    capture: Path | str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Job, list[ReadRank]]:
    """Read what belongs to a step or a time range, and link it; host traces are ignored.

    Each file is looked through twice, with one piece of it in memory at a time. Operations that lie
    partly in the range are read too, as is what it launches on devices.

    - ``step``: Number of a step that is marked by ``ProfilerStep``.
    - ``window``: Two times since the first operation, such as ``120ms:180ms``.
    - ``capture``: As of :func:`nadi.recordings.job_of_files.load_recordings`.
    - Returns Job, list of ReadRank: As :func:`nadi.recordings.job_of_files.load_recordings`, of a
      part of the events.
    - Raises InputError if a file cannot be read.
    - Raises UsageError if the time range cannot be read, or no step is marked.
    """
    found = find_files(list(paths), capture)
    files = found.devices
    seen = []
    for file in files:
        progress(f"looking through {file.name}")
        seen.append(survey(file, launches=not window))
    origin = min(one.base + one.earliest for one in seen)
    devices = []
    for file, one in zip(files, seen, strict=True):
        progress(f"reading a part of {file.name}")
        chosen = _range_of(one, step, window, origin)
        devices.append(decode(read_range(file, one, chosen)))
    devices = join_traces(devices, found, progress=progress)
    ranked = pair_recordings([], [recording_of(trace) for trace in devices])
    as_read = [ReadRank(None, replace(devices[device], rank=rank)) for _, device, rank in ranked]
    return link_job([link_device(one.device) for one in as_read]), as_read


def _range_of(seen: Survey, step: str, window: str, origin: int) -> TimeRange:
    """Return the times of a file that a part needs."""
    if window:
        low, high = (time + origin - seen.base for time in time_range(window))
        low, high = low - _MARGIN_NS, high + _MARGIN_NS
        return TimeRange(low, high, low, high, np.empty(0, dtype=np.int64))
    if not seen.steps:
        raise UsageError(
            Parameter("step", step), "no step is marked by ProfilerStep, which a recording of this "
            "size needs", ["give a time range: ", Parameter("window")],
        )  # fmt: skip
    # of one that is not there nothing is needed: who chooses the part says which are
    low, high = seen.steps.get(int(step) if step.isdecimal() else -1, (0, -1))
    return seen.range_of(low - _MARGIN_NS, high + _MARGIN_NS)


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
    (:mod:`nadi.analyses.recorded_parts`); host traces are ignored then.

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
