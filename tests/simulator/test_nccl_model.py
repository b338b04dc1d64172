"""NCCL's cost model: figures that NCCL itself printed, and laws."""

from __future__ import annotations

import numpy as np
import pytest

from nadi.errors import UsageError
from nadi.systems import (
    ChannelGraph,
    NcclCommunicator,
    nccl_choices,
    nccl_costs,
    nccl_rules,
    nccl_times,
)
from nadi.systems.nccl.nccl_cost_table import channels_used
from nadi.systems.nccl.nccl_versions import COMPARED, VERSIONS

# NCCL 2.29.7, two nodes of one GPU (compute capability 12.0) over sockets, as its log prints it
SOCKETS = NcclCommunicator(
    ranks=2, nodes=2, capability=120, channels=4,
    graphs={
        "Ring": ChannelGraph(2, 1.2, 1.2, "PHB", "PHB"),
        "Tree": ChannelGraph(2, 2.4, 1.2, "PHB", "PHB", pattern=3),
        "PAT": ChannelGraph(2, 2.4, 1.2, "PHB", "PHB", pattern=3),
    },
)  # fmt: skip
EIGHT = NcclCommunicator(
    ranks=8, nodes=1, capability=90, channels=24,
    graphs={
        "Ring": ChannelGraph(12, 30.0, 30.0),
        "Tree": ChannelGraph(12, 30.0, 30.0, pattern=1),
        "NVLS": ChannelGraph(8, 40.0, 60.0, pattern=5),
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "latency", "bandwidth"),
    [
        (("all_reduce", "Tree", "LL"), 16.8, 0.5),
        (("all_reduce", "Tree", "Simple"), 36.4, 1.9),
        (("all_reduce", "Ring", "LL"), 16.6, 1.2),
        (("all_reduce", "Ring", "Simple"), 36.4, 2.4),
        (("all_gather", "Ring", "LL"), 11.6, 2.4),
        (("all_gather", "Ring", "Simple"), 22.4, 4.8),
        (("all_gather", "PAT", "Simple"), 17.6, 3.6),
        (("broadcast", "Ring", "LL"), 9.3, 1.2),
        (("broadcast", "Ring", "Simple"), 22.4, 2.4),
    ],
)
def test_costs_are_those_that_nccl_printed(
    entry: tuple[str, str, str], latency: float, bandwidth: float
) -> None:
    cost = nccl_costs(SOCKETS, nccl_rules("2.29.7"))[entry]
    assert round(cost.latency + 1e-9, 1) == latency
    assert round(cost.bandwidth + 1e-9, 1) == bandwidth


def test_channels_are_those_that_nccl_printed() -> None:
    assert channels_used(1 << 14, ("Ring", "LL"), SOCKETS)[0] == 2
    assert channels_used(1 << 17, ("Ring", "Simple"), SOCKETS)[0] == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_more_bytes_never_take_less_time_with_one_algorithm(version: str) -> None:
    rules = nccl_rules(version)
    table = nccl_costs(EIGHT, rules)
    sizes = np.array([1 << power for power in range(3, 33)], dtype=np.int64)
    assert len(table) >= 13
    for entry, cost in table.items():
        if entry[1] == "Ring" and cost.bandwidth:
            times = nccl_times(sizes, entry, cost, EIGHT, rules)
            assert (np.diff(times) > 0).all()


def test_small_ones_take_low_latency_and_large_ones_the_switch() -> None:
    rules = nccl_rules("2.27.7")
    sizes = np.array([8, 1 << 33], dtype=np.int64)
    small, large = nccl_choices(sizes, "all_reduce", nccl_costs(EIGHT, rules), EIGHT, rules)
    assert small[:2] == ("Ring", "LL")
    assert large[:2] == ("NVLS", "Simple")


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"NCCL 1\.3: its cost model is not known; known are 2\.18"
    ):
        nccl_rules("1.3")
    assert {".".join(version.split(".")[:2]) for version in COMPARED} <= set(VERSIONS)
