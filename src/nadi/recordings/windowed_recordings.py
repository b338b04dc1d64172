"""A step or time range of device traces that are larger than memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.files.kineto.kineto_pieces import Survey, TimeRange, read_range, survey
from nadi.files.kineto.kineto_trace import decode
from nadi.recordings.discover import find_files, pair_recordings, recording_of
from nadi.recordings.graph_replays.joining import join_traces
from nadi.recordings.job_of_files import ReadRank
from nadi.recordings.join_host_device import link_device
from nadi.recordings.join_ranks import link_job
from nadi.recordings.time_range import time_range
from nadi.trace.trace import Job

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
