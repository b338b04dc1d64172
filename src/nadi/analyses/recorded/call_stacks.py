"""Call stacks, and the time of each path of calls: what a flame graph shows.

Flame graphs as data: time by path of calls, over all ranks and steps, and by module.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.graph.module_times import OUTSIDE, ModuleTimes
from nadi.graph.windows import MARK
from nadi.trace.arrays import Ints, numbered_texts
from nadi.trace.schema import THREAD_WORK


@per_rank("operators", "host events")
def call_stacks(events: RankEvents) -> pl.DataFrame:
    """List the events of threads with what is around them and what they launch.

    Returns
    -------
    polars.DataFrame
        In order of rows: ``row``, ``name``, ``thread``, ``depth`` (0 outermost), ``parent`` (a
        row, or -1), ``duration_ns``, ``self_ns`` (without nested ones), ``kernels`` and
        ``device_ns`` (number and sum of work launched in it, at any depth). O(events * depth).
    """
    rows = np.flatnonzero(events.is_of(*THREAD_WORK) & (events.column("start") >= 0))
    parent = events.parent
    launched = events.work[events.launcher[events.work] >= 0]
    own = np.zeros((2, parent.size), dtype=np.int64)
    np.add.at(own[0], events.launcher[launched], 1)
    np.add.at(own[1], events.launcher[launched], events.column("duration")[launched])
    inside = own.copy()
    depth = np.zeros(parent.size, dtype=np.int64)
    above = parent[rows]
    source = rows
    while above.size and (above >= 0).any():
        source, above = source[above >= 0], above[above >= 0]
        depth[source] += 1
        np.add.at(inside[0], above, own[0][source])
        np.add.at(inside[1], above, own[1][source])
        above = parent[above]
    return pl.DataFrame({
        "row": rows, "name": events.table["name"].gather(rows).cast(pl.String),
        "thread": events.column("thread")[rows], "depth": depth[rows], "parent": parent[rows],
        "duration_ns": events.column("duration")[rows],
        "self_ns": self_times(events, rows, parent),
        "kernels": inside[0][rows], "device_ns": inside[1][rows],
    })  # fmt: skip


def self_times(events: RankEvents, rows: Ints, above: Ints) -> Ints:
    """Return the time of calls without that of the calls in them, ns; int64, shape (calls,).

    A call that outlives the one around it counts there for the time that both take, and for the
    rest in the one around that.

    - ``rows``: int64, shape (calls,): the rows of the calls.
    - ``above``: int64, shape (events,): the row of the call around each event, or -1.
    """
    left, end = events.column("duration").copy(), events.end
    nested, around, since = rows, above[rows], events.column("start")[rows]
    while (inside := around >= 0).any():
        nested, around, since = nested[inside], around[inside], since[inside]
        until = np.minimum(end[nested], end[around])
        np.subtract.at(left, around, np.maximum(until - since, 0))
        outlives = end[nested] > end[around]
        since = np.maximum(since, until)[outlives]
        nested, around = nested[outlives], above[around[outlives]]
    found: Ints = left[rows]
    return found


@per_rank("operators", "host events")
def flame_graph(
    events: RankEvents, deepest: int = 64, between: tuple[int, int] | None = None
) -> pl.DataFrame:
    """Sum time by path of calls: the frames of a flame graph.

    Parameters
    ----------
    events
        A job, a trace, or several.
    deepest
        Calls in more others than this count for the one around them.
    between
        Only calls that start between two times in ns since the epoch.

    Returns
    -------
    polars.DataFrame
        A row per frame, after the one below it: ``frame`` (its number), ``parent`` (of the frame
        below, or -1), ``depth``, ``name``, ``count``, ``total_ns``, ``self_ns``, ``device_ns`` (sum
        of work launched in it, at any depth). O(events * depth).
    """
    table = call_stacks(events)
    depth = table["depth"].to_numpy().copy()
    if between is not None:
        begun = events.column("start")[table["row"].to_numpy()]
        depth[(begun < between[0]) | (begun > between[1])] = -1  # in no level
    position = np.full(events.table.height, -1, dtype=np.int64)
    position[table["row"].to_numpy()] = np.arange(table.height)
    parent = table["parent"].to_numpy()
    above = np.where(parent >= 0, position[parent], -1)
    code, names = numbered_texts(table["name"])  # frames are in order of their first names
    num_names = max(len(names), 1)
    frame = np.full(table.height + 1, -1, dtype=np.int64)
    parts, number = [], 0
    for level in range(min(int(depth.max(initial=-1)) + 1, deepest)):
        mine = np.flatnonzero(depth == level)
        if mine.size == 0:
            continue
        below = frame[above[mine]]
        keys, first, which = np.unique(
            (below + 1) * num_names + code[mine], return_index=True, return_inverse=True
        )
        frame[mine] = number + which
        sums = np.zeros((4, first.size), dtype=np.int64)
        for line, values in enumerate(("duration_ns", "self_ns", "device_ns")):
            np.add.at(sums[line], which, table[values].to_numpy()[mine])
        np.add.at(sums[3], which, 1)
        parts.append(pl.DataFrame({
            "frame": np.arange(number, number + first.size), "parent": keys // num_names - 1,
            "depth": np.full(first.size, level), "name": table["name"].gather(mine[first]),
            "count": sums[3], "total_ns": sums[0], "self_ns": sums[1], "device_ns": sums[2],
        }))  # fmt: skip
        number += first.size
    return pl.concat(parts) if parts else pl.DataFrame(schema=_FLAME)


_FLAME = {
    "frame": pl.Int64, "parent": pl.Int64, "depth": pl.Int64, "name": pl.String,
    "count": pl.Int64, "total_ns": pl.Int64, "self_ns": pl.Int64, "device_ns": pl.Int64,
}  # fmt: skip


_SLIGHT = 2e-4  # of the whole: paths of calls below are left out
_MOST = 4000  # paths of calls
_STEP = re.compile(rf"^{MARK}#\d+$")
_TIMES = ("count", "total_ns", "self_ns", "device_ns")


class Frame(NamedTuple):
    """A path of calls: how deep it is, its last call, and sums over all that took it.

    ``total_ns`` is the time on the host with that of nested calls, ``self_ns`` without,
    ``device_ns`` that of device work launched in it, at any depth.
    """

    depth: int
    name: str
    calls: int
    total_ns: int
    self_ns: int
    device_ns: int


def describe_flame(ranks: Iterable[RankEvents], between: tuple[int, int]) -> list[dict[str, Any]]:
    """Sum the calls that start between two times (ns since the epoch) by path.

    Steps count as one call. Paths with less than 0.02 % of the time are left out.

    - Returns list of dict: A :class:`Frame` each, after the one around it, the longest first.
    """
    known: dict[tuple[int, str], int] = {}
    parents: list[int] = []
    sums: list[list[int]] = []
    for events in ranks:
        if not events.is_of("operator", "annotation", "python", "runtime").any():
            continue
        table = _large(flame_graph(events, between=between))
        place: dict[int, int] = {-1: -1}
        for frame, parent, name, *times in table.select(
            "frame", "parent", "name", *_TIMES
        ).iter_rows():
            if parent not in place:  # of calls that outlive the one around them
                continue
            key = place[parent], MARK if _STEP.match(name) else name
            if key not in known:
                known[key] = len(parents)
                parents.append(key[0])
                sums.append([0] * len(_TIMES))
            place[frame] = known[key]
            sums[known[key]] = [a + b for a, b in zip(sums[known[key]], times, strict=True)]
    names = [name for _, name in known]
    return [frame._asdict() for frame in _frames(parents, names, sums)]


def _large(frames: pl.DataFrame) -> pl.DataFrame:
    """Keep the frames with a share of the time."""
    roots = frames.filter(pl.col("parent") < 0).select(pl.sum("total_ns", "device_ns"))
    host, device = roots.row(0)
    return frames.filter(
        (pl.col("total_ns") >= max(_SLIGHT * host, 1))
        | ((pl.col("device_ns") >= _SLIGHT * device) & (pl.col("device_ns") > 0))
    )


def _frames(
    parents: Sequence[int], names: Sequence[str], sums: Sequence[Sequence[int]]
) -> Iterator[Frame]:
    """Yield frames with most time, the longest first."""
    weight = [one[1] + one[3] for one in sums]
    for depth, at in _in_order(parents, names, weight, _longest(parents, weight)):
        yield Frame(depth, names[at], *sums[at])


def _longest(parents: Sequence[int], weight: Sequence[float]) -> set[int]:
    """Return the frames with most time, of many; with those around them."""
    if len(parents) <= _MOST:
        return set(range(len(parents)))
    kept: set[int] = set()
    for at in sorted(range(len(weight)), key=lambda i: -weight[i])[:_MOST]:
        frame = at
        while frame >= 0 and frame not in kept:
            kept.add(frame)
            frame = parents[frame]
    return kept


def _in_order(
    parents: Sequence[int], names: Sequence[str], weight: Sequence[float], kept: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield the depth and the position of frames, each before those in it, the longest first."""
    inner: dict[int, list[int]] = {}
    for at in sorted(kept, key=lambda i: (weight[i], names[i])):
        inner.setdefault(parents[at], []).append(at)
    waiting = [(at, 0) for at in inner.get(-1, [])]
    while waiting:
        at, depth = waiting.pop()
        yield depth, at
        waiting += [(one, depth + 1) for one in inner.get(at, [])]


def compared_frames(
    rows: Sequence[Mapping[str, Any]], key: str, separator: str
) -> list[tuple[Frame, Frame]]:
    """Put the sums of two recordings by path into each other: the frames of a difference.

    - ``rows``: The calls or modules of a comparison (:class:`nadi.bottlenecks.ComparedRuns`): times
      without nested ones, per step.
    - ``key``, ``separator``: The column of the paths, and what stands between the names of a path.
    - Returns list of tuple: Each frame before and after, in ns rounded; after the one around it,
      the longest first. Paths with less than 0.02 % of the time of both recordings are left out.
    """
    number = {row[key]: i for i, row in enumerate(rows)}
    paths = list(number)
    cuts = [_around(path, number, separator) for path in paths]
    parents = [number.get(path[:cut], -1) for path, cut in zip(paths, cuts, strict=True)]
    names = [path[cut:].removeprefix(separator) for path, cut in zip(paths, cuts, strict=True)]
    own = np.array([[row[name] for name in _OF_SIDES] for row in rows]).reshape(-1, 2, 3)
    inside = own.copy()
    for at in sorted(range(len(paths)), key=lambda i: -len(paths[i])):
        if parents[at] >= 0:
            inside[parents[at], :, 1:] += inside[at, :, 1:]
    most = inside.max(axis=1, initial=0)[:, 1:]
    least = _SLIGHT * own.sum(axis=0).max(axis=0, initial=0)[1:]
    weight = most.sum(axis=1)
    kept = _longest(parents, weight.tolist())
    kept &= set(np.flatnonzero(((most >= least) & (most > 0)).any(axis=1)).tolist())
    found = []
    for depth, at in _in_order(parents, names, weight.tolist(), kept):
        calls, total, device = np.round(inside[at].T).astype(np.int64).tolist()
        self_ns = np.round(own[at, :, 1]).astype(np.int64).tolist()
        sides = zip(calls, total, self_ns, device, strict=True)
        before, after = (Frame(depth, names[at], *side) for side in sides)
        found.append((before, after))
    return found


_OF_SIDES = (
    "count_before", "before_ns", "device_before_ns", "count_after", "after_ns", "device_after_ns",
)  # fmt: skip


def _around(path: str, known: Mapping[str, int], separator: str) -> int:
    """Return where the path of the call around a path ends; 0 if it is in none.

    Names can have the separator in them, so the longest path that is known counts.
    """
    cut = path.rfind(separator)
    while cut > 0 and path[:cut] not in known:
        cut = path.rfind(separator, 0, cut)
    return max(cut, 0)


def module_frames(found: ModuleTimes) -> list[dict[str, Any]]:
    """Return the time of modules as frames; self time is that of no module within."""
    table = found.table.filter(pl.col("module") != OUTSIDE)
    host, device = (
        table.select(
            pl.sum_horizontal(name for name in table.columns if name.endswith(f"_{place}"))
        ).to_series().to_numpy()
        for place in ("host", "device")
    )  # fmt: skip
    parent = table["parent"].to_numpy()
    own = host.copy()
    nested = np.flatnonzero(parent >= 0)
    np.subtract.at(own, parent[nested], host[nested])
    paths = table["module"].to_list()
    names = [
        path.removeprefix(f"{paths[above]}.") if above >= 0 else path
        for path, above in zip(paths, parent.tolist(), strict=True)
    ]
    columns = (table["calls"].to_numpy(), host, own, device)
    sums = np.stack(columns, axis=1).tolist() if paths else []
    return [frame._asdict() for frame in _frames(parent.tolist(), names, sums)]
