"""A recorded rank as one of several tensor parallel ranks: smaller operators, and communication."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.jobs.class_rows import Origin, RankClass, time_factors, typical_columns
from nadi.jobs.recorded_ranks import KnownRank
from nadi.jobs.shared_operators import AwaitedExchange, SharedOperators
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.systems.device import Device
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEPS, GROUPS, NODES
from nadi.trace.trace import Trace
from nadi.trace.work import VIEWS

TENSOR_PARALLEL = "tp"
"""Role of the groups that exchange parts of tensors."""

_SUMS = ("all_reduce", "reduce_scatter", "all_gather")  # of gradients, and of their weights


class SharedRank(NamedTuple):
    """A rank that shares its operators."""

    of_class: RankClass  # its nodes
    known: KnownRank  # what is known of them


class Insertion(NamedTuple):
    """Communication that is put in."""

    # the row that it comes before: it waits for what this one's thread or stream did so far
    before: int
    # comm_type, bytes: what it is
    comm_type: str
    bytes: int
    awaited_by: int  # the row that waits for it, or -1


def with_shared_operators(
    one: RankClass, known: KnownRank, shared: SharedOperators, ranks: int,
    device: Device | None,
) -> SharedRank:  # fmt: skip
    """Let a rank do its share of operators, and exchange what they need.

    Times of device work change as prices do. Of operators that run on the host, the typical time
    of a call that does no work stays, and the rest changes as operations or bytes. Other
    communication sums gradients, of which there are as many as of weights.

    - ``device``: Whose prices count on devices; without it, operations and bytes do.
    """
    works, has_device = working_rows(one.trace)
    operator, size = known.operator, known.operators.row.size
    before, after = shared.work(known.operators, ranks)
    changes = shared.fraction != 1
    runs = (operator >= 0) & np.append(changes, False)[operator] & works
    factors = time_factors(before, after, device if has_device else None)
    overhead = 0 if has_device else _call_ns(known.trace)
    columns = []
    for column, factor in zip(typical_columns(one.times), factors, strict=True):
        whole = np.bincount(operator[runs], np.maximum(column[runs], 0), minlength=size)
        kept = np.minimum(overhead / np.maximum(whole, 1), 1.0)
        by = np.append(kept + (1 - kept) * factor, 1.0)[operator]
        columns.append(np.where(runs & (column > 0), np.rint(column * by), column).astype(np.int64))
    times = NodeTimes(*columns)
    repriced = one.repriced | (runs & (columns[0] != one.times.typical))
    origin = np.where(runs, np.maximum(one.origin, Origin.RESIZED), one.origin)
    if device is None or not has_device:
        origin[repriced] = np.maximum(origin[repriced], Origin.GUESSED)
    nodes = with_own_times(one.trace.nodes, times.typical)
    nodes, summed = _smaller_sums(nodes, shared.weights)
    origin[summed] = Origin.GUESSED
    changed = RankClass(replace(one.trace, nodes=nodes), times, origin, repriced)
    rank = SharedRank(changed, known)
    listed = _insertions(changed, known, shared.exchanges, works)
    return with_insertions(rank, listed, TENSOR_PARALLEL)


def working_rows(trace: Trace) -> tuple[Bools, bool]:
    """Return which computations do the work: those on devices, or on the host if there are none.

    Also whether they are on devices. bool, shape (nodes,).
    """
    computes = (trace.nodes["kind"] == "COMP").to_numpy()
    on_host = trace.nodes["is_cpu"].to_numpy()
    on_device = computes & ~on_host
    return (on_device, True) if on_device.any() else (computes & on_host, False)


def _call_ns(trace: Trace) -> int:
    """Return the median time of operators that do no work, and call no others."""
    time = trace.column("duration")
    is_leaf = np.ones(time.size, dtype=np.bool_)
    parent = trace.column("parent")
    is_leaf[parent[parent >= 0]] = False
    names = trace.nodes["name"].cast(pl.String)
    chosen = is_leaf & names.is_in(list(VIEWS)).to_numpy() & (time > 0)
    return int(np.median(time[chosen])) if chosen.any() else 0


def _smaller_sums(nodes: pl.DataFrame, weights: tuple[int, int]) -> tuple[pl.DataFrame, Bools]:
    """Let collectives sum the gradients of the weights that a rank has."""
    whole, own = weights
    size = nodes["comm_bytes"].to_numpy()
    chosen = nodes["comm_type"].is_in(_SUMS).to_numpy() & (size > 0) & (own < whole)
    smaller = np.where(chosen, np.ceil(size * (own / max(whole, 1))), size).astype(np.int64)
    return nodes.with_columns(comm_bytes=pl.Series(smaller)), chosen


def _insertions(
    one: RankClass, known: KnownRank, exchanges: Sequence[AwaitedExchange], works: Bools
) -> list[Insertion]:
    """Return where exchanges are put: before the operators that wait for them.

    - ``works``: bool, shape (nodes,): where operators do their work.
    """
    size = one.trace.nodes.height
    first = np.full(known.operators.row.size + 1, size, dtype=np.int64)
    rows = np.flatnonzero(works & (known.operator >= 0))
    np.minimum.at(first, known.operator[rows], rows)
    first = np.minimum.accumulate(first[::-1])[::-1]  # or the next one that has work
    return [
        Insertion(int(first[each.operator]), each.comm_type, each.bytes, int(first[each.operator]))
        for each in exchanges if first[each.operator] < size
    ]  # fmt: skip


def with_insertions(rank: SharedRank, listed: Sequence[Insertion], role: str) -> SharedRank:
    """Put communication among the nodes of a rank, in groups of a role that it has not yet."""
    one, known = rank
    trace, size = one.trace, one.trace.nodes.height
    listed = sorted(listed, key=lambda each: each.before)
    target = np.array([each.before for each in listed], dtype=np.int64)
    old = np.arange(size)
    place = old + np.searchsorted(target, old, side="right")
    made = target + np.arange(target.size)
    source = np.empty(size + target.size, dtype=np.int64)
    source[place], source[made] = old, target
    is_made = np.zeros(source.size, dtype=np.bool_)
    is_made[made] = True
    before = _before_on_lane(trace)[target]
    for_row = np.array([each.awaited_by for each in listed], dtype=np.int64)
    has_one, is_awaited = before >= 0, for_row >= 0
    follows = np.flatnonzero(target[1:] == target[:-1])
    src, dst = (place[trace.deps[name].to_numpy()] for name in ("src", "dst"))
    new_src = np.concatenate([place[before[has_one]], made[is_awaited], made[follows]])
    new_dst = np.concatenate([made[has_one], place[for_row[is_awaited]], made[follows + 1]])
    more = DEPS.build(new_src.size, {"src": new_src, "dst": new_dst, "kind": "data"})
    deps = pl.concat([trace.deps.with_columns(src=pl.Series(src), dst=pl.Series(dst)), more])
    groups = GROUPS.build(1, {"name": [role], "ranks": [[]], "backend": [""]})
    trace = replace(
        trace, nodes=_nodes(trace, listed, role, source, is_made),
        deps=deps.unique(["src", "dst"]).sort("dst", "src"),
        groups=pl.concat([trace.groups, groups]),
        given_attributes=trace.attributes.moved(place).with_own_bytes(),
    )  # fmt: skip
    times = NodeTimes(
        *(np.where(is_made, -1, column[source]) for column in typical_columns(one.times))
    )
    origin = np.where(is_made, Origin.MADE, one.origin[source])
    after = RankClass(trace, times, origin, ~is_made & one.repriced[source])
    return SharedRank(after, known._replace(
        operator=np.where(is_made, -1, known.operator[source]), time=known.time[source],
        is_update=known.is_update[source],
    ))  # fmt: skip


def lanes_of(trace: Trace) -> Ints:
    """Return a number for the thread or stream of each node; int64, shape (nodes,)."""
    stream, thread = trace.column("stream"), trace.column("thread")
    on_device = ~trace.nodes["is_cpu"].to_numpy() & (stream >= 0)
    keys = np.stack([on_device, np.where(on_device, stream, thread)], axis=1)
    found: Ints = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return found


def _before_on_lane(trace: Trace) -> Ints:
    """Return the node before each on its thread or stream, or -1."""
    lane = lanes_of(trace)
    order = np.argsort(lane, kind="stable")
    found = np.full(lane.size, -1, dtype=np.int64)
    same = lane[order[1:]] == lane[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def _nodes(
    trace: Trace, listed: Sequence[Insertion], role: str, source: Ints, is_made: Bools
) -> pl.DataFrame:
    """Return nodes with communication among them, on a stream of its own."""
    own: dict[str, list[object] | object] = {
        "name": [f"{role}::{each.comm_type}" for each in listed], "kind": "COMM_COLL",
        "category": "kernel", "comm_type": [each.comm_type for each in listed],
        "comm_bytes": [each.bytes for each in listed], "group": trace.groups.height,
        "stream": int(trace.column("stream").max(initial=-1)) + 1, "thread": -1, "is_cpu": False,
        "flops": -1, "bytes": -1, "src": -1, "dst": -1, "tag": -1, "duration": -1, "exclusive": -1,
    }  # fmt: skip
    return with_made_rows(trace.nodes[source], own, is_made)


def with_made_rows(
    nodes: pl.DataFrame, own: Mapping[str, list[object] | object], is_made: Bools
) -> pl.DataFrame:
    """Return nodes of which some have columns of their own, numbered anew and without starts.

    - ``own``: For each column the values of these rows, or the one value of all.
    """
    every, size = np.arange(nodes.height), int(is_made.sum())
    at = np.where(is_made, nodes.height + np.cumsum(is_made) - 1, every)
    unknown = pl.Series(np.full(nodes.height, -1))
    columns = [pl.Series("id", every), unknown.alias("start"), unknown.alias("parent")]
    for name, values in own.items():
        listed = values if isinstance(values, list) else [values] * size
        made = pl.Series(name, listed, dtype=NODES.dtypes[name], strict=False)
        columns.append(pl.concat([nodes[name].cast(NODES.dtypes[name]), made]).gather(at))
    return nodes.with_columns(columns)
