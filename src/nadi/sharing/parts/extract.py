"""Take a part out of a job, and write it as files of the same kind.

What crosses the border of a part: waits for operations outside, and tensors.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.files.csv_tables import encode_table
from nadi.files.files import check_target, locate, write_pieces
from nadi.files.registry import format_named
from nadi.files.trace_files import write
from nadi.files.whole_folders import listed_files, whole_folder
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.recordings.discover import list_files
from nadi.recordings.job_of_files import ReadRank, load_recordings, why_empty
from nadi.recordings.jobs import read_job
from nadi.recordings.join_ranks import link_job
from nadi.sharing.obfuscation.fidelity import network_of
from nadi.simulation.accounts.simulation_as_recording import simulated_job
from nadi.simulation.engine_driver import simulate_job
from nadi.systems.prices.priced_traces import price_job
from nadi.trace.arrays import Bools, Ints, Ints32
from nadi.trace.issues import summed_issues
from nadi.trace.schema import PART, PART_TENSORS, WAITS
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
_OF_RANK = re.compile(r"(?:rank|host_|device_)\d+\.[\w.]+")
_STAND_IN = 25.0, 2000.0  # GB/s and ns of a switch
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
        When its first operation starts and its last ends, since the first of the whole; -1 in a
        job that was never run, such as a generated one.
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

    @property
    def has_times(self) -> bool:
        """Whether any operation has a timestamp, or there is none that could be run."""
        traces = self.job.traces
        return bool(self.as_read) or not any(one.nodes.height for one in traces) or any(
            (one.column("start") >= 0).any() for one in traces
        )  # fmt: skip


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
    graph = build_graph(whole.job if whole.has_times else _with_stand_in_times(whole.job, part_of))
    _check_times(graph, paths)
    progress("finding the part")
    chosen = part_operations(graph, part_of)
    members = _members(graph, chosen, whole)
    folder = locate(output)
    targets = _targets(whole, members, folder)
    # ranks of an earlier part would be read as ranks of this one
    listed = [folder / name for name in listed_files(folder) if _OF_RANK.fullmatch(name)]
    earlier = [path for path in listed if path not in targets]
    for target in (*targets, *earlier):
        check_target(target, list_files(paths).traces, overwrite=overwrite)
    with whole_folder(folder, overwrite=overwrite, instead_of=earlier) as inside:
        places = [inside / target.name for target in targets]
        done = _written(whole, graph, chosen, members, part_of, places, progress)
    return replace(done, files=tuple(targets))


def _with_stand_in_times(job: Job, part_of: PartOf) -> Job:
    """Return a job that was never run with times of a switch, so that its parts can be found.

    Nothing of these times is written. Rows stay as they are.
    """
    if part_of.window:
        raise UsageError(
            Parameter("window", part_of.window), "no operation of the job has a timestamp",
            "simulate the job, or name the part otherwise",
        )  # fmt: skip
    system = network_of(len(job.traces), *_STAND_IN)
    return simulated_job(simulate_job(price_job(job, system)[0], system))


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
    if not whole.has_times:
        waits = pl.concat([
            WAITS.empty(), *(_stated_waits(job.ranks[one.number], job.traces[one.number], one)
                             for one in members),
        ])  # fmt: skip
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
        start_ns=int(starts[chosen].min()) if whole.has_times else -1,
        end_ns=int(ends[chosen].max()) if whole.has_times else -1,
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


@dataclass(frozen=True, eq=False)
class Half:
    """Some operations of a graph, and the moments of the others that they wait for.

    Attributes
    ----------
    graph
        Their graph. Its last ``num_given`` vertices are moments outside, which nothing determines
        but their delay: they are given. Edges from them are those of the whole graph.
    vertices
        int64, shape (vertices,): the vertex of the whole graph that each vertex is.
    num_given
        Number of given moments.
    """

    graph: EventGraph
    vertices: Ints
    num_given: int

    @property
    def own(self) -> Ints:
        """The vertices of the whole graph that this half determines; int64."""
        return self.vertices[: self.vertices.size - self.num_given]

    @property
    def given(self) -> Ints:
        """The vertices of the whole graph that are given to this half; int64."""
        return self.vertices[self.vertices.size - self.num_given :]

    def replay(self, time: Ints) -> Replay:
        """Replay this half alone.

        Parameters
        ----------
        time
            int64 ns, shape (vertices of the whole graph,): only those of ``given`` are used.

        Returns
        -------
        Replay
            ``time[:own.size]`` are the times of ``own``. O(vertices + edges).
        """
        delay = self.graph.delay.copy()
        delay[self.own.size :] = time[self.given]
        return replay_graph(replace(self.graph, delay=delay))


class Cut(NamedTuple):
    """A graph in two halves, and its border.

    Attributes
    ----------
    part, rest
        The chosen operations, and the others. The hub of a collective belongs to the part if
        all of its members do.
    border
        int64: the edges of the whole graph that enter the part from the rest.
    """

    part: Half
    rest: Half
    border: Ints


@checked
def cut_graph(graph: EventGraph, chosen: Bools) -> Cut:
    """Cut a graph in two. O(vertices + edges).

    Each vertex is in one half. Replaying a half with the times of the whole gives the times of
    the whole, to the nanosecond: a vertex has the same incoming edges and the same delay. If
    weights change, halves that hand each other their times until these stay the same give the
    times of the changed whole, because those are the only ones that fit all edges.

    Parameters
    ----------
    chosen
        bool, shape (ops,): the operations of the part.
    """
    inside = np.zeros(graph.num_vertices, dtype=np.bool_)
    inside[0 : 2 * graph.num_ops : 2] = inside[1 : 2 * graph.num_ops : 2] = chosen
    destinations = graph.destinations
    inside[2 * graph.num_ops :] = _hubs_inside(graph, chosen, destinations)
    enters = inside[destinations] & ~inside[graph.in_src]
    return Cut(
        _half(graph, chosen, inside, destinations),
        _half(graph, ~chosen, ~inside, destinations),
        np.flatnonzero(enters),
    )


def _hubs_inside(graph: EventGraph, chosen: Bools, destinations: Ints32) -> Bools:
    """Return the hubs of which all members are chosen; bool, shape (hubs,)."""
    first, count = 2 * graph.num_ops, graph.num_vertices - 2 * graph.num_ops
    members, outside = np.zeros((2, count), dtype=np.int64)
    for hub, other in ((destinations, graph.in_src), (graph.in_src, destinations)):
        at = np.flatnonzero((hub >= first) & (other < first))
        np.add.at(members, hub[at] - first, 1)
        np.add.at(outside, hub[at] - first, ~chosen[other[at] // 2])
    found: Bools = (members > 0) & (outside == 0)
    return found


def _half(graph: EventGraph, chosen: Bools, inside: Bools, destinations: Ints32) -> Half:
    own = np.flatnonzero(inside)
    mine = np.flatnonzero(inside[destinations])
    src = graph.in_src[mine]
    given = np.unique(src[~inside[src]])
    number = np.full(graph.num_vertices, -1, dtype=np.int64)
    number[own] = np.arange(own.size)
    number[given] = own.size + np.arange(given.size)
    op = np.append(np.where(chosen, np.cumsum(chosen) - 1, -1), -1)
    kinds = graph.edge_kind[mine].astype(np.int64)
    edges = Edges(
        number[src], number[destinations[mine]], graph.weight[mine], kinds,
        op[graph.edge_op[mine]],
    )  # fmt: skip
    made = graph.of_operations(chosen, own).with_edges(edges, given.size)
    time, delay = made.time.copy(), made.delay.copy()
    time[own.size :] = delay[own.size :] = graph.time[given]
    return Half(replace(made, time=time, delay=delay), np.concatenate([own, given]), given.size)


def boundary_waits(graph: EventGraph, cut: Cut, nodes: Sequence[Ints]) -> pl.DataFrame:
    """Return what operations of a part wait for outside, a row per dependency.

    - ``graph``: The whole.
    - ``cut``: Its cut.
    - ``nodes``: For each rank, int64, shape (nodes of the whole,): what the part calls each node.
    - Returns: ``schema.WAITS``: ``moment`` (``start`` or ``end``) of ``node`` is no sooner than
      ``after_ns`` after ``at_ns`` (since the epoch). ``waits_for`` is an operation of ``of_rank``;
      for a collective of which members are outside, it is empty, and the rank -1.
    """
    dst, src = graph.destinations[cut.border], graph.in_src[cut.border]
    is_hub = dst >= 2 * graph.num_ops  # never: a hub inside has no member outside
    dst, src, border = dst[~is_hub], src[~is_hub], cut.border[~is_hub]
    op, outside = dst // 2, np.where(src < 2 * graph.num_ops, src // 2, -1)
    ranks = np.array(graph.job.ranks)
    row = np.empty(op.size, dtype=np.int64)
    for number, new_row in enumerate(nodes):
        mine = graph.op_trace[op] == number
        row[mine] = new_row[graph.op_row[op[mine]]]
    kinds = np.array([kind.name.lower() for kind in EdgeKind])
    columns = {
        "rank": ranks[graph.op_trace[op]],
        "node": row,
        "name": graph.names(op),
        "moment": np.where(dst % 2 == 1, "end", "start").tolist(),
        "at_ns": graph.time[src] + graph.job.origin,
        "after_ns": graph.weight[border],
        "kind": kinds[graph.edge_kind[border]].tolist(),
        "waits_for": graph.names(outside, outside < 0),
        "of_rank": np.where(outside >= 0, ranks[graph.op_trace[outside]], -1),
    }
    return WAITS.build(op.size, columns).sort("rank", "node", "moment", maintain_order=True)


def _stated_waits(rank: int, trace: Trace, member: _Member) -> pl.DataFrame:
    """Return what operations of a part wait for outside in a job that was never run."""
    src, dst = trace.deps["src"].to_numpy(), trace.deps["dst"].to_numpy()
    enters = member.kept[dst] & ~member.kept[src]
    src, dst = src[enters], dst[enters]
    names = trace.nodes["name"].cast(pl.String)
    columns = {
        "rank": rank, "node": member.names[dst], "name": names.gather(dst), "moment": "start",
        "at_ns": -1, "after_ns": 0, "kind": trace.deps["kind"].cast(pl.String).filter(enters),
        "waits_for": names.gather(src), "of_rank": rank,
    }  # fmt: skip
    return WAITS.build(src.size, columns).sort("node", "waits_for", maintain_order=True)


def cut_collectives(graph: EventGraph, chosen: Bools) -> int:
    """Return how many collectives and messages have members in the part and members outside."""
    first = 2 * graph.num_ops
    of_member = graph.edge_op >= 0
    enters, leaves = of_member & (graph.destinations >= first), of_member & (graph.in_src >= first)
    hubs = np.concatenate([graph.destinations[enters], graph.in_src[leaves]])
    inside = chosen[np.concatenate([graph.edge_op[enters], graph.edge_op[leaves]])]
    return int(np.intersect1d(hubs[inside], hubs[~inside]).size)


def boundary_tensors(trace: Trace, kept: Bools, nodes: Ints) -> pl.DataFrame:
    """Return the tensors that a part gets from outside, and those that it leaves there.

    Of operations in order of row: a storage comes from outside if the first operation of the part
    that has it reads it; it is left there if the part has it as an output, and the next operation
    outside that has it reads it. O(operands).

    - ``trace``: The whole rank, linked.
    - ``kept``: bool, shape (nodes,): the rows of the part.
    - ``nodes``: int64, shape (nodes,): what the part calls each node.
    - Returns: ``schema.PART_TENSORS``: ``node`` reads the tensor first, or has it as an output
      last; ``outside`` is the operation that had it as an output before, or reads it next.
    """
    timed = (trace.column("start") >= 0) & trace.nodes["is_cpu"].to_numpy()
    uses = trace.operands.lazy().filter(pl.col("tensor") >= 0).select("node", "is_output", "tensor")
    tensors = trace.tensors.lazy().with_row_index("tensor").cast({"tensor": pl.Int64})
    known = pl.DataFrame({"inside": kept, "is_timed": timed, "name": trace.nodes["name"]})
    named = known.lazy().with_row_index("node").cast({"node": pl.Int64, "name": pl.String})
    uses = uses.join(named.filter("is_timed"), on="node").join(tensors, on="tensor")
    has_storage = pl.when(pl.col("storage_id") > 0).then("storage_id")
    uses = uses.with_columns(storage=has_storage.otherwise(-1 - pl.col("tensor_id"))).sort(
        "node", "is_output"
    )
    ours, theirs = uses.filter("inside"), uses.filter(~pl.col("inside"))
    first = ours.unique("storage", keep="first", maintain_order=True).filter(~pl.col("is_output"))
    last = ours.filter("is_output").unique("storage", keep="last", maintain_order=True)
    written = theirs.filter("is_output").select("storage", "node", outside="name")
    later = theirs.select("storage", "node", outside="name", reads=~pl.col("is_output"))
    given = first.sort("node").join_asof(
        written.sort("node"), on="node", by="storage", allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    left = last.sort("node").join_asof(
        later.sort("node", "reads", descending=[False, True]), on="node", by="storage",
        strategy="forward", allow_exact_matches=False, check_sortedness=False,
    ).filter("reads").drop("reads")  # fmt: skip
    found = pl.concat([
        given.with_columns(is_output=pl.lit(value=False)),
        left.with_columns(is_output=pl.lit(value=True)),
    ]).collect()  # fmt: skip
    columns = {
        "rank": trace.rank,
        **{name: found[name] for name in ("is_output", "storage_id", "tensor_id", "dtype",
                                          "shape", "device", "name")},
        "bytes": found["elements"] * found["itemsize"],
        "node": nodes[found["node"].to_numpy()],
        "outside": found["outside"].fill_null(""),
    }  # fmt: skip
    return PART_TENSORS.build(found.height, columns)
