"""How sure a predicted gain is: one interval, calibrated on programs that were really changed.

A job whose steps are all typical: each operation takes the median of its times over steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import asin, hypot, inf, pi, sin, sqrt
from statistics import NormalDist
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.overheads import unconfirmed_edges
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.windows import MARK, Window, step_times, steps_of_operations
from nadi.trace.arrays import Ints, text_codes
from nadi.trace.trace import contentions

FEWEST_STEPS = 3
"""A median of fewer values is their mean."""

_SAME = ("trace", "thread", "kind", "vertex", "source")


def with_typical_steps(graph: EventGraph, steps: Sequence[Window]) -> EventGraph:
    """Return the graph with the typical time of each operation, gap and overhead.

    What a thread waits for the processor, or a machine is slow for, is in the time of whatever ran
    then. It is seldom the same in most steps, so that the median over steps does not contain it.
    Times are compared over the steps by the names at both ends and by their order. Those that do
    not occur as often in each step stay as recorded.

    - ``steps``: Those of one window.
    - Returns: The graph itself with fewer than three steps. O(edges log edges).
    """
    if len(steps) < FEWEST_STEPS:
        return graph
    step_of = np.append(steps_of_operations(graph, steps), -1)  # the last is none
    vertex, source = graph.destinations, graph.in_src
    into, out_of = (np.minimum(ends // 2, graph.num_ops) for ends in (vertex, source))
    marks = graph.op_names.str.replace(rf"^{MARK}#\d+$", MARK)  # each step has another number
    name = np.append(text_codes(marks), -1)
    thread = np.append(graph.numbers("thread"), -1)
    trace = np.append(graph.op_trace, -1)
    times = pl.DataFrame({
        "edge": np.arange(graph.num_edges), "step": step_of[into], "at": graph.time[vertex],
        "trace": trace[into], "thread": thread[into], "kind": graph.edge_kind,
        "vertex": 2 * name[into] + vertex % 2,
        "source": 2 * name[out_of] + source % 2,
        "weight": graph.weight,
    }).filter(pl.col("step") >= 0)  # fmt: skip
    times = times.sort("at", "edge").with_columns(
        pl.int_range(pl.len()).over(*_SAME, "step").alias("place")
    )
    alike = times.with_columns(pl.len().over(*_SAME, "place").alias("count")).filter(
        (pl.col("count") == len(steps)).all().over(*_SAME)
    )
    typical = alike.select("edge", pl.col("weight").median().over(*_SAME, "place"))
    weight = graph.weight.copy()
    weight[typical["edge"].to_numpy()] = np.rint(typical["weight"].to_numpy()).astype(np.int64)
    return graph.with_weights(weight)


def without_recording_costs(graph: EventGraph, steps: Sequence[Window]) -> EventGraph:
    """Return the graph as if each operator of a rank cost the recorder the same time.

    That is what the steps of the rank take longer than those without a recorder, which its
    recording states, divided by its operators. The recorder works before an operator begins and
    after it has ended, so the time is taken from what lies between operators, as far as it goes.

    - Returns: The graph itself if no rank states what recording costs. O(edges).
    """
    op, kind = graph.num_ops, graph.edge_kind
    ends = np.stack([graph.destinations, graph.in_src])
    into, out_of = np.minimum(ends // 2, op)
    between = np.isin(kind, (EdgeKind.HOST_OP, EdgeKind.HOST_GAP)) & (into != out_of)
    trace = np.append(graph.op_trace, -1)
    in_step = np.append(steps_of_operations(graph, steps) >= 0, False)
    costs = np.zeros(graph.num_edges)
    for number, one in enumerate(graph.job.traces):
        longer = one.step_lengths.longer_ns if one.step_lengths else 0.0
        mine = between & (trace[into] == number)
        begun = mine & in_step[into] & (ends[0] % 2 == 0)
        if longer > 0 and begun.any():
            sides = (ends[0] % 2 == 0).astype(np.int64) + (ends[1] % 2 == 1)
            costs[mine] = (longer * len(steps) / (2 * begun.sum()) * sides)[mine]
    if not costs.any():
        return graph
    return graph.with_weights(
        graph.weight - np.minimum(np.rint(costs).astype(np.int64), graph.weight)
    )


LEVEL = 0.9
"""How often an interval should contain the true gain."""

# A share x of a time is compared with others as the angle asin(sqrt(x)): errors of angles are as
# large for small shares as for large ones. Standard deviations of angles:
_OF_MODEL = 0.075  # true gain against prediction: docs/what-if.md says of which programs
_OF_OTHERS = 0.2  # where other threads have the processors, for the whole of the steps
_OF_STEPS = 0.05  # from step to step: counts as much as one more step does
_RIGHT = pi / 2  # the angle of the whole
_TIMES = 2  # what is changed may take that much more than measured, as a part of it

# Many changes of one graph are tried. A graph without unconfirmed edges is None; typical steps, and
# the length without delays, are kept for the steps that were asked for last.
_CONFIRMED: WeakKeyDictionary[EventGraph, EventGraph | None] = WeakKeyDictionary()
_TYPICAL: WeakKeyDictionary[EventGraph, _Typical] = WeakKeyDictionary()
_EAGER: WeakKeyDictionary[EventGraph, tuple[Window, int]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Interval:
    """How sure a predicted step time and its gain are; ns.

    Both are one interval: the step is as long as measured, less the gain. It says what the change
    does on the machine as it was while recorded, not how much the machine's speed varies.

    Attributes
    ----------
    low_ns, high_ns
        The shortest and the longest length of the window after the change.
    gain_low_ns, gain_high_ns
        The smallest and the largest gain. A change that only shortens work gains nothing at least,
        and at most as much as it shortens the most shortened operation, of the whole window.
    num_steps
        The steps in the window.
    """

    low_ns: int
    high_ns: int
    gain_low_ns: int
    gain_high_ns: int
    num_steps: int

    def with_length(self, length_ns: int, measured_ns: int) -> Interval:
        """Return the interval with another possible length in it; ns."""
        low, high = min(self.low_ns, length_ns), max(self.high_ns, length_ns)
        gain = measured_ns - length_ns
        gains = min(self.gain_low_ns, gain), max(self.gain_high_ns, gain)
        return Interval(low, high, *gains, self.num_steps)


class _Extent(NamedTuple):
    """How much of the recorded time a change shortens or lengthens.

    ``most`` is the largest part of one time, ``total`` the sum in ns; both are 0 if no time is.
    """

    most: float
    total: float


class _Typical(NamedTuple):
    """Graphs of typical steps of a window: as recorded, and less what recording costs."""

    steps: tuple[Window, ...]
    recorded: EventGraph
    cheaper: EventGraph


_NOTHING = _Extent(0.0, 0.0)


def interval_of(
    graph: EventGraph,
    replay: Replay,
    window: Window,
    change: Callable[[EventGraph], EventGraph],
    level: float = LEVEL,
    confirmed_gain: int | None = None,
) -> Interval:
    """Return the interval of the length of a window after a change.

    - ``graph``: The job as measured.
    - ``replay``: The replay of the changed graph.
    - ``change``: Applies the change to another graph of the job.
    - ``level``: How often the interval should contain the truth, between 0 and 1.
    - ``confirmed_gain``: As of :func:`confirmed_gains`, if it is known.
    - Returns: O(vertices + edges): the change is applied and replayed up to three times more.
    """
    measured = window.length(graph.time)
    gain = measured - window.length(replay.time)
    shorter, longer = _extents(graph, replay.graph, gain)
    if not shorter.total and not longer.total:
        return Interval(measured, measured, 0, 0, len(window.steps or (window,)))
    steps = window.steps or (window,)
    before, after = (step_times(graph, steps, time) for time in (graph.time, replay.time))
    of_steps = _error_of_share(before - after, before)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    likely, cheaper_gain = _typical_gains(graph, window, change, gain)
    gained = _alone(graph, replay.graph, window) if longer.total and shorter.total else max(gain, 0)
    lost = gained - gain
    of_model = hypot(_OF_MODEL, _OF_OTHERS * max(contentions(graph.job.traces)))
    spread = partial(_spread, measured=measured, of_model=of_model, of_steps=of_steps)
    less, more = spread(max(gained + likely - gain, 0), shorter, quantile)
    cheaper, dearer = spread(max(lost + gain - likely, 0), longer, quantile)
    if confirmed_gain is None:
        confirmed_gain = _confirmed_gain(graph, window, change)
    gains = [likely, gain, cheaper_gain, _gain_without_delays(graph, replay, window)]
    gains += [] if confirmed_gain is None else [confirmed_gain]
    low = likely - hypot(less, dearer, likely - min(gains))
    high = likely + hypot(more, cheaper, max(gains) - likely)
    # a change that only removes time does not cost time, and the reverse
    low = min(round(low if longer.total else max(low, 0)), gain)
    high = max(round(min(high, shorter.most * measured)), gain)
    return Interval(measured - high, measured - low, low, high, len(steps))


def _extents(before: EventGraph, after: EventGraph, gain: int) -> tuple[_Extent, _Extent]:
    """Return how much of the recorded time a change shortens, and how much it lengthens."""
    if not np.array_equal(before.in_src, after.in_src):  # other dependencies: times do not compare
        shortens = gain > 0 or (gain == 0 and after.num_edges <= before.num_edges)
        every = _Extent(1.0, inf) if shortens else _Extent(inf, inf)
        return (every, _NOTHING) if shortens else (_NOTHING, every)
    shorter, longer = _NOTHING, _NOTHING
    for old, new in ((before.weight, after.weight), (before.delay, after.delay)):
        changed = np.flatnonzero(old != new)
        times, by = old[changed], old[changed] - new[changed]
        shorter, longer = _extended(shorter, times, by), _extended(longer, times, -by)
    return shorter, longer


def _extended(extent: _Extent, times: Ints, by: Ints) -> _Extent:
    """Add times of which each changes by so much; what is below 0 does not count."""
    times, by = times[by > 0], by[by > 0]
    if not by.size:
        return extent
    rounded = 0.5  # ns
    most = float(((by - rounded) / times).max()) if times.all() else inf
    return _Extent(max(extent.most, most), extent.total + float(by.sum()))


def _alone(before: EventGraph, after: EventGraph, window: Window) -> int:
    """Return the gain of a change without what it lengthens; ns."""
    shorter = before.with_weights(np.minimum(before.weight, after.weight))
    shorter = replace(shorter, delay=np.minimum(before.delay, after.delay))
    return window.length(before.time) - window.length(replay_graph(shorter).time)


def _error_of_share(gains: Ints, lengths: Ints) -> tuple[float, int]:
    """Return the variance of the share of the gains in the lengths of steps, and their number.

    The variance is that of one step about the share of all.
    """
    mean = max(float(lengths.mean()), 1.0)
    share = float(gains.mean()) / mean
    deviations = (gains - share * lengths) / mean
    return float(np.square(deviations).sum()), lengths.size


def _spread(
    time: int, extent: _Extent, quantile: float, *, measured: int, of_model: float,
    of_steps: tuple[float, int],
) -> tuple[float, float]:  # fmt: skip
    """Return how much smaller and how much larger a gain or loss may be; ns.

    - ``time``, ``measured``: The gain or loss, and the measured time; ns.
    - ``extent``: What the change shortens or lengthens.
    - ``of_model``: The standard deviation of angles between true and predicted gains.
    - ``of_steps``: The sum of the squares of deviations of the shares of steps, and the number of
      steps.
    - ``quantile``: How many standard deviations each side has.
    """
    if not extent.total or not measured:
        return 0.0, 0.0
    # one short operation may take many times as long: that does not make a step so uncertain
    whole = min(extent.most, max(1.0, 2 * time / measured))
    share = min(time / measured / whole, 1.0)
    squares, count = of_steps
    # an angle changes with its share by 1 / (2 sqrt(x (1 - x))), at ends as 1 % inside
    inside = min(max(share, 0.01), 0.99)
    squares /= 4 * inside * (1 - inside) * whole**2
    steps = sqrt((squares + _OF_STEPS**2) / count / count)
    half, angle = quantile * hypot(of_model, steps), asin(sqrt(share))
    low = sin(max(angle - half, 0.0)) ** 2 * whole * measured
    high = sin(min(angle + half, _RIGHT)) ** 2 * whole * measured
    return max(time - low, 0.0), min(max(high - time, 0.0), _TIMES * extent.total)


def confirmed_gains(
    graph: EventGraph, window: Window, changes: Iterable[Callable[[EventGraph], EventGraph]]
) -> list[int | None]:
    """Return what each change gains if unconfirmed dependencies are none, as of ``interval_of``.

    Asked for together, before what else is known of each change, they need the graph without these
    dependencies for that long alone.
    """
    gains = [_confirmed_gain(graph, window, change) for change in changes]
    _CONFIRMED.pop(graph, None)
    return gains


def _confirmed_gain(
    graph: EventGraph, window: Window, change: Callable[[EventGraph], EventGraph]
) -> int | None:
    """Return the gain if unconfirmed dependencies are none; ns, None if all are confirmed."""
    if graph not in _CONFIRMED:
        unconfirmed = unconfirmed_edges(graph)
        _CONFIRMED[graph] = graph.without_edges(unconfirmed) if unconfirmed.size else None
    confirmed = _CONFIRMED[graph]
    if confirmed is None:
        return None
    return window.length(graph.time) - window.length(replay_graph(change(confirmed)).time)


def _gain_without_delays(graph: EventGraph, replay: Replay, window: Window) -> int:
    """Return the gain of a change if delays vanish; ns."""
    if graph not in _EAGER or _EAGER[graph][0] is not window:
        _EAGER[graph] = window, _length_without_delays(graph, window)
    return _EAGER[graph][1] - _length_without_delays(replay.graph, window)


def _typical_gains(
    graph: EventGraph, window: Window, change: Callable[[EventGraph], EventGraph], gain: int
) -> tuple[int, int]:
    """Return the gain if all steps are typical, and if recording costs each operator the same.

    Both are for the window as long as measured; ns.
    """
    if len(window.steps) < FEWEST_STEPS:
        return gain, gain
    kept = _TYPICAL.get(graph)
    if kept is None or kept.steps is not window.steps:
        typical = with_typical_steps(graph, window.steps)
        cheaper = without_recording_costs(typical, window.steps)
        kept = _TYPICAL[graph] = _Typical(window.steps, typical, cheaper)
    likely = _share_gained(kept.recorded, window, change) * window.length(graph.time)
    if kept.cheaper is kept.recorded:
        return round(likely), round(likely)
    cheaper_gain = _share_gained(kept.cheaper, window, change) * window.length(graph.time)
    return round(likely), round(cheaper_gain)


def _share_gained(
    graph: EventGraph, window: Window, change: Callable[[EventGraph], EventGraph]
) -> float:
    """Return by which share of a window it is shorter after a change."""
    before = window.length(replay_graph(graph).time)
    after = window.length(replay_graph(change(graph)).time)
    return (before - after) / max(before, 1)


def _length_without_delays(graph: EventGraph, window: Window) -> int:
    """Return the length of a window if each moment that waits for others occurs with them."""
    waits = np.diff(graph.in_ptr) > 0
    eager = replace(graph, delay=np.where(waits, 0, graph.delay))
    return window.length(replay_graph(eager).time)
