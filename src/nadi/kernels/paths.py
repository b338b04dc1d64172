"""Longest paths in a directed acyclic graph whose vertices are points in time.

Edges are stored by destination (compressed sparse rows): vertex v is entered by
the edges ``in_ptr[v]:in_ptr[v + 1]``, each with a source and a weight.
"""

from typing import NamedTuple

import numpy as np

from nadi.errors import NadiError
from nadi.kernels.jit import borrowed, inner, kernel
from nadi.kernels.sequences import group_rows
from nadi.units import format_count

_MOST_NUMBERS = (1 << 31) - 1  # that columns of int32 can tell apart


def refuse_too_large(num_vertices: int, num_edges: int) -> None:
    """Raise NadiError if a graph has more vertices or edges than 32 bits can number."""
    if max(num_vertices, num_edges) > _MOST_NUMBERS:
        raise NadiError(
            "",
            f"the graph of this job has {format_count(num_vertices)} moments and "
            f"{format_count(num_edges)} dependencies between them; it can have up to "
            f"{format_count(_MOST_NUMBERS)} of each",
            "take fewer ranks or one step (nadi extract), or use nadi analyze, which needs none",
        )


def edges_by_vertex(
    src: np.ndarray, dst: np.ndarray, num_vertices: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort edges by destination, those into one vertex in the order given.

    - ``src``, ``dst``: int64, shape (edges,).
    - Returns ``in_ptr``, ``in_src``: int32, as :func:`topological_order` takes them; and ``edge``:
      int64, shape (edges,): the edges, sorted. O(vertices + edges).
    - Raises NadiError if there are more than 32 bits can number.
    """
    refuse_too_large(num_vertices, dst.size)
    first = np.empty(num_vertices + 1, dtype=np.int64)
    edge = np.empty(dst.size, dtype=np.int64)
    group_rows(dst, first, edge)
    return first.astype(np.int32), src[edge].astype(np.int32), edge


@kernel
def topological_order(in_ptr: np.ndarray, in_src: np.ndarray, order: np.ndarray) -> int:
    """Order the vertices so that every edge points forward.

    Depth first from each vertex back along its incoming edges, without recursion.

    - ``in_ptr``, ``in_src``: int32, shapes (vertices + 1,) and (edges,).
    - ``order``: int32, shape (vertices,), filled.
    - Returns: -1, or a vertex that lies on a cycle. O(vertices + edges).
    """
    num_vertices = order.size
    num_followed = np.zeros(num_vertices, dtype=np.uint32)
    state = np.zeros(num_vertices, dtype=np.uint8)  # 0 unseen, 1 on the stack, 2 done
    num_done = 0
    for root in range(num_vertices):
        if state[root] != 0:
            continue
        # the stack stands at the end of order: what is on it is not done, so both have room
        top = num_vertices - 1
        order[top] = root
        state[root] = 1
        while top < num_vertices:
            v = order[top]
            e = in_ptr[v] + np.int64(num_followed[v])
            if e == in_ptr[v + 1]:
                state[v] = 2
                top += 1
                order[num_done] = v
                num_done += 1
                continue
            u = in_src[e]
            num_followed[v] += 1
            if state[u] == 1:
                return int(u)
            if state[u] == 0:
                state[u] = 1
                top -= 1
                order[top] = u
    return -1


@kernel
def unexplained_times(
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    weight: np.ndarray,
    time: np.ndarray,
    delay: np.ndarray,
) -> None:
    """Compute each vertex's delay: its time minus the latest time that its incoming edges require.

    - ``in_ptr``, ``in_src``, ``weight``: As for :func:`replay_times`.
    - ``time``: int64 ns, shape (vertices,).
    - ``delay``: int64 ns, shape (vertices,), filled: the time itself where no edge enters.
      O(vertices + edges).
    """
    for v in range(time.size):
        first, last = in_ptr[v], in_ptr[v + 1]
        if first == last:
            delay[v] = time[v]
            continue
        latest = time[in_src[first]] + weight[first]
        for e in range(first + 1, last):
            latest = max(latest, time[in_src[e]] + weight[e])
        delay[v] = time[v] - latest


@kernel
def replay_times(
    order: np.ndarray,
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    weight: np.ndarray,
    delay: np.ndarray,
    time: np.ndarray,
    bound_by: np.ndarray,
) -> None:
    """Compute the time of each vertex: the latest that an incoming edge requires, plus its delay.

    - ``order``: int32, shape (vertices,): a topological order.
    - ``in_ptr``, ``in_src``: int32, shapes (vertices + 1,) and (edges,).
    - ``weight``: int64 ns, shape (edges,).
    - ``delay``: int64 ns, shape (vertices,): added to that latest time; the time itself where no
      edge enters.
    - ``time``: int64 ns, shape (vertices,), filled.
    - ``bound_by``: int32, shape (vertices,), filled: the edge that set the time (of several equal
      ones the first), or -1 where none enters; of shape (0,) if only times are asked for.
      O(vertices + edges).
    """
    is_asked = bound_by.size > 0
    for v in order:
        bound = -1
        latest = 0
        for e in range(in_ptr[v], in_ptr[v + 1]):
            asked = time[in_src[e]] + weight[e]
            if bound < 0 or asked > latest:
                latest = asked
                bound = e
        time[v] = latest + delay[v]
        if is_asked:
            bound_by[v] = bound


@kernel
def latest_times(
    order: np.ndarray,
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    weight: np.ndarray,
    delay: np.ndarray,
    latest: np.ndarray,
    next_edge: np.ndarray,
) -> None:
    """Compute the latest time of each vertex that makes no later vertex late.

    - ``order``, ``in_ptr``, ``in_src``, ``weight``, ``delay``: As for :func:`replay_times`.
    - ``latest``: int64 ns, shape (vertices,): on entry the latest time allowed for the vertex
      alone; lowered in place.
    - ``next_edge``: int32, shape (vertices,), filled: the edge that sets this time (of several
      equal ones the one that enters the vertex latest in ``order``, and of that the first), or -1
      where it is the vertex's own. O(vertices + edges).
    """
    next_edge[:] = -1
    for at in range(order.size - 1, -1, -1):
        v = order[at]
        for e in range(in_ptr[v], in_ptr[v + 1]):
            allowed = latest[v] - delay[v] - weight[e]
            if allowed < latest[in_src[e]]:
                latest[in_src[e]] = allowed
                next_edge[in_src[e]] = e


@kernel
def trace_back(bound_by: np.ndarray, in_src: np.ndarray, last: int, path: np.ndarray) -> int:
    """Follow binding edges back from a vertex to one that no edge enters.

    - ``bound_by``, ``in_src``: int32, shapes (vertices,) and (edges,), as for :func:`replay_times`.
    - ``last``: The vertex to begin with.
    - ``path``: int64, shape (vertices,), filled: the vertices, ``last`` first.
    - Returns: Number of vertices on the path. O(path).
    """
    path[0] = last
    size = 1
    while bound_by[path[size - 1]] >= 0:
        path[size] = in_src[bound_by[path[size - 1]]]
        size += 1
    return size


class EdgeTimes(NamedTuple):
    """What takes the time before the vertices of a graph."""

    delay: np.ndarray  # int64 ns, shape (vertices,): what no edge explains
    weight: np.ndarray  # int64 ns, shape (edges,)
    op: np.ndarray  # int32, shape (edges,): the operation that an edge's time belongs to, or -1
    kind: np.ndarray  # uint8, shape (edges,)


class Stretches(NamedTuple):
    """Parts of a path; arrays of shape (stretches,)."""

    # start, end: int64 ns
    start: np.ndarray
    end: np.ndarray
    code: np.ndarray  # int8: what the time counts as
    op: np.ndarray  # int32: the operation whose time it is, or -1
    place: np.ndarray  # int32: the operation that waits


@inner
def _put_before(
    stretches: Stretches, first: int, low: int, high: int, code: int, op: int, place: int
) -> int:
    """Put a stretch before the first, or add it to that if it is like it; gives the first then."""
    if (
        first < stretches.start.size
        and stretches.code[first] == code
        and stretches.op[first] == op
        and stretches.place[first] == place
    ):
        stretches.start[first] = low
        return first
    first -= 1
    stretches.start[first], stretches.end[first] = low, high
    stretches.code[first], stretches.op[first], stretches.place[first] = code, op, place
    return first


@kernel
def stretches_of_path(
    vertices: np.ndarray,
    edge: np.ndarray,
    reached: np.ndarray,
    begin: int,
    num_ops: int,
    graph: EdgeTimes,
    code_of_kind: np.ndarray,
    stretches: Stretches,
) -> int:
    """Cut a path into stretches of one operation and kind, and merge adjacent equal ones.

    The time before a vertex consists of the weight of its edge, and then its delay. Stretches
    without time are left out.

    - ``vertices``, ``edge``, ``reached``: int64, shape (vertices on the path,): first to last; the
      edge into each, or -1; and when the path comes to it, in ns.
    - ``begin``: Time before this is left out, in ns.
    - ``num_ops``: Vertices from ``2 * num_ops`` on belong to no operation, and count to that of the
      next vertex on the path.
    - ``graph``: What takes the time.
    - ``code_of_kind``: int8, shape (kinds + 1,): what time on edges of a kind counts as; last, what
      delays do.
    - ``stretches``: Room for ``2 * vertices on the path``, filled from the end.
    - Returns: Position of the first stretch; the last is the last there. O(path).
    """
    graph, stretches = borrowed(graph), borrowed(stretches)
    late_code = code_of_kind[code_of_kind.size - 1]
    first = stretches.start.size
    own = np.int64(-1)
    for at in range(vertices.size - 1, -1, -1):
        v = vertices[at]
        e = edge[at]
        if v < 2 * num_ops:
            own = v // 2
        explained_from = explained_to = np.int64(begin)
        if e >= 0:
            explained_to = reached[at] - graph.delay[v]
            explained_from = max(explained_to - graph.weight[e], np.int64(begin))
        late_from = max(explained_to, np.int64(begin))
        if reached[at] > late_from:
            first = _put_before(stretches, first, late_from, reached[at], late_code, own, own)
        if explained_to > explained_from:  # so an edge enters
            op, code = graph.op[e], code_of_kind[graph.kind[e]]
            place = op if op >= 0 else own
            first = _put_before(stretches, first, explained_from, explained_to, code, op, place)
    return first
