"""Schedules as rows of events, in the order in which the page's timeline draws them.

What operations work on, as texts for the page's timeline: shapes, types, launch grids.

Levels of detail: short events that follow each other in a row, drawn as one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.graph.critical_paths import PATH_KINDS, CriticalPath
from nadi.graph.timeline.schedule_timeline import TimelinePart, path_runs
from nadi.graph.timeline.timeline_row_kernels import place_in_rows
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

_PATH = "critical path"
_MOST_ROWS = 256  # of a track


class DrawnTrack(NamedTuple):
    """A thread, a stream, or the critical path, of one rank in one schedule."""

    process: int
    title: str
    is_path: bool


class DrawnRow(NamedTuple):
    """A row of a track: its number there, and how many events it has."""

    track: int
    depth: int
    size: int


class TimelineEvents(NamedTuple):
    """Events in the order of rows, and in each row of time."""

    # the title of each rank of each schedule, and the number of the schedule; those of a rank
    # follow each other
    processes: list[tuple[str, int]]
    # tracks, rows: in order of the page, from the top
    tracks: list[DrawnTrack]
    rows: list[DrawnRow]
    names: list[tuple[str, str]]  # distinct pairs of name and category
    # start, end: int64 ns, shape (events,), since the job's origin
    start: Ints
    end: Ints
    name: Ints  # int64, shape (events,): which of ``names``
    is_critical: Bools  # bool, shape (events,)
    node: Ints  # int64, shape (events,): the id of the node, or -1
    # for each schedule and rank (by place) int64, shape (nodes,): the event of each node, or -1
    event_of: dict[tuple[int, int], Ints]
    left_out: int  # number of operations that are not drawn


class _Operations(NamedTuple):
    """The drawn operations of one schedule; shape (operations,)."""

    place: Ints  # of the rank
    row: Ints
    start: Ints
    end: Ints
    resource: pl.Series
    is_host: Bools
    is_critical: Bools
    node: Ints
    label: Ints  # position in the pairs of name and category


class _Columns(NamedTuple):
    """Events in no order; int64, shape (events,). ``part`` is the number of the schedule."""

    track: Ints
    start: Ints
    end: Ints
    label: Ints
    is_critical: Ints
    node: Ints
    part: Ints
    place: Ints
    row: Ints


class _TrackTable(NamedTuple):
    """Where each track stands, by process and title; the process of each schedule and rank."""

    track_of: dict[tuple[int, str], int]
    process_of: dict[tuple[int, int], int]


def timeline_events(parts: Sequence[TimelinePart]) -> TimelineEvents:
    """Lay out schedules, those of a rank one below the other. O(events log events).

    - ``parts``: At least one; the first is drawn above the others of a rank.
    """
    labels: dict[tuple[str, str], int] = {}
    found = [_operations(part, labels) for part in parts]
    processes, process_of = _processes(parts)
    tracks, track_of = _tracks(parts, found, process_of)
    table = _TrackTable(track_of, process_of)
    pieces = _columns(parts, found, table, labels)
    columns = _Columns(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    order = np.lexsort((-columns.end, columns.start, columns.track))
    lane = np.empty(order.size, dtype=np.int64)
    room = np.empty(_MOST_ROWS, dtype=np.int64)
    track, start, end = (column[order] for column in columns[:3])
    left_out = place_in_rows(track, start, end, room, lane)
    order, lane = order[lane >= 0], lane[lane >= 0]
    by_row = np.argsort(columns.track[order] * _MOST_ROWS + lane, kind="stable")
    order, lane = order[by_row], lane[by_row]
    given = sum(part.schedule.table.height for part in parts)
    return TimelineEvents(
        processes=processes,
        tracks=tracks,
        rows=_rows(columns.track[order], lane),
        names=list(labels),
        start=columns.start[order],
        end=columns.end[order],
        name=columns.label[order],
        is_critical=columns.is_critical[order] == 1,
        node=columns.node[order],
        event_of=_events_of_nodes(parts, columns, order),
        left_out=left_out + given - sum(one.row.size for one in found),
    )


def _events_of_nodes(
    parts: Sequence[TimelinePart], columns: _Columns, order: Ints
) -> dict[tuple[int, int], Ints]:
    """Return the event of each node, by schedule and rank."""
    new = np.full(columns.start.size, -1, dtype=np.int64)
    new[order] = np.arange(order.size)
    found = {}
    for number, part in enumerate(parts):
        for place, trace in enumerate(part.job.traces):
            mine = (columns.part == number) & (columns.place == place) & (columns.row >= 0)
            found[number, place] = np.full(trace.nodes.height, -1, dtype=np.int64)
            found[number, place][columns.row[mine]] = new[mine]
    return found


def _operations(part: TimelinePart, labels: dict[tuple[str, str], int]) -> _Operations:
    """Return the operations of a schedule that can be drawn: those with a time of their own."""
    table, job = part.schedule.table, part.job
    ranks = np.array(job.ranks, dtype=np.int64)
    place = np.searchsorted(ranks, table["rank"].to_numpy())
    row = table["node"].to_numpy()
    first = np.cumsum([0, *(trace.nodes.height for trace in job.traces)])
    nodes = pl.concat([
        trace.nodes.select("id", "name", "category", "is_cpu", "duration") for trace in job.traces
    ])  # fmt: skip
    which = first[place] + row
    start = table["start"].to_numpy()
    end = np.maximum(start, table["end"].to_numpy())
    vanished = (nodes["duration"].to_numpy()[which] > 0) & (end == start)
    kept = np.flatnonzero(~vanished)
    which = which[kept]
    critical = np.zeros(nodes.height, dtype=np.bool_)
    if part.path is not None:
        on_path = part.path.segments.filter(pl.col("node") >= 0)
        at = np.searchsorted(ranks, on_path["rank"].to_numpy())
        critical[first[at] + on_path["node"].to_numpy()] = True
    return _Operations(
        place[kept], row[kept], start[kept], end[kept], table["resource"][kept],
        nodes["is_cpu"].to_numpy()[which], critical[which], nodes["id"].to_numpy()[which],
        _labels(nodes, which, labels),
    )  # fmt: skip


def _labels(nodes: pl.DataFrame, which: Ints, labels: dict[tuple[str, str], int]) -> Ints:
    """Return the number of each operation's name and category; new ones go to ``labels``."""
    pair = nodes.select(
        pl.struct(
            pl.col("name").cast(pl.Categorical).to_physical(), pl.col("category").to_physical()
        ).rank("dense").cast(pl.Int64) - 1
    ).to_series().to_numpy()[which]  # fmt: skip
    used, example, place = np.unique(pair, return_index=True, return_inverse=True)
    texts = nodes.select(pl.col("name", "category").cast(pl.String))[which[example]]
    number = [labels.setdefault(text, len(labels)) for text in texts.iter_rows()]
    return np.array(number, dtype=np.int64)[place] if used.size else which


def _processes(
    parts: Sequence[TimelinePart],
) -> tuple[list[tuple[str, int]], dict[tuple[int, int], int]]:
    """Return the titles of processes, and the process of each schedule and place of a rank."""
    pairs = sorted(
        (rank, number, place)
        for number, part in enumerate(parts)
        for place, rank in enumerate(part.job.ranks)
    )
    titles = [(f"rank {rank} {parts[number].title}".rstrip(), number) for rank, number, _ in pairs]
    return titles, {(number, place): i for i, (_, number, place) in enumerate(pairs)}


def _tracks(
    parts: Sequence[TimelinePart],
    found: Sequence[_Operations],
    process_of: dict[tuple[int, int], int],
) -> tuple[list[DrawnTrack], dict[tuple[int, str], int]]:
    """Return the tracks: of each process the path, then streams, then threads, by work."""
    used = pl.concat([
        pl.DataFrame({
            "part": np.full(one.row.size, number), "place": one.place,
            "resource": one.resource.cast(pl.String), "is_host": one.is_host,
        })
        .group_by("part", "place", "resource")
        .agg(pl.first("is_host"), count=pl.len())
        for number, one in enumerate(found)
    ])  # fmt: skip
    # schedules of the same rank have their tracks in the same order
    used = used.with_columns(all=pl.sum("count").over("place", "resource"))
    used = used.sort("is_host", "all", "resource", descending=[False, True, False])
    listed = [
        (process_of[number, part.job.ranks.index(rank)], 0, _PATH)
        for number, part in enumerate(parts)
        if part.path is not None
        for rank in part.path.segments["rank"].unique().sort()
    ]
    listed += [
        (process_of[number, place], 1, resource)
        for number, place, resource in used.select("part", "place", "resource").iter_rows()
    ]
    listed.sort(key=lambda one: one[:2])
    tracks = [DrawnTrack(process, title, turn == 0) for process, turn, title in listed]
    return tracks, {(process, title): i for i, (process, _, title) in enumerate(listed)}


def _columns(
    parts: Sequence[TimelinePart],
    found: Sequence[_Operations],
    table: _TrackTable,
    labels: dict[tuple[str, str], int],
) -> list[_Columns]:
    """Return the columns of operations, and of stretches of critical paths, piece by piece."""
    pieces = []
    for number, (part, one) in enumerate(zip(parts, found, strict=True)):
        resources = one.resource.cast(pl.Categorical)
        codes = resources.to_physical().to_numpy()
        used, example, which = np.unique(codes, return_index=True, return_inverse=True)
        names = resources.gather(example).cast(pl.String).to_list()
        lookup = np.full((len(part.job.traces), used.size), -1, dtype=np.int64)
        for place in range(len(part.job.traces)):
            process = table.process_of[number, place]
            lookup[place] = [table.track_of.get((process, name), -1) for name in names]
        pieces.append(_Columns(
            lookup[one.place, which], one.start, one.end, one.label,
            one.is_critical.astype(np.int64), one.node, np.full(one.row.size, number), one.place,
            one.row,
        ))  # fmt: skip
        if part.path is not None:
            pieces.append(_path_columns(part, part.path, number, table, labels))
    return pieces


def _path_columns(
    part: TimelinePart,
    path: CriticalPath,
    number: int,
    table: _TrackTable,
    labels: dict[tuple[str, str], int],
) -> _Columns:
    """Return the stretches of a critical path as events: consecutive ones of a kind are one."""
    runs = path_runs(path)
    ranks = np.array(part.job.ranks, dtype=np.int64)
    place = np.searchsorted(ranks, runs["rank"].to_numpy())
    tracks = np.array(
        [table.track_of.get((table.process_of[number, at], _PATH), -1) for at in range(ranks.size)]
    )
    kinds = runs["name"].cast(pl.Enum(PATH_KINDS)).to_physical().to_numpy()
    codes = np.array([labels.setdefault((kind, _PATH), len(labels)) for kind in PATH_KINDS])
    none = np.full(runs.height, -1, dtype=np.int64)
    return _Columns(
        tracks[place], runs["start"].to_numpy(), runs["end"].to_numpy(), codes[kinds],
        np.ones(runs.height, dtype=np.int64), none, np.full(runs.height, number), place, none,
    )  # fmt: skip


def _rows(track: Ints, lane: Ints) -> list[DrawnRow]:
    """Return the rows of events that are in the order of rows."""
    key = track * _MOST_ROWS + lane
    first = np.flatnonzero(np.append(True, np.diff(key) != 0)) if key.size else key
    counts = np.diff(np.append(first, key.size))
    return [
        DrawnRow(int(track[at]), int(lane[at]), int(count))
        for at, count in zip(first, counts, strict=True)
    ]


# attributes of host traces, which hold nothing else
_WHOLE = {"inputs.shapes": "input shapes", "inputs.types": "input types"}
# within "args" of device traces
_NUMBERS, _TEXTS = r"(\[[-\[\]0-9,\s]*\])", r'(\[(?:"[^"\\]*"|[\[\],\s])*\])'
_ONE = r'("[^"\\]*"|-?[0-9.]+)'
_WITHIN = {
    "input shapes": rf'"Input Dims"\s*:\s*{_NUMBERS}',
    "input types": rf'"Input type"\s*:\s*{_TEXTS}',
    "grid": rf'"grid"\s*:\s*{_NUMBERS}',
    "block": rf'"block"\s*:\s*{_NUMBERS}',
    "bytes": rf'"(?:bytes|Bytes)"\s*:\s*{_ONE}',
    "collective": rf'"Collective name"\s*:\s*{_ONE}',
    "elements": rf'"In msg nelems"\s*:\s*{_ONE}',
    "element type": rf'"dtype"\s*:\s*{_ONE}',
}
_MOST_NODES = 600_000  # of all traces, above which no texts are made
_LETTERS = 8  # for each event, on average: what distinct texts may take
_ROOM = 100_000  # letters, in addition
_LONGEST = 2000


def operand_texts(parts: Sequence[TimelinePart], events: TimelineEvents) -> tuple[list[str], Ints]:
    """Describe the operands of events.

    Texts that few events have are left out if all would take more room than the events; so are all
    texts of more than 600,000 operations.

    - Returns list of str: Distinct texts, a line per field; the first is empty.
    - and numpy.ndarray: int64, shape (events,): the text of each event.
    """
    found = np.zeros(events.start.size, dtype=np.int64)
    if sum(part.job.num_nodes for part in parts) > _MOST_NODES:
        return [""], found
    texts: dict[str, int] = {"": 0}
    known: dict[int, tuple[list[str], Ints]] = {}
    for number, part in enumerate(parts):
        for place, trace in enumerate(part.job.traces):
            if id(trace) not in known:
                known[id(trace)] = _of_nodes(trace)
            distinct, code = known[id(trace)]
            number_of = np.array([texts.setdefault(text, len(texts)) for text in distinct])
            event_of = events.event_of[number, place]
            drawn = event_of >= 0
            found[event_of[drawn]] = number_of[code[drawn]]
    return _within_room(list(texts), found)


def _within_room(texts: list[str], code: Ints) -> tuple[list[str], Ints]:
    """Keep the texts of most events, as far as there is room."""
    used = np.bincount(code, minlength=len(texts))
    order = np.argsort(-used, kind="stable")
    order = np.append(0, order[(order != 0) & (used[order] > 0)])
    sizes = np.cumsum([len(texts[i]) for i in order])
    kept = order[sizes <= _LETTERS * code.size + _ROOM]
    new = np.zeros(len(texts), dtype=np.int64)
    new[kept] = np.arange(kept.size)
    return [texts[i] for i in kept], new[code]


def _of_nodes(trace: Trace) -> tuple[list[str], Ints]:
    """Return the distinct texts of a trace's operations, and the text of each node."""
    texts, code = [""], np.zeros(trace.nodes.height, dtype=np.int64)
    for title, node, values in _fields(trace):
        known: dict[str, int] = {"": 0}
        mine = np.zeros(code.size, dtype=np.int64)
        mine[node] = [known.setdefault(value, len(known)) for value in values]
        pairs, code = np.unique(code * len(known) + mine, return_inverse=True)
        added = ["", *(f"{title}: {value[:_LONGEST]}\n" for value in list(known)[1:])]
        texts = [texts[pair // len(known)] + added[pair % len(known)] for pair in pairs.tolist()]
    return [text.removesuffix("\n") for text in texts], code


def _fields(trace: Trace) -> Iterator[tuple[str, Ints, Sequence[str]]]:
    """Yield the title of each field, and the nodes that have it with their values."""
    attributes = trace.attributes
    of_kind = trace.category_mask("operator", "runtime", "driver", *DEVICE_WORK)
    given = set()
    for name, title in _WHOLE.items():
        node, spans = _spans(attributes, name, of_kind)
        if spans:
            given.add(title)
            yield title, node, spans
    if given:  # args of operators say the same again
        of_kind = of_kind & ~trace.category_mask("operator")
    node, spans = _spans(attributes, "args", of_kind)
    content = pl.Series(spans, dtype=pl.String)
    for title, pattern in _WITHIN.items():
        if title in given:
            continue
        value = content.str.extract(pattern)
        has = value.is_not_null()
        if has.any():
            yield title, node[has.to_numpy()], value.filter(has).to_list()


def _spans(attributes: Attributes, name: str, of_kind: Bools) -> tuple[Ints, list[str]]:
    """Return the nodes with an attribute that is more than an empty list, and its texts."""
    rows = attributes.rows_named(name)
    node = attributes.node[rows].astype(np.int64)
    wanted = (node >= 0) & (attributes.length[rows] > len("[]"))
    wanted &= of_kind[node]
    rows, node = rows[wanted], node[wanted]
    content, offset = attributes.bytes_around(rows)
    begin = attributes.value[rows] - offset
    spans = zip(begin.tolist(), (begin + attributes.length[rows]).tolist(), strict=True)
    held = content.data
    return node, [str(held[at:end], "utf-8", "replace") for at, end in spans]


_FACTOR = 4  # of the width from one level to the next
_SHRINKS = 0.6  # a level has at most this part of the runs of the one before
_FEW = 2000  # runs: below, no further level is needed


class DetailLevel(NamedTuple):
    """Events joined to runs."""

    # ns: events that are as long or longer stand alone; a run of shorter ones begins within this
    # time, so that it is less than twice as long
    width: int
    # int64, shape (runs,): how many events, in their order, each run has; their sum is the number
    # of events. A run has events of one row.
    counts: Ints


def detail_levels(row: Ints, start: Ints, end: Ints) -> list[DetailLevel]:
    """Join events for drawings in which a pixel is long; from fine to coarse.

    - ``row``: int64, shape (events,), ascending: the row of each event.
    - ``start``, ``end``: int64 ns, shape (events,), ascending within each row, where no event
      overlaps another. O(events) for each level.
    """
    levels: list[DetailLevel] = []
    if not start.size:
        return levels
    number, width = start.size, 256
    span = int(end.max() - start.min())
    while number > _FEW and width < span:
        is_long = end - start >= width
        cell = (start - start.min()) // width
        begins = np.ones(start.size, dtype=np.bool_)
        begins[1:] = (row[1:] != row[:-1]) | (cell[1:] != cell[:-1]) | is_long[1:] | is_long[:-1]
        first = np.flatnonzero(begins)
        if first.size <= _SHRINKS * number:
            number = first.size
            levels.append(DetailLevel(width, np.diff(np.append(first, start.size))))
        width *= _FACTOR
    return levels
