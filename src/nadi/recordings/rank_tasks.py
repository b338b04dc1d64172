"""The work of one rank: its files are read and linked where an executor puts it.

What comes back of a rank has no bytes of its files: its tables, and what else was asked of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nadi.errors import PairError
from nadi.files.files import free_memory, is_local, locate
from nadi.files.trace_files import read
from nadi.recordings.discover import (
    TraceFiles,
    TraceIdentity,
    head_of,
    pair_recordings,
    peek,
    recording_of,
)
from nadi.recordings.join_host_device import link_device, link_pair
from nadi.trace.attributes import Attributes, LazyAttributes
from nadi.trace.trace import Source, Trace

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_LARGE = 1 << 22  # bytes as stored
_MOST_AT_ONCE, _LEAST_PARTS = 16, 64  # a scheduler takes milliseconds for each part


class RankTask(NamedTuple):
    """The files of a rank, host and device or the latter alone, and how they are linked.

    ``rank`` is -1 where it is left to the trace; the others as of :func:`link_pair`.
    """

    sources: tuple[str, ...]
    rank: int
    force: bool = False
    tensors: bool = True
    args: bool = True


def rank_tasks(
    files: TraceFiles, executor: Executor | None, *, force: bool, tensors: bool
) -> list[RankTask]:
    """Return the task of each rank, in order of rank; none where files are not a rank each.

    Without an executor no file is read for it: there are none either if some file does not say at
    its beginning what it is.
    """
    if len(files.devices) < 2 or files.captures:
        return []
    paths = [*files.hosts, *files.devices]
    heads = [head_of(path) for path in paths]
    unknown = [path for path, head in zip(paths, heads, strict=True) if head is None]
    if unknown and executor is None:
        return []
    told = dict(run_tasks(peek, unknown, executor))
    of_unknown = iter(told[at] for at in range(len(unknown)))
    known = [next(of_unknown) if head is None else head for head in heads]
    hosts, devices = known[: len(files.hosts)], known[len(files.hosts) :]
    try:
        pairs = pair_recordings(hosts, devices, force=force)
    except PairError:  # of several traces of a rank, one may be chosen
        return []
    return [
        RankTask(_sources(host, hosts, devices[device]), rank, force, tensors)
        for host, device, rank in pairs
    ]


def _sources(host: int, hosts: Sequence[TraceIdentity], device: TraceIdentity) -> tuple[str, ...]:
    return (device.path,) if host < 0 else (hosts[host].path, device.path)


def run_tasks(
    work: Callable[[_Task], _Result], tasks: Sequence[_Task], executor: Executor | None
) -> Iterator[tuple[int, _Result]]:
    """Do some work for each task, here or by an executor; gives place and result as they come.

    Work that a lost worker had not done is the executor's to repeat.
    """
    if executor is None:
        yield from ((place, work(task)) for place, task in enumerate(tasks))
        return
    size = min(max(len(tasks) // _LEAST_PARTS, 1), _MOST_AT_ONCE)
    pending = {
        executor.submit(_worked, work, tasks[at : at + size]): at
        for at in range(0, len(tasks), size)
    }
    try:
        for future in as_completed(list(pending)):
            yield from enumerate(future.result(), pending.pop(future))
    finally:
        for future in pending:
            future.cancel()


def _worked(work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
    return [work(task) for task in tasks]


def link_rank(task: RankTask, progress: Callable[[str], None] = lambda _: None) -> Trace:
    """Read and link the files of a rank; the traces that were read are released on return.

    - Raises InputError if a file cannot be read, or they are not of one rank.
    """
    *hosts, device = _read_sources(task, progress)
    rank = task.rank
    if rank < 0:
        ((_, _, rank),) = pair_recordings(
            [recording_of(host) for host in hosts], [recording_of(device)], force=task.force
        )
    device = device.changed(rank=rank)
    progress("linking")
    if not hosts:
        return link_device(device)
    return link_pair(hosts[0], device, force=task.force, tensors=task.tensors, args=task.args)


def read_all(files: Sequence[Path], progress: Callable[[str], None]) -> list[Trace]:
    """Read files one after the other, and report each to ``progress``."""
    traces = []
    for file in files:
        progress(f"reading {file.name}")
        traces.append(read(file))
    return traces


def _read_sources(task: RankTask, progress: Callable[[str], None]) -> list[Trace]:
    """Read the sources: of large ones the device trace beside the host trace, which takes longer.

    Small ones are read sooner than two threads change places.
    """
    *hosts, device = map(locate, task.sources)
    if not hosts or (is_local(device) and device.stat().st_size < _LARGE):
        return read_all([*hosts, device], progress)
    (host,) = hosts
    with ThreadPoolExecutor(1) as executor:
        beside = executor.submit(read, device)
        progress(f"reading {host.name}")
        trace = read(host)
        free_memory()
        _ = trace.attributes  # which need less than the file, and that is let go of
        return [trace, beside.result()]


def without_files(trace: Trace, task: RankTask) -> Trace:
    """Return a linked trace without bytes of its files; its attributes are read again if needed."""
    made = trace.provenance
    sources = tuple(Source(one.path, one.format, one.size, one.hash) for one in made.sources)
    return trace.changed(
        provenance=replace(made, sources=sources),
        given_attributes=_AttributesInFiles(task, trace.given_attributes.names),
    )


class _AttributesInFiles(LazyAttributes):
    """The attributes of a linked rank, which stay in its files: those of few ranks are kept."""

    def __init__(self, task: RankTask, names: Iterable[str]) -> None:
        super().__init__(lambda: _attributes_of(task))
        self._task, self._names = task, frozenset(names)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._task, self._names)

    @property
    def value(self) -> Attributes:
        """The attributes."""
        return _attributes_of(self._task)

    @property
    def names(self) -> frozenset[str]:
        """The names of all attributes."""
        return self._names


@lru_cache(2)
def _attributes_of(task: RankTask) -> Attributes:
    return link_rank(task).attributes
