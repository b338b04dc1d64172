"""Who comes first in a queue: the first to come, the last, or who has the highest priority."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import FormatError, InputError, UsageError
from nadi.simulation.runs.simulate import simulate
from nadi.systems import astra_sim_system
from nadi.systems.system_file import system_from
from tests.amounts import examples
from tests.reference import astra_sim
from tests.simulator.cases import (
    Jobs,
    Node,
    collective,
    compute,
    devices_of,
    num_ranks_of,
    put_collectives_in_order,
    run_devices,
    systems,
    times_of,
)

SETTINGS = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)
POLICIES = ("LIFO", "EXPLICIT")
_COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@st.composite
def overlapping(draw: st.DrawFn, case: dict[str, Any], fewest: int = 1, most: int = 8) -> Jobs:
    """Draw collectives of groups that share members, begun in an order of each rank's own."""
    num_ranks = num_ranks_of(case)
    regular = all(
        name in ("ring", "direct", "direct2")
        for name in case["system"]["all-reduce-implementation"]
    )
    groups: dict[str, list[int]] = {}
    for number in range(draw(st.integers(0, 3)) if regular and num_ranks > 2 else 0):
        size = draw(st.integers(2, num_ranks - 1))
        groups[f"g{number}"] = draw(st.permutations(range(num_ranks)))[:size]
    case["comm_group"] = groups
    nodes: Jobs = {rank: [] for rank in range(num_ranks)}
    for _ in range(draw(st.integers(fewest, most))):
        name = draw(st.sampled_from(["", *groups]))
        priority = draw(st.integers(-2, 2))
        one = collective(
            0, draw(st.sampled_from(_COMM_TYPES)), draw(st.integers(64, 3_000_000)),
            comm_priority=priority, data_deps=[], ctrl_deps=[],
            **({"pg_name": name} if name else {}),
        )  # fmt: skip
        for rank in groups.get(name, range(num_ranks)):
            own = nodes[rank]
            deps = []
            if draw(st.booleans()):  # computes first, and so comes late
                own.append(compute(len(own), draw(st.integers(1, 90)), data_deps=[], ctrl_deps=[]))
                deps = [own[-1]["id"]]
            own.append(one | {"id": len(own), "data_deps": deps})
    for rank in range(num_ranks):
        if not nodes[rank]:
            nodes[rank].append(compute(0, 1, data_deps=[], ctrl_deps=[]))
    return nodes


@SETTINGS
@given(st.data(), st.sampled_from(POLICIES))
def test_whatever_competes_comes_to_an_end_when_the_slow_model_says(
    data: st.DataObject, policy: str
) -> None:
    case = data.draw(systems(), label="case")
    case["system"]["scheduling-policy"] = policy
    nodes = data.draw(overlapping(case), label="nodes")
    try:
        found = astra_sim.simulate(case, nodes, devices=True)
    except astra_sim.UnsupportedError:
        assume(False)
    assert None not in found["cycles"], "of what waits, something can start when nothing runs"
    expected = [[times[number] for number in sorted(times)] for times in found["times"]]
    assert times_of(run_devices(case, nodes, meet=False)) == expected
    # which of two comes first in one ns, phases worked out at once may see otherwise: but they end
    run_devices(case, nodes, meet=True)


@settings(SETTINGS, max_examples=examples(15))
@given(st.data(), st.sampled_from(POLICIES))
def test_many_that_wait_start_when_the_slow_model_says(data: st.DataObject, policy: str) -> None:
    case = counter(policy, data.draw(st.integers(3, 5), label="ranks"))
    case["system"]["active-chunks-per-dimension"] = data.draw(st.integers(1, 2), label="active")
    nodes = data.draw(overlapping(case, 20, 40), label="nodes")
    found = astra_sim.simulate(case, nodes, devices=True)
    expected = [[times[number] for number in sorted(times)] for times in found["times"]]
    assert times_of(run_devices(case, nodes, meet=False)) == expected


@SETTINGS
@given(st.data(), st.sampled_from(POLICIES))
def test_collectives_one_by_one_end_alike_by_messages_and_at_once(
    data: st.DataObject, policy: str
) -> None:
    case = data.draw(systems(contended=False), label="case")
    case["system"]["scheduling-policy"] = policy
    nodes = data.draw(overlapping(case), label="nodes")
    put_collectives_in_order(nodes)
    try:
        by_message = times_of(run_devices(case, nodes, meet=False))
    except UsageError:
        assume(False)
    assert times_of(run_devices(case, nodes, meet=True)) == by_message


@SETTINGS
@given(st.data(), st.sampled_from(POLICIES))
def test_one_rank_stands_for_all_that_are_alike(data: st.DataObject, policy: str) -> None:
    case = data.draw(systems(contended=False), label="case")
    assume("doubleBinaryTree" not in case["system"]["all-reduce-implementation"])
    case["system"]["scheduling-policy"] = policy
    num_ranks = num_ranks_of(case)
    nodes = []
    for number in range(data.draw(st.integers(1, 6))):
        comm_type = data.draw(st.sampled_from(_COMM_TYPES[:3]))
        size = data.draw(st.integers(64, 3_000_000))
        one = collective(number, comm_type, size, comm_priority=data.draw(st.integers(0, 3)))
        nodes.append(one | {"data_deps": [], "ctrl_deps": []})
    jobs = dict.fromkeys(range(num_ranks), nodes)
    full = run_devices(case, jobs, meet=False)
    alike = simulate([full.traces[0]] * num_ranks, devices_of(case))
    assert alike.program.num_ranks == (1 if "model-shared-bus" not in case["system"]
                                       and "rendezvous-protocol" not in case["cli"]
                                       else num_ranks)  # fmt: skip
    assert alike.cycles.tolist() == full.cycles.tolist()


# one dimension and one collective at a time: a counter with a queue


def counter(policy: str, ranks: int = 4) -> dict[str, Any]:
    names = {f"{name.replace('_', '-')}-implementation": ["ring"] for name in _COMM_TYPES}
    return {
        "backend": "congestion_unaware",
        "network": {"topology": ["Switch"], "npus_count": [ranks], "bandwidth": [25.0],
                    "latency": [300.0]},
        "system": {"preferred-dataset-splits": 1, "endpoint-delay": 7,
                   "scheduling-policy": policy, **names},
    }  # fmt: skip


def ends_of(policy: str, priorities: list[int], sizes: list[int], late: list[int]) -> list[int]:
    """Give when each collective ends; some come after a computation of so many us."""
    nodes: list[Node] = []
    for priority, size, wait in zip(priorities, sizes, late, strict=True):
        number = len(nodes)
        nodes.append(compute(number, wait, stream=100 + number) if wait else compute(number, 0))
        nodes.append(
            collective(number + 1, "all_reduce", size, comm_priority=priority, data_deps=[number])
        )
    done = run_devices(counter(policy), dict.fromkeys(range(4), nodes), meet=False)
    return [times_of(done)[0][2 * k + 1][1] for k in range(len(sizes))]


def order(ends: list[int]) -> list[int]:
    return sorted(range(len(ends)), key=ends.__getitem__)


def test_who_is_served_goes_on_and_then_comes_whose_turn_it_is() -> None:
    priorities, sizes, late = [1, 2, 5, 3], [1 << 20] * 4, [1, 2, 3, 4]
    assert order(ends_of("FIFO", priorities, sizes, late)) == [0, 1, 2, 3]
    assert order(ends_of("LIFO", priorities, sizes, late)) == [0, 3, 2, 1]
    assert order(ends_of("EXPLICIT", priorities, sizes, late)) == [0, 2, 3, 1]
    assert order(ends_of("EXPLICIT", [-1, 0, 0, 4], sizes, late)) == [0, 3, 1, 2]
    alone = ends_of("FIFO", [0], sizes[:1], [1])[0] - 1000
    assert sorted(ends_of("EXPLICIT", priorities, sizes, late)) == [
        1000 + (k + 1) * alone for k in range(4)
    ]


COLLECTIVES = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(1, 1 << 22), st.integers(0, 300)),
    min_size=1, max_size=8,
)  # fmt: skip


@SETTINGS
@given(COLLECTIVES, st.data())
def test_whoever_is_put_first_never_ends_later_than_put_last(
    drawn: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    priorities, sizes, late = map(list, zip(*drawn, strict=True))
    chosen = data.draw(st.integers(0, len(drawn) - 1))
    priorities[chosen] = 9
    first = ends_of("EXPLICIT", priorities, sizes, late)
    priorities[chosen] = -9
    last = ends_of("EXPLICIT", priorities, sizes, late)
    assert first[chosen] <= last[chosen]
    assert max(first) == max(last)  # whatever the order, the counter is as busy


@SETTINGS
@given(COLLECTIVES)
def test_equal_priorities_are_first_come_first_served(drawn: list[tuple[int, int, int]]) -> None:
    _, sizes, late = map(list, zip(*drawn, strict=True))
    same = [0] * len(drawn)
    assert ends_of("EXPLICIT", same, sizes, late) == ends_of("FIFO", same, sizes, late)


def test_two_groups_that_would_wait_for_each_other_in_a_circle_do_not() -> None:
    """Put in by priority alone, A would wait behind B on one rank, and B behind A on the other."""
    case = counter("EXPLICIT", 3)
    case["comm_group"] = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}

    def one(number: int, group: str, priority: int) -> Node:
        return collective(number, "all_reduce", 1 << 20, pg_name=group, comm_priority=priority)

    nodes = {
        0: [one(0, "a", 1), one(1, "c", 9)],
        1: [one(0, "a", 1), one(1, "b", 5)],
        2: [one(0, "b", 5), one(1, "c", 9)],
    }
    done = run_devices(case, nodes)
    only = {0: nodes[0][:1], 1: nodes[1][:1], 2: [compute(0, 1)]}
    alone = run_devices(case, only).makespan
    # a comes first and starts; then the two others, which meet on rank 2: c has priority
    ends = {(rank, k): times_of(done)[rank][k][1] for rank in range(3) for k in range(2)}
    assert ends[0, 0] == ends[1, 0] == alone
    assert ends[0, 1] == ends[2, 1] == 2 * alone
    assert ends[1, 1] == ends[2, 0] == 3 * alone


# where it is stated


def written(path: Path, priorities: list[dict[str, Any]]) -> Path:
    """Write a rank with a collective of each priority, as Chakra's JSON."""
    nodes = [
        {
            "id": str(k), "name": f"sum{k}", "type": "COMM_COLL_NODE",
            "attr": [{"name": "is_cpu_op", "boolVal": False},
                     {"name": "comm_type", "int64Val": "0"},
                     {"name": "comm_size", "int64Val": str(1 << 20)},
                     {"name": "comm_priority", **priority}],
        }
        for k, priority in enumerate(priorities)
    ]  # fmt: skip
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": nodes}))
    return path


FILE = {"network": {"dimensions": [{"topology": "switch", "bandwidth": "25 GB/s", "size": 2}]}}


def test_a_file_states_the_policy_and_a_trace_the_priorities(tmp_path: Path) -> None:
    path = written(tmp_path / "rank.json", [{"int32Val": priority} for priority in range(3)])
    found = {}
    for policy in ("fifo", "lifo", "explicit"):
        system = system_from(FILE | {"scheduling": {"policy": policy}}, "own").fit(2)
        done = simulate([nadi.read(path)] * 2, system)
        found[policy] = order(done.end[:3].tolist())
    assert found == {"fifo": [0, 1, 2], "lifo": [0, 2, 1], "explicit": [0, 2, 1]}
    with pytest.raises(FormatError, match=r"own: \$.scheduling.policy"):
        system_from(FILE | {"scheduling": {"policy": "lifo", "slots": "astra-sim"}}, "own")


def test_a_priority_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "rank.json", [{"int32Val": 1}, {"stringVal": "high"}])
    system = system_from(FILE | {"scheduling": {"policy": "explicit"}}, "own").fit(2)
    with pytest.raises(InputError, match=r"rank 0 node 1 \(sum1\): its comm_priority is 'high'"):
        simulate([nadi.read(path)] * 2, system)


@pytest.mark.parametrize("policy", ["fifo", "lifo", "explicit"])
def test_with_slots_nobody_competes(policy: str) -> None:
    """As in ASTRA-sim, whose files state an order that changes nothing."""
    case = counter(policy.upper())
    system = astra_sim_system(case["network"], case["system"])
    assert system.collectives.policy == policy
    nodes = [collective(k, "all_reduce", 1 << 20, comm_priority=k) for k in range(4)]
    trace = run_devices(counter("FIFO"), dict.fromkeys(range(4), nodes)).traces[0]
    fifo = msgspec.structs.replace(
        system, collectives=msgspec.structs.replace(system.collectives, policy="fifo")
    )
    assert simulate([trace] * 4, system).end.tolist() == simulate([trace] * 4, fifo).end.tolist()


def test_an_order_that_there_is_not_is_refused() -> None:
    case = counter("RANDOM")
    with pytest.raises(FormatError, match="scheduling-policy: there is no 'RANDOM'"):
        astra_sim_system(case["network"], case["system"])
