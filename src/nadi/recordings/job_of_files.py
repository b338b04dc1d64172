"""Find, read, pair and link the files of a recording.

Ranks that a script merged into one Kineto trace, read as the ranks that they were.

Whether two paths are two recordings, or parts of one.

Several device traces of each rank, one per step or cycle of the profiler: which are read.

Whether recording took a large share of the steps that were recorded.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec
import polars as pl

from nadi.errors import InputError, PairError
from nadi.files.files import RawFile, locate, read_file
from nadi.files.kineto.kineto_trace import MERGED, decode
from nadi.files.trace_files import sniff
from nadi.recordings.discover import (
    RANK_IN_NAME,
    TraceFiles,
    find_files,
    is_capture,
    list_files,
    pair_recordings,
    peek,
    recording_of,
    with_ranks,
)
from nadi.recordings.graph_replays.joining import join_traces
from nadi.recordings.join_host_device import link_device, link_pair
from nadi.recordings.join_ranks import link_job
from nadi.recordings.large import content_of
from nadi.recordings.rank_tasks import (
    RankTask,
    link_rank,
    rank_tasks,
    read_all,
    run_tasks,
    without_files,
)
from nadi.trace.categories import KINETO_CATEGORIES, VENDOR_CATEGORIES
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Job, PackedTrace, Trace, contentions

_TOLERATED = 0.15
_UNLIKE = 0.5  # of the time of a step: recorders make none shorter
_FEWEST = 10  # calls of an operator
_LEAST = 0.1  # the quantile that counts as the least


def recording_cost(job: Job, observed: Sequence[Trace] = ()) -> pl.DataFrame:
    """Say by how much recording made steps longer, and other work, if by more than 15 %.

    - ``observed``: Traces of the job in whose steps the execution trace observer and the profiler
      ran at once. What both cost is known at least: an operator takes no longer without them, and
      so do times between operators inside of one.
    - Returns: Issues, as ``schema.ISSUES``; none if the cost is lower, or not known. O(nodes of one
      rank).
    """
    lengths = [one.step_lengths for one in job.traces]
    costs = [one.cost for one in lengths if one is not None and one.cost is not None]
    cost = statistics.mean(costs) if costs and len(costs) == len(job.traces) else 0.0
    log = IssueLog()
    log.add(
        "job.recording-cost", "warning", int(cost > _TOLERATED),
        f"recording made steps {100 * cost:.0f} % longer than steps without a recorder",
        "short operators and gaps between operations seem longer than they are, and gains by "
        "other operations smaller",
    )  # fmt: skip
    log.add(
        "job.unlike-steps", "warning", int(cost < -_UNLIKE),
        f"the recorded steps took {-100 * cost:.0f} % less time than steps without a recorder",
        "steps differ from each other: record more of them (nadi record --steps 10)",
    )  # fmt: skip
    contention = max(contentions(job.traces), default=0.0)
    log.add(
        "job.busy-processors", "warning", int(contention > _TOLERATED),
        f"for {100 * contention:.0f} % of the recorded steps their thread was ready to run, and "
        "other threads had the processors",
        "record where nothing else runs: operations seem longer than they are, each by chance",
    )  # fmt: skip
    share = _share_of_both(observed[0]) if observed else 0.0
    log.add(
        "job.both-recorders", "warning", int(share > _TOLERATED),
        "the execution trace observer and the profiler ran at once: they take at least "
        f"{100 * share:.0f} % of the time of the thread with most operators",
        "record with nadi record or nadi.record, which run one after the other; until then short "
        "operators seem several times as long as they are",
    )  # fmt: skip
    return log.table()


def _share_of_both(trace: Trace) -> float:
    """Return which share of its busiest thread recorders take at least."""
    operators = (
        trace.nodes.lazy()
        .select(
            "name",
            "thread",
            "category",
            "parent",
            "start",
            end=pl.col("start") + pl.col("duration"),
        )
        .with_row_index("row")
        .filter(pl.col("category").cast(pl.String) == "operator", pl.col("start") >= 0)
        .filter(pl.col("thread") == pl.col("thread").mode().min())
        .sort("start")
        .collect()
    )
    inside = operators.filter(pl.col("parent") >= 0)
    between = (pl.col("start") - pl.col("end").shift(1).over("parent")).drop_nulls()
    least = inside.select(between.quantile(_LEAST)).item()
    quickest = (
        operators.join(inside.select(row="parent"), on="row", how="anti")
        .group_by("name")
        .agg(pl.len(), median=(pl.col("end") - pl.col("start")).median())
        .filter(pl.col("len") >= _FEWEST)["median"]
        .min()
    )
    lasts = operators.select(pl.col("end").max() - pl.col("start").min()).item()
    if least is None or quickest is None or not lasts:
        return 0.0
    return float((max(least, 0) + quickest) * operators.height / lasts)


_TOLD_OF_FILES = 3  # files


def one_per_rank(devices: Sequence[Trace]) -> tuple[list[Trace], pl.DataFrame]:
    """Keep one trace of each rank, if each has several that were recorded one after the other.

    Traces of a rank follow each other if their file names differ in one number, as
    ``rank0_step12.json`` and ``rank0_step13.json`` do, and their times do not overlap. Of the
    lowest rank the last is kept, and of the others the one that begins nearest to it.

    - Returns traces, issues: All traces and no issue if some rank has several traces that do not
      follow each other.
    """
    by_rank: dict[int, list[Trace]] = defaultdict(list)
    for trace, ranked in zip(devices, with_ranks(list(map(recording_of, devices))), strict=True):
        by_rank[ranked.rank].append(trace)
    log = IssueLog()
    if len(by_rank) == len(devices) or not all(map(_follow_each_other, by_rank.values())):
        return list(devices), log.table()
    reference = max(map(_begin, by_rank[min(by_rank)]))
    kept = [min(same, key=lambda one: abs(_begin(one) - reference)) for same in by_rank.values()]
    left_out = [trace for trace in devices if not any(trace is one for one in kept)]
    log.add(
        "job.step-files", "warning", len(left_out),
        f"each rank has several device traces, one after the other: {_names(kept)} "
        f"{'is' if len(kept) == 1 else 'are'} read",
        f"pass the files of another step to analyse it, such as {_names(left_out[:1])}",
    )  # fmt: skip
    return kept, log.table()


def _follow_each_other(traces: list[Trace]) -> bool:
    """Return whether names of traces differ in one number, and their times do not overlap."""
    if len(traces) == 1:
        return True
    if any(trace.nodes.height == 0 for trace in traces):
        return False
    names = [Path(recording_of(trace).path).name for trace in traces]
    if len({re.sub(r"\d+", "0", name) for name in names}) > 1:
        return False
    numbers = list(zip(*(re.findall(r"\d+", name) for name in names), strict=True))
    differing = [set(column) for column in numbers if len(set(column)) > 1]
    if len(differing) != 1 or len(differing[0]) < len(names):
        return False
    spans = sorted((_begin(trace), _end(trace)) for trace in traces)
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def _begin(trace: Trace) -> int:
    return int(trace.column("start").min())


def _end(trace: Trace) -> int:
    return int((trace.column("start") + trace.column("duration")).max())


def _names(traces: Sequence[Trace]) -> str:
    names = [Path(recording_of(trace).path).name for trace in traces]
    more = f" and {len(names) - _TOLD_OF_FILES} more" if len(names) > _TOLD_OF_FILES else ""
    return ", ".join(names[:_TOLD_OF_FILES]) + more


_OWN = KINETO_CATEGORIES | VENDOR_CATEGORIES
_CLEAR = 2 / 3  # of the launches
_DIGITS = "0123456789"
_MOST_RANKS = 1 << 31
_Members: TypeAlias = "dict[str, msgspec.Raw]"
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def split_ranks(path: Path, trace: Trace) -> list[Trace]:
    """Return the ranks of a trace whose operators are of several processes; else the trace alone.

    Scripts that merge ranks add a rank to the arguments of events, or make process ids different:
    by a text around them, such as ``[TP01] 83``, or by numbers. Device work belongs to the process
    of the same text, or to the one whose calls launched two thirds of it. Ranks are the stated
    ones, else the order of the texts or process ids.

    - Returns list of Trace: In order of rank. The trace alone if some device work belongs to no
      process.
    """
    if not (trace.issues["code"] == MERGED).any():
        return [trace]
    found = sniff(path)
    raw = read_file(path) if found is None else found.events_of(read_file(path))
    header, events = _members(raw)
    rank_of = _rank_of_processes(events)
    parts: dict[int, list[msgspec.Raw]] = defaultdict(list)
    for event in events:
        rank = event.rank
        rank = rank_of.get(event.process, -1) if rank is None else rank
        if rank < 0 and _OWN.get(event.category) in DEVICE_WORK:
            return [trace]
        parts[rank].append(event.written)
    parts.pop(-1, None)
    if len(parts) < 2:
        return [trace]
    ranks = [_decoded(raw, header, parts[rank], rank, len(parts)) for rank in sorted(parts)]
    ranks = [replace(one, provenance=trace.provenance) for one in ranks]
    if found is not None and found.events:  # what another tool's file lacks, its reader knows alone
        known = trace.issues.filter(trace.issues["code"] != MERGED)
        ranks[0] = replace(ranks[0], issues=known)
    return ranks


class _Event(NamedTuple):
    """What of an event tells its rank; -1, NaN and None where it states none."""

    category: str
    process: int | str | None
    time: float
    correlation: int
    rank: int | None
    written: msgspec.Raw


def _members(raw: RawFile) -> tuple[_Members, list[_Event]]:
    """Return a file's other members, and its events; values stay as they are written."""
    content = raw.content.tobytes()
    if content.lstrip()[:1] == b"[":
        header, listed = {}, _list_decoder.decode(content)
    else:
        header = _members_decoder.decode(content)
        listed = _list_decoder.decode(header.pop("traceEvents"))
    return header, [_event(one) for one in listed if bytes(one).lstrip()[:1] == b"{"]


def _event(written: msgspec.Raw) -> _Event:
    members = _members_decoder.decode(written)
    args = members.get("args", msgspec.Raw(b"{}"))
    stated = _members_decoder.decode(args) if bytes(args).lstrip()[:1] == b"{" else {}
    category, process, time = (_value(members, key) for key in ("cat", "pid", "ts"))
    rank, correlation = _value(stated, "rank"), _value(stated, "correlation")
    return _Event(
        category if isinstance(category, str) else "",
        process if type(process) in (int, str) else None,
        time if type(time) in (int, float) else math.nan,
        correlation if type(correlation) is int and correlation > 0 else -1,
        rank if type(rank) is int and 0 <= rank < _MOST_RANKS else None,
        written,
    )


def _value(members: _Members, key: str) -> Any:
    """Return a number or a text; None for all else, and for what no number holds."""
    try:
        return msgspec.json.decode(members[key], type=int | float | str | None)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _decoded(
    raw: RawFile, header: _Members, events: list[msgspec.Raw], rank: int, size: int
) -> Trace:
    content = msgspec.json.encode({**header, "traceEvents": events})
    trace = decode(raw.with_content(content))
    return replace(trace, rank=rank, world_size=max(trace.world_size, size))


def _rank_of_processes(events: Sequence[_Event]) -> dict[int | str | None, int]:
    """Return the rank of each process id, of hosts and of devices.

    Empty if a host's event states none.
    """
    hosts = {event.process for event in events if _OWN.get(event.category) == "operator"}
    if None in hosts:
        return {}
    texts = {host: _text_around(host) for host in hosts}
    if None not in texts.values() and len(set(texts.values())) == len(hosts):
        order = {text: rank for rank, text in enumerate(sorted(map(str, texts.values())))}
        pids = {event.process for event in events}
        return {pid: order[text] for pid in pids if (text := _text_around(pid)) in order}
    ordered = sorted(hosts, key=lambda pid: (isinstance(pid, str), pid))
    rank_of = {pid: rank for rank, pid in enumerate(ordered)}
    for pid, counts in _launches(events, hosts).items():
        most, times = counts.most_common(1)[0]
        if times > _CLEAR * counts.total():
            rank_of[pid] = rank_of[most]
    return rank_of


def _launches(
    events: Sequence[_Event], hosts: set[int | str | None]
) -> dict[int | str | None, Counter[int | str | None]]:
    """Count which host launched the work of each device.

    Correlation ids are of a process, and may be equal in several: the launch is the last before.
    """
    callers: dict[int, list[tuple[float, int | str | None]]] = defaultdict(list)
    work = []
    for event in events:
        if event.correlation < 0:
            continue
        if event.process in hosts:
            callers[event.correlation].append((event.time, event.process))
        elif _OWN.get(event.category) in DEVICE_WORK:
            work.append(event)
    launched: dict[int | str | None, Counter[int | str | None]] = defaultdict(Counter)
    for one in work:
        before = [call for call in callers[one.correlation] if call[0] <= one.time]
        if before:
            launched[one.process][max(before, key=lambda call: call[0])[1]] += 1
    return launched


def _text_around(pid: int | str | None) -> str | None:
    """Return a process id without its last number, if it is a text with more than that."""
    if not isinstance(pid, str):
        return None
    end = max(map(pid.rfind, _DIGITS)) + 1
    return (pid[:end].rstrip(_DIGITS) + pid[end:]).strip() or None


_Progress = Callable[[str], None]
_TOLD = 8  # reasons
_IN_MEMORY = 1 << 31  # bytes of content: attributes of larger jobs stay in their files
_Told = TypeVar("_Told")


class ReadRank(NamedTuple):
    """The traces of one rank as read: ``host`` is None if there is a device trace alone."""

    host: Trace | None
    device: Trace


class Reading(TypedDict, total=False):
    """How files of recordings become a job; as in :func:`load_job`."""

    force: bool
    capture: Path | str
    executor: Executor | None


def load_job(
    *paths: Path | str,
    force: bool = False,
    tensors: bool = False,
    capture: Path | str = "",
    executor: Executor | None = None,
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
    executor
        Any Executor of the standard library's kind, such as that of a Dask cluster or of MPI, whose
        workers see the same files: each reads and links ranks, and gives back their tables. By
        default ranks are read here, one after the other. A rank whose file cannot be read is
        left out, and named in the job's issues.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, or the files do not belong together.
    """
    return load_ranks(
        *paths, work=None, force=force, tensors=tensors, capture=capture, executor=executor,
        progress=progress,
    )[0]  # fmt: skip


def load_ranks(
    *paths: Path | str,
    work: Callable[[Trace], _Told] | None,
    force: bool = False,
    tensors: bool = False,
    capture: Path | str = "",
    executor: Executor | None = None,
    progress: _Progress = lambda _: None,
) -> tuple[Job, list[_Told]]:
    """Read, pair and link the traces of a job, and do some work where each rank is linked.

    Parameters are those of :func:`load_job`, and ``work``, a function of a module: it takes the
    linked trace of a rank with all of its attributes.

    - Returns job: Attributes of its traces stay in the files, and are read again when asked for, if
      an executor is given or the files are large.
    - and list: What the work gave for each trace of the job; empty if attributes are in memory, or
      ranks could not be told apart before they were read.
    """
    files = find_files(list(paths), capture)
    tasks = rank_tasks(files, executor, force=force, tensors=tensors)
    stay = executor is None and sum(map(content_of, files.traces)) < _IN_MEMORY
    done, log = _linked_ranks(tasks, work, executor, progress, stay=stay), IssueLog()
    unread = {place: one for place, one in done.items() if isinstance(one, InputError)}
    ranks = [one for _, one in sorted(done.items()) if not isinstance(one, InputError)]
    if not ranks or any(MERGED in one.trace.issues["code"].to_list() for one in ranks):
        job, _ = _read_together(files, force=force, tensors=tensors, progress=progress)
        return job, []
    log.add(
        "job.ranks-unread", "warning", len(unread),
        "ranks are left out, as a file of each cannot be read: "
        + "; ".join(f"rank {tasks[place].rank}: {one.where}: {one.what}"
                    for place, one in sorted(unread.items())[:_TOLD_OF_FILES]),
        "copy or record these files again; all answers are of the other ranks",
    )  # fmt: skip
    observed = [one.trace for one in ranks if one.is_observed]
    job = _job_of([one.trace for one in ranks], observed, files, log.table())
    return job, [] if stay or work is None else [one.told for one in ranks]


class _LinkedRank(NamedTuple):
    """A linked rank, what was worked out beside, and whether both recorders ran at once."""

    trace: Trace
    told: Any
    is_observed: bool

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process without columns that have no values."""
        return _unpacked, (self.trace.packed(), self.told, self.is_observed)


def _unpacked(trace: PackedTrace, told: Any, is_observed: bool) -> _LinkedRank:
    return _LinkedRank(trace.trace(), told, is_observed)


def _linked_ranks(
    tasks: Sequence[RankTask], work: Callable[[Trace], Any] | None, executor: Executor | None,
    progress: _Progress, *, stay: bool,
) -> dict[int, _LinkedRank | InputError]:  # fmt: skip
    """Link ranks, by their places; an error is that of a file which cannot be read."""
    linked = partial(_linked_rank, work=work, stay=stay)
    if executor is None:
        linked = partial(linked, progress=progress)
    done = {}
    for place, one in run_tasks(linked, tasks, executor):
        done[place] = one
        if executor is not None:
            progress(f"linked {len(done)} of {len(tasks)} ranks")
    return done


def _linked_rank(
    task: RankTask, work: Callable[[Trace], Any] | None, *, stay: bool,
    progress: _Progress = lambda _: None,
) -> _LinkedRank | InputError:  # fmt: skip
    try:
        trace = link_rank(task, progress)
    except PairError:  # the files are whole, and the job is not one
        raise
    except InputError as error:
        return error
    is_observed = len(task.sources) > 1 and _ran_at_once(trace)
    if stay:
        return _LinkedRank(trace, None, is_observed)
    told = None if work is None else work(trace)
    alone = without_files(trace, task._replace(tensors=False)).compact()
    return _LinkedRank(alone, told, is_observed)


def _ran_at_once(trace: Trace) -> bool:
    """Tell whether the observer and the profiler recorded the same steps, if there are both."""
    return not (trace.step_lengths and trace.step_lengths.host_is_later)


def _job_of(
    linked: Sequence[Trace], observed: Sequence[Trace], files: TraceFiles, left_out: pl.DataFrame
) -> Job:
    job = link_job(linked)
    cost = recording_cost(job, observed)
    return replace(job, issues=pl.concat([job.issues, cost, files.issues, left_out]))


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
    files = find_files(list(paths), capture)
    return _read_together(files, force=force, tensors=tensors, progress=progress)


def _read_together(
    files: TraceFiles, *, force: bool, tensors: bool, progress: _Progress
) -> tuple[Job, list[ReadRank]]:
    hosts = read_all(files.hosts, progress)
    devices, left_out = _read_devices(files, progress)
    progress("linking hosts and devices")
    linked, as_read, observed = [], [], []
    for host, device, rank in pair_recordings(
        [recording_of(trace) for trace in hosts],
        [recording_of(trace) for trace in devices],
        force=force,
    ):
        trace = devices[device].changed(rank=rank)
        as_read.append(ReadRank(None if host < 0 else hosts[host], trace))
        linked.append(
            link_device(trace)
            if host < 0
            else link_pair(hosts[host], trace, force=force, tensors=tensors)
        )
        if host >= 0 and _ran_at_once(trace):
            observed.append(linked[-1])
    job = _job_of(linked, observed, files, left_out)
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
    devices, _ = _read_devices(find_files(list(paths), capture), progress)
    ranked = pair_recordings([], [recording_of(trace) for trace in devices])
    return [replace(devices[device], rank=rank) for _, device, rank in ranked]


def why_empty(trace: Trace) -> str:
    """Say what a trace without operations has instead; empty if it has operations."""
    if trace.nodes.height:
        return ""
    kept = trace.issues.filter(severity="warning")
    reasons = [f"{count:,} {detail}" for count, detail in kept.select("count", "detail").rows()]
    return ": ".join(filter(None, ["no operations", ", ".join(reasons[:_TOLD])]))


def _read_devices(files: TraceFiles, progress: _Progress) -> tuple[list[Trace], pl.DataFrame]:
    """Read one device trace of each rank, with the operators of graphs; and what was left out.

    A file into which ranks were merged becomes as many.
    """
    read_traces = read_all(files.devices, progress)
    traces = [rank for file, trace in zip(files.devices, read_traces, strict=True)
              for rank in split_ranks(file, trace)]  # fmt: skip
    devices, left_out = one_per_rank(traces)
    return join_traces(devices, files, progress=progress), left_out


def are_two_recordings(first: Path | str, second: Path | str) -> bool:
    """Return whether each path is a recording by itself, with a device trace of the same rank.

    Ranks are those that the traces state. Where one states none, two files are one recording if
    their names differ in numbers only, such as ``device_0.json`` and ``device_1.json``, and two
    folders if their names have a rank, such as ``rank_0`` and ``rank_1``. A host and a device
    trace are one recording, and so are a trace and the capture of its graphs.

    - Raises InputError if a path does not exist, or has no trace.
    """
    places = locate(first), locate(second)
    if is_capture(places[0]) != is_capture(places[1]):
        return False
    devices = [list_files([place]).devices for place in places]
    if not all(devices):
        return False
    sides = [[peek(file) for file in files] for files in devices]
    if all(one.rank >= 0 for side in sides for one in side):
        ranks = [{one.rank for one in side} for side in sides]
        return bool(ranks[0] & ranks[1])
    if all(place.is_dir() for place in places):
        return not all(RANK_IN_NAME.search(place.name) for place in places)
    names = {place.name for place in places}
    alike = {re.sub(r"\d+", "0", name) for name in names}
    return len(names) == 1 or len(alike) == 2
