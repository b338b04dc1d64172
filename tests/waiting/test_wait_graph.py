"""The wait-for graph against a slow model, and switches as timelines."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.bottlenecks import Actor, SegmentKind, Segments, Timelines, make_timelines
from nadi.files.switches import SWITCH, WAKEUP, SwitchEvents
from tests.amounts import examples
from tests.reference.wait_cascade import Segment, cascaded_waits, plain_knots

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "data" / "golden" / "wperf"
ACTORS = 5


@st.composite
def timelines(draw: st.DrawFn) -> dict[int, list[Segment]]:
    """Give waits of actors, in between work."""
    found = {}
    for actor in range(ACTORS):
        borders = sorted(draw(st.sets(st.integers(0, 60), max_size=10)))
        targets = st.integers(-1, ACTORS - 1).filter(lambda t, own=actor: t != own)
        found[actor] = [(a, b, draw(targets)) for a, b in pairwise(borders)]
    return found


def made(segments: dict[int, list[Segment]], length: int = 100) -> Timelines:
    rows = [(actor, *one) for actor, each in segments.items() for one in each]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    actor, start, end, target = table.T.copy()
    kind = np.where(target >= 0, SegmentKind.WAIT, SegmentKind.RUN).astype(np.int64)
    part = Segments(actor, kind, start, end, target, np.full(actor.size, -1))
    return make_timelines([Actor(f"a{n}", "thread") for n in range(ACTORS)], part, 0, length)


def weights(graph: nadi.bottlenecks.WaitGraph) -> dict[tuple[int, int], int]:
    columns = (graph.waiter.tolist(), graph.target.tolist(), graph.weight.tolist())
    return {(a, b): w for a, b, w in zip(*columns, strict=True)}


@settings(max_examples=examples(200), deadline=None)
@given(timelines())
def test_waits_are_those_of_the_slow_model(segments: dict[int, list[Segment]]) -> None:
    assert weights(nadi.bottlenecks.wait_graph(made(segments))) == cascaded_waits(segments)


EDGES = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(0, 500), max_size=14
)


@settings(max_examples=examples(300), deadline=None)
@given(EDGES)
def test_knots_are_those_of_the_slow_model(edges: dict[tuple[int, int], int]) -> None:
    found = nadi.bottlenecks.find_knots(edges, 1000)
    assert set(found) == plain_knots(edges, 1000)


def test_the_example_of_the_paper() -> None:
    graph = nadi.bottlenecks.wait_graph(made({1: [(1, 8, 2)], 2: [(2, 6, 3)]}, 10))
    assert weights(graph) == {(1, 2): 7, (2, 3): 8}
    assert graph.direct.tolist() == [7, 4]
    assert graph.knots == ((3,),)
    assert graph.frame().rows() == [("a2", "a3", 4, 8, 0.8), ("a1", "a2", 7, 7, 0.7)]


def test_segments_are_cut_at_the_window() -> None:
    whole = made({0: [(0, 10, -1), (10, 30, 1), (40, 50, 2)]})
    cut = make_timelines(list(whole.actors), whole.segments, 5, 20)
    assert cut.frame().select("kind", "start", "end").rows() == [("run", 5, 10), ("wait", 10, 20)]


def switches(*rows: tuple[int, int, int, int, int, bool]) -> SwitchEvents:
    columns = zip(*rows, strict=True)
    kind, time, before, after, cause, stays = (np.array(column) for column in columns)
    return SwitchEvents(kind, time, before, after, cause, stays)


def test_a_thread_waits_for_who_wakes_it() -> None:
    found = nadi.bottlenecks.switch_timelines(switches(
        (SWITCH, 0, 0, 1, 0, True), (SWITCH, 0, 0, 2, 0, True), (WAKEUP, 2, 2, 1, 0, False),
        (SWITCH, 5, 1, 0, 0, False), (WAKEUP, 8, 2, 1, 0, False), (SWITCH, 9, 0, 1, 0, True),
        (SWITCH, 10, 2, 3, 0, True), (SWITCH, 12, 1, 0, 0, False), (WAKEUP, 15, 3, 1, -5, False),
        (SWITCH, 16, 3, 2, 0, False), (SWITCH, 17, 0, 1, 0, True), (SWITCH, 20, 1, 0, 0, False),
    ))  # fmt: skip
    rows = found.frame().filter(actor="thread 1").select("kind", "start", "end", "waits_for").rows()
    assert rows == [
        ("run", 0, 5, ""), ("wait", 5, 8, "thread 2"), ("runnable", 8, 9, ""), ("run", 9, 12, ""),
        ("wait", 12, 15, "disk"), ("runnable", 15, 17, ""), ("run", 17, 20, ""),
    ]  # fmt: skip
    assert ("runnable", 10, 16) in found.frame().filter(actor="thread 2").select(
        "kind", "start", "end"
    ).rows()


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared data are not here")
def test_waits_are_those_of_wperf() -> None:
    for case in json.loads(gzip.decompress((GOLDEN / "cases.json.gz").read_bytes())):
        events = np.array(case["events"])
        made = SwitchEvents(*(events[:, c] for c in (0, 1, 3, 4, 5)), events[:, 6] == 0)
        graph = nadi.bottlenecks.wait_graph(nadi.bottlenecks.switch_timelines(made, case["tids"]))
        assert sorted(round(w / 1e9, 6) for w in graph.weight.tolist()) == sorted(
            case["waitfor"].values()
        )
