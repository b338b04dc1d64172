"""Seconds of operations on a rank's streams, for many sizes of the same program at once.

Each stream works in order, and an operation waits for those that it names. What computation waits
for is exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.models.job_rows import COMPUTE, Row
from nadi.trace.arrays import Floats

__all__ = ["StreamTimes", "stream_times"]


class StreamTimes(NamedTuple):
    """Seconds of a program, float64 of shape (ways,).

    Attributes
    ----------
    computed
        Of computation, by phase.
    exposed
        By which communication extends it, by phase and role.
    moved
        Of communication, exposed or not, by phase and role.
    lead
        By role, until when the first communication that computation waits for has to begin.
    """

    computed: dict[str, Floats]
    exposed: dict[tuple[str, str], Floats]
    moved: dict[tuple[str, str], Floats]
    lead: dict[str, Floats]


def stream_times(rows: Sequence[Row], seconds: Floats) -> StreamTimes:
    """Work out when operations end.

    Parameters
    ----------
    rows
        The program.
    seconds
        Of each operation alone, shape (rows, ways).
    """
    num = seconds.shape[1]
    none = np.zeros(num)
    free: dict[int, Floats] = {}
    ends: list[Floats] = []
    found = StreamTimes({}, {}, {}, {})
    for row, took in zip(rows, seconds, strict=True):
        start = free.get(row.stream, none)
        waits = [wait for wait in row.waits if wait >= 0]
        ready = start
        for wait in waits:
            ready = np.maximum(ready, ends[wait])
        end = ready + took
        ends.append(end)
        free[row.stream] = end
        if row.stream == COMPUTE:
            found.computed[row.phase] = found.computed.get(row.phase, none) + took
            moves = [wait for wait in waits if rows[wait].role]
            if moves:
                key = row.phase, rows[moves[-1]].role
                # it could begin so much later and nothing would wait longer
                begins = np.maximum(start, ends[moves[-1]]) - seconds[moves[-1]]
                found.lead.setdefault(key[1], begins)
                found.exposed[key] = found.exposed.get(key, none) + (ready - start)
        else:
            key = row.phase, row.role
            found.moved[key] = found.moved.get(key, none) + took
    # what follows the last computation, before the next program computes
    last = free.get(COMPUTE, none)
    for row, end in zip(rows, ends, strict=True):
        if row.stream != COMPUTE and row.waits:
            key = row.phase, row.role
            late = np.maximum(end - last, 0.0)
            found.exposed[key] = found.exposed.get(key, none) + late
            last = last + late
    return found
