"""Rows of arrays that wait one behind the other, and rows that come free and are used again.

A queue is two columns side by side of whatever is waited for, the first and the last that wait,
and one column of those that wait: the next.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Problem
from nadi.simulation.engine.event_queue import COUNTER


@inner
def put_behind(
    table: np.ndarray, row: int, head: int, items: np.ndarray, following: int, item: int
) -> None:
    """Put an item behind those in the queue at a row, whose first is in the column ``head``."""
    items[item, following] = -1
    if table[row, head] < 0:
        table[row, head] = item
    else:
        items[table[row, head + 1], following] = item
    table[row, head + 1] = item


@inner
def take_queued(table: np.ndarray, row: int, head: int, items: np.ndarray, following: int) -> int:
    """Take the first item out of the queue at a row; -1 if none waits."""
    item = table[row, head]
    if item >= 0:
        table[row, head] = items[item, following]
    return item


@called
def new_row(counters: np.ndarray, free: int, table: np.ndarray, following: int) -> int:
    """Give a row that came free, else the next that was never used; -1 if there is none.

    ``free`` is the counter that says which came free last; that behind it counts those ever used.
    """
    row = counters[free]
    if row >= 0:
        counters[free] = table[row, following]
        return row
    row = counters[free + 1]
    if row == table.shape[0]:
        counters[COUNTER.problem] = Problem.TOO_SMALL
        return -1
    counters[free + 1] = row + 1
    return row


@inner
def free_row(counters: np.ndarray, free: int, table: np.ndarray, following: int, row: int) -> None:
    """Let a row be used again."""
    table[row, following] = counters[free]
    counters[free] = row
