"""Where tensors live, by a mixed-integer linear program: the shortest step that fits the tiers.

The mixed-integer linear program of a placement, from a case and the tiers.

Columns are, for groups of equal tensors and for each lower tier, how many of a group live there;
the bytes of each lower tier at the moments that may be too many; the lengths of windows; and the
bytes that the first tier lacks.

What a solver has to know of a rank's tensors: how long they live, and what moves when.

The step is cut into windows of half as many operations as a load may begin before its use. What is
loaded for operations moves a window earlier, and what is stored after them a window later. It
overlaps with the work there, so a window takes the longest of its work and of what each tier reads
and writes in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.memory.linear_programs import LinearProgram, Optimum, solve_program
from nadi.memory.placed_tensors import JobTensors, TraceTensors, visits_of
from nadi.memory.placement_choice import ByRoom, TierRoom, moves_ever
from nadi.systems.memory_tiers import DISTANCE
from nadi.trace.arrays import Floats, Ints


class PlacementCase(NamedTuple):
    """The tensors of a rank that can live in a lower tier, and the others."""

    # int64, shape (tensors,): row of ``TraceTensors.table``; those that would ever move
    life: Ints
    # size, begin, end: int64, shape (tensors,): bytes, and when they live, in ns
    size: Ints
    begin: Ints
    end: Ints
    stays: Ints  # int64, shape (3, others): size, begin and end of those that never move
    # mover, window, is_store, moved: int64, int64, bool and int64, shape (moves,): the tensor, by
    # position here, the window and the bytes of each load and store if it lives in a lower tier
    mover: Ints
    window: Ints
    is_store: Ints
    moved: Ints
    work: Ints  # int64 ns, shape (windows,): length of each window where nothing moves


def case_of_tensors(
    tensors: TraceTensors, distance: int = DISTANCE, buffers: float = math.inf
) -> PlacementCase:
    """Read what a solver needs of a rank. O(accesses log accesses).

    - ``distance``: Operations before a use that its load may begin.
    - ``buffers``: Bytes of buffers in the first tier: what takes more than half of them moves while
      its operation works on one part after the other, and a window of its own.
    """
    moving = moves_ever(tensors)
    life = np.flatnonzero(moving)
    position = np.cumsum(moving) - 1
    low = np.flatnonzero(moving[tensors.life])
    accesses, of, turn = tensors.accesses.at(low), tensors.life[low], tensors.turn[low]
    size, begin, end = (tensors.column(name) for name in ("bytes", "begin", "end"))
    visits = visits_of(
        accesses, of, (turn[:, 0], turn[:, 1]), tensors.table["is_before"].to_numpy(), size,
        distance=distance,
    )  # fmt: skip
    loads, stores = np.flatnonzero(visits.load), np.flatnonzero(visits.stored)
    load_turn = turn[visits.access[loads], 0]
    store_turn = turn[visits.access[visits.last[stores]], 1]
    moved = np.concatenate([visits.load[loads], visits.stored[stores]])
    windows = _Windows.of(tensors, max(distance // 2, 1))
    own_turn = np.concatenate([load_turn, store_turn])
    is_large = moved > buffers / 2
    windows = windows.cut(own_turn[is_large])
    is_store = np.repeat([0, 1], [loads.size, stores.size])
    window = np.where(is_store, windows.after(own_turn), windows.before(own_turn))
    return PlacementCase(
        life, size[life], begin[life], end[life], np.stack([size, begin, end])[:, ~moving],
        np.concatenate([
            position[visits.life[visits.of_access[loads]]], position[visits.life[stores]],
        ]),
        np.where(is_large, windows.number[own_turn], window), is_store, moved, windows.work,
    )  # fmt: skip


class _Windows(NamedTuple):
    """Operations in windows; the first and the last one have none, and no length."""

    number: Ints  # int64, shape (operations,): the window of each, from 1
    start: Ints  # int64 ns, shape (operations,): when each begins, or a later one before it
    end: int  # of the step, in ns
    length: int  # operations of a window that is not cut

    @classmethod
    def of(cls, tensors: TraceTensors, length: int) -> _Windows:
        """Cut the step of a rank into windows of equal numbers of operations."""
        end = int(tensors.end.max(initial=0))
        start = np.full(int(tensors.turn.max(initial=0)) + 1, end)
        np.minimum.at(start, tensors.turn[:, 0], tensors.start[tensors.accesses.first])
        start = np.minimum.accumulate(start[::-1])[::-1]
        return cls(np.arange(start.size) // length + 1, start, end, length)

    def cut(self, turns: Ints) -> _Windows:
        """Give some operations windows of their own."""
        begins = np.diff(self.number, prepend=0) > 0
        begins[turns] = True
        begins[np.minimum(turns + 1, begins.size - 1)] = True
        return self._replace(number=np.cumsum(begins))

    def before(self, turn: Ints) -> Ints:
        """Return the window in which a load moves: half of its distance before the operation."""
        earlier = turn - self.length
        return np.where(earlier < 0, 0, self.number[np.maximum(earlier, 0)])

    def after(self, turn: Ints) -> Ints:
        """Return the window in which a store moves: the next one."""
        found: Ints = self.number[turn] + 1
        return found

    @property
    def work(self) -> Ints:
        """The length of each window in ns: to the first operation of the next one."""
        first = np.searchsorted(self.number, np.arange(1, int(self.number[-1]) + 1))
        begins = np.append(self.start[first], self.end)
        begins[0] = 0
        return np.concatenate([[0], np.diff(begins), [0]])


def live_at(moments: Ints, size: Ints, begin: Ints, end: Ints) -> Ints:
    """Return the bytes that live at moments, in ascending order; int64, shape (moments,)."""
    change = np.zeros(moments.size + 1, dtype=np.int64)
    enter, leave = (np.searchsorted(moments, when) for when in (begin, end))
    np.add.at(change, enter, size)
    np.subtract.at(change, leave, size)
    found: Ints = np.cumsum(change)[:-1]
    return found


def all_lives(case: PlacementCase) -> tuple[Ints, Ints, Ints]:
    """Return size, begin and end of all tensors, those that never move last."""
    size, begin, end = (
        np.concatenate(pair)
        for pair in zip((case.size, case.begin, case.end), case.stays, strict=True)
    )
    return size, begin, end


def most_bytes(case: PlacementCase) -> int:
    """Return the most bytes that live at any moment."""
    lives = all_lives(case)
    return int(live_at(np.unique(lives[1]), *lives).max(initial=0))


def excess_bytes(case: PlacementCase, rooms: Sequence[TierRoom], tier: Ints) -> Floats:
    """Return the bytes by which a placement exceeds each tier; float64, shape (tiers,)."""
    others = np.zeros(case.stays.shape[1], dtype=np.int64)
    where, lives = np.concatenate([tier, others]), all_lives(case)
    found = np.zeros(len(rooms))
    for number, room in enumerate(rooms):
        size, begin, end = (column[where == number] for column in lives)
        most = live_at(np.unique(begin), size, begin, end).max(initial=0)
        found[number] = max(most - room.capacity, 0.0)
    return found


def cost_of_placement(
    case: PlacementCase, rooms: Sequence[TierRoom], tier: Ints
) -> tuple[float, float]:
    """Predict the length of a step with a placement, and how long all moves take; ns.

    - ``tier``: int64, shape (tensors,): of each tensor of the case.
    """
    lanes: Floats = np.zeros((2 * len(rooms), case.work.size))
    for number, room in enumerate(rooms[1:], 1):
        some = np.flatnonzero(tier[case.mover] == number)
        lane = 2 * number + case.is_store[some]
        np.add.at(lanes, (lane, case.window[some]), move_ns(case, room, some))
    longest = np.maximum(lanes.max(axis=0), case.work)
    return float(longest.sum()), float(lanes.sum())


def move_ns(case: PlacementCase, room: TierRoom, moves: Ints) -> Floats:
    """Return how long some moves take from and to a tier; float64, shape (moves,)."""
    rate = np.where(case.is_store[moves] > 0, room.write_rate, room.read_rate)
    found: Floats = case.moved[moves] / rate + room.latency
    return found


MOVES = 1e-3
"""Part of the time of moves that counts, so that nothing moves without need."""
_WINDOWS = 1e3  # of the sum of all windows, that a cost of 1 is


class PlacementProgram(NamedTuple):
    """A program, and what its columns are."""

    # its last column is what the first tier lacks; it costs nothing, and may only be 0
    program: LinearProgram
    group: Ints  # int64, shape (tensors,): groups of equal tensors
    tiers: int  # lower tiers; the columns of group ``g`` begin at ``g * tiers``
    # float64, shape (columns,): bytes of each group's tensors, in units; 0 for other columns
    sizes: Floats
    # unit_bytes, unit_ns: what 1 is in columns of bytes, and in the cost
    unit_bytes: float
    unit_ns: float
    constant_ns: float  # length of the windows for which nothing moves

    def tier(self, values: Floats) -> Ints:
        """Return the tier of each tensor for values of the columns; int64, shape (tensors,)."""
        groups = int(self.group.max(initial=-1)) + 1
        there = np.round(values[: groups * self.tiers]).astype(np.int64).reshape(groups, self.tiers)
        order = np.argsort(self.group, kind="stable")
        rank = np.arange(self.group.size) - np.searchsorted(self.group[order], self.group[order])
        ends = np.cumsum(there, axis=1)[self.group[order]]
        lower = (rank[:, None] >= ends).sum(axis=1)
        found = np.zeros(self.group.size, dtype=np.int64)
        found[order] = np.where(lower < self.tiers, lower + 1, 0)
        return found

    def lacking(self, most: float) -> LinearProgram:
        """Return the program with a first tier that is larger by so much."""
        high = self.program.high.copy()
        high[-1] = most
        return self.program._replace(high=high)


class _Entries:
    """Entries of a matrix, row by row in any order."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.columns: list[Ints] = []
        self.values: list[Floats] = []

    def add(self, rows: Ints | int, columns: Ints | int, values: Floats | Ints | float) -> None:
        """Add entries; numbers stand for as many as the others have."""
        parts = np.broadcast_arrays(rows, columns, np.asarray(values, np.float64))
        self.rows.append(parts[0].ravel())
        self.columns.append(parts[1].ravel())
        self.values.append(parts[2].ravel())

    def by_rows(self, num_rows: int) -> tuple[Ints, Ints, Floats]:
        """Return where rows begin, and columns and sums of values of each place that has one."""
        frame = (
            pl.LazyFrame({
                "row": np.concatenate(self.rows), "column": np.concatenate(self.columns),
                "value": np.concatenate(self.values),
            })
            .group_by("row", "column").agg(pl.col("value").sum()).sort("row", "column").collect()
        )  # fmt: skip
        rows = frame["row"].to_numpy()
        begins = np.searchsorted(rows, np.arange(num_rows + 1)).astype(np.int64)
        return begins, frame["column"].to_numpy(), frame["value"].to_numpy()


class _Layout(NamedTuple):
    """How many there are of what, and so where columns and rows begin."""

    groups: int
    tiers: int
    points: int
    windows: int

    @property
    def bytes(self) -> int:
        """The first column of bytes; they are ordered by tier and point."""
        return self.groups * self.tiers

    @property
    def lengths(self) -> int:
        """The first column of windows."""
        return self.bytes + self.tiers * self.points

    @property
    def lacks(self) -> int:
        """The last column."""
        return self.lengths + self.windows

    @property
    def needs(self) -> int:
        """The first row of what has to leave the first tier; before them are the bytes of tiers."""
        return self.tiers * self.points

    @property
    def counts(self) -> int:
        """The first row of groups."""
        return self.needs + self.points

    @property
    def lanes(self) -> int:
        """The first row of what each tier loads and stores for windows."""
        return self.counts + self.groups

    @property
    def rows(self) -> int:
        """All rows."""
        return self.lanes + 2 * self.tiers * self.windows


class _Groups(NamedTuple):
    """Groups of equal tensors: each tensor's, the first tensor and the number of each."""

    of: Ints
    first: Ints
    number: Floats


def placement_program(case: PlacementCase, rooms: Sequence[TierRoom]) -> PlacementProgram:
    """Make the program of a case. O((tensors + moves) log (tensors + moves))."""
    points, need = _points(case, rooms)
    enter, leave = np.searchsorted(points, case.begin), np.searchsorted(points, case.end)
    windows, of_window = np.unique(case.window, return_inverse=True)
    groups = _groups(case, enter, leave)
    at = _Layout(groups.first.size, len(rooms) - 1, points.size, windows.size)
    unit_bytes = float(max(need.max(initial=0), case.size.max(initial=1), 1))
    unit_ns = max(float(case.work.sum()), 1.0) / _WINDOWS
    entries, costs = _Entries(), np.zeros(at.lacks + 1)
    size = case.size[groups.first] / unit_bytes
    _add_bytes(entries, at, enter[groups.first], leave[groups.first], size)
    some = np.flatnonzero(np.isin(case.mover, groups.first))
    for tier, room in enumerate(rooms[1:]):
        time = move_ns(case, room, some) / unit_ns
        column = groups.of[case.mover[some]] * at.tiers + tier
        lane = at.lanes + (2 * tier + case.is_store[some]) * at.windows + of_window[some]
        entries.add(lane, column, -time)
        np.add.at(costs, column, MOVES * time)
        for row in (at.lanes + 2 * tier * at.windows, at.lanes + (2 * tier + 1) * at.windows):
            here = np.arange(at.windows)
            entries.add(row + here, at.lengths + here, 1.0)
    costs[at.lengths : at.lacks] = 1.0
    work = case.work[windows] / unit_ns
    capacity = np.repeat([room.capacity / unit_bytes for room in rooms[1:]], at.points)
    program = LinearProgram(
        costs, np.concatenate([np.zeros(at.lengths), work, [0.0]]),
        np.concatenate([
            np.repeat(groups.number, at.tiers), capacity, np.full(at.windows, np.inf), [0.0],
        ]),
        np.concatenate([
            np.zeros(at.needs), need / unit_bytes, np.zeros(at.rows - at.counts),
        ]),
        np.concatenate([
            np.zeros(at.needs), np.full(at.points, np.inf), groups.number,
            np.full(at.rows - at.lanes, np.inf),
        ]),
        *entries.by_rows(at.rows), np.arange(at.lacks + 1) < at.bytes,
    )  # fmt: skip
    others = float(case.work.sum() - case.work[windows].sum())
    sizes = np.append(np.repeat(size, at.tiers), np.zeros(at.lacks + 1 - at.bytes))
    return PlacementProgram(program, groups.of, at.tiers, sizes, unit_bytes, unit_ns, others)


def _add_bytes(entries: _Entries, at: _Layout, enter: Ints, leave: Ints, size: Floats) -> None:
    """Add what each lower tier has at each point: as before, with who enters, without who left."""
    here = np.arange(at.points)
    lives = np.flatnonzero(enter < leave)
    left = lives[leave[lives] < at.points]
    for tier in range(at.tiers):
        row, column = tier * at.points, np.arange(at.groups) * at.tiers + tier
        entries.add(row + enter[lives], column[lives], -size[lives])
        entries.add(row + leave[left], column[left], size[left])
        entries.add(row + here, at.bytes + row + here, 1.0)
        entries.add(row + here[1:], at.bytes + row + here[:-1], -1.0)
        entries.add(at.needs + here, at.bytes + row + here, 1.0)
        entries.add(at.counts + np.arange(at.groups), column, 1.0)
    entries.add(at.needs + here, at.lacks, 1.0)


def _points(case: PlacementCase, rooms: Sequence[TierRoom]) -> tuple[Ints, Ints]:
    """Return the moments at which a tier may be too small, and the bytes beyond the first one.

    What lives at a moment lives at the next one, too, unless something ends.
    """
    size, begin, end = all_lives(case)
    moments = np.unique(begin)
    ended = np.searchsorted(np.sort(end), moments, side="right")
    moments = moments[np.append(np.diff(ended) > 0, True)] if moments.size else moments
    need = live_at(moments, size, begin, end).astype(np.float64) - rooms[0].capacity
    movable = live_at(moments, case.size, case.begin, case.end)
    chosen = (need > 0) | (movable > min(room.capacity for room in rooms[1:]))
    return moments[chosen], np.maximum(need[chosen], 0.0)


def _groups(case: PlacementCase, enter: Ints, leave: Ints) -> _Groups:
    """Group tensors of one size that move alike and live at the same points."""
    moves = (
        pl.LazyFrame({
            "tensor": case.mover, "window": case.window, "store": case.is_store,
            "bytes": case.moved,
        })
        .group_by("tensor", "window", "store").agg(pl.col("bytes").sort())
        .sort("tensor", "window", "store")
        .group_by("tensor").agg(pl.struct("window", "store", "bytes").hash().alias("moves"))
    )  # fmt: skip
    gone = np.where(enter < leave, leave, enter)
    alike = (
        pl.LazyFrame({"tensor": np.arange(case.size.size), "size": case.size,
                      "enter": np.where(enter < leave, enter, 0),
                      "leave": np.where(enter < leave, gone, 0)})
        .join(moves, on="tensor", how="left").sort("tensor")
        .select(pl.struct("size", "enter", "leave", "moves").rank("dense").alias("group"))
        .collect()
    )  # fmt: skip
    of = alike["group"].to_numpy().astype(np.int64) - 1
    _, first, count = np.unique(of, return_index=True, return_counts=True)
    return _Groups(of, first.astype(np.int64), count.astype(np.float64))


_SMALLEST = (0.02, 0.005)
"""Of what has to leave the first tier, the smallest tensors that do not have shares."""
_LEAST_SECONDS = 0.1
_GAP = 1e-4  # that is as good as none


class SolvedPlacement(NamedTuple):
    """What a solver found for a rank.

    Attributes
    ----------
    tier
        int64, shape (lives,): as :mod:`nadi.memory.placement_choice` describes it.
    step_ns
        Predicted length of the step.
    cost_ns, bound_ns
        What was minimized, the step and a thousandth of all moves, and what no placement is below.
    missing
        Bytes that the first tier lacks, however tensors are placed; 0 if they fit.
    """

    tier: Ints
    step_ns: float
    cost_ns: float
    bound_ns: float
    missing: int

    @property
    def gap(self) -> float:
        """By what share of the cost a better placement may be lower."""
        return max(self.cost_ns - self.bound_ns, 0.0) / self.cost_ns if self.cost_ns else 0.0


class BySolver:
    """Chooses where tensors live by a program with whole numbers.

    Parameters
    ----------
    seconds
        Time limit, for all different traces together.
    distance, buffers
        Operations before a use that its load may begin, and bytes of buffers in the first tier.
    """

    def __init__(
        self, seconds: float = 10.0, distance: int = DISTANCE, buffers: float = math.inf
    ) -> None:
        if not seconds > 0:
            raise UsageError(Parameter("seconds", seconds), "no time", "state more than 0")
        self.seconds, self.distance, self.buffers = seconds, distance, buffers

    def __call__(self, tensors: JobTensors, rooms: Sequence[TierRoom]) -> tuple[Ints, ...]:
        """Return a placement."""
        return tuple(one.tier for one in self.solve(tensors, rooms))

    def solve(self, tensors: JobTensors, rooms: Sequence[TierRoom]) -> tuple[SolvedPlacement, ...]:
        """Return a placement of each different trace with what it costs.

        None is worse than those by room (:class:`nadi.memory.ByRoom`) that fit.

        Raises
        ------
        UsageError
            If the solver is not installed.
        """
        until = time.monotonic() + self.seconds
        found = []
        begins = [ByRoom(by_time=by_time)(tensors, rooms) for by_time in (True, False)]
        for number, one in enumerate(tensors.traces):
            left = (until - time.monotonic()) / (len(tensors.traces) - number)
            case = case_of_tensors(one, self.distance, self.buffers)
            known = [begin[number][case.life] for begin in begins]
            solved = solve_case(case, rooms, left, known)
            tier = np.zeros(one.table.height, dtype=np.int64)
            tier[case.life] = solved.tier
            found.append(solved._replace(tier=tier))
        return tuple(found)


def solve_case(
    case: PlacementCase, rooms: Sequence[TierRoom], seconds: float = 10.0,
    begins: Sequence[Ints] = (),
) -> SolvedPlacement:  # fmt: skip
    """Find the tiers of a case's tensors.

    - ``begins``: Placements that are known; of those that fit none is better than what is found.
    """
    if len(rooms) < 2 or not case.size.size:
        return _without_choice(case, rooms)
    made = placement_program(case, rooms)
    until = time.monotonic() + seconds
    missing = 0.0
    found = _solved(made, 0.0, until)
    if found.status == "infeasible":
        missing = _missing(made, seconds)
        found = _solved(made, missing, until)
    known = [one for one in begins if missing or not excess_bytes(case, rooms, one).any()]
    if found.values.size:
        known = [made.tier(found.values), *(known if not missing else ())]
    known = known or [np.zeros(case.size.size, dtype=np.int64)]
    tier = min(known, key=lambda one: _cost(case, rooms, one))
    cost = _cost(case, rooms, tier)
    least = max(found.bound * made.unit_ns + made.constant_ns, float(case.work.sum()))
    return SolvedPlacement(
        tier, cost_of_placement(case, rooms, tier)[0], cost, min(cost, least),
        math.ceil(missing * made.unit_bytes - 0.5),
    )  # fmt: skip


def _cost(case: PlacementCase, rooms: Sequence[TierRoom], tier: Ints) -> float:
    step, moves = cost_of_placement(case, rooms, tier)
    return step + MOVES * moves


def _solved(made: PlacementProgram, missing: float, until: float) -> Optimum:
    """Solve a program: with shares of all tensors, of all but the largest, and of none.

    What a program with shares costs at least, one without them costs, too. What is whole in its
    answer is taken over, and the others are made whole.
    """
    program = made.lacking(missing)
    best = Optimum("time limit", math.inf, -math.inf, np.zeros(0))
    for smallest in (math.inf, *_SMALLEST, 0.0):
        whole = program.whole & (made.sizes >= smallest)
        some = program._replace(whole=whole)
        found = solve_program(some, _half_until(until) if whole.any() else math.inf)
        if found.status == "infeasible":
            return found
        best = best._replace(bound=max(best.bound, found.bound))
        if found.values.size and not np.array_equal(whole, program.whole):
            found = solve_program(_taken_over(program, found.values), _half_until(until))
        if found.objective < best.objective:
            best = found._replace(bound=best.bound)
        is_over = time.monotonic() > until or np.array_equal(whole, program.whole)
        if is_over or best.gap <= _GAP:
            break
    return best


def _half_until(until: float) -> float:
    return max((until - time.monotonic()) / 2, _LEAST_SECONDS)


def _taken_over(program: LinearProgram, values: Floats) -> LinearProgram:
    """Return the program with the numbers that are whole among values."""
    rounded = np.round(values)
    fixed = program.whole & (np.abs(values - rounded) < _GAP)
    return program._replace(
        low=np.where(fixed, rounded, program.low), high=np.where(fixed, rounded, program.high)
    )


def _missing(made: PlacementProgram, seconds: float) -> float:
    """Return what the first tier lacks at least, in units of the program."""
    costs = np.zeros_like(made.program.costs)
    costs[-1] = 1.0
    found = solve_program(made.lacking(math.inf)._replace(costs=costs), seconds)
    return found.objective


def _without_choice(case: PlacementCase, rooms: Sequence[TierRoom]) -> SolvedPlacement:
    """Return the placement of everything in the first tier."""
    step = float(case.work.sum())
    missing = int(max(most_bytes(case) - rooms[0].capacity, 0))
    return SolvedPlacement(np.zeros(case.size.size, dtype=np.int64), step, step, step, missing)
