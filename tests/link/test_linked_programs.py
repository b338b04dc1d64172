"""Random programs, played by a machine that knows what waited for what, recorded and linked."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph
from tests.amounts import examples
from tests.reference.machine import Do, Key, Machine, Moment, Play, Program, play, scaled
from tests.reference.programs import MAIN, Action, Description, descriptions, program_of
from tests.reference.recorder import record

FACTORS = (0, 0.5, 0.5, 1, 3)
WAITING = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
)  # fmt: skip
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
        factor_of_op = np.ones(graph.num_ops)
        for key, factor in factors.items():
            factor_of_op[self.op_of_key[key]] = factor
        changes = (graph.edge_op >= 0) & np.isin(graph.edge_kind, WORK)
        factor_of_edge = np.where(changes, factor_of_op[graph.edge_op], 1)
        return graph.with_weights((graph.weight * factor_of_edge).astype(np.int64))


def link(
    program: Program, machine: Machine, *, sync_events: bool = False, clocks: Sequence[int] = ()
) -> Linked:
    played = play(program, machine)
    with tempfile.TemporaryDirectory() as folder:
        keys = record(program, played, Path(folder), sync_events=sync_events, clocks=clocks)
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
    replayed = nadi.graph.replay_graph(linked.graph).time
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
    replayed = nadi.graph.replay_graph(linked.changed(factors)).time
    assert not different(linked.times(replayed), expected(played))
    return True


def reach(sources: Mapping[Moment, set[Moment]], bit: Mapping[Moment, int]) -> dict[Moment, int]:
    """Tell which moments of ``bit`` each of them comes after, as the bits of a number."""
    before: dict[Moment, int] = {}
    for moment in TopologicalSorter(sources).static_order():
        before[moment] = 0
        for source in sources.get(moment, ()):
            before[moment] |= before[source] | bit.get(source, 0)
    return {moment: before[moment] for moment in bit}


def check_dependencies(linked: Linked) -> None:
    """Let the graph say of every two moments what the program does: which comes after which."""
    graph = linked.graph
    name_of: dict[int, Moment] = {}
    for key, op in linked.op_of_key.items():
        name_of[2 * op], name_of[2 * op + 1] = (*key, "start"), (*key, "end")
    sources: dict[Moment, set[Moment]] = {}
    for vertex in range(graph.num_vertices):
        edges = slice(graph.in_ptr[vertex], graph.in_ptr[vertex + 1])
        sources[name_of.get(vertex, ("hub", vertex))] = {
            name_of.get(source, ("hub", source)) for source in graph.in_src[edges].tolist()
        }
    bit = {moment: 1 << number for number, moment in enumerate(name_of.values())}
    found, true = reach(sources, bit), reach(linked.played.order(), bit)

    def named(moments: int) -> list[Moment]:
        return [moment for moment, own in bit.items() if moments & own]

    false = {m: named(found[m] & ~true[m]) for m in bit if found[m] & ~true[m]}
    missing = {m: named(true[m] & ~found[m]) for m in bit if true[m] & ~found[m]}
    assert not false, f"false: {false}"
    assert not missing, f"missing: {missing}"


def check_changes(linked: Linked, generator: random.Random) -> None:
    operations = linked.played.operations
    work = [op.key for op in operations if op.launcher]
    host = [op.key for op in operations if not op.launcher and op.name not in WAITING]
    check_change(linked, dict.fromkeys(work + host, 0.5))
    check_halved_device(linked, work)
    for keys in (work, host):
        after = [key for key in keys if is_after_calibration(linked.program, key)] or keys
        check_change(linked, {generator.choice(after): 0, generator.choice(after): 3})
        check_change(linked, {key: generator.choice(FACTORS) for key in after})


def check_halved_device(linked: Linked, work: list[Key]) -> None:
    """Let the question that a user asks have the answer that the machine gives."""
    played = play(scaled(linked.program, dict.fromkeys(work, 0.5)), linked.machine)
    if played.order() == linked.played.order():
        change = nadi.whatif.parse_change("scale ^(gemm|Memset|Memcpy|nccl) 0.5")
        replayed = nadi.graph.replay_graph(nadi.whatif.apply_change(linked.graph, change)).time
        assert not different(linked.times(replayed), expected(played))


def is_after_calibration(program: Program, key: Key) -> bool:
    rank, thread, index, _ = key
    return thread != MAIN or index > program.ranks[rank].threads[0].todo.index(Do("close"))


OPERATORS = ("open", "open", "close", "close")
HOST = (*OPERATORS, "annotate")
LAUNCHES = ("launch", "launch", "launch_graph", "memset", "copy")
WAITS = ("fetch", "stage", "synchronize")
EVENTS = ("cross", "cross", "record", "wait", "synchronize_event", "synchronize_stream")
EVERYTHING = (*HOST, *LAUNCHES, *WAITS, *EVENTS)
COLLECTIVES = ("all_reduce", "all_reduce", "all_reduce_here", "transfer", "synchronize")


@dataclass(frozen=True)
class Case:
    """A set of statements, and the machine that plays programs of them."""

    descriptions: st.SearchStrategy[Description]
    machine: Machine
    sync_events: bool = False
    max_examples: int = 25


QUICK = Machine()
EVEN = Machine(latency=2_200, turnaround=900, wake_up=8_000, own=8_000)
SLOW_TO_CALL = Machine(copy_latency=14_000, turnaround=1_200, wake_up=3_000, own=9_000)
SLOW_TO_CROSS = Machine(
    latency=2_200, copy_latency=13_000, turnaround=900, crossing=1_500, wake_up=9_000, own=3_000
)
SHORT_QUEUES = replace(EVEN, queue_length=2)


def with_full_queues(description: Description) -> Description:
    """Let every launch take the same time by itself, which is all that shows of those that wait."""
    return tuple(
        tuple((Action("fill", device=9), *(replace(one, host=100) for one in thread))
              for thread in rank)
        for rank in description
    )  # fmt: skip


CASES = {
    "launches and streams": Case(descriptions((*HOST, *LAUNCHES)), QUICK, max_examples=15),
    "calls that wait": Case(descriptions((*HOST, *LAUNCHES, *WAITS)), QUICK, max_examples=15),
    "calls that take their time": Case(
        descriptions((*HOST, *LAUNCHES, *WAITS)), EVEN
    ),
    "two threads": Case(
        descriptions((*HOST, *LAUNCHES, *WAITS), num_threads=2), SLOW_TO_CALL, max_examples=30
    ),
    "hand-overs": Case(
        descriptions((*OPERATORS, *LAUNCHES, *WAITS, "hand_over", "hand_over"), num_threads=2),
        EVEN, max_examples=15,
    ),
    "events": Case(descriptions(EVERYTHING), EVEN, sync_events=True, max_examples=15),
    "events that take their time": Case(
        descriptions(EVERYTHING, num_threads=2), SLOW_TO_CROSS, sync_events=True, max_examples=20
    ),
    "collectives": Case(
        descriptions((*HOST, *LAUNCHES, *WAITS), together=COLLECTIVES, num_ranks=3),
        EVEN, max_examples=10,
    ),
    "full queues": Case(
        descriptions((*LAUNCHES, *LAUNCHES, *EVERYTHING)).map(with_full_queues), SHORT_QUEUES,
        sync_events=True, max_examples=12,
    ),
    "everything": Case(
        descriptions(EVERYTHING, together=COLLECTIVES, num_ranks=4, num_threads=2),
        SLOW_TO_CROSS, sync_events=True, max_examples=6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_linked_recording_says_what_the_program_does(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the durations, the graph replays as the program plays.

    All of it is exact where the recording states what waits for what. Statements of two
    threads that speak to the device at the same nanosecond, and changes that let threads
    overtake each other, are other programs: they are ignored. A thread that hands work
    over does so outside of operators and does something afterwards, for the wait is seen in
    the times alone.
    """
    monkeypatch.setattr(
        "nadi.recordings.dependencies.synchronization.QUEUE_LENGTH", case.machine.queue_length
    )

    @settings(
        max_examples=examples(case.max_examples), suppress_health_check=[HealthCheck.too_slow]
    )
    @given(case.descriptions, st.randoms(use_true_random=False))
    def holds(description: Description, generator: random.Random) -> None:
        program = program_of(description)
        assume(not play(program, case.machine).has_ties)
        linked = link(program, case.machine, sync_events=case.sync_events)
        check_identity(linked)
        check_explained(linked)
        check_dependencies(linked)
        check_changes(linked, generator)

    holds()


SECOND = 1_000_000_000


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])
@given(
    descriptions((*HOST, *LAUNCHES, *WAITS), together=COLLECTIVES, num_ranks=3),
    st.tuples(*3 * [st.sampled_from((0, 20_000, SECOND, -SECOND))]),
    st.randoms(use_true_random=False),
)
def test_clocks_of_ranks_are_found(
    description: Description, clocks: tuple[int, int, int], generator: random.Random
) -> None:
    """What is possible of clocks holds the truth, and where none can be right it is found.

    The kernels of a collective end on all ranks at once here.
    """
    everyone = Action("all_reduce", device=3)  # so that clocks can be compared
    program = program_of(tuple(((*main, everyone), *more) for main, *more in description))
    linked = link(program, EVEN, clocks=clocks)
    found = linked.graph.job.clocks
    truth = clocks[0] - np.array(clocks)
    low, high, shift = (found[name].to_numpy() for name in ("low", "high", "shift"))
    assert found["reference"].to_list() == [0, 0, 0]
    assert (low <= truth).all()
    assert (truth <= high).all()
    is_off = np.abs(truth) > SECOND // 2
    assert (shift[is_off] == truth[is_off]).all()
    if (shift == truth).all():
        check_identity(linked)
        check_explained(linked)
        check_dependencies(linked)
        check_changes(linked, generator)


MOST_UNEXPLAINED_NS = 3_000  # work that is no later than this is not taken to have waited
LEAST_TRUE = 0.95


def test_what_is_not_stated_is_guessed_from_the_times() -> None:
    """Without synchronization events every wait that shows is explained, nearly always truly.

    What is guessed beside the truth is another end in the same few microseconds.
    """
    is_true: list[bool] = []
    strategy = descriptions((*LAUNCHES, "launch", "fetch", *EVENTS), num_threads=2)

    @settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
    @given(strategy)
    def holds(description: Description) -> None:
        program = program_of(description)
        assume(not play(program, EVEN).has_ties)
        linked = link(program, EVEN)
        check_identity(linked)
        graph = linked.graph
        delays = graph.delay[np.diff(graph.in_ptr) > 0]
        assert delays.max(initial=0) < MOST_UNEXPLAINED_NS
        is_true.extend(guesses(linked))

    holds()
    assert len(is_true) > 100
    assert np.mean(is_true) > LEAST_TRUE


def guesses(linked: Linked) -> list[bool]:
    """Tell of each dependency that the recording does not state whether it is there."""
    played, graph = linked.played, linked.graph
    key_of_row = {int(graph.op_row[op]): key for key, op in linked.op_of_key.items()}
    bit = {moment: 1 << number for number, moment in enumerate(expected(played))}
    true = reach(played.order(), bit)
    deps = graph.job.traces[0].deps.filter("inferred")
    side = deps["kind"].replace_strict({"sync": "end", "event": "start"})
    return [
        bool(bit[*key_of_row[src], "end"] & true[*key_of_row[dst], name])
        for src, dst, name in zip(deps["src"], deps["dst"], side, strict=True)
    ]


EVERY_KIND = tuple(
    (
        (
            Action("open"), Action("launch", host=late, device=60), Action("cross", device=60),
            Action("all_reduce", device=5), Action("fetch"), Action("synchronize"),
        ),
    )
    for late in (1, 50)
)  # fmt: skip


@pytest.mark.parametrize("kind", ["launch", "stream", "event", "sync", "collective"])
def test_a_dependency_that_is_left_out_is_missed(kind: str) -> None:
    linked = link(program_of(EVERY_KIND), EVEN, sync_events=True)
    check_dependencies(linked)
    job = linked.graph.job
    if kind == "collective":
        job = replace(job, matches=job.matches.clear())
    else:
        traces = [replace(t, deps=t.deps.filter(pl.col("kind") != kind)) for t in job.traces]
        job = replace(job, traces=tuple(traces))
    with pytest.raises(AssertionError, match="missing"):
        check_dependencies(replace(linked, graph=nadi.build_graph(job)))
    work = [op.key for op in linked.played.operations if op.launcher]
    with pytest.raises(AssertionError):
        check_change(replace(linked, graph=nadi.build_graph(job)), dict.fromkeys(work, 3))
