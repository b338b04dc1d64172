"""Typical steps: medians of what repeats, and nothing else."""

from __future__ import annotations

from statistics import median

from hypothesis import HealthCheck, given, settings, strategies as st

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import replay_graph
from nadi.graph.windows import choose_window, find_steps
from nadi.whatif.prediction_intervals import with_typical_steps, without_recording_costs
from tests.amounts import examples
from tests.conftest import PairWriter

NAMES = ("aten::mm", "aten::add", "aten::mm", "aten::cat")
times = st.lists(st.integers(1, 500), min_size=len(NAMES), max_size=len(NAMES))


def recorded(pair: PairWriter, steps: list[list[int]], extra: int = -1, gap: int = 0) -> EventGraph:
    """Record steps of operators that take these times in us; one step may have one more."""
    pair.events, pair.nodes = [], pair.nodes[:1]
    start = 0
    for number, durations in enumerate(steps):
        begin, start = start, start + gap
        for name, duration in zip(NAMES, durations, strict=True):
            pair.op(name, start, duration)
            start += duration + gap
        if number == extra:
            pair.op("aten::sum", start, 7)
            start += 7
        pair.event(f"ProfilerStep#{number}", begin, start - begin, "user_annotation")
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


def typical_length(graph: EventGraph) -> int:
    """Return the length of all steps, if they were typical; ns."""
    window = choose_window(graph, find_steps(graph))
    return window.length(replay_graph(with_typical_steps(graph, window.steps)).time)


@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(times, min_size=3, max_size=5))
def test_steps_are_as_long_as_the_medians_of_their_operators(
    pair: PairWriter, steps: list[list[int]]
) -> None:
    expected = len(steps) * sum(1_000 * median(each) for each in zip(*steps, strict=True))
    assert abs(typical_length(recorded(pair, steps)) - expected) <= len(steps) * len(NAMES)


def test_what_one_step_alone_has_stays(pair: PairWriter) -> None:
    steps = [[10, 20, 30, 40], [10, 20, 30, 940], [10, 20, 30, 40], [10, 20, 30, 40]]
    assert typical_length(recorded(pair, steps)) == 400_000
    assert typical_length(recorded(pair, steps, extra=2)) == 407_000


def cheaper_length(pair: PairWriter, gap: int) -> int:
    """Return the length of steps of 100 us in operators, less what recording costs; ns."""
    graph = recorded(pair, [[10, 20, 30, 40]] * 3, gap=gap)
    window = choose_window(graph, find_steps(graph))
    return window.length(replay_graph(without_recording_costs(graph, window.steps)).time)


def test_what_recording_costs_is_taken_from_between_operators(pair: PairWriter) -> None:
    pair.device_keys["nadi"] = {"timed_ns": [200_000], "unrecorded_ns": [180_000]}
    # each mark and operator costs as much before as after it; between marks there is no time
    assert 3 * 180_000 <= cheaper_length(pair, gap=20) <= 3 * 183_000
    # operators take as long as recorded
    assert cheaper_length(pair, gap=1) == 3 * 100_000
    assert cheaper_length(pair, gap=0) == 3 * 100_000
    pair.device_keys["nadi"] = {"timed_ns": [200_000], "unrecorded_ns": [210_000]}
    assert cheaper_length(pair, gap=20) == 3 * 200_000


def test_the_interval_holds_the_gain_with_and_without_what_recording_costs(
    pair: PairWriter,
) -> None:
    intervals = []
    for unrecorded in (200_000, 130_000):
        pair.device_keys["nadi"] = {"timed_ns": [200_000], "unrecorded_ns": [unrecorded]}
        graph = recorded(pair, [[10, 20, 30, 40]] * 3, gap=20)
        intervals.append(nadi.what_if(graph, "scale aten::cat 0.5").interval)
    free, dear = intervals
    assert dear.gain_low_ns <= free.gain_low_ns
    assert dear.gain_high_ns > 1.05 * free.gain_high_ns


def test_two_steps_stay_as_they_are(pair: PairWriter) -> None:
    graph = recorded(pair, [[10, 20, 30, 40], [20, 30, 40, 50]])
    assert with_typical_steps(graph, find_steps(graph)) is graph


def test_a_step_that_was_interrupted_does_not_set_the_interval(pair: PairWriter) -> None:
    calm = [[100, 100, 100, 700] for _ in range(5)]
    held = [list(step) for step in calm]
    held[3][1] += 5_000  # the thread did not run
    of_calm, of_held = (
        nadi.what_if(recorded(pair, steps), "remove aten::mm") for steps in (calm, held)
    )
    assert of_held.gain_ns / of_held.measured_ns < 0.12
    high = of_held.interval.gain_high_ns / of_held.measured_ns
    assert high > of_calm.gain_ns / of_calm.measured_ns == 0.2
