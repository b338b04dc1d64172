"""The graphs that a recording captures: the launch calls between begin and end of each capture."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

GRAPH_LAUNCH = r"^(?:cuda|hip|cu)GraphLaunch"
_BEGIN, _END = r"StreamBeginCapture", r"StreamEndCapture"
_LAUNCHES = r"Launch|Memcpy|Memset"
_LABEL = re.compile(r"^capture_(\d{1,9})_(\w+)")
_COPY, _SET = "Memcpy", "Memset"


class _Args(msgspec.Struct):
    kernel: str = ""
    kernel_name: str = ""
    dims: list[object] = msgspec.field(default_factory=list, name="Input Dims")


_decoder = msgspec.json.Decoder(_Args)


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

    def stated(self, row: int) -> _Args:
        """Return what the arguments of a node state."""
        at = self.args.get(row, -1)
        try:
            return _decoder.decode(self.trace.attributes.span(at)) if at >= 0 else _Args()
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _Args()


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
