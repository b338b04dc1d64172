"""Schedules of pipelines: complete, without deadlock, and as fast and small as was published."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nadi.errors import UsageError
from nadi.models.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    SCHEDULES,
    WEIGHT_GRADIENT,
    chunks_per_stage,
    neighbors,
    pipeline_schedule,
)
from tests.reference.pipeline_times import peak, position, run

LETTERS = {FORWARD: "F", INPUT_GRADIENT: "B", WEIGHT_GRADIENT: "W", BACKWARD: "b"}
AT_BACKWARD, AT_END = (BACKWARD, INPUT_GRADIENT), (BACKWARD, WEIGHT_GRADIENT)
durations = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))


@st.composite
def pipelines(draw: Any, *schedules: str) -> tuple[str, int, int, int]:
    """Draw a schedule and numbers of stages, micro-batches and chunks that it exists for."""
    schedule = draw(st.sampled_from(schedules or SCHEDULES))
    p, m = draw(st.integers(1, 9)), draw(st.integers(1, 24))
    if schedule == "interleaved":
        return schedule, p, p * draw(st.integers(1, 4)), draw(st.integers(2, 4))
    if schedule == "dualpipe":
        p = 2 * draw(st.integers(1, 5))
        m = 2 * p + 2 * draw(st.integers(0, 8))
    return schedule, p, m, 1


def shown(schedule: Any, stage: int, p: int, m: int, v: int = 1) -> str:
    """Write a stage's order: letter, micro-batch from 1, and a chunk as a letter if it has some."""
    order = pipeline_schedule(schedule, p, m, v)[stage]
    words = (
        f"{LETTERS[int(phase)]}{micro_batch + 1}{'xyz'[chunk] if order.chunk.any() else ''}"
        for phase, chunk, micro_batch in zip(*order[:3], strict=True)
    )
    return " ".join(words)


def test_the_figures_of_the_papers() -> None:
    assert shown("gpipe", 0, 2, 3) == "F1 F2 F3 b1 b2 b3"
    # figure 3 of arXiv 2104.04473
    assert shown("1f1b", 0, 4, 5) == "F1 F2 F3 F4 b1 F5 b2 b3 b4 b5"
    assert shown("1f1b", 3, 4, 3) == "F1 b1 F2 b2 F3 b3"
    # figure 3 of arXiv 2401.10241
    assert shown("zero-bubble", 0, 3, 4) == "F1 F2 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4"
    assert shown("zero-bubble-h2", 0, 2, 4) == "F1 F2 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4"
    assert shown("zero-bubble-h2", 1, 2, 4) == "F1 B1 F2 B2 F3 B3 W1 F4 B4 W2 W3 W4"
    assert shown("zero-bubble", 2, 3, 4) == "F1 B1 F2 B2 F3 B3 W1 F4 B4 W2 W3 W4"
    # figure 4 of arXiv 2104.04473: four stages with two chunks, x and y
    assert shown("interleaved", 3, 4, 8, 2).startswith(
        "F1x F2x F3x F4x F1y b1y F2y b2y F3y b3y F4y b4y F5x b1x"
    )
    assert shown("interleaved", 0, 4, 8, 2).startswith(
        "F1x F2x F3x F4x F1y F2y F3y F4y F5x F6x F7x b1y F8x b2y F5y b3y"
    )


def test_dualpipe_as_its_report_draws_it() -> None:
    """Figure 5 of arXiv 2412.19437: eight stages, and ten micro-batches from each end."""
    first, fourth = (shown("dualpipe", stage, 8, 20) for stage in (0, 3))
    assert first.startswith("F1x F2x F3x F4x F5x F6x F7x F11y B11y W11y F12y B12y W12y F13y")
    assert first.endswith("b5x b19y F20y b6x b20y B7x W7x B8x W8x B9x W9x B10x W10x")
    assert fourth.startswith("F1x F11y F2x F12y F3x F13y F4x F14y F5x b11y F15y b1x F6x b12y")
    orders = pipeline_schedule("dualpipe", 8, 20)
    # the two ends mirror each other
    for one, other in zip(orders, reversed(orders), strict=True):
        assert np.array_equal(one.phase, other.phase)
        assert np.array_equal(one.chunk, 1 - other.chunk)
        assert np.array_equal(one.micro_batch, (other.micro_batch + 10) % 20)
        assert one.overlaps_next.sum() > 0


@given(pipelines())
def test_everything_is_done_once_where_it_belongs(pipeline: Any) -> None:
    schedule, p, m, v = pipeline
    chunks = chunks_per_stage(schedule, v)
    orders = pipeline_schedule(schedule, p, m, v)
    assert len(orders) == p
    for stage, order in enumerate(orders):
        assert {one.dtype for one in order[:3]} == {np.dtype(np.int64)}
        done: Counter[tuple[str, int, int]] = Counter()
        for phase, chunk, micro_batch in zip(*order[:3], strict=True):
            for letter in "BW" if phase == BACKWARD else LETTERS[int(phase)]:
                done[letter, int(chunk), int(micro_batch)] += 1
        wanted = {
            (letter, chunk, i) for letter in "FBW" for chunk in range(chunks) for i in range(m)
            if schedule != "dualpipe" or (i < m // 2) == (chunk == 0)
        }  # fmt: skip
        assert done == dict.fromkeys(wanted, 1), stage
        pairs = np.flatnonzero(order.overlaps_next)
        assert (order.phase[pairs] == FORWARD).all()
        assert (order.phase[pairs + 1] == BACKWARD).all()
        assert (order.chunk[pairs] != order.chunk[pairs + 1]).all()


@given(pipelines())
def test_neighbors_are_beside_each_other_in_the_model(pipeline: Any) -> None:
    schedule, p, _, v = pipeline
    chunks = chunks_per_stage(schedule, v)
    last = p - 1 if schedule == "dualpipe" else p * chunks - 1
    places = Counter()
    for stage in range(p):
        for chunk in range(chunks):
            found = neighbors(schedule, stage, chunk, p, v)
            places[found.position] += 1
            assert found.position == position(schedule, stage, chunk, p)
            assert (found.source is None) == (found.position == 0)
            assert (found.destination is None) == (found.position == last)
            if found.source:
                before = neighbors(schedule, *found.source, p, v)
                assert before.position == found.position - 1
                assert before.destination == (stage, chunk)
            if found.destination:
                assert neighbors(schedule, *found.destination, p, v).source == (stage, chunk)
    copies = 2 if schedule == "dualpipe" else 1
    assert places == dict.fromkeys(range(last + 1), copies)


@given(pipelines("gpipe", "1f1b", "interleaved"), durations)
def test_bubbles_of_fused_backward(pipeline: Any, times: tuple[int, int, int]) -> None:
    schedule, p, m, v = pipeline
    found = run(schedule, pipeline_schedule(schedule, p, m, v), times)
    assert found.busy == [m * v * sum(times)] * p  # the times are those of a chunk
    assert found.makespan == found.busy[0] + (p - 1) * sum(times)


@given(pipelines("zero-bubble"), durations)
def test_the_bubble_of_zb_h1(pipeline: Any, times: tuple[int, int, int]) -> None:
    schedule, p, m, _ = pipeline
    forward, of_input, of_weight = times
    found = run(schedule, pipeline_schedule(schedule, p, m), times)
    bubble = found.makespan - m * sum(times)
    if m >= p and of_weight <= min(forward, of_input):
        assert bubble == (p - 1) * (forward + of_input - of_weight)  # table 1 of the paper
    elif m >= p:  # a stage waits for the first B, or for what W is too long to be put in
        assert bubble == (p - 1) * max(of_input, forward + max(of_input - of_weight, 0))
    assert bubble <= (p - 1) * sum(times)  # with few micro-batches, W does not fill 1F1B's


@given(pipelines("zero-bubble-h2"), durations)
def test_the_bubble_of_zb_h2(pipeline: Any, times: tuple[int, int, int]) -> None:
    """Table 1 of the paper, between the first and the last work of the stage that waits most."""
    schedule, p, more, _ = pipeline
    forward, of_input, longest = times
    m, of_weight = 2 * p - 2 + more, min(forward, of_input, longest)
    orders = pipeline_schedule(schedule, p, m)
    found = run(schedule, orders, (forward, of_input, of_weight))
    waits = [span - m * (forward + of_input + of_weight) for span in found.spans]
    assert max(waits) == (p - 1) * (forward + of_input - 2 * of_weight)
    assert waits[-1] == 0


@given(pipelines("dualpipe"), st.integers(1, 20), st.integers(1, 20), st.integers(1, 60))
def test_the_bubble_of_dualpipe(pipeline: Any, forward: int, of_weight: int, both: int) -> None:
    """Table 2 of the report, which has F equal to B, where no gradient of weights is longer."""
    schedule, p, m, _ = pipeline
    of_weight = min(forward, of_weight)
    both = min(max(both, forward + of_weight), 2 * forward + of_weight)
    orders = pipeline_schedule(schedule, p, m)
    found = run(schedule, orders, (forward, forward, of_weight), overlapped=both)
    full = forward + of_weight
    # stages overlap different numbers: the one that works least waits for all of the bubble
    published = (p // 2 - 1) * (both + full - 3 * of_weight)
    assert found.makespan - min(found.busy) == published


@given(pipelines("dualpipe"), st.integers(1, 20), st.integers(1, 20))
def test_the_bubble_of_dualpipe_without_overlap(
    pipeline: Any, forward: int, of_weight: int
) -> None:
    """A forward that ends before the backward beside it lets the next stage start earlier."""
    schedule, p, m, _ = pipeline
    of_weight = min(forward, of_weight)
    found = run(schedule, pipeline_schedule(schedule, p, m), (forward, forward, of_weight))
    bubble = found.makespan - m * (2 * forward + of_weight)
    assert bubble == (p // 2 - 1) * (2 * forward - of_weight)


@given(pipelines())
def test_activations_in_flight(pipeline: Any) -> None:
    schedule, p, m, v = pipeline
    for stage, order in enumerate(pipeline_schedule(schedule, p, m, v)):
        held = peak(order, AT_BACKWARD)
        if schedule == "gpipe":
            assert held == m
        elif schedule == "interleaved":
            assert held == min(m * v, 2 * (p - 1 - stage) + (v - 1) * p + 1)
        elif schedule == "dualpipe":
            assert held == peak(order, AT_END) == p + 1
        elif schedule == "zero-bubble-h2":
            assert held == min(m, 2 * (p - 1 - stage) + 1)
        else:
            assert held == min(m, p - stage)
    if schedule == "zero-bubble":  # what W needs is kept longer, but no stage has more than 1F1B's
        orders = pipeline_schedule(schedule, p, m)
        assert max(peak(order, AT_END) for order in orders) == min(m, p)
    if schedule == "zero-bubble-h2":
        orders = pipeline_schedule(schedule, p, m)
        assert max(peak(order, AT_END) for order in orders) == min(m, 2 * p - 1)


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        (("interleaved", 4, 10, 2), "8 or 12 micro-batches would fit"),
        (("interleaved", 4, 3, 2), "4 micro-batches would fit"),
        (("interleaved", 4, 8, 1), "or use 1f1b"),
        (("1f1b", 4, 8, 2), "for schedule interleaved only"),
        (("gpipe", 0, 8, 1), "are not all 1 or more"),
        (("dualpipe", 5, 20, 1), "4 or 6 stages would fit"),
        (("dualpipe", 1, 20, 1), "2 stages would fit"),
        (("dualpipe", 8, 21, 1), "22 micro-batches would fit"),
        (("dualpipe", 8, 8, 1), "16 micro-batches would fit"),
        (("zigzag", 4, 8, 1), "use one of gpipe, 1f1b"),
    ],
)
def test_impossible_pipelines_are_refused_with_what_would_fit(numbers: Any, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        pipeline_schedule(*numbers)
