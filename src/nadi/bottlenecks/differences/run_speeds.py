"""By which factor all that did not change takes longer in a second recording: the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.graph.windows import MARK

__all__ = ["Speed", "speed_of"]

_SAME = 0.02  # of a count: below, nothing changed
_FEWEST = 8  # operations of different names
_NEAR = 0.15  # of the factor
_MOST_OF_IT = 0.6


@dataclass(frozen=True)
class Speed:
    """How many times as long unchanged operations take, by place; 1 where no factor is common.

    Attributes
    ----------
    host
        Of operators and Python on threads.
    device
        Of kernels, copies and memory sets.
    """

    host: float
    device: float

    @property
    def is_same(self) -> bool:
        """Whether both are as fast as before."""
        return self.host == self.device == 1


def speed_of(sides: list[pl.DataFrame], keys: list[str], changed: set[str]) -> float:
    """Return the factor by which most of the unchanged time got longer; 1 if there is none.

    Unchanged is what runs as often on both sides, with operands of the same shapes. The factor is
    the median of its ratios, weighted by time. It counts if there are at least eight names, if
    these are half of all time, and if six tenths of their time lie within 15 % of the factor.

    Parameters
    ----------
    sides
        Tables of before and after, with the keys, ``count`` and ``ns``.
    changed
        Names with other shapes; of a path the last name counts.
    """
    own = [side.filter(pl.col(keys[0]) != MARK) for side in sides]  # in marks are waits, too
    before, after = own
    both = before.join(after, on=keys, suffix="_after").filter(
        (pl.col("ns") > 0) & (pl.col("ns_after") > 0) & (pl.col("count") > 0)
        & ((pl.col("count_after") / pl.col("count") - 1).abs() <= _SAME)
        & ~pl.col(keys[0]).str.split(" > ").list.last().is_in(sorted(changed))
    )  # fmt: skip
    ratio, weight = (both["ns_after"] / both["ns"]).to_numpy(), both["ns"].to_numpy()
    if both.height < _FEWEST or 2 * weight.sum() < before["ns"].sum():
        return 1.0
    order = np.argsort(ratio, kind="stable")
    reached = np.cumsum(weight[order])
    factor = float(ratio[order][np.searchsorted(reached, reached[-1] / 2)])
    near = weight[np.abs(ratio / factor - 1) <= _NEAR].sum()
    is_common = near >= _MOST_OF_IT * weight.sum() and abs(factor - 1) > _SAME
    return factor if is_common else 1.0
