"""Sums of gradients that a job of one replica has not, and of several would have.

Sums of gradients that a recording of one replica has not, in buckets as they come.

As PyTorch's DistributedDataParallel (Li et al., arXiv 2006.15704): gradients are put together in
the order in which they are accumulated, up to 25 MiB, the first ones up to 1 MiB; each bucket is
summed as soon as it is full, beside the backward, and the optimizer waits for all.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import Origin, RankClass, typical_columns
from nadi.jobs.recorded_ranks import Direction, KnownRank
from nadi.jobs.recorded_shares import Insertion, SharedRank, with_insertions, working_rows
from nadi.jobs.replicated_classes import Classes, RoleNames
from nadi.recordings.folded.folded_trace import NodeTimes
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.operations import OP_CLASSES
from nadi.trace.schema import DEPS, GROUPS
from nadi.trace.trace import Trace

SUMS = "dp"
"""The role of the groups that sum gradients."""

_GEMM = OP_CLASSES.index("gemm")
_GRADIENT = ".weight_gradient"
_TABLE = "embedding"  # role of the first and the last stage
_EMBEDDING, _HEAD = "embedding", "head"
_ITEMSIZE = 4  # float32


class _Sum(NamedTuple):
    """The gradients of a layer: their bytes, and the last row of its backward."""

    name: str
    layer: int
    bytes: int
    row: int


def is_one_replica(groups: RankGroups, names: RoleNames) -> bool:
    """Return whether groups are of tensor, context and pipeline parallel ranks alone."""
    inner = {names.tp, names.cp, names.pp, _TABLE}
    return not names.dp and set(groups.members) <= inner


def with_gradient_sums(job: Classes) -> Classes:
    """Return a job that sums its gradients, in groups of one rank each.

    Each layer's are summed once, when its last backward is done, one layer after the other; the
    optimizer waits for all. A stage that has an embedding and no head has a table of the head's
    size.

    - Raises UsageError if nothing says which gradients there are.
    """
    found = [_sums_of(one.trace) for one in job.listed]
    table = max((one.bytes for sums in found for one in sums if one.name == _HEAD), default=0)
    listed = []
    for one, sums in zip(job.listed, found, strict=True):
        has_head = any(each.name == _HEAD for each in sums)
        sized = [
            each._replace(bytes=each.bytes or (table if each.name == _EMBEDDING else 0))
            for each in sums
            if each.name != _EMBEDDING or not has_head
        ]
        listed.append(_with_rows(one, [each for each in sized if each.bytes]))
    if not any(sum_.bytes for sums in found for sum_ in sums):
        _refuse()
    world = job.groups.world_size
    members = {**job.groups.members, SUMS: np.arange(world)[:, None]}
    return job._replace(listed=tuple(listed), groups=RankGroups(members, world))


def _refuse() -> NoReturn:
    raise UsageError(
        Parameter("dp"),
        "the job has one replica, and no products that make gradients of weights (named "
        "...weight_gradient, with gemm_shape), so nothing says what replicas would sum",
        "scale a job that has 2 replicas, or name their groups dp",
    )


def _sums_of(trace: Trace) -> list[_Sum]:
    """Return the gradients of each layer, in the order in which they are done."""
    work = stated_operations(trace)
    text = trace.nodes["name"].cast(pl.String).to_list()
    rows = [k for k, name in enumerate(text) if name.endswith(_GRADIENT)]
    layers = trace.column("layer")
    sizes: dict[str, dict[str, int]] = {}
    last: dict[str, int] = {}
    for row in rows:
        layer = int(layers[row])
        key = f"layers.{layer}" if layer >= 0 else text[row].partition(".")[0]
        of_row = int(work.shape[row, 1:3].prod()) if work.op_class[row] == _GEMM else 0
        sizes.setdefault(key, {})[text[row]] = max(of_row, 0) * _ITEMSIZE
        last[key] = row
    order = sorted(last, key=last.__getitem__)
    return [_Sum(key, int(layers[last[key]]), sum(sizes[key].values()), last[key]) for key in order]


def _with_rows(one: RankClass, sums: list[_Sum]) -> RankClass:
    """Put sums behind the last backward of a rank, on a stream of their own."""
    if not sums:
        return one
    trace, number = one.trace, len(sums)
    at = max(each.row for each in sums) + 1
    old = np.arange(trace.nodes.height)
    place = np.where(old < at, old, old + number)
    made = at + np.arange(number)
    source = np.concatenate([old[:at], np.full(number, sums[-1].row), old[at:]])
    nodes = trace.nodes[source].with_columns(_columns(trace, sums, at, source.size))
    nodes = _moved_parents(nodes, place)
    deps = _with_waits(trace, place, made, np.array([each.row for each in sums]))
    groups = GROUPS.build(1, {"name": [SUMS], "ranks": [[]], "backend": [""]})
    trace = replace(
        trace, nodes=nodes, deps=deps, groups=pl.concat([trace.groups, groups]),
        given_attributes=trace.attributes.moved(place).with_own_bytes(),
    )  # fmt: skip
    times = NodeTimes(*(np.insert(column, at, np.full(number, -1)) for column in
                        typical_columns(one.times)))  # fmt: skip
    origin = np.insert(one.origin, at, np.full(number, int(Origin.GUESSED)))
    return RankClass(trace, times, origin, np.insert(one.repriced, at, np.zeros(number, bool)))


def _columns(trace: Trace, sums: list[_Sum], at: int, size: int) -> list[pl.Series]:
    """Return the columns of nodes in which sums differ from the row that they are copies of."""
    made = slice(at, at + len(sums))
    own: dict[str, object] = {
        "name": [f"{each.name}.gradients.all_reduce" for each in sums], "kind": "COMM_COLL",
        "comm_type": "all_reduce", "comm_bytes": [each.bytes for each in sums],
        "group": trace.groups.height, "stream": int(trace.column("stream").max(initial=0)) + 1,
        "layer": [each.layer for each in sums], "flops": -1, "bytes": -1, "start": -1,
        "duration": -1, "id": int(trace.column("id").max(initial=0)) + 1 + np.arange(len(sums)),
    }  # fmt: skip
    found = []
    for name, values in own.items():
        column = trace.nodes[name]
        old = column.to_list()
        listed = list(values) if isinstance(values, (list, np.ndarray)) else [values] * len(sums)
        old[made.start : made.start] = listed
        assert len(old) == size
        found.append(pl.Series(name, old, dtype=column.dtype, strict=False))
    return found


def _moved_parents(nodes: pl.DataFrame, place: Ints) -> pl.DataFrame:
    parent = nodes["parent"].to_numpy()
    return nodes.with_columns(parent=pl.Series(np.where(parent >= 0, place[parent], -1)))


def _with_waits(trace: Trace, place: Ints, made: Ints, done: Ints) -> pl.DataFrame:
    """Let each sum wait for its layer and the sum before, and what comes next for the last one."""
    src, dst = (place[trace.deps[name].to_numpy()] for name in ("src", "dst"))
    new_src, new_dst = [*place[done].tolist(), *made[:-1].tolist()], [*made.tolist(), *made[1:]]
    later = np.flatnonzero(place > made[-1])
    if later.size:
        new_src.append(int(made[-1]))
        new_dst.append(int(place[later[0]]))
    columns = {"src": new_src, "dst": new_dst, "kind": "data", "inferred": False}
    more = DEPS.build(len(new_src), columns)
    deps = trace.deps.with_columns(src=pl.Series(src), dst=pl.Series(dst))
    return pl.concat([deps, more]).sort("dst", "src", maintain_order=True)


DATA_PARALLEL = "dp"
"""Role of the groups that sum gradients."""

_FIRST, _BUCKET = 1 << 20, 25 << 20


def with_recorded_sums(rank: SharedRank, share: float) -> SharedRank:
    """Let a rank sum its gradients, in a group of its own.

    - ``share``: Of the gradients of the recording, which the rank has.
    - Raises UsageError if the recording states no accumulations of gradients with their tensors.
    """
    parts = rank.known.parts
    listed: list[Insertion] = []
    for step in range(int(parts.step.max(initial=-1)) + 1):
        own = np.flatnonzero((parts.step == step) & (parts.direction == Direction.BACKWARD))
        if own.size:
            buckets = _buckets(rank.known, int(own[-1]), share)
            listed += _insertions(rank, buckets, int(own[-1]))
    if not listed:
        raise UsageError(
            Parameter("dp"), "the recording has one replica, and states no accumulations of "
            "gradients with their tensors, so nothing says what replicas would sum",
            "record host traces, too, or in a process group with DistributedDataParallel",
        )  # fmt: skip
    return with_insertions(rank, listed, DATA_PARALLEL)


def _buckets(known: KnownRank, part: int, share: float) -> list[tuple[int, int]]:
    """Return when the gradients of each bucket are there, and their bytes, in a backward."""
    found: list[tuple[int, int]] = []
    size, limit = 0, _FIRST
    time = -1
    inside = known.parts.at(known.gradient_times) == part
    rows = np.flatnonzero(inside).tolist()
    for row in rows:
        size += int(np.ceil(known.gradient_bytes[row] * share))
        time = int(known.gradient_times[row])
        if size >= limit:
            found.append((time, size))
            size, limit = 0, _BUCKET
    return [*found, (time, size)] if size else found


def _insertions(rank: SharedRank, buckets: Sequence[tuple[int, int]], part: int) -> list[Insertion]:
    """Return what is put in: each sum before the first work behind its last gradient."""
    known = rank.known
    works, _ = working_rows(rank.of_class.trace)
    rows = np.flatnonzero(works)
    later = np.flatnonzero(works & (known.parts.at(known.time) > part))
    before = int(later[0]) if later.size else -1
    found = []
    for time, size in buckets:
        behind = rows[known.time[rows] > time]
        at = int(behind[0]) if behind.size else int(rows[-1])
        found.append(Insertion(min(at, before) if before >= 0 else at, "all_reduce",
                               size, before))  # fmt: skip
    return found
