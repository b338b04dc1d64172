"""Kineto files larger than memory as columns of what analyses count: names, times, places.

The file is read once, and a piece of it is in memory at a time. What is left out is all that makes
a recording large: arguments, and events of hosts if they are not asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.files.communication_names import comm_kind
from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.kineto_pieces import base_time, event_pieces, is_among
from nadi.files.kineto.kineto_trace import (
    Nodes,
    attributes_of,
    decode,
    describe_nodes,
    identity_rows,
    named_threads,
    nodes_in_order,
    unused_ids,
)
from nadi.kernels.sequences import spans_holding
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes, Part, combined
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CATEGORIES, DEVICE_WORK, NODES, ON_DEVICE
from nadi.trace.trace import Provenance, Source, Trace
from nadi.version import __version__

NO_ARGUMENTS = "kineto.no-arguments"
"""The code of the issue that arguments of events are left out, and events that are no nodes."""
NO_HOST_EVENTS = "kineto.no-host-events"
"""The code of the issue that events of hosts are left out."""

_WORK = [CATEGORIES.index(name) for name in DEVICE_WORK]
_MARKS = [CATEGORIES.index(name) for name in ("annotation", "device_annotation")]
_CALLS = [CATEGORIES.index(name) for name in ("runtime", "driver")]
_DEVICE_MARK = CATEGORIES.index("device_annotation")
_ON_DEVICE = [CATEGORIES.index(name) for name in ON_DEVICE]
_OPERATOR = CATEGORIES.index("operator")
_COLUMNS = ("start", "duration", "device", "stream", "correlation", "bytes")
_BANDWIDTH = np.frombuffer(bytearray(b'"memory bandwidth (GB/s)"'), dtype=np.uint8)
_BANDWIDTH_VALUE = re.compile(rb'"memory bandwidth \(GB/s\)"\s*:\s*[^\s,}]+')
_PART = "choose a part of it, with --step or --window of the command line"
_Values = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Found:
    """What is kept of the pieces so far, in the order of the file."""

    numbers: dict[str, int] = field(default_factory=dict)  # number of each name
    # of the nodes; ``name`` is its number, and ``thread`` for now a number below -1 for each thread
    # with a name
    columns: dict[str, GrowingColumn] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)  # this number by the thread's name
    # of each piece, and how many of its nodes were kept
    attributes: list[tuple[Attributes, int]] = field(default_factory=list)
    processes: Counter[int] = field(default_factory=Counter)  # number of operators by process


def read_columns(path: Path, *, hosts: bool, launches: bool = True) -> Trace:
    """Read names, times and places of the events of a Kineto file that is larger than memory.

    - ``hosts``: Whether events of hosts are read that neither launch work nor are annotations;
      without them a file takes memory of about a tenth of its size.
    - ``launches``: Whether calls are read that launch work.
    - Returns: As :func:`~nadi.files.kineto.kineto_trace.decode` gives it, without communication and
      other columns that come from arguments, but for correlations, bytes and the bandwidth of
      copies. The first event is always one of its nodes, so that times count from it. Issues say
      what is left out. O(bytes + nodes log nodes); 110 bytes per node.
    - Raises FormatError if the file is broken, its events are a bare list, or several ranks were
      merged into it.
    """
    found, outside = _Found(), list[bytes]()
    num_events = 0
    for piece in event_pieces(path, outside):
        nodes = describe_nodes(RawFile(str(path), piece.text, piece.text), piece.events, None)
        chosen = _chosen(nodes, hosts=hosts, launches=launches)
        _count_processes(nodes, found.processes)
        if chosen.any():
            _keep(nodes, chosen, found, hosts=hosts)
        num_events += chosen.size
    if len(found.processes) > 1:
        raise FormatError(
            str(path), "several processes have operators in the file, as if ranks were merged",
            "give a file for each rank",
        )  # fmt: skip
    kept = None if hosts or not launches else _drop_other_calls(found)
    rows, attributes = _nodes(found, kept, base_time(outside))
    content = np.frombuffer(bytearray(b"".join(outside)), dtype=np.uint8)
    empty = decode(RawFile(str(path), content, content))
    # checked tables: to check the columns that hold one value would write it out for each node
    return Trace.of_checked(
        nodes=rows, deps=empty.deps, groups=empty.groups,
        issues=pl.concat([empty.issues, _issues(num_events, rows.height)]),
        provenance=Provenance(__version__, (Source(str(path), "Kineto", path.stat().st_size, ""),)),
        rank=empty.rank, world_size=empty.world_size, process=next(iter(found.processes), -1),
        given_attributes=empty.attributes.joined(attributes).with_own_bytes(),
    )  # fmt: skip


def _issues(num_events: int, num_kept: int) -> pl.DataFrame:
    """Say what is left out."""
    log = IssueLog()
    log.add(NO_ARGUMENTS, "info", num_events, "events are read without their arguments", _PART)
    left_out = num_events - num_kept
    log.add(NO_HOST_EVENTS, "info", left_out, "events of hosts are not read", _PART)
    return log.table()


def _chosen(nodes: Nodes, *, hosts: bool, launches: bool) -> Bools:
    """Return which nodes of a piece are kept; always the first of those that begin first."""
    if hosts:
        return np.ones(nodes.category.size, dtype=np.bool_)
    chosen = np.isin(nodes.category, _WORK + _MARKS)
    if launches:
        chosen |= np.isin(nodes.category, _CALLS) & (nodes.correlation > 0)
    if chosen.size:
        chosen[nodes.events.column("start").argmin()] = True
    return chosen


def _count_processes(nodes: Nodes, counts: Counter[int]) -> None:
    pids = nodes.events.column("pid")[nodes.category == _OPERATOR]
    for pid, count in zip(
        *(one.tolist() for one in np.unique(pids, return_counts=True)), strict=True
    ):
        counts[pid] += count


def _keep(nodes: Nodes, chosen: Bools, found: _Found, *, hosts: bool) -> None:
    """Add the nodes of a piece that are kept; threads matter only with all events of hosts."""
    numbers = [found.numbers.setdefault(name, len(found.numbers)) for name in nodes.names.unique]
    columns: dict[str, _Values] = {
        name: nodes.events.column(name) if name in ("start", "duration", "bytes")
        else getattr(nodes, name)
        for name in _COLUMNS
    }  # fmt: skip
    columns["name"] = np.array(numbers, dtype=np.uint32)[nodes.names.codes]
    columns["category"] = nodes.category.astype(np.uint8)
    if hosts:
        rows, names = named_threads(nodes.raw, nodes.events, nodes.on_device)
        known = [found.threads.setdefault(name, -2 - len(found.threads)) for name in names.unique]
        columns["thread"] = nodes.thread.copy()
        columns["thread"][rows] = np.array(known, dtype=np.int64)[names.codes]
    for name, values in columns.items():
        narrow = np.uint8 if name == "category" else np.int32
        found.columns.setdefault(name, GrowingColumn(narrow)).add(values[chosen])
    found.attributes.append((_attributes(nodes, chosen), int(np.count_nonzero(chosen))))


def _attributes(nodes: Nodes, chosen: Bools) -> Attributes:
    """Return what is kept of arguments: bandwidths of copies, and places of annotations."""
    found, every = nodes.events.found, np.arange(chosen.size)
    values = attributes_of(nodes.raw, identity_rows(nodes), found.kept, found.keys, [], every)
    owner = nodes.category[np.maximum(values.node, 0)]
    kept = np.zeros(len(values), dtype=np.bool_)
    for name in ("pid", "tid"):
        rows = values.rows_named(name)
        kept[rows] = owner[rows] == _DEVICE_MARK
    rows = values.rows_named("args")
    rows = rows[np.isin(owner[rows], _WORK)]
    holds = np.empty(rows.size, dtype=np.bool_)
    length = values.length[rows].astype(np.int64)
    spans_holding(nodes.raw.content, values.value[rows], length, _BANDWIDTH, holds)
    kept[rows[holds]] = True
    new_row = np.where(chosen, np.cumsum(chosen) - 1, -1)
    return _shortened(values.filtered(kept & (values.node >= 0)).moved(new_row))


def _shortened(values: Attributes) -> Attributes:
    """Return attributes with bytes of their own: of arguments no more than the bandwidth."""
    texts = [values.span(row) for row in range(len(values))]
    texts = [b"{%s}" % found[0] if (found := _BANDWIDTH_VALUE.search(text)) else text
             for text in texts]  # fmt: skip
    length = np.array([len(text) for text in texts], dtype=np.int32)
    content = np.frombuffer(bytearray(b"".join(texts)), dtype=np.uint8)
    at = np.cumsum(length, dtype=np.int64) - length
    return replace(values, value=at, length=length, buffers=(content,))


def _drop_other_calls(found: _Found) -> Bools | None:
    """Leave out calls that launch no work, which were kept while it was not known.

    Returns which rows are kept, shape (rows,); None if there were no rows.
    """
    columns = found.columns
    if not columns:
        return None
    category, correlation = columns["category"].values(), columns["correlation"].values()
    start = columns["start"].values()
    launched = np.sort(correlation[np.isin(category, _WORK)])
    kept: Bools = ~np.isin(category, _CALLS) | (start == start.min())
    kept |= is_among(correlation, launched)
    for column in columns.values():
        column.keep(kept)
    return kept


def _nodes(found: _Found, kept: Bools | None, base: int) -> tuple[pl.DataFrame, Attributes]:
    """Return the nodes in their final order, and their attributes."""
    columns = found.columns
    if not columns:
        return NODES.empty(), Attributes.empty()
    order = nodes_in_order(*(columns[name].values() for name in ("start", "duration", "category")))
    new_row = np.empty(order.size, dtype=np.int64)
    new_row[order] = np.arange(order.size)
    del order
    attributes = _ordered_attributes(found, kept, new_row)
    category = columns.pop("category").take_ordered(new_row)
    values: dict[str, Any] = {
        "id": np.arange(new_row.size),
        "is_cpu": ~np.isin(category, _ON_DEVICE),
        "kind": comm_kind("none"),
        "category": NODES.coded("category", category),
    }
    numbers = columns.pop("name").take_ordered(new_row).astype(np.int32)
    values["name"] = Texts(numbers, tuple(found.numbers)).series()
    del category, numbers
    for name in list(columns):  # one after the other: each is in memory twice meanwhile
        column = columns.pop(name).take_ordered(new_row)
        if name == "start":
            column += base
        elif name == "thread":
            column = _threads(column, found.threads)
        values[name] = pl.Series(column, dtype=pl.Int64)
    return NODES.build(new_row.size, values), attributes


def _ordered_attributes(found: _Found, kept: Bools | None, new_row: Ints) -> Attributes:
    """Return the attributes of all pieces for the nodes in their final order."""
    if kept is not None:
        of_kept = np.full(kept.size, -1, dtype=np.int64)
        of_kept[kept] = new_row
        new_row = of_kept
    ends = np.cumsum([size for _, size in found.attributes])
    parts = zip(found.attributes, np.split(new_row, ends[:-1]), strict=True)
    return combined([Part(one, rows) for (one, _), rows in parts])


def _threads(thread: Ints, names: dict[str, int]) -> Ints:
    """Give threads with names the ids that they get in a file that is read as a whole."""
    named = np.flatnonzero(thread < -1)
    number = unused_ids(np.delete(thread, named), names)
    thread[named] = np.array(list(map(number.__getitem__, names)), dtype=np.int64)[
        -2 - thread[named]
    ]
    return thread


# So large an array gets pages of its own, which go back to the system when it ends. Small ones
# would lie between what else each piece needs, and keep that memory from being given back.
_CHUNK_BYTES = 1 << 26


class GrowingColumn:
    """A column of integers, stored in a narrow type where they fit and in int64 elsewhere.

    Parameters
    ----------
    narrow
        The narrow type.
    """

    def __init__(self, narrow: npt.DTypeLike) -> None:
        self._narrow = np.dtype(narrow)
        self._chunks: list[npt.NDArray[Any]] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return sum(self._sizes)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append integers. O(values)."""
        if not values.size:
            return
        limits = np.iinfo(self._narrow)
        fits = limits.min <= values.min() and values.max() <= limits.max
        dtype = self._narrow if fits else np.dtype(np.int64)
        done = 0
        while done < values.size:
            if not self._chunks or self._chunks[-1].dtype != dtype or not self._room():
                self._chunks.append(np.empty(_CHUNK_BYTES // dtype.itemsize, dtype=dtype))
                self._sizes.append(0)
            count, at = min(self._room(), values.size - done), self._sizes[-1]
            self._chunks[-1][at : at + count] = values[done : done + count]
            self._sizes[-1] += count
            done += count

    def _room(self) -> int:
        return self._chunks[-1].size - self._sizes[-1]

    def values(self) -> npt.NDArray[Any]:
        """Return all integers in one array, shape (rows,)."""
        parts = [one[:size] for one, size in zip(self._chunks, self._sizes, strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=self._narrow)

    def keep(self, chosen: Bools) -> None:
        """Drop rows; ``chosen`` is bool, shape (rows,)."""
        at = 0
        for number, chunk in enumerate(self._chunks):
            size = self._sizes[number]
            kept = chunk[:size][chosen[at : at + size]]
            chunk[: kept.size] = kept
            self._sizes[number] = kept.size
            at += size

    def take_ordered(self, new_row: Ints) -> Ints:
        """Return the integers in new rows, and empty the column.

        - ``new_row``: int64, shape (rows,): the new row of each, all different.
        - Returns int64, shape (rows,)
        """
        found = np.empty(len(self), dtype=np.int64)
        at = 0
        while self._chunks:
            chunk, size = self._chunks.pop(0), self._sizes.pop(0)
            found[new_row[at : at + size]] = chunk[:size]
            at += size
        return found
