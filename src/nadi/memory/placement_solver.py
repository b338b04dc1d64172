"""Where tensors live, by a mixed-integer linear program: the shortest step that fits the tiers."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.memory.linear_programs import LinearProgram, Optimum, solve_program
from nadi.memory.placed_tensors import DISTANCE, JobTensors
from nadi.memory.placement_choice import ByRoom, TierRoom
from nadi.memory.placement_program import (
    MOVES,
    PlacementCase,
    PlacementProgram,
    case_of_tensors,
    cost_of_placement,
    excess_bytes,
    most_bytes,
    placement_program,
)
from nadi.trace.arrays import Floats, Ints

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
