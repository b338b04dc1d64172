"""How sure a predicted step time is: an interval from dependencies, delays and other steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from nadi.graph.event_graph import EventGraph
from nadi.graph.inferred_edges import unconfirmed_edges
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.windows import Window
from nadi.model.arrays import Ints

__all__ = ["LEVEL", "Interval", "interval_of"]

LEVEL = 0.9
"""The share of new recordings whose step time an interval should hold."""

# the 95 % quantile of Student's t distribution with 1, 2, 3, ... degrees of freedom
_STUDENT = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
)  # fmt: skip

# Steps of one recording share a state of the machine: clocks, placement, other jobs. The means of
# two recordings of the same program are taken to differ with 2 % standard deviation each, however
# alike their steps are; 1.645 is the 95 % quantile of the normal distribution.
_BETWEEN = 1.645 * 0.02 * 2**0.5

# Many changes of one graph are tried. A graph without unconfirmed edges is None.
_CONFIRMED: WeakKeyDictionary[EventGraph, EventGraph | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Interval:
    """How sure a predicted step time and its gain are; ns.

    Both intervals allow for what is not known: delays that no dependency explains may stay or
    disappear, and inferred dependencies that the recording does not confirm may be real or not.
    They also allow for steps that vary. The gain varies less than the step time, as both times of
    a step are slow on a slow machine.

    Attributes
    ----------
    low_ns, high_ns
        The shortest and the longest length of the window in a new recording.
    gain_low_ns, gain_high_ns
        The smallest and the largest gain.
    variation
        The factor by which a new recording may be slower or faster: recordings of the same program
        differ by 2 %, and steps as the steps of this one. With one step, how much steps vary is
        unknown, and left out.
    num_steps
        The steps in the window.
    """

    low_ns: int
    high_ns: int
    gain_low_ns: int
    gain_high_ns: int
    variation: float
    num_steps: int


def interval_of(
    graph: EventGraph, replay: Replay, window: Window, change: Callable[[EventGraph], EventGraph]
) -> Interval:
    """Return the interval of the length of a window after a change.

    Parameters
    ----------
    graph
        The job as measured.
    replay
        The replay of the changed graph.
    change
        Applies the change to another graph of the job.

    Returns
    -------
    Interval
        O(vertices + edges): the change is applied and replayed up to twice more.
    """
    measured = window.length(graph.time)
    gains = [measured - window.length(replay.time)]
    gains.append(_length_without_delays(graph, window)
                 - _length_without_delays(replay.graph, window))  # fmt: skip
    confirmed = _confirmed(graph)
    if confirmed is not graph:
        gains.append(measured - window.length(replay_graph(change(confirmed)).time))
    low, high = min(gains), max(gains)
    steps = window.steps or (window,)
    before, after = (_periods(steps, window, time) for time in (graph.time, replay.time))
    # times of steps are skewed to the right: their logarithms vary like normal numbers
    of_steps = _half_width(np.log(np.maximum(after, 1)))
    variation = float(np.exp(np.hypot(of_steps, _BETWEEN)))
    of_gain = round(len(steps) * _half_width(before - after))
    # a change that only removes time does not cost time in another step, and the reverse
    return Interval(
        round(max(measured - high, 0) / variation),
        round((measured - low) * variation),
        max(low - of_gain, 0) if low >= 0 else low - of_gain,
        min(high + of_gain, measured if high > 0 else 0),
        variation,
        len(steps),
    )


def _confirmed(graph: EventGraph) -> EventGraph:
    """Return the graph without the inferred edges that no repeats confirm; kept with the graph."""
    if graph not in _CONFIRMED:
        unconfirmed = unconfirmed_edges(graph)
        _CONFIRMED[graph] = graph.without_edges(unconfirmed) if unconfirmed.size else None
    return _CONFIRMED[graph] or graph


def _length_without_delays(graph: EventGraph, window: Window) -> int:
    """Return the length of a window if each moment that waits for others occurs with them."""
    waits = np.diff(graph.in_ptr) > 0
    eager = replace(graph, delay=np.where(waits, 0, graph.delay))
    return window.length(replay_graph(eager).time)


def _periods(steps: Sequence[Window], window: Window, time: Ints) -> Ints:
    """Return the time from the end of the step before to the end of each step.

    Steps of several ranks may overlap; their periods do not. A straggler sets the ends.
    """
    ends = [step.end(time) for step in steps[:-1]]
    return np.diff([window.start(time), *ends, window.end(time)])


def _half_width(values: npt.NDArray[np.float64] | Ints) -> float:
    """Return the half width of the prediction interval of one more value; 0 for a single one."""
    count = values.size
    if count < 2:
        return 0.0
    student = _STUDENT[min(count - 1, len(_STUDENT)) - 1]
    return float(student * np.std(values, ddof=1) * np.sqrt(1 + 1 / count))
