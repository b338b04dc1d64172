"""Marks of steps that were set inside of an operation, such as the range of an optimizer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.trace.issues import IssueLog
from nadi.trace.schema import THREAD_WORK
from nadi.trace.trace import Trace

STEP_MARK = r"^ProfilerStep#\d+$"
_SETS_MARK = r"^torch/profiler/profiler\.py\(\d+\): step$"


def mend_marks(device: Trace, log: IssueLog) -> Trace:
    """Let operations in which a step was marked end at the mark, and the step before it, too.

    A hook of an optimizer runs inside of the range of the optimizer's step. A mark that is set
    there begins in that range, and outlives it by nearly a whole step, so all that follows would
    seem to be in the optimizer. An operation ends at a mark that begins in it and ends after it,
    if less than half of the marked step lies in it. So do the Python frames of the call that sets
    the mark, of which nothing is wrong. O(nodes).

    Returns
    -------
    Trace
        The same one if no step was marked like this.
    """
    thread, start = device.column("thread"), device.column("start")
    end = start + device.column("duration")
    works = device.category_mask(*THREAD_WORK)
    marks = np.flatnonzero(device.name_mask(STEP_MARK) & works)
    sets = device.name_mask(_SETS_MARK)
    ends = end.copy()
    num_wrong = before = 0
    for mark in marks[np.lexsort((start[marks], thread[marks]))].tolist():
        first = before if before and thread[before] == thread[mark] else 0
        rows = first + np.flatnonzero(
            works[first:mark] & (thread[first:mark] == thread[mark])
            & (end[first:mark] > start[mark]) & (end[first:mark] < end[mark])
            & (2 * (end[first:mark] - start[mark]) < end[mark] - start[mark])
        )  # fmt: skip
        if rows.size:
            ends[rows] = start[mark]
            setting = start[rows[sets[rows]]].min(initial=start[mark])
            num_wrong += bool((start[rows] < setting).any())
            if before in range(first, mark) and end[before] > start[rows].min():
                ends[before] = start[mark]
        before = mark
    log.add(
        "link.nested-steps", "warning", num_wrong,
        "steps are marked inside of an operation, in the hook of an optimizer",
        "the operation is taken to end at the mark; record again to have the marks between steps",
    )  # fmt: skip
    if (ends == end).all():
        return device
    nodes = device.nodes.with_columns(duration=pl.Series(ends - start))
    return replace(device, nodes=nodes)
