"""Changes of what waits for what: work removed, fused, moved; dependencies added or cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nadi.errors import UsageError
from nadi.graph import CycleError, EdgeKind, Edges, EventGraph, make_edges
from nadi.schema import DEVICE_WORK
from nadi.units import format_count
from nadi.whatif.selection import Selection, covered, launchers, outermost, select

__all__ = ["AddDependency", "CutDependencies", "Fuse", "Graphed", "MoveToStream", "Remove"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_OF_THREADS = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION)


@dataclass(frozen=True)
class Remove:
    """Leave operations out: they take no time, are not launched, and nobody waits for them.

    With a host operation goes what lies in it, and the device work launched there.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"remove {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        gone = covered(graph, select(graph, self.selection))
        call = launchers(graph)
        gone = gone | ((call >= 0) & gone[call])
        gone &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        idle_call = _calls_without_work(graph, gone)
        vertices = np.flatnonzero(np.repeat(gone, 2))
        delay = graph.delay.copy()
        entered = np.diff(graph.in_ptr)[vertices] > 0
        delay[vertices[entered]] = 0
        edges = _without_meetings(graph, gone)
        own = np.append(gone | idle_call, False)[edges.op]
        launched = np.append(gone, np.zeros(graph.num_vertices, dtype=np.bool_))[edges.dst // 2]
        overhead = launched & np.isin(edges.kind, (EdgeKind.LAUNCH, EdgeKind.STREAM))
        weight = np.where(own | overhead, 0, edges.weight)
        return replace(graph, delay=delay).with_edges(edges._replace(weight=weight))


def _calls_without_work(graph: EventGraph, gone: _Bools) -> _Bools:
    """Tell which calls launch nothing once work is gone; bool, shape (ops,)."""
    call = launchers(graph)
    launched, left = np.zeros((2, graph.num_ops), dtype=np.bool_)
    launched[call[call >= 0]] = True
    left[call[(call >= 0) & ~gone]] = True
    found: _Bools = launched & ~left
    return found


def _without_meetings(graph: EventGraph, gone: _Bools) -> Edges:
    """Give the edges, but for those by which ranks wait in operations that are gone."""
    edges = graph.edges
    hub = 2 * graph.num_ops
    is_gone = np.append(gone, False)[edges.op]
    meets = is_gone & ((edges.src >= hub) | (edges.dst >= hub))
    op = edges.op[meets & (edges.src >= hub)]
    kept = Edges(*(column[~meets] for column in edges))
    # what only waited for others has no other edge from its start to its end
    return _join(kept, make_edges(2 * op, 2 * op + 1, 0, EdgeKind.COMMUNICATION, op))


@dataclass(frozen=True)
class Fuse:
    """Make one kernel of chosen ones that follow each other on a stream.

    One launch is left of each run of them, and no turn-around between them; their own
    time stays.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"fuse {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes.

        Raises
        ------
        UsageError
            If no two of the chosen operations follow each other on a stream.
        """
        chosen = select(graph, self.selection) & _on_device(graph)
        edges = graph.edges
        into = edges.dst // 2
        of_stream = np.flatnonzero(edges.kind == EdgeKind.STREAM)
        before, after = edges.src[of_stream] // 2, into[of_stream]
        fused = chosen[before] & chosen[after] & (graph.time[2 * after] >= since)
        if not fused.any():
            raise UsageError(
                str(self), "no two of these operations follow each other on a stream",
                "choose kernels that are neighbours",
            )  # fmt: skip
        follower = np.zeros(graph.num_ops, dtype=np.bool_)
        follower[after[fused]] = True
        idle_call = _calls_without_work(graph, follower)
        weight = edges.weight.copy()
        weight[of_stream[fused]] = 0
        weight[np.append(idle_call, False)[edges.op]] = 0
        launches = (edges.kind == EdgeKind.LAUNCH) & np.append(
            follower, np.zeros(graph.num_vertices, dtype=np.bool_)
        )[into]
        delay = graph.delay.copy()
        delay[2 * np.flatnonzero(follower)] = 0
        kept = Edges(*(column[~launches] for column in edges._replace(weight=weight)))
        return replace(graph, delay=delay).with_edges(kept)


@dataclass(frozen=True)
class Graphed:
    """Launch all device work of each chosen range by one call, as a CUDA graph does.

    The first launching call of a range stays and launches all of it; the rest of the
    range takes its threads no time.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"cuda-graph {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes.

        Raises
        ------
        UsageError
            If a range launches nothing, or waits for a device, which cannot be captured.
        """
        chosen = select(graph, self.selection) & ~_on_device(graph)
        chosen &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        range_of = outermost(graph, chosen)
        call = launchers(graph)
        on_device = _on_device(graph)
        work = np.flatnonzero(on_device & (call >= 0) & (range_of[call] >= 0))
        if not work.size:
            raise UsageError(
                str(self), "these operations launch no device work", "choose a range that does"
            )
        self._refuse_waits(graph, range_of >= 0)
        owner = range_of[call[work]]
        order = np.lexsort((call[work], owner))
        first_of = np.full(graph.num_ops, -1, dtype=np.int64)
        first_of[owner[order][::-1]] = call[work][order][::-1]
        inside = range_of >= 0
        kept_call = np.zeros(graph.num_ops, dtype=np.bool_)
        kept_call[first_of[owner]] = True
        return self._captured(graph, work, first_of[owner], inside & ~kept_call)

    def _captured(self, graph: EventGraph, work: _Ints, call: _Ints, saved: _Bools) -> EventGraph:
        """Launch ``work`` by ``call``, and take the time of ``saved`` away."""
        edges = graph.edges
        captured = np.zeros(graph.num_vertices, dtype=np.bool_)
        captured[2 * work] = True
        relaunched = (edges.kind == EdgeKind.LAUNCH) & captured[edges.dst]
        latency = np.zeros(graph.num_vertices, dtype=np.int64)
        np.maximum.at(latency, edges.dst[relaunched], edges.weight[relaunched])
        own = np.append(saved, False)[edges.op] & np.isin(edges.kind, _OF_THREADS)
        # nor do calls that are gone wait for room in a queue
        queued = (
            (edges.kind == EdgeKind.SYNC)
            & (edges.dst % 2 == 1)
            & np.append(saved, np.zeros(graph.num_vertices, dtype=np.bool_))[edges.dst // 2]
        )
        gone = relaunched | queued
        kept = Edges(*(
            column[~gone]
            for column in edges._replace(weight=np.where(own, 0, edges.weight))
        ))  # fmt: skip
        launches = make_edges(2 * call + 1, 2 * work, latency[2 * work], EdgeKind.LAUNCH, work)
        delay = graph.delay.copy()
        delay[2 * work] = 0
        return replace(graph, delay=delay).with_edges(_join(kept, launches))

    def _refuse_waits(self, graph: EventGraph, inside: _Bools) -> None:
        """Raise UsageError if a call inside waits for work that it did not have to queue up for."""
        edges = graph.edges
        waits = np.flatnonzero((edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1))
        source, call = edges.src[waits] // 2, edges.dst[waits] // 2
        launched_by = launchers(graph)
        launches = np.zeros(graph.num_ops, dtype=np.bool_)
        launches[launched_by[launched_by >= 0]] = True
        for_room = launches[call] & (launched_by[source] != call)
        waiting = np.unique(call[inside[call] & _on_device(graph)[source] & ~for_room])
        if waiting.size:
            name = graph.op_names[int(waiting[0])]
            raise UsageError(
                str(self),
                f"{format_count(waiting.size)} calls in it wait for the device, such as {name}",
                "a CUDA graph cannot hold these: choose a range without them",
            )


@dataclass(frozen=True)
class MoveToStream:
    """Put device work on another stream.

    There it follows what was launched before it, and no longer waits for its old stream.
    Where tensors are recorded it still waits for the work that they come from.
    """

    selection: Selection
    stream: int

    def __str__(self) -> str:
        return f"move {self.selection} to {self.stream}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        on_device = _on_device(graph)
        moved = select(graph, self.selection) & on_device
        moved &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        stream = np.where(moved, self.stream, graph.op_stream)
        device = graph.gather("device").to_numpy()
        call = launchers(graph)
        launched = np.where(call >= 0, graph.time[2 * call], graph.time[0 : 2 * graph.num_ops : 2])
        ops = np.flatnonzero(on_device)
        ops = ops[np.lexsort((ops, launched[ops], stream[ops], device[ops], graph.op_trace[ops]))]
        same = (
            (np.diff(stream[ops]) == 0)
            & (np.diff(device[ops]) == 0)
            & (np.diff(graph.op_trace[ops]) == 0)
        )
        src, dst = ops[:-1][same], ops[1:][same]
        return self._reordered(replace(graph, op_stream=stream), src, dst)

    def _reordered(self, graph: EventGraph, src: _Ints, dst: _Ints) -> EventGraph:
        """Keep the turn-around of pairs that were neighbours, and give others the usual one."""
        edges = graph.edges
        of_stream = edges.kind == EdgeKind.STREAM
        old = {
            pair: (source, weight)
            for pair, source, weight in zip(
                zip((edges.src[of_stream] // 2).tolist(), (edges.dst[of_stream] // 2).tolist(),
                    strict=True),
                edges.src[of_stream].tolist(), edges.weight[of_stream].tolist(), strict=True,
            )
        }  # fmt: skip
        usual = int(np.median(edges.weight[of_stream])) if of_stream.any() else 0
        pairs = zip(src.tolist(), dst.tolist(), strict=True)
        found = [old.get((a, b), (2 * a + 1, usual)) for a, b in pairs]
        sources, weights = np.array(found, dtype=np.int64).reshape(-1, 2).T
        kept = Edges(*(column[~of_stream] for column in edges))
        return graph.with_edges(
            _join(kept, make_edges(sources, 2 * dst, weights, EdgeKind.STREAM, dst))
        )


@dataclass(frozen=True)
class AddDependency:
    """Let the start of operations wait for the end of others.

    Of as many operations each waits for its partner in order of time; for a single one all
    wait.
    """

    source: Selection
    target: Selection

    def __str__(self) -> str:
        return f"add {self.source} -> {self.target}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; dependencies of what starts before ``since`` are not added.

        Raises
        ------
        UsageError
            If both numbers differ, or operations would wait for each other.
        """
        sources, targets = (
            np.flatnonzero(select(graph, selection)) for selection in (self.source, self.target)
        )
        start = graph.time[0 : 2 * graph.num_ops : 2]
        sources = sources[np.argsort(start[sources], kind="stable")]
        targets = targets[np.argsort(start[targets], kind="stable")]
        if sources.size not in (1, targets.size):
            raise UsageError(
                str(self),
                f"{format_count(sources.size)} operations on the left and "
                f"{format_count(targets.size)} on the right do not pair up",
                "choose as many on both sides, or a single one on the left",
            )
        sources = np.broadcast_to(sources, targets.shape)
        later = start[targets] >= since
        new = make_edges(
            2 * sources[later] + 1, 2 * targets[later], 0, EdgeKind.ADDED, targets[later]
        )
        try:
            return graph.with_edges(_join(graph.edges, new))
        except CycleError as error:
            raise UsageError(str(self), error.what, "turn it round, or cut another") from None


@dataclass(frozen=True)
class CutDependencies:
    """Take away the dependencies of a kind that hold up chosen operations."""

    kind: EdgeKind
    selection: Selection

    def __str__(self) -> str:
        return f"cut {self.kind.name.lower()} {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes.

        Raises
        ------
        UsageError
            If no operation chosen has such a dependency.
        """
        chosen = np.append(select(graph, self.selection), np.zeros(graph.num_vertices, np.bool_))
        edges = graph.edges
        cut = (edges.kind == self.kind) & chosen[edges.dst // 2] & (graph.time[edges.dst] >= since)
        if not cut.any():
            kinds = np.unique(edges.kind[chosen[edges.dst // 2]])
            there = ", ".join(EdgeKind(int(kind)).name.lower() for kind in kinds)
            raise UsageError(
                str(self), f"no {self.kind.name.lower()} dependency holds these operations up",
                f"theirs are: {there}",
            )  # fmt: skip
        return graph.with_edges(Edges(*(column[~cut] for column in edges)))


def _on_device(graph: EventGraph) -> _Bools:
    return graph.gather("category").is_in(DEVICE_WORK).to_numpy()


def _join(one: Edges, other: Edges) -> Edges:
    return Edges(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))
