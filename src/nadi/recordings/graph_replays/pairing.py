"""Which captured graph each launch of a graph replays, and which call each of its kernels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.graph_replays.captures import GRAPH_LAUNCH, CapturedGraph, work_names
from nadi.recordings.serving_steps import serving_step
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

_NODE_HALF = (1 << 32) - 1  # the low half of a node's id outlives instantiation of the graph
# how drivers run what a graph holds as copies and sets of memory
_RUN_AS = {"Memcpy": re.compile("(?i)copybuffer"), "Memset": re.compile("(?i)fillbuffer")}


class _Args(msgspec.Struct):
    node: int = msgspec.field(default=0, name="graph node id")


_decoder = msgspec.json.Decoder(_Args)


class Replay(NamedTuple):
    """A launch of a graph.

    Attributes
    ----------
    launch
        Row of the call.
    work
        int64, shape (work,): rows of what it runs, in order of the graph's nodes where they are
        recorded, else of start.
    names
        Of the work, as of :func:`work_names`.
    tokens
        Tokens of the serving step around the launch; -1 if none is marked.
    """

    launch: int
    work: Ints
    names: tuple[str, ...]
    tokens: int


class Paired(NamedTuple):
    """A replay with its graph."""

    # replay, graph: what is paired
    replay: Replay
    graph: CapturedGraph
    # int64, shape (work,): the call of ``graph.capture`` of each piece of the replay's work
    calls: Ints
    how: str  # ``name``, or ``position`` where the capture does not state the names of all kernels
    is_guess: bool  # whether captures of several sizes fit, and nothing tells the size of the step


def replays_of(trace: Trace) -> list[Replay]:
    """Find the launches of graphs whose work is recorded, in order of time. O(nodes log nodes)."""
    is_launch = trace.category_mask("runtime", "driver") & trace.name_mask(GRAPH_LAUNCH)
    if not is_launch.any():
        return []
    launcher = launcher_rows(trace)
    work = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (launcher >= 0))
    work = work[is_launch[launcher[work]]]
    work = work[np.lexsort((_node_ids(trace, work), launcher[work]))]
    launches, first = np.unique(launcher[work], return_index=True)
    tokens = _tokens(trace, launches)
    return [
        Replay(launch, rows, work_names(trace, rows), number)
        for launch, rows, number in zip(
            launches.tolist(), np.split(work, first[1:]), tokens, strict=True
        )
    ]


def _node_ids(trace: Trace, work: Ints) -> Ints:
    """Return the number of each piece of work in its graph: by recorded ids, else by start."""
    start = trace.column("start")[work]
    attributes = trace.attributes
    rows = attributes.rows_named("args")
    place = np.full(trace.nodes.height, -1, dtype=np.int64)
    place[attributes.node[rows]] = rows
    ids = np.zeros(work.size, dtype=np.int64)
    for number, at in enumerate(place[work].tolist()):
        if at < 0 or b'"graph node id"' not in (content := attributes.span(at)):
            return start
        try:
            ids[number] = _decoder.decode(content).node & _NODE_HALF
        except (msgspec.DecodeError, UnicodeDecodeError):
            return start
    return ids


def _tokens(trace: Trace, launches: Ints) -> list[int]:
    """Return the tokens of the serving step that covers each launch on the host, or -1."""
    rows = np.flatnonzero(trace.category_mask("annotation"))
    names = trace.nodes["name"].gather(rows).cast(pl.String)
    start, thread = trace.column("start"), trace.column("thread")
    end = start + trace.column("duration")
    found = np.full(launches.size, -1, dtype=np.int64)
    for row, name in zip(rows.tolist(), names, strict=True):
        if (step := serving_step(name)) is None:
            continue
        covered = (start[launches] >= start[row]) & (start[launches] < end[row])
        found[covered & (thread[launches] == thread[row])] = step.tokens
    return found.tolist()


def pair(
    replays: Sequence[Replay], graphs: Sequence[CapturedGraph]
) -> tuple[list[Paired], list[tuple[Replay, str]]]:
    """Find the graph of each replay among captured graphs.

    Of several that fit, it is the one with the least size that holds the step's tokens, as serving
    engines pad; of these the one that was captured next after the graph before it, as pieces of a
    model follow each other.

    Returns
    -------
    list of Paired
        In the order of ``replays``.
    list of (Replay, str)
        Those without a graph, and why.
    """
    paired, alone = [], []
    fitting: dict[tuple[str, ...], list[_Fit]] = {}
    before = -1
    for replay in replays:
        if replay.names not in fitting:
            fitting[replay.names] = _fitting(replay.names, graphs)
        found = fitting[replay.names]
        if not found:
            same = any(graph.calls.size == replay.work.size for graph in graphs)
            alone.append((replay, "other kernels" if same else "another number of kernels"))
            continue
        last = graphs[before].size if before >= 0 else -1
        best = min(
            found, key=lambda one: _order(one.graph, one.number - before, replay.tokens, last)
        )
        before = best.number
        sizes = {one.graph.size for one in found}
        is_guess = len(sizes) > 1 and not max(sizes) >= replay.tokens >= 0
        paired.append(Paired(replay, best.graph, best.calls, best.how, is_guess))
    return paired, alone


def _order(graph: CapturedGraph, later: int, tokens: int, last: int) -> tuple[int, ...]:
    """Return what decides between graphs that fit; the least one is taken.

    ``later`` says how far the graph follows the one before it, and ``last`` the size of that.
    """
    holds = graph.size >= tokens >= 0
    size = graph.size if holds else int(graph.size != last)
    return graph.is_eager, not holds, size, later <= 0, later


class _Fit(NamedTuple):
    """A graph, its position, and the call of each piece of work."""

    number: int
    graph: CapturedGraph
    calls: Ints
    how: str


def _fitting(names: tuple[str, ...], graphs: Sequence[CapturedGraph]) -> list[_Fit]:
    found = []
    for number, given in enumerate(graphs):
        graph = _part(names, given) if given.is_eager else given
        at, how = _calls(names, graph.names)
        if at is not None:
            found.append(_Fit(number, graph, graph.calls[at], how))
    return found


def _calls(names: tuple[str, ...], calls: tuple[str, ...]) -> tuple[Ints | None, str]:
    """Return the position of the call of each piece of work; None if they do not fit."""
    if len(names) != len(calls):
        return None, ""
    if all(map(_fits, names, calls)):
        return np.arange(len(names)), "name" if all(calls) else "position"
    by_name: dict[str, list[int]] = defaultdict(list)
    for position, call in enumerate(calls):
        by_name[call].append(position)
    if sorted(names) != sorted(calls):
        return None, ""
    # streams run beside each other: work of one name runs in the order of its capture
    taken: dict[str, int] = defaultdict(int)
    found = np.empty(len(names), dtype=np.int64)
    for position, name in enumerate(names):
        found[position] = by_name[name][taken[name]]
        taken[name] += 1
    return found, "name"


def _fits(name: str, call: str) -> bool:
    run_as = _RUN_AS.get(call)
    return not call or name == call or (run_as is not None and run_as.search(name) is not None)


def _part(names: tuple[str, ...], graph: CapturedGraph) -> CapturedGraph:
    """Return the last part of an earlier recording in which the same work ran in this order."""
    length = len(names)
    for begin in range(len(graph.names) - length, -1, -1):
        if graph.names[begin] == names[0] and graph.names[begin : begin + length] == names:
            calls = graph.calls[begin : begin + length]
            return replace(graph, calls=calls, names=names)
    return graph
