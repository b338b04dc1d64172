"""Data dependencies by tensors as edges, which moves must not break."""

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.graph.replay import replay_graph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import TENSOR_DEPS
from nadi.whatif.reordering.operation_layout import OperationLayout, Works, operations_of_rows


def tensor_pairs(graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return the tensor dependencies of all ranks.

    - Returns src, dst, kind: int64, shape (dependencies,): operations; position in
      ``schema.TENSOR_DEPS``. O(dependencies).
    """
    found: list[tuple[Ints, Ints, Ints]] = []
    for number, trace in enumerate(graph.job.traces):
        for code, name in enumerate(TENSOR_DEPS):
            deps = trace.deps.filter(pl.col("kind") == name)
            src = operations_of_rows(graph, number, deps["src"].to_numpy())
            dst = operations_of_rows(graph, number, deps["dst"].to_numpy())
            here = (src >= 0) & (dst >= 0)
            found.append((src[here], dst[here], np.full(int(here.sum()), code)))
    none = np.empty(0, dtype=np.int64)
    src, dst, kind = (np.concatenate([none, *column]) for column in zip(*found, strict=True))
    return src, dst, kind


def with_tensor_edges(graph: EventGraph) -> EventGraph:
    """Add edges for data dependencies that no thread or stream order ensures.

    Nothing changes in the replay: what held by chance now holds by an edge, and what began
    later than its data does so still, by a delay after it. A dependency that the replay
    contradicts already is left out. O(vertices + edges + dependencies).
    """
    layout = OperationLayout.of(graph)
    src, dst = _moments(layout)
    time = replay_graph(graph).time
    holds = time[src] <= time[dst]
    wanted = np.unique(src[holds] * graph.num_vertices + dst[holds])
    there = graph.edge_kind == EdgeKind.TENSOR
    known = graph.in_src[there] * graph.num_vertices + graph.destinations[there]
    src, dst = np.divmod(np.setdiff1d(wanted, known, assume_unique=True), graph.num_vertices)
    if not src.size:
        return graph
    new = make_edges(src, dst, 0, EdgeKind.TENSOR, dst // 2)
    # what was a delay after other edges is a delay after the latest of all
    explained = np.where(np.diff(graph.in_ptr) > 0, time - graph.delay, np.iinfo(np.int64).min)
    np.maximum.at(explained, dst, time[src])
    delay = graph.delay.copy()
    delay[dst] = time[dst] - explained[dst]
    edges = Edges(*(np.concatenate(both) for both in zip(graph.edges, new, strict=True)))
    return replace(graph, delay=delay).with_edges(edges)


def _moments(layout: OperationLayout) -> tuple[Ints, Ints]:
    """Return the ends that starts must wait for; vertices, int64, shape (pairs,).

    Data is there when the work on it is done: that which an operation launched, or else the
    operation itself. Device work waits for it on its stream; what runs on threads is asked for
    only then. Of work on one stream and from one thread the order is kept anyway.
    """
    src, dst, _ = tensor_pairs(layout.graph)
    works, thread, resource = layout.works, layout.thread, layout.resource
    last_of, last = outermost_works(layout, src, last=True)
    first_of, first = outermost_works(layout, dst, last=False)
    on_device = layout.on_device[works.op[first]]
    left = pl.DataFrame({"pair": last_of, "before": works.op[last]})
    right = pl.DataFrame({"pair": first_of[on_device], "after": works.op[first[on_device]]})
    both = left.join(right, on="pair", how="inner")
    before, after = both["before"].to_numpy(), both["after"].to_numpy()
    elsewhere = resource[before] != resource[after]
    alone = left.join(right, on="pair", how="anti")
    across = thread[src] != thread[dst]
    ends = [before[elsewhere], alone["before"].to_numpy(), src[across]]
    starts = [after[elsewhere], dst[alone["pair"].to_numpy()], dst[across]]
    return 2 * np.concatenate(ends) + 1, 2 * np.concatenate(starts)


def outermost_works(layout: OperationLayout, op: Ints, *, last: bool) -> tuple[Ints, Ints]:
    """Find the last, or first, work on each stream that each operation launched.

    - Returns which, work: int64: position in ``op``, and in ``layout.works``.
    """
    works = layout.works
    begin, end = works.of(layout.at[2 * op], layout.at[2 * op + 1])
    count = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(op.size), count)
    work = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + begin[which]
    neighbor = _neighbors(layout, works, after=last)[work]
    kept: Bools = neighbor >= end[which] if last else neighbor < begin[which]
    return which[kept], work[kept]


def _neighbors(layout: OperationLayout, works: Works, *, after: bool) -> Ints:
    """Return the next or previous work of each on its stream or thread; int64, shape (works,).

    Where there is none, a number beyond all.
    """
    place = layout.resource[works.op]
    order = np.argsort(place, kind="stable")
    same = np.diff(place[order]) == 0
    found = np.full(works.op.size, works.op.size if after else -1, dtype=np.int64)
    if after:
        found[order[:-1][same]] = order[1:][same]
    else:
        found[order[1:][same]] = order[:-1][same]
    return found
