"""RCCL's cost model by hand, and reduction in switches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.systems.nccl.nccl_cost_table import ChannelGraph, NcclCommunicator, nccl_costs
from nadi.systems.nccl.nccl_versions import nccl_rules
from nadi.systems.nccl.rccl import RCCL_TUNINGS, rccl_choices, rccl_costs

GRAPHS = {"Ring": ChannelGraph(8, 48.0, 48.0), "Tree": ChannelGraph(8, 48.0, 48.0, pattern=1)}


def amd(ranks: int, nodes: int) -> NcclCommunicator:
    return NcclCommunicator(ranks, nodes, 0, GRAPHS, 16, cpu_vendor="amd")


def test_costs_by_hand() -> None:
    tuning = RCCL_TUNINGS["gfx942"]
    pair, node = rccl_costs(amd(16, 2), tuning), rccl_costs(amd(8, 1), tuning)
    cost = pair["all_reduce", "Tree", "LL"]
    assert cost.latency == pytest.approx(12 + 2 * (7 * 0.9 + 10.5))
    assert cost.bandwidth == pytest.approx(384 * 0.06 / 2)
    cost = pair["all_gather", "Ring", "Simple"]
    assert cost.latency == pytest.approx(17 + 14 * 6.0 + 320)  # 3 posts of 2 us an AMD host
    assert cost.bandwidth == pytest.approx(384 * 16 / 15)
    assert node["all_reduce", "Ring", "LL"].latency == pytest.approx(12 + 14 * 0.8)
    assert node["broadcast", "Ring", "LL"].bandwidth == pytest.approx(384 * 0.08 * 1.65)
    assert ("all_reduce", "Tree", "Simple") not in node
    assert ("all_reduce", "Tree", "Simple") in pair


def test_between_nodes_the_size_says_the_protocol() -> None:
    tuning = RCCL_TUNINGS["gfx942"]
    sizes = np.array([8, 1 << 20, (1 << 20) + 1, 9437184, 9437185, 1 << 33])
    table = rccl_costs(amd(16, 2), tuning)
    found = rccl_choices(sizes, "all_reduce", table, amd(16, 2), tuning)
    assert [one.protocol for one in found] == ["LL", "LL", "LL128", "LL128", "Simple", "Simple"]
    more = rccl_choices(sizes, "all_reduce", table, amd(32, 4), tuning)
    assert more[4].protocol == "LL128"  # its range is 3.8 times as long


def test_a_node_of_mi300x_is_simulated_and_several_are_modeled() -> None:
    node, pair = nadi.load_system("mi300x-node", 8), nadi.load_system("mi300x-node", 16)
    one = nadi.simulation.estimate_collectives(node, "all_reduce", [1 << 12])[0]
    assert (one.source, one.modeled_ns) == ("simulated", -1)
    assert one.time_ns == nadi.simulation.collective_time(node, "all_reduce", 1 << 12)
    two = nadi.simulation.estimate_collectives(pair, "all_reduce", [1 << 12])[0]
    assert (two.source, two.algorithm, two.protocol) == ("RCCL 2.24", "Tree", "LL")
    assert two.time_ns == nadi.simulation.collective_time(pair, "all_reduce", 1 << 12)
    within = nadi.simulation.collective_time(pair, "all_reduce", 1 << 12, tuple(range(8)))
    assert within == one.time_ns


def hopper(ranks: int, nodes: int, channels: int, *, collnet: bool = True) -> NcclCommunicator:
    graph = ChannelGraph(channels, 48.0, 48.0)
    names = ("Ring", "CollNetDirect", "CollNetChain", "NVLS")
    return NcclCommunicator(ranks, nodes, 90, dict.fromkeys(names, graph), 16, collnet=collnet)


def test_collnet_by_hand() -> None:
    rules = nccl_rules("2.30.7")
    table = nccl_costs(hopper(32, 4, 4), rules)
    direct = table["all_reduce", "CollNetDirect", "Simple"]
    assert direct.latency == pytest.approx(2 * (3.7 + 7 * 0.4) + 31)
    assert direct.bandwidth == pytest.approx(4 * 48 / 1.5 * 0.85 / 2)  # 2 GPUs share an adapter
    chain = table["all_reduce", "CollNetChain", "Simple"]
    assert chain == pytest.approx((2 * 7 * 2.8 + 30, 4 * 48 / 2))
    assert table["all_reduce", "NVLS", "Simple"].bandwidth > 0
    for key, cost in table.items():
        unused = key[1].startswith("CollNet") and (key[0] != "all_reduce" or key[2] != "Simple")
        assert not unused or cost.bandwidth == 0
    without = nccl_costs(hopper(32, 4, 4, collnet=False), rules)
    assert all(c.bandwidth == 0 for k, c in without.items() if k[1] != "Ring")
    many = nccl_costs(hopper(64, 4, 8), rules)  # 16 GPUs a node
    assert many["all_reduce", "CollNetDirect", "Simple"].bandwidth == 0


def test_switches_that_reduce_let_everything_pass_once(tmp_path: Path) -> None:
    file = tmp_path / "switches.toml"
    shipped = Path(nadi.__file__).parent / "data" / "systems" / "dgx-a100.toml"
    graph = '{ channels = 8, bandwidth_intra = "24 GB/s" }'
    file.write_text(f"{shipped.read_text()}collnet_direct = {graph}\n")
    plain = nadi.load_system("dgx-a100", 64)
    switched = nadi.load_system(str(file), 64)
    sizes = [1 << 20, 1 << 24]
    for one, other in zip(
        nadi.simulation.estimate_collectives(switched, "all_reduce", sizes),
        nadi.simulation.estimate_collectives(plain, "all_reduce", sizes), strict=True,
    ):  # fmt: skip
        assert one.algorithm == "CollNetDirect"
        assert one.time_ns < other.time_ns
        # eight nodes: once, in place of 2 * 7 / 8 times
        assert one.bound_ns == pytest.approx(other.bound_ns * 8 / 14, abs=1)
        assert one.bound_ns < one.time_ns
