"""The events as HTA's parser returns them: rounded times, partners, without the last step.

The rules are numbered P1 to P5 as in ``docs/critical-path.md``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import Recorded, read_recorded
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Trace

__all__ = ["parse_events"]

_NS = 1000
_EXACT = 2**53  # integers up to here are exact as a double
_STEP = re.compile(r"ProfilerStep#\d+")
_SYNCS = ("Event Sync", "Context Sync")  # device work whatever their stream


def parse_events(
    traces: Sequence[Trace], at: int, *, include_last_step: bool = False
) -> pl.DataFrame:
    """Return the events of one rank of a job in HTA's order.

    Parameters
    ----------
    traces
        All ranks: they share the origin of time, and the decision whether to drop a step.
    at
        Position of the rank's trace among them.
    include_last_step
        Keep the last step, which HTA drops if there are several.

    Returns
    -------
    DataFrame
        The columns of ``recorded.EVENTS``, start since the earliest event of any rank,
        and ``partner``: HTA's ``index_correlation``, the index of the other side of a
        launch; 0 if that was not recorded, -1 for an event without a correlation.

    Raises
    ------
    InputError
        If a trace has no events.
    """
    recorded = [read_recorded(trace) for trace in traces]
    tables = [_rounded(one) for one in recorded]
    origin = min(int(table["start"].to_numpy().min()) for table in tables)
    steps = {name for table in tables for name in _steps(table)["name"].unique()}
    events = tables[at].with_columns(pl.col("start") - origin)
    events = events.with_columns(partner=_partners(events))
    return _filtered(events, include_last_step) if len(steps) > 1 else events


def _rounded(recorded: Recorded) -> pl.DataFrame:
    """P1: if a timestamp has a fraction, round starts up and ends down to us."""
    table = recorded.table
    if not recorded.has_fractions:
        return table
    start = _microseconds(table["start"].to_numpy())
    end = np.floor(start + _microseconds(table["duration"].to_numpy()))
    start = np.ceil(start)
    return table.with_columns(
        start=start.astype(np.int64) * _NS, duration=(end - start).astype(np.int64) * _NS
    )


def _microseconds(time: Ints) -> Floats:
    """Convert times in ns to the nearest doubles in us.

    HTA adds and rounds such doubles, whose last bit is worth a quarter of a us for times
    since the epoch: the same must be done here to come to the same whole number.
    """
    # time / 1000 is exact for small times; beyond, the sum of the parts is never near a tie
    return np.where(np.abs(time) < _EXACT, time / _NS, time // _NS + (time % _NS) / _NS)


def _partners(events: pl.DataFrame) -> Ints:
    """P2, P3: pair the two sides of each correlation; of duplicates, the last one counts."""
    correlation = events["correlation"].to_numpy()
    index = events["index"].to_numpy()
    on_device = ((events["stream"] >= 0) & (events["correlation"] >= 0)).to_numpy()
    on_device |= events["name"].is_in(_SYNCS).to_numpy()
    partner: Ints = np.minimum(correlation, 0)
    for own, other in ((on_device, ~on_device), (~on_device, on_device)):
        rows = np.flatnonzero(other & (correlation >= 0))[::-1]
        keys, last = np.unique(correlation[rows], return_index=True)
        if keys.size == 0:
            continue
        mine = np.flatnonzero(own & (correlation >= 0))
        found = np.minimum(np.searchsorted(keys, correlation[mine]), keys.size - 1)
        fits = keys[found] == correlation[mine]
        partner[mine[fits]] = index[rows[last[found[fits]]]]
    return partner


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    names = events["name"].unique()
    is_step = [_STEP.match(name) is not None for name in names]
    steps = names.filter(pl.Series(is_step, dtype=pl.Boolean))
    return events.filter(pl.col("name").is_in(steps.implode()))


def _filtered(events: pl.DataFrame, include_last_step: bool) -> pl.DataFrame:
    """P4, P5: drop the last step and device work without a launch; sort device work first."""
    host = events.filter(pl.col("stream") == -1)
    if not include_last_step:
        steps = _steps(events)["start"]
        if steps.len():
            host = host.filter(pl.col("start") < steps.to_numpy().max())
    launched = host["correlation"].unique()
    device = events.filter(
        (pl.col("stream") != -1) & pl.col("correlation").is_in(launched.implode())
    )
    return pl.concat([device, host])
