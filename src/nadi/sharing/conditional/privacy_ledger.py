"""What releases spend of privacy, and a file that adds up what all models of a corpus spent.

Releases spend zero-concentrated differential privacy (rho), which adds up. It is converted after
Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy (2020), corollary 13.
"""

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from nadi.errors import InputError, Parameter, UsageError
from nadi.files.files import locate, read_settings, write_pieces

DELTA = 1e-5
"""With what probability a model may reveal more than epsilon says."""
BUDGET = 8.0
"""Epsilon of all models of a corpus, at most, if nothing else is stated."""
LEAST_EPSILON = 0.01
_MOST_EPSILON = 100.0
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 4000)
_BOTTOM = 10**9
_FINEST = _BOTTOM << 40
_SUFFIX = ".privacy.json"
_LARGEST = 1 << 62
_Whole = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)]
_REMEDY = "restore it: without it nobody knows what models of the table have revealed"


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the models of a corpus spent: rho of each, as a fraction."""

    rho: tuple[tuple[_Whole, _Positive], ...] = ()


def epsilon_of(rho: Fraction | float, delta: float = DELTA) -> float:
    """Return the epsilon that rho amounts to at delta.

    The bound holds for each order, so the least of those that are tried is one.
    """
    a = _ORDERS
    found = a * float(rho) + (math.log(1 / delta) + a * np.log1p(-1 / a) - np.log(a - 1)) / (a - 1)
    return max(float(found.min()), 0.0)


def rho_of(epsilon: float, delta: float = DELTA) -> Fraction:
    """Return the largest rho whose epsilon is not larger, down to a billionth."""
    low, high = 0, int(_MOST_EPSILON * _BOTTOM)
    while low + 1 < high:
        middle = (low + high) // 2
        if epsilon_of(Fraction(middle, _BOTTOM), delta) <= epsilon:
            low = middle
        else:
            high = middle
    return Fraction(low, _BOTTOM)


def check_epsilon(epsilon: float) -> None:
    """Raise UsageError if no model can be learned with it."""
    if not LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        what = f"it must be {LEAST_EPSILON} to {_MOST_EPSILON:g}"
        raise UsageError(Parameter("epsilon", epsilon), what, "1 is common")


def check_budget(table: Path | str, rho: Fraction, budget: float) -> Spent:
    """Return what the models of a table have spent, if one more is within the budget.

    - ``table``: The ledger is the file of this name with ``.privacy.json`` at its end.
    - ``rho``: Of the further model.
    - ``budget``: Epsilon of all models, at most.
    - Raises UsageError if it is not.
    - Raises InputError if the ledger is damaged.
    """
    place = _ledger_of(table)
    before = _read(place) if place.exists() else Spent()
    total = _total(before)
    if (epsilon := epsilon_of(total + rho)) > budget:
        spent = epsilon_of(total) if total else 0.0
        raise UsageError(
            Parameter("epsilon"), f"with this model, those of {Path(table).name} would have spent "
            f"{epsilon:.3g} of {budget:g}; without it {spent:.3g}",
            ["share a model that exists, or state a larger ", Parameter("budget")],
        )  # fmt: skip
    return before


def spend(table: Path | str, rho: Fraction, budget: float) -> float:
    """Note in the ledger of a table what a model spends, before there is one.

    Parameters and errors are those of :func:`check_budget`.

    - Returns: Epsilon of all models of the table, with this one.
    - Raises InputError if the ledger cannot be written, too.
    """
    before = check_budget(table, rho, budget)
    new = Spent((*before.rho, (rho.numerator, rho.denominator)))
    write_pieces(_ledger_of(table), [msgspec.json.encode(new), b"\n"])
    return epsilon_of(_total(new))


def _total(spent: Spent) -> Fraction:
    """Add up what models spent, rounded up far below what is counted.

    Exact sums of fractions that others wrote grow with each, and so does the time for the next.
    """
    return Fraction(sum(-(-part * _FINEST // whole) for part, whole in spent.rho), _FINEST)


def _ledger_of(table: Path | str) -> Path:
    return locate(f"{table}{_SUFFIX}")


def _read(place: Path) -> Spent:
    try:
        return msgspec.json.decode(read_settings(place), type=Spent)
    except msgspec.MsgspecError as error:
        raise InputError(str(place), f"the ledger is damaged: {error}", _REMEDY) from None
