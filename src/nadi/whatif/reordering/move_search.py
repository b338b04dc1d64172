"""Search for operations that can start earlier, and replay of their gain.

Several moves, each chosen after the previous ones are applied.

Upper bounds of the gain of moves, from their position on the critical path.

Insertion points: positions that a unit can move to, alone or with the units it needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from nadi.errors import UsageError, checked
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.event_graph import CycleError, EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.windows import Window
from nadi.trace.arrays import Bools, Ints
from nadi.whatif.changes import apply_change
from nadi.whatif.contended_replay import contended
from nadi.whatif.reordering.movable_units import BLOCKERS, Units, find_units, with_tensor_edges
from nadi.whatif.reordering.moves import (
    Block,
    Move,
    MoveEarlier,
    held_by,
    moved_graph,
    require_tensors,
)
from nadi.whatif.reordering.operation_layout import OperationLayout
from nadi.whatif.what_if_results import WhatIf, what_if

_MOST_IN_BLOCK = 64
_MOST_PLACES = 8


def blocks_of(units: Units, unit: int, wait: int) -> Iterator[Block]:
    """Return positions that a unit can move to, nearest first, with the units to move along.

    Walks back from the unit. Where it meets something that the unit needs there are two ways:
    the unit stays after that, which is a place; or that comes along, and what it needs too, as
    far as no fence is in the way. Only places are given for which more is passed than for the
    one before, eight at most, with up to 64 units in a block.

    - ``wait``: A unit right after which the thread waits, or -1; that is a place too.
    """
    members = [unit]
    fence = int(units.after_fence[unit])
    ahead: list[int] = []  # of units that members need, the negative number
    seen: set[int] = set()
    _need(units, unit, ahead, seen)
    passed, num_places = 0, 0
    while fence < unit and num_places < _MOST_PLACES:
        nearest = max(-ahead[0] if ahead else -1, fence)
        if nearest < wait < members[-1] - 1:
            yield Block(wait, tuple(reversed(members)))
        if unit - nearest - len(members) > passed:
            passed = unit - nearest - len(members)
            num_places += 1
            yield Block(nearest, tuple(reversed(members)))
        if nearest == fence or not units.can_move[nearest] or len(members) == _MOST_IN_BLOCK:
            return
        heappop(ahead)
        members.append(nearest)
        fence = max(fence, int(units.after_fence[nearest]))
        if fence >= nearest:
            return
        _need(units, nearest, ahead, seen)


def _need(units: Units, unit: int, ahead: list[int], seen: set[int]) -> None:
    """Add the units that a unit must stay after to the units ahead."""
    for before in units.needs[units.needs_ptr[unit] : units.needs_ptr[unit + 1]].tolist():
        if before not in seen:
            seen.add(before)
            heappush(ahead, -before)


def same_on_ranks(units: Units, chosen: Bools) -> list[list[int]]:
    """Group chosen units that are the same on several ranks.

    Communication that is matched is the same; so is the k-th operation of a name where all
    ranks have as many. O(units log units).
    """
    graph = units.layout.graph
    rank = graph.op_trace[units.op]
    name = graph.op_names.rank("dense").to_numpy().astype(np.int64)[units.op]
    num_names = int(name.max(initial=0)) + 1
    count = np.bincount(rank * num_names + name, minlength=num_names * len(graph.job.traces))
    as_many = (np.ptp(count.reshape(-1, num_names), axis=0) == 0)[name]
    collective = _collectives(units)
    key = np.select(
        [collective >= 0, as_many],
        # names are numbered from 1
        [collective, collective.max(initial=-1) + _ordinals(rank, name) * num_names + name],
        -1 - np.arange(units.op.size),
    )
    found: dict[int, dict[int, int]] = {}
    for unit in np.flatnonzero(chosen).tolist():
        found.setdefault(int(key[unit]), {}).setdefault(int(rank[unit]), unit)
    return [[of_rank[one] for one in sorted(of_rank)] for of_rank in found.values()]


def _ordinals(rank: Ints, name: Ints) -> Ints:
    """Return the ordinal of each unit among those of its name and rank; int64, shape (units,)."""
    order = np.lexsort((np.arange(name.size), name, rank))
    new = np.append(True, (np.diff(name[order]) != 0) | (np.diff(rank[order]) != 0))[: order.size]
    first = np.maximum.accumulate(np.where(new, np.arange(order.size), 0))
    found = np.empty(order.size, dtype=np.int64)
    found[order] = np.arange(order.size) - first
    return found


def _collectives(units: Units) -> Ints:
    """Return the collective of each unit, or -1; int64, shape (units,)."""
    layout, graph = units.layout, units.layout.graph
    of_op = np.full(graph.num_ops, -1, dtype=np.int64)
    ranks = list(graph.job.ranks)
    matches = graph.job.matches
    for number, rank in enumerate(ranks):
        mine = matches.filter(matches["rank"] == rank)
        low, high = np.searchsorted(graph.op_trace, [number, number + 1])
        at = low + np.searchsorted(graph.op_row[low:high], mine["node"].to_numpy())
        of_op[at] = mine["collective"].to_numpy()
    found = np.full(units.op.size, -1, dtype=np.int64)
    works = layout.works
    for op, unit in ((works.op, units.of_op[works.call]), (np.arange(graph.num_ops), units.of_op)):
        part = (of_op[op] >= 0) & (unit >= 0)
        found[unit[part]] = of_op[op[part]]
    return found


class Promise:
    """Upper bounds of the gain of moves in a window.

    A move that touches no vertex of the critical path leaves a path as long, and gains
    nothing. If it touches the part on a thread, that thread takes as long as before for all
    that it does, and only idle time can be filled. If it touches work that the unit asks for,
    this can start sooner, though not before its call does.

    Parameters
    ----------
    units
        Of the graph that was replayed.
    path
        int64: the vertices of the critical path of the window.
    """

    def __init__(self, units: Units, replay: Replay, path: Ints) -> None:
        layout, graph, time = units.layout, replay.graph, replay.time
        self.units, self.time = units, time
        critical = np.zeros(graph.num_vertices, dtype=np.bool_)
        critical[path] = True
        chain, link = layout.chain, layout.link
        total = np.concatenate([[0], np.cumsum(critical[chain])])
        self._host: Bools = total[units.end + 1] > total[units.begin]
        works = layout.works.op
        by_work = critical[2 * works] | critical[2 * works + 1] | self._meets(critical)[works]
        total = np.concatenate([[0], np.cumsum(by_work)])
        self._work: Bools = total[units.last_work] > total[units.first_work]
        own = np.where(link >= 0, graph.weight[link], 0)
        before = np.concatenate([[0], time[chain[:-1]]])[: chain.size]
        idle = np.where(link >= 0, time[chain] - before - own, 0)
        self._waits = np.flatnonzero(idle > 0)
        # up to a place, and all that is before it
        self._idle = np.concatenate([[0], np.cumsum(idle)])
        self._own = np.concatenate([[0], np.cumsum(own)])

    def _meets(self, critical: Bools) -> Bools:
        """Return which operations belong to a critical collective; bool, shape (ops,)."""
        graph = self.units.layout.graph
        found = np.zeros(graph.num_ops, dtype=np.bool_)
        dst = graph.destinations
        edges = np.flatnonzero(dst >= 2 * graph.num_ops)
        found[graph.in_src[edges[critical[dst[edges]]]] // 2] = True
        return found

    @cached_property
    def start(self) -> Ints:
        """Start of the first work of each unit, or of the unit if it launches none; ns."""
        return self._of_works(np.minimum, np.iinfo(np.int64).max)

    @cached_property
    def _last_start(self) -> Ints:
        return self._of_works(np.maximum, np.iinfo(np.int64).min)

    def _of_works(self, choose: np.ufunc, neutral: int) -> Ints:
        units = self.units
        works = units.layout.works
        found = np.full(units.op.size, neutral, dtype=np.int64)
        unit = units.of_op[works.call]
        asked = unit >= 0
        choose.at(found, unit[asked], self.time[2 * works.op[asked]])
        return np.where(found == neutral, self.time[2 * units.op], found)

    @cached_property
    def at_fence(self) -> Ints:
        """Upper bound of each unit's gain at any position; int64 ns, shape (units,)."""
        units = self.units
        idle = self._idle[units.begin + 1] - self._idle[units.fence + 1]
        sooner = self._last_start - self.time[units.layout.chain[units.fence]]
        # what comes along may fill idle time too
        most: Ints = np.where(self._host, idle, 0) + np.where(self._work, sooner, 0)
        return most

    def of(self, block: Block) -> int:
        """Return the upper bound of a move's gain, in ns."""
        units, members = self.units, list(block.units)
        place = int(units.end[block.after])
        most = 0
        if self._host[members].any():
            idle = self._idle[units.begin[members[-1]] + 1] - self._idle[place + 1]
            own = self._own[units.end[members] + 1] - self._own[units.begin[members] + 1]
            most = min(int(idle), int(own.sum()))
        sooner = self._last_start[members][self._work[members]]
        return most + max(int(sooner.max(initial=0)) - int(self.time[units.layout.chain[place]]), 0)

    def wait_before(self, unit: int) -> int:
        """Return the last unit before a unit after which the thread waits, or -1."""
        units = self.units
        at = int(np.searchsorted(self._waits, units.begin[unit], side="right")) - 1
        return int(np.searchsorted(units.end, self._waits[at])) - 1 if at >= 0 else -1


_MOST_SIMULATED = 200
_KINDS = ("communication", "kernel", "host")


@dataclass(frozen=True)
class Candidate:
    """An operation that can start earlier.

    Attributes
    ----------
    change
        The tried position with the largest gain.
    kind
        ``communication``, ``kernel`` (it launches device work) or ``host``.
    name
        Of the operation.
    ranks
        On which it moves.
    start_ns
        When its work starts now, on the first of them, since the job's origin: that of devices
        or gloo, if it asks for any.
    legal_ns, renamed_ns
        Before when it cannot start in any order, with what it needs on its thread coming
        along and all else as it is now; the same if no memory were used again.
    held_by
        Why it cannot start before the end of ``change.after``: one of ``BLOCKERS``.
    new_start_ns
        Start of its work after the move.
    num_moved
        Operations that move on a rank: it, and those before it that it needs.
    gain_ns, window_ns
        How much shorter the window gets, and how long it is then, by replay of the change.
    """

    change: MoveEarlier
    kind: str
    name: str
    ranks: tuple[int, ...]
    start_ns: int
    legal_ns: int
    renamed_ns: int
    held_by: str
    new_start_ns: int
    num_moved: int
    gain_ns: int
    window_ns: int


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    candidates
        Moves that gain, largest first, and communication that can start earlier without gain.
    window_ns
        Length of the window before.
    num_units, num_free, num_hopeful, num_simulated
        Operations that programs called in the window; those of them that may pass another one
        alone; operations, the same on several ranks counted once, that could gain by where they
        lie on the critical path; moves that were simulated.
    blocked
        Number of operations that cannot pass any other, by reason; largest first.
    """

    candidates: list[Candidate]
    window_ns: int
    num_units: int
    num_free: int
    num_hopeful: int
    num_simulated: int
    blocked: dict[str, int]


@dataclass(frozen=True)
class _Try:
    """A move of one operation on its ranks, with the upper bound of its gain."""

    group: int
    unit: int
    blocks: tuple[Block, ...]
    most: int


@checked
def find_reorders(graph: EventGraph, window: Window, measured: EventGraph | None = None) -> Found:
    """Find operations that can start earlier, replay promising moves, and sort them by gain.

    Communication is tried even if it cannot gain. At most 200 moves are tried, most promising
    first; the same operation moves on all ranks at once. Kernels are as fast as communication
    beside them then allows.

    Parameters
    ----------
    measured
        The job before the moves that ``graph`` has; by default it has none.

    Raises
    ------
    UsageError
        If the job has no data dependencies. O(vertices log vertices), and O(vertices)
        for each move that is tried.
    """
    require_tensors(graph)
    kept = with_tensor_edges(graph)
    before = kept if measured is None else with_tensor_edges(measured)
    replay = replay_graph(contended(before, kept, window.start(graph.time)))
    units = find_units(OperationLayout.of(kept), replay.time, window.start(graph.time))
    promise = Promise(units, replay, walk_critical_path(replay, window).vertices)
    step = window.length(replay.time)
    hopeful = units.can_move & (promise.at_fence > 0)
    groups = same_on_ranks(units, hopeful | (units.can_move & units.is_communication))
    tries = _tries(units, promise, groups)
    best: dict[int, Candidate] = {}
    num_simulated = 0
    for one in tries:
        former = best.get(one.group)
        if former is not None and one.most <= former.gain_ns:
            continue
        if num_simulated == _MOST_SIMULATED:
            break
        found = _simulated(promise, window, one, step, before)
        num_simulated += 1
        if found is not None and (former is None or found.gain_ns > former.gain_ns):
            best[one.group] = found
    first, reason = units.limits
    start = graph.time[2 * units.op]
    asked = (start >= window.start(graph.time)) & (start < window.end(graph.time))
    free = units.can_move & (first < np.arange(units.op.size) - 1)
    count = np.bincount(reason[asked & ~free], minlength=len(BLOCKERS)).tolist()
    sooner = [
        one for one in best.values()
        if one.gain_ns > 0 or (one.kind == _KINDS[0] and one.new_start_ns < one.start_ns)
    ]  # fmt: skip
    return Found(
        candidates=sorted(sooner, key=_usefulness),
        window_ns=step,
        num_units=int(asked.sum()),
        num_free=int((asked & free).sum()),
        num_hopeful=sum(bool(hopeful[group].any()) for group in groups),
        num_simulated=num_simulated,
        blocked={BLOCKERS[code]: count[code] for code in np.argsort(count)[::-1] if count[code]},
    )


def _usefulness(one: Candidate) -> tuple[int, int, int]:
    return -one.gain_ns, _KINDS.index(one.kind), one.new_start_ns - one.start_ns


def _tries(units: Units, promise: Promise, groups: list[list[int]]) -> list[_Try]:
    """Return the moves of the most promising groups, most promising first."""
    found = []
    groups.sort(key=lambda group: -int(promise.at_fence[group].max()))
    for number, group in enumerate(groups[:_MOST_SIMULATED]):
        places = [list(blocks_of(units, unit, promise.wait_before(unit))) for unit in group]
        movable = [blocks for blocks in places if blocks]
        for k in range(max(map(len, movable), default=0)):
            blocks = tuple(of_rank[min(k, len(of_rank) - 1)] for of_rank in movable)
            found.append(_Try(number, blocks[0].units[-1], blocks, max(map(promise.of, blocks))))
    return sorted(found, key=lambda one: -one.most)


def _simulated(
    promise: Promise, window: Window, one: _Try, step: int, before: EventGraph
) -> Candidate | None:
    """Replay a move; None if it creates a dependency cycle."""
    units, unit = promise.units, one.unit
    since = window.start(before.time)
    try:
        time = replay_graph(contended(before, moved_graph(units, one.blocks), since)).time
    except CycleError:
        return None
    change = _change(units, one.blocks)
    op = int(units.op[unit])
    works = units.layout.works.op[int(units.first_work[unit]) : int(units.last_work[unit])]
    new_step = window.length(time)
    on_device = units.layout.on_device[works].any()
    return Candidate(
        change=change,
        kind=_KINDS[0 if units.is_communication[unit] else 1 if on_device else 2],
        name=change.name,
        ranks=tuple(move.rank for move in change.moves),
        start_ns=int(promise.start[unit]),
        legal_ns=int(units.legal[unit]),
        renamed_ns=int(units.legal_renamed[unit]),
        held_by=held_by(units, one.blocks[0]),
        new_start_ns=int(time[2 * works].min() if works.size else time[2 * op]),
        num_moved=len(one.blocks[0].units),
        gain_ns=step - new_step,
        window_ns=new_step,
    )


def _change(units: Units, blocks: tuple[Block, ...]) -> MoveEarlier:
    graph = units.layout.graph
    ranks = graph.job.ranks
    moves = []
    for block in blocks:
        op, after = units.op[list(block.units)], int(units.op[block.after])
        rank = ranks[int(graph.op_trace[after])]
        moves.append(Move(rank, tuple(graph.op_row[op].tolist()), int(graph.op_row[after])))
    name, after_name = (
        graph.op_names[int(units.op[unit])] for unit in (blocks[0].units[-1], blocks[0].after)
    )
    return MoveEarlier(tuple(moves), name, after_name)


@dataclass(frozen=True, eq=False)
class Reordering:
    """The moves found in a window and their gains.

    Attributes
    ----------
    window
        The analysed window.
    start_ns
        Start of the window, since the job's origin.
    found
        Possible moves in the measured job.
    applied
        Applied moves in order; gain and step are those after the previous moves.
    together
        The window after all moves; None if no move was requested.
    """

    window: Window
    start_ns: int
    found: Found
    applied: list[Candidate]
    together: WhatIf | None


@checked
def reorder(graph: EventGraph, window: Window, most: int | None = 0) -> Reordering:
    """Find operations that can start earlier, and apply the best moves.

    After each search its candidates are gone through, best first: each is made if it is still
    legal and still gains. That is repeated until a search finds nothing that gains, because
    one move opens the way for others.

    Parameters
    ----------
    most
        The most moves to apply; None for all that gain.

    Raises
    ------
    UsageError
        If the job has no data dependencies.
    """
    since = window.start(graph.time)
    found = first = find_reorders(graph, window)
    applied: list[Candidate] = []
    current = graph
    while most is None or len(applied) < most:
        before = len(applied)
        for candidate in found.candidates:
            if candidate.gain_ns <= 0 or (most is not None and len(applied) == most):
                break
            length = applied[-1].window_ns if applied else found.window_ns
            try:
                changed = apply_change(current, candidate.change, since)
            except UsageError:  # a former move has taken its place
                continue
            step = window.length(replay_graph(contended(graph, changed, since)).time)
            if step < length:
                current = changed
                applied.append(replace(candidate, gain_ns=length - step, window_ns=step))
        if len(applied) == before:
            break
        found = find_reorders(current, window, graph)
    changes = [candidate.change for candidate in applied]
    together = what_if(graph, *changes, window=window) if applied else None
    return Reordering(window, since, first, applied, together)
