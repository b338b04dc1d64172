"""A recording with the operators of its graphs: those of the capture, below each launch.

The graphs that a recording captures: the launch calls between begin and end of each capture.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.files.kineto.kineto_trace import nodes_in_order
from nadi.files.trace_files import read, sniff
from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.recordings.discover import TraceFiles
from nadi.recordings.serving_steps import replay_mark, serving_step
from nadi.recordings.step_marks import STEP_MARK
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes, JoinedAttributes, Part
from nadi.trace.issues import IssueLog
from nadi.trace.rows import nearest
from nadi.trace.schema import DEVICE_WORK, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.trace.work import OF_CALLS

GRAPH_LAUNCH = r"^(?:cuda|hip|cu)GraphLaunch"
_BEGIN, _END = r"StreamBeginCapture", r"StreamEndCapture"
_LAUNCHES = r"Launch|Memcpy|Memset"
_LABEL = re.compile(r"^capture_(\d{1,9})_(\w+)")
_COPY, _SET = "Memcpy", "Memset"


class _CaptureArgs(msgspec.Struct):
    kernel: str = ""
    kernel_name: str = ""
    dims: list[object] = msgspec.field(default_factory=list, name="Input Dims")


_capture_decoder = msgspec.json.Decoder(_CaptureArgs)


@dataclass(frozen=True, eq=False)
class Capture:
    """A recording in which graphs are captured, or their kernels run without a graph."""

    trace: Trace  # as read
    parent: Ints  # int64, shape (nodes,): the enclosing operation of each on its thread, or -1

    @cached_property
    def args(self) -> dict[int, int]:
        """The attribute with the arguments of each node that has one, by row."""
        attributes = self.trace.attributes
        rows = attributes.rows_named("args")
        return dict(zip(attributes.node[rows].tolist(), rows.tolist(), strict=True))

    def stated(self, row: int) -> _CaptureArgs:
        """Return what the arguments of a node state."""
        at = self.args.get(row, -1)
        try:
            content = self.trace.attributes.span(at) if at >= 0 else b"{}"
            return _capture_decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _CaptureArgs()


@dataclass(frozen=True, eq=False)
class CapturedGraph:
    """The work of a graph, in the order of its capture."""

    capture: Capture  # the recording that it is in
    begin: int  # start of the capture in ns: what encloses it is no part of the graph
    calls: Ints  # int64, shape (work,): rows of the calls that launch
    # names of the kernels, ``Memcpy`` and ``Memset``; empty where the call does not state its
    # kernel
    names: tuple[str, ...]
    size: int  # batch size or tokens of the capture; -1 if it is not known
    mode: str = ""  # of the capture, by its label: FULL, PIECEWISE, DECODE; empty without a label
    is_eager: bool = False  # whether the work ran in this recording, and was not captured


_Progress = Callable[[str], None]
_MODULE = r"^nn\.Module: "
_MATRICES = 3  # sides of a matrix for each expert
_WHOLE = ("FULL", "DECODE")  # modes of captures of a whole model


def join_traces(
    traces: Sequence[Trace],
    files: TraceFiles,
    *,
    progress: _Progress = lambda _: None,
) -> list[Trace]:
    """Give the kernels that graphs replay the operators of the captures.

    - ``traces``: Kineto traces as read, one per rank.
    - ``files``: Of its captures; they are read only if something was replayed. Ranks run the same
      program, so that the capture of one serves all. Those that were given may also hold the same
      kernels without graphs.
    - Raises InputError if a file cannot be read.
    """
    replayed = [replays_of(trace) for trace in traces]
    if not any(replayed):
        return list(traces)
    graphs: list[CapturedGraph] = []
    for file in files.captures:
        if (kind := sniff(file)) is None or kind.name != "kineto":
            continue
        progress(f"reading {file.name}")
        recorded = read(file)
        found = captured_graphs(recorded)
        if not found and files.are_given and (work := earlier_work(recorded)) is not None:
            found = [work]
        graphs += found
    return [
        join_graphs(trace, replays, [*captured_graphs(trace), *graphs]) if replays else trace
        for trace, replays in zip(traces, replayed, strict=True)
    ]


def join_graphs(
    trace: Trace, replays: Sequence[GraphReplay], graphs: Sequence[CapturedGraph]
) -> Trace:
    """Add the operators, modules and launch calls of captured graphs below each launch of them.

    The host did not run them when the graph was launched. So each begins one nanosecond after the
    one before it, from the start of the launch on: they keep their order and nesting, and take no
    time that counts. The launch of a kernel is then its call in the capture. What does not match
    is counted in the issues of the trace. If nothing marks the steps of the recording, annotations
    say around the operators what each graph was captured for
    (:func:`nadi.recordings.serving_steps.replay_mark`).

    - ``trace``: A Kineto trace as read.
    - ``replays``: Its launches of graphs, from :func:`replays_of`.
    - ``graphs``: Where to look for what they replay.
    - Returns: O(nodes log nodes + nodes of replayed graphs).
    """
    paired, alone = pair(replays, graphs)
    shapes: dict[int, _Shape] = {}
    duration, fitting = trace.column("duration"), []
    for one in paired:
        if id(one.graph) not in shapes:
            shapes[id(one.graph)] = _shape(one.graph)
        if shapes[id(one.graph)].rows.size + 1 < duration[one.replay.launch]:
            fitting.append(one)
        else:
            alone.append((one.replay, "a launch call that is too short"))
    issues = pl.concat([trace.issues, _issues(fitting, alone, len(graphs))])
    if not fitting:
        return replace(trace, issues=issues)
    return replace(_spliced(trace, fitting, shapes), issues=issues)


class _Shape(NamedTuple):
    """What encloses the calls of a graph, and the calls, from the outermost on.

    ``rows`` are those of the capture, and ``size`` the number of rows from each on that it
    contains, itself included. ``place`` is the position in ``rows`` by row of the capture.
    """

    rows: Ints
    size: Ints
    place: Ints
    attributes: Attributes


def _shape(graph: CapturedGraph) -> _Shape:
    """Order the operators, modules and annotations around the calls of a graph."""
    trace, parent = graph.capture.trace, graph.capture.parent
    height = trace.nodes.height
    labels = () if graph.is_eager else ("annotation",)  # which mark steps there
    wanted = trace.category_mask("operator", *labels)
    wanted |= trace.category_mask("python") & trace.name_mask(_MODULE)
    wanted &= trace.column("start") >= graph.begin
    wanted[graph.calls] = True
    first, last = np.full(height, height, dtype=np.int64), np.full(height, -1, dtype=np.int64)
    leaves = np.concatenate([graph.calls, _weights(graph, wanted)])
    leaves = leaves[np.argsort(trace.column("start")[leaves], kind="stable")]
    position, at = np.arange(leaves.size), leaves
    while at.size:
        np.minimum.at(first, at, position)
        np.maximum.at(last, at, position)
        inside = parent[at] >= 0
        at, position = parent[at[inside]], position[inside]
    rows = np.flatnonzero(wanted & (last >= 0))
    rows = rows[np.lexsort((_depth(rows, parent), first[rows]))]
    place = np.full(height, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    size = place[leaves[last[rows]]] - np.arange(rows.size) + 1
    attributes = trace.attributes
    is_args = np.zeros(len(attributes), dtype=np.bool_)
    is_args[attributes.rows_named("args")] = True
    is_args &= (attributes.node >= 0) & (place[attributes.node] >= 0)
    return _Shape(rows, size, place, attributes.filtered(is_args).with_own_bytes())


def _weights(graph: CapturedGraph, wanted: Bools) -> Ints:
    """Return the operators that launch nothing and state the weights of experts around them.

    Their work follows from it (:data:`nadi.trace.work.OF_CALLS`). One of each shape is enough.
    """
    capture, trace = graph.capture, graph.capture.trace
    of_calls = trace.nodes["name"].is_in(list(OF_CALLS)).to_numpy() & wanted
    if not of_calls.any():
        return np.empty(0, dtype=np.int64)
    is_leaf = wanted & trace.category_mask("operator")
    is_leaf[capture.parent[capture.parent >= 0]] = False
    rows = np.flatnonzero(is_leaf)
    around = nearest(capture.parent[rows], capture.parent, of_calls)
    found: dict[tuple[int, str], int] = {}
    for row, outer in zip(rows[around >= 0].tolist(), around[around >= 0].tolist(), strict=True):
        dims = capture.stated(row).dims
        if any(isinstance(one, list) and len(one) == _MATRICES for one in dims):
            found.setdefault((outer, str(dims)), row)
    return np.array(list(found.values()), dtype=np.int64)


def _depth(rows: Ints, parent: Ints) -> Ints:
    found, at = np.zeros(rows.size, dtype=np.int64), parent[rows]
    while (deeper := at >= 0).any():
        found += deeper
        at = np.where(deeper, parent[at], -1)
    return found


def _spliced(trace: Trace, paired: Sequence[Paired], shapes: dict[int, _Shape]) -> Trace:
    """Return the trace with the rows of the graphs, sorted; kernels get the ids of their calls."""
    marks = _marks(trace, paired, shapes)
    tables, parts = [trace.nodes, marks], list[Attributes]()
    correlation = trace.column("correlation").copy()
    free = int(correlation.max(initial=0)) + 1
    height = trace.nodes.height
    begin, places = height + marks.height, []
    for one in paired:
        shape = shapes[id(one.graph)]
        at = shape.place[one.calls]
        correlation[one.replay.work] = free + at
        tables.append(_rows(trace, one, shape, begin, free))
        places.append((id(one.graph), begin))
        begin, free = begin + shape.rows.size, free + shape.rows.size
    tables[0] = tables[0].with_columns(correlation=pl.Series(correlation))
    nodes = pl.concat(tables)
    event = nodes["event"].to_numpy().copy()
    event[height:] = int(event[:height].max(initial=-1)) + 1 + np.arange(begin - height)
    category = nodes["category"].to_physical().to_numpy().astype(np.int64)
    order = nodes_in_order(nodes["start"].to_numpy(), nodes["duration"].to_numpy(), category)
    new_row = np.empty_like(order)
    new_row[order] = np.arange(order.size)
    for key in dict.fromkeys(key for key, _ in places):
        begins = [first for other, first in places if other == key]
        parts.append(_repeated(shapes[key], np.array(begins), new_row))
    sources = dict.fromkeys(
        source for one in paired for source in one.graph.capture.trace.provenance.sources
    )
    known = trace.provenance.sources
    added = tuple(source for source in sources if source not in known)
    return replace(
        trace,
        nodes=nodes.with_columns(event=pl.Series(event))[order].with_columns(
            id=pl.Series(np.arange(order.size))
        ),
        provenance=Provenance(trace.provenance.nadi_version, known + added),
        given_attributes=JoinedAttributes(
            lambda: (Part(trace.attributes, new_row[:height]), *map(Part, parts))
        ),
    )


def _rows(trace: Trace, one: Paired, shape: _Shape, begin: int, free: int) -> pl.DataFrame:
    """Return the rows of a replayed graph, as the host's in its launch."""
    launch, recorded = one.replay.launch, one.graph.capture.trace.nodes[shape.rows]
    count = np.arange(shape.rows.size)
    is_call = np.zeros(shape.rows.size, dtype=np.bool_)
    is_call[shape.place[one.calls]] = True
    none = np.full(count.size, -1, dtype=np.int64)
    kept = ("name", "category", "kind", "comm_type", "comm_bytes")
    values = {
        **{name: recorded[name] for name in kept},
        "id": begin + count,
        "start": trace.column("start")[launch] + 2 + count,  # after the mark around it
        "duration": shape.size,
        "thread": np.full(count.size, trace.column("thread")[launch]),
        "correlation": np.where(is_call, free + count, none),
    }
    return NODES.build(count.size, values)


def _marks(trace: Trace, paired: Sequence[Paired], shapes: dict[int, _Shape]) -> pl.DataFrame:
    """Return rows that say what each replayed graph was captured for; none if steps are marked."""
    names = trace.nodes["name"].filter(trace.category_mask("annotation")).unique().cast(pl.String)
    is_marked = any(re.match(STEP_MARK, name) or serving_step(name) for name in names)
    captured = [one for one in paired if not (is_marked or one.graph.is_eager)]
    pieces: dict[tuple[Capture, int, str], set[int]] = defaultdict(set)
    for one in captured:
        pieces[_model(one.graph)].add(one.graph.begin)
    part, said = 0, []
    for before, one in zip([None, *captured], captured, strict=False):
        model, mode = _model(one.graph), one.graph.mode
        follows = before is not None and before.graph.begin < one.graph.begin
        follows &= before is not None and _model(before.graph) == model
        part = part + 1 if follows else 1
        is_whole = mode in _WHOLE or (not mode and len(pieces[model]) == 1)
        said.append(replay_mark(-1 if one.is_guess else one.graph.size, 0 if is_whole else part))
    launch = np.array([one.replay.launch for one in captured], dtype=np.int64)
    return NODES.build(launch.size, {
        "id": trace.nodes.height + np.arange(launch.size),
        "name": pl.Series(said, dtype=pl.String),
        "category": pl.repeat("annotation", launch.size, dtype=pl.String, eager=True),
        "kind": pl.repeat("COMP", launch.size, dtype=pl.String, eager=True),
        "start": trace.column("start")[launch] + 1,
        "duration": [1 + shapes[id(one.graph)].rows.size for one in captured],
        "thread": trace.column("thread")[launch],
    })  # fmt: skip


def _model(graph: CapturedGraph) -> tuple[Capture, int, str]:
    """Return what the pieces of a model have in common: recording, size and mode."""
    return graph.capture, graph.size, graph.mode


def _repeated(shape: _Shape, begins: Ints, new_row: Ints) -> Attributes:
    """Return the arguments of a graph's operators for each of its replays."""
    one = shape.attributes
    node = new_row[(begins[:, None] + shape.place[one.node]).ravel()]
    order = np.argsort(node, kind="stable")
    at = np.tile(np.arange(len(one)), begins.size)[order]
    return replace(
        one, node=node[order].astype(np.int32), name=one.name[at], type=one.type[at],
        value=one.value[at], length=one.length[at],
    )  # fmt: skip


def _issues(
    paired: Sequence[Paired], alone: Sequence[tuple[GraphReplay, str]], num_graphs: int
) -> pl.DataFrame:
    """Count kernels by how their operators were found, and those without."""
    log = IssueLog()
    counts = Counter[str]()
    for one in paired:
        counts["earlier" if one.graph.is_eager else one.how] += one.replay.work.size
    log.add(
        "graphs.joined", "info", counts["name"],
        "operations were replayed from graphs: their operators are those of the capture, matched "
        "by name and order",
    )  # fmt: skip
    log.add(
        "graphs.by-position", "info", counts["position"],
        "operations were replayed from graphs: their operators are those of the capture, matched "
        "by order alone, as the capture does not state the names of kernels",
    )  # fmt: skip
    log.add(
        "graphs.earlier", "info", counts["earlier"],
        "operations were replayed from graphs: their operators are those that launched the same "
        "kernels in an earlier recording",
    )  # fmt: skip
    log.add(
        "graphs.size", "warning", sum(one.replay.work.size for one in paired if one.is_guess),
        "operations were replayed from graphs that captures of several batch sizes match: nothing "
        "tells which, so shapes may be those of another size",
        "give the recording of the capture of this batch size alone",
    )  # fmt: skip
    if not num_graphs:
        log.add(
            "graphs.no-capture", "info", sum(replay.work.size for replay, _ in alone),
            "operations were replayed from graphs: the recording does not tell their operators",
            "give the recording of the capture: nadi run TRACE --capture FILE",
        )  # fmt: skip
        return log.table()
    reasons = Counter[str]()
    for replay, reason in alone:
        reasons[reason] += replay.work.size
    for reason, count in sorted(reasons.items()):
        log.add(
            "graphs.unmatched", "warning", count,
            f"operations were replayed from graphs that no capture matches: {reason}",
            "give the recording of the capture of this batch size, of the same program",
        )  # fmt: skip
    return log.table()


_NODE_HALF = (1 << 32) - 1  # the low half of a node's id outlives instantiation of the graph
# how drivers run what a graph holds as copies and sets of memory
_RUN_AS = {"Memcpy": re.compile("(?i)copybuffer"), "Memset": re.compile("(?i)fillbuffer")}


class _Args(msgspec.Struct):
    node: int = msgspec.field(default=0, name="graph node id")


_decoder = msgspec.json.Decoder(_Args)


class GraphReplay(NamedTuple):
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
    replay: GraphReplay
    graph: CapturedGraph
    # int64, shape (work,): the call of ``graph.capture`` of each piece of the replay's work
    calls: Ints
    how: str  # ``name``, or ``position`` where the capture does not state the names of all kernels
    is_guess: bool  # whether captures of several sizes fit, and nothing tells the size of the step


def replays_of(trace: Trace) -> list[GraphReplay]:
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
        GraphReplay(launch, rows, work_names(trace, rows), number)
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
    replays: Sequence[GraphReplay], graphs: Sequence[CapturedGraph]
) -> tuple[list[Paired], list[tuple[GraphReplay, str]]]:
    """Find the graph of each replay among captured graphs.

    Of several that fit, it is the one with the least size that holds the step's tokens, as serving
    engines pad; of these the one that was captured next after the graph before it, as pieces of a
    model follow each other.

    - Returns list of Paired: In the order of ``replays``.
    - and list of (GraphReplay, str): Those without a graph, and why.
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


def captured_graphs(trace: Trace) -> list[CapturedGraph]:
    """Find the graphs that a recording captures, in order of time. O(nodes log nodes)."""
    is_call = trace.category_mask("runtime", "driver")
    begins = np.flatnonzero(is_call & trace.name_mask(_BEGIN))
    ends = np.flatnonzero(is_call & trace.name_mask(_END))
    if not begins.size or not ends.size:
        return []
    capture = _capture(trace)
    start = trace.column("start")
    after = start + trace.column("duration")
    launches = _launches(trace, is_call, capture.parent)
    found = []
    for begin in begins.tolist():
        later = ends[start[ends] >= after[begin]]
        if not later.size:
            continue
        calls = launches[(start[launches] >= after[begin]) & (start[launches] < start[later[0]])]
        names = tuple(_call_name(capture, row) for row in calls.tolist())
        size, mode = _size(capture, begin, int(start[later[0]]))
        found.append(CapturedGraph(capture, int(start[begin]), calls, names, size, mode))
    return found


def earlier_work(trace: Trace) -> CapturedGraph | None:
    """Return all work that ran without a graph, in the order of its launches; None without any."""
    is_graph = trace.name_mask(GRAPH_LAUNCH)
    launcher = launcher_rows(trace)
    work = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (launcher >= 0))
    work = work[~is_graph[launcher[work]]]
    if not work.size:
        return None
    work = work[np.lexsort((trace.column("start")[work], trace.column("start")[launcher[work]]))]
    calls = launcher[work]
    return CapturedGraph(_capture(trace), -1, calls, work_names(trace, work), -1, is_eager=True)


def work_names(trace: Trace, rows: Ints) -> tuple[str, ...]:
    """Return the names of kernels, ``Memcpy`` and ``Memset``, as of :class:`CapturedGraph`."""
    category = trace.nodes["category"].gather(rows).cast(pl.String)
    short = {"memcpy": _COPY, "memset": _SET}
    names = trace.nodes["name"].gather(rows).cast(pl.String)
    return tuple(short.get(kind, name) for kind, name in zip(category, names, strict=True))


def _capture(trace: Trace) -> Capture:
    parent = np.full(trace.nodes.height, -1, dtype=np.int64)
    nesting = nest(trace)
    parent[nesting.rows] = nesting.parent_row
    return Capture(trace, parent)


def _launches(trace: Trace, is_call: Bools, parent: Ints) -> Ints:
    """Return the calls that launch; of a driver's call within a runtime's, the outer one."""
    chosen = is_call & trace.name_mask(_LAUNCHES) & ~trace.name_mask("GraphLaunch|HostFunc")
    rows = np.flatnonzero(chosen)
    around = parent[rows]
    return rows[(around < 0) | ~chosen[around]]


def _call_name(capture: Capture, row: int) -> str:
    call = str(capture.trace.nodes["name"][row])
    for name in (_COPY, _SET):
        if name in call:
            return name
    stated = capture.stated(row).kernel
    if not stated and capture.parent[row] >= 0:  # Triton's operator names the kernel
        stated = capture.stated(int(capture.parent[row])).kernel_name
    return stated


def _size(capture: Capture, begin: int, end: int) -> tuple[int, str]:
    """Return batch size and mode of a capture: of its label, else what most inputs begin with."""
    trace = capture.trace
    around = begin
    while around >= 0:
        if (label := _LABEL.match(str(trace.nodes["name"][around]))) is not None:
            return int(label[1]), label[2]
        around = int(capture.parent[around])
    start = trace.column("start")
    inside = (start >= start[begin]) & (start < end) & trace.category_mask("operator")
    first = Counter(
        dims[0][0]
        for row in np.flatnonzero(inside).tolist()
        if (dims := capture.stated(row).dims)
        and isinstance(dims[0], list) and dims[0] and isinstance(dims[0][0], int)
    )  # fmt: skip
    return (first.most_common(1)[0][0] if first else -1), ""
