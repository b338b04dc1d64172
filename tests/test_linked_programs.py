"""Random programs, played by a machine that knows what waited for what, recorded and linked."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nadi
from nadi.graph import EdgeKind, EventGraph
from tests.reference.machine import Key, Machine, Moment, Play, Program, play, scaled
from tests.reference.programs import programs
from tests.reference.recorder import record

WORK = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.COMMUNICATION)


@dataclass(frozen=True)
class Linked:
    """A program, its play, and the graph that its recording was linked to."""

    program: Program
    machine: Machine
    played: Play
    graph: EventGraph
    op_of_key: Mapping[Key, int]

    def times(self, time: np.ndarray) -> dict[Moment, int]:
        """Give the moments of operations in a replay."""
        return {
            (*key, name): int(time[2 * op + side])
            for key, op in self.op_of_key.items()
            for side, name in enumerate(("start", "end"))
        }

    def changed(self, factors: Mapping[Key, float]) -> EventGraph:
        """Multiply the own time of operations."""
        graph = self.graph
        weight = graph.weight.astype(np.float64)
        for key, factor in factors.items():
            edges = (graph.edge_op == self.op_of_key[key]) & np.isin(graph.edge_kind, WORK)
            weight[edges] *= factor
        return graph.with_weights(weight.astype(np.int64))


def link(program: Program, machine: Machine, *, sync_events: bool = False) -> Linked:
    played = play(program, machine)
    with tempfile.TemporaryDirectory() as folder:
        keys = record(program, played, Path(folder), sync_events=sync_events)
        graph = nadi.build_graph(nadi.load_job(folder))
    ranks = np.array(graph.job.ranks)[graph.op_trace].tolist()
    events = graph.gather("event").to_list()
    op_of_key = {keys[place]: op for op, place in enumerate(zip(ranks, events, strict=True))}
    assert set(op_of_key) == {operation.key for operation in played.operations}
    return Linked(program, machine, played, graph, op_of_key)


def expected(played: Play) -> dict[Moment, int]:
    return {m: played.times[m] for op in played.operations for m in (op.start, op.end)}


def different(found: Mapping[Moment, int], true: Mapping[Moment, int]) -> dict[Moment, str]:
    return {m: f"{found[m]} for {true[m]}" for m in true if found[m] != true[m]}


def check_identity(linked: Linked) -> None:
    replayed = linked.graph.replay().time
    assert not different(linked.times(replayed), expected(linked.played))


def check_explained(linked: Linked) -> None:
    graph = linked.graph
    entered = np.diff(graph.in_ptr) > 0
    names = graph.op_names.to_list()
    late = np.flatnonzero(entered & (graph.delay > 0)).tolist()
    assert not [(v, names[v // 2], int(graph.delay[v])) for v in late]


def check_change(linked: Linked, factors: Mapping[Key, float]) -> bool:
    """Let the changed graph replay as the changed program plays.

    Returns
    -------
    bool
        False where the changed program does things in another order, so that it is no
        longer the program that was recorded.
    """
    played = play(scaled(linked.program, factors), linked.machine)
    if played.order() != linked.played.order():
        return False
    replayed = linked.changed(factors).replay().time
    assert not different(linked.times(replayed), expected(played))
    return True


def reach(sources: Mapping[Moment, set[Moment]]) -> dict[Moment, set[Moment]]:
    """Give all moments of operations that each one comes after."""
    before: dict[Moment, set[Moment]] = {}
    for moment in TopologicalSorter(sources).static_order():
        direct = sources.get(moment, set())
        before[moment] = direct.union(*(before[source] for source in direct))
    operations = {m for m in before if m[-1] in ("start", "end")}
    return {m: before[m] & operations for m in operations}


def check_dependencies(linked: Linked) -> None:
    graph = linked.graph
    name_of: dict[int, Moment] = {}
    for key, op in linked.op_of_key.items():
        name_of[2 * op], name_of[2 * op + 1] = (*key, "start"), (*key, "end")
    sources: dict[Moment, set[Moment]] = {}
    for vertex in graph.order.tolist():
        edges = slice(graph.in_ptr[vertex], graph.in_ptr[vertex + 1])
        sources[name_of.get(vertex, ("hub", vertex))] = {
            name_of.get(source, ("hub", source)) for source in graph.in_src[edges].tolist()
        }
    found, true = reach(sources), reach(linked.played.order())
    false = {m: extra for m in true if (extra := found[m] - true[m])}
    missing = {m: extra for m in true if (extra := true[m] - found[m])}
    assert not false
    assert not missing


FACTORS = (0, 0.5, 0.5, 1, 3)
SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
HOST = ("open", "open", "annotate", "close", "close")
LAUNCHES = ("launch", "launch", "launch_graph", "memset", "copy")


def check(linked: Linked, generator: random.Random) -> None:
    check_identity(linked)
    check_explained(linked)
    check_dependencies(linked)
    work = [op.key for op in linked.played.operations if op.launcher]
    host = [
        op.key
        for op in linked.played.operations
        if op.category != "cuda_runtime" and not op.launcher
    ]
    calls = [op.key for op in linked.played.operations if op.name in NOT_WAITING]
    for keys in (work, host, calls, work + host + calls):
        for factor in (0, 0.5, 3):
            check_change(linked, dict.fromkeys(keys, factor))
        check_change(linked, {key: generator.choice(FACTORS) for key in keys})
        check_change(linked, {generator.choice(keys): 0})


NOT_WAITING = (
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cudaMemsetAsync",
    "cudaMemcpyAsync",
    "cudaLaunchKernelExC",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
)


@SETTINGS
@given(programs((*HOST, *LAUNCHES)), st.randoms(use_true_random=False))
def test_launches(program: Program, generator: random.Random) -> None:
    check(link(program, Machine()), generator)


@SETTINGS
@given(programs((*HOST, *LAUNCHES, "fetch", "synchronize")), st.randoms(use_true_random=False))
def test_syncs(program: Program, generator: random.Random) -> None:
    check(link(program, Machine()), generator)
