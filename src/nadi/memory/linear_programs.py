"""Linear programs, also with whole numbers, and what HiGHS says of them.

The only module that calls HiGHS (package ``highspy``); the others make programs and read answers.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.trace.arrays import Bools, Floats, Ints

_GAP = 1e-5  # at which a solution with whole numbers is taken for the best
_TOLERANCE = 1e-9  # of programs with whole numbers
Status = Literal["optimal", "infeasible", "time limit"]


class LinearProgram(NamedTuple):
    """Minimize ``costs @ x`` with ``row_low <= A @ x <= row_high`` and ``low <= x <= high``.

    ``A`` is stored by rows: the entries of row ``i`` are those from ``begins[i]`` up to
    ``begins[i + 1]``.

    Attributes
    ----------
    costs, low, high
        float64, shape (columns,); bounds may be infinite.
    row_low, row_high
        float64, shape (rows,).
    begins
        int64, shape (rows + 1,).
    columns, values
        int64 and float64, shape (entries,).
    whole
        bool, shape (columns,): whether a column takes whole numbers only.
    """

    costs: Floats
    low: Floats
    high: Floats
    row_low: Floats
    row_high: Floats
    begins: Ints
    columns: Ints
    values: Floats
    whole: Bools


class Optimum(NamedTuple):
    """What a solver found.

    Attributes
    ----------
    status
        ``time limit`` may have values, which are then feasible, or none.
    objective
        Cost of ``values``; infinite if there are none.
    bound
        No values cost less than this; the objective if it is optimal.
    values
        float64, shape (columns,); empty if none were found.
    """

    status: Status
    objective: float
    bound: float
    values: Floats

    @property
    def gap(self) -> float:
        """By what share of the objective a better one may be lower; 0 if none can be."""
        if not math.isfinite(self.objective):
            return math.inf
        missing = max(self.objective - self.bound, 0.0)
        return missing / abs(self.objective) if missing else 0.0


def program_of_rows(
    costs: Floats, low: Floats, high: Floats, rows: Floats, row_low: Floats, row_high: Floats
) -> LinearProgram:
    """Make a small program from a dense matrix, float64 of shape (rows, columns)."""
    places, columns = np.nonzero(rows)
    begins = np.searchsorted(places, np.arange(len(rows) + 1)).astype(np.int64)
    return LinearProgram(
        costs, low, high, row_low, row_high, begins, columns.astype(np.int64),
        rows[places, columns], np.zeros(len(costs), np.bool_),
    )  # fmt: skip


def solve_program(program: LinearProgram, seconds: float = math.inf) -> Optimum:
    """Solve a program with HiGHS; programs with whole numbers may end at a time limit.

    Parameters
    ----------
    seconds
        After this long the best values so far are returned, with a bound.

    Raises
    ------
    UsageError
        If the package ``highspy`` is not installed, or the solver gives up.
    """
    try:
        import highspy
    except ImportError:
        raise UsageError(
            "placement", "the solver needs the package highspy, which is not installed",
            "pip install 'nadi[solver]'",
        ) from None  # fmt: skip
    # HiGHS 1.16 writes a banner to the standard output when it enables callbacks, which none needs
    without = {"enableCallbacks": lambda _: None}
    solver: Any = type("_Solver", (highspy.Highs,), without)()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)  # the same answer on every machine
    if math.isfinite(seconds):
        solver.setOptionValue("time_limit", seconds)
    if program.whole.any():
        solver.setOptionValue("mip_rel_gap", _GAP)
        solver.setOptionValue("mip_feasibility_tolerance", _TOLERANCE)
        solver.setOptionValue("primal_feasibility_tolerance", _TOLERANCE)
    solver.passModel(_as_highs(program, highspy))
    solver.run()
    names: dict[object, Status] = {
        highspy.HighsModelStatus.kOptimal: "optimal",
        highspy.HighsModelStatus.kInfeasible: "infeasible",
        highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",
        highspy.HighsModelStatus.kTimeLimit: "time limit",
    }
    status = names.get(solver.getModelStatus())
    if status is None:
        met = solver.modelStatusToString(solver.getModelStatus())
        raise UsageError("placement", f"the solver ended with: {met}", "report the input")
    return _answer(status, solver, bool(program.whole.any()))


def _as_highs(program: LinearProgram, highspy: Any) -> Any:
    """Give a program as HiGHS takes it."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.row_low)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.costs, program.low, program.high
    model.row_lower_, model.row_upper_ = program.row_low, program.row_high
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.num_col_, matrix.num_row_ = model.num_col_, model.num_row_
    matrix.start_ = program.begins.astype(np.int32)
    matrix.index_ = program.columns.astype(np.int32)
    matrix.value_ = program.values
    if program.whole.any():
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if w else kinds.kContinuous for w in program.whole]
    return model


def _answer(status: Status, solver: Any, has_whole: bool) -> Optimum:
    """Read values and bound from a solver that has run."""
    found = solver.getInfo()
    feasible = found.primal_solution_status == 2  # kSolutionStatusFeasible
    if status not in ("optimal", "time limit") or not feasible:
        return Optimum(status, math.inf, -math.inf, np.zeros(0))
    values = np.array(solver.getSolution().col_value, np.float64)
    objective = float(found.objective_function_value)
    bound = objective if status == "optimal" else -math.inf
    if has_whole:
        bound = min(float(found.mip_dual_bound), objective)
    return Optimum(status, objective, bound, values)
