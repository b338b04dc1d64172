"""Analyses of recordings, rank by rank: what a rank leaves is its rows of the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from nadi.analyses.recorded.events import events_of
from nadi.analyses.recorded_parts import part_named, recorded_part
from nadi.analyses.registry import ANALYSES, Analysis, analysis_named
from nadi.errors import InputError, UsageError
from nadi.files.csv_tables import TABLE_FILES, read_table
from nadi.files.files import read_file
from nadi.recordings.discover import (
    TraceFiles,
    TraceIdentity,
    find_files,
    glance,
    pair_recordings,
    recording_of,
)
from nadi.recordings.graph_replays.joining import join_traces
from nadi.recordings.job_of_files import load_devices, load_job
from nadi.recordings.large import are_large, are_small, check_room, read_what_is_needed
from nadi.recordings.rank_tasks import run_tasks
from nadi.trace.trace import Trace
from nadi.whatif.parts import PartOf

if TYPE_CHECKING:
    from nadi.analyses.recorded.operation_tables import OperationTable

_FEW = 4  # ranks: starting processes takes longer than reading them
_Found = dict[str, pl.DataFrame | str]
_Progress = Callable[[str], None]


def analyze(
    name: str, *paths: Path | str, step: str | int = "all", window: str = "",
    capture: Path | str = "", executor: Executor | None = None, **options: Any,
) -> pl.DataFrame:  # fmt: skip
    """Run one analysis on the device traces of a job.

    Ranks are read one after the other, or by an executor. No more of a rank is kept than its rows
    of the table.

    Parameters
    ----------
    name
        A name of :data:`nadi.analyses.ANALYSES`.
    paths
        Folders or files, as for :func:`nadi.run`; host traces are ignored.
    step, window
        The number of a step, or a time range such as ``120ms:180ms``, as of :func:`nadi.extract`:
        the table is that of this part alone. Ranks are read and linked all at once then.
    capture
        As for :func:`nadi.run`.
    executor
        Where ranks are analysed, if there are several; by default here, one after the other.
    options
        Parameters of the analysis.

    Returns
    -------
    polars.DataFrame
        As the analysis returns it.

    Raises
    ------
    UsageError
        If there is no such analysis, step or time range, or it has no such parameter.
    InputError
        If a file cannot be read, or lacks what the analysis needs: the message says what.
    """
    chosen = analysis_named(name)
    part = part_named(step, window)
    places = _Places(paths, capture)
    found = _found([chosen], places, part, executor, lambda _: None, {name: options})[name]
    if isinstance(found, str):
        raise InputError("", found)
    return found


def analyze_all(
    *paths: Path | str,
    names: Sequence[str] = (),
    step: str | int = "all",
    window: str = "",
    capture: Path | str = "",
    executor: Executor | None = None,
    progress: _Progress = lambda _: None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> _Found:
    """Run several analyses, by default all, and read each rank once.

    Parameters
    ----------
    paths, step, window, capture, executor
        As for :func:`analyze`.
    names
        Which analyses.
    progress
        Called with a line of text before each rank.
    options
        Parameters by the name of the analysis.

    Returns
    -------
    dict
        By name the table, or one line that says what the recording lacks. With several ranks, the
        table of those that have it.
    """
    chosen = [analysis_named(name) for name in names] or list(ANALYSES)
    part = part_named(step, window)
    return _found(chosen, _Places(paths, capture), part, executor, progress, options or {})


_Options = Mapping[str, Mapping[str, Any]]


class _Places(NamedTuple):
    """Where a recording is, and the captures of its graphs."""

    paths: Sequence[Path | str]
    capture: Path | str


def _found(
    chosen: Sequence[Analysis], places: _Places, part_of: PartOf | None,
    executor: Executor | None, progress: _Progress, options: _Options,
) -> _Found:  # fmt: skip
    if (table := _operation_table(places.paths)) is not None:
        where = str(places.paths[0])
        for one in chosen:
            if not one.of_table:
                raise UsageError(
                    where, f"is a table of operations, and {one.name} takes recordings",
                    f"such tables take {' and '.join(a.name for a in ANALYSES if a.of_table)}",
                )  # fmt: skip
        return {one.name: _answer(one, table, options, where) for one in chosen}
    if part_of is None:
        return _of_ranks(chosen, places, executor, progress, options)
    part = recorded_part(places.paths, part_of, progress, places.capture)
    single = [one for one in chosen if not one.of_job]
    parts = [_of_trace(one.device, single, options) for one in part.ranks]
    found = {one.name: _joined([each[one.name] for each in parts]) for one in single}
    # what the part lacks, the recording may have
    found = {
        name: f"{part_of} of {one}" if isinstance(one, str) else one for name, one in found.items()
    }
    of_job = [one for one in chosen if one.of_job]
    if of_job:
        job = part.job
        found |= {one.name: _answer(one, job, options, str(part_of)) for one in of_job}
    return {one.name: found[one.name] for one in chosen}


def _of_ranks(
    chosen: Sequence[Analysis], places: _Places, executor: Executor | None, progress: _Progress,
    options: _Options,
) -> _Found:  # fmt: skip
    single = [one for one in chosen if not one.of_job]
    files = find_files(list(places.paths), places.capture)
    found = _of_each(single, places, files, executor, progress, options)
    lacking = [one for one in single
               if one.group == "memory" and isinstance(found[one.name], str)]  # fmt: skip
    if lacking and files.snapshots:
        found |= _of_snapshots(lacking, found, files.snapshots, progress, options)
    of_job = [one for one in chosen if one.of_job]
    if of_job:
        found |= _of_job(of_job, places, progress, options)
    return {one.name: found[one.name] for one in chosen}


def _of_each(
    single: Sequence[Analysis], places: _Places, files: TraceFiles, executor: Executor | None,
    progress: _Progress, options: _Options,
) -> _Found:  # fmt: skip
    """Run the analyses that take one rank after the other."""
    parts: list[_Found] = []
    paths, capture = places
    are_alone = are_large(paths) if len(files.devices) < 2 else _may_be_ranks(files.devices)
    if single and not are_alone:
        traces = load_devices(*paths, capture=capture, progress=progress)
        parts = [_of_trace(trace, single, options) for trace in traces]
    elif single:
        parts = _of_files(files, [one.name for one in single], executor, progress, options)
    return {one.name: _joined([part[one.name] for part in parts]) for one in single}


def _of_snapshots(
    lacking: Sequence[Analysis], found: _Found, snapshots: Sequence[Path], progress: _Progress,
    options: _Options,
) -> _Found:  # fmt: skip
    """Ask the snapshots beside traces for what these lack; the program wrote both."""
    places = _Places(snapshots, "")
    try:
        held = _of_each(lacking, places, find_files(snapshots), None, progress, options)
    except InputError as error:  # other analyses have their answers
        return {one.name: f"{found[one.name]}; the memory snapshots beside it: {error}"
                for one in lacking}  # fmt: skip
    return {name: one for name, one in held.items() if not isinstance(one, str)}


def _operation_table(paths: Sequence[Path | str]) -> OperationTable | None:
    """Return the table of operations that a path is of; None if it is of recordings."""
    if len(paths) != 1 or not str(paths[0]).endswith(TABLE_FILES):
        return None
    from nadi.analyses.recorded.operation_tables import OPERATION_COLUMNS, operation_table

    path = Path(paths[0])
    content = read_file(path).content.tobytes()
    return operation_table(
        read_table(str(path), content, OPERATION_COLUMNS, "docs/analyze.md says which columns")
    )


def _of_job(
    chosen: Sequence[Analysis], places: _Places, progress: _Progress, options: _Options
) -> _Found:
    """Run the analyses that need all ranks at once, if memory has room for them."""
    paths, capture = places
    where = ", ".join(map(str, paths))
    try:
        check_room(paths)
    except InputError as error:
        return {one.name: f"{where}: {error}" for one in chosen}
    job = load_job(*paths, capture=capture, progress=progress)
    return {one.name: _answer(one, job, options, where) for one in chosen}


def _may_be_ranks(files: Sequence[Path]) -> bool:
    """Tell whether files are ranks each, as far as their names and beginnings say."""
    try:
        pair_recordings([], [glance(file) for file in files])
    except InputError:
        return False
    return True


def _of_files(
    files: TraceFiles, names: Sequence[str], executor: Executor | None, progress: _Progress,
    options: _Options,
) -> list[_Found]:  # fmt: skip
    """Analyse a file per rank; in order of rank.

    Where the beginning of a file does not state its rank, the rank is known when it was read.
    """
    count = len(files.devices)
    is_little = count < _FEW or are_small(files.devices)
    used = None if is_little else executor
    at_once = 1 if used is None else min(count, os.cpu_count() or 1)
    work = partial(_of_file, files=files, names=names, options=options, at_once=at_once)
    done = {}
    for place, one in run_tasks(work, files.devices, used):
        done[place] = one
        progress(f"analysed {len(done)} of {count} ranks")
    recordings, found = zip(*(done[place] for place in range(count)), strict=True)
    return [
        {name: _of_rank(answer, rank) for name, answer in found[device].items()}
        for _, device, rank in pair_recordings([], recordings)
    ]


def _of_rank(answer: pl.DataFrame | str, rank: int) -> pl.DataFrame | str:
    """Return the rows of a rank with its number."""
    if isinstance(answer, str) or "rank" not in answer.columns:
        return answer
    return answer.with_columns(pl.lit(rank, dtype=pl.Int64).alias("rank"))


def _of_file(
    file: Path, files: TraceFiles, names: Sequence[str], options: _Options, at_once: int
) -> tuple[TraceIdentity, _Found]:
    chosen = [analysis_named(name) for name in names]
    needs = {need for one in chosen for need in (*one.needs, *one.uses)}
    trace = read_what_is_needed(
        file, operators="operators" in needs, arguments="arguments" in needs,
        launches=bool(needs & {"host events", "launches"}), at_once=at_once,
    )  # fmt: skip
    (joined,) = join_traces([trace], files)
    return recording_of(trace), _of_trace(joined, chosen, options)


def _of_trace(trace: Trace, chosen: Sequence[Analysis], options: _Options) -> _Found:
    events = events_of(trace)
    return {one.name: _answer(one, events, options) for one in chosen}


def _answer(one: Analysis, source: Any, options: _Options, where: str = "") -> pl.DataFrame | str:
    """Return the table of an analysis, or what the recording lacks."""
    try:
        return one(source, **options.get(one.name, {}))
    except InputError as error:
        return str(error) if error.where else f"{where}: {error}"


def _joined(parts: Sequence[pl.DataFrame | str]) -> pl.DataFrame | str:
    """Return the rows of all ranks that have what the analysis needs, else what the first lacks."""
    tables = [part for part in parts if not isinstance(part, str)]
    return pl.concat(tables) if tables else parts[0]
