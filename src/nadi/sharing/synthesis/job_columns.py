"""A job as columns: what each rank does, as a simulator sees it, with names that repeat."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError, checked
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.module_tree import NO_LAYER, layers_by_modules
from nadi.kernels.paths import edges_by_vertex, topological_order
from nadi.recordings.folded.folded_job import FoldedJob, unfold_job
from nadi.recordings.join_ranks import link_job
from nadi.sharing.obfuscation.private_job import learned_label
from nadi.sharing.obfuscation.renamed_traces import described_operations
from nadi.sharing.synthesis.storage_lives import StorageLives, lives_of_uses
from nadi.simulation.accounts.memory_accounts import storage_uses
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.simulation.workload.simulator_nodes import PlayedRank
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.schema import COMM_TYPES, GIVEN_DEPS, NODE_KINDS
from nadi.trace.trace import Job, Trace

SHAPE_SIZES = 4
"""Sizes of a product of matrices or an attention, as traces state them."""
_DEVICE = re.compile(r"(cpu|cuda|hip|xpu|mtia|meta)(:\d+)?")
_SENDS = NODE_KINDS.index("COMM_SEND")
_RECEIVES = NODE_KINDS.index("COMM_RECV")


class RankColumns(NamedTuple):
    """What one rank does; arrays of shape (operations,), int64 where nothing else is said.

    Attributes
    ----------
    label
        Position in ``JobColumns.labels``.
    kind, comm_type
        Positions in ``schema.NODE_KINDS`` and ``schema.COMM_TYPES``.
    is_cpu
        bool.
    thread, stream
        Numbers as the job states them; -1 for none.
    duration
        ns; -1 if it is not stated.
    flops, bytes, comm_bytes
        -1 if they are not stated.
    group
        Position in ``JobColumns.groups``; -1 for all ranks, and for what does not communicate.
    peer
        The rank that a message goes to or comes from; else -1.
    tag
        Of a message.
    op_class, dtype
        Positions in the classes and types that prices know; 0 for unknown.
    shape
        int64, shape (operations, 4): sizes of a product or an attention; -1 for unknown.
    step
        Number of the profiler's step; -1 before the first.
    layer
        As stated, or as modules are alike (:func:`nadi.graph.module_tree.layers_by_modules`); -1
        for none, -2 for what an optimizer does for the weights of any.
    src, dst
        int64, shape (dependencies,): rows that are waited for, and that wait; ``src < dst``.
    lives
        Storages, by the operations that make them and use them last.
    """

    label: Ints
    kind: Ints
    comm_type: Ints
    is_cpu: Bools
    thread: Ints
    stream: Ints
    duration: Ints
    flops: Ints
    bytes: Ints
    comm_bytes: Ints
    group: Ints
    peer: Ints
    tag: Ints
    op_class: Ints
    dtype: Ints
    shape: Ints
    step: Ints
    layer: Ints
    src: Ints
    dst: Ints
    lives: StorageLives

    @property
    def size(self) -> int:
        """Number of operations."""
        return self.label.size


class JobColumns(NamedTuple):
    """What the ranks of a job do.

    Attributes
    ----------
    ranks
        Of each rank; ranks that share a trace share an object.
    labels
        Names of operations, in which ``#`` stands for each number.
    groups
        The ranks of each process group, ascending.
    device
        Of storages, such as ``cuda:0``; empty if no tensors are stated.
    """

    ranks: tuple[RankColumns, ...]
    labels: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    device: str = ""

    @property
    def num_operations(self) -> int:
        """Number of operations of all ranks."""
        return sum(rank.size for rank in self.ranks)


class _Names:
    """Labels and groups of a job, each with one number."""

    def __init__(self) -> None:
        self.labels: dict[str, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.device = ""


@checked
def columns_of_job(job: Job | Sequence[Trace]) -> JobColumns:
    """Return what the ranks of a job do, recorded or made for a simulator.

    A recording is taken as ``nadi simulate`` takes it: operations of threads and devices with the
    times that are their own. O(nodes log nodes).

    Raises
    ------
    InputError
        If the job has no operations.
    NadiError
        If the recording cannot be converted.
    """
    ranks = played_ranks(job)
    names = _Names()
    known: dict[int, RankColumns] = {}
    found = []
    for rank, one in enumerate(ranks):
        trace = one.trace
        if id(trace) not in known:
            known[id(trace)] = _columns(one, names)
        found.append(known[id(trace)])
        if (found[-1].peer >= len(ranks)).any():
            raise InputError(
                f"rank {rank}", f"it sends to a rank beyond the {len(ranks)} of the job",
                "give the traces of all ranks",
            )  # fmt: skip
    columns = JobColumns(tuple(found), tuple(names.labels), tuple(names.groups), names.device)
    if not columns.num_operations:
        raise InputError("job", "it has no operations", "give a job that does something")
    return columns


class PlayedTrace(NamedTuple):
    """The trace of a rank as a simulator takes it."""

    trace: Trace
    recorded: PlayedRank | None  # what it comes from, if any
    # int64, shape (recorded nodes,): the layer of each, if modules say so
    layer: Ints | None = None


def played_ranks(job: Job | Sequence[Trace]) -> list[PlayedTrace]:
    """Return the trace of each rank as a simulator takes it, with its own groups."""
    if isinstance(job, FoldedJob):
        job = unfold_job(job)
    if isinstance(job, Job) and job.rank_groups is not None:
        return [PlayedTrace(job.own_trace(place), None) for place in range(len(job.traces))]
    traces, recorded = nodes_of_job(job, COLLECTIVES, at_once=True)
    if not recorded:
        return [PlayedTrace(trace, None) for trace in traces]
    layers = _layers_of_recording(job)
    return [PlayedTrace(one.trace, one, layers[rank]) for rank, one in enumerate(recorded)]


def _layers_of_recording(job: Job | Sequence[Trace]) -> list[Ints | None]:
    """Return the layer of each node of each rank, as modules state it; None where none do."""
    traces = job.traces if isinstance(job, Job) else job
    if not any(
        trace.nodes["name"].cast(pl.String).str.starts_with("nn.Module: ").any() for trace in traces
    ):
        return [None] * len(traces)
    graph = build_graph(job if isinstance(job, Job) else link_job(job))
    of_op = layers_by_modules(graph)
    found: list[Ints | None] = []
    for number, trace in enumerate(graph.job.traces):
        ops = np.flatnonzero(graph.op_trace == number)
        layer = np.full(trace.nodes.height, NO_LAYER, dtype=np.int64)
        if of_op is not None:
            layer[graph.op_row[ops]] = of_op[ops]
        found.append(layer)
    return found


def _columns(rank: PlayedTrace, names: _Names) -> RankColumns:
    trace = rank.trace
    nodes = trace.nodes
    kept = np.flatnonzero(nodes["kind"].cast(pl.String).to_numpy() != "METADATA")
    src, dst, order = _ordered(trace, kept)
    rows = kept[order]
    label, step = _labels(trace, rows, names)
    operations = stated_operations(trace)
    kind = _codes(nodes, "kind", NODE_KINDS)[rows]
    numbers = {
        name: trace.column(name)[rows]
        for name in (
            "thread", "stream", "duration", "flops", "bytes", "comm_bytes", "tag", "layer",
            "src", "dst", "group",
        )
    }  # fmt: skip
    if rank.recorded is not None and rank.layer is not None:
        numbers["layer"] = np.append(rank.layer, NO_LAYER)[rank.recorded.node[rows]]
    peer = np.where(kind == _SENDS, numbers.pop("dst"), -1)
    peer = np.where(kind == _RECEIVES, numbers.pop("src"), peer)
    group = _groups(trace, numbers.pop("group"), names)
    return RankColumns(
        label=label,
        kind=kind,
        comm_type=_codes(nodes, "comm_type", COMM_TYPES)[rows],
        is_cpu=nodes["is_cpu"].to_numpy()[rows],
        group=np.where(kind == NODE_KINDS.index("COMM_COLL"), group, -1),
        peer=peer,
        op_class=np.minimum(operations.op_class[rows], len(OP_CLASSES)),
        dtype=np.minimum(operations.dtype[rows], len(DTYPE_NAMES)),
        shape=operations.shape[rows],
        step=step,
        src=src,
        dst=dst,
        lives=_lives(rank, rows, names),
        **numbers,
    )


def lane_numbers(rank: RankColumns) -> Ints:
    """Return a number for each thread and stream; int64, shape (operations,)."""
    on_stream = rank.stream >= 0
    key = np.where(on_stream, 2 * rank.stream, 2 * np.maximum(rank.thread, -1) + 1)
    return np.unique(key, return_inverse=True)[1].reshape(-1)


def _lives(rank: PlayedTrace, rows: Ints, names: _Names) -> StorageLives:
    """Return the storages of a rank, by the operations in their order."""
    whole = rank.recorded.recorded if rank.recorded else rank.trace
    uses = storage_uses(whole)
    if uses is None:
        return StorageLives.none()
    weight = np.bincount(uses.device, weights=uses.size.astype(np.float64))
    main = int(weight.argmax())  # of host memory beside it nobody asks
    device = uses.devices[main]
    names.device = names.device or (device if _DEVICE.fullmatch(device) else "cpu")
    uses = uses.of_device(main)
    place = np.full(rank.trace.nodes.height + 1, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    if rank.recorded is None:
        return lives_of_uses(uses, place[:-1], place[:-1])
    return lives_of_uses(uses, place[rank.recorded.first], place[rank.recorded.last])


def _codes(nodes: pl.DataFrame, column: str, words: Sequence[str]) -> Ints:
    place = {word: number for number, word in enumerate(words)}
    texts = nodes[column].cast(pl.String)
    return texts.replace_strict(place, return_dtype=pl.Int64).to_numpy()


def _labels(trace: Trace, rows: Ints, names: _Names) -> tuple[Ints, Ints]:
    """Return the label of each operation, and the profiler's step in which it is."""
    described = described_operations(trace)[rows]
    known = described.unique(maintain_order=True)
    labels = [learned_label(*row) for row in known.iter_rows()]
    numbered = known.with_columns(
        label=pl.Series(
            [names.labels.setdefault(one, len(names.labels)) for one in labels], dtype=pl.Int64
        ),
        step=pl.col("name").str.extract(r"^ProfilerStep#(\d{1,9})$").cast(pl.Int64).fill_null(-1),
    )  # fmt: skip
    found = described.join(numbered, on=described.columns, how="left", maintain_order="left")
    return found["label"].to_numpy(), np.maximum.accumulate(found["step"].to_numpy())


def _groups(trace: Trace, group: Ints, names: _Names) -> Ints:
    """Return a number for each process group, by its ranks; -1 for all ranks."""
    of_row = [
        names.groups.setdefault(tuple(ranks), len(names.groups)) if ranks else -1
        for ranks in trace.groups["ranks"].to_list()
    ]
    return np.array([*of_row, -1], dtype=np.int64)[group]


def _ordered(trace: Trace, kept: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the stated dependencies among kept rows, and an order in which they point back.

    Work of a device stands right after what it waits for, whenever it was recorded: so the order
    is that of the program, and not that of how fast the host was.
    """
    number = np.full(trace.nodes.height, -1, dtype=np.int64)
    number[kept] = np.arange(kept.size)
    deps = trace.deps.filter(pl.col("kind").cast(pl.String).is_in(GIVEN_DEPS))
    src, dst = number[deps["src"].to_numpy()], number[deps["dst"].to_numpy()]
    inside = (src >= 0) & (dst >= 0)
    src, dst = src[inside], dst[inside]
    place = np.arange(kept.size)
    if (src >= dst).any():
        begins, sources, _ = edges_by_vertex(src, dst, kept.size)
        forward = np.empty(kept.size, dtype=np.int32)
        if topological_order(begins, sources, forward) >= 0:
            raise InputError(
                f"rank {trace.rank}", "its dependencies form a cycle", "correct the trace"
            )
        place[forward] = np.arange(kept.size)
    place = _after_causes(trace, kept, src, dst, place)
    order = np.argsort(place, kind="stable")
    place[order] = np.arange(kept.size)
    pairs = np.unique(place[dst] * kept.size + place[src])
    return pairs % kept.size, pairs // kept.size, order


def _after_causes(trace: Trace, kept: Ints, src: Ints, dst: Ints, place: Ints) -> Ints:
    """Move computations of devices to right after the last that they wait for."""
    is_moved = ~trace.nodes["is_cpu"].to_numpy()[kept]
    is_moved &= trace.nodes["kind"].cast(pl.String).to_numpy()[kept] == "COMP"
    host = trace.nodes["is_cpu"].to_numpy()[kept]
    if not (is_moved.any() and host.any()):
        return place
    stream = trace.column("stream")[kept]
    causes: dict[int, list[int]] = {}
    for before, after in zip(src.tolist(), dst.tolist(), strict=True):
        causes.setdefault(after, []).append(before)
    last: dict[int, int] = {}
    key = place.copy()
    for row in np.argsort(place, kind="stable").tolist():
        lane = int(stream[row])
        if is_moved[row]:
            own = causes.get(row, []) + ([last[lane]] if lane in last else [])
            if own:
                key[row] = max(int(key[one]) for one in own)
        if lane >= 0:
            last[lane] = row
    # of equal keys those that came first stay first
    return np.argsort(np.lexsort((place, key)), kind="stable")
