"""Marks of steps: how many there are, and those that were set inside of an operation.

Ranges of time as users write them.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.trace.issues import IssueLog
from nadi.trace.schema import THREAD_WORK
from nadi.trace.trace import Job, Trace
from nadi.units import parse_ns

STEP_MARK = r"^ProfilerStep#\d+$"
_SETS_MARK = r"^torch/profiler/profiler\.py\(\d+\): step$"


def num_marked_steps(trace: Trace) -> int:
    """Return how many steps the profiler marked on a rank."""
    return int(trace.nodes["name"].cast(pl.String).unique().str.contains(STEP_MARK).sum())


def num_steps_of(job: Job | Sequence[Trace]) -> int:
    """Return how many steps a job consists of: one if it was generated, else those marked in it.

    0 if nothing says, as of traces without marks. Recorded jobs begin and end with other work.
    """
    if isinstance(job, Job) and job.rank_groups is not None:
        return 0 if "fold.recording" in job.issues["code"].to_list() else 1
    traces = job.traces if isinstance(job, Job) else job
    return max(map(num_marked_steps, {id(one): one for one in traces}.values()), default=0)


def mend_marks(device: Trace, log: IssueLog) -> Trace:
    """Let operations in which a step was marked end at the mark, and the step before it, too.

    A hook of an optimizer runs inside of the range of the optimizer's step. A mark that is set
    there begins in that range, and outlives it by nearly a whole step, so all that follows would
    seem to be in the optimizer. An operation ends at a mark that begins in it and ends after it,
    if less than half of the marked step lies in it. So do the Python frames of the call that sets
    the mark, of which nothing is wrong. O(nodes).

    - Returns: The same one if no step was marked like this.
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
        "steps are marked inside of an operation, such as an optimizer's step or a range of the "
        "program", "the operation is taken to end at the mark",
    )  # fmt: skip
    if (ends == end).all():
        return device
    nodes = device.nodes.with_columns(duration=pl.Series(ends - start))
    return device.changed(nodes=nodes)


def time_range(window: str) -> tuple[int, int]:
    """Read a time range such as ``120ms:180ms``: its two times in ns.

    - Raises UsageError if it is none.
    """
    begin, colon, end = str(window).partition(":")
    try:
        if not colon:
            raise ValueError("two times are needed")
        return parse_ns(begin), parse_ns(end)
    except ValueError as error:
        raise UsageError(
            Parameter("window", window), str(error),
            "give two times since the first event, such as 120ms:180ms",
        ) from None  # fmt: skip
