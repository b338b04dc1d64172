"""Link raw traces and write one file per rank; ranks run in parallel.

Ranks that were linked before their job's linking was stopped, and need not be linked again.

Beside the file of a rank stand its communication, which is what ranks have in common, and what
makes it valid: the files it was read from, and how it was linked. The latter is written last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec
import polars as pl

from nadi.errors import InputError, UsageError
from nadi.files.csv_tables import file_of_table
from nadi.files.files import check_target, is_local, locate, read_settings, write_pieces
from nadi.files.registry import format_for_writing
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import read, write
from nadi.files.whole_folders import resumed_folder, whole_folder
from nadi.progress import tell
from nadi.recordings.discover import TraceFiles, find_files, pair_recordings, peek
from nadi.recordings.join_ranks import as_in_job, link_job
from nadi.recordings.large import content_of
from nadi.recordings.rank_tasks import RankTask, link_rank, run_tasks
from nadi.results.terminal.workers import worker_processes
from nadi.trace.schema import COMMUNICATION_KINDS, DEPS
from nadi.trace.trace import Job, Provenance, Source, Trace
from nadi.version import __version__

_LISTED, _TALKS = ".kept.json", ".kept.nadi"
_REMEDY = "give another folder, or leave out --resume"


class KeptRank(msgspec.Struct, frozen=True):
    """What makes the file of a rank valid, and how much is in it."""

    nadi: str
    # name, bytes and time of the last change of each source; of an address only the name
    sources: list[tuple[str, int, int]]
    settings: str  # how it was linked, and written
    nodes: int = -1
    deps: int = -1

    @classmethod
    def of(cls, files: RankTask, settings: str) -> KeptRank:
        """Say what makes a rank valid, whatever is in it.

        - Raises InputError if a file is not there any more.
        """
        sources = []
        for path in map(locate, files.sources):
            try:
                state = path.stat() if is_local(path) else None
            except OSError as error:
                raise InputError(str(path), f"cannot be read: {error.strerror}") from None
            changed = (0, 0) if state is None else (state.st_size, state.st_mtime_ns)
            sources.append((str(path), *changed))
        linked = f"{files.rank} {files.force} {files.tensors} {files.args} {settings}"
        return cls(__version__, sources, linked)


_WITHOUT_ARGS = ("chakra", "chakra-json")  # formats with no place for raw args of the host's work
_WORTH_THREADS = 2  # ranks at a time
_IN_FOLDERS = "chakra"  # what ranks are written as unless another format is named


@dataclass(frozen=True)
class LinkedFile:
    """One linked rank and its output file.

    Attributes
    ----------
    rank
        Global rank.
    sources
        The files read: host and device, or the latter alone.
    target
        The file written.
    format
        Name of its format.
    nodes, deps
        Number of operations and of dependencies.
    issues
        ``schema.ISSUES``: issues found while reading and linking, and data that the format
        cannot hold.
    """

    rank: int
    sources: tuple[str, ...]
    target: str
    format: str
    nodes: int
    deps: int
    issues: pl.DataFrame


@dataclass(frozen=True)
class Linking:
    """All linked ranks.

    Attributes
    ----------
    files
        One per rank, in ascending order.
    num_collectives
        Collectives matched across ranks.
    issues
        ``schema.ISSUES``: issues between ranks.
    """

    files: tuple[LinkedFile, ...]
    num_collectives: int
    issues: pl.DataFrame


@dataclass(frozen=True)
class _Found:
    """What only the whole job shows about a rank: its process groups and its clock."""

    group: tuple[int, ...]
    shift: int


@dataclass(frozen=True)
class _Task:
    """The work for one rank: everything that a worker process needs."""

    files: RankTask
    target: str
    format: str
    schema: str = ""
    found: _Found | None = None
    keeps: bool = False  # for another try, where the work is stopped

    def kept(self) -> KeptRank:
        """Return what makes its file valid."""
        return KeptRank.of(self.files, f"{self.format} {self.schema} {self.found}")


class Running(TypedDict, total=False):
    """Where ranks are linked, and whether those that are linked already are kept."""

    resume: bool
    executor: Executor | None


def link_files(
    *paths: Path | str,
    output: Path | str,
    to: str = "",
    schema: str = "",
    force: bool = False,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    **running: Unpack[Running],
) -> Linking:
    """Link the traces of a job, and write each rank.

    Ranks are linked in parallel and independently. Collectives across ranks, and signs that
    the files are not from one job, are found at the end from their communication alone.

    Parameters
    ----------
    paths
        Folders with a pair or a device trace per rank, or the files themselves.
    output
        A file for one rank, if its suffix or ``to`` names a format; else a folder, for
        ``rank0.et`` and so on.
    to, schema
        As in :func:`nadi.convert`.
    force
        Whether to link a host and a device trace even if few of their operations match.
    overwrite
        Whether to replace existing files.
    progress
        Called with a line of text before each longer stage.
    running
        ``resume``: whether linked ranks are kept in a hidden folder of ``output`` where the work is
        stopped, by an error or a lost machine, and those that an earlier call kept are not linked
        again. ``executor``: any Executor of the standard library's kind, such as that of a Dask
        cluster or of MPI, whose workers see the same files; by default a process for each core, or
        threads of this process where there are two cores or two ranks at most. Processes start the
        main module anew: a script must keep its work under ``if __name__ == "__main__"``.

    Raises
    ------
    InputError
        If a file cannot be read or written, exists already, or files are not from one job.
        Then no file is written.
    UsageError
        If the format is unknown or cannot be written.
    """
    found = find_files([locate(path) for path in paths])
    tasks = _tasks(found, paths, locate(output), to, force=force)
    resume, executor = running.get("resume", False), running.get("executor")
    tasks = [replace(task, schema=schema, keeps=resume) for task in tasks]
    for task in tasks:
        _check_target(task, overwrite=overwrite)
    done, job = _linked_ranks(tasks, locate(output), executor, progress, overwrite=overwrite)
    return Linking(
        files=tuple(file for file, _ in done),
        num_collectives=job.num_collectives,
        issues=pl.concat([job.issues, found.issues]),
    )


def _linked_ranks(
    tasks: list[_Task],
    place: Path,
    executor: Executor | None,
    progress: Callable[[str], None],
    *,
    overwrite: bool,
) -> tuple[list[tuple[LinkedFile, Trace]], Job]:
    """Link and write all ranks, whose files appear in the folder together; a file is its own."""
    target_of = {locate(task.target).name: task.target for task in tasks}
    with _folder_of(tasks[0], place, overwrite=overwrite) as inside:
        tasks = [replace(task, target=str(inside / locate(task.target).name)) for task in tasks]
        done = _run(tasks, executor, progress)
        job = link_job([communication for _, communication in done])
        if again := _tasks_again(tasks, done, job):
            rewritten = {pair[0].rank: pair for pair in _run(again, executor, progress)}
            done = [rewritten.get(pair[0].rank, pair) for pair in done]
    named = [(replace(file, target=target_of[locate(file.target).name]), t) for file, t in done]
    return named, job


def _folder_of(task: _Task, place: Path, *, overwrite: bool) -> AbstractContextManager[Path]:
    if task.target == str(place):
        return nullcontext(place.parent)
    if task.keeps:
        return resumed_folder(place, is_note, overwrite=overwrite)
    return whole_folder(place, overwrite=overwrite)


def _check_target(task: _Task, *, overwrite: bool) -> None:
    """Raise InputError if the file of a rank cannot be written."""
    target = locate(task.target)
    # a CSV is several files, of which the nodes' is always one
    written = file_of_table(target, "nodes") if task.format == "csv" else target
    check_target(written, [locate(source) for source in task.files.sources], overwrite=overwrite)


def _tasks(
    found: TraceFiles, paths: Sequence[Path | str], output: Path, to: str, *, force: bool
) -> list[_Task]:
    """Return the task of each rank."""
    hosts, devices = found.hosts, found.devices
    is_single = len(devices) == 1 and len(hosts) < 2
    if is_single and not output.is_dir() and _is_file_name(paths, output, to):
        chosen = format_for_writing(output, to)
        sources = tuple(str(file) for file in (*hosts, *devices))
        return [_Task(_files(sources, -1, chosen.name, force=force), str(output), chosen.name)]
    if output.is_file():
        raise InputError(
            str(output), "is a file, but several ranks are written into a folder", "name another"
        )
    chosen = format_for_writing(output, to or _IN_FOLDERS)
    # a host trace alone has no choice of process groups, so one pass is enough
    recordings = [peek(file) for file in ([] if is_single else hosts)]
    tasks = []
    for host, device, rank in pair_recordings(recordings, [peek(file) for file in devices]):
        host_file = hosts if is_single else hosts[host : host + 1]
        target = output / f"rank{rank}{chosen.suffixes[0]}"
        sources = tuple(str(file) for file in (*host_file, devices[device]))
        files = _files(sources, -1 if is_single else rank, chosen.name, force=force)
        tasks.append(_Task(files, str(target), chosen.name))
    return tasks


def _files(sources: tuple[str, ...], rank: int, to: str, *, force: bool) -> RankTask:
    # raw args that will not be written need not be held
    return RankTask(sources, rank, force, args=to not in _WITHOUT_ARGS)


def _tasks_again(tasks: list[_Task], done: list[tuple[LinkedFile, Trace]], job: Job) -> list[_Task]:
    """Return the tasks to repeat because the job showed more about a rank than its own files."""
    shifts = dict(job.clocks.select("rank", "shift").iter_rows())
    in_job = {trace.rank: trace.nodes["group"].to_list() for trace in job.traces}
    task_of = {task.target: task for task in tasks}
    again = []
    for file, part in done:
        group, shift = in_job[file.rank], shifts.get(file.rank, 0)
        if shift or group != part.nodes["group"].to_list():
            found = _Found(tuple(group), shift)
            again.append(replace(task_of[file.target], found=found))
    return again


def _is_file_name(paths: Sequence[Path | str], output: Path, to: str) -> bool:
    """Return whether the output of a single rank is a file."""
    try:
        format_for_writing(output)
    except UsageError:
        return bool(to) and not any(locate(path).is_dir() for path in paths)
    return True


def _run(
    tasks: list[_Task], executor: Executor | None, progress: Callable[[str], None]
) -> list[tuple[LinkedFile, Trace]]:
    """Run the tasks; a single task runs in this process if no executor is given."""
    if executor is None and len(tasks) == 1:
        return [_link_rank(tasks[0], progress)]
    done = [pair for pair in map(_kept_pair, tasks) if pair is not None]
    there = {file.target for file, _ in done}
    tasks = [task for task in tasks if task.target not in there]
    once_more = " once more" if tasks and tasks[0].found else ""
    kept = f", {len(done)} are linked" if done else ""
    progress(f"linking {len(tasks)} ranks{once_more}{kept}")
    sizes = [sum(map(content_of, map(locate, task.files.sources))) for task in tasks]
    passed = 0
    with _pool(executor, max(len(tasks), 1)) as pool:
        for place, pair in run_tasks(_link_rank, tasks, pool):
            done.append(pair)
            passed += sizes[place]
            tell(passed, sum(sizes))
    return sorted(done, key=lambda pair: pair[0].rank)


@contextmanager
def _pool(executor: Executor | None, num_ranks: int) -> Iterator[Executor]:
    """Return the executor, or a pool that is closed after use.

    Two ranks at a time are linked in threads: most of the work is that of compiled code, which
    lets others run meanwhile, and a process takes half a second to start. More threads would
    wait for one another.
    """
    if executor is not None:
        yield executor
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = min(num_ranks, cores or 1)
    if workers <= _WORTH_THREADS:
        with ThreadPoolExecutor(workers) as threads:
            yield threads
        return
    with worker_processes(workers) as pool:
        yield pool


def _link_rank(
    task: _Task, progress: Callable[[str], None] = lambda _: None
) -> tuple[LinkedFile, Trace]:
    """Read, link and write one rank; return its description and a trace of its communication."""
    trace = link_rank(task.files, progress)
    if task.found is not None:
        trace = as_in_job(trace, task.found.group, task.found.shift)
    target = locate(task.target)
    progress(f"writing {target.name}")
    left_out = write(trace, target, to=task.format, schema=task.schema)
    file = LinkedFile(
        rank=trace.rank,
        sources=task.files.sources,
        target=task.target,
        format=task.format,
        nodes=trace.nodes.height,
        deps=trace.deps.height,
        issues=pl.concat([trace.issues, left_out]),
    )
    talks = _communication(trace)
    if task.keeps:
        kept = msgspec.structs.replace(task.kept(), nodes=file.nodes, deps=file.deps)
        keep_rank(target, kept, replace(talks, issues=file.issues))
    return file, talks


def _kept_pair(task: _Task) -> tuple[LinkedFile, Trace] | None:
    """Return what an earlier :func:`_link_rank` gave for the same task; None without one."""
    known = kept_rank(locate(task.target), task.kept()) if task.keeps else None
    if known is None:
        return None
    kept, trace = known
    file = LinkedFile(
        trace.rank, task.files.sources, task.target, task.format, kept.nodes, kept.deps,
        trace.issues,
    )  # fmt: skip
    return file, replace(trace, issues=trace.issues.clear())


def _communication(trace: Trace) -> Trace:
    """Return a trace of the communication alone, which is what ranks have in common."""
    nodes = trace.nodes.filter(pl.col("kind").is_in(COMMUNICATION_KINDS))
    # a source holds on to the file's bytes until its hash is asked for
    sources = tuple(Source(one.path, one.format, one.size, "") for one in trace.provenance.sources)
    return Trace(
        nodes=nodes.with_columns(parent=pl.lit(-1, pl.Int64)),
        deps=DEPS.empty(),
        groups=trace.groups,
        issues=trace.issues.clear(),
        provenance=Provenance(trace.provenance.nadi_version, sources),
        rank=trace.rank,
        world_size=trace.world_size,
        process=trace.process,
    )


def keep_rank(target: Path, kept: KeptRank, communication: Trace) -> None:
    """Note that the file of a rank is whole; its issues are those of ``communication``."""
    write(communication, _beside(target, _TALKS), to="nadi")
    write_pieces(_beside(target, _LISTED), [msgspec.json.encode(kept)])


def kept_rank(target: Path, asked: KeptRank) -> tuple[KeptRank, Trace] | None:
    """Return what was kept of a rank, and its communication; None if it has to be linked.

    - Raises InputError if what was kept cannot be read.
    """
    listed = _beside(target, _LISTED)
    if not listed.exists():
        return None
    kept = decode_json(read_settings(listed, _REMEDY), KeptRank, str(listed), _REMEDY)
    same = msgspec.structs.replace(kept, nodes=-1, deps=-1) == asked
    return (kept, read(_beside(target, _TALKS))) if same else None


def is_note(path: Path) -> bool:
    """Tell whether a file stands beside that of a rank, and is none of the results."""
    return path.name.endswith((_LISTED, _TALKS))


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(target.name + ending)
