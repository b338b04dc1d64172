"""The critical path by HTA's rules, and HTA's summary of it.

The rules are numbered E1 and R1 to R4 as in ``docs/critical-path.md``.

The events that HTA's critical path covers: those of an annotation, or all.

The rules are numbered W1 to W3 as in ``docs/critical-path.md``.

The results of ``nadi critical-path --rules hta``: HTA's summary, and the path by operation.

Edges between moments on the host, the CUDA runtime lock and call stacks, follow rules L1, L2 and C1
to C6.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.analyses.hta.device_edges import (
    EDGE_TYPES,
    EdgeList,
    Moments,
    hta_device_edges,
    join_hta_edges,
    make_moments,
    weighted_edges,
)
from nadi.analyses.hta.hta_path_kernels import longest_path
from nadi.analyses.hta.recorded_fields import parse_events, trace_name
from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.results.text import TOP, make_table, name_cell, print_table
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import hta_calls
from nadi.trace.trace import Job, Trace
from nadi.units import format_count, format_ns, format_percent, printable

Instance = int | tuple[int, int]
_SHOWN = 12  # annotations listed where one is not found
_NUMBER = re.compile(r"\d+")


def clip_events(events: pl.DataFrame, annotation: str, instance: Instance) -> pl.DataFrame:
    """Return the events of the chosen instances of an annotation, in order of their index.

    - ``events``: As :func:`nadi.analyses.hta.recorded_fields.parse_events` gives them.
    - ``annotation``: Text that the name contains; an empty text selects the whole trace.
    - ``instance``: Number of the instance among the events with such a name, from 0; or the first
      and the last of several, both included.
    - Raises UsageError if the annotation or instance does not exist; the message lists existing
      ones.
    """
    begin, end = _window(events, annotation, instance)
    stream = events["stream"].to_numpy()
    start = events["start"].to_numpy()
    in_window = (start >= begin) & (start <= end) & (events["duration"].to_numpy() > 0)
    host = (stream == -1) & in_window
    launched = np.isin(events["index"].to_numpy(), events["partner"].to_numpy()[host])
    waits = (events["name"] == "Stream Wait Event").to_numpy()
    return events.filter(host | ((stream != -1) & (launched | waits))).sort("index")


def _window(events: pl.DataFrame, annotation: str, instance: Instance) -> tuple[int, int]:
    """W1: from the first start to the last end of the chosen instances, in ns."""
    first, last = instance if isinstance(instance, tuple) else (instance, instance)
    chosen = events
    if annotation:
        found = events.filter(pl.col("name").str.contains(annotation, literal=True))
        if found.is_empty():
            raise UsageError(
                Parameter("annotation", annotation), "no event name contains this text",
                f"annotations in the trace: {_listed(events)}",
            )  # fmt: skip
        chosen = found.slice(first, max(last + 1 - first, 0)) if first >= 0 else found.clear()
        if chosen.is_empty() or last >= found.height:
            names = ", ".join(
                f"{number} ({name})" for number, name in enumerate(found["name"].head(_SHOWN))
            )
            more = f" and {found.height - _SHOWN} more" if found.height > _SHOWN else ""
            raise UsageError(
                Parameter("instance"), f"{annotation!r} has no instance {_text(instance)}",
                f"instances: {names}{more}",
            )  # fmt: skip
    start, duration = chosen["start"].to_numpy(), chosen["duration"].to_numpy()
    return int(start.min()), int((start + duration).max())


def _text(instance: Instance) -> str:
    return f"{instance[0]}:{instance[1]}" if isinstance(instance, tuple) else str(instance)


def _listed(events: pl.DataFrame) -> str:
    """List annotations; names that differ only in a number appear once."""
    names = events.filter(pl.col("category") == "annotation")["name"]
    alike: dict[str, str] = {}
    for name in names.unique(maintain_order=True):
        alike.setdefault(_NUMBER.sub("0", name), name)
    shown = list(alike.values())[:_SHOWN]
    more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
    return (", ".join(map(repr, shown)) or "no annotations at all") + more


_US = 1000
_MEMORY = re.compile(r"(hip)?Memcpy|(hip)?Memset|dma")
_COMMUNICATION = re.compile(r"nccl|hip|hccl|.*ncclKernel")
_BRACKETS = re.compile(r"([<>()])")
_OPENED_BY = {">": "<", ")": "("}
_BOUND_BY = (
    "", "cpu_bound", "gpu_communication_bound", "gpu_compute_bound",
    "gpu_kernel_kernel_overhead", "gpu_kernel_launch_overhead",
)  # fmt: skip
_BOUND_OF_TYPE = {
    "KERNEL_KERNEL_DELAY": "gpu_kernel_kernel_overhead",
    "KERNEL_LAUNCH_DELAY": "gpu_kernel_launch_overhead",
}
EDGE_TYPE_TEXTS = [
    f"critical_path_{'operator' if name == 'OPERATOR_KERNEL' else name.lower()}"
    for name in EDGE_TYPES
]


@dataclass(frozen=True, eq=False)
class HtaCriticalPath:
    """The critical path of a window of one rank by HTA's rules.

    Times in its tables are in us, as HTA's are: float64, since the first event of any rank.
    ``ev_idx``, ``event_idx`` and ``attributed_event`` are positions in ``traceEvents``.

    Attributes
    ----------
    moments
        The nodes of the graph, with the events that they belong to.
    edges_added
        Its edges in the order in which HTA adds them.
    vertices
        int64, shape (nodes on the path,): the nodes on the path, first to last.
    """

    moments: Moments
    edges_added: EdgeList
    vertices: Ints

    def __repr__(self) -> str:
        return f"<HtaCriticalPath nodes={self.vertices.size} length={self.length / _US:g} us>"

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """All nodes: node, ev_idx, ts, is_start, is_blocking."""
        moments = self.moments
        return pl.DataFrame({
            "node": np.arange(moments.row.size),
            "ev_idx": moments.column("index")[moments.row],
            "ts": moments.time / _US,
            "is_start": moments.is_start,
            "is_blocking": moments.is_blocking[moments.row],
        })  # fmt: skip

    @cached_property
    def edges(self) -> pl.DataFrame:
        """All edges in the order in which they were added.

        Columns: begin, end (nodes), type, edge_weight (which summary and breakdown use),
        graph_weight (which the longest path uses), attributed_event, on_critical_path.
        """
        added = self.edges_added
        index = self.moments.column("index")
        return pl.DataFrame({
            "begin": added.begin,
            "end": added.end,
            "type": pl.Series(EDGE_TYPES, dtype=pl.Enum(EDGE_TYPES)).gather(added.type),
            "edge_weight": added.weight / _US,
            "graph_weight": _graph_weight(added) / _US,
            "attributed_event": np.where(added.event >= 0, index[added.event], -1),
            "on_critical_path": self.is_on_path,
        })  # fmt: skip

    @cached_property
    def path(self) -> pl.DataFrame:
        """The nodes on the path, in order: node, ev_idx, ts, is_start, name."""
        names = self.moments.events["name"].gather(self.moments.row[self.vertices])
        chosen = self.nodes.drop("is_blocking")[self.vertices]
        return chosen.with_columns(name=names)

    @property
    def length(self) -> int:
        """Sum of the weights along the path, in ns, as the longest path counts them."""
        return int(_graph_weight(self.edges_added)[self.is_on_path].sum())

    @cached_property
    def is_on_path(self) -> Bools:
        """Whether each edge connects consecutive nodes of the path; bool, shape (edges,)."""
        following = np.full(self.moments.row.size, -1, dtype=np.int64)
        following[self.vertices[:-1]] = self.vertices[1:]
        found: Bools = following[self.edges_added.begin] == self.edges_added.end
        return found

    def breakdown(self) -> pl.DataFrame:
        """Describe each edge of the path, in order.

        Columns: event_idx (null where an edge has no event), duration, type, s_name (a
        short name), cat (Nadi's category), pid, tid, stream, bound_by.
        """
        rows = np.flatnonzero(self.is_on_path)
        rows = rows[np.argsort(self._place[self.edges_added.begin[rows]])]
        added = self.edges_added.taken(rows)
        events = self.moments.events[np.maximum(added.event, 0)]
        table = pl.DataFrame({
            "event_idx": events["index"],
            "duration": added.weight / _US,
            "type": pl.Series(EDGE_TYPE_TEXTS).gather(added.type),
            "s_name": _short_names(events["name"]),
            "cat": events["category"],
            "pid": events["process"],
            "tid": events["thread"],
            "stream": events["stream"],
            "bound_by": _bound_by(added, events),
        })  # fmt: skip
        of_event = ("event_idx", "s_name", "cat", "pid", "tid", "stream")
        return table.with_columns(
            pl.when(pl.Series(added.event >= 0)).then(pl.col(of_event)).name.keep()
        )

    @cached_property
    def _place(self) -> Ints:
        """Position of each node on the path; undefined for other nodes."""
        place = np.zeros(self.moments.row.size, dtype=np.int64)
        place[self.vertices] = np.arange(self.vertices.size)
        return place

    def summary(self) -> pl.DataFrame:
        """Compute the share of each bottleneck in the path: bound_by, duration in percent."""
        sums = self.breakdown().group_by("bound_by").agg(pl.col("duration").sum()).sort("bound_by")
        duration = sums["duration"].to_numpy()
        return sums.with_columns(duration=duration / duration.sum() * 100)


def _graph_weight(edges: EdgeList) -> Ints:
    """E1: weights of -1 us and below count as 0 for the path."""
    return np.where(edges.weight <= -_US, 0, edges.weight)


def _short_names(names: pl.Series) -> pl.Series:
    short = {name: _short_name(name) for name in names.unique()}
    return names.replace_strict(short, return_dtype=pl.String) if short else names


def _short_name(name: str) -> str:
    """R3: a name without template arguments, parameters and return type."""
    if _MEMORY.match(name) or not ("<" in name or "(" in name):
        return name
    kept: list[str] = []
    open_at: list[int] = []  # brackets that are kept so far
    for part in _BRACKETS.split(name.replace("->", "")):
        if part in _OPENED_BY and open_at and kept[open_at[-1]] == _OPENED_BY[part]:
            del kept[open_at.pop() :]
            continue
        if _BRACKETS.fullmatch(part):
            open_at.append(len(kept))
        kept.append(part)
    return "".join(kept).split(" ")[-1]


def _bound_by(edges: EdgeList, events: pl.DataFrame) -> pl.Series:
    """R2: classify each edge of the path, whose event is the one of the same row."""
    short = _short_names(events["name"])
    names = short.unique()
    is_one = [_COMMUNICATION.match(name) is not None for name in names]
    communication = names.filter(pl.Series(is_one, dtype=pl.Boolean))
    of_operator = np.where(
        events["stream"].to_numpy() < 0,
        _BOUND_BY.index("cpu_bound"),
        np.where(
            short.is_in(communication.implode()).to_numpy(),
            _BOUND_BY.index("gpu_communication_bound"),
            _BOUND_BY.index("gpu_compute_bound"),
        ),
    )
    codes = np.array([_BOUND_BY.index(_BOUND_OF_TYPE.get(name, "")) for name in EDGE_TYPES])
    is_operator = edges.type == EDGE_TYPES.index("OPERATOR_KERNEL")
    return pl.Series(_BOUND_BY).gather(np.where(is_operator, of_operator, codes[edges.type]))


@checked
def hta_critical_path(
    traces: Trace | Job | Sequence[Trace],
    *,
    rank: int | None = None,
    annotation: str = "",
    instance: Instance = 0,
    zero_weight_launch_edges: bool = False,
    include_last_step: bool = False,
) -> HtaCriticalPath:
    """Find the critical path of one rank as Holistic Trace Analysis (HTA) does.

    Parameters
    ----------
    traces
        A trace with the events of a device trace, or those of all ranks of a job.
    rank
        Which of them; by default the first.
    annotation
        Analyse the time range of an event whose name contains this text; an empty text selects
        the whole trace.
    instance
        Index of the event among those with this name, from 0, or the first and last of a range.
    zero_weight_launch_edges
        HTA's CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE.
    include_last_step
        HTA's include_last_profiler_step.

    Returns
    -------
    HtaCriticalPath
        Nodes, edges, path, summary and breakdown. O(events log events).

    Raises
    ------
    InputError
        If a trace has no device trace events or no launches, or its operations
        form a dependency cycle.
    UsageError
        If the rank, the annotation or the instance does not exist.
    """
    every, at = _chosen(traces, rank)
    events = parse_events(every, at, include_last_step=include_last_step)
    moments = make_moments(clip_events(events, annotation, instance))
    edges = join_hta_edges(
        moments,
        lock_edges(moments),
        stack_edges(moments),
        hta_device_edges(
            moments,
            events,
            trace_name(every[at]),
            zero_weight_launch_edges=zero_weight_launch_edges,
        ),
    )
    return HtaCriticalPath(moments, edges, _longest(moments, edges))


def _chosen(traces: Trace | Job | Sequence[Trace], rank: int | None) -> tuple[list[Trace], int]:
    """Return all ranks and the position of the requested one."""
    if isinstance(traces, Trace):
        every = [traces]
    elif isinstance(traces, Job):
        shifts = dict(traces.clocks.select("rank", "shift").iter_rows())
        every = [_unshifted(trace, shifts.get(trace.rank, 0)) for trace in traces.traces]
    else:
        every = list(traces)
    if rank is None and every:
        return every, 0
    ranks = [trace.rank for trace in every]
    if rank is None or rank not in ranks:
        raise UsageError(
            Parameter("rank", rank), "is not there", f"there are: {', '.join(map(str, ranks))}"
        )
    return every, ranks.index(rank)


def _unshifted(trace: Trace, shift: int) -> Trace:
    """Return a trace with the times of its own clock, which HTA uses."""
    if shift == 0:
        return trace
    start = pl.col("start")
    moved = pl.when(start >= 0).then(start - shift).otherwise(start)
    return replace(trace, nodes=trace.nodes.with_columns(start=moved))


def _longest(moments: Moments, edges: EdgeList) -> Ints:
    """R1: find the longest path; ties follow the order in which edges name the nodes."""
    named = np.stack([edges.begin, edges.end], axis=1).reshape(-1)
    unique, first = np.unique(named, return_index=True)
    vertices = unique[np.argsort(first)]
    if vertices.size == 0:
        return vertices
    number = np.empty(moments.row.size, dtype=np.int64)
    number[vertices] = np.arange(vertices.size)
    begin, end = number[edges.begin], number[edges.end]
    entering, leaving = np.argsort(end, kind="stable"), np.argsort(begin, kind="stable")
    steps = np.arange(vertices.size + 1)
    distance, before = np.empty((2, vertices.size), dtype=np.int64)
    last = longest_path(
        np.searchsorted(end[entering], steps), begin[entering],
        _graph_weight(edges)[entering],
        np.searchsorted(begin[leaving], steps), end[leaving], distance, before,
    )  # fmt: skip
    if last < 0:
        event = moments.events.row(int(moments.row[vertices[-1 - last]]), named=True)
        raise InputError(
            f"traceEvents[{event['index']}]",
            f"{event['name']!r} is part of a dependency cycle by HTA's rules",
            "use Nadi's rules",
        )  # fmt: skip
    path = [last]
    while before[path[-1]] != path[-1]:
        path.append(int(before[path[-1]]))
    return vertices[path[::-1]]


_WAITING = "(between operations, weight 0)"


def describe_hta_path(path: HtaCriticalPath, annotation: str, rank: int) -> dict[str, Any]:
    """Compute the JSON output; times are int ns, shares are percent as in HTA."""
    sums = _sums(path, "bound_by")
    shares = dict(path.summary().iter_rows())
    return {
        "rank": rank,
        "annotation": annotation,
        "critical_path_ns": path.length,
        "nodes": path.nodes.height,
        "nodes_on_path": path.vertices.size,
        "edges": path.edges.height,
        "summary": [
            {"bound_by": bound_by, "ns": time, "percent": shares[bound_by]}
            for bound_by, time, _ in sums.iter_rows()
        ],
        "top": [
            {"name": name, "bound_by": bound_by, "ns": time, "count": count}
            for name, bound_by, time, count in _operations(path).head(TOP).iter_rows()
        ],
    }


def print_hta_path(path: HtaCriticalPath, annotation: str, rank: int, console: Console) -> None:
    """Print the page of text."""
    data = describe_hta_path(path, annotation, rank)
    where = f"annotation {printable(annotation)!r}" if annotation else "the whole trace"
    console.print(
        Text(
            f"HTA's rules, rank {rank}, {where}: critical path of "
            f"{format_ns(data['critical_path_ns'])}, through {format_count(data['nodes_on_path'])} "
            f"of {format_count(data['nodes'])} event starts and ends"
        )
    )
    total = sum(row["ns"] for row in data["summary"])
    table = make_table(
        "critical path by bottleneck", **{"bound by": "left"}, time="right", share="right"
    )
    for row in data["summary"]:
        shown = row["bound_by"] or _WAITING
        table.add_row(shown, format_ns(row["ns"]), format_percent(row["ns"], total))
    table.add_row("total", format_ns(total), "", style="bold")
    print_table(table, console)
    table = make_table(
        "top operations on the critical path",
        operation="left", **{"bound by": "left"}, time="right", share="right", count="right",
    )  # fmt: skip
    for row in data["top"]:
        table.add_row(
            name_cell(row["name"], "(launch)"), row["bound_by"], format_ns(row["ns"]),
            format_percent(row["ns"], total), format_count(row["count"]),
        )  # fmt: skip
    print_table(table, console)


def _sums(path: HtaCriticalPath, *by: str) -> pl.DataFrame:
    """Sum the breakdown by the given columns: time in ns, count."""
    return (
        path.breakdown()
        .group_by(*by)
        .agg(time=(pl.col("duration").sum() * _US).round().cast(pl.Int64), count=pl.len())
        .sort(*by)
    )


def _operations(path: HtaCriticalPath) -> pl.DataFrame:
    """Sum by operation, largest first; operations with weight 0 are omitted."""
    sums = _sums(path, "s_name", "bound_by").filter(pl.col("bound_by") != "")
    named = sums.with_columns(pl.col("s_name").fill_null(""))
    return named.sort("time", "s_name", "bound_by", descending=[True, False, False])


_OPERATOR, _DEPENDENCY = EDGE_TYPES.index("OPERATOR_KERNEL"), EDGE_TYPES.index("DEPENDENCY")


def _is_locking(moments: Moments) -> Bools:
    return moments.events["name"].is_in(hta_calls("locks")).to_numpy()


def lock_edges(moments: Moments) -> EdgeList:
    """L1: calls that take the runtime lock end one after the other, on any thread.

    All that have begun lead to the next end, newest first; an end that follows an end
    waits for it.
    """
    at = np.flatnonzero(_is_locking(moments)[moments.row])
    is_start = moments.is_start[at]
    ends = np.flatnonzero(~is_start)
    next_end = np.searchsorted(ends, np.arange(at.size))
    open_starts = np.flatnonzero(is_start & (next_end < ends.size))
    into = ends[next_end[open_starts]]
    after_end = np.flatnonzero(~is_start[1:] & ~is_start[:-1]) + 1
    begin = np.concatenate([open_starts, after_end - 1])
    end = np.concatenate([into, after_end])
    order = np.lexsort((-begin, end))
    begin, end = at[begin[order]], at[end[order]]
    own = (moments.row[begin] == moments.row[end]) & moments.is_start[begin]
    kinds = np.where(own, _OPERATOR, _DEPENDENCY)
    event = np.where(own, moments.row[begin], -1)
    return weighted_edges(moments, kinds, begin, end, event, np.zeros(own.size, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class _Walk:
    """Starts and ends of the events of all threads, thread by thread."""

    row: Ints  # int64, shape (boundaries,): the event
    # is_start, group: bool and int64, shape (boundaries,)
    is_start: Bools
    group: Ints
    parent: Ints  # int64, shape (events,): the event on top of the stack when it began, or -1


def stack_edges(moments: Moments) -> EdgeList:
    """C1 to C6, L2: edges from each moment of a thread to the next, through its call stack."""
    walk = _walk(moments)
    # events without moments stay in the tree but are skipped
    kept = moments.start[walk.row] >= 0
    row, is_start, group = walk.row[kept], walk.is_start[kept], walk.group[kept]
    depth = np.cumsum(np.where(is_start, 1, -1)) - is_start  # how many are open around it
    moment = np.where(is_start, moments.start[row], moments.end[row])
    same = group[1:] == group[:-1]
    kinds = np.where(is_start & (depth == 0), _DEPENDENCY, _OPERATOR)[1:]
    # a start stands for itself; between two ends it is the outer one's time; after an end,
    # the time of what was around it
    event = np.where(is_start[1:], walk.parent[row[:-1]], row[1:])
    event = np.where(is_start[:-1], row[:-1], event)
    event = np.where(kinds == _OPERATOR, event, -1)
    waits = ~is_start[1:] & moments.is_blocking[row[1:]]
    locking = _is_locking(moments)[row]
    by_lock = locking[1:] & locking[:-1] & ~(~is_start[:-1] & is_start[1:])
    edges = weighted_edges(moments, kinds, moment[:-1], moment[1:], event, waits)
    return edges.taken(same & ~by_lock)


def _walk(moments: Moments) -> _Walk:
    """Order the boundaries of every thread's events and match them as brackets.

    An end closes whatever is on top of the stack, even if that is another event's: in
    the sequence it stands for the event that it closes. O(events log events).
    """
    events = moments.events
    group = _grouped(events)
    row = np.flatnonzero(group >= 0)
    start, duration = (events[name].to_numpy()[row] for name in ("start", "duration"))
    duration = np.maximum(duration, 0)
    time = np.concatenate([start, start + duration])
    is_start = np.repeat([True, False], row.size)
    rows = np.concatenate([row, row])
    # at one time ends come first, shorter ones before longer, then starts, longer ones
    # before shorter; of equal ones the first to start is the last to end
    length = np.tile(duration, 2)
    sign = np.where(is_start, 1, -1)
    order = np.lexsort((sign * rows, -sign * length, is_start, time, np.tile(group[row], 2)))
    rows, is_start, groups = rows[order], is_start[order], np.tile(group[row], 2)[order]
    closes, parent_at = _match_brackets(is_start)
    row_of_start = np.where(is_start, rows, -1)
    matched = np.where(is_start, rows, row_of_start[closes])
    parent = np.full(events.height, -1, dtype=np.int64)
    starts = np.flatnonzero(is_start)
    above = parent_at[starts]
    parent[rows[starts]] = np.where(above >= 0, rows[np.maximum(above, 0)], -1)
    return _Walk(matched, is_start, groups, parent)


def _match_brackets(is_open: Bools) -> tuple[Ints, Ints]:
    """Match opening and closing brackets in a balanced sequence.

    - Returns int64 and int64, shape (brackets,): For each closing bracket the one that it closes,
      and for each opening one the innermost open one before it, or -1. O(brackets log brackets).
    """
    size = is_open.size
    depth = np.cumsum(np.where(is_open, 1, -1)) + ~is_open  # of the pair, from 1
    order = np.argsort(depth, kind="stable")  # at one depth they open and close in turn
    closes = np.full(size, -1, dtype=np.int64)
    closes[order[1::2]] = order[::2]
    opened = order[::2]
    key = depth[opened] * (size + 1) + opened
    at = np.searchsorted(key, (depth[opened] - 1) * (size + 1) + opened) - 1
    around = np.full(size, -1, dtype=np.int64)
    around[opened] = np.where(depth[opened] > 1, opened[np.maximum(at, 0)], -1)
    return closes, around


def _grouped(events: pl.DataFrame) -> Ints:
    """C1, C6: return the thread number of each event, in order of (pid, tid), or -1."""
    process, thread = events["process"].to_numpy(), events["thread"].to_numpy().copy()
    forward, backward = (_only_thread(events, text) for text in ("forward", "autograd"))
    if 0 not in (forward, backward) and None not in (forward, backward) and forward != backward:
        thread[thread == backward] = forward
    _, first = np.unique(process, return_inverse=True)
    threads, second = np.unique(thread, return_inverse=True)
    group = first * threads.size + second
    of_device = np.unique(group[events["stream"].to_numpy() >= 0])
    group[np.isin(group, of_device)] = -1
    return group


def _only_thread(events: pl.DataFrame, text: str) -> int | None:
    """Return the only thread with an operation whose name contains a text, else None."""
    fits = pl.col("category").is_in(["operator", "annotation"])
    threads = events.filter(fits & pl.col("name").str.contains(text, literal=True))["thread"]
    unique = threads.unique()
    return int(unique[0]) if unique.len() == 1 else None
