"""One rank recorded in this process, on tensors without memory: from its rows to its Trace."""

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.pytorch.fake.operation_log import GroupFamily, GroupLog, OperationLog
from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.version import __version__

_COLUMNS = (
    "name", "kind", "category", "parent", "sequence", "stream", "flops", "bytes", "comm_type",
    "comm_bytes", "src", "dst", "tag", "is_async",
)  # fmt: skip
_SIGNED = ("name", "kind", "stream", "flops", "bytes", "comm_type", "comm_bytes", "tag")
_PEAK = ("memory.peak", "memory.before", "memory.peak_node")
_TOLD = 5  # lines that asked for values


class RankSummary(NamedTuple):
    """What a rank does, in numbers; sizes in bytes.

    Attributes
    ----------
    rank
        The rank.
    operations, collectives, messages
        Number of operations on the device that are no communication, of collectives, and of
        sends and receives.
    flops
        Floating point operations of products of matrices, convolutions and attention.
    comm_bytes
        Sum of the collectives' and sends' bytes.
    peak, before
        Peak of live tensors, and what is live before the first operation; -1 if not known.
    """

    rank: int
    operations: int
    collectives: int
    messages: int
    flops: int
    comm_bytes: int
    peak: int
    before: int


def group_numbers(families: Mapping[str, GroupFamily]) -> dict[str, int]:
    """Return the number of the first group of each family: all groups are numbered from 1."""
    first, number = {}, 1
    for place, family in families.items():
        first[place] = number
        number += len(family.groups)
    return first


def trace_of_log(
    log: OperationLog, groups: GroupLog, steps: int, stubs: Mapping[tuple[str, str], int]
) -> Trace:
    """Make the trace of a rank. O(operations).

    Its groups are named by numbers, which are the same on all ranks, and described by their family.
    """
    rows = log.operations
    used = dict.fromkeys(row.group for row in rows if row.comm_type != "none")
    table, number = _groups(list(used), groups)
    nodes = NODES.build(len(rows), {
        "id": range(len(rows)),
        **{name: [getattr(row, name) for row in rows] for name in _COLUMNS},
        "is_cpu": [row.stream < 0 for row in rows],
        "thread": [1 if row.stream < 0 else -1 for row in rows],
        "device": [-1 if row.stream < 0 else 0 for row in rows],
        "group": [number[row.group] if row.comm_type != "none" else -1 for row in rows],
    })  # fmt: skip
    edges = [(src, dst, kind) for dst, waits in enumerate(log.waits) for src, kind in waits]
    deps = DEPS.build(len(edges), {
        "src": [edge[0] for edge in edges], "dst": [edge[1] for edge in edges],
        "kind": [edge[2] for edge in edges],
    })  # fmt: skip
    return Trace(
        nodes=nodes,
        deps=deps,
        groups=table,
        issues=_issues(steps, stubs).table(),
        provenance=Provenance(__version__, ()),
        rank=groups.rank,
        world_size=groups.world_size,
        given_attributes=_attributes(log),
    )


def _groups(used: list[str], groups: GroupLog) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return the table of the groups that communicate, and their rows; -1 for all ranks."""
    first = group_numbers(groups.families)
    rows: list[tuple[str, str, list[int]]] = []
    number: dict[str, int] = {}
    for name in used:
        made = groups.of(name)
        family = groups.family_of(made)
        if family is None:
            number[name] = -1
            continue
        number[name] = len(rows)
        place = first[family.place] + family.groups.index(made.ranks)
        rows.append((str(place), family.place, list(made.ranks)))
    table = GROUPS.build(len(rows), {
        "name": [row[0] for row in rows], "description": [row[1] for row in rows],
        "ranks": [row[2] for row in rows],
    })  # fmt: skip
    return table, number


def _issues(steps: int, stubs: Mapping[tuple[str, str], int]) -> IssueLog:
    log = IssueLog()
    log.add("fake.no-times", "info", steps, "steps were recorded without a device: operations "
            "have shapes, floating point operations and bytes, but no times")  # fmt: skip
    by_value: dict[str, list[str]] = {}
    count: Counter[str] = Counter()
    for (line, value), times in stubs.items():
        by_value.setdefault(value, []).append(line)
        count[value] += times
    for value, lines in by_value.items():
        places = sorted(set(lines))
        told = ", ".join(places[:_TOLD]) + (", ..." if len(places) > _TOLD else "")
        log.add(
            "fake.value", "warning", count[value],
            f"values of tensors that the program asked for were taken to be {value} ({told})",
            "check that the program does the same with a true value",
        )  # fmt: skip
    return log


def _attributes(log: OperationLog) -> Attributes:
    builder = AttributeBuilder()
    for name, value in zip(_PEAK, (log.peak, log.first_live, log.peak_row), strict=True):
        builder.add(-1, name, "int64", value)
    for row, texts in log.operands.items():
        for name, text in texts.items():
            builder.add(row, name, "operand", text)
    for row, values in log.attributes.items():
        builder.add_all(row, values)
    for name, changes in (("memory.allocates", log.allocated), ("memory.frees", log.freed)):
        of_row: dict[int, list[int]] = {}
        for row, storage, *_ in changes:
            of_row.setdefault(min(max(row, 0), len(log) - 1), []).append(storage)
        for row, storages in of_row.items():
            builder.add(row, name, "int64_list", storages)
    return builder.build()


def trace_signature(trace: Trace) -> str:
    """Return a text that is equal for ranks that do the same.

    Peers count by their distance, groups by their family and size, tensors by their shapes.
    """
    device = trace.nodes.with_row_index("row").filter(pl.col("stream") >= 0)
    digest = hashlib.blake2b(digest_size=16)
    for name in _SIGNED:
        column = device[name]
        column = column if column.dtype == pl.Int64 else column.cast(pl.String)
        digest.update("\0".join(map(str, column.to_list())).encode())
    members = trace.groups["ranks"].to_list()
    group = device["group"].to_list()
    is_message = device["kind"].is_in(["COMM_SEND", "COMM_RECV"]).to_list()
    for name in ("src", "dst"):
        ends = zip(device[name].to_list(), group, is_message, strict=True)
        told = [_peer(trace.rank, peer, members[row] if row >= 0 else None, message)
                for peer, row, message in ends if peer >= 0]  # fmt: skip
        digest.update(str(told).encode())
    described = [
        f"{place} {len(ranks)}"
        for place, ranks in trace.groups.select("description", "ranks").iter_rows()
    ]
    digest.update("\0".join(described[one] if one >= 0 else "" for one in group).encode())
    attributes = trace.attributes
    chosen = set(device["row"].to_list())
    for name in ("inputs.shapes", "outputs.shapes"):
        for at in attributes.rows_named(name).tolist():
            if int(attributes.node[at]) in chosen:
                digest.update(str(attributes.python_value(at)).encode())
    return digest.hexdigest()


def _peer(rank: int, peer: int, members: list[int] | None, is_message: bool) -> tuple[int, bool]:
    """Return the distance of a peer, or the position of a root and whether the rank is the root."""
    if is_message:
        return peer - rank, False
    return (peer if members is None else members.index(peer)), peer == rank


def summary_of(trace: Trace) -> RankSummary:
    """Sum up what a rank does."""
    nodes = trace.nodes.filter(pl.col("stream") >= 0)
    is_collective = (nodes["kind"] == "COMM_COLL").to_numpy()
    is_message = nodes["kind"].is_in(["COMM_SEND", "COMM_RECV"]).to_numpy()
    counted = is_collective | (nodes["kind"] == "COMM_SEND").to_numpy()
    stated = {
        name: int(value)
        for node, name, _, value in _of_trace(trace.attributes)
        if node < 0 and name in _PEAK
    }
    return RankSummary(
        trace.rank,
        int((~is_collective & ~is_message).sum()),
        int(is_collective.sum()),
        int(is_message.sum()),
        int(np.maximum(nodes["flops"].to_numpy(), 0).sum()),
        int(np.maximum(nodes["comm_bytes"].to_numpy(), 0)[counted].sum()),
        stated.get("memory.peak", -1),
        stated.get("memory.before", -1),
    )


def _of_trace(attributes: Attributes) -> list[tuple[int, str, str, int]]:
    """Return the attributes of a trace itself, which come first."""
    rows = np.flatnonzero(attributes.node < 0).tolist()
    return [
        (-1, attributes.names[attributes.name[row]], "", attributes.python_value(row))
        for row in rows
    ]


_OLDEST = (2, 6)
_LARGEST_WORLD = 2**24


class FakeRecording:
    """A recording on fake tensors.

    Attributes
    ----------
    rank, world_size
        Of the rank that the program is.
    num_steps
        Number of recorded steps; 0 until the recording ends.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.num_steps = 0
        self._trace: Trace | None = None
        self._families: Mapping[str, GroupFamily] = {}
        self._steps: Any = None

    def __repr__(self) -> str:
        return f"<FakeRecording rank={self.rank} of {self.world_size} steps={self.num_steps}>"

    def step(self) -> None:
        """Mark the end of a step, in a program without an optimizer."""
        self._steps.end()

    @property
    def trace(self) -> Trace:
        """What the rank did; after the end of the ``with`` block.

        Raises
        ------
        UsageError
            Before that.
        """
        if self._trace is None:
            raise UsageError("", "the recording has not ended", "read it after the with block")
        return self._trace

    @property
    def summary(self) -> RankSummary:
        """Operations, floating point operations, communication and memory, in numbers."""
        return summary_of(self.trace)

    @property
    def families(self) -> Mapping[str, GroupFamily]:
        """The process groups of the whole job, by what they are for."""
        return self._families


@contextlib.contextmanager
def fake_recording(
    world_size: int, rank: int = 0, *, steps: int = 1, warmup: int = 1, device: str = "H100"
) -> Iterator[FakeRecording]:
    """Record what one rank of a job does, without its device and without the other ranks.

    In the block, ``init_process_group`` makes the rank one of ``world_size``, ``torch.cuda`` shows
    a GPU, and tensors have shapes but no memory. The block ends by itself when the steps are
    recorded: a step ends when the first optimizer has stepped, or with
    :meth:`FakeRecording.step`. Modules, meshes and optimizers have to be made in the block.

    Parameters
    ----------
    world_size
        Number of ranks of the job.
    rank
        The rank that the program is.
    steps, warmup
        Number of steps to record, and of steps before them, of which 1 makes the state of
        optimizers. The last of a program that has no more is recorded.
    device
        What ``torch.cuda.get_device_name`` returns.

    Yields
    ------
    FakeRecording
        Its ``trace`` is there after the block.

    Raises
    ------
    UsageError
        If torch is missing or too old, a number is wrong, or nothing was recorded.
    """
    check_numbers(world_size, rank, steps, warmup)
    check_torch()
    program: Any = importlib.import_module("nadi.pytorch.fake.fake_program")
    recording = FakeRecording(rank, world_size)
    with program.recorded_program(rank, world_size, warmup, steps, device) as (recorder, counted):
        recording._steps = counted
        yield recording
    log, recording.num_steps = counted.recorded()
    if not len(log):
        raise UsageError(
            "", "nothing was recorded: no module was called",
            "call the model in the program that is recorded",
        )  # fmt: skip
    recording._families = recorder.groups.families
    recording._trace = trace_of_log(log, recorder.groups, recording.num_steps, recorder.stubs)


def check_torch() -> None:
    """Raise UsageError if torch is missing or too old."""
    remedy = f"install PyTorch {_OLDEST[0]}.{_OLDEST[1]} or newer; its CPU build suffices"
    if importlib.util.find_spec("torch") is None:
        raise UsageError("", f"the package torch is missing in {sys.prefix}", remedy)
    torch: Any = importlib.import_module("torch")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _OLDEST:
        raise UsageError("", f"torch {torch.__version__} is too old", remedy)


def check_numbers(world_size: int, rank: int, steps: int, warmup: int) -> None:
    """Raise UsageError if a number is out of its range."""
    least = {"world_size": (world_size, 1), "steps": (steps, 1), "warmup": (warmup, 0)}
    for name, (value, smallest) in least.items():
        if not smallest <= value <= _LARGEST_WORLD:
            what = f"must be from {smallest} to {_LARGEST_WORLD:,}"
            raise UsageError(Parameter(name, value), what, "correct the number")
    if not 0 <= rank < world_size:
        what = f"there is no such rank among {world_size:,}, counted from 0"
        raise UsageError(Parameter("rank", rank), what, "choose another rank")
