"""NCCL's log: version, ranks and graphs."""

from __future__ import annotations

import pytest

from nadi.errors import FormatError
from nadi.systems.nccl.measured import parse_nccl_log

LOG = """h0:10:11 [0] NCCL INFO cudaDriverVersion 12040
NCCL version 2.21.5+cuda12.4
h0:10:20 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
h0:10:20 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 8, bw 48.000000/48.000000, type NVL/PIX, sameChannels 0
h0:10:20 [0] NCCL INFO  0 : NET/0 GPU/0 GPU/1 NET/0
h0:10:20 [0] NCCL INFO Pattern 3, crossNic 0, nChannels 8, bw 48.000000/48.000000, type NVL/PIX, sameChannels 1
h0:10:20 [0] NCCL INFO Pattern 5, crossNic 0, nChannels 8, bw 40.000000/48.000000, type NVL/PIX, sameChannels 0
h1:10:20 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 4, bw 24.000000/24.000000, type NVL/PXN, sameChannels 1
h1:10:20 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 8, bw 48.000000/48.000000, type PHB/PIX, sameChannels 1
"""  # noqa: E501


def test_graphs_are_the_least_of_all_ranks() -> None:
    log = parse_nccl_log(LOG.encode(), "log")
    assert (log.version, log.ranks, log.nodes) == ("2.21.5", 16, 2)
    assert set(log.graphs) == {"ring", "tree", "nvls"}
    ring, tree = log.graphs["ring"], log.graphs["tree"]
    assert (ring.pattern, ring.channels, ring.same_channels) == (4, 4, False)
    assert (ring.bandwidth_intra, ring.bandwidth_inter) == (24.0, 24.0)
    assert (ring.type_intra, ring.type_inter) == ("NVL", "PXN")
    assert (tree.pattern, tree.channels) == (3, 8)
    assert log.graphs["tree"].type_intra == "PHB"


def test_a_log_without_graphs_is_refused() -> None:
    with pytest.raises(FormatError, match=r"no line describes a ring .*SUBSYS=INIT"):
        parse_nccl_log(b"h0:1:2 [0] NCCL INFO nothing", "log")
    with pytest.raises(FormatError, match="ABC is not a type of path"):
        parse_nccl_log(LOG.replace("NVL/PXN", "ABC/PXN").encode(), "log")


def test_a_second_tree_of_a_rank_is_that_of_collnet() -> None:
    lines = LOG.splitlines()
    more = [*lines[:7], lines[5], lines[6].replace("Pattern 5", "Pattern 6")]
    log = parse_nccl_log("\n".join(more).encode(), "log")
    assert set(log.graphs) == {"ring", "tree", "nvls", "collnet_chain", "collnet_direct"}
    assert log.graphs["collnet_direct"].pattern == 6
