"""Who takes part in each collective and transfer of an event graph, and who waits in it.

Stragglers: who enters a collective or transfer last, why, and the wait time it causes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import PATH_KINDS, kind_of_edges
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.kernels.paths import trace_back
from nadi.trace.arrays import Bools, Ints


class Participants(NamedTuple):
    """Operations that take part in collectives and transfers; arrays of shape (participants,).

    ``hub`` is the vertex of the graph at which the last one that others wait for has entered,
    ``op`` the operation, and ``waits`` whether it waits for that. On devices all wait for each
    other, and so do both sides of a send. On threads (gloo) the root of a broadcast or scatter does
    not wait, and only the root of a reduce or gather does.
    """

    hub: Ints
    op: Ints
    waits: Bools


def find_participants(graph: EventGraph) -> Participants:
    """Return each operation of each collective and transfer once, by hub. O(edges log edges)."""
    arriving = np.flatnonzero(graph.edge_kind == EdgeKind.ARRIVAL)
    leaving = np.flatnonzero(graph.edge_kind == EdgeKind.COMMUNICATION)
    leaving = leaving[graph.in_src[leaving] >= 2 * graph.num_ops]
    hub = np.append(graph.destinations[arriving], graph.in_src[leaving])
    op = np.append(graph.edge_op[arriving], graph.edge_op[leaving])
    waits = np.repeat([False, True], [arriving.size, leaving.size])
    order = np.lexsort((~waits, op, hub))  # where it waits comes first of its two places
    hub, op, waits = hub[order], op[order], waits[order]
    once = np.append(True, (np.diff(hub) != 0) | (np.diff(op) != 0))[: hub.size]
    return Participants(hub[once], op[once], waits[once])


def group_ranks(graph: EventGraph) -> tuple[Ints, list[tuple[int, ...]]]:
    """Assign a number to each operation's group by its ranks, -1 where they are unknown.

    int64, shape (ops,), and the ranks of each number. O(ops + groups).
    """
    number: dict[tuple[int, ...], int] = {}
    of_op = np.full(graph.num_ops, -1, dtype=np.int64)
    group = graph.numbers("group")
    for t, trace in enumerate(graph.job.traces):
        members = trace.groups["ranks"].to_list()
        own = [number.setdefault(tuple(m), len(number)) if m else -1 for m in members]
        mine = graph.ops_of_trace(t)
        of_op[mine] = np.array([*own, -1], dtype=np.int64)[group[mine]]
    return of_op, list(number)


@dataclass(frozen=True, eq=False)
class Stragglers:
    """The stragglers of a window and the wait time that they cause.

    Attributes
    ----------
    collectives
        One row for each collective or transfer in which others waited, in order of time: name and
        rank of the operation that came last, row (its node), time (ns since the job's origin, of
        its entry), waited (ns, summed over the others), late (ns, their mean), longest (ns, of one
        other), cause (a path kind) and operation: the largest part of the chain that delayed it
        since the previous collective of these ranks.
    ranks
        One row each: rank, times_last, caused (wait time that it causes, ns), waited (ns
        that it waits for others); sorted by caused, largest first.
    """

    collectives: pl.DataFrame
    ranks: pl.DataFrame


@checked
def find_stragglers(replay: Replay, window: Window) -> Stragglers:
    """Find the straggler of each collective and transfer of a window. O(edges + paths to them).

    If several ranks enter last at the same time, the lowest rank is the straggler. If nobody
    waited, there is none: a receiver may come after its sender. Where a rank waits in several
    collectives at the same time, its wait counts for the first that it entered.
    """
    graph, time = replay.graph, replay.time
    begin, end = window.start(time), window.end(time)
    parts = find_participants(graph)
    arrival = np.flatnonzero(graph.edge_kind == EdgeKind.ARRIVAL)
    met = graph.destinations[arrival]
    inside = (time[met] >= begin) & (time[met] <= end)
    arrival, met = arrival[inside], met[inside]
    taken = np.isin(parts.hub, met)
    hub, op, waits = parts.hub[taken], parts.op[taken], parts.waits[taken]
    lasts = np.where(waits, np.maximum(time[hub] - time[2 * op], 0), 0)
    waited = _each_moment_once(_rank_of(replay, op), time[2 * op], lasts)
    total, longest, members = np.zeros((3, graph.num_vertices), dtype=np.int64)
    anyone = np.zeros(graph.num_vertices, dtype=np.bool_)
    anyone[hub[lasts > 0]] = True
    np.add.at(total, hub, waited)
    np.maximum.at(longest, hub, waited)
    np.add.at(members, hub, 1)
    by_rank = pl.DataFrame({"rank": _rank_of(replay, op), "waited": waited})
    last = arrival[(replay.bound_by[met] == arrival) & anyone[met]]
    last = last[np.argsort(time[graph.destinations[last]], kind="stable")]
    source = graph.in_src[last]
    since = _met_before(time, hub, _rank_of(replay, op), begin)
    causes = [
        _cause(replay, vertex, since[at])
        for vertex, at in zip(source.tolist(), graph.destinations[last].tolist(), strict=True)
    ]
    hub, op = graph.destinations[last], graph.edge_op[last]
    collectives = pl.DataFrame({
        "name": graph.names(op),
        "rank": _rank_of(replay, op),
        "row": graph.op_row[op],
        "time": time[source],
        "waited": total[hub],
        "late": total[hub] // np.maximum(members[hub] - 1, 1),
        "longest": longest[hub],
        "cause": [kind for kind, _ in causes],
        "operation": [name for _, name in causes],
    }, schema_overrides={"cause": pl.Enum(PATH_KINDS), "operation": pl.String})  # fmt: skip
    return Stragglers(collectives, _by_rank(collectives, by_rank))


def _met_before(time: Ints, hub: Ints, rank: Ints, begin: int) -> dict[int, int]:
    """Return for each hub when the same ranks had met before, or ``begin``; ns.

    What delayed a rank before that did not make it late: all had waited for it by then.
    """
    found = pl.DataFrame({"hub": hub, "rank": rank, "time": time[hub]})
    found = found.group_by("hub").agg(pl.col("rank").unique().sort(), pl.col("time").first())
    met: dict[tuple[int, ...], int] = {}
    since = {}
    for at, ranks, moment in found.sort("time", "hub").iter_rows():
        since[at] = met.get(tuple(ranks), begin)
        met[tuple(ranks)] = moment
    return since


def _each_moment_once(rank: Ints, begin: Ints, lasts: Ints) -> Ints:
    """Return how long each wait lasts after all that the rank began before; int64 ns."""
    order = np.lexsort((begin, rank))
    rank, begin, end = rank[order], begin[order], (begin + lasts)[order]
    far = np.int64(max(int(end.max(initial=0)), 0) + 1)
    reached = np.maximum.accumulate(end + rank * far) - rank * far
    first = np.append(True, rank[1:] != rank[:-1])[: rank.size]
    before = np.where(first, begin, np.append(0, reached[:-1])[: rank.size])
    waited = np.empty_like(lasts)
    waited[order] = np.maximum(end - np.maximum(begin, before), 0)
    return waited


def _rank_of(replay: Replay, op: Ints) -> Ints:
    return np.array(replay.graph.job.ranks, dtype=np.int64)[replay.graph.op_trace[op]]


def _by_rank(collectives: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    mine = waits.group_by("rank").agg(pl.sum("waited"))
    caused = collectives.group_by("rank").agg(times_last=pl.len().cast(pl.Int64),
                                              caused=pl.sum("waited"))  # fmt: skip
    return (
        mine.join(caused, on="rank", how="left")
        .with_columns(pl.col("times_last", "caused").fill_null(0))
        .select("rank", "times_last", "caused", "waited")
        .sort("caused", "rank", descending=[True, False])
    )


def _cause(replay: Replay, vertex: int, begin: int) -> tuple[str, str]:
    """Return the largest part of the path to a vertex since a collective or ``begin``."""
    graph, time = replay.graph, replay.time
    way = np.empty(graph.num_vertices, dtype=np.int64)
    way = way[: trace_back(replay.bound_by, graph.in_src, vertex, way)]
    outside = np.flatnonzero((way >= 2 * graph.num_ops) | (time[way] < begin))
    way = way[: int(outside[0])] if outside.size else way
    bound = replay.bound_by[way]
    known = bound >= 0
    reached = np.maximum(time[way] - graph.delay[way], begin)
    source = np.where(known, time[graph.in_src[bound]], reached)
    spent = reached - np.maximum(source, begin)
    kinds = kind_of_edges(graph, bound[known])
    sums = np.zeros(len(PATH_KINDS), dtype=np.int64)
    np.add.at(sums, kinds, spent[known])
    sums[PATH_KINDS.index("unexplained")] += int((time[way] - reached).sum())
    heaviest = int(np.argmax(sums))
    of_kind = np.flatnonzero(known)[kinds == heaviest]
    ops = graph.edge_op[bound[of_kind]]
    if not (ops >= 0).any():
        return PATH_KINDS[heaviest], ""
    names, which = np.unique(graph.names(ops[ops >= 0]).to_numpy(), return_inverse=True)
    weights = np.bincount(which, weights=spent[of_kind][ops >= 0])
    return PATH_KINDS[heaviest], str(names[int(np.argmax(weights))])
