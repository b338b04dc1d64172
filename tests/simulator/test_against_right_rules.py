"""Random jobs under the right rules: the compiled engine ends each rank when the slow one does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nadi.simulation.lowering.shared_routes import shares_links
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.work.program import program_of
from nadi.systems import System
from nadi.systems.system import Collectives, Compute, Dimension, Network
from nadi.trace.collectives import COLLECTIVES
from nadi.trace.trace import Trace
from tests.amounts import examples, some
from tests.reference.right_rules import Machine, Work, finish_times
from tests.simulator.cases import Node, collective, compute, run_each, trace_of

SETTINGS = settings(
    max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck)
)
_NAMES = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
_TOPOLOGIES = ("ring", "switch", "fully-connected", "mesh")
_SHAPES = (
    (2,), (3,), (4,), (5,), (6,), (7,), (8,), (11,), (2, 2), (3, 2), (2, 4), (4, 3), (5, 2),
    (2, 2, 2), (3, 1, 2), (2, 3, 2),
)  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw a machine; the second half of a direct all-reduce is not in the slow model."""
    sizes = draw(st.sampled_from(_SHAPES))
    dims = tuple(
        (draw(st.sampled_from(_TOPOLOGIES)), n, draw(st.floats(0.5, 400)),
         float(draw(st.integers(0, 2000))))
        for n in sizes
    )  # fmt: skip
    algorithms = {}
    for comm in COLLECTIVES:
        sums = comm in ("all_reduce", "barrier")
        names = [name for name in _NAMES if name != "direct" or not sums]
        count = draw(st.sampled_from([1, len(sizes)]))
        chosen = [draw(st.sampled_from(names)) for _ in range(count)]
        if draw(st.integers(0, 5)) == 0:
            chosen = ["one" + chosen[0]]
        algorithms[comm] = tuple(chosen)
    return Machine(
        dims=dims,
        algorithms=algorithms,
        chunks=draw(st.integers(1, 5)),
        active=draw(st.integers(1, 3)),
        queues=draw(st.sampled_from([1, 1, 2, 3])),
        aware=draw(st.booleans()),
        delay=draw(st.integers(0, 40)),
        start=draw(st.sampled_from([0, 0, 3000])),
        memory_rate=draw(st.sampled_from([0.0, 50.0])),
    )


@st.composite
def groups_of(draw: st.DrawFn, machine: Machine) -> list[tuple[int, ...]]:
    """Draw groups that have each rank once: any two, or those that stand in some dimensions."""
    order = draw(st.permutations(range(machine.num_ranks)))
    if draw(st.booleans()):
        cut = draw(st.integers(1, machine.num_ranks - 1))
        return [tuple(order[:cut]), tuple(order[cut:])]
    cuts = [draw(st.integers(1, n)) for _, n, _, _ in machine.dims]
    apart = [draw(st.booleans()) for _ in machine.dims]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in order:  # those before a cut and those behind it are a grid each
        places = zip(machine.coordinates(rank), cuts, apart, strict=True)
        key = tuple(place if is_apart else int(place < cut) for place, cut, is_apart in places)
        found.setdefault(key, []).append(rank)
    return [tuple(members) for members in found.values()]


@st.composite
def jobs(draw: st.DrawFn, machine: Machine) -> list[list[Work]]:
    """Draw the work of each rank: computation of any length, so that ranks begin at odd times."""
    n = machine.num_ranks
    work: list[list[Work]] = [[] for _ in range(n)]
    groups = draw(groups_of(machine))
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["compute", "all", "all", "groups"]))
        if kind == "compute":
            for rank in range(n):
                work[rank].append(Work(time=1000 * draw(st.integers(1, 60))))
            continue
        comm = draw(st.sampled_from(tuple(COLLECTIVES)))
        size = draw(st.integers(1, 3_000_000))
        for members in groups if kind == "groups" else [()]:
            root = draw(st.sampled_from(members or range(n)))
            for rank in members or range(n):
                work[rank].append(Work(comm=comm, size=size, root=root, group=members))
    return work


def system_of(machine: Machine, jobs: list[list[Work]]) -> System:
    """Give the same machine as Nadi has it."""
    groups = {work.group for of_rank in jobs for work in of_rank if work.group}
    return System(
        Network(tuple(Dimension(*dim) for dim in machine.dims)),  # type: ignore[arg-type]
        slots="astra-sim",
        compute=Compute(memory_bandwidth=machine.memory_rate * 1e9),
        collectives=Collectives(
            **machine.algorithms,
            bandwidth_aware=machine.aware,
            chunks=machine.chunks,
            active_chunks=machine.active,
            queues=machine.queues,
            endpoint_delay=machine.delay,
            start_time=machine.start,
        ),
        groups={name_of(group): group for group in groups},
    )


def name_of(group: tuple[int, ...]) -> str:
    """Give a group a name."""
    return "group " + "-".join(map(str, group))


def traces_of(jobs: list[list[Work]], *, one_by_one: bool = True) -> list[Trace]:
    """Make the trace of each rank, in which one node waits for the other, or none for any."""
    traces = []
    for of_rank in jobs:
        nodes: list[Node] = []
        for k, work in enumerate(of_rank or [Work(time=1000)]):
            ends = {"comm_src": work.root, "comm_dst": work.root}
            if work.group:
                ends["pg_name"] = name_of(work.group)
            one = (
                collective(k, work.comm, work.size, **ends)
                if work.comm
                else compute(k, work.time // 1000)
            )
            nodes.append(one | {"data_deps": [k - 1] if k and one_by_one else [], "ctrl_deps": []})
        traces.append(trace_of(nodes))
    return traces


@SETTINGS
@given(st.data())
def test_every_rank_ends_when_the_slow_model_says(data: st.DataObject) -> None:
    machine = data.draw(machines(), label="machine")
    work = [of_rank or [Work(time=1000)] for of_rank in data.draw(jobs(machine), label="jobs")]
    expected = finish_times(machine, work)
    system, traces = system_of(machine, work), traces_of(work)
    assert run_each(traces, system, meet=False, flows=False).cycles.tolist() == expected
    assert run_each(traces, system, meet=True, flows=False).cycles.tolist() == expected
    if not shares_links(tables_of(program_of(traces), system)):
        assert simulate(traces, system).cycles.tolist() == expected


_PAIRS = [
    (name, comm_type)
    for name in _NAMES
    for comm_type in COLLECTIVES
    if name != "direct" or comm_type not in ("all_reduce", "barrier")
]


@pytest.mark.parametrize(
    ("name", "comm_type", "n"), some([(*pair, n) for pair in _PAIRS for n in (3, 6, 16, 31)], of=5)
)
def test_all_algorithms_do_all_collectives(name: str, n: int, comm_type: str) -> None:
    dims = (("ring", n, 50.0, 500.0),)
    machine = Machine(dims, dict.fromkeys(COLLECTIVES, (name,)), chunks=3, memory_rate=200.0)
    work = [[Work(time=1000), Work(comm=comm_type, size=1_000_003, root=n // 2)]] * n
    found = run_each(traces_of(work), system_of(machine, work), meet=True).cycles.tolist()
    assert found == finish_times(machine, work)
