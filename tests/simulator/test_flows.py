"""Flows that share links, against a slow solver that works everything out anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.kernels.jit import kernel
from nadi.simulation.flows.flow_events import moved_bytes, time_to_move
from nadi.simulation.flows.flow_state import COUNT, EDGE, NEVER, Reach, Routes, rate_units
from nadi.simulation.flows.flow_times import Transfers, flow_times, run_flows
from nadi.systems.system_file import system_from
from tests.amounts import examples
from tests.reference.max_min import Flow, end_times

REACHES = (Reach.PRUNED, Reach.COMPONENT, Reach.ALL)


def as_arrays(flows: list[Flow]) -> tuple[Routes, Transfers]:
    count = np.array([len(flow.way) for flow in flows])
    links = np.array([hop for flow in flows for hop in flow.way], dtype=np.int32).reshape(-1, 2)
    latency = np.zeros(len(flows), dtype=np.int64)
    routes = Routes(np.append(0, np.cumsum(count)), links[:, 0], links[:, 1], latency)
    columns = (
        [getattr(flow, name) for flow in flows] for name in ("size", "start", "after", "cap")
    )
    transfers = Transfers(np.arange(len(flows)), *(np.array(c, dtype=np.int64) for c in columns))
    return routes, transfers


@st.composite
def networks(draw: Any, *, small: bool) -> tuple[list[int], list[Flow]]:
    """Draw capacities and flows; small figures make many links full at nearly the same rate."""
    capacity = draw(
        st.lists(
            st.integers(1, 24) if small else st.integers(10**9, 10**15), min_size=1, max_size=6
        )
    )
    flows: list[Flow] = []
    for i in range(draw(st.integers(1, 10))):
        links = draw(st.lists(st.integers(0, len(capacity) - 1), max_size=4, unique=True))
        weights = draw(st.lists(st.integers(1, 3), min_size=len(links), max_size=len(links)))
        after = draw(st.integers(-1, i - 1)) if draw(st.booleans()) else -1
        cap = draw(st.sampled_from([0, 0, 5, 9] if small else [0, 0, 10**12, 10**13 + 7]))
        size = draw(st.integers(0, 9) if small else st.integers(0, 10**9))
        start = draw(st.sampled_from([0, 10**9, 3 * 10**9 + 1]))
        flows.append(Flow(list(zip(links, weights, strict=True)), size, start, after, cap))
    return capacity, flows


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.one_of(networks(small=True), networks(small=False)))
def test_ends_are_those_of_a_solver_that_forgets_everything(
    case: tuple[list[int], list[Flow]],
) -> None:
    capacity, flows = case
    expected = [int(one) for one in end_times(capacity, flows)]
    for reach in REACHES:
        end, _ = run_flows(np.array(capacity), *as_arrays(flows), reach)
        assert end.tolist() == expected


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(networks(small=False), st.randoms(use_true_random=False))
def test_numbers_of_flows_and_links_do_not_matter(
    case: tuple[list[int], list[Flow]], random: Any
) -> None:
    capacity, flows = case
    before = flow_times(np.array(capacity), *as_arrays(flows))
    order = list(range(len(flows)))
    links = list(range(len(capacity)))
    random.shuffle(order)
    random.shuffle(links)
    other = [
        Flow(
            [(links[link], weight) for link, weight in reversed(flow.way)],
            flow.size,
            flow.start,
            order.index(flow.after) if flow.after >= 0 else -1,
            flow.cap,
        )
        for flow in (flows[k] for k in order)
    ]
    moved_capacity = np.zeros(len(links), dtype=np.int64)
    moved_capacity[links] = capacity
    assert flow_times(moved_capacity, *as_arrays(other)).tolist() == before[order].tolist()


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(networks(small=False))
def test_whole_units_differ_from_fractions_by_a_rounded_share(
    case: tuple[list[int], list[Flow]],
) -> None:
    # by one unit of a rate in 10^9 / 30, the slowest share there can be, at each of ten steps
    capacity, flows = case
    found = flow_times(np.array(capacity), *as_arrays(flows))
    for end, exact in zip(found.tolist(), end_times(capacity, flows, exact=True), strict=True):
        assert end == pytest.approx(float(exact), rel=1e-6, abs=20)


def test_suspects_give_what_all_flows_give_where_ways_are_hashed() -> None:
    """Enough flows that a part of them is suspected, then all."""
    random = np.random.default_rng(5)
    dimension = {"topology": "switch", "bandwidth": "50 GB/s"}
    tree = {"kind": "fat-tree", "name": "net", "bandwidth": "50 GB/s", "leaf": 8}
    network = {"dimensions": [dimension], "fabrics": [tree]}
    system = system_from({"network": network}, "test").fit(64)
    graph = nadi.simulation.network_graph(system)
    src = random.integers(0, 64, 600)
    routes = graph.routes(src, (src + random.integers(1, 64, 600)) % 64, np.arange(600))
    nothing = np.zeros(600, dtype=np.int64)
    after = np.append(nothing[:200] - 1, np.arange(400))
    size = random.integers(10**3, 10**6, 600)
    transfers = Transfers(np.arange(600), size, nothing, after, nothing)
    runs = [run_flows(graph.capacity, routes, transfers, reach) for reach in REACHES]
    assert runs[0][0].tolist() == runs[1][0].tolist() == runs[2][0].tolist()
    solved = [int(flows.counts[COUNT.solved]) for _, flows in runs]
    assert solved[0] < solved[2] / 2


def test_bytes_over_a_link_need_their_time_and_no_more() -> None:
    way = [(0, 1)]
    routes, transfers = as_arrays([Flow(way, 500), Flow(way, 1100), Flow(way, 500, 10**12)])
    end, flows = run_flows(np.array([600 * 1024]), routes, transfers)
    # 300 B/s each for a second, then 200 for one, 300 for two for one more, and the last has all
    assert end.tolist() == [2 * 10**12, 35 * 10**11, 3 * 10**12]
    assert flows.links[0, EDGE.full] == 35 * 10**11


def test_a_link_that_is_down_stops_its_flows() -> None:
    routes, transfers = as_arrays([Flow([(0, 1)], 5), Flow([(1, 1)], 5)])
    assert flow_times(np.array([0, 5 * 1024]), routes, transfers).tolist() == [-1, 10**12]


def test_more_flows_at_once_than_rows_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nadi.simulation.flows.flow_times._ROOM", 1)
    routes, transfers = as_arrays([Flow([(0, 1)], 1)] * 5)
    assert flow_times(np.array([5 * 1024]), routes, transfers).tolist() == [10**12] * 5


def test_sizes_that_do_not_fit_are_refused() -> None:
    routes, transfers = as_arrays([Flow([(0, 1)], 2**53)])
    with pytest.raises(UsageError, match="a flow has 0 to"):
        flow_times(np.array([1024]), routes, transfers)


@kernel
def _progress(rate: int, time: int, whole: int, parts: int, found: np.ndarray) -> None:
    found[0], found[1] = moved_bytes(rate, time)
    found[2] = time_to_move(whole, parts, rate)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    st.integers(0, 2**62),
    st.integers(0, 4 * 10**18),
    st.integers(0, 2**63 - 1),
    st.integers(0, 10**12 - 1),
)
def test_progress_is_exact(rate: int, time: int, whole: int, parts: int) -> None:
    time = min(time, (2**63 * 10**12 - 1) // max(rate, 1))  # so that what is moved fits
    found = np.zeros(3, dtype=np.int64)
    _progress(rate, time, whole, parts, found)
    assert found[:2].tolist() == list(divmod(rate * time, 10**12))
    left = whole * 10**12 + parts
    needs = -(-left // rate) if rate else NEVER if left else 0
    if needs < 45 * 10**17:
        assert found[2] == needs
    elif needs > 47 * 10**17:
        assert found[2] == NEVER


def test_sends_from_one_rank_share_its_link() -> None:
    system = nadi.load_system("dgx-h100", 8)
    size = 1 << 30
    seven = nadi.simulation.transfer_times(system, 0, range(1, 8), size)
    # the bytes at 450 GB/s, and two links' latency
    assert seven.tolist() == [round(7 * size / 450) + 470] * 7
    alone = nadi.simulation.transfer_times(system, 0, 1, size)
    assert alone.tolist() == [nadi.simulation.message_time(system, size, 0, 1) + 1]
    with pytest.raises(UsageError, match="out of range"):
        nadi.simulation.transfer_times(system, 0, 8, size)


def test_rates_are_whole_parts_of_bytes() -> None:
    assert rate_units(450e9) == 450_000_000_000 * 1024
    assert rate_units(1e300) == 2**62
