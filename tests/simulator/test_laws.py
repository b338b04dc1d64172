"""Laws of collectives under the right rules: closed forms, bounds, volumes, and always an end."""

from __future__ import annotations

import itertools
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import nadi
from nadi.simulation import collective_time
from nadi.simulation.collectives.collective_algorithms import recipe_of
from nadi.simulation.collectives.phases import Recipe, messages_of
from nadi.simulation.engine.machine_state import LINK
from nadi.simulation.engine_driver import run_tables, simulation_of
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.work.program import program_of
from nadi.systems import System
from nadi.systems.system import Collectives, Compute, Dimension, Network
from nadi.trace.collectives import COLLECTIVES
from tests.amounts import examples
from tests.simulator.cases import collective, compute, trace_of
from tests.simulator.test_against_right_rules import jobs, machines, system_of, traces_of

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)
_DELAY = 10
_NAMES = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree")
_TOPOLOGIES = ("ring", "switch", "fully-connected", "mesh")
_SIZE, _LATENCY, _RATE = st.integers(1, 1 << 24), st.integers(0, 3000), st.floats(0.5, 500)


def one_dimension(name: str, n: int, rate: float, latency: float, topology: str) -> System:
    """Do everything by one algorithm in one dimension."""
    dimension = Dimension(topology, n, rate, float(latency))  # type: ignore[arg-type]
    algorithms = dict.fromkeys(COLLECTIVES, (name,))
    return System(
        Network((dimension,)), collectives=Collectives(**algorithms, endpoint_delay=_DELAY)
    )


def time_of(system: System, comm_type: str, size: int, root: int = 0) -> int:
    """Simulate one collective of all ranks in all ways that there are.

    Where messages are followed they have the links that the closed form gives them: as flows of
    their own they would share them by other rules.
    """
    node = collective(0, comm_type, size, comm_src=root, comm_dst=root)
    traces = [trace_of([node])] * system.network.num_ranks
    done = simulate(traces, system)
    tables = tables_of(program_of(traces), system)
    full = simulation_of(tables, run_tables(tables), len(traces))
    assert done.cycles.tolist() == full.cycles.tolist()
    by_messages, at_once = (
        simulation_of(tables, run_tables(tables, meet=meet, flows=False), len(traces))
        for meet in (False, True)
    )
    assert by_messages.cycles.tolist() == at_once.cycles.tolist()
    return done.makespan


def part(size: int, n: int) -> int:
    return -(-size // n)


# closed forms, where every pair has a link


@SETTINGS
@given(st.integers(1, 5), _SIZE, _LATENCY, _RATE, st.integers(0, 31))
def test_a_broadcast_by_doubling_takes_a_message_for_each_step(
    levels: int, size: int, latency: int, rate: float, root: int
) -> None:
    n = 1 << levels
    system = one_dimension("halvingDoubling", n, rate, latency, "fully-connected")
    one = int(latency + size / rate) + _DELAY
    assert time_of(system, "broadcast", size, root % n) == _DELAY + levels * one
    assert time_of(system, "reduce", size, root % n) == _DELAY + levels * one
    halves = [int(latency + (1 << k) * part(size, n) / rate) + _DELAY for k in range(levels)]
    assert time_of(system, "scatter", size, root % n) == _DELAY + sum(halves)
    wholes = [int(latency + (1 << k) * size / rate) + _DELAY for k in range(levels)]
    assert time_of(system, "gather", size, root % n) == _DELAY + sum(wholes)


@SETTINGS
@given(st.integers(2, 33), _SIZE, _LATENCY, _RATE)
def test_an_all_to_all_by_doubling_takes_each_block_bit_by_bit(
    n: int, size: int, latency: int, rate: float
) -> None:
    system = one_dimension("halvingDoubling", n, rate, latency, "fully-connected")
    steps = []
    for k in range((n - 1).bit_length()):
        count = len([block for block in range(n) if block >> k & 1])
        steps.append(int(latency + count * part(size, n) / rate) + _DELAY)
    assert time_of(system, "all_to_all", size) == _DELAY + sum(steps)


@SETTINGS
@given(st.integers(1, 4), st.data(), _SIZE, _LATENCY, _RATE)
def test_who_is_beyond_a_power_of_two_gives_first_and_gets_last(
    levels: int, data: st.DataObject, size: int, latency: int, rate: float
) -> None:
    n = (1 << levels) + data.draw(st.integers(1, (1 << levels) - 1), label="further members")
    system = one_dimension("halvingDoubling", n, rate, latency, "fully-connected")
    whole = int(latency + size / rate) + _DELAY
    halving = [int(latency + part(size, 2 << k) / rate) + _DELAY for k in range(levels)]
    assert time_of(system, "all_reduce", size) == _DELAY + 2 * whole + 2 * sum(halving)


@SETTINGS
@given(st.integers(2, 33), _SIZE, _LATENCY, _RATE, st.integers(0, 31))
def test_a_root_sends_to_all_at_once_and_takes_one_after_the_other(
    n: int, size: int, latency: int, rate: float, root: int
) -> None:
    system = one_dimension("direct", n, rate, latency, "fully-connected")
    one = int(latency + size / rate)
    assert time_of(system, "broadcast", size, root % n) == 2 * _DELAY + one
    assert time_of(system, "gather", size, root % n) == _DELAY + one + (n - 1) * _DELAY
    assert time_of(system, "reduce", size, root % n) == _DELAY + one + (n - 1) * _DELAY
    own = int(latency + part(size, n) / rate)
    assert time_of(system, "scatter", size, root % n) == 2 * _DELAY + own


@SETTINGS
@given(st.integers(2, 33), st.integers(1, 1 << 16), _LATENCY, _RATE)
def test_a_small_broadcast_in_a_chain_takes_a_message_for_each_member(
    n: int, size: int, latency: int, rate: float
) -> None:
    system = one_dimension("ring", n, rate, latency, "ring")
    one = int(latency + size / rate) + _DELAY
    assert time_of(system, "broadcast", size) == _DELAY + (n - 1) * one
    assert time_of(system, "reduce", size) == _DELAY + (n - 1) * one


@SETTINGS
@given(st.integers(1, 5), st.integers(1, 1 << 16), _LATENCY, _RATE)
def test_a_sum_goes_up_a_full_tree_level_by_level(
    levels: int, size: int, latency: int, rate: float
) -> None:
    system = one_dimension("doubleBinaryTree", 1 << levels, rate, latency, "fully-connected")
    one = int(latency + size / rate)
    behind = int(size / rate)  # one child's part comes in after the other's
    inner = (levels - 1) * (one + max(behind, _DELAY) + _DELAY)
    assert time_of(system, "reduce", size) == _DELAY + inner + one + _DELAY
    # down again, the second child gets it after the first
    down = one + _DELAY + (levels - 1) * (behind + one + _DELAY)
    assert time_of(system, "all_reduce", size) == _DELAY + inner + one + _DELAY + down


# volumes and bounds


def links_of(topology: str, n: int, src: int, dst: int) -> list[tuple[int, int]]:
    """Give the links on the way between two members of a dimension; a switch is -1."""
    if topology == "fully-connected":
        return [(src, dst)]
    if topology == "switch":
        return [(src, -1), (-1, dst)]
    step = 1
    if topology == "mesh":
        step = 1 if dst > src else -1
    elif (dst - src) % n > n - (dst - src) % n:
        step = -1
    way = [src]
    while way[-1] != dst:
        way.append((way[-1] + step) % n)
    return list(itertools.pairwise(way))


def loads_of(
    system: System, recipe: Recipe, sizes: list[int], root: int
) -> dict[tuple[int, tuple[int, int]], int]:
    """Add up the bytes on each link of the root's line of each dimension."""
    loads: dict[tuple[int, tuple[int, int]], int] = defaultdict(int)
    for chunk, first_size in enumerate(sizes):
        size = first_size
        for phase in recipe.phases:
            dimension, stride = system.network.dimensions[phase.dim], 1
            for lower in system.network.dimensions[: phase.dim]:
                stride *= lower.size
            place = root // stride % dimension.size
            found = messages_of(
                phase, size, turn=chunk % 2, root=place,
                clockwise=goes_clockwise(system.collectives.queues, phase.half, chunk),
            )  # fmt: skip
            for src, dst, num_bytes in zip(*(column.tolist() for column in found), strict=True):
                for link in links_of(dimension.topology, dimension.size, src, dst):
                    loads[phase.dim, link] += num_bytes
            comm = phase.comm
            if comm in (1, 7):  # a reduce-scatter or a scatter
                size = part(size, dimension.size)
            elif comm in (2, 6):  # an all-gather or a gather
                size *= dimension.size
    return loads


def goes_clockwise(queues: int, half: int, chunk: int) -> bool:
    """Tell which way round a ring goes: chunks take the queues in turn, half of which go back."""
    if queues == 1:
        return half != 2
    places = {0: range(queues), 1: range(queues // 2), 2: range(queues // 2, queues)}[half]
    return places[chunk % len(places)] < queues // 2


def chunks_of(system: System, size: int) -> list[int]:
    count = max(min(system.collectives.chunks, size), 1)
    return [size // count + (chunk < size % count) for chunk in range(count)]


@st.composite
def systems(draw: st.DrawFn, congestion: bool, names: tuple[str, ...] = _NAMES) -> System:
    """Draw a system without latencies, whose times are those of its links."""
    shape = draw(st.sampled_from([
        (2,), (3,), (4,), (5,), (6,), (7,), (8,), (12,), (2, 3), (4, 2), (3, 3), (6, 2), (2, 2, 3)
    ]))  # fmt: skip
    dimensions = tuple(
        Dimension(draw(st.sampled_from(_TOPOLOGIES)), n, draw(st.floats(1, 100)), 0.0)
        for n in shape
    )
    algorithms = {comm: tuple(draw(st.sampled_from(names)) for _ in shape) for comm in COLLECTIVES}
    return System(
        Network(dimensions, congestion=congestion),
        collectives=Collectives(
            **algorithms,
            bandwidth_aware=draw(st.booleans()),
            chunks=draw(st.integers(1, 4)),
            active_chunks=draw(st.integers(1, 4)),
            queues=draw(st.sampled_from([1, 1, 2, 3])),
            endpoint_delay=0,
        ),
    )


@SETTINGS
@given(st.data(), st.booleans())
def test_no_collective_beats_the_links_that_it_goes_through(
    data: st.DataObject, congestion: bool
) -> None:
    system = data.draw(systems(congestion), label="system")
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)[:8]), label="type")
    size = data.draw(st.integers(1 << 18, 1 << 24), label="size")
    root = data.draw(st.integers(0, system.network.num_ranks - 1), label="root")
    loads = loads_of(system, recipe_of(system, comm_type), chunks_of(system, size), root)
    bounds = {
        link: num_bytes / system.network.dimensions[link[0]].bandwidth
        for link, num_bytes in loads.items()
    }
    rounding = 0.999  # of each message's time, to whole ns
    assert time_of(system, comm_type, size, root) >= rounding * max(bounds.values()) - 1000


@SETTINGS
@given(st.data(), st.booleans())
def test_no_link_is_busy_for_more_than_all_of_the_time(
    data: st.DataObject, congestion: bool
) -> None:
    """Of collectives that go through the dimensions: where each message goes, is known there."""
    names = (*_NAMES, "biring", "direct3")
    system = data.draw(systems(congestion, names), label="system")
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)[:8]), label="type")
    size = data.draw(st.integers(1 << 18, 1 << 24), label="size")
    root = data.draw(st.integers(0, system.network.num_ranks - 1), label="root")
    node = collective(0, comm_type, size, comm_src=root, comm_dst=root)
    done = simulate([trace_of([node])] * system.network.num_ranks, system)
    rounding = 1000  # each message's time is cut to whole ns
    assert nadi.simulation.link_table(done)["busy"].max() <= done.makespan / 0.999 + rounding


@SETTINGS
@given(st.data(), st.booleans(), st.booleans())
def test_members_anywhere_keep_every_link_at_one(
    data: st.DataObject, is_group: bool, at_once: bool
) -> None:
    """Of a process group, and of all ranks as if they were one dimension."""
    system = data.draw(systems(congestion=False), label="system")
    num_ranks = system.network.num_ranks
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)[:8]), label="type")
    name = data.draw(st.sampled_from([*_NAMES, "direct5"]), label="algorithm")
    names = {comm_type: (name if is_group else "one" + name,)}
    members, order = list(range(num_ranks)), data.draw(st.permutations(range(num_ranks)))
    if is_group:
        members = order[: data.draw(st.integers(2, num_ranks), label="members")]
    system = msgspec.structs.replace(
        system,
        collectives=msgspec.structs.replace(system.collectives, **names),
        groups={"group": tuple(members)} if is_group else {},
    )
    size = data.draw(st.integers(1 << 18, 1 << 24), label="size")
    root = data.draw(st.sampled_from(members), label="root")
    traces = []
    for rank in range(num_ranks):
        late = 0 if at_once else data.draw(st.integers(0, 500), label="late")
        nodes = [compute(0, late)]
        if rank in members:
            ends = {"comm_src": root, "comm_dst": root, "data_deps": [0]}
            group = {"pg_name": "group"} if is_group else {}
            nodes.append(collective(1, comm_type, size, **ends, **group))
        traces.append(trace_of(nodes))
    done = simulate(traces, system)
    (row,) = nadi.simulation.collective_times(done).iter_rows(named=True)
    assert (
        nadi.simulation.link_table(done)["busy"].max()
        <= (row["end"] - row["first_entry"]) / 0.999 + 1000
    )


@pytest.mark.parametrize(
    ("members", "busiest"),
    [
        ((0, 1, 2, 3), 1),
        ((0, 3), 1),  # whose ways are far and its own
        ((0, 2, 1, 3), 2),  # from 0 to 2 and from 1 to 3 through the middle
        ((0, 1, 4, 5), 10),  # through the network between the lines
        ((0, 5, 2, 7), 10),  # each by a link of its own
    ],
)
def test_a_ring_of_some_ranks_goes_as_fast_as_its_busiest_link(
    members: tuple[int, ...], busiest: int
) -> None:
    """Two lines of four ranks with links of 10 bytes per ns, and between them of 1 byte per ns."""
    dimensions = Dimension("mesh", 4, 10.0, 0.0), Dimension("fully-connected", 2, 1.0, 0.0)
    system = System(
        Network(dimensions), groups={"some": members},
        collectives=Collectives(all_gather=("onering",), endpoint_delay=_DELAY, chunks=1),
    )  # fmt: skip
    busy = trace_of([collective(0, "all_gather", 1000, pg_name="some")])
    idle = trace_of([compute(0, 0)])
    done = simulate([busy if rank in members else idle for rank in range(8)], system)
    steps = len(members) - 1
    assert done.makespan == _DELAY + steps * (busiest * 100 + _DELAY)


@SETTINGS
@given(st.data())
def test_a_group_that_is_a_grid_does_as_a_network_of_its_size(data: st.DataObject) -> None:
    """Where every two have a link, or one to a switch, it does not matter who else is there."""
    topologies = ("fully-connected", "switch")
    whole = tuple(
        Dimension(data.draw(st.sampled_from(topologies)), n, data.draw(st.integers(1, 100)), 300.0)
        for n in (4, 3, 2)
    )
    places = [
        data.draw(st.lists(st.integers(0, one.size - 1), min_size=1, unique=True)) for one in whole
    ]
    members = [a + 4 * b + 12 * c for a, b, c in itertools.product(*places)]
    members = data.draw(st.permutations(sorted(members)), label="members")
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)[:8]), label="type")
    names = tuple(data.draw(st.sampled_from(_NAMES)) for _ in whole)
    collectives = Collectives(**{comm_type: names}, chunks=data.draw(st.integers(1, 3)))
    root = data.draw(st.sampled_from(members), label="root")
    size = data.draw(st.integers(1, 1 << 20), label="size")
    ends = {"comm_src": root, "comm_dst": root}
    busy = trace_of([collective(0, comm_type, size, pg_name="grid", **ends)])
    system = System(Network(whole), collectives=collectives, groups={"grid": tuple(members)})
    idle = trace_of([compute(0, 0)])
    done = simulate([busy if rank in members else idle for rank in range(24)], system)
    own = tuple(
        msgspec.structs.replace(dimension, size=len(there))
        for dimension, there in zip(whole, places, strict=True)
    )
    several = sum(len(there) > 1 for there in places) > 1
    place = (sorted(members) if several else members).index(root)
    alone = trace_of([collective(0, comm_type, size, comm_src=place, comm_dst=place)])
    if len(members) == 1:
        assert done.makespan == 0
        return
    expected = simulate([alone] * len(members), System(Network(own), collectives=collectives))
    assert done.makespan == expected.makespan


@pytest.mark.parametrize("congestion", [False, True])
def test_groups_of_one_size_stand_in_their_own_ways(congestion: bool) -> None:
    dimensions = Dimension("switch", 4, 100.0, 50.0), Dimension("switch", 4, 10.0, 500.0)
    groups = {"line": (0, 1, 2, 3), "grid": (4, 5, 8, 9), "column": (2, 6, 10, 14)}
    system = System(Network(dimensions, congestion=congestion), groups=groups)
    node = {name: trace_of([collective(0, "all_reduce", 1 << 20, pg_name=name)]) for name in groups}
    idle = trace_of([compute(0, 0)])

    def ends(*names: str) -> list[int]:
        of_rank = {rank: node[name] for name in names for rank in groups[name]}
        return simulate([of_rank.get(rank, idle) for rank in range(16)], system).cycles.tolist()

    together = ends("line", "grid")
    for name in ("line", "grid"):
        alone = ends(name)
        assert [together[rank] for rank in groups[name]] == [alone[rank] for rank in groups[name]]
    assert ends("line")[0] < ends("grid")[4] < ends("column")[2]


@pytest.mark.parametrize("n", range(2, 13))
def test_a_direct_exchange_in_a_ring_takes_as_long_as_its_busiest_link(n: int) -> None:
    system = one_dimension("direct", n, 10.0, 0.0, "ring")
    size, half = 1000 * n, n // 2
    clockwise = half * (half + 1) // 2  # the ways of k hops for each k, ties among them
    assert time_of(system, "all_to_all", size) == 2 * _DELAY + clockwise * 100


@SETTINGS
@given(st.data())
def test_links_carry_what_messages_say(data: st.DataObject) -> None:
    system = data.draw(systems(congestion=True), label="system")
    if len(system.network.dimensions) > 1:
        return  # whose lines differ
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)[:8]), label="type")
    size = data.draw(st.integers(1, 1 << 20), label="size")
    root = data.draw(st.integers(0, system.network.num_ranks - 1), label="root")
    n = system.network.num_ranks
    node = collective(0, comm_type, size, comm_src=root, comm_dst=root)
    tables = tables_of(program_of([trace_of([node])] * n), system)
    seen = run_tables(tables).links[:, LINK.bytes]
    loads = loads_of(system, recipe_of(system, comm_type), chunks_of(system, size), root)
    assert sorted(seen[seen > 0].tolist()) == sorted(value for value in loads.values() if value)


# an end, and always the same


@SETTINGS
@given(st.data(), st.booleans(), st.booleans())
def test_jobs_whose_ranks_begin_at_odd_times_come_to_an_end(
    data: st.DataObject, congestion: bool, rendezvous: bool
) -> None:
    machine = data.draw(machines(), label="machine")
    work = data.draw(jobs(machine), label="jobs")
    system = system_of(machine, work)
    network = Network(system.network.dimensions, congestion, rendezvous)
    system = System(network, system.compute, collectives=system.collectives, groups=system.groups)
    traces = traces_of(work)
    done = simulate(traces, system)  # which raises an error if any rank never finishes
    assert (done.end >= done.start).all()
    assert (done.start >= 0).all()
    assert simulate(traces, system).end.tolist() == done.end.tolist()


@SETTINGS
@given(st.data(), st.sampled_from(["fifo", "lifo", "explicit"]), st.booleans())
def test_groups_that_compete_in_all_dimensions_come_to_an_end(
    data: st.DataObject, policy: str, congestion: bool
) -> None:
    """All that ranks have to do is ready at once, in groups that stand as grids and others."""
    machine = data.draw(machines(), label="machine")
    work = data.draw(jobs(machine), label="jobs")
    system = system_of(machine, work)
    system = msgspec.structs.replace(
        system,
        slots="device",
        network=msgspec.structs.replace(system.network, congestion=congestion),
        collectives=msgspec.structs.replace(system.collectives, policy=policy),
    )
    traces = traces_of(work, one_by_one=False)
    done = simulate(traces, system)  # which raises an error if any rank never finishes
    assert (done.end >= done.start).all()
    for row in nadi.simulation.collective_times(done).iter_rows(
        named=True
    ):  # each message's time is cut to whole ns
        messages = 4 * machine.num_ranks**2 * machine.chunks
        assert row["end"] - row["first_entry"] >= row["bound"] - messages
    assert simulate(traces, system).end.tolist() == done.end.tolist()


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("comm_type", COLLECTIVES)
def test_two_threads_find_what_one_does(comm_type: str, name: str) -> None:
    system = one_dimension(name, 12, 25.0, 300.0, "switch")
    sizes = [1 << k for k in range(8, 20, 3)]
    alone = [time_of(system, comm_type, size) for size in sizes]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda size: time_of(system, comm_type, size), sizes))
    assert both == alone


@SETTINGS
@given(st.data(), st.integers(1, 100_000))
def test_a_start_comes_before_everything_else(data: st.DataObject, start: int) -> None:
    system = data.draw(systems(congestion=False), label="system")
    comm_type = data.draw(st.sampled_from(tuple(COLLECTIVES)), label="type")
    size = data.draw(st.integers(1, 1 << 20), label="size")
    collectives = system.collectives
    later = System(
        system.network,
        collectives=Collectives(
            **{
                name: start if name == "start_time" else getattr(collectives, name)
                for name in collectives.__struct_fields__
            }
        ),
    )
    assert time_of(later, comm_type, size) == start + time_of(system, comm_type, size)


_ALL_TYPES = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather",
    "scatter",
)  # fmt: skip
_PIECE = 1 << 16


@pytest.mark.parametrize("name", [*_NAMES, "biring", "oneDirect"])
@pytest.mark.parametrize("comm_type", _ALL_TYPES)
@settings(SETTINGS, max_examples=examples(12))
@given(
    n=st.sampled_from([2, 3, 4, 7, 8, 70]), topology=st.sampled_from(_TOPOLOGIES),
    rate=_RATE, latency=_LATENCY, memory=st.sampled_from([0, 50, 2000]),
    size=_SIZE | st.builds(
        lambda pieces, more: max(pieces * _PIECE + more, 1), st.integers(0, 71), st.integers(-2, 2)
    ),
    more=st.integers(1, 3) | st.integers(1, 1 << 18),
)  # fmt: skip
def test_more_bytes_are_never_faster(
    comm_type: str, name: str, n: int, topology: str, rate: float, latency: int, memory: int,
    size: int, more: int,
) -> None:  # fmt: skip
    system = one_dimension(name, n, rate, latency, topology)
    system = msgspec.structs.replace(
        system, compute=Compute(peak=1e12 * (memory > 0), memory_bandwidth=memory * 1e9)
    )
    before, after = (collective_time(system, comm_type, one) for one in (size, size + more))
    assert before <= after
