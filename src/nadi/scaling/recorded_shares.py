"""A recorded rank as one of several tensor parallel ranks: smaller operators, and communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.folding.folded_trace import NodeTimes, with_own_times
from nadi.model.arrays import Bools, Ints
from nadi.model.schema import DEPS, GROUPS, NODES
from nadi.model.trace import Trace
from nadi.pricing.aten_operations import VIEWS
from nadi.scaling.class_rows import Origin, RankClass, columns_of, time_factors
from nadi.scaling.recorded_ranks import RecordedRank
from nadi.scaling.shared_operators import Exchange, SharedOperators
from nadi.simulator.machine.device import Device

__all__ = ["TENSOR_PARALLEL", "SharedRank", "with_shared_operators"]

TENSOR_PARALLEL = "tp"
"""Role of the groups that exchange parts of tensors."""


class SharedRank(NamedTuple):
    """A rank that shares its operators.

    Attributes
    ----------
    of_class
        Its nodes.
    known
        What is known of them.
    """

    of_class: RankClass
    known: RecordedRank


def with_shared_operators(
    one: RankClass, known: RecordedRank, shared: SharedOperators, ranks: int,
    device: Device | None,
) -> SharedRank:  # fmt: skip
    """Let a rank do its share of operators, and exchange what they need.

    Times of device work change as prices do. Of operators that run on the host, the typical time
    of a call that does no work stays, and the rest changes as operations or bytes. Other
    communication sums gradients, of which there are as many as of weights.

    Parameters
    ----------
    device
        Whose prices count on devices; without it, operations and bytes do.
    """
    on_device = ~one.trace.nodes["is_cpu"].to_numpy()
    operator, size = known.operator, known.operators.row.size
    before, after = shared.work(known.operators, ranks)
    changes = shared.fraction != 1
    has_device = bool((on_device & (operator >= 0)).any())
    runs = (operator >= 0) & np.append(changes, False)[operator] & (on_device == has_device)
    runs &= (one.trace.nodes["kind"] == "COMP").to_numpy()
    factors = time_factors(before, after, device if has_device else None)
    overhead = 0 if has_device else _call_ns(known.trace)
    columns = []
    for column, factor in zip(columns_of(one.times), factors, strict=True):
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
    return _with_exchanges(changed, known, shared.exchanges, on_device == has_device)


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
    chosen = (nodes["kind"] == "COMM_COLL").to_numpy() & (size > 0) & (own < whole)
    smaller = np.where(chosen, np.ceil(size * (own / max(whole, 1))), size).astype(np.int64)
    return nodes.with_columns(comm_bytes=pl.Series(smaller)), chosen


def _with_exchanges(
    one: RankClass, known: RecordedRank, exchanges: Sequence[Exchange], works: Bools
) -> SharedRank:
    """Put communication before the operators that wait for it.

    Parameters
    ----------
    works
        bool, shape (nodes,): where operators do their work.
    """
    trace, size = one.trace, one.trace.nodes.height
    first = np.full(known.operators.row.size + 1, size, dtype=np.int64)
    rows = np.flatnonzero(works & (known.operator >= 0))
    np.minimum.at(first, known.operator[rows], rows)
    first = np.minimum.accumulate(first[::-1])[::-1]  # or the next one that has work
    listed = [(int(first[one.operator]), one) for one in exchanges]
    listed = sorted(((at, one) for at, one in listed if at < size), key=lambda pair: pair[0])
    target = np.array([at for at, _ in listed], dtype=np.int64)
    old = np.arange(size)
    place = old + np.searchsorted(target, old, side="right")
    made = target + np.arange(target.size)
    source = np.empty(size + target.size, dtype=np.int64)
    source[place], source[made] = old, target
    is_made = np.zeros(source.size, dtype=np.bool_)
    is_made[made] = True
    before = _before_on_lane(trace)
    src, dst = (place[trace.deps[name].to_numpy()] for name in ("src", "dst"))
    has_one = before[target] >= 0
    new_src = np.concatenate([place[before[target[has_one]]], made])
    new_dst = np.concatenate([made[has_one], made + 1])  # the next exchange, or the operator
    more = DEPS.build(new_src.size, {"src": new_src, "dst": new_dst, "kind": "data"})
    deps = pl.concat([trace.deps.with_columns(src=pl.Series(src), dst=pl.Series(dst)), more])
    nodes = _nodes(trace, [each for _, each in listed], source, is_made)
    groups = GROUPS.build(1, {"name": [TENSOR_PARALLEL], "ranks": [[]], "backend": [""]})
    trace = replace(
        trace, nodes=nodes, deps=deps.unique(["src", "dst"]).sort("dst", "src"),
        groups=pl.concat([trace.groups, groups]),
        given_attributes=trace.attributes.moved(place).with_own_bytes(),
    )  # fmt: skip
    times = NodeTimes(*(np.where(is_made, -1, column[source]) for column in columns_of(one.times)))
    origin = np.where(is_made, Origin.MADE, one.origin[source])
    after = RankClass(trace, times, origin, np.where(is_made, False, one.repriced[source]))
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
    trace: Trace, exchanges: Sequence[Exchange], source: Ints, is_made: Bools
) -> pl.DataFrame:
    """Return nodes with communication among them; which is a copy of what it stands before."""
    number = np.cumsum(is_made) - 1
    stream = int(trace.column("stream").max(initial=-1)) + 1
    own: dict[str, list[object] | object] = {
        "name": [f"{TENSOR_PARALLEL}::{each.comm_type}" for each in exchanges],
        "kind": "COMM_COLL", "category": "kernel", "comm_type": [e.comm_type for e in exchanges],
        "comm_bytes": [each.bytes for each in exchanges], "group": trace.groups.height,
        "stream": stream, "thread": -1, "is_cpu": False, "flops": -1, "bytes": -1, "src": -1,
        "dst": -1, "tag": -1, "duration": -1, "exclusive": -1, "parent": -1,
    }  # fmt: skip
    nodes = trace.nodes[source]
    columns = [
        pl.Series("id", np.arange(source.size)),
        pl.Series("start", np.full(source.size, -1)),
    ]
    for name, values in own.items():
        listed = values if isinstance(values, list) else [values] * len(exchanges)
        made = pl.Series(name, listed, dtype=NODES.dtypes[name], strict=False)
        joined = pl.concat([nodes[name].cast(NODES.dtypes[name]), made])
        at = np.where(is_made, source.size + number, np.arange(source.size))
        columns.append(joined.gather(at))
    return nodes.with_columns(columns)
