"""Memory tiers and paths as system files state them, and what is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from nadi.errors import FormatError
from nadi.systems import MemoryPath, rate_alone
from nadi.systems.library import read_system_file
from nadi.systems.system_file import SystemFile, system_from

TIERED = """
[memory]
bandwidth = "3 TB/s"
capacity = "80 GB"
[[memory.paths]]
name = "pcie"
generation = "PCIe 5.0"
lanes = 16
network = ["dimension1"]
[[memory.tiers]]
name = "dram"
kind = "dram"
capacity = "1 TB"
read = "300 GB/s"
write = "200 GB/s"
latency = "500 ns"
shared_by = 4
path = "pcie"
[[memory.tiers]]
name = "cxl"
kind = "cxl-pool"
capacity = "256 GB"
generation = "CXL 2.0"
lanes = 8
devices = 4
latency = "400 ns"
path = "pcie"
switch = { ports = 2, bandwidth = "40 GB/s" }
[[memory.tiers]]
name = "slow"
kind = "cxl"
bandwidth = "20 GB/s"
latency = "1 us"
loaded = { outstanding = 64, knee = 0.5 }
[[network.dimensions]]
topology = "switch"
size = 4
bandwidth = "200 GB/s"
[[network.dimensions]]
topology = "switch"
bandwidth = "50 GB/s"
"""


def edited(path: str, value: Any) -> dict[str, Any]:
    """Give the description above with one value put in, or taken out if it is None."""
    described = tomllib.loads(TIERED)
    *way, last = path.split(".")
    inner: Any = described
    for key in way:
        inner = inner[int(key)] if key.isdecimal() else inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return described


def tiered(path: str = "memory.capacity", value: Any = "80 GB") -> SystemFile:
    return system_from(edited(path, value), "mine")


def test_a_file_gives_paths_and_tiers() -> None:
    system = tiered().fit(8)
    lane = 32 * 128 / 130 / 8
    (path,) = system.memory_paths
    assert path.read_bandwidth == pytest.approx(16 * lane * 256 / 280)
    assert path.dimensions == (1,)
    dram, pool, slow = system.tiers
    assert (dram.capacity, dram.shared_by, dram.duplex) == (10**12, 4, False)
    assert (dram.read_bandwidth, dram.write_bandwidth, dram.latency) == (300.0, 200.0, 500.0)
    # of all devices together; lanes carry both directions at once
    assert pool.capacity == 4 * 256 * 10**9
    assert pool.read_bandwidth == pytest.approx(4 * 8 * lane * 64 / 68 * 8 / 9)
    assert pool.write_bandwidth == pytest.approx(4 * 8 * lane * 64 / 68 * 4 / 5)
    assert (pool.duplex, pool.shared_by, pool.ports) == (True, 0, 2)
    assert slow.loaded
    assert (slow.loaded.idle_ns, slow.loaded.read_gbps, slow.loaded.knee) == (1000.0, 20.0, 0.5)
    assert rate_alone(slow) < 64 * 64 / 1000
    own = system.own_tier
    assert (own.name, own.capacity, own.read_bandwidth) == ("hbm", 80 * 10**9, 3000.0)
    assert system.path_of(slow) is None


def test_a_smaller_job_uses_what_of_a_path_it_has() -> None:
    assert tiered().fit(4).memory_paths[0].dimensions == ()
    described = edited("memory.paths.0.network", ["fast"])
    described["network"]["fabrics"] = [{"kind": "switch", "name": "fast", "bandwidth": "50 GB/s"}]
    assert system_from(described, "mine").fit(8).memory_paths[0].dimensions == (0,)


def test_a_stated_bandwidth_comes_before_lanes_and_may_be_unlimited() -> None:
    assert tiered("memory.tiers.1.bandwidth", "10 GB/s").fit(4).tiers[1].read_bandwidth == 40.0
    free = tiered("memory.paths.0.bandwidth", "unlimited").fit(4).memory_paths[0]
    assert free == MemoryPath(name="pcie")
    assert tiered("memory.tiers.1.duplex", False).fit(4).tiers[1].duplex is False


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("memory.tiers.0.name", "hbm", r"tiers\[0\].name: hbm is the device's own memory"),
        ("memory.tiers.0.name", "cxl", r"tiers\[1\].name: 'cxl' occurs twice"),
        ("memory.tiers.0.name", "a b", r"name: 'a b' is not a name"),
        ("memory.tiers.0.path", "usb", r"path: 'usb' is not a path of the file.*known: pcie"),
        ("memory.tiers.0.kind", "hbm", "Invalid enum value|invalid enum value"),
        ("memory.tiers.0.write", None, "bandwidth: both directions need one"),
        ("memory.tiers.0.bandwidth", "3 GB/s", "bandwidth: both directions need one"),
        ("memory.tiers.1.generation", None, "lanes: they have no bandwidth without a generation"),
        ("memory.tiers.1.lanes", None, "lanes: 0 is not 1 to 2"),
        ("memory.tiers.2.bandwidth", None, 'bandwidth: it has none.*"unlimited" for no limit'),
        ("memory.tiers.2.bandwidth", "fast", "bandwidth: 'fast' is not a bandwidth"),
        ("memory.tiers.2.latency", "0 ns", "loaded: a curve begins at a latency"),
        ("memory.tiers.2.latency", "2 h", "latency: '2 h' is not a time"),
        ("memory.tiers.2.latency", "3601 s", "latency: '3601 s' is longer than an hour"),
        ("memory.tiers.2.loaded", {"most": "3601 s"}, "loaded.most: '3601 s' is longer"),
        ("memory.tiers.2.duplex", True, "duplex: the curve says what reads and writes"),
        ("memory.tiers.2.loaded", {"knee": 0.99}, "loaded.*must be below saturation"),
        ("memory.tiers.1.switch", {"ports": 0, "bandwidth": "1 GB/s"}, "switch.ports: 0 is not"),
        ("memory.tiers.1.devices", 0, "devices: 0 is not 1 to 2"),
        ("memory.tiers.0.shared_by", 0, "shared_by: 0 is not 1 to 2"),
        ("memory.paths.0.network", ["wifi"], r"'wifi' is not a network of the file.*dimension0"),
        ("memory.paths.0.name", "x.y", "name: 'x.y' is not a name"),
    ],
)
def test_what_is_refused_says_where_and_why(path: str, value: Any, what: str) -> None:
    with pytest.raises(FormatError, match=what) as caught:
        tiered(path, value)
    assert "\n" not in str(caught.value)


def test_other_rules_know_no_tiers() -> None:
    described = edited("memory.capacity", "80 GB") | {"compat": "astra-sim"}
    with pytest.raises(FormatError, match=r"\$.memory.tiers: it has no effect with compat"):
        system_from(described, "mine")


@pytest.mark.parametrize("name", ["dgx-h100-cxl", "gh200"])
def test_shipped_tiers_are_as_fast_as_was_measured(name: str) -> None:
    system = read_system_file(name).fit(16)
    measured = {"dgx-h100-cxl": (51, 52), "gh200": (375, 297)}[name]
    first = system.tiers[0]
    path = system.path_of(first)
    assert (rate_alone(first, path), rate_alone(first, path, store=True)) == measured
    # slower and larger with each tier, but for a pool that is beside the host's memory
    latencies = [tier.latency for tier in system.tiers if tier.kind != "cxl-pool"]
    assert latencies == sorted(latencies)
