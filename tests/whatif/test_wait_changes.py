"""Changes of waits in which no operation runs."""

from __future__ import annotations

import pytest

import nadi
from nadi.whatif import ScaleWait, Selection
from tests.conftest import PairWriter
from tests.graph.test_idle_threads import service


@pytest.mark.parametrize(("change", "gain"), [
    ("remove wait", 15_000_000), ("scale wait 0.5", 7_500_000), ("scale wait 0", 15_000_000),
    ("scale wait 2", -15_000_000), ("remove wait in=fetch", 15_000_000),
    ("scale wait in=fetch 0.1", 13_500_000), ("remove wait op0", 15_000_000),
    ("remove wait in=ProfilerStep#1", 5_000_000), ("remove wait rank=0 kind=operator", 15_000_000),
])  # fmt: skip
def test_a_wait_lasts_as_long_as_asked(pair: PairWriter, change: str, gain: int) -> None:
    assert nadi.what_if(service(pair), change).gain_ns == gain


def test_changes_of_one_wait_follow_each_other(pair: PairWriter) -> None:
    graph = service(pair)
    assert nadi.what_if(graph, "scale wait 0.5", "scale wait in=fetch 0.5").gain_ns == 11_250_000
    assert nadi.what_if(graph, "remove wait", "scale wait 0.5").gain_ns == 15_000_000


def test_nothing_before_a_moment_changes(pair: PairWriter) -> None:
    graph = service(pair)
    steps = nadi.graph.find_steps(graph)
    answer = nadi.what_if(graph, "remove wait", window=steps[1])
    assert answer.gain_ns == 5_000_000
    early = graph.time < steps[1].start(graph.time)
    assert (answer.replay.time[: graph.num_vertices][early] == graph.time[early]).all()


@pytest.mark.parametrize("change", ["remove wait in=op1", "remove wait op3", "scale wait op3 2"])
def test_no_such_wait_is_an_error(pair: PairWriter, change: str) -> None:
    with pytest.raises(nadi.errors.UsageError, match="none of the 3 waits"):
        nadi.what_if(service(pair), change)


def test_an_operation_that_is_called_wait_is_quoted() -> None:
    assert nadi.whatif.parse_change("remove 'wait'") == nadi.whatif.Remove(Selection("wait"))
    assert nadi.whatif.parse_change("remove waited") == nadi.whatif.Remove(Selection("waited"))
    assert nadi.whatif.parse_change("remove wait") == ScaleWait(Selection(), 0.0)
    assert str(nadi.whatif.Remove(Selection("wait"))) == "remove 'wait'"


def test_a_factor_has_to_follow(pair: PairWriter) -> None:
    for text in ("scale wait", "scale wait in=fetch"):
        with pytest.raises(nadi.errors.UsageError, match=r"number|word is missing"):
            nadi.what_if(service(pair), text)


def test_the_longest_wait_is_suggested(pair: PairWriter) -> None:
    graph = service(pair)
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    best = nadi.whatif.best_changes(graph, window, path)[0]
    assert (str(best.change), best.gain_ns) == ("remove wait in=^fetch$", 15_000_000)
