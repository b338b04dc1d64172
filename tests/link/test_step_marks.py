"""Steps that were marked inside of the range of an optimizer, and where they belong."""

from __future__ import annotations

import pytest

import nadi
from nadi.recordings.step_marks import num_steps_of
from tests.conftest import PairWriter

MARK = {"cat": "user_annotation"}


def nested(pair: PairWriter, *, tail: int = 2) -> None:
    """Write two steps; the second is marked in the optimizer of the first, ``tail`` us before.

    The observer takes the first mark for the parent of all that follows.
    """
    first = pair.op("ProfilerStep#1", 0, 90, **MARK)
    pair.op("forward", 10, 30, parent=first)
    optimizer = pair.op("Optimizer.step#SGD.step", 60, 40 + tail, parent=first, **MARK)
    pair.op("add", 70, 10, parent=optimizer)
    pair.op("ProfilerStep#2", 100, 100, parent=first, **MARK)
    pair.op("backward", 150, 30, parent=optimizer)


def parents(trace: nadi.Trace) -> dict[str, str]:
    names = trace.nodes["name"].to_list()
    found = zip(names, trace.column("parent").tolist(), strict=True)
    return {name: names[row] if row >= 0 else "" for name, row in found}


def test_a_job_has_the_steps_that_are_marked_or_one_if_it_was_generated(pair: PairWriter) -> None:
    nested(pair)
    assert num_steps_of(nadi.load_job(*pair.write())) == 2
    other = PairWriter(pair.folder)
    other.op("add", 0, 5)
    job = nadi.load_job(*other.write("-without"))
    assert num_steps_of(job) == num_steps_of(job.traces) == num_steps_of(nadi.fold(job)) == 0
    assert num_steps_of(nadi.models.llm_job("gpt3-125m", tp=2)) == 1


@pytest.mark.parametrize("with_host", [True, False])
def test_an_optimizer_ends_at_the_mark_in_it(pair: PairWriter, *, with_host: bool) -> None:
    nested(pair)
    host, device = map(nadi.read, pair.write())
    trace = nadi.link_pair(host, device) if with_host else nadi.recordings.link_device(device)
    found = parents(trace)
    assert found["backward"] == "ProfilerStep#2"
    assert found["add"] == "Optimizer.step#SGD.step"
    assert found["Optimizer.step#SGD.step"] == "ProfilerStep#1"
    length = dict(zip(trace.nodes["name"], trace.column("duration").tolist(), strict=True))
    assert length["Optimizer.step#SGD.step"] == 40_000
    assert length["ProfilerStep#1"] == 100_000
    assert length["ProfilerStep#2"] == 100_000
    (issue,) = trace.issues.filter(code="link.nested-steps").rows(named=True)
    assert (issue["count"], issue["severity"]) == (1, "warning")


def test_a_range_that_lasts_for_most_of_the_step_is_kept(pair: PairWriter) -> None:
    nested(pair, tail=60)
    _, device = map(nadi.read, pair.write())
    trace = nadi.recordings.link_device(device)
    assert trace.column("duration").tolist() == device.column("duration").tolist()
    assert trace.issues.filter(code="link.nested-steps").is_empty()


def test_frames_that_set_a_mark_end_at_it_without_a_warning(pair: PairWriter) -> None:
    frame = {"cat": "python_function"}
    pair.op("ProfilerStep#1", 0, 96, **MARK)
    pair.event("torch/profiler/profiler.py(832): step", 90, 14, **frame)
    pair.event("torch/autograd/profiler.py(770): __enter__", 97, 6, **frame)
    pair.op("ProfilerStep#2", 100, 100, **MARK)
    pair.op("forward", 150, 30)
    _, device = map(nadi.read, pair.write())
    trace = nadi.recordings.link_device(device)
    assert trace.issues.filter(code="link.nested-steps").is_empty()
    assert parents(trace)["forward"] == "ProfilerStep#2"
    length = dict(zip(trace.nodes["name"], trace.column("duration").tolist(), strict=True))
    assert length["torch/profiler/profiler.py(832): step"] == 10_000
