"""The measured trace with a marked critical path, as in HTA's overlay."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.device_edges import EDGE_TYPES
from nadi.analyses.hta.hta_path import EDGE_TYPE_TEXTS, HtaCriticalPath
from nadi.analyses.hta.recorded_fields import added_base_time, object_at, rows_holding, rows_of_file
from nadi.errors import Parameter, UsageError, checked
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import AttributeBuilder, Attributes, Part, combined
from nadi.trace.schema import DEPS
from nadi.trace.trace import Trace

_US = 1000
_LAUNCH = EDGE_TYPES.index("KERNEL_LAUNCH_DELAY")
# on the path, only edges between tracks: other arrows would hide the operations below
_SHOWN = (_LAUNCH, EDGE_TYPES.index("DEPENDENCY"), EDGE_TYPES.index("SYNC_DEPENDENCY"))


@checked
def hta_overlay(
    trace: Trace, path: HtaCriticalPath, *, only_critical: bool = False, all_edges: bool = False
) -> Trace:
    """Mark a critical path in its trace.

    Events on the path get the argument ``critical`` with value 1, and edges become arrows
    of category ``critical_path`` with their weight (whole us), type and whether they are on
    the path. Launch edges without weight are not shown, as HTA does not show them.

    Parameters
    ----------
    trace
        The trace that ``path`` is of.
    path
        The result of :func:`nadi.analyses.hta_critical_path`.
    only_critical
        Keep only events on the path and annotations.
    all_edges
        Show all edges instead of those on the path only.

    Returns
    -------
    Trace
        To be written as Chrome's JSON: ``nadi.write(trace, "overlay.json.gz", to="kineto")``.
        O(events + edges).

    Raises
    ------
    UsageError
        If ``only_critical`` and ``all_edges`` are both set.
    """
    if only_critical and all_edges:
        what: list[str | Parameter] = [
            "cannot be combined with ",
            Parameter("only_critical"),
            ", which removes their events",
        ]
        raise UsageError(Parameter("all_edges"), what, "use one of them")
    is_critical = _on_path(trace, path)
    attributes = trace.attributes
    kept_attributes, marks = _marked(attributes, is_critical)
    is_kept = np.ones(trace.nodes.height, dtype=np.bool_)
    if only_critical:
        is_kept = is_critical | trace.category_mask("annotation")
        kept_attributes[_spans_of_time(attributes)] = False
    new_row = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    arrows = AttributeBuilder()
    for event in _arrows(trace, path, all_edges=all_edges):
        arrows.add(-1, "event", "json", event)
    parts = [Part(attributes, new_row, kept_attributes), Part(marks, new_row), Part(arrows.build())]
    parent = trace.column("parent")
    nodes = trace.nodes.with_columns(parent=np.where(parent >= 0, new_row[parent], -1))
    return replace(
        trace,
        nodes=nodes.filter(pl.Series(is_kept)),
        deps=DEPS.empty() if only_critical else trace.deps,
        given_attributes=combined(parts),
    )


def _on_path(trace: Trace, path: HtaCriticalPath) -> Bools:
    """Return which nodes are on the path; bool, shape (nodes,)."""
    is_critical = np.zeros(trace.nodes.height, dtype=np.bool_)
    rows = np.unique(path.moments.row[path.vertices])
    is_critical[path.moments.events["node"].to_numpy()[rows]] = True
    return is_critical


def _marked(attributes: Attributes, is_critical: Bools) -> tuple[Bools, Attributes]:
    """Return which attributes stay unchanged, and the args of critical events with the mark."""
    marks = AttributeBuilder()
    rows = rows_of_file(attributes, "args")
    rows = rows[attributes.node[rows] >= 0]
    rows = rows[is_critical[attributes.node[rows]]]
    for row in rows.tolist():
        args = attributes.span(row).rstrip()
        mark = b'"critical":1}' if args[1:-1].isspace() or args == b"{}" else b',"critical":1}'
        marks.add(int(attributes.node[row]), "args", "json", args[:-1] + mark)
    without = is_critical.copy()
    without[attributes.node[rows]] = False
    for node in np.flatnonzero(without).tolist():
        marks.add(node, "args", "json", b'{"critical":1}')
    kept = np.ones(len(attributes), dtype=np.bool_)
    kept[rows] = False
    return kept, marks.build()


def _spans_of_time(attributes: Attributes) -> Ints:
    """Return events with a duration that are not nodes, such as the profiler's own."""
    rows = rows_holding(attributes, rows_of_file(attributes, "event"), b'"dur"')
    return np.array(
        [row for row in rows.tolist() if object_at(attributes, row).get("ph") == "X"],
        dtype=np.int64,
    )


def _arrows(trace: Trace, path: HtaCriticalPath, *, all_edges: bool) -> Iterator[bytes]:
    """Write the two flow events of each edge at the exact recorded times."""
    added, moments, on_path = path.edges_added, path.moments, path.is_on_path
    shown = on_path & np.isin(added.type, _SHOWN)
    if all_edges:
        shown = np.ones(on_path.size, dtype=np.bool_)
    shown &= (added.type != _LAUNCH) | (added.weight != 0)
    node = moments.column("node")[moments.row]
    start = trace.column("start")[node] - added_base_time(trace.attributes)
    end = start + trace.column("duration")[node]
    # at its very end work of a device is over, and viewers would bind the arrow to nothing
    end = np.where(moments.column("stream")[moments.row] >= 0, np.maximum(start, end - _US), end)
    time = np.where(moments.is_start, start, end)
    process = moments.column("process")[moments.row].tolist()
    thread = moments.column("thread")[moments.row].tolist()
    texts = [f"{at // _US}.{at % _US:03}" for at in time.tolist()]
    for number, edge in enumerate(np.flatnonzero(shown).tolist()):
        args = msgspec.json.encode({
            "weight": int(added.weight[edge]) // _US,
            "critical": bool(on_path[edge]),
            "type": EDGE_TYPE_TEXTS[added.type[edge]],
        }).decode()  # fmt: skip
        ends = ("s", added.begin[edge], ""), ("f", added.end[edge], ',"bp":"e"')
        for phase, moment, more in ends:
            yield (
                f'{{"ph":"{phase}","id":{number},"pid":{process[moment]},"tid":{thread[moment]},'
                f'"ts":{texts[moment]},"cat":"critical_path","name":"critical_path",'
                f'"args":{args}{more}}}'
            ).encode()
