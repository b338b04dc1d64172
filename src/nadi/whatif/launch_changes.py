"""Changes that reduce launches: fused kernels, and ranges launched as one CUDA graph."""

from dataclasses import dataclass, replace

import numpy as np

from nadi.errors import UsageError
from nadi.graph.edges.job_graph import starts_in_call
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.trace.arrays import Bools, Ints
from nadi.units import format_count
from nadi.whatif.changes import (
    calls_without_work,
    into_ops,
    is_on_device,
    join,
    of_ops,
    without_calls,
)
from nadi.whatif.selection import Selection, launchers, outermost, select


@dataclass(frozen=True)
class Fuse:
    """Fuse selected kernels that follow each other on a stream.

    Each run of kernels keeps its first launch and has no gaps between kernels; kernel times
    stay. A run ends where another operation waits for its last kernel, or its next kernel
    waits for another operation.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"fuse {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no two of the selected operations are neighbors on a stream without a wait
            between them.
        """
        chosen = select(graph, self.selection) & is_on_device(graph)
        edges = graph.edges
        of_stream = np.flatnonzero(edges.kind == EdgeKind.STREAM)
        before, after = edges.src[of_stream] // 2, edges.dst[of_stream] // 2
        waited_for, waits = np.zeros((2, graph.num_vertices), dtype=np.bool_)
        others = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.THREAD, EdgeKind.ADDED))
        waited_for[edges.src[others]] = True
        waits[edges.dst[others]] = True
        fused = chosen[before] & chosen[after]
        fused &= ~waited_for[2 * before + 1] & ~waits[2 * after]
        if not fused.any():
            raise UsageError(
                str(self),
                "no two of these operations are neighbors on a stream without a wait between "
                "them", "select neighboring kernels",
            )  # fmt: skip
        fused &= (graph.time[2 * before] >= since) & (graph.time[2 * after] >= since)
        follows = np.zeros(graph.num_ops, dtype=np.bool_)
        follows[after[fused]] = True
        launches = (edges.kind == EdgeKind.LAUNCH) & into_ops(edges, follows)
        weight = edges.weight.copy()
        weight[of_stream[fused]] = 0
        kept = Edges(*(column[~launches] for column in edges._replace(weight=weight)))
        delay = graph.delay.copy()
        delay[2 * after[fused]] = 0
        kept = without_calls(kept, calls_without_work(graph, follows, since))
        return replace(graph, delay=delay).rewired(kept, since)


@dataclass(frozen=True)
class Graphed:
    """Launch all device work of each selected range with one call, as a CUDA graph does.

    The first launching call of a range stays and launches all that the range's thread
    launched; the rest of the range takes its thread no time. What other threads do for it,
    and its communication on threads, stays.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"cuda-graph {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If a range launches nothing, or waits for a device, which cannot be captured.
        """
        on_device = is_on_device(graph)
        chosen = select(graph, self.selection) & ~on_device
        range_of = outermost(graph, chosen)
        call = launchers(graph)
        work = np.flatnonzero(on_device & (call >= 0) & (range_of[call] >= 0))
        if not work.size:
            raise UsageError(
                str(self),
                "these operations launch no device work",
                "select a range that launches kernels",
            )
        begins = graph.time[2 * range_of[call[work]]]
        work = work[begins >= since]
        inside = (range_of >= 0) & (graph.time[2 * range_of] >= since)
        self._refuse_waits(graph, inside)
        owner = range_of[call[work]]
        first_of = np.full(graph.num_ops, graph.num_ops)
        np.minimum.at(first_of, owner, call[work])  # operations of a thread are in order of start
        kept_call = np.zeros(graph.num_ops, dtype=np.bool_)
        kept_call[first_of[owner]] = True
        launches_any = np.zeros(graph.num_ops, dtype=np.bool_)
        launches_any[owner] = True
        saved = inside & launches_any[range_of] & ~kept_call
        return _captured(graph, work, first_of[owner], saved, since)

    def _refuse_waits(self, graph: EventGraph, inside: Bools) -> None:
        """Raise UsageError if a call inside the range waits for device work."""
        edges = graph.edges
        waits = np.flatnonzero((edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1))
        source, call = edges.src[waits] // 2, edges.dst[waits] // 2
        launched_by = launchers(graph)
        launches = np.zeros(graph.num_ops, dtype=np.bool_)
        launches[launched_by[launched_by >= 0]] = True
        for_room = launches[call] & (launched_by[source] != call)
        waiting = np.unique(call[inside[call] & is_on_device(graph)[source] & ~for_room])
        if waiting.size:
            name = graph.op_names[int(waiting[0])]
            raise UsageError(
                str(self),
                f"{format_count(waiting.size)} calls in it wait for the device, such as {name}",
                "a CUDA graph cannot contain them: select a range without them",
            )


def _captured(graph: EventGraph, work: Ints, call: Ints, saved: Bools, since: int) -> EventGraph:
    """Launch ``work`` by ``call``, and remove the time of ``saved``."""
    edges = graph.edges
    call_of = np.full(graph.num_ops + 1, -1)
    call_of[work] = call
    new_call = call_of[np.minimum(edges.dst // 2, graph.num_ops)]
    relaunched = (edges.kind == EdgeKind.LAUNCH) & (new_call >= 0) & (edges.src // 2 != new_call)
    latency = np.zeros(graph.num_ops, dtype=np.int64)
    # the time until work starts within its call goes with the call
    late = relaunched & ~starts_in_call(graph)
    np.maximum.at(latency, edges.dst[late] // 2, edges.weight[late])
    work = np.unique(edges.dst[relaunched] // 2)
    on_thread = np.isin(edges.kind, (EdgeKind.HOST_OP, EdgeKind.HOST_GAP))
    weight = np.where(on_thread & of_ops(edges, saved), 0, edges.weight)
    # nor do calls that are gone wait for room in a queue
    queued = (edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1) & into_ops(edges, saved)
    kept = Edges(*(column[~(relaunched | queued)] for column in edges._replace(weight=weight)))
    launches = make_edges(2 * call_of[work] + 1, 2 * work, latency[work], EdgeKind.LAUNCH, work)
    delay = graph.delay.copy()
    delay[2 * work] = 0
    return replace(graph, delay=delay).rewired(join(kept, launches), since)
