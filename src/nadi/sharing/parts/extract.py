"""Take a part out of a job, and write it as files of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.files.csv_tables import encode_table
from nadi.files.files import check_target, locate, write_pieces
from nadi.files.registry import format_named
from nadi.files.trace_files import write
from nadi.files.whole_folders import whole_folder
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.event_graph import EventGraph
from nadi.recordings.discover import list_files
from nadi.recordings.job_of_files import ReadRank, load_recordings, why_empty
from nadi.recordings.jobs import read_job
from nadi.recordings.join_ranks import link_job
from nadi.sharing.parts.boundary import boundary_tensors, boundary_waits, cut_collectives, cut_graph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import summed_issues
from nadi.trace.schema import PART, PART_TENSORS
from nadi.trace.trace import Job, Trace
from nadi.units import format_count
from nadi.whatif.parts import PartOf, part_operations
from nadi.whatif.sub_traces import (
    part_of_device,
    part_of_host,
    part_rows,
    renumbered,
    sub_trace,
    with_values,
)

_Progress = Callable[[str], None]
_CHAKRA = "chakra"
_WANTED = "a host and a device trace per rank, device traces alone, or linked traces with times"


class Conditions(TypedDict, total=False):
    """What a part consists of, as :class:`nadi.whatif.PartOf` takes it."""

    module: str
    step: str | int
    window: str
    ranks: str
    under: str


@dataclass(frozen=True)
class Extraction:
    """A part that was taken out of a job.

    Attributes
    ----------
    part_of
        What it consists of.
    ranks
        Its ranks, with the numbers that they have in the whole.
    num_operations, num_all
        Operations of the part, and of the whole.
    start_ns, end_ns
        When its first operation starts and its last ends, since the first of the whole.
    waits, tensors
        What crosses the border: ``schema.WAITS`` and ``PART_TENSORS``.
    num_cut_collectives
        Collectives and messages with members outside: how long the part's members wait for these
        is recorded.
    files
        What was written.
    issues
        ``schema.ISSUES``: met while reading, and what the formats cannot hold.
    """

    part_of: PartOf
    ranks: tuple[int, ...]
    num_operations: int
    num_all: int
    start_ns: int
    end_ns: int
    waits: pl.DataFrame
    tensors: pl.DataFrame
    num_cut_collectives: int
    files: tuple[Path, ...]
    issues: pl.DataFrame


class _Whole(NamedTuple):
    """A job; ``as_read`` are its recordings, empty for linked traces; ``format`` that of these."""

    job: Job
    as_read: list[ReadRank]
    format: str


class _Member(NamedTuple):
    """The part of one rank: its traces by file name, and what the files call its nodes."""

    number: int
    kept: Bools
    names: Ints


def extract(
    *paths: Path | str,
    output: Path | str,
    force: bool = False,
    overwrite: bool = False,
    progress: _Progress = lambda _: None,
    **conditions: Unpack[Conditions],
) -> Extraction:
    """Extract a part of a job as traces of their own, and state what they wait for.

    An operation is in the part if it meets every condition that is given. Times stay as in the
    whole. Recordings are written as recordings, a host and a device trace for each rank; linked
    traces in the format that they came in. Beside them, ``waits.csv`` and ``tensors.csv`` state
    what crosses the border.

    Parameters
    ----------
    paths
        Recordings, as :func:`nadi.load_job` takes them; or a folder of linked traces, or one, such
        as ``nadi link`` writes.
    output
        A folder.
    force
        As in :func:`nadi.load_job`.
    overwrite
        Whether to replace existing files.
    progress
        Called with a line of text before each longer stage.
    conditions
        ``module``, ``step``, ``window``, ``ranks``, ``under``, as of
        :class:`nadi.whatif.PartOf`; none for everything.

    Raises
    ------
    InputError
        If a file cannot be read or written or exists already, or no operation has a time.
    UsageError
        If a condition is invalid or nothing meets all of them.
    """
    part_of = PartOf(**{name: str(value) for name, value in conditions.items()})
    whole = _read(paths, progress, force=force)
    progress("building the event graph")
    graph = build_graph(whole.job)
    _check_times(graph, paths)
    progress("finding the part")
    chosen = part_operations(graph, part_of)
    members = _members(graph, chosen, whole)
    targets = _targets(whole, members, locate(output))
    for target in targets:
        check_target(target, list_files(paths).traces, overwrite=overwrite)
    with whole_folder(locate(output), overwrite=overwrite) as inside:
        places = [inside / target.name for target in targets]
        done = _written(whole, graph, chosen, members, part_of, places, progress)
    return replace(done, files=tuple(targets))


def _check_times(graph: EventGraph, paths: Sequence[Path | str]) -> None:
    """Raise InputError unless operations have timestamps."""
    untimed = int((graph.numbers("start") < 0).sum())
    if graph.num_ops and not untimed:
        return
    reasons = dict.fromkeys(why for why in map(why_empty, graph.job.traces) if ":" in why)
    what = "no operation has a timestamp"
    if graph.num_ops:
        counts = f"{format_count(untimed)} of {format_count(graph.num_ops)}"
        what = f"{counts} operations have no timestamp"
    raise InputError(
        ", ".join(map(str, paths)), "; ".join([what, *reasons]),
        "give recordings, or traces that nadi link made of some",
    )  # fmt: skip


def _read(paths: Sequence[Path | str], progress: _Progress, *, force: bool) -> _Whole:
    found = list_files(paths, _WANTED)
    if found.hosts or found.devices:
        job, as_read = load_recordings(*paths, force=force, progress=progress)
        return _Whole(job, as_read, "")
    if len(paths) > 1:
        raise InputError(
            ", ".join(map(str, paths)), "linked traces are given as one folder", "give the folder"
        )
    job_or_traces = read_job(paths[0], progress)
    traces = list(job_or_traces.traces if isinstance(job_or_traces, Job) else job_or_traces)
    traces = [
        trace if trace.rank >= 0 else replace(trace, rank=number)
        for number, trace in enumerate(traces)
    ]
    is_chakra = found.others[0].name.removesuffix(".gz").endswith(".et")
    return _Whole(link_job(traces), [], _CHAKRA if is_chakra else "nadi")


def _members(graph: EventGraph, chosen: Bools, whole: _Whole) -> list[_Member]:
    """Return the ranks that have operations in the part."""
    members = []
    for number, trace in enumerate(graph.job.traces):
        mine = graph.op_trace == number
        if not chosen[mine].any():
            continue
        kept = part_rows(trace, graph.op_row[mine], chosen[mine])
        names = trace.column("id").copy()
        if whole.as_read:  # device traces number their events
            event = trace.column("event")
            known = kept & (event >= 0)
            names = np.full(kept.size, -1, dtype=np.int64)
            names[known] = np.argsort(np.argsort(event[known]))
        members.append(_Member(number, kept, names))
    return members


def _targets(whole: _Whole, members: list[_Member], folder: Path) -> list[Path]:
    """Return the files to write, in order of rank, the tables last."""
    names = []
    for position, member in enumerate(members):
        rank = whole.job.ranks[member.number]
        if not whole.as_read:
            shown = position if whole.format == _CHAKRA else rank
            names.append(f"rank{shown}{format_named(whole.format).suffixes[0]}")
            continue
        if whole.as_read[member.number].host is not None:
            names.append(f"host_{rank}.json.gz")
        names.append(f"device_{rank}.json.gz")
    return [folder / name for name in (*names, "waits.csv", "tensors.csv")]


def _written(
    whole: _Whole,
    graph: EventGraph,
    chosen: Bools,
    members: list[_Member],
    part_of: PartOf,
    targets: list[Path],
    progress: _Progress,
) -> Extraction:
    progress("finding what crosses the border")
    job = graph.job
    cut = cut_graph(graph, chosen)
    nowhere = [np.full(trace.nodes.height, -1, dtype=np.int64) for trace in job.traces]
    for member in members:
        nowhere[member.number] = member.names
    waits = boundary_waits(graph, cut, nowhere)
    tensors = pl.concat([
        PART_TENSORS.empty(),
        *(boundary_tensors(job.traces[one.number], one.kept, one.names) for one in members),
    ])  # fmt: skip
    issues = [job.issues, *(trace.issues for trace in job.traces)]
    files = iter(targets)
    ranks = tuple(job.ranks[member.number] for member in members)
    for member, rank in zip(members, ranks, strict=True):
        own = (waits.filter(rank=rank), tensors.filter(rank=rank))
        for trace, name in _traces(whole, member, part_of, own, ranks):
            target = next(files)
            progress(f"writing {target.name}")
            issues.append(write(trace, target, to=name))
    for table, target in zip((waits, tensors), files, strict=True):
        write_pieces(target, [encode_table(table)])
    starts, ends = graph.time[0 : 2 * graph.num_ops : 2], graph.time[1 : 2 * graph.num_ops : 2]
    return Extraction(
        part_of=part_of,
        ranks=ranks,
        num_operations=int(chosen.sum()),
        num_all=graph.num_ops,
        start_ns=int(starts[chosen].min()),
        end_ns=int(ends[chosen].max()),
        waits=waits,
        tensors=tensors,
        num_cut_collectives=cut_collectives(graph, chosen),
        files=tuple(targets),
        issues=summed_issues(issues),
    )


def _traces(
    whole: _Whole,
    member: _Member,
    part_of: PartOf,
    border: tuple[pl.DataFrame, pl.DataFrame],
    ranks: tuple[int, ...],
) -> list[tuple[Trace, str]]:
    """Return the traces of one rank, each with the name of its format."""
    linked, kept = whole.job.traces[member.number], member.kept
    shrinks = len(ranks) < len(whole.job.traces)
    size = len(ranks) if shrinks else linked.world_size
    stated = {
        "part_of": str(part_of),
        "ranks": list(ranks),
        "nodes_by": "event" if whole.as_read else "id",
        "waits": border[0].drop("rank").to_dict(as_series=False),
        "tensors": border[1].drop("rank").to_dict(as_series=False),
    }
    if not whole.as_read:
        part = replace(sub_trace(linked, kept), world_size=size)
        if whole.format == _CHAKRA:  # which has no field for JSON
            text = msgspec.json.encode(stated).decode()
            part = with_values(part, {PART: ("string", text)})
            return [(renumbered(part, ranks) if shrinks else part, whole.format)]
        return [(with_values(part, {PART: ("json", stated)}), whole.format)]
    values = {PART: ("json", stated)}
    host, device = whole.as_read[member.number]
    on_device = np.flatnonzero(kept & (linked.column("event") >= 0))
    events, start = linked.column("event")[on_device], linked.column("start")[on_device]
    part = replace(part_of_device(device, events, start), world_size=size)
    if shrinks:
        part = replace(part, groups=linked.groups)
    traces = [(with_values(part, values), "kineto")]
    if host is None:
        return traces
    ids = linked.column("id")
    timed = linked.column("start") >= 0
    return [(part_of_host(host, ids[kept], ids[timed]), "linked-json"), *traces]
