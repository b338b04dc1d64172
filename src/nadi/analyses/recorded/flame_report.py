"""Flame graphs as data: time by path of calls, over all ranks and steps, and by module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.analyses.recorded.call_stacks import flame_graph
from nadi.analyses.recorded.events import RankEvents
from nadi.graph.module_times import OUTSIDE, ModuleTimes
from nadi.graph.windows import MARK

__all__ = ["Frame", "describe_flame", "module_frames"]

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

    Returns
    -------
    list of dict
        A :class:`Frame` each, after the one around it, the longest first.
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
    kept = _longest(parents, sums)
    return [frame._asdict() for frame in _in_order(parents, names, sums, kept)]


def _large(frames: pl.DataFrame) -> pl.DataFrame:
    """Keep the frames with a share of the time."""
    roots = frames.filter(pl.col("parent") < 0).select(pl.sum("total_ns", "device_ns"))
    host, device = roots.row(0)
    return frames.filter(
        (pl.col("total_ns") >= max(_SLIGHT * host, 1))
        | ((pl.col("device_ns") >= _SLIGHT * device) & (pl.col("device_ns") > 0))
    )


def _longest(parents: Sequence[int], sums: Sequence[Sequence[int]]) -> set[int]:
    """Return the frames with most time, of many; with those around them."""
    if len(parents) <= _MOST:
        return set(range(len(parents)))
    kept: set[int] = set()
    for at in sorted(range(len(sums)), key=lambda i: -(sums[i][1] + sums[i][3]))[:_MOST]:
        frame = at
        while frame >= 0 and frame not in kept:
            kept.add(frame)
            frame = parents[frame]
    return kept


def _in_order(
    parents: Sequence[int], names: Sequence[str], sums: Sequence[Sequence[int]], kept: set[int]
) -> Iterable[Frame]:
    """Yield frames, each before those in it, the longest first."""
    inner: dict[int, list[int]] = {}
    for at in sorted(kept, key=lambda i: (sums[i][1] + sums[i][3], names[i])):
        inner.setdefault(parents[at], []).append(at)
    waiting = [(at, 0) for at in inner.get(-1, [])]
    while waiting:
        at, depth = waiting.pop()
        yield Frame(depth, names[at], *sums[at])
        waiting += [(one, depth + 1) for one in inner.get(at, [])]


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
    kept = _longest(parent.tolist(), sums)
    return [frame._asdict() for frame in _in_order(parent.tolist(), names, sums, kept)]
