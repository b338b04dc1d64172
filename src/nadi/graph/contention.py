"""How much longer kernels take while communication runs beside them, learned from a recording.

The same kernel (name, grid, operator, shapes of its operands) runs alone and beside communication
in one recording. The ratio of both times is how much slower it is beside it. Without shapes that
ratio is of no use: persistent kernels have one grid for all sizes, and a large one beside
communication compares with a small one alone. Then the ratio is unknown, and says why.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.operand_shapes import NO_SHAPES, stated_shapes
from nadi.kernels.sequences import on_one_axis, union_of
from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.categories import kernel_class
from nadi.trace.rows import nearest, number_rows, with_ancestors
from nadi.trace.trace import Job, Trace

PUBLISHED = (1.0, 1.189, 1.4)
"""Least, mean and greatest slowdown of computation beside communication.

Of language models on A100, H100, MI250 and MI210 (arXiv 2507.03114): for what a recording does not
tell.
"""

_ALONE, _BESIDE = 0.0, 0.9  # shares of a kernel's time in which communication runs
_FEWEST = 2  # a median of one value has no spread
_SHORTEST = 20  # steps of the clock: a shorter time is its rounding
_MICROSECOND = 1_000
_MOST_SPREAD = 0.5  # of the middle half of times alone, as a part of their median
_LEAST_RATIO = 0.9  # nothing gets faster beside communication: the shapes hide other work
# Ratios of kernels differ by so much, as published; and so much one time differs from the next,
# which counts as much as two measured times
_OF_KERNELS, _OF_TIMES, _COUNTED = 0.15, 0.05, 2
_OF_MEDIAN = 1.57  # variance of a median, against that of a mean
_OF_DEVIATION = 1.4826  # standard deviation, against the median of absolute deviations
_LEVEL = NormalDist().inv_cdf(0.95)  # each side of an interval of 90 %
_KERNEL = ("name", "grid", "block", "operator", "shapes", "place")
_LAUNCHED = re.compile(rb'"(grid|block)"\s*:\s*(\[[^\]]*\])')
# why a ratio is unknown
_NO_SHAPES = "no shapes are recorded"
_NEVER_ALONE = "fewer than two alone"
_SELDOM_BESIDE = "fewer than two beside communication"
_TOO_SHORT = "too short for the clock"
_VARIES = "times alone vary: other work with the same shapes"
_FASTER = "faster beside communication: other work with the same shapes"


class Slowdown(NamedTuple):
    """How many times as long a kernel takes beside communication, and its interval of 90 %."""

    ratio: float
    low: float
    high: float


class KernelRuns(NamedTuple):
    """Each time that kernels of a trace ran which may run beside communication."""

    rows: Ints  # int64, ascending: their nodes
    # float64: 1 where no communication ran beside it and nothing is known, NaN where some did
    ratio: Floats
    beside: Ints  # int64 ns: for how long communication ran beside it

    def of_nodes(self, num_nodes: int) -> tuple[Floats, Ints]:
        """Return ratio and time beside communication of all nodes: 1 and 0 of what is no kernel."""
        ratio, beside = np.ones(num_nodes), np.zeros(num_nodes, dtype=np.int64)
        ratio[self.rows], beside[self.rows] = self.ratio, self.beside
        return ratio, beside


@dataclass(frozen=True, eq=False)
class Contention:
    """What a job tells of its kernels beside communication.

    Attributes
    ----------
    kernels
        A row per kernel that runs beside communication, the most time first: ``class``, ``name``,
        ``grid``, ``block``, ``operator``, ``shapes``, ``place`` among the kernels of its operator;
        ``alone`` and ``beside`` (how many run so), ``beside_ns`` (time beside communication),
        ``alone_ns`` (median), ``ratio`` (null if unknown), its interval ``low`` to ``high`` (of
        ``basis``: this recording, or as published), ``slowed_ns`` (what communication costs them),
        ``unknown`` (why; null if known).
    runs
        Of each trace of the job: each time that one of these kernels ran.
    """

    kernels: pl.DataFrame
    runs: tuple[KernelRuns, ...]

    @property
    def is_known(self) -> bool:
        """Whether the ratio of any kernel is known."""
        return bool(self.kernels["ratio"].is_not_null().any())


_LEARNED: WeakKeyDictionary[Job, Contention] = WeakKeyDictionary()
_KERNELS: WeakKeyDictionary[Trace, pl.DataFrame] = WeakKeyDictionary()
_Spans = tuple[Ints, Ints, Ints]


@checked
def learn_contention(job: Job) -> Contention:
    """Learn how much slower kernels are beside communication; kept with the job.

    Kernels beside other kernels that compute tell nothing, and are left out.

    Returns
    -------
    Contention
        O(nodes log nodes); without kernels beside communication O(nodes).
    """
    if job not in _LEARNED:
        _LEARNED[job] = _learned(job)
    return _LEARNED[job]


def _learned(job: Job) -> Contention:
    number = {trace: at for at, trace in enumerate(dict.fromkeys(job.traces))}  # some share one
    groups = runs_of_kernels(job)
    rows = [_group(group) for group in groups.iter_rows(named=True)]
    table = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    table = table.sort("beside_ns", "name", "shapes", "place", descending=[True, *[False] * 3])
    # communication makes no kernel faster: less than 1 is chance
    ratio = [max(row["ratio"], 1.0) if "ratio" in row else np.nan for row in rows]
    found = groups.select("trace", "node", "beside", ratio=pl.Series(ratio, dtype=pl.Float64))
    found = found.explode("trace", "node", "beside", empty_as_null=False).sort("trace", "node")
    runs = KernelRuns(*(found[name].to_numpy() for name in ("node", "ratio", "beside")))
    # what never ran beside communication and is unknown stays as it is
    runs = runs._replace(ratio=np.where(np.isnan(runs.ratio) & (runs.beside == 0), 1, runs.ratio))
    ends = np.searchsorted(found["trace"].to_numpy(), np.arange(len(number)), side="right")
    each = list(zip(*(np.split(column, ends[:-1]) for column in runs), strict=True))
    return Contention(table, tuple(KernelRuns(*each[number[trace]]) for trace in job.traces))


def runs_of_kernels(job: Job) -> pl.DataFrame:
    """Return each time that the kernels beside communication ran, beside it or alone.

    - Returns: A row per kernel: its name, ``grid``, ``block``, ``operator``, ``shapes``, ``place``,
      and as lists ``trace`` (of the different ones of the job), ``node``, ``duration``, ``beside``
      (ns beside communication), ``is_shared`` (whether other kernels compute meanwhile),
      ``is_coarse`` (whether times are whole microseconds). O(nodes log nodes).
    """
    traces = list(dict.fromkeys(job.traces))
    parts = [_KERNELS[trace] if trace in _KERNELS else kernels_of(trace) for trace in traces]
    names = pl.concat(
        trace.nodes.get_column("name")[part.get_column("node")]
        for trace, part in zip(traces, parts, strict=True)
    )
    at = pl.Series(np.repeat(np.arange(len(parts)), [part.height for part in parts]))
    kernels = pl.concat(parts).with_columns(name=names, trace=at)
    groups = kernels.group_by(_KERNEL, maintain_order=True).agg(
        pl.col("trace", "node", "duration", "beside", "is_shared", "is_coarse")
    )  # fmt: skip
    return groups.filter(pl.col("beside").list.sum() > 0)


_SCHEMA = {
    "class": pl.String, "name": pl.String, "grid": pl.String, "block": pl.String,
    "operator": pl.String, "shapes": pl.String, "place": pl.Int64, "alone": pl.Int64,
    "beside": pl.Int64, "beside_ns": pl.Int64, "alone_ns": pl.Float64, "ratio": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "basis": pl.String,
    "slowed_ns": pl.Float64, "unknown": pl.String,
}  # fmt: skip


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a kernel, of all times that it ran."""
    lists = {name: np.array(group[name]) for name in ("duration", "beside", "is_shared")}
    duration, beside = lists["duration"].astype(np.float64), lists["beside"]
    own = ~lists["is_shared"].astype(np.bool_)
    share = beside / np.maximum(duration, 1)
    alone, beside_it = duration[own & (share == _ALONE)], own & (share > _BESIDE)
    row: dict[str, Any] = {name: group[name] for name in _KERNEL}
    row |= {
        "class": kernel_class(str(group["name"])), "alone": alone.size,
        "beside": int(beside_it.sum()), "beside_ns": int(beside.sum()),
        "alone_ns": float(np.median(alone)) if alone.size else None,
    }  # fmt: skip
    step = _MICROSECOND if np.all(group["is_coarse"]) else 1
    found = learned_ratio(alone, duration[beside_it], share[beside_it])
    if group["shapes"] is None:
        found = _NO_SHAPES
    elif alone.size >= _FEWEST and np.median(alone) < _SHORTEST * step:
        found = _TOO_SHORT
    if isinstance(found, str):
        low, _, high = PUBLISHED
        return row | {"unknown": found, "low": low, "high": high, "basis": "published"}
    slowed = float(beside.sum() * (1 - 1 / max(found.ratio, 1.0)))
    return row | found._asdict() | {"slowed_ns": slowed, "basis": "recording"}


@checked
def learned_ratio(alone: Floats, beside: Floats, share: Floats) -> Slowdown | str:
    """Return how much slower a kernel is beside communication, from its times.

    The median of the ratios, drawn towards 1 where they vary or are few: as much as kernels
    differ from each other, against how much the times of this one differ.

    Parameters
    ----------
    alone, beside
        float64 ns: its times without and with communication beside it.
    share
        float64, shape of ``beside``: in which part of each time communication ran.

    Returns
    -------
    Slowdown or str
        Why it is unknown, if it is.
    """
    if alone.size < _FEWEST:
        return _NEVER_ALONE
    if beside.size < _FEWEST:
        return _SELDOM_BESIDE
    low, usual, high = np.quantile(alone, [0.25, 0.5, 0.75])
    if not usual or high - low > _MOST_SPREAD * usual:
        return _VARIES
    left = np.maximum(usual - (1 - share) * beside, 0.01 * usual)  # of the work, while beside it
    ratios = share * beside / left
    ratio = float(np.median(ratios))
    if ratio < _LEAST_RATIO:
        return _FASTER
    deviation = _OF_DEVIATION * float(np.median(np.abs(ratios - ratio)))
    count = ratios.size
    variance = (deviation**2 * count + _OF_TIMES**2 * _COUNTED) / (count + _COUNTED)
    variance *= _OF_MEDIAN / count
    weight = _OF_KERNELS**2 / (_OF_KERNELS**2 + variance)
    ratio = 1 + (ratio - 1) * weight
    spread = _LEVEL * sqrt(weight * variance)
    return Slowdown(ratio, ratio - spread, ratio + spread)


def keep_kernels(job: Job, kernels: Sequence[pl.DataFrame]) -> None:
    """Keep the kernels of each rank of a job, as of :func:`kernels_of`."""
    for trace, found in zip(job.traces, kernels, strict=True):
        _KERNELS[trace] = found


def kernels_of(trace: Trace) -> pl.DataFrame:
    """Return the kernels of a trace that compute, if any runs beside communication.

    Rows are those of :func:`runs_of_kernels` before they are grouped, without ``trace`` and names.
    A shift of all times changes nothing.
    """
    rows = np.flatnonzero(trace.category_mask("kernel"))
    start, duration = trace.column("start")[rows], trace.column("duration")[rows]
    talks = trace.comm_mask()[rows]
    device = trace.column("device")[rows]
    beside, is_shared = _beside(start, start + duration, talks, device)
    keep = np.flatnonzero(~talks & beside.any())
    keep = keep[np.argsort(start[keep], kind="stable")]
    return pl.DataFrame({
        **_launched(trace, rows[keep]), **_operators(trace, rows[keep]),
        "node": rows[keep], "duration": duration[keep], "beside": beside[keep],
        "is_shared": is_shared[keep],
        "is_coarse": np.full(keep.size, not (duration % _MICROSECOND).any()),
    })  # fmt: skip


def _beside(start: Ints, end: Ints, talks: Bools, device: Ints) -> tuple[Ints, Bools]:
    """Return how long communication runs beside each kernel, and whether other kernels do."""
    beside = np.zeros(start.size, dtype=np.int64)
    is_shared = np.zeros(start.size, dtype=np.bool_)
    _, lane = np.unique(device, return_inverse=True)
    beside[~talks] = beside_communication(
        (start[talks], end[talks], lane[talks]), (start[~talks], end[~talks], lane[~talks])
    )
    for one in np.unique(device[talks]).tolist():
        mine = np.flatnonzero((device == one) & ~talks)
        order = mine[np.argsort(start[mine], kind="stable")]
        overlaps = start[order[1:]] < np.maximum.accumulate(end[order])[:-1]
        is_shared[order[1:]] = overlaps
        is_shared[order[:-1]] |= start[order[1:]] < end[order[:-1]]
    return beside, is_shared


def beside_communication(talking: _Spans, kernels: _Spans) -> Ints:
    """Return for how long communication runs on the device of each kernel while that does; ns.

    - ``talking``, ``kernels``: Start, end and device of communication, and of kernels; devices
      count from 0.
    """
    start, end, device = kernels
    begun, ended, start, end = on_one_axis(
        (talking[0], talking[2]), (talking[1], talking[2]), (start, device), (end, device)
    )
    union = union_of(begun, ended)
    return union.until(end) - union.until(start)


def _operators(trace: Trace, kernels: Ints) -> dict[str, pl.Series | Ints]:
    """Return the operator of each kernel, the shapes of that, and the kernel's place in it.

    - ``kernels``: int64: rows in order of start.
    """
    launcher, parent = launcher_rows(trace)[kernels], trace.column("parent")
    stated = stated_shapes(trace, with_ancestors(launcher, parent)) if kernels.size else NO_SHAPES
    which = _first_places(stated["node"].to_numpy(), trace.nodes.height)
    operator = nearest(launcher, parent, which[:-1] >= 0)
    number, first = number_rows([operator])
    order = np.argsort(number, kind="stable")
    count = np.bincount(number, minlength=first.size)
    place = np.empty(kernels.size, dtype=np.int64)
    place[order] = np.arange(kernels.size) - np.repeat(np.cumsum(count) - count, count)
    codes, names = trace.name_codes
    texts = [*stated["text"].to_list(), None]
    of_kernels = zip(operator.tolist(), codes[operator].tolist(), strict=True)
    return {
        "operator": _texts([names[code] if row >= 0 else None for row, code in of_kernels]),
        "shapes": _texts([texts[at] for at in which[operator].tolist()]),
        "place": np.where(operator >= 0, place, 0),
    }


def _launched(trace: Trace, kernels: Ints) -> dict[str, pl.Series]:
    """Return the grid and the block with which each kernel was launched."""
    wanted = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last is the trace itself
    wanted[kernels] = True
    nodes = [np.empty(0, dtype=np.int64)]
    said: list[dict[bytes, bytes]] = []
    for part in trace.attribute_parts:
        attributes = part.attributes
        rows, node = part.named("args")
        here = wanted[node] & attributes.is_span[rows]
        rows = rows[here]
        nodes.append(node[here])
        # searched where they lie: to make texts of all arguments takes longer than the rest
        content, since = attributes.bytes_around(rows)
        view = content.data
        begin = attributes.value[rows] - since
        spans = zip(begin.tolist(), (begin + attributes.length[rows]).tolist(), strict=True)
        # of a name that occurs twice the first counts
        said += [dict(_LAUNCHED.findall(view, *span)[::-1]) for span in spans]
    which = _first_places(np.concatenate(nodes), trace.nodes.height)[kernels].tolist()
    texts = [*said, {}]
    return {
        name.decode(): _texts([_without_blanks(texts[at].get(name)) for at in which])
        for name in (b"grid", b"block")
    }


@lru_cache(4096)
def _without_blanks(text: bytes | None) -> str | None:
    return None if text is None else b"".join(text.split()).decode()


def _first_places(nodes: Ints, num_nodes: int) -> Ints:
    """Return the first place of each node among some, or -1; the last is for no node."""
    place = np.full(num_nodes + 1, -1, dtype=np.int64)
    place[nodes[::-1]] = np.arange(nodes.size)[::-1]
    return place


def _texts(texts: list[str | None]) -> pl.Series:
    return pl.Series(texts, dtype=pl.String)
