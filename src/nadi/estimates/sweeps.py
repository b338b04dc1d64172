"""Estimates at all points of one or two axes, through the same core as one estimate."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.evaluation import Evaluated, evaluate, nothing_evaluated
from nadi.estimates.execution import CODES, Executions, columns_of
from nadi.estimates.feasibility import REASONS
from nadi.estimates.stated_files import Described
from nadi.estimates.sweep_axes import SweepAxis, described_with, field_values, num_points
from nadi.trace.arrays import Bools, Floats, Ints

_AT_ONCE = 1 << 14  # points of which the core has all columns at once


class Sweep(NamedTuple):
    """Estimates at points.

    Attributes
    ----------
    axes
        The fields that vary; points are all combinations of their values, the last axis fastest.
    rate
        Sequences a second, float64 of shape (points,); 0 where the execution is not possible.
    found
        What was evaluated of each point. What lacks memory alone has a time.
    """

    axes: tuple[SweepAxis, ...]
    rate: Floats
    found: Evaluated

    @property
    def is_possible(self) -> Bools:
        """Whether each point breaks no rule: bool, shape (points,)."""
        possible: Bools = self.found.reason == 0
        return possible

    def frame(self) -> pl.DataFrame:
        """Give a row per point: the axes, what is lacking, and what was evaluated."""
        known = np.isfinite(self.found.seconds)
        names = [reason.name for reason in REASONS]
        return pl.DataFrame(
            axis_columns(self.axes)
            | {
                "lacks": pl.Series(names, dtype=pl.Enum(names)).gather(self.found.reason),
                "seconds": _or_null(self.found.seconds, known),
                "rate": _or_null(self.rate, self.is_possible),
                "tier1_bytes": _or_null(self.found.tier1_bytes, known),
                "tier2_bytes": _or_null(self.found.tier2_bytes, known),
                "tier2_bandwidth": _or_null(self.found.tier2_bandwidth, known),
            }
        )


def _or_null(values: Floats, known: Any) -> pl.Series:
    return pl.select(pl.when(pl.Series(known)).then(pl.Series(values))).to_series()


def axis_columns(axes: Sequence[SweepAxis]) -> dict[str, pl.Series]:
    """Give the value of each axis at each point, by the axis' name."""
    numbers = _numbers(axes)
    return {
        axis.name: pl.Series(list(axis.values)).gather(number)
        for axis, number in zip(axes, numbers, strict=True)
    }


def sweep_estimates(
    described: Described, axes: Sequence[SweepAxis], rules: EstimateRules = DEFAULT
) -> Sweep:
    """Estimate an execution at all points of axes.

    Numbers that vary are columns of one evaluation; of names, truth values and what is looked up
    by size, each value is evaluated on its own. O(points).

    Parameters
    ----------
    described
        What stays the same but for the axes.
    axes
        One or two, of :func:`nadi.estimates.parse_axes`.
    rules
        As for :func:`nadi.estimates.estimate`.
    """
    numbers = _numbers(axes)
    num = num_points(axes)
    found = nothing_evaluated(num)
    rate = np.zeros(num)
    apart = [k for k, axis in enumerate(axes) if not axis.is_column]
    for chosen in itertools.product(*(range(len(axes[k].values)) for k in apart)):
        fixed, here = described, np.ones(num, dtype=bool)
        for k, choice in zip(apart, chosen, strict=True):
            fixed = described_with(fixed, axes[k], axes[k].values[choice])
            here &= numbers[k] == choice
        for axis in axes:
            if axis.is_column and axis.is_key:  # which can make a section that is missing
                fixed = described_with(fixed, axis, axis.values[0])
        rows = np.flatnonzero(here)
        for begin in range(0, rows.size, _AT_ONCE):
            part = rows[begin : begin + _AT_ONCE]
            columns = [
                (axis, number[part]) for axis, number in zip(axes, numbers, strict=True)
                if axis.is_column
            ]  # fmt: skip
            some, executions = _columns(fixed, columns, part.size)
            evaluated = evaluate(some.model, some.machine, executions, rules)
            for whole, piece in zip(found, evaluated, strict=True):
                whole[part] = piece
            possible = evaluated.reason == 0
            rate[part] = np.where(possible, executions.batch_size / evaluated.seconds, 0.0)
    return Sweep(tuple(axes), rate, found)


def described_at(described: Described, axes: Sequence[SweepAxis], point: int) -> Described:
    """Give the model, the machine and the execution of one point."""
    for axis, number in zip(axes, _numbers(axes), strict=True):
        described = described_with(described, axis, axis.values[int(number[point])])
    return described


def _numbers(axes: Sequence[SweepAxis]) -> list[Ints]:
    """Give the number of the value of each axis at each point: int64, shape (points,) each."""
    shape = [len(axis.values) for axis in axes]
    return [
        number.astype(np.int64) for number in np.unravel_index(np.arange(np.prod(shape)), shape)
    ]


def _columns(
    described: Described, columns: list[tuple[SweepAxis, Ints]], num: int
) -> tuple[Described, Executions]:
    """Put columns in place of the fields that vary."""
    executions = columns_of([described.execution])
    for axis, numbers in columns:
        if axis.owner == "execution":
            field = str(axis.path[0])
            codes = CODES.get(field)
            values = [codes.index(one) if codes else int(one) for one in axis.values]
            executions = executions._replace(**{field: np.array(values, dtype=np.int64)[numbers]})
        else:
            described = described_with(described, axis, np.array(field_values(axis))[numbers])
    spread = np.broadcast_to(executions.tensor_par, num)  # says how many there are
    return described, executions._replace(tensor_par=spread)
