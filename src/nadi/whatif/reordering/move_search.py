"""Search for operations that can start earlier, and replay of their gain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.errors import checked
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.event_graph import CycleError, EventGraph
from nadi.graph.replay import replay_graph
from nadi.graph.windows import Window
from nadi.whatif.reordering.data_edges import with_tensor_edges
from nadi.whatif.reordering.gain_bounds import Promise
from nadi.whatif.reordering.insertion_points import blocks_of, same_on_ranks
from nadi.whatif.reordering.movable_units import BLOCKERS, Units, find_units
from nadi.whatif.reordering.moves import Block, Move, MoveEarlier, held_by, moved, require_tensors
from nadi.whatif.reordering.operation_layout import Layout

__all__ = ["Candidate", "Found", "find_reorders"]

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
    gain_ns, step_ns
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
    step_ns: int


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    candidates
        Moves that gain, largest first, and communication that can start earlier without gain.
    step_ns
        Length of the window before.
    num_units, num_free, num_hopeful, num_simulated
        Operations that programs called in the window; those of them that may pass another one
        alone; operations, the same on several ranks counted once, that could gain by where they
        lie on the critical path; moves that were simulated.
    blocked
        Number of operations that cannot pass any other, by reason; largest first.
    """

    candidates: list[Candidate]
    step_ns: int
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
def find_reorders(graph: EventGraph, window: Window) -> Found:
    """Find operations that can start earlier, replay promising moves, and sort them by gain.

    Communication is tried even if it cannot gain. At most 200 moves are tried, most promising
    first; the same operation moves on all ranks at once.

    Raises
    ------
    UsageError
        If the job has no data dependencies. O(vertices log vertices), and O(vertices)
        for each move that is tried.
    """
    require_tensors(graph)
    kept = with_tensor_edges(graph)
    replay = replay_graph(kept)
    units = find_units(Layout.of(kept), replay.time, window.start(graph.time))
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
        found = _simulated(promise, window, one, step)
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
        step_ns=step,
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


def _simulated(promise: Promise, window: Window, one: _Try, step: int) -> Candidate | None:
    """Replay a move; None if it creates a dependency cycle."""
    units, unit = promise.units, one.unit
    try:
        time = replay_graph(moved(units, one.blocks)).time
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
        step_ns=new_step,
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
