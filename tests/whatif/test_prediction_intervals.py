"""Intervals of predicted step times: from steps that vary, delays, and inferred dependencies."""

from __future__ import annotations

from math import exp, gamma, hypot, log, pi, sqrt
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

import nadi
from nadi.graph.inferred_edges import unconfirmed_edges
from nadi.whatif.prediction_intervals import _STUDENT
from tests.amounts import examples
from tests.conftest import PairWriter
from tests.graph.test_graph_laws import EVERY_KIND, jobs, load

RECORDINGS = 1.645 * 0.02 * 2**0.5  # two recordings with 2 % standard deviation each
TWO_STEPS, FOUR_STEPS = 6.314, 2.353  # 95 % quantiles of Student's t, 1 and 3 degrees of freedom


def steps_of(pair: PairWriter, lengths: list[int]) -> nadi.EventGraph:
    """Record steps of these lengths in us; half of each is one operator."""
    start = 0
    for number, length in enumerate(lengths):
        pair.event(f"ProfilerStep#{number}", start, length, "user_annotation")
        pair.op("aten::mm", start, length / 2)
        pair.op("aten::add", start + length / 2, length / 2)
        start += length
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


def with_gloo(pair: PairWriter, durations: list[int], latency: int) -> nadi.EventGraph:
    """Record waits for gloo's work; the thread goes on ``latency`` us after its end."""
    for k, duration in enumerate(durations):
        begin = 10_000 * k
        pair.op("aten::mm", begin, 20)
        pair.event("c10d::allreduce_", begin + 20, 5, **{"Record function id": 1_000 + 2 * k})
        pair.event("gloo:all_reduce", begin + 30, duration, "user_annotation", tid=5,
                   **{"Record function id": 1_001 + 2 * k})  # fmt: skip
        pair.op("aten::add", begin + 30 + duration + latency, 400)
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


def test_steps_that_do_not_vary_leave_no_doubt(pair: PairWriter) -> None:
    found = nadi.what_if(steps_of(pair, [100, 100, 100]), "scale aten::mm 0.5").interval
    assert found.variation == pytest.approx(exp(RECORDINGS))
    assert (found.low_ns, found.high_ns) == (
        round(225_000 / found.variation), round(225_000 * found.variation),
    )  # fmt: skip
    assert (found.gain_low_ns, found.gain_high_ns) == (75_000, 75_000)
    assert found.num_steps == 3


def test_a_single_step_does_not_tell_how_much_steps_vary(pair: PairWriter) -> None:
    found = nadi.what_if(steps_of(pair, [100]), "scale aten::mm 0.5").interval
    assert (found.variation, found.num_steps) == (pytest.approx(exp(RECORDINGS)), 1)
    assert (found.gain_low_ns, found.gain_high_ns) == (25_000, 25_000)


@pytest.mark.parametrize(
    ("lengths", "student"), [([100, 120], TWO_STEPS), ([100, 120, 90, 110], FOUR_STEPS)]
)
def test_the_gain_varies_as_the_gains_of_the_steps(
    pair: PairWriter, lengths: list[int], student: float
) -> None:
    found = nadi.what_if(steps_of(pair, lengths), "scale aten::mm 0.5").interval
    count, gains = len(lengths), [250 * length for length in lengths]
    half = count * student * stdev(gains) * (1 + 1 / count) ** 0.5
    assert found.gain_high_ns == pytest.approx(sum(gains) + half, abs=1)
    assert found.gain_low_ns == pytest.approx(max(sum(gains) - half, 0), abs=1)


def test_the_step_time_varies_by_a_factor(pair: PairWriter) -> None:
    # each step is the one before times 1.5: the logarithms differ by log(1.5)
    found = nadi.what_if(steps_of(pair, [100, 150]), "scale aten::mm 0.5").interval
    of_steps = log(1.5) / 2**0.5 * TWO_STEPS * 1.5**0.5
    assert found.variation == pytest.approx(exp(hypot(of_steps, RECORDINGS)), rel=1e-9)
    assert found.low_ns == round(187_500 / found.variation)
    assert found.high_ns == round(187_500 * found.variation)


def test_repeats_with_the_same_latency_confirm_an_inferred_dependency(pair: PairWriter) -> None:
    graph = with_gloo(pair, [300, 700, 500, 400], latency=50)
    assert unconfirmed_edges(graph).size == 0
    found = nadi.what_if(graph, "scale gloo 0.5")
    assert found.gain_ns == found.interval.gain_low_ns == (150 + 350 + 250 + 200) * 1_000


def test_an_inferred_dependency_without_repeats_may_be_wrong(pair: PairWriter) -> None:
    graph = with_gloo(pair, [300, 700], latency=50)
    assert unconfirmed_edges(graph).size == 2
    found = nadi.what_if(graph, "scale gloo 0.5")
    assert (found.interval.gain_low_ns, found.interval.gain_high_ns) == (0, found.gain_ns)
    assert found.gain_ns == (150 + 350) * 1_000


def test_a_delay_may_disappear_with_the_work_before_it(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 10)
    for number, (launch, start) in enumerate([(2, 10), (100, 3_000)]):
        pair.event("cudaLaunchKernel", launch, 5, "cuda_runtime", correlation=number)
        pair.event("gemm", start, 200, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
    pair.op("aten::add", 100, 10)
    graph = nadi.build_graph(nadi.load_job(pair.write()[1]))
    found = nadi.what_if(graph, "remove gemm")
    # the second kernel starts late for no known reason; without the delay, the gain is what the
    # kernels take after their launches
    assert found.interval.gain_low_ns < found.gain_ns == found.interval.gain_high_ns


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(jobs)
@example(EVERY_KIND)
def test_intervals_hold_the_prediction(description: object) -> None:
    graph = nadi.build_graph(load(description))
    for change in ("scale . 0.5", "scale . 2", "no-gaps"):
        found = nadi.what_if(graph, change)
        interval = found.interval
        assert interval.low_ns <= found.step_ns <= interval.high_ns
        assert interval.gain_low_ns <= found.gain_ns <= interval.gain_high_ns


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_resnet_pair", "gpu_dlrm8"])
def test_no_change_has_no_gain(shared_traces: Path, name: str) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / name))
    interval = nadi.what_if(graph, "scale . 1").interval
    assert (interval.gain_low_ns, interval.gain_high_ns) == (0, 0)


def test_a_gain_that_varies_more_than_it_is_may_be_none_at_all(pair: PairWriter) -> None:
    found = nadi.what_if(steps_of(pair, [100, 150]), "scale aten::mm 0.5").interval
    assert found.gain_low_ns == 0
    found = nadi.what_if(steps_of(pair, [100, 150]), "scale aten::mm 1.5").interval
    assert found.gain_high_ns == 0


def test_quantiles_are_those_of_students_distribution() -> None:
    for freedom, quantile in enumerate(_STUDENT, 1):
        at = np.linspace(0, quantile, 20_001)
        scale = gamma((freedom + 1) / 2) / (gamma(freedom / 2) * sqrt(freedom * pi))
        density = scale * (1 + at**2 / freedom) ** (-(freedom + 1) / 2)
        below = 0.5 + (density.sum() - (density[0] + density[-1]) / 2) * at[1]
        assert below == pytest.approx(0.95, abs=1e-4)
