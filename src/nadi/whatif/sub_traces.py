"""Traces of some of the operations of a trace: linked, or a host and a device trace as read."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import CODES, AttributeBuilder
from nadi.trace.rows import nearest
from nadi.trace.schema import ON_DEVICE
from nadi.trace.trace import Trace

_EVENT = "event"
_ALWAYS_KEPT = "M"  # names of processes and threads
_ARROWS = "stf"
_PEERS = ("comm_src", "comm_dst")  # of Chakra's nodes


class _Event(msgspec.Struct):
    ph: str = ""
    ts: Decimal = Decimal(-1)
    id: Any = None
    cat: str = ""
    tid: Any = None


_event_decoder = msgspec.json.Decoder(_Event)


def part_rows(trace: Trace, ops: Ints, chosen: Bools) -> Bools:
    """Return the rows of a rank that belong to a part; bool, shape (nodes,).

    Besides the chosen operations these are: process, threads and groups; operations without a
    time in chosen ones; records of synchronization of chosen calls; and the annotations of a device
    that contain chosen work. All rows, if all operations are chosen. O(nodes * depth).

    - ``trace``: A linked trace.
    - ``ops``: int64: the rows of its operations.
    - ``chosen``: bool, shape (ops,).
    """
    if chosen.all():
        return np.ones(trace.nodes.height, dtype=np.bool_)
    kept = np.zeros(trace.nodes.height, dtype=np.bool_)
    kept[ops[chosen]] = True
    start, parent = trace.column("start"), trace.column("parent")
    around = nearest(parent, parent, start >= 0)
    kept |= (start < 0) & (around >= 0) & kept[around]
    call = trace.column("correlation")
    calls = call[kept & (call >= 0)]
    kept |= trace.category_mask("sync") & (call >= 0) & np.isin(call, calls)
    kept |= trace.category_mask("metadata")
    return kept | _device_annotations(trace, kept)


def _device_annotations(trace: Trace, kept: Bools) -> Bools:
    """Return the annotations of streams that contain work which is kept."""
    found = np.zeros(kept.size, dtype=np.bool_)
    marks = trace.category_mask("device_annotation")
    start = trace.column("start")
    end = start + trace.column("duration")
    place = trace.nodes.select(pl.struct("device", "stream").rank("dense")).to_series().to_numpy()
    work = kept & trace.category_mask(*ON_DEVICE)
    for one in np.unique(place[marks]).tolist():
        rows = np.flatnonzero(work & (place == one))
        rows = rows[np.argsort(start[rows], kind="stable")]
        mine = np.flatnonzero(marks & (place == one))
        first = np.searchsorted(start[rows], start[mine])
        inside = first < rows.size
        mine, first = mine[inside], first[inside]
        found[mine] = end[rows[first]] <= end[mine]
    return found


def sub_trace(trace: Trace, kept: Bools, order: Ints | None = None) -> Trace:
    """Return the trace of some of the rows.

    A parent is the nearest one that is kept. Dependencies between kept rows stay. The positions of
    events keep their order. O(nodes * depth + attributes).

    - ``kept``: bool, shape (nodes,).
    - ``order``: int64: the kept rows in their new order; by default the same order.
    """
    rows = np.flatnonzero(kept) if order is None else order
    if order is None and kept.all():
        return trace
    new_row = np.full(kept.size, -1, dtype=np.int64)
    new_row[rows] = np.arange(rows.size)
    parent = trace.column("parent")
    around = nearest(parent, parent, kept)
    event = trace.column("event")[rows]
    known = event >= 0
    event = event.copy()
    event[known] = np.argsort(np.argsort(event[known], kind="stable"), kind="stable")
    nodes = trace.nodes[rows].with_columns(
        parent=pl.Series(np.where(around >= 0, new_row[around], -1)[rows]),
        event=pl.Series(event),
    )
    src, dst = (new_row[trace.deps[name].to_numpy()] for name in ("src", "dst"))
    both = (src >= 0) & (dst >= 0)
    deps = trace.deps.with_columns(src=pl.Series(src), dst=pl.Series(dst)).filter(both)
    attributes = trace.attributes.moved(new_row).with_own_bytes()
    return replace(trace, nodes=nodes, deps=deps, given_attributes=attributes)


def part_of_host(host: Trace, ids: Ints, linked_ids: Ints) -> Trace:
    """Return the part of a host trace as read.

    Nodes without a counterpart in the device trace are in it if the nearest node around them that
    has one is. O(nodes * depth).

    - ``ids``: int64: ids of the operations of the part.
    - ``linked_ids``: int64: ids of all nodes that the device trace has too.
    """
    own, parent = host.column("id"), host.column("parent")
    kept, has_time = np.isin(own, ids), np.isin(own, linked_ids)
    around = nearest(parent, parent, has_time)
    kept |= ~has_time & (around >= 0) & kept[around]
    return sub_trace(host, kept | host.category_mask("metadata"))


def part_of_device(device: Trace, events: Ints, start: Ints) -> Trace:
    """Return the part of a device trace as read, with the times that linking gave it.

    Of the events that are no nodes, names of processes and threads stay, arrows between kept
    nodes, and what lies in the time of the part. O(nodes log nodes + events).

    - ``events``: int64: positions of the events of the part.
    - ``start``: int64 ns, of the shape of ``events``: their starts.
    """
    order = np.argsort(events)
    own = device.column("event")
    place = np.minimum(np.searchsorted(events[order], own), events.size - 1)
    kept = events[order][place] == own
    moved = device.column("start").copy()
    moved[kept] = start[order][place][kept]
    others = _other_events(device, kept)
    device = replace(
        device,
        nodes=device.nodes.with_columns(start=pl.Series(moved)),
        given_attributes=device.attributes.filtered(others),
    )
    rows = np.flatnonzero(kept)
    category = device.codes("category").astype(np.int64)
    keys = (own, category, -device.column("duration"), moved)
    return sub_trace(device, kept, rows[np.lexsort(tuple(key[rows] for key in keys))])


def _other_events(device: Trace, kept: Bools) -> Bools:
    """Return which attributes stay; bool, shape (attributes,)."""
    attributes = device.attributes
    rows = attributes.rows_named(_EVENT)
    rows = rows[(attributes.node[rows] < 0) & (attributes.type[rows] == CODES["json"])]
    start = device.column("start")
    end = start + device.column("duration")
    if kept.any():
        first, last = int(start[kept].min()), int(end[kept].max())
    else:
        first, last = 0, -1
    base = attributes.of(-1).get("baseTimeNanoseconds", 0)
    base = base if isinstance(base, int) else 0
    tips = set(start[kept].tolist())
    stays = np.ones(len(attributes), dtype=np.bool_)
    halves: dict[tuple[str, str], list[int]] = {}
    for row in rows.tolist():
        try:
            event = _event_decoder.decode(attributes.span(row))
        except msgspec.MsgspecError:  # an odd one is not judged
            continue
        if event.ph == _ALWAYS_KEPT:
            continue
        at = base + int(event.ts * 1000)
        stays[row] = at in tips if event.ph in _ARROWS else first <= at <= last
        if event.ph in _ARROWS and stays[row]:
            halves.setdefault((event.cat, repr(event.id)), []).append(row)
    for ends in halves.values():
        stays[ends] = len(ends) > 1
    return stays


def with_values(trace: Trace, values: dict[str, tuple[str, Any]]) -> Trace:
    """Return a trace with values of its own, by name: their type and value."""
    given = trace.attributes
    replaced = np.zeros(len(given), dtype=np.bool_)
    for name in values:
        replaced[given.rows_named(name)] = True
    builder = AttributeBuilder()
    builder.add_all(-1, values)
    others = given.filtered(~(replaced & (given.node < 0)))
    return replace(trace, given_attributes=others.joined(builder.build()))


def renumbered(trace: Trace, ranks: Sequence[int]) -> Trace:
    """Return a trace whose ranks are numbered by position, as simulators require.

    Ranks that are not among them keep their number as peers.

    - ``trace``: One of the ranks, linked.
    - ``ranks``: The ranks of the job, ascending.
    """
    place = {rank: position for position, rank in enumerate(ranks)}
    members = [
        sorted(place[rank] for rank in group if rank in place)
        for group in trace.groups["ranks"].to_list()
    ]
    columns = {
        name: pl.col(name).replace(list(place), list(place.values())) for name in ("src", "dst")
    }
    given = trace.attributes
    value = given.value.copy()
    for name in _PEERS:
        rows = given.rows_named(name)
        value[rows] = [place.get(peer, peer) for peer in value[rows].tolist()]
    trace = replace(
        trace, rank=place[trace.rank], world_size=len(ranks),
        nodes=trace.nodes.with_columns(**columns),
        groups=trace.groups.with_columns(ranks=pl.Series(members, dtype=pl.List(pl.Int64))),
        given_attributes=replace(given, value=value),
    )  # fmt: skip
    groups = [
        {"pg_name": name, "pg_desc": about, "backend_config": backend, "ranks": inside}
        for name, about, inside, backend in trace.groups.iter_rows()
    ]
    stated = given.of(-1)
    values = {name: ("int64", getattr(trace, name)) for name in ("rank", "world_size")}
    values |= {"process_groups": ("string", msgspec.json.encode(groups).decode())}
    return with_values(trace, {name: told for name, told in values.items() if name in stated})
