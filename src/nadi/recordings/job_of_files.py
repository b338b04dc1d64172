"""Find, read, pair and link the files of a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypedDict

import polars as pl

from nadi.files.trace_files import read
from nadi.recordings.discover import (
    TraceFiles,
    find_files,
    list_files,
    pair_recordings,
    recording_of,
)
from nadi.recordings.graph_replays.joining import join_traces
from nadi.recordings.join_host_device import link_device, link_pair
from nadi.recordings.join_ranks import link_job
from nadi.recordings.merged_ranks import split_ranks
from nadi.recordings.recording_cost import recording_cost
from nadi.recordings.step_files import one_per_rank
from nadi.trace.trace import Job, Trace

__all__ = [
    "ReadRank",
    "Reading",
    "load_devices",
    "load_job",
    "load_recordings",
    "read_all",
    "why_empty",
]

_Progress = Callable[[str], None]
_TOLD = 8  # reasons


class ReadRank(NamedTuple):
    """The traces of one rank as read: ``host`` is None if there is a device trace alone."""

    host: Trace | None
    device: Trace


class Reading(TypedDict, total=False):
    """How files of recordings become a job; as in :func:`load_job`."""

    force: bool
    capture: Path | str


def load_job(
    *paths: Path | str,
    force: bool = False,
    tensors: bool = False,
    capture: Path | str = "",
    progress: _Progress = lambda _: None,
) -> Job:
    """Read, pair and link the traces of a job.

    Parameters
    ----------
    paths
        Folders with a pair per rank, or a device trace per rank and no host trace, or the
        files themselves in any order. JSON files of a folder that are not traces are
        ignored, and named in the job's issues. Of several device traces of a rank, one after the
        other, only one is read.
    force
        Whether to link a host and a device trace even if few of their operations match.
    tensors
        Whether to find dependencies through tensors too. Few analyses need them, and they take
        a third of the time; ``nadi.recordings.tensor_deps`` finds them in a trace later.
    capture
        A file or folder with recordings of the capture of CUDA or HIP graphs, or of the same
        kernels without graphs: they say which operators launched the kernels that graphs replay.
        Files whose names have ``capture`` are found beside the traces.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, or the files do not belong together.
    """
    return load_recordings(
        *paths, force=force, tensors=tensors, capture=capture, progress=progress
    )[0]


def load_recordings(
    *paths: Path | str,
    force: bool = False,
    tensors: bool = False,
    capture: Path | str = "",
    progress: _Progress = lambda _: None,
) -> tuple[Job, list[ReadRank]]:
    """Read, pair and link the traces of a job; also returns each rank's traces as read.

    As :func:`load_job`; ranks as read are in the order of ``job.traces``.
    """
    files = find_files(list(paths))
    hosts = read_all(files.hosts, progress)
    devices, left_out = _read_devices(files, capture, progress)
    progress("linking hosts and devices")
    linked, as_read, observed = [], [], []
    for host, device, rank in pair_recordings(
        [recording_of(trace) for trace in hosts],
        [recording_of(trace) for trace in devices],
        force=force,
    ):
        trace = replace(devices[device], rank=rank)
        as_read.append(ReadRank(None if host < 0 else hosts[host], trace))
        linked.append(
            link_device(trace)
            if host < 0
            else link_pair(hosts[host], trace, force=force, tensors=tensors)
        )
        if host >= 0 and not (trace.step_lengths and trace.step_lengths.host_is_later):
            observed.append(linked[-1])
    job = link_job(linked)
    cost = recording_cost(job, observed)
    job = replace(job, issues=pl.concat([job.issues, cost, files.issues, left_out]))
    return job, sorted(as_read, key=lambda one: one.device.rank)


def load_devices(
    *paths: Path | str, capture: Path | str = "", progress: _Progress = lambda _: None
) -> list[Trace]:
    """Read the device traces of a job, in order of rank, without linking.

    Parameters
    ----------
    paths
        Folders or files, as in :func:`load_job`; host traces are ignored.
    capture
        As in :func:`load_job`.
    progress
        Called with a line of text before each file.

    Raises
    ------
    InputError
        If a file cannot be read, there is no device trace, or two have the same rank.
    """
    devices, _ = _read_devices(find_files(list(paths)), capture, progress)
    ranked = pair_recordings([], [recording_of(trace) for trace in devices])
    return [replace(devices[device], rank=rank) for _, device, rank in ranked]


def why_empty(trace: Trace) -> str:
    """Say what a trace without operations has instead; empty if it has operations."""
    if trace.nodes.height:
        return ""
    kept = trace.issues.filter(severity="warning")
    reasons = [f"{count:,} {detail}" for count, detail in kept.select("count", "detail").rows()]
    return ": ".join(filter(None, ["no operations", ", ".join(reasons[:_TOLD])]))


def _read_devices(
    files: TraceFiles, capture: Path | str, progress: _Progress
) -> tuple[list[Trace], pl.DataFrame]:
    """Read one device trace of each rank, with the operators of graphs; and what was left out.

    A file into which ranks were merged becomes as many.
    """
    read_traces = read_all(files.devices, progress)
    traces = [rank for file, trace in zip(files.devices, read_traces, strict=True)
              for rank in split_ranks(file, trace)]  # fmt: skip
    devices, left_out = one_per_rank(traces)
    given = list_files([capture]).traces if capture else []
    captures = given or files.captures
    return join_traces(devices, captures, eager=bool(given), progress=progress), left_out


def read_all(files: Sequence[Path], progress: _Progress) -> list[Trace]:
    """Read files one after the other, and report each to ``progress``."""
    traces = []
    for file in files:
        progress(f"reading {file.name}")
        traces.append(read(file))
    return traces
