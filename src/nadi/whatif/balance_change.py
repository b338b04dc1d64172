"""The change that work is balanced: as much of it on each rank."""

from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.windows import find_steps
from nadi.trace.arrays import Bools, Ints
from nadi.whatif.changes import is_work, later_edges
from nadi.whatif.selection import Selection, covered, select

_ON_DEVICE = (EdgeKind.KERNEL, EdgeKind.MEMORY)


def ranks_wait(graph: EventGraph) -> bool:
    """Return whether a rank may wait for another one in a collective or message."""
    return bool(((graph.in_src >= 2 * graph.num_ops) & (graph.edge_op >= 0)).any())


@dataclass(frozen=True)
class Balance:
    """Each rank does the mean of the ranks' work in the selected operations; the sum stays.

    The mean is that of each stretch between two collectives that all ranks enter, and between
    steps, of the host and of devices each. A rank with more than the mean does its operations in
    less time, one with less in more. A rank without any takes its share over in all of its work.
    Communication, latencies and delays stay, and with them waits for data: a receive still waits
    for what its sender does first. Ranks that a condition ``rank=`` leaves out take no part.
    """

    selection: Selection = field(default_factory=Selection)

    def __str__(self) -> str:
        return f"balance {self.selection}" if self.selection != Selection() else "balanced ranks"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If there are no two ranks among which work can be spread.
        """
        chosen = covered(graph, select(graph, self.selection))
        ranks = np.array(graph.job.ranks)
        takes_part = np.isin(ranks, self.selection.ranks) if self.selection.ranks else ranks >= 0
        takers = np.flatnonzero(takes_part)
        edges, place, num_stretches = _work_of(graph, tuple(takers.tolist()), since)
        shape = num_stretches, ranks.size
        weight, selected = graph.weight[edges], chosen[graph.edge_op[edges]]
        whole = _sums(place, weight, shape)[:, takers]
        spent = _sums(place, np.where(selected, weight, 0), shape)[:, takers]
        possible = (spent > 0).any(axis=1) & (whole > 0).all(axis=1)
        if takers.size < 2 or not possible.any():
            raise UsageError(
                str(self), "there is no work that could be spread over two ranks or more",
                "load several ranks, and select operations other than communication",
            )  # fmt: skip
        mean = spent.mean(axis=1, keepdims=True)
        has_any = spent > 0
        factor = np.where(has_any, mean / np.maximum(spent, 1), 1 + mean / np.maximum(whole, 1))
        factors = np.ones(shape)
        factors[np.ix_(possible, takers)] = factor[possible]
        in_all = np.zeros(shape, dtype=np.bool_)
        in_all[:, takers] = ~has_any
        changed = selected | in_all.ravel()[place]
        scaled = np.rint(weight * factors.ravel()[place]).astype(np.int64)
        new = graph.weight.copy()
        new[edges] = np.where(changed, scaled, weight)
        return graph.with_weights(new)


class _Work(NamedTuple):
    """The work that can be balanced: its edges, and the place of each."""

    # edges, place: shape (edges,): int32 where that suffices
    edges: npt.NDArray[np.integer]
    place: npt.NDArray[np.integer]  # the number of its stretch, times all ranks, and its rank
    num_stretches: int


# several changes of one graph are tried, each of them twice
_WORK: WeakKeyDictionary[EventGraph, tuple[tuple[int, ...], int, _Work]] = WeakKeyDictionary()


def _work_of(graph: EventGraph, takers: tuple[int, ...], since: int) -> _Work:
    """Return the work of ranks, by their positions, from a moment on; kept with the graph."""
    if graph not in _WORK or _WORK[graph][:2] != (takers, since):
        ranks = np.array(takers, dtype=np.int64)
        takes_part = np.zeros(len(graph.job.ranks), dtype=np.bool_)
        takes_part[ranks] = True
        own = (graph.edge_op >= 0) & is_work(graph) & later_edges(graph, since)
        own &= (graph.edge_kind != EdgeKind.COMMUNICATION) & ~graph.communicates[graph.edge_op]
        own &= takes_part[graph.op_trace[graph.edge_op]]
        edges = np.flatnonzero(own)
        stretch = _stretches(graph, edges, ranks)
        place = stretch * takes_part.size + graph.op_trace[graph.edge_op[edges]]
        num_stretches = int(stretch.max(initial=0)) + 1
        _WORK[graph] = takers, since, _Work(_narrow(edges), _narrow(place), num_stretches)
    return _WORK[graph][2]


def _narrow(numbers: Ints) -> npt.NDArray[np.integer]:
    is_small = numbers.max(initial=0) <= np.iinfo(np.int32).max
    return numbers.astype(np.int32) if is_small else numbers


def _sums(place: npt.NDArray[np.integer], weight: Ints, shape: tuple[int, int]) -> Ints:
    """Sum times by place; ns. Sums of floats are exact up to 2^53 ns, a hundred days."""
    sums = np.bincount(place, weight, minlength=shape[0] * shape[1])
    return sums.astype(np.int64).reshape(shape)


def _stretches(graph: EventGraph, edges: Ints, ranks: Ints) -> Ints:
    """Assign to each edge the number of its stretch of work, on its host or its devices.

    Stretches of a rank end where it enters a collective that all of ``ranks`` (positions in the
    job) enter, and where a step begins. int64, shape (edges,).
    """
    begun = graph.time[graph.in_src[edges]]
    steps = np.array([step.start(graph.time) for step in find_steps(graph)], dtype=np.int64)
    step = np.searchsorted(steps, begun, side="right")
    entered = _entered_by_all(graph, ranks)
    # of all ranks at once, one after the other on one axis
    place = np.searchsorted(ranks, graph.op_trace[graph.edge_op[edges]])
    far = int(max(begun.max(initial=0), entered.max(initial=0))) + 1
    axis = (entered + far * np.arange(ranks.size)[:, None]).ravel()
    met = np.searchsorted(axis, begun + far * place, side="right") - place * entered.shape[1]
    on_device = np.isin(graph.edge_kind[edges], _ON_DEVICE)
    number = (met * (steps.size + 1) + step) * 2 + on_device
    occurs = np.zeros(int(number.max(initial=0)) + 1, dtype=np.int64)
    occurs[number] = 1
    found: Ints = (np.cumsum(occurs) - 1)[number]
    return found


def _entered_by_all(graph: EventGraph, ranks: Ints) -> Ints:
    """Return when each rank enters the collectives that all of them enter, in order of time.

    Sends and receives are none: one of their ranks does its work first. int64 ns, shape (ranks,
    collectives).
    """
    arriving = np.flatnonzero(graph.edge_kind == EdgeKind.ARRIVAL)
    op = graph.edge_op[arriving]
    meets: Bools = ~graph.gather("comm_type", op).is_in(["send", "recv"]).to_numpy()
    meets &= np.isin(graph.op_trace[op], ranks)
    arriving, op = arriving[meets], op[meets]
    hubs, which = np.unique(graph.destinations[arriving], return_inverse=True)
    entered = np.full((ranks.size, hubs.size), -1, dtype=np.int64)
    place = np.searchsorted(ranks, graph.op_trace[op])
    entered[place, which] = graph.time[graph.in_src[arriving]]
    by_all: Ints = np.sort(entered[:, (entered >= 0).all(axis=0)], axis=1)
    return by_all
