"""Links of physical networks, and the routes over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nadi.errors import FormatError, UsageError
from nadi.simulation.collectives.link_sharing import Traffic
from nadi.simulation.flows.network_graph import NetworkGraph, network_graph
from nadi.systems.system import Dimension, Network, System
from nadi.systems.system_file import system_from
from tests.amounts import examples

NVLINK = {
    "kind": "switch",
    "name": "nvlink",
    "ranks": 4,
    "bandwidth": "450 GB/s",
    "latency": "2 ns",
}
NET = {"name": "net", "adapters": 4, "bandwidth": "50 GB/s", "latency": "100 ns"}
FABRICS: dict[str, list[dict[str, Any]]] = {
    "fat tree": [NVLINK, NET | {"kind": "fat-tree", "leaf": 4, "oversubscription": 2}],
    "pods": [NVLINK, NET | {"kind": "fat-tree", "leaf": 2, "pod": 2, "oversubscription": [1, 2]}],
    "rails to a spine": [NVLINK, NET | {"kind": "fat-tree", "leaf": 2, "rails": True}],
    "by destination": [NVLINK, NET | {"kind": "fat-tree", "leaf": 4, "routing": "by-destination"}],
    "rails": [NVLINK, NET | {"kind": "rails"}],
    "rails behind PCIe": [NVLINK, NET | {"kind": "rails", "adapter_link": "32 GB/s"}],
    "half as many adapters": [NVLINK, NET | {"kind": "switch", "adapters": 2}],
    "two adapters each": [NVLINK, NET | {"kind": "switch", "adapters": 8}],
    "torus": [{"kind": "torus", "name": "ici", "shape": "4*x3*x2*", "bandwidth": "50 GB/s"}],
    "line of rings": [{"kind": "torus", "name": "ici", "shape": "4*x6", "bandwidth": "50 GB/s"}],
    "all joined": [{"kind": "fully-connected", "name": "mesh", "bandwidth": "50 GB/s"}],
    "dragonfly": [
        {"kind": "dragonfly", "name": "fly", "bandwidth": "50 GB/s", "ends": 2, "routers": 3,
         "global_links": 2, "between_groups": "100 GB/s"},
    ],
    "PCIe": [
        {"kind": "fat-tree", "name": "pcie", "bandwidth": "64 GB/s", "leaf": 4,
         "oversubscription": 4},
    ],
}  # fmt: skip
NUM_RANKS = 24


def graph(
    fabrics: list[dict[str, Any]], num_ranks: int = NUM_RANKS, **network: Any
) -> NetworkGraph:
    dimensions = [{"topology": "switch", "bandwidth": "50 GB/s"}]
    described = {"network": {"dimensions": dimensions, "fabrics": fabrics, **network}}
    return network_graph(system_from(described, "mine.toml").fit(num_ranks))


def all_pairs(num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    rank = np.arange(num_ranks)
    return np.repeat(rank, num_ranks), np.tile(rank, num_ranks)


def ends_of(name: str) -> tuple[str, str]:
    """Return from where to where a link goes, by its name; "" is the switch of a fabric."""
    name = name.removesuffix(".second")
    fabric, *path = name.split(".")
    if path[1:] == ["to", "adapters"]:
        return path[0], "node"
    if path[1:] == ["from", "adapters"]:
        return "node", path[0]
    domain = f"{path.pop(0)}." if path[0].startswith("domain") else ""
    if ".to." in name:
        one, other = name.removeprefix(f"{fabric}.{domain}").split(".to.")
        group = one.split(".")[0]
        if "link" in one:
            return one, other  # between groups: checked by group
        return one, f"{group}.{other}" if other.startswith("router") else other
    at = next(i for i, part in enumerate(path) if part in ("up", "down"))
    low, high = ".".join(path[:at]), ".".join(path[at + 1 :])
    return (low, high) if path[at] == "up" else (high, low)


@pytest.mark.parametrize("what", [name for name in FABRICS if name != "dragonfly"])
def test_a_route_leads_from_link_to_link(what: str) -> None:
    net = graph(FABRICS[what])
    src, dst = all_pairs(NUM_RANKS)
    routes = net.routes(src, dst)
    names = [name for name in net.names if name]
    assert len(set(names)) == len(names)
    for i, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        links = [net.names[link] for link in routes.link[routes.first[i] : routes.first[i + 1]]]
        assert all(links)
        assert bool(links) == (a != b)
        if not links:
            continue
        ends = [ends_of(link) for link in links]
        assert ends[0][0] in (f"rank{a}", *(f"node{a // 4}.adapter{k}" for k in range(8)))
        assert ends[-1][1] in (f"rank{b}", *(f"node{b // 4}.adapter{k}" for k in range(8)))
        for (_, to), (at, _), link in zip(ends[:-1], ends[1:], links[1:], strict=True):
            # what comes over a fabric to a rank goes on from its adapter
            meet = to == at or {to[:4], at[:4]} == {"rank", "node"} or "node" in (to, at)
            assert meet, link
        assert len(set(links)) == len(links)


def test_routes_of_a_dragonfly_cross_one_link_between_groups() -> None:
    net = graph(FABRICS["dragonfly"])
    src, dst = all_pairs(NUM_RANKS)
    routes = net.routes(src, dst)
    for i, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        links = [net.names[link] for link in routes.link[routes.first[i] : routes.first[i + 1]]]
        if a == b:
            continue
        between = [link for link in links if ".to.group" in link]
        assert (links[0], links[-1]) == (f"fly.rank{a}.up", f"fly.rank{b}.down")
        assert len(between) == (a // 6 != b // 6)
        assert all(link.endswith(f"group{b // 6}") for link in between)
        inside = [link.removeprefix("fly.").split(".") for link in links if "router" in link]
        assert len(links) == 2 + len(between) + len(inside)
        at = a // 2 % 3
        for group, router, _, to in inside:
            if group == f"group{a // 6}" and (a // 6 == b // 6 or router == f"router{at}"):
                at = int(to.removeprefix("router"))
        last = [to for group, _, _, to in inside if group == f"group{b // 6}"]
        assert not last or last[-1] == f"router{b // 2 % 3}"
    used = np.bincount(routes.link, minlength=len(net.names))
    assert all(name for name, count in zip(net.names, used.tolist(), strict=True) if count)


_DIMENSIONS = st.lists(
    st.builds(
        Dimension,
        st.sampled_from(["ring", "mesh", "switch", "fully-connected"]),
        st.integers(1, 5),
        st.sampled_from([50.0, 450.0]),
        st.sampled_from([0.0, 500.0]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(_DIMENSIONS)
def test_dimensions_carry_what_messages_were_counted_with(dimensions: list[Dimension]) -> None:
    system = System(Network(tuple(dimensions)))
    net = network_graph(system)
    src, dst = all_pairs(system.network.num_ranks)
    size = np.arange(src.size) + 1
    traffic = Traffic(system)
    traffic.add_messages(src, dst, size)
    routes = net.routes(src, dst)
    carried = np.bincount(
        routes.link, np.repeat(size, np.diff(routes.first)), minlength=net.capacity.size
    )
    assert carried.tolist() == traffic.bytes.tolist()
    assert all(net.names[link] for link in np.flatnonzero(carried))


def test_capacities_latencies_and_changes() -> None:
    changes = {
        "net.node1.adapter*": {"bandwidth": "0.5x"},
        "nvlink.rank3.up": {"bandwidth": "100 GB/s"},
        "net.leaf0.up.spine0": {"down": True},
    }
    plain, net = graph(FABRICS["fat tree"]), graph(FABRICS["fat tree"], links=changes)
    by_name = dict(zip(net.names, net.bandwidth.tolist(), strict=True))
    assert by_name["net.node1.adapter2.up.leaf1"] == 25.0
    assert by_name["nvlink.rank3.up"] == 100.0
    assert by_name["net.leaf0.up.spine0"] == 0.0
    assert (net.bandwidth != plain.bandwidth).sum() == 8 + 1 + 1
    routes = net.routes(np.array([0, 0]), np.array([1, 5]))
    assert routes.latency.tolist() == [4000, 400_000]


@pytest.mark.parametrize("what", ["fat tree", "rails", "torus", "two adapters each"])
def test_routes_go_round_what_is_down(what: str) -> None:
    src, dst = all_pairs(NUM_RANKS)
    plain = graph(FABRICS[what])
    first = plain.routes(np.array([0]), np.array([9]))
    # a link in the middle, or the adapter
    down = plain.names[first.link[len(first.link) // 2]]
    net = graph(FABRICS[what], links={down: {"down": True}})
    before, routes = plain.routes(src, dst), net.routes(src, dst)
    assert (net.capacity[routes.link] > 0).all()
    assert np.diff(routes.first)[src != dst].all()
    blocked = {int(p) for p in np.repeat(np.arange(src.size), np.diff(before.first))[
        np.isin(before.link, first.link[len(first.link) // 2])
    ]}  # fmt: skip
    for i in range(src.size):
        if i not in blocked:
            a, b = (
                before.link[before.first[i] : before.first[i + 1]],
                routes.link[routes.first[i] : routes.first[i + 1]],
            )
            assert a.tolist() == b.tolist()


def test_hashes_spread_flows_and_destinations_do_not() -> None:
    src, dst = np.zeros(64, dtype=np.int64), np.full(64, 23)
    for what, most in (("fat tree", 2), ("by destination", 1)):
        net = graph(FABRICS[what])
        routes = net.routes(src, dst, np.arange(64))
        ups = {net.names[link] for link in routes.link if "leaf0.up" in net.names[link]}
        assert len(ups) == most


def test_no_way_and_no_link_are_refused() -> None:
    down = {"nvlink.rank0.up": {"down": True}}
    net = graph(FABRICS["fat tree"], links=down)
    with pytest.raises(UsageError, match="no route from rank 0 to rank 1 is up"):
        net.routes(np.array([0]), np.array([1]))
    with pytest.raises(UsageError, match=r"no link is named 'nvlink\.rank99\.up'"):
        graph(FABRICS["fat tree"], links={"nvlink.rank99.up": {"down": True}})


@pytest.mark.parametrize(
    ("fabrics", "says"),
    [
        ([NVLINK], "joins 4 ranks of 24"),
        ([FABRICS["torus"][0] | {"shape": "2x2"}], "4 places for 24 ends"),
        ([FABRICS["dragonfly"][0] | {"routers": 1, "global_links": 1}], "4 places for 24 ends"),
    ],
)
def test_fabrics_that_are_too_small_are_refused(fabrics: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        graph(fabrics)


@pytest.mark.parametrize(
    ("fabrics", "says"),
    [
        ([NET | {"kind": "switch"}], r"fabrics\[0\].adapters: no fabric before it"),
        ([NVLINK, NET | {"kind": "switch", "adapters": 3}], "3 do not divide among 4 ranks"),
        ([NVLINK, NVLINK], r"fabrics\[1\].name: 'nvlink' is not a name of its own"),
        ([NVLINK | {"name": "a.b"}], "not a name"),
        ([NVLINK | {"ranks": 0}], "0 is not 1 to"),
        ([NVLINK, NET | {"kind": "switch", "ranks": 6}], "whole ones of the fabric before"),
        ([NVLINK, NET | {"kind": "rails", "adapters": 0}], "rails need adapters"),
        ([NVLINK, NET | {"kind": "fat-tree", "leaf": 0}], r"fabrics\[1\].leaf: 0 is not 1"),
        ([NVLINK, NET | {"kind": "fat-tree", "leaf": 4, "oversubscription": [1, 2]}], "give 1"),
        ([FABRICS["torus"][0] | {"shape": "4by4"}], "is not a shape"),
        ([NVLINK | {"bandwidth": "450"}], "not a bandwidth"),
        ([NVLINK | {"leaf": 4}], "unknown field"),
        ([NVLINK | {"adapter_link": "32 GB/s"}], "there are no adapters"),
        ([NVLINK | {"kind": "hub"}], r"fabrics\[0\].kind: .*'hub'"),
    ],
)
def test_fabrics_that_make_no_sense_are_refused(fabrics: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        graph(fabrics)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "it states no change"),
        ({"bandwidth": "0.5x", "down": True}, "a link that is down has none"),
        ({"bandwidth": "fastx"}, "not a part such as 0.5x"),
        ({"bandwidth": "-1x"}, "not a part such as 0.5x"),
        ({"bandwidth": "fast"}, "not a bandwidth"),
    ],
)
def test_changes_that_make_no_sense_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        graph(FABRICS["rails"], links={"net.*": change})


def test_given_routes_are_taken() -> None:
    names = [
        "nvlink.rank0.up",
        "nvlink.rank3.down",
        "net.node0.adapter3.up",
        "net.node2.adapter3.down",
    ]
    fabrics = [NVLINK, NET | {"kind": "switch"}]
    net = graph(fabrics, routes=[{"src": 0, "dst": 11, "links": names}])
    routes = net.routes(np.array([0, 0, 1]), np.array([11, 10, 11]))
    found = [net.names[link] for link in routes.link]
    assert found[:4] == names
    assert np.diff(routes.first).tolist() == [4, 2, 2]
    assert routes.latency.tolist() == [204_000, 200_000, 200_000]


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ({"src": 0, "dst": 0, "links": ["net.node0.adapter0.up"]}, "no route of its own"),
        ({"src": 0, "dst": 1, "links": []}, "no route of its own"),
        ({"src": -1, "dst": 1, "links": ["x"]}, "-1 is not 0 to"),
        ({"src": 0, "dst": 24, "links": ["x"]}, "there are 24 ranks"),
        ({"src": 0, "dst": 1, "links": ["x"]}, "no link is named 'x'"),
    ],
)
def test_given_routes_that_make_no_sense_are_refused(route: dict[str, Any], says: str) -> None:
    with pytest.raises((FormatError, UsageError), match=says):
        graph([NVLINK, NET | {"kind": "switch"}], routes=[route])


@pytest.mark.parametrize("other", [{"compat": "astra-sim"}, {"network.congestion": True}])
def test_links_of_dimensions_and_fabrics_are_not_mixed(other: dict[str, Any]) -> None:
    network = {"dimensions": [{"topology": "switch", "bandwidth": "50 GB/s"}], "fabrics": [NVLINK]}
    if "network.congestion" in other:
        network, other = network | {"congestion": True}, {}  # type: ignore[dict-item]
    with pytest.raises(FormatError, match="messages take the links of the dimensions"):
        system_from({"network": network, **other}, "mine.toml")
