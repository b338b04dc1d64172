"""Times of collectives from measured tables, interpolated in three regimes.

Up to some size all collectives take as long: latency. From some size on each byte takes as long:
bandwidth. Between them lies the transition. Measured times that shrink with more bytes are noise,
and are levelled first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nadi.systems.nccl.measured import MeasuredCollective
from nadi.trace.arrays import Floats, Ints

__all__ = ["MeasuredTimes", "measured_times", "nearest_table", "scaled_table", "table_for"]

Model = Callable[[Ints], Floats]

_FLAT = 1.15  # times the smallest: still latency
_STRAIGHT = 0.1  # relative change of the time of a byte: bandwidth


class MeasuredTimes(NamedTuple):
    """Times in ns, and for each size its regime."""

    times: Floats
    regimes: list[str]


def table_for(
    tables: tuple[MeasuredCollective, ...], comm_type: str, ranks: int, nodes: int
) -> MeasuredCollective | None:
    """Return the table of a collective among as many ranks on as many nodes; None if none is."""
    for table in tables:
        if (table.collective, table.ranks, table.nodes) == (comm_type, ranks, nodes):
            return table
    return None


def measured_times(
    table: MeasuredCollective, sizes: Ints, model: Model | None = None
) -> MeasuredTimes:
    """Interpolate a table.

    Up to the bandwidth regime the logarithm of the time is linear in that of the size; in the
    bandwidth regime the time is linear in the size, and beyond the table goes on as between its
    last two sizes. Below the table it is that of the smallest size or, if a model is given, less
    by what the model's is less: what a measured time has beyond the model, such as a host's
    launches, does not shrink.

    Parameters
    ----------
    sizes
        int64, shape (sizes,): bytes as nccl-tests counts them.
    model
        Gives times of sizes, ns.
    """
    known = np.array(table.sizes, dtype=np.float64)
    times = _levelled(np.array(table.times, dtype=np.float64))
    wanted = np.maximum(sizes.astype(np.float64), 1.0)
    found = np.exp(np.interp(np.log(wanted), np.log(known), np.log(times)))
    flat, straight = _borders(known, times)
    linear = (wanted >= straight) & (wanted <= known[-1])
    found[linear] = np.interp(wanted[linear], known, times)
    below = wanted < known[0]
    if model is not None and below.any():
        ends = model(np.append(sizes[below], table.sizes[0]))
        shrunk = np.maximum(times[0] + ends[:-1] - ends[-1], times[0] * ends[:-1] / ends[-1])
        found[below] = np.minimum(shrunk, times[0])
    beyond = wanted > known[-1]
    found[beyond] = times[-1] + _time_of_byte(known, times) * (wanted[beyond] - known[-1])
    return MeasuredTimes(found, [_regime(size, flat, straight, known) for size in wanted.tolist()])


def nearest_table(
    tables: tuple[MeasuredCollective, ...], comm_type: str, ranks: int, nodes: int
) -> MeasuredCollective | None:
    """Return the table of a collective whose ranks are nearest, within a node or over several.

    Both have to be within one node, or both over several; of equally near ones the first counts.
    """
    alike = [
        table
        for table in tables
        if table.collective == comm_type and (table.nodes > 1) == (nodes > 1) and table.ranks > 1
    ]
    return min(alike, key=lambda table: abs(np.log(table.ranks / ranks)), default=None)


def scaled_table(
    table: MeasuredCollective, ranks: int, nodes: int, own: Model, wanted: Model
) -> MeasuredCollective:
    """Return what a table would be for other ranks.

    Its latency becomes what the model says for those ranks. What it has beyond the modeled latency
    grows as the model's time for the bytes does.

    Parameters
    ----------
    own, wanted
        Give times of sizes, ns, for the ranks of the table and for those that are wanted.
    """
    sizes = np.array(table.sizes, dtype=np.int64)
    ends = np.append(sizes, 1)
    before, after = own(ends), wanted(ends)
    least_before, least_after = before[-1], after[-1]
    grown = np.maximum(after[:-1] - least_after, 0.0) / np.maximum(before[:-1] - least_before, 1e-9)
    times = np.array(table.times)
    rest = times - least_before
    found = np.where(rest > 0, least_after + rest * grown, times * after[:-1] / before[:-1])
    return MeasuredCollective(
        table.collective, ranks, nodes, table.sizes, tuple(found.tolist()), table.name
    )


def _levelled(times: Floats) -> Floats:
    """Make times never shrink: neighbors that do are set to their mean, as often as needed."""
    blocks: list[tuple[float, int]] = []
    for time in np.log(times).tolist():
        total, count = time, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    logs = [np.full(count, total / count) for total, count in blocks]
    levelled: Floats = np.exp(np.concatenate(logs))
    return levelled


def _borders(known: Floats, times: Floats) -> tuple[float, float]:
    """Return the last size of the latency regime, and the first of the bandwidth regime."""
    flat = known[times <= _FLAT * times[0]][-1]
    per_byte = np.diff(times) / np.diff(known)
    last = per_byte[-1] if per_byte.size else 0.0
    far = np.flatnonzero(np.abs(per_byte - last) > _STRAIGHT * last)
    first = far[-1] + 1 if far.size else 0
    return float(flat), max(float(known[first]), float(flat))


def _time_of_byte(known: Floats, times: Floats) -> float:
    """Return the time of a byte beyond the table, ns; of one size, that of all its bytes."""
    if known.size == 1:
        return float(times[0] / known[0])
    return float((times[-1] - times[-2]) / (known[-1] - known[-2]))


def _regime(size: float, flat: float, straight: float, known: Floats) -> str:
    name = "latency" if size <= flat else "bandwidth" if size >= straight else "transition"
    outside = size < known[0] or size > known[-1]
    return f"{name}, extrapolated" if outside else name
